//! `haul`: the law for a path of which nothing is known. A window that keeps a share of its own in
//! the queue, √rate packets, fair whatever the round trip; looks at the path with its queue empty,
//! all flows at once; CUBIC's window where somebody else fills the queue.
//!
//! How it came about, what was measured and what was rejected: `docs/default-law.md`.

mod phases;

use core::time::Duration;

use farhaul_base::Time;
use farhaul_wire::{LossRange, Seq};

use crate::cubic::CubicRule;
use crate::rounds::{Answered, Lowest};
use crate::tcp_like::is_tested;
use crate::{Knobs, LEAST_GROWTH, Law, LawInfo, Make, Param, SYN, View};

/// Share of the way to its aim that a window goes in a round trip (FAST's γ, ToN 2006 §IV-B).
const GAIN: f64 = 0.5;
/// Packets leave a little faster than the window allows, so that it is the window that limits.
const PACE: f64 = 1.1;
/// The receiver measures what arrives over a round trip, in which fourfold growth makes it twice as
/// much at the end as on average.
const START_GROWTH: u32 = 8;
/// The queue that stands is the shortest of this time, seconds: two of the bursts that the engine's
/// pacing makes, whose last packets wait for the first.
const STANDING: f64 = 2e-3;
/// And of so many packets, where those take longer.
const STANDING_PACKETS: f64 = 8.0;
/// And of this share of a round trip while the window doubles: the receiver opens its window once a
/// SYN interval, and what that lets go leaves faster than the path can take it.
const START_STANDING: f64 = 0.125;
/// The window never falls below this, packets, or it would not see when it might grow.
const LEAST_PIPE: f64 = 4.0;
/// The shortest round-trip time is that of so long a time: a path may become longer.
const BASE_KEPT: Duration = Duration::from_secs(30);
/// An ACK every so often, seconds, but after 16 packets at the latest: they are light ones.
const ACK_TIME: f64 = 4e-4;
const MOST_INTERVAL: f64 = 16.0;

/// What it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The window doubles each round trip.
    Start,
    /// The window keeps its share in the queue.
    Hold,
    /// Somebody else fills the queue: the window is CUBIC's.
    Compete,
}

/// Round-trip times, seconds.
#[derive(Debug, Default)]
struct Delays {
    base_kept: Lowest,
    standing_kept: Lowest,
    /// That of the path with its queues empty; 0 before the first sample.
    base: f64,
    /// That of the queue that stands.
    standing: f64,
}

impl Delays {
    fn add(&mut self, now: Time, sample: f64, window: f64, starts: bool) {
        if self.base == 0.0 || sample < self.base {
            self.base = sample;
        }
        let start = if starts { START_STANDING * self.base } else { 0.0 };
        let span = STANDING.max(STANDING_PACKETS * self.standing / window).max(start);
        self.standing = self.standing_kept.add(now, sample, Duration::from_secs_f64(span));
    }

    /// What packets wait, seconds.
    fn queue(&self) -> f64 {
        self.standing - self.base
    }

    /// What was measured before a silence is no news after it.
    fn forget_standing(&mut self) {
        self.standing_kept = Lowest::default();
        self.standing = self.base;
    }
}

/// The account of a round trip: over with the news of a packet that was sent after it began.
#[derive(Debug, Default)]
struct Round {
    since: Time,
    /// Of [`View::delivered`] and the losses, what they were then.
    delivered: u64,
    lost: u64,
    /// The shortest time of a packet, seconds.
    least: f64,
    /// The application limited the sending.
    limited: bool,
    /// By how much the queue was shorter than aimed at, in shares of the aim, summed over packets.
    off: f64,
    packets: f64,
}

/// The law. Windows in packets, rates in packets a second, times in seconds.
#[derive(Debug)]
pub struct Haul {
    initial_window: f64,
    queue: f64,
    phase: Phase,
    window: f64,
    /// What is left of the share that is kept in the queue, where a short buffer has no room for it.
    scale: f64,
    /// For how many round trips the queue has been shorter than aimed at, or longer: negative.
    steady: i32,
    /// And for how many it has been as good as empty.
    empty: u32,
    delivered: u64,
    round: Round,
    /// Arrivals in the last round trip that tells of the path.
    rate: f64,
    delays: Delays,
    looks: phases::Looks,
    /// Packets, and those lost of them, whose losses have not been judged.
    judged: (f64, f64),
    /// Round trips whose losses are those of a time that is over.
    pardoned: u32,
    /// Nothing is heard, and since when something is again.
    silent: bool,
    resumed_at: Time,
    /// When a packet last told of the path.
    sampled_at: Time,
    /// The newest packet that is lost and not yet repaired.
    repairing: Option<Seq>,
    answered: Answered,
    cubic: CubicRule,
    /// The window doubles up to this one, packets.
    joins_until: Option<f64>,
}

