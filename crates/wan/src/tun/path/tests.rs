//! Real packets between two namespaces.
//!
//! Time serves only to give up: these tests assert what arrives, not when. Where namespaces or TUN
//! devices are not permitted they say so and test nothing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Instant;

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn open(config: TunPathConfig) -> Option<TunPath> {
    match TunPath::open(config) {
        Ok(path) => Some(path),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn lossy(loss: &str) -> LinkConfig {
    LinkConfig { loss: loss.parse().expect("a loss"), ..LinkConfig::default() }
}

/// A UDP socket in the near namespace, connected to one in the far namespace.
fn sockets(path: &TunPath) -> (UdpSocket, UdpSocket) {
    let far = path.far().run(|| UdpSocket::bind((path.far_addr(), 0)).unwrap()).unwrap();
    let target = far.local_addr().unwrap();
    let near = path.near().run(|| UdpSocket::bind((path.near_addr(), 0)).unwrap()).unwrap();
    near.connect(target).unwrap();
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    (near, far)
}

fn wait_for(path: &TunPath, done: impl Fn(&TunPathStats) -> bool) -> TunPathStats {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = path.stats();
        if done(&stats) {
            return stats;
        }
        assert!(Instant::now() < deadline, "still {stats:?}");
        thread::yield_now();
    }
}

#[test]
fn packets_are_carried_and_lost_as_planned() {
    let forward = lossy("every:4");
    let Some(path) = open(TunPathConfig { forward, ..TunPathConfig::default() }) else { return };
    let (near, far) = sockets(&path);
    for number in 0..40u32 {
        near.send(&number.to_be_bytes()).unwrap();
    }
    let mut buffer = [0; 4];
    for expected in (0..40).filter(|number| number % 4 != 3) {
        let (length, from) = far.recv_from(&mut buffer).unwrap();
        assert_eq!((length, u32::from_be_bytes(buffer)), (4, expected));
        assert_eq!(from.ip(), path.near_addr());
        far.send_to(&buffer, from).unwrap();
    }
    for expected in (0..40).filter(|number| number % 4 != 3) {
        near.recv(&mut buffer).unwrap();
        assert_eq!(u32::from_be_bytes(buffer), expected);
    }
    // Nothing else was on the path, and sizes are those of IP packets: 4 bytes and 28 of headers.
    let stats = path.stop().unwrap();
    assert_eq!((stats.forward.received, stats.forward.sent), (40, 30));
    assert_eq!((stats.forward.link.offered_bytes, stats.forward.link.dropped_loss), (40 * 32, 10));
    assert_eq!((stats.backward.received, stats.backward.sent_bytes), (30, 30 * 32));
}

#[test]
fn losses_follow_the_seed() {
    let survivors = |seed| {
        let config = TunPathConfig { forward: lossy("20%"), seed, ..TunPathConfig::default() };
        let path = open(config)?;
        let (near, far) = sockets(&path);
        for number in 0..200u32 {
            near.send(&number.to_be_bytes()).unwrap();
        }
        let stats =
            wait_for(&path, |stats| stats.forward.sent + stats.forward.link.dropped_loss == 200);
        let mut buffer = [0; 4];
        let mut arrived = Vec::new();
        for _ in 0..stats.forward.sent {
            far.recv(&mut buffer).unwrap();
            arrived.push(u32::from_be_bytes(buffer));
        }
        Some(arrived)
    };
    let Some(first) = survivors(7) else { return };
    assert!((100..200).contains(&first.len()), "{}", first.len());
    assert_eq!(Some(&first), survivors(7).as_ref());
    assert_ne!(Some(&first), survivors(8).as_ref());
}

#[test]
fn a_damaged_path_leaves_a_tcp_stream_whole() {
    let link = LinkConfig {
        delay: Duration::from_millis(1),
        corrupt: "1%".parse().unwrap(),
        duplicate: "1%".parse().unwrap(),
        ..lossy("1%")
    };
    let config = TunPathConfig {
        forward: link.clone(),
        backward: link,
        mtu: 900,
        ..TunPathConfig::default()
    };
    let Some(path) = open(config) else { return };
    let parameter = "net.ipv4.tcp_wmem=4096 65536 4194304".parse().unwrap();
    path.near().set_parameter(&parameter).unwrap();
    let address = (path.far_addr(), 5000);
    let listener = path.far().run(|| TcpListener::bind(address).unwrap()).unwrap();
    let sent: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let received = thread::scope(|scope| {
        let far = scope.spawn(|| {
            let mut received = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
            received
        });
        let mut stream = path.near().run(|| TcpStream::connect(address).unwrap()).unwrap();
        stream.write_all(&sent).unwrap();
        drop(stream);
        far.join().unwrap()
    });
    assert!(received == sent, "{} bytes", received.len());
    let stats = path.stop().unwrap();
    assert!(stats.forward.link.corrupted > 0 && stats.forward.link.dropped_loss > 0);
    assert!(stats.forward.received_bytes <= stats.forward.received * 900);
}

/// The device's queue must hold a whole burst, or it would lose what the link should decide on.
#[test]
fn bursts_are_not_lost_before_the_link() {
    let forward = LinkConfig { rate: Some("100M".parse().unwrap()), ..LinkConfig::default() };
    let Some(path) = open(TunPathConfig { forward, ..TunPathConfig::default() }) else { return };
    let (near, _far) = sockets(&path);
    for _ in 0..5_000 {
        near.send(&[0; 1_000]).unwrap();
    }
    let stats = wait_for(&path, |stats| stats.forward.received == 5_000);
    assert_eq!(stats.forward.link.dropped(), 0);
}

#[test]
fn what_is_held_is_bounded() {
    let forward = LinkConfig { delay: Duration::from_secs(3600), ..LinkConfig::default() };
    let config = TunPathConfig { forward, max_held_bytes: 10_100, ..TunPathConfig::default() };
    let Some(path) = open(config) else { return };
    let (near, _far) = sockets(&path);
    for sent in 1..=30 {
        near.send(&[0; 972]).unwrap();
        wait_for(&path, |stats| stats.forward.received == sent);
    }
    let stats = path.stop().unwrap();
    assert_eq!(stats.forward.link.in_flight, 10);
    assert_eq!(stats.forward.dropped_memory, 20);
}
