//! Functions that a library of the platform computes, here in arithmetic alone.
//!
//! Sums, products, quotients and square roots of IEEE 754 are the same on every machine; the
//! logarithm and the exponential function of a standard library need not be, and one wrong last
//! digit can move a drop by a packet. So what a run depends on is computed here, by series.

use core::f64::consts::{LN_2, SQRT_2};

/// The natural logarithm of a normal positive number, to about the last digit.
pub(crate) fn ln(x: f64) -> f64 {
    const FRACTION: u64 = (1 << 52) - 1;
    // x = m 2^e with m in [1, 2), then in [sqrt(1/2), sqrt(2)].
    let mut m = f64::from_bits((x.to_bits() & FRACTION) | 1f64.to_bits());
    let mut e = (x.to_bits() >> 52) as f64 - 1023.0;
    if m > SQRT_2 {
        m /= 2.0;
        e += 1.0;
    }
    e * LN_2 + 2.0 * artanh((m - 1.0) / (m + 1.0))
}

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

/// For |t| up to 0.172, where 12 terms are more than the digits hold.
fn artanh(t: f64) -> f64 {
    // t (1 + t^2/3 + t^4/5 + …), the small terms first.
    (0..12).rev().fold(0.0, |sum, k| sum * t * t + 1.0 / f64::from(2 * k + 1)) * t
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
        for x in [1e-300, 2f64.powi(-53), 0.001, 0.5, 0.7, 0.75, 1.5, 2.0, 10.0, 1e300] {
            assert!(near(ln(x), f64::ln(x)), "{x}: {}", ln(x));
        }
        // Near 1 the digits of x itself are what is known.
        assert_eq!(ln(1.0), 0.0);
        assert!(near(ln(1.0 + 1e-9), f64::ln(1.0 + 1e-9)));
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
