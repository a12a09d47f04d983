//! Authenticated control packets between two endpoints: what others send changes nothing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;

use bytes::Bytes;
use farhaul_base::{Rng, Time};
use farhaul_engine::{CloseReason, Config, ConnectionId, Counters, TagKeys};
use farhaul_link::LinkConfig;
use farhaul_wire::{
    Ack, AckDetail, AckRates, AckSeq, Boundary, Control, DataHeader, Handshake, LossRange, MsgNo,
    Packet, PeerIp, Request, Seq, SocketType, is_control, write_nak,
};
use pair::{A, B, Flow, Net, data, path, stream};

/// The subtype of tagged packets.
const ENVELOPE: u16 = 0xff01;

fn set_keys(net: &mut Net, ids: (ConnectionId, ConnectionId)) {
    let (a, b) = (*b"the key of A's p", *b"the key of B's p");
    net.update(A, ids.0, |c| c.set_tag_keys(TagKeys { send: a, receive: b }));
    net.update(B, ids.1, |c| c.set_tag_keys(TagKeys { send: b, receive: a }));
}

fn authenticate(net: &mut Net, side: usize, id: ConnectionId) {
    let now = net.now;
    net.update(side, id, |c| c.authenticate(now));
}

/// A connection that both sides authenticate, once both know that.
fn authenticated(link: &LinkConfig, seed: u64) -> (Net, (ConnectionId, ConnectionId)) {
    authenticated_with(link, seed, &stream())
}

fn authenticated_with(
    link: &LinkConfig,
    seed: u64,
    config: &Config,
) -> (Net, (ConnectionId, ConnectionId)) {
    let mut net = Net::new(link, seed);
    let ids = net.connect(config.clone(), config.clone());
    set_keys(&mut net, ids);
    authenticate(&mut net, A, ids.0);
    authenticate(&mut net, B, ids.1);
    net.run_for(Duration::from_secs(2));
    (net, ids)
}

/// As if the peer of `side` had sent it, at this instant.
fn push(net: &mut Net, side: usize, bytes: &[u8]) {
    let from = net.hosts[1 - side].addr;
    let bytes = Bytes::copy_from_slice(bytes);
    net.hosts[side].endpoint.handle(net.now, from, &bytes, bytes.len(), false);
}

fn packet(timestamp: u32, dest: u32, control: &Control<'_>) -> Vec<u8> {
    let mut out = vec![0; control.datagram_len()];
    control.write(timestamp, dest, &mut out).unwrap();
    out
}

fn is_tagged(datagram: &[u8]) -> bool {
    matches!(Packet::parse(datagram), Ok(Packet::Control(c))
        if matches!(c.body, Control::User { subtype: ENVELOPE, .. }))
}

