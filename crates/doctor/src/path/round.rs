//! A round of questions: sent at a pace, answered or counted, and the tally asked for at the end.

use std::time::Duration;

use farhaul_base::Time;

use super::message::{HEADER, Kind, Message, Wish};
use super::tally::{Counts, MOST, Tally};

/// How often the tally is asked for.
const ASKS: u32 = 5;
/// Stragglers of a round that is counted only are waited for so long.
const STRAGGLERS: Duration = Duration::from_millis(100);

/// A sender that had no turn for longer does not make up for it: all at once, what it missed would fill queues
/// and be lost, which would be no fault of the path.
const MADE_UP: Duration = Duration::from_millis(2);

/// What a round consists of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Payload bytes, question by question.
    pub sizes: Sizes,
    pub wish: Wish,
    /// From one question to the next; zero: a train.
    pub interval: Duration,
    /// How many questions, and how many of their answers, may leave in one call of the system, which
    /// the kernel may hand on in one piece.
    pub together: u32,
    /// Questions must not be cut on the way.
    pub whole: bool,
    /// Ask for the responder's tally at the end.
    pub ask: bool,
    /// The first reply ends it.
    pub until_first: bool,
}

#[derive(Clone, Debug)]
pub enum Sizes {
    /// `count` times `bytes`.
    Same { bytes: u16, count: u32 },
    /// Each its own.
    List(Vec<u16>),
}

impl Sizes {
    fn count(&self) -> u32 {
        match self {
            Sizes::Same { count, .. } => (*count).clamp(1, MOST),
            Sizes::List(list) => list.len() as u32,
        }
    }

    fn get(&self, sequence: u32) -> usize {
        match self {
            Sizes::Same { bytes, .. } => (*bytes).into(),
            Sizes::List(list) => list.get(sequence as usize).map_or(0, |size| (*size).into()),
        }
    }
}

/// One reply's times.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Without the time that the responder took, ns.
    pub rtt: u64,
    /// How far the responder's clock is ahead, ns.
    pub offset: i64,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Sending,
    /// For replies, or for stragglers.
    Waiting {
        until: Time,
    },
    Asking {
        asked: u32,
        until: Time,
    },
    Over,
}

/// A round under way.
#[derive(Debug)]
pub struct Round {
    pub number: u16,
    pub plan: Plan,
    stage: Stage,
    next_at: Time,
    /// By sequence number.
    pub sent_at: Vec<Time>,
    /// Replies, as they came here.
    pub replies: Tally,
    /// Sequence numbers of the replies.
    pub replied: Vec<u32>,
    pub samples: Vec<Sample>,
    /// When the first and the last of those replies left, by the responder's clock, ns.
    answered: Option<(u64, u64)>,
    /// What the responder has counted.
    pub counts: Option<Counts>,
    /// How long an answer may take.
    patience: Duration,
}

impl Round {
    pub fn new(number: u16, plan: Plan, patience: Duration, now: Time) -> Self {
        Round {
            number,
            plan,
            stage: Stage::Sending,
            next_at: now,
            sent_at: Vec::new(),
            replies: Tally::default(),
            replied: Vec::new(),
            samples: Vec::new(),
            answered: None,
            counts: None,
            patience,
        }
    }

    /// Questions sent so far.
    pub fn sent(&self) -> u32 {
        self.sent_at.len() as u32
    }

    /// What to send now: kind, sequence number, payload bytes.
    pub fn poll(&mut self, now: Time) -> Option<(Kind, u32, usize)> {
        loop {
            match self.stage {
                Stage::Sending if now < self.next_at => return None,
                Stage::Sending => return Some(self.send(now)),
                Stage::Waiting { until } => {
                    let answered = self.plan.wish != Wish::Count
                        && self.replies.counts().received >= self.sent();
                    if now < until && !answered {
                        return None;
                    }
                    self.stage = match self.plan.ask {
                        true => Stage::Asking { asked: 0, until: now },
                        false => Stage::Over,
                    };
                }
                Stage::Asking { until, .. } if now < until => return None,
                Stage::Asking { asked: ASKS, .. } => self.stage = Stage::Over,
                Stage::Asking { asked, .. } => {
                    // It may stand in a queue behind the round itself.
                    let until = now + self.patience * (1 << asked);
                    self.stage = Stage::Asking { asked: asked + 1, until };
                    return Some((Kind::Ask, asked, HEADER));
                }
                Stage::Over => return None,
            }
        }
    }

