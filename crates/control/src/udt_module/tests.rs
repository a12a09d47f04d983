use super::*;
use crate::udt4::tests::{single, view};

fn begun() -> (UdtModule, Knobs) {
    let (mut law, mut knobs) = (UdtModule::new(3), Knobs::default());
    law.init(&View { delivery_rate: 0.0, ..view(0) }, &mut knobs);
    (law, knobs)
}

#[test]
fn slow_start_leaves_the_period_behind() {
    let (mut law, mut knobs) = begun();
    assert_eq!((knobs.window, knobs.period_ns), (2.0, 1_000.0));
    law.on_ack(Seq::new(110), &view(10), &mut knobs);
    assert_eq!((knobs.window, knobs.period_ns), (12.0, 1_000.0));
    law.on_loss(&single(120), &View { largest_sent: Seq::new(150), ..view(20) }, &mut knobs);
    // The first loss is before what had been sent when the connection began, so it is counted.
    assert_eq!(law.naks, 1);
    law.on_ack(Seq::new(120), &view(40), &mut knobs);
    // 7/8 of 12 and 1/8 of 20,000 packets/s times 50 ms.
    assert!((knobs.window - (12.0 * 0.875 + 1_000.0 * 0.125)).abs() < 1e-9);
}

#[test]
fn increase_runs_on_acks_a_syn_interval_apart() {
    let (mut law, mut knobs) = begun();
    law.slow_start = false;
    knobs.period_ns = 50_000.0;
    law.on_ack(Seq::new(200), &view(5), &mut knobs);
    assert_eq!(knobs.period_ns, 50_000.0);
    law.on_ack(Seq::new(300), &view(12), &mut knobs);
    // 60,000 packets/s free are 720 Mb/s: one packet a SYN more than 200.
    assert!((SYN_NS / knobs.period_ns - 201.0).abs() < 1e-9);
}

#[test]
fn decreases_are_spaced_and_end_at_the_round_trip() {
    let (mut law, mut knobs) = begun();
    law.slow_start = false;
    knobs.period_ns = 100_000.0;
    let later = |sent| View { largest_sent: Seq::new(sent), ..view(100) };
    law.on_loss(&single(5_001), &later(6_000), &mut knobs);
    assert!((knobs.period_ns - 112_500.0).abs() < 1e-6);
    assert_eq!(knobs.pause_until, Time::from_millis(110));
    // 1 + ⌈7/8⌉ is 2, a fifth of it rounded up is 1, and the random part is 0 or 1.
    assert_eq!(law.average_naks, 2.0);
    assert!((1..=2).contains(&law.spacing));
    let spacing = law.spacing;
    for _ in 0..spacing {
        law.on_loss(&single(5_500), &later(6_000), &mut knobs);
    }
    assert!((knobs.period_ns - 126_562.5).abs() < 1e-6);
    knobs.period_ns = 39e6;
    law.on_loss(&single(7_000), &later(8_000), &mut knobs);
    assert_eq!(knobs.period_ns, 40e6);
}

/// A loss told again comes behind a new one in a report: the new one counts.
#[test]
fn the_newest_loss_of_a_report_counts() {
    let (mut law, mut knobs) = begun();
    let told = [single(5_001), single(4_000)].concat();
    law.on_loss(&told, &View { largest_sent: Seq::new(6_000), ..view(100) }, &mut knobs);
    assert_eq!(knobs.pause_until, Time::from_millis(110));
}
