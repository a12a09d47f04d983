//! Streams between `farhaul pipe` and stock libudt 4.11, over paths that lose and reorder.
//!
//! A stock sender collapses on loss and recovers slowly: it halves no window but lengthens its
//! sending period with every report, and what its lost packets do not repair waits for a timer of
//! 300 ms, in which nothing is sent: 100 MB take a minute at 1% of loss. So its lossy paths are short,
//! and cases have 20 MB with loss and 200 MB without. With FARHAUL_LONG=1 each has 2 GB, but for 1% of
//! loss in both directions at once, which has 100 MB.

mod common;

use std::io::Write;
use std::time::{Duration, Instant};

use common::path::Path;
use common::pattern::{Checker, feed};
use common::process::Process;
use common::stock::Stock;
use common::{long, stock_or_skip, turn};

const MB: u64 = 1_000_000;
/// A path that stock libudt fills without loss.
const FAST: Path = Path::new("500M", 1);

/// What a case without loss moves.
const CLEAN: u64 = 200 * MB;
/// What a case with loss moves, most of whose time is the stock sender's waiting.
const LOSSY: u64 = 20 * MB;

/// 2 GB where the long runs are wanted.
fn size(bytes: u64) -> u64 {
    if long() { 2_000 * MB } else { bytes }
}

/// Enough even for the slowest cases.
fn limit(bytes: u64) -> Duration {
    Duration::from_secs(60 + bytes / MB)
}

/// Says how long it took, past the test harness's capture of output.
fn measured(what: &str, path: &Path, bytes: u64, started: Instant, more: &str) {
    let seconds = started.elapsed().as_secs_f64();
    let Path { rate, delay, loss, reorder, .. } = path;
    let reorder = if reorder.is_empty() { "none" } else { reorder };
    let (size, throughput) = (bytes / MB, bytes as f64 * 8e-6 / seconds);
    let line = format!(
        "measured: {what}, {rate}b/s, {delay} ms, loss {loss}, reordering {reorder}: {size} MB in \
         {seconds:.2} s, {throughput:.0} Mb/s{more}"
    );
    writeln!(std::io::stderr(), "{line}").expect("standard error");
}

/// Stock client → `farhaul pipe --listen`. Returns the longest pause in the output.
fn stock_sends(stock: &Stock, path: Path, bytes: u64) -> Duration {
    let args = ["pipe", "--listen", "127.0.0.1:0", "--peer-timeout", "10s"];
    let mut farhaul = Process::farhaul_within(&args, limit(bytes));
    let relay = path.to(farhaul.listening_at());
    let checker = Checker::start(farhaul.stdout(), 1);
    let started = Instant::now();
    let args = ["source", &bytes.to_string(), "1"];
    let sender = stock.call_within(relay.local_addr(), &args, limit(bytes));
    checker.wait_for(bytes);
    let pause = checker.longest_pause();
    let more = format!(", longest pause {} ms", pause.as_millis());
    measured("stock → farhaul", &path, bytes, started, &more);
    assert_eq!(sender.finish_well().line("acknowledged"), "yes");
    // Nobody closes the input: the peer's close is the end.
    farhaul.finish_with_open_input().expect_end_by_stock(path.loss != "none");
    checker.expect(bytes);
    pause
}

/// `farhaul pipe` → stock server.
fn farhaul_sends(stock: &Stock, path: Path, bytes: u64) {
    let hash = stock.hash(bytes, 2);
    let (receiver, addr) = stock.serve_within(&["sink"], limit(bytes));
    let relay = path.to(addr);
    let started = Instant::now();
    let mut farhaul =
        Process::farhaul_within(&["pipe", &relay.local_addr().to_string()], limit(bytes));
    drop(feed(farhaul.stdin(), 2, bytes).join().expect("no panic").expect("the pipe takes all"));
    farhaul.finish_well();
    measured("farhaul → stock", &path, bytes, started, "");
    let ended = receiver.finish_well();
    assert_eq!(ended.line("received"), format!("{bytes} {hash}"));
    assert_eq!(ended.line("closed"), "peer");
}

