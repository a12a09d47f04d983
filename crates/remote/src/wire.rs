//! The stream below a link: UDT, TCP or a local socket, with its time-outs, its rate and its end.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use farhaul::{Connection, TagKeys};
use farhaul_secure::TagSecrets;
use socket2::{SockRef, TcpKeepalive};

use crate::link::Kind;
use crate::lock;

/// What is written at once while the rate is limited, in time at that rate.
const SLICE: Duration = Duration::from_millis(10);
/// But not less than this, bytes.
const LEAST_SLICE: u64 = 1 << 10;
/// How often a writer that waits for its turn looks whether the link was aborted.
const LOOK: Duration = Duration::from_millis(20);

/// A connection of any kind.
#[derive(Clone, Debug)]
pub(crate) enum Raw {
    Udp(Connection),
    Tcp(Arc<TcpStream>),
    Pipe(Arc<UnixStream>),
}

impl Raw {
    /// A TCP connection that notices within `silence` that its peer is gone.
    pub fn tcp(stream: TcpStream, silence: Duration) -> io::Result<Raw> {
        let socket = SockRef::from(&stream);
        socket.set_tcp_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time((silence / 2).max(Duration::from_secs(1)))
            .with_interval((silence / 10).max(Duration::from_secs(1)))
            .with_retries(5);
        socket.set_tcp_keepalive(&keepalive)?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(silence))?;
        Ok(Raw::Tcp(Arc::new(stream)))
    }

    pub fn kind(&self) -> Kind {
        match self {
            Raw::Udp(_) => Kind::Udp,
            Raw::Tcp(_) => Kind::Tcp,
            Raw::Pipe(_) => Kind::Pipe,
        }
    }

    pub fn peer(&self) -> Option<SocketAddr> {
        match self {
            Raw::Udp(connection) => Some(connection.peer_addr()),
            Raw::Tcp(stream) => stream.peer_addr().ok(),
            Raw::Pipe(_) => None,
        }
    }

    /// Ends it at once; whoever waits in a call returns.
    pub fn abort(&self) {
        match self {
            Raw::Udp(connection) => connection.abort(),
            // What fails here is over already.
            Raw::Tcp(stream) => drop(stream.shutdown(Shutdown::Both)),
            Raw::Pipe(stream) => drop(stream.shutdown(Shutdown::Both)),
        }
    }

    fn set_timeouts(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Raw::Udp(connection) => {
                connection.set_read_timeout(time);
                connection.set_write_timeout(time);
                Ok(())
            }
            Raw::Tcp(stream) => {
                stream.set_read_timeout(time)?;
                stream.set_write_timeout(time)
            }
            Raw::Pipe(stream) => {
                stream.set_read_timeout(time)?;
                stream.set_write_timeout(time)
            }
        }
    }

    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Raw::Udp(connection) => (&mut &*connection).read(buf),
            Raw::Tcp(stream) => (&mut &**stream).read(buf),
            Raw::Pipe(stream) => (&mut &**stream).read(buf),
        }
    }

    fn write(&self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Raw::Udp(connection) => (&mut &*connection).write(buf),
            Raw::Tcp(stream) => (&mut &**stream).write(buf),
            Raw::Pipe(stream) => (&mut &**stream).write(buf),
        }
    }
}

/// What all halves and handles of a link share of its stream.
#[derive(Debug)]
pub(crate) struct Core {
    pub raw: Raw,
    aborted: AtomicBool,
    /// Until when the handshake must be over, while there is one.
    deadline: Mutex<Option<Instant>>,
    hurried: AtomicBool,
    /// Bits/s, 0: no limit. UDT keeps it by itself.
    max_rate: AtomicU64,
    /// When the next slice may be written.
    next: Mutex<Option<Instant>>,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    /// Since when a reader waits for the peer.
    waiting: Mutex<Option<Instant>>,
}

impl Core {
    pub fn new(raw: Raw, deadline: Option<Instant>) -> Arc<Core> {
        Arc::new(Core {
            raw,
            aborted: AtomicBool::new(false),
            hurried: AtomicBool::new(deadline.is_some()),
            deadline: Mutex::new(deadline),
            max_rate: AtomicU64::new(0),
            next: Mutex::new(None),
            bytes_sent: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
            waiting: Mutex::default(),
        })
    }

