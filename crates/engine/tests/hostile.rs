//! Packets that no honest peer sends, and packets from those who are no peers: they change nothing,
//! are counted, and cost no memory.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lone;
mod pair;

use core::net::SocketAddr;
use core::time::Duration;

use bytes::Bytes;
use farhaul_base::{Rng, Time};
use farhaul_engine::{Chunks, CloseReason, Config, ConnectionId, EndpointCounters, Mode};
use farhaul_link::LinkConfig;
use farhaul_wire::{
    Ack, AckDetail, AckSeq, Boundary, Control, Handshake, MsgNo, Packet, PeerIp, Request, Seq,
    SocketType,
};
use lone::{
    ISN, Lone, ack, client_hello, controls, data_packet, data_places, light_ack, nak, packet,
};
use pair::{A, B, Flow, Net, data, path, stream};

/// A connection that has sent sixteen packets, of which the peer has acknowledged four, and that
/// has received four of the first six.
fn midway() -> (Lone, ConnectionId) {
    let (mut lone, id) = Lone::accepted(stream());
    let written = Bytes::from(data(1, 16 * 1_456));
    lone.endpoint.update(id, |c| c.send_bytes(written)).unwrap().unwrap();
    lone.push_control(id, &Control::KeepAlive);
    let sent = lone.pull();
    assert_eq!(data_places(&sent), (0..16).collect::<Vec<_>>());
    for n in [0, 1, 4, 5] {
        lone.push_data(id, n, &[n as u8; 1_456]);
    }
    lone.pass(Duration::from_millis(25));
    lone.push_control(id, &ack(1, 4, 8_192));
    lone.pass(Duration::from_micros(1));
    (lone, id)
}

/// Everything about the connection that a packet could change, but for the time.
fn state(lone: &mut Lone, id: ConnectionId) -> String {
    let stats = lone.stats(id);
    let mut counters = stats.total.counters;
    counters.invalid = 0;
    counters.naks_received = 0;
    counters.out_of_window = 0;
    counters.packets_received = 0;
    counters.bytes_received = 0;
    let connection = lone.endpoint.connection(id).unwrap();
    let (reason, acknowledged) = (connection.close_reason(), connection.acknowledged());
    format!("{counters:?} {:?} {reason:?} {acknowledged:?}", stats.instant)
}

/// The transfer goes on as if nothing had been: the rest is sent, and the hole asked for.
fn goes_on(lone: &mut Lone, id: ConnectionId) {
    lone.push_control(id, &ack(2, 16, 8_192));
    let written = Bytes::from(data(1, 14 * 1_456));
    lone.endpoint.update(id, |c| c.send_bytes(written)).unwrap().unwrap();
    let sent = lone.pass(Duration::from_millis(5));
    assert_eq!(data_places(&sent), (16..30).collect::<Vec<_>>());
    lone.push_control(id, &ack(3, 30, 8_192));
    assert!(lone.endpoint.connection(id).unwrap().flushed());
    for n in [2, 3, 6] {
        lone.push_data(id, n, &[n as u8; 1_456]);
    }
    let mut chunks = Chunks::default();
    lone.endpoint.update(id, |c| c.read(usize::MAX, &mut chunks)).unwrap();
    let mut got = vec![0; chunks.len()];
    chunks.copy_to(&mut got);
    let expected: Vec<u8> = (0..7u8).flat_map(|n| [n; 1_456]).collect();
    assert!(got == expected);
}