/// One of each kind of control packet that an attacker on the path could make, knowing the
/// connection's IDs and that its sequence numbers are about `seq`; then the same with tags that are
/// guessed, or cut.
fn forgeries(rng: &mut Rng, dest: u32, seq: Seq) -> Vec<Vec<u8>> {
    let near = |rng: &mut Rng| seq.plus(Seq::MAX - 20).plus(rng.next_u64() as u32 % 40);
    let rates = Some(AckRates { receive_rate: 1, link_capacity: 1 });
    let detail = AckDetail { rtt_us: 1, rtt_var_us: 1, available: 2, rates };
    let small = AckDetail { rtt_us: 9_000_000, available: 1 << 20, rates: None, ..detail };
    let hello = Handshake {
        version: 4,
        socket_type: SocketType::Stream,
        isn: seq,
        mss: 76,
        flight_flag: 2,
        request: Request::Hello,
        socket_id: 7,
        cookie: 0,
        peer_ip: PeerIp::NONE,
    };
    let first = near(rng);
    let user = |subtype, info| Control::User { subtype, info, payload: &[1, 2, 3, 4] };
    let number = AckSeq::new(rng.next_u64() as u32 % 300);
    let ack = |ack_seq, next, detail| Control::Ack { ack_seq, ack: Ack { next, detail } };
    let all = [
        ack(AckSeq::LIGHT, near(rng), None),
        ack(number, near(rng), Some(small)),
        ack(number, near(rng), Some(detail)),
        Control::Ack2 { ack_seq: number },
        Control::KeepAlive,
        Control::CongestionWarning,
        Control::Shutdown { code: 0 },
        Control::Shutdown { code: 1 },
        Control::ErrorSignal { code: 4_000 },
        Control::DropRequest { message: MsgNo::new(1), first, last: first.plus(9) },
        Control::Handshake(hello),
        Control::Handshake(Handshake { request: Request::Conclusion, ..hello }),
        // What a law of the peer would have this side do, and something of a law.
        user(0xff00, u32::MAX),
        user(1, 2),
        Control::Unknown { kind: 99, subtype: 0, info: 0, payload: &[0; 4] },
    ];
    let timestamp = rng.next_u64() as u32 % 2;
    let mut out: Vec<_> = all.iter().map(|c| packet(timestamp, dest, c)).collect();
    let mut nak = vec![0; 64];
    let range = LossRange { first, last: first.plus(5) };
    let (len, _) = write_nak(&[range], timestamp, dest, &mut nak);
    out.push(nak[..len].to_vec());
    let envelopes: Vec<_> = out
        .iter()
        .map(|inner| {
            let mut payload = inner[..8].to_vec();
            payload.extend_from_slice(&inner[16..]);
            payload.extend(rng.next_u64().to_be_bytes());
            let info = rng.next_u64() as u32 % 1_000;
            let envelope = Control::User { subtype: ENVELOPE, info, payload: &payload };
            packet(timestamp, dest, &envelope)
        })
        .collect();
    out.extend(envelopes.iter().map(|e| e[..16 + rng.next_u64() as usize % 20].to_vec()));
    out.extend(envelopes);
    out
}

/// What a run came to: when it ended, and what both sides have counted, without forgeries.
type Outcome = (Time, [Counters; 2]);

/// A transfer from `A` to `B`, authenticated; `interfere` is called every millisecond with what it may
/// know, and returns how many packets it has sent to each side.
fn transfer(
    link: &LinkConfig,
    seed: u64,
    mut interfere: impl FnMut(&mut Net, (ConnectionId, ConnectionId)) -> [u64; 2],
) -> Outcome {
    let (mut net, ids) = authenticated(link, seed);
    net.hosts.iter_mut().for_each(|host| host.log = Some(Vec::new()));
    let mut flow = Flow::new(A, ids, data(seed, 1 << 20));
    let (mut next, mut forged) = (net.now, [0; 2]);
    let arrived = net.run_until(Duration::from_secs(60), |net| {
        if net.now >= next {
            next = net.now + Duration::from_millis(1);
            let sent = interfere(net, ids);
            forged = [forged[A] + sent[A], forged[B] + sent[B]];
        }
        flow.pump(net)
    });
    assert!(arrived, "{} bytes of {}", flow.read, flow.data.len());
    let end = net.now;
    let mut counters = [A, B].map(|side| net.stats(side, [ids.0, ids.1][side]).total.counters);
    assert_eq!(counters.map(|c| c.forged), forged);
    counters.iter_mut().for_each(|c| c.forged = 0);
    let now = net.now;
    net.update(A, ids.0, |c| c.close(now));
    net.run_for(Duration::from_secs(1));
    let reasons = [A, B].map(|side| net.update(side, [ids.0, ids.1][side], |c| c.close_reason()));
    assert_eq!(reasons, [Some(CloseReason::Local), Some(CloseReason::Peer)]);
    (end, counters)
}

fn links() -> [LinkConfig; 2] {
    let lossy = LinkConfig { loss: "2%".parse().unwrap(), ..path() };
    [path(), lossy]
}

