use farhaul_base::Rng;
use farhaul_wire::Packet;

use super::*;

const PAYLOAD: usize = 100;
const RTO: Duration = Duration::from_millis(100);
const DEST: u32 = 7;

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// A send half whose numbers start a few packets before the wrap.
fn half() -> SendHalf {
    SendHalf::new(Time::ZERO, isn(), PAYLOAD, 1_000, 44, 0)
}

fn isn() -> Seq {
    Seq::new(Seq::MAX - 4)
}

/// The place of a sequence number after the first.
fn place(seq: Seq) -> i32 {
    seq.since(isn())
}

fn seq(place: u32) -> Seq {
    isn().plus(place)
}

fn range(first: u32, last: u32) -> LossRange {
    LossRange { first: seq(first), last: seq(last) }
}

/// A half with `packets` full packets of a stream to send, in a window that has room for them.
fn with_stream(packets: usize) -> SendHalf {
    let mut half = half();
    half.set_window(1_000.0);
    half.append(Bytes::from(vec![1; packets * PAYLOAD]));
    half
}

/// Everything that may leave now: place, whether sent before, time stamp.
fn sent(half: &mut SendHalf, now: Time) -> Vec<(i32, bool, u32)> {
    sent_by(half, now, 44)
}

/// The same, at most `max_segments` packets a call.
fn sent_by(half: &mut SendHalf, now: Time, max_segments: usize) -> Vec<(i32, bool, u32)> {
    let mut out = Transmit::new();
    let mut all = Vec::new();
    loop {
        out.clear("10.0.0.1:1".parse().unwrap());
        let mut seen = Vec::new();
        let mut note = |p: SentPacket| seen.push((place(p.seq), p.retransmission, p.timestamp));
        let count = half.fill(now, DEST, max_segments, &mut out, Some(&mut note));
        assert_eq!((count as usize, out.segments()), (seen.len(), seen.len()));
        if count == 0 {
            return all;
        }
        all.extend(seen);
    }
}

fn places(half: &mut SendHalf, now: Time) -> Vec<i32> {
    sent(half, now).into_iter().map(|(place, ..)| place).collect()
}

/// Packets as they are on the wire.
fn packets(half: &mut SendHalf, now: Time) -> Vec<(DataHeader, Vec<u8>)> {
    let mut out = Transmit::new();
    let mut all = Vec::new();
    loop {
        out.clear("10.0.0.1:1".parse().unwrap());
        if half.fill(now, DEST, 44, &mut out, None) == 0 {
            return all;
        }
        for (header, payload) in out.datagrams() {
            let bytes = [header.as_slice(), payload].concat();
            let Ok(Packet::Data(header, payload)) = Packet::parse(&bytes) else { panic!() };
            all.push((header, payload.to_vec()));
        }
    }
}

#[test]
fn new_packets_follow_each_other_over_the_wrap() {
    let mut half = with_stream(9);
    half.append(Bytes::from_static(b"and a short one"));
    let sent = packets(&mut half, at(3));
    let seqs: Vec<u32> = sent.iter().map(|(h, _)| h.seq.value()).collect();
    let m = Seq::MAX;
    assert_eq!(seqs, [m - 4, m - 3, m - 2, m - 1, m, 0, 1, 2, 3, 4]);
    assert!(sent.iter().all(|(h, _)| h.timestamp == 3_000 && h.dest == DEST));
    assert_eq!(sent[9].1, b"and a short one");
    assert_eq!((half.packets_sent, half.bytes_sent), (10, 915));
    assert_eq!(half.next_seq(), Seq::new(5));
}

#[test]
fn the_smaller_window_limits_what_is_in_flight() {
    let mut half = with_stream(50);
    half.set_window(10.0);
    assert_eq!(places(&mut half, at(0)).len(), 10);
    assert_eq!(half.on_ack(at(50), seq(3), Some(4)), AckOutcome::Advanced(3));
    assert!(places(&mut half, at(50)).is_empty(), "7 in flight, the peer takes 4");
    half.on_ack(at(60), seq(8), Some(5));
    assert_eq!(places(&mut half, at(60)), [10, 11, 12]);
    half.on_ack(at(70), seq(13), Some(1_000));
    assert_eq!(places(&mut half, at(70)), (13..23).collect::<Vec<_>>());
    assert_eq!(half.flow_window(), 1_000);
}

