//! A rate that changes over time.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use farhaul_base::Time;

use crate::{ParseError, Rate, parse_duration};

/// When the rate of a link becomes another, once or again and again.
///
/// A packet in transmission then is finished at the new rate: what has been sent is sent.
///
/// Written `10s:50M,20s:100M`, or `10s:50M,20s:100M/30s` to let the changes come again every 30
/// seconds, at 40 s, 50 s, 70 s and so on; until the next one the rate stays as it is, so that a
/// cycle that begins with a rate of its own has a change at `0s`. `none` if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateChanges {
    /// In order of time, no two at the same.
    changes: Vec<RateChange>,
    /// Above the time of the last change, and at least `LEAST_CYCLE`.
    every: Option<Duration>,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateChange {
    /// When, from the origin of the link's time.
    pub at: Duration,
    /// The rate from then on.
    pub rate: Rate,
}

/// The changes in their order, as often as they come.
#[derive(Clone, Debug)]
pub(crate) struct Upcoming {
    changes: Box<[RateChange]>,
    every_ns: Option<u64>,
    /// Which change comes next, and what to add to its time.
    next: usize,
    cycle_ns: u64,
}

impl RateChanges {
    /// The shortest cycle that is allowed. It bounds how many changes there can be during the
    /// transmission of one packet at a low rate.
    pub const LEAST_CYCLE: Duration = Duration::from_millis(1);

    /// These changes, and the same again `every` so often if that is given. `None` if they are not
    /// in order of time, one after the other, or if `every` is shorter than
    /// [`LEAST_CYCLE`](Self::LEAST_CYCLE) or not above the time of the last change.
    pub fn new(changes: Vec<RateChange>, every: Option<Duration>) -> Option<Self> {
        let ordered = changes.windows(2).all(|pair| pair[0].at < pair[1].at);
        let cycles = every.is_none_or(|every| {
            every >= Self::LEAST_CYCLE && changes.last().is_none_or(|last| last.at < every)
        });
        // Without changes there is nothing to come again.
        let every = every.filter(|_| !changes.is_empty());
        (ordered && cycles).then_some(RateChanges { changes, every })
    }

    /// Whether the rate stays as it is.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes of the first cycle, in order of time.
    pub fn changes(&self) -> &[RateChange] {
        &self.changes
    }

    /// After which time they come again; `None` if never.
    pub fn every(&self) -> Option<Duration> {
        self.every
    }

    /// The rate of the latest change at or before `at`; `None` if there is none.
    pub fn latest(&self, at: Time) -> Option<Rate> {
        let since = at - Time::ZERO;
        let (cycle, within) = match self.every {
            Some(every) => {
                let nanos = u64::try_from(since.as_nanos() % every.as_nanos()).ok()?;
                (since >= every, Duration::from_nanos(nanos))
            }
            None => (false, since),
        };
        let latest = self.changes.iter().rfind(|change| change.at <= within);
        latest.or_else(|| self.changes.last().filter(|_| cycle)).map(|change| change.rate)
    }

    /// The integral of the rate over time from the origin to `until`, in bits per second times
    /// nanoseconds; `first` holds until the first change, `None` counting nothing. It is exact, and
    /// takes no longer however many cycles there are.
    pub(crate) fn integral(&self, first: Option<Rate>, until: Time) -> u128 {
        let until = until.as_nanos();
        match (self.every.map(nanos), self.changes.last()) {
            (Some(every), Some(last)) if until >= every => {
                // All cycles but the first begin with the rate that the one before ended with.
                let (last, cycles) = (Some(last.rate), u128::from(until / every) - 1);
                self.integral_of_cycle(first, every)
                    + cycles * self.integral_of_cycle(last, every)
                    + self.integral_of_cycle(last, until % every)
            }
            _ => self.integral_of_cycle(first, until),
        }
    }

    /// The same over the first nanoseconds of a cycle that `first` holds at the beginning of.
    fn integral_of_cycle(&self, first: Option<Rate>, until: u64) -> u128 {
        let (mut sum, mut since, mut rate) = (0, 0, first);
        let mut pass = |to: u64, next| {
            let bits = rate.map_or(0, Rate::bits_per_second);
            sum += u128::from(bits) * u128::from(to - since);
            (since, rate) = (to, next);
        };
        for change in &self.changes {
            pass(nanos(change.at).min(until), Some(change.rate));
        }
        pass(until, None);
        sum
    }
}

impl Upcoming {
    pub(crate) fn new(config: &RateChanges) -> Self {
        Upcoming {
            changes: config.changes.clone().into_boxed_slice(),
            every_ns: config.every.map(nanos),
            next: 0,
            cycle_ns: 0,
        }
    }

    /// When the next change comes, in nanoseconds; `u64::MAX` if none does.
    pub(crate) fn next_at(&self) -> u64 {
        self.changes
            .get(self.next)
            .map_or(u64::MAX, |change| self.cycle_ns.saturating_add(nanos(change.at)))
    }

