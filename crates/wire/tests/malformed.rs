//! What is refused, and what unusual input is taken.

use farhaul_wire::{
    AckSeq, Control, ControlPacket, HANDSHAKE_LEN, Handshake, LossRange, LossReport, MsgNo, Packet,
    ParseError, Seq, dest, encode_losses, is_control, write_nak,
};

const BIT31: u32 = 1 << 31;

/// A control packet of `kind` to socket 9.
fn control(kind: u32, info: u32, payload: &[u32]) -> Vec<u8> {
    bytes(&[BIT31 | kind << 16, info, 0, 9], payload)
}

fn bytes(header: &[u32], payload: &[u32]) -> Vec<u8> {
    header.iter().chain(payload).flat_map(|word| word.to_be_bytes()).collect()
}

fn body(datagram: &[u8]) -> Result<Control<'_>, ParseError> {
    match Packet::parse(datagram)? {
        Packet::Control(ControlPacket { dest: 9, timestamp: 0, body }) => Ok(body),
        other => panic!("{other:?}"),
    }
}

/// What a payload of a given length must come to.
type Expected = fn(usize) -> Result<(), ParseError>;

/// The whole range of lengths that a cut-short datagram can have, for each type with a payload.
#[test]
fn truncation_at_every_length() {
    let whole: [(Vec<u8>, Expected); 5] = [
        (control(0, 0, &[4, 1, 5, 1_500, 8_192, 1, 77, 0, 1, 2, 3, 4]), |len| match len {
            48 => Ok(()),
            _ => Err(ParseError::HandshakeLength(len)),
        }),
        (control(2, 1, &[5, 100, 50, 8, 1_000, 2_000]), |len| match len {
            4 | 16 | 24 => Ok(()),
            _ => Err(ParseError::AckLength(len)),
        }),
        // A single loss, a range, a single loss: cut inside the range, it stays open.
        (control(3, 0, &[5, BIT31 | 7, 9, 11]), |len| match len {
            4 | 12 | 16 => Ok(()),
            8 => Err(ParseError::NakRangeOpen(Seq::new(7))),
            _ => Err(ParseError::NakLength(len)),
        }),
        (control(7, 2, &[5, 9, 0]), |len| match len {
            0..8 => Err(ParseError::DropLength(len)),
            _ => Ok(()),
        }),
        (bytes(&[5, 3 << 30 | 1, 0, 9], &[1, 2, 3]), |_| Ok(())),
    ];
    for (datagram, expected) in whole {
        for len in 0..=datagram.len() {
            let result = Packet::parse(&datagram[..len]).map(|_| ());
            let expected = match len.checked_sub(16) {
                None => Err(ParseError::Header(len)),
                Some(payload) => expected(payload),
            };
            assert_eq!(result, expected, "{len} bytes of {datagram:02x?}");
        }
    }
}

#[test]
fn handshake_is_exactly_64_bytes() {
    for words in [11, 13] {
        let datagram = control(0, 0, &vec![1; words]);
        assert_eq!(body(&datagram), Err(ParseError::HandshakeLength(words * 4)));
    }
    assert_eq!(control(0, 0, &[1; 12]).len(), HANDSHAKE_LEN);
}

#[test]
fn handshake_numbers_have_31_bits() {
    let mut words = [4, 1, BIT31, 1_500, 8_192, 1, 77, 0, 0, 0, 0, 0];
    assert_eq!(body(&control(0, 0, &words)), Err(ParseError::InitialSequence(BIT31)));
    words[2] = Seq::MAX;
    words[6] = BIT31 | 77;
    assert_eq!(body(&control(0, 0, &words)), Err(ParseError::SocketId(BIT31 | 77)));
    words[6] = 77;
    let datagram = control(0, 0, &words);
    let Ok(Control::Handshake(handshake)) = body(&datagram) else { panic!("refused") };
    assert_eq!(handshake.isn, Seq::new(Seq::MAX));
    assert_eq!(Handshake::parse(&handshake.to_bytes()), Ok(handshake));
}

#[test]
fn destination_has_31_bits() {
    for first in [0, BIT31 | 1 << 16] {
        let datagram = bytes(&[first, 0, 0, BIT31 | 1], &[0]);
        assert_eq!(Packet::parse(&datagram), Err(ParseError::Destination(BIT31 | 1)));
        assert_eq!(dest(&datagram), Some(BIT31 | 1));
    }
}