/// An ACK of the same packets may open the window, or close it.
#[test]
fn a_repeated_ack_updates_the_flow_window() {
    let mut half = with_stream(50);
    half.set_window(1_000.0);
    half.on_ack(at(1), seq(0), Some(2));
    assert_eq!(places(&mut half, at(1)).len(), 2);
    half.on_ack(at(2), seq(2), Some(0));
    assert!(places(&mut half, at(2)).is_empty());
    assert_eq!(half.on_ack(at(3), seq(2), Some(9)), AckOutcome::Stale);
    assert_eq!(places(&mut half, at(3)).len(), 9);
    assert_eq!(half.on_ack(at(4), seq(1), Some(90)), AckOutcome::Stale);
    assert!(places(&mut half, at(4)).is_empty(), "an old ACK says nothing of the window");
}

#[test]
fn impossible_acks_change_nothing() {
    let mut half = with_stream(10);
    half.set_window(4.0);
    places(&mut half, at(0));
    for far in [5, 6, 1_000, (1 << 30) - 1] {
        assert_eq!(half.on_ack(at(1), seq(far), Some(1 << 20)), AckOutcome::Impossible);
    }
    assert_eq!((half.una(), half.flow_window(), half.buffer.in_flight()), (isn(), 1_000, 4));
    assert_eq!(half.on_ack(at(1), seq(4), Some(1 << 20)), AckOutcome::Advanced(4));
}

/// gu05 Figure 2-4: lost packets first, the lowest first, then new ones; the windows do not hold
/// lost ones back.
#[test]
fn lost_packets_go_first() {
    let mut half = with_stream(12);
    half.set_window(10.0);
    places(&mut half, at(0));
    let fresh = Duration::ZERO;
    assert_eq!(half.on_loss_report(at(50), range(6, 7), fresh), Ok(Some(range(6, 7))));
    assert_eq!(half.on_loss_report(at(50), range(2, 2), fresh), Ok(Some(range(2, 2))));
    half.on_ack(at(50), seq(1), Some(4));
    let expected = [(2, true, 50_000), (6, true, 50_000), (7, true, 50_000)];
    assert_eq!(sent(&mut half, at(50)), expected);
    assert_eq!((half.packets_lost, half.packets_retransmitted), (3, 3));
    half.on_ack(at(60), seq(9), Some(400));
    assert_eq!(places(&mut half, at(60)), [10, 11]);
}

#[test]
fn loss_reports_are_checked_and_clipped() {
    let mut half = with_stream(10);
    places(&mut half, at(0));
    half.on_ack(at(50), seq(4), None);
    let mut report = |first, last| half.on_loss_report(at(50), range(first, last), Duration::ZERO);
    assert_eq!(report(0, 3), Ok(None), "acknowledged");
    assert_eq!(report(2, 5), Ok(Some(range(4, 5))), "in part");
    assert_eq!(report(4, 5), Ok(None), "known");
    assert_eq!(report(9, 10), Err(()), "never sent");
    assert_eq!(report(10, 10), Err(()));
    assert_eq!(report(7, 6), Err(()), "backwards");
    assert_eq!(report(0, (1 << 30) + 3), Err(()), "half the number space");
    assert_eq!(places(&mut half, at(50)), [4, 5]);
}

/// A report that crossed the retransmission on its way is not believed.
#[test]
fn a_packet_just_sent_again_is_left_alone() {
    let mut half = with_stream(4);
    half.set_tolerated_loss(1.0);
    places(&mut half, at(0));
    let fresh = Duration::from_millis(20);
    assert_eq!(half.on_loss_report(at(1), range(0, 1), fresh), Ok(Some(range(0, 1))));
    assert_eq!(places(&mut half, at(30)), [0, 1]);
    assert_eq!(half.on_loss_report(at(50), range(0, 2), fresh), Ok(Some(range(0, 2))));
    assert_eq!(places(&mut half, at(50)), [2], "only what was not sent again");
    assert_eq!(half.on_loss_report(at(51), range(0, 1), fresh), Ok(Some(range(0, 1))));
    assert_eq!(places(&mut half, at(51)), [0, 1]);
}

