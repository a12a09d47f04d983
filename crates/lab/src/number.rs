//! Numbers as people read them.

use serde::{Deserialize, Deserializer};

/// `value` with `digits` significant digits, in full and without zeros at the end: `941.2`, `0.5`,
/// `12340`. Very small numbers are `1.2e-7`; what is no number is `-`.
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    if value != 0.0 && value.abs() < 1e-4 {
        return scientific(value, digits);
    }
    let text = fixed(value, decimals_for(value, digits));
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// `mean ± half_width`: the half-width with two significant digits, the mean with as many decimals.
pub fn with_interval(mean: f64, half_width: f64) -> String {
    if !mean.is_finite() || !half_width.is_finite() {
        return "-".into();
    }
    if half_width == 0.0 {
        return format!("{} ± 0", significant(mean, 4));
    }
    if half_width.abs() < 1e-6 {
        return format!("{} ± {}", significant(mean, 6), scientific(half_width, 2));
    }
    let decimals = decimals_for(half_width, 2);
    format!("{} ± {}", fixed(mean, decimals), fixed(half_width, decimals))
}

/// A quantity with its unit, either of which may be empty: `throughput (Mb/s)`.
pub fn titled(name: &str, unit: &str) -> String {
    match (name, unit) {
        (name, "") => name.to_owned(),
        ("", unit) => unit.to_owned(),
        (name, unit) => format!("{name} ({unit})"),
    }
}

/// `value` with so many decimals, never as a negative zero.
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|c| matches!(c, b'0' | b'.')) => zero.to_owned(),
        _ => text,
    }
}

/// The power of ten of the leading digit. `value` is finite and not zero.
pub fn exponent(value: f64) -> i32 {
    // From the decimal text, as a logarithm is off by one beside some powers of ten.
    let text = format!("{value:e}");
    text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0)
}

fn scientific(value: f64, digits: usize) -> String {
    let text = format!("{value:.*e}", digits.saturating_sub(1));
    match text.split_once('e') {
        Some((mantissa, exponent)) if mantissa.contains('.') => {
            format!("{}e{exponent}", mantissa.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// Decimals that show `digits` significant digits of `value`.
fn decimals_for(value: f64, digits: usize) -> usize {
    if value == 0.0 {
        return 0;
    }
    let last = digits as i32 - 1 - exponent(value);
    usize::try_from(last).unwrap_or(0)
}

/// A number that was stored as JSON, where what is no number becomes `null`.
pub fn or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// As [`or_nan`], for pairs.
pub fn pairs_or_nan<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(f64, f64)>, D::Error> {
    let pairs = Vec::<(Option<f64>, Option<f64>)>::deserialize(deserializer)?;
    let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
    Ok(pairs.into_iter().map(|(x, y)| (number(x), number(y))).collect())
}

/// As [`or_nan`], for lists.
pub fn list_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let list = Vec::<Option<f64>>::deserialize(deserializer)?;
    Ok(list.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_sensible() {
        let shown = |value| significant(value, 4);
        assert_eq!(
            [0.0, 0.5, 941.234, 12_344.6, 99.996, 0.000_123_46, 1.5e-7, -2.5, -0.0, f64::NAN]
                .map(shown),
            ["0", "0.5", "941.2", "12345", "100", "0.0001235", "1.5e-7", "-2.5", "0", "-"]
        );
        assert_eq!(with_interval(941.234, 3.12), "941.2 ± 3.1");
        assert_eq!(with_interval(0.5, 0.001_234), "0.5000 ± 0.0012");
        assert_eq!(with_interval(12_345.6, 123.0), "12346 ± 123");
        assert_eq!(with_interval(2.0, 0.0), "2 ± 0");
        assert_eq!(with_interval(2.0, f64::NAN), "-");
    }

    #[test]
    fn exponents_are_exact_beside_powers_of_ten() {
        assert_eq!([1000.0, 999.999_999, 0.001, 1e-9, 9.9e22].map(exponent), [3, 2, -3, -9, 22]);
    }
}
