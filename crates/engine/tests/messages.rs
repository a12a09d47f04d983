//! Message mode: whole, at most once, in order where asked, and given up in time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lone;
mod pair;

use core::time::Duration;
use std::collections::BTreeSet;

use bytes::Bytes;
use farhaul_base::Rng;
use farhaul_engine::{Chunks, Config, ConnectionId, Mode, Origins, SendError};
use farhaul_link::LinkConfig;
use farhaul_wire::{AckSeq, Boundary, Control, MsgNo, Seq};
use lone::{ISN, Lone, controls, data_packet};
use pair::{A, B, Net, data, message, path, stream};

fn lossy(loss: &str) -> LinkConfig {
    LinkConfig { loss: loss.parse().unwrap(), ..path() }
}

/// Message number `n`: its number, then what belongs to it.
fn numbered(n: u32, len: usize) -> Vec<u8> {
    let mut out = n.to_be_bytes().to_vec();
    out.extend(data(u64::from(n), len));
    out
}

/// The number of a message, which must be whole.
fn number(message: &[u8]) -> u32 {
    let (head, body) = message.split_first_chunk().expect("each message has its number");
    let n = u32::from_be_bytes(*head);
    assert_eq!(body, data(u64::from(n), body.len()), "message {n}");
    n
}

fn send(
    net: &mut Net,
    id: ConnectionId,
    m: &[u8],
    ttl: Option<u64>,
    in_order: bool,
) -> Result<(), SendError> {
    let now = net.now;
    let bytes = Bytes::copy_from_slice(m);
    let ttl = ttl.map(Duration::from_millis);
    net.update(A, id, |c| c.send_message(now, bytes, ttl, in_order))
}

