//! Listeners whose connections begin with their first data.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lone;

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use farhaul_base::newcomers::Source;
use farhaul_engine::{Chunks, Config, Endpoint};
use farhaul_wire::{Boundary, Control, Handshake, Packet, Request};

use lone::{Lone, client_hello, data_packet, packet};

/// A listener that keeps notes of `most` connections.
fn deferring(most: usize) -> Lone {
    let mut lone = Lone::new(1);
    lone.endpoint.listen(Config::default(), 8).unwrap();
    lone.endpoint.defer_accept(most);
    lone
}

/// Goes through the handshake from `peer`; the ID of the connection.
fn connect(lone: &mut Lone, peer: SocketAddr, socket_id: u32) -> u32 {
    connect_evicting(lone, peer, socket_id).0
}

/// The same; and which client was told that it had to go: its address and its socket ID.
fn connect_evicting(
    lone: &mut Lone,
    peer: SocketAddr,
    socket_id: u32,
) -> (u32, Option<(SocketAddr, u32)>) {
    lone.peer = peer;
    let hello = Handshake { socket_id, ..client_hello() };
    let cookie = lone.ask(&hello).unwrap().cookie;
    let conclusion = Handshake { request: Request::Conclusion, cookie, ..hello };
    let request = packet(0, &Control::Handshake(conclusion));
    lone.push(&request);
    let (mut agreed, mut evicted) = (None, None);
    for (to, answer) in lone.pull() {
        assert!(answer.len() <= request.len());
        let Ok(Packet::Control(answer)) = Packet::parse(&answer) else { panic!("{answer:?}") };
        let before = match answer.body {
            Control::Handshake(answer) => {
                assert_eq!((to, answer.request), (peer, Request::Conclusion));
                agreed.replace(answer.socket_id).is_some()
            }
            Control::Shutdown { .. } => evicted.replace((to, answer.dest)).is_some(),
            other => panic!("{other:?}"),
        };
        assert!(!before, "one of each");
    }
    // It is given again to a client that has not heard it.
    assert_eq!(lone.ask(&conclusion).map(|answer| answer.socket_id), agreed);
    (agreed.unwrap(), evicted)
}

fn say(lone: &mut Lone, id: u32, n: u32) {
    lone.push(&data_packet(id, n, Boundary::SOLO, true, n + 1, b"hello"));
}

fn source(n: u32) -> SocketAddr {
    (Ipv4Addr::from(0x0a00_0000 + n), 4_000).into()
}

fn read(endpoint: &mut Endpoint, id: farhaul_engine::ConnectionId) -> Vec<u8> {
    let mut chunks = Chunks::default();
    endpoint.update(id, |connection| connection.read(64, &mut chunks)).unwrap();
    let mut bytes = vec![0; chunks.len()];
    chunks.copy_to(&mut bytes);
    bytes
}

#[test]
fn a_connection_comes_to_be_with_its_first_data() {
    let mut lone = deferring(8);
    let id = connect(&mut lone, source(1), 7);
    // Nothing else makes it one, nor does another address.
    lone.push(&packet(id, &Control::KeepAlive));
    lone.peer = source(2);
    say(&mut lone, id, 0);
    assert_eq!((lone.endpoint.len(), lone.endpoint.acceptable()), (0, 0));
    lone.peer = source(1);
    say(&mut lone, id, 0);
    say(&mut lone, id, 1);
    assert_eq!((lone.endpoint.len(), lone.endpoint.acceptable()), (1, 1));
    let accepted = lone.endpoint.accept().unwrap();
    assert_eq!(accepted.value(), id);
    assert_eq!(read(&mut lone.endpoint, accepted), b"hellohello");
    assert_eq!(lone.endpoint.take_silent().total, 0);
}

