//! Delivery by a recorded trace: when a link could send, and not how fast.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use farhaul_base::Time;

use crate::{ParseError, Rate};

/// Opportunities to send, as Mahimahi records them (Netravali and others 2015): each is for
/// [`BYTES`](Self::BYTES) bytes at one millisecond, and what is not there then is lost. A packet leaves
/// with the opportunity that carries its last byte. The trace comes again after its last stamp.
///
/// Written as the milliseconds of the opportunities, ascending, with commas or white space between:
/// two at a millisecond stand there twice. A file has one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryTrace {
    stamps: Arc<[u32]>,
}

/// The opportunities of a link in their order, each used up by what it sends.
#[derive(Clone, Debug)]
pub(crate) struct Opportunities {
    trace: DeliveryTrace,
    cycle: u64,
    next: usize,
    /// Bytes of the opportunity before `next` that are left.
    left: usize,
    /// When that one is, nanoseconds.
    at_ns: u64,
}

const MS: u64 = 1_000_000;

impl DeliveryTrace {
    /// Bytes of an opportunity: a packet of 1500 bytes with the header of a TUN device.
    pub const BYTES: usize = 1_504;
    /// The most opportunities that a trace may have.
    pub const MOST: usize = 4_000_000;

    /// Of these milliseconds. `None` if there are none or too many, they do not ascend, or the last is
    /// 0, after which the trace could not come again.
    pub fn new(stamps: Vec<u32>) -> Option<Self> {
        let last = stamps.last().copied().filter(|last| *last > 0);
        let right = last.is_some() && stamps.is_sorted() && stamps.len() <= Self::MOST;
        right.then(|| DeliveryTrace { stamps: stamps.into() })
    }

    /// The opportunities in milliseconds.
    pub fn stamps(&self) -> &[u32] {
        &self.stamps
    }

    /// After which time it comes again, milliseconds.
    fn period_ms(&self) -> u64 {
        self.stamps.last().copied().map_or(1, u64::from)
    }

    /// The mean rate.
    pub fn mean_rate(&self) -> Option<Rate> {
        let bits = self.stamps.len() as u64 * Self::BYTES as u64 * 8;
        Rate::from_bits_per_second(bits * 1_000 / self.period_ms())
    }

    /// The bits of the opportunities up to `at`, that time included.
    pub(crate) fn bits_by(&self, at: Time) -> u128 {
        let (ms, period) = (at.as_nanos() / MS, self.period_ms());
        let begun = self.stamps.partition_point(|stamp| u64::from(*stamp) <= ms % period);
        let count = u128::from(ms / period) * self.stamps.len() as u128 + begun as u128;
        count * Self::BYTES as u128 * 8
    }
}

impl Opportunities {
    pub(crate) fn new(trace: DeliveryTrace) -> Self {
        Opportunities { trace, cycle: 0, next: 0, left: 0, at_ns: 0 }
    }

    /// Sends `bytes` with the next opportunities, of which none is before `at`. Returns when the last of
    /// these is.
    pub(crate) fn start(&mut self, at: Time, bytes: usize) -> Time {
        if self.at_ns < at.as_nanos() {
            self.skip_to(at);
        }
        let mut missing = bytes;
        while missing > self.left {
            missing -= self.left;
            self.take();
        }
        self.left -= missing;
        Time::from_nanos(self.at_ns)
    }

    /// Those before `at` are lost.
    fn skip_to(&mut self, at: Time) {
        self.left = 0;
        let (ms, period) = (at.as_nanos().div_ceil(MS), self.trace.period_ms());
        // The last stamp of a cycle is the beginning of the next.
        let cycle = ms.saturating_sub(1) / period;
        let within = ms - cycle * period;
        let next = self.trace.stamps.partition_point(|stamp| u64::from(*stamp) < within);
        (self.cycle, self.next) = (self.cycle, self.next).max((cycle, next));
    }

    fn take(&mut self) {
        if self.next >= self.trace.stamps.len() {
            self.next = 0;
            self.cycle += 1;
        }
        let stamp = u64::from(self.trace.stamps[self.next]);
        let ms = self.cycle.saturating_mul(self.trace.period_ms()).saturating_add(stamp);
        self.at_ns = ms.saturating_mul(MS);
        self.left = DeliveryTrace::BYTES;
        self.next += 1;
    }
}

impl FromStr for DeliveryTrace {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let expected = "a delivery trace (milliseconds of opportunities to send, ascending, the last \
                        above 0, at most 4 million: 0 3 3 10)";
        let words = text.split(|c: char| c == ',' || c.is_whitespace());
        let words = words.filter(|word| !word.is_empty());
        let mut stamps = Vec::new();
        for word in words.take(Self::MOST + 1) {
            // What stands there, not the whole file.
            stamps.push(word.parse().map_err(|_| ParseError::new(word, expected))?);
        }
        DeliveryTrace::new(stamps)
            .ok_or_else(|| ParseError::new(text.get(..40).unwrap_or(text), expected))
    }
}

/// How many opportunities it has, and the mean rate.
impl fmt::Display for DeliveryTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace of {} opportunities", self.stamps.len())?;
        self.mean_rate().map_or(Ok(()), |rate| write!(f, ", {rate}bit/s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(text: &str, packets: &[(u64, usize)]) -> Vec<u64> {
        let mut link = Opportunities::new(text.parse().unwrap());
        let end = |&(ms, bytes): &(u64, usize)| link.start(Time::from_millis(ms), bytes);
        packets.iter().map(end).map(|end| end.as_nanos() / MS).collect()
    }

    #[test]
    fn texts() {
        let trace: DeliveryTrace = " 1\n2\n2\r\n9\n".parse().unwrap();
        assert_eq!(trace.stamps(), [1, 2, 2, 9]);
        assert_eq!("1,2, 2,9".parse::<DeliveryTrace>().unwrap(), trace);
        // 4 · 12,032 bits in 9 ms.
        assert_eq!(trace.to_string(), "trace of 4 opportunities, 5.347555Mbit/s");
        for bad in ["", "0", "0 0", "3 2", "-1 2", "1.5", "1 x", "99999999999"] {
            assert!(bad.parse::<DeliveryTrace>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_packet_leaves_with_an_opportunity() {
        // What finds none waits; the trace comes again after 10 ms.
        let packets = [(0, 1_500), (0, 1_500), (0, 1_500), (0, 1_500), (0, 1_500)];
        assert_eq!(ends("2 4 4 10", &packets), [2, 4, 4, 10, 12]);
        // Two small ones share one; a large one takes two.
        assert_eq!(ends("2 4 10", &[(0, 700), (0, 700), (0, 1_500), (0, 1_504)]), [2, 2, 4, 10]);
        // What is not used is gone.
        assert_eq!(ends("2 4 10", &[(3, 1_500), (5, 1_500), (25, 1_500)]), [4, 10, 30]);
        assert_eq!(ends("0 10", &[(10, 1_500), (10, 1_500), (10, 1_500)]), [10, 10, 20]);
        assert_eq!(ends("1 5", &[(0, 100), (2, 100), (7, 100)]), [1, 5, 10]);
    }

    #[test]
    fn bits_are_those_of_the_opportunities() {
        let trace: DeliveryTrace = "2 4 4 10".parse().unwrap();
        let bits = |ms| trace.bits_by(Time::from_millis(ms)) / 12_032;
        assert_eq!([0, 1, 2, 4, 9, 10, 12, 20].map(bits), [0, 0, 1, 3, 3, 4, 5, 8]);
    }
}
