//! The demonstration in small: real processes over the loopback interface.
//!
//! Time serves only to give up.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A place for one test: where trees are made, and where results go.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory for the test");
        fs::create_dir(dir.path().join("tmp")).expect("an empty directory");
        Place { dir }
    }

    fn tmp(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    /// `farhaul demo` on a quick path.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        command.arg("demo").arg("--out").arg(self.out()).args(arguments);
        command.env("TMPDIR", self.tmp()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("farhaul can be started")
    }

    /// The document of a run that must succeed.
    fn report(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[&["--json", "--quiet"], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?}: {errors}", output.status);
        serde_json::from_slice(&output.stdout).expect("a JSON document")
    }

    fn left_over(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.tmp()).expect("the directory is there");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

const SMALL: [&str; 6] = ["--size", "3MB", "--rate", "100M", "--delay", "5ms"];

#[test]
fn a_small_tree_is_moved_and_verified() {
    let place = Place::new();
    let report = place.report(&[&SMALL[..], &["--no-tcp"]].concat());
    assert_eq!(report["verified"], true);
    assert_eq!(report["comparison"]["different"], 0);
    assert_eq!(report["comparison"]["files"], report["tree"]["files"]);
    assert_eq!(report["comparison"]["bytes"], report["tree"]["bytes"]);
    assert_eq!(report["tree"]["data_bytes"], 3_000_000);
    assert_eq!(report["path"]["bits_per_second"], 100_000_000);
    assert_eq!(report["path"]["rtt_ms"], 10.0);
    assert_eq!(report["path"]["loss"], "0.1%");
    let farhaul = &report["farhaul"];
    assert_eq!((&farhaul["cc"], &farhaul["complete"]), (&"bbr".into(), &true.into()));
    // File systems keep holes in blocks of their own.
    assert!(farhaul["bytes"].as_u64().unwrap() >= 3_000_000, "{farhaul}");
    let rate = farhaul["bits_per_second"].as_f64().unwrap();
    assert!(0.0 < rate && rate < 100e6, "{rate}");
    assert!(farhaul["packets_sent"].as_u64().unwrap() > 2_000, "{farhaul}");
    let through = farhaul["series"].as_array().unwrap().last().unwrap()["bytes"].as_u64().unwrap();
    assert!(through > 3_000_000, "the path has carried the data and its headers: {through}");
    assert_eq!((&report["tcp"], &report["kept"]), (&Value::Array(vec![]), &Value::Null));
    let plot = fs::read_to_string(report["plot"].as_str().unwrap()).unwrap();
    assert!(plot.contains("farhaul (bbr)") && plot.contains("line rate"), "{plot}");
    let csv = fs::read_to_string(report["csv"].as_str().unwrap()).unwrap();
    assert!(csv.starts_with("run,start_s,") && csv.lines().count() > 1, "{csv}");
    assert!(Path::new(report["plot"].as_str().unwrap()).starts_with(place.out()));
    assert_eq!(place.left_over(), [] as [PathBuf; 0]);
}

#[test]
fn the_kernels_tcp_takes_an_equivalent_path() {
    let place = Place::new();
    let tcp = ["--tcp-cc", "reno"];
    let report = place.report(&[&SMALL[..], &tcp].concat());
    let reasons: Vec<&str> = report["tcp_not_compared"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reason| reason.as_str().unwrap())
        .collect();
    let runs = report["tcp"].as_array().unwrap();
    let [run] = runs.as_slice() else {
        assert_eq!((runs.len(), reasons.len()), (0, 1), "{reasons:?}");
        eprintln!("skipped: {}", reasons[0]);
        return;
    };
    assert_eq!(reasons, [""; 0]);
    assert_eq!((&run["cc"], &run["overflowed"]), (&"reno".into(), &0.into()));
    let bytes = run["bytes"].as_u64().unwrap();
    assert!(bytes > 0 && run["packets_sent"].as_u64().unwrap() > 0, "{run}");
    if run["complete"] == true {
        assert_eq!(run["bytes"], report["farhaul"]["bytes"]);
    }
    let through = run["series"].as_array().unwrap().last().unwrap()["bytes"].as_u64().unwrap();
    assert!(through >= bytes, "{through} of {bytes}");
    let plot = fs::read_to_string(report["plot"].as_str().unwrap()).unwrap();
    assert!(plot.contains("kernel TCP (reno)"), "{plot}");
}

#[test]
fn a_person_is_told_and_may_keep_the_trees() {
    let place = Place::new();
    let output = place.run(&[&SMALL[..], &["--no-tcp", "--keep", "--cc", "udt:noisy"]].concat());
    let (text, progress) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{progress}");
    for part in
        ["100 Mb/s, RTT 10 ms, loss 0.1% each way", "farhaul (udt:noisy)", "noisy: ", "verified: "]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains(&format!("plot: {}", place.out().join("throughput.svg").display())));
    assert!(progress.contains("moving it with udt:noisy"), "{progress}");
    let kept = place.left_over();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(text.contains(&format!("trees: {}", kept[0].display())), "{text}");
    assert!(kept[0].join("tree/big/1.bin").is_file());
    assert!(kept[0].join("received/tree/links/to nowhere").is_symlink());
}

