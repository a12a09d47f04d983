//! `udt`: DAIMD, the law of the UDT dissertation (gu05 §2.2.4, 2.2.5, 3.2 to 3.5).

use farhaul_base::math::power_of_ten_above;
use farhaul_base::{Rng, Time};
use farhaul_wire::{LossRange, Seq};

use crate::law::SYN_NS;
use crate::{Knobs, Law, LawInfo, Make, Param, SYN, TOLERATED_LOSS, UdtModule, View};

/// The smallest increase, packets per SYN at an MSS of 1500 (gu05 eq. 2-1).
const MIN_INCREASE: f64 = 1.0 / 1500.0;
/// A loss event lengthens the packet-sending period by this factor (gu05 eq. 2-3): a decrease of
/// the rate by 1/9.
const DECREASE: f64 = 1.125;
/// Packets added to the congestion window, so that a window computed from the arrival speed can
/// never be what keeps the arrival speed down. *departs:* gu05 §2.2.4 has none; the stock library
/// adds the same 16.
const WINDOW_MARGIN: f64 = 16.0;
/// Decreases within one congestion epoch. *departs:* gu05 Figure 3-6 sets no limit, and a burst of a
/// thousand separate losses would then stop the flow; draft-gg-udt-03 stops at five.
const MAX_DECREASES: u32 = 5;
/// Available bandwidth to assume before the capacity is known, bits/s: a flow that has only ever had
/// few packets through would else never learn it.
const UNKNOWN_AVAILABLE: f64 = 1e8;
/// Losses beyond the tolerated share that may come by chance. Losses of 1% against a share of 2%
/// exceed it by more than this once in some million packets.
const NOISE_MARGIN: f64 = 10.0;
/// From here on losses are doubtful: the rate does not rise. Losses of 1% get here 2% of the time.
const NOISE_DOUBT: f64 = 3.0;

/// UDT's own law: AIMD with decreasing increases on the packet-sending rate, one SYN interval a
/// step whatever the RTT.
#[derive(Debug)]
pub struct Udt {
    rng: Rng,
    phase: Phase,
    /// Take losses for noise while they are few (gu05 §3.5.2).
    noise: Option<Noise>,
    /// What this flow takes the capacity for, over what it measured.
    capacity_factor: f64,
    initial_window: f64,
    /// Acknowledged up to here when the window last grew.
    acked: Seq,
    last_increase: Time,
    nak_since_increase: bool,
    epoch: Epoch,
}

#[derive(Debug, PartialEq)]
enum Phase {
    SlowStart,
    Avoidance,
}

/// The period between two congestion events (gu05 §3.5.1).
#[derive(Debug)]
struct Epoch {
    /// LSD: largest sequence number sent when the rate was last decreased.
    last_decrease: Seq,
    /// NumNAK: loss events in this epoch so far.
    naks: u32,
    /// AvgNAK: the smoothed number of loss events in an epoch.
    average_naks: f64,
    /// DR: every how many loss events the rate is decreased again.
    spacing: u32,
    /// Decreases so far, of [`MAX_DECREASES`].
    decreases: u32,
}

/// Which losses are not congestion.
///
/// gu05 §3.5.2 forgives the first loss event of a congestion epoch. An epoch is about a round trip:
/// at 100 Mb/s, 100 ms and 1% it has eight losses by noise alone, and the rule cannot reach the
/// dissertation's own figure, 80% of the link at 1%. *departs:* what is forgiven is a share of the
/// packets, whatever the epochs. An account of losses shrinks by that share of what is sent; above
/// [`NOISE_MARGIN`] they are congestion. It does not depend on how many packets a round trip has,
/// and a burst of losses is answered at once. From [`NOISE_DOUBT`] on the rate is held, or flows
/// that rise fast would overrun the link by much until the account tells.
#[derive(Debug)]
struct Noise {
    /// The share of packets that may be lost.
    share: f64,
    /// Losses beyond that share.
    excess: f64,
    /// Packets sent when `excess` was last brought up to date.
    sent: u64,
}

impl Noise {
    /// Whether `lost` more packets, now that `sent` have been sent, are still noise.
    fn covers(&mut self, lost: u64, sent: u64) -> bool {
        self.excess = self.excess_at(sent) + lost as f64;
        self.sent = sent;
        self.excess <= NOISE_MARGIN
    }

    /// Whether the losses so far, now that `sent` have been sent, leave room for doubt.
    fn is_doubtful(&self, sent: u64) -> bool {
        self.excess_at(sent) > NOISE_DOUBT
    }

