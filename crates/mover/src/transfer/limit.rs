//! What a transfer is limited by, from where both sides spend their time.

use std::fmt;
use std::time::Duration;

use super::message::Pulse;
use super::stages::{STAGES, Stage};

/// What would have to be faster for the transfer to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Too early to tell.
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
    /// The rate that the user has set.
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

    /// The one that held longest; none if none is known.
    pub fn most(&self) -> Option<Limit> {
        let known = self.0.iter().filter(|(limit, _)| *limit != Limit::Unknown);
        known.max_by_key(|(_, time)| *time).map(|(limit, _)| *limit)
    }
}

/// What both sides did in some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence {
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

/// A stage that takes so much of a side's time is what holds it up.
const MOST: f64 = 0.5;
/// A thread that is so busy holds up the others.
const BUSY: f64 = 0.7;
/// Losses beyond this are not those of a law that looks for the path's rate.
const LOSSY: f64 = 0.002;

impl Evidence {
    /// Of what both sides have told of the same time, in which so much was moved, bits/s.
    pub fn of(source: &Pulse, sink: &Pulse, rate: f64) -> Self {
        let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        Evidence {
            source: source.stages,
            sink: sink.stages,
            source_busy: share(source.busy.into(), 1000),
            sink_busy: share(sink.busy.into(), 1000),
            loss: share(source.packets.1, source.packets.0),
            blocked: share(source.blocked, source.interval),
            rate,
            capacity: source.capacity as f64,
        }
    }

    /// What was in the way of more.
    pub fn limit(&self) -> Limit {
        if self.source.iter().sum::<u64>() == 0 {
            return Limit::Unknown;
        }
        let (source, sink) = (shares(&self.source), shares(&self.sink));
        let at = |stages: &[f64; STAGES], stage: Stage| stages[stage as usize];
        if at(&source, Stage::Limit) > MOST / 2.0 {
            return Limit::RateLimit;
        }
        let waiting = at(&source, Stage::Send) + at(&source, Stage::Idle);
        let writing = at(&sink, Stage::Write);
        let checking = at(&sink, Stage::Hash);
        if waiting > MOST {
            // The source would give more: something behind it does not take it.
            return if writing > MOST {
                Limit::DestinationDisk
            } else if checking > MOST || writing + checking > 1.5 * MOST {
                if writing > checking { Limit::DestinationDisk } else { Limit::ReceiverProcessor }
            } else if self.source_busy > BUSY.max(self.sink_busy)
                && at(&source, Stage::Idle) < at(&source, Stage::Send)
            {
                Limit::SenderProcessor
            } else if self.sink_busy > BUSY {
                Limit::ReceiverProcessor
            } else if at(&source, Stage::Idle) > MOST {
                Limit::SourceDisk
            } else if self.blocked > MOST {
                Limit::ReceiverWindow
            } else if self.loss > LOSSY && (self.capacity == 0.0 || self.rate < self.capacity / 2.0)
            {
                // A law that uses what the path carries loses packets as well.
                Limit::NetworkLoss
            } else {
                Limit::NetworkRate
            };
        }
        let processor = at(&source, Stage::Hash) + at(&source, Stage::Seal);
        if at(&source, Stage::Read) > processor {
            Limit::SourceDisk
        } else {
            Limit::SenderProcessor
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
            (Limit::Unknown, 100),
            (Limit::SourceDisk, 3),
            (Limit::NetworkRate, 4),
            (Limit::SourceDisk, 2),
        ] {
            held.add(limit, seconds(time));
        }
        assert_eq!(held.most(), Some(Limit::SourceDisk));
    }

    #[test]
    fn each_bottleneck_has_its_name() {
        use Stage::{Hash, Read, Receive, Seal, Send, Write};
        let quiet = [(Receive, 90), (Hash, 5), (Write, 5)];
        let sending = [(Read, 5), (Hash, 5), (Seal, 10), (Send, 80)];
        let case = |source: &[(Stage, u64)], sink: &[(Stage, u64)]| Evidence {
            source: stages(source),
            sink: stages(sink),
            ..Evidence::default()
        };
        let lossy = Evidence { loss: 0.01, ..case(&sending, &quiet) };
        let full = Evidence { rate: 9e6, capacity: 10e6, ..lossy };
        let suffers = Evidence { rate: 3e6, ..full };
        let blocked = Evidence { blocked: 0.8, ..case(&sending, &quiet) };
        let busy = Evidence { sink_busy: 0.97, ..case(&sending, &quiet) };
        for (evidence, limit) in [
            (Evidence::default(), Limit::Unknown),
            (case(&sending, &quiet), Limit::NetworkRate),
            (lossy, Limit::NetworkLoss),
            (full, Limit::NetworkRate),
            (suffers, Limit::NetworkLoss),
            (blocked, Limit::ReceiverWindow),
            (busy, Limit::ReceiverProcessor),
            (case(&sending, &[(Receive, 20), (Write, 80)]), Limit::DestinationDisk),
            (case(&sending, &[(Receive, 20), (Hash, 80)]), Limit::ReceiverProcessor),
            (case(&[(Read, 80), (Send, 20)], &quiet), Limit::SourceDisk),
            (case(&[(Read, 10), (Hash, 40), (Seal, 40)], &quiet), Limit::SenderProcessor),
            (case(&[(Read, 10), (Stage::Limit, 60), (Send, 30)], &quiet), super::Limit::RateLimit),
        ] {
            assert_eq!(evidence.limit(), limit, "{evidence:?}");
        }
    }
}
