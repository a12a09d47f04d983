//! What goes wrong when sockets, threads and clocks do not do what is expected. Real time only
//! bounds how long a test may hang.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use farhaul::{Bytes, Connection, Endpoint, Listener, MessageOptions, Mode, Options};

/// Far more than any of these takes.
const HANG: Duration = Duration::from_secs(20);

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn pair_with(a: &Options, b: &Options) -> (Connection, Connection) {
    let listener = Listener::bind(any(), b).unwrap();
    let addr = listener.local_addr();
    thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let connected = Connection::connect(addr, a).unwrap();
        (connected, accepted.join().unwrap())
    })
}

fn pair() -> (Connection, Connection) {
    pair_with(&Options::new(), &Options::new())
}

/// What `action` returns, on a thread that is given up when it hangs.
fn in_time<T: Send + 'static>(action: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(action()));
    receiver.recv_timeout(HANG).expect("it hangs, or has panicked")
}

#[test]
fn the_wrong_kind_of_receiving_is_refused_and_does_not_wait() {
    let (a, b) = pair();
    assert_eq!(in_time(move || a.recv_message().unwrap_err().kind()), ErrorKind::InvalidInput);
    drop(b);
    let messages = Options::new().mode(Mode::Message);
    let (a, b) = pair_with(&messages, &messages);
    assert_eq!(in_time(move || a.recv_chunk().unwrap_err().kind()), ErrorKind::InvalidInput);
    assert_eq!((&b).read(&mut [0]).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn durations_beyond_the_clock_mean_for_ever() {
    let long = Options::new().linger(Duration::MAX).connect_timeout(Duration::MAX);
    let (a, b) = pair_with(&long.clone().peer_timeout(Duration::from_secs(1 << 40)), &long);
    b.set_read_timeout(Some(Duration::MAX));
    a.set_write_timeout(Some(Duration::MAX));
    (&a).write_all(b"x").unwrap();
    (&b).read_exact(&mut [0]).unwrap();
    a.close().unwrap();
    let messages = Options::new().mode(Mode::Message);
    let (a, b) = pair_with(&messages, &messages);
    let how = MessageOptions { ttl: Some(Duration::MAX), in_order: false };
    a.send_message(vec![1; 9], how).unwrap();
    assert_eq!(b.recv_message().unwrap().unwrap(), [1; 9]);
}

/// Nobody reads, so that the writer waits for room; another thread closes.
#[test]
fn a_writer_that_waits_sees_the_close() {
    for abort in [false, true] {
        let (a, b) = pair_with(
            &Options::new().send_memory(64 << 10),
            &Options::new().receive_memory(128 << 10),
        );
        let writer = a.clone();
        let (full, is_full) = mpsc::channel();
        let kind = in_time(move || {
            let waits = thread::spawn(move || {
                let block = Bytes::from(vec![0; 16 << 10]);
                writer.set_write_timeout(Some(Duration::from_millis(100)));
                while writer.send_bytes(block.clone()).is_ok() {}
                writer.set_write_timeout(None);
                full.send(()).unwrap();
                writer.send_bytes(block).unwrap_err().kind()
            });
            is_full.recv().unwrap();
            if abort {
                a.abort()
            } else {
                a.shutdown()
            }
            waits.join().unwrap()
        });
        assert_eq!(kind, ErrorKind::NotConnected);
        b.abort();
    }
}

#[test]
fn a_reader_a_writer_and_a_close_at_once_all_end() {
    for _ in 0..20 {
        let (a, b) = pair();
        in_time(move || {
            thread::scope(|scope| {
                for connection in [&a, &b] {
                    scope.spawn(move || {
                        while (&mut &*connection).read(&mut [0; 999]).is_ok_and(|n| n > 0) {}
                    });
                    scope.spawn(move || while (&mut &*connection).write(&[0; 99_999]).is_ok() {});
                }
                scope.spawn(|| a.clone().abort());
                scope.spawn(|| b.shutdown());
            });
        });
    }
}

#[test]
fn a_port_has_one_listener_at_a_time() {
    let endpoint = Endpoint::bind(any(), &Options::new()).unwrap();
    let first = endpoint.listen(&Options::new()).unwrap();
    let error = endpoint.listen(&Options::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    drop(first);
    let second = endpoint.listen(&Options::new()).unwrap();
    let connection = Connection::connect(second.local_addr(), &Options::new()).unwrap();
    drop(second.accept().unwrap());
    assert_eq!((&connection).read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_listener_that_goes_closes_who_waits_to_be_accepted() {
    let listener = Listener::bind(any(), &Options::new()).unwrap();
    let connection = Connection::connect(listener.local_addr(), &Options::new()).unwrap();
    drop(listener);
    let error = in_time(move || (&connection).read(&mut [0]).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn threads_that_accept_share_what_comes() {
    let listener = Listener::bind(any(), &Options::new()).unwrap();
    let addr = listener.local_addr();
    let endpoint = Endpoint::bind(any(), &Options::new()).unwrap();
    in_time(move || {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5).for_each(|_| drop(listener.accept().unwrap())));
            }
            for _ in 0..20 {
                endpoint.connect(addr, &Options::new()).unwrap();
            }
        });
    });
}

#[test]
fn an_address_that_cannot_be_used_does_not_hide_the_next() {
    let listener = Listener::bind(any(), &Options::new()).unwrap();
    let from_ipv4 = Options::new().bind(any());
    let unreachable: SocketAddr = "[2001:db8::1]:9".parse().unwrap();
    let addrs = [unreachable, listener.local_addr()];
    Connection::connect(&addrs[..], &from_ipv4).unwrap();
    // At once, and not after the time that connecting may take.
    let error = in_time(move || {
        let patient = from_ipv4.connect_timeout(Duration::from_secs(3600));
        Connection::connect(unreachable, &patient).unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

/// Errors of the network are for the attempt that they concern.
#[test]
fn an_unreachable_peer_is_not_held_against_the_next() {
    let endpoint = Endpoint::bind(any(), &Options::new()).unwrap();
    let hasty = Options::new().connect_timeout(Duration::from_millis(50));
    // From the loopback address there is no way out.
    let outside = "192.0.2.1:9".parse().unwrap();
    let refused = endpoint.connect(outside, &hasty).unwrap_err();
    if refused.kind() == ErrorKind::TimedOut {
        eprintln!("skipped: this system lets loopback addresses out");
        return;
    }
    let silent = std::net::UdpSocket::bind(any()).unwrap();
    let error = endpoint.connect(silent.local_addr().unwrap(), &hasty).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

/// Users print what they hold; secrets of the port and data of the stream are not for logs.
#[test]
fn debug_output_tells_addresses_only() {
    let (a, b) = pair();
    (&a).write_all(b"secret").unwrap();
    (&b).read_exact(&mut [0; 2]).unwrap();
    let text = format!("{b:?}");
    assert!(text.contains(&b.local_addr().to_string()));
    assert!(text.len() < 200, "{text}");
}

/// Measures time, so it is only run when asked for: without the announcement of the window that
/// reading has opened, the peer stalls until its next probe, nearly 200 ms.
#[test]
#[ignore = "measures time"]
fn a_reader_that_opens_a_closed_window_lets_the_peer_go_on() {
    let (a, b) = pair_with(&Options::new(), &Options::new().receive_memory(128 << 10));
    let writer = thread::spawn(move || {
        (&a).write_all(&vec![1; 1 << 20]).unwrap();
        a.close().unwrap();
    });
    let mut buf = vec![0; 1 << 20];
    for _ in 0..8 {
        thread::sleep(Duration::from_millis(200));
        // All that had come, and then what the closed window held back.
        let start = std::time::Instant::now();
        (&b).read_exact(&mut buf[..64 << 10]).unwrap();
        assert!(start.elapsed() < Duration::from_millis(80), "{:?}", start.elapsed());
    }
    while (&b).read(&mut buf).unwrap() > 0 {}
    writer.join().unwrap();
}
