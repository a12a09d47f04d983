use farhaul_base::Rng;
use farhaul_wire::{Boundary, MsgNo};

use super::*;

const CAPACITY: u32 = 64;
const REPEAT: Duration = Duration::from_millis(100);

/// Numbers start a few packets before the wrap.
fn isn() -> Seq {
    Seq::new(Seq::MAX - 5)
}

fn seq(place: u32) -> Seq {
    isn().plus(place)
}

fn place(seq: Seq) -> i32 {
    seq.since(isn())
}

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn stream() -> ReceiveHalf {
    ReceiveHalf::new(Time::ZERO, isn(), CAPACITY, false, ReorderTolerance::Fixed(0))
}

fn messages() -> ReceiveHalf {
    ReceiveHalf::new(Time::ZERO, isn(), CAPACITY, true, ReorderTolerance::Fixed(0))
}

#[test]
fn a_buffer_that_is_widened_takes_more_and_says_so() {
    let mut half = stream();
    for place in 0..=CAPACITY {
        assert_eq!(data(&mut half, at(1), place), place < CAPACITY);
    }
    assert_eq!((half.advertise(CAPACITY), half.out_of_window), (MIN_WINDOW, 1));
    half.widen(2 * CAPACITY);
    assert!(data(&mut half, at(2), CAPACITY));
    assert!(half.advertise(1000) > MIN_WINDOW);
    half.widen(1);
    assert_eq!(half.capacity(), 2 * CAPACITY, "no less than was promised");
}

/// A packet of a stream, `place` after the first, whose payload is its place four times.
fn data(half: &mut ReceiveHalf, now: Time, place: u32) -> bool {
    packet(half, now, place, Boundary::SOLO, true, place + 1)
}

fn packet(
    half: &mut ReceiveHalf,
    now: Time,
    place: u32,
    boundary: Boundary,
    in_order: bool,
    message: u32,
) -> bool {
    let header = DataHeader {
        seq: seq(place),
        boundary,
        in_order,
        message: MsgNo::new(message),
        timestamp: now.as_micros() as u32,
        dest: 1,
    };
    let mut payload = Payload { batch: 0, start: 0, len: 4 };
    if half.wants(header.seq) {
        payload.batch = half.open_batch(Bytes::from(vec![place as u8; 4]));
    }
    let stored = half.on_data(now, &header, payload);
    half.close_batch(now, None);
    stored
}

/// The places of packets in what can be read.
fn read(half: &mut ReceiveHalf, max_bytes: usize) -> Vec<u8> {
    let mut chunks = Chunks::default();
    half.read(max_bytes, &mut chunks);
    bytes(&mut chunks).into_iter().step_by(4).collect()
}

fn read_messages(half: &mut ReceiveHalf) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut chunks = Chunks::default();
    while half.read_message(&mut chunks) {
        out.push(bytes(&mut chunks).into_iter().step_by(4).collect());
    }
    out
}

fn bytes(chunks: &mut Chunks) -> Vec<u8> {
    let mut out = vec![0; chunks.len()];
    assert_eq!(chunks.copy_to(&mut out), out.len());
    assert!(chunks.is_empty());
    out
}

fn losses(half: &mut ReceiveHalf, now: Time) -> Vec<(i32, i32)> {
    let mut out = Vec::new();
    half.report_losses(now, Repeat::growing(REPEAT), Duration::ZERO, &mut out);
    out.iter().map(|r| (place(r.first), place(r.last))).collect()
}

#[test]
fn a_stream_is_read_in_order_over_the_wrap() {
    let mut half = stream();
    for place in [0, 1, 2, 5, 4, 7] {
        assert!(data(&mut half, at(1), place));
    }
    assert_eq!(place(half.point()), 3);
    assert_eq!(half.waiting(), 5);
    assert_eq!(read(&mut half, 5), [0, 1], "whole packets");
    assert_eq!(read(&mut half, 100), [2]);
    assert!(!half.readable());
    assert!(data(&mut half, at(2), 3));
    assert_eq!(place(half.point()), 6);
    assert_eq!(read(&mut half, 100), [3, 4, 5]);
    assert!(data(&mut half, at(2), 6));
    assert_eq!(read(&mut half, 100), [6, 7]);
    assert_eq!((half.stored(), half.pinned(), half.waiting()), (0, 0, 0));
    assert_eq!((half.lost, half.duplicates), (3, 0));
}

