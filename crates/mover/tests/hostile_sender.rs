//! Senders that lie, trick, stop or rave: nothing outside the target changes, nothing unfinished
//! stays in it, and the receiver always ends with the error that fits.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::symlink;

use farhaul_mover::digest::ContentHasher;
use farhaul_mover::frame::{
    AbortReason, DecodeError, Frame, MAX_DATA, MAX_DEPTH, Preamble, Role, Tally, VERSION,
};
use farhaul_mover::name::BadName;
use farhaul_mover::{ReceiveError, ReceiveOptions, Violation, receive};

use common::{Script, assert_no_leftovers, attributes, frames, place};

/// The rule that a script breaks.
#[track_caller]
fn violation(script: &Script) -> Violation {
    let place = place();
    let (received, answer) = script.play(&place.into);
    place.assert_safe();
    match received {
        Err(ReceiveError::ProtocolViolation(rule)) => {
            let said = frames(&answer);
            assert!(
                matches!(said.last(), Some(Frame::Abort { reason: AbortReason::Protocol, .. })),
                "{said:?}"
            );
            rule
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_honest_script_is_accepted() {
    let place = place();
    let script = Script::new()
        .frame(Frame::Totals { files: 2, bytes: 250 })
        .directory("d")
        .file("f", &[7; 250])
        .link("l", "/etc")
        .leave()
        .file("empty", b"")
        .end()
        .frame(Frame::Done);
    let (received, answer) = script.play(&place.into);
    let summary = received.unwrap();
    let expected = Tally { files: 2, directories: 1, symlinks: 1, bytes: 250 };
    assert_eq!(summary.tally, expected);
    place.assert_arrived(&["d", "d/f", "d/l", "empty"]);
    match frames(&answer)[..] {
        [Frame::Receipt { tally, failed: 0, transcript }] => {
            assert_eq!((tally, transcript), (expected, summary.transcript));
        }
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let cases: [(&[u8], BadName); 9] = [
        (b"..", BadName::Dots),
        (b".", BadName::Dots),
        (b"", BadName::Empty),
        (b"/etc/passwd", BadName::Separator),
        (b"../outside/x", BadName::Separator),
        (b"a/../../x", BadName::Separator),
        (b"x/", BadName::Separator),
        (b"..\0", BadName::Nul),
        (b"a\0b", BadName::Nul),
    ];
    for (bad, why) in cases {
        // Frames begin with type and length; the name follows with its own length.
        let mut good = Vec::new();
        Frame::Directory { name: common::name("?"), attributes: attributes(0o755) }
            .encode(&mut good);
        let tail = &good[7..];
        for (kind, more) in [(1u8, &b""[..]), (3, &[0; 8]), (8, b"target")] {
            let body = [&[bad.len() as u8], bad, tail, more].concat();
            let mut frame = vec![kind];
            frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
            frame.extend_from_slice(&body);
            let rule = violation(&Script::new().raw(&frame));
            assert_eq!(rule, Violation::Malformed(DecodeError::BadName(why)), "{bad:?}");
        }
    }
}

#[test]
fn a_link_made_first_is_not_a_way_out() {
    let place = place();
    let script = Script::new()
        .link("a", &place.outside())
        .directory("a")
        .file("secret", b"mine now")
        .directory("sub")
        .file("f", b"x")
        .leave()
        .link("l", "x")
        .leave()
        .file("b", b"fine")
        .end();
    let (received, answer) = script.play(&place.into);
    let Err(ReceiveError::Incomplete { summary, failures }) = received else {
        panic!("{received:?}")
    };
    // The directory itself and everything in it, told once.
    assert_eq!((failures.count, failures.first.len()), (5, 1));
    assert!(failures.first[0].text.starts_with("a: "), "{:?}", failures.first);
    assert_eq!(summary.tally, Tally { files: 1, directories: 0, symlinks: 1, bytes: 4 });
    place.assert_arrived(&["a", "b"]);
    let said = frames(&answer);
    assert!(matches!(said[0], Frame::Failed { entry: 1, .. }), "{said:?}");
    assert!(matches!(said[1], Frame::Receipt { failed: 5, .. }), "{said:?}");
}

#[test]
fn links_that_stood_there_before_are_not_a_way_out() {
    let place = place();
    symlink(place.outside(), place.into.join("dir")).unwrap();
    symlink(place.dir.path().join("outside/secret"), place.into.join("file")).unwrap();
    symlink(place.dir.path().join("outside/new"), place.into.join("dangling")).unwrap();
    let script = Script::new()
        .directory("dir")
        .file("secret", b"mine now")
        .leave()
        .directory("dangling")
        .leave()
        .file("file", b"mine")
        .file("dangling", b"mine")
        .end();
    let (received, _) = script.play(&place.into);
    assert!(matches!(received, Err(ReceiveError::Incomplete { .. })), "{received:?}");
    place.assert_arrived(&["dangling", "dir", "file"]);
    assert!(fs::symlink_metadata(place.into.join("file")).unwrap().is_file());
    assert!(fs::symlink_metadata(place.into.join("dir")).unwrap().is_symlink());
}

#[test]
fn a_name_sent_twice_is_the_later_one() {
    let place = place();
    let script = Script::new()
        .file("a", b"file")
        .link("a", &place.outside())
        .file("a", b"file again")
        .directory("d")
        .file("f", b"1")
        .leave()
        .directory("d")
        .file("f", b"2")
        .leave()
        .end();
    script.play(&place.into).0.unwrap();
    place.assert_arrived(&["a", "d", "d/f"]);
    assert_eq!(fs::read(place.into.join("a")).unwrap(), b"file again");
    assert_eq!(fs::read(place.into.join("d/f")).unwrap(), b"2");
}

#[test]
fn kinds_that_clash_fail_alone() {
    let place = place();
    fs::create_dir(place.into.join("d")).unwrap();
    fs::write(place.into.join("d/kept"), "").unwrap();
    let script = Script::new()
        .file("d", &[1; 500])
        .link("d", "x")
        .file("f", b"content")
        .directory("f")
        .leave()
        .file("g", b"last")
        .end();
    let (received, answer) = script.play(&place.into);
    let Err(ReceiveError::Incomplete { failures, .. }) = received else { panic!("{received:?}") };
    assert_eq!(failures.count, 3);
    place.assert_arrived(&["d", "d/kept", "f", "g"]);
    let entries: Vec<u64> = frames(&answer)
        .iter()
        .filter_map(|frame| match frame {
            Frame::Failed { entry, .. } => Some(*entry),
            _ => None,
        })
        .collect();
    assert_eq!(entries, [0, 1, 3]);
}

#[test]
fn frames_out_of_place_are_refused() {
    use Violation::*;
    let new = Script::new;
    let digest = [0; 32];
    let receipt = Frame::Receipt { tally: Tally::default(), failed: 0, transcript: digest };
    let in_file = || new().begin("f", 10);
    assert_eq!(violation(&new().leave()), LeaveAtTop);
    assert_eq!(violation(&new().directory("d").leave().leave()), LeaveAtTop);
    assert_eq!(violation(&new().directory("d").end()), UnfinishedDirectory);
    assert_eq!(violation(&new().file("f", b"").directory("f").end()), UnfinishedDirectory);
    assert_eq!(violation(&new().frame(Frame::Data(b"x"))), Unexpected);
    assert_eq!(violation(&new().frame(Frame::Hole { length: 1 })), Unexpected);
    assert_eq!(violation(&new().frame(Frame::FileEnd { digest })), Unexpected);
    assert_eq!(violation(&new().frame(Frame::FileDropped)), Unexpected);
    assert_eq!(violation(&new().frame(Frame::Done)), Unexpected);
    assert_eq!(violation(&new().frame(receipt)), Unexpected);
    assert_eq!(violation(&new().frame(Frame::Failed { entry: 0, text: b"" })), Unexpected);
    assert_eq!(violation(&in_file().begin("g", 1)), Unexpected);
    assert_eq!(violation(&in_file().directory("d")), Unexpected);
    assert_eq!(violation(&in_file().leave()), Unexpected);
    assert_eq!(violation(&in_file().link("l", "x")), Unexpected);
    assert_eq!(violation(&in_file().end()), Unexpected);
    assert_eq!(violation(&in_file().frame(Frame::Data(&[1; 11]))), LongFile);
    assert_eq!(
        violation(&in_file().frame(Frame::Data(&[1; 10])).frame(Frame::Data(b"x"))),
        LongFile
    );
    assert_eq!(violation(&in_file().frame(Frame::Hole { length: 11 })), LongFile);
    assert_eq!(violation(&in_file().frame(Frame::Hole { length: i64::MAX as u64 })), LongFile);
    assert_eq!(violation(&in_file().frame(Frame::FileEnd { digest })), ShortFile);
    assert_eq!(
        violation(&in_file().frame(Frame::Data(&[1; 9])).frame(Frame::FileEnd { digest })),
        ShortFile
    );
    let deep = (0..=MAX_DEPTH).fold(new(), |script, _| script.directory("d"));
    assert_eq!(violation(&deep), TooDeep);
    let deep_and_lost =
        (0..=MAX_DEPTH).fold(new().file("d", b""), |script, _| script.directory("d"));
    assert_eq!(violation(&deep_and_lost), TooDeep);
}

#[test]
fn lengths_beyond_their_bounds_are_refused_unread() {
    for kind in 1..=14u8 {
        for length in [MAX_DATA as u32 + 1, u32::MAX] {
            let mut header = vec![kind];
            header.extend_from_slice(&length.to_be_bytes());
            let rule = violation(&Script::new().raw(&header));
            let expected = DecodeError::TooLong { kind, length: length as usize };
            assert_eq!(rule, Violation::Malformed(expected));
        }
    }
    let rule = violation(&Script::new().raw(&[99, 0, 0, 0, 0]));
    assert_eq!(rule, Violation::Malformed(DecodeError::UnknownType(99)));
}

#[test]
fn other_protocols_versions_and_roles_are_refused() {
    let place = place();
    let play = |bytes: &[u8]| Script::from_bytes(bytes).play(&place.into).0;
    let preamble = Preamble { version: VERSION, role: Role::Sender };
    let http = play(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(matches!(http, Err(ReceiveError::ProtocolViolation(Violation::NotThisProtocol))));
    let receiver = play(&Preamble { role: Role::Receiver, ..preamble }.encode());
    assert!(matches!(receiver, Err(ReceiveError::ProtocolViolation(Violation::SameRole))));
    let newer = play(&Preamble { version: VERSION + 1, ..preamble }.encode()).unwrap_err();
    assert!(matches!(newer, ReceiveError::IncompatibleVersion { .. }));
    assert_eq!(newer.exit_code(), 3);
    assert!(matches!(play(b""), Err(ReceiveError::PeerVanished)));
    place.assert_arrived(&[]);
}

#[test]
fn a_wrong_digest_keeps_nothing() {
    let place = place();
    fs::write(place.into.join("f"), "the old one").unwrap();
    let mut hasher = ContentHasher::default();
    hasher.data(b"what was read");
    let script = Script::new()
        .directory("d")
        .file("good", b"x")
        .leave()
        .begin("f", 13)
        .frame(Frame::Data(b"what was sent"))
        .frame(Frame::FileEnd { digest: hasher.finish() })
        .end();
    let (received, answer) = script.play(&place.into);
    let error = received.unwrap_err();
    assert_eq!(error.exit_code(), 4);
    assert!(matches!(error, ReceiveError::VerificationFailed { path } if path == *"f"));
    place.assert_arrived(&["d", "d/good", "f"]);
    assert_eq!(fs::read(place.into.join("f")).unwrap(), b"the old one");
    let abort = Frame::Abort { reason: AbortReason::Verification, text: b"f" };
    assert_eq!(frames(&answer), [abort]);
}

#[test]
fn a_hole_moved_is_a_wrong_digest() {
    let place = place();
    let mut hasher = ContentHasher::default();
    hasher.data(b"xy");
    hasher.hole(100);
    let script = Script::new()
        .begin("f", 102)
        .frame(Frame::Hole { length: 100 })
        .frame(Frame::Data(b"xy"))
        .frame(Frame::FileEnd { digest: hasher.finish() });
    let (received, _) = script.play(&place.into);
    assert!(matches!(received, Err(ReceiveError::VerificationFailed { .. })));
    place.assert_arrived(&[]);
}

#[test]
fn an_end_that_tells_another_story_is_not_confirmed() {
    let base = Script::new().file("f", b"content").link("l", "x");
    let Frame::End { tally, omitted, transcript } = base.honest_end() else { panic!() };
    let mut other = transcript;
    other[31] ^= 1;
    let ends = [
        Frame::End { tally: Tally { files: 2, ..tally }, omitted, transcript },
        Frame::End { tally: Tally { symlinks: 0, ..tally }, omitted, transcript },
        Frame::End { tally: Tally { directories: u64::MAX, ..tally }, omitted, transcript },
        Frame::End { tally: Tally { bytes: 8, ..tally }, omitted, transcript },
        Frame::End { tally, omitted, transcript: other },
    ];
    for end in ends {
        let place = place();
        let (received, answer) = base.clone().frame(end).play(&place.into);
        let error = received.unwrap_err();
        assert!(matches!(error, ReceiveError::TotalsMismatch), "{error}");
        assert_eq!(error.exit_code(), 4);
        assert_eq!(
            frames(&answer),
            [Frame::Abort { reason: AbortReason::Verification, text: b"" }]
        );
        place.assert_safe();
    }
}

#[test]
fn a_sender_that_disputes_the_receipt_is_heard() {
    let place = place();
    let dispute = Frame::Abort { reason: AbortReason::Verification, text: b"" };
    let (received, answer) =
        Script::new().file("f", b"content").end().frame(dispute).play(&place.into);
    assert!(matches!(received, Err(ReceiveError::TotalsMismatch)), "{received:?}");
    assert!(matches!(frames(&answer)[..], [Frame::Receipt { failed: 0, .. }]));
}

#[test]
fn a_sender_s_own_failures_make_it_incomplete() {
    let place = place();
    let base = Script::new()
        .file("f", b"content")
        .begin("dropped", 100)
        .frame(Frame::Data(b"a part"))
        .frame(Frame::FileDropped);
    let Frame::End { tally, transcript, .. } = base.honest_end() else { panic!() };
    let (received, _) =
        base.frame(Frame::End { tally, omitted: u64::MAX, transcript }).play(&place.into);
    let Err(ReceiveError::Incomplete { failures, .. }) = received else { panic!("{received:?}") };
    assert_eq!((failures.count, failures.first.len()), (u64::MAX, 1));
    assert!(failures.first[0].text.starts_with("dropped: "));
    place.assert_arrived(&["f"]);
}

#[test]
fn enormous_claims_cost_nothing() {
    let place = place();
    let size = i64::MAX as u64;
    let mut script = Script::new().frame(Frame::Totals { files: u64::MAX, bytes: u64::MAX });
    for as_name in ["huge", "huger"] {
        let mut hasher = ContentHasher::default();
        hasher.hole(size);
        script = script
            .begin(as_name, size)
            .frame(Frame::Hole { length: size })
            .frame(Frame::FileEnd { digest: hasher.finish() });
    }
    let (received, _) = script.end().play(&place.into);
    // Some file systems can hold such a file and some cannot; either is said, at once.
    match received {
        Ok(summary) => assert_eq!(summary.tally.files, 2),
        Err(ReceiveError::Incomplete { failures, .. }) => assert_eq!(failures.count, 2),
        Err(other) => panic!("{other}"),
    }
    assert_no_leftovers(&place.into);
}

#[test]
fn a_file_too_large_for_the_file_system_fails_once() {
    let place = place();
    let size = i64::MAX as u64;
    let mut hasher = ContentHasher::default();
    hasher.hole(size - 10);
    hasher.data(&[1; 10]);
    let script = Script::new()
        .begin("f", size)
        .frame(Frame::Hole { length: size - 10 })
        .frame(Frame::Data(&[1; 5]))
        .frame(Frame::Data(&[1; 5]))
        .frame(Frame::FileEnd { digest: hasher.finish() })
        .file("g", b"fine")
        .end();
    let (received, answer) = script.play(&place.into);
    let told = frames(&answer).iter().filter(|f| matches!(f, Frame::Failed { .. })).count();
    match received {
        Ok(_) => assert_eq!(told, 0),
        Err(ReceiveError::Incomplete { failures, .. }) => {
            assert_eq!((failures.count, told), (1, 1));
            place.assert_arrived(&["g"]);
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_file_lost_on_both_sides_counts_once() {
    let place = place();
    fs::create_dir(place.into.join("d")).unwrap();
    let base = Script::new().begin("d", 10).frame(Frame::FileDropped);
    let Frame::End { tally, transcript, .. } = base.honest_end() else { panic!() };
    let (received, answer) =
        base.frame(Frame::End { tally, omitted: 1, transcript }).play(&place.into);
    let Err(ReceiveError::Incomplete { failures, .. }) = received else { panic!("{received:?}") };
    assert_eq!(failures.count, 1);
    assert!(matches!(frames(&answer).last(), Some(Frame::Receipt { failed: 0, .. })));
}

/// Otherwise closing the stream could lose the reason, and a sender that only writes never ends.
#[test]
fn a_receiver_that_gives_up_reads_on_until_the_sender_agrees() {
    let place = place();
    let mut script = Script::new().begin("f", 1 << 40);
    for _ in 0..10 {
        script = script.frame(Frame::Data(&[0; MAX_DATA]));
    }
    let agreed = Frame::Abort { reason: AbortReason::Agreed, text: b"" };
    let script = script.frame(agreed);
    let options = ReceiveOptions { max_bytes: Some(1), ..ReceiveOptions::default() };
    let (mut rest, mut answer) = (&script.bytes[..], Vec::new());
    let received = receive(&place.into, (&mut rest, &mut answer), &options, &mut |_| {});
    assert!(matches!(received, Err(ReceiveError::OverLimit { .. })), "{received:?}");
    assert_eq!(rest.len(), 0);
}

#[test]
fn counts_past_64_bits_stand_still() {
    let place = place();
    let size = i64::MAX as u64;
    let mut script = Script::new();
    for _ in 0..3 {
        script =
            script.begin("f", size).frame(Frame::Hole { length: size }).frame(Frame::FileDropped);
    }
    let Frame::End { tally, transcript, .. } = script.honest_end() else { panic!() };
    assert_eq!(tally, Tally::default());
    let end = Frame::End { tally, omitted: 3, transcript };
    let (received, _) = script.clone().frame(end).play(&place.into);
    assert!(
        matches!(received, Err(ReceiveError::Incomplete { failures, .. }) if failures.count == 3)
    );
    // Dropping files and not owning up to it is another story told.
    let (received, _) = script.end().play(&place.into);
    assert!(matches!(received, Err(ReceiveError::TotalsMismatch)), "{received:?}");
    place.assert_arrived(&[]);
}

#[test]
fn a_limit_is_kept_whether_announced_or_not() {
    let options = ReceiveOptions { max_bytes: Some(100), ..ReceiveOptions::default() };
    let over = [
        Script::new().frame(Frame::Totals { files: 1, bytes: 101 }),
        Script::new().begin("f", 101),
        Script::new().file("f", &[0; 60]).begin("g", 41),
        Script::new().file("f", b"x").begin("g", i64::MAX as u64).frame(Frame::Data(b"y")),
    ];
    for script in over {
        let place = place();
        let (received, answer) = script.play_with(&place.into, &options);
        assert!(matches!(received, Err(ReceiveError::OverLimit { limit: 100 })), "{received:?}");
        let said = frames(&answer);
        assert!(
            matches!(said[..], [Frame::Abort { reason: AbortReason::Refused, .. }]),
            "{said:?}"
        );
        place.assert_safe();
    }
    let place = place();
    let script = Script::new().file("f", &[0; 60]).file("g", &[1; 40]).end();
    script.play_with(&place.into, &options).0.unwrap();
}

#[test]
fn an_abort_is_agreed_to_and_its_text_cannot_drive_the_terminal() {
    let place = place();
    let text = b"bye\x1b[31m";
    let script =
        Script::new().begin("f", 10).frame(Frame::Abort { reason: AbortReason::Interrupted, text });
    let (received, answer) = script.play(&place.into);
    match received {
        Err(ReceiveError::Remote { message }) => assert_eq!(message, "bye\u{fffd}[31m"),
        other => panic!("{other:?}"),
    }
    assert_eq!(frames(&answer), [Frame::Abort { reason: AbortReason::Agreed, text: b"" }]);
    place.assert_arrived(&[]);
}
