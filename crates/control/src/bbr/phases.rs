//! The phases: Startup and Drain once, then `ProbeBW`'s four in a circle, and `ProbeRTT` every few
//! seconds.

use core::time::Duration;

use farhaul_base::Time;

use super::{Bbr, LEAST_PIPE};
use crate::{Knobs, View};

/// Startup quadruples its rate each round trip while what arrives is further below what packet trains say of the
/// path than by this. A step more would send half of that, and a host that takes packets in batches may make the
/// path seem four times what it is: then as much is sent as by doubling.
const FAR_BELOW: f64 = 8.0;
/// As 2.77, the gain for doubling, is 4 ln 2: the rate when packets leave is the gain times the mean of the round trip
/// before the last, 16 ln 4 / 3 to quadruple. Then so many times as much is in flight.
const FOURFOLD_PACING: f64 = 7.39;
const FOURFOLD: f64 = 4.0;
/// Drain ends after so many round trips, whatever is in flight.
const DRAIN_ROUNDS: u64 = 3;
/// A probe follows the last after this and up to a second more, or after so many round trips as
/// Reno would need to grow by as many packets as are in flight, but at most 63.
const PROBE_WAIT: Duration = Duration::from_secs(2);
const PROBE_SPREAD: Duration = Duration::from_secs(1);
const PROBE_ROUNDS: f64 = 63.0;
/// How long little is in flight in `ProbeRTT`.
const PROBE_RTT_LASTS: Duration = Duration::from_millis(200);

/// What the law is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Startup => "startup",
            Phase::Drain => "drain",
            Phase::Down => "probe down",
            Phase::Cruise => "cruise",
            Phase::Refill => "refill",
            Phase::Up => "probe up",
            Phase::ProbeRtt => "probe rtt",
        }
    }

    /// The sending rate, in shares of the bandwidth.
    pub fn pacing_gain(self) -> f64 {
        match self {
            // 4 ln 2: the least with which the rate can double each round trip.
            Phase::Startup => 2.77,
            Phase::Drain => 0.5,
            Phase::Down => 0.9,
            Phase::Cruise | Phase::Refill | Phase::ProbeRtt => 1.0,
            Phase::Up => 1.25,
        }
    }

    /// The window, in shares of what the path holds without a queue.
    pub fn window_gain(self) -> f64 {
        match self {
            Phase::Up => 2.25,
            Phase::ProbeRtt => 0.5,
            _ => 2.0,
        }
    }

    fn is_probe_bw(self) -> bool {
        matches!(self, Phase::Down | Phase::Cruise | Phase::Refill | Phase::Up)
    }
}

/// The circle of `ProbeBW`.
#[derive(Debug, Default)]
pub(super) struct Cycle {
    /// How many there have been.
    pub count: u64,
    /// When the last probe ended, and when the next is due at the latest.
    since: Time,
    wait: Duration,
    /// The round trip in which the last probe ended, or the one before; or that in which Drain
    /// began.
    since_round: u64,
    /// The ACKs still to come of the last probe are of packets sent in it, until a round trip ends
    /// (draft: `ACKS_PROBE_STOPPING`).
    stopping: bool,
    /// Losses are the last probe's and have not been answered (draft: `is_bw_probe_sample`).
    pub feedback: bool,
    /// The last probe lost too many; it ended early because the one before it did.
    pub too_high: bool,
    precautionary: bool,
    /// How steeply the long-term bound grows: by a packet for so many acknowledged, of which there
    /// are so many already.
    pub acked_per_step: f64,
    pub acked: f64,
    pub doublings: i32,
}

/// The state of `ProbeRTT`.
#[derive(Debug, Default)]
pub(super) struct ProbeRtt {
    /// It lasts until then, once little is in flight, and for a round trip.
    until: Option<Time>,
    round_done: bool,
}

impl Bbr {
    /// Whether another phase begins with this event (draft: `CheckStartupDone`, `CheckDrainDone`,
    /// `UpdateProbeBWCyclePhase`).
    ///
    /// *departs:* Startup and Up see the queue that they make: see [`super::delay`].
    pub(super) fn move_on(&mut self, acked: f64, view: &View) {
        if self.phase == Phase::Startup {
            self.check_startup_losses();
            self.watch_startup(view);
            if self.full_pipe.reached {
                self.phase = Phase::Drain;
                self.cycle.since_round = self.rounds.count();
            }
        }
        if self.phase == Phase::Drain {
            let drained = self.in_flight(view) <= self.full_path(self.bandwidth(), view);
            if drained || self.rounds.count() > self.cycle.since_round + DRAIN_ROUNDS {
                self.start_down(view);
            }
        }
        if self.full_pipe.reached && !self.end_feedback(view) {
            self.raise_longterm(acked);
            self.go_round(view);
        }
    }

