//! Connection set-up between two peers that both connect.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lone;
mod pair;

use core::time::Duration;

use farhaul_engine::{Config, ConnectError, ConnectionId};
use farhaul_link::LinkConfig;
use farhaul_wire::{Control, Handshake, PeerIp, Request, Seq, SocketType};
use lone::{Lone, client_hello, controls, packet};
use pair::{A, B, Flow, Net, data, path, stream};

fn rendezvous() -> Config {
    Config { rendezvous: true, ..stream() }
}

fn call(net: &mut Net, side: usize, config: Config) -> ConnectionId {
    let peer = net.hosts[1 - side].addr;
    net.hosts[side].endpoint.connect(net.now, peer, config).unwrap()
}

fn meet(net: &mut Net, ids: (ConnectionId, ConnectionId), limit: Duration) -> bool {
    net.run_until(limit, |net| {
        net.hosts[A].endpoint.connection(ids.0).is_some()
            && net.hosts[B].endpoint.connection(ids.1).is_some()
    })
}

fn works(net: &mut Net, ids: (ConnectionId, ConnectionId)) {
    for from in [A, B] {
        let mut flow = Flow::new(from, ids, data(7, 20_000));
        assert!(net.run_until(Duration::from_secs(20), |net| flow.pump(net)), "{}", flow.read);
    }
    assert_eq!((net.hosts[A].endpoint.len(), net.hosts[B].endpoint.len()), (1, 1));
}

#[test]
fn at_the_same_time() {
    let mut net = Net::new(&path(), 1);
    let ids = (call(&mut net, A, rendezvous()), call(&mut net, B, rendezvous()));
    assert!(meet(&mut net, ids, Duration::from_millis(50)));
    works(&mut net, ids);
}

#[test]
fn one_side_late() {
    for late in [10, 100, 260, 10_000, 29_000] {
        let mut net = Net::new(&path(), late);
        let a = call(&mut net, A, rendezvous());
        net.run_for(Duration::from_millis(late));
        let ids = (a, call(&mut net, B, rendezvous()));
        assert!(meet(&mut net, ids, Duration::from_secs(1)), "{late}");
        works(&mut net, ids);
    }
}

#[test]
fn over_bad_paths() {
    let lossy = LinkConfig { loss: "50%".parse().unwrap(), ..path() };
    let twice = LinkConfig { duplicate: "100%".parse().unwrap(), ..path() };
    let order = LinkConfig { jitter: "500ms:reorder".parse().unwrap(), ..twice.clone() };
    for link in [lossy, twice, order] {
        for seed in 0..6 {
            let mut net = Net::new(&link, seed);
            let a = call(&mut net, A, rendezvous());
            net.run_for(Duration::from_millis(seed * 37));
            let ids = (a, call(&mut net, B, rendezvous()));
            assert!(meet(&mut net, ids, Duration::from_secs(30)));
            works(&mut net, ids);
        }
    }
}

/// Each single one of the first packets may be lost, in either direction.
#[test]
fn any_packet_of_it_may_be_lost() {
    for ab in 0..5 {
        for ba in 0..5 {
            let lose =
                |n| LinkConfig { loss: format!("list:{}", n + 1).parse().unwrap(), ..path() };
            let mut net = Net::asymmetric(lose(ab), lose(ba), ab + ba);
            let ids = (call(&mut net, A, rendezvous()), call(&mut net, B, rendezvous()));
            assert!(meet(&mut net, ids, Duration::from_secs(2)), "{ab} {ba}");
            works(&mut net, ids);
        }
    }
}

/// Neither side's packets exceed the smaller MSS, and each counts from its own number.
#[test]
fn the_smaller_mss_counts() {
    let mut net = Net::new(&path(), 1);
    let a = Config { mss: 1_400, ..rendezvous() };
    let b = Config { mss: 1_200, ..rendezvous() };
    let ids = (call(&mut net, A, a), call(&mut net, B, b));
    assert!(meet(&mut net, ids, Duration::from_secs(1)));
    assert_eq!(net.update(A, ids.0, |c| c.payload_size()), 1_156);
    assert_eq!(net.update(B, ids.1, |c| c.payload_size()), 1_156);
    let numbers = [(A, ids.0), (B, ids.1)].map(|(s, id)| net.update(s, id, |c| c.acknowledged()));
    assert_ne!(numbers[0], numbers[1]);
    works(&mut net, ids);
}

