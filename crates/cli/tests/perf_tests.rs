//! Tests of `farhaul perf`: exact amounts, what TCP cannot tell, and interruptions.

mod common;

use std::io::Read;
use std::net::TcpListener;
use std::time::Duration;

use common::path::Path;
use common::process::{Ended, Process};
use farhaul::{Endpoint, Options};
use farhaul_wan::{Forged, InjectConfig, RelayConfig};
use serde_json::Value;

#[test]
fn parallel_connections_move_exactly_what_is_asked_for() {
    for (bytes, options) in
        [(1_000_003, &["-P", "4"][..]), (2, &["-P", "3"]), (1_000_003, &["-P", "5", "-R"])]
    {
        let listener = Process::farhaul(&["perf", "--listen", "127.0.0.1:0", "--once", "--json"]);
        let addr = listener.listening_at().to_string();
        let amount = bytes.to_string();
        let args = [&["perf", &addr, "--json", "-n", &amount], options].concat();
        let ours = Process::farhaul(&args).finish_well().json();
        let theirs = listener.finish_well().json();
        for report in [&ours, &ours["peer"], &theirs] {
            assert_eq!(report["bytes"], bytes, "{options:?}");
        }
    }
}

#[test]
fn what_tcp_does_not_tell_is_left_out() {
    let protocol = ["--protocol", "tcp"];
    for json in [&["--json"][..], &[]] {
        let listen = ["perf", "--listen", "127.0.0.1:0", "--once", "-i", "0.05"];
        let args = [&listen, &protocol[..], json].concat();
        let listener = Process::farhaul(&args);
        let addr = listener.listening_at().to_string();
        let args = [&["perf", &addr, "-t", "0.2", "-i", "0.05"], &protocol[..], json].concat();
        let ends = [Process::farhaul(&args).finish_well(), listener.finish_well()];
        if json.is_empty() {
            for line in ends.iter().flat_map(|end| end.lines.iter().chain(&end.errors)) {
                assert!(!line.contains("rtt") && !line.contains("retransmitted"), "{line}");
            }
            continue;
        }
        let (ours, theirs) = (ends[0].json(), ends[1].json());
        for report in [&ours, &ours["peer"], &theirs] {
            assert!(report["bytes"].as_u64().expect("a number") > 0, "{report}");
            let absent = |value: &Value, key| assert!(value.get(key).is_none(), "{key}: {value}");
            ["rtt_ms", "packets"].iter().for_each(|key| absent(report, key));
            let intervals = report["intervals"].as_array().expect("a list");
            assert!(!intervals.is_empty());
            for interval in intervals {
                ["rtt_ms", "retransmitted", "lost"].iter().for_each(|key| absent(interval, key));
            }
        }
    }
}

#[test]
fn the_law_is_that_of_the_side_that_sends() {
    for (direction, sender, receiver) in
        [(&[][..], "/cc", "/peer/cc"), (&["-R"], "/peer/cc", "/cc")]
    {
        let listen = ["perf", "--listen", "127.0.0.1:0", "--once", "--json", "--cc", "haul"];
        let listener = Process::farhaul(&listen);
        let addr = listener.listening_at().to_string();
        let args = [&["perf", &addr, "-n", "1000", "--json", "--cc", "haul"], direction].concat();
        let report = Process::farhaul(&args).finish_well().json();
        listener.finish_well();
        let law = |at| report.pointer(at).expect("the key is always there");
        assert_eq!(law(sender), "haul", "{report}");
        assert_eq!(law(receiver), &Value::Null, "{report}");
    }
}

/// The kernel's own where none is asked for.
#[test]
fn tcps_law_is_the_one_in_force() {
    let usual =
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").expect("a name");
    let tcp = ["--protocol", "tcp", "--json"];
    let listener =
        Process::farhaul(&[&["perf", "--listen", "127.0.0.1:0", "--once"], &tcp[..]].concat());
    let addr = listener.listening_at().to_string();
    let report = Process::farhaul(&[&["perf", &addr, "-n", "1000"], &tcp[..]].concat());
    assert_eq!(report.finish_well().json()["cc"], usual.trim());
    listener.finish_well();
}