fn newest_data(net: &Net, side: usize) -> Seq {
    let log = net.hosts[side].log.as_deref().unwrap_or_default();
    let mut seqs = log.iter().rev().filter_map(|bytes| match Packet::parse(bytes) {
        Ok(Packet::Data(header, _)) => Some(header.seq),
        _ => None,
    });
    seqs.next().unwrap_or(Seq::new(0))
}

/// Not even the time at which anything happens.
#[test]
fn forged_packets_change_nothing() {
    for (seed, link) in (0..4).flat_map(|seed| links().map(|link| (seed, link))) {
        let undisturbed = transfer(&link, seed, |_, _| [0; 2]);
        let mut rng = Rng::new(seed);
        let disturbed = transfer(&link, seed, |net, ids| {
            let mut sent = [0; 2];
            for (side, id) in [(A, ids.0), (B, ids.1)] {
                for forgery in forgeries(&mut rng, id.value(), newest_data(net, A)) {
                    push(net, side, &forgery);
                    sent[side] += 1;
                }
            }
            sent
        });
        assert_eq!(undisturbed, disturbed, "seed {seed}");
    }
}

/// Copies of the peer's own packets neither, however old.
#[test]
fn copies_change_nothing() {
    for (seed, link) in (0..4).flat_map(|seed| links().map(|link| (seed, link))) {
        let undisturbed = transfer(&link, seed, |_, _| [0; 2]);
        let mut rng = Rng::new(seed);
        let disturbed = transfer(&link, seed, |net, _| {
            let mut sent = [0; 2];
            for side in [A, B] {
                // Those that had time to arrive; what was lost is not there twice.
                let log = net.hosts[1 - side].log.clone().unwrap();
                let tagged: Vec<_> = log.iter().filter(|bytes| is_tagged(bytes)).collect();
                assert_eq!(tagged.len(), log.iter().filter(|bytes| is_control(bytes)).count());
                let old = tagged.len().saturating_sub(200);
                for _ in 0..5 {
                    if link.loss == path().loss && old > 0 {
                        let copy = tagged[rng.next_u64() as usize % old];
                        push(net, side, copy);
                        sent[side] += 1;
                    }
                    // And with a bit changed.
                    if let Some(&last) = tagged.last() {
                        let mut wrong = last.clone();
                        let bit = 1 + rng.next_u64() as usize % (wrong.len() * 8 - 1);
                        wrong[bit / 8] ^= 0x80 >> (bit % 8);
                        // Another address is no packet to this connection.
                        if !(96..128).contains(&bit) {
                            push(net, side, &wrong);
                            sent[side] += 1;
                        }
                    }
                }
            }
            sent
        });
        assert_eq!(undisturbed, disturbed, "seed {seed}");
    }
}

/// The transition holds whatever is lost, overtaken or doubled, and whichever side begins.
#[test]
fn the_transition_on_bad_paths() {
    for seed in 0..30 {
        let link = LinkConfig {
            loss: ["0%", "10%", "30%"][seed as usize % 3].parse().unwrap(),
            jitter: "30ms:reorder".parse().unwrap(),
            duplicate: "10%".parse().unwrap(),
            ..path()
        };
        let mut net = Net::new(&link, seed);
        let config = Config { connect_timeout: Some(Duration::from_secs(60)), ..stream() };
        let ids = net.connect(config, stream());
        let mut flows = [
            Flow::new(A, ids, data(seed, 200_000)),
            Flow::new(B, (ids.0, ids.1), data(seed + 99, 200_000)),
        ];
        set_keys(&mut net, ids);
        // One begins in the midst of it, the other up to 1.5 s later.
        let mut rng = Rng::new(seed);
        let wait = |rng: &mut Rng, ms: u64| Duration::from_millis(rng.next_u64() % ms);
        let begin = net.now + wait(&mut rng, 40);
        let later = begin + wait(&mut rng, 1_500);
        let mut waiting = match seed % 2 {
            0 => vec![(later, B, ids.1), (begin, A, ids.0)],
            _ => vec![(later, A, ids.0), (begin, B, ids.1)],
        };
        let arrived = net.run_until(Duration::from_secs(120), |net| {
            while let Some((_, side, id)) = waiting.pop_if(|(at, ..)| net.now >= *at) {
                authenticate(net, side, id);
            }
            let done = flows.each_mut().map(|flow| flow.pump(net));
            done == [true; 2] && waiting.is_empty()
        });
        assert!(arrived, "seed {seed}: {} {}", flows[0].read, flows[1].read);
        net.run_for(Duration::from_secs(2));
        for (side, id) in [(A, ids.0), (B, ids.1)] {
            push(&mut net, side, &packet(1, id.value(), &Control::Shutdown { code: 0 }));
            assert_eq!(net.update(side, id, |c| c.close_reason()), None, "seed {seed}");
        }
    }
}

