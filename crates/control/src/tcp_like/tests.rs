use core::time::Duration;

use farhaul_base::Time;

use super::*;
use crate::Reno;

/// What a host tells that has `in_flight` packets on the way, RTT 100 ms.
pub(crate) fn view(now_ms: u64, in_flight: u32, largest_sent: u32) -> View {
    View {
        now: Time::from_millis(now_ms),
        rtt: Duration::from_millis(100),
        rtt_min: Duration::from_millis(100),
        arrival_rate: 0.0,
        delivery_rate: 0.0,
        capacity: 0.0,
        in_flight,
        flow_window: 1 << 20,
        max_window: 1 << 20,
        largest_sent: Seq::new(largest_sent),
        largest_acked: Seq::new(Seq::MAX),
        ..View::default()
    }
}

pub(crate) fn lost(first: u32, last: u32) -> [LossRange; 1] {
    [LossRange { first: Seq::new(first), last: Seq::new(last) }]
}

fn reno() -> (Reno, Knobs) {
    let mut law = Reno::aimd(10.0, 1.0, 0.5);
    let mut knobs = Knobs::default();
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    (law, knobs)
}

/// Acknowledges up to `next` with a full window in flight.
fn ack(law: &mut Reno, knobs: &mut Knobs, next: u32) {
    let in_flight = knobs.window as u32;
    law.on_ack(Seq::new(next), &view(0, in_flight, next + in_flight), knobs);
}

#[test]
fn slow_start_doubles_and_avoidance_adds_one() {
    let (mut law, mut knobs) = reno();
    assert_eq!((knobs.window, knobs.period_ns, knobs.ack_interval), (10.0, 0.0, 2));
    for next in [2, 4, 6, 8, 10] {
        ack(&mut law, &mut knobs, next);
    }
    assert_eq!(knobs.window, 20.0, "every packet acknowledged counts");
    law.on_loss(&lost(12, 12), &view(0, 20, 29), &mut knobs);
    assert_eq!((knobs.window, law.threshold()), (10.0, 10.0));
    // The loss is repaired; ten packets one by one.
    ack(&mut law, &mut knobs, 30);
    assert_eq!(knobs.window, 10.0);
    for next in 31..=40 {
        ack(&mut law, &mut knobs, next);
    }
    // Sum of 1/w: a little less than one packet.
    assert!((knobs.window - 11.0).abs() < 0.05, "{}", knobs.window);
}

#[test]
fn an_ack_across_the_threshold_is_divided() {
    let (mut law, mut knobs) = reno();
    law.threshold = 15.0;
    ack(&mut law, &mut knobs, 10);
    // Five packets for slow start, five at 1/15.
    assert!((knobs.window - (15.0 + 5.0 / 15.0)).abs() < 1e-12);
}

#[test]
fn one_reduction_a_window() {
    let (mut law, mut knobs) = reno();
    knobs.window = 64.0;
    law.on_loss(&lost(3, 3), &view(0, 64, 63), &mut knobs);
    assert_eq!(knobs.window, 32.0);
    // UDT's engine reports the other holes one by one, and lost retransmissions again.
    for seq in [10, 20, 3, 63] {
        law.on_loss(&lost(seq, seq), &view(0, 64, 70), &mut knobs);
    }
    assert_eq!(knobs.window, 32.0);
    // ACKs below the recovery point do not open the window, nor does the one that passes it.
    ack(&mut law, &mut knobs, 20);
    ack(&mut law, &mut knobs, 63);
    ack(&mut law, &mut knobs, 64);
    assert_eq!(knobs.window, 32.0);
    ack(&mut law, &mut knobs, 65);
    assert!(knobs.window > 32.0);
    // What was sent since is another window.
    law.on_loss(&lost(60, 70), &view(0, 32, 95), &mut knobs);
    assert!((knobs.window - 16.0).abs() < 0.02);
}

#[test]
fn the_threshold_has_a_floor() {
    let (mut law, mut knobs) = reno();
    knobs.window = 2.5;
    law.on_loss(&lost(1, 1), &view(0, 2, 2), &mut knobs);
    assert_eq!(knobs.window, 2.0);
}

#[test]
fn a_time_out_begins_anew() {
    let (mut law, mut knobs) = reno();
    knobs.window = 40.0;
    law.on_timeout(&view(0, 40, 39), &mut knobs);
    assert_eq!((knobs.window, law.threshold()), (1.0, 20.0));
    law.on_timeout(&view(0, 40, 39), &mut knobs);
    assert_eq!((knobs.window, law.threshold()), (1.0, 20.0), "the same packet again");
    // Slow start is by the packets acknowledged, though they are old; a hole that is filled does
    // not open the window by all that lay behind it.
    ack(&mut law, &mut knobs, 1);
    assert_eq!(knobs.window, 2.0);
    ack(&mut law, &mut knobs, 31);
    assert_eq!(knobs.window, 4.0);
    law.on_loss(&lost(35, 35), &view(0, 4, 39), &mut knobs);
    assert_eq!(knobs.window, 4.0, "lost before the time-out");
    let later = View { largest_acked: Seq::new(30), ..view(0, 4, 39) };
    law.on_timeout(&later, &mut knobs);
    assert_eq!((knobs.window, law.threshold()), (1.0, 2.0));
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let (mut law, mut knobs) = reno();
    let idle = View { app_limited: true, ..view(0, 9, 9) };
    law.on_ack(Seq::new(1), &idle, &mut knobs);
    assert_eq!(knobs.window, 10.0);
    // The peer's window holds the sender: a third of this one is in use.
    knobs.window = 30.0;
    law.on_ack(Seq::new(2), &view(0, 9, 11), &mut knobs);
    assert_eq!(knobs.window, 30.0);
    law.on_ack(Seq::new(3), &view(0, 29, 31), &mut knobs);
    assert_eq!(knobs.window, 31.0);
}

#[test]
fn losses_are_recognised_however_long_ago_the_last_one_was() {
    let (mut law, mut knobs) = reno();
    law.on_loss(&lost(5, 5), &view(0, 10, 9), &mut knobs);
    let mut next = 0u32;
    for _ in 0..40 {
        next = next.wrapping_add(1 << 28);
        ack(&mut law, &mut knobs, next);
    }
    let (before, seq) = (knobs.window, Seq::new(next).plus(2).value());
    law.on_loss(&lost(seq, seq), &view(0, 10, seq), &mut knobs);
    assert_eq!(knobs.window, before / 2.0);
}

#[test]
fn any_aimd() {
    let mut law = Reno::aimd(10.0, 4.0, 0.8);
    let mut knobs = Knobs::default();
    law.init(&view(0, 0, Seq::MAX), &mut knobs);
    law.on_loss(&lost(1, 1), &view(0, 10, 9), &mut knobs);
    assert_eq!(knobs.window, 8.0);
    ack(&mut law, &mut knobs, 10);
    ack(&mut law, &mut knobs, 12);
    assert_eq!(knobs.window, 9.0, "4 packets a round trip, two acknowledged of eight");
}