/// Sends `count` messages of up to `largest` bytes as there is room, and returns the numbers of
/// those that arrive, in the order of their arrival, once everything is acknowledged.
fn exchange(
    net: &mut Net,
    config: Config,
    count: u32,
    largest: u64,
    ttl: Option<u64>,
    in_order: bool,
) -> Vec<u32> {
    let ids = net.connect(config.clone(), config);
    let mut rng = Rng::new(u64::from(count));
    let sizes: Vec<usize> = (0..count).map(|_| rng.below(largest) as usize).collect();
    let mut next = 0;
    let mut got = Vec::new();
    let done = net.run_until(Duration::from_secs(300), |net| {
        while next < count {
            let m = numbered(next, sizes[next as usize]);
            match send(net, ids.0, &m, ttl, in_order) {
                Ok(()) => next += 1,
                Err(SendError::Full) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
        got.extend(net.read_messages(B, ids.1).iter().map(|m| number(m)));
        next == count && net.update(A, ids.0, |c| c.flushed())
    });
    assert!(done, "{next} sent, {} arrived; {:#?}", got.len(), net.stats(A, ids.0));
    got.extend(net.read_messages(B, ids.1).iter().map(|m| number(m)));
    let instant = net.stats(B, ids.1).instant;
    assert_eq!((instant.receive_buffer.0, instant.receive_memory), (0, 0));
    got
}

#[test]
fn in_order_and_complete() {
    for (seed, link) in [(0, path()), (1, lossy("5%")), (2, lossy("ge:loss=5%,burst=10"))] {
        let got = exchange(&mut Net::new(&link, seed), message(), 150, 10_000, None, true);
        assert_eq!(got, (0..150).collect::<Vec<_>>());
    }
}

#[test]
fn without_order_each_once() {
    let order = LinkConfig { reorder: Some("20%:5ms".parse().unwrap()), ..lossy("5%") };
    for (seed, link) in [(0, path()), (1, lossy("5%")), (2, order.clone()), (3, order)] {
        let mut got = exchange(&mut Net::new(&link, seed), message(), 150, 10_000, None, false);
        let in_order = got.is_sorted();
        got.sort_unstable();
        assert_eq!(got, (0..150).collect::<Vec<_>>());
        assert_eq!(in_order, seed == 0, "a complete message does not wait for others");
    }
}

/// Every size from nothing to many packets, the bounds of packets included.
#[test]
fn sizes() {
    let sizes = [0, 1, 2, 1_455, 1_456, 1_457, 2_911, 2_912, 2_913, 100_000, 1_000_000, 0, 7];
    for in_order in [false, true] {
        let mut net = Net::new(&lossy("1%"), 2);
        let ids = net.connect(message(), message());
        let mut got = Vec::new();
        let mut next = 0;
        let done = net.run_until(Duration::from_secs(60), |net| {
            while next < sizes.len()
                && send(net, ids.0, &data(next as u64, sizes[next]), None, in_order).is_ok()
            {
                next += 1;
            }
            got.extend(net.read_messages(B, ids.1));
            got.len() == sizes.len()
        });
        assert!(done, "{:?}", got.iter().map(Vec::len).collect::<Vec<_>>());
        let mut expected: Vec<_> = (0..sizes.len()).map(|s| data(s as u64, sizes[s])).collect();
        if !in_order {
            expected.sort();
            got.sort();
        }
        assert!(got == expected);
    }
}

/// Messages that may not overtake do not, among others that may.
#[test]
fn mixed_orders() {
    for seed in 0..4 {
        let mut net = Net::new(&lossy("10%"), seed);
        let ids = net.connect(message(), message());
        for n in 0..200 {
            send(&mut net, ids.0, &numbered(n, 2_000), None, n % 2 == 0).unwrap();
        }
        let mut got: Vec<u32> = Vec::new();
        let done = net.run_until(Duration::from_secs(60), |net| {
            got.extend(net.read_messages(B, ids.1).iter().map(|m| number(m)));
            got.len() == 200
        });
        assert!(done, "{}", got.len());
        for (at, n) in got.iter().enumerate().filter(|(_, n)| *n % 2 == 0) {
            let before: BTreeSet<u32> = got[..at].iter().copied().collect();
            assert!((0..*n).all(|earlier| before.contains(&earlier)), "{n} came too early");
        }
    }
}

#[test]
fn numbers_wrap() {
    let origins = Origins {
        isn: Some(Seq::new(Seq::MAX - 60)),
        timestamp: u32::MAX - 50_000,
        message: 0x1fff_fffe - 20,
        ack: Some(AckSeq::new(Seq::MAX - 1)),
    };
    let config = Config { origins, ..message() };
    for in_order in [false, true] {
        let mut got =
            exchange(&mut Net::new(&lossy("5%"), 3), config.clone(), 60, 8_000, None, in_order);
        got.sort_unstable();
        assert_eq!(got, (0..60).collect::<Vec<_>>());
    }
    // The running number of messages wraps at 2^32, which is no multiple of the wire's.
    let origins = Origins { message: u32::MAX - 20, ..origins };
    let config = Config { origins, ..message() };
    let got = exchange(&mut Net::new(&lossy("5%"), 3), config, 60, 8_000, None, true);
    assert_eq!(got, (0..60).collect::<Vec<_>>());
}

/// On a path too slow for all of them, old messages are given up and the rest come in time.
#[test]
fn messages_expire_before_they_are_sent() {
    let slow = LinkConfig { rate: Some("2M".parse().unwrap()), ..path() };
    let mut net = Net::new(&slow, 1);
    let config = Config { max_bandwidth: Some(1_900_000), ..message() };
    let ids = net.connect(config, message());
    let mut late = Duration::ZERO;
    let mut got: Vec<u32> = Vec::new();
    let begun = net.now;
    // 8 Mb/s for a second, of which a quarter gets through.
    for n in 0..100 {
        send(&mut net, ids.0, &numbered(n, 9_996), Some(100), true).unwrap();
        net.run_for(Duration::from_millis(10));
        for m in net.read_messages(B, ids.1) {
            let n = number(&m);
            let age = (net.now - begun) - Duration::from_millis(10) * n;
            late = late.max(age);
            got.push(n);
        }
    }
    assert!(net.run_until(Duration::from_secs(5), |net| net.update(A, ids.0, |c| c.flushed())));
    got.extend(net.read_messages(B, ids.1).iter().map(|m| number(m)));
    assert!(got.is_sorted());
    let counters = net.stats(A, ids.0).total.counters;
    assert_eq!(got.len() as u64 + counters.messages_dropped, 100, "{counters:#?}");
    assert!((20..50).contains(&got.len()), "{}", got.len());
    // The time to live, a message's transmission, half a round trip, and what the test rounds up.
    assert!(late < Duration::from_millis(100 + 45 + 30 + 10), "{late:?}");
}

/// Lost parts of messages that are too old are not sent again; everything else arrives.
#[test]
fn messages_expire_while_they_are_repaired() {
    for (seed, in_order) in [(0, true), (1, true), (2, false), (3, false)] {
        let mut net = Net::new(&lossy("20%"), seed);
        // A law that takes the losses for what they are.
        let config = Config { law: "udt:noisy,noise=0.5".parse().unwrap(), ..message() };
        let ids = net.connect(config, message());
        let mut got = BTreeSet::new();
        for n in 0..200 {
            // Every fifth has all the time it needs.
            let ttl = (n % 5 != 0).then_some(25);
            send(&mut net, ids.0, &numbered(n, 6_000), ttl, in_order).unwrap();
            net.run_for(Duration::from_millis(10));
            for m in net.read_messages(B, ids.1) {
                assert!(got.insert(number(&m)), "twice");
            }
        }
        let flushed =
            net.run_until(Duration::from_secs(30), |net| net.update(A, ids.0, |c| c.flushed()));
        assert!(flushed, "{:#?}", net.stats(A, ids.0));
        for m in net.read_messages(B, ids.1) {
            assert!(got.insert(number(&m)), "twice");
        }
        assert!((0..200).step_by(5).all(|n| got.contains(&n)), "those without a limit: {got:?}");
        let dropped = net.stats(A, ids.0).total.counters.messages_dropped;
        assert!(dropped > 20, "{dropped}");
        // One given up may have arrived all the same, its acknowledgement late.
        assert!(got.len() as u64 + dropped >= 200, "{} and {dropped}", got.len());
        let instant = net.stats(B, ids.1).instant;
        assert_eq!((instant.receive_buffer.0, instant.receive_memory), (0, 0));
    }
}

/// The last message is given up and nothing follows: the connection does not hang on it.
#[test]
fn the_last_message_expires() {
    // The last packets of the message are lost, however often they are sent.
    for (seed, ab) in [(0, "list:6-20"), (1, "list:3-20"), (2, "list:3,5,7-12")] {
        let mut net = Net::asymmetric(lossy(ab), path(), seed);
        let ids = net.connect(message(), message());
        send(&mut net, ids.0, &numbered(1, 9_000), Some(100), true).unwrap();
        let begun = net.now;
        let flushed =
            net.run_until(Duration::from_secs(120), |net| net.update(A, ids.0, |c| c.flushed()));
        assert!(flushed, "{ab}: {:#?}", net.stats(A, ids.0));
        let took = net.now - begun;
        assert!(took < Duration::from_secs(20), "{ab}: {took:?}");
        if net.read_messages(B, ids.1).is_empty() {
            assert_eq!(net.stats(A, ids.0).total.counters.messages_dropped, 1);
        }
        // And what comes then is as if nothing had been.
        send(&mut net, ids.0, &numbered(2, 5_000), None, true).unwrap();
        net.run_for(Duration::from_secs(2));
        let got = net.read_messages(B, ids.1);
        assert_eq!(got.iter().map(|m| number(m)).collect::<Vec<_>>(), [2]);
    }
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let mut net = Net::new(&path(), 1);
    let config = Config { send_memory: 64 << 10, ..message() };
    let ids = net.connect(config, message());
    assert_eq!(
        send(&mut net, ids.0, &vec![0; 70_000], None, true),
        Err(SendError::TooLarge(64 << 10))
    );
    send(&mut net, ids.0, &vec![0; 60_000], None, true).unwrap();
    assert_eq!(send(&mut net, ids.0, &vec![0; 10_000], None, true), Err(SendError::Full));
    assert_eq!(net.update(A, ids.0, |c| c.send_bytes(Bytes::new())), Err(SendError::WrongMode));
    net.run_for(Duration::from_secs(1));
    send(&mut net, ids.0, &vec![0; 64 << 10], None, true).unwrap();
    net.run_for(Duration::from_secs(1));
    let lens: Vec<_> = net.read_messages(B, ids.1).iter().map(Vec::len).collect();
    assert_eq!(lens, [60_000, 64 << 10]);

    let mut net = Net::new(&path(), 1);
    let config = Config { receive_memory: 128 << 10, ..message() };
    let ids = net.connect(message(), config);
    let most = 45 * 1_456;
    assert_eq!(
        send(&mut net, ids.0, &vec![0; most + 1], None, true),
        Err(SendError::TooLarge(most))
    );
    send(&mut net, ids.0, &vec![5; most], None, true).unwrap();
    net.run_for(Duration::from_secs(5));
    assert_eq!(net.read_messages(B, ids.1), [vec![5; most]], "the largest fills the buffer");

    let mut net = Net::new(&path(), 1);
    let ids = net.connect(stream(), stream());
    assert_eq!(send(&mut net, ids.0, b"x", None, true), Err(SendError::WrongMode));
}

/// Messages that nobody reads do not grow beyond the bound, and none is lost.
#[test]
fn a_slow_reader() {
    let config = Config { receive_memory: 256 << 10, ..message() };
    let mut net = Net::new(&lossy("1%"), 4);
    let ids = net.connect(message(), config);
    for n in 0..100 {
        send(&mut net, ids.0, &numbered(n, 5_000), None, n % 3 == 0).unwrap();
    }
    net.run_for(Duration::from_secs(10));
    let instant = net.stats(B, ids.1).instant;
    assert!(
        instant.receive_buffer.0 <= 128 << 10 && instant.receive_buffer.0 > 50_000,
        "{instant:?}"
    );
    let mut got = BTreeSet::new();
    let mut chunks = Chunks::default();
    let done = net.run_until(Duration::from_secs(60), |net| {
        if net.update(B, ids.1, |c| c.read_message(&mut chunks)) {
            let mut m = vec![0; chunks.len()];
            chunks.copy_to(&mut m);
            assert!(got.insert(number(&m)));
        }
        got.len() == 100
    });
    assert!(done, "{}", got.len());
}

/// What a hand-made sender makes the receiver say.
fn receive(steps: impl FnOnce(&mut Lone, ConnectionId)) -> Vec<Vec<u8>> {
    let (mut lone, id) = accepted();
    steps(&mut lone, id);
    read_all(&mut lone, id)
}

fn accepted() -> (Lone, ConnectionId) {
    let mut lone = Lone::new(1);
    lone.endpoint.listen(message(), 8).unwrap();
    let id = lone.accept_mode(lone::PEER_ID, Mode::Message);
    (lone, id)
}

fn read_all(lone: &mut Lone, id: ConnectionId) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut chunks = Chunks::default();
    while lone.endpoint.update(id, |c| c.read_message(&mut chunks)).unwrap() {
        let mut m = vec![0; chunks.len()];
        chunks.copy_to(&mut m);
        out.push(m);
    }
    out
}

fn drop_request(message: u32, first: u32, last: u32) -> Control<'static> {
    let (first, last) = (ISN.plus(first), ISN.plus(last));
    Control::DropRequest { message: MsgNo::new(message), first, last }
}

