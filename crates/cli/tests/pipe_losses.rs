//! `farhaul pipe` with itself: what either side says of bytes that did not arrive, and of bytes that did.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::path::Path;
use common::pattern::{Checker, feed};
use common::pipe::{connect, listen};
use common::process::{LIMIT, Process};
use common::turn;

const MB: u64 = 1_000_000;

/// The connecting side closes, as its standard input has ended, while the listening side sends: neither
/// end is a success.
#[test]
fn a_receiver_that_closes_early() {
    for mode in [&[][..], &["--message"]] {
        let (mut listener, addr) = listen(mode);
        let mut connecting = connect(addr, &[mode, &["--receive-memory", "300kB"]].concat());
        let mut input = listener.stdin();
        let feeder = thread::spawn(move || {
            let line = [&[b'x'; 999][..], b"\n"].concat();
            while input.write_all(&line).is_ok() {}
        });
        let mut output = connecting.stdout();
        output.read_exact(&mut [0; 1000]).expect("the first line");
        // It is not read on, so that there is always more to come.
        drop(connecting.stdin());
        let ended = listener.finish_with_open_input();
        assert_eq!(ended.code, Some(1), "{mode:?}: {ended:#?}");
        let rest = thread::spawn(move || output.read_to_end(&mut Vec::new()));
        let ended = connecting.finish();
        // The connection may have had nothing to send just then: what waits before it, its side alone knows.
        assert!(matches!(ended.code, Some(0 | 1)), "{mode:?}: {ended:#?}");
        rest.join().expect("no panic").expect("a pipe can be read");
        feeder.join().expect("no panic");
    }
}

/// It may close before anything has been read of the file: that was not sent either.
#[test]
fn a_file_that_is_not_wanted() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let path = dir.path().join("file");
    std::fs::write(&path, vec![b'x'; 20 << 20]).expect("a file");
    for _ in 0..5 {
        let mut sender = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        sender.args(["pipe", "--listen", "127.0.0.1:0"]).stdin(File::open(&path).expect("it"));
        let sender = Process::with_lines(sender, "farhaul pipe".into(), LIMIT);
        let mut receiver = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        receiver.args(["pipe", &sender.listening_at().to_string()]);
        let ended = receiver.stdin(Stdio::null()).stdout(Stdio::null()).output().expect("it runs");
        // Whether there was more to come is known once the sender has begun.
        assert!(matches!(ended.status.code(), Some(0 | 1)), "{ended:#?}");
        let ended = sender.finish();
        assert_eq!(ended.code, Some(1), "{ended:#?}");
    }
}

#[test]
fn a_receiver_that_was_killed() {
    let (mut listener, addr) = listen(&["--peer-timeout", "2s"]);
    let mut connecting = connect(addr, &[]);
    let feeder = feed(listener.stdin(), 1, 20 * MB);
    connecting.stdout().read_exact(&mut [0; 1000]).expect("the first bytes");
    let id = connecting.id().to_string();
    assert!(Command::new("kill").args(["-KILL", &id]).status().expect("kill").success());
    let ended = listener.finish_with_open_input();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(feeder.join().expect("no panic").is_err());
}

/// A side that has everything closes at once, while the other may not know yet that its connection has taken it.
#[test]
fn an_answer_after_which_the_other_side_closes_at_once() {
    let _turn = turn();
    for _ in 0..if common::long() { 1_000 } else { 100 } {
        let (mut listener, addr) = listen(&[]);
        let mut connecting = connect(addr, &[]);
        let mut answer = listener.stdin();
        answer.write_all(b"x").expect("the pipe takes it");
        connecting.stdout().read_exact(&mut [0]).expect("the answer");
        drop(connecting.stdin());
        connecting.finish_well();
        let ended = listener.finish_with_open_input();
        assert_eq!(ended.code, Some(0), "{ended:#?}");
    }
}

/// However long it takes until standard output takes something.
#[test]
fn an_interruption_ends_a_side_whose_output_takes_nothing() {
    let (mut listener, addr) = listen(&[]);
    let mut connecting = connect(addr, &[]);
    let mut input = connecting.stdin();
    let feeder = thread::spawn(move || while input.write_all(&[0; 1 << 16]).is_ok() {});
    let mut output = listener.stdout();
    output.read_exact(&mut [0]).expect("it has come");
    listener.interrupt();
    let ended = listener.finish_with_open_input();
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert_eq!(connecting.finish_with_open_input().code, Some(1));
    feeder.join().expect("no panic");
}

/// Both sides end with 0 wherever everything has been delivered, whatever the path loses, the last
/// packets included, and however busy the machine is.
#[test]
fn what_was_delivered_is_no_error() {
    let _turn = turn();
    let done = Arc::new(AtomicBool::new(false));
    let load = (0..4).map(|_| {
        let done = Arc::clone(&done);
        thread::spawn(move || while !done.load(Ordering::Relaxed) {})
    });
    let load: Vec<_> = load.collect();
    for round in 0..if common::long() { 300 } else { 60 } {
        let (mut listener, addr) = listen(&[]);
        let relay = Path::new("100M", 2).loss(["none", "1%", "5%"][round % 3]).to(addr);
        let mut connecting = connect(relay.local_addr(), &[]);
        let bytes = 1 + 3_777 * round as u64;
        let here = Checker::start(connecting.stdout(), 1);
        let there = Checker::start(listener.stdout(), 2);
        let answer = feed(listener.stdin(), 1, bytes);
        let input = feed(connecting.stdin(), 2, bytes).join().expect("no panic");
        drop(answer.join().expect("no panic").expect("the pipe takes all"));
        here.wait_for(bytes);
        drop(input.expect("the pipe takes all"));
        connecting.finish_well();
        listener.finish_well();
        here.expect(bytes);
        there.expect(bytes);
    }
    done.store(true, Ordering::Relaxed);
    load.into_iter().for_each(|thread| thread.join().expect("no panic"));
}
