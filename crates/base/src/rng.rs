//! A small generator whose stream never changes.

use crate::math::ln;

/// xoshiro256++ (Blackman and Vigna, 2019), seeded through SplitMix64.
///
/// It is our own, not a library's, because stored results depend on its stream for years, and
/// libraries change theirs. Not for secrets: those come from the operating system.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator whose stream is a function of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let state = core::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Rng { state }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Uniform over `0..n`; 0 if `n` is 0. The bias (Lemire's multiply-shift without rejection) is
    /// below n/2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform over [0, 1), 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Exponentially distributed with this mean: the time between two arrivals of a Poisson
    /// process. From 0 to 37 times the mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // The logarithm is our own, because the platform's is not the same everywhere.
        -mean * ln(1.0 - self.unit())
    }

    /// A generator of its own, seeded from this one.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SplitMix64 of seed 0 begins with the first word below (its reference implementation); the
    /// outputs pin the stream that stored results depend on.
    #[test]
    fn stream_is_fixed() {
        assert_eq!(Rng::new(0).state[0], 0xe220_a839_7b1d_cdaf);
        let mut rng = Rng::new(42);
        let outputs: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            outputs,
            [15_021_278_609_987_233_951, 5_881_210_131_331_364_753, 18_149_643_915_985_481_100]
        );
    }

    #[test]
    fn exponential_has_its_mean_and_spread() {
        let mut rng = Rng::new(5);
        let draws: Vec<f64> = (0..200_000).map(|_| rng.exponential(3.0)).collect();
        let mean = draws.iter().sum::<f64>() / 200_000.0;
        let square = draws.iter().map(|x| x * x).sum::<f64>() / 200_000.0;
        assert!((mean - 3.0).abs() < 0.03, "{mean}");
        assert!((square - 18.0).abs() < 0.5, "{square}");
        assert!(draws.iter().all(|x| *x >= 0.0));
    }

    #[test]
    fn uniform_in_range() {
        let mut rng = Rng::new(7);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
            let u = rng.unit();
            assert!((0.0..1.0).contains(&u));
        }
        assert!(counts.iter().all(|&c| (9_500..10_500).contains(&c)), "{counts:?}");
        assert_eq!(rng.below(0), 0);
    }
}