#[test]
fn packets_come_again_or_do_not_belong() {
    let mut half = stream();
    for place in [0, 2] {
        data(&mut half, at(1), place);
    }
    for again in [0, 2] {
        assert!(!data(&mut half, at(2), again));
    }
    read(&mut half, 100);
    assert!(!data(&mut half, at(3), 0), "read already");
    assert_eq!(half.duplicates, 3);
    assert!(!data(&mut half, at(3), 1 + CAPACITY));
    assert!(data(&mut half, at(3), CAPACITY), "the last that fits, with one read");
    assert!(!data(&mut half, at(3), 1 << 29));
    assert_eq!((half.out_of_window, half.packets_received), (2, 8));
    assert_eq!(losses(&mut half, at(3)), [(1, 1), (3, CAPACITY as i32 - 1)]);
}

/// The window shrinks with what is not read, never below two, and reading tells of room.
#[test]
fn the_window_follows_the_reader() {
    let mut half = stream();
    assert_eq!(half.advertise(1_000), CAPACITY);
    assert_eq!(half.advertise(20), 20);
    for place in 0..60 {
        data(&mut half, at(1), place);
    }
    assert_eq!(half.advertise(1_000), 4);
    for place in 60..64 {
        data(&mut half, at(1), place);
    }
    assert_eq!(half.advertise(1_000), 2, "full, but never shut for good");
    assert!(!data(&mut half, at(1), 64));
    assert_eq!(half.acks.poll(at(1), half.point(), REPEAT, 0, 64, false).map(|_| ()), None);
    half.acks.on_data(at(20), 64, Duration::from_millis(10), false);
    assert!(half.acks.poll(at(20), half.point(), REPEAT, 0, 64, false).is_some());
    read(&mut half, 4 * 10);
    assert!(half.acks.poll(at(21), half.point(), REPEAT, 0, 64, false).is_none(), "little room");
    read(&mut half, 4 * 30);
    assert!(half.acks.poll(at(22), half.point(), REPEAT, 0, 64, false).is_some(), "much room");
    assert_eq!(half.advertise(1_000), 40);
    read(&mut half, 4 * 30);
    assert!(half.acks.poll(at(23), half.point(), REPEAT, 0, 64, false).is_none(), "told already");
}

/// A peer that is slow to fill what it has room for is not told of the window.
#[test]
fn a_target_below_the_room_is_not_a_full_buffer() {
    let mut half = stream();
    for place in 0..20 {
        data(&mut half, at(1), place);
    }
    half.advertise(10);
    read(&mut half, 1_000);
    assert!(half.acks.poll(at(1), half.point(), REPEAT, 1, 64, false).is_none());
}

/// A gap is reported once as many packets as the tolerance says have followed it.
#[test]
fn reordering_within_the_tolerance_is_no_loss() {
    let mut half = ReceiveHalf::new(Time::ZERO, isn(), CAPACITY, false, ReorderTolerance::Fixed(3));
    for (ms, place) in [(1, 0), (1, 2), (1, 3), (1, 1)] {
        data(&mut half, at(ms), place);
        assert_eq!(losses(&mut half, at(ms)), []);
    }
    assert_eq!((half.reordered, half.gaps.is_empty()), (1, true));
    for place in [5, 6] {
        data(&mut half, at(2), place);
        assert_eq!(losses(&mut half, at(2)), []);
    }
    data(&mut half, at(2), 7);
    assert_eq!(losses(&mut half, at(2)), [(4, 4)]);
}

/// Only a first transmission that comes late has been overtaken: one sent again has a later time
/// stamp than the highest packet.
#[test]
fn a_retransmission_is_not_taken_for_reordering() {
    let adaptive = ReorderTolerance::Adaptive(64);
    let mut half = ReceiveHalf::new(Time::ZERO, isn(), CAPACITY, false, adaptive);
    data(&mut half, at(1), 0);
    data(&mut half, at(2), 5);
    data(&mut half, at(9), 1);
    assert_eq!((half.reordered, half.gaps.tolerance()), (0, 3));
    // Its time stamp is that of when it was sent.
    let late = DataHeader {
        seq: seq(2),
        boundary: Boundary::SOLO,
        in_order: true,
        message: MsgNo::new(3),
        timestamp: 1_500,
        dest: 1,
    };
    let batch = half.open_batch(Bytes::from_static(b"2222"));
    half.on_data(at(10), &late, Payload { batch, start: 0, len: 4 });
    assert_eq!(half.reordered, 1);
    assert!(half.gaps.tolerance() > 3);
}

