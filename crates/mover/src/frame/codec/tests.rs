use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::frame::{MAX_REPLY, Preamble, Role};

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

fn attributes() -> Attributes {
    Attributes {
        mode: 0o4755,
        accessed: Timestamp { seconds: -2, nanoseconds: 999_999_999 },
        modified: Timestamp { seconds: 1_700_000_000, nanoseconds: 5 },
    }
}

fn one_of_each() -> Vec<Frame<'static>> {
    let name = Name::new(b"n\xffme").unwrap();
    let tally = Tally { files: 1, directories: 2, symlinks: 3, bytes: u64::MAX };
    vec![
        Frame::Directory { name, attributes: attributes() },
        Frame::Leave,
        Frame::File { name, attributes: attributes(), size: i64::MAX as u64 },
        Frame::Data(b"some bytes"),
        Frame::Hole { length: 1 << 40 },
        Frame::FileEnd { digest: [7; 32] },
        Frame::FileDropped,
        Frame::Symlink { name, attributes: attributes(), target: b"../../else/where" },
        Frame::Totals { files: 9, bytes: 10 },
        Frame::End { tally, omitted: 4, transcript: [8; 32] },
        Frame::Done,
        Frame::Abort { reason: AbortReason::Refused, text: b"no" },
        Frame::Failed { entry: 77, text: b"a: is a directory" },
        Frame::Receipt { tally, failed: 5, transcript: [9; 32] },
    ]
}

/// The bytes are a contract with other versions; a change here needs a new [`VERSION`].
#[test]
fn the_bytes_are_these() {
    let name = Name::new(b"ab").unwrap();
    let file = Frame::File {
        name,
        attributes: Attributes {
            mode: 0o644,
            accessed: Timestamp { seconds: 1, nanoseconds: 2 },
            modified: Timestamp { seconds: 3, nanoseconds: 4 },
        },
        size: 0x0102,
    };
    #[rustfmt::skip]
    let expected = [
        3, 0, 0, 0, 37,
        2, b'a', b'b',
        0x01, 0xa4,
        0, 0, 0, 0, 0, 0, 0, 1,  0, 0, 0, 2,
        0, 0, 0, 0, 0, 0, 0, 3,  0, 0, 0, 4,
        0, 0, 0, 0, 0, 0, 1, 2,
    ];
    assert_eq!(encoded(&file), expected);
    assert_eq!(encoded(&Frame::Leave), [2, 0, 0, 0, 0]);
    assert_eq!(encoded(&Frame::Data(b"x")), [4, 0, 0, 0, 1, b'x']);
    assert_eq!(data_header(0x1_0000), [4, 0, 1, 0, 0]);
    let preamble = Preamble { version: 1, role: Role::Receiver };
    assert_eq!(preamble.encode(), *b"\xffARHAULM\0\x01\x01\0\0\0\0\0");
}

#[test]
fn every_frame_comes_back() {
    let kinds: Vec<u8> = one_of_each().iter().map(|frame| encoded(frame)[0]).collect();
    assert_eq!(kinds, (1..=14).collect::<Vec<u8>>(), "one of each, in the order of the types");
    for frame in one_of_each() {
        let bytes = encoded(&frame);
        assert_eq!(Frame::decode(&bytes), Ok(Some((frame, bytes.len()))));
    }
}

#[test]
fn a_part_of_a_frame_asks_for_more() {
    for frame in one_of_each() {
        let bytes = encoded(&frame);
        for cut in 0..bytes.len() {
            assert_eq!(Frame::decode(&bytes[..cut]), Ok(None), "{frame:?} cut at {cut}");
        }
    }
}

#[test]
fn a_body_of_another_length_is_refused() {
    for frame in one_of_each() {
        let bytes = encoded(&frame);
        let kind = Kind::from_byte(bytes[0]).unwrap();
        let free = matches!(kind, Kind::Data | Kind::Symlink | Kind::Abort | Kind::Failed);
        let mut longer = bytes.clone();
        longer.push(b'!');
        longer[..HEADER].copy_from_slice(&data_header_of(kind, bytes.len() + 1 - HEADER));
        assert_eq!(Frame::decode(&longer).is_ok(), free, "{frame:?} longer");
        if bytes.len() > HEADER {
            let mut shorter = bytes[..bytes.len() - 1].to_vec();
            let length = shorter.len() - HEADER;
            shorter[..HEADER].copy_from_slice(&data_header_of(kind, length));
            assert_eq!(Frame::decode(&shorter).is_ok(), free, "{frame:?} shorter");
        }
    }
}

