use core::time::Duration;

use super::*;
use crate::Trace;

const MSS: u32 = 1500;

fn view(now_ms: u64) -> View {
    View {
        now: Time::from_millis(now_ms),
        rtt: Duration::from_millis(80),
        rtt_var: Duration::from_millis(5),
        rtt_min: Duration::from_millis(80),
        arrival_rate: 10_000.0,
        delivery_rate: 10_000.0,
        capacity: 16_666.0,
        mss: MSS,
        in_flight: 800,
        flow_window: 25_600,
        max_window: 25_600,
        largest_sent: Seq::new(1_000),
        largest_acked: Seq::new(99),
        trace: Trace { packets_sent: 1_000, ..Trace::default() },
        ..View::default()
    }
}

fn single(seq: u32) -> [LossRange; 1] {
    [LossRange { first: Seq::new(seq), last: Seq::new(seq) }]
}

/// A law in its avoidance phase, at `period_ns`, with no loss before sequence number 2000.
fn avoiding(noisy: bool, period_ns: f64) -> (Udt, Knobs) {
    let mut law = Udt::new(1, 16.0, noisy, 0.02);
    let mut knobs = Knobs::default();
    law.init(&View { delivery_rate: 0.0, ..view(0) }, &mut knobs);
    law.phase = Phase::Avoidance;
    law.epoch.last_decrease = Seq::new(2_000);
    knobs.period_ns = period_ns;
    (law, knobs)
}

/// gu05 Table 2-1, the bounds of each row included.
#[test]
fn increase_of_table_2_1() {
    let mb = 1e6;
    for (available, expected) in [
        (0.0, 0.000_67),
        (-5.0 * mb, 0.000_67),
        (0.05 * mb, 0.000_67),
        (0.1 * mb, 0.000_67),
        (0.11 * mb, 0.001),
        (1.0 * mb, 0.001),
        (1.1 * mb, 0.01),
        (10.0 * mb, 0.01),
        (11.0 * mb, 0.1),
        (100.0 * mb, 0.1),
        (101.0 * mb, 1.0),
        (1000.0 * mb, 1.0),
        (1001.0 * mb, 10.0),
    ] {
        let step = increase_per_syn(available, 1500);
        assert!((step - expected).abs() < 0.01 * expected, "{available}: {step}");
        // Other packet sizes: corrected by 1500 / MSS.
        let jumbo = increase_per_syn(available, 9000);
        assert!((jumbo - step / 6.0).abs() < 1e-12);
    }
}

/// gu05 eq. 3-8 is 2-1 in packets/s: alpha(x) = 10^(ceil(log10(L - C(x))) - 9) 1500/S / SYN.
#[test]
fn increase_of_equation_3_8() {
    let (mut law, mut knobs) = avoiding(false, 1e9 / 4_000.0);
    let view = View { capacity: 100e6 / 12_000.0, ..view(10) };
    law.on_ack(Seq::new(200), &view, &mut knobs);
    // L = 100 Mb/s, C = 48 Mb/s: 52 Mb/s free, 10^(8-9) / 0.01 s = 10 packets/s more.
    let rate = 1e9 / knobs.period_ns;
    assert!((rate - 4_010.0).abs() < 1e-6, "{rate}");
}

/// gu05 eq. 2-2: SYN/P = SYN/P' + inc, once per SYN and not after a NAK.
#[test]
fn period_follows_equation_2_2_once_per_syn() {
    let (mut law, mut knobs) = avoiding(false, 100_000.0);
    let busy = view(10);
    law.on_ack(Seq::new(200), &busy, &mut knobs);
    let expected = SYN_NS / (SYN_NS / 100_000.0 + 0.1);
    assert!((knobs.period_ns - expected).abs() < 1e-6);
    law.on_ack(Seq::new(210), &view(15), &mut knobs);
    assert!((knobs.period_ns - expected).abs() < 1e-6, "within the same SYN");
    law.on_loss(&single(1_500), &view(16), &mut knobs);
    let after_loss = knobs.period_ns;
    law.on_ack(Seq::new(220), &view(30), &mut knobs);
    assert_eq!(knobs.period_ns, after_loss, "a NAK in the last SYN");
    law.on_ack(Seq::new(230), &View { app_limited: true, ..view(50) }, &mut knobs);
    assert_eq!(knobs.period_ns, after_loss, "the application was the limit");
    law.on_ack(Seq::new(240), &view(61), &mut knobs);
    assert!(knobs.period_ns < after_loss);
    // 9 ms later is the next SYN interval all the same.
    let before = knobs.period_ns;
    law.on_ack(Seq::new(250), &view(70), &mut knobs);
    assert!(knobs.period_ns < before);
}

