//! Delays of their own for packets.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use farhaul_base::{Rng, Time, math};

use crate::{ParseError, Probability, normal, parse_duration};

/// What is added to the delay of each packet.
///
/// Written `5ms`, and with any of these behind it: the shape, `correlation=25%`, and `reorder` to let packets
/// overtake: `5ms:normal:correlation=25%:reorder`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jitter {
    /// How large it is: see [`JitterShape`].
    pub size: Duration,
    /// How it is distributed.
    pub shape: JitterShape,
    /// How much of a packet's addition the next one has as well: the correlation of the normal numbers that the
    /// additions are made of.
    pub correlation: Probability,
    /// Whether a packet with a small addition overtakes one with a large one. If not, it arrives
    /// with the packet before it, as behind a queue, and the mean addition is larger.
    pub overtake: bool,
}

/// How additions to the delay are distributed. What would arrive before it was sent arrives at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JitterShape {
    /// Uniform over 0 to the size; its mean is half of that.
    #[default]
    Uniform,
    /// Uniform over the size below and above 0, as netem's if it is given no distribution.
    Around,
    /// Normal around 0, with the size as standard deviation, within four of them.
    Normal,
    /// Pareto's with exponent 3, whose tail is long: moved so that its mean is 0, with the size as standard
    /// deviation, up to four of them.
    Pareto,
}

/// Beyond so many standard deviations nothing is drawn, as in netem's tables.
const MOST_DEVIATIONS: f64 = 4.0;
/// Of Pareto's distribution from 1 on with exponent 3: its mean, and its standard deviation, √(3/4).
const PARETO_MEAN: f64 = 1.5;
const PARETO_DEVIATION: f64 = 0.866_025_403_784_438_6;

const EXPECTED: &str = "a jitter (write 5ms, and with any of these behind it: around, normal or pareto, \
                        correlation=25%, reorder: 5ms:normal:reorder)";

impl JitterShape {
    const ALL: [(JitterShape, &str); 4] = [
        (JitterShape::Uniform, "uniform"),
        (JitterShape::Around, "around"),
        (JitterShape::Normal, "normal"),
        (JitterShape::Pareto, "pareto"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(shape, _)| *shape == self).map_or("", |(_, name)| name)
    }

    /// By how many sizes a packet is early at most.
    fn earliest(self) -> f64 {
        match self {
            JitterShape::Uniform => 0.0,
            JitterShape::Around => 1.0,
            JitterShape::Normal => MOST_DEVIATIONS,
            JitterShape::Pareto => (PARETO_MEAN - 1.0) / PARETO_DEVIATION,
        }
    }

    /// What a number of the standard normal distribution becomes, in sizes.
    fn of_normal(self, z: f64) -> f64 {
        match self {
            JitterShape::Uniform => normal::share_below(z),
            JitterShape::Around => 2.0 * normal::share_below(z) - 1.0,
            JitterShape::Normal => z.clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS),
            JitterShape::Pareto => {
                let above = normal::share_below(-z).max(f64::MIN_POSITIVE);
                let drawn = math::exp(-math::ln(above) / 3.0);
                ((drawn - PARETO_MEAN) / PARETO_DEVIATION).min(MOST_DEVIATIONS)
            }
        }
    }
}

impl Jitter {
    /// By how much a packet arrives at most before its delay is over.
    pub(crate) fn earliest(&self) -> Duration {
        self.size.mul_f64(self.shape.earliest())
    }

    /// Whether each addition is drawn by itself, of whole nanoseconds from 0 to the size.
    fn is_plain(&self) -> bool {
        self.shape == JitterShape::Uniform && self.correlation == Probability::ZERO
    }
}

/// Jitter at work.
#[derive(Clone, Debug)]
pub(crate) struct Additions {
    jitter: Jitter,
    rng: Rng,
    /// The normal number behind the last addition; none before the first.
    last: Option<f64>,
}

impl Additions {
    pub(crate) fn new(jitter: Jitter, rng: Rng) -> Self {
        Additions { jitter, rng, last: None }
    }

    pub(crate) fn may_overtake(&self) -> bool {
        self.jitter.overtake
    }

    /// When a packet arrives that is sent at `sent_at` and takes `delay` without jitter.
    pub(crate) fn arrival(&mut self, sent_at: Time, delay: Duration) -> Time {
        let size = u64::try_from(self.jitter.size.as_nanos()).unwrap_or(u64::MAX);
        if self.jitter.is_plain() {
            return (sent_at + delay).plus_nanos(self.rng.below(size.saturating_add(1)));
        }
        if size == 0 {
            return sent_at + delay;
        }
        let shift = self.jitter.shape.of_normal(self.next_normal()) * size as f64;
        let at = sent_at + delay;
        if shift < 0.0 {
            let early = Duration::from_nanos(-shift as u64).min(delay);
            sent_at + (delay - early)
        } else {
            at.plus_nanos(shift as u64)
        }
    }

    /// Normal numbers of which each has a share of the one before and all have the same distribution
    /// (an autoregressive process of the first order).
    fn next_normal(&mut self) -> f64 {
        let fresh = normal::draw(&mut self.rng);
        let correlation = self.jitter.correlation.value();
        let next = match self.last {
            None => fresh,
            Some(last) => {
                correlation * last + (1.0 - correlation * correlation).max(0.0).sqrt() * fresh
            }
        };
        self.last = Some(next);
        next
    }
}

