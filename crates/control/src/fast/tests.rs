use farhaul_wire::Seq;

use super::*;
use crate::rounds::tests::acked;
use crate::tcp_like::tests::{lost, view};
use crate::{Knobs, Law};

fn fast(alpha: f64) -> (Fast, Knobs) {
    let mut law = Fast::fast(10.0, alpha, 0.5, 0.5);
    let mut knobs = Knobs::default();
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    (law, knobs)
}

/// Acknowledges `count` packets one by one; each took `rtt_ms`.
fn run(law: &mut Fast, knobs: &mut Knobs, next: &mut u32, count: u32, rtt_ms: f64) {
    for _ in 0..count {
        *next += 1;
        let view = acked(0, *next, knobs.window as u32 - 1, rtt_ms);
        law.on_ack(Seq::new(*next), &view, knobs);
    }
}

#[test]
fn slow_start_ends_with_three_quarters_of_a_millisecond_of_queue() {
    let (mut law, mut knobs) = fast(20.0);
    let mut next = 0;
    run(&mut law, &mut knobs, &mut next, 10, 100.0);
    assert_eq!((knobs.window, law.state()), (20.0, "slow start"));
    // The average follows within a few packets.
    run(&mut law, &mut knobs, &mut next, 30, 100.7);
    assert_eq!((knobs.window, law.state()), (50.0, "slow start"));
    run(&mut law, &mut knobs, &mut next, 60, 101.0);
    assert_eq!(law.state(), "avoidance");
}

/// Equation 4 of the paper, from 100 packets with α = 20, γ = 1/2 and 100 ms without a queue.
#[test]
fn the_window_goes_half_the_way() {
    // At 125 ms a fifth of the window waits: equilibrium. Without a queue 20 more are wanted. At
    // 200 ms half of the window waits, and it is to be 70.
    for (rtt, window) in [(125.0, 100.0), (100.0, 110.0), (200.0, 85.0)] {
        let (mut law, mut knobs) = fast(20.0);
        let mut next = 0;
        run(&mut law, &mut knobs, &mut next, 1, 100.0);
        law.on_loss(&lost(1, 1), &view(0, 10, 10), &mut knobs);
        knobs.window = 100.0;
        // The average is the new time before the second of the rounds ends.
        run(&mut law, &mut knobs, &mut next, 1_000, rtt);
        knobs.window = 100.0;
        // Two rounds at least, in one of which it moves.
        run(&mut law, &mut knobs, &mut next, 199, rtt);
        assert!((knobs.window - window).abs() < 1e-3, "{rtt}: {}", knobs.window);
    }
}

#[test]
fn at_most_twofold() {
    let (mut law, mut knobs) = fast(200.0);
    let mut next = 0;
    run(&mut law, &mut knobs, &mut next, 1, 100.0);
    law.on_loss(&lost(1, 1), &view(0, 10, 10), &mut knobs);
    assert_eq!(knobs.window, 5.5);
    run(&mut law, &mut knobs, &mut next, 11, 100.0);
    let mut windows = vec![knobs.window];
    while windows.len() < 4 {
        run(&mut law, &mut knobs, &mut next, 1, 100.0);
        if windows.last() != Some(&knobs.window) {
            windows.push(knobs.window);
        }
    }
    assert!(windows.windows(2).all(|w| (w[1] / w[0] - 2.0).abs() < 1e-9), "{windows:?}");
}

#[test]
fn the_average_weighs_a_sample_by_the_window() {
    let (mut law, mut knobs) = fast(20.0);
    let mut next = 0;
    run(&mut law, &mut knobs, &mut next, 1, 100.0);
    // Three in 100, and a quarter where the window is small.
    for (window, average) in [(100, 0.1003), (4, 0.1025)] {
        law = fast(20.0).0;
        law.init(&view(0, 0, Seq::MAX), &mut knobs);
        law.on_ack(Seq::new(1), &acked(0, 1, window - 1, 100.0), &mut knobs);
        law.on_ack(Seq::new(2), &acked(0, 2, window - 1, 110.0), &mut knobs);
        assert!((law.rule().rtt - average).abs() < 1e-9, "{}", law.rule().rtt);
    }
}

#[test]
fn losses_and_time_outs() {
    let mut law = Fast::fast(10.0, 20.0, 0.5, 0.875);
    let mut knobs = Knobs::default();
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    knobs.window = 80.0;
    law.on_loss(&lost(1, 1), &view(0, 80, 79), &mut knobs);
    assert_eq!((knobs.window, law.state()), (70.0, "recovery"));
    law.on_timeout(&view(0, 70, 79), &mut knobs);
    assert_eq!((knobs.window, law.threshold(), law.state()), (1.0, 61.25, "slow start"));
}
