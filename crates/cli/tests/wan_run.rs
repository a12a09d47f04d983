//! `farhaul wan run`: what a command at one end of a path meets, and what is left of it all.
//!
//! Times are bounded from below only: a busy machine makes everything later, and nothing earlier.

mod common;

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::process::{Ended, LIMIT, Process};
use common::skip;

/// Which end of a path this process is, if it is one.
const ROLE: &str = "WAN_RUN_TEST_ROLE";
const PORT: u16 = 5000;

fn wan_run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
    command.args(["wan", "run"]).args(args);
    Process::with_lines(command, "farhaul wan run".into(), LIMIT)
}

/// Why there can be no path here, if so.
fn no_path() -> Option<String> {
    let ended = wan_run(["--", "true"]).finish();
    (ended.code == Some(125)).then(|| ended.errors.join("; "))
}

macro_rules! path_or_skip {
    () => {
        if let Some(why) = no_path() {
            skip!("{why}");
        }
    };
}

/// A command that makes of a process the end of that role, with these variables.
fn end(role: &str, variables: &str) -> String {
    let test = std::env::current_exe().expect("this program");
    format!("{ROLE}={role} {variables} exec '{}' --exact an_end --nocapture", test.display())
}

fn shell(options: &[&str], script: &str) -> Ended {
    wan_run(options.iter().copied().chain(["--", "sh", "-c", script])).finish()
}

/// Whether a process is there and has not ended. Who waits for it may be slow to take notice.
fn lives(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
    state.is_some_and(|state| !"ZX".contains(state))
}

#[test]
fn udp_and_tcp_meet_the_path() {
    path_or_skip!();
    let (far, near) = (end("far", ""), end("near", ""));
    let port = PORT.to_string();
    let path = ["--rate", "20M", "--delay", "30ms", "--far", &far, "--far-port", &port];
    let ended = shell(&path, &near);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.lines.iter().any(|line| line.contains("the near end is done")), "{ended:#?}");
}

/// No test by itself: the processes at the ends of the path.
#[test]
fn an_end() {
    match std::env::var(ROLE).as_deref() {
        Ok("near") => near(),
        Ok("far") => far(),
        Ok("stream") => stream(),
        Ok("trip") => trip(),
        _ => {}
    }
}

fn far() {
    let address = (std::env::var("FARHAUL_FAR").expect("the own address"), PORT);
    // One of the two is waited for, and TCP is the first to be used.
    let tcp = TcpListener::bind(("::", PORT)).expect("a port");
    let udp = UdpSocket::bind(&address).expect("a port");
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = udp.recv_from(&mut buffer) {
            udp.send_to(&buffer[..length], from).expect("an echo");
        }
    });
    for stream in tcp.incoming() {
        let mut stream = stream.expect("a connection");
        let mut bytes = Vec::new();
        // The connection that only looked has sent nothing.
        stream.read_to_end(&mut bytes).expect("a stream");
        stream.write_all(&(bytes.len() as u64).to_be_bytes()).expect("an answer");
    }
}

fn near() {
    let address = (std::env::var("FARHAUL_FAR").expect("the far address"), PORT);
    let round_trip = Duration::from_millis(60);
    let began = Instant::now();
    let mut stream = TcpStream::connect(&address).expect("a TCP connection");
    assert!(began.elapsed() >= round_trip, "{:?}", began.elapsed());

    // All of it must have passed the link before it is answered.
    let bytes = 1_000_000;
    let began = Instant::now();
    stream.write_all(&vec![7; bytes]).expect("data is taken");
    stream.shutdown(std::net::Shutdown::Write).expect("an end");
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(u64::from_be_bytes(answer), bytes as u64);
    let least = Duration::from_secs_f64(bytes as f64 * 8.0 / 20e6) + round_trip;
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());

    let udp = UdpSocket::bind(("0.0.0.0", 0)).expect("a port");
    udp.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let began = Instant::now();
    // By now the far side listens at both.
    udp.send_to(b"echo", &address).expect("a datagram");
    let mut buffer = [0; 64];
    let (length, from) = udp.recv_from(&mut buffer).expect("an echo");
    assert_eq!((&buffer[..length], from.port()), (&b"echo"[..], PORT));
    assert!(began.elapsed() >= round_trip, "{:?}", began.elapsed());
    println!("the near end is done");
}

