//! Acknowledgements in the peer's name of what it never got, in virtual time, between ends with the usual
//! time-outs: the connection ends on both sides, and soon.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::time::Duration;

use farhaul_base::Time;
use farhaul_engine::{CloseReason, ConnectionId};
use farhaul_link::LinkConfig;
use farhaul_wire::{Ack, AckSeq, Control, Packet, Seq};
use pair::{A, B, Flow, Net, data, path, stream};

/// Beyond the highest packet that `A` has sent since its log was last looked at; none if it sent none.
fn sent(net: &mut Net) -> Option<Seq> {
    let of_data = |bytes: &Vec<u8>| match Packet::parse(bytes) {
        Ok(Packet::Data(data, _)) => Some(data.seq.next()),
        _ => None,
    };
    let log = net.hosts[A].log.replace(Vec::new()).unwrap_or_default();
    log.iter().filter_map(of_data).reduce(Seq::later)
}

/// Sends `A` an ACK in the name of `B` of everything before `next`.
fn acknowledge(net: &mut Net, id: ConnectionId, next: Seq) {
    let ack = Ack { next, detail: None };
    let mut forged = [0; 64];
    let length = Control::Ack { ack_seq: AckSeq::LIGHT, ack }.write(1, id.value(), &mut forged);
    let from = net.hosts[B].addr;
    net.inject(A, from, forged[..length.unwrap()].to_vec());
}

/// Why both ends are over; none of one that is not.
fn reasons(net: &mut Net, ids: (ConnectionId, ConnectionId)) -> [Option<CloseReason>; 2] {
    [(A, ids.0), (B, ids.1)].map(|(side, id)| net.update(side, id, |c| c.close_reason()))
}

/// Runs until both ends are over; how long that took, `limit` at most, and why they are.
fn end(
    net: &mut Net,
    ids: (ConnectionId, ConnectionId),
    limit: Duration,
) -> (Duration, [Option<CloseReason>; 2]) {
    let start = net.now;
    net.run_until(limit, |net| reasons(net, ids).iter().all(Option::is_some));
    (net.now - start, reasons(net, ids))
}

const ENDED: [Option<CloseReason>; 2] =
    [Some(CloseReason::Reneged), Some(CloseReason::PeerAborted)];

/// What is missing behind all that has come is reported by nothing: the receiver does not know of it.
#[test]
fn the_last_packets_of_all_were_acknowledged_and_never_came() {
    for before in [0, 100_000] {
        let link = LinkConfig { blackouts: vec!["10s+500ms".parse().unwrap()], ..path() };
        let mut net = Net::asymmetric(link, path(), 1);
        let ids = net.connect(stream(), stream());
        let mut flow = Flow::new(A, ids, data(1, before));
        net.run_until(Duration::from_secs(5), |net| flow.pump(net));
        net.run_for(Time::from_millis(10_010) - net.now);
        net.hosts[A].log = Some(Vec::new());
        net.update(A, ids.0, |c| c.send_bytes(data(2, 3_000).into())).unwrap();
        net.run_for(Duration::from_millis(30));
        let next = sent(&mut net).expect("it was sent");
        acknowledge(&mut net, ids.0, next);
        net.run_for(Duration::from_millis(100));
        assert!(net.update(A, ids.0, |c| c.flushed()), "the ACK was believed");
        let (took, reasons) = end(&mut net, ids, Duration::from_secs(60));
        assert_eq!(reasons, ENDED, "after {before} bytes");
        assert!(took <= Duration::from_secs(15), "{took:?} after {before} bytes");
    }
}

/// A forged ACK a second on a path that loses packets, in the middle of a transfer: it ends soon after the
/// receiver has got the last that it can.
#[test]
fn packets_in_the_midst_were_acknowledged_and_never_came() {
    for seed in 0..8 {
        let link = LinkConfig { loss: "1%".parse().unwrap(), ..path() };
        let mut net = Net::new(&link, seed);
        let ids = net.connect(stream(), stream());
        net.hosts[A].log = Some(Vec::new());
        let mut flow = Flow::new(A, ids, data(seed, 256 << 20));
        let (mut newest, mut got) = (None, (0, net.now));
        while reasons(&mut net, ids).contains(&None) {
            net.run_until(Duration::from_secs(1), |net| {
                let open = reasons(net, ids) == [None; 2];
                open && flow.pump(net)
            });
            newest = sent(&mut net).or(newest);
            acknowledge(&mut net, ids.0, newest.expect("it sends at first"));
            if flow.read > got.0 {
                got = (flow.read, net.now);
            }
            assert!(net.now - got.1 < Duration::from_secs(9), "seed {seed}: both wait");
        }
        assert_eq!(reasons(&mut net, ids), ENDED, "seed {seed}");
    }
}

/// A route that is seconds shorter: ACKs and reports of the longer one come behind those of the
/// shorter one, and prove nothing.
#[test]
fn late_acknowledgements_and_reports_end_no_connection() {
    for seed in 0..4 {
        let link = LinkConfig {
            loss: "2%".parse().unwrap(),
            delay_changes: "1s:3s,20s:10ms:reorder,40s:3s,60s:10ms:reorder".parse().unwrap(),
            ..path()
        };
        let mut net = Net::new(&link, seed);
        let ids = net.connect(stream(), stream());
        let mut flow = Flow::new(A, ids, data(seed, 64 << 20));
        net.run_until(Duration::from_secs(90), |net| flow.pump(net));
        assert_eq!(reasons(&mut net, ids), [None; 2], "seed {seed}");
        assert!(net.now > Time::from_secs(60), "seed {seed}: it was over at {:?}", net.now);
    }
}
