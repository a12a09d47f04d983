//! What laws keep book of: round trips and the times they took, the least of a time, and which
//! losses have had their answer.

use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;
use farhaul_wire::{LossRange, Seq};

use crate::View;

/// Round trips, told apart by sequence numbers: one is over when a packet is acknowledged that was
/// sent after it began.
#[derive(Debug, Default)]
pub struct Rounds {
    /// The largest number sent when the round began.
    end: Option<Seq>,
    /// Shortest round-trip time of this round, and of all; of data packets alone, as
    /// [`View::rtt_min`] is not: an ACK2, which that counts too, is sooner through a slow link.
    least: Option<Duration>,
    base: Option<Duration>,
}

/// A round trip that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// The shortest time of the packets acknowledged in it, seconds: those sent in the round before.
    pub least: f64,
    /// The time of the packet whose ACK ended it, seconds: the first that was sent in it.
    pub last: f64,
    /// The shortest time ever: that of the path with its queues empty, seconds.
    pub base: f64,
}

impl Rounds {
    /// To be called with each ACK; returns the round that it ends, unless nothing was measured.
    pub fn on_ack(&mut self, view: &View) -> Option<Round> {
        // A clock may stand still for a round trip, and what is measured is divided by.
        let sample = view.newest.map(|newest| newest.rtt.max(Duration::from_micros(1)));
        self.least = least(self.least, sample);
        self.base = least(self.base, sample);
        if self.end.is_some_and(|end| view.largest_acked.since(end) <= 0) {
            return None;
        }
        let begun = self.end.replace(view.largest_sent).is_some();
        let round = Round {
            least: self.least.take()?.as_secs_f64(),
            last: sample?.as_secs_f64(),
            base: self.base?.as_secs_f64(),
        };
        begun.then_some(round)
    }
}

fn least(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}

/// The least value of the last while.
#[derive(Debug, Default)]
pub struct Lowest {
    /// Each is less than those behind it, and later than those before it.
    values: VecDeque<(Time, f64)>,
}

impl Lowest {
    /// Takes in a value; returns the least of those not older than `span`.
    pub fn add(&mut self, now: Time, value: f64, span: Duration) -> f64 {
        while self.values.back().is_some_and(|(_, other)| *other >= value) {
            self.values.pop_back();
        }
        self.values.push_back((now, value));
        while self.values.front().is_some_and(|(at, _)| now - *at > span) {
            self.values.pop_front();
        }
        self.values.front().map_or(value, |(_, least)| *least)
    }
}

/// Up to where losses have had their answer: one a round trip.
#[derive(Debug)]
pub struct Answered(Seq);

impl Answered {
    /// For a law that is not yet at work: [`Answered::until`] says from where on.
    pub fn new() -> Self {
        Answered(Seq::new(0))
    }

    /// Everything before `next` is acknowledged.
    pub fn on_ack(&mut self, next: Seq) {
        // It moves along, or half the sequence numbers later it would seem to lie ahead.
        self.0 = self.0.later(next.prev());
    }

    /// Whether `seq` was sent after the last answer.
    pub fn is_before(&self, seq: Seq) -> bool {
        seq.since(self.0) > 0
    }

    /// Losses up to `seq` have had their answer.
    pub fn until(&mut self, seq: Seq) {
        self.0 = seq;
    }

    /// Whether one of these losses is to be answered, now: it was sent after the last answer.
    pub fn answer(&mut self, lost: &[LossRange], view: &View) -> bool {
        let new = lost.iter().any(|range| self.is_before(range.last));
        if new {
            self.0 = view.largest_sent;
        }
        new
    }
}

#[cfg(test)]
pub(crate) mod tests;
