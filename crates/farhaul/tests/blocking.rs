//! The blocking face, on real sockets. Real time only bounds how long a test may hang.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{ErrorKind, Read, Seek, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farhaul::{
    Bytes, CloseReason, ConnectError, Connection, Endpoint, Listener, MessageOptions, Mode, Options,
};

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Reproducible bytes.
fn data(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

fn pair_with(a: &Options, b: &Options, bind: SocketAddr) -> (Connection, Connection) {
    let listener = Listener::bind(bind, b).unwrap();
    let addr = listener.local_addr();
    thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let connected = Connection::connect(addr, a).unwrap();
        (connected, accepted.join().unwrap())
    })
}

fn pair() -> (Connection, Connection) {
    pair_with(&Options::new(), &Options::new(), any())
}

/// Moves `bytes` both ways at once and closes.
fn exchange(a: Connection, b: Connection, bytes: usize) {
    let (to_b, to_a) = (data(1, bytes), data(2, bytes));
    thread::scope(|scope| {
        for (connection, out) in [(&a, &to_b), (&b, &to_a)] {
            scope.spawn(move || (&mut &*connection).write_all(out).unwrap());
        }
        for (connection, expected) in [(&a, &to_a), (&b, &to_b)] {
            scope.spawn(move || {
                let mut got = vec![0; expected.len()];
                (&mut &*connection).read_exact(&mut got).unwrap();
                assert!(got == *expected);
            });
        }
    });
    a.close().unwrap();
    assert_eq!((&b).read(&mut [0; 9]).unwrap(), 0, "the end of the stream");
    assert_eq!(b.close_reason(), Some(CloseReason::Peer));
}

#[test]
fn both_directions_at_once() {
    let (a, b) = pair();
    exchange(a, b, 20 << 20);
}

#[test]
fn without_offload() {
    let plain = Options::new().offload(false);
    let (a, b) = pair_with(&plain, &plain, any());
    exchange(a, b, 4 << 20);
    let (a, b) = pair_with(&plain, &Options::new(), any());
    exchange(a, b, 4 << 20);
}

#[test]
fn large_small_and_unequal_packets() {
    for (a, b) in [(9000, 9000), (1500, 9000), (9000, 576), (96, 1500), (65_535, 65_535)] {
        let (a, b) = pair_with(&Options::new().mss(a), &Options::new().mss(b), any());
        exchange(a, b, 300_000);
    }
}

#[test]
fn ipv6() {
    let Ok(probe) = Endpoint::bind("[::1]:0".parse().unwrap(), &Options::new()) else {
        eprintln!("skipped: no IPv6 here");
        return;
    };
    drop(probe);
    let options = Options::new();
    let (a, b) = pair_with(&options, &options, "[::1]:0".parse().unwrap());
    assert_eq!(a.payload_size(), 1500 - 48 - 16, "room for the longer header");
    exchange(a, b, 2 << 20);
    // An IPv4 client of a listener on the IPv6 wildcard.
    let listener = Listener::bind("[::]:0", &options).unwrap();
    let addr = SocketAddr::new([127, 0, 0, 1].into(), listener.local_addr().port());
    thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let a = Connection::connect(addr, &options).unwrap();
        let b = accepted.join().unwrap();
        assert!(b.peer_addr().is_ipv4());
        exchange(a, b, 1 << 20);
    });
}

#[test]
fn small_kernel_buffers_are_worked_around() {
    let small = Options::new().kernel_buffers(8_192, 8_192);
    let (a, b) = pair_with(&small, &small, any());
    exchange(a, b, 3 << 20);
}

#[test]
fn by_reference_both_ways() {
    let (a, b) = pair();
    let sent = Bytes::from(data(3, 5_000_000));
    let copy = sent.clone();
    let sender = thread::spawn(move || {
        a.send_bytes(copy).unwrap();
        a.wait_acknowledged().unwrap();
        a.close().unwrap();
    });
    let mut at = 0;
    while let Some(chunk) = b.recv_chunk().unwrap() {
        assert!(chunk == sent[at..at + chunk.len()]);
        at += chunk.len();
    }
    assert_eq!(at, sent.len());
    sender.join().unwrap();
}

#[test]
fn files_straight_to_and_from_the_connection() {
    let contents = data(4, 3_000_000);
    let mut source = tempfile::tempfile().unwrap();
    source.write_all(&contents).unwrap();
    let mut target = tempfile::tempfile().unwrap();
    let (a, b) = pair();
    let sender = thread::spawn(move || {
        assert_eq!(a.send_file(&mut source, 1_000, u64::MAX).unwrap(), 2_999_000);
        a.close().unwrap();
    });
    // Orthogonal to reading: some of it one way, some the other.
    let mut first = vec![0; 10_000];
    (&b).read_exact(&mut first).unwrap();
    assert!(first == contents[1_000..11_000]);
    assert_eq!(b.recv_file(&mut target, 500, u64::MAX).unwrap(), 2_989_000);
    sender.join().unwrap();
    target.seek(std::io::SeekFrom::Start(500)).unwrap();
    let mut got = Vec::new();
    target.read_to_end(&mut got).unwrap();
    assert!(got == contents[11_000..]);
}

