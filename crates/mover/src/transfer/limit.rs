//! What a transfer is limited by, from where both sides spend their time.

use std::fmt;
use std::time::Duration;

use super::message::Pulse;
use super::stages::{STAGES, Stage};

/// What would have to be faster for the transfer to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Too early to tell, or nothing stands out: the sides wait for each other.
    Unknown,
    /// Hashing and sealing at the source.
    SenderProcessor,
    /// Opening and hashing at the sink.
    ReceiverProcessor,
    /// Reading, or finding, files.
    SourceDisk,
    /// Writing, or making, files.
    DestinationDisk,
    /// What the path carries.
    NetworkRate,
    /// What congestion control makes of the path's losses.
    NetworkLoss,
    /// The memory that the receiver gives to the connection.
    ReceiverWindow,
    /// A rate that was set, by the user or a server.
    RateLimit,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Unknown => "not known yet",
            Limit::SenderProcessor => "sender CPU",
            Limit::ReceiverProcessor => "receiver CPU",
            Limit::SourceDisk => "source disk",
            Limit::DestinationDisk => "destination disk",
            Limit::NetworkRate => "network rate",
            Limit::NetworkLoss => "network loss",
            Limit::ReceiverWindow => "receiver window",
            Limit::RateLimit => "sender rate limit",
        })
    }
}

/// For how long which limit held.
#[derive(Clone, Debug, Default)]
pub struct Held(Vec<(Limit, Duration)>);

impl Held {
    /// Adds a time in which it was this one.
    pub fn add(&mut self, limit: Limit, time: Duration) {
        match self.0.iter_mut().find(|(other, _)| *other == limit) {
            Some((_, sum)) => *sum += time,
            None => self.0.push((limit, time)),
        }
    }

    /// The one that held longest; none if none held for a good part of the time.
    pub fn most(&self) -> Option<Limit> {
        let all: Duration = self.0.iter().map(|(_, time)| *time).sum();
        let known = self.0.iter().filter(|(limit, _)| *limit != Limit::Unknown);
        let (limit, time) = known.max_by_key(|(_, time)| *time)?;
        (*time >= all.mul_f64(PART)).then_some(*limit)
    }
}

/// What both sides did in some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence {
    /// How long both have told of.
    pub time: Duration,
    /// Lanes of the source.
    pub lanes: u32,
    /// Time of the source's lanes in each stage, µs.
    pub source: [u64; STAGES],
    /// Time of the sink's lanes in each stage, µs.
    pub sink: [u64; STAGES],
    /// Share of its time that the source's busiest thread wanted a processor, 0 to 1.
    pub source_busy: f64,
    /// Share of its time that the sink's busiest thread wanted a processor, 0 to 1.
    pub sink_busy: f64,
    /// Share of the source's packets that were sent again.
    pub loss: f64,
    /// Share of the time in which the sink's window held the source back.
    pub blocked: f64,
    /// What was moved, bits/s.
    pub rate: f64,
    /// What the path seems to carry, bits/s; 0: not known.
    pub capacity: f64,
}

/// Time of each stage as a share of all.
pub fn shares(stages: &[u64; STAGES]) -> [f64; STAGES] {
    let total: u64 = stages.iter().sum();
    stages.map(|time| if total == 0 { 0.0 } else { time as f64 / total as f64 })
}

/// Less than this tells nothing: connections begin slowly, and sides tell of themselves once a second.
const LEAST: Duration = Duration::from_millis(900);
/// A limit that held for less than this share of the time is not that of all.
const PART: f64 = 0.25;
/// Stages are told of when they end. If those that have ended are less than this share of the lanes' time,
/// what matters is still going on.
const ENDED: f64 = 0.2;
/// A stage that takes so much of a side's time is what holds it up.
const MOST: f64 = 0.5;
/// A rate that was set holds lanes back for less: what it lets pass takes time as well.
const HELD_BACK: f64 = 0.25;
/// A thread that is so busy holds up the others.
const BUSY: f64 = 0.7;
/// And so busy if the path would carry much more: threads take turns.
const RATHER_BUSY: f64 = 0.4;
/// What moves less than this share of what the path seems to carry does not fill it.
const FILLED: f64 = 0.5;
/// Losses beyond this are not those of a law that looks for the path's rate.
const LOSSY: f64 = 0.002;

