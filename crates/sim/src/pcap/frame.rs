//! A packet as it would be on a real network: IPv4 with UDP or TCP.

use farhaul_link::Packet as _;

use crate::packet::{Content, Packet};
use crate::scenario::{Protocol, Scenario};
use crate::tcp::{Kind, Segment, TcpConfig};
use crate::udt;

const UDP: u8 = 17;
const TCP: u8 = 6;
const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const TCP_HEADER: usize = 20;
const DISCARD: u16 = 9;
/// The receiver's port, that of iperf.
const TCP_PORT: u16 = 5001;
/// Connection n is from port 10000 + n on.
const FIRST_PORT: u32 = 10_000;
const PORTS: u32 = 50_000;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// Makes frames of a scenario's packets.
#[derive(Debug)]
pub(super) struct Frames {
    /// For each flow; none where it is no TCP.
    tcp: Vec<Option<Bytes>>,
}

/// What turns a flow's segments into bytes.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    /// Bytes of a full segment.
    payload: u64,
    /// Bytes of a connection; none if it is without end.
    total: Option<u64>,
    /// Of the receiver's window.
    scale: u8,
}

impl Bytes {
    fn new(tcp: &TcpConfig, total: Option<u64>) -> Self {
        let payload = u64::from(tcp.payload());
        let window = u64::from(tcp.window_segments()) * payload;
        // RFC 7323 §2.3: at most 14.
        let scale = (0..14).find(|scale| window >> scale <= 0xffff).unwrap_or(14);
        Bytes { payload, total, scale }
    }

    /// The number of the first byte of a segment: the SYN has 0. Behind the last one is the FIN.
    fn sequence(&self, segment: u64) -> u32 {
        let first = segment.saturating_mul(self.payload);
        match self.total {
            // TCP's numbers wrap.
            Some(total) if segment >= total.div_ceil(self.payload).max(1) => {
                (total as u32).wrapping_add(2)
            }
            _ => (first as u32).wrapping_add(1),
        }
    }

    /// A window as its field has it.
    fn window(&self, segments: u32, scale: u8) -> u16 {
        let bytes = (u64::from(segments) * self.payload) >> scale;
        u16::try_from(bytes).unwrap_or(u16::MAX)
    }
}

impl Frames {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let tcp = scenario.flows.iter().map(|flow| match &flow.protocol {
            Protocol::Tcp(tcp) | Protocol::TcpArrivals { tcp, .. } => {
                Some(Bytes::new(tcp, flow.bytes))
            }
            Protocol::Udt(_) | Protocol::Cbr { .. } => None,
        });
        Frames { tcp: tcp.collect() }
    }

    /// Writes a packet to the end of `out`, but no more of it than brings that to `limit`; bytes
    /// that are zero up to there may be missing.
    pub(super) fn write(&self, out: &mut Vec<u8>, packet: &Packet, limit: usize) {
        match &packet.content {
            Content::Udt { header, payload } => {
                ip(out, packet, UDP);
                udp(out, packet, [udt::PORT; 2]);
                out.extend_from_slice(header);
                let room = limit.saturating_sub(out.len()).min(payload.len());
                out.extend_from_slice(&payload[..room]);
            }
            Content::Tcp(segment) => {
                ip(out, packet, TCP);
                self.tcp(out, packet, segment);
            }
            Content::Filler { .. } => {
                ip(out, packet, UDP);
                udp(out, packet, [DISCARD; 2]);
            }
            // What it was before it was damaged is not known.
            Content::Damaged(_) => {
                ip(out, packet, UDP);
                udp(out, packet, [udt::PORT; 2]);
                let end = out.len();
                let right = transport_checksum(packet, UDP, &out[end - UDP_HEADER..]);
                // 0 would mean that there is none.
                let wrong = if right == 1 { 2 } else { right ^ 1 };
                out[end - 2..].copy_from_slice(&wrong.to_be_bytes());
            }
        }
        out.truncate(limit);
    }

    fn tcp(&self, out: &mut Vec<u8>, packet: &Packet, segment: &Segment) {
        let flow = self.tcp.get(packet.from.0 as usize / 2).copied().flatten();
        let Some(bytes) = flow else { return };
        let port = (FIRST_PORT + segment.connection % PORTS) as u16;
        // The receiver sends nothing but its SYN.
        let (sequence, acknowledged, flags, window) = match segment.kind {
            Kind::Syn => (0, 0, SYN, u16::MAX),
            Kind::SynAck { window } => (0, 1, SYN | ACK, bytes.window(window, 0)),
            Kind::Data { number, last, .. } => {
                let end = if last { FIN | PSH } else { 0 };
                (bytes.sequence(number), 1, ACK | end, u16::MAX)
            }
            Kind::Ack { next, window, .. } => {
                (1, bytes.sequence(next), ACK, bytes.window(window, bytes.scale))
            }
            Kind::Reset => (1, 0, RST, 0),
        };
        let forward = matches!(segment.kind, Kind::Syn | Kind::Data { .. });
        let ports = if forward { [port, TCP_PORT] } else { [TCP_PORT, port] };
        let mut options = Vec::new();
        match &segment.kind {
            Kind::Syn | Kind::SynAck { .. } => {
                let mss = (bytes.payload as u16).to_be_bytes();
                let scale = if forward { 0 } else { bytes.scale };
                // Maximum segment size, SACK permitted, nothing, window scale, the end.
                options.extend([2, 4, mss[0], mss[1], 4, 2, 1, 3, 3, scale, 0, 0]);
            }
            Kind::Ack { next, blocks, .. } => {
                let blocks = blocks.iter().filter(|block| block.len > 0);
                let count = blocks.clone().count() as u8;
                if count > 0 {
                    options.extend([1, 1, 5, 2 + 8 * count]);
                }
                for block in blocks {
                    let first = next + u64::from(block.gap);
                    for edge in [first, first + u64::from(block.len)] {
                        options.extend(bytes.sequence(edge).to_be_bytes());
                    }
                }
            }
            Kind::Data { .. } | Kind::Reset => {}
        }
        let start = out.len();
        ports.iter().for_each(|port| out.extend(port.to_be_bytes()));
        out.extend(sequence.to_be_bytes());
        out.extend(acknowledged.to_be_bytes());
        out.extend([(((TCP_HEADER + options.len()) / 4) as u8) << 4, flags]);
        out.extend(window.to_be_bytes());
        // Checksum, urgent pointer.
        out.extend([0; 4]);
        out.extend(options);
        let mut check = transport_checksum(packet, TCP, &out[start..]);
        if segment.damaged {
            check ^= 1;
        }
        out[start + 16..start + 18].copy_from_slice(&check.to_be_bytes());
    }
}

