//! How connections end: by either side, by both, unheard, and by silence.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lone;
mod pair;

use core::time::Duration;

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_engine::{Chunks, CloseReason, Config, ConnectionId, SendError};
use farhaul_link::LinkConfig;
use farhaul_wire::Control;
use lone::{Lone, ack, controls, data_packet, data_places, light_ack};
use pair::{A, B, Flow, Net, data, path, stream};

fn reasons(net: &mut Net, ids: (ConnectionId, ConnectionId)) -> [Option<CloseReason>; 2] {
    [(A, ids.0), (B, ids.1)].map(|(side, id)| net.update(side, id, |c| c.close_reason()))
}

fn close(net: &mut Net, side: usize, id: ConnectionId) {
    let now = net.now;
    net.update(side, id, |c| c.close(now));
}

/// A path that is cut in one direction from `at` for `length`.
fn cut(at: u64, length: u64) -> LinkConfig {
    let blackout = format!("{at}ms+{length}ms").parse().unwrap();
    LinkConfig { blackouts: vec![blackout], ..path() }
}

#[test]
fn either_side_may_close() {
    for first in [A, B] {
        let mut net = Net::new(&path(), first as u64);
        let ids = net.connect(stream(), stream());
        net.run_for(Duration::from_millis(100));
        close(&mut net, first, [ids.0, ids.1][first]);
        net.run_for(Duration::from_millis(30));
        let mut expected = [Some(CloseReason::Peer); 2];
        expected[first] = Some(CloseReason::Local);
        assert_eq!(reasons(&mut net, ids), expected);
        for side in [A, B] {
            let events = &net.hosts[side].events;
            assert_eq!(events.iter().filter(|(_, e)| e.closed).count(), 1);
            let id = [ids.0, ids.1][side];
            let refused = net.update(side, id, |c| c.send_bytes(Bytes::from_static(b"more")));
            assert_eq!(refused, Err(SendError::Closed(expected[side].unwrap())));
            net.hosts[side].endpoint.release(net.now, id, false);
        }
        net.run_for(Duration::from_millis(30));
        assert!(net.hosts.iter().all(|h| h.endpoint.is_empty()));
        let sent = net.datagrams;
        net.run_for(Duration::from_secs(60));
        assert_eq!(net.datagrams, sent, "silence afterwards");
    }
}

#[test]
fn both_sides_close_at_once() {
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(stream(), stream());
    close(&mut net, A, ids.0);
    close(&mut net, B, ids.1);
    net.run_for(Duration::from_millis(100));
    assert_eq!(reasons(&mut net, ids), [Some(CloseReason::Local); 2]);
}

/// What was written before is delivered, whatever the path loses.
#[test]
fn closing_delivers_what_was_written() {
    for seed in 0..6 {
        let link = LinkConfig { loss: "10%".parse().unwrap(), ..path() };
        let mut net = Net::new(&link, seed);
        let ids = net.connect(stream(), stream());
        let mut flow = Flow::new(A, ids, data(seed, 100_000 + seed as usize));
        flow.pump(&mut net);
        assert_eq!(flow.written, flow.data.len());
        net.hosts[A].endpoint.release(net.now, ids.0, false);
        let begun = net.now;
        let gone = net.run_until(Duration::from_secs(60), |net| net.hosts[A].endpoint.is_empty());
        assert!(gone, "after {:?}", net.now - begun);
        net.run_for(Duration::from_secs(5));
        assert!(flow.drain(&mut net), "{}", flow.read);
        assert_eq!(net.update(B, ids.1, |c| c.close_reason()), Some(CloseReason::Peer));
    }
}

