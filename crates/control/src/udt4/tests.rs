use core::time::Duration;

use super::*;

pub(crate) fn view(now_ms: u64) -> View {
    View {
        now: Time::from_millis(now_ms),
        rtt: Duration::from_millis(40),
        rtt_min: Duration::from_millis(40),
        arrival_rate: 20_000.0,
        delivery_rate: 20_000.0,
        capacity: 80_000.0,
        in_flight: 800,
        flow_window: 25_600,
        max_window: 25_600,
        largest_sent: Seq::new(5_000),
        largest_acked: Seq::new(99),
        ..View::default()
    }
}

pub(crate) fn single(seq: u32) -> [LossRange; 1] {
    [LossRange { first: Seq::new(seq), last: Seq::new(seq) }]
}

fn avoiding(period_ns: f64) -> (Udt4, Knobs) {
    let mut law = Udt4::new(3);
    let mut knobs = Knobs::default();
    law.init(&View { delivery_rate: 0.0, ..view(0) }, &mut knobs);
    law.slow_start = false;
    knobs.period_ns = period_ns;
    (law, knobs)
}

/// inc = max(10^ceil(log10(8 B MSS)) 1.5e-6 / MSS, 0.01) packets a SYN.
#[test]
fn increase_by_decade_with_floor() {
    let (law, _) = avoiding(1_000.0);
    let at = |capacity: f64, rate: f64| {
        let view = View { capacity, ..view(10) };
        Udt4 { last_decrease_period_ns: 1e12, rng: Rng::new(1), ..law_like(&law) }
            .increase(&view, 1e9 / rate)
    };
    // 60,000 packets/s free are 720 Mb/s: decade 9, one packet.
    assert!((at(80_000.0, 20_000.0) - 1.0).abs() < 1e-9);
    // 5,000 packets/s are 60 Mb/s: decade 8, a tenth.
    assert!((at(25_000.0, 20_000.0) - 0.1).abs() < 1e-9);
    assert_eq!(at(20_000.0, 20_000.0), MIN_INCREASE);
    assert_eq!(at(20_050.0, 20_000.0), MIN_INCREASE);
    assert_eq!(at(0.0, 20_000.0), MIN_INCREASE);
}

fn law_like(law: &Udt4) -> Udt4 {
    Udt4 { rng: law.rng.clone(), ..Udt4::new(3) }
}

#[test]
fn below_the_last_decrease_the_aim_is_a_ninth_of_capacity() {
    let (mut law, _) = avoiding(1_000.0);
    law.last_decrease_period_ns = 40_000.0;
    // 80,000 / 9 packets/s are 107 Mb/s: decade 9; without the cap 720 Mb/s: decade 9 as well.
    assert!((law.increase(&view(10), 50_000.0) - 1.0).abs() < 1e-9);
    // 8,000 / 9 are 10.7 Mb/s: decade 8, where the free 7,000 packets/s are 84 Mb/s: decade 8.
    let slow = View { capacity: 7_000.0, ..view(10) };
    // 7,000 / 9 are 9.3 Mb/s: decade 7 with the cap, 8 without.
    assert!((law.increase(&slow, 1e6) - 0.01).abs() < 1e-9);
    law.last_decrease_period_ns = 1e9;
    assert!((law.increase(&slow, 1e6) - 0.1).abs() < 1e-9);
}

#[test]
fn decrease_is_not_rounded_to_microseconds() {
    let (mut law, mut knobs) = avoiding(1_000.0);
    law.on_loss(&single(6_000), &view(10), &mut knobs);
    assert_eq!(knobs.period_ns, 1_125.0);
}

#[test]
fn at_most_five_decreases_a_period() {
    let (mut law, mut knobs) = avoiding(100_000.0);
    let at = View { largest_sent: Seq::new(9_000), ..view(10) };
    law.on_loss(&single(6_000), &at, &mut knobs);
    law.spacing = 1;
    for seq in 6_001..6_100 {
        law.on_loss(&single(seq), &at, &mut knobs);
    }
    let expected = (0..5).fold(100_000.0, |period, _| period * DECREASE);
    assert!((knobs.period_ns - expected).abs() < 1e-6);
}

#[test]
fn slow_start_leaves_for_the_arrival_speed_less_one_decrease() {
    let mut law = Udt4::new(3);
    let mut knobs = Knobs::default();
    law.init(&View { delivery_rate: 0.0, ..view(0) }, &mut knobs);
    law.on_ack(Seq::new(116), &view(10), &mut knobs);
    assert_eq!(knobs.window, 32.0);
    law.on_ack(Seq::new(120), &view(15), &mut knobs);
    assert_eq!(knobs.window, 32.0, "once per SYN");
    let overshoot = View { largest_sent: Seq::new(400), ..view(20) };
    law.on_loss(&single(200), &overshoot, &mut knobs);
    assert_eq!(knobs.period_ns, 56_250.0);
    for seq in 201..=400 {
        law.on_loss(&single(seq), &overshoot, &mut knobs);
    }
    assert_eq!(knobs.period_ns, 56_250.0, "the rest of the overshoot");
    law.loss = false;
    law.on_ack(Seq::new(300), &view(30), &mut knobs);
    assert!(knobs.period_ns < 56_250.0);
    assert!((knobs.window - (20_000.0 * 0.05 + 16.0)).abs() < 1e-9);
}

#[test]
fn an_unknown_arrival_speed_does_not_stop_the_flow() {
    let mut law = Udt4::new(3);
    let mut knobs = Knobs::default();
    law.init(&View { delivery_rate: 0.0, ..view(0) }, &mut knobs);
    let early = View { arrival_rate: 0.0, ..view(5) };
    law.on_loss(&single(110), &early, &mut knobs);
    assert!((knobs.period_ns - 1.125 * 50e6 / 16.0).abs() < 1e-6, "a window every RTT + SYN");
}