/// Forged in the peer's name: impossible, so it changes nothing and is counted.
#[test]
fn impossible_packets_from_the_peers_address() {
    // The endpoint's seed is fixed, and so is the connection's ID.
    let (_, id) = midway();
    let dest = id.value();
    let empty_nak = nak(dest, &[(4, 4)])[..16].to_vec();
    let nine_to = (ISN.plus(9).value() | 1 << 31).to_be_bytes();
    let open = [&empty_nak[..], &nine_to].concat();
    let reversed = [&open[..], &ISN.plus(7).value().to_be_bytes()].concat();
    let many = nak(dest, &(0..180).map(|_| (4, 70_000)).collect::<Vec<_>>());
    let forged: Vec<(&str, Vec<u8>)> = vec![
        ("an ACK of what was not sent", packet(dest, &ack(9, 17, 8_192))),
        ("an ACK far beyond", packet(dest, &ack(9, 5_000, 8_192))),
        ("an ACK of half the number space", packet(dest, &ack(9, (1 << 30) - 1, 8_192))),
        ("a light ACK of what was not sent", packet(dest, &light_ack(17))),
        ("a light ACK far beyond", packet(dest, &light_ack(100_000))),
        ("an ACK of a wrong length", [&packet(dest, &light_ack(6))[..], &[0; 4]].concat()),
        ("a NAK of what was not sent", nak(dest, &[(16, 16)])),
        ("a NAK far beyond", nak(dest, &[(1 << 20, 1 << 21)])),
        ("a NAK from what was sent to what was not", nak(dest, &[(4, 16)])),
        ("a NAK that runs backwards", reversed),
        ("a NAK that does not end", open),
        ("a NAK without a list", empty_nak),
        ("a NAK of more than there can be", many),
        ("a NAK of everything", nak(dest, &[(4, (1 << 30) + 3)])),
        ("a drop request on a stream", {
            let (first, last) = (ISN.plus(2), ISN.plus(3));
            packet(dest, &Control::DropRequest { message: MsgNo::new(3), first, last })
        }),
        ("a drop request without a range", {
            let (first, last) = (ISN, ISN);
            packet(dest, &Control::DropRequest { message: MsgNo::new(3), first, last })[..16]
                .to_vec()
        }),
        ("a packet larger than the MSS", {
            data_packet(dest, 6, Boundary::SOLO, false, 7, &[7; 1_457])
        }),
        ("an ACK2 of what was not sent", {
            packet(dest, &Control::Ack2 { ack_seq: AckSeq::new(77) })
        }),
        ("a handshake of a wrong length", {
            [&packet(dest, &Control::Handshake(client_hello()))[..], &[0; 4]].concat()
        }),
    ];
    for (name, bytes) in forged {
        let (mut lone, id) = midway();
        assert_eq!(id.value(), dest);
        let before = state(&mut lone, id);
        lone.push(&bytes);
        let sent = lone.pull();
        assert!(sent.is_empty(), "{name}: {:?} {:?}", controls(&sent), data_places(&sent));
        assert_eq!(state(&mut lone, id), before, "{name}");
        assert_eq!(lone.stats(id).total.counters.invalid, 1, "{name}");
        goes_on(&mut lone, id);
    }
}

/// Old or useless, but what an honest path can deliver: it changes nothing.
#[test]
fn stale_packets_from_the_peers_address() {
    let user = Control::User { subtype: 7, info: 1, payload: &[1, 2, 3, 4] };
    let unknown = Control::Unknown { kind: 99, subtype: 0, info: 0, payload: &[] };
    for control in [
        ack(1, 2, 2),
        light_ack(1),
        Control::Ack2 { ack_seq: AckSeq::new(0x7fff_ffff) },
        Control::CongestionWarning,
        Control::KeepAlive,
        user,
        unknown,
    ] {
        let (mut lone, id) = midway();
        let before = state(&mut lone, id);
        lone.push_control(id, &control);
        let only_ack2 = |c: &Control<'_>| matches!(c, Control::Ack2 { .. });
        let sent = lone.pull();
        assert!(controls(&sent).iter().all(only_ack2), "{control:?}: {sent:?}");
        let counted = |s: &str| s.replace("acks_received: 2", "acks_received: 1");
        let after = state(&mut lone, id);
        // The round trip that an old ACK reports is taken in.
        let before = before.split("rtt:").next().unwrap().to_owned();
        assert_eq!(counted(&after).split("rtt:").next().unwrap(), before, "{control:?}");
        assert_eq!(lone.stats(id).total.counters.invalid, 0, "{control:?}");
        goes_on(&mut lone, id);
    }
    let (mut lone, id) = midway();
    let before = state(&mut lone, id);
    lone.push(&nak(id.value(), &[(0, 1), (3, 3)]));
    assert!(data_places(&lone.pull()).is_empty());
    assert_eq!(state(&mut lone, id), before, "a NAK of what has been acknowledged");
    goes_on(&mut lone, id);
}