/// A connection that was closed at once after a short write has not lost it, in either mode of
/// arrival: one batch or packet by packet.
#[test]
fn data_right_before_the_shutdown() {
    for together in [false, true] {
        let (mut lone, id) = Lone::accepted(stream());
        let packets = (0..5).map(|n| {
            data_packet(id.value(), n, farhaul_wire::Boundary::SOLO, false, n + 1, &[n as u8; 4])
        });
        let mut all: Vec<Vec<u8>> = packets.collect();
        // As long as the data packets, to come with them in one buffer.
        all.push(lone::packet(id.value(), &Control::Shutdown { code: 0 }));
        if together {
            let batch = Bytes::from(all.concat());
            lone.endpoint.handle(lone.now, lone.peer, &batch, all[0].len(), true);
        } else {
            all.iter().for_each(|p| lone.push(p));
        }
        let mut chunks = Chunks::default();
        lone.endpoint.update(id, |c| c.read(1_000, &mut chunks)).unwrap();
        let mut got = vec![0; chunks.len()];
        chunks.copy_to(&mut got);
        let expected: Vec<u8> = (0..5u8).flat_map(|n| [n; 4]).collect();
        assert_eq!(got, expected, "together: {together}");
        let connection = lone.endpoint.connection(id).unwrap();
        assert_eq!(connection.close_reason(), Some(CloseReason::Peer));
    }
}

/// The first shutdowns are lost; a later one arrives.
#[test]
fn shutdowns_lost() {
    for lost_for in [50, 150, 400] {
        let mut net = Net::asymmetric(cut(100, lost_for), path(), 1);
        let ids = net.connect(stream(), stream());
        net.run_for(Duration::from_millis(99) - (net.now - Time::ZERO));
        net.run_for(Duration::from_millis(2));
        close(&mut net, A, ids.0);
        net.run_for(Duration::from_millis(lost_for + 300));
        assert_eq!(reasons(&mut net, ids), [Some(CloseReason::Local), Some(CloseReason::Peer)]);
    }
}

/// All shutdowns are lost, and the peer's next sign of life is answered.
#[test]
fn all_shutdowns_lost() {
    for released in [false, true] {
        let mut net = Net::asymmetric(cut(100, 2_600), path(), 1);
        let ids = net.connect(stream(), stream());
        net.run_for(Duration::from_millis(100));
        close(&mut net, A, ids.0);
        if released {
            net.hosts[A].endpoint.release(net.now, ids.0, false);
        }
        net.run_for(Duration::from_secs(5));
        let reason = net.update(B, ids.1, |c| c.close_reason());
        assert_eq!(reason, Some(CloseReason::Peer), "released: {released}");
    }
}

/// The peer hears nothing more of any kind: it gives up when its time is over.
#[test]
fn a_shutdown_never_heard() {
    let mut net = Net::asymmetric(cut(100, 1_000_000), path(), 1);
    let config = Config { peer_timeout: Duration::from_secs(20), ..stream() };
    let ids = net.connect(stream(), config);
    net.run_for(Duration::from_millis(100));
    net.hosts[A].endpoint.release(net.now, ids.0, false);
    net.run_for(Duration::from_secs(19));
    assert_eq!(net.update(B, ids.1, |c| c.close_reason()), None);
    net.run_for(Duration::from_secs(2));
    assert_eq!(net.update(B, ids.1, |c| c.close_reason()), Some(CloseReason::TimedOut));
}

/// A side with less patience than the peer's silence between its signs of life asks for one.
#[test]
fn little_patience_does_not_end_what_is_well() {
    for patience in [100, 400, 2_900] {
        let mut net = Net::asymmetric(path(), cut(30_000, 1_000_000), 1);
        let config = Config { peer_timeout: Duration::from_millis(patience), ..stream() };
        let ids = net.connect(config, stream());
        net.run_for(Duration::from_secs(29));
        assert_eq!(net.update(A, ids.0, |c| c.close_reason()), None, "{patience}");
        // It takes no more than two questions and two answers in that time.
        assert!(net.links[A].stats().offered < 4 * 29_000 / patience + 50, "{patience}");
        net.run_for(Duration::from_millis(1_000 + 2 * patience));
        assert_eq!(net.update(A, ids.0, |c| c.close_reason()), Some(CloseReason::TimedOut));
    }
}

