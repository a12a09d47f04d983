//! Values of a sweep that are the same.
//!
//! Both would be run with the same seeds, and as measurements that they are not independent: the
//! interval of confidence would be too narrow.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use farhaul_link::{Probability, Rate, parse_duration, parse_size};

/// Up to here numbers are told apart by the digits that are compared.
const EXACT: u64 = 1 << 40;

/// For each value that there is before, its place and what the earlier one is called.
pub(super) fn duplicates<'a>(
    values: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = (usize, &'a str)> {
    let mut known: BTreeMap<String, &str> = BTreeMap::new();
    values.enumerate().filter_map(move |(place, value)| match known.entry(meaning(value)) {
        Entry::Vacant(new) => {
            new.insert(value);
            None
        }
        Entry::Occupied(earlier) => Some((place, *earlier.get())),
    })
}

/// What is wrong with `value` where `earlier` is before it.
pub(super) fn message(name: &str, value: &str, earlier: &str) -> String {
    if value == earlier {
        format!("'{name}' has the value '{value}' twice: more runs of each are 'seeds'")
    } else {
        format!("'{name}' has '{value}', which is '{earlier}' again")
    }
}

/// The same for texts that mean the same quantity, as `1%` and `0.01`.
fn meaning(text: &str) -> String {
    if text.parse::<u64>().is_ok_and(|number| number > EXACT) {
        return text.to_owned();
    }
    let number = || text.parse::<f64>().ok().filter(|number| number.is_finite());
    let share = || text.parse().ok().map(Probability::value);
    let rate = || text.parse().ok().map(|rate: Rate| rate.bits_per_second() as f64);
    let size = || parse_size(text).ok().map(|bytes| bytes as f64);
    // A rounding is no difference.
    if let Some(number) = number().or_else(share).or_else(rate).or_else(size) {
        format!("{number:.12e}")
    } else if let Ok(time) = parse_duration(text) {
        format!("{} ns", time.as_nanos())
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_the_same() {
        let found = |values: &[&'static str]| -> Vec<(usize, &str)> {
            duplicates(values.iter().copied()).collect()
        };
        assert_eq!(found(&["1%", "1%", "0.01"]), [(1, "1%"), (2, "1%")]);
        assert_eq!(found(&["0.7%", "7e-3", "0.007"]), [(1, "0.7%"), (2, "0.7%")]);
        assert_eq!(found(&["1ms", "1000us", "1s"]), [(1, "1ms")]);
        assert_eq!(found(&["1G", "1000M", "1000Mb/s"]), [(1, "1G"), (2, "1G")]);
        assert_eq!(found(&["1kB", "1000B", "1KiB"]), [(1, "1kB")]);
        assert_eq!(found(&["udt", "udt:noisy", "reno", "udt"]), [(3, "udt")]);
        assert!(found(&["1", "1s", "1ms", "1p", "10p", "none", "nan", "bdp"]).is_empty());
        assert!(found(&["18446744073709551614", "18446744073709551615"]).is_empty());
    }
}
