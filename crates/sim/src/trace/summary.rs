//! What a packet says, in few words.

use std::collections::BTreeMap;
use std::io::{self, Write};

use farhaul_wire::{AckDetail, Control, HEADER_LEN, Handshake, Request, Seq, is_control};

use crate::packet::{Content, Packet};
use crate::simulation::AgentId;
use crate::tcp::{Block, Kind, Segment};

/// Ranges of a loss report that are written out.
const MOST_RANGES: usize = 8;

/// Kinds of packets as filters name them. Summaries begin with the same word, unless it is `other`.
pub(super) const KINDS: [&str; 13] = [
    "data",
    "ack",
    "ack2",
    "nak",
    "handshake",
    "shutdown",
    "keep-alive",
    "drop-request",
    "syn",
    "reset",
    "filler",
    "damaged",
    "other",
];

impl Content {
    /// The protocol's name in traces.
    pub(super) fn protocol(&self) -> &'static str {
        match self {
            Content::Udt { .. } | Content::Damaged(_) => "udt",
            Content::Tcp(_) => "tcp",
            Content::Filler { .. } => "cbr",
        }
    }

    /// One of [`KINDS`]. A SYN's answer is a `syn` too.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Content::Udt { header, .. } if !is_control(header) => "data",
            Content::Udt { header, .. } => {
                match u16::from_be_bytes([header[0], header[1]]) & 0x7fff {
                    0 => "handshake",
                    1 => "keep-alive",
                    2 => "ack",
                    3 => "nak",
                    5 => "shutdown",
                    6 => "ack2",
                    7 => "drop-request",
                    _ => "other",
                }
            }
            Content::Tcp(segment) => match segment.kind {
                Kind::Syn | Kind::SynAck { .. } => "syn",
                Kind::Data { .. } => "data",
                Kind::Ack { .. } => "ack",
                Kind::Reset => "reset",
            },
            Content::Filler { .. } => "filler",
            Content::Damaged(_) => "damaged",
        }
    }
}

/// Which data packets have been sent before.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    udt: BTreeMap<AgentId, Seq>,
    tcp: BTreeMap<(AgentId, u32), u64>,
}

impl Repeats {
    /// A packet is sent. Whether it is data that has been sent before.
    pub(super) fn sent(&mut self, packet: &Packet) -> bool {
        match &packet.content {
            Content::Udt { header, .. } if !is_control(header) => {
                let [a, b, c, d, ..] = *header;
                let seq = Seq::new(u32::from_be_bytes([a, b, c, d]));
                let highest = self.udt.entry(packet.from).or_insert(seq.prev());
                let again = seq.since(*highest) <= 0;
                if !again {
                    *highest = seq;
                }
                again
            }
            Content::Tcp(Segment { connection, kind: Kind::Data { number, .. }, .. }) => {
                let end = self.tcp.entry((packet.from, *connection)).or_insert(*number);
                let again = number < end;
                *end = (number + 1).max(*end);
                again
            }
            _ => false,
        }
    }
}

/// Writes what a packet says.
pub(super) fn write_summary(out: &mut Vec<u8>, content: &Content) -> io::Result<()> {
    match content {
        Content::Udt { header, payload } => write_udt(out, header, payload),
        Content::Tcp(segment) => write_tcp(out, segment),
        Content::Filler { .. } => out.write_all(b"filler"),
        Content::Damaged(_) => out.write_all(b"damaged"),
    }
}

fn write_udt(out: &mut Vec<u8>, header: &[u8; HEADER_LEN], payload: &[u8]) -> io::Result<()> {
    // Of data the header says everything; what follows others is short.
    let mut datagram = header.to_vec();
    if is_control(header) {
        datagram.extend_from_slice(payload);
    }
    match farhaul_wire::Packet::parse(&datagram) {
        Ok(farhaul_wire::Packet::Data(header, _)) => {
            write!(out, "data {} len {}", header.seq.value(), payload.len())
        }
        Ok(farhaul_wire::Packet::Control(packet)) => write_control(out, &packet.body),
        // No agent sends such; were one to, the trace is where to see it.
        Err(error) => write!(out, "malformed: {error}"),
    }
}

