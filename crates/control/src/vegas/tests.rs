use farhaul_wire::Seq;

use super::*;
use crate::rounds::tests::acked;
use crate::tcp_like::tests::{lost, view};
use crate::{Knobs, Law};

fn vegas() -> (Vegas, Knobs) {
    let mut law = Vegas::vegas(10.0, 1.0, 3.0, 1.0, false);
    let mut knobs = Knobs::default();
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    (law, knobs)
}

/// Acknowledges all in flight, one by one, `window` of them; each took `rtt_ms`.
fn round(law: &mut Vegas, knobs: &mut Knobs, next: &mut u32, rtt_ms: f64) {
    for _ in 0..knobs.window as u32 {
        *next += 1;
        let view = acked(0, *next, knobs.window as u32 - 1, rtt_ms);
        law.on_ack(Seq::new(*next), &view, knobs);
    }
}

/// The paper's Diff: 20 packets, 100 ms without a queue and 125 ms with one: 200 packets/s are
/// expected and 160 achieved, so that 40 packets/s are lacking, four packets over 100 ms.
#[test]
fn packets_in_the_queue() {
    let (law, _) = vegas();
    let surplus = law.rule().surplus(20.0, 0.125, 0.100, &View::default());
    assert!((surplus - 4.0).abs() < 1e-12, "{surplus}");
    let law = Vegas::vegas(10.0, 30.0, 60.0, 30.0, true);
    let rate = law.rule().surplus(20.0, 0.125, 0.100, &View { mss: 1500, ..View::default() });
    assert!((rate - 40.0 * 12.0).abs() < 1e-9, "12 kb a packet: {rate}");
}

#[test]
fn slow_start_doubles_every_other_round_trip() {
    let (mut law, mut knobs) = vegas();
    let mut next = 0;
    let windows = [0; 6].map(|_| {
        round(&mut law, &mut knobs, &mut next, 100.0);
        knobs.window
    });
    assert_eq!(windows, [20.0, 20.0, 40.0, 40.0, 80.0, 80.0]);
    assert_eq!(law.state(), "slow start");
}

#[test]
fn a_packet_in_the_queue_ends_slow_start() {
    let (mut law, mut knobs) = vegas();
    let mut next = 0;
    // 0.99 packets of 20 in the queue; then two.
    round(&mut law, &mut knobs, &mut next, 100.0);
    round(&mut law, &mut knobs, &mut next, 105.2);
    assert_eq!((knobs.window, law.state()), (20.0, "slow start"));
    let mut law_before = (0.0, 0);
    while law.state() == "slow start" {
        law_before = (knobs.window, next);
        next += 1;
        let view = acked(0, next, knobs.window as u32 - 1, 111.2);
        law.on_ack(Seq::new(next), &view, &mut knobs);
    }
    assert_eq!(knobs.window, law_before.0 * 7.0 / 8.0);
    assert_eq!(law.threshold(), knobs.window);
}

/// The window after each round at these round-trip times, from 20 packets on.
#[test]
fn avoidance_keeps_one_to_three_packets() {
    let mut rule = VegasRule {
        alpha: 1.0,
        beta: 3.0,
        gamma: 1.0,
        rates: false,
        rounds: Rounds::default(),
        round: None,
        measures: false,
    };
    let mut window = 20.0;
    let steps = [
        // 0, 0.9, 1.4, 2.9, 3.2, 3.05 and 2.9 packets of the window.
        (0.1000, 21.0),
        (0.1045, 22.0),
        (0.1066, 22.0),
        (0.1150, 22.0),
        (0.1170, 21.0),
        (0.1170, 20.0),
        (0.1170, 20.0),
    ];
    for (rtt, then) in steps {
        rule.round = Some(Round { least: rtt, last: 0.2, base: 0.1 });
        window = rule.avoid(window, 1.0, &View::default());
        // Nothing more before the next round is over.
        window = rule.avoid(window, 1.0, &View::default());
        assert_eq!(window, then, "{rtt}");
    }
    rule.beta = 0.5;
    rule.round = Some(Round { least: 1.0, last: 1.0, base: 0.1 });
    assert_eq!(rule.avoid(2.5, 1.0, &View::default()), 2.0);
}

#[test]
fn a_quarter_is_given_up_for_a_loss() {
    let (mut law, mut knobs) = vegas();
    knobs.window = 40.0;
    law.on_loss(&lost(1, 1), &view(0, 40, 40), &mut knobs);
    assert_eq!((knobs.window, law.state()), (30.0, "recovery"));
    // A window that then shrinks is not in slow start again.
    law.on_ack(Seq::new(41), &acked(0, 41, 29, 100.0), &mut knobs);
    let mut next = 41;
    while knobs.window >= 30.0 {
        round(&mut law, &mut knobs, &mut next, 150.0);
    }
    assert_eq!((law.threshold(), law.state()), (knobs.window, "avoidance"));
}

#[test]
fn a_time_out_begins_anew() {
    let (mut law, mut knobs) = vegas();
    knobs.window = 40.0;
    law.on_timeout(&view(0, 40, 39), &mut knobs);
    assert_eq!((knobs.window, law.threshold(), law.state()), (1.0, 20.0, "slow start"));
}
