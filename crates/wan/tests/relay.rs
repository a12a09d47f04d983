//! Real datagrams through a relay on the loopback interface.
//!
//! Time serves only to give up: these tests assert what arrives, not when.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use farhaul_link::{LinkConfig, LossModel, Packet, Probability};
use farhaul_wan::{Ends, PeerPort, Relay, RelayConfig, RelayHandle, RelayStats};

const PATIENCE: Duration = Duration::from_secs(30);

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn endpoint() -> UdpSocket {
    let socket = UdpSocket::bind(any_port()).expect("a loopback socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    socket
}

fn address(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().expect("a bound socket")
}

fn spawn(config: RelayConfig) -> RelayHandle {
    Relay::bind(config).and_then(Relay::spawn).expect("a relay")
}

fn config(server: &UdpSocket) -> RelayConfig {
    RelayConfig::new(any_port(), address(server))
}

fn lossy(loss: &str) -> LinkConfig {
    LinkConfig { loss: loss.parse().expect("a loss"), ..LinkConfig::default() }
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 65_536];
    let (size, from) = socket.recv_from(&mut buffer).expect("a datagram in time");
    buffer.truncate(size);
    (buffer, from)
}

/// Waits until the counters are as `done` wants them.
fn wait_for(relay: &RelayHandle, done: impl Fn(&RelayStats) -> bool) -> RelayStats {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = relay.stats();
        if done(&stats) {
            return stats;
        }
        assert!(Instant::now() < deadline, "still {stats:?}");
        std::thread::yield_now();
    }
}

/// Sends numbered datagrams, never more than the sockets in between hold, and returns the numbers
/// that arrived.
fn transfer(relay: &RelayHandle, from: &UdpSocket, to: &UdpSocket, count: u32) -> Vec<u32> {
    let mut arrived = Vec::new();
    for first in (0..count).step_by(32) {
        let before = relay.stats().forward;
        let numbers = first..(first + 32).min(count);
        let batch = u64::from(numbers.end - numbers.start);
        for number in numbers {
            from.send_to(&number.to_be_bytes(), relay.local_addr()).expect("sent");
        }
        let after = wait_for(relay, |stats| {
            let link = stats.forward.link;
            stats.forward.received == before.received + batch
                && link.queue.packets + link.in_flight == 0
        });
        for _ in before.sent..after.forward.sent {
            let (datagram, _) = receive(to);
            arrived.push(u32::from_be_bytes(datagram.try_into().expect("four bytes")));
        }
    }
    arrived
}

/// A packet of the relay's size, to predict losses with.
#[derive(Clone, Debug)]
struct Numbered(u32);

impl Packet for Numbered {
    fn wire_len(&self) -> usize {
        32
    }
    fn corruptible_bits(&self) -> usize {
        0
    }
    fn flip_bit(&mut self, _: usize) {}
}

#[test]
fn datagrams_travel_unchanged_both_ways() {
    let (client, server) = (endpoint(), endpoint());
    let relay = spawn(config(&server));
    for size in [0, 1, 1_472, 9_000, 60_000] {
        let request: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        client.send_to(&request, relay.local_addr()).unwrap();
        let (datagram, via) = receive(&server);
        assert_eq!(datagram, request);
        assert_ne!(via, address(&client));
        let answer: Vec<u8> = request.iter().rev().copied().collect();
        server.send_to(&answer, via).unwrap();
        assert_eq!(receive(&client), (answer, relay.local_addr()));
    }
    let stats = relay.stop().unwrap();
    for lane in [stats.forward, stats.backward] {
        assert_eq!((lane.received, lane.sent), (5, 5));
        assert_eq!((lane.received_bytes, lane.sent_bytes), (70_473, 70_473));
        assert_eq!(lane.link.passed_bytes, 70_473 + 5 * 28);
    }
}

#[test]
fn version_6_headers_count_more() {
    let Ok(server) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) else {
        eprintln!("skipped: this machine has no IPv6 loopback");
        return;
    };
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    let relay = spawn(RelayConfig::new((Ipv6Addr::LOCALHOST, 0).into(), address(&server)));
    client.send_to(&[1; 100], relay.local_addr()).unwrap();
    assert_eq!(receive(&server).0, [1; 100]);
    assert_eq!(relay.stop().unwrap().forward.link.offered_bytes, 148);
}

#[test]
fn losses_follow_the_plan() {
    let (client, server) = (endpoint(), endpoint());
    let forward = lossy("list:1,3-5,100");
    let relay = spawn(RelayConfig { forward, ..config(&server) });
    let arrived = transfer(&relay, &client, &server, 200);
    let expected: Vec<u32> = (0..200).filter(|number| ![0, 2, 3, 4, 99].contains(number)).collect();
    assert_eq!(arrived, expected);
    let stats = relay.stop().unwrap().forward;
    assert_eq!((stats.received, stats.sent, stats.link.dropped_loss), (200, 195, 5));
}

