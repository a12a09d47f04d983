//! `fast`: the window that leaves α packets in the queue, by leaps as long as it is far away
//! (Wei, Jin, Low and Hegde, FAST TCP, ToN 2006).
//!
//! *departs:* the paper keeps with each packet the window that it left with, to pair it with its time. Here
//! the window changes every other round, so that the times of a round are those of its own window.

use crate::rounds::{Round, Rounds};
use crate::tcp_like::{INITIAL_WINDOW, Rule, TcpLike};
use crate::{LEAST_WINDOW, LawInfo, Make, Param, View};

/// Slow start lasts while the queueing delay is below this, seconds (the authors' code in ns-2).
const SLOW_START_QUEUE: f64 = 0.75e-3;

/// The rule of FAST. Windows in packets, times in seconds.
#[derive(Debug)]
pub struct FastRule {
    alpha: f64,
    gamma: f64,
    beta: f64,
    rounds: Rounds,
    /// The round that this ACK ends.
    round: Option<Round>,
    /// Smoothed round-trip time; 0 before the first sample.
    rtt: f64,
    /// The window has been the same for the round that runs.
    settled: bool,
}

/// FAST TCP.
pub type Fast = TcpLike<FastRule>;

impl Fast {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: FastRule::NAME,
        summary: "long fat paths without loss; needs alpha packets of queue for each flow",
        source: "Wei, Jin, Low, Hegde, FAST TCP, IEEE/ACM ToN 14(6), 2006",
        params: &[
            INITIAL_WINDOW,
            Param::number(
                "alpha",
                200.0,
                (1.0, 1e6),
                "packets",
                "kept in the queue: 200 for a gigabit, 20 for 100 Mb/s",
            ),
            Param::number("gamma", 0.5, (0.01, 1.0), "", "share of the way that a step goes"),
            Param::number(
                "beta",
                0.5,
                (0.01, 0.99),
                "",
                "share of the window that is left after a loss (UDT's example: 0.875)",
            ),
        ],
        make: Make::Law(|values, _| {
            let [alpha, gamma, beta] = ["alpha", "gamma", "beta"].map(|key| values.get(key));
            Box::new(Fast::fast(values.get("window"), alpha, gamma, beta))
        }),
    };

    /// `window`: packets sent before the first ACK; the others as the parameters.
    pub fn fast(window: f64, alpha: f64, gamma: f64, beta: f64) -> Self {
        let (rounds, round, rtt, settled) = (Rounds::default(), None, 0.0, false);
        TcpLike::new(FastRule { alpha, gamma, beta, rounds, round, rtt, settled }, window)
    }
}

impl Rule for FastRule {
    const NAME: &'static str = "fast";

    fn observe(&mut self, acked: u32, view: &View) {
        self.round = self.rounds.on_ack(view);
        let Some(newest) = view.newest else { return };
        let sample = newest.rtt.as_secs_f64();
        // ToN 2006 §IV-A: for a packet min(3/w, 1/4).
        let window = f64::from(view.in_flight + acked);
        let weight = (3.0 * f64::from(acked) / window).min(0.25);
        self.rtt = if self.rtt == 0.0 { sample } else { self.rtt + weight * (sample - self.rtt) };
    }

    fn leave_slow_start(&mut self, window: f64, _view: &View) -> Option<f64> {
        self.round.filter(|round| self.rtt - round.base > SLOW_START_QUEUE).map(|_| window)
    }

    fn avoid(&mut self, window: f64, _acked: f64, _view: &View) -> f64 {
        let Some(round) = self.round.take() else { return window };
        // Every other round: the times of a round are those of the window of the round before.
        self.settled = !self.settled;
        if self.settled {
            return window;
        }
        let aim = round.base / self.rtt * window + self.alpha;
        ((1.0 - self.gamma) * window + self.gamma * aim).min(2.0 * window).max(LEAST_WINDOW)
    }

    fn decrease(&mut self, window: f64, _view: &View) -> f64 {
        window * self.beta
    }
}

#[cfg(test)]
mod tests;
