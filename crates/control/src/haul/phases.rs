//! What `haul` does with its window: how it starts, keeps its share of the queue, looks at the path
//! with the queue empty, competes, and answers losses.

use core::time::Duration;

use farhaul_base::Time;

use super::{GAIN, Haul, LEAST_PIPE, Phase};
use crate::View;
use crate::cubic::CubicRule;
use crate::tcp_like::Rule;

/// The window doubles each round trip, and below this share of what packet pairs say grows fourfold.
const FAR_BELOW: f64 = 0.25;
/// By what it grows in a round trip, and how many windows a round trip it is paced for: a window that
/// grows by g is sent g·ln g / (g - 1) times a round trip. With much more, packets would leave in
/// bursts, wait for each other, and end the start at half of the rate.
const DOUBLING: (f64, f64) = (2.0, 1.4);
const FOURFOLD: (f64, f64) = (4.0, 1.9);
/// Once the queue has been shorter than aimed at, or longer, for so many round trips, somebody else
/// makes up for what this flow does, or nobody fills the path: from then on steps double each round
/// trip (Copa's velocity, NSDI 2018 §2.1).
const STEADY_ROUNDS: u32 = 3;
/// Where the queue is so much shorter, by shares of the aim, that it is as good as empty, they begin at
/// this share of the window: a start that ended too soon, or a path that became wider.
const AS_GOOD_AS_EMPTY: f64 = 0.75;
const EMPTY_STEP: f64 = 0.0625;
/// It is so where it differs by more than this share of the aim.
const OFF: f64 = 0.2;
/// In an acknowledged window the window at most doubles or halves.
const MOST_STEPS: (f64, f64) = (-0.5, 1.0);

/// How often a flow looks at the path with the queue empty: so many seconds and round trips.
const LOOK_EVERY: Duration = Duration::from_secs(3);
const LOOK_ROUNDS: f64 = 30.0;
/// How soon if there is a reason, and how much later than the last time.
const LOOK_SOON: Duration = Duration::from_secs(1);
/// How long, beside a round trip: the looks of flows whose round trips differ by so much overlap
/// (as BBR's `ProbeRTTDuration`).
const LOOK_TIME: Duration = Duration::from_millis(300);
/// What is left of the window without its share of the queue, so that the queue does drain.
const LOOK_SHARE: f64 = 0.9;
/// A queue so many times as long as this flow's share of it aims at is a reason to look soon.
const SPIKE: f64 = 2.0;
/// So is a queue that falls below this share of what it was for [`USUAL`] seconds: somebody looks.
const DIP: f64 = 0.8;
const USUAL: f64 = 0.5;
/// A sample whose queue is this share of the aim is a look already.
const SEEN: f64 = 0.125;
/// A look at which more than this share of the queue stays has failed: somebody does not look.
const STANDS: f64 = 0.6;
/// One at which more than this stays, where packets have been lost, has failed by half: another flow
/// was not in step, or one of CUBIC has just made way.
const PARTLY: f64 = 0.15;
/// A queue of which less than this is left is empty.
const EMPTY: f64 = 0.05;
/// So many looks in a row must fail before the flow competes: the first few of flows that have just
/// begun are not at the same time. More without a loss, as a queue that somebody fills overflows.
const FAILED: f64 = 3.0;
const FAILED_LOSSLESS: f64 = 6.0;
const LOSS_KEPT: Duration = Duration::from_secs(10);
/// And so many must find the queue empty before it stops to: CUBIC has just made way at one.
const EMPTIED: f64 = 3.0;

/// Who competes begins as a new flow of TCP does, with slow start until a loss, or until its window is
/// so many times as large.
const JOIN: f64 = 8.0;

/// Competing must pay: after so many seconds and round trips the flow must have this share of the rate
/// that it had before. If not, losses at random or delays of the path were taken for somebody else, and
/// twice as many looks must fail the next time, up to so many times as many.
const TRIAL: Duration = Duration::from_secs(4);
const TRIAL_ROUNDS: f64 = 20.0;
const PAYS: f64 = 0.7;
const MOST_PATIENCE: f64 = 32.0;

