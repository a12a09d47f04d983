//! What `farhaul` says and returns when it cannot do what is asked, and the keys of its reports.

mod common;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::process::{Ended, Process};
use common::{free_addresses, skip};

fn run(args: &[&str]) -> Ended {
    Process::farhaul(args).finish()
}

fn expect(args: &[&str], code: i32, text: &str) {
    let ended = run(args);
    assert_eq!(ended.code, Some(code), "{args:?}: {ended:#?}");
    assert!(ended.errors.iter().any(|line| line.contains(text)), "{args:?}: {ended:#?}");
    assert!(ended.lines.is_empty(), "{args:?}: {ended:#?}");
}

#[test]
fn laws_are_listed() {
    let ended = run(&["cc", "list"]);
    let text = ended.lines.join("\n");
    for law in ["bbr (the default): ", "haul: ", "udt: ", "hstcp: ", "gtp: ", "copa: "] {
        assert!(text.contains(law), "{law}: {text}");
    }
    assert!(text.contains("low_window=38"), "{text}");
    let ended = run(&["cc", "list", "blast", "udt4", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&ended.lines.join("\n")).expect("JSON");
    assert_eq!(listed["default"], "bbr");
    let names: Vec<_> = listed["laws"].as_array().unwrap().iter().map(|l| &l["name"]).collect();
    assert_eq!(names, ["udt4", "blast"]);
    let rate = &listed["laws"][1]["parameters"][0];
    assert_eq!((&rate["key"], &rate["kind"]), (&"rate".into(), &"rate".into()));
    assert_eq!((&rate["default"], &rate["unit"]), (&"100M".into(), &"b/s".into()));
    expect(&["cc", "list", "hstpc"], 2, "did you mean 'hstcp'?");
    expect(&["pipe", "--cc", "hstcp:low_windo=4", "127.0.0.1:9"], 2, "did you mean 'low_window'?");
}

#[test]
fn every_command_with_a_connection_takes_a_law() {
    for args in [
        &["perf", "127.0.0.1:9"][..],
        &["pipe", "127.0.0.1:9"],
        &["send", "x", "127.0.0.1:9"],
        &["recv"],
    ] {
        let help = run(&[args[0], "--help"]).lines.join("\n");
        assert!(help.contains("--cc") && help.contains("farhaul cc list"), "{args:?}: {help}");
        expect(&[args, &["--cc", "cubik"]].concat(), 2, "cubic");
    }
}

#[test]
fn both_ends_choose_a_law_that_the_receiver_has_part_in() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (into, file) = (path("into"), path("file"));
    let recv = ["recv", "--listen", "127.0.0.1:0", "--once", "--into", &into, "--cc", "gtp"];
    let listener = Process::farhaul(&recv);
    let addr = listener.listening_at().to_string();
    fs::write(&file, vec![7; 300_000]).expect("a file");
    Process::farhaul(&["send", "--quiet", &file, &addr, "--cc", "gtp"]).finish_well();
    listener.finish_well();
    assert_eq!(fs::read(path("into/file")).expect("it came").len(), 300_000);
}

