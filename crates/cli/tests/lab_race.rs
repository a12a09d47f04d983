//! `farhaul lab race`: its result, its files and its exit codes.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use common::process::{LIMIT, Process};
use common::ran::{self, Ran};
use common::skip;
use rustix::process::{Pid, Signal, kill_process};
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
        let cell = &found["rows"][0][1];
        // Where this machine was too slow for the path, the number is marked.
        let marked = || cell["text"].as_str()?.strip_suffix(" *")?.parse().ok();
        cell["number"].as_f64().or_else(marked).unwrap_or_else(|| panic!("{table}: {found}"))
    };
    assert!((5.0..10.0).contains(&number("Goodput")), "{outcome}");
    assert!(number("Processor time of both ends") > 0.0);
    assert!(number("Most memory of a process") > 1.0);
    assert!(number("Mean time in the queue") > 0.0);
}

/// The folders in memory of the race that is the process `id`.
fn folders(id: u32) -> Vec<PathBuf> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let entries = fs::read_dir(parent).expect("a folder").flatten();
    let own = |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with(&format!("farhaul-race-{id}-"))
    };
    entries.filter(own).map(|entry| entry.path()).collect()
}

/// A race that does not end soon, and its folder once it has what `name` says in it.
fn long_race(directory: &Path, args: &[&str], name: &str) -> (Process, PathBuf) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
    command.args(["lab", "race", "--runs", "100", "--system", "bbr"]).args(args);
    command.current_dir(directory);
    let race = Process::with_lines(command, "farhaul lab race".into(), LIMIT);
    let began = Instant::now();
    loop {
        let found = folders(race.id()).into_iter().find(|folder| folder.join(name).exists());
        if let Some(folder) = found {
            return (race, folder);
        }
        assert!(began.elapsed() < LIMIT, "no folder with {name}");
        std::thread::yield_now();
    }
}

fn signal(process: &Process, signal: Signal) {
    let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(id, signal).expect("it is there");
}

/// As `timeout` does, which signals its command, and then all of the group.
#[test]
fn a_race_that_is_interrupted_twice_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let probe = ran::farhaul(folder.path(), "wan", &["run", "--", "true"]);
    if probe.code == Some(125) {
        skip!("{}", probe.errors);
    }
    // Before a run and in the course of one: the path waits for the far side's port before the near side begins.
    for file in ["", "run/far-orders", "target-0"] {
        let (race, left) = long_race(folder.path(), &["--path", PATH], file);
        signal(&race, Signal::TERM);
        signal(&race, Signal::INT);
        let ended = race.finish();
        assert_eq!(ended.code, Some(130), "{ended:#?}");
        assert!(!left.exists(), "{}: {ended:#?}", left.display());
        let named = left.display().to_string();
        let processes = fs::read_dir("/proc").expect("/proc").flatten();
        let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let alive = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
        let alive: Vec<String> = alive.filter(|line| line.contains(&named)).collect();
        assert!(alive.is_empty(), "{alive:?}");
    }
}

#[test]
fn the_next_race_removes_what_a_killed_one_has_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let (killed, left) = long_race(folder.path(), &["--sim", "--path", "rate=1G,rtt=50ms"], "");
    signal(&killed, Signal::KILL);
    killed.finish();
    assert!(left.exists());
    let next = ["--sim", "--path", PATH, "--system", "bbr"];
    assert_ne!(race(folder.path(), &next).code, Some(2));
    assert!(!left.exists());
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
    keep("emulator");
    let args = ["--path", PATH, "--system", "bbr", "--resume", "--json"];
    let outcome = document(&race(folder.path(), &args));
    assert_eq!(outcome["tables"][0]["rows"][0][1]["number"], 1.234567, "{outcome}");
    keep("simulator");
    assert_eq!(race(folder.path(), &args).code, Some(2), "runs of another race");
    let args = [&args[..], &["--sim"]].concat();
    let outcome = document(&race(folder.path(), &args));
    assert_eq!(outcome["tables"][0]["rows"][0][1]["number"], 1.234567, "{outcome}");
}

