//! What a listener takes in place of a cookie, and what it does not.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lone;

use core::net::{Ipv4Addr, SocketAddr};

use farhaul_base::Time;
use farhaul_engine::{Config, Endpoint, Invitation, Transmit};
use farhaul_wire::{Boundary, Control, Handshake, Packet, Request};

use lone::{Lone, client_hello, data_packet, packet};

/// As many that come with an invitation may wait for their first data.
const MOST_INVITED: usize = 64;

fn invited() -> Config {
    Config { invitation: Some(Invitation::new(*b"sixteen bytes of")), ..Config::default() }
}

/// A listener that invites, and keeps notes of `most` connections.
fn inviting(most: usize) -> Lone {
    let mut lone = Lone::new(1);
    lone.endpoint.listen(invited(), 8).unwrap();
    lone.endpoint.defer_accept(most);
    lone
}

/// What so many clients that are invited say first.
fn requests(count: usize) -> Vec<Handshake> {
    let mut clients = Endpoint::new(Time::ZERO, 2);
    for _ in 0..count {
        clients.connect(Time::ZERO, source(0), invited()).unwrap();
    }
    let (mut transmit, mut all) = (Transmit::new(), Vec::new());
    while clients.poll_transmit(Time::ZERO, &mut transmit) {
        for (header, payload) in transmit.datagrams() {
            let datagram = [header.as_slice(), payload].concat();
            match Packet::parse(&datagram).unwrap() {
                Packet::Control(said) => match said.body {
                    Control::Handshake(said) => all.push(said),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(all.len(), count);
    assert!(all.iter().all(|said| said.request == Request::Conclusion));
    all
}

fn source(n: u32) -> SocketAddr {
    (Ipv4Addr::from(0x0a00_0000 + n), 4_000).into()
}

fn say(lone: &mut Lone, id: u32) {
    lone.push(&data_packet(id, 0, Boundary::SOLO, true, 1, b"hello"));
}

#[test]
fn a_copy_from_another_address_makes_no_note() {
    let mut lone = inviting(100);
    let request = requests(1)[0];
    lone.peer = source(1);
    let answer = lone.ask(&request).unwrap();
    lone.peer = source(2);
    assert_eq!(lone.ask(&request), None);
    assert_eq!(lone.endpoint.counters().bad_cookie, 1);
    // Nor does one that comes when the connection stands.
    lone.peer = source(1);
    say(&mut lone, answer.socket_id);
    assert!(lone.endpoint.accept().is_some());
    lone.peer = source(2);
    assert_eq!(lone.ask(&request), None);
}

#[test]
fn what_was_seen_is_of_no_use_for_another_connection() {
    let mut lone = inviting(100);
    let seen = requests(1)[0];
    for other in [
        Handshake { socket_id: seen.socket_id ^ 1, ..seen },
        Handshake { isn: seen.isn.next(), ..seen },
        Handshake { cookie: seen.cookie ^ 1, ..seen },
    ] {
        assert_eq!(lone.ask(&other), None, "{other:?}");
    }
    assert_eq!(lone.endpoint.counters().bad_cookie, 3);
    assert!(lone.ask(&seen).is_some());
}

#[test]
fn no_more_than_a_few_come_without_a_cookie() {
    let mut lone = inviting(1_000);
    let all = requests(MOST_INVITED + 1);
    let (last, first) = all.split_last().unwrap();
    let ask = |lone: &mut Lone, n: u32, request: &Handshake| {
        lone.peer = source(n);
        lone.ask(request).map(|answer| answer.socket_id)
    };
    let ids: Vec<_> = (0..).zip(first).map(|(n, request)| ask(&mut lone, n, request)).collect();
    assert!(ids.iter().all(Option::is_some));
    assert_eq!(ask(&mut lone, 999, last), None);
    // Those that are in are answered all the same, and the last one with a cookie.
    assert_eq!(ask(&mut lone, 5, &first[5]), ids[5]);
    lone.peer = source(999);
    let cookie = lone.ask(&Handshake { request: Request::Hello, ..*last }).unwrap().cookie;
    assert!(ask(&mut lone, 999, &Handshake { cookie, ..*last }).is_some());
    // The first data of one leaves a place to another.
    let another = requests(MOST_INVITED + 2)[MOST_INVITED + 1];
    assert_eq!(ask(&mut lone, 1_000, &another), None);
    lone.peer = source(5);
    say(&mut lone, ids[5].unwrap());
    assert!(ask(&mut lone, 1_000, &another).is_some());
}

/// Only a cookie shows that an address is its sender's.
#[test]
fn an_invited_one_that_had_to_go_is_not_told() {
    let mut lone = inviting(8);
    lone.peer = source(1);
    for request in requests(8) {
        assert!(lone.ask(&request).is_some());
    }
    lone.peer = source(2);
    let hello = client_hello();
    let cookie = lone.ask(&hello).unwrap().cookie;
    let conclusion = Handshake { request: Request::Conclusion, cookie, ..hello };
    lone.push(&packet(0, &Control::Handshake(conclusion)));
    let sent: Vec<_> = lone.pull().into_iter().map(|(to, _)| to).collect();
    assert_eq!(sent, [source(2)], "the answer and nothing else");
    assert_eq!(lone.endpoint.take_silent().total, 1, "one had to go");
}

/// The answer may have been lost.
#[test]
fn a_request_is_answered_again_when_there_is_no_listener_any_more() {
    for most in [None, Some(8)] {
        let mut lone = Lone::new(1);
        lone.endpoint.listen(invited(), 8).unwrap();
        most.into_iter().for_each(|most| lone.endpoint.defer_accept(most));
        let request = requests(1)[0];
        let answer = lone.ask(&request).unwrap();
        say(&mut lone, answer.socket_id);
        let accepted = lone.endpoint.accept().unwrap();
        lone.pull();
        lone.endpoint.stop_listening(lone.now);
        assert_eq!(lone.ask(&request).map(|again| again.socket_id), Some(accepted.value()));
        // Others hear nothing.
        lone.peer = source(2);
        assert_eq!(lone.ask(&request), None);
    }
}