/// An IPv4 header.
fn ip(out: &mut Vec<u8>, packet: &Packet, protocol: u8) {
    let start = out.len();
    out.extend([0x45, 0]);
    out.extend((packet.wire_len() as u16).to_be_bytes());
    // No identification, must not be fragmented, 64 hops.
    out.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    out.extend(udt::ip(packet.from).octets());
    out.extend(udt::ip(packet.to).octets());
    let check = checksum(sum(&out[start..]));
    out[start + 10..start + 12].copy_from_slice(&check.to_be_bytes());
}

/// The checksum of TCP or UDP with this header, its own field still 0, before payload of zeros.
fn transport_checksum(packet: &Packet, protocol: u8, header: &[u8]) -> u16 {
    let len = (packet.wire_len() - IP_HEADER) as u16;
    let address = |agent| sum(&udt::ip(agent).octets());
    let addresses = address(packet.from) + address(packet.to);
    checksum(addresses + u32::from(protocol) + u32::from(len) + sum(header))
}

/// A UDP header without a checksum.
fn udp(out: &mut Vec<u8>, packet: &Packet, [from, to]: [u16; 2]) {
    let len = packet.wire_len().saturating_sub(IP_HEADER).max(UDP_HEADER) as u16;
    [from, to, len, 0].iter().for_each(|word| out.extend(word.to_be_bytes()));
}

/// The sum of big-endian words, of which there are few enough for it not to overflow.
fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])))
        .sum()
}

/// RFC 1071.
fn checksum(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071 §3.
    #[test]
    fn checksums() {
        let words = sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(!checksum(words), 0xddf2);
        assert_eq!(sum(&[0x12, 0x34, 0x56]), 0x1234 + 0x5600);
    }

    #[test]
    fn segments_become_bytes() {
        let tcp = TcpConfig { packet_size: 1040, ..TcpConfig::default() };
        let bulk = Bytes::new(&tcp, None);
        assert_eq!((bulk.sequence(0), bulk.sequence(5)), (1, 5001));
        assert_eq!(bulk.sequence(u64::from(u32::MAX)), 1u32.wrapping_sub(1000));
        assert_eq!((bulk.scale, bulk.window(100, 0), bulk.window(1, 3)), (14, u16::MAX, 125));
        let short = Bytes::new(&TcpConfig { receive_window: 100_000, ..tcp }, Some(2_500));
        assert_eq!([1, 2, 3, 4].map(|n| short.sequence(n)), [1001, 2001, 2502, 2502]);
        assert_eq!((short.scale, short.window(100, 1)), (1, 50_000));
        let long = Bytes { total: Some(u64::from(u32::MAX)), ..short };
        assert_eq!((long.sequence(4_294_967), long.sequence(4_294_968)), (4_294_967_001, 1));
        let empty = Bytes::new(&TcpConfig::default(), Some(0));
        assert_eq!((empty.sequence(0), empty.sequence(1)), (1, 2));
    }
}
