use super::*;
use crate::rounds::tests::acked;
use crate::tcp_like::tests::{lost, view};

fn copa() -> (Copa, Knobs) {
    let mut law = Copa::new(10.0, 0.5, true);
    let mut knobs = Knobs::default();
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    (law, knobs)
}

/// A round trip of ACKs for one packet each, that took `rtt_ms`; the window is in use.
fn round(law: &mut Copa, knobs: &mut Knobs, next: &mut u32, now_ms: &mut u64, rtt_ms: f64) {
    let window = knobs.window as u32;
    *now_ms += rtt_ms as u64;
    for _ in 0..window {
        *next += 1;
        let view = acked(*now_ms, *next, window - 1, rtt_ms);
        law.on_ack(Seq::new(*next), &view, knobs);
    }
}

#[test]
fn slow_start_doubles_until_the_target_is_exceeded() {
    let (mut law, mut knobs) = copa();
    let (mut next, mut now) = (0, 0);
    round(&mut law, &mut knobs, &mut next, &mut now, 100.0);
    assert_eq!((knobs.window, law.state()), (20.0, "slow start"));
    // 2w/RTTstanding: 400 packets a second.
    assert!((knobs.period_ns - 2.5e6).abs() < 1e-6, "{}", knobs.period_ns);
    round(&mut law, &mut knobs, &mut next, &mut now, 102.0);
    assert_eq!((knobs.window, law.state()), (40.0, "slow start"));
    // 1/(δ d) = 2/5 ms = 400 packets a second; 40 packets in 105 ms are 381, and 42 are more.
    round(&mut law, &mut knobs, &mut next, &mut now, 105.0);
    assert_eq!(law.state(), "default");
    // Two packets up or down in a round trip (v/δ), hence about where target and rate are equal.
    assert!((knobs.window - 42.0).abs() < 0.5, "{}", knobs.window);
}

#[test]
fn the_velocity_doubles_after_three_rounds_one_way() {
    let (mut law, mut knobs) = copa();
    let (mut next, mut now) = (0, 0);
    round(&mut law, &mut knobs, &mut next, &mut now, 100.0);
    law.slow = false;
    knobs.window = 200.0;
    law.window_before = 200.0;
    let velocities = [0; 7].map(|_| {
        round(&mut law, &mut knobs, &mut next, &mut now, 100.0);
        law.velocity
    });
    // The first has just begun; three that grew are followed by a fourth.
    assert_eq!(velocities, [1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 8.0]);
    // A queue of 100 ms: the window comes down, by the old velocity to the end of the round.
    let top = knobs.window;
    for _ in 0..3 {
        round(&mut law, &mut knobs, &mut next, &mut now, 200.0);
    }
    assert!(knobs.window < top, "{top} {}", knobs.window);
    assert_eq!(law.velocity, 1.0);
}

#[test]
fn a_round_trip_at_most_doubles_the_window() {
    let (mut law, mut knobs) = copa();
    let (mut next, mut now) = (0, 0);
    round(&mut law, &mut knobs, &mut next, &mut now, 100.0);
    (law.slow, law.velocity, knobs.window) = (false, 4096.0, 4.0);
    // A round begins, and does not end before that is over.
    law.rounds = Rounds::default();
    for _ in 0..4 {
        next += 1;
        let view = acked(now, next, 100, 100.0);
        law.on_ack(Seq::new(next), &view, &mut knobs);
    }
    assert_eq!(knobs.window, 8.0);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let (mut law, mut knobs) = copa();
    let mut now = 0;
    for next in 1..100 {
        now += 100;
        law.on_ack(Seq::new(next), &acked(now, next, 2, 100.0), &mut knobs);
    }
    assert_eq!((knobs.window, law.velocity), (10.0, 1.0));
}

#[test]
fn it_competes_while_the_queue_is_never_empty() {
    let (mut law, mut knobs) = copa();
    let (mut next, mut now) = (0, 0);
    round(&mut law, &mut knobs, &mut next, &mut now, 100.0);
    // Somebody else keeps 80 to 100 ms of queue: after five round trips that is plain.
    for trip in 0..8 {
        let rtt = 180.0 + f64::from(trip % 3) * 10.0;
        round(&mut law, &mut knobs, &mut next, &mut now, rtt);
    }
    assert_eq!(law.state(), "competitive");
    let delta = law.delta;
    round(&mut law, &mut knobs, &mut next, &mut now, 190.0);
    assert!((1.0 / law.delta - 1.0 / delta - 1.0).abs() < 1e-9, "1/δ grows by one a round trip");
    // A loss halves 1/δ, once a round trip.
    law.on_loss(&lost(next, next), &view(now, 10, next + 10), &mut knobs);
    let halved = law.delta;
    law.on_loss(&lost(next + 1, next + 2), &view(now, 10, next + 10), &mut knobs);
    assert!(law.delta == halved && halved <= 0.5, "{halved}");
    // The queue is empty for once.
    round(&mut law, &mut knobs, &mut next, &mut now, 101.0);
    round(&mut law, &mut knobs, &mut next, &mut now, 101.0);
    assert_eq!((law.state(), law.delta), ("default", 0.5));
}

#[test]
fn alone_a_loss_is_no_sign_of_congestion_but_a_time_out_is() {
    let (mut law, mut knobs) = copa();
    let (mut next, mut now) = (0, 0);
    round(&mut law, &mut knobs, &mut next, &mut now, 100.0);
    law.on_loss(&lost(next, next), &view(now, 20, next + 20), &mut knobs);
    assert_eq!((knobs.window, law.delta), (20.0, 0.5));
    law.on_timeout(&view(now, 20, next + 20), &mut knobs);
    assert_eq!((knobs.window, law.state()), (2.0, "slow start"));
}
