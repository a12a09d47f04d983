//! `bbr`: the bottleneck's bandwidth and the round-trip time without a queue, measured, and a rate
//! and a window computed from them (draft-ietf-ccwg-bbr, version 3).
//!
//! Here is what happens at each event, and how rate and window follow from the model. What is known
//! of the path is in `model`, what is done with it from phase to phase in `phases`, the answer to
//! losses in `losses`. Names after `draft:` are the draft's own.
//!
//! *departs:* The draft can take back its answer to a loss that was none. No host here tells a law
//! that a loss was none, so nothing is kept for that.
//!
//! It departs from the draft where that is slow on paths that lose packets by themselves, or leaves
//! more of a queue than it needs to:
//!
//! * What the path loses by itself is measured while nothing is probed (`own_loss`), and only losses
//!   beyond what chance makes of it count as congestion. `own_loss=0` is the draft.
//! * A probe, and Startup, end when the round trip has grown by a quarter without a queue of others
//!   (`queue`), not only after losses or three round trips without growth. `queue=10` is the draft.
//! * While a queue stands between probes that is longer than noise and a short one of the flow's own, the rate eases
//!   down, to seven tenths at most (`ease`, `standing`): flows whose probes' maxima add up to more than the path share
//!   it more evenly, and none of them fills a queue because noise makes its maximum too high.
//! * Startup quadruples its rate while it is far below what packet trains say of the path, and loses nothing.
//! * `ProbeRTT` is put off while round trips show that the queue is empty (`model`). It sends little, and what arrives
//!   then lowers no bound.
//!
//! While holes are repaired, UDT's sender learns late what was sent again and arrived, many packets
//! at once. Where that is always so, at a loss of 1%, the bandwidth is taken for a little more
//! than it is, and a queue stays.

mod delay;
mod ease;
mod losses;
mod model;
mod own_loss;
mod phases;
mod standing;

use core::time::Duration;

use farhaul_base::{Rng, Time};
use farhaul_wire::{LossRange, Seq};

use self::delay::Delay;
use self::ease::Ease;
use self::losses::Bounds;
use self::model::{Aggregation, FullPipe, Latest, MaxFilter, MinRtt, Rounds, Sample};
use self::own_loss::OwnLoss;
use self::phases::{Cycle, Phase, ProbeRtt};
use self::standing::Standing;
use crate::law::SYN_NS;
use crate::tcp_like::INITIAL_WINDOW;
use crate::{Knobs, Law, LawInfo, Make, Param, SentPacket, View};

/// The window never falls below this, packets, so that there are always two packets and ACKs for
/// two on the path (draft: `MinPipeCwnd`).
const LEAST_PIPE: f64 = 4.0;
/// Share of the bandwidth that is left free, so that queues drain (draft: `PacingMarginPercent`).
const MARGIN: f64 = 0.01;
/// Probe cycles over which the highest delivery rate counts (draft: `MaxBwFilterLen`).
const BANDWIDTH_KEPT: u64 = 2;
/// Round trips over which the largest excess of ACKs counts, once the path is known to be full
/// (draft: `ExtraAckedFilterLen`).
const AGGREGATION_KEPT: u64 = 10;
/// The longest burst that a host sends at once, in time and in bytes (draft: `send_quantum`).
const BURST: f64 = 1e-3;
const BURST_BYTES: f64 = 65_536.0;
/// ACKs a round trip, for which data packets are counted: each costs both ends a system call and a wake-up.
/// The draft wants four at least while it probes, and more are samples for the least of several.
const ACKS_A_ROUND: f64 = 16.0;
/// Data packets an ACK, at least and at most.
const ACK_INTERVAL: u32 = 4;
const LONGEST_ACK_INTERVAL: u32 = 64;
/// Share of the window on top of it while a hole is repaired: what was sent again counts as in flight
/// until the ACK number passes it.
const REPAIR_ROOM: f64 = 0.25;
/// Startup sends at 2.77 times what arrives, and a round trip passes until the peer hears of it: its
/// flow window is to be no limit meanwhile.
const WINDOW_GROWTH: u32 = 4;
/// In a packet's tag, beside what was in flight when it left: its delivery rate is that of
/// `ProbeRTT`, and says nothing of the path's (draft: `MarkConnectionAppLimited`).
const SLOWED: u64 = 1 << 32;

