//! `farhaul lab race`: its result, its files and its exit codes.

mod common;

use std::fs;
use std::path::Path;

use common::ran::{self, Ran};
use common::skip;
use serde_json::{Value, json};

fn race(directory: &Path, args: &[&str]) -> Ran {
    let args: Vec<&str> = ["race", "--runs", "1"].iter().chain(args).copied().collect();
    ran::farhaul(directory, "lab", &args)
}

fn document(ran: &Ran) -> Value {
    let document: Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.errors));
    document["outcomes"][0].clone()
}

const PATH: &str = "rate=10M,rtt=10ms";

#[test]
fn a_simulated_race_ends_in_a_page_a_picture_and_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = ["--sim", "--path", PATH, "--system", "bbr", "--system", "tcp:cubic", "--json"];
    let ran = race(folder.path(), &args);
    let outcome = document(&ran);
    let failed =
        outcome["checks"].as_array().expect("checks").iter().any(|c| c["verdict"] == "fail");
    assert_eq!(ran.code, Some(if failed { 4 } else { 0 }), "{}", ran.errors);
    let row = &outcome["tables"][0]["rows"][0];
    assert_eq!(row[0], json!({"text": PATH}));
    for column in [1, 2] {
        let goodput = row[column]["number"].as_f64().expect("a number");
        assert!((8.0..10.0).contains(&goodput), "{row}");
    }
    for file in ["race.html", "race.json", "race.svg", "race.png", "race.csv"] {
        assert!(folder.path().join("farhaul-lab").join(file).exists(), "{file}");
    }
    assert!(!folder.path().join("farhaul-lab/race-runs.json").exists());
    // The same again, to the last bit.
    let again = document(&race(folder.path(), &args));
    assert_eq!(again["tables"], outcome["tables"]);
}

#[test]
fn a_race_of_real_packets_measures_both_ends_and_the_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let probe = ran::farhaul(folder.path(), "wan", &["run", "--", "true"]);
    if probe.code == Some(125) {
        skip!("{}", probe.errors);
    }
    let ran = race(folder.path(), &["--path", PATH, "--system", "bbr", "--json"]);
    let outcome = document(&ran);
    assert!(outcome["title"].as_str().is_some_and(|title| title.contains("real packets")));
    let tables = outcome["tables"].as_array().expect("tables");
    let number = |table: &str| {
        let found = tables.iter().find(|one| one["title"] == table).expect(table);
        found["rows"][0][1]["number"].as_f64().unwrap_or_else(|| panic!("{table}: {found}"))
    };
    assert!((5.0..10.0).contains(&number("Goodput")), "{outcome}");
    assert!(number("Processor time of both ends") > 0.0);
    assert!(number("Most memory of an end") > 1.0);
    assert!(number("Mean time in the queue") > 0.0);
}

#[test]
fn runs_that_are_kept_are_not_done_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("farhaul-lab");
    fs::create_dir_all(&out).expect("a folder");
    let figures = json!({"goodput_bps": 1234567.0, "time_kept": true});
    let record = json!({"cell": PATH, "system": "bbr", "round": 0, "result": {"Ok": figures}});
    let keep = |ground: &str| {
        let kept = json!({"ground": ground, "records": [record]});
        fs::write(out.join("race-runs.json"), kept.to_string()).expect("a file");
    };
    keep("real packets between two kernels");
    let args = ["--path", PATH, "--system", "bbr", "--resume", "--json"];
    let outcome = document(&race(folder.path(), &args));
    assert_eq!(outcome["tables"][0]["rows"][0][1]["number"], 1.234567, "{outcome}");
    keep("simulated");
    assert_eq!(race(folder.path(), &args).code, Some(2), "runs of another race");
}

#[test]
fn what_is_no_race_is_bad_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    for args in [
        &["--path", "rate=1G"][..],
        &["--path", "rate=1G,rtt=1ms,colour=red"],
        &["--system", "nosuch"],
        &["--system", "tcp:"],
        &["--runs", "0"],
    ] {
        let args: Vec<&str> = ["race"].iter().chain(args).copied().collect();
        assert_eq!(ran::farhaul(folder.path(), "lab", &args).code, Some(2), "{args:?}");
    }
}
