//! `vegas`: keeps a few packets in the queue of the path, by the round-trip time (Brakmo and
//! Peterson, JSAC 1995).
//!
//! *departs:* the paper sends again before a time-out by timers of its own for each packet. UDT's receiver
//! reports losses at once, and the simulator's TCP has selective acknowledgements: neither needs them.

use crate::rounds::{Round, Rounds};
use crate::tcp_like::{INITIAL_WINDOW, Rule, TcpLike};
use crate::{LEAST_WINDOW, LawInfo, Make, Param, View};

/// What is left of the window after slow start, and after a loss: as in ns-2's version of the
/// authors' own code.
const LEFT_BY_SLOW_START: f64 = 7.0 / 8.0;
const LEFT_BY_LOSS: f64 = 3.0 / 4.0;

/// The rule of Vegas.
#[derive(Debug)]
pub struct VegasRule {
    /// Fewer packets than this in the queue are too few, more than that are too many, and so many
    /// end slow start.
    alpha: f64,
    beta: f64,
    gamma: f64,
    /// The three are kb/s of rate that is lacking, not packets.
    rates: bool,
    rounds: Rounds,
    /// The round that this ACK ends.
    round: Option<Round>,
    /// Slow start measures in this round, and does not grow.
    measures: bool,
}

/// TCP Vegas.
pub type Vegas = TcpLike<VegasRule>;

impl Vegas {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: VegasRule::NAME,
        summary: "hardly any queue or loss; yields to laws that fill queues",
        source: "Brakmo and Peterson, TCP Vegas, IEEE JSAC 13(8), 1995",
        params: &[
            INITIAL_WINDOW,
            Param::number("alpha", 1.0, (0.0, 1e6), "packets", "in the queue, or the window grows"),
            Param::number(
                "beta",
                3.0,
                (0.0, 1e6),
                "packets",
                "in the queue at most, or the window shrinks",
            ),
            Param::number("gamma", 1.0, (0.0, 1e6), "packets", "in the queue that end slow start"),
            Param::flag(
                "rates",
                false,
                "alpha, beta, gamma in kb/s below the expected rate (UDT's example: 30, 60, 30)",
            ),
        ],
        make: Make::Law(|values, _| {
            let [alpha, beta, gamma] = ["alpha", "beta", "gamma"].map(|key| values.get(key));
            let rates = values.is("rates");
            Box::new(Vegas::vegas(values.get("window"), alpha, beta, gamma, rates))
        }),
    };

    /// `window`: packets sent before the first ACK; the others as the parameters.
    pub fn vegas(window: f64, alpha: f64, beta: f64, gamma: f64, rates: bool) -> Self {
        let (rounds, round, measures) = (Rounds::default(), None, false);
        TcpLike::new(VegasRule { alpha, beta, gamma, rates, rounds, round, measures }, window)
    }
}

impl VegasRule {
    /// Diff of the paper: what is expected of the window without a queue, less what it achieves.
    fn surplus(&self, window: f64, rtt: f64, base: f64, view: &View) -> f64 {
        let packets = window * (1.0 - base / rtt);
        if self.rates { packets / base * f64::from(view.mss) * 8.0 / 1e3 } else { packets }
    }
}

impl Rule for VegasRule {
    const NAME: &'static str = "vegas";

    fn observe(&mut self, _acked: u32, view: &View) {
        self.round = self.rounds.on_ack(view);
        self.measures ^= self.round.is_some();
    }

    /// By every other round, so that in between a window can be compared with its round-trip time.
    fn slow_start(&mut self, window: f64, acked: f64, _view: &View) -> f64 {
        if self.measures { window } else { window + acked }
    }

    fn leave_slow_start(&mut self, window: f64, view: &View) -> Option<f64> {
        // The first packet of a round follows the queue that all of the round before left.
        let round = self.round.filter(|_| !self.measures)?;
        let surplus = self.surplus(window, round.last, round.base, view);
        (surplus > self.gamma).then_some(window * LEFT_BY_SLOW_START)
    }

    fn avoid(&mut self, window: f64, _acked: f64, view: &View) -> f64 {
        let Some(round) = self.round.take() else { return window };
        // *departs:* the paper times one packet a round; the shortest time is free of what a burst
        // or a late ACK adds to one (Linux does the same).
        let surplus = self.surplus(window, round.least, round.base, view);
        if surplus < self.alpha {
            window + 1.0
        } else if surplus > self.beta {
            (window - 1.0).max(LEAST_WINDOW)
        } else {
            window
        }
    }

    fn decrease(&mut self, window: f64, _view: &View) -> f64 {
        window * LEFT_BY_LOSS
    }

    fn time_out(&mut self, window: f64, _view: &View) -> f64 {
        window / 2.0
    }
}

#[cfg(test)]
mod tests;
