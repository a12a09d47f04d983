//! `farhaul pipe` with itself: streams, and who ends when.

mod common;

use std::io::{Read, Write};
use std::process::{ChildStdin, Command};
use std::time::Duration;

use common::path::Path;
use common::pattern::{Checker, feed};
use common::pipe::{connect, listen};
use common::process::Process;
use common::{free_addresses, turn};

const MB: u64 = 1_000_000;

/// Writes `bytes` bytes of the stream of `seed` and returns the pipe, still open.
fn write(to: ChildStdin, seed: u64, bytes: u64) -> ChildStdin {
    feed(to, seed, bytes).join().expect("no panic").expect("the pipe takes all")
}

/// Both send, and the connecting side closes when it has everything.
fn exchange(mut listener: Process, mut connecting: Process, bytes: u64) {
    let here = Checker::start(connecting.stdout(), 1);
    let there = Checker::start(listener.stdout(), 2);
    let answer = feed(listener.stdin(), 1, bytes);
    let input = write(connecting.stdin(), 2, bytes);
    // The end of its input does not end the listening side.
    drop(answer.join().expect("no panic").expect("the pipe takes all"));
    here.wait_for(bytes);
    drop(input);
    connecting.finish_well();
    listener.finish_well();
    here.expect(bytes);
    there.expect(bytes);
}

#[test]
fn both_directions() {
    let _turn = turn();
    let (listener, addr) = listen(&[]);
    exchange(listener, connect(addr, &[]), 40 * MB);
}

#[test]
fn both_directions_on_a_lossy_path() {
    let _turn = turn();
    let (listener, addr) = listen(&[]);
    let relay = Path::new("300M", 5).loss("1%").to(addr);
    exchange(listener, connect(relay.local_addr(), &[]), 10 * MB);
}

#[test]
fn both_directions_with_reordering() {
    let _turn = turn();
    let (listener, addr) = listen(&[]);
    let relay = Path::new("300M", 5).reorder("5%:3").to(addr);
    exchange(listener, connect(relay.local_addr(), &[]), 20 * MB);
}

#[test]
fn ipv6() {
    let listener = Process::farhaul(&["pipe", "--listen", "[::1]:0"]);
    let addr = listener.listening_at();
    exchange(listener, connect(addr, &[]), 5 * MB);
}

#[test]
fn segments_of_any_size() {
    let _turn = turn();
    for (here, there) in [("9000", "9000"), ("1500", "9000"), ("9000", "576"), ("96", "1500")] {
        let (listener, addr) = listen(&["--mss", there]);
        exchange(listener, connect(addr, &["--mss", here]), MB);
    }
}

#[test]
fn without_offload() {
    let _turn = turn();
    let (listener, addr) = listen(&["--no-offload"]);
    exchange(listener, connect(addr, &["--no-offload"]), 10 * MB);
}

/// Both connect; the one whose input ends first closes.
#[test]
fn rendezvous() {
    let _turn = turn();
    let [a, b] = free_addresses("127.0.0.1").map(|addr| addr.to_string());
    let meet = |here: &str, there: &str| {
        Process::farhaul(&["pipe", "--rendezvous", "--bind", here, there])
    };
    let (mut one, mut other) = (meet(&a, &b), meet(&b, &a));
    let (here, there) = (Checker::start(one.stdout(), 3), Checker::start(other.stdout(), 4));
    let input = write(one.stdin(), 4, 3 * MB);
    let open = write(other.stdin(), 3, 3 * MB);
    here.wait_for(3 * MB);
    drop(input);
    one.finish_well();
    other.finish_well();
    drop(open);
    here.expect(3 * MB);
    there.expect(3 * MB);
}

/// What is written on one side is read on the other at once, not when a buffer is full.
#[test]
fn a_conversation() {
    let (mut listener, addr) = listen(&[]);
    let mut connecting = connect(addr, &[]);
    let (mut ask, mut answer) = (connecting.stdin(), listener.stdin());
    let (mut asked, mut answered) = (listener.stdout(), connecting.stdout());
    for round in 0..100u32 {
        let mut word = [0; 4];
        ask.write_all(&round.to_le_bytes()).expect("the pipe takes it");
        asked.read_exact(&mut word).expect("the question");
        assert_eq!(word, round.to_le_bytes());
        answer.write_all(&(round * 7).to_le_bytes()).expect("the pipe takes it");
        answered.read_exact(&mut word).expect("the answer");
        assert_eq!(word, (round * 7).to_le_bytes());
    }
    drop(ask);
    connecting.finish_well();
    // Its input is still open.
    let ended = listener.finish_with_open_input();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    drop(answer);
}

