//! Receivers that lie, refuse or go away: the sender never reports a success that is none.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;

use farhaul_mover::digest::Digest;
use farhaul_mover::frame::{AbortReason, Frame, Preamble, Role, Tally, VERSION};
use farhaul_mover::{SendError, SendOptions, Violation, send};
use proptest::prelude::*;

use common::{Sent, Sink};

fn source() -> (tempfile::TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/f"), [7; 5000]).unwrap();
    let paths = vec![dir.path().join("d")];
    (dir, paths)
}

/// Sends to a receiver that waits for the end and answers with what `answer` makes of it. The
/// answer comes with the sender's last words after the end.
fn send_to(answer: impl FnOnce(Tally, Digest) -> Vec<u8> + Send) -> (Sent, Vec<u8>) {
    let (_dir, paths) = source();
    let (near, mut far) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        let peer = scope.spawn(move || {
            let preamble = Preamble { version: VERSION, role: Role::Receiver };
            far.write_all(&preamble.encode()).unwrap();
            far.read_exact(&mut [0; Preamble::SIZE]).unwrap();
            let (mut heard, mut piece) = (Vec::new(), [0; 4096]);
            loop {
                let n = far.read(&mut piece).unwrap();
                assert!(n > 0, "the sender went away");
                heard.extend_from_slice(&piece[..n]);
                let mut rest = &heard[..];
                while let Some((frame, used)) = Frame::decode(rest).unwrap() {
                    if let Frame::End { tally, transcript, .. } = frame {
                        far.write_all(&answer(tally, transcript)).unwrap();
                        far.shutdown(std::net::Shutdown::Write).unwrap();
                        let mut last_words = Vec::new();
                        far.read_to_end(&mut last_words).unwrap();
                        return last_words;
                    }
                    rest = &rest[used..];
                }
            }
        });
        let sent = send(&paths, (&near, &near), &SendOptions::default(), &mut |_| {});
        drop(near);
        (sent, peer.join().unwrap())
    })
}