#[test]
fn tcp_takes_the_congestion_control_that_is_asked_for() {
    let tcp = ["--protocol", "tcp"];
    let perf = |cc: &str| {
        let listen = ["perf", "--listen", "127.0.0.1:0", "--once", "--tcp-cc", "reno"];
        let listener = Process::farhaul(&[&listen, &tcp[..]].concat());
        let addr = listener.listening_at().to_string();
        let args = [&["perf", &addr, "-t", "0.1", "--json", "--tcp-cc", cc], &tcp[..]].concat();
        (Process::farhaul(&args).finish(), listener)
    };
    let (ended, listener) = perf("reno");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    listener.finish_well();
    let report = ended.json();
    assert_eq!((&report["role"], &report["cc"]), (&"sender".into(), &"reno".into()), "{report}");
    assert_eq!(report["peer"]["cc"], Value::Null, "it sends nothing: {report}");
    assert_eq!(perf("nosuch").0.code, Some(1));
    let ended = Process::farhaul(&["perf", "127.0.0.1:1", "--tcp-cc", "reno"]).finish();
    assert_eq!(ended.code, Some(2), "farhaul's transport has laws: {ended:#?}");
}

/// Of tests that are shorter than an interval, too.
#[test]
fn intervals_cover_the_test() {
    for (bytes, options) in
        [("100", &[][..]), ("5MB", &["-R"]), ("20MB", &["-i", "0.01", "-P", "2"])]
    {
        let listener = Process::farhaul(&["perf", "--listen", "127.0.0.1:0", "--once", "--json"]);
        let addr = listener.listening_at().to_string();
        let args = [&["perf", &addr, "--json", "-n", bytes], options].concat();
        let ours = Process::farhaul(&args).finish_well().json();
        let theirs = listener.finish_well().json();
        for report in [&ours, &theirs] {
            let rows = report["intervals"].as_array().expect("a list");
            assert!(!rows.is_empty(), "{report}");
            assert_eq!(rows[0]["start"], 0.0, "{report}");
            assert!(rows.windows(2).all(|pair| pair[0]["end"] == pair[1]["start"]), "{report}");
            assert_eq!(rows[rows.len() - 1]["end"], report["seconds"], "{report}");
            let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().expect(key)).sum::<u64>();
            assert_eq!(sum("bytes"), report["bytes"], "{report}");
            assert_eq!(sum("retransmitted"), report["packets"]["retransmitted"], "{report}");
            assert_eq!(sum("lost"), report["packets"]["lost"], "{report}");
        }
    }
}

/// An address of the loopback network that nobody uses unless told to.
#[test]
fn a_test_comes_from_the_address_it_is_bound_to() {
    for (protocol, bind) in
        [("tcp", "127.77.3.1:0"), ("udt", "127.77.3.1:0"), ("tcp", "[::ffff:127.77.3.1]:0")]
    {
        let listen = ["perf", "--listen", "127.0.0.1:0", "--protocol", protocol];
        let listener = Process::farhaul(&listen);
        let addr = listener.listening_at().to_string();
        let args = ["perf", &addr, "--protocol", protocol, "--bind", bind];
        let long = ["-t", "600", "-i", "0.02"];
        let client = Process::farhaul(&[&args[..], &long].concat());
        client.wait_error_line("b/s");
        client.interrupt();
        expect_interrupted(&client.finish(), "sender");
        let told = listener.wait_error_line("has failed");
        assert!(told.contains("the test with 127.77.3.1:"), "{told}");
    }
}

fn expect_interrupted(ended: &Ended, role: &str) {
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(ended.errors.iter().any(|line| line == "farhaul: interrupted"), "{ended:#?}");
    let measured = ended.lines.iter().any(|line| line.contains(&format!("{role}: ")));
    assert!(measured, "what was measured before is shown: {ended:#?}");
}

/// The other side hears of it, and does not have to find out by the silence.
fn expect_told(ended: &Ended) {
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let told =
        ["closed the connection", "broke the connection off", "Broken pipe", "reset by peer"];
    let line = ended.errors.last().expect("an error");
    assert!(told.iter().any(|text| line.contains(text)), "{ended:#?}");
}

#[test]
fn interruptions_end_both_sides() {
    let long = ["-t", "600", "-P", "2"];
    for direction in [&[][..], &["-R"], &["--protocol", "tcp"]] {
        for the_listener in [false, true] {
            let protocol = if direction.contains(&"tcp") { direction } else { &[] };
            let listen = ["perf", "--listen", "127.0.0.1:0", "--once", "-i", "0.02"];
            let listener = Process::farhaul(&[&listen, protocol].concat());
            let addr = listener.listening_at().to_string();
            let args = [&["perf", &addr, "-i", "0.02"], &long[..], direction].concat();
            let client = Process::farhaul(&args);
            // Both are in the middle of it.
            [&client, &listener].iter().for_each(|side| drop(side.wait_error_line("b/s")));
            let roles = match direction.contains(&"-R") {
                true => ["receiver", "sender"],
                false => ["sender", "receiver"],
            };
            if the_listener {
                listener.interrupt();
                expect_interrupted(&listener.finish(), roles[1]);
                expect_told(&client.finish());
            } else {
                client.interrupt();
                expect_interrupted(&client.finish(), roles[0]);
                expect_told(&listener.finish());
            }
        }
    }
}

