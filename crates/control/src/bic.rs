//! `bic`: BIC TCP (Xu, Harfoush and Rhee 2004), a binary search for the window of the last loss.

use crate::tcp_like::{INITIAL_WINDOW, Rule, TcpLike};
use crate::{LawInfo, Make, Param, View};

/// The rule of BIC. It knows a window that was too much, and by each ACK that the one it has is not:
/// it aims at the middle between them, by steps of bounded length. Beyond the window that was too
/// much it probes, by steps that double.
#[derive(Debug)]
pub struct BicRule {
    /// Smax: the longest step, packets a round trip.
    s_max: f64,
    /// Smin: the shortest step on the way to the last loss, packets a round trip.
    s_min: f64,
    /// Beta: share of the window that a loss takes.
    b: f64,
    /// Below this window, packets, it is TCP.
    low_window: f64,
    fast_convergence: bool,
    /// The window at the last loss, or less by fast convergence; 0 before the first.
    max: f64,
}

/// BIC TCP.
pub type Bic = TcpLike<BicRule>;

impl Bic {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: BicRule::NAME,
        summary: "long fat paths: soon back to where the last loss was, careful near it",
        source: "Xu, Harfoush, Rhee, Binary increase congestion control, INFOCOM 2004",
        params: &[
            INITIAL_WINDOW,
            Param::number("s_max", 32.0, (1.0, 1e4), "packets/RTT", "the longest step"),
            Param::number(
                "s_min",
                0.01,
                (1e-4, 1.0),
                "packets/RTT",
                "the shortest step below the window of the last loss",
            ),
            Param::number("b", 0.125, (0.01, 0.99), "", "share of the window that a loss takes"),
            Param::number(
                "low_window",
                14.0,
                (0.0, 1e6),
                "packets",
                "below this window it is TCP (the UDT dissertation's example has 38)",
            ),
            Param::flag(
                "fast_convergence",
                true,
                "aim lower when losses come at ever smaller windows",
            ),
        ],
        make: Make::Law(|values, _| {
            Box::new(Bic::bic(
                values.get("window"),
                (values.get("s_min"), values.get("s_max")),
                values.get("b"),
                values.get("low_window"),
                values.is("fast_convergence"),
            ))
        }),
    };

    /// `window`: packets sent before the first ACK; `steps`: the shortest and the longest, packets a
    /// round trip; `b`: share of the window that a loss takes; below `low_window` it is TCP.
    pub fn bic(
        window: f64,
        steps: (f64, f64),
        b: f64,
        low_window: f64,
        fast_convergence: bool,
    ) -> Self {
        let (s_min, s_max) = steps;
        TcpLike::new(BicRule { s_max, s_min, b, low_window, fast_convergence, max: 0.0 }, window)
    }
}

impl BicRule {
    /// How far to go in a round trip.
    fn step(&self, window: f64) -> f64 {
        if window < self.max {
            return ((self.max - window) / 2.0).clamp(self.s_min, self.s_max);
        }
        // One packet, then two, then four: in the paper a slow start that begins at the maximum.
        let mut step = 1.0;
        while step < self.s_max && window - self.max >= 2.0 * step - 1.0 {
            step *= 2.0;
        }
        step.min(self.s_max)
    }
}

impl Rule for BicRule {
    const NAME: &'static str = "bic";

    fn avoid(&mut self, window: f64, acked: f64, _view: &View) -> f64 {
        let step = if window < self.low_window { 1.0 } else { self.step(window) };
        window + step * acked / window
    }

    fn decrease(&mut self, window: f64, _view: &View) -> f64 {
        if window < self.low_window {
            return window / 2.0;
        }
        let left = window - self.b * window;
        // *departs:* the paper's pseudo-code forgets the maximum once it probes beyond it, and would
        // take the next loss, at a larger window, for one at a smaller. It is remembered here.
        let converge = self.fast_convergence && window < self.max;
        self.max = if converge { (window + left) / 2.0 } else { window };
        left
    }
}

#[cfg(test)]
mod tests;
