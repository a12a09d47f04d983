//! What is known of the path: its bandwidth, its round trip, how it delivers.

use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;

use super::SLOWED;
use crate::View;

/// Without a growth by this in so many round trips, the path is full.
const GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// How long the shortest round trip counts (draft: `MinRTTFilterLen`).
const MIN_RTT_KEPT: Duration = Duration::from_secs(10);
/// *departs:* The draft seeks another after each interval without a shorter one, which noise never lets come. A round
/// trip within this part of the shortest has met next to no queue: another need not be sought, for so many intervals
/// at most, as one that was measured in the queue of others is too long.
const NEAR_SHORTEST: u32 = 16;
const INTERVALS_WITHOUT_PROBE: u32 = 4;

/// What the arrival of a packet tells (draft: `RS`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// Packets a second.
    pub rate: f64,
    /// Packets that arrived in the round trip.
    pub packets: f64,
    /// The rate says nothing of the path.
    pub app_limited: bool,
    /// What had arrived when the packet left.
    pub delivered_before: u64,
    /// In flight when the packet left, itself included.
    pub in_flight: f64,
    /// [`crate::Trace::packets_lost`] when the packet left.
    pub lost_before: u64,
}

impl Sample {
    pub fn of(view: &View) -> Option<Self> {
        let newest = view.newest?;
        let delivery = newest.delivery?;
        Some(Sample {
            rate: delivery.rate(),
            packets: delivery.packets as f64,
            app_limited: delivery.app_limited || newest.tag & SLOWED != 0,
            delivered_before: delivery.delivered_before,
            in_flight: f64::from(newest.tag as u32),
            lost_before: delivery.lost_before,
        })
    }
}

/// Round trips by the packet: each ends when a packet arrives that left after it began
/// (draft: `UpdateRound`).
#[derive(Debug, Default)]
pub(super) struct Rounds {
    next: u64,
    count: u64,
    started: bool,
}

impl Rounds {
    /// The next round trip begins now.
    pub fn restart(&mut self, delivered: u64) {
        self.next = delivered;
    }

