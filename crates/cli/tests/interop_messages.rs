//! Messages between `farhaul pipe --message` and stock libudt 4.11, over paths that lose.

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::thread;

use common::path::Path;
use common::pattern;
use common::process::{Ended, Process};
use common::stock::Stock;
use common::{stock_or_skip, turn};

const PATH: Path = Path::new("200M", 2);

/// The indices and contents of the first `count` messages of `size` bytes that are lines: none has
/// a line's end inside.
fn lines(count: usize, size: usize) -> Vec<(u64, Vec<u8>)> {
    let all = (0..).map(|index| (index, pattern::message(index, size)));
    all.filter(|(_, message)| !message.contains(&b'\n')).take(count).collect()
}

/// Sends lines to a stock receiver, with `options` for farhaul. Returns the indices in the order in
/// which they came; none came damaged or twice.
fn send_lines(stock: &Stock, path: Path, lines: &[(u64, Vec<u8>)], options: &[&str]) -> Vec<u64> {
    let (receiver, addr) = stock.serve(&["msg-recv"]);
    let relay = path.to(addr);
    let addr = relay.local_addr().to_string();
    let mut farhaul = Process::farhaul(&[&["pipe", "--message", &addr], options].concat());
    let mut input = farhaul.stdin();
    let text: Vec<u8> =
        lines.iter().flat_map(|(_, line)| line.iter().copied().chain([b'\n'])).collect();
    input.write_all(&text).expect("the pipe takes all");
    drop(input);
    farhaul.finish_well();
    let ended = receiver.finish_well();
    assert_eq!(ended.line("closed"), "peer");
    let came = arrivals(&ended);
    expect_once(&came);
    came
}

/// The indices of the messages that a stock receiver printed. It fails by itself if a message is
/// damaged.
fn arrivals(ended: &Ended) -> Vec<u64> {
    let messages = ended.lines.iter().filter_map(|line| line.strip_prefix("message "));
    let index = |line: &str| line.split(' ').nth(1).and_then(|index| index.parse().ok());
    messages.map(|line| index(line).expect("an index")).collect()
}

fn expect_once(came: &[u64]) {
    assert_eq!(came.iter().collect::<BTreeSet<_>>().len(), came.len(), "a message came twice");
}

/// Has a stock sender send `count` messages of `sizes`, with its `options`, to a listening pipe.
/// Returns the indices in the order in which they came; none came damaged or twice.
fn receive(stock: &Stock, path: Path, count: u64, sizes: &[usize], options: &[&str]) -> Vec<u64> {
    let args = ["pipe", "--message", "--listen", "127.0.0.1:0", "--peer-timeout", "10s"];
    let mut farhaul = Process::farhaul(&args);
    let relay = path.to(farhaul.listening_at());
    let mut output = farhaul.stdout();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).map(|_| bytes)
    });
    let sizes_text = sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let count = count.to_string();
    let args = [&["msg-send", &count, &sizes_text], options].concat();
    stock.call(relay.local_addr(), &args).finish_well();
    farhaul.finish_with_open_input().expect_end_by_stock(path.loss != "none");
    let came = split(&reader.join().expect("no panic").expect("a pipe can be read"), sizes);
    expect_once(&came);
    came
}

/// The messages in the output of a pipe, which has a line's end behind each. Their length follows
/// from their index.
fn split(mut output: &[u8], sizes: &[usize]) -> Vec<u64> {
    let mut came = Vec::new();
    while !output.is_empty() {
        let index = u64::from_le_bytes(output[..8].try_into().expect("eight bytes"));
        let size = sizes[(index % sizes.len() as u64) as usize];
        let (message, rest) = output.split_at(size + 1);
        assert_eq!(message[..size], pattern::message(index, size), "message {index}");
        assert_eq!(message[size], b'\n');
        came.push(index);
        output = rest;
    }
    came
}

#[test]
fn lines_to_stock_without_order() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let lines = lines(2_000, 120);
    let mut came = send_lines(&stock, PATH.loss("1%"), &lines, &[]);
    came.sort();
    assert_eq!(came, lines.iter().map(|(index, _)| *index).collect::<Vec<_>>());
}

#[test]
fn lines_to_stock_in_order() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let lines = lines(2_000, 120);
    let came = send_lines(&stock, PATH.loss("1%"), &lines, &["--ordered"]);
    assert_eq!(came, lines.iter().map(|(index, _)| *index).collect::<Vec<_>>());
}

/// On a path that needs two seconds for all of them, most lines expire before they can leave.
#[test]
fn lines_to_stock_that_expire() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let lines = lines(2_000, 120);
    let came = send_lines(&stock, Path::new("1M", 2), &lines, &["--ordered", "--ttl", "100ms"]);
    assert!(came.is_sorted(), "{came:?}");
    assert!(!came.is_empty() && came.len() < lines.len(), "{} came", came.len());
}

#[test]
fn messages_from_stock_without_order() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let sizes = [9, 1_456, 1_457, 20_000, 100];
    let mut came = receive(&stock, PATH.loss("1%"), 500, &sizes, &["--order", "0"]);
    came.sort();
    assert_eq!(came, (0..500).collect::<Vec<_>>());
}

#[test]
fn messages_from_stock_in_order() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let sizes = [9, 1_456, 1_457, 20_000, 100];
    let came = receive(&stock, PATH.loss("1%"), 500, &sizes, &["--order", "1"]);
    assert_eq!(came, (0..500).collect::<Vec<_>>());
}

#[test]
fn large_messages_from_stock() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let came = receive(&stock, PATH.loss("0.1%"), 12, &[1_000_000, 3_000_001], &["--order", "1"]);
    assert_eq!(came, (0..12).collect::<Vec<_>>());
}

/// The stock sender gives up what it could not deliver in time, with drop requests whose range is
/// one packet too long and with others for messages long past: what is delivered is whole, and the
/// connection goes on to its proper end.
#[test]
fn messages_from_stock_that_expire() {
    let stock = stock_or_skip!();
    let _turn = turn();
    for order in ["0", "1"] {
        let path = Path::new("20M", 2).loss("2%");
        let options = ["--ttl", "20", "--order", order];
        let came = receive(&stock, path, 400, &[5_000, 8, 1_456], &options);
        assert!(order == "0" || came.is_sorted(), "{came:?}");
        assert!(came.len() > 100, "only {} of 400 came", came.len());
    }
}
