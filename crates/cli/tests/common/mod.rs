//! What the tests of the command share: its processes, the stock peer, emulated paths, a tap for
//! captures, and the bytes that are sent.

#![allow(dead_code, unused_macros, unused_imports, reason = "each test program uses a part")]

pub mod capture;
pub mod copy;
pub mod copying;
pub mod home;
pub mod path;
pub mod pattern;
pub mod pipe;
pub mod process;
pub mod ran;
pub mod raw;
pub mod server;
pub mod sshd;
pub mod stock;
pub mod storage;
pub mod tap;

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
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

/// A port of `host` that is free for UDP and TCP, and stays so while what had it is away: the system hands
/// out ports from 32768 on, and each test program takes others than those that run beside it.
pub fn free_port(host: IpAddr) -> u16 {
    const LOWEST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        let place = std::process::id().wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Relaxed));
        let port = (LOWEST + place % COUNT) as u16;
        if UdpSocket::bind((host, port)).is_ok() && TcpListener::bind((host, port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free for both");
}

/// Addresses on `host` with such ports, all different.
pub fn free_addresses<const N: usize>(host: &str) -> [SocketAddr; N] {
    let host: IpAddr = host.parse().expect("an address");
    std::array::from_fn(|_| (host, free_port(host)).into())
}