#[test]
fn a_receiver_that_cannot_write_tells_the_sender() {
    let (a, b) = pair();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let Ok(mut full) = full else {
        eprintln!("skipped: no /dev/full here");
        return;
    };
    let receiver = thread::spawn(move || {
        b.recv_file(&mut full, 0, u64::MAX).unwrap_err();
        b
    });
    let block = Bytes::from(vec![0; 1 << 20]);
    let error = loop {
        if let Err(error) = a.send_bytes(block.clone()) {
            break error;
        }
    };
    assert!(error.to_string().contains("cannot write"), "{error}");
    drop(receiver.join().unwrap());
}

#[test]
fn messages_whole_and_in_order() {
    let options = Options::new().mode(Mode::Message);
    let (a, b) = pair_with(&options, &options, any());
    let how = MessageOptions { ttl: Some(Duration::from_secs(60)), in_order: true };
    let sizes = [0, 1, 1456, 1457, 100_000, 3];
    for (seed, size) in sizes.into_iter().enumerate() {
        a.send_message(data(seed as u64, size), how).unwrap();
    }
    for (seed, size) in sizes.into_iter().enumerate() {
        assert!(b.recv_message().unwrap().unwrap() == data(seed as u64, size));
    }
    assert_eq!((&a).write(b"x").unwrap_err().kind(), ErrorKind::InvalidInput);
    a.close().unwrap();
    assert!(b.recv_message().unwrap().is_none());
}

#[test]
fn calls_time_out() {
    let (a, b) = pair_with(
        &Options::new().send_memory(64 << 10),
        &Options::new().receive_memory(128 << 10),
        any(),
    );
    b.set_read_timeout(Some(Duration::from_millis(5)));
    assert_eq!((&b).read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::TimedOut);
    a.set_write_timeout(Some(Duration::from_millis(50)));
    // Nobody reads: the buffers of both sides fill up.
    let error = (&mut &a).write_all(&vec![0; 64 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    a.abort();
}

#[test]
fn many_connections_share_a_port() {
    let options = Options::new();
    let listener = Listener::bind(any(), &options).unwrap();
    let addr = listener.local_addr();
    let endpoint = Endpoint::bind(any(), &options).unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let accepted: Vec<_> = (0..50).map(|_| listener.accept().unwrap()).collect();
            assert!(accepted.iter().all(|c| c.local_addr() == addr));
            for mut connection in accepted {
                let mut index = [0; 1];
                connection.read_exact(&mut index).unwrap();
                let mut rest = Vec::new();
                connection.read_to_end(&mut rest).unwrap();
                assert!(rest == data(u64::from(index[0]), 50_000));
            }
        });
        let connections: Vec<_> =
            (0..50).map(|_| endpoint.connect(addr, &options).unwrap()).collect();
        for (index, mut connection) in connections.into_iter().enumerate() {
            scope.spawn(move || {
                connection.write_all(&[index as u8]).unwrap();
                connection.write_all(&data(index as u64, 50_000)).unwrap();
                connection.close().unwrap();
            });
        }
        server.join().unwrap();
    });
}

#[test]
fn a_closed_listener_lets_its_thread_go_and_its_port_listen_anew() {
    let options = Options::new();
    let listener = Listener::bind(any(), &options).unwrap();
    let endpoint = listener.endpoint().clone();
    let (told, accepted) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let told = told;
            for _ in 0..2 {
                told.send(listener.accept()).unwrap();
            }
        });
        let near = Connection::connect(endpoint.local_addr(), &options).unwrap();
        let far = accepted.recv().unwrap().unwrap();
        listener.close();
        let error = accepted.recv().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConnected);
        exchange(near, far, 10_000);
    });
    let again = endpoint.listen(&options).unwrap();
    drop(listener);
    let near = Connection::connect(endpoint.local_addr(), &options).unwrap();
    exchange(near, again.accept().unwrap(), 10_000);
}

#[test]
fn rendezvous() {
    let (x, y) = (UdpSocket::bind(any()).unwrap(), UdpSocket::bind(any()).unwrap());
    let (x_addr, y_addr) = (x.local_addr().unwrap(), y.local_addr().unwrap());
    drop((x, y));
    let options = Options::new();
    let (a, b) = thread::scope(|scope| {
        let b = scope.spawn(|| Connection::rendezvous(y_addr, x_addr, &options).unwrap());
        (Connection::rendezvous(x_addr, y_addr, &options).unwrap(), b.join().unwrap())
    });
    exchange(a, b, 1 << 20);
}

fn connect_error(error: &std::io::Error) -> Option<ConnectError> {
    error.get_ref()?.downcast_ref().copied()
}

