//! What a link is to do.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use farhaul_base::Time;

use crate::{
    DelayChanges, DeliveryTrace, Jitter, LossModel, ParseError, Policer, Probability, QueueConfig,
    Rate, RateChanges, Slots, parse_duration,
};

/// One direction of a path. The default is a perfect wire: no delay, no limit, no loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkConfig {
    /// Bits per second; `None` transmits in no time. Counted on
    /// [`wire_len`](crate::Packet::wire_len).
    pub rate: Option<Rate>,
    /// When the rate becomes another.
    pub rate_changes: RateChanges,
    /// When it can send, in the place of `rate` and `rate_changes`.
    pub trace: Option<DeliveryTrace>,
    /// What is dropped before the queue.
    pub policer: Option<Policer>,
    /// Propagation delay in one direction, from the end of the transmission to the arrival.
    pub delay: Duration,
    /// When the delay becomes another.
    pub delay_changes: DelayChanges,
    /// What is added to the delay, packet by packet.
    pub jitter: Jitter,
    /// At which times it hands out what has arrived; `None` at any.
    pub slots: Option<Slots>,
    /// What waits for the transmitter.
    pub queue: QueueConfig,
    /// What the wire loses at random or by plan.
    pub loss: LossModel,
    /// What the wire puts out of order; `None` nothing.
    pub reorder: Option<Reorder>,
    /// Chance that the wire makes a second copy of a packet. The copy arrives with the first one
    /// unless jitter, reordering or corruption, drawn anew for it, make a difference.
    pub duplicate: Probability,
    /// Chance that a packet arrives with one random bit inverted.
    pub corrupt: Probability,
    /// When the wire is cut: packets whose transmission ends in a blackout are lost.
    pub blackouts: Vec<Blackout>,
}

/// Packets picked at random come late, after some that were sent later, or early.
///
/// Written as share and displacement: `5%:2ms`, `5%:3/100ms` (three packets, at most 100 ms),
/// `5%:3`, or `5%` alone; `5%:gap=10` for those that come early.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// The share of packets that is held back, or that comes early of those that may.
    pub probability: Probability,
    /// By how much.
    pub by: Displacement,
}

/// How far a packet is put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displacement {
    /// By a time: those sent within it overtake.
    Delay(Duration),
    /// Until `packets` others have overtaken it (those lost or held back do not count), or
    /// until `at_most` after its own time if so many do not come.
    Positions {
        /// How many overtake; 0 leaves the order as it is, and is no text that is read.
        packets: u32,
        /// The longest wait.
        at_most: Duration,
    },
    /// Forward: it takes no time from the end of its transmission to its arrival, and overtakes all that are on the
    /// wire, as with netem's `gap`.
    Ahead {
        /// Of so many packets, at least 1, the last one may, and if it is not picked each one until one is.
        gap: u32,
    },
}

/// A time when the wire is cut, once or again and again.
///
/// Written `2s+500ms` (from the 2nd second for half a second), `2s+500ms/10s` (the same every ten
/// seconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blackout {
    /// When it begins, from the origin of the link's time.
    pub start: Duration,
    /// How long it lasts; a text that is read has more than 0, and less than `every`.
    pub length: Duration,
    /// From one beginning to the next; `None` once only.
    pub every: Option<Duration>,
}

impl LinkConfig {
    /// The first rate that there is, by which the queue is made: that of the beginning or, without
    /// one, that of the first change. Of a delivery trace the mean.
    pub fn first_rate(&self) -> Option<Rate> {
        if let Some(trace) = &self.trace {
            return trace.mean_rate();
        }
        self.rate.or_else(|| self.rate_changes.changes().first().map(|change| change.rate))
    }

    /// The rate at `at`, of a delivery trace the mean; `None` if transmission takes no time then.
    pub fn rate_at(&self, at: Time) -> Option<Rate> {
        if let Some(trace) = &self.trace {
            return trace.mean_rate();
        }
        self.rate_changes.latest(at).or(self.rate)
    }

    /// How many bits the link can transmit from `from` to `to`, changes of the rate included; `None`
    /// if there is no limit, for transmission takes no time at `from`.
    pub fn bits_between(&self, from: Time, to: Time) -> Option<f64> {
        self.rate_at(from)?;
        if let Some(trace) = &self.trace {
            return Some(trace.bits_by(to).saturating_sub(trace.bits_by(from)) as f64);
        }
        let until = |at| self.rate_changes.integral(self.rate, at);
        Some(until(to).saturating_sub(until(from)) as f64 / 1e9)
    }
}

impl Blackout {
    /// Whether the wire is cut at `at`: from `start`, up to but without `start + length`.
    pub fn covers(&self, at: Time) -> bool {
        let Some(since) = (at - Time::ZERO).checked_sub(self.start) else { return false };
        match self.every {
            Some(every) if !every.is_zero() => {
                since.as_nanos() % every.as_nanos() < self.length.as_nanos()
            }
            _ => since < self.length,
        }
    }
}

