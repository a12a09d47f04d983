//! Captured packets parse to their documented fields and rebuild to the same bytes.

mod vectors;

use farhaul_wire::{
    AckSeq, Control, ControlPacket, HANDSHAKE_LEN, Handshake, MsgNo, Packet, PeerIp, Request, Seq,
    SocketType, dest, is_control,
};
use serde_json::{Map, Value, json};

#[test]
fn vectors_parse_to_their_fields() {
    for vector in vectors::load() {
        let packet = Packet::parse(&vector.bytes).unwrap();
        assert_eq!(describe(&packet, &vector.bytes), vector.fields, "{}", vector.name);
    }
}

#[test]
fn vectors_rebuild_to_the_same_bytes() {
    for vector in vectors::load() {
        let packet = Packet::parse(&vector.bytes).unwrap();
        // One byte more than needed must stay as it was, one fewer must be refused.
        let mut out = vec![0xa5; vector.bytes.len() + 1];
        assert_eq!(packet.write(&mut out), Some(vector.bytes.len()), "{}", vector.name);
        assert_eq!(out[..vector.bytes.len()], vector.bytes, "{}", vector.name);
        assert_eq!(out.last(), Some(&0xa5), "{}", vector.name);
        for short in 0..vector.bytes.len() {
            let mut out = vec![0xa5; short];
            assert_eq!(packet.write(&mut out), None, "{} into {short}", vector.name);
            assert!(out.iter().all(|byte| *byte == 0xa5), "{} into {short}", vector.name);
        }
        if let Packet::Control(packet) = packet {
            assert_eq!(packet.body.datagram_len(), vector.bytes.len(), "{}", vector.name);
        }
    }
}

#[test]
fn peeks_agree_with_the_parser() {
    for vector in vectors::load() {
        assert_eq!(is_control(&vector.bytes), vector.fields["control"] == true, "{}", vector.name);
        let id = dest(&vector.bytes).map(Value::from);
        assert_eq!(id.as_ref(), vector.fields.get("dest_socket_id"), "{}", vector.name);
    }
}

/// The first hello of the captured connection, by name instead of by number.
#[test]
fn hello_has_its_names() {
    let vectors = vectors::load();
    let hello = vectors.iter().find(|vector| vector.name == "handshake_request").unwrap();
    assert_eq!(hello.bytes.len(), HANDSHAKE_LEN);
    let expected = Handshake {
        version: Handshake::VERSION,
        socket_type: SocketType::Stream,
        isn: Seq::new(232_062_280),
        mss: 1_500,
        flight_flag: 8_192,
        request: Request::Hello,
        socket_id: 795_655_860,
        cookie: 0,
        peer_ip: PeerIp::from(std::net::IpAddr::from([127, 0, 0, 1])),
    };
    let body = Control::Handshake(expected);
    assert_eq!(
        Packet::parse(&hello.bytes),
        Ok(Packet::Control(ControlPacket { timestamp: 0, dest: 0, body }))
    );
}

/// The numbers of the vectors are consistent with the number spaces' own constants.
#[test]
fn first_numbers_are_those_of_the_captures() {
    let vectors = vectors::load();
    let parse = |name: &str| {
        let vector = vectors.iter().find(|vector| vector.name == name).unwrap();
        Packet::parse(&vector.bytes).unwrap()
    };
    let Packet::Data(header, payload) = parse("data_stream_solo") else { panic!("data") };
    assert_eq!((header.message, payload), (MsgNo::FIRST, b"ABCDEFGHIJK".as_slice()));
    let ack_seq_of = |name| match parse(name) {
        Packet::Control(ControlPacket { body: Control::Ack { ack_seq, .. }, .. }) => ack_seq,
        other => panic!("{other:?}"),
    };
    assert_eq!(ack_seq_of("ack_full"), AckSeq::FIRST);
    assert_eq!(ack_seq_of("ack_light"), AckSeq::LIGHT);
}

