//! `farhaul sim`: its JSON, its exit codes, its files.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::ran::{self, Ran};
use serde_json::{Map, Value};

/// Runs `farhaul sim` in `directory`.
fn sim(directory: &Path, args: &[&str]) -> Ran {
    ran::farhaul(directory, "sim", args)
}

/// The JSON that it prints.
fn json(directory: &Path, args: &[&str]) -> Value {
    ran::json(directory, "sim", args)
}

/// A directory with two scenarios: `one.toml`, and `sweep.toml` with eight points.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let link =
        "[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"$rate\"\ndelay = \"5ms\"\nloss = \"$loss\"\n";
    let flows = "[[flow]]\nname = \"x\"\nfrom = \"a\"\nto = \"b\"\n\
        [[flow]]\nname = \"y\"\nfrom = \"a\"\nto = \"b\"\nprotocol = \"tcp-newreno\"\nbytes = 50000\n";
    let one = format!(
        "title = \"Two\"\nduration = \"2s\"\nsample = \"100ms\"\ntcp_friendliness = \"tcp-newreno\"\n\
         [set]\nrate = \"5M\"\nloss = \"none\"\n{link}{flows}"
    );
    let sweep = format!(
        "duration = \"1s\"\n[sweep]\nrate = [\"5M\", \"10M\"]\nloss = [\"none\", \"1%\"]\nseeds = 2\n{link}{flows}"
    );
    fs::write(directory.path().join("one.toml"), one).expect("a file");
    fs::write(directory.path().join("sweep.toml"), sweep).expect("a file");
    directory
}

fn object<'a>(value: &'a Value, keys: &[&str]) -> &'a Map<String, Value> {
    let object = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    for key in keys {
        assert!(object.contains_key(*key), "no '{key}' in {value}");
    }
    object
}

#[test]
fn the_json_of_a_run() {
    let directory = directory();
    let report = json(directory.path(), &["run", "one.toml", "--json", "--no-plot"]);
    object(&report, &["flows", "links", "indices", "events", "packets", "wall_seconds", "seed"]);
    object(&report, &["point", "values", "title", "duration_s", "sample_s", "measured_s"]);
    let flow = &report["flows"][0];
    let keys =
        ["name", "protocol", "cc", "start_s", "stop_s", "bytes", "throughput_bps", "loss_rate"];
    object(flow, &keys);
    object(&flow["rtt_ms"], &["min", "mean", "max"]);
    assert_eq!(flow["series"].as_array().map(Vec::len), Some(20));
    assert_eq!(
        (&flow["name"], &flow["protocol"], &flow["cc"]),
        (&"x".into(), &"udt".into(), &"udt".into())
    );
    assert_eq!(report["flows"][1]["bytes"], 50_000);
    object(&report["links"][0], &["name", "utilisation", "drops"]);
    object(&report["links"][0]["queue"], &["mean", "max"]);
    let indices = ["efficiency_bps", "jain", "stability", "tcp_friendliness"];
    object(&report["indices"], &indices);
    assert_eq!(report["seed"], 1);
}

#[test]
fn a_run_repeats_but_for_its_wall_time() {
    let directory = directory();
    let run = |seed| {
        let mut report =
            json(directory.path(), &["run", "one.toml", "--json", "--no-plot", "--seed", seed]);
        let wall = report.as_object_mut().expect("an object").remove("wall_seconds");
        assert!(wall.is_some_and(|wall| wall.as_f64().is_some_and(|wall| wall > 0.0)));
        report
    };
    assert_eq!(run("3"), run("3"));
    assert_eq!(run("4")["seed"], 4);
}

#[test]
fn points_gathered_are_the_table_of_the_sweep() {
    let directory = directory();
    let at = directory.path();
    let whole = json(at, &["run", "sweep.toml", "--json", "--no-plot"]);
    object(&whole, &["scenario", "points", "table"]);
    assert_eq!(whole["points"].as_array().map(Vec::len), Some(8));
    // In any order, some in one file.
    let mut files = [String::new(), String::new()];
    for point in (0..8).rev() {
        let number = point.to_string();
        let args = ["run", "sweep.toml", "--json", "--no-plot", "--jobs", "1", "--point", &number];
        let ended = sim(at, &args);
        assert_eq!(ended.code, Some(0), "{}", ended.errors);
        files[point % 2].push_str(&ended.out);
    }
    fs::write(at.join("even"), &files[0]).expect("a file");
    fs::write(at.join("odd"), &files[1]).expect("a file");
    let table = json(at, &["gather", "odd", "even", "--name", "sweep", "--json"]);
    assert_eq!(table, whole["table"]);
    assert_eq!(table["rows"].as_array().map(Vec::len), Some(4));
    let text = sim(at, &["gather", "odd", "even"]);
    assert!(text.out.contains("throughput"), "{}", text.out);
    // What is no result of such a run.
    let twice = sim(at, &["gather", "odd", "odd"]);
    assert_eq!(twice.code, Some(2), "{}", twice.errors);
    fs::write(at.join("other"), "{}").expect("a file");
    let other = sim(at, &["gather", "other"]);
    assert_eq!(other.code, Some(2));
    assert!(other.errors.contains("no result of"), "{}", other.errors);
    assert_eq!(sim(at, &["gather", "nowhere"]).code, Some(2));
    fs::write(at.join("empty"), "").expect("a file");
    let empty = sim(at, &["gather", "even", "empty"]);
    assert_eq!(empty.code, Some(2));
    assert!(empty.errors.contains("empty: no result of"), "{}", empty.errors);
}

