//! The side that asks: one round after the other, each planned from what the former told.

use std::time::Duration;

use farhaul_base::Time;

use super::message::{HEADER, Message, Secret, WORDS, Wish};
use super::report::{Load, PathReport, Reach, Rtt};
use super::round::{Plan, Round, Sample, Sizes};
use super::search::{CEILING, FLOOR, Search};
use super::tally::{Counts, MOST};

/// Bytes of the small questions.
const PING: u16 = 200;
/// Copies of each size when the MTU is searched: one lost packet must not decide it.
const COPIES: usize = 3;
/// What transfers send, bytes, and how many packets of that size show whether they pass in pieces: the
/// first ones may be lost while the sending host learns that they must be cut.
const USUAL: u16 = 1500;
const CUT: u32 = 12;
/// Datagrams of the first train, and the time that a train should take at the narrowest link: many times
/// what a busy host does to times, and its first half does not count.
const FIRST_TRAIN: u32 = 16;
const TRAIN_SPAN: Duration = Duration::from_millis(100);
/// A train of twice what came of the last one leaves in so many pieces at least, or a queue would see it as one,
/// and too few of them would pass for a rate.
const PIECES: u32 = 64;
/// Most bytes of a train.
const TRAIN_BYTES: u32 = 2 << 20;
/// Trains whose median is the capacity, and those in a row without a result after which to give up.
const TRAINS: usize = 5;
const TRAINS_BACK: usize = 3;
const TRAINS_IN_VAIN: u32 = 3;
/// Where the middle half of them differs by more than this share of the median, as on a busy host, more
/// follow, so many at most, while this share of the budget is left.
const AGREE: f64 = 0.05;
const MOST_TRAINS: usize = 15;
const LEFT: f64 = 0.5;
const LEFT_BACK: f64 = 0.25;
/// A train that took a share of its dispersion to send tells only the sender's speed.
const SENDER_LIMITED: f64 = 0.9;
/// The stream under which loss is measured: share of the capacity, and its bounds.
const LOAD_SHARE: f64 = 0.9;
const LOAD_TIME: f64 = 1.0;
const LOAD_BYTES: f64 = 32e6;
/// Streams at most.
const LOADS: usize = 4;
/// A stream may have been faster than the path if it loses this share and half as much again as the
/// slow stream did, or if less than this share of its rate arrives.
const LOAD_LOSS: f64 = 0.002;
const LOAD_DELIVERED: f64 = 0.9;
/// It was, if at 90% of what arrived no more than this part of that is lost...
const CURED: f64 = 0.7;
/// ...and the measured capacity is wrong if this share of the stream was lacking.
const LACKING: f64 = 0.02;
/// A share of a train or stream that the receiving host drops, from which on that tells the host's speed.
const HOST_LIMITED: f64 = 0.02;

/// How to measure.
#[derive(Clone, Debug)]
pub struct ProbeConfig {
    /// Small questions for round-trip time and loss, 1 to 65,536; a loss of a share below one in so
    /// many is not seen.
    pub pings: u32,
    /// From one to the next. Shorter disturbs narrow paths.
    pub ping_interval: Duration,
    /// How long to ask for a first answer.
    pub first_answer: Duration,
    /// After this time since the first answer no more is begun; a round may take longer.
    pub budget: Duration,
    /// Bytes of the headers of IP and UDP: 28 for IPv4, 48 for IPv6.
    pub overhead: u16,
}

impl Default for ProbeConfig {
    fn default() -> Self {
        ProbeConfig {
            pings: 1000,
            ping_interval: Duration::from_millis(2),
            first_answer: Duration::from_secs(5),
            budget: Duration::from_secs(10),
            overhead: 28,
        }
    }
}

/// A busy host may have no turn for this time.
const TURN: Duration = Duration::from_millis(250);

/// What is measured at the moment.
#[derive(Debug)]
enum Stage {
    Hello,
    Ping,
    Mtu {
        search: Search,
        back: bool,
    },
    /// Whether larger packets pass in pieces.
    Cut,
    Trains {
        trains: Trains,
        back: bool,
    },
    /// With what the stream before this one has shown.
    Load {
        streams: usize,
        before: Option<Load>,
    },
    Over,
}

/// Capacity by trains.
#[derive(Debug, Default)]
struct Trains {
    /// Datagrams of each.
    count: u32,
    rates: Vec<f64>,
    /// What came of those that a host sent too slowly, or did not take.
    host_limited: Vec<f64>,
    in_vain: u32,
    received: u32,
    late: u32,
    /// Of the latest train.
    arrived: u32,
}

