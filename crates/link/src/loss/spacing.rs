//! How far it is from one loss to the next.

use core::f64::consts::PI;

use farhaul_base::Rng;
use farhaul_base::math::ln;

use crate::series::{exp_minus, ln_one_less};

/// A distribution of distances in packets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spacing {
    Gaussian {
        mean: f64,
        sd: f64,
    },
    /// `scale` is that of the exponential distribution which, rounded up, is this one.
    Geometric {
        scale: f64,
    },
}

impl Spacing {
    pub(super) fn gaussian(mean: f64, sd: f64) -> Self {
        Spacing::Gaussian { mean, sd }
    }

    /// With a mean below 1 each distance is 1.
    pub(super) fn geometric(mean: f64) -> Self {
        let scale = if mean > 1.0 { -ln_one_less(mean).recip() } else { 0.0 };
        Spacing::Geometric { scale }
    }

    /// A distance, at least 1.
    pub(super) fn draw(self, rng: &mut Rng) -> u64 {
        let distance = match self {
            // A float beyond the integers becomes the nearest one, and what is no number 0.
            Spacing::Gaussian { mean, sd } => (mean + sd * normal(rng)).round(),
            Spacing::Geometric { scale } => rng.exponential(scale).ceil(),
        };
        (distance as u64).max(1)
    }
}

/// The mean of `max(1, x)`, x being Gaussian.
pub(super) fn mean_at_least_one(mean: f64, sd: f64) -> f64 {
    let above = mean - 1.0;
    if sd <= 0.0 {
        return 1.0 + above.max(0.0);
    }
    let a = above / sd;
    let density = exp_minus(a * a / 2.0) / (2.0 * PI).sqrt();
    1.0 + above * cumulated(a, density) + sd * density
}

/// The standard normal distribution up to `a`, to seven digits (Abramowitz and Stegun 26.2.17).
fn cumulated(a: f64, density: f64) -> f64 {
    const B: [f64; 5] =
        [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * a.abs());
    let tail = density * B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    if a < 0.0 { tail } else { 1.0 - tail }
}

/// A standard normal number, by Marsaglia's polar method: exact in its shape to far beyond any
/// length of a run, where a sum of uniform numbers ends at a few deviations, and of functions it
/// needs but a logarithm and a square root. The second number that the method gives is not kept, so
/// that draws do not hang together.
fn normal(rng: &mut Rng) -> f64 {
    loop {
        let (x, y) = (2.0 * rng.unit() - 1.0, 2.0 * rng.unit() - 1.0);
        let s = x * x + y * y;
        if s > 0.0 && s < 1.0 {
            return x * (-2.0 * ln(s) / s).sqrt();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::power;

    #[test]
    fn a_normal_number_has_the_moments_and_tails_of_one() {
        let mut rng = Rng::new(5);
        let numbers: Vec<f64> = (0..1_000_000).map(|_| normal(&mut rng)).collect();
        let moment = |n: u64| numbers.iter().map(|x| power(*x, n)).sum::<f64>() / 1e6;
        // Each within five standard deviations of its estimate.
        assert!(moment(1).abs() < 0.005, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.007, "{}", moment(2));
        assert!(moment(3).abs() < 0.02, "{}", moment(3));
        assert!((moment(4) - 3.0).abs() < 0.05, "{}", moment(4));
        let beyond_3 = numbers.iter().filter(|x| x.abs() > 3.0).count() as f64;
        assert!((beyond_3 - 2_700.0).abs() < 260.0, "{beyond_3}");
    }

    /// Stored results depend on them.
    #[test]
    fn the_draws_are_fixed() {
        let draws = |spacing: Spacing| {
            let mut rng = Rng::new(42);
            [(); 6].map(|()| spacing.draw(&mut rng))
        };
        assert_eq!(draws(Spacing::gaussian(1_000.0, 100.0)), [1098, 1134, 904, 1020, 1020, 776]);
        assert_eq!(draws(Spacing::geometric(1_000.0)), [1683, 384, 4127, 1208, 1577, 887]);
    }
}