/// The loss list keeps up when the span of packets outgrows it with a hole at its beginning.
#[test]
fn a_hole_outlives_thousands_of_packets() {
    let tolerance = ReorderTolerance::Fixed(0);
    let mut half = ReceiveHalf::new(Time::ZERO, isn(), 100_000, false, tolerance);
    data(&mut half, at(0), 0);
    for place in (2..5_000).filter(|p| *p != 1_025 && *p != 3_000) {
        data(&mut half, at(1), place);
    }
    assert_eq!(losses(&mut half, at(1)), [(1, 1), (1_025, 1_025), (3_000, 3_000)]);
    assert!(data(&mut half, at(2), 1_025));
    assert_eq!(place(half.point()), 1);
    assert!(data(&mut half, at(2), 1));
    assert_eq!(place(half.point()), 3_000);
    assert_eq!(losses(&mut half, at(200)), [(3_000, 3_000)]);
    assert!(data(&mut half, at(201), 3_000));
    assert_eq!(place(half.point()), 5_000);
    assert_eq!(losses(&mut half, at(900)), []);
}

/// Losses far behind, long repaired, are not reported when their place in the list is used again.
#[test]
fn old_reports_are_not_repeated_for_new_losses() {
    let mut half = ReceiveHalf::new(Time::ZERO, isn(), 8_192, false, ReorderTolerance::Fixed(0));
    data(&mut half, at(0), 0);
    data(&mut half, at(0), 2);
    assert_eq!(losses(&mut half, at(0)), [(1, 1)]);
    // Another hole keeps the list from being emptied.
    for place in (3..1_024).filter(|p| *p != 500) {
        data(&mut half, at(50), place);
    }
    assert_eq!(losses(&mut half, at(50)), [(500, 500)]);
    data(&mut half, at(50), 1);
    read(&mut half, usize::MAX);
    // A third one, at the first one's place in a list of 1024.
    data(&mut half, at(51), 1_024);
    data(&mut half, at(51), 1_026);
    assert_eq!(losses(&mut half, at(51)), [(1_025, 1_025)]);
    assert_eq!(losses(&mut half, at(100)), [], "the first report's time is over, its hole closed");
    assert_eq!(losses(&mut half, at(151)), [(500, 500), (1_025, 1_025)]);
}

const FIRST: Boundary = Boundary::FIRST;
const MIDDLE: Boundary = Boundary::MIDDLE;
const LAST: Boundary = Boundary::LAST;
const SOLO: Boundary = Boundary::SOLO;

#[test]
fn messages_are_assembled_from_any_order() {
    let mut rng = Rng::new(3);
    let parts = [(FIRST, 1), (MIDDLE, 1), (LAST, 1), (SOLO, 2), (FIRST, 3), (LAST, 3), (SOLO, 4)];
    for round in 0..200 {
        for in_order in [true, false] {
            let mut half = messages();
            let mut order: Vec<u32> = (0..7).collect();
            for i in (1..7).rev() {
                order.swap(i, rng.below(i as u64 + 1) as usize);
            }
            let mut got = Vec::new();
            for place in order {
                let (boundary, message) = parts[place as usize];
                assert!(packet(&mut half, at(1), place, boundary, in_order, message));
                got.extend(read_messages(&mut half));
            }
            let expected = [vec![0, 1, 2], vec![3], vec![4, 5], vec![6]];
            if in_order {
                assert_eq!(got, expected, "round {round}");
            } else {
                got.sort();
                assert_eq!(got, expected, "round {round}");
            }
            assert_eq!((half.stored(), half.pinned()), (0, 0));
            assert_eq!(place(half.point()), 7);
        }
    }
}

#[test]
fn an_unordered_message_is_read_ahead_of_a_hole() {
    let mut half = messages();
    packet(&mut half, at(1), 0, SOLO, true, 1);
    packet(&mut half, at(1), 2, FIRST, false, 3);
    packet(&mut half, at(1), 4, SOLO, true, 4);
    assert_eq!(read_messages(&mut half), [[0]]);
    packet(&mut half, at(1), 3, LAST, false, 3);
    assert_eq!(read_messages(&mut half), [[2, 3]], "and the ordered one waits");
    packet(&mut half, at(1), 1, SOLO, false, 2);
    assert_eq!(read_messages(&mut half), [[1], [4]]);
}

