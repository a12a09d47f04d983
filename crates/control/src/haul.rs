//! `haul`: draft.

use core::time::Duration;

use farhaul_base::Time;
use farhaul_wire::{LossRange, Seq};

use crate::cubic::CubicRule;
use crate::law::SYN_NS;
use crate::rounds::{Answered, Lowest};
use crate::tcp_like::Rule;
use crate::{Knobs, Law, LawInfo, Make, Param, SentPacket, View};

const GAIN: f64 = 0.5;
const PACE: f64 = 1.1;
const BASE_KEPT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_secs(3);
const LOOK_ROUNDS: f64 = 30.0;
const LOOK_TIME: Duration = Duration::from_millis(200);
const LOOK_SHARE: f64 = 0.9;
const JUDGED: f64 = 500.0;
const LOSS_MARGIN: f64 = 4.0;
const STANDS: f64 = 0.6;
const USUAL: f64 = 0.5;
const DIP: f64 = 0.8;
const LOSS_KEPT: Duration = Duration::from_secs(10);
const EMPTY: f64 = 0.05;
const LOSS_TOLERATED: f64 = 0.02;
const LEAST_SCALE: f64 = 1.0 / 16.0;
const SCALE_GROWTH: f64 = 1.02;
const STEADY_ROUNDS: u32 = 3;
const OFF: f64 = 0.2;
const SPIKE: f64 = 2.0;
const LOOK_SOON: Duration = Duration::from_secs(1);
const LEAST_WINDOW: f64 = 4.0;
const STANDING: f64 = 2e-3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Seek,
    Hold,
    Compete,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    until: Time,
    queue: f64,
    least: f64,
    window: f64,
}

#[derive(Debug, Default)]
struct Round {
    /// Ends with the news of a packet that left when so many had arrived.
    end: u64,
    since: Time,
    delivered: u64,
    lost: u64,
    least: f64,
    limited: bool,
}

#[derive(Debug)]
pub struct Haul {
    initial_window: f64,
    k: f64,
    phase: Phase,
    window: f64,
    scale: f64,
    steady: i32,
    off: (f64, f64),
    failed: u32,
    look_at: Time,
    looked_at: Time,
    resumed_at: Time,
    lost_at: Option<Time>,
    usual: f64,
    usual_at: Time,
    judged: (f64, f64),
    prior: f64,
    delivered: u64,
    round: Round,
    /// Packets a second of the last round.
    rate: f64,
    base_kept: Lowest,
    base: f64,
    standing_kept: Lowest,
    standing: f64,
    look: Option<Look>,
    /// Rounds whose losses are old.
    pardoned: u32,
    silent: bool,
    repairing: Option<Seq>,
    answered: Answered,
    cubic: CubicRule,
    dbg: bool,
}

