//! Loss models as text.

use core::fmt;
use core::num::NonZeroU64;
use core::ops::RangeInclusive;
use core::str::FromStr;

use farhaul_base::units::parse_fields;

use crate::{GilbertElliott, LossModel, ParseError, Probability};

impl FromStr for LossModel {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        match text.split_once(':') {
            None if text == "none" => Ok(LossModel::None),
            None => text.parse().map(LossModel::Uniform).map_err(|_| {
                ParseError::new(
                    text,
                    "a loss (write none, 0.1%, ber:1e-7, ge:p=1%,r=30%, ge:loss=1%,burst=5, \
                     every:100, gauss:mean=1000,sd=100, poisson:mean=1000 or list:3,7-9)",
                )
            }),
            Some(("ber", p)) => p.parse().map(LossModel::PerBit),
            Some(("ge", fields)) => parse_gilbert_elliott(fields).map(LossModel::GilbertElliott),
            Some(("every", n)) => n
                .trim()
                .parse::<NonZeroU64>()
                .map(|every| LossModel::Periodic { every })
                .map_err(|_| ParseError::new(n, "a positive number of packets")),
            Some(("gauss", fields)) => parse_gaussian(fields),
            Some(("poisson", fields)) => parse_poisson(fields),
            Some(("list", list)) => parse_list(list).map(LossModel::Scripted),
            Some((kind, _)) => {
                let expected = "a kind of loss (there are ber, ge, every, gauss, poisson and list)";
                Err(ParseError::new(kind, expected))
            }
        }
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for LossModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LossModel::None => f.write_str("none"),
            LossModel::Scripted(ranges) if ranges.is_empty() => f.write_str("none"),
            LossModel::Uniform(p) => write!(f, "{p}"),
            LossModel::PerBit(p) => write!(f, "ber:{:e}", p.value()),
            LossModel::GilbertElliott(GilbertElliott { p, r, loss_good, loss_bad }) => {
                write!(f, "ge:p={p},r={r}")?;
                if *loss_good != Probability::ZERO {
                    write!(f, ",good={loss_good}")?;
                }
                if *loss_bad != Probability::ONE {
                    write!(f, ",bad={loss_bad}")?;
                }
                Ok(())
            }
            LossModel::Periodic { every } => write!(f, "every:{every}"),
            LossModel::Gaussian { mean, sd } => write!(f, "gauss:mean={mean},sd={sd}"),
            LossModel::Poisson { mean } => write!(f, "poisson:mean={mean}"),
            LossModel::Scripted(ranges) => {
                f.write_str("list:")?;
                for (index, range) in ranges.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    if range.start() == range.end() {
                        write!(f, "{comma}{}", range.start())?;
                    } else {
                        write!(f, "{comma}{}-{}", range.start(), range.end())?;
                    }
                }
                Ok(())
            }
        }
    }
}

fn parse_gilbert_elliott(text: &str) -> Result<GilbertElliott, ParseError> {
    const EXPECTED: &str = "a loss in bursts (write ge:p=1%,r=30%, ge:p=1%,r=30%,good=0.1%,bad=50% or \
         ge:loss=1%,burst=5)";
    let (mut p, mut r, mut good, mut bad) = (None, None, None, None);
    let (mut loss, mut burst) = (None, None);
    parse_fields(text, EXPECTED, |name, value| {
        let probability = match name {
            "p" => &mut p,
            "r" => &mut r,
            "good" => &mut good,
            "bad" => &mut bad,
            "loss" => &mut loss,
            "burst" => {
                burst = value.parse::<f64>().ok();
                return Ok(burst.is_some());
            }
            _ => return Ok(false),
        };
        *probability = Some(value.parse()?);
        Ok(true)
    })?;
    match (p, r, loss, burst) {
        (Some(p), Some(r), None, None) => Ok(GilbertElliott {
            p,
            r,
            loss_good: good.unwrap_or(Probability::ZERO),
            loss_bad: bad.unwrap_or(Probability::ONE),
        }),
        (None, None, Some(loss), Some(burst)) if good.is_none() && bad.is_none() => {
            GilbertElliott::from_loss_and_burst(loss, burst).ok_or_else(|| {
                ParseError::new(
                    text,
                    "possible: a burst is at least 1 packet long, and at most one packet in \
                     (1 + 1/burst) can be lost",
                )
            })
        }
        _ => Err(ParseError::new(text, EXPECTED)),
    }
}

fn parse_gaussian(text: &str) -> Result<LossModel, ParseError> {
    const EXPECTED: &str = "Gaussian distances between losses (write gauss:mean=1000,sd=100; the \
                            mean is at least 1 packet)";
    let (mut mean, mut sd) = (None, None);
    parse_fields(text, EXPECTED, |name, value| {
        let distance = match name {
            "mean" => &mut mean,
            "sd" => &mut sd,
            _ => return Ok(false),
        };
        *distance = packets(value);
        Ok(distance.is_some())
    })?;
    match (mean, sd) {
        (Some(mean), Some(sd)) if mean >= 1.0 => Ok(LossModel::Gaussian { mean, sd }),
        _ => Err(ParseError::new(text, EXPECTED)),
    }
}