#[test]
fn variables_and_lists_from_the_command_line() {
    let directory = directory();
    let at = directory.path();
    let sets = ["--set", "rate=2M", "--set", "loss=[none, 1%, 2%]"];
    let checked = json(at, &[&["check", "one.toml", "--json"][..], &sets].concat());
    assert_eq!((&checked["points"], &checked["variables"][0]), (&3.into(), &"loss".into()));
    let last = [&["run", "one.toml", "--json", "--no-plot", "--point", "2"][..], &sets].concat();
    let report = json(at, &last);
    assert_eq!(report["values"], serde_json::json!([["loss", "2%"]]));
    assert_eq!(report["links"][0]["rate_bps"], 2e6);
}

#[test]
fn what_is_checked() {
    let directory = directory();
    let ended = sim(directory.path(), &["check", "one.toml"]);
    assert_eq!((ended.code, &*ended.out), (Some(0), "one: 2 nodes, 2 links, 2 flows, 2 s\n"));
    let ended = sim(directory.path(), &["check", "sweep.toml"]);
    assert!(ended.out.ends_with("8 runs over rate, loss, 2 of each\n"), "{}", ended.out);
}

#[test]
fn a_law_that_there_is_not_is_one_mistake() {
    let directory = directory();
    let text = fs::read_to_string(directory.path().join("one.toml")).expect("a file");
    let flows = [
        "options = { packet_size = 1000 }\narrivals = 3\nprotocol = \"tcp-cubic\"",
        "options = { mss = 1000 }\nmessages = { size = 500 }",
    ];
    for flow in flows {
        let flow = format!("[[flow]]\nfrom = \"a\"\nto = \"b\"\n{flow}\ncc = \"none-such\"\n");
        fs::write(directory.path().join("law.toml"), format!("{text}{flow}")).expect("a file");
        let errors = sim(directory.path(), &["check", "law.toml"]).errors;
        assert!(errors.contains("none-such"), "{errors}");
        // That the file cannot be run, and why.
        assert_eq!(errors.lines().count(), 2, "{errors}");
    }
}

#[test]
fn exit_codes() {
    let directory = directory();
    let at = directory.path();
    fs::write(at.join("bad.toml"), "duration = \"1s\"\nlinks = 1\n").expect("a file");
    fs::write(at.join("binary.toml"), [0xff, 0xfe, 0, 1]).expect("a file");
    fs::write(at.join("endless.toml"), vec![b'\n'; (16 << 20) + 1]).expect("a file");
    fs::hard_link(at.join("one.toml"), at.join("hard")).expect("a link");
    std::os::unix::fs::symlink("one.toml", at.join("soft.svg")).expect("a link");
    let cases: [(&[&str], &str); 20] = [
        (&["run", "bad.toml"], "line 2: the scenario has no key 'links'; did you mean 'link'?"),
        (&["check", "bad.toml"], "line 2"),
        (&["run", "nowhere.toml"], "nowhere.toml"),
        (&["run", "binary.toml"], "binary.toml"),
        (&["run"], "FILE"),
        (&["run", "one.toml", "--set", "rate"], "NAME=VALUE"),
        (&["run", "one.toml", "--set", "rats=5M"], "did you mean 'rate'?"),
        (&["run", "one.toml", "--seed", "x"], "--seed"),
        (&["run", "sweep.toml", "--point", "8"], "the last one is 7"),
        (&["run", "one.toml", "--plot", "x.gif"], ".svg or a .png"),
        (&["run", "one.toml", "--plot", "x.svg", "--no-plot"], "cannot be used"),
        (&["run", "one.toml", "--jobs", "0"], "at least 1"),
        (&["fuzz", "--jobs", "0"], "at least 1"),
        (&["check", "endless.toml"], "a scenario has at most 16 MiB"),
        (&["run", "one.toml", "--trace", "x", "--pcap", "./x"], "cannot both be ./x"),
        (&["run", "one.toml", "--trace", "one.toml"], "the scenario and --trace cannot both"),
        (&["run", "one.toml", "--trace", "hard"], "the scenario and --trace cannot both be hard"),
        (&["run", "one.toml", "--plot", "soft.svg"], "the scenario and the plot cannot both be"),
        (&["run", "one.toml", "--trace", "x", "--trace-filter", "from=3s,to=2s"], "is shown from"),
        (&["run", "one.toml", "--trace", "one.svg"], "the plot and --trace cannot both"),
    ];
    for (args, text) in cases {
        let ended = sim(at, args);
        assert_eq!(ended.code, Some(2), "{args:?}: {}", ended.errors);
        assert!(ended.errors.contains(text), "{args:?}: {}", ended.errors);
        assert!(ended.out.is_empty(), "{args:?}: {}", ended.out);
    }
}

