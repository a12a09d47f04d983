//! What either side knows of the other's data when a connection has ended.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lone;
mod pair;

use core::time::Duration;

use bytes::Bytes;
use farhaul_base::Rng;
use farhaul_engine::{CloseReason, ConnectionId};
use farhaul_link::LinkConfig;
use farhaul_wire::{Boundary, Control};
use lone::{Lone, controls, data_packet};
use pair::{A, B, Flow, Net, data, message, path, stream};

/// The code of a shutdown which says that everything before this place has come.
fn has_all_before(n: u32) -> u32 {
    1 << 31 | lone::ISN.plus(n).value()
}

fn lossy(loss: &str) -> LinkConfig {
    match loss {
        "" => path(),
        loss => LinkConfig { loss: loss.parse().unwrap(), ..path() },
    }
}

fn reason(net: &mut Net, side: usize, id: ConnectionId) -> Option<CloseReason> {
    net.update(side, id, |c| c.close_reason())
}

fn close(net: &mut Net, side: usize, id: ConnectionId) {
    let now = net.now;
    net.update(side, id, |c| c.close(now));
}

/// `A` sends, and `B` closes once it has read a number of bytes. What `B` has read is then exactly what
/// `A` takes for delivered, whatever was lost on the way, the last ACKs and the shutdowns included; and
/// `B` knows whether that was all. Returns how many such ends were of whole streams, and how many did
/// not find out that they were cut.
fn ends(loss: &str, seeds: core::ops::Range<u64>) -> (u32, u32) {
    let (mut whole, mut unaware) = (0, 0);
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let mut net = Net::new(&lossy(loss), seed);
        let ids = net.connect(stream(), stream());
        let len = 1 + rng.below(200_000) as usize;
        let enough = if rng.chance(0.5) { len } else { rng.below(len as u64) as usize };
        let mut flow = Flow::new(A, ids, data(seed, len));
        let read = net.run_until(Duration::from_secs(300), |net| {
            flow.pump(net);
            flow.read >= enough
        });
        assert!(read, "seed {seed}: {} of {enough}", flow.read);
        close(&mut net, B, ids.1);
        // Whether one of the shutdowns arrives, or the answer to a later sign of life.
        net.run_until(Duration::from_secs(300), |net| reason(net, A, ids.0).is_some());
        net.run_for(Duration::from_secs(5));
        flow.drain(&mut net);
        let undelivered = net.stats(A, ids.0).instant.send_buffer.0;
        assert_eq!(flow.written - undelivered, flow.read, "seed {seed}, loss {loss}");
        let reasons = (reason(&mut net, A, ids.0), reason(&mut net, B, ids.1));
        assert!(net.update(A, ids.0, |c| c.has_account()), "seed {seed}: {reasons:?}");
        if undelivered == 0 {
            whole += 1;
            assert_eq!(reasons, (Some(CloseReason::Peer), Some(CloseReason::Local)), "seed {seed}");
        } else {
            assert_eq!(reasons.0, Some(CloseReason::PeerStopped), "seed {seed}");
            unaware += u32::from(reasons.1 == Some(CloseReason::Local));
            let told = [Some(CloseReason::Local), Some(CloseReason::PeerAborted)];
            assert!(told.contains(&reasons.1), "seed {seed}: {reasons:?}");
        }
    }
    (whole, unaware)
}

#[test]
fn both_sides_know_what_was_delivered() {
    let (whole, unaware) = ends("", 0..300);
    assert!((100..250).contains(&whole), "{whole}");
    assert_eq!(unaware, 0);
}

#[test]
fn both_sides_know_what_was_delivered_on_lossy_paths() {
    for (loss, seeds) in [("5%", 0..300), ("20%", 300..600), ("ge:loss=10%,burst=3", 600..900)] {
        let (whole, unaware) = ends(loss, seeds);
        assert!((100..250).contains(&whole), "{whole}");
        assert!(unaware <= 5, "{loss}: {unaware}");
    }
}

