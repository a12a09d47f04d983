//! Messages in the place of a stream: an application that sends them, and one that notes how they
//! come.

use core::time::Duration;
use std::collections::BTreeSet;

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_engine::{Chunks, Connection};

use super::{AHEAD, MOST_AT_ONCE, payload};
use crate::report::Spread;

/// Bytes of the number that a message begins with.
const NUMBER: usize = 8;
/// No message is smaller.
pub const LEAST_MESSAGE: u32 = NUMBER as u32;
/// No message is larger.
pub const MOST_MESSAGE: u32 = MOST_AT_ONCE as u32;
/// Numbers that are remembered to know what comes again.
const MOST_SEEN: usize = 100_000;

/// The messages of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MessageSpec {
    /// Bytes of each, 8 to 1 MiB.
    pub size: u32,
    /// The time from one to the next, as of a camera; none: as fast as the windows take them.
    pub every: Option<Duration>,
    /// After so long a message is given up; none: never.
    pub ttl: Option<Duration>,
    /// None is delivered before those sent earlier, unless they were given up.
    pub in_order: bool,
}

impl MessageSpec {
    /// When message `number` comes to be, of a flow that began at `start`; none if whenever there is
    /// room.
    fn due(&self, start: Time, number: u64) -> Option<Time> {
        let nanos = self.every?.as_nanos() * u128::from(number);
        Some(start + Duration::from_nanos(nanos.min(u64::MAX.into()) as u64))
    }
}

/// The sending application.
#[derive(Debug)]
pub(super) struct MessageSource {
    spec: MessageSpec,
    start: Time,
    /// Messages that the connection has taken.
    sent: u64,
}

impl MessageSource {
    pub fn new(spec: MessageSpec, start: Time) -> Self {
        MessageSource { spec, start, sent: 0 }
    }

    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// When the next comes to be, if that is for the application to say.
    pub fn next(&self) -> Option<Time> {
        self.spec.due(self.start, self.sent)
    }

    /// Sends what there is and what there is room for; `left`: bytes still to be sent.
    pub fn run(&mut self, now: Time, connection: &mut Connection, left: &mut Option<u64>) {
        let MessageSpec { size, ttl, in_order, .. } = self.spec;
        let ahead = (AHEAD * connection.payload_size()).max(2 * size as usize);
        while *left != Some(0) && self.next().is_none_or(|at| at <= now) {
            if connection.send_space_ahead(ahead) < size as usize {
                break;
            }
            // A message that had to wait for room has lived since it came to be.
            let age = self.next().map_or(Duration::ZERO, |at| now - at);
            let ttl = ttl.map(|ttl| ttl.saturating_sub(age));
            let message = message(self.sent, size as usize);
            if connection.send_message(now, message, ttl, in_order).is_err() {
                break;
            }
            self.sent += 1;
            *left = left.map(|left| left.saturating_sub(size.into()));
        }
    }
}

/// Messages that have come.
#[derive(Debug)]
pub(super) struct MessageSink {
    spec: MessageSpec,
    start: Time,
    delivered: u64,
    /// The number of the latest of them, as sent.
    latest: Option<u64>,
    /// From when they came to be until they were read, milliseconds: the shortest, the sum, the longest.
    delays: Option<[f64; 3]>,
    /// Numbers that have come, while that is checked; of those long ago none.
    seen: Option<BTreeSet<u64>>,
}

impl MessageSink {
    pub fn new(spec: MessageSpec, start: Time) -> Self {
        MessageSink { spec, start, delivered: 0, latest: None, delays: None, seen: None }
    }

    /// Checks from now on that each message comes whole, once, and in order if it is to.
    pub fn verify(&mut self) {
        self.seen = Some(BTreeSet::new());
    }

    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// From when they came to be until they were read, milliseconds, if that is known.
    pub fn delay_ms(&self) -> Option<Spread> {
        let [min, sum, max] = self.delays?;
        Some(Spread { min, mean: sum / self.delivered as f64, max })
    }

    /// Takes a message out of `chunks`.
    ///
    /// # Errors
    /// Checked, it is not as it was sent.
    pub fn take(&mut self, now: Time, chunks: &mut Chunks) -> Result<(), String> {
        self.delivered += 1;
        let len = chunks.len();
        let begin = chunks.pop().unwrap_or_default();
        let Some((number, rest)) = begin.split_first_chunk() else {
            return Err(format!("a message of {len} bytes, {begin:?} at first"));
        };
        let number = u64::from_be_bytes(*number);
        if self.seen.is_some() {
            let expected = payload(number, len - NUMBER);
            let mut place = rest.len();
            let mut same = *rest == expected[..place];
            while let Some(piece) = chunks.pop() {
                same &= *piece == expected[place..][..piece.len()];
                place += piece.len();
            }
            if !same || len != self.spec.size as usize {
                return Err(format!("message {number}, of {len} bytes"));
            }
        }
        chunks.clear();
        if let Some(at) = self.spec.due(self.start, number) {
            let ms = (now - at).as_secs_f64() * 1e3;
            let [min, sum, max] = self.delays.unwrap_or([ms, 0.0, ms]);
            self.delays = Some([min.min(ms), sum + ms, max.max(ms)]);
        }
        let follows = self.latest.is_none_or(|latest| number > latest);
        self.latest = self.latest.max(Some(number));
        let Some(seen) = &mut self.seen else { return Ok(()) };
        if self.spec.in_order && !follows {
            return Err(format!("message {number} comes after {:?}", self.latest));
        }
        if !seen.insert(number) {
            return Err(format!("message {number} comes again"));
        }
        if seen.len() > MOST_SEEN {
            seen.pop_first();
        }
        Ok(())
    }
}

/// Message `number`: its number, and what the stream has at this place.
fn message(number: u64, size: usize) -> Bytes {
    let mut message = Vec::with_capacity(size);
    message.extend_from_slice(&number.to_be_bytes());
    message.extend_from_slice(payload(number, size - NUMBER));
    message.into()
}
