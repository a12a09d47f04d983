//! Commands that are interrupted while they wait for a peer.

#![allow(clippy::expect_used, reason = "a test may panic")]

mod common;

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
