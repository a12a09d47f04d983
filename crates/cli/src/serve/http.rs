//! As much of HTTP/1.1 as it takes to tell how a server does: GET and HEAD, one request a connection.
//! Whoever asks can neither keep it busy nor make it remember much.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What is told.
pub trait Site: Send + Sync + 'static {
    /// What is at `path`, which begins with a slash and has no query; none: nothing.
    fn get(&self, path: &str) -> Option<Answer>;
}

/// What is at a path.
#[derive(Debug)]
pub struct Answer {
    /// Its media type.
    pub kind: &'static str,
    /// What it is.
    pub body: String,
    /// What is asked about does not work: 503 instead of 200.
    pub failing: bool,
}

/// What is granted to those who ask.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of a request up to the empty line.
    pub header: usize,
    /// Connections at a time; as many more are told to come back.
    pub connections: usize,
    /// Time for a request to arrive, and again for the answer to be taken.
    pub time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { header: 8 << 10, connections: 16, time: Duration::from_secs(5) }
    }
}

/// How long those who are told to come back may take to hear it.
const BUSY: Duration = Duration::from_secs(1);

/// Answers until it goes.
#[derive(Debug)]
pub struct Http {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Http {
    /// Begins to answer at `address`.
    ///
    /// # Errors
    /// Nobody can listen there, or the system gives no thread.
    pub fn start(address: SocketAddr, site: Arc<dyn Site>, bounds: Bounds) -> io::Result<Http> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let ends = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("status".into()).spawn({
            let ends = ends.clone();
            move || accept(&listener, &site, bounds, &ends)
        })?;
        Ok(Http { address, ends, thread: Some(thread) })
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // It waits for a connection: here is one. If there can be none, the thread ends with the
        // process.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// One that is counted as long as this is there.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, site: &Arc<dyn Site>, bounds: Bounds, ends: &AtomicBool) {
    let taken = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = listener.accept();
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let Ok((mut stream, _)) = accepted else {
            // Such as too many open files: to try again at once would help nobody.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        let place = Place(taken.clone());
        let before = taken.fetch_add(1, Ordering::Relaxed);
        if before >= 2 * bounds.connections {
            // Not worth a thread: the few bytes have room in the socket's buffer.
            if stream.set_nonblocking(true).is_ok() {
                let _ = stream.write_all(&reply(Status::Busy, false));
            }
            continue;
        }
        let site = site.clone();
        // Without a thread there is no answer; the connection closes.
        let _ = thread::Builder::new().name("status-answer".into()).spawn(move || {
            let _place = place;
            // Whoever goes away meanwhile needs no answer.
            let _ = match before < bounds.connections {
                true => serve(stream, &*site, bounds),
                false => tell(stream, &reply(Status::Busy, false), bounds.time.min(BUSY)),
            };
        });
    }
}

/// What is said instead of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Bad,
    NotFound,
    NotAllowed,
    TooSlow,
    TooLong,
    Busy,
    Misdirected,
    Version,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Status::Bad => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::NotAllowed => "405 Method Not Allowed",
            Status::TooSlow => "408 Request Timeout",
            Status::TooLong => "431 Request Header Fields Too Large",
            Status::Misdirected => "421 Misdirected Request",
            Status::Busy => "503 Service Unavailable",
            Status::Version => "505 HTTP Version Not Supported",
        }
    }
}

fn serve(mut stream: TcpStream, site: &dyn Site, bounds: Bounds) -> io::Result<()> {
    let reply = match read_header(&mut stream, bounds) {
        Ok(Some(header)) => answer(&header, site),
        // It closed before it asked.
        Ok(None) => return Ok(()),
        Err(status) => reply(status, false),
    };
    tell(stream, &reply, bounds.time)
}

/// Gives an answer, and `time` to take it.
fn tell(mut stream: TcpStream, reply: &[u8], time: Duration) -> io::Result<()> {
    write_within(&mut stream, reply, time)?;
    stream.shutdown(Shutdown::Write)?;
    // To close with something unread would reset the connection, and the answer might be lost; but
    // nobody may go on for ever.
    let deadline = Instant::now() + time;
    let mut rest = [0; 4096];
    let mut left = 16usize;
    while left > 0 && read_some(&mut stream, &mut rest, deadline)? > 0 {
        left -= 1;
    }
    Ok(())
}