/// Losses up to this share are none of congestion (BBR's `LossThresh`), and so many packets beyond
/// it may be chance; judged over a round trip or so many packets.
const LOSS_TOLERATED: f64 = 0.02;
const LOSS_MARGIN: f64 = 4.0;
const JUDGED_OVER: f64 = 500.0;
/// From this share on, and so many packets, the share kept in the queue shrinks by so much each round
/// trip, while it is more than this part of the window.
const LOSS_NOTICED: f64 = 0.003;
const NOTICED_MARGIN: f64 = 2.0;
const NOTICED_SHRINK: f64 = 0.9;
const LOSSY_SHARE: f64 = 0.05;
/// The share kept in the queue is halved by too many losses, to no less than this, and comes back by
/// so much a round trip.
const LEAST_SCALE: f64 = 1.0 / 16.0;
const SCALE_GROWTH: f64 = 1.02;

/// RFC 9438's window, beyond slow start.
pub(super) fn cubic() -> CubicRule {
    CubicRule::new(0.4, 0.7, true, true, false)
}

/// A look at the path with the queue empty.
#[derive(Clone, Copy, Debug)]
struct Look {
    until: Time,
    /// The queue when it began, seconds, and the shortest round-trip time since.
    queue: f64,
    least: f64,
    /// What is left of the window meanwhile.
    window: f64,
}

/// When a flow looks, and what it saw.
#[derive(Debug, Default)]
pub(super) struct Looks {
    now: Option<Look>,
    next_at: Time,
    last_at: Time,
    every: Duration,
    /// What the queue usually is, seconds, and as of when.
    usual: f64,
    usual_at: Time,
    /// Looks in a row that speak for another phase; half a look for one that may.
    against: f64,
    lost_at: Option<Time>,
    /// The window when the queue was last found empty.
    window_before: f64,
    /// How many times as many must fail.
    patience: f64,
    trial: Option<Trial>,
}

/// What the flow had before it began to compete.
#[derive(Clone, Copy, Debug)]
struct Trial {
    since: Time,
    delivered: u64,
    rate: f64,
}

impl Looks {
    pub fn looking(&self) -> bool {
        self.now.is_some()
    }

    /// What is left of the window.
    pub fn window(&self) -> Option<f64> {
        self.now.map(|look| look.window)
    }

    pub fn new() -> Self {
        Looks { patience: 1.0, ..Looks::default() }
    }

    /// None before the next is due.
    pub fn restart(&mut self, now: Time) {
        self.now = None;
        (self.last_at, self.usual_at, self.usual) = (now, now, 0.0);
        self.next_at = now + LOOK_EVERY;
    }

    /// `share`: what this flow's aim is of a delay, seconds.
    pub fn on_sample(&mut self, now: Time, sample: f64, base: f64, share: f64) {
        if let Some(look) = &mut self.now {
            look.least = look.least.min(sample);
        }
        self.every = LOOK_EVERY.max(Duration::from_secs_f64(LOOK_ROUNDS * base));
        // All who see the queue empty look next at the same time (as BBR's `ProbeRTT`).
        if sample < base + SEEN * share {
            self.next_at = now + self.every;
        }
    }

    fn soon(&mut self, now: Time) {
        self.next_at = self.next_at.min(now + LOOK_SOON);
    }

    /// Whether it is time, or others look already. `share`: what is aimed at, seconds.
    fn due(&mut self, now: Time, queue: f64, share: f64) -> bool {
        let elapsed = (now - self.usual_at).as_secs_f64();
        self.usual_at = now;
        self.usual += (queue - self.usual) * (elapsed / USUAL).min(0.5);
        let dip = queue < DIP * self.usual && self.usual > share / 2.0;
        now > self.next_at
            || dip && now - self.last_at > if self.against > 0.0 { LOOK_TIME } else { LOOK_SOON }
    }
}

impl Haul {
    /// By what the window grows in a round trip of [`Phase::Start`], and how it is paced.
    pub(super) fn growth(&self, view: &View) -> (f64, f64) {
        let far = self.window < FAR_BELOW * view.capacity * self.delays.base;
        if far { FOURFOLD } else { DOUBLING }
    }