/// There is no way back for a side that has begun, whatever the other does or an attacker drops.
#[test]
fn a_peer_without_tags_falls_silent() {
    let config = Config { peer_timeout: Duration::from_secs(10), ..stream() };
    for has_keys in [true, false] {
        let mut net = Net::new(&path(), 1);
        let ids = net.connect(config.clone(), config.clone());
        if has_keys {
            set_keys(&mut net, ids);
        } else {
            let keys = TagKeys { send: [1; 16], receive: [2; 16] };
            net.update(A, ids.0, |c| c.set_tag_keys(keys));
        }
        authenticate(&mut net, A, ids.0);
        let mut flow = Flow::new(B, ids, data(1, 64 << 20));
        net.run_until(Duration::from_secs(9), |net| flow.pump(net));
        assert_eq!(net.update(A, ids.0, |c| c.close_reason()), None);
        // Without keys it does not even know what it is to answer.
        assert_eq!(net.stats(A, ids.0).total.counters.forged > 0, has_keys);
        net.run_until(Duration::from_secs(9), |net| {
            let _ = flow.pump(net);
            net.update(A, ids.0, |c| c.close_reason()).is_some()
        });
        let reason = net.update(A, ids.0, |c| c.close_reason());
        assert_eq!(reason, Some(CloseReason::TimedOut), "{has_keys}");
    }
}

/// Forged data packets are no signs of life of a peer that is gone.
#[test]
fn data_packets_do_not_keep_a_dead_peer_alive() {
    let config = Config { peer_timeout: Duration::from_secs(10), ..stream() };
    let (mut net, ids) = authenticated_with(&path(), 1, &config);
    net.hosts[B].log = Some(Vec::new());
    net.update(B, ids.1, |c| c.send_bytes(Bytes::from_static(b"alive"))).unwrap();
    net.run_for(Duration::from_secs(1));
    let log = net.hosts[B].log.take().unwrap();
    let last = log.into_iter().find(|bytes| !is_control(bytes)).unwrap();
    net.hosts[B].deaf = true;
    net.hosts[A].endpoint.poll_timeout().unwrap();
    let over = net.run_until(Duration::from_secs(12), |net| {
        push(net, A, &last);
        net.update(A, ids.0, |c| c.close_reason()).is_some()
    });
    assert!(over);
    assert_eq!(net.update(A, ids.0, |c| c.close_reason()), Some(CloseReason::TimedOut));
}