/// The request up to its empty line; none if it ends without a byte.
fn read_header(stream: &mut TcpStream, bounds: Bounds) -> Result<Option<Vec<u8>>, Status> {
    let deadline = Instant::now() + bounds.time;
    let mut header = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let count = match read_some(stream, &mut chunk, deadline) {
            Ok(0) if header.is_empty() => return Ok(None),
            Ok(0) => return Err(Status::Bad),
            Ok(count) => count,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Err(Status::TooSlow),
                _ => return Ok(None),
            },
        };
        header.extend_from_slice(&chunk[..count]);
        if let Some(end) = header.windows(4).position(|four| four == b"\r\n\r\n") {
            header.truncate(end);
            return if end > bounds.header { Err(Status::TooLong) } else { Ok(Some(header)) };
        }
        if header.len() > bounds.header {
            return Err(Status::TooLong);
        }
    }
}

/// Reads what there is, until `deadline`: then [`io::ErrorKind::TimedOut`].
fn read_some(stream: &mut TcpStream, into: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn write_within(stream: &mut TcpStream, mut bytes: &[u8], time: Duration) -> io::Result<()> {
    let deadline = Instant::now() + time;
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn answer(header: &[u8], site: &dyn Site) -> Vec<u8> {
    let (method, path) = match request(header) {
        Ok(request) => request,
        Err(status) => return reply(status, false),
    };
    let head = method == "HEAD";
    if !head && method != "GET" {
        return reply(Status::NotAllowed, false);
    }
    match site.get(path) {
        None => reply(Status::NotFound, head),
        Some(Answer { kind, body, failing }) => {
            let line = if failing { Status::Busy.line() } else { "200 OK" };
            with_body(line, kind, &body, head)
        }
    }
}

/// The method and the path without its query.
fn request(header: &[u8]) -> Result<(&str, &str), Status> {
    let header = std::str::from_utf8(header).map_err(|_| Status::Bad)?;
    let mut lines = header.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Status::Bad);
    };
    let named = |line: &str| {
        line.split_once(':').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic())
        })
    };
    let method_fits = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let hosts = lines.clone().filter_map(|line| line.split_once(':'));
    let mut hosts = hosts.filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let controls = |c: char| c.is_control() && c != '\t';
    if !method_fits || !target.starts_with('/') || !lines.all(named) {
        return Err(Status::Bad);
    }
    if header.replace("\r\n", "").contains(controls) {
        return Err(Status::Bad);
    }
    if !hosts.all(|(_, host)| is_here(host.trim())) {
        return Err(Status::Misdirected);
    }
    match version {
        "HTTP/1.1" | "HTTP/1.0" => {}
        _ if version.starts_with("HTTP/") => return Err(Status::Version),
        _ => return Err(Status::Bad),
    }
    Ok((method, target.split_once('?').map_or(target, |(path, _)| path)))
}

/// Whether `host`, as browsers say whom they want, is an address or `localhost`. A page from elsewhere,
/// whose name leads here, is to read nothing.
fn is_here(host: &str) -> bool {
    let port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = host.strip_prefix('[') {
        let Some((ip, rest)) = rest.split_once(']') else { return false };
        let fits = rest.is_empty() || rest.strip_prefix(':').is_some_and(port);
        return fits && ip.parse::<Ipv6Addr>().is_ok();
    }
    let (name, rest) = host.split_once(':').unwrap_or((host, ""));
    port(rest) && (name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok())
}

fn reply(status: Status, head: bool) -> Vec<u8> {
    let line = status.line();
    with_body(line, "text/plain; charset=utf-8", &format!("{line}\n"), head)
}