/// A peer that claims a round trip of nothing, or of an hour, gets neither a flood nor silence.
#[test]
fn absurd_round_trips() {
    for rtt_us in [0, 1, 3_600_000_000, u32::MAX] {
        let (mut lone, id) = midway();
        for n in 2..200 {
            let detail = AckDetail { rtt_us, rtt_var_us: 0, available: 8_192, rates: None };
            let ack = Ack { next: ISN.plus(4), detail: Some(detail) };
            lone.push_control(id, &Control::Ack { ack_seq: AckSeq::new(n), ack });
            lone.pass(Duration::from_millis(1));
        }
        lone.push_data(id, 2, &[2; 1_456]);
        lone.push_data(id, 3, &[3; 1_456]);
        // Nothing is answered for ten seconds: ACKs, and the packets in flight, come again.
        let sent = lone.pass(Duration::from_secs(10));
        let acks = controls(&sent).iter().filter(|c| matches!(c, Control::Ack { .. })).count();
        let again = data_places(&sent).len();
        assert!(acks <= 30 && again <= 40, "{rtt_us}: {acks} ACKs, {again} packets");
        if rtt_us < 1_000_000 {
            assert!(acks >= 5 && again >= 10, "{rtt_us}: {acks} ACKs, {again} packets");
        }
    }
}

/// Data outside the window is not stored.
#[test]
fn data_outside_the_window() {
    let (mut lone, id) = midway();
    let window = lone.stats(id).instant.receive_buffer.1 as u32 / 1_456;
    let before = state(&mut lone, id);
    for n in [window, window + 1, 1 << 28, (1 << 30) - 1] {
        lone.push_data(id, n, b"beyond");
    }
    assert_eq!(lone.stats(id).total.counters.out_of_window, 4);
    assert_eq!(state(&mut lone, id), before);
    for n in [1 << 30, (1 << 31) - 1, (1 << 31) - 100] {
        lone.push_data(id, n, b"before");
    }
    assert_eq!(lone.stats(id).total.counters.duplicates, 3);
    goes_on(&mut lone, id);
}

/// Right in every way, but from somewhere else, or to somebody else.
#[test]
fn packets_from_strangers_and_for_others() {
    let (mut lone, id) = midway();
    let before = state(&mut lone, id);
    let all = |dest: u32| {
        vec![
            packet(dest, &ack(2, 16, 8_192)),
            packet(dest, &light_ack(9)),
            nak(dest, &[(5, 9)]),
            packet(dest, &Control::Shutdown { code: 0 }),
            packet(dest, &Control::KeepAlive),
            packet(dest, &Control::ErrorSignal { code: 4_000 }),
            packet(dest, &Control::Handshake(client_hello())),
            data_packet(dest, 2, Boundary::SOLO, false, 3, b"forged"),
        ]
    };
    let strangers: [SocketAddr; 4] = [
        "10.0.0.1:1001".parse().unwrap(),
        "10.0.0.2:1000".parse().unwrap(),
        "[2001:db8::1]:1000".parse().unwrap(),
        "[::ffff:10.0.0.9]:1000".parse().unwrap(),
    ];
    for stranger in strangers {
        for bytes in all(id.value()) {
            lone.push_from(stranger, &bytes);
        }
        // Several in one buffer, each of which counts.
        let batch = Bytes::from(nak(id.value(), &[(5, 9)]).repeat(10));
        lone.endpoint.handle(lone.now, stranger, &batch, batch.len() / 10, true);
    }
    let expected = EndpointCounters { wrong_address: 4 * (8 + 10), ..EndpointCounters::default() };
    assert_eq!(lone.endpoint.counters(), expected);
    for dest in [id.value() ^ 1, 1, 0x7fff_ffff, id.value() | 1 << 31] {
        for bytes in all(dest) {
            lone.push(&bytes);
        }
    }
    assert_eq!(lone.endpoint.counters().unknown_id, 4 * 8);
    for len in 0..16 {
        lone.push(&packet(id.value(), &Control::Shutdown { code: 0 })[..len]);
    }
    // Nothing is no datagram.
    assert_eq!(lone.endpoint.counters().malformed, 15);
    assert!(lone.pull().is_empty(), "nobody gets an answer");
    assert_eq!(state(&mut lone, id), before);
    goes_on(&mut lone, id);
}