impl Evidence {
    /// Of what both sides have told of the same time, in which so much was moved, bits/s.
    pub fn of(source: &Pulse, sink: &Pulse, rate: f64) -> Self {
        let share = |part: u64, all: u64| (part as f64 / all.max(1) as f64).min(1.0);
        Evidence {
            time: Duration::from_micros(source.interval.min(sink.interval)),
            lanes: source.lanes,
            source: source.stages,
            sink: sink.stages,
            source_busy: share(source.busy, source.interval),
            sink_busy: share(sink.busy, sink.interval),
            loss: share(source.packets.1, source.packets.0),
            blocked: share(source.blocked, source.interval),
            rate,
            capacity: source.capacity as f64,
        }
    }

    /// What was in the way of more. The first that applies of: a rate that was set; what the source's
    /// lanes do themselves; what they wait for, which is files to be found, an answer, or a path or sink
    /// that does not take more.
    pub fn limit(&self) -> Limit {
        let ended = self.source.iter().sum::<u64>() as f64;
        if self.time < LEAST || ended < self.lane_time() * ENDED {
            return Limit::Unknown;
        }
        let source = shares(&self.source);
        let of = |stage: Stage| source[stage as usize];
        let (send, idle, find) = (of(Stage::Send), of(Stage::Idle), of(Stage::Find));
        if of(Stage::Limit).max(shares(&self.sink)[Stage::Limit as usize]) > HELD_BACK {
            Limit::RateLimit
        } else if send + idle + find <= MOST {
            let processor = of(Stage::Hash) + of(Stage::Seal);
            if of(Stage::Read) > processor { Limit::SourceDisk } else { Limit::SenderProcessor }
        } else if find > send.max(idle) {
            if self.source_busy > BUSY { Limit::SenderProcessor } else { Limit::SourceDisk }
        } else if idle > send {
            self.unanswered()
        } else {
            self.not_taken()
        }
    }

    /// What the lanes of a side have for all stages together, µs.
    fn lane_time(&self) -> f64 {
        self.time.as_micros() as f64 * f64::from(self.lanes.max(1))
    }

    /// The source has nothing to do before the sink answers.
    fn unanswered(&self) -> Limit {
        let writing = self.sink[Stage::Write as usize] as f64 / self.time.as_micros() as f64;
        if writing > MOST {
            Limit::DestinationDisk
        } else if self.sink_busy > BUSY {
            Limit::ReceiverProcessor
        } else {
            Limit::Unknown
        }
    }