#[test]
fn ack_numbers_have_31_bits() {
    assert_eq!(body(&control(2, BIT31 | 1, &[5])), Err(ParseError::AckNumber(BIT31 | 1)));
    assert_eq!(body(&control(6, BIT31 | 1, &[0])), Err(ParseError::AckNumber(BIT31 | 1)));
    assert_eq!(body(&control(2, 1, &[BIT31 | 5])), Err(ParseError::AckSequence(BIT31 | 5)));
}

#[test]
fn bad_ranges_are_refused() {
    let (seven, nine) = (Seq::new(7), Seq::new(9));
    assert_eq!(body(&control(3, 0, &[])), Err(ParseError::NakLength(0)));
    assert_eq!(
        body(&control(3, 0, &[5, BIT31 | 7, BIT31 | 9])),
        Err(ParseError::NakRangeEnd(BIT31 | 9))
    );
    assert_eq!(
        body(&control(3, 0, &[BIT31 | 9, 7, 1])),
        Err(ParseError::NakRangeOrder { first: nine, last: seven })
    );
    assert_eq!(
        body(&control(7, 1, &[9, 7])),
        Err(ParseError::DropOrder { first: nine, last: seven })
    );
    assert_eq!(body(&control(7, 1, &[BIT31 | 7, 9])), Err(ParseError::DropSequence(BIT31 | 7)));
    assert_eq!(body(&control(7, 1, &[7, BIT31 | 9])), Err(ParseError::DropSequence(BIT31 | 9)));
}

#[test]
fn ranges_over_the_wrap() {
    let datagram = control(3, 0, &[BIT31 | (Seq::MAX - 1), 1, Seq::MAX, 0]);
    let Ok(Control::Nak(losses)) = body(&datagram) else { panic!("refused") };
    let first = Seq::new(Seq::MAX - 1);
    let ranges: Vec<LossRange> = losses.into_iter().collect();
    assert_eq!(
        ranges,
        [
            LossRange { first, last: Seq::new(1) },
            LossRange::single(Seq::new(Seq::MAX)),
            LossRange::single(Seq::new(0)),
        ]
    );
    assert_eq!(ranges.iter().map(|range| range.len()).collect::<Vec<_>>(), [4, 1, 1]);

    let datagram = control(7, 3, &[Seq::MAX, 0]);
    let (message, first, last) = (MsgNo::new(3), Seq::new(Seq::MAX), Seq::new(0));
    assert_eq!(body(&datagram), Ok(Control::DropRequest { message, first, last }));
}

/// The longest range that runs forwards is half the number space; one more runs backwards.
#[test]
fn range_of_half_the_space() {
    let first = Seq::new(100);
    let longest = LossRange { first, last: first.plus((1 << 30) - 1) };
    assert_eq!(longest.len(), 1 << 30);
    let payload = bytes(&[BIT31 | 100, longest.last.value()], &[]);
    assert_eq!(LossReport::parse(&payload).map(|list| list.ranges().next()), Ok(Some(longest)));
    let last = longest.last.next();
    let payload = bytes(&[BIT31 | 100, last.value()], &[]);
    assert_eq!(LossReport::parse(&payload), Err(ParseError::NakRangeOrder { first, last }));
}

/// A peer may write a range of one packet, and its bytes come back as they were.
#[test]
fn range_of_one_packet_in_two_words() {
    let datagram = control(3, 0, &[BIT31 | 5, 5]);
    let Ok(Control::Nak(losses)) = body(&datagram) else { panic!("refused") };
    assert!(losses.ranges().eq([LossRange::single(Seq::new(5))]));
    let mut out = [0; 64];
    assert_eq!(Control::Nak(losses).write(0, 9, &mut out), Some(24));
    assert_eq!(out[..24], datagram);
}

/// Types without control information come with 4 zero bytes, with none, or with anything.
#[test]
fn padding_is_optional_and_rewritten() {
    for (kind, info, expected) in [
        (1, 0, Control::KeepAlive),
        (4, 0, Control::CongestionWarning),
        (5, 0, Control::Shutdown { code: 0 }),
        (5, 1, Control::Shutdown { code: 1 }),
        (6, 3, Control::Ack2 { ack_seq: AckSeq::new(3) }),
        (8, 4_000, Control::ErrorSignal { code: 4_000 }),
    ] {
        let canonical = control(kind, info, &[0]);
        for len in [16, 17, 20, 24] {
            let mut datagram = control(kind, info, &[0xdead_beef, 0xdead_beef]);
            datagram.truncate(len);
            assert_eq!(body(&datagram), Ok(expected), "type {kind}, {len} bytes");
        }
        let mut out = [0xff; 20];
        assert_eq!(expected.write(0, 9, &mut out), Some(20));
        assert_eq!(out[..], canonical, "type {kind}");
    }
}

