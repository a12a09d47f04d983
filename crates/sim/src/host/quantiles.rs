//! How long something takes, as a distribution.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use farhaul_base::Rng;
use farhaul_link::{ParseError, Probability, parse_duration};

/// A distribution of times, as its quantiles; between two of them it is uniform.
///
/// Written `50%:60us,99%:150us,100%:2ms` (half of the times are up to 60 µs, and so on; the first
/// ones begin at 0), `20us..80us` (uniform), `50us` (always that) or `0`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quantiles {
    /// Share and time, both ascending, the last share being 1; empty: always nothing.
    points: Vec<(f64, Duration)>,
}

/// Shares that are told apart.
const SHARES: f64 = 1e8;
const EXPECTED: &str = "a distribution of times (write 50us, 20us..80us, or quantiles in ascending \
                        order, of which the last is the longest: 50%:60us,99%:150us,100%:2ms)";

impl Quantiles {
    /// Of these shares, which are rounded to a millionth of a percent, and times. `None` if either does
    /// not ascend, or the last share is not 1.
    pub fn new(mut points: Vec<(f64, Duration)>) -> Option<Self> {
        // So that what is written is read back: 99.9 / 100 is not 0.999.
        points.iter_mut().for_each(|(share, _)| *share = (*share * SHARES).round() / SHARES);
        let shares = points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let first = points.first().is_none_or(|(share, _)| *share >= 0.0);
        let last = points.last().is_none_or(|(share, _)| *share == 1.0);
        (shares && first && last).then_some(Quantiles { points })
    }

    /// Always the same time.
    pub fn always(time: Duration) -> Self {
        Quantiles {
            points: if time.is_zero() { Vec::new() } else { vec![(0.0, time), (1.0, time)] },
        }
    }

    /// Whether it is always nothing.
    pub fn is_zero(&self) -> bool {
        self.points.last().is_none_or(|(_, longest)| longest.is_zero())
    }

    /// The longest time.
    pub fn longest(&self) -> Duration {
        self.points.last().map_or(Duration::ZERO, |(_, longest)| *longest)
    }

    /// The mean.
    pub fn mean(&self) -> Duration {
        let (mut sum, mut before) = (0.0, (0.0, Duration::ZERO));
        for &(share, time) in &self.points {
            sum += (share - before.0) * (before.1 + time).as_nanos() as f64 / 2.0;
            before = (share, time);
        }
        Duration::from_nanos(sum as u64)
    }

    /// A time out of it.
    pub(crate) fn draw(&self, rng: &mut Rng) -> Duration {
        let Some(last) = self.points.last() else { return Duration::ZERO };
        let at = rng.unit();
        let place = self.points.partition_point(|(share, _)| *share <= at);
        let upper = self.points.get(place).unwrap_or(last);
        let lower = place.checked_sub(1).map_or((0.0, Duration::ZERO), |place| self.points[place]);
        let width = upper.0 - lower.0;
        let part = if width > 0.0 { (at - lower.0) / width } else { 0.0 };
        let span = (upper.1 - lower.1).as_nanos() as f64;
        lower.1 + Duration::from_nanos((span * part) as u64)
    }
}

impl FromStr for Quantiles {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::new(text, EXPECTED);
        if let Some((least, most)) = text.split_once("..") {
            let points = vec![(0.0, parse_duration(least)?), (1.0, parse_duration(most)?)];
            return Quantiles::new(points).ok_or_else(wrong);
        }
        if !text.contains(':') {
            return parse_duration(text).map(Quantiles::always).map_err(|_| wrong());
        }
        let point = |text: &str| {
            let (share, time) = text.split_once(':').ok_or_else(wrong)?;
            Ok((share.parse::<Probability>()?.value(), parse_duration(time)?))
        };
        let points = text.split(',').map(point).collect::<Result<_, ParseError>>()?;
        Quantiles::new(points).ok_or_else(wrong)
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.points.as_slice() {
            [] => f.write_str("0"),
            [(0.0, least), (1.0, most)] if least == most => write!(f, "{least:?}"),
            [(0.0, least), (1.0, most)] => write!(f, "{least:?}..{most:?}"),
            points => {
                for (index, (share, time)) in points.iter().enumerate() {
                    let percent = (share * SHARES).round() / (SHARES / 100.0);
                    write!(f, "{}{percent}%:{time:?}", if index == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Duration = Duration::from_micros;

    fn parsed(text: &str) -> Quantiles {
        text.parse().unwrap()
    }

    #[test]
    fn texts_are_read_back() {
        for text in ["0", "50µs", "20µs..80µs", "50%:60µs,99.9%:150µs,100%:2ms"] {
            assert_eq!(parsed(text).to_string(), text);
        }
        let points = [(0.5, 60), (0.999, 150), (1.0, 2_000)].map(|(share, us)| (share, US(us)));
        assert_eq!(Quantiles::new(points.into()), Some(parsed("50%:60us,99.9%:150us,100%:2ms")));
        assert_eq!(parsed("50us"), parsed("50us..50us"));
        let wrong = [
            "",
            "5",
            "80us..20us",
            "50%:60us",
            "50%:60us,100%:20us",
            "50%:1us,50%:2us,100%:3us",
            "50%,100%:1us",
            "x:1us,100%:2us",
            "-1us",
        ];
        for bad in wrong {
            assert!(bad.parse::<Quantiles>().is_err(), "{bad}");
        }
    }

    #[test]
    fn draws_have_the_quantiles() {
        let times = parsed("50%:60us,99%:150us,100%:2ms");
        let mut rng = Rng::new(1);
        let mut drawn: Vec<Duration> = (0..100_000).map(|_| times.draw(&mut rng)).collect();
        drawn.sort();
        let near = |place: usize, expected: u64| {
            let ratio = drawn[place].as_secs_f64() / US(expected).as_secs_f64();
            assert!((0.95..1.05).contains(&ratio), "{place}: {:?}", drawn[place]);
        };
        near(25_000, 30);
        near(50_000, 60);
        near(99_000, 150);
        assert!(drawn[99_999] <= US(2_000));
        let mean = drawn.iter().sum::<Duration>() / 100_000;
        assert!(mean.abs_diff(times.mean()) < US(2), "{mean:?} {:?}", times.mean());
    }

    #[test]
    fn what_is_certain_is_always_that() {
        let mut rng = Rng::new(1);
        assert_eq!(parsed("50us").draw(&mut rng), US(50));
        assert_eq!(Quantiles::default().draw(&mut rng), Duration::ZERO);
        assert!(parsed("0").is_zero() && !parsed("1us").is_zero());
    }
}
