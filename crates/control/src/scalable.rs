//! `scalable`: Scalable TCP (Kelly 2003), whose window grows in proportion to itself.

use crate::tcp_like::{INITIAL_WINDOW, Rule, TcpLike};
use crate::{LawInfo, Make, Param, View};

/// The rule of Scalable TCP: after a loss the window is back where it was in a fixed number of round
/// trips, 13.4, however large it is. Its mean at a loss rate p is about (a / b) / p: 0.08 / p.
#[derive(Debug)]
pub struct ScalableRule {
    /// lwnd: up to this window, packets, it is TCP.
    low_window: f64,
    /// a: packets added for each packet acknowledged.
    a: f64,
    /// b: share of the window that a loss takes.
    b: f64,
}

/// Scalable TCP.
pub type Scalable = TcpLike<ScalableRule>;

impl Scalable {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: ScalableRule::NAME,
        summary: "long fat paths to oneself: soon back after a loss, but unfair to later flows",
        source: "Kelly, Scalable TCP, CCR 33(2), 2003",
        params: &[
            INITIAL_WINDOW,
            Param::number(
                "low_window",
                16.0,
                (0.0, 1e6),
                "packets",
                "up to this window it is TCP (the UDT dissertation's example has 38)",
            ),
            Param::number("a", 0.01, (1e-6, 1.0), "packets", "added for each packet acknowledged"),
            Param::number("b", 0.125, (0.01, 0.99), "", "share of the window that a loss takes"),
        ],
        make: Make::Law(|values, _| {
            let (low_window, a, b) = (values.get("low_window"), values.get("a"), values.get("b"));
            Box::new(Scalable::scalable(values.get("window"), low_window, a, b))
        }),
    };

    /// `window`: packets sent before the first ACK; `low_window`: up to this one it is TCP; `a`:
    /// packets added for each packet acknowledged; `b`: share of the window that a loss takes.
    pub fn scalable(window: f64, low_window: f64, a: f64, b: f64) -> Self {
        TcpLike::new(ScalableRule { low_window, a, b }, window)
    }
}

impl Rule for ScalableRule {
    const NAME: &'static str = "scalable";

    // *departs:* Kelly adds `a` for each ACK, and an ACK may be for two packets. It is added for
    // each packet here, or the law would be half as fast with a receiver that delays ACKs.
    fn avoid(&mut self, window: f64, acked: f64, _view: &View) -> f64 {
        let gain = if window <= self.low_window { 1.0 / window } else { self.a };
        window + gain * acked
    }

    fn decrease(&mut self, window: f64, _view: &View) -> f64 {
        let share = if window <= self.low_window { 0.5 } else { self.b };
        window - share * window
    }
}

#[cfg(test)]
mod tests;