/// The reader takes nothing until the sender has ended: flow control stops it, and the listening
/// side gives everything out after the peer has closed.
#[test]
fn a_late_reader() {
    let _turn = turn();
    let (mut listener, addr) = listen(&["--receive-memory", "4MB"]);
    let mut connecting = connect(addr, &[]);
    const BYTES: u64 = MB;
    drop(write(connecting.stdin(), 5, BYTES));
    connecting.finish_well();
    let checker = Checker::start(listener.stdout(), 5);
    listener.finish_well();
    checker.expect(BYTES);
}

#[test]
fn a_slow_reader() {
    let _turn = turn();
    let (mut listener, addr) = listen(&["--receive-memory", "1MB"]);
    let mut connecting = connect(addr, &["--send-memory", "1MB"]);
    let (mut output, mut received) = (listener.stdout(), 0);
    let feeder = feed(connecting.stdin(), 6, 20 * MB);
    let mut block = [0; 1000];
    // The rest is read in blocks that a loop of this size needs long for.
    while received < 20 * MB {
        let len = output.read(&mut block).expect("a pipe can be read");
        assert!(len > 0, "only {received} bytes came");
        received += len as u64;
    }
    drop(feeder.join().expect("no panic").expect("the pipe takes all"));
    connecting.finish_well();
    listener.finish_well();
}

/// A side that is interrupted says so to the other one, which fails, though its input is open: what
/// has come is not all.
#[test]
fn an_interruption() {
    let interrupt = |process: &Process, signal: &str| {
        let id = process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill").success());
    };
    for (listener_is_interrupted, signal) in
        [(true, "-INT"), (false, "-INT"), (true, "-TERM"), (false, "-TERM")]
    {
        let (mut listener, addr) = listen(&[]);
        let mut connecting = connect(addr, &[]);
        // They are connected when this has come.
        let mut ask = connecting.stdin();
        ask.write_all(b"?").expect("the pipe takes it");
        listener.stdout().read_exact(&mut [0]).expect("a byte");
        let (victim, other) = match listener_is_interrupted {
            true => (listener, connecting),
            false => (connecting, listener),
        };
        interrupt(&victim, signal);
        assert_eq!(victim.finish_with_open_input().code, Some(130));
        let ended = other.finish_with_open_input();
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        drop(ask);
    }
}

/// A stream of which a part has come and been acknowledged, in either mode, is not the whole of it
/// when its sender is interrupted.
#[test]
fn an_interruption_between_two_pieces() {
    for mode in [&[][..], &["--message"]] {
        let (mut listener, addr) = listen(mode);
        let mut connecting = connect(addr, mode);
        let mut input = connecting.stdin();
        let line = [b'x'; 1000];
        for _ in 0..50 {
            input.write_all(&[&line[..], b"\n"].concat()).expect("the pipe takes it");
        }
        listener.stdout().read_exact(&mut [0; 50 * 1001]).expect("all that was written");
        connecting.interrupt();
        assert_eq!(connecting.finish_with_open_input().code, Some(130));
        let ended = listener.finish_with_open_input();
        assert_eq!(ended.code, Some(1), "{mode:?}: {ended:#?}");
        drop(input);
    }
}

/// A sender that is gone without a word is an error at the receiver once it has been silent for long enough:
/// what has come is not all.
#[test]
fn a_sender_that_was_killed() {
    for mode in [&[][..], &["--message"]] {
        let (mut listener, addr) = listen(&[mode, &["--peer-timeout", "3s"]].concat());
        let mut connecting = connect(addr, mode);
        let mut input = connecting.stdin();
        input.write_all(b"a line\n").expect("the pipe takes it");
        listener.stdout().read_exact(&mut [0; 7]).expect("what was written");
        let id = connecting.id().to_string();
        assert!(Command::new("kill").args(["-KILL", &id]).status().expect("kill").success());
        let ended = listener.finish_with_open_input();
        assert_eq!(ended.code, Some(1), "{mode:?}: {ended:#?}");
        drop(input);
    }
}

/// What cannot be read cannot be sent: both sides fail.
#[test]
fn an_input_that_cannot_be_read() {
    let (listener, addr) = listen(&[]);
    let mut connecting = Command::new(env!("CARGO_BIN_EXE_farhaul"));
    // To read a directory is an error.
    let directory = std::fs::File::open("/").expect("a directory");
    connecting.args(["pipe", &addr.to_string()]).stdin(directory);
    let limit = common::process::LIMIT;
    let ended = Process::with_lines(connecting, "farhaul pipe".into(), limit).finish();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let ended = listener.finish_with_open_input();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
}

