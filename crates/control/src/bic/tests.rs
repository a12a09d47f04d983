use farhaul_wire::Seq;

use super::*;
use crate::tcp_like::tests::{lost, view};
use crate::{Knobs, Law};

fn rule() -> BicRule {
    BicRule {
        s_max: 32.0,
        s_min: 0.01,
        b: 0.125,
        low_window: 14.0,
        fast_convergence: true,
        max: 0.0,
    }
}

/// The window after each of `rounds` round trips, whose packets are acknowledged at once.
fn rounds(rule: &mut BicRule, mut window: f64, rounds: usize) -> Vec<f64> {
    let round = |_| {
        window = rule.avoid(window, window, &view(0, 0, 0));
        window
    };
    (0..rounds).map(round).collect()
}

/// After a loss at 1024: steps of 32 while the middle is farther than that, then the middle between
/// the window and the maximum.
#[test]
fn the_search() {
    let mut bic = rule();
    let after = bic.decrease(1024.0, &view(0, 0, 0));
    assert_eq!((after, bic.max), (896.0, 1024.0));
    let windows = rounds(&mut bic, after, 10);
    let expected = [928.0, 960.0, 992.0, 1008.0, 1016.0, 1020.0, 1022.0, 1023.0, 1023.5, 1023.75];
    assert_eq!(windows, expected);
    // The least step ends it.
    assert_eq!(rounds(&mut bic, 1023.98, 2), [1023.99, 1024.0]);
}

/// Beyond the maximum: one packet, two, four, up to the longest step.
#[test]
fn the_probing() {
    let mut bic = BicRule { max: 1024.0, ..rule() };
    let expected = [1025.0, 1027.0, 1031.0, 1039.0, 1055.0, 1087.0, 1119.0, 1151.0];
    assert_eq!(rounds(&mut bic, 1024.0, 8), expected);
    let mut bic = BicRule { s_max: 20.0, ..bic };
    assert_eq!(rounds(&mut bic, 1039.0, 3), [1055.0, 1075.0, 1095.0]);
}

/// One ACK at a time the middle moves on with the window, as in the paper's pseudo-code: in a round
/// trip the distance shrinks to e^-1/2, and not to a half.
#[test]
fn the_search_by_single_acks() {
    let mut bic = BicRule { max: 1020.0, ..rule() };
    let mut window = 1000.0;
    for _ in 0..1010 {
        window = bic.avoid(window, 1.0, &view(0, 0, 0));
    }
    assert!(((1020.0 - window) / 20.0 - 0.6065).abs() < 0.002, "{window}");
}

#[test]
fn fast_convergence_aims_at_the_middle() {
    let view = view(0, 0, 0);
    let mut bic = rule();
    bic.decrease(1000.0, &view);
    // Again, at a smaller window.
    assert_eq!(bic.decrease(960.0, &view), 840.0);
    assert_eq!(bic.max, 900.0);
    // At a larger one it is not needed.
    bic.decrease(920.0, &view);
    assert_eq!(bic.max, 920.0);
    let mut bic = BicRule { fast_convergence: false, max: 1000.0, ..rule() };
    bic.decrease(960.0, &view);
    assert_eq!(bic.max, 960.0);
}

#[test]
fn small_windows_are_tcps() {
    let view = view(0, 0, 0);
    let mut bic = rule();
    assert_eq!(bic.avoid(10.0, 10.0, &view), 11.0);
    assert_eq!((bic.decrease(13.0, &view), bic.max), (6.5, 0.0));
    assert_eq!((bic.decrease(16.0, &view), bic.max), (14.0, 16.0));
    // The dissertation's threshold.
    let mut thesis = BicRule { low_window: 38.0, ..rule() };
    assert_eq!((thesis.decrease(36.0, &view), thesis.decrease(40.0, &view)), (18.0, 35.0));
}

#[test]
fn a_trace() {
    let mut law = Bic::bic(10.0, (0.01, 32.0), 0.125, 14.0, true);
    let mut knobs = Knobs::default();
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    knobs.window = 128.0;
    let mut trace = Vec::new();
    let mut ack = |law: &mut Bic, knobs: &mut Knobs, next| {
        law.on_ack(Seq::new(next), &view(0, knobs.window as u32, 1_000), knobs);
        trace.push((knobs.window * 1e3).round() / 1e3);
    };
    law.on_loss(&lost(5, 5), &view(0, 128, 127), &mut knobs);
    ack(&mut law, &mut knobs, 129);
    // A round trip in two ACKs: half of 16 / 2, then half of 12 / 2.
    ack(&mut law, &mut knobs, 129 + 56);
    ack(&mut law, &mut knobs, 129 + 56 + 58);
    law.on_timeout(&view(0, 119, 400), &mut knobs);
    ack(&mut law, &mut knobs, 244);
    assert_eq!(trace, [112.0, 116.0, 119.0, 2.0]);
    assert!((law.threshold() - 119.0 * 0.875).abs() < 1e-9, "{}", law.threshold());
}
