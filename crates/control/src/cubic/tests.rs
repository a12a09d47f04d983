use farhaul_wire::Seq;

use super::*;
use crate::tcp_like::tests::{lost, view};
use crate::{Knobs, Law};

/// After the first loss at a window of `window`, which is repaired at once.
fn after_loss(window: f64, friendly: bool) -> (Cubic, Knobs) {
    let mut law = Cubic::cubic(10.0, 0.4, 0.7, true, friendly, false);
    let mut knobs = Knobs::default();
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    knobs.window = window;
    law.on_loss(&lost(0, 0), &view(0, 100, 99), &mut knobs);
    law.on_ack(Seq::new(100), &view(0, 70, 170), &mut knobs);
    (law, knobs)
}

/// Acknowledges a window's worth each 100 ms, one by one, until `end_ms`.
fn run(law: &mut Cubic, knobs: &mut Knobs, next: &mut u32, from_ms: u64, end_ms: u64) {
    for now in (from_ms..end_ms).step_by(100) {
        let window = knobs.window as u32;
        for _ in 0..window {
            *next += 1;
            law.on_ack(Seq::new(*next), &view(now, window, *next + window), knobs);
        }
    }
}

/// K = cbrt((100 - 70) / 0.4) = 4.217 s.
#[test]
fn the_plateau_is_reached_after_k() {
    let (mut law, mut knobs) = after_loss(100.0, false);
    assert_eq!(knobs.window, 70.0);
    let mut next = 100;
    run(&mut law, &mut knobs, &mut next, 0, 100);
    let epoch = law.rule().epoch.as_ref().expect("the stage has begun");
    assert!((epoch.k - 4.217).abs() < 5e-4, "{}", epoch.k);
    assert_eq!(epoch.origin, 100.0);
    // Half way in time, seven eighths of the way up.
    run(&mut law, &mut knobs, &mut next, 100, 2_110);
    assert!((knobs.window - 96.25).abs() < 1.0, "{}", knobs.window);
    run(&mut law, &mut knobs, &mut next, 2_110, 4_217);
    assert!((knobs.window - 100.0).abs() < 0.2, "{}", knobs.window);
    // As long again: as far above as it began below.
    run(&mut law, &mut knobs, &mut next, 4_217, 8_434);
    assert!((knobs.window - 130.0).abs() < 1.5, "{}", knobs.window);
}

#[test]
fn a_round_trip_adds_at_most_half() {
    let (mut law, mut knobs) = after_loss(100.0, false);
    let mut next = 100;
    run(&mut law, &mut knobs, &mut next, 0, 100);
    // A minute later the curve is at 69,000 packets.
    let before = knobs.window;
    run(&mut law, &mut knobs, &mut next, 60_000, 60_100);
    assert!(knobs.window > 1.4 * before && knobs.window < 1.66 * before, "{}", knobs.window);
}

#[test]
fn fast_convergence_aims_lower() {
    let (mut law, mut knobs) = after_loss(100.0, true);
    law.on_loss(&lost(150, 150), &view(10, 70, 170), &mut knobs);
    assert!((knobs.window - 49.0).abs() < 1e-9);
    assert!((law.rule().w_max.expect("a loss") - 70.0 * 0.85).abs() < 1e-9);
    // Above the last one it is not needed.
    law.on_ack(Seq::new(200), &view(20, 49, 250), &mut knobs);
    knobs.window = 80.0;
    law.on_loss(&lost(240, 240), &view(30, 80, 280), &mut knobs);
    assert_eq!(law.rule().w_max, Some(80.0));
}

/// At short round trips and small windows Reno is faster: 0.529 packets a round trip, and 1 once it
/// is where it was before the loss.
#[test]
fn never_slower_than_reno() {
    let (mut law, mut knobs) = after_loss(20.0, true);
    let mut next = 100;
    let mut step = |law: &mut Cubic, knobs: &mut Knobs, now_us: u64, rounds: u32| {
        let before = knobs.window;
        for round in 0..rounds {
            let window = knobs.window as u32;
            let now = Time::from_micros(now_us) + Duration::from_millis(1) * round;
            for _ in 0..window {
                next += 1;
                let rtt = Duration::from_millis(1);
                let view = View { now, rtt, ..view(0, window, next + window) };
                law.on_ack(Seq::new(next), &view, knobs);
            }
        }
        (knobs.window - before) / f64::from(rounds)
    };
    let slope = step(&mut law, &mut knobs, 0, 10);
    assert!((slope - 0.529).abs() < 0.02, "{slope}");
    let back = step(&mut law, &mut knobs, 10_000, 4);
    assert!(knobs.window > 20.0 && back > 0.5, "{back}");
    let slope = step(&mut law, &mut knobs, 20_000, 10);
    assert!((slope - 1.0).abs() < 0.05, "{slope}");
}

#[test]
fn the_stage_after_a_time_out_begins_on_the_plateau() {
    let (mut law, mut knobs) = after_loss(100.0, false);
    law.on_timeout(&view(100, 70, 170), &mut knobs);
    assert_eq!((knobs.window, law.threshold()), (1.0, 49.0));
    let mut next = 170;
    run(&mut law, &mut knobs, &mut next, 1_000, 2_000);
    let epoch = law.rule().epoch.as_ref().expect("the stage has begun");
    assert_eq!((epoch.k, epoch.origin), (0.0, 49.0));
}

#[test]
fn time_without_data_does_not_count() {
    let (mut law, mut knobs) = after_loss(100.0, false);
    let mut next = 100;
    run(&mut law, &mut knobs, &mut next, 0, 1_000);
    next += 1;
    let idle = View { app_limited: true, ..view(1_000, 1, next) };
    law.on_ack(Seq::new(next), &idle, &mut knobs);
    let before = knobs.window;
    // A minute of silence, and the curve goes on where it was.
    run(&mut law, &mut knobs, &mut next, 61_000, 61_100);
    assert!(knobs.window - before < 3.0, "{before} {}", knobs.window);
}
