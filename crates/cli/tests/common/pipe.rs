//! `farhaul pipe` on both sides.

use std::net::SocketAddr;

use super::process::Process;

/// One that listens with these options, and where.
pub fn listen(options: &[&str]) -> (Process, SocketAddr) {
    let process = Process::farhaul(&[&["pipe", "--listen", "127.0.0.1:0"], options].concat());
    let addr = process.listening_at();
    (process, addr)
}

/// One that connects to it.
pub fn connect(addr: SocketAddr, options: &[&str]) -> Process {
    Process::farhaul(&[&["pipe", &addr.to_string()], options].concat())
}
