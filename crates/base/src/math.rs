//! Functions that the standard library takes from the platform.
//!
//! `f64::cbrt`, `f64::ln` and their like may differ in the last bit from one machine and one version
//! of its mathematical library to the next, and a run of a simulator would then not repeat. Those
//! here use the four basic operations alone, which IEEE 754 defines to the bit.

use core::f64::consts::{LN_2, SQRT_2};

/// The cube root of a finite `x`, to within a few units in the last place; 0 of what is smaller than
/// any normal number.
///
/// Newton's method from an integer's start: a third of the bit pattern, read as an integer, is
/// about a third of the logarithm.
pub fn cube_root(x: f64) -> f64 {
    /// Two thirds of the exponent's bias in its place, less what makes the error smallest.
    const START: u64 = 715_094_163 << 32;
    let magnitude = x.abs();
    if magnitude < f64::MIN_POSITIVE {
        return 0.0;
    }
    let mut root = f64::from_bits(magnitude.to_bits() / 3 + START);
    // The start is within 6%, and each step squares the error: 4e-3, 2e-5, 3e-10, 1e-19.
    for _ in 0..5 {
        root -= (root - magnitude / (root * root)) / 3.0;
    }
    if x < 0.0 { -root } else { root }
}

/// The natural logarithm of a positive normal `x`, to within a few units in the last place.
pub fn ln(x: f64) -> f64 {
    const EXPONENT: u64 = 0x7ff << 52;
    const ONE: u64 = 0x3ff << 52;
    let mut exponent = ((x.to_bits() & EXPONENT) >> 52) as i64 - 0x3ff;
    let mut mantissa = f64::from_bits((x.to_bits() & !EXPONENT) | ONE);
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    exponent as f64 * LN_2 + 2.0 * artanh((mantissa - 1.0) / (mantissa + 1.0))
}

/// The inverse hyperbolic tangent of |t| up to 0.172: half the logarithm of (1 + t) / (1 - t).
pub fn artanh(t: f64) -> f64 {
    // t (1 + t^2/3 + t^4/5 + …), the small terms first; the twelfth is below 1e-18.
    let square = t * t;
    t * (0..12).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1))
}

/// e to the `x`-th, to within a few units in the last place while `x` is a few tens; beyond that the
/// error grows in proportion to `x`. Infinite above 709.4, 0 below -708.7.
pub fn exp(x: f64) -> f64 {
    // e^x = 2^k e^r with |r| up to half of ln 2, for which the seventeenth term is below 1e-21.
    let k = (x / LN_2).round();
    if k > 1023.0 {
        return f64::INFINITY;
    }
    if k < -1022.0 {
        return 0.0;
    }
    let r = x - k * LN_2;
    let series = (1..17).rev().fold(1.0, |sum, term| 1.0 + r * sum / f64::from(term));
    series * f64::from_bits(((k as i64 + 0x3ff) as u64) << 52)
}

/// A positive normal `x` to the power of `exponent`.
pub fn power(x: f64, exponent: f64) -> f64 {
    exp(exponent * ln(x))
}

/// The least power of ten, from 1 on, that is not below `x`; at most 10^22, up to which a product of
/// tens is exact.
pub fn power_of_ten_above(x: f64) -> f64 {
    let mut power = 1.0;
    while power < x && power < 1e22 {
        power *= 10.0;
    }
    power
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "what our own functions are compared with")]
mod tests {
    use super::*;

    #[test]
    fn cube_roots() {
        for x in [1e-300, 1e-9, 0.125, 0.5, 1.0, 2.0, 3.0, 75.0, 1e6, 12_345.678, 1e300] {
            assert!((cube_root(x) / x.cbrt() - 1.0).abs() < 1e-15, "{x}");
            assert_eq!(cube_root(-x), -cube_root(x));
        }
        assert_eq!((cube_root(0.0), cube_root(27.0)), (0.0, 3.0));
    }

    #[test]
    fn logarithms() {
        for x in [1e-300, 1.1e-16, 0.1, 0.5, 0.70, 0.71, 0.999, 1.001, 1.41, 1.42, 2.0, 1e9, 1e300]
        {
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(0.1), "{x}: {}", ln(x));
        }
        assert_eq!(ln(1.0), 0.0);
        // Near 1 the digits of x itself are what is known.
        let near = 1.0 + 1e-9;
        assert!((ln(near) / near.ln() - 1.0).abs() < 1e-15, "{}", ln(near));
    }

    #[test]
    fn exponentials() {
        for x in
            [-300.0_f64, -40.0, -1.0, -0.35, -1e-9, 0.0, 1e-9, 0.34, 0.35, 1.0, 11.3, 40.0, 700.0]
        {
            let bound = 1e-15_f64.max(f64::EPSILON * x.abs());
            assert!((exp(x) / x.exp() - 1.0).abs() <= bound, "{x}: {}", exp(x));
        }
        assert_eq!((exp(0.0), exp(-1e9), exp(1e9)), (1.0, 0.0, f64::INFINITY));
        assert!(exp(f64::NAN).is_nan());
    }

    #[test]
    fn powers() {
        for (x, exponent) in [(2.0, 10.0), (83_000.0, 0.8), (1e-7, -0.8348), (0.5, 0.5), (7.0, 0.0)]
        {
            let exact = f64::powf(x, exponent);
            assert!((power(x, exponent) / exact - 1.0).abs() < 4e-15, "{x} {exponent}");
        }
    }

    #[test]
    fn powers_of_ten() {
        let cases =
            [(-1.0, 1.0), (0.5, 1.0), (1.0, 1.0), (1.1, 10.0), (1e8, 1e8), (1e8 + 1.0, 1e9)];
        for (x, power) in cases.into_iter().chain([(1e22, 1e22), (1e23, 1e22)]) {
            assert_eq!(power_of_ten_above(x), power, "{x}");
        }
    }
}