#[test]
fn a_message_given_up_makes_way() {
    let mut half = messages();
    packet(&mut half, at(1), 0, FIRST, true, 1);
    packet(&mut half, at(1), 3, SOLO, true, 2);
    assert!(half.on_drop_request(at(2), 1, seq(0), seq(2), true));
    assert_eq!(place(half.point()), 4);
    assert_eq!(read_messages(&mut half), [[3]]);
    assert_eq!(losses(&mut half, at(500)), []);
    assert!(!packet(&mut half, at(3), 1, MIDDLE, true, 1), "too late");
    assert_eq!((half.stored(), half.pinned()), (0, 0));
}

/// The request names packets that have not been heard of, and some that have come.
#[test]
fn a_drop_request_beyond_what_has_come() {
    let mut half = messages();
    packet(&mut half, at(1), 0, SOLO, true, 1);
    // Packets 1 and 2 are missing too; they are somebody else's.
    assert!(half.on_drop_request(at(2), 9, seq(3), seq(6), true));
    assert_eq!(losses(&mut half, at(4)), [(1, 2)]);
    assert_eq!(place(half.point()), 1);
    packet(&mut half, at(3), 1, FIRST, true, 2);
    packet(&mut half, at(3), 7, SOLO, true, 10);
    packet(&mut half, at(3), 2, LAST, true, 2);
    assert_eq!(read_messages(&mut half), [vec![0], vec![1, 2], vec![7]]);
    assert_eq!(place(half.point()), 8);
}

/// What has arrived of a message given up is not kept for a rest that does not come, even if that
/// becomes clear only when a hole before it is filled.
#[test]
fn the_parts_of_a_message_given_up_are_not_kept() {
    let mut half = messages();
    packet(&mut half, at(1), 1, FIRST, true, 2);
    assert!(half.on_drop_request(at(2), 2, seq(1), seq(1), true));
    assert!(half.stored() > 0, "it may yet be the end of something");
    packet(&mut half, at(3), 0, SOLO, true, 1);
    assert_eq!(read_messages(&mut half), [[0]]);
    assert_eq!((half.stored(), half.pinned()), (0, 0));
}

/// A complete message is delivered even if the sender has given it up for want of an answer.
#[test]
fn a_complete_message_survives_a_drop_request() {
    let mut half = messages();
    packet(&mut half, at(1), 1, FIRST, true, 2);
    packet(&mut half, at(1), 2, LAST, true, 2);
    assert!(half.on_drop_request(at(2), 2, seq(1), seq(2), true));
    packet(&mut half, at(3), 0, SOLO, true, 1);
    assert_eq!(read_messages(&mut half), [vec![0], vec![1, 2]]);
}

/// The stock library's last is one too many: it is believed the second time only.
#[test]
fn a_stock_drop_request() {
    let mut half = messages();
    assert!(half.on_drop_request(at(1), 1, seq(0), seq(3), false));
    assert_eq!(place(half.point()), 3);
    packet(&mut half, at(2), 3, SOLO, true, 2);
    assert_eq!(read_messages(&mut half), [[3]]);
    assert!(half.on_drop_request(at(3), 3, seq(4), seq(6), false));
    assert_eq!(place(half.point()), 6);
    assert!(half.on_drop_request(at(4), 3, seq(4), seq(6), false));
    assert_eq!(place(half.point()), 7, "it was the end of everything");
}

#[test]
fn drop_requests_that_mean_nothing() {
    let mut half = stream();
    data(&mut half, at(1), 2);
    assert!(!half.on_drop_request(at(2), 1, seq(0), seq(1), true), "a stream");
    let mut half = messages();
    packet(&mut half, at(1), 0, SOLO, true, 1);
    assert_eq!(read_messages(&mut half), [[0]]);
    assert!(!half.on_drop_request(at(2), 2, seq(1), seq(1 + CAPACITY), true), "beyond the window");
    assert!(half.on_drop_request(at(2), 1, seq(0), seq(0), true), "settled long ago");
    assert!(half.on_drop_request(at(2), 1, seq(0).minus(900), seq(0), true));
    // Longer than a third of the number space: it ends before it begins, seen from here.
    let (first, last) = (seq(1 << 29).plus(1 << 28), seq(0).minus(1 << 29));
    assert!(last.since(first) > 0);
    assert!(!half.on_drop_request(at(2), 1, first, last, true));
    // The number before the farthest behind is the farthest ahead.
    let last = half.base.plus(1 << 30);
    assert!(half.on_drop_request(at(2), 1, half.base.plus(5), last, false));
    assert_eq!((place(half.point()), half.highest), (1, seq(0)));
}

