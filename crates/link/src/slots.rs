//! Slots: times at which a path hands out what has arrived since the last one.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use farhaul_base::{Rng, Time};

use crate::{ParseError, parse_duration};

/// Packets arrive only at the end of a slot: those of an emulator that works at the ticks of a timer (dummynet), of a
/// radio that has its turn, of an interface that gathers interrupts (netem's `slot`).
///
/// Written `1ms` (slots end at the multiples of that) or `1ms-5ms` (of random lengths between the two).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The shortest slot. A text that is read has at least [`Slots::LEAST`].
    pub least: Duration,
    /// The longest one, not shorter.
    pub most: Duration,
}

/// Slots at work. When each ends is a function of its number and the seed, so that packets may be asked for in any
/// order and nothing is remembered.
#[derive(Clone, Debug)]
pub(crate) struct SlotTimes {
    seed: u64,
    mean_ns: u64,
    /// The end of a slot is drawn from so many nanoseconds after a multiple of the mean on.
    spread_ns: u64,
}

const EXPECTED: &str = "slots (write 1ms, or 1ms-5ms for random lengths)";

impl Slots {
    /// No slot is shorter.
    pub const LEAST: Duration = Duration::from_micros(1);

    /// Slots that end at the multiples of `length`.
    pub const fn every(length: Duration) -> Self {
        Slots { least: length, most: length }
    }
}

impl SlotTimes {
    pub(crate) fn new(slots: Slots, rng: &mut Rng) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let (least, most) = (nanos(slots.least), nanos(slots.most));
        let spread_ns = most.saturating_sub(least) / 2;
        SlotTimes { seed: rng.next_u64(), mean_ns: least.saturating_add(spread_ns), spread_ns }
    }

    /// When a packet is handed out that would arrive at `at`: at the end of a slot, not before.
    pub(crate) fn defer(&self, at: Time) -> Time {
        let at = at.as_nanos();
        let mut number = at / self.mean_ns;
        // The end of the slot before may lie behind `at`, and that of this one before.
        number = number.saturating_sub(u64::from(number > 0 && self.end(number - 1) >= at));
        while self.end(number) < at {
            number += 1;
        }
        Time::from_nanos(self.end(number))
    }

    /// The end of a slot: two ends that follow each other are the mean apart, less or more than that by the spread at
    /// most.
    fn end(&self, number: u64) -> u64 {
        let begin = number.saturating_mul(self.mean_ns);
        match self.spread_ns {
            0 => begin,
            spread => {
                let mut rng = Rng::new(self.seed.wrapping_add(number));
                begin.saturating_add(rng.below(spread.saturating_add(1)))
            }
        }
    }
}

impl FromStr for Slots {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let read = |text| parse_duration(text).map_err(|_| ParseError::new(text, EXPECTED));
        let slots = Slots { least: read(least)?, most: read(most)? };
        if slots.least < Self::LEAST || slots.most < slots.least {
            return Err(ParseError::new(text, "slots of 1us or more, the shortest first"));
        }
        Ok(slots)
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.least)?;
        if self.most != self.least {
            write!(f, "-{:?}", self.most)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn times(text: &str) -> SlotTimes {
        SlotTimes::new(text.parse().unwrap(), &mut Rng::new(3))
    }

    #[test]
    fn packets_arrive_at_the_ticks() {
        let slots = times("1ms");
        let arrivals = [0, 1, 999, 1_000, 1_001, 7_300, 5_500, 2_500]
            .map(|at| slots.defer(Time::from_micros(at)).as_micros());
        assert_eq!(arrivals, [0, 1_000, 1_000, 1_000, 2_000, 8_000, 6_000, 3_000]);
    }

    #[test]
    fn lengths_lie_between_their_bounds() {
        let slots = times("1ms-5ms");
        let mut ends: Vec<u64> =
            (0..1_000_000u64).map(|n| slots.defer(Time::from_micros(n * 10)).as_nanos()).collect();
        assert!(ends.is_sorted());
        assert!((0..1_000_000u64).all(|n| ends[n as usize] >= n * 10_000));
        ends.dedup();
        let lengths: Vec<u64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(lengths.iter().all(|length| (1_000_000..=5_000_000).contains(length)));
        assert!(lengths.iter().any(|length| *length < 1_500_000));
        assert!(lengths.iter().any(|length| *length > 4_500_000));
        let mean = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
        assert!((mean - 3e6).abs() < 0.03e6, "{mean}");
    }

    #[test]
    fn the_end_of_time_is_reached() {
        for text in ["1us", "1us-2us", "1ms-300s"] {
            let slots = times(text);
            assert!(slots.defer(Time::from_nanos(u64::MAX - 1)) >= Time::from_nanos(u64::MAX - 1));
        }
    }

    #[test]
    fn texts_are_read_back() {
        for text in ["1ms", "1ms-5ms", "800µs-3ms"] {
            assert_eq!(text.parse::<Slots>().unwrap().to_string(), text);
        }
        for bad in ["", "0ms", "5ms-1ms", "1", "1ms,", "1ms-", "1ns", "-1ms"] {
            assert!(bad.parse::<Slots>().is_err(), "{bad}");
        }
    }
}
