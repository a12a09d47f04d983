//! Peers that say nothing, or something else than what is expected.
//!
//! Time-outs are short where a peer stays silent for ever, and longer than any pause of this
//! machine where the greeting must come through.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;

use common::process::Process;
use farhaul::{Connection, Options};

const SHORT: [&str; 2] = ["--greeting-timeout", "100ms"];

fn farhaul(args: &[&[&str]]) -> Process {
    Process::farhaul(&args.concat())
}

fn connect(addr: SocketAddr) -> Connection {
    Connection::connect(addr, &Options::new()).expect("somebody listens")
}

fn say(connection: &mut Connection, text: &str) {
    connection.write_all(text.as_bytes()).expect("the peer listens");
}

fn line(connection: &mut Connection) -> String {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        assert_eq!(connection.read(&mut byte).expect("the peer speaks"), 1, "{line:?}");
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("text")
}

/// Reads until the peer has closed the connection or broken it off, and has told that.
fn wait_for_end(connection: &mut Connection) {
    let mut rest = Vec::new();
    if let Err(error) = connection.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
}

#[test]
fn a_test_asked_of_a_sink() {
    for mode in ["--sink", "--source"] {
        let listener = farhaul(&[&["perf", "--listen", "127.0.0.1:0", mode, "-n", "1kB"]]);
        let addr = listener.listening_at().to_string();
        let ended = farhaul(&[&["perf", &addr, "--json"], &SHORT]).finish();
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        let said = format!("is {addr} a `farhaul perf --listen` without --sink and --source?");
        assert!(ended.errors.iter().any(|line| line.contains(&said)), "{ended:#?}");
        assert!(ended.lines.is_empty(), "{ended:#?}");
    }
}

#[test]
fn files_for_somebody_who_does_not_answer() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("file").display().to_string();
    fs::write(&file, "content").expect("a file");
    // It keeps standard input open, and so never says a word.
    let listener = Process::farhaul(&["pipe", "--listen", "127.0.0.1:0"]);
    let addr = listener.listening_at().to_string();
    let ended = farhaul(&[&["send", &file, &addr], &SHORT]).finish();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let said = format!("did not answer in time; is {addr} a `farhaul recv`?");
    assert!(ended.errors.iter().any(|line| line.contains(&said)), "{ended:#?}");
}

/// Also one that is to end after one test or transfer.
#[test]
fn silence_does_not_end_a_listener() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("file").display().to_string();
    fs::write(&file, "content").expect("a file");
    let into = dir.path().join("into").display().to_string();
    let recv = ["recv", "--listen", "127.0.0.1:0", "--into", &into, "--once"];
    let perf = ["perf", "--listen", "127.0.0.1:0", "--once"];
    for (args, said) in [(&recv[..], "a `farhaul send`?"), (&perf, "a `farhaul perf` without")] {
        let listener = farhaul(&[args, &SHORT]);
        let addr = listener.listening_at();
        wait_for_end(&mut connect(addr));
        listener.wait_error_line(said);
        let addr = addr.to_string();
        let wanted = match args[0] {
            "recv" => farhaul(&[&["send", &file, &addr]]),
            _ => farhaul(&[&["perf", &addr, "-n", "1MB"]]),
        };
        wanted.finish_well();
        listener.finish_well();
    }
}

#[test]
fn strangers_do_not_end_a_listener() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("file").display().to_string();
    let into = dir.path().join("into").display().to_string();
    fs::write(&file, "content").expect("a file");

    let listener = farhaul(&[&["recv", "--listen", "127.0.0.1:0", "--into", &into]]);
    let addr = listener.listening_at();
    let (_silent, mut foreign) = (connect(addr), connect(addr));
    say(&mut foreign, "GET / HTTP/1.1\r\n\r\n");
    let told = listener.wait_error_line("does not speak the mover's protocol");
    assert!(told.contains("a `farhaul send`?"), "{told}");
    farhaul(&[&["send", &file, &addr.to_string()]]).finish_well();

    let listener = farhaul(&[&["perf", "--listen", "127.0.0.1:0"]]);
    let addr = listener.listening_at();
    let (_silent, mut foreign) = (connect(addr), connect(addr));
    say(&mut foreign, "GET / HTTP/1.1\r\n\r\n");
    let told = listener.wait_error_line("does not speak the protocol of farhaul perf");
    assert!(told.contains("a `farhaul perf` without --sink and --source?"), "{told}");
    wait_for_end(&mut foreign);
    farhaul(&[&["perf", &addr.to_string(), "-n", "1MB"]]).finish_well();
}