/// Whoever reads the output may go away: that is a failure, at once, and the peer is told.
#[test]
fn a_closed_output() {
    for listener_is_deaf in [true, false] {
        let (mut listener, addr) = listen(&[]);
        let mut connecting = connect(addr, &[]);
        let (a, b) = (listener.stdin(), connecting.stdin());
        let (mut deaf, mut other) = match listener_is_deaf {
            true => (listener, connecting),
            false => (connecting, listener),
        };
        drop(deaf.stdout());
        let mut inputs = [a, b];
        let input = &mut inputs[usize::from(listener_is_deaf)];
        input.write_all(b"nobody wants to know").expect("the pipe takes it");
        let ended = deaf.finish_with_open_input();
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        assert!(ended.errors.iter().any(|e| e.contains("standard output")), "{ended:#?}");
        drop(other.stdout());
        other.finish_with_open_input();
        drop(inputs);
    }
}

/// The peer is gone without a word, and the input open.
#[test]
fn a_peer_that_vanishes() {
    let (mut listener, addr) = listen(&[]);
    let mut connecting = connect(addr, &["--peer-timeout", "1s"]);
    let mut input = connecting.stdin();
    input.write_all(b"?").expect("the pipe takes it");
    listener.stdout().read_exact(&mut [0]).expect("a byte");
    drop(listener);
    let ended = connecting.finish_with_open_input();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.errors[0].contains("nothing has come from the peer"), "{ended:#?}");
    drop(input);
}

/// What cannot be delivered is not reported as done.
#[test]
fn a_linger_time_that_ends() {
    let (mut listener, addr) = listen(&[]);
    let relay = Path::new("100M", 1).to(addr);
    let mut connecting = connect(relay.local_addr(), &["--linger", "300ms"]);
    let mut input = connecting.stdin();
    input.write_all(b"?").expect("the pipe takes it");
    listener.stdout().read_exact(&mut [0]).expect("a byte");
    // The path is cut.
    drop(relay);
    input.write_all(b"!").expect("the pipe takes it");
    drop(input);
    let ended = connecting.finish();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.errors[0].contains("linger"), "{ended:#?}");
}

/// The peer closes before it has taken everything: not done either.
#[test]
fn a_peer_that_closes_too_early() {
    let (mut listener, addr) = listen(&["--receive-memory", "200kB"]);
    let mut connecting = connect(addr, &[]);
    let feeder = feed(connecting.stdin(), 7, 20 * MB);
    let mut output = listener.stdout();
    output.read_exact(&mut [0; 1000]).expect("the first bytes");
    // The listening side cannot write on and closes.
    drop(output);
    assert_eq!(listener.finish_with_open_input().code, Some(1));
    let ended = connecting.finish_with_open_input();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    // The program that ends breaks the connection off, if that comes before its closing is heard.
    let told = ["the peer closed before", "the peer broke the connection off"];
    assert!(told.iter().any(|told| ended.errors[0].contains(told)), "{ended:#?}");
    assert!(feeder.join().expect("no panic").is_err());
}

#[test]
fn the_report() {
    let (mut listener, addr) = listen(&["--json"]);
    let mut connecting = connect(addr, &["--json"]);
    let checker = Checker::start(listener.stdout(), 8);
    drop(write(connecting.stdin(), 8, MB));
    let report = |ended: common::process::Ended| -> serde_json::Value {
        let lines = ended.errors.iter().skip_while(|line| !line.starts_with('{'));
        let text: String = lines.map(String::as_str).collect();
        serde_json::from_str(&text).expect("one JSON document")
    };
    let sent = report(connecting.finish_well());
    let received = report(listener.finish_well());
    checker.expect(MB);
    assert_eq!((&sent["sent_bytes"], &sent["received_bytes"]), (&MB.into(), &0.into()));
    assert_eq!((&received["sent_bytes"], &received["received_bytes"]), (&0.into(), &MB.into()));
    assert!(sent["rtt_ms"].as_f64().expect("a number") > 0.0);
    assert_eq!(sent["peer"], addr.to_string());
    assert!(
        Duration::from_secs_f64(sent["seconds"].as_f64().expect("a number"))
            < common::process::LIMIT
    );
}