#[test]
fn bad_usage() {
    expect(&["pipe"], 2, "HOST:PORT");
    expect(&["pipe", "--listen", "127.0.0.1:0", "127.0.0.1:9"], 2, "cannot be used");
    expect(&["pipe", "--rendezvous", "127.0.0.1:9"], 2, "--bind");
    expect(&["pipe", "--ordered", "127.0.0.1:9"], 2, "--message");
    expect(&["pipe", "--ttl", "20ms", "127.0.0.1:9"], 2, "--message");
    expect(&["pipe", "--message", "--ttl", "soon", "127.0.0.1:9"], 2, "soon");
    expect(&["pipe", "nowhere"], 2, "nowhere");
    expect(&["pipe", "127.0.0.1:70000"], 2, "70000");
    expect(&["pipe", "--mss", "20", "127.0.0.1:9"], 2, "mss");
    expect(&["pipe", "--mss", "70000", "127.0.0.1:9"], 2, "mss");
    expect(&["pipe", "--receive-memory", "1kB", "127.0.0.1:9"], 2, "receive_memory");
    expect(&["pipe", "--cc", "none-such", "127.0.0.1:9"], 2, "none-such");
    expect(&["pipe", "--max-bandwidth", "fast", "127.0.0.1:9"], 2, "fast");
    expect(&["pipe", "--bind", "here", "127.0.0.1:9"], 2, "here");
    expect(&["perf", "--interval", "0s", "127.0.0.1:9"], 2, "interval");
    expect(&["perf", "--sink", "--source", "127.0.0.1:9"], 2, "cannot be used");
    expect(&["perf", "127.0.0.1:9", "--once"], 2, "cannot be used");
    expect(&["perf", "--listen", ":0", "--bind", "127.0.0.1:0"], 2, "cannot be used");
    expect(&["perf", "127.0.0.1:0"], 2, "nobody listens at port 0");
    for protocol in ["udt", "tcp"] {
        let args = ["perf", "127.0.0.1:9", "--protocol", protocol, "--bind", "[::1]:0"];
        expect(&args, 2, "one is IPv4, the other IPv6");
        let args = ["perf", "127.0.0.1:9", "--protocol", protocol, "--bind", "127.0.0.1:7"];
        expect(&args, 2, "several connections");
    }
    expect(&["wan", "relay", "--listen", "127.0.0.1:0"], 2, "--to");
    for listen in ["127.0.0.1:9000", "0.0.0.0:9000", "[::ffff:127.0.0.1]:9000"] {
        let args = ["wan", "relay", "--listen", listen, "--to", "127.0.0.1:9000"];
        expect(&args, 2, "would send to itself");
    }
    let pair = "127.0.0.1:9000=127.0.0.1:9000";
    expect(&["wan", "relay", "--between", pair, ":1=:2"], 2, "would send to itself");
    expect(&["wan", "relay", "--listen", ":0", "--to", "127.0.0.1:0"], 2, "nobody listens");
    let path = |option, text| ["wan", "relay", "--listen", ":0", "--to", ":9", option, text];
    expect(&path("--reorder", "5%:0"), 2, "leaves the order as it is");
    expect(&path("--queue", "red:min=5,max=5"), 2, "max must be above min");
    expect(&path("--rate-changes", "1s:5M"), 2, "--rate");
    expect(&path("--blackout", "1s+0s"), 2, "longer than 0 s");
    expect(&path("--blackout", "1s+2s/2s"), 2, "end before it comes again");
    expect(&["wan", "relay", "--between", "a", "b"], 2, "LISTEN=PEER");
    expect(&["wan", "relay", "--listen", ":0", "--to", ":9", "--rate", "slow"], 2, "slow");
    expect(&["nonsense"], 2, "nonsense");
}

