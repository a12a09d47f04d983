//! What is lost between stock libudt 4.11 and `farhaul pipe`, packet by packet, and how soon it is
//! made good.
//!
//! Times are taken only where the stock library's own repair would be the alternative: it never
//! repeats a loss report, and its timer needs 300 ms at least and longer each time.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::pattern::{Checker, feed};
use common::process::Process;
use common::stock::Stock;
use common::tap::{Seen, Tap};
use common::{stock_or_skip, turn};

const BYTES: u64 = 2_000_000;
/// Well below the seconds that the stock library's timer would take for three losses in a row, well
/// above what a busy machine may add to a few tens of milliseconds.
const PROMPT: Duration = Duration::from_millis(600);

// Types of control packets.
const HANDSHAKE: u32 = 0;
const ACK: u32 = 2;
const NAK: u32 = 3;
const SHUTDOWN: u32 = 5;

/// Loses the first `times` transmissions of the `nth` data packet of one direction.
fn lose_data(forward: bool, nth: u32, times: u32) -> impl FnMut(&Seen) -> bool + Send {
    let mut first = None;
    let mut lost = 0;
    move |seen| {
        let Some(seq) = seen.data().filter(|_| seen.forward == forward) else { return false };
        let first = *first.get_or_insert(seq);
        let hit = seq.wrapping_sub(first) & 0x7fff_ffff == nth && lost < times;
        lost += u32::from(hit);
        hit
    }
}

/// Loses the first `times` control packets of a type in one direction.
fn lose_control(forward: bool, kind: u32, times: u32) -> impl FnMut(&Seen) -> bool + Send {
    let mut lost = 0;
    move |seen| {
        let hit = seen.forward == forward && seen.control() == Some(kind) && lost < times;
        lost += u32::from(hit);
        hit
    }
}

/// The longest time between two transmissions of one data packet in one direction.
fn longest_wait(seen: &[Seen], forward: bool) -> Duration {
    let mut last = BTreeMap::new();
    let mut longest = Duration::ZERO;
    for packet in seen.iter().filter(|s| s.forward == forward) {
        let Some(seq) = packet.data() else { continue };
        if let Some(before) = last.insert(seq, packet.at) {
            longest = longest.max(packet.at - before);
        }
    }
    longest
}

/// `farhaul pipe` sends to a stock server through a tap.
fn send(stock: &Stock, lose: impl FnMut(&Seen) -> bool + Send + 'static) -> Vec<Seen> {
    let hash = stock.hash(BYTES, 1);
    let (receiver, addr) = stock.serve(&["sink"]);
    let tap = Tap::open(addr, lose);
    // Slowly enough for the tap, so that nothing else is lost.
    let args = ["pipe", &tap.addr().to_string(), "--max-bandwidth", "50M"];
    let mut farhaul = Process::farhaul(&args);
    drop(feed(farhaul.stdin(), 1, BYTES).join().expect("no panic").expect("it takes all"));
    farhaul.finish_well();
    assert_eq!(receiver.finish_well().line("received"), format!("{BYTES} {hash}"));
    tap.close()
}

/// A stock client sends to `farhaul pipe --listen` through a tap.
fn receive(stock: &Stock, lose: impl FnMut(&Seen) -> bool + Send + 'static) -> Vec<Seen> {
    let mut farhaul = Process::farhaul(&["pipe", "--listen", "127.0.0.1:0"]);
    let tap = Tap::open(farhaul.listening_at(), lose);
    let checker = Checker::start(farhaul.stdout(), 2);
    // Bytes a second.
    let args = ["source", &BYTES.to_string(), "2", "--maxbw", "6000000"];
    stock.call(tap.addr(), &args).finish_well();
    assert_eq!(farhaul.finish_with_open_input().code, Some(0));
    let pause = checker.longest_pause();
    assert!(pause < 2 * PROMPT, "{pause:?}");
    checker.expect(BYTES);
    tap.close()
}

#[test]
fn a_retransmission_lost_again_and_again_on_the_way_to_stock() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let seen = send(&stock, lose_data(true, 300, 4));
    assert!(longest_wait(&seen, true) < PROMPT, "{:?}", longest_wait(&seen, true));
}