#[test]
fn refusals_have_reasons() {
    let listener = Listener::bind(any(), &Options::new()).unwrap();
    let addr = listener.local_addr();
    let error = Connection::connect(addr, &Options::new().mode(Mode::Message)).unwrap_err();
    assert_eq!(connect_error(&error), Some(ConnectError::Mode));
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let error = Connection::connect(nowhere, &Options::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("names no port"));
    let silent = UdpSocket::bind(any()).unwrap();
    let hasty = Options::new().connect_timeout(Duration::from_millis(300));
    let error = Connection::connect(silent.local_addr().unwrap(), &hasty).unwrap_err();
    assert_eq!(connect_error(&error), Some(ConnectError::TimedOut));
    let error = Connection::connect(addr, &Options::new().mss(10)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("mss is 10"));
}

/// The host says so (ICMP), over both versions of IP: no time-out is waited for.
#[test]
fn a_closed_port_is_told_of_soon() {
    for local in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(other) = UdpSocket::bind(local) else {
            eprintln!("skipped: no {local} here");
            continue;
        };
        let closed = other.local_addr().unwrap();
        drop(other);
        let options = Options::new().connect_timeout(Duration::from_secs(60));
        let error = Connection::connect(closed, &options).unwrap_err();
        assert_eq!(connect_error(&error), Some(ConnectError::Closed));
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}

/// A thread's time-out holds while another one reads, and has the right to wait for longer.
#[test]
fn a_second_reader_keeps_its_time_out() {
    let (mut a, b) = pair();
    let reading = AtomicBool::new(false);
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            reading.store(true, Ordering::SeqCst);
            // Should it begin only when there is a time-out, it reads again.
            loop {
                match (&b).read(&mut [0; 10]) {
                    Ok(bytes) => break bytes,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
                }
            }
        });
        while !reading.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        b.set_read_timeout(Some(Duration::from_millis(20)));
        let error = (&b).read(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        a.write_all(b"at last").unwrap();
        assert_eq!(first.join().unwrap(), 7);
    });
}

#[test]
fn dropping_delivers_and_closes() {
    let (a, mut b) = pair();
    (&a).write_all(&data(5, 1_000_000)).unwrap();
    drop(a);
    let mut got = Vec::new();
    b.read_to_end(&mut got).unwrap();
    assert!(got == data(5, 1_000_000));
    assert_eq!((&b).write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

/// What has come can be read, and then the reader learns that it is not all.
#[test]
fn breaking_off_is_an_error_of_the_reader() {
    let panicking = |a: Connection| {
        thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let _held = a;
                // As a panic, but without its report.
                std::panic::resume_unwind(Box::new(()))
            });
            thread.join().unwrap_err();
        });
    };
    let ends: [&dyn Fn(Connection); 2] = [&|a: Connection| a.abort(), &panicking];
    for end in ends {
        let (a, mut b) = pair();
        (&a).write_all(&data(9, 50_000)).unwrap();
        a.wait_acknowledged().unwrap();
        end(a);
        let mut got = Vec::new();
        let error = b.read_to_end(&mut got).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(got == data(9, 50_000));
        assert_eq!(b.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset, "again");
        assert_eq!((&b).write(b"x").unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(b.close_reason(), Some(CloseReason::PeerAborted));
    }
}

#[test]
fn statistics_count_what_happened() {
    let (a, b) = pair();
    (&a).write_all(&data(6, 1_456_000)).unwrap();
    let mut got = vec![0; 1_456_000];
    (&b).read_exact(&mut got).unwrap();
    a.wait_acknowledged().unwrap();
    let (sender, receiver) = (a.stats(true).unwrap(), b.stats(false).unwrap());
    assert!(sender.total.counters.packets_sent >= 1000);
    assert_eq!(sender.total, sender.recent);
    assert_eq!(sender.instant.send_buffer.0, 0);
    assert!(receiver.total.counters.bytes_received >= 1_456_000);
    assert!(receiver.total.counters.acks_sent > 0);
    let again = a.stats(false).unwrap();
    assert_eq!(again.recent.counters.packets_sent, 0);
    assert_eq!(again.total.counters.packets_sent, sender.total.counters.packets_sent);
}

#[test]
fn the_law_and_the_limits_change_on_a_live_connection() {
    let (a, mut b) = pair();
    a.set_law(&"udt4".parse().unwrap());
    a.set_max_bandwidth(Some(400_000_000));
    let sender = thread::spawn(move || {
        (&a).write_all(&data(7, 2_000_000)).unwrap();
        a.set_max_bandwidth(None);
        (&a).write_all(&data(8, 2_000_000)).unwrap();
        a.close().unwrap();
    });
    let mut got = Vec::new();
    b.read_to_end(&mut got).unwrap();
    assert!(got[..2_000_000] == data(7, 2_000_000) && got[2_000_000..] == data(8, 2_000_000));
    sender.join().unwrap();
}

/// Each law moves data over real sockets, and tells what it is called.
#[test]
fn every_law_moves_data() {
    for law in farhaul::laws() {
        let spec: farhaul::Law = law.name.parse().unwrap();
        let options = Options::new().law(spec);
        let (a, b) = pair_with(&options, &options, any());
        assert_eq!(a.stats(false).unwrap().instant.law, law.name);
        exchange(a, b, 500_000);
    }
}
