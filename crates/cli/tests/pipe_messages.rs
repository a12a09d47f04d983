//! `farhaul pipe --message` with itself: a line is a message.

mod common;

use std::collections::BTreeSet;
use std::io::Write;

use common::path::Path;
use common::process::Process;
use common::turn;

/// Sends `text` over `path` and returns what came out.
fn send(path: Option<Path>, text: &[u8], options: &[&str]) -> Vec<u8> {
    let listener = Process::farhaul(&["pipe", "--message", "--listen", "127.0.0.1:0"]);
    let addr = listener.listening_at();
    let relay = path.map(|path| path.to(addr));
    let addr = relay.as_ref().map_or(addr, |relay| relay.local_addr()).to_string();
    let mut connecting = Process::farhaul(&[&["pipe", "--message", &addr], options].concat());
    let mut input = connecting.stdin();
    let text = text.to_vec();
    let feeder = std::thread::spawn(move || input.write_all(&text));
    let output = listener.finish_with_output();
    connecting.finish_well();
    feeder.join().expect("no panic").expect("the pipe takes all");
    output
}

fn numbered(count: usize) -> String {
    (0..count).map(|i| format!("line {i} {}\n", "x".repeat(i % 2_000))).collect()
}

#[test]
fn lines() {
    let text = "first\n\nthe one before was empty\nno line's end at the end";
    let output = send(None, text.as_bytes(), &[]);
    assert_eq!(String::from_utf8(output).expect("text"), format!("{text}\n"));
}

#[test]
fn lines_of_any_bytes_and_sizes() {
    let _turn = turn();
    let mut text = Vec::new();
    for len in [1, 1_455, 1_456, 1_457, 100_000, 3_000_000] {
        let bytes = common::pattern::bytes(len as u64, len);
        text.extend(bytes.iter().map(|&b| if b == b'\n' { 0 } else { b }));
        text.push(b'\n');
    }
    assert!(send(None, &text, &["--ordered"]) == text);
}

#[test]
fn order_on_a_lossy_path() {
    let _turn = turn();
    let text = numbered(3_000);
    let output = send(Some(Path::new("100M", 3).loss("2%")), text.as_bytes(), &["--ordered"]);
    assert!(output == text.as_bytes());
}

#[test]
fn without_order_each_line_comes_once() {
    let _turn = turn();
    let text = numbered(3_000);
    let path = Path::new("100M", 3).loss("2%").reorder("5%:3");
    let output = String::from_utf8(send(Some(path), text.as_bytes(), &[])).expect("text");
    let came: BTreeSet<&str> = output.lines().collect();
    assert_eq!(output.lines().count(), 3_000);
    assert_eq!(came, text.lines().collect());
}

/// A path that would need seconds for all lines: those that expire never come, the others come
/// whole and in order.
#[test]
fn lines_expire() {
    let _turn = turn();
    let text = numbered(1_000);
    let options = ["--ordered", "--ttl", "200ms"];
    let output = send(Some(Path::new("1M", 3)), text.as_bytes(), &options);
    let output = String::from_utf8(output).expect("text");
    let mut sent = text.lines();
    for line in output.lines() {
        assert!(sent.any(|other| other == line), "'{line}' was not sent, or not after the last");
    }
    let count = output.lines().count();
    assert!((1..1_000).contains(&count), "{count} came");
}

/// A line that the buffers of both sides cannot hold is refused, and the end is in order.
#[test]
fn a_line_too_long() {
    let args = ["pipe", "--message", "--listen", "127.0.0.1:0", "--receive-memory", "200kB"];
    let listener = Process::farhaul(&args);
    let addr = listener.listening_at().to_string();
    let mut connecting = Process::farhaul(&["pipe", "--message", &addr]);
    let mut input = connecting.stdin();
    input.write_all(b"short\n").expect("the pipe takes it");
    let feeder = std::thread::spawn(move || {
        // It may be gone before it has read the rest of the input.
        let _ = input.write_all(&[b'x'; 1_000_000]);
        let _ = input.write_all(b"\nnever sent\n");
    });
    let ended = connecting.finish();
    feeder.join().expect("no panic");
    assert_ne!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.errors[0].contains("too large"), "{ended:#?}");
    let ended = listener.finish();
    assert_eq!((ended.code, &ended.lines[..]), (Some(1), &["short".to_owned()][..]), "{ended:#?}");
}
