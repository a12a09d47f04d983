//! Quantities as people write them: `200M`, `64MiB`, `80ms`.

use std::time::Duration;

/// Bits per second with SI prefixes: `800M`, `1G`, `2.5Gb/s`.
pub fn rate(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches("b/s").trim_end_matches("bit/s").trim_end_matches("bps");
    let (value, unit) = split(number)?;
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return Err(format!("unknown unit '{unit}' of a rate; write 200M or 1.5G (bits/s)")),
    };
    whole(value * factor)
}

/// Bytes with SI or IEC prefixes: `100MB`, `64MiB`, `4k`.
pub fn size(text: &str) -> Result<u64, String> {
    let (value, unit) = split(text)?;
    let unit = unit.strip_suffix('B').unwrap_or(unit);
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        _ => return Err(format!("unknown unit '{unit}' of a size; write 100MB or 64MiB")),
    };
    whole(value * factor)
}

/// Time with its unit: `10ms`, `2s`, `1.5m`; a bare number is seconds.
pub fn time(text: &str) -> Result<Duration, String> {
    let (value, unit) = split(text)?;
    let seconds = match unit {
        "ns" => value / 1e9,
        "us" | "µs" => value / 1e6,
        "ms" => value / 1e3,
        "" | "s" => value,
        "m" | "min" => value * 60.0,
        "h" => value * 3600.0,
        _ => return Err(format!("unknown unit '{unit}' of a time; write 10ms or 2s")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let value = text[..end].parse().map_err(|_| format!("'{text}' does not begin with a number"))?;
    Ok((value, text[end..].trim()))
}

fn whole(value: f64) -> Result<u64, String> {
    if value.is_finite() && value < u64::MAX as f64 {
        Ok(value.round() as u64)
    } else {
        Err("the number is too large".into())
    }
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
        assert_eq!(size("100 MB"), Ok(100_000_000));
        assert_eq!(time("80ms"), Ok(Duration::from_millis(80)));
        assert_eq!(time("2"), Ok(Duration::from_secs(2)));
        assert!(rate("fast").unwrap_err().contains("does not begin with a number"));
        assert!(size("3 parsecs").unwrap_err().contains("unknown unit"));
        assert!(time("1e400s").is_err());
    }

    #[test]
    fn quantities_print() {
        assert_eq!(show_rate(9.43e9), "9.43 Gb/s");
        assert_eq!(show_size(999), "999 B");
        assert_eq!(show_time(Duration::from_micros(1500)), "1.500 ms");
        assert_eq!(show_time(Duration::from_secs(75)), "1m15s");
    }
}
