//! `reno`: NewReno's window (RFC 5681, RFC 6582), and with other parameters any AIMD.

use crate::tcp_like::{INITIAL_WINDOW, Rule, TcpLike};
use crate::{LawInfo, Param, View};

/// Additive increase, multiplicative decrease: `increase` packets a round trip, the window times
/// `beta` after a loss. Its mean window at a loss rate p is about
/// sqrt(increase (1 + beta) / (2 (1 - beta) p)): 1.22 / sqrt(p).
#[derive(Debug)]
pub struct Aimd {
    increase: f64,
    beta: f64,
}

/// TCP NewReno.
pub type Reno = TcpLike<Aimd>;

impl Reno {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: Aimd::NAME,
        summary: "TCP NewReno, or any AIMD",
        params: &[
            INITIAL_WINDOW,
            Param {
                key: "increase",
                default: "1",
                min: 0.0,
                max: 1e6,
                help: "packets added to the window in a round trip",
            },
            Param {
                key: "beta",
                default: "0.5",
                min: 0.01,
                max: 0.99,
                help: "share of the window that is left after a loss",
            },
        ],
    };

    /// `window`: packets sent before the first ACK; `increase`: packets added in a round trip;
    /// `beta`: share of the window that is left after a loss.
    pub fn aimd(window: f64, increase: f64, beta: f64) -> Self {
        TcpLike::new(Aimd { increase, beta }, window)
    }
}

impl Rule for Aimd {
    const NAME: &'static str = "reno";

    fn avoid(&mut self, window: f64, acked: f64, _view: &View) -> f64 {
        window + self.increase * acked / window
    }

    fn decrease(&mut self, window: f64, _view: &View) -> f64 {
        window * self.beta
    }
}
