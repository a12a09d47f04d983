//! Samples in few numbers.
//!
//! None is returned where the sample is too small. Sums run in the order of the sample, so that
//! results are the same to the last bit.

use serde::{Deserialize, Serialize};

/// A mean and how far from it the true one may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean of the sample.
    pub mean: f64,
    /// From the mean to either end of the interval.
    pub half_width: f64,
}

/// Which value stands for a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Average {
    /// The arithmetic mean.
    #[default]
    Mean,
    /// The value in the middle, which a few far away do not move.
    Median,
}

impl Average {
    /// That value of the sample.
    pub fn of(self, sample: &[f64]) -> Option<f64> {
        match self {
            Average::Mean => mean(sample),
            Average::Median => median(sample),
        }
    }

    /// It and the interval of confidence; none for a median.
    pub fn interval(self, sample: &[f64]) -> Option<Interval> {
        interval_95(sample).filter(|_| self == Average::Mean)
    }
}

/// The value in the middle of the sample in order; of an even number, halfway between the two.
pub fn median(sample: &[f64]) -> Option<f64> {
    let mut ordered = sample.to_vec();
    ordered.sort_by(f64::total_cmp);
    let high = *ordered.get(ordered.len() / 2)?;
    let low = ordered[(ordered.len() - 1) / 2];
    Some((low + high) / 2.0)
}

/// The arithmetic mean.
pub fn mean(sample: &[f64]) -> Option<f64> {
    (!sample.is_empty()).then(|| sample.iter().sum::<f64>() / sample.len() as f64)
}

/// The standard deviation of what the sample was drawn from: divided by one less than its size, so
/// it takes two values.
pub fn standard_deviation(sample: &[f64]) -> Option<f64> {
    let mean = mean(sample).filter(|_| sample.len() > 1)?;
    let squares: f64 = sample.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (sample.len() - 1) as f64).sqrt())
}

/// The interval that holds the true mean in 95 of 100 cases, by Student's t: for independent values
/// from a normal distribution. It takes two values.
pub fn interval_95(sample: &[f64]) -> Option<Interval> {
    let deviation = standard_deviation(sample)?;
    let error = deviation / (sample.len() as f64).sqrt();
    Some(Interval { mean: mean(sample)?, half_width: t_975(sample.len() - 1) * error })
}

/// The 97.5 % quantile of Student's t distribution for so many degrees of freedom, to three decimals
/// (NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2). Between those in the table it is
/// interpolated over the reciprocal of the degrees, which is right to 0.001.
fn t_975(degrees: usize) -> f64 {
    const TO_30: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    const BEYOND: [(f64, f64); 5] = [
        (1.0 / 30.0, 2.042),
        (1.0 / 40.0, 2.021),
        (1.0 / 60.0, 2.000),
        (1.0 / 120.0, 1.980),
        (0.0, 1.960),
    ];
    let Some(degrees) = degrees.checked_sub(1) else { return f64::INFINITY };
    if let Some(t) = TO_30.get(degrees) {
        return *t;
    }
    let reciprocal = 1.0 / (degrees + 1) as f64;
    for pair in BEYOND.windows(2) {
        let [(from, t_from), (to, t_to)] = [pair[0], pair[1]];
        if reciprocal >= to {
            return t_to + (t_from - t_to) * (reciprocal - to) / (from - to);
        }
    }
    1.960
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[500.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 500.0, 2.0]), Some(3.0));
        assert_eq!(Average::Median.interval(&[1.0, 2.0]), None);
        assert_eq!(Average::Mean.interval(&[1.0, 2.0]), interval_95(&[1.0, 2.0]));
    }

    #[test]
    fn means_and_deviations() {
        let sample = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&sample), Some(5.0));
        assert!(near(standard_deviation(&sample).unwrap(), (32.0f64 / 7.0).sqrt()));
        assert_eq!(mean(&[]), None);
        assert_eq!(standard_deviation(&[1.0]), None);
        assert_eq!(interval_95(&[1.0]), None);
    }

    #[test]
    fn intervals_follow_student() {
        // Mean 3, deviation √2.5, t for 4 degrees.
        let interval = interval_95(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(interval.mean, 3.0);
        assert!(near(interval.half_width, 2.776 * (2.5f64 / 5.0).sqrt()));
        let two = interval_95(&[0.0, 2.0]).unwrap();
        assert!(near(two.half_width, 12.706));
        assert_eq!(interval_95(&[7.0; 10]).unwrap().half_width, 0.0);
    }

    #[test]
    fn quantiles_between_and_beyond_the_table() {
        // R: qt(0.975, c(1, 29, 35, 50, 80, 100, 500, 1e6)).
        let known = [
            (1, 12.706),
            (29, 2.0452),
            (35, 2.0301),
            (50, 2.0086),
            (80, 1.9901),
            (100, 1.9840),
            (500, 1.9647),
            (1_000_000, 1.9600),
        ];
        for (degrees, t) in known {
            assert!((t_975(degrees) - t).abs() < 0.001, "{degrees}: {}", t_975(degrees));
        }
        assert!((2..2000).all(|degrees| t_975(degrees) <= t_975(degrees - 1)));
        assert_eq!(t_975(0), f64::INFINITY);
    }
}