/// The same seed loses the same datagrams on every run; another seed loses others.
#[test]
fn losses_follow_the_seed() {
    let survivors = |seed| {
        let (client, server) = (endpoint(), endpoint());
        let relay = spawn(RelayConfig { forward: lossy("20%"), seed, ..config(&server) });
        let arrived = transfer(&relay, &client, &server, 500);
        let link = relay.stop().expect("no error").forward.link;
        assert_eq!(arrived.len() as u64, 500 - link.dropped_loss);
        arrived
    };
    let first = survivors(7);
    assert_eq!(first, survivors(7));
    assert_ne!(first, survivors(8));
}

/// What the relay does to datagrams is what the link alone does to packets.
#[test]
fn the_relay_is_its_link() {
    let (client, server) = (endpoint(), endpoint());
    let forward = lossy("ge:loss=10%,burst=3");
    let relay = spawn(RelayConfig { forward: forward.clone(), seed: 5, ..config(&server) });
    let arrived = transfer(&relay, &client, &server, 300);
    let seed = farhaul_base::Rng::new(5).next_u64();
    let mut link = farhaul_link::Link::new(forward, seed);
    let mut expected = Vec::new();
    for number in 0..300 {
        let at = farhaul_base::Time::from_micros(number.into());
        link.offer(at, Numbered(number)).expect("no limit");
        expected.extend(link.poll(at).map(|(_, packet)| packet.0));
    }
    assert_eq!(arrived, expected);
}

/// A super-packet of a sender with segmentation offload is lost by segments. The relay's own
/// sending side makes such super-packets, so two relays in a row show it.
#[test]
fn super_packets_are_taken_apart() {
    let (client, server) = (endpoint(), endpoint());
    let second = spawn(RelayConfig { forward: lossy("every:4"), ..config(&server) });
    // All datagrams of the burst are due within one tick here, so they leave as super-packets.
    let first = spawn(RelayConfig {
        tick: Duration::from_millis(200),
        forward: LinkConfig { delay: Duration::from_millis(50), ..LinkConfig::default() },
        ..RelayConfig::new(any_port(), second.local_addr())
    });
    for number in 0..40u32 {
        client.send_to(&number.to_be_bytes(), first.local_addr()).unwrap();
    }
    let arrived: Vec<u32> = (0..30)
        .map(|_| u32::from_be_bytes(receive(&server).0.try_into().expect("four bytes")))
        .collect();
    assert_eq!(arrived, (0..40).filter(|number| number % 4 != 3).collect::<Vec<_>>());
    // The last one is dropped, and may come in a burst of its own.
    wait_for(&second, |stats| stats.forward.received == 40);
}

