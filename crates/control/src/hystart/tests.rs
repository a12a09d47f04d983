use farhaul_base::Time;

use super::*;
use crate::tcp_like::tests::{lost, view};
use crate::{Arrival, Cubic, Knobs, Law};

/// A flow in slow start, whose ACKs come one by one.
struct Flow {
    law: Cubic,
    knobs: Knobs,
    next: u32,
    sent: u32,
}

impl Flow {
    fn new(hystart: bool) -> Self {
        let mut law = Cubic::cubic(10.0, 0.4, 0.7, true, true, hystart);
        let mut knobs = Knobs::default();
        law.init(&view(0, 0, Seq::MAX), &mut knobs);
        Flow { law, knobs, next: 0, sent: 10 }
    }

    fn ack(&mut self, rtt_ms: u64) {
        let rtt = Duration::from_millis(rtt_ms);
        let newest =
            Arrival { seq: Seq::new(self.next), rtt, forward: None, tag: 0, delivery: None };
        self.next += 1;
        let view = View {
            now: Time::from_millis(u64::from(self.next)),
            newest: Some(newest),
            largest_acked: Seq::new(self.next - 1),
            ..view(0, self.sent - self.next, self.sent - 1)
        };
        self.law.on_ack(Seq::new(self.next), &view, &mut self.knobs);
        self.sent = self.next + self.knobs.window as u32;
    }

    /// The window after a round trip in which each packet took `rtt_ms`.
    fn round(&mut self, rtt_ms: u64) -> f64 {
        let end = self.sent;
        while self.next < end {
            self.ack(rtt_ms);
        }
        self.knobs.window
    }
}

/// 100 ms: 12.5 ms more begin conservative slow start, in which eight samples are plain; five
/// round trips later avoidance begins.
#[test]
fn a_growing_round_trip_ends_slow_start() {
    let mut flow = Flow::new(true);
    assert_eq!(flow.round(100), 20.0);
    assert_eq!(flow.round(100), 40.0);
    assert_eq!(flow.round(112), 80.0, "not yet");
    // The first packet's ACK ends the round trip before, the next seven are plain.
    assert_eq!(flow.round(126), 80.0 + 7.0 + 73.0 / 4.0);
    let mut window = flow.knobs.window;
    for _ in 0..4 {
        let grown = flow.round(140);
        // Avoidance begins with the last ACK of the fifth.
        assert!((1.2..1.26).contains(&(grown / window)), "{window} {grown}");
        window = grown;
    }
    assert_eq!(flow.law.state(), "slow start");
    let grown = flow.round(140);
    assert!(grown - window < 10.0, "{window} {grown}");
    assert_eq!(flow.law.state(), "avoidance");
    assert!(flow.law.threshold() < 1.01 * window, "{}", flow.law.threshold());
}

#[test]
fn a_round_trip_that_falls_again_resumes_slow_start() {
    let mut flow = Flow::new(true);
    (0..3).for_each(|_| assert!(flow.round(100) > 10.0));
    let before = flow.round(130);
    assert!(before < 2.0 * 80.0 - 40.0, "conservative: {before}");
    let after = flow.round(120);
    assert!(after > 1.9 * before, "resumed: {before} {after}");
}

#[test]
fn the_threshold_is_an_eighth_within_limits() {
    // An eighth of 8 ms is below the least of 4 ms, of 400 ms above the most of 16 ms.
    for (rtt, not_yet, enough) in [(8, 11, 12), (100, 112, 113), (400, 415, 416)] {
        for (grown, expected) in [(not_yet, false), (enough, true)] {
            let mut flow = Flow::new(true);
            flow.round(rtt);
            flow.round(rtt);
            assert_eq!(flow.round(grown) < 80.0, expected, "{rtt} {grown}");
        }
    }
}

#[test]
fn few_samples_say_nothing() {
    let mut hystart = HyStart::default();
    for round in 1..20u32 {
        for sample in 0..7 {
            let rtt = Duration::from_millis(u64::from(100 * round));
            let newest = Arrival { seq: Seq::new(0), rtt, forward: None, tag: 0, delivery: None };
            let acked = Seq::new(100 * round + sample);
            let sent = 100 * (round + 1);
            let view = View { newest: Some(newest), largest_acked: acked, ..view(0, 50, sent) };
            hystart.on_ack(&view);
        }
    }
    assert!(hystart.conservative.is_none());
    assert!(hystart.last.is_some(), "round trips were counted");
}

#[test]
fn it_is_for_the_first_slow_start_alone() {
    let mut flow = Flow::new(true);
    flow.round(100);
    let seq = flow.next;
    flow.law.on_loss(&lost(seq, seq), &view(0, 20, flow.sent - 1), &mut flow.knobs);
    assert!(flow.law.rule().hystart().is_none());
}

#[test]
fn without_it_slow_start_goes_on() {
    let mut flow = Flow::new(false);
    let windows = [100, 120, 140, 160].map(|rtt| flow.round(rtt));
    assert_eq!(windows, [20.0, 40.0, 80.0, 160.0]);
}