/// A megabyte over IPv6.
fn stream() {
    let address = (std::env::var("FARHAUL_FAR6").expect("the far address"), PORT);
    let mut stream = TcpStream::connect(&address).expect("a TCP connection");
    stream.write_all(&vec![7; 1_000_000]).expect("data is taken");
    stream.shutdown(std::net::Shutdown::Write).expect("an end");
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(u64::from_be_bytes(answer), 1_000_000);
}

/// From b to c of the dumbbell: 15 ms each way.
fn trip() {
    let address = (std::env::var("FARHAUL_FAR").expect("the far address"), PORT);
    let began = Instant::now();
    TcpStream::connect(&address).expect("a TCP connection");
    assert!(began.elapsed() >= Duration::from_millis(30), "{:?}", began.elapsed());
}

#[test]
fn the_exit_code_is_the_commands() {
    path_or_skip!();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 125", 125), ("kill -9 $$", 137)] {
        let ended = shell(&[], script);
        assert_eq!(ended.code, Some(code), "{script}: {ended:#?}");
        // What there is to say the command says.
        assert!(ended.errors.is_empty(), "{script}: {ended:#?}");
    }
    for (program, code) in [("/there/is/no/such/program", 127), ("/dev/null", 126)] {
        let ended = wan_run(["--", program]).finish();
        assert_eq!(ended.code, Some(code), "{program}: {ended:#?}");
        assert!(ended.errors.iter().any(|line| line.contains(program)), "{ended:#?}");
    }
}

#[test]
fn bad_usage_is_told() {
    for args in [
        &["--loss", "0.1%"][..],
        &["--mtu", "67", "--", "true"],
        &["--far-port", "0", "--", "true"],
        &["--delay", "5", "--", "true"],
        &["--queue", "pie:target=0", "--", "true"],
    ] {
        assert_eq!(wan_run(args).finish().code, Some(2), "{args:?}");
    }
    let ended = wan_run(["--counters", "/there/is/no/such/folder/x", "--", "true"]).finish();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
}

/// A value that begins with a hyphen is a wrong value, and no other option.
#[test]
fn a_value_is_judged_by_its_option() {
    for (option, value) in [
        ("--rate", "-5M"),
        ("--back-rate", "-5M"),
        ("--delay", "-1ms"),
        ("--loss", "-1"),
        ("--jitter", "-1ms"),
        ("--duplicate", "-1%"),
        ("--blackout", "-1s+1s"),
        ("--access-rate", "-1G"),
        ("--delay", "99999999999s"),
        ("--seed", "x"),
        ("--seed", "-1"),
    ] {
        let ended = wan_run([option, value, "--", "true"]).finish();
        assert_eq!(ended.code, Some(2), "{option} {value}: {ended:#?}");
        // Only the option's own reader quotes it, or the part of it that is wrong, so.
        let judged = ended.errors.iter().any(|line| line.contains("` is not "));
        assert!(judged, "{option} {value}: {ended:#?}");
    }
}

#[test]
fn what_was_counted_is_written() {
    path_or_skip!();
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("counters.json");
    let ended = shell(&["--counters", &file.display().to_string()], "exit 3");
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let text = std::fs::read_to_string(&file).expect("the counters");
    let counters: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(counters["forward"]["received"], counters["forward"]["sent"], "{counters}");
    assert_eq!(counters["forward"]["time_kept"], true, "nothing was sent: {counters}");
    for name in ["marked", "dropped_policer"] {
        assert_eq!(counters["backward"][name], 0, "nothing was sent: {counters}");
    }
}

#[test]
fn parameters_of_the_kernel_are_set_in_both_namespaces() {
    path_or_skip!();
    let name = "net.ipv4.tcp_rmem";
    let show = "cat /proc/sys/net/ipv4/tcp_rmem";
    let far = format!("{show} >&2");
    let options = ["--sysctl", "net.ipv4.tcp_rmem=4096 65536 1048576", "--far", &far];
    let ended = shell(&options, &format!("sleep 0.5; {show}"));
    let set = |line: &String| line.split_whitespace().eq(["4096", "65536", "1048576"]);
    assert!(ended.lines.iter().any(set) && ended.errors.iter().any(set), "{name}: {ended:#?}");
    for (parameter, code) in [("net.ipv4.tcp_rmem", 2), ("net.ipv4.no_such=1", 125)] {
        let ended = wan_run(["--sysctl", parameter, "--", "true"]).finish();
        assert_eq!(ended.code, Some(code), "{ended:#?}");
    }
}