#[test]
fn acknowledged_packets_leave_the_loss_list() {
    let mut half = with_stream(10);
    places(&mut half, at(0));
    half.on_loss_report(at(1), range(2, 8), Duration::ZERO).unwrap();
    half.on_ack(at(2), seq(6), None);
    assert_eq!(places(&mut half, at(2)), [6, 7, 8]);
    half.on_loss_report(at(3), range(6, 9), Duration::ZERO).unwrap();
    half.on_ack(at(4), seq(10), None);
    assert!(places(&mut half, at(4)).is_empty() && half.buffer.is_empty());
}

/// gu05 §3.4: every sixteenth packet is followed by the next without a pause.
#[test]
fn packets_of_numbers_0_and_1_modulo_16_leave_together() {
    for max_segments in [44, 1] {
        let mut half = with_stream(60);
        half.pacer.set_period_ns(5e6);
        let mut bursts = Vec::new();
        for ms in 0..400 {
            let seqs: Vec<u32> = sent_by(&mut half, at(ms), max_segments)
                .into_iter()
                .map(|(place, ..)| seq(place as u32).value() % 16)
                .collect();
            if !seqs.is_empty() {
                bursts.push(seqs);
            }
        }
        let pairs: Vec<_> = bursts.iter().filter(|b| b.len() > 1).collect();
        assert!(pairs.len() >= 3 && pairs.iter().all(|b| **b == [0, 1]), "{bursts:?}");
        assert!(bursts.iter().filter(|b| b.len() == 1).all(|b| b[0] > 1), "{bursts:?}");
    }
}

/// What did not follow the first of a pair at once is no pair: it keeps to the pace and to a pause.
#[test]
fn a_pair_that_a_window_has_parted_is_none() {
    let mut half = with_stream(60);
    half.pacer.set_period_ns(5e6);
    // Places 0 to 4 come before the wrap, 5 is number 0.
    half.set_window(6.0);
    let mut now = 0;
    while half.buffer.in_flight() < 6 {
        now += 1;
        sent_by(&mut half, at(now), 1);
    }
    half.pacer.pause(at(now + 50));
    half.on_ack(at(now + 1), seq(6), None);
    assert!(sent_by(&mut half, at(now + 1), 1).is_empty(), "the pause holds");
    assert_eq!(sent_by(&mut half, at(now + 50), 1)[0].0, 6);
}

/// The pair does not add to the rate: the pause after it is twice as long.
#[test]
fn pacing_keeps_the_rate() {
    let mut half = with_stream(500);
    half.pacer.set_period_ns(1e6);
    let count: usize = (0..200).map(|ms| places(&mut half, at(ms)).len()).sum();
    assert!((199..=202).contains(&count), "{count}");
}

/// gu05 §2.2.4: packets on the fly. Behind a hole that is being repaired, those that have had the
/// time to arrive do not count, up to a bound.
#[test]
fn a_hole_being_repaired_does_not_stop_new_packets() {
    let mut half = with_stream(1_000);
    half.set_window(20.0);
    half.set_round_trip(Duration::from_millis(50), Duration::ZERO);
    assert_eq!(places(&mut half, at(0)).len(), 20);
    assert!(
        places(&mut half, at(60)).is_empty(),
        "no report, no acknowledgement: the window holds"
    );
    half.on_loss_report(at(60), range(0, 0), Duration::ZERO).unwrap();
    // The lost one and nineteen new ones: the first twenty have had their time.
    assert_eq!(places(&mut half, at(60)).len(), 20);
    assert!(places(&mut half, at(100)).is_empty());
    assert_eq!(half.next_send(), Some(at(110)), "and no ACK is needed to go on");
    assert_eq!(places(&mut half, at(110)).len(), 20);
    assert_eq!(places(&mut half, at(160)).len(), 20);
    assert_eq!(half.buffer.in_flight(), 79);
    assert_eq!(places(&mut half, at(210)).len(), 1, "four windows are the most");
    assert!(places(&mut half, at(300)).is_empty());
    half.on_ack(at(310), seq(80), None);
    assert_eq!(places(&mut half, at(310)).len(), 20);
}

