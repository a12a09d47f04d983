//! What `farhaul cp` says it is limited by, with each limit made the narrowest in turn.

mod common;

use std::process::{Child, Command, Stdio};

use common::copying::{Scene, make_file};
use common::path::Path;
use common::server::{EXPORTS, Site};
use serde_json::Value;

/// A scene, or the test is skipped.
macro_rules! scene_or_skip {
    () => {
        match Scene::new() {
            Ok(scene) => scene,
            Err(why) => common::skip!("{why}"),
        }
    };
}

/// Wide enough not to matter.
const WIDE: Path = Path::new("300M", 2);

/// Copies a file of so many megabytes to the other side, this side and that below commands; what
/// was in the way.
fn limit(scene: &Scene, path: Path, size: u64, here: &[&str], there: &str, args: &[&str]) -> Value {
    make_file(&scene.path("file"), size << 20, 3);
    let relay = scene.relay(path);
    scene.far_behind(Some(relay.local_addr()), None, there);
    let (from, to) = (scene.here("file"), scene.there("copy"));
    let run = scene.start_below(here, &[&["--json", "--overwrite"], args, &[&from, &to]].concat());
    let report = run.finish_well().json();
    eprintln!("{report}");
    report
}

fn assert_limit(report: &Value, expected: &str) {
    assert_eq!(report["limited_by"], expected, "{report}");
}

#[test]
fn a_rate_that_was_set_is_named() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let report = limit(&scene, WIDE, 15, &[], "", &["--rate", "20M"]);
    assert_limit(&report, "sender rate limit");
}

#[test]
fn a_rate_that_the_server_has_set_is_named() {
    let _turn = common::turn();
    let site = Site::new(&format!("{EXPORTS}[limits]\nrate = \"16M\"\n"));
    let _server = site.serve();
    let big = site.path("here/big");
    make_file(&big, 10_000_000, 3);
    let (big, back) = (big.display().to_string(), site.path("here/back").display().to_string());
    for (from, to) in [(&big, &site.url("in/big")), (&site.url("in/big"), &back)] {
        let report = site.cp(&["--json", from, to]).well();
        let report = serde_json::from_str(&report).expect("a JSON document");
        assert_limit(&report, "sender rate limit");
    }
}

#[test]
fn a_narrow_path_is_named() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    assert_limit(&limit(&scene, Path::new("20M", 10), 20, &[], "", &[]), "network rate");
}

#[test]
fn losses_that_a_law_suffers_from_are_named() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let args = ["--cc", "reno", "--streams", "1"];
    let report = limit(&scene, Path::new("100M", 20).loss("2%"), 4, &[], "", &args);
    assert_limit(&report, "network loss");
}

#[test]
fn a_small_receive_memory_is_named() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let args = ["--receive-memory", "128KiB", "--streams", "1"];
    assert_limit(&limit(&scene, Path::new("200M", 50), 8, &[], "", &args), "receiver window");
}

/// A system call that takes so many µs more.
fn slowed(call: &str, micros: u32) -> Option<Vec<String>> {
    let inject = format!("inject={call}:delay_enter={micros}");
    let trace = format!("trace={call}");
    let words =
        ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let works = Command::new(words[0]).args(&words[1..]).arg("true").status();
    works.is_ok_and(|status| status.success()).then(|| words.map(str::to_owned).to_vec())
}

#[test]
fn slow_disks_are_named() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let (Some(reads), Some(writes)) = (slowed("pread64", 300_000), slowed("pwrite64", 300_000))
    else {
        common::skip!("there is no strace that may slow system calls down");
    };
    let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
    let report = limit(&scene, WIDE, 40, &reads, "", &["--streams", "2"]);
    assert_limit(&report, "source disk");
    let report = limit(&scene, WIDE, 40, &[], &writes.join(" "), &["--streams", "2"]);
    assert_limit(&report, "destination disk");
}

/// Keeps a processor busy until it is dropped.
struct Burning(Child);

impl Drop for Burning {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn processors_that_are_short_are_named() {
    // How a busy machine shares its processors is nothing that a test can rely on.
    if !common::long() {
        common::skip!("only with FARHAUL_LONG=1, on a quiet machine");
    }
    let _turn = common::turn();
    let scene = scene_or_skip!();
    // One of two processors is shared with somebody who has precedence.
    let (short, free) = (["taskset", "-c", "0", "nice", "-n", "7"], ["taskset", "-c", "1"]);
    let works = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg("true").stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !works(&short) || !works(&free) {
        common::skip!("there are no two processors to choose from, or no taskset");
    }
    let loops = ["-c", "0", "sh", "-c", "while :; do :; done"];
    let _burning = Burning(Command::new("taskset").args(loops).spawn().expect("taskset"));
    make_file(&scene.path("file"), 1_600 << 20, 3);
    for (here, there, expected) in
        [(&short[..], &free[..], "sender CPU"), (&free[..], &short[..], "receiver CPU")]
    {
        // No path but loopback: an emulated one takes processor time as well.
        scene.far(&[], &there.join(" "));
        let (from, to) = (scene.here("file"), scene.there("copy"));
        let run = scene.start_below(here, &["--json", "--overwrite", &from, &to]);
        assert_limit(&run.finish_well().json(), expected);
    }
}

#[test]
fn a_copy_that_is_too_short_to_tell_names_nothing() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let report = limit(&scene, WIDE, 0, &[], "", &[]);
    assert_eq!(report["limited_by"], Value::Null, "{report}");
}