    /// Until the queue is as long as aimed at, or the window what packet pairs say that the path
    /// holds: if that is too little, [`Phase::Hold`] finds out within a few round trips.
    pub(super) fn step_start(&mut self, acked: f64, tested: bool, view: &View) {
        let rate = self.window / self.delays.standing;
        let share = self.share(rate);
        let pairs = view.capacity * self.delays.base;
        if rate * self.delays.queue() > share {
            // The newest packet left with so many in flight, and all of them were served while it
            // was on its way.
            let in_flight = view.newest.and_then(|newest| newest.delivery).map(|d| d.in_flight);
            let in_flight = in_flight.map_or(self.window, f64::from).min(self.window);
            self.hold(in_flight * self.delays.base / self.delays.standing + share, view);
        } else if pairs > 0.0 && self.window >= pairs {
            self.hold(pairs + share, view);
        } else if tested {
            self.window += (self.growth(view).0 - 1.0) * acked;
            // The receiver opens its window as the rate grows; paced for more, packets would leave in
            // bursts, and wait for each other.
            self.window = self.window.min(f64::from(view.flow_window));
        }
    }

    /// FAST's window: a share in the queue, by steps as long as it is far away.
    pub(super) fn step_hold(&mut self, acked: f64, tested: bool, view: &View) {
        let rate = self.window / self.delays.standing;
        let (share, queued) = (self.share(rate), rate * self.delays.queue());
        let off = share - queued;
        self.round.off += acked * off / share;
        self.round.packets += acked;
        if queued > SPIKE * share {
            self.looks.soon(view.now);
        }
        let mut step = GAIN * off.abs();
        let doublings = self.steady.unsigned_abs().saturating_sub(STEADY_ROUNDS).min(20);
        if doublings > 0 && (off > 0.0) == (self.steady > 0) {
            // No further than towards the rate that this queue stands for.
            let root = self.scale * self.queue / self.delays.queue().max(1e-6);
            let most = GAIN * (root * root - rate).abs() * self.delays.standing;
            let least =
                if self.empty > STEADY_ROUNDS { EMPTY_STEP * self.window } else { 2.0 * step };
            let steep = least.max(2.0 * step) * f64::from(1u32 << (doublings - 1));
            step = steep.min(most).max(step);
        }
        if off < 0.0 || tested {
            let (down, up) = MOST_STEPS;
            self.window += acked * (step.copysign(off) / self.window).clamp(down, up);
        }
    }

    pub(super) fn step_compete(&mut self, acked: f64, tested: bool, view: &View) {
        if !tested {
            return;
        }
        match self.joins_until {
            Some(enough) if self.window < enough => self.window += acked,
            _ => {
                self.joins_until = None;
                self.window = self.cubic.avoid(self.window, acked, view);
            }
        }
    }

    fn hold(&mut self, window: f64, view: &View) {
        self.phase = Phase::Hold;
        self.window = window.max(LEAST_PIPE);
        (self.steady, self.empty) = (0, 0);
        self.looks.window_before = self.window;
        // What a beginner did to the queue is over by then.
        self.looks.restart(view.now);
        self.looks.soon(view.now);
    }

    fn compete(&mut self, view: &View) {
        self.phase = Phase::Compete;
        self.cubic = cubic();
        // Its curve leads back to the window that there was before.
        self.cubic.decrease(self.looks.window_before.max(self.window), view);
        self.joins_until = Some(JOIN * self.window);
        self.looks.trial =
            Some(Trial { since: view.now, delivered: view.delivered, rate: self.rate });
    }

    /// Stops to compete where that does not pay.
    fn end_trial(&mut self, view: &View) {
        let Some(trial) = self.looks.trial else { return };
        let elapsed = (view.now - trial.since).as_secs_f64();
        if elapsed < TRIAL.as_secs_f64().max(TRIAL_ROUNDS * self.delays.standing) {
            return;
        }
        self.looks.trial = None;
        let rate = (view.delivered - trial.delivered) as f64 / elapsed;
        if rate < PAYS * trial.rate {
            self.looks.patience = (2.0 * self.looks.patience).min(MOST_PATIENCE);
            self.hold(trial.rate * self.delays.base, view);
        }
    }

    /// At the end of a round trip.
    pub(super) fn note_steadiness(&mut self) {
        if self.round.packets == 0.0 {
            return;
        }
        let off = self.round.off / self.round.packets;
        self.empty = if off > AS_GOOD_AS_EMPTY { self.empty + 1 } else { 0 };
        self.steady = match self.steady {
            steady if off > OFF => steady.max(0) + 1,
            steady if off < -OFF => steady.min(0) - 1,
            _ => 0,
        };
    }

