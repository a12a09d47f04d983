//! Counters and gauges, and their text in the form of OpenMetrics 1.0.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Series of one family that are kept apart; more are counted together under the label `other`.
const MOST_SERIES: usize = 4096;
/// What stands for labels beyond that.
const OTHER: &str = "other";

/// Metrics of one name, which differ in their labels.
#[derive(Debug)]
pub struct Family {
    /// Without `_total` and `_info`; it ends with the unit if there is one.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its unit, or empty.
    pub unit: &'static str,
    /// What it tells, in one sentence.
    pub help: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
}

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Only its labels tell something.
    Info,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        }
    }
}

/// One metric with its labels. Counting takes no lock.
#[derive(Clone, Debug)]
pub struct Value(Arc<AtomicU64>);

impl Value {
    /// Counts `amount` more.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Counts `amount` less, down to zero; for gauges.
    pub fn subtract(&self, amount: u64) {
        let less = |value: u64| Some(value.saturating_sub(amount));
        // The closure always gives a value.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Sets it; for gauges and infos.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// What it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts one more until what is returned goes; for gauges.
    pub fn hold(&self) -> Held {
        self.add(1);
        Held(self.clone())
    }
}

/// One that is counted as long as this is there.
#[derive(Debug)]
pub struct Held(Value);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.subtract(1);
    }
}

type Series = BTreeMap<Vec<String>, Value>;

/// All metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    families: Vec<(&'static Family, Mutex<Series>)>,
}

impl Metrics {
    /// Of these families, with nothing counted.
    pub fn new(families: &[&'static Family]) -> Self {
        let families = families.iter().map(|family| (*family, Mutex::default())).collect();
        Metrics { families }
    }

    /// The metric of `family` with these values of its labels, in their order. Of one that is not
    /// among the families, or with another number of labels, what is counted is not told.
    pub fn value(&self, family: &Family, labels: &[&str]) -> Value {
        let nobodys = || Value(Arc::default());
        let known = self.families.iter().find(|(known, _)| known.name == family.name);
        let Some((family, series)) = known else {
            debug_assert!(false, "{} is no family", family.name);
            return nobodys();
        };
        if labels.len() != family.labels.len() {
            debug_assert!(false, "{} has other labels", family.name);
            return nobodys();
        }
        let mut series = series.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        if series.len() >= MOST_SERIES && !series.contains_key(&key) {
            key = vec![OTHER.to_owned(); labels.len()];
        }
        series.entry(key).or_insert_with(nobodys).clone()
    }

    /// The sum of all metrics of `family`.
    pub fn sum(&self, family: &Family) -> u64 {
        let known = self.families.iter().find(|(known, _)| known.name == family.name);
        known.map_or(0, |(_, series)| {
            let series = series.lock().unwrap_or_else(PoisonError::into_inner);
            series.values().fold(0, |sum: u64, value| sum.saturating_add(value.get()))
        })
    }

    /// As OpenMetrics has it. A family without labels is there from the beginning.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (family, series) in &self.families {
            let Family { name, kind, unit, help, labels } = family;
            // Writing to a text does not fail.
            let _ = writeln!(text, "# TYPE {name} {}", kind.name());
            if !unit.is_empty() {
                let _ = writeln!(text, "# UNIT {name} {unit}");
            }
            let _ = writeln!(text, "# HELP {name} {}", escaped(help));
            let series = series.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if series.is_empty() && labels.is_empty() {
                let _ = writeln!(text, "{name}{} 0", kind.suffix());
            }
            for (values, value) in &series {
                let _ = write!(text, "{name}{}", kind.suffix());
                for (index, (label, value)) in labels.iter().zip(values).enumerate() {
                    let before = if index == 0 { '{' } else { ',' };
                    let _ = write!(text, "{before}{label}=\"{}\"", escaped(value));
                }
                let after = if labels.is_empty() { "" } else { "}" };
                let _ = writeln!(text, "{after} {}", value.get());
            }
        }
        text + "# EOF\n"
    }
}

/// With the three characters escaped that texts of OpenMetrics may not have as they are.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::families::FAMILIES;
    use super::*;

    const PLAIN: Family =
        Family { name: "plain", kind: Kind::Counter, unit: "", help: "A \\ b.", labels: &[] };
    const BYTES: Family = Family {
        name: "in_bytes",
        kind: Kind::Counter,
        unit: "bytes",
        help: "In.",
        labels: &["client", "export"],
    };
    const NOW: Family =
        Family { name: "now", kind: Kind::Gauge, unit: "", help: "Now.", labels: &["client"] };
    const BUILD: Family =
        Family { name: "build", kind: Kind::Info, unit: "", help: "It.", labels: &["version"] };

    #[test]
    fn the_text_is_as_the_form_wants_it() {
        let metrics = Metrics::new(&[&PLAIN, &BYTES, &NOW, &BUILD]);
        metrics.value(&BYTES, &["b", "x"]).add(5);
        metrics.value(&BYTES, &["a\"\\\n", "x"]).add(7);
        metrics.value(&BYTES, &["b", "x"]).add(1);
        let held = metrics.value(&NOW, &["a"]).hold();
        drop(metrics.value(&NOW, &["a"]).hold());
        metrics.value(&NOW, &["b"]).subtract(3);
        metrics.value(&BUILD, &["0.1"]).set(1);
        let expected = "\
            # TYPE plain counter\n\
            # HELP plain A \\\\ b.\n\
            plain_total 0\n\
            # TYPE in_bytes counter\n\
            # UNIT in_bytes bytes\n\
            # HELP in_bytes In.\n\
            in_bytes_total{client=\"a\\\"\\\\\\n\",export=\"x\"} 7\n\
            in_bytes_total{client=\"b\",export=\"x\"} 6\n\
            # TYPE now gauge\n\
            # HELP now Now.\n\
            now{client=\"a\"} 1\n\
            now{client=\"b\"} 0\n\
            # TYPE build info\n\
            # HELP build It.\n\
            build_info{version=\"0.1\"} 1\n\
            # EOF\n";
        assert_eq!(metrics.text(), expected);
        drop(held);
        assert_eq!((metrics.sum(&NOW), metrics.sum(&BYTES)), (0, 13));
    }

    #[test]
    fn series_are_bounded() {
        let metrics = Metrics::new(&[&NOW]);
        for nth in 0..MOST_SERIES + 10 {
            metrics.value(&NOW, &[&nth.to_string()]).add(1);
        }
        metrics.value(&NOW, &["7"]).add(1);
        let text = metrics.text();
        assert_eq!(text.lines().count(), MOST_SERIES + 4);
        assert!(text.contains("now{client=\"other\"} 10\n") && text.contains("=\"7\"} 2\n"));
    }

    #[test]
    fn families_are_named_as_the_form_wants_it() {
        for family in FAMILIES {
            let Family { name, unit, help, .. } = family;
            let fits = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.starts_with("farhaul_") && name.chars().all(fits), "{name}");
            assert!(unit.is_empty() || name.ends_with(&format!("_{unit}")), "{name}");
            assert!(!name.ends_with("_total") && !name.ends_with("_info"), "{name}");
            assert!(help.ends_with('.'), "{name}");
            let same = FAMILIES.iter().filter(|other| other.name == *name).count();
            assert_eq!(same, 1, "{name}");
        }
    }
}