#[test]
fn every_length_has_its_bound() {
    for kind in Kind::ALL {
        let within = data_header_of(kind, kind.max_body());
        assert_eq!(Header::decode(within).map(Header::length), Ok(kind.max_body()));
        for length in [kind.max_body() + 1, u32::MAX as usize] {
            let over = Header::decode(data_header_of(kind, length));
            assert_eq!(over, Err(DecodeError::TooLong { kind: kind as u8, length }));
        }
    }
    for kind in [Kind::Abort, Kind::Failed, Kind::Receipt] {
        assert!(kind.max_body() <= MAX_REPLY);
    }
    for byte in [0, 15, 255] {
        assert_eq!(Header::decode([byte, 0, 0, 0, 0]), Err(DecodeError::UnknownType(byte)));
    }
}

#[test]
fn bad_values_are_refused() {
    let good = encoded(&Frame::Symlink {
        name: Name::new(b"nm").unwrap(),
        attributes: attributes(),
        target: b"to",
    });
    assert!(Frame::decode(&good).is_ok());
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        Frame::decode(&bytes).map(|_| ())
    };
    let name = HEADER + 1;
    let mode = name + 2;
    assert_eq!(changed(name, b'/'), Err(BadName::Separator.into()));
    assert_eq!(changed(name, 0), Err(BadName::Nul.into()));
    assert_eq!(changed(HEADER, 0), Err(BadName::Empty.into()));
    assert_eq!(changed(HEADER, 255), Err(DecodeError::Short));
    assert_eq!(changed(mode, 0x10), Err(DecodeError::BadValue("mode")));
    // 1 000 000 000 and more nanoseconds, where UTIME_NOW and UTIME_OMIT live.
    assert_eq!(changed(mode + 2 + 8, 0x3f), Err(DecodeError::BadValue("time")));
    assert_eq!(changed(good.len() - 1, 0), Err(DecodeError::BadValue("link target")));

    let refused = |kind: Kind, body: &[u8]| {
        let mut bytes = data_header_of(kind, body.len()).to_vec();
        bytes.extend_from_slice(body);
        Frame::decode(&bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(refused(Kind::Data, &[]), DecodeError::BadValue("data"));
    assert_eq!(refused(Kind::Hole, &[0; 8]), DecodeError::BadValue("hole length"));
    assert_eq!(refused(Kind::Hole, &[0xff; 8]), DecodeError::BadValue("hole length"));
    assert_eq!(refused(Kind::Abort, &[7]), DecodeError::BadValue("reason"));
    assert_eq!(refused(Kind::Leave, &[0]), DecodeError::TooLong { kind: 2, length: 1 });
}

#[test]
fn long_texts_are_cut() {
    let bytes = encoded(&Frame::Failed { entry: 0, text: &[b'x'; 5000] });
    let (frame, _) = Frame::decode(&bytes).unwrap().unwrap();
    assert_eq!(frame, Frame::Failed { entry: 0, text: &[b'x'; MAX_TEXT] });
}

#[test]
fn preambles_come_back_and_others_do_not() {
    for role in [Role::Sender, Role::Receiver] {
        let preamble = Preamble { version: 513, role };
        assert_eq!(Preamble::decode(preamble.encode()), Some(preamble));
        for at in 0..8 {
            let mut bytes = preamble.encode();
            bytes[at] ^= 0x20;
            assert_eq!(Preamble::decode(bytes), None);
        }
    }
    assert_eq!(Preamble::decode(*b"GET / HTTP/1.1\r\n"), None);
    assert_eq!(Preamble::decode(*b"\xffARHAULM\0\x01\x02\0\0\0\0\0"), None);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever the bytes, decoding neither panics nor reads past the frame, and what it accepts
    /// is canonical: encoding it gives the same bytes.
    #[test]
    fn any_bytes_decode_or_fail(kind in 0u8..16, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&body);
        bytes.push(0xaa);
        if let Ok(Some((frame, used))) = Frame::decode(&bytes) {
            prop_assert_eq!(used, bytes.len() - 1);
            prop_assert_eq!(encoded(&frame), &bytes[..used]);
        }
    }

    #[test]
    fn raw_noise_decodes_or_fails(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(Some((_, used))) = Frame::decode(&bytes) {
            prop_assert!(used <= bytes.len());
        }
    }

    /// One changed byte in a good frame gives an error or another canonical frame.
    #[test]
    fn flipped_frames_stay_canonical(which in 0usize..14, at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = encoded(&one_of_each()[which]);
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(Some((frame, used))) = Frame::decode(&bytes) {
            prop_assert_eq!(encoded(&frame), &bytes[..used]);
        }
    }
}
