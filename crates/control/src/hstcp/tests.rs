use farhaul_wire::Seq;

use super::*;
use crate::tcp_like::tests::{lost, view};
use crate::{Knobs, Law};

const RFC: HighSpeedRule =
    HighSpeedRule { low_window: 38.0, high_window: 83_000.0, high_decrease: 0.1 };

/// RFC 3649 appendix B up to `High_Window`: the windows at which a(w) reaches 1, 2, 3 and so on.
const REACHES: [u32; 70] = [
    38, 118, 221, 347, 495, 663, 851, 1058, 1284, 1529, 1793, 2076, 2378, 2699, 3039, 3399, 3778,
    4177, 4596, 5036, 5497, 5979, 6483, 7009, 7558, 8130, 8726, 9346, 9991, 10661, 11358, 12082,
    12834, 13614, 14424, 15265, 16137, 17042, 17981, 18955, 19965, 21013, 22101, 23230, 24402,
    25618, 26881, 28193, 29557, 30975, 32450, 33986, 35586, 37253, 38992, 40808, 42707, 44694,
    46776, 48961, 51258, 53677, 56230, 58932, 61799, 64851, 68113, 71617, 75401, 79517,
];

#[test]
fn the_increase_is_that_of_the_table() {
    for (reached, window) in (1..).zip(REACHES) {
        let above = RFC.a(f64::from(window)) - f64::from(reached);
        assert!(above.abs() < 0.05, "{window}: {reached} + {above}");
    }
}

/// The second column of the table, and its ends.
#[test]
fn so_is_the_decrease() {
    let table = [(118.0, 0.441), (221.0, 0.408), (347.0, 0.385), (5_036.0, 0.246)];
    let top = [(10_661.0, 0.207), (41_000.0, 0.137), (83_000.0, 0.1)];
    for (window, b) in table.into_iter().chain(top) {
        assert!((RFC.b(window) - b).abs() < 5e-4, "{window}: {}", RFC.b(window));
    }
    for window in [1.0, 20.0, 38.0] {
        assert_eq!((RFC.a(window), RFC.b(window)), (1.0, 0.5));
    }
    assert_eq!(RFC.a(39.0), 1.0);
    assert_eq!(RFC.b(1e6), RFC.b(83_000.0));
    assert!((RFC.a(41_000.0) - 56.1).abs() < 0.05 && (RFC.a(83_000.0) - 70.7).abs() < 0.05);
}

#[test]
fn a_trace() {
    let mut law = HighSpeed::high_speed(10.0, 38.0, 83_000.0, 0.1);
    let mut knobs = Knobs::default();
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    let ack = |law: &mut HighSpeed, knobs: &mut Knobs, next| {
        law.on_ack(Seq::new(next), &view(0, knobs.window as u32, 20_000), knobs);
        knobs.window
    };
    assert_eq!(ack(&mut law, &mut knobs, 10), 20.0, "slow start is TCP's");
    knobs.window = 5_036.0;
    law.on_loss(&lost(20, 20), &view(0, 5_036, 5_055), &mut knobs);
    assert!((knobs.window / 5_036.0 - 0.754).abs() < 1e-3, "{}", knobs.window);
    let after = knobs.window;
    assert_eq!(ack(&mut law, &mut knobs, 5_057), after, "repaired");
    // A round trip at 3797 packets, between the table's rows 17 (3778) and 18 (4177).
    let grown = ack(&mut law, &mut knobs, 5_057 + after as u32) - after;
    assert!((17.0..17.2).contains(&grown), "{grown}");
    // At small windows a loss takes a half, and a round trip gives one packet.
    knobs.window = 30.0;
    law.on_loss(&lost(10_000, 10_000), &view(0, 30, 10_029), &mut knobs);
    assert_eq!(knobs.window, 15.0);
    ack(&mut law, &mut knobs, 10_031);
    assert_eq!(ack(&mut law, &mut knobs, 10_046), 16.0);
    law.on_timeout(&view(0, 16, 10_061), &mut knobs);
    assert_eq!((knobs.window, law.threshold()), (1.0, 8.0));
}
