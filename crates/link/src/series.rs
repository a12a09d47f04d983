//! Functions that a library of the platform computes, here in arithmetic alone.
//!
//! Sums, products, quotients and square roots of IEEE 754 are the same on every machine; the
//! logarithm and the exponential function of a standard library need not be, and one wrong last
//! digit can move a drop by a packet. So what a run depends on is computed here, by series.

use farhaul_base::math::{artanh, ln};

/// The logarithm of 1 - 1/n for n above 1; a large n keeps its digits.
pub(crate) fn ln_one_less(n: f64) -> f64 {
    if n > 4.0 { -2.0 * artanh(1.0 / (2.0 * n - 1.0)) } else { ln((n - 1.0) / n) }
}

/// 1 - exp(-x) for x from 0 to 1; a small x keeps its digits.
pub(crate) fn one_less_exp(x: f64) -> f64 {
    // x - x^2/2! + x^3/3! - …
    let (mut term, mut sum) = (x, 0.0);
    for n in 2..=20 {
        sum += term;
        term *= -x / f64::from(n);
    }
    sum
}

/// exp(-x) for x from 0 on.
pub(crate) fn exp_minus(x: f64) -> f64 {
    // A part of x of at most 1 that makes it up, raised to their number. Beyond is less than any
    // normal number.
    let parts = x.clamp(1.0, 1_000.0).ceil();
    power(1.0 - one_less_exp((x / parts).min(1.0)), parts as u64)
}

/// `base` to the power of `n`, by squaring.
pub(crate) fn power(mut base: f64, mut n: u64) -> f64 {
    let mut result = 1.0;
    while n > 0 {
        if n & 1 == 1 {
            result *= base;
        }
        base *= base;
        n >>= 1;
    }
    result
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "what our own functions are compared with")]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= 1e-15 * expected.abs().max(f64::MIN_POSITIVE)
    }

    #[test]
    fn logarithms() {
        for n in [1.001, 1.5, 2.0, 3.9, 4.1, 1e3, 1e15] {
            let expected = f64::ln_1p(-1.0 / n);
            assert!((ln_one_less(n) / expected - 1.0).abs() < 1e-12, "{n}: {}", ln_one_less(n));
        }
    }

    #[test]
    fn exponentials_and_powers() {
        for x in [0.0, 1e-12, 1e-4, 1.0 / 30.0, 0.5, 1.0] {
            assert!(near(one_less_exp(x), -f64::exp_m1(-x)), "{x}: {}", one_less_exp(x));
        }
        for x in [0.0, 1e-9, 0.5, 1.0, 1.5, 20.25, 300.0, 1e9, f64::MAX] {
            assert!((exp_minus(x) - f64::exp(-x)).abs() <= 1e-13 * f64::exp(-x), "{x}");
        }
        assert_eq!(power(0.5, 0), 1.0);
        assert_eq!(power(0.5, 10), 1.0 / 1024.0);
        assert_eq!(power(0.5, u64::MAX), 0.0);
    }
}