    /// The round trip after a probe is over, and with it what the probe can tell. Returns whether
    /// the next begins at once.
    fn end_feedback(&mut self, view: &View) -> bool {
        if !self.cycle.stopping || !self.rounds.started() {
            return false;
        }
        self.cycle.stopping = false;
        self.cycle.feedback = false;
        if !self.phase.is_probe_bw() {
            return false;
        }
        if !self.sample.app_limited {
            self.cycle.count += 1;
        }
        // It turned back where the one before had lost too many, and lost nothing there.
        let again = self.cycle.precautionary && !self.cycle.too_high;
        if again {
            self.start_refill(view);
        }
        again
    }

    fn go_round(&mut self, view: &View) {
        let phase = self.phase;
        match phase {
            Phase::Down | Phase::Cruise if self.is_time_to_probe(view) => {
                self.start_refill(view);
            }
            Phase::Down if self.is_time_to_cruise(view) => self.phase = Phase::Cruise,
            Phase::Refill if self.rounds.started() => self.start_up(view),
            Phase::Up if self.is_time_to_go_down(view) => {
                self.cycle.too_high = false;
                self.start_down(view);
            }
            _ => {}
        }
    }

    /// Nothing is probed, and what is heard is of packets that left in no probe.
    pub(super) fn is_calm(&self) -> bool {
        let calm =
            matches!(self.phase, Phase::Down | Phase::Cruise | Phase::Refill | Phase::ProbeRtt);
        calm && !self.cycle.stopping
    }

    /// Once Startup sees a queue it sends no more than arrives for a round trip: either what is under way shows
    /// that there is more to have, or the path is full.
    fn watch_startup(&mut self, view: &View) {
        let queues = |least| self.delay.queues(least, self.tolerated.queue);
        if !self.full_pipe.is_suspected() && self.min_rtt.get().is_some_and(queues) {
            self.full_pipe.suspect(self.max_bandwidth.get());
            self.rounds.restart(view.delivered);
        }
    }

    /// Startup is far below the capacity that the peer has measured by trains of packets; 0 while that is not known.
    /// One of many flows on a thin link is, too, and it loses packets.
    fn is_far_below(&self, view: &View) -> bool {
        let lost = view.trace.packets_lost as f64;
        self.phase == Phase::Startup
            && !self.full_pipe.is_suspected()
            && FAR_BELOW * self.max_bandwidth.get() < view.capacity
            && lost <= 1.0 + self.tolerated.loss * view.trace.packets_sent as f64
    }

    /// The sending rate, in shares of the bandwidth.
    pub(super) fn pacing_gain(&self, view: &View) -> f64 {
        let suspected = self.phase == Phase::Startup && self.full_pipe.is_suspected();
        match suspected {
            true => 1.0,
            false if self.is_far_below(view) => FOURFOLD_PACING,
            false => self.phase.pacing_gain(),
        }
    }

    /// The window, in shares of what the path holds without a queue, and by what it grows a round trip until the
    /// path is full.
    pub(super) fn window_gain(&self, view: &View) -> (f64, f64) {
        let far = self.is_far_below(view);
        if far { (FOURFOLD, FOURFOLD) } else { (self.phase.window_gain(), 2.0) }
    }

    fn is_time_to_probe(&self, view: &View) -> bool {
        let target = self.product(self.bandwidth(), 1.0).min(self.window);
        let rounds = self.rounds.count() - self.cycle.since_round;
        let due = view.now > self.cycle.since + self.cycle.wait;
        due || rounds as f64 >= target.min(PROBE_ROUNDS) || self.bounds.are_outlived(view.now)
    }

    /// There is room for others, and no queue.
    fn is_time_to_cruise(&self, view: &View) -> bool {
        let room = self.bounds.with_headroom();
        self.in_flight(view) <= room.min(self.full_path(self.max_bandwidth.get(), view))
    }

    fn is_time_to_go_down(&mut self, view: &View) -> bool {
        if self.delay.probe_queues(self.tolerated.queue) {
            return true;
        }
        if self.cycle.too_high && self.in_flight(view) >= self.bounds.longterm {
            self.cycle.precautionary = true;
            return true;
        }
        if self.window_limited && self.window >= self.bounds.longterm {
            // The bound, not the path, is what holds the rate.
            self.full_pipe.restart(self.sample.rate);
            return false;
        }
        self.full_pipe.now
    }