fn parse_poisson(text: &str) -> Result<LossModel, ParseError> {
    const EXPECTED: &str = "a mean distance between losses (write poisson:mean=1000; it is at least \
                            1 packet)";
    let mut mean = None;
    parse_fields(text, EXPECTED, |name, value| {
        mean = packets(value).filter(|mean| name == "mean" && *mean >= 1.0);
        Ok(mean.is_some())
    })?;
    let mean = mean.ok_or_else(|| ParseError::new(text, EXPECTED))?;
    Ok(LossModel::Poisson { mean })
}

/// A distance in packets.
fn packets(text: &str) -> Option<f64> {
    /// Above it a float does not tell a packet from the next.
    const MOST: f64 = (1u64 << 53) as f64;
    text.parse().ok().filter(|packets| (0.0..=MOST).contains(packets))
}

fn parse_list(text: &str) -> Result<Vec<RangeInclusive<u64>>, ParseError> {
    let number = |text: &str| text.trim().parse::<u64>().ok().filter(|number| *number > 0);
    text.split(',')
        .map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => Ok(first..=last),
                _ => Err(ParseError::new(part, "a packet number from 1 or a range such as 7-9")),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probability(value: f64) -> Probability {
        Probability::new(value).unwrap()
    }

    #[test]
    fn forms() {
        let parsed = |text: &str| text.parse::<LossModel>();
        assert_eq!(parsed("none"), Ok(LossModel::None));
        assert_eq!(parsed("0.1%"), Ok(LossModel::Uniform(probability(0.001))));
        assert_eq!(parsed("ber:1e-7"), Ok(LossModel::PerBit(probability(1e-7))));
        assert_eq!(
            parsed("every:100"),
            Ok(LossModel::Periodic { every: NonZeroU64::new(100).unwrap() })
        );
        let gaussian = LossModel::Gaussian { mean: 1_000.0, sd: 100.0 };
        assert_eq!(parsed("gauss:mean=1000, sd=100"), Ok(gaussian.clone()));
        assert_eq!(parsed("gauss:sd=100,mean=1000"), Ok(gaussian));
        assert_eq!(parsed("poisson:mean=1e3"), Ok(LossModel::Poisson { mean: 1_000.0 }));
        assert_eq!(parsed("list:3,7-9"), Ok(LossModel::Scripted(vec![3..=3, 7..=9])));
        assert_eq!(
            parsed("ge:p=1%, r=30%, bad=50%"),
            Ok(LossModel::GilbertElliott(GilbertElliott {
                p: probability(0.01),
                r: probability(0.3),
                loss_good: Probability::ZERO,
                loss_bad: probability(0.5),
            }))
        );
        let Ok(LossModel::GilbertElliott(bursts)) = parsed("ge:loss=1%,burst=5") else {
            panic!("not a Gilbert-Elliott model");
        };
        assert_eq!(bursts.r, probability(0.2));
        assert!((bursts.mean_loss() - 0.01).abs() < 1e-12);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for bad in [
            "",
            "half",
            "101%",
            "ber:x",
            "every:0",
            "every:",
            "list:",
            "list:0",
            "list:9-7",
            "ge:",
            "ge:p=1%",
            "ge:p=1%,p=2%,r=3%",
            "ge:p=1%,r=3%,loss=1%",
            "ge:loss=1%,burst=5,bad=1%",
            "ge:loss=90%,burst=2",
            "ge:loss=1%,burst=0.5",
            "ge:loss=1%,burst=x",
            "ge:p=1%,q=3%",
            "gauss:",
            "gauss:mean=1000",
            "gauss:mean=0.5,sd=1",
            "gauss:mean=10,sd=-1",
            "gauss:mean=10,mean=1",
            "gauss:mean=10,sd=1,sd=2",
            "gauss:sd=inf,mean=2",
            "poisson:",
            "poisson:mean=0",
            "poisson:mean=nan",
            "poisson:1000",
            "magic:1",
        ] {
            assert!(bad.parse::<LossModel>().is_err(), "{bad}");
        }
        let message = "magic:1".parse::<LossModel>().unwrap_err().to_string();
        assert_eq!(
            message,
            "`magic` is not a kind of loss (there are ber, ge, every, gauss, poisson and list)"
        );
    }

    #[test]
    fn display_is_read_back() {
        for text in [
            "none",
            "0.1%",
            "ber:1e-7",
            "every:100",
            "gauss:mean=1000,sd=100",
            "gauss:mean=1.5,sd=0",
            "poisson:mean=1000",
            "list:3,7-9",
            "ge:p=1%,r=30%",
            "ge:p=1%,r=30%,good=0.1%,bad=50%",
        ] {
            assert_eq!(text.parse::<LossModel>().unwrap().to_string(), text);
        }
    }
}
