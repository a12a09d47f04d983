//! The stock libudt peer of tests/interop/stock.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::process::{LIMIT, Process};

/// The stock peer's program.
#[derive(Clone, Debug)]
pub struct Stock {
    program: PathBuf,
}

impl Stock {
    /// Builds it at the first call; the error says what is missing for that.
    pub fn get() -> Result<Stock, String> {
        static BUILT: OnceLock<Result<Stock, String>> = OnceLock::new();
        BUILT.get_or_init(build).clone()
    }

    pub fn start(&self, args: &[&str]) -> Process {
        self.start_within(args, LIMIT, None)
    }

    /// In `folder`, if one is given.
    pub fn start_within(&self, args: &[&str], limit: Duration, folder: Option<&Path>) -> Process {
        let mut command = Command::new(&self.program);
        // Its own watchdog comes second, so that the output is not lost.
        let timeout = (limit.as_secs() + 10).to_string();
        command.args(args).args(["--timeout", &timeout]).stdin(Stdio::null());
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        Process::with_lines(command, format!("stock {}", args.join(" ")), limit)
    }

    /// Starts it as a server on a port that it chooses; `args`: mode and options.
    pub fn serve(&self, args: &[&str]) -> (Process, SocketAddr) {
        self.serve_within(args, LIMIT)
    }

    pub fn serve_within(&self, args: &[&str], limit: Duration) -> (Process, SocketAddr) {
        let full = [&["server", "0"], args, &["--print-port"]].concat();
        let host = if args.contains(&"--v6") { "[::1]" } else { "127.0.0.1" };
        let process = self.start_within(&full, limit, None);
        let addr = announced(&process, host);
        (process, addr)
    }

    /// Starts it as a client of `addr`; `args`: mode and options.
    pub fn call(&self, addr: SocketAddr, args: &[&str]) -> Process {
        self.call_within(addr, args, LIMIT)
    }

    pub fn call_within(&self, addr: SocketAddr, args: &[&str], limit: Duration) -> Process {
        let (host, port) = (addr.ip().to_string(), addr.port().to_string());
        let full = [&["client", &host, &port], args].concat();
        self.start_within(&full, limit, None)
    }

    /// The SHA-256 that it prints for `bytes` bytes of the stream of `seed`.
    pub fn hash(&self, bytes: u64, seed: u64) -> String {
        let (bytes, seed) = (bytes.to_string(), seed.to_string());
        self.start(&["hash", &bytes, &seed]).finish_well().line("hash").to_owned()
    }
}

/// The address that a server with `--print-port` says it has.
pub fn announced(server: &Process, host: &str) -> SocketAddr {
    let line = server.wait_line("port ");
    let port = line.trim_start_matches("port ");
    format!("{host}:{port}").parse().expect("a port")
}

fn build() -> Result<Stock, String> {
    probe()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop/stock");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stock");
    fs::create_dir_all(&out).expect("the folder for test programs");
    // Other test programs build it too.
    let lock = File::create(out.join("lock")).expect("a lock file");
    lock.lock().expect("a lock");
    let made = Command::new("make")
        .arg("-C")
        .arg(&source)
        .arg(format!("OUT={}", out.display()))
        .output()
        .map_err(|error| format!("make cannot be run: {error}"))?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Ok(Stock { program: out.join("stock") })
}

/// Whether there are a compiler and the library with its headers.
fn probe() -> Result<(), String> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probe.cpp");
    fs::write(&source, "#include <udt/udt.h>\nint main() { return UDT::startup(); }\n")
        .expect("a test file");
    let result = Command::new("c++").arg("-o").arg("/dev/null").arg(&source).arg("-ludt").output();
    match result {
        Err(error) => Err(format!("c++ cannot be run: {error}")),
        Ok(result) if !result.status.success() => Err("libudt 4.11 with headers is missing".into()),
        Ok(_) => Ok(()),
    }
}