impl Haul {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: "haul",
        summary: "a full link at a short queue whatever the path, and fair whatever the round trip",
        source: "docs/default-law.md; after FAST TCP and Copa",
        params: &[
            Param::number("window", 32.0, (2.0, 65536.0), "packets", "sent before the first ACK"),
            Param::number("k", 0.27, (0.01, 100.0), "", "queue"),
        ],
        make: Make::Law(|values, _| Box::new(Haul::new(values.get("window"), values.get("k")))),
    };

    pub fn new(window: f64, k: f64) -> Self {
        Haul {
            initial_window: window,
            k,
            phase: Phase::Seek,
            window,
            scale: 1.0,
            steady: 0,
            off: (0.0, 0.0),
            failed: 0,
            look_at: Time::ZERO,
            looked_at: Time::ZERO,
            resumed_at: Time::ZERO,
            lost_at: None,
            usual: 0.0,
            usual_at: Time::ZERO,
            judged: (0.0, 0.0),
            prior: 0.0,
            delivered: 0,
            round: Round::default(),
            rate: 0.0,
            base_kept: Lowest::default(),
            base: 0.0,
            standing_kept: Lowest::default(),
            standing: 0.0,
            look: None,
            pardoned: 0,
            silent: false,
            repairing: None,
            answered: Answered::new(),
            cubic: CubicRule::new(0.4, 0.7, true, true, false),
            dbg: std::env::var_os("HAUL_DBG").is_some(),
        }
    }

    /// Packets to keep in the queue at a rate.
    fn share(&self, rate: f64) -> f64 {
        self.scale * self.k * rate.sqrt()
    }

    fn look_every(&self) -> Duration {
        LOOK_EVERY.max(Duration::from_secs_f64(LOOK_ROUNDS * self.base))
    }

    fn queue(&self) -> f64 {
        self.standing - self.base
    }

    fn begin_round(&mut self, view: &View) {
        self.round = Round {
            end: view.delivered,
            since: view.now,
            delivered: view.delivered,
            lost: view.trace.packets_lost,
            least: f64::INFINITY,
            limited: false,
        };
    }

    fn on_news(&mut self, view: &View, knobs: &mut Knobs) {
        if self.dbg && view.now.as_nanos() > 8_000_000_000 && std::env::var_os("HAUL_ALL").is_some() { eprintln!("{:?} news {:?} {} {} {}", view.now, view.newest, view.delivered, self.window, view.in_flight); }
        let acked = (view.delivered.saturating_sub(self.delivered) as f64).min(self.window);
        self.delivered = view.delivered;
        if self.silent {
            self.resume(view);
        }
        let Some(newest) = view.newest else {
            self.apply(view, knobs);
            return;
        };
        // Left before the silence was over: its time is that of the silence.
        if view.now - self.resumed_at < newest.rtt {
            self.apply(view, knobs);
            return;
        }
        let sample = newest.rtt.as_secs_f64().max(1e-6);
        if self.base == 0.0 || sample < self.base {
            self.base = sample;
            self.look_at = view.now + self.look_every();
        }
        let span = Duration::from_secs_f64(STANDING.max(8.0 * self.standing / self.window));
        self.standing = self.standing_kept.add(view.now, sample, span);
        self.round.least = self.round.least.min(sample);
        self.round.limited |= view.app_limited;
        if sample < self.base + 0.125 * self.share(self.window / sample) * sample / self.window {
            self.look_at = view.now + self.look_every();
        }
        if let Some(look) = &mut self.look {
            look.least = look.least.min(sample);
        }
        if newest.delivery.is_some_and(|delivery| delivery.delivered_before >= self.round.end) {
            self.end_round(view);
        }
        self.look(view);
        if self.look.is_none() {
            self.step(acked, view);
        }
        self.apply(view, knobs);
    }

    fn step(&mut self, acked: f64, view: &View) {
        let tested = !view.app_limited
            && 2.0 * (f64::from(view.in_flight) + acked) >= self.window;
        let rate = self.window / self.standing;
        let (share, queued) = (self.share(rate), rate * self.queue());
        match self.phase {
            Phase::Seek => {
                let full = view.capacity > 0.0 && self.window >= view.capacity * self.base;
                if queued > share {
                    let in_flight = view
                        .newest
                        .and_then(|newest| newest.delivery)
                        .map_or(self.window, |delivery| f64::from(delivery.in_flight));
                    self.window = in_flight.min(self.window) * self.base / self.standing + share;
                    self.hold(view, "queue");
                } else if full {
                    self.window = view.capacity * self.base + share;
                    self.hold(view, "pairs");
                } else if tested {
                    self.window += acked;
                }
            }
            Phase::Hold => {
                let off = share - queued;
                self.off.0 += acked * off / share;
                self.off.1 += acked;
                if queued > SPIKE * share {
                    self.look_at = self.look_at.min(view.now + LOOK_SOON);
                }
                let mut step = GAIN * off;
                let steady = self.steady.unsigned_abs();
                if steady > STEADY_ROUNDS && (off > 0.0) == (self.steady > 0) {
                    // No further than to the rate that this queue stands for.
                    let q = self.queue().max(1e-6);
                    let aim = (self.scale * self.k / q) * (self.scale * self.k / q);
                    let most = GAIN * (aim - rate).abs() * self.standing;
                    let v = f64::from(1u32 << (steady - STEADY_ROUNDS).min(20));
                    step = (v * step.abs()).min(most).max(step.abs()).copysign(off);
                }
                let step = step / self.window;
                if step < 0.0 || tested {
                    self.window += acked * step.clamp(-0.5, 1.0);
                }
            }
            Phase::Compete => {
                if tested {
                    self.window = self.cubic.avoid(self.window, acked, view);
                }
            }
        }
        self.window = self.window.max(LEAST_WINDOW);
    }

    fn hold(&mut self, view: &View, why: &str) {
        self.prior = self.window;
        self.phase = Phase::Hold;
        self.steady = 0;
        self.look_at = view.now + LOOK_SOON;
        if self.dbg {
            eprintln!("{:?} hold ({why}) w {:.1} base {:.5} standing {:.5}", view.now, self.window, self.base, self.standing);
        }
    }

    fn end_round(&mut self, view: &View) {
        let elapsed = (view.now - self.round.since).as_secs_f64().max(1e-6);
        let arrived = (view.delivered - self.round.delivered) as f64;
        let lost = (view.trace.packets_lost - self.round.lost) as f64;
        let share = lost / (lost + arrived).max(1.0);
        if self.look.is_none() && !self.round.limited {
            self.rate = arrived / elapsed;
        }
        self.base = self.base_kept.add(view.now, self.round.least.min(self.base.max(self.round.least)), BASE_KEPT);
        if self.dbg {
            eprintln!(
                "{:?} {:?} w {:.1} rate {:.0} base {:.5} queue {:.5} scale {:.3} steady {} loss {:.3} look {:?} inflight {}",
                view.now, self.phase, self.window, self.rate, self.base, self.queue(), self.scale, self.steady, share, self.look.is_some(), view.in_flight
            );
        }
        if self.pardoned > 0 {
            self.pardoned -= 1;
        } else if self.phase != Phase::Compete {
            self.judged.0 += arrived + lost;
            self.judged.1 += lost;
            let (sent, lost) = self.judged;
            let share = lost / sent;
            let many = lost > LOSS_TOLERATED * sent + LOSS_MARGIN;
            if many || sent > JUDGED {
                self.judged = (0.0, 0.0);
            }
            if many {
                self.scale = (self.scale / 2.0).max(LEAST_SCALE);
                self.window *= 1.0 - share;
                if self.phase == Phase::Seek {
                    self.window = self.window.min(self.rate * self.base);
                    self.hold(view, "loss");
                }
                self.steady = 0;
                self.pardoned = 1;
            } else {
                self.scale = (self.scale * SCALE_GROWTH).min(1.0);
            }
        }
        let (off, acked) = core::mem::take(&mut self.off);
        let off = off / acked.max(1.0);
        self.steady = match self.steady {
            steady if off > OFF => steady.max(0) + 1,
            steady if off < -OFF => steady.min(0) - 1,
            _ => 0,
        };
        self.begin_round(view);
    }

    fn look(&mut self, view: &View) {
        match self.look {
            None => {
                let queue = self.queue();
                let elapsed = (view.now - self.usual_at).as_secs_f64();
                self.usual_at = view.now;
                self.usual += (queue - self.usual) * (elapsed / USUAL).min(0.5);
                let dip = self.phase == Phase::Hold
                    && queue < DIP * self.usual
                    && view.now - self.looked_at > LOOK_SOON;
                if self.phase != Phase::Seek && (dip || view.now > self.look_at) {
                    let time = if self.phase == Phase::Compete { 2 * LOOK_TIME } else { LOOK_TIME };
                    let until = view.now + time + Duration::from_secs_f64(self.standing);
                    let window = LOOK_SHARE * self.window * self.base / self.standing;
                    self.look =
                        Some(Look { until, queue: self.queue(), least: f64::INFINITY, window });
                }
            }
            Some(look) if view.now >= look.until => {
                self.look = None;
                self.look_at = view.now + self.look_every();
                self.looked_at = view.now;
                self.steady = 0;
                let left = (look.least - self.base) / look.queue.max(1e-6);
                if self.dbg {
                    eprintln!("{:?} looked: queue {:.5} left {:.3}", view.now, look.queue, left);
                }
                match self.phase {
                    Phase::Hold
                        if left > STANDS
                            && (self.failed < 2
                                || self.lost_at.is_none_or(|at| view.now - at > LOSS_KEPT)) =>
                    {
                        self.failed += 1;
                        self.look_at = view.now + LOOK_SOON;
                    }
                    Phase::Hold if left > STANDS => {
                        self.failed = 0;
                        self.phase = Phase::Compete;
                        self.cubic = CubicRule::new(0.4, 0.7, true, true, false);
                        self.cubic.decrease(self.prior.max(self.window), view);
                    }
                    Phase::Compete if left < EMPTY && self.failed == 0 => {
                        self.failed = 1;
                        self.look_at = view.now + LOOK_SOON;
                    }
                    Phase::Compete if left >= EMPTY => self.failed = 0,
                    Phase::Compete => {
                        self.failed = 0;
                        self.window = self.rate * self.base;
                        self.hold(view, "empty");
                    }
                    Phase::Hold => {
                        self.failed = 0;
                        if left < EMPTY {
                            self.prior = self.window;
                        }
                    }
                    _ => {}
                }
                self.begin_round(view);
            }
            Some(_) => {}
        }
    }

    fn resume(&mut self, view: &View) {
        if self.dbg { eprintln!("{:?} resume rate {} base {} newest {:?} in_flight {}", view.now, self.rate, self.base, view.newest, view.in_flight); }
        self.silent = false;
        self.pardoned = 3;
        self.judged = (0.0, 0.0);
        self.look_at = view.now + LOOK_EVERY;
        self.look = None;
        self.steady = 0;
        if self.rate > 0.0 {
            self.window = self.rate * self.base;
            self.phase = Phase::Hold;
        }
        self.standing_kept = Lowest::default();
        self.standing = self.base;
        self.resumed_at = view.now;
        self.begin_round(view);
    }

    fn apply(&self, view: &View, knobs: &mut Knobs) {
        let mut window = self.window;
        if let Some(look) = self.look {
            window = window.min(look.window).max(LEAST_WINDOW);
        }
        if self.silent {
            window = LEAST_WINDOW;
        }
        let pace = if self.phase == Phase::Seek { 2.0 } else { PACE };
        if self.standing > 0.0 {
            knobs.period_ns = self.standing * 1e9 / (pace * window);
        }
        let stretch = SYN_NS / (view.rtt.as_nanos() as f64).max(1.0);
        knobs.window = if self.repairing.is_some() { window * (1.0 + stretch) } else { window };
        let rate = window / self.standing.max(1e-3);
        knobs.ack_interval = if rate > 20_000.0 { 8 } else if rate > 2000.0 { 2 } else { 1 };
    }
}