/// What is no sign that too much is under way.
#[derive(Clone, Copy, Debug)]
pub struct Tolerated {
    /// Share of a round trip's packets that may be lost in a probe (draft: `LossThresh`).
    pub loss: f64,
    /// Share that the path may lose by itself: what is measured up to this is no congestion. 0: each
    /// loss is, as in the draft.
    pub own_loss: f64,
    /// Queueing delay of a probe, in shares of the round trip before it.
    pub queue: f64,
}

/// BBR version 3. Rates in packets a second, windows in packets.
#[derive(Debug)]
pub struct Bbr {
    initial_window: f64,
    tolerated: Tolerated,
    rng: Rng,
    phase: Phase,
    /// Of [`View::delivered`] and the losses, what the last event told.
    delivered: u64,
    lost: u64,
    /// The newest packet that is lost and not yet repaired.
    repairing: Option<Seq>,
    /// By how much the counters of packets sent, arrived and lost do not add up.
    drift: i64,
    /// The application limited the sending before the last ACK; nothing was in flight when it began
    /// again (draft: `idle_restart`).
    app_limited: bool,
    idle_restart: bool,
    /// The last sample of the delivery rate.
    sample: Sample,
    rounds: Rounds,
    max_bandwidth: MaxFilter,
    min_rtt: MinRtt,
    delay: Delay,
    standing: Standing,
    ease: Ease,
    own_loss: OwnLoss,
    aggregation: Aggregation,
    /// The most packets acknowledged at once, beyond what the bandwidth explains: the window must
    /// allow for them (draft: `extra_acked`).
    excess: MaxFilter,
    full_pipe: FullPipe,
    latest: Latest,
    bounds: Bounds,
    cycle: Cycle,
    probe_rtt: ProbeRtt,
    /// Packets a second.
    pacing_rate: f64,
    /// What may be in flight (draft: `cwnd`).
    window: f64,
    /// The window was full when a packet left in this round trip (draft: `is_cwnd_limited`).
    window_limited: bool,
    /// The window before it was lowered for the time of a repair or of `ProbeRTT`.
    prior_window: f64,
}