    fn send(&mut self, now: Time) -> (Kind, u32, usize) {
        let sequence = self.sent();
        self.sent_at.push(now);
        let missed = Time::ZERO + (now - Time::ZERO).saturating_sub(MADE_UP);
        self.next_at = (self.next_at + self.plan.interval).max(missed);
        if self.sent() >= self.plan.sizes.count() {
            let wait = match self.plan.wish {
                Wish::Count => STRAGGLERS,
                _ => self.patience,
            };
            self.stage = Stage::Waiting { until: now + wait };
        }
        (Kind::Question(self.plan.wish), sequence, self.plan.sizes.get(sequence))
    }

    /// A message of this round came.
    pub fn handle(&mut self, now: Time, message: &Message) {
        match message.kind {
            Kind::Reply => self.on_reply(now, message),
            Kind::Tally if matches!(self.stage, Stage::Asking { .. }) => {
                self.counts = Counts::from_words(message.words, self.sent());
                self.stage = Stage::Over;
            }
            _ => {}
        }
    }

    fn on_reply(&mut self, now: Time, message: &Message) {
        let Some(sent) = self.sent_at.get(message.sequence as usize).copied() else { return };
        if !self.replies.count(message.sequence, now) {
            return;
        }
        self.replied.push(message.sequence);
        let [_, came, answered, ..] = message.words;
        let (first, last) = self.answered.unwrap_or((answered, answered));
        self.answered = Some((first.min(answered), last.max(answered)));
        let whole = now.nanos_since(sent);
        let taken = answered.saturating_sub(came).min(whole);
        // NTP's formula (RFC 5905 §8), with numbers that a peer may choose.
        let ahead = |theirs: u64, ours: Time| i128::from(theirs) - i128::from(ours.as_nanos());
        let offset = (ahead(came, sent) + ahead(answered, now)) / 2;
        let offset = i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX });
        self.samples.push(Sample { rtt: whole - taken, offset });
        if self.plan.until_first {
            self.stage = Stage::Over;
        } else if let Stage::Waiting { until } = &mut self.stage {
            // A narrow path is slow with the rest, too.
            *until = (*until).max(now + self.patience);
        }
    }

    /// How many questions the responder's host has dropped, at most. What left in one call it may have
    /// dropped in one piece, which its count takes for one.
    pub fn dropped(&self, counts: &Counts) -> u32 {
        let lost = self.sent().saturating_sub(counts.received);
        counts.dropped.saturating_mul(self.plan.together.max(1)).min(lost)
    }

    /// Whether nothing more will come of it.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// When to poll again if nothing comes; `None` when it is over.
    pub fn next_timeout(&self) -> Option<Time> {
        match self.stage {
            Stage::Sending => Some(self.next_at),
            Stage::Waiting { until } | Stage::Asking { until, .. } => Some(until),
            Stage::Over => None,
        }
    }

    /// How long the responder took to send its replies, as it says, ns.
    pub fn answering_span(&self) -> u64 {
        self.answered.map_or(0, |(first, last)| last - first)
    }

    /// Bits per second at which datagrams of `bytes` on the wire left in the second half of the time, as
    /// [`Counts::rate`] tells how fast they came in it: a host that has no turn for a while is slower in the
    /// one as in the other.
    pub fn sending_rate(&self, bytes: u32) -> Option<f64> {
        let (first, last) = (*self.sent_at.first()?, *self.sent_at.last()?);
        let middle = first + (last - first) / 2;
        let tail = self.sent_at.partition_point(|at| *at < middle);
        let span = last.nanos_since(*self.sent_at.get(tail)?);
        let sent = self.sent_at.len() - 1 - tail;
        (span > 0).then(|| sent as f64 * f64::from(bytes) * 8e9 / span as f64)
    }

    /// How long the sending took, ns.
    pub fn sending_span(&self) -> u64 {
        match (self.sent_at.first(), self.sent_at.last()) {
            (Some(first), Some(last)) => last.nanos_since(*first),
            _ => 0,
        }
    }
}