    fn excess_at(&self, sent: u64) -> f64 {
        let tolerated = self.share * sent.saturating_sub(self.sent) as f64;
        (self.excess - tolerated).max(0.0)
    }
}

impl Udt {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: "udt",
        summary: "bulk data over any clean path: fills it whatever the RTT, fair to its own kind",
        source: "Gu, UDT dissertation (2005), chapters 2 and 3: DAIMD",
        params: &[
            Param::number(
                "window",
                16.0,
                (1.0, 65536.0),
                "packets",
                "sent before the first ACK (the dissertation has 2)",
            ),
            Param::flag(
                "noisy",
                false,
                "tolerate losses that are not congestion (noisy-link option)",
            ),
            Param::number(
                "noise",
                0.02,
                (0.0, 0.5),
                "",
                "with noisy: share of packets that may be lost without reaction",
            ),
            Param::flag(
                "module",
                false,
                "as the author's ns-2 module of 2006 has it; the rest has no effect then",
            ),
            Param::number(
                "capacity_error",
                0.0,
                (-0.99, 100.0),
                "",
                "for experiments: error E of the capacity estimate, which becomes 1 + E times",
            ),
        ],
        make: Make::Law(|values, seed| {
            if values.is("module") {
                return Box::new(UdtModule::new(seed));
            }
            let noisy = values.is("noisy");
            let law = Udt::new(seed, values.get("window"), noisy, values.get("noise"));
            Box::new(law.with_capacity_error(values.get("capacity_error")))
        }),
    };

    /// The law with `seed` for its random decreases. `window`: packets sent before the first ACK;
    /// `noisy`: the noisy-link option; `noise`: the share of losses it tolerates.
    pub fn new(seed: u64, window: f64, noisy: bool, noise: f64) -> Self {
        Udt {
            rng: Rng::new(seed),
            phase: Phase::SlowStart,
            noise: noisy.then_some(Noise { share: noise, excess: 0.0, sent: 0 }),
            capacity_factor: 1.0,
            initial_window: window,
            acked: Seq::new(0),
            last_increase: Time::ZERO,
            nak_since_increase: false,
            epoch: Epoch {
                last_decrease: Seq::new(0),
                naks: 0,
                average_naks: 1.0,
                spacing: 1,
                decreases: 0,
            },
        }
    }

    /// The law with a capacity estimate that is wrong by `error`: 1 + `error` times what was
    /// measured (epsilon of gu05 §3.4). For experiments.
    pub fn with_capacity_error(self, error: f64) -> Self {
        Udt { capacity_factor: 1.0 + error, ..self }
    }

    fn leave_slow_start(&mut self, view: &View, knobs: &mut Knobs) {
        self.phase = Phase::Avoidance;
        // A delivery rate without an arrival speed is that of the first few packets: it says less
        // than the window that has been reached.
        knobs.period_ns = if view.arrival_rate > 0.0 {
            1e9 / view.delivery_rate.max(view.arrival_rate)
        } else {
            (view.rtt.as_nanos() as f64 + SYN_NS) / knobs.window.max(1.0)
        };
        knobs.period_ns = knobs.period_ns.min(longest_period_ns(view));
        self.last_increase = view.now;
    }

    fn increase(&mut self, view: &View, knobs: &mut Knobs) {
        // gu05 §2.3.2.4: start from what was really sent, or the period goes on falling while a
        // window holds the rate, and rate control no longer governs.
        let period = knobs.period_ns.max(view.real_period_ns).max(1.0);
        let bits = f64::from(view.mss) * 8.0;
        let available = if view.capacity > 0.0 {
            (view.capacity * self.capacity_factor - 1e9 / period) * bits
        } else {
            UNKNOWN_AVAILABLE
        };
        let step = increase_per_syn(available, view.mss);
        // gu05 eq. 2-2: SYN / P = SYN / P' + inc.
        knobs.period_ns = SYN_NS / (SYN_NS / period + step);
    }

    fn decrease(&mut self, view: &View, knobs: &mut Knobs) {
        let period = knobs.period_ns.max(view.real_period_ns).max(1.0) * DECREASE;
        knobs.period_ns = period.min(longest_period_ns(view));
        self.epoch.last_decrease = view.largest_sent;
        self.epoch.decreases += 1;
        // The losses have been answered: what is still noise is judged anew.
        if let Some(noise) = &mut self.noise {
            noise.excess = 0.0;
        }
    }
}

