//! What is granted to a client.

use farhaul_base::names::suggestion;
use serde::Serialize;

use crate::config::value::{exact_rate, exact_size};
use crate::units;

/// What is granted to a client; what is none is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Bits per second, all its connections together.
    #[serde(rename = "rate_bits_per_second")]
    pub rate: Option<u64>,
    /// Sessions at a time, at least 1.
    pub connections: Option<u32>,
    /// Bytes a day of UTC, both directions together.
    pub bytes_per_day: Option<u64>,
    /// Bytes as long as the server runs, both directions together.
    pub bytes: Option<u64>,
    /// Entries that a session may announce: files, directories and links.
    pub entries: Option<u64>,
}

/// As they are written.
pub const KEYS: [&str; 5] = ["rate", "connections", "bytes-per-day", "bytes", "entries"];

impl Limits {
    /// Sets what `word` says, a KEY=VALUE.
    ///
    /// # Errors
    /// It is none, or the key has been set before.
    pub fn set(&mut self, word: &str) -> Result<(), String> {
        let (key, value) = word.split_once('=').ok_or("write KEY=VALUE, as rate=500M")?;
        let told = |why: String| format!("{key}: {why}");
        let twice = || format!("{key} is there twice");
        let size = || units::size(value).map_err(told);
        let before = match key {
            "rate" => self.rate.replace(units::rate_limit(value).map_err(told)?),
            "connections" => self.connections.replace(count(value).map_err(told)?).map(u64::from),
            "bytes-per-day" => self.bytes_per_day.replace(size()?),
            "bytes" => self.bytes.replace(size()?),
            "entries" => self.entries.replace(count(value).map_err(told)?.into()),
            _ => {
                return Err(format!(
                    "there is no limit '{key}'; {}",
                    suggestion(key, KEYS.into_iter())
                ));
            }
        };
        before.map_or(Ok(()), |_| Err(twice()))
    }

    /// As KEY=VALUE each, without those that are none.
    pub fn words(&self) -> Vec<String> {
        let values = [
            self.rate.map(exact_rate),
            self.connections.map(|count| count.to_string()),
            self.bytes_per_day.map(exact_size),
            self.bytes.map(exact_size),
            self.entries.map(|count| count.to_string()),
        ];
        let word = |(key, value): (&str, Option<String>)| Some(format!("{key}={}", value?));
        KEYS.into_iter().zip(values).filter_map(word).collect()
    }

    /// These, and where they are none those of `others`.
    pub fn or(&self, others: &Limits) -> Limits {
        Limits {
            rate: self.rate.or(others.rate),
            connections: self.connections.or(others.connections),
            bytes_per_day: self.bytes_per_day.or(others.bytes_per_day),
            bytes: self.bytes.or(others.bytes),
            entries: self.entries.or(others.entries),
        }
    }
}

/// A number from 1.
pub fn count(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "write a number from 1 on".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        let mut limits = Limits::default();
        for word in ["bytes=10TB", "rate=1.5G", "connections=3", "bytes-per-day=64MiB", "entries=7"]
        {
            limits.set(word).expect(word);
        }
        let words =
            ["rate=1.5G", "connections=3", "bytes-per-day=64MiB", "bytes=10TB", "entries=7"];
        assert_eq!(limits.words(), words);
        let wrong = [
            "rate",
            "rate=x",
            "rate=10",
            "connections=0",
            "bytes=-1",
            "byte=1",
            "rate=2G",
            "connections=x",
        ];
        for word in wrong {
            assert!(limits.clone().set(word).is_err(), "{word}");
        }
        assert!(limits.set("byte=1").is_err_and(|told| told.contains("'bytes'")));
    }

    #[test]
    fn own_limits_go_before_general_ones() {
        let own = Limits { rate: Some(1), ..Limits::default() };
        let general = Limits { rate: Some(2), bytes: Some(3), ..Limits::default() };
        assert_eq!(own.or(&general), Limits { rate: Some(1), bytes: Some(3), ..own });
    }
}