/// All ACKs are lost, and the first shutdowns too; the one that arrives does for them.
#[test]
fn the_shutdown_stands_for_the_last_ack() {
    for lost_for in [40, 300, 700] {
        let cut = format!("100ms+{lost_for}ms").parse().unwrap();
        let mut net = Net::asymmetric(path(), LinkConfig { blackouts: vec![cut], ..path() }, 1);
        let ids = net.connect(stream(), stream());
        net.run_for(Duration::from_millis(105) - (net.now - farhaul_base::Time::ZERO));
        let mut flow = Flow::new(A, ids, data(1, 20_000));
        assert!(net.run_until(Duration::from_millis(40), |net| flow.pump(net)));
        assert!(!net.update(A, ids.0, |c| c.flushed()));
        close(&mut net, B, ids.1);
        net.run_for(Duration::from_secs(5));
        assert!(net.update(A, ids.0, |c| c.flushed()), "{lost_for}");
        assert_eq!(reason(&mut net, A, ids.0), Some(CloseReason::Peer));
        assert_eq!(reason(&mut net, B, ids.1), Some(CloseReason::Local));
    }
}

/// Messages that the sender has given up are not lost: that was agreed.
#[test]
fn messages_given_up_are_not_owed() {
    for seed in 0..100 {
        let mut net = Net::new(&lossy("10%"), seed);
        let ids = net.connect(message(), message());
        let mut got = 0;
        for n in 0..20 {
            let now = net.now;
            let ttl = (n >= 10).then(|| Duration::from_millis(1));
            let bytes = Bytes::from(vec![n; 5_000]);
            net.update(A, ids.0, |c| c.send_message(now, bytes, ttl, false)).unwrap();
        }
        // The first ten have to come.
        let whole = net.run_until(Duration::from_secs(60), |net| {
            let news = net.read_messages(B, ids.1);
            got += news.iter().filter(|m| m[0] < 10).count();
            got == 10
        });
        assert!(whole, "{got}");
        close(&mut net, B, ids.1);
        net.run_for(Duration::from_secs(20));
        let reason = reason(&mut net, A, ids.0);
        let dropped = net.stats(A, ids.0).total.counters.messages_dropped;
        assert!(reason == Some(CloseReason::Peer) || dropped < 10, "seed {seed}: {reason:?}");
    }
}

/// What comes after a side has closed is neither acknowledged nor given to its reader: the number in its
/// shutdown stays true.
#[test]
fn a_side_that_has_closed_takes_nothing_more() {
    let (mut lone, id) = Lone::accepted(stream());
    let mut bytes = [0; 64];
    // A farhaul peer, by its time stamp.
    let len = Control::KeepAlive.write(1, id.value(), &mut bytes).unwrap();
    lone.push(&bytes[..len]);
    let solo = |n: u32| data_packet(id.value(), n, Boundary::SOLO, false, n + 1, &[n as u8; 4]);
    lone.push(&solo(0));
    lone.endpoint.update(id, |c| c.close(lone.now)).unwrap();
    let mut sent = lone.pull();
    lone.push(&solo(1));
    sent.extend(lone.pass(Duration::from_secs(2)));
    let codes: Vec<u32> = controls(&sent)
        .iter()
        .filter_map(|c| if let Control::Shutdown { code } = c { Some(*code) } else { None })
        .collect();
    assert_eq!(codes, [has_all_before(1); 5]);
    let mut chunks = farhaul_engine::Chunks::default();
    lone.endpoint.update(id, |c| c.read(1_000, &mut chunks)).unwrap();
    assert_eq!(chunks.len(), 4);
}

/// A number that no peer can have is not believed, and neither is one from a stock peer, whose
/// shutdowns have none.
#[test]
fn accounts_that_are_none() {
    for (code, stock) in [(has_all_before(9), false), (has_all_before(4), true), (2, false)] {
        let (mut lone, id) = Lone::accepted(stream());
        let payload = lone.endpoint.connection(id).unwrap().payload_size();
        let piece = Bytes::from(vec![7; 8 * payload]);
        lone.endpoint.update(id, |c| c.send_bytes(piece)).unwrap().unwrap();
        lone.pass(Duration::from_millis(10));
        if !stock {
            lone.push_stamped(id, &Control::KeepAlive);
        }
        lone.push_control(id, &Control::Shutdown { code });
        if stock {
            // Its last ACK might come behind.
            lone.pass(Duration::from_millis(200));
        }
        let connection = lone.endpoint.connection(id).unwrap();
        assert_eq!(connection.close_reason(), Some(CloseReason::Peer), "{code:x}");
        assert!(connection.is_over() && !connection.has_account() && !connection.flushed());
    }
}
