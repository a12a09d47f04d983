//! A propagation delay that changes over time.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use farhaul_base::Time;

use crate::{ParseError, parse_duration};

/// When the propagation delay of a link becomes another, once or again and again: packets whose
/// transmission ends from then on have the new one.
///
/// Where it becomes shorter, packets arrive in their order all the same, with the last one before them at
/// the earliest, as when a path is stretched and eased. `reorder` makes it a change of route: what takes
/// the new one overtakes what is still on the old.
///
/// Written `10s:50ms,20s:20ms:reorder`, or with `/30s` behind it to let the changes come again every 30
/// seconds; `none` if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayChanges {
    /// In order of time, no two at the same.
    changes: Vec<DelayChange>,
    /// Above the time of the last change.
    every: Option<Duration>,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayChange {
    /// When, from the origin of the link's time.
    pub at: Duration,
    /// The delay from then on, without the jitter.
    pub delay: Duration,
    /// Whether what is sent from then on overtakes what was sent before.
    pub reorder: bool,
}

impl DelayChanges {
    /// These changes, and the same again `every` so often if that is given. `None` if they are not in
    /// order of time, one after the other, or if `every` is not above the time of the last change.
    pub fn new(changes: Vec<DelayChange>, every: Option<Duration>) -> Option<Self> {
        let ordered = changes.windows(2).all(|pair| pair[0].at < pair[1].at);
        let last = changes.last().map(|last| last.at);
        let cycles = every.is_none_or(|every| last.is_none_or(|last| last < every));
        // Without changes there is nothing to come again.
        let every = every.filter(|_| last.is_some());
        (ordered && cycles).then_some(DelayChanges { changes, every })
    }

    /// Whether the delay stays as it is.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes of the first cycle, in order of time.
    pub fn changes(&self) -> &[DelayChange] {
        &self.changes
    }

    /// After which time they come again; `None` if never.
    pub fn every(&self) -> Option<Duration> {
        self.every
    }

    /// The shortest delay that there is, `first` being that of the beginning.
    pub(crate) fn shortest(&self, first: Duration) -> Duration {
        self.changes.iter().map(|change| change.delay).fold(first, Duration::min)
    }

    /// How many changes there have been by `at`, and the latest of them.
    pub(crate) fn by(&self, at: Time) -> (u64, Option<DelayChange>) {
        let since = at - Time::ZERO;
        let count = self.changes.len() as u64;
        let (cycles, within) = match self.every {
            Some(every) => {
                let cycles = since.as_nanos() / every.as_nanos();
                let within = since.as_nanos() % every.as_nanos();
                (cycles as u64, Duration::from_nanos(within as u64))
            }
            None => (0, since),
        };
        let passed = self.changes.partition_point(|change| change.at <= within);
        let latest = match passed {
            0 if cycles > 0 => self.changes.last(),
            0 => None,
            passed => self.changes.get(passed - 1),
        };
        (cycles.saturating_mul(count) + passed as u64, latest.copied())
    }
}

impl FromStr for DelayChanges {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let trimmed = text.trim();
        if trimmed == "none" {
            return Ok(DelayChanges::default());
        }
        let (list, every) = match trimmed.rsplit_once('/') {
            Some((list, every)) => (list, Some(parse_duration(every)?)),
            None => (trimmed, None),
        };
        let change = |text: &str| {
            let wrong = || {
                let expected = "a change of delay (write 10s:50ms,20s:20ms:reorder or \
                                10s:50ms,20s:20ms/30s)";
                ParseError::new(text, expected)
            };
            let mut parts = text.split(':').map(str::trim);
            let (at, delay) = parts.next().zip(parts.next()).ok_or_else(wrong)?;
            let reorder = match (parts.next(), parts.next()) {
                (None, _) => false,
                (Some("reorder"), None) => true,
                _ => return Err(wrong()),
            };
            Ok(DelayChange { at: parse_duration(at)?, delay: parse_duration(delay)?, reorder })
        };
        let changes = list.split(',').map(change).collect::<Result<_, _>>()?;
        DelayChanges::new(changes, every).ok_or_else(|| {
            let expected = "possible: changes of delay come one after the other, and the last before \
                            they come again";
            ParseError::new(text, expected)
        })
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for DelayChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (index, DelayChange { at, delay, reorder }) in self.changes.iter().enumerate() {
            let (comma, order) =
                (if index == 0 { "" } else { "," }, if *reorder { ":reorder" } else { "" });
            write!(f, "{comma}{at:?}:{delay:?}{order}")?;
        }
        self.every.map_or(Ok(()), |every| write!(f, "/{every:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> DelayChanges {
        text.parse().unwrap()
    }

    #[test]
    fn texts() {
        for text in ["none", "10s:50ms", "10s:50ms,20s:20ms:reorder", "0ns:1ms,1.5ms:2ms/2ms"] {
            assert_eq!(changes(text).to_string(), text);
        }
        for bad in ["", "10s", "10s:", "10:5ms", "1s:1ms:order", "1s:1ms:reorder:x", "1s:1ms/x"] {
            assert!(bad.parse::<DelayChanges>().is_err(), "{bad}");
        }
        for bad in ["2s:1ms,1s:2ms", "1s:1ms,1s:2ms", "1s:1ms/1s", "0s:1ms/0s"] {
            let error = bad.parse::<DelayChanges>().unwrap_err().to_string();
            assert!(error.contains("one after the other"), "{bad}: {error}");
        }
    }

    #[test]
    fn the_latest_change_holds() {
        let at = |text: &str, ms| {
            let (count, latest) = changes(text).by(Time::from_millis(ms));
            (count, latest.map(|change| change.delay.as_millis()))
        };
        let once = "10ms:5ms,20ms:7ms";
        let expected = [(0, None), (1, Some(5)), (1, Some(5)), (2, Some(7)), (2, Some(7))];
        assert_eq!([9, 10, 19, 20, 900].map(|ms| at(once, ms)), expected);
        let again = "10ms:5ms,20ms:7ms/30ms";
        let expected = [(0, None), (2, Some(7)), (2, Some(7)), (3, Some(5)), (4, Some(7))];
        assert_eq!([0, 29, 39, 40, 50].map(|ms| at(again, ms)), expected);
        assert_eq!(changes(once).shortest(Duration::from_millis(6)), Duration::from_millis(5));
    }
}
