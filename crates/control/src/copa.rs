//! `copa`: the rate that is best for a queue of 1/δ packets, and a match for laws that fill queues
//! where there are such (Arun and Balakrishnan, NSDI 2018).

use core::time::Duration;

use farhaul_wire::{LossRange, Seq};

use crate::rounds::{Answered, Lowest, Rounds};
use crate::tcp_like::{ACK_INTERVAL, is_tested};
use crate::{Knobs, LEAST_WINDOW, Law, LawInfo, Make, Param, View};

/// The shortest round-trip time is that of so long a time (NSDI 2018 §2.1).
const LEAST_RTT_KEPT: Duration = Duration::from_secs(10);
/// Weight of a sample in the smoothed round-trip time (the authors' code).
const SMOOTHING: f64 = 1.0 / 16.0;
/// The velocity doubles once the window has gone one way for so many round trips (§2.1).
const STEADY_ROUNDS: u32 = 3;
/// Alone, Copa empties the queue every five round trips: to this share of the longest delay of the
/// last four (§2.2).
const EMPTIED_WITHIN: f64 = 5.0;
const LONGEST_WITHIN: f64 = 4.0;
const EMPTY_SHARE: f64 = 0.1;

/// The Copa law. Times in seconds.
#[derive(Debug)]
pub struct Copa {
    initial_window: f64,
    /// δ where nobody fills the queue.
    default_delta: f64,
    /// It may compete with those who do.
    competitive: bool,
    /// δ now: 1/δ packets are aimed at in the queue.
    delta: f64,
    /// Somebody else fills the queue.
    competes: bool,
    /// Packets were lost in this round trip.
    lost: bool,
    /// In slow start.
    slow: bool,
    velocity: f64,
    /// The window at the last change of rounds, whether it grew then, and for how many rounds it
    /// has gone that way.
    window_before: f64,
    grew: bool,
    steady: u32,
    rounds: Rounds,
    /// Smoothed round-trip time; 0 before the first sample.
    rtt: f64,
    delays: Delays,
    /// [`View::delivered`] when it was last counted.
    delivered: u64,
    answered: Answered,
}

/// Round-trip times: what is remembered, and what it comes to.
#[derive(Debug, Default)]
struct Delays {
    least_kept: Lowest,
    standing_kept: Lowest,
    /// Of the negative times.
    longest_kept: Lowest,
    emptied_kept: Lowest,
    /// `RTTmin`.
    least: f64,
    /// `RTTstanding`: the shortest of half a round trip, free of what bursts add.
    standing: f64,
    /// The longest of the last four round trips and the shortest of the last five.
    longest: f64,
    emptied: f64,
}

