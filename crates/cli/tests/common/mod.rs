//! What the tests of the command share: its processes, the stock peer, emulated paths, a tap for
//! captures, and the bytes that are sent.

#![allow(dead_code, unused_macros, unused_imports, reason = "each test program uses a part")]

pub mod capture;
pub mod copy;
pub mod copying;
pub mod home;
pub mod path;
pub mod pattern;
pub mod process;
pub mod ran;
pub mod raw;
pub mod server;
pub mod sshd;
pub mod stock;
pub mod storage;
pub mod tap;

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ends the test with a line `skipped: why`.
macro_rules! skip {
    ($($why:tt)*) => {{
        crate::common::report_skip(&format!($($why)*));
        return;
    }};
}
pub(crate) use skip;

/// The stock peer, or the test is skipped.
macro_rules! stock_or_skip {
    () => {
        match crate::common::stock::Stock::get() {
            Ok(stock) => stock,
            Err(why) => crate::common::skip!("{why}"),
        }
    };
}
pub(crate) use stock_or_skip;

/// Says that a test was skipped, past the test harness's capture of output, so that who runs the
/// tests can count such lines. With FARHAUL_NO_SKIP set it is a failure.
pub fn report_skip(why: &str) {
    assert!(std::env::var_os("FARHAUL_NO_SKIP").is_none(), "must not be skipped: {why}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    // In one piece and on a line of its own, whatever the harness writes meanwhile.
    let line = format!("\nskipped: {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error");
}

/// Whether the long runs are wanted too.
pub fn long() -> bool {
    std::env::var_os("FARHAUL_LONG").is_some_and(|value| value == "1")
}

/// Tests that move much data take turns: the processor is for one of them.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Addresses on `host` with ports that were free just now, all different.
pub fn free_addresses<const N: usize>(host: &str) -> [SocketAddr; N] {
    let sockets: [UdpSocket; N] =
        std::array::from_fn(|_| UdpSocket::bind((host, 0)).expect("a free port"));
    sockets.map(|socket| socket.local_addr().expect("a bound socket"))
}
