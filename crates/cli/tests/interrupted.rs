//! Commands that are interrupted while they wait for a peer, and simulations.

#![allow(clippy::expect_used, reason = "a test may panic")]

mod common;

use std::io::Read;

use common::process::Process;

/// A port at which nobody answers, for as long as it is held.
fn silent() -> (std::net::UdpSocket, String) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let addr = socket.local_addr().expect("its address").to_string();
    (socket, addr)
}

#[test]
fn listeners() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let into = dir.path().display().to_string();
    for args in [
        &["pipe", "--listen", "127.0.0.1:0"][..],
        &["recv", "--listen", "127.0.0.1:0", "--into", &into],
        &["recv", "--listen", "127.0.0.1:0", "--into", &into, "--once"],
        &["perf", "--listen", "127.0.0.1:0"],
    ] {
        let listener = Process::farhaul(args);
        listener.listening_at();
        listener.interrupt();
        let ended = listener.finish_with_open_input();
        assert_eq!(ended.code, Some(130), "{args:?}: {ended:#?}");
    }
}

#[test]
fn while_connecting() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("file").display().to_string();
    std::fs::write(&file, "content").expect("a file");
    let (socket, addr) = silent();
    for args in [
        &["pipe", &addr, "--connect-timeout", "60s"][..],
        &["send", &file, &addr, "--connect-timeout", "60s"],
        &["perf", &addr, "--connect-timeout", "60s"],
    ] {
        let command = Process::farhaul(args);
        // It asks to be connected: what follows an interruption is set up before.
        socket.recv_from(&mut [0; 2048]).expect("a request");
        command.interrupt();
        let ended = command.finish_with_open_input();
        assert_eq!(ended.code, Some(130), "{args:?}: {ended:#?}");
        assert!(ended.errors.iter().any(|line| line.contains("interrupted")), "{ended:#?}");
    }
}

/// The receiver of a transfer learns that it was broken off, and keeps nothing of it.
#[test]
fn a_transfer_under_way() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let (file, into) = (dir.path().join("file"), dir.path().join("into"));
    std::fs::write(&file, vec![b'x'; 64 << 20]).expect("a file");
    let into_arg = into.display().to_string();
    let receiver =
        Process::farhaul(&["recv", "--listen", "127.0.0.1:0", "--into", &into_arg, "--once"]);
    let addr = receiver.listening_at().to_string();
    let sender =
        Process::farhaul(&["send", &file.display().to_string(), &addr, "--max-bandwidth", "20M"]);
    let entries = || std::fs::read_dir(&into).expect("its directory").count();
    while entries() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    sender.interrupt();
    let ended = sender.finish();
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    let ended = receiver.finish();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert_eq!(entries(), 0);
}

/// A scenario of so many seconds, with many samples.
fn scenario(directory: &std::path::Path, seconds: u32) -> String {
    let text = format!(
        "duration = \"{seconds}s\"\nsample = \"1ms\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
         rate = \"1M\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\nprotocol = \"cbr\"\nrate = \"1M\"\n"
    );
    let path = directory.join("scenario.toml");
    std::fs::write(&path, text).expect("a file");
    path.display().to_string()
}

/// Once a run has ended, nobody looks whether it is to stop: the first interruption ends the process.
#[test]
fn after_a_simulation() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let path = scenario(dir.path(), 10);
    let mut run = Process::farhaul(&["sim", "run", &path, "--no-plot", "--json"]);
    // It prints when the run has ended, and more than a pipe holds: it waits for who reads it.
    let mut pipe = run.stdout();
    pipe.read_exact(&mut [0]).expect("the beginning of a result");
    run.interrupt();
    let ended = run.finish();
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    drop(pipe);
}

/// What was found so far is not lost.
#[test]
fn while_fuzzing() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let into = dir.path().join("made");
    let path = into.display().to_string();
    let fuzz = Process::farhaul(&["sim", "fuzz", "--runs", "1000000000", "--into", &path]);
    // What follows an interruption is set up before the directory is made.
    while !into.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    fuzz.interrupt();
    let ended = fuzz.finish();
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    let summary = ended.lines.last().expect("a summary");
    assert!(summary.contains(" random scenarios, each run twice: 0 failed; "), "{ended:#?}");
    assert!(ended.errors.iter().any(|line| line.contains("interrupted")), "{ended:#?}");
}