#[test]
fn bad_usage_is_said() {
    let place = Place::new();
    fs::write(place.out(), "no directory").unwrap();
    let cases: [(&[&str], &str); 11] = [
        (&["--size", "10kB"], "1.00 MB or more"),
        (&["--queue", "long"], "not a queue"),
        (&["--cc", "nosuch"], "no congestion control law"),
        (&["--no-tcp", "--tcp-cc", "cubic"], "cannot be used with"),
        (&["--loss", "100%"], "nothing could arrive over a path that loses 100% of all packets"),
        (&["--loss", "50%"], "below 50%"),
        (&["--back-loss", "every:1"], "nothing could arrive"),
        (&["--loss", "ber:1e-3"], "nothing could arrive"),
        (&["--corrupt", "100%"], "damages 100% of all packets"),
        (&["--rate", "1k"], "nothing could arrive over a path with a rate of 1kbit/s"),
        (&[], "out: "),
    ];
    for (arguments, said) in cases {
        let output = place.run(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(said), "{said} in {text}");
    }
    assert_eq!(place.left_over(), [] as [PathBuf; 0]);
}

#[test]
fn a_congestion_control_that_the_kernel_lacks_is_bad_usage() {
    let place = Place::new();
    let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let Ok(offered) = fs::read_to_string(file) else {
        common::skip!("the kernel does not tell in {file}");
    };
    let offered = offered.split_whitespace().collect::<Vec<_>>().join(", ");
    // Every kernel has Reno.
    let output = place.run(&["--tcp-cc", "reno,nosuch"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    let said = format!("the kernel has no TCP congestion control 'nosuch'; it has {offered}");
    assert!(text.contains(&said), "{said} in {text}");
    assert!(output.stdout.is_empty() && !text.contains("making a tree"), "{text}");
}

/// Ctrl-C in the middle of the transfer: nothing is left, neither files nor processes.
#[test]
fn an_interruption_leaves_nothing() {
    let place = Place::new();
    let slow = ["--size", "50MB", "--rate", "1M", "--no-tcp"];
    let mut demo = place.command(&slow).stderr(Stdio::piped()).spawn().unwrap();
    let mut progress = BufReader::new(demo.stderr.take().unwrap());
    wait_for_child(&mut demo, &mut progress, "send");
    let kill = Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let status = demo.wait().unwrap();
    let mut rest = String::new();
    progress.read_to_string(&mut rest).unwrap();
    assert_eq!(status.code(), Some(130), "{rest}");
    assert!(rest.contains("interrupted"), "{rest}");
    assert_eq!(place.left_over(), [] as [PathBuf; 0]);
    assert_eq!(processes_with(&place.tmp()), [] as [String; 0]);
}

/// Waits until the demonstration has started the command `name`.
fn wait_for_child(demo: &mut Child, progress: &mut impl BufRead, name: &str) {
    let mut line = String::new();
    while !line.contains("moving it") {
        line.clear();
        assert!(progress.read_line(&mut line).expect("text") > 0, "the demonstration has ended");
    }
    let children = format!("/proc/{0}/task/{0}/children", demo.id());
    loop {
        assert!(demo.try_wait().expect("a child").is_none(), "the demonstration has ended");
        let pids = fs::read_to_string(&children).unwrap_or_default();
        let is_there = |pid: &str| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(1) == Some(name.as_bytes())
        };
        if pids.split_whitespace().any(is_there) {
            return;
        }
        std::thread::yield_now();
    }
}

/// The command lines of all processes that name `path`.
fn processes_with(path: &Path) -> Vec<String> {
    let line = |entry: fs::DirEntry| {
        let text = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&text).replace('\0', " ")
    };
    let all = fs::read_dir("/proc").expect("a mounted /proc").map_while(Result::ok).map(line);
    all.filter(|line| line.contains(&path.display().to_string())).collect()
}