#[test]
fn the_version_is_that_of_the_command() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
    let output = command.arg("--version").output().expect("farhaul can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, format!("farhaul {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_name_that_nobody_has_is_no_bad_usage() {
    // Never given to anybody (RFC 6761).
    expect(&["perf", "farhaul.invalid:9"], 1, "cannot find the address of 'farhaul.invalid'");
    expect(&["perf", "256.1.1.1:9"], 2, "'256.1.1.1:9' is not an address");
}

/// Nobody listens there: what is told was known before anybody was called.
#[test]
fn sources_are_checked_before_anybody_is_called() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let path = |name: &str| dir.path().join(name).display().to_string();
    fs::create_dir_all(path("a/same")).expect("a directory");
    fs::create_dir_all(path("b")).expect("a directory");
    fs::write(path("b/same"), "").expect("a file");
    let [addr] = free_addresses("127.0.0.1").map(|addr| addr.to_string());
    expect(&["send", "/", &addr], 2, "has no name to arrive under");
    expect(&["send", &path("a/.."), &addr], 2, "has no name to arrive under");
    expect(&["send", &path("nowhere"), &addr], 2, "nowhere");
    expect(&["send", &path("b/same/"), &addr], 2, "Not a directory");
    expect(&["send", &path("a/same"), &path("b/same"), &addr], 2, "would both arrive as");
    expect(&["send", &path("a/."), &path("b/."), &addr], 2, "would both arrive as");
}

#[test]
fn unreadable_sources_are_told_before_anybody_is_called() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the owner may");
    };
    let (file, sub) = (dir.path().join("file"), dir.path().join("directory"));
    fs::write(&file, "secret").expect("a file");
    fs::create_dir(&sub).expect("a directory");
    mode(&file, 0);
    mode(&sub, 0);
    mode(dir.path(), 0o755);
    let [addr] = free_addresses("127.0.0.1").map(|addr| addr.to_string());
    for source in [&file, &sub] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        command.arg("send").arg(source).arg(&addr);
        if fs::read_dir(&sub).is_ok() {
            // Nothing is unreadable for root, so it is somebody else who sends.
            command.uid(65_534);
        }
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => skip!("farhaul cannot be run by another user: {error}"),
        };
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("Permission denied"), "{text}");
    }
}

#[test]
fn nobody_listens() {
    let [addr] = free_addresses("127.0.0.1").map(|addr| addr.to_string());
    let args = ["pipe", &addr, "--connect-timeout", "300ms"];
    expect(&args, 1, &format!("cannot connect to {addr}: no answer from the peer"));
    let args = ["perf", &addr, "--connect-timeout", "300ms", "--json"];
    expect(&args, 1, &format!("cannot connect to {addr}"));
    let [here] = free_addresses("127.0.0.1").map(|addr| addr.to_string());
    let args = ["pipe", "--rendezvous", "--bind", &here, &addr, "--connect-timeout", "300ms"];
    expect(&args, 1, &format!("cannot connect to {addr}"));
}

#[test]
fn the_peer_refuses() {
    let streams = Process::farhaul(&["pipe", "--listen", "127.0.0.1:0"]);
    expect(&["pipe", "--message", &streams.listening_at().to_string()], 3, "messages");
    let messages = Process::farhaul(&["pipe", "--message", "--listen", "127.0.0.1:0"]);
    expect(&["pipe", &messages.listening_at().to_string()], 3, "messages");
}

#[test]
fn the_port_is_taken() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let addr = socket.local_addr().expect("a bound socket").to_string();
    expect(&["pipe", "--listen", &addr], 1, &format!("cannot listen at {addr}"));
}

#[test]
fn a_report_that_cannot_be_printed_does_not_hide_that_the_transfer_failed() {
    // A file that has no size but contents fails, and the rest is sent.
    let hiding = Path::new("/proc/self/status");
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        skip!("no /dev/full");
    };
    if fs::metadata(hiding).map_or(true, |meta| meta.len() > 0) {
        skip!("no procfs");
    }
    let into = tempfile::tempdir().expect("a directory");
    let into = into.path().display().to_string();
    let receiver =
        Process::farhaul(&["recv", "--listen", "127.0.0.1:0", "--into", &into, "--once"]);
    let addr = receiver.listening_at().to_string();
    let mut sender = Command::new(env!("CARGO_BIN_EXE_farhaul"));
    sender.args(["send", "--json", "/proc/self/status", &addr]).stdout(full);
    let output = sender.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("could not be moved"), "{errors}");
    receiver.finish();
}