/// What cannot be written is found before anything is simulated, and nothing is left behind.
#[test]
fn files_are_tried_before_the_run() {
    let directory = directory();
    let at = directory.path();
    // Ten days are not simulated in a moment.
    let text = fs::read_to_string(at.join("one.toml")).expect("a file");
    let long = text.replace("duration = \"2s\"\nsample = \"100ms\"", "duration = \"900000s\"");
    fs::write(at.join("one.toml"), long).expect("a file");
    let cases: [&[&str]; 3] = [
        &["--plot", "none/x.svg"],
        &["--no-plot", "--trace", "none/x"],
        &["--no-plot", "--trace", "x", "--pcap", "none/x"],
    ];
    for options in cases {
        let ended = sim(at, &[&["run", "one.toml"], options].concat());
        assert_eq!(ended.code, Some(1), "{options:?}: {}", ended.errors);
        assert!(ended.errors.contains("cannot write none/x"), "{options:?}: {}", ended.errors);
    }
    assert!(!at.join("x").exists());
    fs::create_dir(at.join("one.svg")).expect("a directory");
    let ended = sim(at, &["run", "one.toml"]);
    assert!(ended.errors.contains("cannot write one.svg"), "{}", ended.errors);
}

#[test]
fn a_measurement_is_not_called_as_what_was_swept_over() {
    let directory = directory();
    let whole = json(directory.path(), &["run", "sweep.toml", "--json", "--no-plot"]);
    let columns = whole["table"]["columns"].as_array().expect("columns");
    let names: Vec<_> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
    assert_eq!(names[..3], ["rate", "loss", "throughput"]);
    assert_eq!(names.iter().filter(|name| **name == "loss").count(), 1, "{names:?}");
    assert!(names.contains(&"measured loss"), "{names:?}");
}

#[test]
fn a_flow_that_was_never_connected_is_told_of() {
    let directory = directory();
    let at = directory.path();
    let lost = ["run", "one.toml", "--no-plot", "--set", "loss=100%"];
    let shown = sim(at, &lost);
    assert_eq!(shown.code, Some(0), "{}", shown.errors);
    assert!(shown.out.lines().any(|line| line == "x: never connected"), "{}", shown.out);
    let report = json(at, &[&lost[..], &["--json"]].concat());
    assert_eq!(report["flows"][0]["ended"], "never connected");
    let sweep = sim(at, &["run", "sweep.toml", "--no-plot", "--set", "loss=[0%,100%]"]);
    assert!(
        sweep.out.contains("\npoint 2, x: never connected\npoint 3, x: never"),
        "{}",
        sweep.out
    );
    assert!(!sweep.out.contains("point 0"), "{}", sweep.out);
    let report = json(at, &["run", "one.toml", "--no-plot", "--json"]);
    assert!(report["flows"][0].get("ended").is_none(), "{report}");
}

/// TCP friendliness is of TCP beside UDT. Without UDT it has a value that says nothing.
#[test]
fn tcp_friendliness_without_udt() {
    let directory = directory();
    let at = directory.path();
    let note = "no flow is UDT";
    let with = sim(at, &["run", "one.toml", "--no-plot"]);
    assert!(with.out.contains("TCP friendliness") && !with.out.contains(note), "{}", with.out);
    let text = fs::read_to_string(at.join("one.toml")).expect("a file");
    let udt = "[[flow]]\nname = \"x\"\nfrom = \"a\"\nto = \"b\"\n";
    fs::write(at.join("one.toml"), text.replace(udt, "")).expect("a file");
    let without = sim(at, &["run", "one.toml", "--no-plot"]);
    assert!(without.out.contains("TCP friendliness 1.0000\nno flow is UDT"), "{}", without.out);
}

