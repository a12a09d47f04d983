//! An attacker on the path forges control packets of connections that stand, in virtual time: whatever
//! is forged, what arrives is a beginning of what was sent, and neither side waits for ever.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;

use farhaul_base::Rng;
use farhaul_engine::{CloseReason, Config};
use farhaul_wire::{
    Ack, AckDetail, AckSeq, Control, Handshake, LossRange, MsgNo, Packet, PeerIp, Request, Seq,
    SocketType, write_nak,
};
use pair::{A, B, Net, data, path, stream};

/// What was seen of the packets that a host has sent.
#[derive(Clone, Copy)]
struct Seen {
    /// The socket ID that they go to.
    dest: u32,
    newest: Seq,
    acked: Seq,
}

/// Adds what is in the log of `side`.
fn look(net: &mut Net, side: usize, seen: &mut Option<Seen>) {
    for bytes in net.hosts[side].log.replace(Vec::new()).unwrap_or_default() {
        let Ok(packet) = Packet::parse(&bytes) else { continue };
        let (dest, data, acked) = match packet {
            Packet::Data(header, _) => (header.dest, Some(header.seq), None),
            Packet::Control(control) => {
                let acked = match control.body {
                    Control::Ack { ack, .. } => Some(ack.next),
                    _ => None,
                };
                (control.dest, None, acked)
            }
        };
        if dest == 0 {
            continue;
        }
        let first = data.or(acked).unwrap_or(Seq::new(0));
        let known = seen.get_or_insert(Seen { dest, newest: first, acked: first });
        if let Some(seq) = data {
            known.newest = known.newest.later(seq);
        }
        known.acked = acked.unwrap_or(known.acked);
    }
}

/// A forged control packet in the name of the sender of `from`, to the sender of `to`. Without
/// `lethal` only what need not end a connection: neither shutdowns nor ACKs of what is under way.
fn forge(rng: &mut Rng, from: Seen, to: Seen, lethal: bool) -> Vec<u8> {
    let near =
        |rng: &mut Rng, seq: Seq| seq.minus(rng.below(200) as u32).plus(rng.below(200) as u32);
    let mut out = vec![0; 128];
    let control = match rng.below(if lethal { 7 } else { 5 }) {
        0 => {
            let last = near(rng, to.newest);
            let first = last.minus(rng.below(50) as u32);
            let (length, _) = write_nak(&[LossRange { first, last }], 1, from.dest, &mut out);
            out.truncate(length);
            return out;
        }
        1 => {
            let first = near(rng, from.newest);
            let last = first.plus(rng.below(50) as u32);
            Control::DropRequest { message: MsgNo::new(1), first, last }
        }
        2 => Control::Handshake(Handshake {
            version: 4,
            socket_type: SocketType::Stream,
            isn: Seq::new(rng.next_u32()),
            mss: 1500,
            flight_flag: 8192,
            request: [Request::Hello, Request::Conclusion][rng.below(2) as usize],
            socket_id: to.dest,
            cookie: rng.next_u32(),
            peer_ip: PeerIp::NONE,
        }),
        3 => Control::Ack2 { ack_seq: AckSeq::new(rng.below(100) as u32) },
        // What was acknowledged anyway, with absurd values.
        4 => Control::Ack {
            ack_seq: AckSeq::new(rng.below(1000) as u32),
            ack: Ack {
                next: from.acked,
                detail: Some(AckDetail {
                    rtt_us: rng.next_u32() >> rng.below(32),
                    rtt_var_us: rng.next_u32() >> rng.below(32),
                    available: rng.below(10_000) as u32,
                    rates: None,
                }),
            },
        },
        5 => Control::Shutdown { code: 0 },
        _ => Control::Ack {
            ack_seq: AckSeq::LIGHT,
            ack: Ack { next: near(rng, to.newest), detail: None },
        },
    };
    let length = control.write(1, from.dest, &mut out).unwrap();
    out.truncate(length);
    out
}

/// Sends 6 MiB from A to B with a forged packet each 10 ms on average; what has arrived, what was sent and
/// whether each
/// side's connection is over, and how much was forged.
fn run(seed: u64, lethal: bool) -> (Vec<u8>, Vec<u8>, [bool; 2], u32) {
    let mut rng = Rng::new(seed);
    let mut net = Net::new(&path(), seed);
    let timely = Config {
        peer_timeout: Duration::from_secs(2),
        keep_alive: Duration::from_millis(500),
        ..stream()
    };
    for host in &mut net.hosts {
        host.log = Some(Vec::new());
    }
    let ids = net.connect(timely.clone(), timely);
    let sent = data(seed, 6 << 20);
    net.update(A, ids.0, |c| c.send_bytes(sent.clone().into())).unwrap();
    let (mut seen, mut arrived, mut count) = ([None; 2], Vec::new(), 0);
    let over = |net: &mut Net, side: usize, id| {
        let reason = net.hosts[side].endpoint.connection(id);
        reason.map_or(Some(CloseReason::Local), |c| c.close_reason()).is_some()
    };
    for _ in 0..2000 {
        net.run_for(Duration::from_millis(rng.below(20)));
        arrived.extend(net.read(B, ids.1));
        let ended = [over(&mut net, A, ids.0), over(&mut net, B, ids.1)];
        if arrived.len() == sent.len() || ended == [true; 2] {
            return (arrived, sent, ended, count);
        }
        for (side, seen) in seen.iter_mut().enumerate() {
            look(&mut net, side, seen);
        }
        let [Some(a), Some(b)] = seen else { continue };
        let victim = rng.below(2) as usize;
        let (from, to) = if victim == A { (b, a) } else { (a, b) };
        let forged = forge(&mut rng, from, to, lethal);
        let name = net.hosts[1 - victim].addr;
        net.inject(victim, name, forged);
        count += 1;
    }
    let ended = [over(&mut net, A, ids.0), over(&mut net, B, ids.1)];
    (arrived, sent, ended, count)
}

#[test]
fn what_arrives_is_a_beginning_of_what_was_sent_and_nobody_waits_for_ever() {
    let mut forged = 0;
    for seed in 0..12 {
        let (arrived, sent, ended, count) = run(seed, true);
        forged += count;
        assert!(sent.starts_with(&arrived), "seed {seed}: something else has arrived");
        let whole = arrived.len() == sent.len();
        assert!(whole || ended == [true; 2], "seed {seed}: {} bytes, {ended:?}", arrived.len());
    }
    assert!(forged > 50, "only {forged} packets were forged");
}

#[test]
fn what_need_not_end_a_connection_does_not() {
    for seed in 0..12 {
        let (arrived, sent, ended, count) = run(seed, false);
        assert!(count > 10, "seed {seed}: only {count} packets were forged");
        assert!(arrived == sent, "seed {seed}: {} bytes, {ended:?}", arrived.len());
    }
}
