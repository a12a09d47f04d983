use super::*;
use crate::rounds::tests::acked;
use crate::tcp_like::tests::{lost, view};

fn ledbat(target: f64, slow_start: bool) -> (Ledbat, Knobs) {
    let mut law = Ledbat::new(2.0, target, 1.0, 10, slow_start);
    let mut knobs = Knobs::default();
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    (law, knobs)
}

/// An ACK for one packet, with the window in use.
fn ack(law: &mut Ledbat, knobs: &mut Knobs, next: &mut u32, now_ms: u64, rtt_ms: f64) {
    *next += 1;
    let view = acked(now_ms, *next, knobs.window as u32 - 1, rtt_ms);
    law.on_ack(Seq::new(*next), &view, knobs);
}

/// The window after each ACK: GAIN off_target / cwnd a packet, off_target from 1 without a queue to
/// 0 at the target and below beyond it (RFC 6817 §2.4.2).
#[test]
fn the_window_follows_the_distance_to_the_target() {
    let (mut law, mut knobs) = ledbat(0.1, false);
    let mut next = 0;
    ack(&mut law, &mut knobs, &mut next, 0, 50.0);
    assert_eq!((knobs.window, knobs.ack_interval), (2.5, 2));
    // The least of four samples is what counts: the delay has grown when all have.
    for (rtt, window) in [(100.0, 10.1), (100.0, 10.2), (100.0, 10.3)] {
        knobs.window = window - 0.1;
        let before = knobs.window;
        ack(&mut law, &mut knobs, &mut next, 0, rtt);
        assert!((knobs.window - before - 1.0 / before).abs() < 1e-9, "{}", knobs.window);
    }
    let mut step = |rtt: f64| {
        knobs.window = 10.0;
        for _ in 0..CURRENT_FILTER {
            knobs.window = 10.0;
            ack(&mut law, &mut knobs, &mut next, 0, rtt);
        }
        ((knobs.window - 10.0) * 1e6).round() / 1e6
    };
    assert_eq!(step(100.0), 0.05, "half way to the target");
    assert_eq!(step(150.0), 0.0, "at the target");
    assert_eq!(step(200.0), -0.05);
    assert_eq!(step(350.0), -0.2);
    assert_eq!(law.state(), "yielding");
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let (mut law, mut knobs) = ledbat(0.1, false);
    knobs.window = 10.0;
    law.on_ack(Seq::new(1), &acked(0, 1, 4, 50.0), &mut knobs);
    assert_eq!(knobs.window, 6.0, "5 were in flight, and ALLOWED_INCREASE is 1");
}

#[test]
fn half_at_a_loss_once_a_round_trip() {
    let (mut law, mut knobs) = ledbat(0.1, false);
    knobs.window = 20.0;
    law.on_loss(&lost(3, 4), &view(0, 20, 19), &mut knobs);
    law.on_loss(&lost(10, 10), &view(0, 20, 25), &mut knobs);
    assert_eq!(knobs.window, 10.0);
    law.on_loss(&lost(20, 20), &view(0, 20, 25), &mut knobs);
    assert_eq!(knobs.window, 5.0);
    knobs.window = 2.5;
    law.on_loss(&lost(26, 26), &view(0, 2, 27), &mut knobs);
    assert_eq!(knobs.window, 2.0);
    law.on_timeout(&view(0, 2, 27), &mut knobs);
    assert_eq!(knobs.window, 1.0);
    law.on_loss(&lost(27, 27), &view(0, 2, 27), &mut knobs);
    assert_eq!(knobs.window, 1.0, "sent before the time-out");
}

#[test]
fn the_shortest_delay_is_forgotten_by_minutes() {
    let (mut law, _) = ledbat(0.1, false);
    let minute = |n: u64| Time::from_secs(60 * n);
    law.measure(minute(0), 0.050);
    for n in 0..=10 {
        // A route that is 30 ms longer.
        for _ in 0..CURRENT_FILTER {
            law.measure(minute(n), 0.080);
        }
        let queue = law.queue().unwrap();
        let expected = if n < 10 { 0.030 } else { 0.0 };
        assert!((queue - expected).abs() < 1e-12, "minute {n}: {queue}");
    }
    law.measure(minute(10), 0.060);
    assert_eq!(law.queue(), Some(0.0), "a shorter one counts at once");
}

#[test]
fn slow_start_ends_below_the_target() {
    let (mut law, mut knobs) = ledbat(0.1, true);
    let mut next = 0;
    for _ in 0..2 {
        ack(&mut law, &mut knobs, &mut next, 0, 50.0);
    }
    assert_eq!((knobs.window, law.state()), (4.0, "slow start"));
    for _ in 0..CURRENT_FILTER {
        ack(&mut law, &mut knobs, &mut next, 0, 126.0);
    }
    assert_eq!(law.state(), "below target");
    assert!(knobs.window < 7.1, "{}", knobs.window);
}