#[test]
fn who_says_nothing_leaves_no_trace_and_pushes_out_its_own() {
    let mut lone = deferring(64);
    let honest = connect(&mut lone, source(0xffff), 7);
    for n in 0..2_000 {
        connect(&mut lone, source(n % 31), 10 + n);
    }
    assert_eq!((lone.endpoint.len(), lone.endpoint.acceptable()), (0, 0));
    lone.peer = source(0xffff);
    say(&mut lone, honest, 0);
    assert_eq!(lone.endpoint.acceptable(), 1);
    let silent = lone.endpoint.take_silent();
    assert_eq!(silent.total, 2_000 - 63);
    assert_eq!((silent.sources.len(), silent.sources.get(&Source::of(source(0xffff)))), (31, None));
    // The rest goes when its time is over, and what comes then is not heard.
    let late = connect(&mut lone, source(5), 9);
    lone.now += Duration::from_secs(11);
    lone.endpoint.handle_timeout(lone.now);
    lone.peer = source(5);
    say(&mut lone, late, 0);
    assert_eq!(lone.endpoint.acceptable(), 1);
    assert_eq!(lone.endpoint.take_silent().total, 64);
    lone.pull();
    // One that leaves by itself is counted, too.
    let left = connect(&mut lone, source(6), 11);
    lone.push(&packet(left, &Control::Shutdown { code: 0 }));
    say(&mut lone, left, 0);
    assert_eq!((lone.endpoint.acceptable(), lone.endpoint.take_silent().total), (1, 1));
}

#[test]
fn data_waits_while_the_backlog_is_full() {
    let mut lone = deferring(64);
    let ids: Vec<u32> = (0..9).map(|n| connect(&mut lone, source(n), 7)).collect();
    for (n, id) in (0..).zip(&ids) {
        lone.peer = source(n);
        say(&mut lone, *id, 0);
    }
    assert_eq!(lone.endpoint.acceptable(), 8);
    assert!(lone.endpoint.accept().is_some());
    say(&mut lone, ids[8], 0);
    assert_eq!(lone.endpoint.acceptable(), 8);
}

/// It takes itself for connected: without a word it would send its data into silence.
#[test]
fn who_had_to_go_for_another_is_told_at_once() {
    let mut lone = deferring(64);
    let mut told = Vec::new();
    for n in 0..1_000 {
        let (_, evicted) = connect_evicting(&mut lone, source(n), 10 + n);
        assert_eq!(evicted.is_some(), n >= 64, "{n}");
        told.extend(evicted);
    }
    // Each once, under its own socket ID, and none that still has its place.
    told.sort();
    told.dedup();
    assert_eq!(told.len(), 1_000 - 64);
    assert!(told.iter().all(|(to, id)| (0..1_000).any(|n| (source(n), 10 + n) == (*to, *id))));
    let stays = (0..1_000).find(|n| !told.contains(&(source(*n), 10 + n))).unwrap();
    let again = connect(&mut lone, source(stays), 10 + stays);
    lone.peer = source(stays);
    say(&mut lone, again, 0);
    assert_eq!(lone.endpoint.acceptable(), 1);
}

/// What one host or one subscriber has of IPv6 counts as one source.
#[test]
fn addresses_of_one_network_share_its_places() {
    let of = |network: u16, host: u32| -> SocketAddr {
        let [high, low] = [(host >> 16) as u16, host as u16];
        (Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, high, low), 4_000).into()
    };
    let mut lone = deferring(64);
    let honest = connect(&mut lone, of(2, 1), 7);
    for n in 0..2_000 {
        let (_, evicted) = connect_evicting(&mut lone, of(1, n), 10 + n);
        assert!(evicted.is_none_or(|(to, _)| Source::of(to) == Source::of(of(1, 0))));
    }
    lone.peer = of(2, 1);
    say(&mut lone, honest, 0);
    assert_eq!(lone.endpoint.acceptable(), 1);
    let silent = lone.endpoint.take_silent();
    let flooder = (Source::of(of(1, 0)), 2_000 - 63);
    assert_eq!(silent.sources.into_iter().collect::<Vec<_>>(), [flooder]);
}
