//! Values of scenarios as numbers.

use farhaul_link::{Probability, Rate, parse_duration, parse_size};

/// The number that a value of a scenario means, in base units; none if it means none.
pub fn number(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return Some(number);
    }
    let probability = text.parse::<Probability>().ok().map(Probability::value);
    let duration = || parse_duration(text).ok().map(|d| d.as_secs_f64());
    let rate = || text.parse::<Rate>().ok().map(|r| r.bits_per_second() as f64);
    let size = || parse_size(text).ok().map(|bytes| bytes as f64);
    let packets = || text.strip_suffix('p')?.parse().ok();
    probability.or_else(duration).or_else(rate).or_else(size).or_else(packets)
}

/// The base unit of a value of a scenario; empty for plain numbers, shares and what is no number.
pub fn unit(text: &str) -> &'static str {
    if text.parse::<f64>().is_ok() || number(text).is_none() {
        ""
    } else if parse_duration(text).is_ok() {
        "s"
    } else if text.parse::<Rate>().is_ok() {
        "b/s"
    } else if text.ends_with('p') {
        "packets"
    } else if parse_size(text).is_ok() {
        "B"
    } else {
        ""
    }
}

/// A value of a scenario as people read it: `10 ms` for `10ms`, `1 Gb/s` for `1G`, `10 packets` for
/// `10p`. What is no number is as it is.
pub fn shown(text: &str) -> String {
    let unit = unit(text);
    let end = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
    let (digits, letters) = text.split_at(end);
    match unit {
        "" => text.to_owned(),
        "packets" => format!("{digits} packets"),
        "b/s" if !letters.contains("b") => format!("{digits} {letters}b/s"),
        "s" if letters == "us" => format!("{digits} µs"),
        _ => format!("{digits} {letters}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        let cases = [("3", 3.0, ""), ("1e-4", 1e-4, ""), ("0.1%", 0.001, ""), ("10ms", 0.01, "s")];
        for (text, value, base) in cases {
            assert_eq!((number(text), unit(text)), (Some(value), base), "{text}");
        }
        assert_eq!((number("1.5G"), unit("1.5G")), (Some(1.5e9), "b/s"));
        assert_eq!((number("64kB"), unit("64kB")), (Some(64e3), "B"));
        assert_eq!((number("100p"), unit("100p")), (Some(100.0), "packets"));
        let cases =
            [("10ms", "10 ms"), ("10us", "10 µs"), ("1.5G", "1.5 Gb/s"), ("10p", "10 packets")];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected);
        }
        for text in ["3", "1e-4", "0.1%", "udt", "red:limit=bdp", ""] {
            assert_eq!(shown(text), text);
        }
        for text in ["udt", "bdp", "droptail", ""] {
            assert_eq!((number(text), unit(text)), (None, ""), "{text}");
        }
    }
}
