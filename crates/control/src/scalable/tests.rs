use farhaul_base::math::ln;
use farhaul_wire::Seq;

use super::*;
use crate::tcp_like::tests::{lost, view};
use crate::{Knobs, Law};

fn rule() -> ScalableRule {
    ScalableRule { low_window: 16.0, a: 0.01, b: 0.125 }
}

#[test]
fn in_proportion_above_the_low_window_and_tcp_up_to_it() {
    let view = view(0, 0, 0);
    assert_eq!(rule().avoid(100.0, 100.0, &view), 101.0);
    assert_eq!(rule().decrease(100.0, &view), 87.5);
    assert_eq!(rule().avoid(16.0, 8.0, &view), 16.5);
    assert_eq!(rule().decrease(16.0, &view), 8.0);
    // The dissertation's threshold.
    let mut thesis = ScalableRule { low_window: 38.0, ..rule() };
    assert_eq!((thesis.decrease(38.0, &view), thesis.decrease(40.0, &view)), (19.0, 35.0));
}

/// ln(1 / (1 - b)) / ln(1 + a) = 13.4 round trips, whatever the window.
#[test]
fn a_loss_is_made_good_in_the_same_time_at_any_window() {
    assert!((ln(1.0 / 0.875) / ln(1.01) - 13.4).abs() < 0.05);
    for before in [100.0, 1e3, 1e5] {
        let view = view(0, 0, 0);
        let mut window = rule().decrease(before, &view);
        let mut rounds = 0;
        while window < before {
            window = rule().avoid(window, window, &view);
            rounds += 1;
        }
        assert_eq!(rounds, 14, "{before}");
    }
}

#[test]
fn a_trace() {
    let mut law = Scalable::scalable(10.0, 16.0, 0.01, 0.125);
    let mut knobs = Knobs::default();
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    let mut trace = vec![knobs.window];
    let mut ack = |law: &mut Scalable, knobs: &mut Knobs, next| {
        law.on_ack(Seq::new(next), &view(0, knobs.window as u32, 200), knobs);
        trace.push((knobs.window * 1e3).round() / 1e3);
    };
    ack(&mut law, &mut knobs, 10);
    ack(&mut law, &mut knobs, 30);
    ack(&mut law, &mut knobs, 70);
    law.on_loss(&lost(75, 75), &view(0, 80, 149), &mut knobs);
    law.on_loss(&lost(90, 90), &view(0, 80, 149), &mut knobs);
    // Repaired; then 70 packets in two ACKs.
    ack(&mut law, &mut knobs, 151);
    ack(&mut law, &mut knobs, 201);
    ack(&mut law, &mut knobs, 221);
    law.on_timeout(&view(0, 70, 300), &mut knobs);
    ack(&mut law, &mut knobs, 222);
    ack(&mut law, &mut knobs, 224);
    assert_eq!(trace, [10.0, 20.0, 40.0, 80.0, 70.0, 70.5, 70.7, 2.0, 4.0]);
    assert!((law.threshold() - 70.7 * 0.875).abs() < 1e-9);
}
