use super::*;
use crate::Arrival;
use crate::tcp_like::tests::lost;

/// What a host tells with the ACK for everything before `next`, when `in_flight` packets are left
/// and the newest that has arrived took `rtt_ms`.
pub(crate) fn acked(now_ms: u64, next: u32, in_flight: u32, rtt_ms: f64) -> View {
    let last = Seq::new(next).prev();
    let rtt = Duration::from_secs_f64(rtt_ms / 1e3);
    View {
        now: Time::from_millis(now_ms),
        in_flight,
        delivered: next.into(),
        largest_acked: last,
        largest_sent: last.plus(in_flight),
        newest: Some(Arrival { seq: last, rtt, forward: None, tag: 0, delivery: None }),
        ..View::default()
    }
}

#[test]
fn a_round_is_over_when_its_first_packet_is_acknowledged() {
    let mut rounds = Rounds::default();
    let mut ended = Vec::new();
    // Ten packets in flight; each ACK is for one, and one more leaves.
    for next in 1..=25u32 {
        let rtt = 100.0 + f64::from(next % 7);
        if let Some(round) = rounds.on_ack(&acked(0, next, 9, rtt)) {
            ended.push((next, round));
        }
    }
    // Packets 0 to 9 were sent when the first round began, with the first ACK.
    let [(11, first), (21, second)] = ended[..] else { panic!("{ended:?}") };
    assert_eq!(first, Round { least: 0.100, last: 0.104, base: 0.100 });
    // 14 and 21 are divided by 7.
    assert_eq!(second, Round { least: 0.100, last: 0.100, base: 0.100 });
}

#[test]
fn a_round_without_a_time_is_none() {
    let mut rounds = Rounds::default();
    let unknown = |next| View { newest: None, ..acked(0, next, 9, 0.0) };
    assert!((1..100).all(|next| rounds.on_ack(&unknown(next)).is_none()));
    let ended: Vec<Round> =
        (100..112).filter_map(|next| rounds.on_ack(&acked(0, next, 9, 0.0))).collect();
    assert_eq!(ended[0].base, 1e-6, "a clock that stands still");
}

#[test]
fn the_least_of_a_while() {
    let mut lowest = Lowest::default();
    let mut add = |ms, value| lowest.add(Time::from_millis(ms), value, Duration::from_millis(10));
    assert_eq!(add(0, 5.0), 5.0);
    assert_eq!(add(4, 7.0), 5.0);
    assert_eq!(add(10, 8.0), 5.0);
    assert_eq!(add(11, 9.0), 7.0);
    assert_eq!(add(15, 8.0), 8.0);
    assert_eq!(add(16, 1.0), 1.0);
    assert_eq!(add(40, 6.0), 6.0);
}

#[test]
fn one_answer_a_round_trip() {
    let mut answered = Answered::new();
    answered.until(Seq::new(9));
    let view = acked(0, 10, 20, 100.0);
    assert!(!answered.answer(&lost(5, 9), &view), "before its time");
    assert!(answered.answer(&lost(12, 12), &view));
    assert!(!answered.answer(&lost(29, 29), &view), "sent before the answer");
    assert!(answered.answer(&lost(30, 30), &view));
    // However long ago the last one was.
    let mut next = Seq::new(30);
    for _ in 0..40 {
        next = next.plus(1 << 28);
        answered.on_ack(next);
    }
    assert!(answered.answer(&lost(next.value(), next.value()), &view));
}
