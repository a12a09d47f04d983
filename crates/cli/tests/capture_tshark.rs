//! Sessions of farhaul as Wireshark's dissector sees them: every datagram is UDT, none malformed.

mod common;

use std::collections::BTreeSet;
use std::io::Write;

use common::capture::{Frame, dissect};
use common::pattern::{Checker, feed};
use common::process::Process;
use common::skip;
use common::tap::{Seen, Tap};

// Types of control packets.
const HANDSHAKE: u32 = 0;
const KEEP_ALIVE: u32 = 1;
const ACK: u32 = 2;
const NAK: u32 = 3;
const SHUTDOWN: u32 = 5;
const ACK2: u32 = 6;

/// Loses the first transmission of some data packets, single ones and a run, so that there is
/// something to report.
fn lose_some() -> impl FnMut(&Seen) -> bool + Send {
    let mut highest = None;
    let mut count = 0;
    move |seen| {
        let (true, Some(seq)) = (seen.forward, seen.data()) else { return false };
        if highest.is_some_and(|highest| seq <= highest) {
            return false;
        }
        highest = Some(seq);
        count += 1;
        count == 50 || (100..105).contains(&count) || count % 400 == 0
    }
}

/// Everything that `tshark` must find in a session.
fn expect_udt(frames: &[Frame]) {
    for (index, frame) in frames.iter().enumerate() {
        assert!(frame.protocols.contains("udp:udt"), "frame {index}: {frame:?}");
        assert!(!frame.malformed, "frame {index}: {frame:?}");
        assert!(frame.control.is_some(), "frame {index}: {frame:?}");
    }
    let of = |kind: u32| frames.iter().filter(move |f| f.kind == Some(kind));
    let requests: Vec<i32> = of(HANDSHAKE).filter_map(|f| f.request).collect();
    assert_eq!(requests[..4], [1, 1, -1, -1], "hello, cookie, conclusion, answer");
    assert!(of(HANDSHAKE).all(|f| f.version == Some(4)));
    assert!(of(ACK).any(|f| f.acknowledged.is_some() && f.rtt.is_some() && f.rate.is_some()));
    assert!(of(ACK2).count() > 0);
    assert!(of(SHUTDOWN).count() > 0);
    let data = frames.iter().filter(|f| f.control == Some(false));
    assert!(data.clone().count() > 0);
    assert!(data.clone().all(|f| f.sequence.is_some() && f.message.is_some()));
}

#[test]
fn a_stream_with_losses() {
    let mut receiver = Process::farhaul(&["pipe", "--listen", "127.0.0.1:0"]);
    let server = receiver.listening_at();
    let tap = Tap::open(server, lose_some());
    let client = tap.addr();
    let checker = Checker::start(receiver.stdout(), 1);
    // Slowly enough for the tap, so that nothing else is lost; and by a law that keeps more than a run
    // under way, however short the path: packets that follow a run have it reported.
    let to = client.to_string();
    let mut sender = Process::farhaul(&["pipe", &to, "--max-bandwidth", "50M", "--cc", "udt"]);
    const BYTES: u64 = 3_000_000;
    drop(feed(sender.stdin(), 1, BYTES).join().expect("no panic").expect("it takes all"));
    sender.finish_well();
    checker.expect(BYTES);
    receiver.finish_well();
    let seen = tap.close();

    let folder = tempfile::tempdir().expect("a folder");
    let frames = match dissect(&seen, client, server, folder.path()) {
        Ok(frames) => frames,
        Err(why) => skip!("{why}"),
    };
    assert_eq!(frames.len(), seen.len());
    expect_udt(&frames);
    // The losses were reported, single ones and ranges; the dissector counts from the first packet.
    let naks = frames.iter().filter(|f| f.kind == Some(NAK)).filter_map(|f| f.missing.as_deref());
    let missing: String = naks.collect::<Vec<_>>().join("\n");
    assert!(missing.contains(" 49 (relative)"), "{missing}");
    assert!(missing.contains(" 99-103 (relative)"), "{missing}");
}

#[test]
fn a_session_of_messages() {
    let receiver = Process::farhaul(&["pipe", "--message", "--listen", "127.0.0.1:0"]);
    let server = receiver.listening_at();
    let tap = Tap::open(server, lose_some());
    let client = tap.addr();
    let mut sender = Process::farhaul(&["pipe", "--message", "--ordered", &client.to_string()]);
    let mut input = sender.stdin();
    let text: String = (0..1_000).map(|i| format!("message {i}\n")).collect();
    input.write_all(text.as_bytes()).expect("it takes all");
    drop(input);
    sender.finish_well();
    assert_eq!(String::from_utf8(receiver.finish_with_output()).expect("lines"), text);
    let seen = tap.close();

    let folder = tempfile::tempdir().expect("a folder");
    let frames = match dissect(&seen, client, server, folder.path()) {
        Ok(frames) => frames,
        Err(why) => skip!("{why}"),
    };
    expect_udt(&frames);
    let numbers: BTreeSet<u32> =
        frames.iter().filter(|f| f.control == Some(false)).filter_map(|f| f.message).collect();
    assert_eq!(numbers, (1..=1_000).collect(), "message numbers");
}

/// A connection on which nothing happens says from time to time that it is alive.
#[test]
fn an_idle_session() {
    let receiver = Process::farhaul(&["pipe", "--listen", "127.0.0.1:0"]);
    let server = receiver.listening_at();
    let tap = Tap::open(server, |_| false);
    let client = tap.addr();
    let mut sender = Process::farhaul(&["pipe", &client.to_string()]);
    let input = sender.stdin();
    tap.wait_for(|seen| seen.control() == Some(KEEP_ALIVE));
    drop(input);
    sender.finish_well();
    receiver.finish_well();
    let seen = tap.close();

    let folder = tempfile::tempdir().expect("a folder");
    let frames = match dissect(&seen, client, server, folder.path()) {
        Ok(frames) => frames,
        Err(why) => skip!("{why}"),
    };
    assert!(frames.iter().all(|f| f.protocols.contains("udp:udt") && !f.malformed), "{frames:#?}");
    assert!(frames.iter().any(|f| f.kind == Some(KEEP_ALIVE)));
}