/// A flow has one name for what it runs, in the table and in JSON.
#[test]
fn the_protocol_in_the_table_is_that_of_the_json() {
    let directory = directory();
    let at = directory.path();
    let report = json(at, &["run", "one.toml", "--json", "--no-plot"]);
    assert_eq!(report["flows"][1]["protocol"], "tcp-reno");
    let shown = sim(at, &["run", "one.toml", "--no-plot"]).out;
    let row = shown.lines().find(|line| line.starts_with("y ")).expect("a row");
    assert_eq!(row.split_whitespace().nth(1), Some("tcp-reno"), "{shown}");
}

#[test]
fn plots() {
    let directory = directory();
    let at = directory.path();
    let ended = sim(at, &["run", "one.toml"]);
    assert!(ended.out.ends_with("plot: one.svg\n"), "{}", ended.out);
    assert!(fs::read_to_string(at.join("one.svg")).expect("a plot").starts_with("<svg"));
    let ended = sim(at, &["run", "sweep.toml", "--set", "rate=5M"]);
    assert!(ended.out.ends_with("plot: sweep.svg\n"), "{}", ended.out);
    let plot = fs::read_to_string(at.join("sweep.svg")).expect("a plot");
    assert!(plot.contains(">none</text>") && plot.contains(">1%</text>"), "{plot}");
    let ended = sim(at, &["run", "one.toml", "--set", "seeds=2"]);
    assert!(ended.errors.contains("no plot: the runs differ in their seeds"), "{}", ended.errors);
    sim(at, &["run", "sweep.toml", "--plot", "points.png", "--set", "loss=[0.1%,1%]"]);
    assert!(fs::read(at.join("points.png")).expect("a plot").starts_with(b"\x89PNG"));
    fs::remove_file(at.join("one.svg")).expect("a file");
    sim(at, &["run", "one.toml", "--no-plot"]);
    assert!(!at.join("one.svg").exists());
}

/// The table of a sweep, alone and gathered, and its plot.
#[test]
fn a_sweep_is_called_by_its_title() {
    let directory = directory();
    let at = directory.path();
    let text = fs::read_to_string(at.join("sweep.toml")).expect("a file");
    let titled = format!("title = \"Two at $rate over a link\"\n{text}");
    fs::write(at.join("sweep.toml"), titled).expect("a file");
    let whole = json(at, &["run", "sweep.toml", "--json"]);
    assert_eq!(whole["table"]["title"], "Two at … over a link");
    let plot = fs::read_to_string(at.join("sweep.svg")).expect("a plot");
    assert!(plot.contains(">Two at … over a link</text>"), "{plot}");
    let points = whole["points"].as_array().expect("points");
    let points: String = points.iter().map(|point| format!("{point}\n")).collect();
    fs::write(at.join("points"), points).expect("a file");
    assert_eq!(json(at, &["gather", "points", "--json"]), whole["table"]);
}

/// A file that cannot be written whole is not there; one that was there stays.
#[test]
fn a_full_disk_leaves_no_half_files() {
    let directory = directory();
    let at = directory.path();
    // No file may be longer than a block: as on a full disk, writing fails on the way.
    let limited = |args: &str| {
        let farhaul = env!("CARGO_BIN_EXE_farhaul");
        let command = format!("trap '' XFSZ; ulimit -f 1; exec {farhaul} sim {args}");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &command]).current_dir(at).output().expect("a shell")
    };
    let before = fs::read_dir(at).expect("a directory").count();
    let ended = limited("run one.toml");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{errors}");
    assert!(errors.contains("cannot write one.svg"), "{errors}");
    assert_eq!(limited("fuzz --write --seed 1 --runs 1").status.code(), Some(1));
    assert_eq!(fs::read_dir(at).expect("a directory").count(), before);
    fs::write(at.join("one.svg"), "kept").expect("a file");
    limited("run one.toml");
    assert_eq!(fs::read_to_string(at.join("one.svg")).expect("a file"), "kept");
}

#[test]
fn ready_made_scenarios_are_right() {
    let directory = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios"));
    let mut count = 0;
    for entry in fs::read_dir(&directory).expect("the directory") {
        let path = entry.expect("an entry").path();
        let checked = json(&directory, &["check", &path.display().to_string(), "--json"]);
        assert!(checked["points"].as_u64().is_some_and(|points| points > 0), "{checked}");
        count += 1;
    }
    assert!(count >= 10, "{count}");
}

#[test]
fn random_scenarios_can_be_repeated_and_written() {
    let directory = directory();
    let at = directory.path();
    let found = json(at, &["fuzz", "--runs", "5", "--seed", "3", "--json"]);
    assert_eq!((&found["runs"], found["failures"].as_array().map(Vec::len)), (&5.into(), Some(0)));
    assert_eq!(sim(at, &["fuzz", "--seed", "3", "--runs", "1", "--write"]).out, "./fuzz-3.toml\n");
    assert_eq!(sim(at, &["check", "fuzz-3.toml"]).code, Some(0));
}