#[test]
fn linger_time_ends() {
    for linger in [0, 1, 2_000, 10_000] {
        let linger = Duration::from_millis(linger);
        let mut net = Net::asymmetric(cut(100, 1_000_000), path(), 1);
        let ids = net.connect(Config { linger, ..stream() }, stream());
        net.run_for(Duration::from_millis(100));
        let piece = Bytes::from(vec![1; 10_000]);
        net.update(A, ids.0, |c| c.send_bytes(piece)).unwrap();
        let begun = net.now;
        close(&mut net, A, ids.0);
        let over = net.run_until(Duration::from_secs(60), |net| {
            net.update(A, ids.0, |c| c.close_reason()).is_some()
        });
        assert!(over);
        assert_eq!(net.update(A, ids.0, |c| c.close_reason()), Some(CloseReason::LingerTimeout));
        assert_eq!(net.now - begun, linger);
        net.hosts[A].endpoint.release(net.now, ids.0, false);
        assert!(net.run_until(Duration::from_secs(4), |net| net.hosts[A].endpoint.is_empty()));
        // The peer lacks data, and once it hears of the end it knows that.
        net.links[A] = farhaul_link::Link::new(path(), 9);
        net.run_for(Duration::from_secs(4));
        assert_eq!(net.update(B, ids.1, |c| c.close_reason()), Some(CloseReason::PeerAborted));
    }
}

/// An endpoint that has sent eight packets, and written nothing else, to a stock peer.
fn eight_packets_sent(config: Config) -> (Lone, ConnectionId) {
    let (mut lone, id) = Lone::accepted(config);
    let payload = lone.endpoint.connection(id).unwrap().payload_size();
    let data = Bytes::from(vec![7; 8 * payload]);
    lone.endpoint.update(id, |c| c.send_bytes(data)).unwrap().unwrap();
    assert_eq!(data_places(&lone.pass(Duration::from_millis(10))), [0, 1, 2, 3, 4, 5, 6, 7]);
    (lone, id)
}

fn shutdowns(sent: &[(core::net::SocketAddr, Vec<u8>)]) -> usize {
    controls(sent).iter().filter(|c| matches!(c, Control::Shutdown { .. })).count()
}

/// Stock looks at its ACK timer when a packet arrives, and otherwise each 100 ms: a lone packet would be sent again before
/// its ACK comes.
#[test]
fn a_stock_peer_is_prompted_for_the_ack_of_the_last_packet() {
    let (mut lone, id) = eight_packets_sent(stream());
    let keep_alives = |sent: &[(core::net::SocketAddr, Vec<u8>)]| {
        controls(sent).iter().filter(|c| matches!(c, Control::KeepAlive)).count()
    };
    let sent = lone.pass(Duration::from_millis(20));
    assert_eq!((keep_alives(&sent), data_places(&sent).len()), (1, 0));
    // Once only, and not after what has been acknowledged.
    lone.push_control(id, &ack(1, 8, 8_192));
    assert_eq!(keep_alives(&lone.pass(Duration::from_millis(200))), 0);
    // A peer of ours needs none.
    lone.push_stamped(id, &ack(2, 8, 8_192));
    lone.endpoint.update(id, |c| c.send_bytes(Bytes::from_static(b"more"))).unwrap().unwrap();
    assert_eq!(keep_alives(&lone.pass(Duration::from_millis(50))), 0);
}

/// A stock receiver drops at a shutdown what no numbered ACK of it has covered.
#[test]
fn a_light_ack_of_a_stock_peer_is_no_delivery() {
    let linger = Duration::from_secs(20);
    let (mut lone, id) = eight_packets_sent(Config { linger, ..stream() });
    lone.push_control(id, &light_ack(8));
    let mut events = Vec::new();
    while let Some((_, event)) = lone.endpoint.poll_event() {
        events.push(event);
    }
    assert!(!events.iter().any(|e| e.flushed), "a light ACK is not the end");
    let connection = lone.endpoint.connection(id).unwrap();
    assert!(!connection.flushed());
    assert!(lone.stats(id).instant.send_buffer.0 > 0, "it may still be lost");
    lone.endpoint.update(id, |c| c.close(lone.now)).unwrap();
    let sent = lone.pass(linger - Duration::from_secs(1));
    assert_eq!(shutdowns(&sent), 0);
    assert!(data_places(&sent).is_empty(), "it has arrived");
    assert_eq!(lone.endpoint.connection(id).unwrap().close_reason(), None);
    lone.pass(Duration::from_secs(2));
    let connection = lone.endpoint.connection(id).unwrap();
    assert_eq!(connection.close_reason(), Some(CloseReason::LingerTimeout));
    assert!(!connection.flushed());
}