/// Measures a path. Poll it for datagrams to send until there are none, wait until
/// [`next_timeout`](Prober::next_timeout) or an arrival, and so on until there is a
/// [`report`](Prober::report).
#[derive(Debug)]
pub struct Prober {
    config: ProbeConfig,
    secret: Secret,
    session: u64,
    stage: Stage,
    round: Round,
    /// When nothing more is begun.
    end: Time,
    /// The longest round trip that was seen.
    slowest: Duration,
    report: PathReport,
}

impl Prober {
    /// A measurement that begins `now`. `session` is a random number. Times are nanoseconds since
    /// 1970 by the local clock, or the offset of the clocks means nothing.
    pub fn new(config: ProbeConfig, secret: Secret, session: u64, now: Time) -> Self {
        let every = Duration::from_millis(250);
        let count = (config.first_answer.as_millis() / every.as_millis()).max(1) as u32;
        let plan = Plan {
            sizes: Sizes::Same { bytes: PING, count },
            wish: Wish::Small,
            interval: every,
            together: 1,
            whole: false,
            ask: false,
            until_first: true,
        };
        let end = now + config.first_answer + config.budget;
        Prober {
            config,
            secret,
            session,
            stage: Stage::Hello,
            round: Round::new(1, plan, every, now),
            end,
            slowest: Duration::from_millis(250),
            report: PathReport::default(),
        }
    }

    /// Writes the next datagram to send into `out`; `false` if there is none now.
    pub fn poll(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        loop {
            if let Some((kind, sequence, len)) = self.round.poll(now) {
                let mut words = [0; WORDS];
                words[..2].copy_from_slice(&[now.as_nanos(), self.round.plan.together.into()]);
                let message = Message {
                    kind,
                    round: self.round.number,
                    session: self.session,
                    sequence,
                    words,
                };
                message.write(&self.secret, len, out);
                self.report.bytes_sent += (out.len() + usize::from(self.config.overhead)) as u64;
                return true;
            }
            if matches!(self.stage, Stage::Over) || !self.round.is_over() {
                return false;
            }
            self.advance(now);
        }
    }

    /// A datagram came at `now`. Those that are not the responder's answers are ignored.
    pub fn handle(&mut self, now: Time, datagram: &[u8]) {
        let Some(message) = Message::read(&self.secret, datagram) else { return };
        if message.session == self.session && message.round == self.round.number {
            self.round.handle(now, &message);
        }
    }

    /// When to poll again if nothing comes; `None` when all is done.
    pub fn next_timeout(&self) -> Option<Time> {
        match self.stage {
            Stage::Over => None,
            _ => Some(self.round.next_timeout().unwrap_or(Time::ZERO)),
        }
    }

    /// How the datagrams of [`poll`](Prober::poll) are to leave: how many in one call of the system at
    /// most, and whether they must be whole, that is be lost where they are too large to pass.
    pub fn manner(&self) -> (u32, bool) {
        (self.round.plan.together, self.round.plan.whole)
    }

    /// What was found out, once all is done.
    pub fn report(&self) -> Option<&PathReport> {
        matches!(self.stage, Stage::Over).then_some(&self.report)
    }

