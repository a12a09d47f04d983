//! All experiments.

use super::Experiment;

/// The files, in the order to present them.
const FILES: &[&str] = &[
    include_str!("../../experiments/gu-4-2.toml"),
    include_str!("../../experiments/gu-4-3.toml"),
    include_str!("../../experiments/gu-4-4.toml"),
    include_str!("../../experiments/gu-4-6.toml"),
    include_str!("../../experiments/gu-4-7.toml"),
    include_str!("../../experiments/gu-4-8.toml"),
    include_str!("../../experiments/gu-t4-1.toml"),
    include_str!("../../experiments/gu-t4-2.toml"),
    include_str!("../../experiments/gu-4-11.toml"),
    include_str!("../../experiments/gu-4-12.toml"),
    include_str!("../../experiments/gu-4-13.toml"),
    include_str!("../../experiments/gu-4-14.toml"),
    include_str!("../../experiments/gu-4-15.toml"),
    include_str!("../../experiments/gu-4-16.toml"),
    include_str!("../../experiments/gu-3-time.toml"),
    include_str!("../../experiments/gu-3-12.toml"),
    include_str!("../../experiments/gu-3-19.toml"),
    include_str!("../../experiments/gu-3-error.toml"),
    include_str!("../../experiments/trust-theory.toml"),
    include_str!("../../experiments/trust-ns3.toml"),
    include_str!("../../experiments/trust-relay.toml"),
    include_str!("../../experiments/default-law.toml"),
];

/// The experiments, in the order to present them.
///
/// # Panics
/// Never: a test reads all of them.
pub fn catalogue() -> Vec<Experiment> {
    let read = |text: &&str| Experiment::parse(text).expect("a test reads all files");
    FILES.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::number::significant;

    #[test]
    fn files_are_well_formed() {
        for text in FILES {
            let experiment = Experiment::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            experiment.check().unwrap_or_else(|error| panic!("{}: {error}", experiment.id));
            assert!(!experiment.shows.is_empty() && !experiment.source.is_empty());
        }
    }

    #[test]
    fn ids_are_used_once() {
        let mut ids: Vec<String> = catalogue().into_iter().map(|e| e.id).collect();
        ids.sort();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    }

    #[test]
    fn what_ns3_has_is_its_stored_results_to_four_digits() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/ns3/results.json");
        let stored: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let results = stored["results"].as_array().unwrap().iter();
        let results = results.filter(|result| result["artefact"].is_null());
        let stored: BTreeMap<String, String> = results
            .map(|result| {
                let bits = result["throughput_bps"]["mean"].as_f64().unwrap();
                (result["name"].as_str().unwrap().to_owned(), significant(bits / 1e6, 4))
            })
            .collect();
        let experiment = catalogue().into_iter().find(|e| e.id == "trust-ns3").unwrap();
        let tables = ["one", "several", "random"].map(|name| &experiment.published[name]);
        let published: BTreeMap<String, String> = tables
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), significant(*value, 4)))
            .collect();
        assert_eq!(published, stored);
    }
}