/// A numbered ACK is delivery, whether it brings news, repeats a light one, or comes in parts.
#[test]
fn a_numbered_ack_is_delivery() {
    for acks in [vec![ack(1, 8, 8_192)], vec![light_ack(8), ack(1, 5, 8_192), ack(2, 8, 8_192)]] {
        let (mut lone, id) = eight_packets_sent(stream());
        lone.endpoint.update(id, |c| c.close(lone.now)).unwrap();
        let (last, before) = acks.split_last().unwrap();
        for ack in before {
            lone.push_control(id, ack);
            assert_eq!(shutdowns(&lone.pull()), 0);
        }
        while lone.endpoint.poll_event().is_some() {}
        lone.push_control(id, last);
        let (_, events) = lone.endpoint.poll_event().unwrap();
        assert!(events.flushed);
        assert!(lone.endpoint.connection(id).unwrap().flushed());
        assert_eq!(shutdowns(&lone.pull()), 1);
        let reason = lone.endpoint.connection(id).unwrap().close_reason();
        assert_eq!(reason, Some(CloseReason::Local));
    }
}

/// A stock receiver lets its application read before it sends the ACK for what was read, so that the
/// application may close in between.
#[test]
fn the_last_ack_of_a_stock_peer_may_come_behind_its_shutdown() {
    for (acked, wait_ms, flushed) in [(8, 0, true), (8, 90, true), (8, 110, false), (5, 0, false)] {
        let (mut lone, id) = eight_packets_sent(stream());
        lone.push_control(id, &ack(1, 1, 8_192));
        lone.push_control(id, &Control::Shutdown { code: 0 });
        let sent = lone.pass(Duration::from_millis(wait_ms));
        assert!(data_places(&sent).is_empty(), "the peer has closed");
        lone.push_control(id, &ack(2, acked, 8_192));
        lone.pass(Duration::from_millis(120));
        let connection = lone.endpoint.connection(id).unwrap();
        let found = (connection.close_reason(), connection.flushed());
        assert_eq!(found, (Some(CloseReason::Peer), flushed), "{acked} after {wait_ms} ms");
    }
}

/// A stock peer shows itself by its handshake, before it has sent anything else.
#[test]
fn closing_what_was_never_used_is_short() {
    let (mut lone, id) = Lone::accepted(stream());
    lone.endpoint.release(lone.now, id, false);
    let sent = lone.pass(Duration::from_millis(50));
    assert_eq!(shutdowns(&sent), 3);
    assert!(lone.endpoint.connection(id).is_none_or(|c| c.close_reason().is_some()));
}

/// A stock peer does not answer a shutdown: there is nothing to wait for.
#[test]
fn closing_towards_a_stock_peer_is_short() {
    let (mut lone, id) = eight_packets_sent(stream());
    lone.push_control(id, &ack(1, 8, 8_192));
    lone.pull();
    lone.endpoint.release(lone.now, id, false);
    let sent = lone.pass(Duration::from_millis(50));
    let all = controls(&sent);
    let told = all.iter().filter(|c| matches!(c, Control::Shutdown { code: 0 })).count();
    assert_eq!((told, lone.endpoint.len()), (3, 0));
}

/// A light ACK of a farhaul peer says that the data is in its buffer, which a shutdown does not empty.
#[test]
fn a_light_ack_of_a_farhaul_peer_is_delivery() {
    let (mut lone, id) = eight_packets_sent(stream());
    lone.push_stamped(id, &light_ack(8));
    assert!(lone.endpoint.connection(id).unwrap().flushed());
    assert_eq!(lone.stats(id).instant.send_buffer.0, 0);
}

