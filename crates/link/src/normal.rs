//! The standard normal distribution.

use core::f64::consts::PI;

use farhaul_base::Rng;
use farhaul_base::math::ln;

use crate::series::exp_minus;

/// A number of it, by Marsaglia's polar method: exact in its shape to far beyond any
/// length of a run, where a sum of uniform numbers ends at a few deviations, and of functions it
/// needs but a logarithm and a square root. The second number that the method gives is not kept, so
/// that draws do not hang together.
pub(crate) fn draw(rng: &mut Rng) -> f64 {
    loop {
        let (x, y) = (2.0 * rng.unit() - 1.0, 2.0 * rng.unit() - 1.0);
        let s = x * x + y * y;
        if s > 0.0 && s < 1.0 {
            return x * (-2.0 * ln(s) / s).sqrt();
        }
    }
}

/// Its density at `a`.
pub(crate) fn density(a: f64) -> f64 {
    exp_minus(a * a / 2.0) / (2.0 * PI).sqrt()
}

/// The share of it below `a`, to seven digits (Abramowitz and Stegun 26.2.17).
pub(crate) fn share_below(a: f64) -> f64 {
    const B: [f64; 5] =
        [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * a.abs());
    let tail = density(a) * B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    if a < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::power;

    #[test]
    fn a_normal_number_has_the_moments_and_tails_of_one() {
        let mut rng = Rng::new(5);
        let numbers: Vec<f64> = (0..1_000_000).map(|_| draw(&mut rng)).collect();
        let moment = |n: u64| numbers.iter().map(|x| power(*x, n)).sum::<f64>() / 1e6;
        // Each within five standard deviations of its estimate.
        assert!(moment(1).abs() < 0.005, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.007, "{}", moment(2));
        assert!(moment(3).abs() < 0.02, "{}", moment(3));
        assert!((moment(4) - 3.0).abs() < 0.05, "{}", moment(4));
        let beyond_3 = numbers.iter().filter(|x| x.abs() > 3.0).count() as f64;
        assert!((beyond_3 - 2_700.0).abs() < 260.0, "{beyond_3}");
    }

    #[test]
    fn shares_are_those_of_the_tables() {
        for (a, share) in [(0.0, 0.5), (1.0, 0.841_344_75), (-1.959_964, 0.025), (3.0, 0.998_650_1)]
        {
            assert!((share_below(a) - share).abs() < 2e-7, "{a}");
        }
    }
}
