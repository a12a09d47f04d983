//! Quantities as people write them: `200M`, `64MiB`, `80ms`.

use std::time::Duration;

use farhaul_link::{Rate, parse_duration, parse_size};

/// Bits per second: `800M`, `1G`, `2.5Gb/s`, `500Mbit`, `500Mb`; bytes a second only with `B/s`: `50MB/s`.
pub fn rate(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let known = |text: &str| text.parse::<Rate>().map(Rate::bits_per_second);
    let bytes = text.strip_suffix("/s").filter(|rest| rest.ends_with('B'));
    if let Some(bits) =
        bytes.and_then(|bytes| size(bytes).ok()?.checked_mul(8)).filter(|bits| *bits > 0)
    {
        return Ok(bits);
    }
    let short = text.strip_suffix("bit").or_else(|| text.strip_suffix('b'));
    known(short.unwrap_or(text)).or_else(|_| known(text)).map_err(|error| error.to_string())
}

/// A limit on a rate, bits per second, which is not below what a transfer can keep to.
pub fn rate_limit(text: &str) -> Result<u64, String> {
    let least = farhaul_mover::transfer::pace::LEAST_RATE;
    match rate(text)? {
        rate if rate < least => Err(format!(
            "`{text}` is {} and the least is {}: rates are bits per second (500M, 80k)",
            show_rate(rate as f64),
            show_rate(least as f64)
        )),
        rate => Ok(rate),
    }
}

/// Bytes with SI or IEC prefixes: `100MB`, `64MiB`, `4k`, `1500`.
pub fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let full = if text.ends_with('B') { text.to_owned() } else { format!("{text}B") };
    parse_size(&full)
        .map_err(|_| format!("`{text}` is not a size in bytes (write 1500, 64kB or 1MiB)"))
}

/// Time with its unit: `10ms`, `2s`; a bare number is seconds.
pub fn time(text: &str) -> Result<Duration, String> {
    let bare = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let full = if bare { format!("{text}s") } else { text.to_owned() };
    parse_duration(&full).map_err(|e| e.to_string())
}

/// Time with its unit, without which only 0 is one, as in the other options about a path: `10ms`, `2s`.
pub fn time_with_unit(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|e| e.to_string())
}

/// What a generator of random numbers begins with.
pub fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number from 0 to {}", u64::MAX))
}

/// `9.43 Gb/s`.
pub fn show_rate(bits_per_second: f64) -> String {
    format!("{}b/s", si(bits_per_second))
}

/// `1.25 GB`.
pub fn show_size(bytes: u64) -> String {
    format!("{}B", si(bytes as f64))
}

/// `80.3 ms`.
pub fn show_time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 3600.0 {
        format!("{}h{:02}m", time.as_secs() / 3600, time.as_secs() / 60 % 60)
    } else if seconds >= 60.0 {
        format!("{}m{:02}s", time.as_secs() / 60, time.as_secs() % 60)
    } else if seconds >= 1.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.3} ms", seconds * 1e3)
    }
}

fn si(value: f64) -> String {
    let (scaled, prefix) = match value {
        v if v >= 1e12 => (v / 1e12, "T"),
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => return format!("{v:.0} "),
    };
    format!("{scaled:.2} {prefix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse() {
        assert_eq!(rate("200M"), Ok(200_000_000));
        assert_eq!(rate("1.5Gb/s"), Ok(1_500_000_000));
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("100MB"), Ok(100_000_000));
        assert_eq!(time("80ms"), Ok(Duration::from_millis(80)));
        assert_eq!(time("2"), Ok(Duration::from_secs(2)));
        assert_eq!(size("4kB"), Ok(4000));
        assert_eq!(size("1500"), Ok(1500));
        assert_eq!(rate_limit("8k"), Ok(8000));
        assert!(rate_limit("7999").is_err() && rate_limit("fast").is_err());
        assert!(rate("fast").unwrap_err().contains("`fast` is not a rate"));
        assert!(size("3 parsecs").unwrap_err().contains("not a size"));
        assert!(time("1e400s").is_err());
        assert_eq!(time_with_unit("0"), Ok(Duration::ZERO));
        assert!(time_with_unit("5").is_err() && time_with_unit("-1ms").is_err());
        assert_eq!(seed("18446744073709551615"), Ok(u64::MAX));
        assert!(seed("x").is_err() && seed("-1").is_err() && seed("18446744073709551616").is_err());
    }

    #[test]
    fn quantities_print() {
        assert_eq!(show_rate(9.43e9), "9.43 Gb/s");
        assert_eq!(show_size(999), "999 B");
        assert_eq!(show_time(Duration::from_micros(1500)), "1.500 ms");
        assert_eq!(show_time(Duration::from_secs(75)), "1m15s");
    }
}