    /// What is being measured, in a few words.
    pub fn progress(&self) -> &'static str {
        match self.stage {
            Stage::Hello => "asking for an answer",
            Stage::Ping => "round-trip time and loss",
            Stage::Mtu { .. } => "path MTU",
            Stage::Trains { .. } => "capacity",
            Stage::Cut => "whether packets pass in pieces",
            Stage::Load { .. } => "loss under load",
            Stage::Over => "done",
        }
    }

    /// The round is over: takes its result, and begins the next one.
    fn advance(&mut self, now: Time) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Hello => self.after_hello(now),
            Stage::Ping => {
                self.take_pings();
                self.search_mtu(now, Search::new(CEILING), false);
            }
            Stage::Mtu { search, back } => self.after_mtu(now, search, back),
            Stage::Trains { trains, back } => self.after_train(now, trains, back),
            Stage::Cut => {
                self.report.forward.fragments = Some(!self.round.replied.is_empty());
                self.begin_trains(now);
            }
            Stage::Load { streams, before } => self.after_load(now, streams, before),
            Stage::Over => {}
        }
    }

    fn begin(&mut self, now: Time, stage: Stage, plan: Plan) {
        if now >= self.end {
            return;
        }
        let patience = self.slowest * 2 + TURN;
        self.stage = stage;
        self.round = Round::new(self.round.number + 1, plan, patience, now);
    }

    fn after_hello(&mut self, now: Time) {
        let Some(sample) = self.round.samples.first() else { return };
        self.report.reach = Reach::Both;
        self.slowest = Duration::from_nanos(sample.rtt);
        self.end = now + self.config.budget;
        let plan = Plan {
            sizes: Sizes::Same { bytes: PING, count: self.config.pings },
            wish: Wish::Small,
            interval: self.config.ping_interval,
            together: 1,
            whole: false,
            ask: true,
            until_first: false,
        };
        self.begin(now, Stage::Ping, plan);
    }

    fn take_pings(&mut self) {
        let mut samples = std::mem::take(&mut self.round.samples);
        samples.sort_unstable_by_key(|sample| sample.rtt);
        if let (Some(best), Some(worst)) = (samples.first(), samples.last()) {
            self.slowest = Duration::from_nanos(worst.rtt).min(Duration::from_secs(2));
            self.report.rtt = Some(rtt(&samples));
            self.report.clock_offset_ms = Some(best.offset as f64 * 1e-6);
            self.report.clock_error_ms = Some(best.rtt as f64 * 1e-6 / 2.0);
        }
        if let Some(counts) = self.round.counts {
            let sent = self.round.sent();
            let replies = self.round.replies.counts().received;
            let (forward, back) = (&mut self.report.forward, &mut self.report.back);
            (forward.sent, forward.lost) = (sent, sent - counts.received);
            (back.sent, back.lost) = (counts.received, counts.received.saturating_sub(replies));
        }
    }

    fn search_mtu(&mut self, now: Time, search: Search, back: bool) {
        let sizes =
            search.candidates().into_iter().map(|size| size.saturating_sub(self.config.overhead));
        let plan = Plan {
            sizes: Sizes::List(sizes.flat_map(|size| [size; COPIES]).collect()),
            wish: if back { Wish::Full } else { Wish::Small },
            // Narrow paths have short queues.
            interval: Duration::from_millis(1),
            together: 1,
            whole: true,
            ask: false,
            until_first: false,
        };
        self.begin(now, Stage::Mtu { search, back }, plan);
    }

    fn after_mtu(&mut self, now: Time, mut search: Search, back: bool) {
        let tried = search.candidates();
        let passed: Vec<u16> = self
            .round
            .replied
            .iter()
            .filter_map(|sequence| tried.get(*sequence as usize / COPIES).copied())
            .collect();
        search.learn(&tried, &passed);
        if !search.candidates().is_empty() {
            return self.search_mtu(now, search, back);
        }
        let way = if back { &mut self.report.back } else { &mut self.report.forward };
        way.mtu = search.found();
        let (mtu, whole) = (way.mtu, self.report.forward.mtu);
        match mtu {
            Some(mtu) if !back => self.search_mtu(now, Search::new(mtu), true),
            _ if whole.is_none_or(|mtu| mtu < USUAL) => self.send_cut(now),
            _ => self.begin_trains(now),
        }
    }

    /// What transfers send is too large to pass whole: the kernel may cut it, as it may theirs.
    fn send_cut(&mut self, now: Time) {
        let plan = Plan {
            sizes: Sizes::Same { bytes: USUAL - self.config.overhead, count: CUT },
            wish: Wish::Small,
            // So that the last ones leave after a router's answer to the first.
            interval: (self.slowest * 2 / CUT).max(Duration::from_millis(2)),
            together: 1,
            whole: false,
            ask: false,
            until_first: true,
        };
        self.begin(now, Stage::Cut, plan);
    }

    fn begin_trains(&mut self, now: Time) {
        let trains = Trains { count: FIRST_TRAIN, ..Trains::default() };
        self.send_train(now, trains, false);
    }

    /// Payload bytes of datagrams that pass both ways.
    fn payload(&self) -> u16 {
        let ways = [self.report.forward.mtu, self.report.back.mtu];
        // Where not even the floor passes, something smaller may.
        let mtu = ways.map(|mtu| mtu.unwrap_or(FLOOR / 2)).into_iter().min().unwrap_or(FLOOR);
        mtu.saturating_sub(self.config.overhead).max(HEADER as u16)
    }

    fn wire_len(&self) -> u32 {
        u32::from(self.payload() + self.config.overhead)
    }

    fn send_train(&mut self, now: Time, trains: Trains, back: bool) {
        let plan = Plan {
            sizes: Sizes::Same { bytes: self.payload(), count: trains.count },
            wish: if back { Wish::Full } else { Wish::Count },
            interval: Duration::ZERO,
            // Of a train that is too long a full queue drops the rest, in whole pieces.
            together: trains.count.min(trains.arrived.saturating_mul(2)) / PIECES,
            whole: true,
            ask: !back,
            until_first: false,
        };
        self.begin(now, Stage::Trains { trains, back }, plan);
    }

    fn after_train(&mut self, now: Time, mut trains: Trains, back: bool) {
        let counts = if back { Some(self.round.replies.counts()) } else { self.round.counts }
            .unwrap_or_default();
        let longer = trains.take(&counts, &self.round, self.wire_len(), back);
        let (least, left) = if back { (TRAINS_BACK, LEFT_BACK) } else { (TRAINS, LEFT) };
        let may_repeat = now + self.config.budget.mul_f64(left) < self.end;
        let wanted = trains.len() < least || !trains.agree() && may_repeat;
        let goes_on = wanted
            && trains.len() < MOST_TRAINS
            && trains.in_vain < TRAINS_IN_VAIN
            && now < self.end;
        if goes_on || longer {
            return self.send_train(now, trains, back);
        }
        let reordered = f64::from(trains.late) / f64::from(trains.received.max(1));
        let (capacity, limited) = trains.capacity();
        if back {
            // A reply is late, too, if its question was; and replies come no faster than questions for longer
            // than a pause of the responder's has gathered them.
            let forward = &self.report.forward;
            let (capacity, limited) = match capacity.zip(forward.capacity) {
                Some((back, forward)) if back > SENDER_LIMITED * forward => {
                    (Some(back.min(forward)), true)
                }
                _ => (capacity, limited),
            };
            let way = &mut self.report.back;
            way.reordered = (reordered - forward.reordered).max(0.0);
            (way.capacity, way.capacity_is_least) = (capacity, limited);
            self.begin_load(now);
        } else {
            let way = &mut self.report.forward;
            way.reordered = reordered;
            (way.capacity, way.capacity_is_least) = (capacity, limited);
            let Trains { count, arrived, .. } = trains;
            self.send_train(now, Trains { count, arrived, ..Trains::default() }, true);
        }
    }

    fn begin_load(&mut self, now: Time) {
        if let Some(capacity) = self.report.forward.capacity {
            self.send_load(now, capacity * LOAD_SHARE, 1, None);
        }
    }

    fn send_load(&mut self, now: Time, rate: f64, streams: usize, before: Option<Load>) {
        let wire = f64::from(self.wire_len());
        let bytes = (rate / 8.0 * LOAD_TIME).min(LOAD_BYTES);
        let interval = Duration::from_secs_f64((wire * 8.0 / rate).min(1.0));
        let plan = Plan {
            sizes: Sizes::Same {
                bytes: self.payload(),
                count: ((bytes / wire) as u32).clamp(FIRST_TRAIN, MOST),
            },
            wish: Wish::Count,
            interval,
            // A millisecond's worth.
            together: (1e-3 / interval.as_secs_f64().max(1e-9)) as u32,
            whole: true,
            ask: true,
            until_first: false,
        };
        self.begin(now, Stage::Load { streams, before }, plan);
    }

    /// A stream that was faster than the path tells the path's rate by what arrived in the end, and
    /// nothing of its loss: that is what a slower one is for, which is sent then. Where a slower stream
    /// loses as much, the loss is the path's.
    fn after_load(&mut self, now: Time, streams: usize, before: Option<Load>) {
        let Some(load) = self.load() else { return };
        self.report.load = Some(load);
        if let Some(before) = before {
            if lacking(&load) > CURED * lacking(&before) {
                return;
            }
            if let Some(delivered) = before.delivered.filter(|_| lacking(&before) > LACKING) {
                let way = &mut self.report.forward;
                if way.capacity.is_none_or(|capacity| delivered < capacity) {
                    (way.capacity, way.capacity_is_least) = (Some(delivered), false);
                }
            }
        }
        if load.dropped() > HOST_LIMITED {
            self.report.forward.capacity_is_least = true;
            return;
        }
        let slow = self.report.forward.loss();
        let lossy = load.loss() > LOAD_LOSS && load.loss() > 1.5 * slow;
        if let Some(delivered) = load.delivered.filter(|_| streams < LOADS)
            && (lossy || delivered < LOAD_DELIVERED * load.offered)
        {
            self.send_load(now, delivered * LOAD_SHARE, streams + 1, Some(load));
        }
    }

    /// What became of the stream; `None` if that was not told.
    fn load(&self) -> Option<Load> {
        let counts = self.round.counts?;
        let (sent, offered) = (self.round.sent(), self.round.sending_rate(self.wire_len())?);
        Some(Load {
            offered,
            delivered: counts.rate(self.wire_len()),
            sent,
            lost: sent - counts.received,
            dropped: self.round.dropped(&counts),
        })
    }
}