    /// At the end of a round trip: too many losses leave what was delivered, and less of a queue.
    pub(super) fn judge(&mut self, arrived: f64, lost: f64, view: &View) {
        if self.pardoned > 0 {
            self.pardoned -= 1;
            return;
        }
        if self.phase == Phase::Compete {
            return;
        }
        let (sent, all_lost) = (self.judged.0 + arrived + lost, self.judged.1 + lost);
        let many = all_lost > LOSS_TOLERATED * sent + LOSS_MARGIN;
        self.judged = if many || sent > JUDGED_OVER { (0.0, 0.0) } else { (sent, all_lost) };
        if !many {
            // The losses may be those of a short buffer, which others need as well.
            let noticed = all_lost > LOSS_NOTICED * sent + NOTICED_MARGIN;
            self.scale = if noticed && self.share(self.rate) > LOSSY_SHARE * self.window {
                self.scale * NOTICED_SHRINK
            } else {
                (self.scale * SCALE_GROWTH).min(1.0)
            };
            return;
        }
        self.scale = (self.scale / 2.0).max(LEAST_SCALE);
        self.window = (self.window * (1.0 - all_lost / sent)).max(LEAST_PIPE);
        (self.steady, self.empty) = (0, 0);
        // What was sent before this answer will be lost as well.
        self.pardoned = 1;
        if self.phase == Phase::Start {
            // What arrives of late: a round trip in which the window grew tells of less.
            let sample = view.newest.and_then(|newest| newest.delivery);
            let rate = sample.map_or(self.rate, |sample| sample.rate().max(self.rate));
            self.hold(self.window.min(rate * self.delays.base), view);
        }
    }

    /// Packets are lost; `fresh`: not only such as were sent before the last answer.
    pub(super) fn answer_loss(&mut self, fresh: bool, view: &View) {
        self.looks.lost_at = Some(view.now);
        if fresh && self.phase == Phase::Compete && !self.looks.looking() {
            self.window = self.cubic.decrease(self.window, view).max(LEAST_PIPE);
            self.joins_until = None;
            // All flows lose packets when the queue overflows: the time to look together.
            let soonest = self.looks.last_at + LOOK_SOON;
            self.looks.next_at = self.looks.next_at.min(view.now.max(soonest));
        }
    }

    /// Begins or ends a look.
    pub(super) fn look(&mut self, view: &View) {
        if self.phase == Phase::Compete {
            self.end_trial(view);
        }
        if let Some(look) = self.looks.now {
            if view.now >= look.until {
                self.end_look(look, view);
            }
            return;
        }
        let queue = self.delays.queue();
        // CUBIC's window makes dips of its own, and the start no queue yet.
        let rate = self.window / self.delays.standing;
        let share = self.share(rate) / rate;
        let queue_held = if self.phase == Phase::Hold { queue } else { 0.0 };
        let due = self.looks.due(view.now, queue_held, share);
        if due && self.phase != Phase::Start {
            let until = view.now + LOOK_TIME + Duration::from_secs_f64(self.delays.standing);
            let window = LOOK_SHARE * self.window * self.delays.base / self.delays.standing;
            self.looks.now = Some(Look { until, queue, least: f64::INFINITY, window });
        }
    }

    fn end_look(&mut self, look: Look, view: &View) {
        self.looks.now = None;
        self.looks.last_at = view.now;
        self.looks.usual_at = view.now;
        self.looks.next_at = view.now + self.looks.every;
        let left = (look.least - self.delays.base) / look.queue.max(1e-6);
        let lost = self.looks.lost_at.is_some_and(|at| view.now - at < LOSS_KEPT);
        let against = match self.phase {
            Phase::Compete if left < EMPTY => 1.0,
            Phase::Compete => 0.0,
            _ if left > STANDS => 1.0,
            _ if left > PARTLY && lost => 0.5,
            _ => 0.0,
        };
        self.looks.against = if against > 0.0 { self.looks.against + against } else { 0.0 };
        let enough = match self.phase {
            Phase::Compete => EMPTIED,
            _ if lost => self.looks.patience * FAILED,
            _ => self.looks.patience * FAILED_LOSSLESS,
        };
        match self.phase {
            Phase::Compete if self.looks.against >= enough => {
                self.looks.against = 0.0;
                self.hold(self.rate * self.delays.base, view);
            }
            _ if self.looks.against >= enough => {
                self.looks.against = 0.0;
                self.compete(view);
            }
            _ if against > 0.0 => self.looks.soon(view.now),
            Phase::Hold if left < EMPTY => self.looks.window_before = self.window,
            _ => {}
        }
        self.begin_round(view);
    }
}