/// The end is told with tags, also by a side that has forgotten the connection but for that.
#[test]
fn the_end_is_authenticated() {
    for (released, abort) in [(false, false), (true, false), (true, true)] {
        let (mut net, ids) = authenticated(&path(), 1);
        let blackout = format!("{}ms+2600ms", net.now.as_micros() / 1_000);
        let link = LinkConfig { blackouts: vec![blackout.parse().unwrap()], ..path() };
        net.links[A] = farhaul_link::Link::new(link, 5);
        let now = net.now;
        match released {
            true => net.hosts[A].endpoint.release(now, ids.0, abort),
            false => net.update(A, ids.0, |c| c.close(now)),
        }
        net.run_for(Duration::from_millis(2_500));
        assert_eq!(net.hosts[A].endpoint.is_empty(), released);
        assert_eq!(net.update(B, ids.1, |c| c.close_reason()), None, "it has not heard");
        // Others do not make it speak, nor end it.
        for control in [Control::KeepAlive, Control::Shutdown { code: 0 }] {
            let sent = net.datagrams;
            push(&mut net, A, &packet(1, ids.0.value(), &control));
            net.settle();
            assert_eq!(net.datagrams, sent);
            push(&mut net, B, &packet(1, ids.1.value(), &control));
        }
        assert_eq!(net.update(B, ids.1, |c| c.close_reason()), None);
        net.run_for(Duration::from_secs(2));
        let expected = if abort { CloseReason::PeerAborted } else { CloseReason::Peer };
        assert_eq!(net.update(B, ids.1, |c| c.close_reason()), Some(expected));
        net.hosts[B].endpoint.release(net.now, ids.1, false);
        net.run_for(Duration::from_secs(1));
        let sent = net.datagrams;
        net.run_for(Duration::from_secs(10));
        assert_eq!(net.datagrams, sent, "no answers to answers");
    }
}

/// Keys alone, and a side that was not asked to authenticate, send what they always sent.
#[test]
fn without_authentication_nothing_is_different_on_the_wire() {
    let logs = [false, true].map(|keys| {
        let mut net = Net::new(&path(), 3);
        net.hosts.iter_mut().for_each(|host| host.log = Some(Vec::new()));
        let ids = net.connect(stream(), stream());
        if keys {
            set_keys(&mut net, ids);
        } else {
            authenticate(&mut net, A, ids.0);
        }
        let mut flow = Flow::new(A, ids, data(3, 300_000));
        assert!(net.run_until(Duration::from_secs(10), |net| flow.pump(net)));
        let now = net.now;
        net.update(A, ids.0, |c| c.close(now));
        net.run_for(Duration::from_secs(5));
        net.hosts.each_mut().map(|host| host.log.take().unwrap())
    });
    assert!(logs[0].iter().all(|log| log.iter().all(|bytes| !is_tagged(bytes))));
    assert!(logs[0] == logs[1]);
}

/// With tags every control packet bears one, and fits what the path takes.
#[test]
fn everything_that_is_no_data_is_tagged() {
    let (mut net, ids) = authenticated(&links()[1], 1);
    net.hosts.iter_mut().for_each(|host| host.log = Some(Vec::new()));
    let mut flow = Flow::new(A, ids, data(1, 2 << 20));
    assert!(net.run_until(Duration::from_secs(60), |net| flow.pump(net)));
    net.update(B, ids.1, |c| c.signal_error(4_000));
    // A peer that is silent is asked; then the end.
    net.hosts[B].deaf = true;
    net.run_for(Duration::from_secs(30));
    net.hosts[B].deaf = false;
    net.run_for(Duration::from_secs(1));
    net.hosts[A].endpoint.release(net.now, ids.0, false);
    net.run_for(Duration::from_secs(3));
    for host in &net.hosts {
        let log = host.log.as_ref().unwrap();
        assert!(log.iter().all(|bytes| !is_control(bytes) || is_tagged(bytes)));
        assert!(log.iter().all(|bytes| bytes.len() <= 1_472));
        assert!(log.iter().filter(|bytes| is_tagged(bytes)).count() > 20);
    }
}