impl Bbr {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: "bbr",
        summary: "measures bandwidth and round trip: short queues, little hurt by random loss",
        source: "draft-ietf-ccwg-bbr: BBR version 3",
        params: &[
            INITIAL_WINDOW,
            Param::number(
                "loss",
                0.02,
                (0.0, 0.5),
                "",
                "share of a round trip's packets that may be lost while it probes for bandwidth",
            ),
            Param::number(
                "own_loss",
                0.05,
                (0.0, 0.5),
                "",
                "share that the path may lose by itself without being taken for congested, as far as \
                 that is measured between probes; 0: as in the draft",
            ),
            Param::number(
                "queue",
                0.25,
                (0.05, 10.0),
                "",
                "a probe ends when the round trip has grown by this share; 10: as in the draft",
            ),
            Param::time(
                "probe_rtt",
                5.0,
                (0.5, 600.0),
                "without a shorter round trip for so long, the queue is drained to measure one",
            ),
        ],
        make: Make::Law(|values, seed| {
            let probe_rtt = Duration::from_secs_f64(values.get("probe_rtt"));
            let tolerated = Tolerated {
                loss: values.get("loss"),
                own_loss: values.get("own_loss"),
                queue: values.get("queue"),
            };
            Box::new(Bbr::new(values.get("window"), tolerated, probe_rtt, seed))
        }),
    };

    /// `window`: packets sent before the first ACK; `probe_rtt`: how often the queue is drained; `seed`
    /// spreads the probes.
    pub fn new(window: f64, tolerated: Tolerated, probe_rtt: Duration, seed: u64) -> Self {
        Bbr {
            initial_window: window,
            tolerated,
            rng: Rng::new(seed),
            phase: Phase::Startup,
            delivered: 0,
            lost: 0,
            repairing: None,
            drift: 0,
            app_limited: true,
            idle_restart: false,
            sample: Sample::default(),
            rounds: Rounds::default(),
            max_bandwidth: MaxFilter::default(),
            min_rtt: MinRtt::new(probe_rtt),
            delay: Delay::default(),
            standing: Standing::default(),
            ease: Ease::default(),
            own_loss: OwnLoss::new(tolerated.own_loss),
            aggregation: Aggregation::default(),
            excess: MaxFilter::default(),
            full_pipe: FullPipe::default(),
            latest: Latest::default(),
            bounds: Bounds::default(),
            cycle: Cycle::default(),
            probe_rtt: ProbeRtt::default(),
            pacing_rate: 0.0,
            window,
            window_limited: false,
            prior_window: 0.0,
        }
    }

    /// What the path is taken to deliver: the highest rate measured, or less after losses
    /// (draft: `bw`).
    fn bandwidth(&self) -> f64 {
        let known = self.max_bandwidth.get().min(self.bounds.bandwidth);
        if matches!(self.phase, Phase::Down | Phase::Cruise) {
            self.ease.gain() * known
        } else {
            known
        }
    }

    /// `gain` times what the path holds at `bandwidth` without a queue, packets
    /// (draft: `BDPMultiple`).
    fn product(&self, bandwidth: f64, gain: f64) -> f64 {
        match self.min_rtt.get() {
            Some(rtt) => gain * bandwidth * rtt.as_secs_f64(),
            None => self.initial_window,
        }
    }

    /// The least window that does for so many packets in flight (draft: `QuantizationBudget`). A
    /// burst is what a host in user space sends and receives at once.
    fn with_burst(&self, in_flight: f64, view: &View) -> f64 {
        let burst = (self.pacing_rate * BURST).clamp(2.0, BURST_BYTES / f64::from(view.mss));
        let pair = if self.phase == Phase::Up { 2.0 } else { 0.0 };
        in_flight.max(burst).max(LEAST_PIPE) + pair
    }

    /// What is in flight when the path is full and its queue empty (draft: `Inflight`).
    fn full_path(&self, bandwidth: f64, view: &View) -> f64 {
        self.with_burst(self.product(bandwidth, 1.0), view)
    }

    /// Packets in the network. While a hole is repaired UDT's engine counts as in flight all that
    /// cannot be acknowledged; what was sent, less what arrived or was lost, is nearer to the truth.
    fn in_flight(&self, view: &View) -> f64 {
        let unacknowledged = i64::from(view.in_flight);
        let counted = count(view) - self.drift;
        let blind = self.repairing.is_some() && !view.sees_beyond_holes;
        let packets = if blind { unacknowledged.min(counted) } else { unacknowledged };
        packets.max(0) as f64
    }

    /// What an ACK or a report of losses tells (draft: `UpdateOnACK`). `holes`: ranges of packets
    /// reported lost; `repairing`: a hole was being repaired until now.
    fn on_news(&mut self, holes: usize, repairing: bool, view: &View, knobs: &mut Knobs) {
        let acked = (view.delivered - self.delivered) as f64;
        let lost = view.trace.packets_lost - self.lost;
        (self.delivered, self.lost) = (view.delivered, view.trace.packets_lost);
        let fresh = Sample::of(view);
        self.sample = fresh.unwrap_or(self.sample);
        if lost > 0 {
            self.on_lost(lost as f64, holes.max(1), view);
        }
        self.latest.update(fresh.as_ref(), view.delivered);
        self.rounds.update(fresh.as_ref(), view.delivered);
        self.own_loss.update(self.is_calm(), self.rounds.started(), view);
        let rtt = view.newest.map(|newest| newest.rtt);
        self.delay.update(rtt, self.rounds.started());
        // What ProbeRTT has under way is so little that noise is less: on a path that keeps the order of
        // packets that it delays, fewer wait for others.
        let calm = self.is_calm() && self.full_pipe.reached && self.phase != Phase::ProbeRtt;
        self.standing.update(view.now, calm, rtt, self.rounds.started());
        if let Some(sample) = fresh {
            self.update_bandwidth(&sample);
        }
        self.answer_round(view.now);
        self.update_aggregation(acked, repairing, view.now);
        if self.rounds.started() && !self.sample.app_limited {
            self.full_pipe.update(self.sample.rate);
        }
        self.move_on(acked, view);
        self.update_min_rtt(view);
        self.check_probe_rtt(acked, view, &mut knobs.timer);
        self.latest.advance(fresh.as_ref());
        self.set_pacing(self.pacing_gain(view), knobs);
        self.set_window(acked, view);
        self.apply_window(view, knobs);
        if self.rounds.started() {
            self.window_limited = false;
            self.set_ack_interval(knobs);
        }
    }

    /// Samples that the application limited count only where they are above what is known
    /// (draft: `UpdateMaxBw`).
    fn update_bandwidth(&mut self, sample: &Sample) {
        if !sample.app_limited || sample.rate >= self.max_bandwidth.get() {
            self.max_bandwidth.push(self.cycle.count, BANDWIDTH_KEPT, sample.rate);
        }
    }

    /// *departs:* Not while a hole is repaired: there UDT's ACK number stands still, and then leaps,
    /// which is nothing that the path does.
    fn update_aggregation(&mut self, acked: f64, repairing: bool, now: Time) {
        if repairing {
            self.aggregation.restart(now);
            return;
        }
        let kept = if self.full_pipe.reached { AGGREGATION_KEPT } else { 1 };
        let excess = self.aggregation.update(now, acked, self.bandwidth());
        self.excess.push(self.rounds.count(), kept, excess.min(self.window));
    }

    fn update_min_rtt(&mut self, view: &View) {
        let first = self.min_rtt.get().is_none();
        self.min_rtt.update(view.now, view.newest.map(|newest| newest.rtt));
        if let (true, Some(rtt)) = (first, self.min_rtt.get()) {
            // The rate to begin with was a guess: see `init`.
            self.pacing_rate = initial_rate(self.initial_window, rtt);
        }
    }

    /// draft: `SetPacingRateWithGain`.
    fn set_pacing(&mut self, gain: f64, knobs: &mut Knobs) {
        let rate = gain * self.bandwidth() * (1.0 - MARGIN);
        // Until the path is known to be full, what is measured may be what was sent.
        if self.full_pipe.reached || self.full_pipe.is_suspected() || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
        knobs.period_ns = 1e9 / self.pacing_rate;
    }

    /// A power of two, so that the peer is seldom asked for another.
    fn set_ack_interval(&self, knobs: &mut Knobs) {
        let wanted = self.product(self.bandwidth(), 1.0) / ACKS_A_ROUND;
        let wanted = wanted.clamp(f64::from(ACK_INTERVAL), f64::from(LONGEST_ACK_INTERVAL)) as u32;
        let power = 1 << wanted.ilog2();
        // Not at each turn about a border.
        if power > knobs.ack_interval || wanted * 4 < knobs.ack_interval * 3 {
            knobs.ack_interval = power;
        }
    }

    /// draft: `SetCwnd`.
    fn set_window(&mut self, acked: f64, view: &View) {
        let (gain, growth) = self.window_gain(view);
        let product = self.product(self.bandwidth(), gain);
        let most = self.with_burst(product + self.excess.get(), view);
        if self.full_pipe.reached {
            self.window = (self.window + acked).min(most);
        } else if self.window < most || (view.delivered as f64) < self.initial_window {
            self.window += (growth - 1.0) * acked;
        }
        // The draft's table has the long-term bound for Drain as well, its pseudocode has not.
        let cap = match self.phase {
            Phase::Startup | Phase::Drain => f64::INFINITY,
            Phase::Down | Phase::Refill | Phase::Up => self.bounds.longterm,
            Phase::Cruise => self.bounds.with_headroom(),
            Phase::ProbeRtt => self.bounds.with_headroom().min(self.probe_rtt_window()),
        };
        self.window = self.window.min(cap.min(self.bounds.shortterm)).max(LEAST_PIPE);
    }

    /// While a hole is repaired UDT's engine holds the window towards a stock peer against what left in
    /// the last round trip and SYN interval, for an ACK may wait so long: the same rate makes that much
    /// more of it. A peer of ours tells what arrives, but not which retransmissions.
    ///
    /// Not in Startup, which has room enough, nor in `ProbeRTT`, which must see little in flight to end.
    fn apply_window(&self, view: &View, knobs: &mut Knobs) {
        let narrow = matches!(self.phase, Phase::Startup | Phase::ProbeRtt);
        let stretch = SYN_NS / (view.rtt.as_nanos() as f64).max(1.0);
        let stretch = if view.sees_beyond_holes { REPAIR_ROOM } else { stretch };
        let repairing = self.repairing.is_some() && !narrow;
        knobs.window = if repairing { self.window * (1.0 + stretch) } else { self.window };
    }

    /// Remembers the window before it is lowered for a while (draft: `SaveCwnd`).
    fn save_window(&mut self) {
        let lowered = self.repairing.is_some() || self.phase == Phase::ProbeRtt;
        self.prior_window = if lowered { self.prior_window.max(self.window) } else { self.window };
    }

    /// `seq` is lost, and the repair goes on until it is acknowledged.
    fn repair(&mut self, seq: Seq) {
        if self.repairing.is_none_or(|newest| seq.since(newest) > 0) {
            self.save_window();
            self.repairing = Some(seq);
        }
    }
}