/// Many handshakes from invented addresses leave nothing behind, and get no more than they bring.
#[test]
fn ten_thousand_spoofed_handshakes() {
    let (mut lone, id) = midway();
    let mut rng = Rng::new(4);
    let (mut bytes_in, mut bytes_out, mut answers) = (0, 0, 0);
    for round in 0..10_000u32 {
        let ip = rng.next_u32().to_be_bytes();
        let from = SocketAddr::from((ip, 1 + rng.below(65_535) as u16));
        let hello = Handshake {
            version: 4,
            socket_type: SocketType::Stream,
            isn: Seq::new(rng.next_u32()),
            mss: rng.next_u32(),
            flight_flag: rng.next_u32(),
            request: [Request::Hello, Request::Conclusion, Request::Rendezvous, Request::Other(3)]
                [round as usize % 4],
            socket_id: rng.next_u32() >> 1,
            cookie: rng.next_u32(),
            peer_ip: PeerIp::NONE,
        };
        let bytes = packet(0, &Control::Handshake(hello));
        bytes_in += bytes.len();
        lone.push_from(from, &bytes);
        // The network is asked for packets now and then only.
        if round % 1_000 == 0 {
            for (_, bytes) in lone.pull() {
                bytes_out += bytes.len();
                answers += 1;
            }
        }
    }
    let left = lone.pull();
    assert!(left.len() <= 256, "answers that wait are few: {}", left.len());
    answers += left.len();
    bytes_out += left.iter().map(|(_, b)| b.len()).sum::<usize>();
    assert_eq!(bytes_out, answers * 64);
    assert!(bytes_out <= bytes_in / 4);
    assert_eq!((lone.endpoint.len(), lone.endpoint.acceptable()), (1, 0));
    assert_eq!(lone.endpoint.counters().bad_cookie, 7_500);
    goes_on(&mut lone, id);
    // And who means it is let in.
    lone.pull();
    lone.accept(0x55);
}

/// An attacker who receives answers can fill the backlog, and no more.
#[test]
fn a_flood_of_real_connections_stops_at_the_backlog() {
    let mut lone = Lone::new(1);
    lone.endpoint.listen(stream(), 8).unwrap();
    let mut answered = 0;
    for socket_id in 1..1_000 {
        let hello = Handshake { socket_id, ..client_hello() };
        let cookie = lone.ask(&hello).unwrap().cookie;
        let conclusion = Handshake { request: Request::Conclusion, cookie, ..hello };
        answered += u32::from(lone.ask(&conclusion).is_some());
    }
    assert_eq!((lone.endpoint.len(), answered), (8, 8));
    assert_eq!(lone.endpoint.counters().refused, 991);
}

/// Random bytes, some with the right ID and address.
#[test]
fn noise() {
    let (mut lone, id) = midway();
    let mut rng = Rng::new(9);
    let stranger = "10.9.9.9:9".parse().unwrap();
    for _ in 0..50_000 {
        let len = rng.below(100) as usize;
        let mut bytes = data(rng.next_u64(), len);
        if rng.chance(0.7) && len >= 16 {
            bytes[12..16].copy_from_slice(&id.value().to_be_bytes());
            // Random control packets of known types; few that end the connection.
            let kind = [0u8, 1, 2, 3, 4, 6, 7, 8, 0x7f][rng.below(9) as usize];
            bytes[..2].copy_from_slice(&[0x80, kind]);
        }
        let from = if rng.chance(0.8) { lone.peer } else { stranger };
        lone.push_from(from, &bytes);
        if rng.chance(0.01) {
            lone.pass(Duration::from_millis(1));
        }
    }
    assert_eq!(lone.endpoint.len(), 1);
    assert!(lone.endpoint.connection(id).unwrap().close_reason().is_none());
    lone.pass(Duration::from_secs(100));
}

