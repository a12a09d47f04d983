//! A run is a function of its scenario: the same every time, on every machine, and the same as when
//! the hashes in `hashes.txt` were stored.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it reads scenarios and hashes from files"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farhaul_sim::{Plan, Scenario, TraceHash};

/// No run is longer, in simulated time or in packets, so that all of them take seconds.
const LONGEST: Duration = Duration::from_secs(5);
const MOST_PACKETS: u64 = 100_000;
/// A run ends at the first of these at which it has so many packets.
const STEP: Duration = Duration::from_millis(20);
/// Set to 1, stores the hashes instead of comparing them.
const UPDATE: &str = "FARHAUL_UPDATE_HASHES";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The beginning of a scenario.
fn shortened(scenario: Scenario) -> Scenario {
    let duration = scenario.duration.min(LONGEST);
    let (measure, sample) = ((Duration::ZERO, duration), STEP.min(duration));
    Scenario { duration, measure, sample, friendliness: None, ..scenario }
}

/// How many events there are, and their hash.
fn hash(scenario: &Scenario) -> String {
    let mut run = scenario.start();
    let hash = Arc::new(Mutex::new(TraceHash::default()));
    run.simulation_mut().observe(Box::new(Arc::clone(&hash)));
    while run.step() && run.simulation_mut().packets() < MOST_PACKETS {}
    let hash = hash.lock().expect("no panic");
    format!("{:016x} {} events", hash.value(), hash.events())
}

/// The first and the last point of every scenario of the repository, by name.
fn hashes() -> BTreeMap<String, String> {
    let mut hashes = BTreeMap::new();
    let folders = ["../../scenarios", "tests/scenarios"];
    let entries = folders.map(|folder| fs::read_dir(here(folder)).expect("a folder of scenarios"));
    for entry in entries.into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a scenario");
        let plan = Plan::parse(&text, &[], None)
            .unwrap_or_else(|problems| panic!("{}: {problems}", path.display()));
        for number in [0, plan.points() - 1] {
            let point = format!("{name} point {number}");
            if hashes.contains_key(&point) {
                continue;
            }
            let scenario = shortened(plan.point(number).expect("a point of the plan").scenario);
            let once = hash(&scenario);
            assert_eq!(hash(&scenario), once, "{point} was another run the second time");
            hashes.insert(point, once);
        }
    }
    assert!(!hashes.is_empty());
    hashes
}

#[test]
fn runs_repeat_and_are_as_stored() {
    let path = here("tests/hashes.txt");
    let lines = |hashes: BTreeMap<String, String>| -> String {
        hashes.iter().map(|(point, hash)| format!("{point}: {hash}\n")).collect()
    };
    let now = lines(hashes());
    if std::env::var_os(UPDATE).is_some_and(|value| value == "1") {
        fs::write(&path, now).expect("hashes can be stored");
        return;
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        now == stored,
        "Runs are not what they were.\n\nstored:\n{stored}\nnow:\n{now}\n\
         If protocol, laws, links, scenarios or the simulator were to change what they do, store \
         these with\n\n    {UPDATE}=1 cargo test -p farhaul-sim --test repeat\n\nand say in the \
         commit what changed, for stored results no longer hold either. If only something was \
         meant to be faster, tidier or added, it has changed what it should not: mend it. If the \
         hashes differ on this machine only, a run depends on the machine: mend that."
    );
}