/// gu05 §2.3.2.4: both formulas start from the period really achieved.
#[test]
fn period_is_corrected_by_the_real_sending_rate() {
    let (mut law, mut knobs) = avoiding(false, 100_000.0);
    let held = View { real_period_ns: 400_000.0, ..view(10) };
    law.on_ack(Seq::new(200), &held, &mut knobs);
    let step = increase_per_syn((16_666.0 - 2_500.0) * 12_000.0, MSS);
    assert!((knobs.period_ns - SYN_NS / (25.0 + step)).abs() < 1e-6);
    let (mut law, mut knobs) = avoiding(false, 100_000.0);
    law.on_loss(&single(3_000), &held, &mut knobs);
    assert_eq!(knobs.period_ns, 450_000.0);
}

/// gu05 eq. 2-3 and §2.2.5: the period grows by 1/8, and one SYN of silence follows, only if the
/// loss is beyond the last decrease.
#[test]
fn congestion_event_decreases_and_freezes_one_syn() {
    let (mut law, mut knobs) = avoiding(false, 100_000.0);
    let at = View { largest_sent: Seq::new(3_500), ..view(20) };
    law.on_loss(&single(3_000), &at, &mut knobs);
    assert_eq!(knobs.period_ns, 112_500.0);
    assert_eq!(knobs.pause_until, Time::from_millis(30));
    let later = View { largest_sent: Seq::new(3_500), ..view(40) };
    law.on_loss(&single(3_100), &later, &mut knobs);
    assert_eq!(knobs.pause_until, Time::from_millis(30), "same epoch: no second freeze");
}

/// gu05 Figure 3-6: within an epoch, each DR-th loss event decreases again, at most five in all.
#[test]
fn decreases_within_an_epoch_are_spaced_and_bounded() {
    let (mut law, mut knobs) = avoiding(false, 100_000.0);
    let at = View { largest_sent: Seq::new(9_000), ..view(20) };
    law.on_loss(&single(3_000), &at, &mut knobs);
    law.epoch.spacing = 3;
    let mut decreased_at = Vec::new();
    for nak in 1..=40u32 {
        let before = knobs.period_ns;
        law.on_loss(&single(3_000 + nak), &at, &mut knobs);
        if knobs.period_ns > before {
            decreased_at.push(nak);
        }
    }
    assert_eq!(decreased_at, [3, 6, 9, 12]);
    // The next congestion event averages the 40 NAKs in and draws DR from 1 to that average.
    law.on_loss(&single(9_500), &at, &mut knobs);
    assert!((law.epoch.average_naks - (0.875 * 7.0 + 40.0) / 8.0).abs() < 1e-9);
    assert!((1..=6).contains(&law.epoch.spacing));
}

#[test]
fn slow_start_grows_by_what_is_acknowledged_and_ends_with_a_loss() {
    let mut law = Udt::new(1, 2.0, false, 0.02);
    let mut knobs = Knobs::default();
    law.init(&View { delivery_rate: 0.0, ..view(0) }, &mut knobs);
    assert_eq!((knobs.window, knobs.period_ns), (2.0, 0.0));
    law.on_ack(Seq::new(102), &view(10), &mut knobs);
    law.on_ack(Seq::new(106), &view(20), &mut knobs);
    assert_eq!((knobs.window, knobs.period_ns), (8.0, 0.0));
    let at = View { largest_sent: Seq::new(1_200), ..view(30) };
    law.on_loss(&single(1_100), &at, &mut knobs);
    assert!((knobs.period_ns - 1.125 * 1e9 / 10_000.0).abs() < 1e-6);
    for seq in 1_101..1_200 {
        law.on_loss(&single(seq), &at, &mut knobs);
    }
    assert!((knobs.period_ns - 1.125 * 1e9 / 10_000.0).abs() < 1e-6, "one overshoot, one decrease");
}

#[test]
fn slow_start_ends_at_the_maximum_window() {
    let mut law = Udt::new(1, 16.0, false, 0.02);
    let mut knobs = Knobs::default();
    let small = View { max_window: 32, ..view(0) };
    law.init(&small, &mut knobs);
    law.on_ack(Seq::new(116), &small, &mut knobs);
    assert_eq!(law.phase, Phase::Avoidance);
    // W = AS (SYN + RTT) and its margin.
    assert!((knobs.window - (10_000.0 * 0.09 + 16.0)).abs() < 1e-6);
}