impl Displacement {
    /// Three positions, which is the least that a sender which waits for three later packets
    /// (RFC 5681 §3.2) takes for a loss, and at most 100 ms.
    pub const DEFAULT: Displacement =
        Displacement::Positions { packets: 3, at_most: Duration::from_millis(100) };
}

impl FromStr for Reorder {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (probability, by) = match text.split_once(':') {
            None => (text, Displacement::DEFAULT),
            Some((probability, by)) => (probability, by.parse()?),
        };
        Ok(Reorder { probability: probability.parse()?, by })
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.probability, self.by)
    }
}

impl FromStr for Displacement {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some(gap) = text.trim().strip_prefix("gap=") {
            let gap = gap.parse().ok().filter(|gap| *gap > 0);
            let expected = "a gap (write gap=10: of ten packets the last one comes early)";
            return Ok(Displacement::Ahead {
                gap: gap.ok_or_else(|| ParseError::new(text, expected))?,
            });
        }
        let (packets, at_most) = match text.split_once('/') {
            Some((packets, at_most)) => (packets, parse_duration(at_most)?),
            None => (text, Duration::from_millis(100)),
        };
        let (by, nothing) = if let Ok(packets) = packets.trim().parse() {
            (Displacement::Positions { packets, at_most }, packets == 0 || at_most.is_zero())
        } else {
            let delay = parse_duration(text).map_err(|_| {
                let expected =
                    "a displacement (write 2ms, or 3 for three packets, or 3/100ms, or gap=10)";
                ParseError::new(text, expected)
            })?;
            (Displacement::Delay(delay), delay.is_zero())
        };
        if nothing {
            return Err(ParseError::new(text, "a displacement: it leaves the order as it is"));
        }
        Ok(by)
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for Displacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Displacement::Delay(delay) => write!(f, "{delay:?}"),
            Displacement::Positions { packets, at_most } => write!(f, "{packets}/{at_most:?}"),
            Displacement::Ahead { gap } => write!(f, "gap={gap}"),
        }
    }
}

impl FromStr for Blackout {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let Some((start, rest)) = text.split_once('+') else {
            return Err(ParseError::new(text, "a blackout (write 2s+500ms or 2s+500ms/10s)"));
        };
        let (length, every) = match rest.split_once('/') {
            Some((length, every)) => (length, Some(parse_duration(every)?)),
            None => (rest, None),
        };
        let blackout =
            Blackout { start: parse_duration(start)?, length: parse_duration(length)?, every };
        if every.is_some_and(|every| every.is_zero()) {
            return Err(ParseError::new(text, "a blackout: it cannot come every 0 s"));
        }
        if blackout.length.is_zero() {
            return Err(ParseError::new(text, "a blackout: it must be longer than 0 s"));
        }
        if every.is_some_and(|every| blackout.length >= every) {
            return Err(ParseError::new(text, "a blackout: it must end before it comes again"));
        }
        Ok(blackout)
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for Blackout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}+{:?}", self.start, self.length)?;
        self.every.map_or(Ok(()), |every| write!(f, "/{every:?}"))
    }
}

