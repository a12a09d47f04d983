//! Stock libudt 4.11 and `farhaul pipe` in all the ways in which connections differ: who closes,
//! rendezvous, segment sizes, IPv6, and the measuring command in place of the pipe.

mod common;

use common::path::Path;
use common::pattern::{Checker, feed};
use common::process::Process;
use common::stock::Stock;
use common::{free_addresses, stock_or_skip, turn};

const BYTES: u64 = 5_000_000;
const LOSSY: Path = Path::new("200M", 2).loss("0.1%");

/// `farhaul pipe` with `options` sends to a stock server with `stock_options`.
fn send(stock: &Stock, bytes: u64, options: &[&str], stock_options: &[&str]) {
    let hash = stock.hash(bytes, 1);
    let (receiver, addr) = stock.serve(&[&["sink"], stock_options].concat());
    let addr = addr.to_string();
    let mut farhaul = Process::farhaul(&[&["pipe", &addr], options].concat());
    drop(feed(farhaul.stdin(), 1, bytes).join().expect("no panic").expect("it takes all"));
    farhaul.finish_well();
    assert_eq!(receiver.finish_well().line("received"), format!("{bytes} {hash}"));
}

/// A stock client with `stock_options` sends to `farhaul pipe --listen` with `options`.
fn receive(stock: &Stock, bytes: u64, options: &[&str], stock_options: &[&str]) {
    let mut listen = "127.0.0.1:0";
    if stock_options.contains(&"--v6") {
        listen = "[::1]:0";
    }
    let mut farhaul = Process::farhaul(&[&["pipe", "--listen", listen], options].concat());
    let addr = farhaul.listening_at();
    let checker = Checker::start(farhaul.stdout(), 2);
    let args = ["source", &bytes.to_string(), "2"];
    stock.call(addr, &[&args, stock_options].concat()).finish_well();
    assert_eq!(farhaul.finish_with_open_input().code, Some(0));
    checker.expect(bytes);
}

/// Both meet at fixed addresses; each sends, farhaul closes when it has everything.
fn rendezvous(stock: &Stock, path: Option<Path>, options: &[&str], stock_options: &[&str]) {
    let hash = stock.hash(BYTES, 3);
    let [here, there] = free_addresses("127.0.0.1");
    let relay = path.map(|path| path.between(here, there));
    // Each talks to the relay's port on its side.
    let towards_stock = relay.as_ref().map_or(there, |relay| relay.local_addr());
    let towards_farhaul =
        relay.as_ref().map_or(here, |relay| relay.far_addr().expect("it has two ports"));
    let (port, host) = (there.port().to_string(), towards_farhaul.ip().to_string());
    let (host_port, bytes) = (towards_farhaul.port().to_string(), BYTES.to_string());
    let args = ["rendezvous", &port, &host, &host_port, "both", &bytes, "4"];
    let peer = stock.start(&[&args, stock_options].concat());
    let (bind, to) = (here.to_string(), towards_stock.to_string());
    let args = ["pipe", "--rendezvous", "--bind", &bind, &to];
    let mut farhaul = Process::farhaul(&[&args, options].concat());
    let checker = Checker::start(farhaul.stdout(), 4);
    let input = feed(farhaul.stdin(), 3, BYTES).join().expect("no panic").expect("it takes all");
    checker.wait_for(BYTES);
    drop(input);
    farhaul.finish_well();
    checker.expect(BYTES);
    assert_eq!(peer.finish_well().line("received"), format!("{BYTES} {hash}"));
}

#[test]
fn stock_server_closes_first() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let bytes = BYTES.to_string();
    let hash = stock.hash(BYTES, 5);
    let (receiver, addr) = stock.serve(&["sink", "--close-first", "--expect", &bytes]);
    let mut farhaul = Process::farhaul(&["pipe", &addr.to_string()]);
    let input = feed(farhaul.stdin(), 5, BYTES).join().expect("no panic").expect("it takes all");
    // Nobody closes the input: the peer's close is the end.
    let ended = farhaul.finish_with_open_input();
    drop(input);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let ended = receiver.finish_well();
    assert_eq!(ended.line("received"), format!("{BYTES} {hash}"));
    assert_eq!(ended.line("closed"), "local");
}

#[test]
fn stock_server_sends_and_closes() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let (sender, addr) = stock.serve(&["source", &BYTES.to_string(), "6"]);
    let relay = LOSSY.to(addr);
    let addr = relay.local_addr().to_string();
    let mut farhaul = Process::farhaul(&["pipe", &addr, "--peer-timeout", "10s"]);
    let checker = Checker::start(farhaul.stdout(), 6);
    farhaul.finish_with_open_input().expect_end_by_stock(true);
    checker.expect(BYTES);
    assert_eq!(sender.finish_well().line("acknowledged"), "yes");
}

#[test]
fn pipe_closes_although_stock_still_waits() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let (sender, addr) = stock.serve(&["source", &BYTES.to_string(), "7", "--wait-close"]);
    let mut farhaul = Process::farhaul(&["pipe", &addr.to_string()]);
    let input = farhaul.stdin();
    let checker = Checker::start(farhaul.stdout(), 7);
    checker.wait_for(BYTES);
    drop(input);
    farhaul.finish_well();
    checker.expect(BYTES);
    assert_eq!(sender.finish_well().line("closed"), "peer");
}