#[test]
fn the_retransmission_timer_asks_with_both_ends_and_backs_off() {
    let mut half = with_stream(20);
    assert_eq!(half.timeout(RTO), None);
    places(&mut half, at(10));
    assert_eq!(half.timeout(RTO), Some(at(110)));
    assert_eq!(half.on_timeout(at(109), RTO, false), None);
    let mut now = at(10);
    for (count, wait) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (6, 1_000)] {
        now += Duration::from_millis(wait);
        assert_eq!(half.timeout(RTO), Some(now));
        assert_eq!(half.on_timeout(now, RTO, false), Some(Expired { count }));
        assert_eq!(half.timeout(RTO), None, "what is to be sent waits for nothing");
        assert_eq!(places(&mut half, now), [0, 19]);
    }
    half.on_ack(now, seq(5), None);
    assert_eq!(half.timeout(RTO), Some(now + RTO), "progress starts it anew");
    half.on_ack(now, seq(20), None);
    assert_eq!(half.timeout(RTO), None);
}

/// A hole that nobody reports is filled at a doubling pace while the ACK number walks into it.
#[test]
fn a_silent_hole_is_filled_faster_and_faster() {
    let mut half = with_stream(100);
    places(&mut half, at(0));
    half.on_timeout(at(100), RTO, false).unwrap();
    assert_eq!(places(&mut half, at(100)), [0, 99]);
    // Packet 0 fills the first place of the hole: from then on each ACK fills twice as many.
    let (mut una, mut rounds) = (1u32, 0);
    while una < 100 {
        let now = at(140 + 40 * rounds);
        half.on_ack(now, seq(una), None);
        half.resend_silent_hole(now, RTO);
        let run = (1 << rounds).min(100 - una);
        assert_eq!(places(&mut half, now), (una..una + run).map(|p| p as i32).collect::<Vec<_>>());
        una += run;
        rounds += 1;
    }
    assert_eq!(rounds, 7);
    // Where the ACK number meets a packet just sent, nothing is resent.
    let mut half = with_stream(10);
    places(&mut half, at(0));
    half.on_ack(at(50), seq(4), None);
    half.resend_silent_hole(at(50), RTO);
    assert!(places(&mut half, at(50)).is_empty());
}

/// What arrives is handled as of its arrival, and may be sent in the meantime what it seems to
/// leave unacknowledged.
#[test]
fn an_ack_that_waited_makes_no_hole_of_what_was_sent_since() {
    let mut half = with_stream(20);
    places(&mut half, at(10));
    half.on_ack(at(9), seq(5), None);
    half.resend_silent_hole(at(9), RTO);
    assert!(places(&mut half, at(10)).is_empty());
    half.on_loss_report(at(9), range(6, 6), Duration::ZERO).unwrap();
    assert_eq!(places(&mut half, at(11)), [6]);
    half.on_loss_report(at(10), range(6, 6), Duration::ZERO).unwrap();
    assert!(places(&mut half, at(11)).is_empty(), "the report is older than the retransmission");
}