/// A line for people: `200Mbit/s, 40ms, queue bdp:80ms, loss 0.1%`. Only what differs from a perfect
/// wire, beside rate and delay.
impl fmt::Display for LinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.trace, self.rate) {
            (Some(trace), _) => write!(f, "{trace}")?,
            (None, Some(rate)) => write!(f, "{rate}bit/s")?,
            (None, None) => f.write_str("any rate")?,
        }
        if !self.rate_changes.is_empty() {
            write!(f, ", then {}", self.rate_changes)?;
        }
        if let Some(policer) = self.policer {
            write!(f, ", policer {policer}")?;
        }
        write!(f, ", {:?}", self.delay)?;
        if !self.delay_changes.is_empty() {
            write!(f, ", then {}", self.delay_changes)?;
        }
        if !self.jitter.size.is_zero() {
            write!(f, ", jitter {}", self.jitter)?;
        }
        if let Some(slots) = self.slots {
            write!(f, ", slots {slots}")?;
        }
        if self.queue != QueueConfig::Unlimited {
            write!(f, ", queue {}", self.queue)?;
        }
        if self.loss != LossModel::None {
            write!(f, ", loss {}", self.loss)?;
        }
        if let Some(reorder) = self.reorder {
            write!(f, ", reorder {reorder}")?;
        }
        if self.duplicate != Probability::ZERO {
            write!(f, ", duplicate {}", self.duplicate)?;
        }
        if self.corrupt != Probability::ZERO {
            write!(f, ", corrupt {}", self.corrupt)?;
        }
        self.blackouts.iter().try_for_each(|blackout| write!(f, ", blackout {blackout}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back() {
        for text in ["5%:2ms", "5%:3/100ms", "100%:gap=5"] {
            assert_eq!(text.parse::<Reorder>().unwrap().to_string(), text);
        }
        assert_eq!("5%".parse::<Reorder>().unwrap().to_string(), "5%:3/100ms");
        assert_eq!("5%:7".parse::<Reorder>().unwrap().to_string(), "5%:7/100ms");
        for text in ["2s+500ms", "2s+500ms/10s"] {
            assert_eq!(text.parse::<Blackout>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn wrong_texts() {
        for bad in ["", "200%", "5%:", "5%:x", "5%:3/x", "5%:2ms/1s", "5%:gap=", "5%:gap=0"] {
            assert!(bad.parse::<Reorder>().is_err(), "{bad}");
        }
        for bad in ["", "2s", "2s+", "2s+1"] {
            assert!(bad.parse::<Blackout>().is_err(), "{bad}");
        }
    }

    #[test]
    fn texts_of_what_would_do_nothing_or_too_much() {
        for bad in ["5%:0", "5%:0ms", "5%:0/100ms", "5%:3/0ms"] {
            let error = bad.parse::<Reorder>().unwrap_err().to_string();
            assert!(error.ends_with("leaves the order as it is"), "{bad}: {error}");
        }
        let cases = [
            ("2s+0s", "longer than 0 s"),
            ("2s+0s/1s", "longer than 0 s"),
            ("2s+1ms/0s", "every 0 s"),
            ("2s+1s/1s", "end before it comes again"),
            ("2s+3s/1s", "end before it comes again"),
        ];
        for (bad, why) in cases {
            let error = bad.parse::<Blackout>().unwrap_err().to_string();
            assert!(error.ends_with(why), "{bad}: {error}");
        }
        assert!("2s+999ms/1s".parse::<Blackout>().is_ok());
    }

    #[test]
    fn blackouts_cover_their_time() {
        let once: Blackout = "2s+500ms".parse().unwrap();
        let covered = |blackout: Blackout, ms| blackout.covers(Time::from_millis(ms));
        assert!(!covered(once, 1_999) && covered(once, 2_000));
        assert!(covered(once, 2_499) && !covered(once, 2_500));
        assert!(!covered(once, 12_100));
        let often: Blackout = "2s+500ms/10s".parse().unwrap();
        assert!(!covered(often, 0) && covered(often, 2_100) && !covered(often, 2_600));
        assert!(covered(often, 12_100) && !covered(often, 12_600));
    }

    #[test]
    fn bits_of_a_span() {
        let link = |rate, changes: &str| LinkConfig {
            rate: Rate::from_bits_per_second(rate),
            rate_changes: changes.parse().unwrap(),
            ..LinkConfig::default()
        };
        let ms = Time::from_millis;
        let steady = link(8_000_000, "none");
        assert_eq!(steady.bits_between(ms(250), ms(750)), Some(4e6));
        assert_eq!(steady.bits_between(ms(250), ms(250)), Some(0.0));
        // As fast as a cycle may be, which whoever looks each millisecond does not see.
        let fast = link(1, "0s:10M,500us:100M/1ms");
        assert_eq!(fast.bits_between(ms(0), ms(1_000)), Some(55e6));
        assert_eq!(fast.bits_between(ms(1), ms(31_536_000_001)), Some(55e6 * 31_536_000.0));
        let half = Time::from_micros(2_500);
        assert_eq!(fast.bits_between(half, ms(3)), Some(50e3));
        // Without a rate until the first change.
        let late = link(0, "10ms:1M");
        assert_eq!(late.bits_between(ms(9), ms(30)), None);
        assert_eq!(late.bits_between(ms(10), ms(30)), Some(20e3));
        assert_eq!(LinkConfig::default().bits_between(ms(0), ms(1)), None);
    }

    #[test]
    fn summary() {
        assert_eq!(LinkConfig::default().to_string(), "any rate, 0ns");
        let config = LinkConfig {
            rate: Rate::from_bits_per_second(200_000_000),
            delay: Duration::from_millis(40),
            queue: QueueConfig::Bdp { rtt: Duration::from_millis(80) },
            loss: "0.1%".parse().unwrap(),
            blackouts: vec!["2s+1s".parse().unwrap()],
            ..LinkConfig::default()
        };
        assert_eq!(
            config.to_string(),
            "200Mbit/s, 40ms, queue bdp:80ms, loss 0.1%, blackout 2s+1s"
        );
        let config = LinkConfig {
            rate: Rate::from_bits_per_second(200_000_000),
            rate_changes: "10s:50M,20s:100M/30s".parse().unwrap(),
            queue: "red:limit=100p".parse().unwrap(),
            loss: "gauss:mean=1000,sd=100".parse().unwrap(),
            ..LinkConfig::default()
        };
        assert_eq!(
            config.to_string(),
            "200Mbit/s, then 10s:50M,20s:100M/30s, 0ns, queue red:limit=100p, \
             loss gauss:mean=1000,sd=100"
        );
    }
}
