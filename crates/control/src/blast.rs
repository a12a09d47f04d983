//! `blast`: a fixed rate, whatever happens (gu05 §5.3.1, the rate-based UDP of private links).

use crate::{Knobs, LONGEST_WAIT, Law, LawInfo, Make, Param, View};

/// Packets in flight at most: the window of the dissertation's example, as good as none.
const WINDOW: f64 = 83_333.0;

/// Sends at one rate. Another rate is another `blast`: a law can be replaced while data flows.
#[derive(Debug)]
pub struct Blast {
    /// Bits a second, with all headers.
    rate: f64,
}

impl Blast {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: "blast",
        summary: "a path of one's own: one rate, no congestion control at all",
        source: "Gu, UDT dissertation (2005), section 5.3.1: CUDPBlast",
        params: &[Param::rate("rate", 100e6, "what it sends, with all headers")],
        make: Make::Law(|values, _| Box::new(Blast::new(values.get("rate")))),
    };

    /// `rate` in bits a second, with all headers.
    pub fn new(rate: f64) -> Self {
        Blast { rate }
    }
}

impl Law for Blast {
    fn name(&self) -> &'static str {
        "blast"
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        knobs.window = WINDOW.min(view.max_window.into());
        let period = f64::from(view.mss) * 8e9 / self.rate;
        knobs.tolerated_loss = 1.0;
        knobs.period_ns = period.min(LONGEST_WAIT.as_nanos() as f64);
    }
}

#[cfg(test)]
mod tests {
    use farhaul_wire::{LossRange, Seq};

    use super::*;

    #[test]
    fn one_rate_whatever_happens() {
        let mut law = Blast::new(800e6);
        let mut knobs = Knobs::default();
        let view = View::default();
        law.init(&view, &mut knobs);
        // 1500 bytes at 800 Mb/s: 15 us.
        assert_eq!((knobs.period_ns, knobs.window), (15_000.0, WINDOW));
        law.on_loss(&[LossRange::single(Seq::new(5))], &view, &mut knobs);
        law.on_timeout(&view, &mut knobs);
        law.on_ack(Seq::new(9), &view, &mut knobs);
        assert_eq!((knobs.period_ns, knobs.window), (15_000.0, WINDOW));
    }
}
