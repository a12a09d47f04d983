//! `farhaul serve` on the loopback interface, and a client with a home of its own.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::home::{Home, Outcome};
use super::process::Process;

/// An export of each kind of access, for [`Site::new`].
pub const EXPORTS: &str = "
[export.out]
path = \"DIR/out\"
access = \"read\"
clients = \"*\"
[export.in]
path = \"DIR/in\"
access = \"read-write\"
clients = \"*\"
[export.box]
path = \"DIR/in\"
access = \"write\"
clients = \"*\"
";

/// A server with its files, and a client that it knows as `alice`.
pub struct Site {
    dir: tempfile::TempDir,
    pub home: Home,
    pub address: SocketAddr,
    pub status: SocketAddr,
    /// The server's.
    pub key: String,
    /// Alice's.
    pub client: String,
}

/// An address at which both UDP and TCP are free just now.
fn free_address() -> SocketAddr {
    for _ in 0..64 {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = udp.local_addr().expect("a bound socket");
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port is free for both");
}

impl Site {
    /// `more` stands in the configuration behind its first lines and the client, with DIR for the
    /// directory of the site. `out` and `in` are there as directories.
    pub fn new(more: &str) -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::new();
        let client = home.run(&["key", "new"]).well().trim().to_owned();
        let identity = dir.path().join("identity");
        let key = home.run(&["key", "new", "--identity", identity.to_str().expect("text")]).well();
        for name in ["out", "in", "here"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        let (address, status) = (free_address(), free_address());
        let site = Site { dir, home, address, status, key: key.trim().to_owned(), client };
        site.configure(more);
        site
    }

    /// Writes the configuration anew.
    pub fn configure(&self, more: &str) {
        let Site { address, status, client, .. } = self;
        let (top, sections) = more.split_once("\n[").unwrap_or((more, ""));
        let sections = if sections.is_empty() { String::new() } else { format!("[{sections}") };
        let text = format!(
            "listen = \"{address}\"\nidentity = \"identity\"\nmetrics = \"{status}\"\n{top}\n\
             [client.alice]\nkey = \"{client}\"\n{sections}\n"
        );
        let text = text.replace("DIR", self.dir.path().to_str().expect("text"));
        fs::write(self.path("serve.toml"), text).expect("a file");
    }

    /// A file of the site.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes one.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory");
        fs::write(&path, content).expect("a file");
        path.to_str().expect("text").to_owned()
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Starts the server and waits until it listens.
    pub fn serve(&self) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        command.arg("serve").arg("--config").arg(self.path("serve.toml"));
        let name = "farhaul serve".to_owned();
        let server = Process::with_lines(command, name, super::process::LIMIT);
        server.wait_error_line(" listening ");
        server
    }

    /// What stands at `path` of an export.
    pub fn url(&self, path: &str) -> String {
        format!("farhaul://{}/{path}", self.address)
    }

    /// Alice copies; the server's key is pinned.
    pub fn cp(&self, args: &[&str]) -> Outcome {
        self.home.run(&self.pinned(args))
    }

    fn pinned<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        ["cp", "--server-key", &self.key].into_iter().chain(args.iter().copied()).collect()
    }

    /// The same, beside what follows.
    pub fn start_cp(&self, args: &[&str]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        command.args(self.pinned(args)).envs(self.home.variables());
        let name = format!("farhaul cp {}", args.join(" "));
        Process::with_lines(command, name, super::process::LIMIT)
    }

    /// What the status page answers at `path`.
    pub fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.status).expect("the status page");
        stream.set_read_timeout(Some(super::process::LIMIT)).expect("a time-out");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").expect("written");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a header");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        body.to_owned()
    }

    /// The value of the metric that is written so.
    pub fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().expect("a number"))
    }

    /// Waits until it is at least so much.
    pub fn wait_metric(&self, name: &str, least: u64) {
        let deadline = std::time::Instant::now() + super::process::LIMIT;
        while self.metric(name) < least {
            assert!(std::time::Instant::now() < deadline, "{name}: {}", self.get("/metrics"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Sends a signal, as `-HUP`.
pub fn signal(process: &Process, signal: &str) {
    let kill = Command::new("kill").args([signal, &process.id().to_string()]).status();
    assert!(kill.expect("kill can be started").success());
}

/// Waits for another day where this one is nearly over, so that none begins while a test counts it.
pub fn keep_off_midnight() {
    const DAY: u64 = 86_400;
    let now = std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .expect("it is later");
    let left = DAY - now.as_secs() % DAY;
    if left < super::process::LIMIT.as_secs() {
        std::thread::sleep(Duration::from_secs(left + 1));
    }
}
