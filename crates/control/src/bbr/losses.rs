//! The answer to losses: bounds for rate and window, some for as long as the path is this one, some
//! until the next probe.

use core::time::Duration;

use farhaul_base::Time;

use super::own_loss::by_chance;
use super::phases::Phase;
use super::{Bbr, LEAST_PIPE, MARGIN};
use crate::View;

/// What is left at least of rate or window after a round trip with losses (draft: `Beta`).
const BETA: f64 = 0.7;
/// Share of the long-term bound that is left to others while nothing is probed (draft: `Headroom`).
const HEADROOM: f64 = 0.15;
/// A rate bound below this share of the bandwidth is tried again after [`FREE_ROUNDS`] round trips, and for longer than
/// [`FREE_FOR`], without losses and with a short queue: the path has room again. After less, eight flows share 1 Gb/s
/// less evenly.
const LOW_BOUND: f64 = 0.75;
const FREE_ROUNDS: u32 = 4;
const FREE_FOR: Duration = Duration::from_millis(250);
/// Startup ends when so many holes are found in a round trip, and more lost than may be
/// (draft: `StartupFullLossCnt`).
const STARTUP_HOLES: usize = 6;
/// In its n-th round trip a probe raises the long-term bound by 2^n packets, n at most this.
const MOST_DOUBLINGS: i32 = 30;

/// Bounds that losses set; infinite where there is none.
#[derive(Debug)]
pub(super) struct Bounds {
    /// What may be in flight in the long term (draft: `inflight_longterm`).
    pub longterm: f64,
    /// What may be sent and in flight until the next probe (draft: `bw_shortterm`,
    /// `inflight_shortterm`).
    pub bandwidth: f64,
    pub shortterm: f64,
    /// Holes found in this round trip.
    pub holes: usize,
    /// Round trips in a row in which the rate was bound far below the bandwidth and the path had room, and
    /// since when.
    free_rounds: u32,
    free_since: Time,
}

impl Default for Bounds {
    fn default() -> Self {
        let (longterm, bandwidth, shortterm) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
        let free_since = Time::ZERO;
        Bounds { longterm, bandwidth, shortterm, holes: 0, free_rounds: 0, free_since }
    }
}

impl Bounds {
    /// draft: `ResetShortTermModel`.
    pub fn forget_short_term(&mut self) {
        (self.bandwidth, self.shortterm) = (f64::INFINITY, f64::INFINITY);
        self.free_rounds = 0;
    }

    /// At the end of a round trip. `most`: the bandwidth without bounds; `room`: nothing was lost, and no queue stood.
    fn count_free(&mut self, now: Time, most: f64, room: bool) {
        if room && self.bandwidth < LOW_BOUND * most {
            self.free_rounds += 1;
        } else {
            (self.free_rounds, self.free_since) = (0, now);
        }
    }

    /// *departs:* The draft keeps the bounds until the next probe is due. Where the rate of the path had dropped and is
    /// back, that is two seconds at a fraction of it.
    pub fn are_outlived(&self, now: Time) -> bool {
        self.free_rounds >= FREE_ROUNDS && now - self.free_since > FREE_FOR
    }

    /// draft: `InflightWithHeadroom`.
    pub fn with_headroom(&self) -> f64 {
        if self.longterm.is_infinite() {
            return f64::INFINITY;
        }
        (self.longterm - (HEADROOM * self.longterm).max(1.0)).max(LEAST_PIPE)
    }
}

/// What was in flight when the share `threshold` of it was lost, if `size` of the `in_flight` and
/// of the `lost` are of the last report (draft: `InflightAtLoss`).
pub(super) fn in_flight_at_loss(threshold: f64, in_flight: f64, lost: f64, size: f64) -> f64 {
    let (in_flight_before, lost_before) = (in_flight - size, lost - size);
    let prefix = (threshold * in_flight_before - lost_before) / (1.0 - threshold);
    in_flight_before + prefix.max(0.0)
}

impl Bbr {
    /// `lost` packets in `holes` ranges are found lost (draft: `HandleLostPacket`).
    ///
    /// *departs:* The draft goes packet by packet, and knows of each what was in flight when it
    /// left. Here the packets of a report are one, and left with the newest that is known to have
    /// arrived: it came right behind the hole.
    pub(super) fn on_lost(&mut self, lost: f64, holes: usize, view: &View) {
        self.bounds.holes += holes;
        self.latest.note_loss(view.delivered, lost);
        if self.cycle.feedback && self.loses_too_many() {
            let (in_flight, all_lost) = (self.sample.in_flight, self.lost_since_sent());
            let threshold = (self.tolerated.loss + self.expected_loss()).min(0.9);
            let at_loss = in_flight_at_loss(threshold, in_flight, all_lost, lost);
            self.on_too_many(at_loss, view);
        }
    }