impl Law for Haul {
    fn name(&self) -> &'static str {
        Self::INFO.name
    }

    fn state(&self) -> &'static str {
        match (self.look, self.phase) {
            (Some(_), _) => "look",
            (_, Phase::Seek) => "seek",
            (_, Phase::Hold) => "hold",
            (_, Phase::Compete) => "compete",
        }
    }

    fn watches_packets(&self) -> bool {
        true
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        self.window = view.start_window(self.initial_window);
        self.delivered = view.delivered;
        self.begin_round(view);
        self.look_at = view.now + LOOK_EVERY;
        self.answered.until(view.largest_acked);
        knobs.window = self.window;
        let rtt = if view.rtt_min < Duration::MAX { view.rtt.as_nanos() as f64 } else { 0.0 };
        knobs.period_ns = rtt / (2.0 * self.window);
        knobs.ack_interval = 2;
    }

    fn on_ack(&mut self, next: Seq, view: &View, knobs: &mut Knobs) {
        self.answered.on_ack(next);
        if self.repairing.is_some_and(|newest| next.since(newest) > 0) {
            self.repairing = None;
        }
        self.on_news(view, knobs);
    }

    fn on_loss(&mut self, lost: &[LossRange], view: &View, knobs: &mut Knobs) {
        for range in lost {
            if self.repairing.is_none_or(|newest| range.last.since(newest) > 0) {
                self.repairing = Some(range.last);
            }
        }
        self.lost_at = Some(view.now);
        let fresh = self.answered.answer(lost, view);
        if fresh && self.phase == Phase::Compete && self.look.is_none() {
            self.window = self.cubic.decrease(self.window, view);
            self.look_at = self.look_at.min(view.now.max(self.looked_at + LOOK_SOON));
        }
        self.on_news(view, knobs);
    }

    fn on_timeout(&mut self, view: &View, knobs: &mut Knobs) {
        if self.dbg { eprintln!("{:?} timeout in_flight {} ", view.now,  view.in_flight); }
        self.silent = true;
        self.answered.until(view.largest_sent);
        self.repairing = Some(view.largest_sent);
        self.apply(view, knobs);
    }

    fn on_packet_sent(&mut self, _packet: &SentPacket, _view: &View, _knobs: &mut Knobs) -> u64 {
        0
    }
}