/// The writer hears why the peer's application failed, also when the peer has closed since.
#[test]
fn an_error_signal_before_the_end() {
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(stream(), stream());
    net.update(B, ids.1, |c| c.signal_error(4_000));
    close(&mut net, B, ids.1);
    net.run_for(Duration::from_millis(50));
    let write = |net: &mut Net| net.update(A, ids.0, |c| c.send_bytes(Bytes::from_static(b"x")));
    assert_eq!(write(&mut net), Err(SendError::Peer(4_000)));
    assert_eq!(write(&mut net), Err(SendError::Closed(CloseReason::Peer)));
}

/// Whichever shutdown is the one that arrives, the peer learns that the stream is not whole.
#[test]
fn breaking_off_is_told_whatever_is_lost() {
    for (lost_for, released) in
        [(1, false), (50, false), (400, false), (2_600, false), (2_600, true)]
    {
        let mut net = Net::asymmetric(cut(100, lost_for), path(), 1);
        let ids = net.connect(stream(), stream());
        net.run_for(Duration::from_millis(100) - (net.now - Time::ZERO));
        let now = net.now;
        net.update(A, ids.0, |c| c.abort(now));
        if released {
            net.hosts[A].endpoint.release(net.now, ids.0, false);
        }
        net.run_for(Duration::from_secs(5));
        let reason = net.update(B, ids.1, |c| c.close_reason());
        assert_eq!(reason, Some(CloseReason::PeerAborted), "{lost_for} {released}");
    }
}

/// What has arrived when the peer breaks off can be read.
#[test]
fn breaking_off() {
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(stream(), stream());
    let mut flow = Flow::new(A, ids, data(1, 1 << 20));
    for _ in 0..200 {
        flow.pump(&mut net);
        net.step(Time::MAX);
    }
    let acknowledged = net.stats(A, ids.0).total.counters.packets_acked as usize * 1_456;
    let now = net.now;
    net.update(A, ids.0, |c| c.abort(now));
    assert_eq!(net.update(A, ids.0, |c| c.close_reason()), Some(CloseReason::Local));
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.update(B, ids.1, |c| c.close_reason()), Some(CloseReason::PeerAborted));
    assert!(!flow.drain(&mut net));
    assert!(flow.read >= acknowledged && acknowledged > 0, "{} of {acknowledged}", flow.read);
}

/// A peer that breaks off while the other side still sends is heard at once.
#[test]
fn breaking_off_while_receiving() {
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(stream(), stream());
    let mut flow = Flow::new(A, ids, data(1, 8 << 20));
    net.run_until(Duration::from_millis(300), |net| flow.pump(net));
    net.hosts[B].endpoint.release(net.now, ids.1, true);
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.update(A, ids.0, |c| c.close_reason()), Some(CloseReason::PeerAborted));
    assert_eq!(net.hosts[B].endpoint.len(), 0);
}

#[test]
fn a_peer_that_vanishes() {
    for (busy, seconds) in [(false, 45), (true, 45), (false, 10), (true, 10)] {
        let mut net = Net::new(&path(), 1);
        let config = Config { peer_timeout: Duration::from_secs(seconds), ..stream() };
        let ids = net.connect(config, stream());
        let mut flow = Flow::new(A, ids, data(1, 4 << 20));
        if busy {
            net.run_until(Duration::from_millis(200), |net| flow.pump(net));
        } else {
            net.run_for(Duration::from_secs(10));
        }
        net.hosts[B].deaf = true;
        let before = net.datagrams;
        net.run_for(Duration::from_secs(seconds) - Duration::from_secs(4));
        assert_eq!(net.update(A, ids.0, |c| c.close_reason()), None);
        net.run_for(Duration::from_secs(5));
        assert_eq!(net.update(A, ids.0, |c| c.close_reason()), Some(CloseReason::TimedOut));
        // The ends of what is unacknowledged once a second, after what the windows let go at first.
        let sent = net.datagrams - before;
        assert!(sent < if busy { 1_200 } else { 50 }, "{sent} in {seconds} s");
        let sent = net.datagrams;
        net.hosts[A].endpoint.release(net.now, ids.0, false);
        net.run_for(Duration::from_secs(100));
        assert_eq!(net.datagrams, sent);
    }
}