/// Where the receiver reports each loss once, one retransmission that was lost tells of the others.
#[test]
fn overdue_retransmissions_are_lost_together() {
    let mut half = with_stream(20);
    half.set_tolerated_loss(1.0);
    places(&mut half, at(0));
    for place in [2, 5, 9] {
        half.on_loss_report(at(10), range(place, place), Duration::ZERO).unwrap();
    }
    assert_eq!(places(&mut half, at(10)), [2, 5, 9]);
    half.on_loss_report(at(90), range(12, 12), Duration::ZERO).unwrap();
    assert_eq!(places(&mut half, at(90)), [12]);
    // Too early to tell.
    half.on_ack(at(50), seq(2), None);
    half.resend_silent_hole(at(50), RTO);
    assert!(places(&mut half, at(50)).is_empty());
    // Packet 2 has come at last, 5 has not; 12 may still be on its way.
    half.on_ack(at(120), seq(5), None);
    half.resend_silent_hole(at(120), RTO);
    assert_eq!(places(&mut half, at(120)), [5, 9]);
    // The timer finds them as well.
    half.on_timeout(at(221), RTO, true).unwrap();
    assert_eq!(places(&mut half, at(221)), [5, 9, 12, 19]);
}

#[test]
fn a_message_too_old_is_not_begun() {
    let mut half = half();
    half.set_window(1_000.0);
    half.buffer.push_message(Bytes::from(vec![1; 250]), true, Some(at(10)));
    half.buffer.push_message(Bytes::from(vec![2; 50]), true, Some(at(30)));
    let sent = packets(&mut half, at(20));
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].0.message.value(), place(sent[0].0.seq)), (2, 0));
    assert_eq!(half.messages_dropped, 1);
    assert_eq!(half.take_drop(), None, "nothing of it was sent, so the peer knows nothing of it");
}

/// A message begun is sent to its end; what is lost of it then is not sent again.
#[test]
fn a_message_too_old_is_not_repaired() {
    let mut half = half();
    half.set_window(2.0);
    half.buffer.push_message(Bytes::from(vec![1; 450]), true, Some(at(10)));
    half.buffer.push_message(Bytes::from(vec![2; 50]), true, None);
    assert_eq!(places(&mut half, at(5)), [0, 1]);
    half.set_window(4.0);
    assert_eq!(places(&mut half, at(20)), [2, 3], "late, but begun");
    half.on_ack(at(30), seq(1), None);
    half.on_loss_report(at(30), range(2, 2), Duration::ZERO).unwrap();
    half.set_window(100.0);
    // Given up with its last packet unsent; the next message takes that number.
    let sent = packets(&mut half, at(30));
    assert_eq!(sent.len(), 1);
    assert_eq!((place(sent[0].0.seq), sent[0].0.message.value()), (4, 2));
    let notice = DropNotice { message: MsgNo::new(1), first: seq(1), last: seq(3) };
    assert_eq!((half.take_drop(), half.messages_dropped), (Some(notice), 1));
    // The notice is lost: the peer asks again and is told again.
    half.on_loss_report(at(60), range(2, 3), Duration::ZERO).unwrap();
    assert!(packets(&mut half, at(60)).is_empty());
    assert_eq!((half.take_drop(), half.messages_dropped), (Some(notice), 1));
    half.on_ack(at(70), seq(5), None);
    assert!(half.buffer.is_empty() && half.buffer.bytes() == 0);
}

/// The end of a message given up, with nothing after it: the timer tells the peer.
#[test]
fn the_timer_repeats_a_drop_notice() {
    let mut half = half();
    half.set_window(100.0);
    half.buffer.push_message(Bytes::from(vec![1; 250]), true, Some(at(10)));
    places(&mut half, at(5));
    for now in [105, 305, 705] {
        half.on_timeout(at(now), RTO, false).unwrap();
        assert!(places(&mut half, at(now)).is_empty());
        let notice = DropNotice { message: MsgNo::new(1), first: seq(0), last: seq(2) };
        assert_eq!(half.take_drop(), Some(notice));
    }
}

#[test]
fn boundaries_and_flags_of_messages() {
    let mut half = half();
    half.set_window(100.0);
    half.buffer.set_next_message(0x1fff_fffd);
    half.buffer.push_message(Bytes::from(vec![1; 201]), true, None);
    half.buffer.push_message(Bytes::new(), false, None);
    let fields: Vec<_> = packets(&mut half, at(0))
        .into_iter()
        .map(|(h, p)| (h.boundary.first, h.boundary.last, h.in_order, h.message.value(), p.len()))
        .collect();
    let number = 0x1fff_fffe;
    assert_eq!(
        fields,
        [
            (true, false, true, number, 100),
            (false, false, true, number, 100),
            (false, true, true, number, 1),
            (true, true, false, 1, 0),
        ]
    );
}

