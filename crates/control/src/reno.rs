//! `reno`: NewReno's window (RFC 5681, RFC 6582), and with other parameters any AIMD.

use crate::tcp_like::{INITIAL_WINDOW, Rule, TcpLike};
use crate::{LawInfo, Make, Param, View};

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
        summary: "the classic: fair to old TCP, slow on long fat paths; or any AIMD",
        source: "RFC 5681, RFC 6582: TCP NewReno",
        params: &[
            INITIAL_WINDOW,
            Param::number("increase", 1.0, (0.0, 1e6), "packets/RTT", "added to the window"),
            Param::number(
                "beta",
                0.5,
                (0.01, 0.99),
                "",
                "share of the window that is left after a loss",
            ),
            Param::number("acks", 2.0, (1.0, 1024.0), "packets", "data packets an ACK"),
        ],
        make: Make::Law(|values, _| {
            let (increase, beta) = (values.get("increase"), values.get("beta"));
            let law = Reno::aimd(values.get("window"), increase, beta);
            Box::new(law.with_ack_interval(values.get("acks") as u32))
        }),
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