#[test]
fn corruption_duplication_and_delay_reach_the_datagrams() {
    let (client, server) = (endpoint(), endpoint());
    let forward = LinkConfig {
        delay: Duration::from_millis(5),
        duplicate: Probability::ONE,
        corrupt: Probability::ONE,
        ..LinkConfig::default()
    };
    let relay = spawn(RelayConfig { forward, ..config(&server) });
    let begin = Instant::now();
    client.send_to(&[0; 100], relay.local_addr()).unwrap();
    for _ in 0..2 {
        let (datagram, _) = receive(&server);
        assert_eq!(datagram.len(), 100);
        assert_eq!(datagram.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    }
    // Half a tick early at the most, and half of what a sleep is late.
    assert!(begin.elapsed() >= Duration::from_micros(4_800));
    let link = relay.stop().unwrap().forward.link;
    assert_eq!((link.offered, link.duplicated, link.corrupted, link.passed), (1, 1, 2, 2));
}

#[test]
fn clients_are_kept_apart() {
    let server = endpoint();
    let relay = spawn(config(&server));
    let clients: Vec<UdpSocket> = (0..5).map(|_| endpoint()).collect();
    for (index, client) in clients.iter().enumerate() {
        client.send_to(&[index as u8], relay.local_addr()).unwrap();
    }
    let mut via = [any_port(); 5];
    for _ in &clients {
        let (datagram, from) = receive(&server);
        via[usize::from(datagram[0])] = from;
    }
    for (index, address) in via.iter().enumerate().rev() {
        server.send_to(&[10 + index as u8], address).unwrap();
    }
    for (index, client) in clients.iter().enumerate() {
        assert_eq!(receive(client), (vec![10 + index as u8], relay.local_addr()));
    }
    assert_eq!(relay.stats().clients, 5);
}

#[test]
fn clients_beyond_the_limit_are_refused() {
    let (server, first, second) = (endpoint(), endpoint(), endpoint());
    let mut config = config(&server);
    if let Ends::Clients { max_clients, .. } = &mut config.ends {
        *max_clients = 1;
    }
    let relay = spawn(config);
    first.send_to(b"first", relay.local_addr()).unwrap();
    assert_eq!(receive(&server).0, b"first");
    second.send_to(b"second", relay.local_addr()).unwrap();
    wait_for(&relay, |stats| stats.refused == 1);
    first.send_to(b"again", relay.local_addr()).unwrap();
    assert_eq!(receive(&server).0, b"again");
}

#[test]
fn two_fixed_peers_meet() {
    let (a, b, stranger) = (endpoint(), endpoint(), endpoint());
    let side = |socket: &UdpSocket| PeerPort { listen: any_port(), peer: address(socket) };
    let relay = Relay::bind(RelayConfig {
        forward: lossy("list:2"),
        ..RelayConfig::between(side(&a), side(&b))
    })
    .unwrap();
    let (near, far) = (relay.local_addr(), relay.far_addr().unwrap());
    let relay = relay.spawn().unwrap();
    // Both begin, as in a rendezvous.
    a.send_to(b"from a", near).unwrap();
    b.send_to(b"from b", far).unwrap();
    assert_eq!(receive(&a), (b"from b".to_vec(), near));
    assert_eq!(receive(&b), (b"from a".to_vec(), far));
    stranger.send_to(b"from nobody", near).unwrap();
    a.send_to(b"lost", near).unwrap();
    a.send_to(b"arrives", near).unwrap();
    assert_eq!(receive(&b), (b"arrives".to_vec(), far));
    let stats = relay.stop().unwrap();
    assert_eq!((stats.forward.received, stats.backward.received), (3, 1));
    assert_eq!((stats.clients, stats.forward.link.dropped_loss), (1, 1));
}

/// The target's port is closed for a while: what comes in between is lost, nothing else.
#[test]
fn a_missing_target_does_not_end_the_relay() {
    // An address of its own, where no other test takes the port in between.
    let target: SocketAddr =
        UdpSocket::bind((Ipv4Addr::new(127, 77, 2, 1), 0)).and_then(|s| s.local_addr()).unwrap();
    let client = endpoint();
    let relay = spawn(RelayConfig::new(any_port(), target));
    for sent in 1..=5 {
        client.send_to(b"lost", relay.local_addr()).unwrap();
        wait_for(&relay, |stats| stats.forward.link.passed == sent);
    }
    let server = UdpSocket::bind(target).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send_to(b"arrives", relay.local_addr()).unwrap();
    assert_eq!(receive(&server).0, b"arrives");
}

#[test]
fn held_memory_is_bounded() {
    let (client, server) = (endpoint(), endpoint());
    let forward = LinkConfig { delay: Duration::from_secs(3_600), ..LinkConfig::default() };
    let relay = spawn(RelayConfig { forward, max_held_bytes: 10_000, ..config(&server) });
    for sent in 1..=20 {
        client.send_to(&[0; 972], relay.local_addr()).unwrap();
        wait_for(&relay, |stats| stats.forward.received == sent);
    }
    let stats = relay.stop().unwrap().forward;
    assert_eq!((stats.link.in_flight, stats.link.in_flight_bytes), (10, 10_000));
    assert_eq!(stats.dropped_memory, 10);
}

/// What came before the relay looked is dated by the kernel's stamp. So the wire, cut for the first
/// nanosecond of the relay's time only, loses a datagram that had come before the relay ran.
#[test]
fn arrivals_are_dated_by_the_kernel() {
    let (client, server) = (endpoint(), endpoint());
    let deadline = Instant::now() + PATIENCE;
    // The kernel takes a moment to begin stamping after the first socket asked for it.
    while Instant::now() < deadline {
        let blackouts = vec!["0s+1ns".parse().unwrap()];
        let forward = LinkConfig { blackouts, ..LinkConfig::default() };
        let relay = Relay::bind(RelayConfig { forward, ..config(&server) }).unwrap();
        client.send_to(b"early", relay.local_addr()).unwrap();
        let relay = relay.spawn().unwrap();
        wait_for(&relay, |stats| stats.forward.received == 1);
        if relay.stop().unwrap().forward.link.dropped_blackout == 1 {
            return;
        }
    }
    panic!("never dated before the start");
}

/// More comes at once than the queue holds: it keeps that many and drops the rest.
#[test]
fn a_full_queue_drops() {
    let (client, server) = (endpoint(), endpoint());
    let forward = LinkConfig {
        // A packet of 1000 bytes takes 8 s: none of the burst leaves.
        rate: Some("1k".parse().unwrap()),
        queue: "4p".parse().unwrap(),
        loss: LossModel::None,
        ..LinkConfig::default()
    };
    let relay = spawn(RelayConfig { forward, ..config(&server) });
    for _ in 0..10 {
        client.send_to(&[0; 972], relay.local_addr()).unwrap();
    }
    wait_for(&relay, |stats| stats.forward.received == 10);
    let link = relay.stop().unwrap().forward.link;
    assert_eq!((link.offered, link.dropped_queue), (10, 6));
    assert_eq!((link.queue.packets, link.queue.packets_max), (4, 4));
}

#[test]
fn dropping_the_handle_frees_the_port() {
    let server = endpoint();
    let relay = spawn(config(&server));
    let address = relay.local_addr();
    drop(relay);
    UdpSocket::bind(address).unwrap();
}