/// An old copy of a request opens no connection, as long as its cookie is good and after.
#[test]
fn a_request_that_comes_again_after_the_end() {
    let mut net = Net::new(&path(), 2);
    net.hosts[A].log = Some(Vec::new());
    let ids = net.connect(stream(), stream());
    net.hosts[A].endpoint.release(net.now, ids.0, false);
    net.run_for(Duration::from_secs(1));
    net.hosts[B].endpoint.release(net.now, ids.1, false);
    assert!(net.run_until(Duration::from_secs(10), |net| net.hosts[B].endpoint.is_empty()));
    let requests: Vec<Vec<u8>> = net.hosts[A].log.take().unwrap();
    for wait in [1, 6, 30, 40, 60, 100, 200] {
        net.run_for(Duration::from_secs(wait));
        for request in &requests {
            net.inject(B, net.hosts[A].addr, request.clone());
        }
        net.run_for(Duration::from_secs(1));
        assert_eq!(net.hosts[B].endpoint.acceptable(), 0, "{wait} s later");
        assert!(net.hosts[B].endpoint.is_empty());
    }
    // Another from the same address is welcome.
    net.connect(stream(), stream());
}

/// A flow that is disturbed by copies of its own packets, old ones of a former connection between
/// the same addresses, and forgeries under wrong addresses and IDs, loses nothing by it.
#[test]
fn replays_and_forgeries_during_a_transfer() {
    for seed in 0..4 {
        let link = LinkConfig { loss: "1%".parse().unwrap(), ..path() };
        let mut net = Net::new(&link, seed);
        net.hosts[A].log = Some(Vec::new());
        net.hosts[B].log = Some(Vec::new());
        let former = net.connect(stream(), stream());
        let mut flow = Flow::new(A, former, data(1, 100_000));
        assert!(net.run_until(Duration::from_secs(10), |net| flow.pump(net)));
        net.hosts[A].endpoint.release(net.now, former.0, false);
        net.run_for(Duration::from_secs(2));
        net.hosts[B].endpoint.release(net.now, former.1, false);
        let mut logs = [A, B].map(|side| net.hosts[side].log.take().unwrap());

        let ids = net.connect(stream(), stream());
        let mut there = Flow::new(A, ids, data(2, 400_000));
        let mut back = Flow::new(B, ids, data(3, 400_000));
        net.hosts[A].log = Some(Vec::new());
        net.hosts[B].log = Some(Vec::new());
        let mut rng = Rng::new(seed);
        let done = net.run_until(Duration::from_secs(60), |net| {
            for to in [A, B] {
                let from = net.hosts[1 - to].addr;
                let wrong_port = SocketAddr::new(from.ip(), from.port() + 1);
                let fresh = core::mem::take(net.hosts[1 - to].log.as_mut().unwrap());
                logs[1 - to].extend(fresh);
                let log = &logs[1 - to];
                let bytes = log[rng.below(log.len() as u64) as usize].clone();
                match rng.below(4) {
                    0 => net.inject(to, from, bytes),
                    1 => net.inject(to, wrong_port, bytes),
                    2 => {
                        let mut bytes = bytes;
                        bytes[12 + rng.below(4) as usize] ^= 1 << rng.below(7);
                        net.inject(to, from, bytes);
                    }
                    _ => {}
                }
            }
            there.pump(net) & back.pump(net)
        });
        assert!(done, "{} {}", there.read, back.read);
        for side in [A, B] {
            let counters = net.hosts[side].endpoint.counters();
            assert!(counters.wrong_address > 100 && counters.unknown_id > 100, "{counters:?}");
            assert_eq!(net.stats(side, [ids.0, ids.1][side]).total.counters.out_of_window, 0);
        }
    }
}