    /// Passes all changes at or before `now_ns`. The rate after the last one passed, if any was.
    pub(crate) fn pass(&mut self, now_ns: u64) -> Option<Rate> {
        let mut rate = None;
        if let Some(every) = self.every_ns {
            let cycle_ns = now_ns / every * every;
            if cycle_ns > self.cycle_ns {
                // However long that was: the former cycles end with the last change.
                (self.cycle_ns, self.next) = (cycle_ns, 0);
                rate = self.changes.last().map(|change| change.rate);
            }
        }
        // At the end of time no change follows.
        while self.next_at() <= now_ns.min(u64::MAX - 1) {
            let Some(change) = self.changes.get(self.next) else { break };
            rate = Some(change.rate);
            self.next += 1;
            if let Some(every) = self.every_ns.filter(|_| self.next == self.changes.len()) {
                (self.cycle_ns, self.next) = (self.cycle_ns.saturating_add(every), 0);
            }
        }
        rate
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl FromStr for RateChanges {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let trimmed = text.trim();
        if trimmed == "none" {
            return Ok(RateChanges::default());
        }
        let (list, every) = match trimmed.rsplit_once('/') {
            // One of `50Mb/s` is part of the rate.
            Some((list, every)) if every != "s" => (list, Some(parse_duration(every)?)),
            _ => (trimmed, None),
        };
        let change = |text: &str| {
            let (at, rate) = text.split_once(':').ok_or_else(|| {
                ParseError::new(
                    text,
                    "a change of rate (write 10s:50M,20s:100M or 10s:50M,20s:100M/30s)",
                )
            })?;
            Ok(RateChange { at: parse_duration(at)?, rate: rate.parse()? })
        };
        let changes = list.split(',').map(change).collect::<Result<_, _>>()?;
        RateChanges::new(changes, every).ok_or_else(|| {
            let expected = "possible: changes of rate come one after the other, and the last before \
                            they come again, in 1 ms or more";
            ParseError::new(text, expected)
        })
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for RateChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (index, RateChange { at, rate }) in self.changes.iter().enumerate() {
            write!(f, "{}{at:?}:{rate}", if index == 0 { "" } else { "," })?;
        }
        self.every.map_or(Ok(()), |every| write!(f, "/{every:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> RateChanges {
        text.parse().unwrap()
    }

    #[test]
    fn texts() {
        for text in ["none", "10s:50M", "10s:50M,20s:100M", "0ns:1k,1.5ms:2k/2ms"] {
            assert_eq!(changes(text).to_string(), text);
        }
        assert_eq!(changes("1s:50Mb/s, 2s:1Mbit/s"), changes("1s:50M,2s:1M"));
        assert_eq!(changes("1s:50Mb/s/3s"), changes("1s:50M/3s"));
        assert_eq!(RateChanges::new(Vec::new(), Some(Duration::MAX)), Some(RateChanges::default()));
        for bad in ["", "10s", "10s:", "10s:0", "10:5M", "1s:1M/", "1s:1M/x", "/1s", "none/1s"] {
            assert!(bad.parse::<RateChanges>().is_err(), "{bad}");
        }
        for bad in ["2s:1M,1s:2M", "1s:1M,1s:2M", "1s:1M/1s", "2s:1M/1s", "1us:1M/10us"] {
            let error = bad.parse::<RateChanges>().unwrap_err().to_string();
            assert!(error.contains("one after the other"), "{bad}: {error}");
        }
    }

    #[test]
    fn the_latest_change_holds() {
        let at = |text: &str, ms| {
            changes(text).latest(Time::from_millis(ms)).map_or(0, Rate::bits_per_second)
        };
        let once = "10s:5,20s:7";
        let times = [0, 9_999, 10_000, 19_999, 20_000, 90_000];
        assert_eq!(times.map(|ms| at(once, ms)), [0, 0, 5, 5, 7, 7]);
        let often = "10s:5,20s:7/30s";
        let times = [9_999, 10_000, 20_000, 30_000, 39_999, 40_000, 50_000, 70_000];
        assert_eq!(times.map(|ms| at(often, ms)), [0, 5, 7, 7, 7, 5, 7, 5]);
        assert_eq!(at("none", 5), 0);
    }

    #[test]
    fn the_integral_is_exact() {
        let rate = Rate::from_bits_per_second;
        let integral =
            |text: &str, first, ns| changes(text).integral(rate(first), Time::from_nanos(ns));
        assert_eq!(integral("none", 7, 3), 21);
        assert_eq!(integral("none", u64::MAX, u64::MAX), u128::from(u64::MAX).pow(2));
        let once = "10ns:5,20ns:7";
        assert_eq!([0, 10, 11, 20, 25].map(|ns| integral(once, 2, ns)), [0, 20, 25, 70, 105]);
        assert_eq!([10, 11].map(|ns| integral(once, 0, ns)), [0, 5]);
        // The first millisecond has 2, 5 and 7 in it; each other 7, 5 and 7.
        let (ms, often) = (1_000_000, "100us:5,500us:7/1ms");
        let first = 200_000 + 2_000_000 + 3_500_000;
        let other = first + 500_000;
        assert_eq!(integral(often, 2, ms), first);
        assert_eq!(integral(often, 2, 4 * ms), first + 3 * other);
        assert_eq!(integral(often, 2, 4 * ms + 100_001), first + 3 * other + 700_005);
        // 584 years of them.
        let cycles = u64::MAX / ms;
        assert_eq!(integral(often, 2, cycles * ms), first + u128::from(cycles - 1) * other);
    }

    #[test]
    fn passing_step_by_step_or_at_once_is_the_same() {
        for text in ["none", "10ms:5,20ms:7", "10ms:5,20ms:7/30ms", "0ms:5,1ms:7/2ms"] {
            let config = changes(text);
            let mut stepping = Upcoming::new(&config);
            let mut rate = None;
            for ms in 0..200 {
                let now = Time::from_millis(ms);
                rate = stepping.pass(now.as_nanos()).or(rate);
                assert_eq!(rate, config.latest(now), "{text} at {ms} ms");
                assert!(stepping.next_at() > now.as_nanos());
                let mut jumping = Upcoming::new(&config);
                assert_eq!(jumping.pass(now.as_nanos()), rate, "{text} at {ms} ms");
                assert_eq!(jumping.next_at(), stepping.next_at(), "{text} at {ms} ms");
            }
            stepping.pass(u64::MAX);
            assert_eq!(stepping.next_at(), u64::MAX);
        }
    }
}
