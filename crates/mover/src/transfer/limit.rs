//! What a transfer is limited by, from where both sides spend their time.

use std::fmt;

use super::link::LinkFacts;
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

/// What both sides did in some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence {
    /// Time of the source's lanes in each stage, µs.
    pub source: [u64; STAGES],
    /// Time of the sink's lanes in each stage, µs.
    pub sink: [u64; STAGES],
    /// Share of the source's processors in use, 0 to 1.
    pub source_busy: f64,
    /// Share of the sink's processors in use, 0 to 1.
    pub sink_busy: f64,
    /// Share of packets lost.
    pub loss: f64,
    /// The sink's window holds the source's side back.
    pub blocked_by_peer: bool,
}

/// Time of each stage as a share of all.
pub fn shares(stages: &[u64; STAGES]) -> [f64; STAGES] {
    let total: u64 = stages.iter().sum();
    stages.map(|time| if total == 0 { 0.0 } else { time as f64 / total as f64 })
}

/// A stage that takes so much of a side's time is what holds it up.
const MOST: f64 = 0.5;
/// A host that is so busy has no processor to spare.
const BUSY: f64 = 0.9;
/// Losses beyond this are not those of a law that looks for the path's rate.
const LOSSY: f64 = 0.002;

impl Evidence {
    /// Adds what the connections of the source know.
    pub fn with_links(mut self, links: &[LinkFacts]) -> Self {
        let count = links.len().max(1) as f64;
        self.loss = links.iter().map(|facts| facts.loss).sum::<f64>() / count;
        self.blocked_by_peer = links.iter().any(|facts| facts.blocked_by_peer);
        self
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
            } else if self.source_busy > BUSY && at(&source, Stage::Idle) < at(&source, Stage::Send)
            {
                Limit::SenderProcessor
            } else if self.sink_busy > BUSY {
                Limit::ReceiverProcessor
            } else if at(&source, Stage::Idle) > MOST {
                Limit::SourceDisk
            } else if self.blocked_by_peer {
                Limit::ReceiverWindow
            } else if self.loss > LOSSY {
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
        let blocked = Evidence { blocked_by_peer: true, ..case(&sending, &quiet) };
        let busy = Evidence { sink_busy: 0.97, ..case(&sending, &quiet) };
        for (evidence, limit) in [
            (Evidence::default(), Limit::Unknown),
            (case(&sending, &quiet), Limit::NetworkRate),
            (lossy, Limit::NetworkLoss),
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