/// One packet a round trip or a SYN interval is as slow as it gets (the author's ns-2 module stops
/// at the smoothed RTT): below it there would be no ACKs to recover by.
fn longest_period_ns(view: &View) -> f64 {
    (view.rtt.as_nanos() as f64).max(SYN_NS)
}

/// gu05 eq. 2-1: packets to add per SYN when `available` bits/s are free, for packets of `mss`
/// bytes. Ten times the free bandwidth, ten times the increase.
pub(crate) fn increase_per_syn(available: f64, mss: u32) -> f64 {
    let step = if available > 0.0 { power_of_ten_above(available) / 1e9 } else { 0.0 };
    step.max(MIN_INCREASE) * 1500.0 / f64::from(mss.max(1))
}

impl Law for Udt {
    fn name(&self) -> &'static str {
        "udt"
    }

    fn state(&self) -> &'static str {
        match self.phase {
            Phase::SlowStart => "slow start",
            Phase::Avoidance => "avoidance",
        }
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        knobs.window = view.start_window(self.initial_window);
        knobs.period_ns = 0.0;
        if let Some(noise) = &self.noise {
            knobs.tolerated_loss = noise.share.max(TOLERATED_LOSS);
        }
        self.acked = view.largest_acked.next();
        self.last_increase = view.now;
        self.epoch.last_decrease = view.largest_sent;
    }

    fn on_ack(&mut self, next: Seq, view: &View, knobs: &mut Knobs) {
        if self.phase == Phase::SlowStart {
            // gu05 §2.2.5: the window doubles with each round of ACKs. It only grows while it is
            // what limits the sender.
            let acked = next.since(self.acked).max(0);
            self.acked = next;
            if !view.app_limited {
                knobs.window += f64::from(acked);
            }
            if knobs.window < f64::from(view.max_window) {
                return;
            }
            self.leave_slow_start(view, knobs);
        }
        // gu05 §2.2.4: W = AS (SYN + RTT).
        let rate = view.arrival_rate.max(view.delivery_rate);
        knobs.window = rate * (SYN + view.rtt).as_secs_f64() + WINDOW_MARGIN;
        if view.now - self.last_increase < SYN {
            return;
        }
        // ACKs come a SYN interval apart, give or take: counted from the interval's end and not
        // from the ACK, a little less than one does not cost the next.
        let grid = self.last_increase + SYN;
        self.last_increase = if view.now - grid < SYN { grid } else { view.now };
        let sent = view.trace.packets_sent;
        let doubtful = self.noise.as_ref().is_some_and(|noise| noise.is_doubtful(sent));
        if !core::mem::take(&mut self.nak_since_increase) && !doubtful && !view.app_limited {
            self.increase(view, knobs);
        }
    }

    fn on_loss(&mut self, lost: &[LossRange], view: &View, knobs: &mut Knobs) {
        let Some(largest) = lost.iter().map(|r| r.last).reduce(Seq::later) else { return };
        if let Some(noise) = &mut self.noise {
            let count = lost.iter().map(|r| u64::from(r.len())).sum();
            if noise.covers(count, view.trace.packets_sent) {
                return;
            }
        }
        let in_slow_start = self.phase == Phase::SlowStart;
        if in_slow_start {
            self.leave_slow_start(view, knobs);
        }
        // Algorithm of gu05 Figure 3-6.
        self.nak_since_increase = true;
        let congestion_event = largest.since(self.epoch.last_decrease) > 0;
        if congestion_event {
            self.epoch.average_naks =
                (self.epoch.average_naks * 7.0 + f64::from(self.epoch.naks)) / 8.0;
            self.epoch.spacing =
                1 + self.rng.below(self.epoch.average_naks.round().max(1.0) as u64) as u32;
            self.epoch.naks = 0;
            self.epoch.decreases = 0;
            self.decrease(view, knobs);
            // One SYN of silence lets the queue drain (gu05 §2.2.5).
            knobs.pause_until = view.now + SYN;
            if in_slow_start {
                // The rest of what slow start lost was sent before any rate was in force, so it
                // says nothing against the rate just found.
                self.epoch.decreases = MAX_DECREASES;
            }
            return;
        }
        self.epoch.naks += 1;
        let due = self.epoch.naks.is_multiple_of(self.epoch.spacing);
        if due && self.epoch.decreases < MAX_DECREASES {
            self.decrease(view, knobs);
        }
    }

    fn on_timeout(&mut self, view: &View, knobs: &mut Knobs) {
        if self.phase == Phase::SlowStart {
            self.leave_slow_start(view, knobs);
        }
    }
}

#[cfg(test)]
mod tests;