impl FromStr for Jitter {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::new(text, EXPECTED);
        let mut parts = text.split(':').map(str::trim);
        let size = parse_duration(parts.next().unwrap_or_default())?;
        let mut jitter = Jitter { size, ..Jitter::default() };
        let (mut shape, mut correlation) = (None, None);
        for part in parts {
            let named = JitterShape::ALL.iter().find(|(_, name)| *name == part);
            // What is said twice is wrong: the two may contradict each other.
            let first = match (named, part.strip_prefix("correlation=")) {
                (Some((named, _)), _) => shape.replace(*named).is_none(),
                (None, Some(share)) => correlation.replace(share.parse()?).is_none(),
                (None, None) => {
                    part == "reorder" && !core::mem::replace(&mut jitter.overtake, true)
                }
            };
            if !first {
                return Err(wrong());
            }
        }
        jitter.shape = shape.unwrap_or_default();
        jitter.correlation = correlation.unwrap_or_default();
        Ok(jitter)
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.size)?;
        if self.shape != JitterShape::Uniform {
            write!(f, ":{}", self.shape.name())?;
        }
        if self.correlation != Probability::ZERO {
            write!(f, ":correlation={}", self.correlation)?;
        }
        f.write_str(if self.overtake { ":reorder" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// Additions in milliseconds to a delay of 100 ms.
    fn drawn(text: &str, count: usize) -> Vec<f64> {
        let mut additions = Additions::new(text.parse().unwrap(), Rng::new(7));
        let sent_at = Time::from_secs(1);
        let delay = Duration::from_millis(100);
        let addition = |_| {
            let at = additions.arrival(sent_at, delay);
            at.as_nanos() as f64 / 1e6 - 1_100.0
        };
        (0..count).map(addition).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn deviation(values: &[f64]) -> f64 {
        let mean = mean(values);
        mean_of(values, |value| (value - mean) * (value - mean)).sqrt()
    }

    fn mean_of(values: &[f64], of: impl Fn(f64) -> f64) -> f64 {
        mean(&values.iter().map(|value| of(*value)).collect::<Vec<_>>())
    }

    fn share_above(values: &[f64], bound: f64) -> f64 {
        mean_of(values, |value| f64::from(u8::from(value > bound)))
    }

    #[test]
    fn around_is_uniform_on_both_sides() {
        let drawn = drawn("10ms:around", 100_000);
        assert!(mean(&drawn).abs() < 0.1 && (deviation(&drawn) - 5.774).abs() < 0.05);
        assert!(drawn.iter().all(|addition| addition.abs() <= 10.0));
        assert!((share_above(&drawn, 5.0) - 0.25).abs() < 0.01);
    }

    #[test]
    fn normal_has_its_size_as_standard_deviation() {
        let drawn = drawn("10ms:normal", 100_000);
        assert!(mean(&drawn).abs() < 0.1 && (deviation(&drawn) - 10.0).abs() < 0.1);
        assert!((share_above(&drawn, 10.0) - 0.1587).abs() < 0.005);
        assert!(drawn.iter().all(|addition| addition.abs() <= 40.001));
    }

    #[test]
    fn pareto_has_a_long_tail_on_one_side() {
        let drawn = drawn("10ms:pareto", 100_000);
        // Without what is beyond four deviations the mean is a little below 0.
        assert!((-0.5..0.1).contains(&mean(&drawn)), "{}", mean(&drawn));
        assert!(drawn.iter().all(|addition| (-5.775..=40.001).contains(addition)));
        // Beyond 1.5 + 0.866 · 2 deviations: 3.232 to the power of -3.
        assert!((share_above(&drawn, 20.0) - 0.0296).abs() < 0.002);
    }

    #[test]
    fn correlated_additions_keep_their_distribution() {
        for (text, correlation) in [("10ms:normal", 0.0), ("10ms:normal:correlation=80%", 0.8)] {
            let drawn = drawn(text, 200_000);
            let pairs: Vec<f64> = drawn.windows(2).map(|pair| pair[0] * pair[1]).collect();
            assert!((mean(&pairs) / 100.0 - correlation).abs() < 0.02, "{text}");
            assert!((deviation(&drawn) - 10.0).abs() < 0.3, "{text}");
        }
        let drawn = drawn("10ms:correlation=80%", 200_000);
        assert!((share_above(&drawn, 9.0) - 0.1).abs() < 0.01, "still uniform");
    }

    #[test]
    fn nothing_arrives_before_it_was_sent() {
        let mut additions = Additions::new("50ms:normal".parse().unwrap(), Rng::new(1));
        let sent_at = Time::from_secs(1);
        let arrivals: Vec<Time> =
            (0..1_000).map(|_| additions.arrival(sent_at, Duration::from_millis(10))).collect();
        assert_eq!(arrivals.iter().min(), Some(&sent_at));
    }

    #[test]
    fn texts_are_read_back() {
        let texts = [
            "5ms",
            "1.5ms:reorder",
            "5ms:normal",
            "5ms:pareto:correlation=25%",
            "0ns:around:reorder",
        ];
        for text in texts {
            assert_eq!(text.parse::<Jitter>().unwrap().to_string(), text);
        }
        assert_eq!("5ms:reorder:normal".parse(), "5ms:normal:reorder".parse::<Jitter>());
    }

    #[test]
    fn wrong_texts() {
        let wrong = [
            "",
            "5",
            "5ms:some",
            "-1ms",
            "5ms:",
            "5ms:normal:normal",
            "5ms:normal:pareto",
            "5ms:reorder:reorder",
            "5ms:correlation=200%",
            "5ms:correlation=",
            "5ms:correlation=1%:correlation=2%",
        ];
        for bad in wrong {
            assert!(bad.parse::<Jitter>().is_err(), "{bad}");
        }
    }
}
