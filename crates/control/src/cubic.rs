//! `cubic`: the window as a cubic function of the time since the last loss (RFC 9438).

use core::time::Duration;

use farhaul_base::Time;
use farhaul_base::math::cube_root;

use crate::hystart::HyStart;
use crate::tcp_like::{INITIAL_WINDOW, Rule, TcpLike};
use crate::{LawInfo, Make, Param, View};

/// The target of a round trip is at most this much above the window (RFC 9438 §4.2).
const MOST_GROWTH: f64 = 1.5;

/// The rule of CUBIC. Windows in packets, times in seconds.
#[derive(Debug)]
pub struct CubicRule {
    /// C, packets/s³.
    c: f64,
    /// β: share of the window that is left after a loss.
    beta: f64,
    fast_convergence: bool,
    /// Never slower than Reno with the same mean (RFC 9438 §4.3).
    friendly: bool,
    /// `W_max`: the window before the last reduction, or less by fast convergence; none before the
    /// first and after a time-out.
    w_max: Option<f64>,
    /// `cwnd_prior`: the window before the last reduction.
    prior: f64,
    /// The congestion avoidance stage, if it has begun.
    epoch: Option<Epoch>,
    /// When the last ACK came, and whether the application limited the sending then.
    last_ack: Option<(Time, bool)>,
    /// The first slow start; those after time-outs have a threshold to end at (RFC 9406 §4.3).
    hystart: Option<HyStart>,
}

#[derive(Debug)]
struct Epoch {
    start: Time,
    /// Where the plateau of the curve lies.
    origin: f64,
    /// K: when the curve reaches it, from the start.
    k: f64,
    /// `W_est`: what Reno's window would be.
    reno: f64,
}

/// TCP CUBIC.
pub type Cubic = TcpLike<CubicRule>;

impl Cubic {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: CubicRule::NAME,
        summary: "what most of the Internet runs: fast growth far from the last loss",
        source: "RFC 9438: TCP CUBIC",
        params: &[
            INITIAL_WINDOW,
            Param::number("c", 0.4, (1e-6, 1e6), "packets/s^3", "C, how steep the cubic is"),
            Param::number(
                "beta",
                0.7,
                (0.01, 0.99),
                "",
                "share of the window that is left after a loss",
            ),
            Param::flag(
                "fast_convergence",
                true,
                "aim lower when losses come at ever smaller windows",
            ),
            Param::flag("friendly", true, "never slower than Reno"),
            Param::flag("hystart", true, "slow start ends when the round trip grows: RFC 9406"),
        ],
        make: Make::Law(|values, _| {
            Box::new(Cubic::cubic(
                values.get("window"),
                values.get("c"),
                values.get("beta"),
                values.is("fast_convergence"),
                values.is("friendly"),
                values.is("hystart"),
            ))
        }),
    };

    /// `window`: packets sent before the first ACK; `c` in packets/s³; `beta`: share of the window
    /// that is left after a loss.
    pub fn cubic(
        window: f64,
        c: f64,
        beta: f64,
        fast_convergence: bool,
        friendly: bool,
        hystart: bool,
    ) -> Self {
        TcpLike::new(CubicRule::new(c, beta, fast_convergence, friendly, hystart), window)
    }
}

impl CubicRule {
    /// As the parameters of the law.
    pub(crate) fn new(
        c: f64,
        beta: f64,
        fast_convergence: bool,
        friendly: bool,
        hystart: bool,
    ) -> Self {
        CubicRule {
            c,
            beta,
            fast_convergence,
            friendly,
            w_max: None,
            prior: 0.0,
            epoch: None,
            last_ack: None,
            hystart: hystart.then(HyStart::default),
        }
    }

    #[cfg(test)]
    pub(crate) fn hystart(&self) -> Option<&HyStart> {
        self.hystart.as_ref()
    }

    fn begin(&self, window: f64, now: Time) -> Epoch {
        // Without a reduction before it the stage begins on the plateau (RFC 9438 §4.8).
        let origin = self.w_max.unwrap_or(window).max(window);
        let k = cube_root((origin - window) / self.c);
        Epoch { start: now, origin, k, reno: window }
    }
}

impl Epoch {
    /// `W_cubic` at a time since the start (RFC 9438 §4.2).
    fn curve(&self, c: f64, since_start: Duration) -> f64 {
        let t = since_start.as_secs_f64() - self.k;
        c * t * t * t + self.origin
    }
}

impl Rule for CubicRule {
    const NAME: &'static str = "cubic";

    fn observe(&mut self, _acked: u32, view: &View) {
        let last = self.last_ack.replace((view.now, view.app_limited));
        // Time in which the window was not tested does not count (RFC 9438 §5.8).
        if let (Some((at, limited)), Some(epoch)) = (last, &mut self.epoch)
            && (limited || view.app_limited)
        {
            epoch.start = (epoch.start + (view.now - at)).min(view.now);
        }
    }

    fn slow_start(&mut self, window: f64, acked: f64, view: &View) -> f64 {
        let Some(hystart) = &mut self.hystart else { return window + acked };
        hystart.on_ack(view);
        window + hystart.growth(acked)
    }

    fn leave_slow_start(&mut self, window: f64, _view: &View) -> Option<f64> {
        self.hystart.as_ref().is_some_and(HyStart::is_over).then_some(window)
    }

    fn avoid(&mut self, window: f64, acked: f64, view: &View) -> f64 {
        let mut epoch = self.epoch.take().unwrap_or_else(|| self.begin(window, view.now));
        let since_start = view.now - epoch.start;
        let target = epoch.curve(self.c, since_start + view.rtt);
        let target = target.clamp(window, MOST_GROWTH * window);
        let mut grown = window + acked * (target - window) / window;
        if self.friendly {
            // RFC 9438 §4.3: α makes the mean Reno's, until Reno would be back where it was.
            let back = epoch.reno >= self.prior;
            let alpha = if back { 1.0 } else { 3.0 * (1.0 - self.beta) / (1.0 + self.beta) };
            epoch.reno += alpha * acked / window;
            if epoch.curve(self.c, since_start) < epoch.reno {
                // *departs:* the RFC sets the window; it is never set back here, as in Linux.
                grown = grown.max(epoch.reno);
            }
        }
        self.epoch = Some(epoch);
        grown
    }

    fn decrease(&mut self, window: f64, _view: &View) -> f64 {
        let converge = self.fast_convergence && self.w_max.is_some_and(|before| window < before);
        self.w_max = Some(if converge { window * (1.0 + self.beta) / 2.0 } else { window });
        self.prior = window;
        self.epoch = None;
        self.hystart = None;
        window * self.beta
    }

    fn time_out(&mut self, window: f64, view: &View) -> f64 {
        let threshold = self.decrease(window, view);
        self.w_max = None;
        threshold
    }
}

#[cfg(test)]
mod tests;