/// Single bits of packets flip, UDP's checksum being off: what the data then says cannot be helped,
/// but nothing panics, spins, or stays for ever.
#[test]
fn damaged_packets() {
    let mut connected = 0;
    for seed in 0..24 {
        let link = LinkConfig {
            corrupt: ["1%", "10%", "40%"][seed as usize % 3].parse().unwrap(),
            loss: ["none", "3%"][seed as usize % 2].parse().unwrap(),
            ..path()
        };
        let mut net = Net::new(&link, seed);
        let mode = if seed % 4 == 3 { Mode::Message } else { Mode::Stream };
        let config = Config { mode, receive_memory: 4 << 20, ..stream() };
        net.hosts[B].endpoint.listen(config.clone(), 4).unwrap();
        let peer = net.hosts[B].addr;
        let a = net.hosts[A].endpoint.connect(net.now, peer, config).unwrap();
        net.run_for(Duration::from_secs(3));
        let Some(b) = net.hosts[B].endpoint.accept() else { continue };
        if net.hosts[A].endpoint.connection(a).is_none() {
            continue;
        }
        connected += 1;
        let ids = [a, b];
        let piece = Bytes::from(data(seed, 20_000));
        for _ in 0..20 {
            for side in [A, B] {
                let now = net.now;
                let piece = piece.clone();
                let _ = net.update(side, ids[side], |c| match mode {
                    Mode::Stream => c.send_bytes(piece),
                    Mode::Message => {
                        c.send_message(now, piece, Some(Duration::from_millis(500)), true)
                    }
                });
            }
            net.run_for(Duration::from_millis(200));
            for side in [A, B] {
                net.read(side, ids[side]);
                net.read_messages(side, ids[side]);
                let memory = net.stats(side, ids[side]).instant.receive_memory;
                assert!(memory <= (4 << 20) + (1 << 20), "{memory}");
            }
        }
        for side in [A, B] {
            net.hosts[side].endpoint.release(net.now, ids[side], false);
        }
        net.run_for(Duration::from_secs(400));
        // Connections that came about by damaged requests may wait to be accepted.
        while let Some(ghost) = net.hosts[B].endpoint.accept() {
            net.hosts[B].endpoint.release(net.now, ghost, true);
        }
        net.run_for(Duration::from_secs(10));
        assert_eq!((net.hosts[A].endpoint.len(), net.hosts[B].endpoint.len()), (0, 0));
    }
    assert!(connected >= 12, "{connected}");
}

/// What an ACK in the peer's name has made this side forget can never arrive: neither side may wait
/// for it for ever.
#[test]
fn a_forged_ack_ends_a_connection_that_could_not_go_on() {
    // What leaves while the path is cut is missing, and the ACK makes this side forget it.
    let link = LinkConfig { blackouts: vec!["300ms+30ms".parse().unwrap()], ..path() };
    let mut net = Net::asymmetric(link, path(), 3);
    let timely = Config {
        peer_timeout: Duration::from_secs(2),
        keep_alive: Duration::from_millis(500),
        ..stream()
    };
    let ids = net.connect(timely.clone(), timely);
    net.hosts[A].log = Some(Vec::new());
    net.hosts[B].log = Some(Vec::new());
    let sent = data(4, 12 << 20);
    net.update(A, ids.0, |c| c.send_bytes(sent.clone().into())).unwrap();
    net.run_for(Time::from_millis(320) - net.now);
    let of_data = |bytes: &Vec<u8>| match Packet::parse(bytes) {
        Ok(Packet::Data(data, _)) => Some(data.seq),
        _ => None,
    };
    let newest = net.hosts[A].log.take().unwrap().iter().filter_map(of_data).next_back().unwrap();
    let of_control = |bytes: &Vec<u8>| match Packet::parse(bytes) {
        Ok(Packet::Control(control)) => Some(control.dest),
        _ => None,
    };
    let id = net.hosts[B].log.take().unwrap().iter().find_map(of_control).unwrap();
    let mut forged = [0; 64];
    let ack = Ack { next: newest.next(), detail: None };
    let length = Control::Ack { ack_seq: AckSeq::new(0), ack }.write(1, id, &mut forged).unwrap();
    let from = net.hosts[B].addr;
    net.inject(A, from, forged[..length].to_vec());
    let over = net.run_until(Duration::from_secs(20), |net| {
        let reason = |net: &mut Net, side: usize, id| {
            net.hosts[side]
                .endpoint
                .connection(id)
                .map_or(Some(CloseReason::Local), |c| c.close_reason())
        };
        reason(net, A, ids.0).is_some() && reason(net, B, ids.1).is_some()
    });
    assert!(over, "both still wait");
    assert!(net.read(B, ids.1).len() < sent.len(), "nothing was lost by it");
}