/// The peer is any program.
#[test]
fn an_interrupted_source_says_that_it_ends() {
    let options = Options::new();
    let endpoint =
        Endpoint::bind("127.0.0.1:0".parse().expect("an address"), &options).expect("a free port");
    let listener = endpoint.listen(&options).expect("nobody else listens");
    let addr = listener.local_addr().to_string();
    let source = Process::farhaul(&["perf", &addr, "--source", "-t", "600", "-i", "0.02"]);
    let mut peer = listener.accept().expect("a connection");
    let reader = std::thread::spawn(move || {
        let mut block = vec![0; 1 << 20];
        loop {
            match peer.read(&mut block) {
                Ok(count) => assert!(count > 0, "an end of the stream is not what came"),
                Err(error) => return error.kind(),
            }
        }
    });
    source.wait_error_line("b/s");
    source.interrupt();
    expect_interrupted(&source.finish(), "sender");
    let kind = reader.join().expect("no panic");
    assert_eq!(kind, std::io::ErrorKind::ConnectionReset);
}

/// Without the handshake of a test, the end is all that tells a receiver that it has everything.
#[test]
fn a_sink_whose_source_is_interrupted_fails() {
    let sink =
        Process::farhaul(&["perf", "--listen", "127.0.0.1:0", "--once", "--sink", "-i", "0.02"]);
    let addr = sink.listening_at().to_string();
    let source = Process::farhaul(&["perf", &addr, "--source", "-t", "600", "-i", "0.02"]);
    [&source, &sink].iter().for_each(|side| drop(side.wait_error_line("b/s")));
    source.interrupt();
    expect_interrupted(&source.finish(), "sender");
    let ended = sink.finish();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
}

#[test]
fn interruptions_of_what_waits() {
    // For anybody, with and without the handshake of a test.
    for mode in [&[][..], &["--sink"]] {
        let args = [&["perf", "--listen", "127.0.0.1:0"], mode].concat();
        let listener = Process::farhaul(&args);
        listener.listening_at();
        listener.interrupt();
        let ended = listener.finish();
        assert_eq!(ended.code, Some(130), "{ended:#?}");
    }
    // For an answer.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = silent.local_addr().expect("a bound socket").to_string();
    let client = Process::farhaul(&["perf", &addr, "--protocol", "tcp"]);
    let (mut control, _) = silent.accept().expect("a connection");
    control.read_exact(&mut [0; 10]).expect("a request");
    client.interrupt();
    let ended = client.finish();
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    // For data connections.
    let listener = Process::farhaul(&["perf", "--listen", "127.0.0.1:0", "--protocol", "tcp"]);
    let mut control = std::net::TcpStream::connect(listener.listening_at()).expect("a listener");
    let request = "{\"magic\":\"farhaul perf 1\",\"token\":\"mine\",\"streams\":1,\
                   \"reverse\":false,\"seconds\":1.0,\"bytes\":null}\n";
    std::io::Write::write_all(&mut control, request.as_bytes()).expect("it listens");
    let mut answers = [0; b"\"heard\"\n\"ready\"\n".len()];
    control.read_exact(&mut answers).expect("two answers");
    listener.interrupt();
    let ended = listener.finish();
    assert_eq!(ended.code, Some(130), "{ended:#?}");
}

/// What an ACK in the peer's name has made a sender forget never arrives. Neither side waits for it for longer
/// than the engine needs to be sure of that.
#[test]
fn forged_acknowledgements_end_a_test_with_an_error() {
    let limit = Duration::from_secs(40);
    let listen = ["perf", "--listen", "127.0.0.1:0", "--once", "--json"];
    let listener = Process::farhaul_within(&listen, limit);
    let mut config = RelayConfig::new(([127, 0, 0, 1], 0).into(), listener.listening_at());
    config.inject = Some(InjectConfig { kinds: vec![Forged::Ack], per_second: 20.0 });
    // Packets must be missing for a forged ACK to make the sender forget them.
    let relay = Path::new("20M", 10).loss("5%").open(config);
    let addr = relay.local_addr().to_string();
    let ours = Process::farhaul_within(&["perf", &addr, "-t", "3", "--json"], limit).finish();
    let theirs = listener.finish();
    assert_eq!((ours.code, theirs.code), (Some(1), Some(1)), "{ours:#?} {theirs:#?}");
    // Whichever notices first: the sender that the peer misses what was acknowledged, and names it, or the listener that
    // less has come than was sent.
    let errors = [&ours.errors[..], &theirs.errors].concat();
    let told = |line: &String| line.contains("forges") || line.contains("is not complete");
    assert!(errors.iter().any(told), "{errors:#?}");
}