/// One that begins a line and does not end it is not waited for either.
#[test]
fn half_a_greeting_is_none() {
    let listener = farhaul(&[&["perf", "--listen", "127.0.0.1:0"], &SHORT]);
    let addr = listener.listening_at();
    for begin in ["{\"magic\":", "farhaul perf data "] {
        let mut slow = connect(addr);
        say(&mut slow, begin);
        wait_for_end(&mut slow);
    }
    let mut endless = connect(addr);
    say(&mut endless, &format!("{{{}", "x".repeat(5000)));
    wait_for_end(&mut endless);
    listener.wait_error_line("has said nothing in time");
    listener.wait_error_line("does not speak");
}

/// A test by hand, with strangers between its connections.
#[test]
fn strangers_among_the_data_connections() {
    let listener = farhaul(&[&["perf", "--listen", "127.0.0.1:0", "--once", "--json"]]);
    let addr = listener.listening_at();
    let mut control = connect(addr);
    say(
        &mut control,
        "{\"magic\":\"farhaul perf 1\",\"token\":\"mine\",\"streams\":2,\"reverse\":false,\
         \"seconds\":1.0,\"bytes\":null}\n",
    );
    assert_eq!(line(&mut control), "\"heard\"\n");
    assert_eq!(line(&mut control), "\"ready\"\n");

    let header = |text: &str| format!("{text:64}");
    let _silent = connect(addr);
    let mut foreign = connect(addr);
    say(&mut foreign, "SSH-2.0-OpenSSH_9.9\r\n");
    listener.wait_error_line("does not speak the protocol");
    let mut first = connect(addr);
    say(&mut first, &header("farhaul perf data mine 0"));
    for wrong in ["other 1", "mine 2", "mine 0"] {
        let mut wrong_test = connect(addr);
        say(&mut wrong_test, &header(&format!("farhaul perf data {wrong}")));
        wait_for_end(&mut wrong_test);
    }
    let mut second = connect(addr);
    say(&mut second, &header("farhaul perf data mine 1"));
    say(&mut first, "12345");
    say(&mut second, "1234567");
    say(&mut control, "{\"bytes\":[5,7]}\n");
    assert_eq!(line(&mut control), "{\"bytes\":[5,7]}\n");
    assert!(line(&mut control).contains("\"bytes\":12,"));
    let report = listener.finish_well().json();
    assert_eq!((&report["bytes"], &report["streams"]), (&12.into(), &2.into()));
}

#[test]
fn a_peer_that_makes_no_data_connections_is_given_up() {
    let listener = farhaul(&[&["perf", "--listen", "127.0.0.1:0", "--once"], &SHORT]);
    let mut control = connect(listener.listening_at());
    say(
        &mut control,
        "{\"magic\":\"farhaul perf 1\",\"token\":\"mine\",\"streams\":1,\"reverse\":false,\
         \"seconds\":1.0,\"bytes\":null}\n",
    );
    wait_for_end(&mut control);
    let ended = listener.finish();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(
        ended.errors.iter().any(|line| line.contains("made no data connections")),
        "{ended:#?}"
    );
}

/// What follows the greeting may take longer than that.
#[test]
fn the_time_out_is_for_the_greeting_alone() {
    const LIMIT: [&str; 2] = ["--greeting-timeout", "2s"];
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("file").display().to_string();
    let into = dir.path().join("into").display().to_string();
    fs::write(&file, vec![7; 625_000]).expect("a file");
    let receiver =
        farhaul(&[&["recv", "--listen", "127.0.0.1:0", "--once", "--into", &into], &LIMIT]);
    let addr = receiver.listening_at().to_string();
    // 2.5 s, in which the receiver says nothing.
    let sender = farhaul(&[&["send", &file, &addr, "--max-bandwidth", "2M"], &LIMIT]);

    let listener = farhaul(&[&["perf", "--listen", "127.0.0.1:0", "--once"], &LIMIT]);
    let addr = listener.listening_at().to_string();
    // 4 s, in most of which nobody says anything on the control connection.
    let args = ["perf", &addr, "-n", "5MB", "--max-bandwidth", "10M"];
    farhaul(&[&args, &LIMIT]).finish_well();
    listener.finish_well();
    sender.finish_well();
    receiver.finish_well();
}

#[test]
fn a_second_test_waits_for_the_first() {
    let listener = farhaul(&[&["perf", "--listen", "127.0.0.1:0"]]);
    let addr = listener.listening_at().to_string();
    let first =
        Process::farhaul(&["perf", &addr, "-t", "60", "-i", "0.02", "--max-bandwidth", "9M"]);
    first.wait_error_line("rtt");
    let second = farhaul(&[&["perf", &addr, "-n", "1MB"]]);
    second.wait_error_line("waiting for the end of the test that is running there");
    first.interrupt();
    assert_eq!(first.finish().code, Some(130));
    second.finish_well();
}