    /// The peer's control packets can be told from others, where the transport has any.
    pub fn set_tag_keys(&self, keys: &TagSecrets) {
        if let Raw::Udp(connection) = &self.raw {
            let TagSecrets { sending, receiving } = keys;
            connection.set_tag_keys(TagKeys { send: **sending, receive: **receiving });
        }
    }

    /// Others than the peer's are of no effect from now on.
    pub fn authenticate(&self) {
        if let Raw::Udp(connection) = &self.raw {
            connection.authenticate();
        }
    }

    /// Of data packets as well.
    pub fn authenticate_data(&self) {
        if let Raw::Udp(connection) = &self.raw {
            connection.authenticate_data();
        }
    }

    /// The handshake is over: the peer is known, and may take its time and send much.
    pub fn unhurried(&self) -> io::Result<()> {
        if let Raw::Udp(connection) = &self.raw {
            connection.welcome();
        }
        self.hurried.store(false, Ordering::Relaxed);
        self.raw.set_timeouts(None)
    }

    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
        self.raw.abort();
    }

    /// Bytes that the stream has taken.
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent.load(Ordering::Relaxed)
    }

    /// Bytes that were read from the stream.
    pub fn bytes_received(&self) -> u64 {
        self.bytes_received.load(Ordering::Relaxed)
    }

    /// For how long a reader has been waiting for the peer; zero if there is none.
    pub fn waited(&self) -> Duration {
        lock(&self.waiting).map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub fn set_max_rate(&self, bits_per_second: Option<u64>) {
        match &self.raw {
            Raw::Udp(connection) => connection.set_max_bandwidth(bits_per_second),
            _ => {
                let rate = bits_per_second.map_or(0, |rate| rate.max(8000));
                self.max_rate.store(rate, Ordering::Relaxed);
            }
        }
    }

    fn aborted(&self) -> io::Result<()> {
        if self.aborted.load(Ordering::Relaxed) {
            return Err(io::Error::new(ErrorKind::ConnectionAborted, "the link was aborted"));
        }
        Ok(())
    }

    /// Limits the next call to the time that the handshake has left.
    fn hurry(&self) -> io::Result<()> {
        if !self.hurried.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(deadline) = *lock(&self.deadline) else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(too_slow());
        }
        self.raw.set_timeouts(Some(left))
    }

    /// An abort in another thread looks like an end; a time-out has another name on sockets.
    fn explain<T>(&self, result: io::Result<T>) -> io::Result<T> {
        self.aborted()?;
        result.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => too_slow(),
            _ => error,
        })
    }

    /// Waits until some of `wanted` bytes may be written; returns how many.
    fn pace(&self, wanted: usize) -> io::Result<usize> {
        let rate = self.max_rate.load(Ordering::Relaxed);
        if rate == 0 {
            return Ok(wanted);
        }
        let slice = (rate as f64 / 8.0 * SLICE.as_secs_f64()) as u64;
        let count = wanted.min(slice.max(LEAST_SLICE) as usize);
        let now = Instant::now();
        let turn = {
            let mut next = lock(&self.next);
            let turn = next.map_or(now, |at| at.max(now));
            *next = Some(turn + Duration::from_secs_f64(count as f64 * 8.0 / rate as f64));
            turn
        };
        loop {
            self.aborted()?;
            let left = turn.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(count);
            }
            thread::sleep(left.min(LOOK));
        }
    }
}

fn too_slow() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "the peer did not answer in time")
}

/// The stream of a [`Core`]. Reading and writing are independent of each other.
#[derive(Clone, Debug)]
pub(crate) struct Wire(pub Arc<Core>);

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.aborted()?;
        self.0.hurry()?;
        *lock(&self.0.waiting) = Some(Instant::now());
        let result = self.0.raw.read(buf);
        *lock(&self.0.waiting) = None;
        let read = self.0.explain(result)?;
        self.0.bytes_received.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.aborted()?;
        self.0.hurry()?;
        let count = self.0.pace(buf.len())?;
        let result = self.0.raw.write(&buf[..count]);
        let written = self.0.explain(result)?;
        self.0.bytes_sent.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.aborted()
    }
}