#[test]
fn a_retransmission_lost_again_and_again_on_the_way_from_stock() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let seen = receive(&stock, lose_data(true, 300, 4));
    assert!(longest_wait(&seen, true) < PROMPT, "{:?}", longest_wait(&seen, true));
}

/// Nothing follows the last packet that could tell the receiver of its loss.
#[test]
fn the_last_packet_lost() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let last = (BYTES / 1456) as u32;
    let seen = send(&stock, lose_data(true, last, 3));
    assert!(longest_wait(&seen, true) < 2 * PROMPT, "{:?}", longest_wait(&seen, true));
    receive(&stock, lose_data(true, last, 1));
}

/// Stock reports a loss once. All of its reports are lost here, and every hundredth packet.
#[test]
fn all_loss_reports_of_stock_lost() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let mut highest = None;
    let mut count = 0;
    let seen = send(&stock, move |seen| {
        if let (true, Some(seq)) = (seen.forward, seen.data()) {
            let new = highest.is_none_or(|h| (seq.wrapping_sub(h) & 0x7fff_ffff) < 0x4000_0000);
            if new {
                highest = Some(seq.wrapping_add(1) & 0x7fff_ffff);
                count += 1;
            }
            return new && count % 100 == 0;
        }
        !seen.forward && seen.control() == Some(NAK)
    });
    assert!(longest_wait(&seen, true) < PROMPT, "{:?}", longest_wait(&seen, true));
}

#[test]
fn most_acknowledgements_lost() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let most = || {
        let mut count = 0;
        move |seen: &Seen| {
            let hit = !seen.forward && seen.control() == Some(ACK);
            count += u32::from(hit);
            // The last ones must arrive: stock does not repeat what it thinks was heard.
            hit && count % 4 != 0
        }
    };
    send(&stock, most());
    receive(&stock, most());
}

/// A stock client drops what arrives before it has noticed that it is connected.
#[test]
fn the_first_packets_lost() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let mut farhaul = Process::farhaul(&["pipe", "--listen", "127.0.0.1:0"]);
    let addr = farhaul.listening_at();
    let tap = Tap::open(addr, lose_data(false, 0, 2));
    let bytes = BYTES.to_string();
    let peer = stock.call(tap.addr(), &["sink", "--close-first", "--expect", &bytes]);
    let input = feed(farhaul.stdin(), 3, BYTES).join().expect("no panic").expect("it takes all");
    let hash = stock.hash(BYTES, 3);
    assert_eq!(peer.finish_well().line("received"), format!("{BYTES} {hash}"));
    assert_eq!(farhaul.finish_with_open_input().code, Some(0));
    drop(input);
    tap.close();
}

/// A stock client closes when it likes and does not say what it has: to the listening side that is told, and no
/// error, as the rest may have arrived.
#[test]
fn a_stock_receiver_that_closes_early() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let mut farhaul = Process::farhaul(&["pipe", "--listen", "127.0.0.1:0"]);
    let addr = farhaul.listening_at();
    let feeder = feed(farhaul.stdin(), 3, 20 * BYTES);
    let expected = (BYTES / 10).to_string();
    stock.call(addr, &["sink", "--close-first", "--expect", &expected]).finish();
    let ended = farhaul.finish_with_open_input();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(feeder.join().expect("no panic").is_err());
}

/// Each packet of the set-up lost twice, in both roles.
#[test]
fn handshakes_lost() {
    let stock = stock_or_skip!();
    let _turn = turn();
    for forward in [true, false] {
        // The n-th and the next of them: hello or cookie, conclusion or answer.
        for skip in [0, 2] {
            let lose = move || {
                let mut count = 0;
                move |seen: &Seen| {
                    let hit = seen.forward == forward && seen.control() == Some(HANDSHAKE);
                    count += u32::from(hit);
                    // Of the second request the first one passes.
                    hit && (if skip == 0 { count <= 2 } else { (2..=3).contains(&count) })
                }
            };
            send(&stock, lose());
            receive(&stock, lose());
        }
    }
}

#[test]
fn shutdowns_lost_on_the_way_to_stock() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let seen = send(&stock, lose_control(true, SHUTDOWN, 2));
    assert!(seen.iter().filter(|s| s.control() == Some(SHUTDOWN)).count() > 2);
}
