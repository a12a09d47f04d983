//! `udt:module`: the law as the author's own ns-2 module of 2006 has it, which differs from the
//! dissertation's text and by which its figures may have been made.

use core::time::Duration;

use farhaul_base::{Rng, Time};
use farhaul_wire::{LossRange, Seq};

use crate::law::SYN_NS;
use crate::udt::increase_per_syn;
use crate::{Knobs, Law, SYN, View};

/// Packets sent before the first ACK.
const INITIAL_WINDOW: f64 = 2.0;
/// Packet-sending period in slow start, nanoseconds: it stays when slow start ends.
const FIRST_PERIOD_NS: f64 = 1_000.0;
const DECREASE: f64 = 1.125;

/// The law of the module.
///
/// | of | the dissertation ([`Udt`](crate::Udt)) | the module |
/// |---|---|---|
/// | end of slow start | the period that the receiver's rate means | the period stays a microsecond; the window holds the rate |
/// | decreases within an epoch | each DR-th loss event, DR uniform up to AvgNAK | DR = ⌊rand · avg⌋ + ⌈avg / 5⌉, avg = 1 + ⌈7/8 avg + 1/8 count⌉ |
/// | window | AS (RTT + SYN) | 7/8 of itself and 1/8 of that |
/// | longest period | none in the text; here the RTT or a SYN interval | the smoothed RTT |
/// | decreases of an epoch | any number in the text; here five | any number |
#[derive(Debug)]
pub struct UdtModule {
    rng: Rng,
    slow_start: bool,
    acked: Seq,
    last_increase: Time,
    loss_since_increase: bool,
    /// Largest sequence number sent when the rate was last decreased.
    last_decrease: Seq,
    /// Loss events of this epoch, their smoothed number, and every how many decrease the rate.
    naks: u32,
    average_naks: f64,
    spacing: u32,
}

impl UdtModule {
    /// The law with `seed` for its random decreases.
    pub fn new(seed: u64) -> Self {
        UdtModule {
            rng: Rng::new(seed),
            slow_start: true,
            acked: Seq::new(0),
            last_increase: Time::ZERO,
            loss_since_increase: false,
            last_decrease: Seq::new(0),
            naks: 0,
            average_naks: 1.0,
            spacing: 1,
        }
    }

    fn decrease(&mut self, view: &View, knobs: &mut Knobs) {
        knobs.period_ns *= DECREASE;
        if view.rtt > Duration::ZERO {
            knobs.period_ns = knobs.period_ns.min(view.rtt.as_nanos() as f64);
        }
        self.last_decrease = view.largest_sent;
    }
}

impl Law for UdtModule {
    fn name(&self) -> &'static str {
        "udt"
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        knobs.window = view.start_window(INITIAL_WINDOW);
        knobs.period_ns = FIRST_PERIOD_NS;
        self.acked = view.largest_acked.next();
        self.last_increase = view.now;
        self.last_decrease = view.largest_sent;
    }

    fn on_ack(&mut self, next: Seq, view: &View, knobs: &mut Knobs) {
        if self.slow_start {
            knobs.window += f64::from(next.since(self.acked).max(0));
            self.acked = next;
            self.slow_start = knobs.window < f64::from(view.max_window);
            return;
        }
        let target = view.arrival_rate * (SYN + view.rtt).as_secs_f64();
        knobs.window = knobs.window * 0.875 + target * 0.125;
        if view.now - self.last_increase < SYN {
            return;
        }
        self.last_increase = view.now;
        if core::mem::take(&mut self.loss_since_increase) {
            return;
        }
        let bits = f64::from(view.mss) * 8.0;
        let available = (view.capacity - 1e9 / knobs.period_ns) * bits;
        let step = increase_per_syn(available, view.mss);
        knobs.period_ns = SYN_NS / (SYN_NS / knobs.period_ns + step);
    }

    fn on_loss(&mut self, lost: &[LossRange], view: &View, knobs: &mut Knobs) {
        // A report has losses told again after new ones, so that its last need not be its largest.
        let Some(largest) = lost.iter().map(|range| range.last).reduce(Seq::later) else { return };
        self.slow_start = false;
        self.loss_since_increase = true;
        if largest.since(self.last_decrease) > 0 {
            let smoothed = self.average_naks * 0.875 + f64::from(self.naks) * 0.125;
            self.average_naks = 1.0 + smoothed.ceil();
            let random = (self.rng.unit() * self.average_naks).floor();
            self.spacing = (random + (self.average_naks / 5.0).ceil()).max(1.0) as u32;
            self.naks = 0;
            self.decrease(view, knobs);
            knobs.pause_until = view.now + SYN;
        } else {
            self.naks += 1;
            if self.naks.is_multiple_of(self.spacing) {
                self.decrease(view, knobs);
            }
        }
    }

    fn on_timeout(&mut self, _view: &View, _knobs: &mut Knobs) {
        self.slow_start = false;
    }
}

#[cfg(test)]
mod tests;