/// Reactions to `losses` losses, each one a loss event of a packet sent just before, `gap` packets
/// apart, at `rtt` packets a round trip.
fn reactions(losses: u32, gap: u32, rtt: u32) -> u32 {
    let (mut law, mut knobs) = avoiding(true, 100_000.0);
    let mut reactions = 0;
    for n in 1..=losses {
        let sent = 3_000 + n * gap;
        let at = View {
            largest_sent: Seq::new(sent + rtt),
            trace: Trace { packets_sent: u64::from(sent), ..Trace::default() },
            ..view(20)
        };
        let before = knobs.period_ns;
        law.on_loss(&single(sent), &at, &mut knobs);
        reactions += u32::from(knobs.period_ns > before);
    }
    reactions
}

#[test]
fn noise_is_a_share_of_packets_however_many_a_round_trip_has() {
    for rtt in [1, 10, 100, 10_000] {
        assert_eq!(reactions(1_000, 60, rtt), 0, "1.7%, {rtt} packets a round trip");
        assert!(reactions(1_000, 25, rtt) > 0, "4%, {rtt} packets a round trip");
    }
}

#[test]
fn noisy_link_answers_a_burst_at_once() {
    let (mut law, mut knobs) = avoiding(true, 100_000.0);
    let at = View { largest_sent: Seq::new(2_999), ..view(20) };
    let burst = [LossRange { first: Seq::new(2_500), last: Seq::new(2_509) }];
    law.on_loss(&burst, &at, &mut knobs);
    assert_eq!(knobs.period_ns, 100_000.0, "chance");
    assert_eq!(knobs.pause_until, Time::ZERO);
    law.on_ack(Seq::new(2_000), &at, &mut knobs);
    assert_eq!(knobs.period_ns, 100_000.0, "but too much of it to go faster");
    law.on_loss(&single(2_600), &at, &mut knobs);
    assert_eq!(knobs.period_ns, 112_500.0, "congestion");
    assert_eq!(knobs.pause_until, Time::from_millis(30));
    law.on_loss(&single(2_601), &at, &mut knobs);
    assert_eq!(knobs.period_ns, 112_500.0, "the account begins anew");
}

/// gu05 §3.4: L' = (1 + epsilon) L.
#[test]
fn capacity_error_changes_the_stage() {
    let view = View { capacity: 100e6 / 12_000.0, ..view(10) };
    for (error, increase) in [(0.0, 0.1), (0.6, 1.0), (-0.47, 0.01), (-0.6, MIN_INCREASE)] {
        let (law, mut knobs) = avoiding(false, 1e9 / 4_000.0);
        law.with_capacity_error(error).on_ack(Seq::new(200), &view, &mut knobs);
        let rate = 1e9 / knobs.period_ns;
        assert!((rate - 4_000.0 - increase * 100.0).abs() < 1e-6, "{error}: {rate}");
    }
}

#[test]
fn a_loss_before_any_estimate_leaves_a_window_every_round_trip() {
    let mut law = Udt::new(1, 16.0, false, 0.02);
    let mut knobs = Knobs::default();
    law.init(&View { delivery_rate: 0.0, ..view(0) }, &mut knobs);
    // The first packet has been acknowledged after a round trip: 12 packets/s, says that.
    let early = View { arrival_rate: 0.0, delivery_rate: 12.0, ..view(81) };
    law.on_loss(&single(110), &early, &mut knobs);
    assert!((knobs.period_ns - 1.125 * 90e6 / 16.0).abs() < 1e-6, "{}", knobs.period_ns);
}

#[test]
fn a_flow_that_lost_nearly_everything_recovers() {
    let mut law = Udt::new(1, 16.0, false, 0.02);
    let mut knobs = Knobs::default();
    let starved = View { arrival_rate: 0.5, delivery_rate: 0.5, capacity: 0.0, ..view(0) };
    law.init(&starved, &mut knobs);
    law.on_loss(&single(1_500), &starved, &mut knobs);
    assert!(knobs.period_ns <= 80e6, "no slower than one packet a round trip");
    for round in 1..=100 {
        let at = View { now: Time::from_millis(10 * round), ..starved };
        law.on_ack(Seq::new(2_000 + round as u32), &at, &mut knobs);
    }
    let rate = 1e9 / knobs.period_ns;
    assert!(rate > 900.0, "a second later: {rate} packets/s");
}