fn with_body(line: &str, kind: &str, body: &str, head: bool) -> Vec<u8> {
    let allow = if line.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let header = format!(
        "HTTP/1.1 {line}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if head { "" } else { body };
    [header.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words;

    impl Site for Words {
        fn get(&self, path: &str) -> Option<Answer> {
            match path {
                "/words" => {
                    Some(Answer { kind: "text/plain", body: "some words\n".into(), failing: false })
                }
                "/much" => {
                    Some(Answer { kind: "text/plain", body: "x".repeat(4 << 20), failing: false })
                }
                _ => None,
            }
        }
    }

    fn start(bounds: Bounds) -> Http {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        Http::start(address, Arc::new(Words), bounds).expect("a server")
    }

    fn ask(http: &Http, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(http.address()).expect("a connection");
        stream.write_all(request).expect("room for the request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn line_of(answer: &str) -> &str {
        answer.lines().next().unwrap_or_default()
    }

    #[test]
    fn pages_are_got() {
        let http = start(Bounds::default());
        let answer = ask(&http, b"GET /words?x=1 HTTP/1.1\r\nHost: localhost:80\r\n\r\n");
        assert_eq!(line_of(&answer), "HTTP/1.1 200 OK");
        assert!(answer.contains("\r\nContent-Length: 11\r\n"), "{answer}");
        assert!(answer.contains("\r\nContent-Type: text/plain\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nsome words\n"), "{answer}");
        let head = ask(&http, b"HEAD /words HTTP/1.0\r\n\r\n");
        assert!(head.contains("Content-Length: 11") && head.ends_with("\r\n\r\n"), "{head}");
        let much = ask(&http, b"GET /much HTTP/1.1\r\n\r\n");
        assert!(much.ends_with("\r\n\r\n") || much.ends_with('x'));
        assert_eq!(much.split_once("\r\n\r\n").map(|(_, body)| body.len()), Some(4 << 20));
    }

    #[test]
    fn what_is_no_request_is_told() {
        let http = start(Bounds::default());
        for (request, line) in [
            (&b"GET /other HTTP/1.1\r\n\r\n"[..], "404 Not Found"),
            (b"POST /words HTTP/1.1\r\nContent-Length: 2\r\n\r\nab", "405 Method Not Allowed"),
            (b"GET /words HTTP/2.0\r\n\r\n", "505 HTTP Version Not Supported"),
            (b"GET /words\r\n\r\n", "400 Bad Request"),
            (b"GET  /words HTTP/1.1\r\n\r\n", "400 Bad Request"),
            (b"GET words HTTP/1.1\r\n\r\n", "400 Bad Request"),
            (b"get /words HTTP/1.1\r\n\r\n", "400 Bad Request"),
            (b"GET /words HTTP/1.1\r\nno colon\r\n\r\n", "400 Bad Request"),
            (b"GET /words HTTP/1.1\r\na: \x01\r\n\r\n", "400 Bad Request"),
            (b"GET /w\nds HTTP/1.1\r\n\r\n", "400 Bad Request"),
            (b"\xff\xfe\r\n\r\n", "400 Bad Request"),
            (b"\r\n\r\n", "400 Bad Request"),
            (b"\x16\x03\x01\r\n\r\n", "400 Bad Request"),
        ] {
            let answer = ask(&http, request);
            assert_eq!(line_of(&answer), format!("HTTP/1.1 {line}"), "{request:?}");
        }
        let refused = ask(&http, b"DELETE / HTTP/1.1\r\n\r\n");
        assert!(refused.contains("\r\nAllow: GET, HEAD\r\n"), "{refused}");
    }

    #[test]
    fn whatever_comes_is_answered() {
        let mut rng = farhaul_base::Rng::new(7);
        const PARTS: [&[u8]; 12] = [
            b"GET",
            b" ",
            b"/words",
            b"HTTP/1.1",
            b"\r\n",
            b":",
            b"a",
            b"\n",
            b"\xff",
            b"?",
            b"\0",
            b"HEAD",
        ];
        let mut lines = std::collections::BTreeSet::new();
        for _ in 0..20_000 {
            let mut header = Vec::new();
            for _ in 0..rng.below(9) {
                header.extend_from_slice(PARTS[rng.below(PARTS.len() as u64) as usize]);
            }
            let answer = String::from_utf8(answer(&header, &Words)).expect("UTF-8");
            lines.insert(line_of(&answer).to_owned());
        }
        assert!(lines.iter().all(|line| line.starts_with("HTTP/1.1 ")), "{lines:?}");
        assert!(lines.contains("HTTP/1.1 400 Bad Request"));
    }

    #[test]
    fn a_request_that_ends_early_is_bad_and_none_is_none() {
        let http = start(Bounds::default());
        for (request, line) in [(&b"GET /wor"[..], "HTTP/1.1 400 Bad Request"), (b"", "")] {
            let mut stream = TcpStream::connect(http.address()).expect("a connection");
            stream.write_all(request).expect("room for the request");
            stream.shutdown(Shutdown::Write).expect("it is open");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            assert_eq!(line_of(&answer), line);
        }
    }

    #[test]
    fn a_header_has_an_end() {
        let http = start(Bounds { header: 100, ..Bounds::default() });
        let request = [b"GET /words HTTP/1.1\r\na: ".to_vec(), vec![b'x'; 8000]].concat();
        let answer = ask(&http, &request);
        assert_eq!(line_of(&answer), "HTTP/1.1 431 Request Header Fields Too Large");
        let fits = ask(&http, b"GET /words HTTP/1.1\r\na: b\r\n\r\n");
        assert_eq!(line_of(&fits), "HTTP/1.1 200 OK");
    }

    #[test]
    fn who_says_nothing_is_not_waited_for() {
        let http = start(Bounds { time: Duration::from_millis(500), ..Bounds::default() });
        let answer = ask(&http, b"GET /words HTTP/1.1\r\n");
        assert_eq!(line_of(&answer), "HTTP/1.1 408 Request Timeout");
    }

    #[test]
    fn names_that_lead_here_are_not_believed() {
        let http = start(Bounds::default());
        for (host, line) in [
            ("127.0.0.1:9300", "200 OK"),
            ("[::1]:9300", "200 OK"),
            ("[::1]", "200 OK"),
            ("LOCALHOST", "200 OK"),
            ("evil.example", "421 Misdirected Request"),
            ("evil.example:9300", "421 Misdirected Request"),
            ("127.0.0.1.evil.example", "421 Misdirected Request"),
            ("localhost:80@evil.example", "421 Misdirected Request"),
            ("[::1", "421 Misdirected Request"),
            ("", "421 Misdirected Request"),
            ("127.0.0.1\r\nHost: evil.example", "421 Misdirected Request"),
        ] {
            let asked = format!("GET /words HTTP/1.1\r\nhOst: {host}\r\n\r\n");
            let answer = ask(&http, asked.as_bytes());
            assert_eq!(line_of(&answer), format!("HTTP/1.1 {line}"), "{host}");
        }
    }

    #[test]
    fn who_is_too_many_is_told_and_others_go_on() {
        let bounds = Bounds { connections: 2, time: Duration::from_secs(60), ..Bounds::default() };
        let http = start(bounds);
        let open = || {
            let mut stream = TcpStream::connect(http.address()).expect("a connection");
            stream.write_all(b"GET /words HTTP/1.1\r\n").expect("room for it");
            stream
        };
        // Connections are accepted in their order, so both have their places before the third comes.
        let (mut first, second) = (open(), open());
        let mut third = open();
        third.write_all(b"\r\n").expect("it is open");
        let mut answer = String::new();
        third.read_to_string(&mut answer).expect("an answer");
        assert_eq!(line_of(&answer), "HTTP/1.1 503 Service Unavailable");
        first.write_all(b"\r\n").expect("it is open");
        answer.clear();
        first.read_to_string(&mut answer).expect("an answer");
        assert_eq!(line_of(&answer), "HTTP/1.1 200 OK");
        drop(second);
    }

    #[test]
    fn it_ends_with_its_value() {
        let http = start(Bounds::default());
        let address = http.address();
        drop(http);
        // Nobody has the port any more.
        assert!(TcpListener::bind(address).is_ok() || TcpStream::connect(address).is_err());
    }
}