/// The last sequence number of a stock drop request, whose time stamp is 0, is the first of the
/// next message: that one is not lost.
#[test]
fn a_stock_drop_request_names_one_packet_too_many() {
    let got = receive(|lone, id| {
        let first = data_packet(id.value(), 0, Boundary::FIRST, true, 1, b"part of the first");
        lone.push(&first);
        lone.push_control(id, &drop_request(1, 0, 3));
        lone.push(&data_packet(id.value(), 3, Boundary::FIRST, true, 2, b"the next "));
        lone.push(&data_packet(id.value(), 4, Boundary::LAST, true, 2, b"in two"));
    });
    assert_eq!(got, [b"the next in two".to_vec()]);
    // That packet had come before the request.
    let got = receive(|lone, id| {
        lone.push(&data_packet(id.value(), 3, Boundary::SOLO, true, 2, b"whole"));
        lone.push_control(id, &drop_request(1, 0, 3));
    });
    assert_eq!(got, [b"whole".to_vec()]);
}

/// A stock sender that gave up a message of which the rest was unsent skips two sequence numbers:
/// they never come, and it says so when they are asked for.
#[test]
fn sequence_numbers_that_a_stock_sender_skips() {
    let (mut lone, id) = accepted();
    lone.push(&data_packet(id.value(), 0, Boundary::FIRST, true, 1, b"given up"));
    lone.push_control(id, &drop_request(1, 0, 3));
    lone.push(&data_packet(id.value(), 4, Boundary::SOLO, true, 2, b"goes on"));
    let sent = lone.pass(Duration::from_millis(20));
    let asked = controls(&sent).iter().any(|c| matches!(c, Control::Nak(_)));
    assert!(asked, "number 3 is missing: {:?}", controls(&sent));
    assert_eq!(read_all(&mut lone, id), Vec::<Vec<u8>>::new());
    // The answer, with a message number that means nothing, and a range too wide.
    lone.push_control(id, &drop_request(0, 3, 4));
    lone.pass(Duration::from_millis(1));
    lone.push_control(id, &drop_request(0, 3, 4));
    assert_eq!(read_all(&mut lone, id), [b"goes on".to_vec()]);
}