impl Copa {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: "copa",
        summary: "high rate at little delay, random loss or not; holds its own among TCP flows",
        source: "Arun and Balakrishnan, Copa, NSDI 2018",
        params: &[
            Param::number("window", 10.0, (1.0, 65536.0), "packets", "sent before the first ACK"),
            Param::number(
                "delta",
                0.5,
                (0.001, 10.0),
                "1/packets",
                "one over the packets to keep in the queue",
            ),
            Param::flag("competitive", true, "grow as TCP does where others fill the queue"),
        ],
        make: Make::Law(|values, _| {
            let (delta, competitive) = (values.get("delta"), values.is("competitive"));
            Box::new(Copa::new(values.get("window"), delta, competitive))
        }),
    };

    /// `window`: packets sent before the first ACK; the others as the parameters.
    pub fn new(window: f64, delta: f64, competitive: bool) -> Self {
        Copa {
            initial_window: window,
            default_delta: delta,
            competitive,
            delta,
            competes: false,
            lost: false,
            slow: true,
            velocity: 1.0,
            window_before: window,
            grew: true,
            steady: 0,
            rounds: Rounds::default(),
            rtt: 0.0,
            delays: Delays::default(),
            delivered: 0,
            answered: Answered::new(),
        }
    }

    fn measure(&mut self, view: &View, sample: f64) {
        self.rtt =
            if self.rtt == 0.0 { sample } else { self.rtt + SMOOTHING * (sample - self.rtt) };
        let (now, delays) = (view.now, &mut self.delays);
        let trips = |count: f64| Duration::from_secs_f64(count * self.rtt);
        delays.least = delays.least_kept.add(now, sample, LEAST_RTT_KEPT);
        delays.standing = delays.standing_kept.add(now, sample, trips(0.5));
        delays.longest = -delays.longest_kept.add(now, -sample, trips(LONGEST_WITHIN));
        delays.emptied = delays.emptied_kept.add(now, sample, trips(EMPTIED_WITHIN));
    }

    /// Once a round trip: how fast the window moves (§2.1), and whether others fill the queue
    /// (§2.2).
    fn end_round(&mut self, window: f64) {
        let grows = window > self.window_before;
        self.steady = match grows == self.grew {
            _ if window == self.window_before => 0,
            true => self.steady + 1,
            false => 1,
        };
        self.velocity = if self.steady > STEADY_ROUNDS { 2.0 * self.velocity } else { 1.0 };
        self.grew = grows;
        self.window_before = window;
        let Delays { least, longest, emptied, .. } = self.delays;
        self.competes = self.competitive && emptied - least > EMPTY_SHARE * (longest - least);
        if !self.competes {
            self.delta = self.default_delta;
        } else if !self.lost {
            self.delta = 1.0 / (1.0 / self.delta + 1.0);
        }
        self.lost = false;
    }

    /// What an ACK, or news of what has arrived behind a hole, tells.
    fn on_news(&mut self, view: &View, knobs: &mut Knobs) {
        // Behind a hole ACKs tell nothing, and a window moved by them alone would not come down.
        let acked = (view.delivered.saturating_sub(self.delivered) as f64).min(knobs.window);
        self.delivered = view.delivered;
        if let Some(newest) = view.newest {
            self.measure(view, newest.rtt.as_secs_f64());
        }
        if self.rounds.on_ack(view).is_some() {
            self.end_round(knobs.window);
        }
        if self.rtt == 0.0 {
            return;
        }
        // The rate w / RTTstanding against the target 1 / (δ d), without a division by a queue
        // that may be nought.
        let Delays { standing, least, .. } = self.delays;
        let below = knobs.window * self.delta * (standing - least) <= standing;
        self.slow &= below;
        if below && !is_tested(knobs.window, acked as u32, view) {
            return;
        }
        if self.slow {
            knobs.window += acked;
        } else {
            // *departs:* the paper sets the velocity no bound. Here a round trip at most doubles the
            // window, or one that has shrunk to nothing would leap by what it was before.
            let step = (self.velocity / (self.delta * knobs.window)).min(1.0) * acked;
            knobs.window += if below { step } else { -step };
        }
        knobs.window = knobs.window.max(LEAST_WINDOW);
        // Twice as fast as the window, so that it is the window that limits (§2.1).
        knobs.period_ns = standing * 1e9 / (2.0 * knobs.window);
    }
}

impl Law for Copa {
    fn name(&self) -> &'static str {
        Copa::INFO.name
    }

    fn state(&self) -> &'static str {
        match (self.slow, self.competes) {
            (true, _) => "slow start",
            (false, true) => "competitive",
            (false, false) => "default",
        }
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        knobs.window = view.start_window(self.initial_window);
        knobs.period_ns = 0.0;
        knobs.ack_interval = ACK_INTERVAL;
        self.window_before = knobs.window;
        self.delivered = view.delivered;
        self.answered.until(view.largest_acked);
    }

    fn on_ack(&mut self, next: Seq, view: &View, knobs: &mut Knobs) {
        self.answered.on_ack(next);
        self.on_news(view, knobs);
    }

    fn on_arrivals(&mut self, view: &View, knobs: &mut Knobs) {
        self.on_news(view, knobs);
    }

    fn on_loss(&mut self, lost: &[LossRange], view: &View, _knobs: &mut Knobs) {
        // Alone, Copa takes no loss for a sign of congestion (§2.2).
        if self.answered.answer(lost, view) {
            self.lost = true;
            if self.competes {
                self.delta = (2.0 * self.delta).min(self.default_delta);
            }
        }
    }

    fn on_timeout(&mut self, view: &View, knobs: &mut Knobs) {
        // *departs:* the paper has no time-outs; after one the path is not the one that was known.
        self.answered.until(view.largest_sent);
        self.slow = true;
        self.velocity = 1.0;
        self.steady = 0;
        knobs.window = LEAST_WINDOW;
    }
}

#[cfg(test)]
mod tests;
