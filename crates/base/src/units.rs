//! Rates, probabilities, times and sizes as people write them.

use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;
use core::time::Duration;

/// A transmission rate in bits per second, at least 1.
///
/// Written in SI units: `200M`, `1.5G`, `64k`, `9600`, with or without `bit/s`, `b/s` or `bps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(NonZeroU64);

/// A number from 0 to 1, both included.
///
/// Written as a share of a hundred, `0.1%`, or of one, `0.001`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

/// A text that is not what it should be. Its message quotes the text and says what is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    text: String,
    expected: &'static str,
}

impl Rate {
    /// `bits` per second; `None` if that is zero.
    pub const fn from_bits_per_second(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Rate(bits)),
            None => None,
        }
    }

    /// Bits per second, at least 1.
    pub const fn bits_per_second(self) -> u64 {
        self.0.get()
    }

    /// Bytes that pass within `span`, rounded down; `u64::MAX` if there are more.
    pub fn bytes_within(self, span: Duration) -> u64 {
        let bits = u128::from(self.0.get()).saturating_mul(span.as_nanos()) / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }
}

impl Probability {
    /// Never.
    pub const ZERO: Probability = Probability(0.0);
    /// Always.
    pub const ONE: Probability = Probability(1.0);

    /// `value` as a probability; `None` outside [0, 1] and for NaN.
    pub const fn new(value: f64) -> Option<Self> {
        // `contains` of a range is no constant function.
        if value >= 0.0 && value <= 1.0 { Some(Probability(value)) } else { None }
    }

    /// The number, within [0, 1].
    pub const fn value(self) -> f64 {
        self.0
    }
}

/// A time with its unit: `40ms`, `2s`, `1.5ms`, `100us`, `10ns`; `0` needs none.
///
/// # Errors
/// If the number is missing, negative, not finite or above 100 years, or the unit is unknown.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    const LONGEST_NANOS: f64 = 100.0 * 365.25 * 86_400e9;
    let error = || ParseError::new(text, "a time (write 40ms, 2s or 100us)");
    let (number, unit) = split_number(text).ok_or_else(error)?;
    let nanos_per_unit = match unit {
        "s" => 1e9,
        "ms" => 1e6,
        "us" | "µs" => 1e3,
        "ns" => 1.0,
        "" if number == 0.0 => 1.0,
        _ => return Err(error()),
    };
    let nanos = number * nanos_per_unit;
    if nanos > LONGEST_NANOS {
        return Err(ParseError::new(text, "a time of at most 100 years (3155760000s)"));
    }
    Ok(Duration::from_nanos(nanos.round() as u64))
}

/// A size in bytes with its unit: `1500B`, `64kB` (SI), `64KiB` (IEC), up to `GB` and `GiB`.
///
/// # Errors
/// If the number is missing, negative or above 2^53, or the unit is unknown or missing.
pub fn parse_size(text: &str) -> Result<u64, ParseError> {
    let error = || ParseError::new(text, "a size (write 1500B, 64kB or 1MiB)");
    let (number, unit) = split_number(text).ok_or_else(error)?;
    let bytes_per_unit = match unit {
        "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        "TiB" => 1_099_511_627_776.0,
        _ => return Err(error()),
    };
    integer(number * bytes_per_unit).ok_or_else(error)
}

impl ParseError {
    /// `text` is not `expected`.
    pub fn new(text: &str, expected: &'static str) -> Self {
        ParseError { text: text.to_owned(), expected }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not {}", self.text, self.expected)
    }
}

impl core::error::Error for ParseError {}

impl FromStr for Rate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "a rate in bits per second (write 200M, 1.5G or 64k)");
        let (number, unit) = split_number(text).ok_or_else(error)?;
        let prefix = ["bit/s", "b/s", "bps"]
            .iter()
            .find_map(|suffix| unit.strip_suffix(suffix))
            .unwrap_or(unit)
            .trim_end();
        let bits_per_unit = match prefix {
            "" => 1.0,
            "k" | "K" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "T" => 1e12,
            _ => return Err(error()),
        };
        integer(number * bits_per_unit).and_then(Rate::from_bits_per_second).ok_or_else(error)
    }
}

/// The form that [`FromStr`] reads, exact: `200M`, `1.5G`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.get();
        let (digits, prefix) = match bits {
            1_000_000_000.. => (9, "G"),
            1_000_000.. => (6, "M"),
            1_000.. => (3, "k"),
            _ => return write!(f, "{bits}"),
        };
        let unit = 10u64.pow(digits);
        let fraction = format!("{:0width$}", bits % unit, width = digits as usize);
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{}{prefix}", bits / unit),
            fraction => write!(f, "{}.{fraction}{prefix}", bits / unit),
        }
    }
}

impl FromStr for Probability {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "a probability (write 0.1% or 0.001)");
        let (number, unit) = split_number(text).ok_or_else(error)?;
        let value = match unit {
            "" => number,
            "%" => number / 100.0,
            _ => return Err(error()),
        };
        Probability::new(value).ok_or_else(error)
    }
}