/// A stream of which the receiver wants data packets tagged as well, or not; forged ones come from when a
/// tenth has arrived. When all has, or what was read by then; and what was counted as forged.
fn stream_past_forged_data(
    link: &LinkConfig,
    seed: u64,
    asks: bool,
    forge: bool,
) -> (Time, bool, u64, u64) {
    let (mut net, ids) = authenticated(link, seed);
    net.hosts.iter_mut().for_each(|host| host.log = Some(Vec::new()));
    if asks {
        let now = net.now;
        net.update(B, ids.1, |c| c.authenticate_data(now));
    }
    let sent = Bytes::from(data(seed, 1 << 20));
    let (mut next, mut forged, mut rng) = (net.now, 0, Rng::new(seed));
    let (mut written, mut read) = (0, Vec::new());
    net.run_until(Duration::from_secs(60), |net| {
        while written < sent.len() {
            let end = (written + (64 << 10)).min(sent.len());
            let piece = sent.slice(written..end);
            if net.update(A, ids.0, |c| c.send_bytes(piece)).is_err() {
                break;
            }
            written = end;
        }
        read.extend(net.read(B, ids.1));
        if forge && net.now >= next && read.len() > sent.len() / 10 {
            next = net.now + Duration::from_millis(1);
            let seq = newest_data(net, A).plus(1 + rng.below(64) as u32);
            let mut packet = DataHeader {
                seq,
                boundary: Boundary::SOLO,
                in_order: true,
                message: MsgNo::new(1),
                timestamp: 0,
                dest: ids.1.value(),
            }
            .to_bytes()
            .to_vec();
            packet.resize(16 + 1 + rng.below(1400) as usize, 0xee);
            push(net, B, &packet);
            forged += 1;
        }
        read.len() >= sent.len()
    });
    let counted = net.stats(B, ids.1).total.counters.forged;
    (net.now, read == sent, forged, counted)
}

/// Forged data packets change nothing either, not even the time, once the receiver has asked for tags; without,
/// they get into the stream.
#[test]
fn forged_data_changes_nothing_where_data_is_tagged() {
    for (seed, link) in (0..4).flat_map(|seed| links().map(|link| (seed, link))) {
        let (end, same, _, counted) = stream_past_forged_data(&link, seed, true, false);
        assert!(same && counted == 0, "seed {seed}: {counted}");
        let (disturbed, same, forged, counted) = stream_past_forged_data(&link, seed, true, true);
        assert!(same && forged > 10 && counted == forged, "seed {seed}: {counted} of {forged}");
        assert_eq!(end, disturbed, "seed {seed}");
        let (_, same, ..) = stream_past_forged_data(&link, seed, false, true);
        assert!(!same, "seed {seed}: it is forged");
    }
}

/// Tags may be asked for in the middle, whatever is lost: nothing of the stream is, and from then on it is
/// protected.
#[test]
fn data_is_tagged_from_the_middle_of_a_stream_on() {
    for seed in 0..6 {
        let loss = ["0%", "10%"][seed as usize % 2].parse().unwrap();
        let link = LinkConfig { loss, jitter: "30ms:reorder".parse().unwrap(), ..path() };
        let (mut net, ids) = authenticated(&link, seed);
        let mut flow = Flow::new(A, ids, data(seed, 600_000));
        let mut asked = false;
        let arrived = net.run_until(Duration::from_secs(120), |net| {
            if !asked && flow.read > 200_000 {
                asked = true;
                let now = net.now;
                net.update(B, ids.1, |c| c.authenticate_data(now));
            }
            flow.pump(net)
        });
        assert!(arrived && asked, "seed {seed}: {}", flow.read);
        let seq = Seq::new(0);
        let before = net.stats(B, ids.1).total.counters.forged;
        let header = DataHeader {
            seq,
            boundary: Boundary::SOLO,
            in_order: true,
            message: MsgNo::new(1),
            timestamp: 0,
            dest: ids.1.value(),
        };
        push(&mut net, B, &[&header.to_bytes()[..], b"forged"].concat());
        assert_eq!(net.stats(B, ids.1).total.counters.forged, before + 1, "seed {seed}");
    }
}