impl Haul {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: "haul",
        summary: "a path without information: full, short queue, fair whatever the round trip",
        source: "docs/default-law.md, after FAST TCP, Copa and BBR",
        params: &[
            Param::number("window", 32.0, (2.0, 65536.0), "packets", "sent before the first ACK"),
            Param::number(
                "queue",
                0.27,
                (0.01, 100.0),
                "",
                "packets kept in the queue over the root of the rate in packets/s: 25 at 100 Mb/s",
            ),
        ],
        make: Make::Law(|values, _| Box::new(Haul::new(values.get("window"), values.get("queue")))),
    };

    /// `window`: packets sent before the first ACK; `queue`: packets kept in the queue over the root
    /// of the rate in packets a second.
    pub fn new(window: f64, queue: f64) -> Self {
        Haul {
            initial_window: window,
            queue,
            phase: Phase::Start,
            window,
            scale: 1.0,
            steady: 0,
            empty: 0,
            delivered: 0,
            round: Round::default(),
            rate: 0.0,
            delays: Delays::default(),
            looks: phases::Looks::new(),
            judged: (0.0, 0.0),
            pardoned: 0,
            silent: false,
            resumed_at: Time::ZERO,
            sampled_at: Time::ZERO,
            repairing: None,
            answered: Answered::new(),
            cubic: phases::cubic(),
            joins_until: None,
        }
    }

    /// Packets to keep in the queue at a rate: where all flows keep queue·√rate, and see the same
    /// delay d, each has the rate (queue / d)², whatever its round trip.
    fn share(&self, rate: f64) -> f64 {
        self.scale * self.queue * rate.sqrt()
    }

    fn begin_round(&mut self, view: &View) {
        self.round = Round {
            since: view.now,
            delivered: view.delivered,
            lost: view.trace.packets_lost,
            least: f64::INFINITY,
            ..Round::default()
        };
    }

    /// What an ACK or a report of losses tells.
    fn on_news(&mut self, view: &View, knobs: &mut Knobs) {
        let acked = (view.delivered.saturating_sub(self.delivered) as f64).min(self.window);
        self.delivered = view.delivered;
        if core::mem::take(&mut self.silent) {
            self.resume(view);
        }
        // The time of a packet that left before a silence was over is that of the silence.
        if let Some(newest) = view.newest
            && newest.rtt <= view.now - self.resumed_at
        {
            let sample = newest.rtt.as_secs_f64().max(1e-6);
            let base_before = self.delays.base;
            self.delays.add(view.now, sample, self.window, self.phase == Phase::Start);
            self.round.least = self.round.least.min(sample);
            self.round.limited |= view.app_limited;
            let share = self.share(self.window / sample) * sample / self.window;
            // Who competes looks nevertheless, to find out whether it still has to.
            let share = if self.phase == Phase::Compete { 0.0 } else { share };
            self.looks.on_sample(view.now, sample, base_before, share);
            let sent_at = newest.delivery.map(|delivery| delivery.delivered_before);
            if sent_at.is_some_and(|before| before >= self.round.delivered) {
                self.end_round(view, knobs);
            }
            self.look(view);
            if !self.looks.looking() {
                self.step(acked, view);
            }
            self.sampled_at = view.now;
        } else if view.newest.is_none() && acked > 0.0 && self.repairing.is_some() {
            self.repair(acked, view);
        }
        self.apply(view, knobs);
    }

    /// While a long hole is repaired, only packets arrive that were sent again, and those tell no times. The
    /// round trip of ACK and ACK2, which pass the same queue, stands in for theirs; else the last packet
    /// before the hole, which may have met with the pause of a host, would set the pace of all that follow.
    fn repair(&mut self, acked: f64, view: &View) {
        let heard = self.sampled_at.max(self.resumed_at);
        if view.now - heard < 2 * (Duration::from_secs_f64(self.delays.standing) + SYN) {
            return;
        }
        // A look would find nothing.
        self.looks.restart(view.now);
        self.delays.standing = view.rtt.as_secs_f64().max(self.delays.base);
        self.step(acked, view);
    }

    fn step(&mut self, acked: f64, view: &View) {
        // What the window is not used for says nothing for a larger one.
        let tested = is_tested(self.window, acked as u32, view);
        match self.phase {
            Phase::Start => self.step_start(acked, tested, view),
            Phase::Hold => self.step_hold(acked, tested, view),
            Phase::Compete => self.step_compete(acked, tested, view),
        }
        self.window = self.window.max(LEAST_PIPE);
    }

    fn end_round(&mut self, view: &View, knobs: &mut Knobs) {
        let elapsed = (view.now - self.round.since).as_secs_f64().max(1e-6);
        let arrived = (view.delivered - self.round.delivered) as f64;
        let lost = (view.trace.packets_lost - self.round.lost) as f64;
        if !self.looks.looking() && !self.round.limited {
            self.rate = arrived / elapsed;
        }
        self.delays.base = self.delays.base_kept.add(view.now, self.round.least, BASE_KEPT);
        self.judge(arrived, lost, view);
        self.note_steadiness();
        let interval = (self.rate * ACK_TIME).clamp(1.0, MOST_INTERVAL);
        knobs.ack_interval = (interval as u32).next_power_of_two();
        self.begin_round(view);
    }

    /// Something is heard again: the path is taken for what it was, and what was lost meanwhile
    /// tells of the silence only.
    fn resume(&mut self, view: &View) {
        self.resumed_at = view.now;
        self.pardoned = 3;
        self.judged = (0.0, 0.0);
        (self.steady, self.empty) = (0, 0);
        self.looks.restart(view.now);
        self.delays.forget_standing();
        if self.rate > 0.0 {
            self.window = (self.rate * self.delays.base).max(LEAST_PIPE);
            self.phase = Phase::Hold;
        }
        self.begin_round(view);
    }

    fn apply(&self, view: &View, knobs: &mut Knobs) {
        let window = match self.looks.window() {
            _ if self.silent => LEAST_PIPE,
            Some(window) => self.window.min(window).max(crate::LEAST_WINDOW),
            None => self.window,
        };
        let (pace, growth) = match self.phase {
            Phase::Start => (self.growth(view).1, START_GROWTH),
            _ => (PACE, LEAST_GROWTH),
        };
        knobs.window_growth = growth;
        if self.delays.standing > 0.0 {
            knobs.period_ns = self.delays.standing * 1e9 / (pace * window);
        }
        // Where every ACK may wait for a timer, there is more in flight than the window, and it is the
        // pace that limits. So it is while a hole is repaired: the engine holds the window against what
        // left in the last round trip and SYN interval.
        let stretch = if view.ack_wait > Duration::ZERO && self.delays.base > 0.0 {
            view.ack_wait.as_secs_f64() / self.delays.base
        } else if self.repairing.is_some() && !view.sees_beyond_holes {
            SYN.as_secs_f64() / view.rtt.as_secs_f64().max(1e-6)
        } else {
            0.0
        };
        knobs.window = window * (1.0 + stretch);
    }
}