    /// draft: `StartProbeBW_DOWN`.
    pub(super) fn start_down(&mut self, view: &View) {
        self.phase = Phase::Down;
        self.ease.end_probe();
        self.latest.forget();
        self.cycle.since = view.now;
        self.cycle.wait = PROBE_WAIT + PROBE_SPREAD.mul_f64(self.rng.unit());
        self.cycle.since_round = self.rounds.count().saturating_sub(self.rng.below(2));
        self.cycle.stopping = true;
        self.rounds.restart(view.delivered);
    }

    /// *departs:* What was under way when a path was cut is lost, and no probe's doing: one that met the repair
    /// would leave half of the path idle for a cycle. The next comes a cycle after the time-out.
    pub(super) fn put_off_probe(&mut self, view: &View) {
        if matches!(self.phase, Phase::Refill | Phase::Up) {
            self.start_down(view);
        }
        self.cycle.since = view.now;
        self.cycle.since_round = self.rounds.count();
    }

    fn start_refill(&mut self, view: &View) {
        self.phase = Phase::Refill;
        self.bounds.forget_short_term();
        self.ease.begin_probe();
        self.cycle.doublings = 0;
        self.cycle.acked = 0.0;
        self.cycle.precautionary = false;
        self.cycle.stopping = false;
        self.delay.begin_refill();
        self.rounds.restart(view.delivered);
    }

    fn start_up(&mut self, view: &View) {
        self.phase = Phase::Up;
        self.cycle.feedback = true;
        self.rounds.restart(view.delivered);
        self.full_pipe.restart(self.sample.rate);
        self.delay.begin_probe();
        self.steepen();
    }

    /// What may be in flight in `ProbeRTT`.
    pub(super) fn probe_rtt_window(&self) -> f64 {
        self.product(self.bandwidth(), Phase::ProbeRtt.window_gain()).max(LEAST_PIPE)
    }

    /// draft: `CheckProbeRTT`.
    pub(super) fn check_probe_rtt(&mut self, acked: f64, view: &View, timer: &mut Option<Time>) {
        if self.phase != Phase::ProbeRtt && self.min_rtt.is_stale() && !self.idle_restart {
            self.save_window();
            self.phase = Phase::ProbeRtt;
            self.probe_rtt = ProbeRtt::default();
            self.cycle.stopping = true;
            self.rounds.restart(view.delivered);
        }
        if self.phase == Phase::ProbeRtt {
            self.go_on_with_probe_rtt(view, timer);
        }
        self.idle_restart &= acked == 0.0;
    }

    fn go_on_with_probe_rtt(&mut self, view: &View, timer: &mut Option<Time>) {
        if self.probe_rtt.until.is_some() {
            self.probe_rtt.round_done |= self.rounds.started();
            self.end_probe_rtt(view);
        } else if self.in_flight(view) <= self.probe_rtt_window() {
            let until = view.now + PROBE_RTT_LASTS;
            self.probe_rtt.until = Some(until);
            // With few packets in flight the next ACK may come long after.
            *timer = Some(until);
            self.rounds.restart(view.delivered);
        }
    }

    /// Goes back to what was before, if it is time (draft: `CheckProbeRTTDone`).
    pub(super) fn end_probe_rtt(&mut self, view: &View) {
        let over = self.probe_rtt.until.is_some_and(|until| view.now >= until);
        if self.phase != Phase::ProbeRtt || !over || !self.probe_rtt.round_done {
            return;
        }
        self.min_rtt.restart(view.now);
        self.bounds.forget_short_term();
        self.ease.begin_probe();
        self.window = self.window.max(self.prior_window);
        if self.full_pipe.reached {
            self.start_down(view);
            self.phase = Phase::Cruise;
        } else {
            self.phase = Phase::Startup;
        }
    }

    /// Data comes after a silence, in which the queue has drained (draft:
    /// `HandleRestartFromIdle`).
    pub(super) fn restart_from_idle(&mut self, view: &View, knobs: &mut Knobs) {
        self.idle_restart = true;
        self.aggregation.restart(view.now);
        if self.phase.is_probe_bw() {
            self.set_pacing(1.0, knobs);
        }
        self.probe_rtt.round_done = true;
        self.end_probe_rtt(view);
        self.apply_window(view, knobs);
    }
}