    /// Packets lost since the newest left that has arrived.
    fn lost_since_sent(&self) -> f64 {
        (self.lost - self.sample.lost_before) as f64
    }

    /// The share that the path is taken to lose by itself. In Startup nothing has been measured.
    fn expected_loss(&self) -> f64 {
        if self.phase == Phase::Startup { self.own_loss.most() } else { self.own_loss.share() }
    }

    /// draft: `IsInflightTooHigh`.
    pub(super) fn loses_too_many(&self) -> bool {
        let packets = self.sample.in_flight;
        let allowed = self.tolerated.loss * packets + by_chance(self.expected_loss(), packets);
        self.lost_since_sent() > allowed
    }

    /// A probe went too far (draft: `HandleInflightTooHigh`).
    fn on_too_many(&mut self, at_loss: f64, view: &View) {
        self.cycle.too_high = true;
        self.cycle.feedback = false;
        if !self.sample.app_limited {
            let target = self.product(self.bandwidth(), 1.0).min(self.window);
            self.bounds.longterm = at_loss.max(BETA * target);
        }
        if self.phase == Phase::Up {
            self.start_down(view);
        }
    }

    /// At the end of a round trip with losses, while nothing is probed, rate and window follow what
    /// was delivered in it (draft: `AdaptLowerBoundsFromCongestion`).
    ///
    /// *departs:* The draft takes the rate as it is, though the sender left [`MARGIN`] of the last
    /// bound free by itself. Where each ACK brings a sample, the highest of some hundred makes up
    /// for that. UDT's receiver is heard of at each hole only while it waits for repairs, and at 1%
    /// of loss the rate would fall by 2% a round trip, for 63 of them; the draft wants to answer X%
    /// of loss with X%. And losses that the path makes by itself are not answered, nor those of
    /// `ProbeRTT`, in which little arrives because little is sent.
    pub(super) fn answer_round(&mut self, now: Time) {
        if !self.latest.round_ends {
            return;
        }
        let answers = matches!(self.phase, Phase::Drain | Phase::Down | Phase::Cruise);
        if let (true, Some(least)) = (answers, self.min_rtt.get()) {
            self.ease.update(&self.standing, least, self.bandwidth(), self.tolerated.queue);
        }
        let lost = self.latest.lost > by_chance(self.expected_loss(), self.latest.seen());
        if answers {
            let room = !lost && self.ease.sees_short_queue();
            self.bounds.count_free(now, self.max_bandwidth.get(), room);
        }
        if answers && lost {
            let bounds = &mut self.bounds;
            if bounds.bandwidth.is_infinite() {
                (bounds.bandwidth, bounds.shortterm) = (self.max_bandwidth.get(), self.window);
            }
            bounds.bandwidth = (self.latest.rate / (1.0 - MARGIN)).max(BETA * bounds.bandwidth);
            bounds.shortterm = self.latest.packets.max(BETA * bounds.shortterm);
        }
        self.latest.lost = 0.0;
    }

    /// Startup has filled path and queue (draft: `CheckStartupHighLoss`).
    pub(super) fn check_startup_losses(&mut self) {
        if !self.latest.round_ends {
            return;
        }
        let many = core::mem::take(&mut self.bounds.holes) >= STARTUP_HOLES;
        if many && self.repairing.is_some() && self.loses_too_many() {
            self.full_pipe.reached = true;
            let product = self.product(self.bandwidth(), 1.0);
            self.bounds.longterm = product.max(self.latest.packets);
        }
    }

    /// The long-term bound follows what is in flight without harm, and in a probe that meets it
    /// goes ahead, by twice as much in each round trip (draft: `AdaptLongTermModel`,
    /// `ProbeInflightLongtermUpward`).
    pub(super) fn raise_longterm(&mut self, acked: f64) {
        if self.bounds.longterm.is_infinite() || self.loses_too_many() {
            return;
        }
        self.bounds.longterm = self.bounds.longterm.max(self.sample.in_flight);
        if self.phase == Phase::Up && self.window_limited && self.window >= self.bounds.longterm {
            self.cycle.acked += acked;
            let steps = (self.cycle.acked / self.cycle.acked_per_step).floor();
            self.cycle.acked -= steps * self.cycle.acked_per_step;
            self.bounds.longterm += steps;
            if self.rounds.started() {
                self.steepen();
            }
        }
    }

    /// draft: `RaiseInflightLongtermSlope`.
    pub(super) fn steepen(&mut self) {
        let growth = f64::from(1u32 << self.cycle.doublings);
        self.cycle.doublings = (self.cycle.doublings + 1).min(MOST_DOUBLINGS);
        self.cycle.acked_per_step = (self.window / growth).max(1.0);
    }
}
