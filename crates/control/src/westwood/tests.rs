use farhaul_wire::Seq;

use super::*;
use crate::tcp_like::tests::{lost, view};
use crate::{Knobs, Law};

fn rule(plus: bool) -> WestwoodRule {
    WestwoodRule { plus, rate: 0.0, inner: 0.0, since: None }
}

/// Told by an ACK at `now_us` of so many packets that have arrived.
fn told(now_us: u64, delivered: u64) -> View {
    View { now: Time::from_micros(now_us), delivered, ..view(0, 0, 0) }
}

/// Weights 19/21 for the estimate, 1/21 each for the sample and the one before.
#[test]
fn the_filter_of_westwood() {
    let mut westwood = rule(false);
    let mut estimates = Vec::new();
    for sample in [2_100.0, 2_100.0, 0.0] {
        westwood.filter(sample);
        estimates.push(westwood.rate);
    }
    assert_eq!(estimates[0], 100.0);
    assert!((estimates[1] - (19.0 * 100.0 + 4_200.0) / 21.0).abs() < 1e-9);
    assert!((estimates[2] - (19.0 * estimates[1] + 2_100.0) / 21.0).abs() < 1e-9);
    (0..200).for_each(|_| westwood.filter(500.0));
    assert!((westwood.rate - 500.0).abs() < 0.01, "{}", westwood.rate);
}

/// The first sample fills both stages; then 7/8 of the old, twice.
#[test]
fn the_filter_of_westwood_plus() {
    let mut westwood = rule(true);
    westwood.filter(640.0);
    assert_eq!((westwood.inner, westwood.rate), (640.0, 640.0));
    westwood.filter(1_280.0);
    assert_eq!((westwood.inner, westwood.rate), (720.0, 650.0));
    westwood.filter(720.0);
    assert_eq!((westwood.inner, westwood.rate), (720.0, 658.75));
}

#[test]
fn a_sample_lasts_a_round_trip_and_50_ms_at_least() {
    for (rtt_ms, span_us) in [(100, 100_000), (10, 50_000)] {
        let mut westwood = rule(true);
        let rtt = Duration::from_millis(rtt_ms);
        let mut taken = Vec::new();
        // Two packets acknowledged each millisecond.
        for now in (0..=250_000).step_by(1_000) {
            westwood.observe(2, &View { rtt, ..told(now, 2 * now / 1_000) });
            if westwood.since.map(|(at, _)| at) == Some(Time::from_micros(now)) {
                taken.push(now);
            }
        }
        let expected: Vec<u64> = (0..=250_000).step_by(span_us).collect();
        assert_eq!(taken, expected, "the first begins with the first ACK");
        assert_eq!(westwood.rate, 2_000.0);
    }
}

/// 1000 packets/s in bunches of ten, two to an ACK and 100 us apart: the ACKs of a bunch follow each
/// other at 20,000 packets/s, and Westwood takes that for the path's rate.
#[test]
fn acks_in_bunches_mislead_westwood_and_not_westwood_plus() {
    let estimate = |plus| {
        let mut westwood = rule(plus);
        for bunch in 0..200u64 {
            for ack in 0..5 {
                westwood.observe(2, &told(10_000 * bunch + 100 * ack, 10 * bunch + 2 * ack));
            }
        }
        westwood.rate
    };
    assert!((estimate(true) / 1_000.0 - 1.0).abs() < 0.01, "{}", estimate(true));
    assert!(estimate(false) > 10_000.0, "{}", estimate(false));
}

#[test]
fn acks_at_one_instant_are_one_sample() {
    let mut westwood = rule(false);
    for (now, delivered) in [(0, 0), (1_000, 2), (1_000, 4), (1_000, 6), (2_000, 8)] {
        westwood.observe(2, &told(now, delivered));
    }
    // 2 packets, and 6 in the next millisecond.
    assert!((westwood.rate - (19.0 * 2_000.0 / 21.0 + 8_000.0) / 21.0).abs() < 1e-9);
}

#[test]
fn a_trace() {
    let mut law = Westwood::westwood(10.0, true);
    let mut knobs = Knobs::default();
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    let at = |now_ms, delivered, window| {
        let now = Time::from_millis(now_ms);
        View { now, delivered, ..view(0, window, 10_000) }
    };
    // No sample yet: a loss halves, as Reno's does.
    knobs.window = 64.0;
    law.on_loss(&lost(1, 1), &view(0, 64, 99), &mut knobs);
    assert_eq!(knobs.window, 32.0);
    // 500 packets/s at a smallest RTT of 100 ms: 50 packets, however large the window.
    law.on_ack(Seq::new(101), &at(1_000, 100, 32), &mut knobs);
    law.on_ack(Seq::new(151), &at(1_100, 150, 32), &mut knobs);
    knobs.window = 80.0;
    law.on_loss(&lost(200, 200), &at(1_150, 175, 80), &mut knobs);
    assert_eq!(knobs.window, 50.0);
    // The smallest RTT counts, not the present one; and no loss widens the window.
    let mut law = Westwood::new(WestwoodRule { rate: 500.0, ..rule(true) }, 10.0);
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    knobs.window = 30.0;
    let queued = View { rtt: Duration::from_secs(1), ..at(0, 0, 30) };
    law.on_loss(&lost(1, 1), &queued, &mut knobs);
    assert_eq!(knobs.window, 30.0);
    law.on_timeout(&queued, &mut knobs);
    assert_eq!((knobs.window, law.threshold()), (1.0, 50.0));
    // It grows as Reno does.
    assert_eq!(rule(true).avoid(20.0, 20.0, &queued), 21.0);
}
