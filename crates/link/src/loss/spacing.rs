//! How far it is from one loss to the next.

use farhaul_base::Rng;

use crate::normal;
use crate::series::ln_one_less;

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
            Spacing::Gaussian { mean, sd } => (mean + sd * normal::draw(rng)).round(),
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
    1.0 + above * normal::share_below(a) + sd * normal::density(a)
}

#[cfg(test)]
mod tests {
    use super::*;

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