/// Both directions at once, stock connecting.
fn both_at_once(stock: &Stock, path: Path, bytes: u64) {
    let hash = stock.hash(bytes, 3);
    let mut farhaul = Process::farhaul_within(
        &["pipe", "--listen", "127.0.0.1:0", "--peer-timeout", "10s"],
        limit(bytes),
    );
    let relay = path.to(farhaul.listening_at());
    let checker = Checker::start(farhaul.stdout(), 4);
    let feeder = feed(farhaul.stdin(), 3, bytes);
    let started = Instant::now();
    let args = ["both", &bytes.to_string(), "4", "--close-first"];
    let peer = stock.call_within(relay.local_addr(), &args, limit(bytes));
    // The input stays open: the peer closes when it has everything and everything it sent is
    // acknowledged.
    let input = feeder.join().expect("no panic").expect("the pipe takes all");
    let ended = peer.finish_well();
    measured("both at once", &path, 2 * bytes, started, "");
    assert_eq!(ended.line("received"), format!("{bytes} {hash}"));
    farhaul.finish_with_open_input().expect_end_by_stock(path.loss != "none");
    drop(input);
    checker.expect(bytes);
}

#[test]
fn from_stock_without_loss() {
    let stock = stock_or_skip!();
    let _turn = turn();
    stock_sends(&stock, FAST, size(CLEAN));
}

#[test]
fn from_stock_with_little_loss() {
    let stock = stock_or_skip!();
    let _turn = turn();
    stock_sends(&stock, FAST.loss("0.1%"), size(LOSSY));
}

/// However much is lost, something comes all the time.
#[test]
fn from_stock_with_much_loss() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let pause = stock_sends(&stock, FAST.loss("1%"), size(LOSSY));
    assert!(pause < Duration::from_secs(1), "{pause:?}");
}

#[test]
fn from_stock_with_reordering() {
    let stock = stock_or_skip!();
    let _turn = turn();
    stock_sends(&stock, FAST.reorder("5%:3"), size(CLEAN));
}

#[test]
fn to_stock_without_loss() {
    let stock = stock_or_skip!();
    let _turn = turn();
    farhaul_sends(&stock, FAST, size(CLEAN));
}

#[test]
fn to_stock_with_little_loss() {
    let stock = stock_or_skip!();
    let _turn = turn();
    farhaul_sends(&stock, FAST.loss("0.1%"), size(LOSSY));
}

#[test]
fn to_stock_with_much_loss() {
    let stock = stock_or_skip!();
    let _turn = turn();
    farhaul_sends(&stock, FAST.loss("1%"), size(LOSSY));
}

/// Stock reports every packet overtaken as lost.
#[test]
fn to_stock_with_reordering() {
    let stock = stock_or_skip!();
    let _turn = turn();
    farhaul_sends(&stock, FAST.reorder("5%:3"), size(CLEAN));
}

#[test]
fn both_at_once_without_loss() {
    let stock = stock_or_skip!();
    let _turn = turn();
    both_at_once(&stock, FAST, size(CLEAN / 2));
}

#[test]
fn both_at_once_with_loss() {
    let stock = stock_or_skip!();
    let _turn = turn();
    both_at_once(&stock, FAST.loss("0.1%"), size(LOSSY));
}

#[test]
fn both_at_once_with_much_loss() {
    let stock = stock_or_skip!();
    let _turn = turn();
    both_at_once(&stock, FAST.loss("1%"), if long() { 100 * MB } else { LOSSY });
}

#[test]
fn both_at_once_with_reordering() {
    let stock = stock_or_skip!();
    let _turn = turn();
    both_at_once(&stock, FAST.reorder("5%:3"), size(CLEAN / 2));
}