    pub fn update(&mut self, sample: Option<&Sample>, delivered: u64) {
        self.started = sample.is_some_and(|sample| sample.delivered_before >= self.next);
        if self.started {
            self.count += 1;
            self.next = delivered;
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// This event ends one and begins the next.
    pub fn started(&self) -> bool {
        self.started
    }
}

/// The largest value of the last few periods, whatever a period is.
#[derive(Debug, Default)]
pub(super) struct MaxFilter {
    /// Periods and values, the values falling.
    values: VecDeque<(u64, f64)>,
}

impl MaxFilter {
    /// `value` is of the period `now`; those of the last `kept` count.
    pub fn push(&mut self, now: u64, kept: u64, value: f64) {
        while self.values.back().is_some_and(|last| last.1 <= value) {
            self.values.pop_back();
        }
        if self.values.back().is_none_or(|last| last.0 < now) {
            self.values.push_back((now, value));
        }
        while self.values.front().is_some_and(|first| first.0 + kept <= now) {
            self.values.pop_front();
        }
    }

    /// 0 before the first.
    pub fn get(&self) -> f64 {
        self.values.front().map_or(0.0, |first| first.1)
    }
}

/// The shortest round trip, and whether it is time to drain the queue for another
/// (draft: `UpdateMinRTT`).
#[derive(Debug)]
pub(super) struct MinRtt {
    /// How often (draft: `ProbeRTTInterval`).
    interval: Duration,
    /// The shortest of the last [`MIN_RTT_KEPT`], and of the last interval.
    long: Option<(Duration, Time)>,
    short: Option<(Duration, Time)>,
    /// When a round trip was last hardly longer.
    near: Time,
    expired: bool,
}

impl MinRtt {
    pub fn new(interval: Duration) -> Self {
        MinRtt { interval, long: None, short: None, near: Time::ZERO, expired: false }
    }

    pub fn begin(&mut self, now: Time, rtt: Option<Duration>) {
        self.long = rtt.map(|rtt| (rtt, now));
        self.short = self.long;
    }

    pub fn update(&mut self, now: Time, rtt: Option<Duration>) {
        if let (Some(rtt), Some((least, _))) = (rtt, self.short)
            && rtt <= least + least / NEAR_SHORTEST
        {
            self.near = now;
        }
        self.expired = self.short.is_some_and(|(_, since)| {
            let sought = now > since + self.interval && now > self.near + self.interval;
            sought || now > since + INTERVALS_WITHOUT_PROBE * self.interval
        });
        let Some(rtt) = rtt else { return };
        let shorter = |known: Option<(Duration, Time)>| known.is_none_or(|(least, _)| rtt < least);
        if shorter(self.short) || self.expired {
            self.short = Some((rtt, now));
        }
        let outlived = self.long.is_some_and(|(_, since)| now > since + MIN_RTT_KEPT);
        if shorter(self.long) || outlived {
            self.long = self.short;
        }
    }

    pub fn get(&self) -> Option<Duration> {
        self.long.map(|(rtt, _)| rtt)
    }

    /// No shorter one has come for an interval.
    pub fn is_stale(&self) -> bool {
        self.expired
    }

    /// The queue has been drained: the next interval begins.
    pub fn restart(&mut self, now: Time) {
        self.short = self.short.map(|(rtt, _)| (rtt, now));
    }
}

/// Packets acknowledged since ACKs came no faster than the bandwidth (draft:
/// `UpdateACKAggregation`).
#[derive(Debug, Default)]
pub(super) struct Aggregation {
    since: Time,
    acked: f64,
}

impl Aggregation {
    /// A new count begins.
    pub fn restart(&mut self, now: Time) {
        (self.since, self.acked) = (now, 0.0);
    }

    /// `acked` packets more; returns how many there are beyond what the bandwidth explains.
    pub fn update(&mut self, now: Time, acked: f64, bandwidth: f64) -> f64 {
        if self.acked <= bandwidth * (now - self.since).as_secs_f64() {
            self.restart(now);
        }
        self.acked += acked;
        self.acked - bandwidth * (now - self.since).as_secs_f64()
    }
}

/// Whether the path is full: sending faster does not bring more (draft: `CheckFullBWReached`).
#[derive(Debug, Default)]
pub(super) struct FullPipe {
    baseline: f64,
    rounds: u32,
    /// A queue was seen: a round trip without growth is enough.
    suspected: bool,
    /// In this probe.
    pub now: bool,
    /// Once since the connection began.
    pub reached: bool,
}

impl FullPipe {
    /// A queue is seen, where the highest rate is `rate`. The round trip that begins now tells whether
    /// it is this flow's, or the rate still grows.
    pub fn suspect(&mut self, rate: f64) {
        (self.suspected, self.baseline) = (true, rate);
    }

    /// Whether a queue was seen, and it is not known yet whose it is.
    pub fn is_suspected(&self) -> bool {
        self.suspected && !self.reached
    }

    /// A new probe begins at `rate`.
    pub fn restart(&mut self, rate: f64) {
        *self = FullPipe { baseline: rate, reached: self.reached, ..FullPipe::default() };
    }

    /// At the end of a round trip that the application did not limit.
    pub fn update(&mut self, rate: f64) {
        if self.now {
            return;
        }
        if rate >= GROWTH * self.baseline {
            self.restart(rate);
            return;
        }
        self.rounds += if self.suspected { FULL_ROUNDS } else { 1 };
        self.now = self.rounds >= FULL_ROUNDS;
        self.reached |= self.now;
    }
}

/// How the path delivers now: the highest rate and volume of the round trip (draft: `bw_latest`,
/// `inflight_latest`).
#[derive(Debug, Default)]
pub(super) struct Latest {
    pub rate: f64,
    pub packets: f64,
    /// The round trip ends when a packet arrives that left when so many had arrived.
    next: u64,
    /// It ends with this event.
    pub round_ends: bool,
    /// Packets lost in it.
    pub lost: f64,
    /// Packets that arrived in the round trip that has ended.
    arrived: u64,
}

impl Latest {
    /// The first loss begins a round trip.
    pub fn note_loss(&mut self, delivered: u64, lost: f64) {
        if self.lost == 0.0 {
            self.next = delivered;
        }
        self.lost += lost;
    }

    /// Of how many packets it is known that they arrived or were lost in the round trip that ends.
    pub fn seen(&self) -> f64 {
        self.arrived as f64 + self.lost
    }

    pub fn update(&mut self, sample: Option<&Sample>, delivered: u64) {
        self.round_ends = false;
        let Some(sample) = sample else { return };
        self.rate = self.rate.max(sample.rate);
        self.packets = self.packets.max(sample.packets);
        if sample.delivered_before >= self.next {
            self.arrived = delivered - self.next;
            self.next = delivered;
            self.round_ends = true;
        }
    }

    /// The end of an event: the last sample of one round trip is the first of the next.
    pub fn advance(&mut self, sample: Option<&Sample>) {
        if let (true, Some(sample)) = (self.round_ends, sample) {
            (self.rate, self.packets) = (sample.rate, sample.packets);
        }
    }

    /// draft: `ResetCongestionSignals`.
    pub fn forget(&mut self) {
        (self.rate, self.packets, self.lost) = (0.0, 0.0, 0.0);
    }
}