#[test]
fn parameters_of_the_whole_machine_are_refused_before_anything_starts() {
    let show = |path: &str| std::fs::read_to_string(path).expect("its value").trim().to_owned();
    // Their own values: what is not refused changes nothing.
    let hostname = format!("kernel.hostname={}", show("/proc/sys/kernel/hostname"));
    let swappiness = format!("net/../vm/swappiness={}", show("/proc/sys/vm/swappiness"));
    for parameter in [&*hostname, &swappiness, "net..ipv4.tcp_ecn=1", "net.ipv4/tcp_ecn=1"] {
        let ended = wan_run(["--sysctl", parameter, "--", "echo", "started"]).finish();
        assert_eq!(ended.code, Some(2), "{parameter}: {ended:#?}");
        assert!(ended.lines.is_empty(), "{parameter}: {ended:#?}");
    }
}

#[test]
fn nothing_is_left_running() {
    path_or_skip!();
    let far = "echo far $$ >&2; trap '' TERM; while :; do sleep 1; done";
    let ended = shell(&["--far", far], "sleep 1000 > /dev/null 2>&1 & echo near $!");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let near = ended.line("near").to_owned();
    let far = ended.errors.iter().find_map(|line| line.strip_prefix("far "));
    assert!(!lives(&near), "{ended:#?}");
    // It may have been killed before it could say who it is.
    assert!(!far.is_some_and(lives), "{ended:#?}");
}

#[test]
fn an_interruption_ends_everything() {
    path_or_skip!();
    let far = "echo far $$ >&2; exec sleep 1000";
    let script = "echo near $$; exec sleep 1000";
    let run = wan_run(["--far", far, "--", "sh", "-c", script]);
    let far = run.wait_error_line("far ");
    let near = run.wait_line("near ");
    run.interrupt();
    let ended = run.finish();
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(ended.errors.iter().any(|line| line.contains("interrupted")), "{ended:#?}");
    for line in [near, far] {
        let (_, id) = line.split_once(' ').expect("a name and a number");
        assert!(!lives(id), "{line}: {ended:#?}");
    }
}

#[test]
fn a_service_that_does_not_come_is_told() {
    path_or_skip!();
    let ended = shell(&["--far", "exit 9", "--far-port", "5000"], "echo began");
    assert_eq!(ended.code, Some(125), "{ended:#?}");
    assert!(ended.lines.is_empty(), "{ended:#?}");
    let told = |line: &String| line.contains("port 5000") && line.contains("exit status: 9");
    assert!(ended.errors.iter().any(told), "{ended:#?}");
}

/// One of a document's counters.
fn counter(text: &str, path: &str) -> u64 {
    let document: serde_json::Value = serde_json::from_str(text).expect("JSON");
    document
        .pointer(path)
        .and_then(serde_json::Value::as_u64)
        .unwrap_or_else(|| panic!("{path}: {text}"))
}

#[test]
fn each_packet_of_a_super_packet_is_counted() {
    path_or_skip!();
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("counters.json");
    let (far, near) = (end("far", ""), end("stream", ""));
    let (port, file_name) = (PORT.to_string(), file.display().to_string());
    let path = ["--far", &far, "--far-port", &port, "--counters", &file_name];
    let ended = shell(&path, &near);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    // A megabyte over IPv6 in packets of at most 1,440 bytes.
    let text = std::fs::read_to_string(&file).expect("the counters");
    assert!(counter(&text, "/forward/received") >= 1_000_000 / 1_440, "{text}");
}