#[test]
fn a_program_that_is_not_installed_is_told_and_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let description = r#"
        name = "other"
        needs = ["no-such-program"]
        install = "build it"
        near = "no-such-program {far} {port}"
        far = "no-such-program -l {port}"
        measured = { by = "output" }
    "#;
    fs::write(folder.path().join("other.toml"), description).expect("a file");
    let system = ["--system", "file:other.toml"];
    let alone = race(folder.path(), &[&system[..], &["--path", PATH]].concat());
    assert_eq!(alone.code, Some(2), "no system is left: {}", alone.errors);
    assert!(alone.errors.contains("no-such-program: build it"), "{}", alone.errors);
    let both =
        [&system[..], &["--system", "tcp:cubic", "--path", PATH, "--sim", "--json"]].concat();
    let outcome = document(&race(folder.path(), &both));
    let notes = outcome["notes"].as_array().expect("notes");
    assert!(notes.iter().any(|note| note.as_str().is_some_and(|n| n.contains("file:other.toml"))));
    assert_eq!(outcome["tables"][0]["columns"].as_array().map(Vec::len), Some(2));
}

/// The race over real packets, with a program that is described by a file: here, this one's own pipe.
#[test]
fn a_program_that_a_file_describes_takes_part() {
    let folder = tempfile::tempdir().expect("a folder");
    let probe = ran::farhaul(folder.path(), "wan", &["run", "--", "true"]);
    if probe.code == Some(125) {
        skip!("{}", probe.errors);
    }
    let description = r#"
        name = "pipe"
        near = "{farhaul} pipe {far}:{port}"
        far = "{farhaul} pipe --listen {far}:{port}"
        measured = { by = "output" }
    "#;
    fs::write(folder.path().join("pipe.toml"), description).expect("a file");
    let args = ["--system", "file:pipe.toml", "--path", PATH, "--json"];
    let outcome = document(&race(folder.path(), &args));
    // A run in which this machine was too slow has a text instead.
    let goodput = outcome["tables"][0]["rows"][0][1]["number"].as_f64();
    assert!(goodput.is_none_or(|mbps| (5.0..10.0).contains(&mbps)), "{outcome}");
    let failed = outcome["checks"].as_array().expect("checks");
    assert!(failed.iter().all(|check| check["what"] != "all runs"), "{outcome}");
}

#[test]
fn two_flows_share_a_simulated_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = "rate=10M,rtt=10ms,flows=2";
    let outcome = document(&race(
        folder.path(),
        &["--sim", "--path", path, "--system", "tcp:cubic", "--json"],
    ));
    let tables = outcome["tables"].as_array().expect("tables");
    let jain =
        tables.iter().find(|table| table["title"].as_str().is_some_and(|t| t.contains("Jain")));
    let jain = jain.expect("a table")["rows"][0][1]["number"].as_f64().expect("a number");
    assert!((0.5..=1.0).contains(&jain), "{jain}");
}

#[test]
fn paths_that_are_drawn_follow_from_the_seed_that_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = ["--sim", "--system", "file:none.toml", "--paths", "random:3:9", "--json"];
    // Nothing is simulated where no system is left.
    fs::write(
        folder.path().join("none.toml"),
        "name = \"none\"\nnear = \"x\"\nfar = \"x\"\nmeasured = { by = \"output\" }",
    )
    .expect("a file");
    let ran = race(folder.path(), &args);
    assert_eq!(ran.code, Some(2));
    assert!(ran.errors.contains("seed 9"), "{}", ran.errors);
}