/// A packet that turns up after its message was given up does no harm, wherever it lies.
#[test]
fn given_up_and_late() {
    let (mut lone, id) = accepted();
    // A message that nobody reads yet keeps the front of the buffer.
    lone.push(&data_packet(id.value(), 0, Boundary::SOLO, true, 1, b"unread"));
    lone.push(&data_packet(id.value(), 4, Boundary::SOLO, true, 3, b"after"));
    lone.push_control(id, &drop_request(2, 1, 3));
    lone.push_control(id, &drop_request(2, 1, 3));
    for n in 1..4 {
        lone.push(&data_packet(id.value(), n, Boundary::MIDDLE, true, 2, b"late"));
    }
    lone.push(&data_packet(id.value(), 5, Boundary::SOLO, true, 4, b"and more"));
    let got = read_all(&mut lone, id);
    assert_eq!(got, [b"unread".to_vec(), b"after".to_vec(), b"and more".to_vec()]);
    let instant = lone.stats(id).instant;
    assert_eq!((instant.receive_buffer.0, instant.receive_memory), (0, 0));
    let sent = lone.pass(Duration::from_millis(20));
    let point = controls(&sent).iter().rev().find_map(|c| match c {
        Control::Ack { ack, .. } => Some(ack.next),
        _ => None,
    });
    assert_eq!(point, Some(ISN.plus(6)));
}

/// Fragments that do not fit together are no message.
#[test]
fn fragments_without_their_neighbours() {
    let got = receive(|lone, id| {
        let mut n = 0;
        let mut push = |boundary, message, payload: &[u8]| {
            lone.push(&data_packet(id.value(), n, boundary, true, message, payload));
            n += 1;
        };
        push(Boundary::LAST, 1, b"no head");
        push(Boundary::MIDDLE, 1, b"no head");
        push(Boundary::FIRST, 2, b"no tail");
        push(Boundary::FIRST, 3, b"no tail either");
        push(Boundary::LAST, 4, b"another's tail");
        push(Boundary::SOLO, 5, b"whole");
        push(Boundary::FIRST, 6, b"head ");
        push(Boundary::MIDDLE, 6, b"and ");
        push(Boundary::LAST, 6, b"tail");
    });
    assert_eq!(got, [b"whole".to_vec(), b"head and tail".to_vec()]);
}