fn write_control(out: &mut Vec<u8>, control: &Control<'_>) -> io::Result<()> {
    match control {
        Control::Handshake(handshake) => write_handshake(out, handshake),
        Control::KeepAlive => write!(out, "keep-alive"),
        Control::Ack { ack_seq, ack } => {
            let next = ack.next.value();
            let Some(detail) = ack.detail else {
                return write!(out, "ack light next {next}");
            };
            let AckDetail { rtt_us, rtt_var_us, available, rates } = detail;
            let number = ack_seq.value();
            write!(out, "ack {number} next {next} rtt {rtt_us}us var {rtt_var_us}us ")?;
            write!(out, "window {available}")?;
            match rates {
                Some(rates) => {
                    let (rate, capacity) = (rates.receive_rate, rates.link_capacity);
                    write!(out, " rate {rate}/s capacity {capacity}/s")
                }
                None => Ok(()),
            }
        }
        Control::Nak(losses) => {
            write!(out, "nak ")?;
            for (index, range) in losses.ranges().take(MOST_RANGES).enumerate() {
                let (first, last) = (range.first.value(), range.last.value());
                write_range(out, index, first.into(), last.into())?;
            }
            match losses.ranges().skip(MOST_RANGES).count() {
                0 => Ok(()),
                more => write!(out, " and {more} more"),
            }
        }
        Control::CongestionWarning => write!(out, "congestion-warning"),
        Control::Shutdown { code: 0 } => write!(out, "shutdown"),
        // What the closing side has: the engine's `ACCOUNTS`.
        Control::Shutdown { code } if code >> 31 == 1 => {
            write!(out, "shutdown next {}", code & Seq::MAX)
        }
        Control::Shutdown { code } => write!(out, "shutdown code {code}"),
        Control::Ack2 { ack_seq } => write!(out, "ack2 {}", ack_seq.value()),
        Control::DropRequest { message, first, last } => {
            let (message, first, last) = (message.value(), first.value(), last.value());
            write!(out, "drop-request {first}-{last} message {message}")
        }
        Control::ErrorSignal { code } => write!(out, "error {code}"),
        Control::User { subtype, info, .. } => write!(out, "user {subtype} info {info}"),
        Control::Unknown { kind, .. } => write!(out, "unknown {kind}"),
    }
}

fn write_handshake(out: &mut Vec<u8>, handshake: &Handshake) -> io::Result<()> {
    let request = match handshake.request {
        Request::Hello => "hello",
        Request::Conclusion => "conclusion",
        Request::Rendezvous => "rendezvous",
        Request::Agreement => "agreement",
        Request::Rejected => "rejected",
        Request::Other(_) => "other",
    };
    let Handshake { mss, flight_flag, socket_id, cookie, .. } = handshake;
    let isn = handshake.isn.value();
    write!(out, "handshake {request} first {isn} mss {mss} window {flight_flag} ")?;
    write!(out, "id {socket_id} cookie {cookie}")
}

fn write_tcp(out: &mut Vec<u8>, segment: &Segment) -> io::Result<()> {
    match &segment.kind {
        Kind::Syn => write!(out, "syn")?,
        Kind::SynAck { window } => write!(out, "syn ack window {window}")?,
        Kind::Data { number, len, last } => {
            let last = if *last { " fin" } else { "" };
            write!(out, "data {number} len {len}{last}")?;
        }
        Kind::Ack { next, window, blocks } => {
            write!(out, "ack next {next} window {window}")?;
            let blocks = blocks.iter().filter(|block| block.len > 0).enumerate();
            for (index, Block { gap, len }) in blocks {
                out.extend(if index == 0 { &b" sack "[..] } else { b"" });
                let first = next + u64::from(*gap);
                write_range(out, index, first, first + u64::from(*len) - 1)?;
            }
        }
        Kind::Reset => write!(out, "reset")?,
    }
    // Bulk transfers have but one.
    if segment.connection > 0 {
        write!(out, " connection {}", segment.connection)?;
    }
    if segment.damaged { write!(out, " damaged") } else { Ok(()) }
}

/// Writes the range of this index of a list.
fn write_range(out: &mut Vec<u8>, index: usize, first: u64, last: u64) -> io::Result<()> {
    let comma = if index > 0 { "," } else { "" };
    if first == last { write!(out, "{comma}{first}") } else { write!(out, "{comma}{first}-{last}") }
}