/// Packets sent, less those that arrived or were lost.
fn count(view: &View) -> i64 {
    let trace = &view.trace;
    (trace.packets_sent as i64) - (view.delivered as i64) - (trace.packets_lost as i64)
}

/// draft: `InitPacingRate`.
fn initial_rate(window: f64, rtt: Duration) -> f64 {
    Phase::Startup.pacing_gain() * window / rtt.as_secs_f64().max(1e-6)
}

impl Law for Bbr {
    fn name(&self) -> &'static str {
        Self::INFO.name
    }

    fn state(&self) -> &'static str {
        self.phase.name()
    }

    fn watches_packets(&self) -> bool {
        true
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        self.initial_window = view.start_window(self.initial_window);
        self.delivered = view.delivered;
        self.lost = view.trace.packets_lost;
        self.drift = count(view) - i64::from(view.in_flight);
        self.rounds.restart(view.delivered);
        // Before the first sample the window is the limit, and a millisecond as good as any guess.
        let known = view.rtt_min < Duration::MAX;
        let rtt = if known { view.rtt } else { Duration::from_millis(1) };
        self.min_rtt.begin(view.now, known.then_some(rtt));
        self.pacing_rate = initial_rate(self.initial_window, rtt);
        self.window = self.initial_window;
        knobs.window = self.window;
        knobs.period_ns = 1e9 / self.pacing_rate;
        knobs.ack_interval = ACK_INTERVAL;
        knobs.window_growth = WINDOW_GROWTH;
    }

    fn on_ack(&mut self, next: Seq, view: &View, knobs: &mut Knobs) {
        let repairing = self.repairing.is_some();
        self.app_limited = view.app_limited;
        match self.repairing {
            Some(newest) if next.since(newest) > 0 => {
                self.repairing = None;
                self.window = self.window.max(self.prior_window);
            }
            Some(_) => {}
            None => self.drift = count(view) - i64::from(view.in_flight),
        }
        // TCP's sender reports the first loss of a repair only; the others are in its counters.
        if view.trace.packets_lost > self.lost {
            self.repair(view.largest_sent);
        }
        self.on_news(0, repairing, view, knobs);
    }

    fn on_arrivals(&mut self, view: &View, knobs: &mut Knobs) {
        self.on_news(0, self.repairing.is_some(), view, knobs);
    }

    fn on_loss(&mut self, lost: &[LossRange], view: &View, knobs: &mut Knobs) {
        let repairing = self.repairing.is_some();
        if let Some(newest) = lost.iter().map(|range| range.last).reduce(Seq::later) {
            self.repair(newest);
        }
        self.on_news(lost.len(), repairing, view, knobs);
    }

    /// draft: `OnEnterRTO`.
    fn on_timeout(&mut self, view: &View, knobs: &mut Knobs) {
        self.repair(view.largest_sent);
        self.window = self.in_flight(view) + 1.0;
        self.put_off_probe(view);
        self.apply_window(view, knobs);
    }

    fn on_packet_sent(&mut self, packet: &SentPacket, view: &View, knobs: &mut Knobs) -> u64 {
        if self.app_limited && view.in_flight <= 1 && !packet.retransmission {
            self.restart_from_idle(view, knobs);
        }
        let in_flight = self.in_flight(view);
        self.window_limited |= in_flight + 1.0 > self.window;
        let slowed = if self.phase == Phase::ProbeRtt { SLOWED } else { 0 };
        in_flight as u64 | slowed
    }

    fn on_timer(&mut self, view: &View, knobs: &mut Knobs) {
        self.end_probe_rtt(view);
        self.apply_window(view, knobs);
    }
}

#[cfg(test)]
mod tests;
