//! `hstcp`: HighSpeed TCP (RFC 3649), an AIMD whose two parameters follow the window.
//!
//! Of the two forms in which RFC 3649 §5 gives its response function, p(w) is the rounded one,
//! 0.078 / w^1.2, as in the table of its appendix B. The line through the two points that define it,
//! (38, 1e-3) and (83000, 1e-7), makes a(w) 2.5% larger at the upper end.

use farhaul_base::math::{ln, power};

use crate::tcp_like::{INITIAL_WINDOW, Rule, TcpLike};
use crate::{LawInfo, Make, Param, View};

/// The rule of HighSpeed TCP. Its mean window at a loss rate p is about 0.12 / p^0.835, and below
/// `low_window` TCP's.
#[derive(Debug)]
pub struct HighSpeedRule {
    /// `Low_Window`: up to this window, packets, it is TCP.
    low_window: f64,
    /// `High_Window`: where b(w) is `high_decrease`.
    high_window: f64,
    /// `High_Decrease`: share of the window that a loss takes there.
    high_decrease: f64,
}

/// HighSpeed TCP.
pub type HighSpeed = TcpLike<HighSpeedRule>;

impl HighSpeed {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: HighSpeedRule::NAME,
        summary: "long fat paths: as TCP at small windows, ever less so at large ones",
        source: "RFC 3649: HighSpeed TCP",
        params: &[
            INITIAL_WINDOW,
            Param::number("low_window", 38.0, (1.0, 1e4), "packets", "up to this window it is TCP"),
            Param::number(
                "high_window",
                83_000.0,
                (2e4, 1e8),
                "packets",
                "where a loss takes high_decrease of the window",
            ),
            Param::number(
                "high_decrease",
                0.1,
                (0.01, 0.5),
                "",
                "share of the window that a loss takes at high_window",
            ),
        ],
        make: Make::Law(|values, _| {
            Box::new(HighSpeed::high_speed(
                values.get("window"),
                values.get("low_window"),
                values.get("high_window"),
                values.get("high_decrease"),
            ))
        }),
    };

    /// `window`: packets sent before the first ACK; up to `low_window` it is TCP, and at
    /// `high_window` a loss takes `high_decrease` of the window.
    pub fn high_speed(window: f64, low_window: f64, high_window: f64, high_decrease: f64) -> Self {
        TcpLike::new(HighSpeedRule { low_window, high_window, high_decrease }, window)
    }
}

impl HighSpeedRule {
    /// b(w), share of the window that a loss takes: from a half at `low_window` it falls with the
    /// logarithm of the window (RFC 3649 §5). *departs:* beyond `high_window` it stays what it is
    /// there, as the RFC's formula would have no decrease left at 567,000 packets.
    fn b(&self, w: f64) -> f64 {
        let way = ln(w / self.low_window) / ln(self.high_window / self.low_window);
        0.5 + (self.high_decrease - 0.5) * way.clamp(0.0, 1.0)
    }

    /// a(w), packets added in a round trip (RFC 3649 §5). *departs:* never less than TCP's one, which
    /// the rounded p(w) would give for windows of 39 and 40.
    fn a(&self, w: f64) -> f64 {
        let (b, p) = (self.b(w), 0.078 / power(w, 1.2));
        if w <= self.low_window { 1.0 } else { (w * w * p * 2.0 * b / (2.0 - b)).max(1.0) }
    }
}

impl Rule for HighSpeedRule {
    const NAME: &'static str = "hstcp";

    fn avoid(&mut self, window: f64, acked: f64, _view: &View) -> f64 {
        window + self.a(window) * acked / window
    }

    fn decrease(&mut self, window: f64, _view: &View) -> f64 {
        window - self.b(window) * window
    }
}

#[cfg(test)]
mod tests;