/// A megabyte over a path that is too thin for it, whose senders use ECN.
#[test]
fn what_a_queue_marks_is_counted() {
    path_or_skip!();
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("counters.json").display().to_string();
    let (far, near) = (end("far", ""), end("stream", ""));
    let port = PORT.to_string();
    let path =
        ["--rate", "5M", "--delay", "5ms", "--queue", "codel", "--sysctl", "net.ipv4.tcp_ecn=1"];
    let options = ["--far", &far, "--far-port", &port, "--counters", &file];
    let ended = shell(&[&path[..], &options].concat(), &near);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let text = std::fs::read_to_string(&file).expect("the counters");
    assert!(counter(&text, "/forward/marked") > 0, "{text}");
}

#[test]
fn what_is_counted_in_the_course_of_time_is_lines() {
    path_or_skip!();
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("log.jsonl").display().to_string();
    let ended = shell(&["--counters-log", &file, "--counters-interval", "50ms"], "sleep 0.4");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let text = std::fs::read_to_string(&file).expect("the log");
    assert!(text.lines().count() >= 2, "{text}");
    for line in text.lines() {
        assert_eq!(counter(line, "/forward/received"), 0, "{line}");
    }
    let ended = wan_run(["--counters-interval", "1ms", "--", "true"]).finish();
    assert_eq!(ended.code, Some(2), "{ended:#?}");
}

const DUMBBELL: &str = r#"
duration = "1s"
[[link]]
from = "a"
to = "r1"
rate = "1G"
delay = "1ms"
[[link]]
from = "b"
to = "r1"
rate = "1G"
delay = "10ms"
[[link]]
name = "middle"
from = "r1"
to = "r2"
rate = "50M"
delay = "5ms"
[[link]]
from = "r2"
to = "c"
rate = "1G"
[[flow]]
from = "a"
to = "c"
[[flow]]
from = "b"
to = "c"
"#;

#[test]
fn hosts_of_a_scenario_meet_over_its_links() {
    path_or_skip!();
    let dir = tempfile::tempdir().expect("a directory for the test");
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("dumbbell.toml"), DUMBBELL).expect("a scenario");
    let at_c = "FARHAUL_FAR=$FARHAUL_AT_C";
    let far = end("far", at_c);
    let port = PORT.to_string();
    let (scenario, counters) = (at("dumbbell.toml"), at("counters.json"));
    let path = ["--topology", &scenario, "--at", "c", &far, "--at-port", "c", &port];
    let counted = ["--counters", &counters, "--on", "b"];
    let near = format!("test $FARHAUL_NODE = b && {}", end("trip", at_c));
    let ended = shell(&[&path[..], &counted].concat(), &near);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let text = std::fs::read_to_string(&counters).expect("the counters");
    assert!(counter(&text, "/links/middle/passed") > 0, "{text}");
    assert!(counter(&text, "/hosts/b/sent") > 0, "{text}");
    assert_eq!(counter(&text, "/hosts/a/received"), 0, "{text}");
}

const THREE_INTO_ONE: &str = r#"
duration = "1s"
[[link]]
name = "from-a"
from = "a"
to = "r"
rate = "1G"
delay = "1ms"
[[link]]
name = "from-b"
from = "b"
to = "r"
rate = "1G"
delay = "5ms"
[[link]]
name = "from-c"
from = "c"
to = "r"
rate = "1G"
delay = "20ms"
[[link]]
name = "neck"
from = "r"
to = "d"
rate = "20M"
delay = "5ms"
[[flow]]
from = "a"
to = "d"
[[flow]]
from = "b"
to = "d"
[[flow]]
from = "c"
to = "d"
"#;

