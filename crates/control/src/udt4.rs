//! `udt4`: the native law of libudt 4.11 without its defects, for comparison with `udt`.

use farhaul_base::math::power_of_ten_above;
use farhaul_base::{Rng, Time};
use farhaul_wire::{LossRange, Seq};

use crate::law::SYN_NS;
use crate::{Knobs, Law, LawInfo, Make, SYN, View};

/// Smallest increase, packets per SYN: fifteen times the dissertation's at an MSS of 1500.
const MIN_INCREASE: f64 = 0.01;
const DECREASE: f64 = 1.125;
const INITIAL_WINDOW: f64 = 16.0;
/// Packets added to a window computed from the arrival speed.
const WINDOW_MARGIN: f64 = 16.0;
/// NAKs of one congestion period, after its first, that may decrease the rate.
const MAX_EXTRA_NAKS: u32 = 4;

/// The law of the stock library. Where it differs on purpose:
///
/// | stock defect | here |
/// |---|---|
/// | period rounded up to whole microseconds at each decrease: 1 µs becomes 2 µs | not rounded |
/// | slow start grows by one packet too many at each ACK | by what was acknowledged |
/// | an early loss takes the arrival speed for 16 packets/s, its start value, and all but stops the flow | an unknown arrival speed is not used |
/// | integer arithmetic in the available bandwidth | real numbers |
/// | the loss that ends slow start brings a NAK for each hole of the overshoot, and all after the first are taken for losses at the rate just found: five decreases, to 55% | one decrease, for the queue that was filled to drain |
#[derive(Debug)]
pub struct Udt4 {
    rng: Rng,
    slow_start: bool,
    acked: Seq,
    last_update: Time,
    /// A NAK arrived since the last update.
    loss: bool,
    last_decrease: Seq,
    /// Packet-sending period when the rate was last decreased.
    last_decrease_period_ns: f64,
    naks: u32,
    average_naks: f64,
    /// Every how many NAKs of a period the rate is decreased.
    spacing: u32,
    extra_naks: u32,
}

impl Udt4 {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: "udt4",
        summary: "as the stock library has it, to compare with and beside it",
        source: "libudt 4.11, CUDTCC; Gu and Grossman, UDT paper (2007) section 3.3",
        params: &[],
        make: Make::Law(|_, seed| Box::new(Udt4::new(seed))),
    };

    /// The law with `seed` for its random decreases.
    pub fn new(seed: u64) -> Self {
        Udt4 {
            rng: Rng::new(seed),
            slow_start: true,
            acked: Seq::new(0),
            last_update: Time::ZERO,
            loss: false,
            last_decrease: Seq::new(0),
            last_decrease_period_ns: 1_000.0,
            naks: 0,
            average_naks: 0.0,
            spacing: 1,
            extra_naks: 0,
        }
    }

    fn leave_slow_start(&mut self, view: &View, knobs: &mut Knobs) {
        self.slow_start = false;
        knobs.period_ns = if view.arrival_rate > 0.0 {
            1e9 / view.arrival_rate
        } else {
            (view.rtt.as_nanos() as f64 + SYN_NS) / knobs.window.max(1.0)
        };
    }

    /// Packets to add per SYN.
    fn increase(&self, view: &View, period_ns: f64) -> f64 {
        let mut available = view.capacity - 1e9 / period_ns;
        // Below the rate at which it last met a loss, the flow takes back ground with at most a
        // ninth of the capacity as its aim (gu07 §3.3).
        if period_ns > self.last_decrease_period_ns {
            available = available.min(view.capacity / 9.0);
        }
        if available <= 0.0 {
            return MIN_INCREASE;
        }
        let mss = f64::from(view.mss);
        (power_of_ten_above(available * mss * 8.0) * 1.5e-6 / mss).max(MIN_INCREASE)
    }
}

impl Law for Udt4 {
    fn name(&self) -> &'static str {
        "udt4"
    }

    fn state(&self) -> &'static str {
        if self.slow_start { "slow start" } else { "avoidance" }
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        knobs.window = view.start_window(INITIAL_WINDOW);
        knobs.period_ns = 1_000.0;
        self.acked = view.largest_acked.next();
        self.last_update = view.now;
        self.last_decrease = view.largest_sent;
    }

    fn on_ack(&mut self, next: Seq, view: &View, knobs: &mut Knobs) {
        if view.now - self.last_update < SYN {
            return;
        }
        self.last_update = view.now;
        if self.slow_start {
            knobs.window += f64::from(next.since(self.acked).max(0));
            self.acked = next;
            if knobs.window > f64::from(view.max_window) {
                self.leave_slow_start(view, knobs);
            }
            // No increase of the rate in slow start, nor in the round that ends it.
            return;
        }
        knobs.window = view.arrival_rate * (SYN + view.rtt).as_secs_f64() + WINDOW_MARGIN;
        if core::mem::take(&mut self.loss) {
            return;
        }
        let period = knobs.period_ns;
        knobs.period_ns = SYN_NS / (SYN_NS / period + self.increase(view, period));
    }

    fn on_loss(&mut self, lost: &[LossRange], view: &View, knobs: &mut Knobs) {
        let Some(first) = lost.first().map(|r| r.first) else { return };
        if self.slow_start {
            self.leave_slow_start(view, knobs);
            knobs.period_ns *= DECREASE;
            // Everything up to here was sent before there was a rate.
            self.last_decrease_period_ns = knobs.period_ns;
            self.last_decrease = view.largest_sent;
            self.extra_naks = MAX_EXTRA_NAKS;
            return;
        }
        self.loss = true;
        if first.since(self.last_decrease) > 0 {
            self.last_decrease_period_ns = knobs.period_ns;
            knobs.period_ns *= DECREASE;
            self.average_naks = (0.875 * self.average_naks + 0.125 * f64::from(self.naks)).ceil();
            self.naks = 1;
            self.extra_naks = 0;
            self.last_decrease = view.largest_sent;
            self.spacing = (self.average_naks * self.rng.unit()).ceil().max(1.0) as u32;
        } else if self.extra_naks < MAX_EXTRA_NAKS {
            self.extra_naks += 1;
            self.naks += 1;
            if self.naks.is_multiple_of(self.spacing) {
                knobs.period_ns *= DECREASE;
                self.last_decrease = view.largest_sent;
            }
        }
    }

    fn on_timeout(&mut self, view: &View, knobs: &mut Knobs) {
        if self.slow_start {
            self.leave_slow_start(view, knobs);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