#[test]
fn a_stream_and_messages_do_not_meet() {
    let mut net = Net::new(&path(), 1);
    let b = Config { mode: farhaul_engine::Mode::Message, ..rendezvous() };
    let ids = (call(&mut net, A, rendezvous()), call(&mut net, B, b));
    net.run_for(Duration::from_secs(1));
    assert_eq!(net.hosts[A].endpoint.take_failure(ids.0), Some(ConnectError::Mode));
    assert_eq!(net.hosts[B].endpoint.take_failure(ids.1), Some(ConnectError::Mode));
}

#[test]
fn nobody_comes() {
    let mut net = Net::new(&path(), 1);
    let id = call(&mut net, A, rendezvous());
    let begun = net.now;
    assert!(net.run_until(Duration::from_secs(60), |net| {
        net.hosts[A].endpoint.take_failure(id) == Some(ConnectError::TimedOut)
    }));
    assert_eq!(net.now - begun, Duration::from_secs(30));
    assert!(net.hosts[A].endpoint.is_empty());
}

/// A connected peer answers late requests with the final answer; the final answer gets none.
#[test]
fn against_a_stock_peer_packet_by_packet() {
    let mut lone = Lone::new(5);
    let id = lone.endpoint.connect(lone.now, lone.peer, rendezvous()).unwrap();
    let theirs = Handshake { request: Request::Rendezvous, isn: Seq::new(9), ..client_hello() };
    let stock_final = Handshake {
        version: 0,
        socket_type: SocketType::Other(0),
        flight_flag: 25_600,
        request: Request::Agreement,
        peer_ip: PeerIp::NONE,
        ..theirs
    };
    let requests = |lone: &mut Lone| {
        let sent = lone.pull();
        let sent = controls(&sent).into_iter().map(|c| match c {
            Control::Handshake(h) => h.request,
            other => panic!("{other:?}"),
        });
        sent.collect::<Vec<_>>()
    };
    assert_eq!(requests(&mut lone), [Request::Rendezvous]);
    lone.push(&packet(0, &Control::Handshake(theirs)));
    assert_eq!(requests(&mut lone), [Request::Conclusion]);
    assert!(lone.endpoint.connection(id).is_none());
    // Its request once more: it has not heard the response.
    lone.push(&packet(0, &Control::Handshake(theirs)));
    assert_eq!(requests(&mut lone), [Request::Conclusion]);
    lone.push(&packet(id.value(), &Control::Handshake(stock_final)));
    assert!(lone.endpoint.connection(id).is_some());
    assert_eq!(requests(&mut lone), []);
    let response = Handshake { request: Request::Conclusion, ..theirs };
    lone.push(&packet(id.value(), &Control::Handshake(response)));
    assert_eq!(requests(&mut lone), [Request::Agreement]);
    lone.push(&packet(id.value(), &Control::Handshake(stock_final)));
    assert_eq!(requests(&mut lone), []);
}

/// The last answer is lost, and data comes in its place.
#[test]
fn data_completes_it() {
    let mut lone = Lone::new(5);
    let id = lone.endpoint.connect(lone.now, lone.peer, rendezvous()).unwrap();
    lone.push_control(id, &Control::KeepAlive);
    assert!(lone.endpoint.connection(id).is_none(), "the peer's values are not known yet");
    let theirs = Handshake { request: Request::Rendezvous, ..client_hello() };
    lone.push(&packet(0, &Control::Handshake(theirs)));
    lone.push_data(id, 0, b"already here");
    let mut chunks = farhaul_engine::Chunks::default();
    lone.endpoint.update(id, |c| c.read(100, &mut chunks)).unwrap();
    assert_eq!(chunks.pop().unwrap(), &b"already here"[..]);
}

/// The answer to another call has another ID: an old copy of a former call does not connect.
#[test]
fn an_old_answer_does_not_connect() {
    let mut lone = Lone::new(5);
    let id = lone.endpoint.connect(lone.now, lone.peer, rendezvous()).unwrap();
    let theirs = Handshake { request: Request::Rendezvous, ..client_hello() };
    lone.push(&packet(0, &Control::Handshake(theirs)));
    let old = Handshake { request: Request::Conclusion, socket_id: 4, ..theirs };
    lone.push(&packet(id.value(), &Control::Handshake(old)));
    assert!(lone.endpoint.connection(id).is_none());
}
