//! `farhaul sim run` with traces and captures.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::capture::fields;
use common::process::{Ended, Process};
use common::skip;
use tempfile::TempDir;

/// A UDT flow with losses, a TCP flow and one of constant rate through a router.
const SCENARIO: &str = r#"
duration = "2s"
[[link]]
name = "access"
from = "left"
to = "router"
rate = "100M"
delay = "1ms"
[[link]]
name = "bottleneck"
from = "router"
to = "right"
rate = "10M"
delay = "10ms"
loss = "1%"
[[flow]]
from = "left"
to = "right"
bytes = "300kB"
[[flow]]
from = "left"
to = "right"
protocol = "tcp-newreno"
bytes = "300kB"
[[flow]]
from = "right"
to = "left"
protocol = "cbr"
rate = "100k"
"#;

const SWEEP: &str = r#"
duration = "1s"
[sweep]
rate = ["1M", "2M"]
[[link]]
from = "left"
to = "right"
rate = "$rate"
[[flow]]
from = "left"
to = "right"
"#;

/// A folder with the scenario, and the scenario's path.
fn folder(scenario: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("scenario.toml");
    fs::write(&path, scenario).expect("a file");
    (folder, path)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Runs a scenario with `options` and without a plot.
fn run(scenario: &Path, options: &[&str]) -> Ended {
    let args = [&["sim", "run", text(scenario), "--no-plot"], options].concat();
    Process::farhaul(&args).finish()
}

fn refused(scenario: &Path, options: &[&str], expected: &str) {
    let ended = run(scenario, options);
    assert_eq!(ended.code, Some(2), "{options:?}: {ended:#?}");
    assert!(ended.errors.iter().any(|line| line.contains(expected)), "{options:?}: {ended:#?}");
    assert!(ended.lines.is_empty(), "{options:?}: {ended:#?}");
}

#[test]
fn wrong_options_are_refused_before_anything_is_written() {
    let (folder, scenario) = folder(SCENARIO);
    let file = folder.path().join("out");
    let out = text(&file);
    let filter = |filter, expected| {
        refused(&scenario, &["--trace", out, "--trace-filter", filter], expected);
    };
    filter("flow=udt-2", "no flow 'udt-2'; did you mean 'udt-1'?");
    filter("link=uplink", "there are access, access-back, bottleneck, bottleneck-back");
    filter("color=red", "no key 'color'; there are event, kind, protocol, flow");
    filter("event", "write key=value");
    refused(&scenario, &["--trace-filter", "event=drop"], "--trace");
    refused(&scenario, &["--pcap-at", "left"], "--pcap");
    refused(&scenario, &["--pcap", out, "--pcap-at", "lfet"], "did you mean 'left'?");
    refused(&scenario, &["--pcap", out, "--snaplen", "0"], "snaplen");
    refused(&scenario, &["--trace", "-", "--json"], "standard output");
    refused(&scenario, &["--trace", "-", "--pcap", "-"], "standard output");
    assert!(!file.exists());
}

#[test]
fn a_sweep_is_traced_point_by_point() {
    let (folder, scenario) = folder(SWEEP);
    let file = folder.path().join("out");
    let out = text(&file);
    refused(&scenario, &["--trace", out], "choose one with --point N");
    refused(&scenario, &["--pcap", out], "these are 2");
    let ended = run(&scenario, &["--trace", out, "--point", "1"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(fs::read_to_string(&file).expect("a trace").contains(" udt 1500 data "));
}

/// The result is the one without a trace.
#[test]
fn a_trace_goes_to_a_file_and_changes_nothing() {
    let (folder, scenario) = folder(SCENARIO);
    let file = folder.path().join("out");
    let report = |options: &[&str]| {
        let mut report = run(&scenario, &[options, &["--json"]].concat()).json();
        let map = report.as_object_mut().expect("a report");
        map.remove("wall_seconds").expect("the time it took");
        report
    };
    let traced = report(&["--trace", text(&file)]);
    assert_eq!(traced, report(&[]));
    let trace = fs::read_to_string(&file).expect("a trace");
    let count = |word: &str| trace.lines().filter(|line| line.contains(word)).count() as u64;
    assert_eq!(traced["packets"], count(" send "));
    let drops = traced["links"].as_array().expect("links").iter();
    assert_eq!(
        drops.map(|link| link["drops"].as_u64().expect("drops")).sum::<u64>(),
        count(" drop-")
    );
    assert!(count(" drop-loss bottleneck udt-1 > udt 1500 data ") > 0);
}

#[test]
fn a_trace_on_standard_output_has_it_to_itself() {
    let (_folder, scenario) = folder(SCENARIO);
    let filter = "flow=udt-1,kind=nak,event=send|receive,from=100ms,to=1s";
    let ended = run(&scenario, &["--trace", "-", "--trace-filter", filter]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(!ended.lines.is_empty());
    for line in &ended.lines {
        let [time, event, place, flow, direction, protocol, bytes, kind, ..] =
            line.split(' ').collect::<Vec<_>>()[..]
        else {
            panic!("{line}");
        };
        let time: f64 = time.parse().expect("seconds");
        assert!((0.1..1.0).contains(&time), "{line}");
        assert!([("send", "right"), ("receive", "left")].contains(&(event, place)), "{line}");
        assert_eq!((flow, direction, protocol, kind), ("udt-1", "<", "udt", "nak"), "{line}");
        assert!(bytes.parse::<u32>().is_ok_and(|bytes| bytes >= 48), "{line}");
    }
    assert!(ended.errors.iter().any(|line| line.contains("efficiency")), "{ended:#?}");
}

#[test]
fn a_reader_that_goes_away_ends_the_trace_quietly() {
    let (_folder, scenario) = folder(SCENARIO);
    let mut process = Command::new(env!("CARGO_BIN_EXE_farhaul"))
        .args(["sim", "run", text(&scenario), "--no-plot", "--trace", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let mut stdout = BufReader::new(process.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("a line");
    assert!(line.starts_with("0.000000000 send left udt-1 > udt 92 handshake hello "), "{line}");
    drop(stdout);
    let mut errors = String::new();
    let mut stderr = process.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut errors).expect("text");
    let status = process.wait().expect("it ends");
    assert!(status.success() && errors.is_empty(), "{status}: {errors}");
}

#[test]
fn a_full_disk_is_an_error() {
    let (_folder, scenario) = folder(SCENARIO);
    for option in ["--trace", "--pcap"] {
        let ended = run(&scenario, &[option, "/dev/full"]);
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        assert!(ended.errors[0].contains("cannot write /dev/full"), "{ended:#?}");
    }
}

#[test]
fn tshark_reads_captures() {
    let (folder, scenario) = folder(SCENARIO);
    let file = folder.path().join("left.pcap");
    assert_eq!(run(&scenario, &["--pcap", text(&file)]).code, Some(0));
    let names = [
        "frame.protocols",
        "ip.checksum.status",
        "_ws.malformed",
        "ip.src",
        "ip.dst",
        "udt.type",
        "udt.seqno",
        "tcp.flags.str",
        "frame.len",
        "frame.cap_len",
        "frame.time_epoch",
    ];
    let options = ["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"];
    let frames = match fields(&file, &names, &options) {
        Ok(frames) => frames,
        Err(why) => skip!("{why}"),
    };
    let of = |index: usize, value: &str| frames.iter().filter(|f| f[index] == value).count();
    assert_eq!(of(1, "1"), frames.len(), "good IPv4 checksums");
    assert_eq!(of(2, ""), frames.len(), "none is malformed");
    assert!(frames.iter().all(|frame| frame[9].parse::<u32>().expect("a length") <= 96));
    let udt: Vec<_> = frames.iter().filter(|frame| frame[0].contains("udp:udt")).collect();
    let types: Vec<&str> = udt.iter().map(|frame| frame[5].as_str()).collect();
    let count = |wanted: u32| {
        let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        types.iter().filter(|text| number(text) == Some(wanted)).count()
    };
    assert!(count(0) >= 4, "handshakes: {types:?}");
    assert!(count(2) > 10 && count(3) > 0 && count(6) > 10, "ACK, NAK, ACK2: {types:?}");
    assert!(count(5) > 0, "shutdown");
    let data = udt.iter().filter(|frame| !frame[6].is_empty() && frame[8] == "1500");
    assert!(data.clone().count() > 200);
    assert!(data.clone().all(|f| (&*f[3], &*f[4], &*f[9]) == ("10.0.0.0", "10.0.0.1", "96")));
    // Both directions of the others too.
    let flags = |part: &str| frames.iter().filter(|frame| frame[7].contains(part)).count();
    assert_eq!((flags("S"), flags("F") > 0), (2, true));
    assert!(of(3, "10.0.0.4") > 10);
    // The answer to the first handshake, at the sender's: after 22 ms and what it takes to send.
    let answer = udt.iter().find(|frame| frame[3] == "10.0.0.1").expect("an answer");
    let at: f64 = answer[10].parse().expect("seconds");
    assert!((0.022..0.023).contains(&at), "{at}");

    // Whole packets, at another node: what the lossy link has lost does not get there.
    let whole = folder.path().join("right.pcap");
    let options = ["--pcap", text(&whole), "--pcap-at", "right", "--snaplen", "65535"];
    assert_eq!(run(&scenario, &options).code, Some(0));
    let names = ["frame.len", "frame.cap_len", "tcp.checksum.status", "udt.seqno"];
    let checked = ["-o", "tcp.check_checksum:TRUE"];
    let right = fields(&whole, &names, &checked).expect("it has run before");
    assert!(right.iter().all(|frame| frame[0] == frame[1]));
    assert!(right.iter().all(|frame| ["", "1"].contains(&&*frame[2])), "TCP's checksums");
    let arrived = right.iter().filter(|frame| frame[0] == "1500" && !frame[3].is_empty()).count();
    assert!(arrived < data.count(), "{arrived}");
}