fn bytes(frame: Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

#[test]
fn an_honest_receipt_is_a_success_and_acknowledged() {
    let (sent, last_words) = send_to(|tally, transcript| {
        assert_eq!(tally, Tally { files: 1, directories: 1, symlinks: 0, bytes: 5000 });
        bytes(Frame::Receipt { tally, failed: 0, transcript })
    });
    assert_eq!(sent.unwrap().tally.files, 1);
    assert_eq!(last_words, bytes(Frame::Done));
}

#[test]
fn a_receipt_that_differs_is_no_success() {
    type Lie = fn(Tally, Digest) -> Frame<'static>;
    let lies: [Lie; 5] = [
        |tally, transcript| Frame::Receipt {
            tally: Tally { files: 0, ..tally },
            failed: 0,
            transcript,
        },
        |tally, transcript| Frame::Receipt {
            tally: Tally { bytes: 1, ..tally },
            failed: 0,
            transcript,
        },
        |tally, _| Frame::Receipt { tally, failed: 0, transcript: [0; 32] },
        |tally, transcript| Frame::Receipt { tally, failed: 3, transcript },
        |tally, transcript| Frame::Receipt { tally, failed: u64::MAX, transcript },
    ];
    for lie in lies {
        let (sent, last_words) = send_to(move |tally, transcript| bytes(lie(tally, transcript)));
        let error = sent.unwrap_err();
        assert!(matches!(error, SendError::ReceiptMismatch), "{error}");
        assert_eq!(error.exit_code(), 4);
        assert_eq!(
            last_words,
            bytes(Frame::Abort { reason: AbortReason::Verification, text: b"" })
        );
    }
}

#[test]
fn a_receipt_with_failures_is_incomplete() {
    let (sent, _) = send_to(|tally, transcript| {
        let failed = Frame::Failed { entry: 1, text: b"d/f: disk on fire\n" };
        [bytes(failed), bytes(Frame::Receipt { tally, failed: 1, transcript })].concat()
    });
    let error = sent.unwrap_err();
    assert_eq!(error.exit_code(), 1);
    let SendError::Incomplete { failures, .. } = error else { panic!("{error}") };
    assert_eq!(failures.count, 1);
    assert_eq!(failures.first[0].to_string(), "peer: d/f: disk on fire\u{fffd}");
}

#[test]
fn no_receipt_is_no_success() {
    let (sent, _) = send_to(|_, _| Vec::new());
    assert!(matches!(sent, Err(SendError::PeerVanished)), "{sent:?}");
    let (sent, _) = send_to(|tally, transcript| {
        let mut receipt = bytes(Frame::Receipt { tally, failed: 0, transcript });
        receipt.pop();
        receipt
    });
    assert!(matches!(sent, Err(SendError::PeerVanished)), "{sent:?}");
}

#[test]
fn each_reason_to_abort_has_its_error_and_code() {
    let cases: [(AbortReason, &[u8], u8, &str); 6] = [
        (AbortReason::Failed, b"no\x07", 1, "the receiver gave up: no\u{fffd}"),
        (AbortReason::Refused, b"not today", 3, "the receiver refused: not today"),
        (AbortReason::Verification, b"d/f", 4, "\"d/f\" did not arrive as it was read"),
        (AbortReason::Verification, b"", 4, "the receiver's receipt differs from what was sent"),
        (AbortReason::Interrupted, b"interrupted", 1, "the receiver gave up: interrupted"),
        (AbortReason::Protocol, b"a bad mode", 1, "the receiver gave up: a bad mode"),
    ];
    for (reason, text, code, message) in cases {
        let (sent, last_words) = send_to(move |_, _| bytes(Frame::Abort { reason, text }));
        let error = sent.unwrap_err();
        assert_eq!((error.exit_code(), error.to_string().as_str()), (code, message));
        assert_eq!(last_words, bytes(Frame::Abort { reason: AbortReason::Agreed, text: b"" }));
    }
}

/// A receiver that says all this at once, without having heard anything.
fn send_to_rash(said: &[u8]) -> Sent {
    let (_dir, paths) = source();
    let options = SendOptions { count: false, ..SendOptions::default() };
    send(&paths, (said, Sink), &options, &mut |_| {})
}

#[test]
fn receivers_that_speak_out_of_turn_are_refused() {
    let preamble = Preamble { version: VERSION, role: Role::Receiver }.encode();
    let rash = |said: &[u8]| send_to_rash(&[&preamble[..], said].concat());
    let rule = |sent: Sent| match sent {
        Err(SendError::ProtocolViolation(rule)) => rule,
        other => panic!("{other:?}"),
    };
    // Never announced, however the threads run: there are two entries.
    let stray = bytes(Frame::Failed { entry: 2, text: b"" });
    assert_eq!(rule(rash(&stray)), Violation::EntryOrder);
    assert_eq!(rule(rash(&bytes(Frame::Leave))), Violation::Unexpected);
    assert_eq!(rule(rash(&bytes(Frame::Data(&[0; 100])))), Violation::Unexpected);
    assert_eq!(rule(rash(&[4, 0, 15, 0, 0])), Violation::Unexpected);
    assert!(matches!(rule(rash(&[0, 0, 0, 0, 0])), Violation::Malformed(_)));
    assert!(matches!(rash(b""), Err(SendError::PeerVanished)));

    assert_eq!(rule(send_to_rash(b"SSH-2.0-OpenSSH_9.9\r\n")), Violation::NotThisProtocol);
    let sender = Preamble { version: VERSION, role: Role::Sender };
    assert_eq!(rule(send_to_rash(&sender.encode())), Violation::SameRole);
    let older = send_to_rash(&Preamble { version: 0, role: Role::Receiver }.encode()).unwrap_err();
    assert!(matches!(older, SendError::IncompatibleVersion { theirs: 0 }));
    assert_eq!(older.exit_code(), 3);
    assert!(matches!(send_to_rash(&preamble[..9]), Err(SendError::PeerVanished)));
}

proptest! {
    #![proptest_config(common::seeded(300))]

    /// Whatever a receiver says instead of a receipt, it is no success.
    #[test]
    fn noise_is_no_receipt(noise in prop::collection::vec(any::<u8>(), 0..150), kind in 0u8..16) {
        let preamble = Preamble { version: VERSION, role: Role::Receiver }.encode();
        prop_assert!(send_to_rash(&[&preamble[..], &noise].concat()).is_err());
        let framed = [&preamble[..], &[kind, 0, 0, 0, noise.len() as u8], &noise].concat();
        prop_assert!(send_to_rash(&framed).is_err());
    }
}