/// Random messages over a random path of losses, repetitions and requests: whole or not at all, and
/// memory comes back.
#[test]
fn random_messages_and_requests() {
    let mut rng = Rng::new(17);
    for _ in 0..300 {
        let mut half = messages();
        // Each message: where it begins, how long it is, whether it keeps its order.
        let mut plan = Vec::new();
        let mut next = 0;
        while next < 150 {
            let len = 1 + rng.below(6) as u32;
            plan.push((next, len, rng.chance(0.5)));
            next += len;
        }
        let mut got = Vec::new();
        while place(half.point()) < next as i32 {
            let index = rng.below(plan.len() as u64) as usize;
            let (first, len, in_order) = plan[index];
            if first as i32 > place(half.point()) + 30 {
                continue;
            }
            let number = index as u32 + 1;
            if rng.chance(0.02) {
                half.on_drop_request(at(1), number, seq(first), seq(first + len - 1), true);
            } else {
                let at_place = first + rng.below(u64::from(len)) as u32;
                let boundary =
                    Boundary { first: at_place == first, last: at_place + 1 == first + len };
                packet(&mut half, at(1), at_place, boundary, in_order, number);
            }
            if rng.chance(0.3) {
                got.extend(read_messages(&mut half));
            }
        }
        got.extend(read_messages(&mut half));
        let mut seen = Vec::new();
        for message in got {
            let first = u32::from(message[0]);
            let (_, len, _) = plan.iter().find(|(f, ..)| *f == first).expect("a message's first");
            let expected: Vec<u8> = (first..first + len).map(|p| p as u8).collect();
            assert_eq!(message, expected);
            assert!(!seen.contains(&first));
            seen.push(first);
        }
        assert_eq!((half.stored(), half.pinned()), (0, 0));
    }
}

/// Packets as receive offload delivers them: one buffer, held while any of it is unread.
#[test]
fn one_buffer_of_many_packets() {
    let mut half = stream();
    let buffer = Bytes::from((0..40u8).collect::<Vec<_>>());
    let batch = half.open_batch(buffer);
    for place in 0..10 {
        let header = DataHeader {
            seq: seq(place),
            boundary: SOLO,
            in_order: true,
            message: MsgNo::new(1),
            timestamp: 5,
            dest: 1,
        };
        half.on_data(at(1), &header, Payload { batch, start: place * 4, len: 4 });
    }
    half.close_batch(at(1), Some(batch));
    assert_eq!((half.stored(), half.pinned()), (40, 40));
    let mut chunks = Chunks::default();
    half.read(20, &mut chunks);
    assert_eq!(bytes(&mut chunks), (0..20).collect::<Vec<u8>>());
    assert_eq!((half.stored(), half.pinned()), (20, 40));
    half.read(20, &mut chunks);
    assert_eq!(bytes(&mut chunks), (20..40).collect::<Vec<u8>>());
    assert_eq!((half.stored(), half.pinned()), (0, 0));
}

/// A peer that repeats what is settled has not heard of it: it is told again at once.
#[test]
fn repetitions_are_answered_before_the_acks_own_time() {
    let again: [fn(&mut ReceiveHalf); 2] = [
        |half| {
            half.on_drop_request(at(30), 1, seq(0), seq(0), true);
        },
        |half| {
            packet(half, at(30), 1, SOLO, true, 2);
        },
    ];
    for again in again {
        let mut half = messages();
        half.on_drop_request(at(1), 1, seq(0), seq(0), true);
        packet(&mut half, at(1), 1, SOLO, true, 2);
        assert_eq!(read_messages(&mut half), [[1]]);
        half.acks.on_data(at(1), 1, Duration::from_millis(10), true);
        let poll =
            |half: &mut ReceiveHalf, ms| half.acks.poll(at(ms), seq(2), REPEAT, 0, 64, false);
        assert!(poll(&mut half, 10).is_some());
        assert_eq!(poll(&mut half, 30), None, "unanswered, but its time has not come");
        again(&mut half);
        assert!(half.acks.timeout(seq(2), REPEAT, false) <= Some(at(30)));
        assert!(poll(&mut half, 30).is_some());
    }
}