/// The packet in the terms of the vectors' `fields`, complete, so that comparing the two checks
/// every field of both.
fn describe(packet: &Packet<'_>, bytes: &[u8]) -> Value {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| {
        assert!(fields.insert(name.to_owned(), value).is_none());
    };
    match packet {
        Packet::Data(header, payload) => {
            set("control", false.into());
            set("seq", header.seq.value().into());
            let (first, last) = (header.boundary.first, header.boundary.last);
            set("ff", (u32::from(first) * 2 + u32::from(last)).into());
            set("first", first.into());
            set("last", last.into());
            set("in_order", header.in_order.into());
            set("msg_no", header.message.value().into());
            set("timestamp", header.timestamp.into());
            set("dest_socket_id", header.dest.into());
            set("payload_len", payload.len().into());
            set("payload_hex", to_hex(payload).into());
        }
        Packet::Control(packet) => {
            set("control", true.into());
            set("timestamp", packet.timestamp.into());
            set("dest_socket_id", packet.dest.into());
            let (kind, subtype, info) = describe_body(&packet.body, bytes, &mut set);
            set("type", kind.into());
            set("subtype", subtype.into());
            set("additional_info", info.into());
        }
    }
    fields.into()
}

/// Sets the fields of the body; returns type, subtype and additional information.
fn describe_body(
    body: &Control<'_>,
    bytes: &[u8],
    set: &mut impl FnMut(&str, Value),
) -> (u16, u16, u32) {
    let kind = match body {
        Control::Handshake(handshake) => {
            describe_handshake(handshake, set);
            return (0, 0, 0);
        }
        Control::Ack { ack_seq, ack } => {
            set("ack_seq_no", ack_seq.value().into());
            set("ack", ack.next.value().into());
            let mut form = "light";
            if let Some(detail) = ack.detail {
                form = "small";
                set("rtt_us", detail.rtt_us.into());
                set("rttvar_us", detail.rtt_var_us.into());
                set("avail_buffer_packets", detail.available.into());
                if let Some(rates) = detail.rates {
                    form = "full";
                    set("recv_rate_pps", rates.receive_rate.into());
                    set("link_capacity_pps", rates.link_capacity.into());
                }
            }
            set("ack_form", form.into());
            return (2, 0, ack_seq.value());
        }
        Control::Nak(losses) => {
            set("loss_words", words(losses.as_bytes()).into());
            let ranges: Vec<Value> = losses
                .ranges()
                .map(|range| json!([range.first.value(), range.last.value()]))
                .collect();
            set("loss_ranges", ranges.into());
            return (3, 0, 0);
        }
        Control::DropRequest { message, first, last } => {
            set("msg_no", message.value().into());
            set("first_seq", first.value().into());
            set("last_seq", last.value().into());
            return (7, 0, message.value());
        }
        Control::User { subtype, info, payload } => {
            set("payload_words", words(payload).into());
            return (0x7fff, *subtype, *info);
        }
        Control::KeepAlive => (1, 0, 0),
        Control::CongestionWarning => (4, 0, 0),
        Control::Shutdown { code } => (5, 0, *code),
        Control::Ack2 { ack_seq } => {
            set("ack_seq_no", ack_seq.value().into());
            (6, 0, ack_seq.value())
        }
        Control::ErrorSignal { code } => {
            set("error_code", (*code).into());
            (8, 0, *code)
        }
        Control::Unknown { kind, .. } => panic!("no vector has type {kind}"),
    };
    set("padding_bytes", (bytes.len() - 16).into());
    kind
}

fn describe_handshake(handshake: &Handshake, set: &mut impl FnMut(&str, Value)) {
    set("version", handshake.version.into());
    set("socket_type", handshake.socket_type.to_wire().into());
    set("isn", handshake.isn.value().into());
    set("mss", handshake.mss.into());
    set("flight_flag", handshake.flight_flag.into());
    set("req_type", handshake.request.to_wire().into());
    set("socket_id", handshake.socket_id.into());
    set("cookie", handshake.cookie.into());
    set("peer_ip_words", words(&handshake.peer_ip.to_wire()).into());
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let (words, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    words.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
