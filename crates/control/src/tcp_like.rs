//! What TCP's laws have in common: slow start, congestion avoidance, one reduction a window,
//! time-outs (RFC 5681, RFC 6582), by the packet and without what belongs to the host.
//!
//! It works in two hosts. UDT's engine reports each hole when it is found, many a round trip; TCP's
//! sender reports one loss an episode. A law tells old losses from new ones by its recovery point.

use core::fmt::Debug;

use farhaul_wire::{LossRange, Seq};

use crate::rounds::Answered;
use crate::{Knobs, Law, Param, View};

/// The smallest slow-start threshold, packets (RFC 5681 eq. 4).
const LEAST_THRESHOLD: f64 = 2.0;
/// The window after a time-out, packets (RFC 5681 §3.1).
const LOSS_WINDOW: f64 = 1.0;
/// Data packets an ACK: RFC 5681 §4.2 wants an ACK for at least every second one.
pub(crate) const ACK_INTERVAL: u32 = 2;

/// The parameter that all these laws take first.
pub const INITIAL_WINDOW: Param = Param::number(
    "window",
    10.0,
    (1.0, 65536.0),
    "packets",
    "sent before the first ACK (RFC 6928; ns-2 has 2)",
);

/// Wherein a law differs from the others.
pub trait Rule: Debug + Send {
    /// The name that the law is registered under.
    const NAME: &'static str;

    /// An ACK for `acked` packets, whatever comes of it: for laws that measure.
    fn observe(&mut self, _acked: u32, _view: &View) {}

    /// The window after `acked` packets, at most a window of them, in slow start.
    fn slow_start(&mut self, window: f64, acked: f64, _view: &View) -> f64 {
        window + acked
    }

    /// The window to go on with if slow start is to end with this ACK, before a loss ends it.
    fn leave_slow_start(&mut self, _window: f64, _view: &View) -> Option<f64> {
        None
    }

    /// The window after `acked` packets, at most a window of them, in congestion avoidance. It may
    /// be smaller: laws that go by the delay shrink without a loss.
    fn avoid(&mut self, window: f64, acked: f64, view: &View) -> f64;

    /// The window after a loss, and the slow-start threshold.
    fn decrease(&mut self, window: f64, view: &View) -> f64;

    /// The slow-start threshold after a time-out.
    fn time_out(&mut self, window: f64, view: &View) -> f64 {
        self.decrease(window, view)
    }
}

/// A law made of a rule.
#[derive(Debug)]
pub struct TcpLike<R> {
    rule: R,
    initial_window: f64,
    /// Data packets an ACK.
    ack_interval: u32,
    /// Slow start is below this window, packets; arbitrarily high at first (RFC 5681 §3.1).
    threshold: f64,
    /// What the last ACK was for: everything before it.
    acked: Seq,
    /// The recovery point of RFC 6582 §3.2.
    answered: Answered,
    /// A loss is being repaired, so that the window does not grow.
    recovering: bool,
    /// The window was last seen below the threshold.
    slow: bool,
    /// The largest number acknowledged when the timer last expired.
    timed_out: Option<Seq>,
}

impl<R: Rule> TcpLike<R> {
    /// `initial_window`: packets sent before the first ACK.
    pub fn new(rule: R, initial_window: f64) -> Self {
        TcpLike {
            rule,
            initial_window,
            ack_interval: ACK_INTERVAL,
            threshold: f64::MAX,
            acked: Seq::new(0),
            answered: Answered::new(),
            recovering: false,
            slow: true,
            timed_out: None,
        }
    }

    /// With an ACK after so many data packets, in place of two.
    pub fn with_ack_interval(self, packets: u32) -> Self {
        TcpLike { ack_interval: packets, ..self }
    }

    fn grow(&mut self, acked: f64, view: &View, window: f64) -> f64 {
        // One window is sent in a round trip, so one ACK that covers more is one for a hole filled
        // after a time-out: it says nothing of what the path takes at once.
        let acked = acked.min(window);
        self.slow = window < self.threshold;
        if !self.slow {
            return self.avoid(window, acked, view);
        }
        if let Some(window) = self.rule.leave_slow_start(window, view) {
            self.slow = false;
            self.threshold = window;
            return window;
        }
        let grown = self.rule.slow_start(window, acked, view);
        if grown <= self.threshold {
            return grown;
        }
        // What is left of the ACK beyond the threshold belongs to congestion avoidance.
        let left = acked * (grown - self.threshold) / (grown - window);
        self.avoid(self.threshold, left, view)
    }

    fn avoid(&mut self, window: f64, acked: f64, view: &View) -> f64 {
        let window = self.rule.avoid(window, acked, view);
        // A window that shrinks does not begin slow start anew.
        self.threshold = self.threshold.min(window);
        window
    }

    #[cfg(test)]
    pub(crate) fn rule(&self) -> &R {
        &self.rule
    }

    #[cfg(test)]
    pub(crate) fn threshold(&self) -> f64 {
        self.threshold
    }
}

/// Whether the window is what limits the sender: at least half of it was in use before this ACK
/// (RFC 7661), so that a window which nothing tests does not grow without end.
pub(crate) fn is_tested(window: f64, acked: u32, view: &View) -> bool {
    !view.app_limited && 2.0 * (f64::from(view.in_flight) + f64::from(acked)) >= window
}

impl<R: Rule> Law for TcpLike<R> {
    fn name(&self) -> &'static str {
        R::NAME
    }

    fn state(&self) -> &'static str {
        match (self.recovering, self.slow) {
            (true, _) => "recovery",
            (false, true) => "slow start",
            (false, false) => "avoidance",
        }
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        knobs.window = view.start_window(self.initial_window);
        knobs.period_ns = 0.0;
        knobs.ack_interval = self.ack_interval;
        self.acked = view.largest_acked.next();
        self.answered.until(view.largest_acked);
    }

    fn on_ack(&mut self, next: Seq, view: &View, knobs: &mut Knobs) {
        let acked = next.since(self.acked).max(0) as u32;
        self.acked = next;
        self.rule.observe(acked, view);
        let was_recovering = self.recovering;
        self.recovering &= !self.answered.is_before(next);
        self.answered.on_ack(next);
        // The window is that of after the loss up to and with the ACK that ends the repair
        // (RFC 6582 §3.2 step 3).
        if !was_recovering && is_tested(knobs.window, acked, view) {
            knobs.window = self.grow(f64::from(acked), view, knobs.window);
        }
    }

    fn on_loss(&mut self, lost: &[LossRange], view: &View, knobs: &mut Knobs) {
        if !self.answered.answer(lost, view) {
            return;
        }
        self.recovering = true;
        self.slow = false;
        // *departs:* RFC 5681 eq. 4 reduces what is in flight, which hosts count differently. The
        // window grows only while it is used, and is taken in its place.
        self.threshold = self.rule.decrease(knobs.window, view).max(LEAST_THRESHOLD);
        knobs.window = self.threshold;
    }

    fn on_timeout(&mut self, view: &View, knobs: &mut Knobs) {
        // A retransmission that is lost as well leaves the threshold (RFC 5681 §3.1).
        if self.timed_out != Some(view.largest_acked) {
            self.threshold = self.rule.time_out(knobs.window, view).max(LEAST_THRESHOLD);
        }
        self.timed_out = Some(view.largest_acked);
        self.answered.until(view.largest_sent);
        self.recovering = false;
        self.slow = true;
        knobs.window = LOSS_WINDOW;
    }
}

#[cfg(test)]
pub(crate) mod tests;