/// One call carries packets of one size but for a last shorter one.
#[test]
fn packets_of_one_call_have_one_size() {
    let mut half = half();
    half.set_window(1_000.0);
    let mut rng = Rng::new(5);
    for _ in 0..200 {
        let len = rng.below(350) as usize;
        half.buffer.push_message(Bytes::from(vec![3; len]), true, None);
    }
    let mut out = Transmit::new();
    let mut total = 0;
    loop {
        out.clear("10.0.0.1:1".parse().unwrap());
        let count = half.fill(at(0), DEST, 44, &mut out, None);
        if count == 0 {
            break;
        }
        total += count;
        let sizes: Vec<usize> = out.datagrams().map(|(h, p)| h.len() + p.len()).collect();
        let (last, others) = sizes.split_last().unwrap();
        assert!(others.iter().all(|s| *s == out.segment_size()) && *last <= out.segment_size());
        assert_eq!(sizes.iter().sum::<usize>(), out.len());
    }
    assert_eq!(total, half.buffer.in_flight());
}

/// The loss list keeps up with a window that grows past its size while packets are missing.
#[test]
fn the_window_outgrows_the_loss_list() {
    let mut half = with_stream(5_000);
    half.set_tolerated_loss(1.0);
    half.set_window(900.0);
    half.flow_limit = isn().plus(5_000);
    places(&mut half, at(0));
    half.on_loss_report(at(1), range(3, 3), Duration::ZERO).unwrap();
    half.on_loss_report(at(1), range(800, 805), Duration::ZERO).unwrap();
    half.pacer.pause(at(5));
    half.set_window(5_000.0);
    let again = places(&mut half, at(5));
    assert_eq!(again[..8], [3, 800, 801, 802, 803, 804, 805, 900]);
    assert_eq!(again.len(), 7 + 4_100);
    half.on_loss_report(at(9), range(1_024, 1_030), Duration::ZERO).unwrap();
    half.on_loss_report(at(9), range(4_999, 4_999), Duration::ZERO).unwrap();
    assert_eq!(places(&mut half, at(9)), [1_024, 1_025, 1_026, 1_027, 1_028, 1_029, 1_030, 4_999]);
}

/// The clock of data packets starts where it is told and wraps.
#[test]
fn the_clock_wraps() {
    let mut half = SendHalf::new(at(500), isn(), PAYLOAD, 1_000, 44, u32::MAX - 999);
    half.set_window(100.0);
    half.append(Bytes::from(vec![1; 200]));
    assert_eq!(half.clock_us(at(501)), 0);
    let stamps: Vec<u32> = sent(&mut half, at(502)).into_iter().map(|(.., t)| t).collect();
    assert_eq!(stamps, [1_000, 1_000]);
    // A packet sent before the wrap is as old as it is.
    let mut half = SendHalf::new(at(500), isn(), PAYLOAD, 1_000, 44, u32::MAX - 999);
    half.set_window(100.0);
    half.append(Bytes::from(vec![1; 200]));
    sent(&mut half, at(500));
    half.on_loss_report(at(500), range(0, 1), Duration::ZERO).unwrap();
    sent(&mut half, at(500));
    let fresh = Duration::from_millis(20);
    assert_eq!(half.on_loss_report(at(510), range(0, 1), fresh), Ok(None));
    assert_eq!(half.on_loss_report(at(521), range(0, 1), fresh), Ok(Some(range(0, 1))));
    // And a hole that nobody reports is as old.
    let mut half = SendHalf::new(at(500), isn(), PAYLOAD, 1_000, 44, u32::MAX - 999);
    half.set_window(100.0);
    half.append(Bytes::from(vec![1; 300]));
    sent(&mut half, at(500));
    half.on_ack(at(560), seq(1), None);
    half.resend_silent_hole(at(560), Duration::from_millis(50));
    assert_eq!(places(&mut half, at(560)), [1]);
}