/// The form that [`FromStr`] reads, exact: per cent if few digits do, else the plain number.
impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for decimals in 0..=9 {
            let text = format!("{:.decimals$}%", self.0 * 100.0);
            if text.parse() == Ok(*self) {
                return f.write_str(&text);
            }
        }
        write!(f, "{:e}", self.0)
    }
}

/// Reads `name=value,name=value`: gives `set` the name and the value of each field, none twice; it
/// returns whether they are as expected.
pub fn parse_fields(
    text: &str,
    expected: &'static str,
    mut set: impl FnMut(&str, &str) -> Result<bool, ParseError>,
) -> Result<(), ParseError> {
    let error = || ParseError::new(text, expected);
    let mut seen: Vec<&str> = Vec::new();
    for field in text.split(',').filter(|_| !text.trim().is_empty()) {
        let (name, value) = field.split_once('=').ok_or_else(error)?;
        let name = name.trim();
        if seen.contains(&name) || !set(name, value.trim())? {
            return Err(error());
        }
        seen.push(name);
    }
    Ok(())
}

/// A non-negative finite number and what follows it, spaces between them removed; `None` if the text
/// does not begin with one.
///
/// An `e` after the digits belongs to the number only if an exponent follows it.
pub fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let bytes = text.as_bytes();
    let digits_from = |mut at: usize| {
        while bytes.get(at).is_some_and(|b| b.is_ascii_digit() || *b == b'.') {
            at += 1;
        }
        at
    };
    let mut end = digits_from(0);
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = end + 1 + sign;
        if bytes.get(exponent).is_some_and(u8::is_ascii_digit) {
            end = digits_from(exponent);
        }
    }
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then(|| (number, text[end..].trim_start()))
}

/// `value` rounded to an integer; `None` where a float no longer holds every integer.
fn integer(value: f64) -> Option<u64> {
    const EXACT: f64 = (1u64 << 53) as f64;
    (0.0..=EXACT).contains(&value).then(|| value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let bits = |text: &str| text.parse::<Rate>().map(Rate::bits_per_second);
        assert_eq!(bits("200M"), Ok(200_000_000));
        assert_eq!(bits("1.5G"), Ok(1_500_000_000));
        assert_eq!(bits("64 kbit/s"), Ok(64_000));
        assert_eq!(bits("10Mbps"), Ok(10_000_000));
        assert_eq!(bits("1e6"), Ok(1_000_000));
        assert_eq!(bits("9600"), Ok(9_600));
        for bad in ["", "M", "-1M", "0", "0.2", "1X", "200MB", "1e30", "inf", "nan", "1.2.3k"] {
            assert!(bits(bad).is_err(), "{bad}");
        }
        assert_eq!(
            bits("fast").unwrap_err().to_string(),
            "`fast` is not a rate in bits per second (write 200M, 1.5G or 64k)"
        );
        for text in ["200M", "1.5G", "64k", "999", "1.234567M", "1000G"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn probabilities() {
        let value = |text: &str| text.parse::<Probability>().map(Probability::value);
        assert_eq!(value("0.1%"), Ok(0.001));
        assert_eq!(value("0.001"), Ok(0.001));
        assert_eq!(value("1e-7"), Ok(1e-7));
        assert_eq!(value("100 %"), Ok(1.0));
        for bad in ["101%", "1.5", "-0.1", "5 ms", "", "%", "nan"] {
            assert!(value(bad).is_err(), "{bad}");
        }
        for text in ["0%", "0.1%", "7%", "12.5%", "100%", "0.000001%"] {
            assert_eq!(text.parse::<Probability>().unwrap().to_string(), text);
        }
        let third = Probability::new(1.0 / 3.0).unwrap();
        assert_eq!(third.to_string().parse(), Ok(third));
        assert!(Probability::new(f64::NAN).is_none());
    }

    #[test]
    fn durations_and_sizes() {
        assert_eq!(parse_duration("40ms"), Ok(Duration::from_millis(40)));
        assert_eq!(parse_duration("1.5 s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        for span in [Duration::from_micros(1_500), Duration::from_micros(7), Duration::from_secs(2)]
        {
            assert_eq!(parse_duration(&format!("{span:?}")), Ok(span));
        }
        for bad in ["40", "ms", "-1s", "1h", "1e300s", "3155760001s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_duration("3155760000s"), Ok(Duration::from_secs(3_155_760_000)));
        assert_eq!(parse_size("1500B"), Ok(1_500));
        assert_eq!(parse_size("64kB"), Ok(64_000));
        assert_eq!(parse_size("1 MiB"), Ok(1_048_576));
        for bad in ["1500", "B", "1e300B", "1 mB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bandwidth_delay_product() {
        let rate: Rate = "200M".parse().unwrap();
        assert_eq!(rate.bytes_within(Duration::from_millis(80)), 2_000_000);
        let fastest = Rate::from_bits_per_second(u64::MAX).unwrap();
        assert_eq!(fastest.bytes_within(Duration::MAX), u64::MAX);
    }
}