/// An empty session: connected and closed, in both roles.
#[test]
fn nothing_to_send() {
    let stock = stock_or_skip!();
    let (receiver, addr) = stock.serve(&["sink", "--expect", "0"]);
    drop(Process::farhaul(&["pipe", &addr.to_string()]).finish_well());
    assert_eq!(receiver.finish_well().line("closed"), "peer");

    let farhaul = Process::farhaul(&["pipe", "--listen", "127.0.0.1:0"]);
    stock.call(farhaul.listening_at(), &["source", "0", "1"]).finish_well();
    let ended = farhaul.finish_with_open_input();
    assert_eq!((ended.code, ended.lines.len()), (Some(0), 0), "{ended:#?}");
}

#[test]
fn rendezvous_with_stock() {
    let stock = stock_or_skip!();
    let _turn = turn();
    rendezvous(&stock, None, &[], &[]);
}

#[test]
fn rendezvous_with_stock_on_a_lossy_path() {
    let stock = stock_or_skip!();
    let _turn = turn();
    rendezvous(&stock, Some(LOSSY), &[], &[]);
}

/// Stock takes the other's segment size for its own, so that the two would swap theirs.
#[test]
fn rendezvous_with_unequal_segments() {
    let stock = stock_or_skip!();
    let _turn = turn();
    rendezvous(&stock, None, &["--mss", "1200"], &["--mss", "1500"]);
    rendezvous(&stock, None, &["--mss", "1500"], &["--mss", "1200"]);
}

#[test]
fn large_segments() {
    let stock = stock_or_skip!();
    let _turn = turn();
    send(&stock, BYTES, &["--mss", "9000"], &["--mss", "9000"]);
    receive(&stock, BYTES, &["--mss", "9000"], &["--mss", "9000"]);
}

#[test]
fn unequal_segments() {
    let stock = stock_or_skip!();
    let _turn = turn();
    for (ours, theirs) in [("1500", "9000"), ("9000", "1500"), ("600", "1500"), ("1500", "600")] {
        send(&stock, BYTES, &["--mss", ours], &["--mss", theirs]);
        receive(&stock, BYTES, &["--mss", ours], &["--mss", theirs]);
    }
}

#[test]
fn ipv6() {
    let stock = stock_or_skip!();
    let _turn = turn();
    send(&stock, BYTES, &[], &["--v6"]);
    receive(&stock, BYTES, &[], &["--v6"]);
}

/// A listener at the unspecified IPv6 address takes IPv4 clients too.
#[test]
fn ipv4_client_at_an_ipv6_listener() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let mut farhaul = Process::farhaul(&["pipe", "--listen", "[::]:0"]);
    let port = farhaul.listening_at().port();
    let checker = Checker::start(farhaul.stdout(), 8);
    let addr = ([127, 0, 0, 1], port).into();
    stock.call(addr, &["source", &BYTES.to_string(), "8"]).finish_well();
    assert_eq!(farhaul.finish_with_open_input().code, Some(0));
    checker.expect(BYTES);
}

/// Small windows of the stock side, so that its flow control is what governs.
#[test]
fn small_stock_windows() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let options = ["--fc", "64", "--rcvbuf", "100000", "--sndbuf", "100000"];
    // Stock opens a small window every 10 ms at best.
    const FEW: u64 = 1_000_000;
    send(&stock, FEW, &[], &options);
    receive(&stock, FEW, &[], &options);
    // A reader that is slow: the window closes and opens.
    send(&stock, FEW, &[], &[&options[..], &["--pause", "2"]].concat());
}

#[test]
fn perf_source_to_stock() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let (receiver, addr) = stock.serve(&["sink", "--expect", "30000000"]);
    let farhaul =
        Process::farhaul(&["perf", "--source", "-n", "30MB", "--json", &addr.to_string()]);
    let report = farhaul.finish_well().json();
    assert_eq!(report["bytes"], 30_000_000);
    assert_eq!(report["role"], "sender");
    receiver.finish_well();
}

#[test]
fn perf_sink_from_stock() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let args = ["perf", "--listen", "127.0.0.1:0", "--sink", "--once", "--json"];
    let farhaul = Process::farhaul(&args);
    stock.call(farhaul.listening_at(), &["source", "30000000", "9"]).finish_well();
    let report = farhaul.finish_well().json();
    assert_eq!(report["bytes"], 30_000_000);
    assert_eq!(report["role"], "receiver");
}

/// As the other role: farhaul connects to receive, and listens to send.
#[test]
fn perf_in_the_other_roles() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let (sender, addr) = stock.serve(&["source", "30000000", "10"]);
    let farhaul = Process::farhaul(&["perf", "--sink", "--json", &addr.to_string()]);
    assert_eq!(farhaul.finish_well().json()["bytes"], 30_000_000);
    sender.finish_well();

    let args = ["perf", "--listen", "127.0.0.1:0", "--source", "-n", "30MB", "--once", "--json"];
    let farhaul = Process::farhaul(&args);
    let receiver = stock.call(farhaul.listening_at(), &["sink", "--expect", "30000000"]);
    assert_eq!(farhaul.finish_well().json()["bytes"], 30_000_000);
    receiver.finish_well();
}

#[test]
fn modes_must_agree() {
    let stock = stock_or_skip!();
    let (_receiver, addr) = stock.serve(&["msg-recv"]);
    let ended = Process::farhaul(&["pipe", &addr.to_string()]).finish();
    assert_eq!(ended.code, Some(3), "{ended:#?}");

    let _farhaul = Process::farhaul(&["pipe", "--listen", "127.0.0.1:0", "--message"]);
    let ended = stock.call(_farhaul.listening_at(), &["source", "10", "1"]).finish();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.errors[0].contains("(1002)"), "{ended:#?}");
}