/// So that the runs which are kept are of the same paths.
#[test]
fn a_race_that_is_resumed_draws_the_same_paths() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, _) = long_race(folder.path(), &["--sim", "--paths", "random:3"], "");
    let told = first.wait_error_line("drawn from seed ");
    let seed = told.rsplit(' ').next().expect("a seed").to_owned();
    let kept = folder.path().join("farhaul-lab/race-runs.json");
    let began = Instant::now();
    while !kept.exists() {
        assert!(began.elapsed() < LIMIT, "no run is kept");
        std::thread::yield_now();
    }
    first.interrupt();
    let ended = first.finish();
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    let how = format!("--paths random:3:{seed} --runs 100 --sim --resume");
    assert!(ended.errors.iter().any(|line| line.contains(&how)), "{how}: {ended:#?}");
    // Where no system is left nothing is simulated.
    let args = ["--sim", "--system", "scp", "--paths", "random:3"];
    let resumed = race(folder.path(), &[&args[..], &["--resume"]].concat());
    assert!(resumed.errors.contains(&format!("seed {seed}\n")), "{seed}: {}", resumed.errors);
    // Without --resume they are others.
    let fresh = race(folder.path(), &args);
    assert!(!fresh.errors.contains(&format!("seed {seed}\n")), "{seed}: {}", fresh.errors);
}

#[test]
fn paths_of_kept_runs_that_were_not_drawn_are_not_drawn_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("farhaul-lab");
    fs::create_dir_all(&out).expect("a folder");
    let kept = json!({"ground": "simulator", "records": []});
    fs::write(out.join("race-runs.json"), kept.to_string()).expect("a file");
    let args = ["--sim", "--system", "bbr", "--paths", "random:3", "--resume"];
    assert_eq!(race(folder.path(), &args).code, Some(2));
}

#[test]
fn an_end_accounts_for_all_processes_below_it() {
    let folder = tempfile::tempdir().expect("a folder");
    // The busy process is an orphan when its parent ends.
    let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let orders = json!({
        "commands": [
            {"text": "head -c 300000 /dev/zero", "counts": true, "stays": false},
            {"text": format!("sh -c '{busy}' & printf said; exit 3"), "counts": false, "stays": false},
        ],
        "limit_s": 30.0,
        "account": folder.path().join("account"),
    });
    fs::write(folder.path().join("orders"), orders.to_string()).expect("a file");
    let ran = ran::farhaul(folder.path(), "lab", &["side", "orders"]);
    assert_eq!(ran.code, Some(0), "{}", ran.errors);
    let account = fs::read(folder.path().join("account")).expect("an account");
    let account: Value = serde_json::from_slice(&account).expect("JSON");
    let counted = account["ran"][0]["arrived"].as_array().expect("what arrived");
    assert_eq!(counted.last().expect("a point")[1], 300_000, "{account}");
    assert_eq!(account["ran"][1]["code"], 3);
    assert_eq!(account["ran"][1]["output"], "said");
    assert!(account["cpu_s"].as_f64().is_some_and(|cpu| cpu > 0.01), "{account}");
    assert!(account["peak_rss_bytes"].as_u64().is_some_and(|bytes| bytes > 500_000), "{account}");
}

#[test]
fn what_is_no_race_is_bad_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    for args in [
        &["--path", "rate=1G"][..],
        &["--path", "rate=1G,rtt=1ms,colour=red"],
        &["--system", "nosuch"],
        &["--system", "tcp:"],
        &["--system", "file:/no/such.toml"],
        &["--paths", "random:0"],
        &["--path", "rate=1G,rtt=1ms,against=nosuch"],
        &["--path", "rate=1G,rtt=10ms,rtt=5ms"],
        &["--path", "rate=1G,rtt=1ms,burst=5"],
        &["--path", "rate=1G,rtt=1ms,blackout=100s+1s"],
        &["--system", "cp:nosuch"],
        &["--runs", "0"],
    ] {
        let args: Vec<&str> = ["race"].iter().chain(args).copied().collect();
        assert_eq!(ran::farhaul(folder.path(), "lab", &args).code, Some(2), "{args:?}");
    }
}