impl Law for Haul {
    fn name(&self) -> &'static str {
        Self::INFO.name
    }

    fn state(&self) -> &'static str {
        match self.phase {
            _ if self.looks.looking() => "look",
            Phase::Start => "start",
            Phase::Hold => "hold",
            Phase::Compete => "compete",
        }
    }

    /// For the samples of what was delivered.
    fn watches_packets(&self) -> bool {
        true
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        self.window = view.start_window(self.initial_window);
        self.delivered = view.delivered;
        self.looks.restart(view.now);
        self.answered.until(view.largest_acked);
        self.begin_round(view);
        knobs.window = self.window;
        let known = view.rtt_min < Duration::MAX;
        let rtt = if known { view.rtt.as_nanos() as f64 } else { 0.0 };
        knobs.period_ns = rtt / (2.0 * self.window);
        knobs.ack_interval = 1;
        knobs.window_growth = START_GROWTH;
    }

    fn on_ack(&mut self, next: Seq, view: &View, knobs: &mut Knobs) {
        self.answered.on_ack(next);
        if self.repairing.is_some_and(|newest| next.since(newest) > 0) {
            self.repairing = None;
        }
        self.on_news(view, knobs);
    }

    fn on_arrivals(&mut self, view: &View, knobs: &mut Knobs) {
        self.on_news(view, knobs);
    }

    fn on_loss(&mut self, lost: &[LossRange], view: &View, knobs: &mut Knobs) {
        for range in lost {
            if self.repairing.is_none_or(|newest| range.last.since(newest) > 0) {
                self.repairing = Some(range.last);
            }
        }
        let fresh = self.answered.answer(lost, view);
        self.answer_loss(fresh, view);
        self.on_news(view, knobs);
    }

    fn on_timeout(&mut self, view: &View, knobs: &mut Knobs) {
        self.silent = true;
        self.answered.until(view.largest_sent);
        self.repairing = Some(view.largest_sent);
        self.apply(view, knobs);
    }
}

#[cfg(test)]
mod tests;