/// What `farhaul` with these arguments returns and says, with `out` as its standard output.
fn printing_to(out: impl Into<Stdio>, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
    let output = command.args(args).stdout(out).output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn standard_output_that_takes_nothing() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/one-flow.toml");
    for args in [&["lab", "list"][..], &["lab", "list", "--json"], &["sim", "check", scenario]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(printing_to(writer, args), (Some(0), String::new()), "{args:?}");
        let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
            skip!("no /dev/full");
        };
        let (code, errors) = printing_to(full, args);
        assert_eq!(code, Some(1), "{args:?}: {errors}");
        assert!(errors.starts_with("farhaul: cannot write to standard output: "), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

/// As of a supervisor that has gone: what was to be said is lost, and the exit code says what it is to say.
#[test]
fn standard_error_that_is_closed() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
    let status = command.args(["sim", "run", "/dev/null"]).stderr(writer).status();
    assert_eq!(status.expect("it starts").code(), Some(2));
}

#[test]
fn keys_of_the_perf_report() {
    let args = ["perf", "--listen", "127.0.0.1:0", "--once", "--json"];
    let listener = Process::farhaul(&args);
    let addr = listener.listening_at().to_string();
    let args = ["perf", &addr, "-t", "1", "-i", "0.2", "-P", "2", "--json"];
    let report = Process::farhaul(&args).finish_well().json();
    let theirs = listener.finish_well().json();

    assert_eq!(report["protocol"], "udt");
    assert_eq!(report["cc"], "bbr");
    assert_eq!(report["streams"], 2);
    assert_eq!(report["role"], "sender");
    for report in [&report, &report["peer"], &theirs] {
        let number = |value: &serde_json::Value| value.as_f64().expect("a number");
        let (bytes, seconds) = (number(&report["bytes"]), number(&report["seconds"]));
        let rate = number(&report["bits_per_second"]);
        assert!(bytes > 0.0 && seconds > 0.0);
        assert!((rate - 8.0 * bytes / seconds).abs() < 1.0, "{rate} b/s");
        let intervals = report["intervals"].as_array().expect("a list");
        assert!(!intervals.is_empty());
        for interval in intervals {
            let keys =
                ["start", "end", "bytes", "bits_per_second", "rtt_ms", "retransmitted", "lost"];
            keys.iter().for_each(|key| assert!(interval[key].is_number(), "intervals: {key}"));
        }
        let keys = [
            "sent",
            "retransmitted",
            "received",
            "lost",
            "reordered",
            "duplicate",
            "ack_sent",
            "nak_sent",
            "kernel_dropped",
        ];
        keys.iter().for_each(|key| assert!(report["packets"][key].is_u64(), "packets: {key}"));
        ["min", "mean", "max"].iter().for_each(|key| assert!(report["rtt_ms"][key].is_number()));
        ["user_s", "system_s"].iter().for_each(|key| assert!(report["cpu"][key].is_number()));
        assert!(report["peak_rss_bytes"].as_u64().expect("a number") > 1_000_000);
    }
    assert!(report["intervals"].as_array().expect("a list").len() >= 4);
    assert_eq!(report["bytes"], report["peer"]["bytes"]);
    assert_eq!(report["peer"], theirs);
}

#[test]
fn perf_by_bytes_backwards_and_by_tcp() {
    for options in [&[][..], &["-R"], &["--protocol", "tcp"], &["--protocol", "tcp", "-R"]] {
        let tcp = options.contains(&"tcp");
        let protocol = ["--protocol", if tcp { "tcp" } else { "udt" }];
        let args = ["perf", "--listen", "127.0.0.1:0", "--once", "--json"];
        let listener = Process::farhaul(&[&args[..], &protocol].concat());
        let addr = listener.listening_at().to_string();
        let args = ["perf", &addr, "-n", "20MB", "--json"];
        let report = Process::farhaul(&[&args, options].concat()).finish_well().json();
        assert_eq!(report["bytes"], 20_000_000, "{options:?}");
        assert_eq!(report["protocol"], protocol[1]);
        let role = if options.contains(&"-R") { "receiver" } else { "sender" };
        assert_eq!(report["role"], role);
        listener.finish_well();
    }
}