#[test]
fn three_hosts_share_the_link_to_a_fourth() {
    path_or_skip!();
    let dir = tempfile::tempdir().expect("a directory for the test");
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("three.toml"), THREE_INTO_ONE).expect("a scenario");
    let fifos = ["b.go", "c.go", "b.done", "c.done"].map(at);
    assert!(Command::new("mkfifo").args(&fifos).status().expect("mkfifo").success());
    let [b_go, c_go, b_done, c_done] = &fifos;
    let at_d = "FARHAUL_FAR6=$FARHAUL_AT_D6 FARHAUL_FAR=$FARHAUL_AT_D";
    // In a shell of its own, for something follows.
    let stream = format!("({})", end("stream", at_d));
    let send = |go: &str, done: &str| format!("cat '{go}' && {stream} && echo > '{done}'");
    let (d, b, c) = (end("far", at_d), send(b_go, b_done), send(c_go, c_done));
    let (port, scenario, counters) = (PORT.to_string(), at("three.toml"), at("counters.json"));
    let options =
        [["--at", "d", &d], ["--at-port", "d", &port], ["--at", "b", &b], ["--at", "c", &c]]
            .concat();
    let files = ["--topology", &scenario, "--counters", &counters, "--on", "a"];
    let near = format!("echo > '{b_go}'; echo > '{c_go}'; {stream} && cat '{b_done}' '{c_done}'");
    let began = Instant::now();
    let ended = shell(&[&options[..], &files].concat(), &near);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    // Each has sent a megabyte in packets of at most 1,440 bytes, and all three went over the one link.
    assert!(began.elapsed() >= Duration::from_secs_f64(3e6 * 8.0 / 20e6), "{:?}", began.elapsed());
    let text = std::fs::read_to_string(&counters).expect("the counters");
    let least = 1_000_000 / 1_440;
    for link in ["from-a", "from-b", "from-c"] {
        assert!(counter(&text, &format!("/links/{link}/passed")) >= least, "{link}: {text}");
    }
    assert!(counter(&text, "/links/neck/passed") >= 3 * least, "{text}");
}

#[test]
fn a_parking_lots_flows_take_their_own_links() {
    path_or_skip!();
    let dir = tempfile::tempdir().expect("a directory for the test");
    let counters = dir.path().join("counters.json").display().to_string();
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/parking-lot.toml");
    let port = PORT.to_string();
    let passed = |from: &str, to: &str, role: &str| {
        let address =
            format!("FARHAUL_FAR=$FARHAUL_AT_{0} FARHAUL_FAR6=$FARHAUL_AT_{0}6", to.to_uppercase());
        let far = end("far", &address);
        let ended = shell(
            &[
                "--topology",
                scenario,
                "--at",
                to,
                &far,
                "--at-port",
                to,
                &port,
                "--on",
                from,
                "--counters",
                &counters,
            ],
            &end(role, &address),
        );
        assert_eq!(ended.code, Some(0), "{from} to {to}: {ended:#?}");
        let text = std::fs::read_to_string(&counters).expect("the counters");
        ["first", "second", "third"].map(|link| counter(&text, &format!("/links/{link}/passed")))
    };
    // The whole length is 15 ms each way, which the end that measures insists on.
    assert!(passed("n1", "n4", "trip").iter().all(|passed| *passed > 0));
    let [first, second, third] = passed("n2", "n3", "stream");
    assert_eq!((first, third), (0, 0));
    assert!(second >= 1_000_000 / 1_440, "{second}");
}

#[test]
fn bad_networks_are_told() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("dumbbell.toml").display().to_string();
    std::fs::write(&file, DUMBBELL).expect("a scenario");
    for args in [
        &["--topology", "/there/is/no/such/file", "--", "true"][..],
        &["--topology", &file, "--rate", "1M", "--", "true"],
        &["--topology", &file, "--on", "d", "--", "true"],
        &["--topology", &file, "--set", "x=1", "--", "true"],
        &["--set", "x=1", "--", "true"],
    ] {
        assert_eq!(wan_run(args).finish().code, Some(2), "{args:?}");
    }
}

#[test]
fn what_a_killed_run_leaves_is_ended_and_nothing_else() {
    path_or_skip!();
    let clean = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        command.args(["wan", "clean"]);
        Process::with_lines(command, "farhaul wan clean".into(), LIMIT).finish()
    };
    let start = || wan_run(["--", "sh", "-c", "echo near $$; exec sleep 1000"]);
    let (killed, at_work) = (start(), start());
    let id = |run: &Process| {
        let line = run.wait_line("near ");
        line.split_once(' ').expect("a name and a number").1.to_owned()
    };
    let (left, kept) = (id(&killed), id(&at_work));
    drop(killed);
    let ended = clean();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.lines.iter().any(|line| line.contains(&left)), "{ended:#?}");
    assert!(!lives(&left) && lives(&kept), "{ended:#?}");
    at_work.interrupt();
    assert_eq!(at_work.finish().code, Some(130));
}