    /// The source would give more: something behind it does not take it.
    fn not_taken(&self) -> Limit {
        let sink = shares(&self.sink);
        let (writing, checking) = (sink[Stage::Write as usize], sink[Stage::Hash as usize]);
        let busiest = match self.source_busy > self.sink_busy {
            true => Limit::SenderProcessor,
            false => Limit::ReceiverProcessor,
        };
        let busy = self.source_busy.max(self.sink_busy);
        let filled = self.rate >= self.capacity * FILLED;
        if writing > MOST || (writing > checking && writing + checking > 1.5 * MOST) {
            // A thread that waits for a disk wants no processor: one that wants it waits for that within its writes.
            if self.sink_busy > BUSY { Limit::ReceiverProcessor } else { Limit::DestinationDisk }
        } else if checking > MOST || writing + checking > 1.5 * MOST {
            Limit::ReceiverProcessor
        } else if busy > BUSY {
            busiest
        } else if self.blocked > MOST {
            // Only a sink that receives all it can has too small a window. One that has told of little of its
            // time may be held back by a rate that was set for it.
            let told = self.sink.iter().sum::<u64>() as f64 >= self.lane_time() * ENDED;
            if told { Limit::ReceiverWindow } else { Limit::Unknown }
        } else if self.loss > LOSSY && (!filled || self.capacity == 0.0) {
            // A law that uses what the path carries loses packets as well.
            Limit::NetworkLoss
        } else if busy > RATHER_BUSY && !filled {
            busiest
        } else {
            Limit::NetworkRate
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(times: &[(Stage, u64)]) -> [u64; STAGES] {
        let mut stages = [0; STAGES];
        for (stage, time) in times {
            stages[*stage as usize] = *time;
        }
        stages
    }

    #[test]
    fn what_held_longest_is_the_limit_of_all() {
        let mut held = Held::default();
        assert_eq!(held.most(), None);
        let seconds = Duration::from_secs;
        for (limit, time) in [
            (Limit::Unknown, 10),
            (Limit::SourceDisk, 3),
            (Limit::NetworkRate, 4),
            (Limit::SourceDisk, 2),
        ] {
            held.add(limit, seconds(time));
        }
        assert_eq!(held.most(), Some(Limit::SourceDisk));
        held.add(Limit::Unknown, seconds(2));
        assert_eq!(held.most(), None, "most of the time it was none");
    }

    #[test]
    fn each_bottleneck_has_its_name() {
        use Stage::{Find, Hash, Idle, Read, Receive, Seal, Send, Write};
        let quiet = [(Receive, 90), (Hash, 5), (Write, 5)];
        let sending = [(Read, 5), (Hash, 5), (Seal, 10), (Send, 80)];
        let waiting = [(Read, 5), (Hash, 5), (Idle, 90)];
        // In hundredths of a second.
        let case = |source: &[(Stage, u64)], sink: &[(Stage, u64)]| Evidence {
            time: Duration::from_secs(1),
            source: stages(source).map(|time| time * 10_000),
            sink: stages(sink).map(|time| time * 10_000),
            ..Evidence::default()
        };
        let sent = case(&sending, &quiet);
        let lossy = Evidence { loss: 0.01, ..sent };
        let full = Evidence { rate: 9e6, capacity: 10e6, ..lossy };
        let suffers = Evidence { rate: 3e6, ..full };
        let blocked = Evidence { blocked: 0.8, ..sent };
        let busy = |source_busy, sink_busy, of: Evidence| Evidence { source_busy, sink_busy, ..of };
        // A path that carries much more than is moved.
        let wide = Evidence { rate: 3e9, capacity: 43e9, ..sent };
        let held = case(&sending, &[(Stage::Limit, 70), (Receive, 20), (Write, 10)]);
        let held_here = case(&[(Read, 10), (Stage::Limit, 60), (Send, 30)], &quiet);
        let idle = case(&waiting, &quiet);
        let finding = case(&[(Find, 70), (Idle, 20), (Read, 10)], &quiet);
        let syncing = case(&waiting, &[(Receive, 180), (Write, 90)]);
        let short = |of| Evidence { time: Duration::from_millis(300), ..of };
        for (evidence, limit) in [
            (Evidence::default(), Limit::Unknown),
            (sent, Limit::NetworkRate),
            (short(sent), Limit::Unknown),
            (short(held_here), Limit::Unknown),
            (case(&[(Read, 1), (Hash, 2)], &quiet), Limit::Unknown), // the first block is on its way
            (lossy, Limit::NetworkLoss),
            (full, Limit::NetworkRate),
            (suffers, Limit::NetworkLoss),
            (blocked, Limit::ReceiverWindow),
            // The sink's lanes are in the middle of a block each.
            (
                Evidence { lanes: 8, source: blocked.source.map(|time| 8 * time), ..blocked },
                Limit::Unknown,
            ),
            (busy(0.1, 0.97, sent), Limit::ReceiverProcessor),
            (busy(0.97, 0.1, sent), Limit::SenderProcessor),
            (busy(0.6, 0.5, wide), Limit::SenderProcessor),
            (busy(0.5, 0.6, wide), Limit::ReceiverProcessor),
            (busy(0.5, 0.6, full), Limit::NetworkRate),
            (case(&sending, &[(Receive, 20), (Write, 80)]), Limit::DestinationDisk),
            (case(&sending, &[(Receive, 20), (Write, 42), (Hash, 38)]), Limit::DestinationDisk),
            (
                busy(0.1, 0.9, case(&sending, &[(Receive, 10), (Write, 90)])),
                Limit::ReceiverProcessor,
            ),
            (case(&sending, &[(Receive, 20), (Hash, 80)]), Limit::ReceiverProcessor),
            (case(&[(Read, 80), (Send, 20)], &quiet), Limit::SourceDisk),
            (case(&[(Read, 10), (Hash, 40), (Seal, 40)], &quiet), Limit::SenderProcessor),
            (held_here, Limit::RateLimit),
            (held, Limit::RateLimit),
            (Evidence { blocked: 0.9, ..held }, Limit::RateLimit),
            (idle, Limit::Unknown),
            (syncing, Limit::DestinationDisk),
            (busy(0.1, 0.9, idle), Limit::ReceiverProcessor),
            (finding, Limit::SourceDisk),
            (busy(0.9, 0.1, finding), Limit::SenderProcessor),
        ] {
            assert_eq!(evidence.limit(), limit, "{evidence:?}");
        }
    }
}