/// An idle connection costs a sign of life each way every three seconds, and holds.
#[test]
fn keep_alive_holds_for_hours() {
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(stream(), stream());
    net.run_for(Duration::from_secs(1));
    let before = net.datagrams;
    net.run_for(Duration::from_secs(6 * 3_600));
    assert_eq!(reasons(&mut net, ids), [None, None]);
    let an_hour = (net.datagrams - before) / 6;
    assert!((2_300..=2_400).contains(&an_hour), "{an_hour} datagrams an hour");
    let mut flow = Flow::new(A, ids, data(1, 100_000));
    assert!(net.run_until(Duration::from_secs(1), |net| flow.pump(net)));
}

/// A connection lives through 30% loss of its signs of life.
#[test]
fn keep_alive_over_a_bad_path() {
    let link = LinkConfig { loss: "30%".parse().unwrap(), ..path() };
    let mut net = Net::new(&link, 3);
    let ids = net
        .connect(Config { connect_timeout: Some(Duration::from_secs(30)), ..stream() }, stream());
    net.run_for(Duration::from_secs(3_600));
    assert_eq!(reasons(&mut net, ids), [None, None]);
}

/// Once closed for good, a connection tells a peer that goes on, for a while.
#[test]
fn late_packets_are_answered_for_a_while() {
    let (mut lone, id) = Lone::accepted(stream());
    lone.push_stamped(id, &Control::KeepAlive);
    lone.endpoint.release(lone.now, id, true);
    let sent = lone.pass(Duration::from_secs(4));
    assert_eq!(shutdowns(&sent), 5, "unanswered: repeated");
    assert_eq!(lone.endpoint.len(), 0);
    lone.push_data(id, 0, b"still here");
    let answer = lone.pull();
    assert!(matches!(controls(&answer)[..], [Control::Shutdown { .. }]), "{answer:?}");
    lone.push_control(id, &Control::Shutdown { code: 0 });
    assert!(lone.pull().is_empty(), "no answer to an answer");
    let stranger = "10.0.0.7:1".parse().unwrap();
    lone.push_from(stranger, &lone::packet(id.value(), &Control::KeepAlive));
    assert!(lone.pull().is_empty());
    assert_eq!(lone.endpoint.counters().unknown_id, 1);
    lone.pass(Duration::from_secs(6));
    lone.push_data(id, 0, b"still here");
    assert!(lone.pull().is_empty());
    assert_eq!(lone.endpoint.counters().unknown_id, 2);
}

#[test]
fn the_end_of_listening_closes_who_was_not_accepted() {
    let mut net = Net::new(&path(), 1);
    net.hosts[B].endpoint.listen(stream(), 4).unwrap();
    let peer = net.hosts[B].addr;
    let a = net.hosts[A].endpoint.connect(net.now, peer, stream()).unwrap();
    net.run_for(Duration::from_millis(100));
    net.hosts[B].endpoint.stop_listening(net.now);
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.update(A, a, |c| c.close_reason()), Some(CloseReason::PeerAborted));
    assert_eq!(net.hosts[B].endpoint.len(), 0);
}

/// The peer's application has failed: the writer hears of it once, and may go on.
#[test]
fn an_error_signal() {
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(stream(), stream());
    net.update(B, ids.1, |c| c.signal_error(4_000));
    net.hosts[A].events.clear();
    net.run_for(Duration::from_millis(50));
    assert!(net.hosts[A].events.iter().any(|(_, e)| e.writable), "a waiting writer wakes");
    let write = |net: &mut Net| net.update(A, ids.0, |c| c.send_bytes(Bytes::from_static(b"x")));
    assert_eq!(write(&mut net), Err(SendError::Peer(4_000)));
    assert_eq!(write(&mut net), Ok(()));
}
