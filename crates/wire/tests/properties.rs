//! Properties of the codec and of the number spaces, over seeded random input.

use farhaul_wire::{
    Ack, AckDetail, AckRates, AckSeq, Boundary, Control, ControlPacket, DataHeader, Handshake,
    LossRange, LossReport, MsgNo, Packet, PeerIp, Request, Seq, SocketType, dest, encode_losses,
    is_control, write_nak,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The same cases on every run.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x7fff_ffff),
        ..ProptestConfig::default()
    }
}

/// Sequence numbers, half of them near the wrap.
fn seqs() -> impl Strategy<Value = Seq> {
    prop_oneof![
        any::<u32>().prop_map(Seq::new),
        (0u32..64).prop_map(|near| Seq::new(Seq::MAX - 32).plus(near)),
    ]
}

fn ids() -> impl Strategy<Value = u32> {
    0..=Seq::MAX
}

fn loss_ranges() -> impl Strategy<Value = LossRange> {
    let span = prop_oneof![Just(0), 0u32..100, 0u32..1 << 30];
    (seqs(), span).prop_map(|(first, span)| LossRange { first, last: first.plus(span) })
}

fn data_headers() -> impl Strategy<Value = DataHeader> {
    (seqs(), any::<[bool; 3]>(), any::<u32>(), any::<u32>(), ids()).prop_map(
        |(seq, [first, last, in_order], message, timestamp, dest)| DataHeader {
            seq,
            boundary: Boundary { first, last },
            in_order,
            message: MsgNo::new(message),
            timestamp,
            dest,
        },
    )
}

fn handshakes() -> impl Strategy<Value = Handshake> {
    let request = prop_oneof![-3..=2, 1_000..=1_005, any::<i32>()];
    let claims = (0u32..6, 0u32..4, seqs(), any::<u32>(), any::<u32>());
    (claims, request, ids(), any::<u32>(), any::<[u8; 16]>()).prop_map(
        |((version, kind, isn, mss, flight_flag), request, socket_id, cookie, ip)| Handshake {
            version,
            socket_type: SocketType::from_wire(kind),
            isn,
            mss,
            flight_flag,
            request: Request::from_wire(request),
            socket_id,
            cookie,
            peer_ip: PeerIp::from_wire(ip),
        },
    )
}

fn acks() -> impl Strategy<Value = Ack> {
    (seqs(), 0..3, any::<[u32; 5]>()).prop_map(
        |(next, form, [rtt_us, rtt_var_us, available, receive_rate, link_capacity])| {
            let rates = (form == 2).then_some(AckRates { receive_rate, link_capacity });
            let detail = AckDetail { rtt_us, rtt_var_us, available, rates };
            Ack { next, detail: (form > 0).then_some(detail) }
        },
    )
}

/// Every type whose body owns its fields.
fn bodies() -> impl Strategy<Value = Control<'static>> {
    let numbers = any::<u32>().prop_map(AckSeq::new);
    prop_oneof![
        handshakes().prop_map(Control::Handshake),
        (numbers.clone(), acks()).prop_map(|(ack_seq, ack)| Control::Ack { ack_seq, ack }),
        numbers.prop_map(|ack_seq| Control::Ack2 { ack_seq }),
        (any::<u32>(), loss_ranges()).prop_map(|(message, LossRange { first, last })| {
            Control::DropRequest { message: MsgNo::new(message), first, last }
        }),
        any::<u32>().prop_map(|code| Control::ErrorSignal { code }),
        Just(Control::KeepAlive),
        Just(Control::CongestionWarning),
        any::<u32>().prop_map(|code| Control::Shutdown { code }),
    ]
}