/// The draft reserves the subtype and most additional information; libudt looks at neither.
#[test]
fn reserved_bits_are_ignored() {
    for datagram in [
        bytes(&[BIT31 | 1 << 16 | 0xffff, u32::MAX, 0, 9], &[]),
        bytes(&[BIT31 | 1 << 16, 0, 0, 9], &[]),
    ] {
        assert_eq!(body(&datagram), Ok(Control::KeepAlive));
    }
    // Flags of the data packet in front of the message number, and words after the range.
    let expected =
        Control::DropRequest { message: MsgNo::new(2), first: Seq::new(7), last: Seq::new(9) };
    assert_eq!(body(&control(7, 5 << 29 | 2, &[7, 9, 1])), Ok(expected));
}

#[test]
fn user_and_unknown_types_keep_everything() {
    let mut out = [0xff; 64];
    for payload in [&[][..], &[1], &[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6, 7]] {
        let user = Control::User { subtype: 0x1234, info: u32::MAX, payload };
        let len = user.write(0, 9, &mut out).unwrap();
        let arrived = if payload.is_empty() { &[0; 4] } else { payload };
        assert_eq!(len, 16 + arrived.len());
        assert_eq!(
            body(&out[..len]),
            Ok(Control::User { subtype: 0x1234, info: u32::MAX, payload: arrived })
        );

        for kind in [9, 0x7ffe] {
            let unknown = Control::Unknown { kind, subtype: 1, info: BIT31, payload };
            let len = unknown.write(0, 9, &mut out).unwrap();
            assert_eq!(len, 16 + payload.len());
            assert_eq!(body(&out[..len]), Ok(unknown));
        }
    }
    let datagram = control(0x7fff, 0, &[]);
    assert_eq!(body(&datagram), Ok(Control::User { subtype: 0, info: 0, payload: &[] }));
}

#[test]
fn peeks_need_enough_bytes() {
    assert!(!is_control(&[]));
    assert!(is_control(&[0x80]));
    assert!(!is_control(&[0x7f]));
    let datagram = control(1, 0, &[]);
    assert_eq!(dest(&datagram), Some(9));
    assert_eq!(dest(&datagram[..15]), None);
}

#[test]
fn long_loss_lists_are_split() {
    let ranges: Vec<LossRange> = (0..5)
        .map(|i| {
            let first = Seq::new(Seq::MAX - 10).plus(i * 5);
            LossRange { first, last: first.plus(i % 2) }
        })
        .collect();
    // Words needed: 1, 2, 1, 2, 1.
    for (words, expected) in [
        (0, (0, 0)),
        (1, (4, 1)),
        (2, (4, 1)),
        (3, (12, 2)),
        (4, (16, 3)),
        (5, (16, 3)),
        (6, (24, 4)),
        (7, (28, 5)),
        (8, (28, 5)),
    ] {
        // Bytes past the last whole word are no room.
        for spare in 0..4 {
            let mut out = vec![0; words * 4 + spare];
            assert_eq!(encode_losses(&ranges, &mut out), expected);
            let (len, taken) = expected;
            if taken > 0 {
                let list = LossReport::parse(&out[..len]).unwrap();
                assert!(list.ranges().eq(ranges[..taken].iter().copied()));
            }
            assert!(out[len..].iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn a_nak_is_never_empty() {
    let lost = LossRange { first: Seq::new(884_498), last: Seq::new(884_500) };
    let mut out = [0xa5; 24];
    assert_eq!(write_nak(&[], 0, 9, &mut out), (0, 0));
    for short in 0..24 {
        assert_eq!(write_nak(&[lost], 0, 9, &mut out[..short]), (0, 0));
    }
    assert_eq!(out, [0xa5; 24]);
    assert_eq!(write_nak(&[lost], 0, 9, &mut out), (24, 1));
    assert_eq!(out[..], control(3, 0, &[BIT31 | 884_498, 884_500]));
}

#[test]
fn errors_say_what_was_wrong() {
    for (datagram, text) in [
        (vec![0; 15], "datagram of 15 bytes is shorter than a header"),
        (control(2, 1, &[1, 2]), "ACK payload has 8 bytes, not 4, 16 or 24"),
        (control(3, 0, &[BIT31 | 9, 7]), "NAK range 9..=7 runs backwards"),
        (control(6, BIT31, &[]), "ACK sequence number 0x80000000 exceeds 31 bits"),
    ] {
        assert_eq!(Packet::parse(&datagram).unwrap_err().to_string(), text);
    }
}