/// A forged ACK after the other keeps what is missing from ever being sent again; that the ACK number
/// advances must not keep the connection up either.
#[test]
fn forged_acks_that_go_on_do_not_keep_a_dead_connection_up() {
    let link = LinkConfig { loss: "5%".parse().unwrap(), ..path() };
    let mut net = Net::new(&link, 3);
    let timely = Config {
        peer_timeout: Duration::from_secs(2),
        keep_alive: Duration::from_millis(500),
        ..stream()
    };
    let ids = net.connect(timely.clone(), timely);
    net.hosts[B].log = Some(Vec::new());
    let sent = data(4, 64 << 20);
    net.update(A, ids.0, |c| c.send_bytes(sent.clone().into())).unwrap();
    net.run_for(Duration::from_millis(300));
    let of_control = |bytes: &Vec<u8>| match Packet::parse(bytes) {
        Ok(Packet::Control(control)) => Some(control.dest),
        _ => None,
    };
    let id = net.hosts[B].log.take().unwrap().iter().find_map(of_control).unwrap();
    let from = net.hosts[B].addr;
    let mut forgeries = 0;
    for _ in 0..100 {
        net.hosts[A].log = Some(Vec::new());
        net.run_for(Duration::from_millis(200));
        let seqs = net.hosts[A].log.take().unwrap();
        let of_data = |bytes: &Vec<u8>| match Packet::parse(bytes) {
            Ok(Packet::Data(data, _)) => Some(data.seq),
            _ => None,
        };
        // The highest that has been sent.
        let newest =
            seqs.iter().filter_map(of_data).reduce(|a, b| if b.since(a) > 0 { b } else { a });
        let Some(newest) = newest else { break };
        let ack = Ack { next: newest.next(), detail: None };
        let mut forged = [0; 64];
        let length =
            Control::Ack { ack_seq: AckSeq::new(0), ack }.write(1, id, &mut forged).unwrap();
        net.inject(A, from, forged[..length].to_vec());
        forgeries += 1;
        let over = |net: &mut Net| {
            net.hosts[A].endpoint.connection(ids.0).is_none_or(|c| c.close_reason().is_some())
        };
        if over(&mut net) {
            break;
        }
    }
    assert!(forgeries > 5, "several forged ACKs were taken");
    let reason = net.hosts[A].endpoint.connection(ids.0).map(|c| c.close_reason());
    assert!(matches!(reason, None | Some(Some(_))), "it still stands after {forgeries}");
}

/// What no peer would send does not count as a sign of life; what it sends does.
#[test]
fn rubbish_in_the_peers_name_does_not_keep_a_silent_peer_alive() {
    let timely = Config { peer_timeout: Duration::from_secs(2), ..stream() };
    for honest in [false, true] {
        let (mut lone, id) = Lone::accepted(timely.clone());
        let rubbish = [
            packet(id.value(), &ack(9, 5_000, 8_192)),
            packet(id.value(), &light_ack(100_000)),
            nak(id.value(), &[(1 << 20, 1 << 21)]),
            nak(id.value(), &[(4, 4)])[..16].to_vec(),
            packet(id.value(), &Control::Ack2 { ack_seq: AckSeq::new(77) }),
        ];
        for round in 0..10 {
            lone.pass(Duration::from_millis(500));
            lone.push(&rubbish[round % rubbish.len()]);
            if honest {
                lone.push_control(id, &Control::KeepAlive);
            }
        }
        let reason = lone.endpoint.connection(id).and_then(|c| c.close_reason());
        assert_eq!(reason, (!honest).then_some(CloseReason::TimedOut));
    }
}