/// Datagrams that get past the first checks: a likely type, and words that are often in order.
fn likely_datagrams() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![0u32..10, Just(0x7fff), 0u32..0x8000];
    let word = prop_oneof![any::<u32>(), 0u32..50, (0u32..50).prop_map(|low| 1 << 31 | low)];
    let info = word.clone();
    (kind, info, any::<u32>(), ids(), vec(word, 0..14), 0usize..4).prop_map(
        |(kind, info, timestamp, dest, payload, cut)| {
            let words = [1 << 31 | kind << 16, info, timestamp, dest];
            let mut bytes: Vec<u8> =
                words.iter().chain(&payload).flat_map(|word| word.to_be_bytes()).collect();
            // One datagram in four is whole words less a byte or more.
            bytes.truncate(bytes.len() - cut.saturating_sub(2));
            bytes
        },
    )
}

/// An empty user payload arrives as padding; everything else as it was.
fn as_it_arrives(mut packet: Packet<'_>) -> Packet<'_> {
    if let Packet::Control(ControlPacket { body: Control::User { payload, .. }, .. }) = &mut packet
        && payload.is_empty()
    {
        *payload = &[0; 4];
    }
    packet
}

/// Parses anything, and holds what parses to its contract.
fn check(datagram: &[u8]) -> Result<bool, TestCaseError> {
    let Ok(packet) = Packet::parse(datagram) else { return Ok(false) };
    match packet {
        Packet::Data(header, payload) => {
            prop_assert!(!is_control(datagram));
            prop_assert_eq!(Some(header.dest), dest(datagram));
            prop_assert_eq!(payload, &datagram[16..]);
        }
        Packet::Control(control) => {
            prop_assert!(is_control(datagram));
            prop_assert_eq!(Some(control.dest), dest(datagram));
            if let Control::Nak(list) = control.body {
                let (least, most) = list.ranges().size_hint();
                let ranges: Vec<LossRange> = list.ranges().collect();
                prop_assert!(least >= 1 && least <= ranges.len() && most >= Some(ranges.len()));
                prop_assert!(ranges.iter().all(|range| range.last.since(range.first) >= 0));
            }
        }
    }
    // Padding may be added, never more.
    let mut out = vec![0; datagram.len().max(20)];
    let len = packet.write(&mut out);
    prop_assert!(len.is_some(), "{packet:?}");
    let rebuilt = &out[..len.unwrap_or(0)];
    prop_assert_eq!(Packet::parse(rebuilt), Ok(as_it_arrives(packet)));
    Ok(true)
}

proptest! {
    #![proptest_config(config(20_000))]

    #[test]
    fn random_bytes_never_panic(datagram in vec(any::<u8>(), 0..100)) {
        check(&datagram)?;
    }

    #[test]
    fn likely_bytes_never_panic(datagram in likely_datagrams()) {
        check(&datagram)?;
    }
}

proptest! {
    #![proptest_config(config(4_000))]

    #[test]
    fn data_comes_back(header in data_headers(), payload in vec(any::<u8>(), 0..64)) {
        let datagram = [header.to_bytes().as_slice(), &payload].concat();
        let packet = Packet::Data(header, &payload);
        prop_assert_eq!(Packet::parse(&datagram), Ok(packet));
        let mut out = vec![0; datagram.len()];
        prop_assert_eq!(packet.write(&mut out), Some(datagram.len()));
        prop_assert_eq!(out, datagram);
    }

    #[test]
    fn control_comes_back(body in bodies(), timestamp: u32, dest in ids()) {
        let mut out = [0xff; 64];
        let len = body.write(timestamp, dest, &mut out);
        prop_assert_eq!(len, Some(body.datagram_len()));
        prop_assert_eq!(
            Packet::parse(&out[..body.datagram_len()]),
            Ok(Packet::Control(ControlPacket { timestamp, dest, body }))
        );
    }

    #[test]
    fn free_payloads_come_back(
        kind in 9u16..0x7fff, subtype: u16, info: u32, payload in vec(any::<u8>(), 1..40),
    ) {
        for body in [
            Control::User { subtype, info, payload: &payload },
            Control::Unknown { kind, subtype, info, payload: &payload },
        ] {
            let mut out = [0xff; 64];
            let len = body.write(1, 2, &mut out).unwrap_or(0);
            prop_assert_eq!(
                Packet::parse(&out[..len]),
                Ok(Packet::Control(ControlPacket { timestamp: 1, dest: 2, body }))
            );
        }
    }

    /// Whatever the packet size, the packets of a split list together name the ranges, in order,
    /// and no packet could have taken one range more.
    #[test]
    fn loss_lists_come_back(ranges in vec(loss_ranges(), 1..40), room in 8usize..200) {
        let words = |range: &LossRange| if range.len() == 1 { 1 } else { 2 };
        let mut left = ranges.as_slice();
        while !left.is_empty() {
            let mut out = vec![0xff; 16 + room];
            let (len, taken) = write_nak(left, 0, 9, &mut out);
            prop_assert!(taken > 0);
            let needed: usize = left[..taken].iter().map(|range| 4 * words(range)).sum();
            prop_assert_eq!(len, 16 + needed);
            if let Some(next) = left.get(taken) {
                prop_assert!(needed + 4 * words(next) > room);
            }
            let list = LossReport::parse(&out[16..len]);
            prop_assert!(list.is_ok());
            if let Ok(list) = list {
                prop_assert!(list.ranges().eq(left[..taken].iter().copied()));
                let body = Control::Nak(list);
                let mut again = vec![0; len];
                prop_assert_eq!(body.write(0, 9, &mut again), Some(len));
                prop_assert_eq!(&again, &out[..len]);
            }
            left = &left[taken..];
        }
    }

    #[test]
    fn encoding_stays_inside_its_room(ranges in vec(loss_ranges(), 0..8), room in 0usize..40) {
        let mut out = vec![0xa5; room + 8];
        let (bytes, taken) = encode_losses(&ranges, &mut out[..room]);
        prop_assert!(bytes <= room && taken <= ranges.len());
        prop_assert!(out[bytes..].iter().all(|byte| *byte == 0xa5));
    }

    #[test]
    fn distance_undoes_steps(seq in seqs(), near in 0u32..1 << 30, any: u32) {
        prop_assert_eq!(seq.plus(near).since(seq), near as i32);
        prop_assert_eq!(seq.minus(near).since(seq), -(near as i32));
        prop_assert_eq!(seq.minus(1 << 30).since(seq), -(1 << 30));
        prop_assert_eq!(seq.plus(any).minus(any), seq);
        prop_assert_eq!(seq.plus(any).plus(near), seq.plus(any.wrapping_add(near)));
        prop_assert_eq!(seq.next().prev(), seq);
        prop_assert_eq!((seq.next(), seq.prev()), (seq.plus(1), seq.minus(1)));
        prop_assert!(seq.plus(any).value() <= Seq::MAX);
    }

    /// The distance is the one of plain arithmetic modulo 2^31.
    #[test]
    fn distance_is_exact(a in seqs(), b in seqs()) {
        let space = 1i64 << 31;
        let steps = (i64::from(a.value()) - i64::from(b.value())).rem_euclid(space);
        let expected = if steps < space / 2 { steps } else { steps - space };
        prop_assert_eq!(i64::from(a.since(b)), expected);
        if expected != -(space / 2) {
            prop_assert_eq!(b.since(a), -a.since(b));
        }
    }

    #[test]
    fn range_length_counts_its_packets(first in seqs(), span in 0u32..1 << 30) {
        prop_assert_eq!(LossRange { first, last: first.plus(span) }.len(), span + 1);
    }
}

/// The generator of likely datagrams must reach past the checks, or its property means little.
#[test]
fn likely_datagrams_often_parse() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::new(config(0));
    let strategy = likely_datagrams();
    let mut parsed = 0;
    for _ in 0..2_000 {
        let datagram = strategy.new_tree(&mut runner).unwrap().current();
        parsed += u32::from(check(&datagram).unwrap());
    }
    assert!((400..1_900).contains(&parsed), "{parsed} of 2000");
}