/// The share of a stream that did not arrive in its second half, in time or at all; what the receiving
/// host dropped has arrived there.
fn lacking(load: &Load) -> f64 {
    let late = load.delivered.map_or(0.0, |delivered| 1.0 - delivered / load.offered);
    late.max(load.loss()) - load.dropped()
}

impl Trains {
    /// Takes what came of a train; `true` if another, longer one is wanted because this was too short
    /// to tell.
    fn take(&mut self, counts: &Counts, round: &Round, wire_len: u32, back: bool) -> bool {
        // Of a train that is too long a full queue drops the rest: a longer one brings no more.
        let grows = counts.received > self.arrived + self.arrived / 4;
        self.arrived = counts.received;
        self.received += counts.received;
        self.late += counts.late;
        let Some(rate) = counts.rate(wire_len) else {
            // All may have come at once.
            if grows && self.lengthen(wire_len) {
                return true;
            }
            self.in_vain += 1;
            return false;
        };
        let span = counts.last.nanos_since(counts.first);
        if u128::from(span) < TRAIN_SPAN.as_nanos() && grows && self.lengthen(wire_len) {
            return true;
        }
        let sending_span = if back { round.answering_span() } else { round.sending_span() };
        let slow_sender = sending_span as f64 > SENDER_LIMITED * span as f64;
        let slow_receiver =
            f64::from(round.dropped(counts)) > HOST_LIMITED * f64::from(round.sent());
        let list = match slow_sender || slow_receiver {
            true => &mut self.host_limited,
            false => &mut self.rates,
        };
        list.push(rate);
        self.in_vain = 0;
        false
    }

