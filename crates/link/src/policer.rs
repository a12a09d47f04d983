//! A policer: what comes faster than a contract says is dropped, whatever room there is.

use core::fmt;
use core::str::FromStr;

use farhaul_base::Time;

use crate::{ParseError, Rate, parse_size};

/// A token bucket in front of the queue, as providers enforce contracts with (RFC 2697 with one
/// colour): it fills at `rate`, holds `burst`, and a packet that finds fewer tokens than it has bytes is
/// dropped. It delays nothing.
///
/// Written `50M:64kB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// What passes in the long run.
    pub rate: Rate,
    /// Bytes that pass at once after a pause; a larger packet never does. Above 0.
    pub burst: u64,
}

/// A byte in units of bits per second times nanoseconds.
const BYTE: u128 = 8_000_000_000;

/// A policer at work. Tokens are counted exactly.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    config: Policer,
    tokens: u128,
    filled_at: Time,
}

impl Bucket {
    /// Full.
    pub(crate) fn new(config: Policer) -> Self {
        Bucket { config, tokens: u128::from(config.burst) * BYTE, filled_at: Time::ZERO }
    }

    /// Whether a packet of `bytes` that comes at `at` passes; calls are in order of time.
    pub(crate) fn passes(&mut self, at: Time, bytes: usize) -> bool {
        let (Policer { rate, burst }, span) = (self.config, at.nanos_since(self.filled_at));
        self.filled_at = self.filled_at.max(at);
        let filled = u128::from(span) * u128::from(rate.bits_per_second());
        self.tokens = (self.tokens + filled).min(u128::from(burst) * BYTE);
        match self.tokens.checked_sub(bytes as u128 * BYTE) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }
}

impl FromStr for Policer {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::new(text, "a policer (write its rate and burst: 50M:64kB)");
        let (rate, burst) = text.split_once(':').ok_or_else(wrong)?;
        let policer = Policer { rate: rate.parse()?, burst: parse_size(burst)? };
        if policer.burst == 0 { Err(wrong()) } else { Ok(policer) }
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for Policer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}B", self.rate, self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        assert_eq!("50M:64kB".parse::<Policer>().unwrap().to_string(), "50M:64000B");
        for bad in ["", "50M", "50M:", ":64kB", "50M:0B", "50M:64", "x:1kB"] {
            assert!(bad.parse::<Policer>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        // 1500 bytes a millisecond; two of them at once.
        let mut bucket = Bucket::new("12M:3000B".parse().unwrap());
        let mut passes = |us| bucket.passes(Time::from_micros(us), 1_500);
        assert_eq!([0, 0, 0].map(&mut passes), [true, true, false]);
        assert_eq!([999, 1_000, 1_000].map(&mut passes), [false, true, false]);
        // However long the pause, it holds two.
        assert_eq!([90_000, 90_000, 90_000].map(&mut passes), [true, true, false]);
    }

    #[test]
    fn the_rate_does_not_drift() {
        // 1 byte takes 8/7 ns: of packets at each nanosecond seven in eight pass.
        // Two are there at first.
        let mut bucket = Bucket::new("7G:2B".parse().unwrap());
        let passed = (0..8_000).filter(|ns| bucket.passes(Time::from_nanos(*ns), 1)).count();
        assert_eq!(passed, 7_001);
    }
}