    /// Trains of which a rate is known.
    fn len(&self) -> usize {
        self.rates.len() + self.host_limited.len()
    }

    /// The rates that count: those of the path, if they are half of all, else those of the hosts, too.
    fn counting(&self) -> (Vec<f64>, bool) {
        let limited = self.host_limited.len() > self.rates.len();
        let mut rates = self.rates.clone();
        if limited {
            rates.extend_from_slice(&self.host_limited);
        }
        rates.sort_unstable_by(f64::total_cmp);
        (rates, limited)
    }

    /// Whether the middle half of the rates is about the same.
    fn agree(&self) -> bool {
        let (rates, _) = self.counting();
        let quarter = rates.len() / 4;
        let (Some(low), Some(high)) = (rates.get(quarter), rates.iter().nth_back(quarter)) else {
            return false;
        };
        high - low <= AGREE * rates[rates.len() / 2]
    }

    /// The median; or what a quarter of the trains did not reach and whether that is it, where hosts were the
    /// limit: after a pause, what a token bucket has saved up meanwhile looks like a rate.
    fn capacity(&self) -> (Option<f64>, bool) {
        let (rates, limited) = self.counting();
        let rank = if limited { rates.len() / 4 } else { rates.len() / 2 };
        (rates.get(rank).copied(), limited)
    }

    fn lengthen(&mut self, wire_len: u32) -> bool {
        let longer = self.count * 2;
        let fits = longer.saturating_mul(wire_len) <= TRAIN_BYTES && self.len() == 0;
        if fits {
            self.count = longer;
        }
        fits
    }
}

/// Of samples sorted by their round-trip time, at least one.
fn rtt(sorted: &[Sample]) -> Rtt {
    let at = |share: f64| {
        let index = ((sorted.len() - 1) as f64 * share).round() as usize;
        sorted[index].rtt as f64 * 1e-6
    };
    Rtt { min_ms: at(0.0), median_ms: at(0.5), p95_ms: at(0.95), samples: sorted.len() as u32 }
}
