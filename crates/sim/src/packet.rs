//! What travels over the links of a simulated network.

use bytes::Bytes;
use farhaul_wire::HEADER_LEN;

use crate::simulation::AgentId;
use crate::tcp::Segment;

/// Bytes of IPv4 and UDP headers.
const IP_UDP_HEADERS: usize = 28;

/// A packet. Payload is held by reference: a copy costs nothing.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Who sent it.
    pub from: AgentId,
    /// Whom it is for.
    pub to: AgentId,
    /// What it carries.
    pub content: Content,
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub enum Content {
    /// A UDT datagram.
    Udt {
        /// The first sixteen bytes.
        header: [u8; HEADER_LEN],
        /// What follows them.
        payload: Bytes,
    },
    /// A TCP segment.
    Tcp(Segment),
    /// So many bytes, all headers included, that nobody answers.
    Filler(u32),
}

impl farhaul_link::Packet for Packet {
    fn wire_len(&self) -> usize {
        match &self.content {
            Content::Udt { payload, .. } => IP_UDP_HEADERS + HEADER_LEN + payload.len(),
            Content::Tcp(segment) => segment.wire_len() as usize,
            Content::Filler(bytes) => *bytes as usize,
        }
    }

    fn corruptible_bits(&self) -> usize {
        match &self.content {
            Content::Udt { payload, .. } => (HEADER_LEN + payload.len()) * 8,
            // Which one makes no difference to a checksum.
            Content::Tcp(segment) => segment.wire_len() as usize * 8,
            Content::Filler(_) => 0,
        }
    }

    fn flip_bit(&mut self, bit: usize) {
        let (header, payload) = match &mut self.content {
            Content::Udt { header, payload } => (header, payload),
            Content::Tcp(segment) => {
                segment.damaged = true;
                return;
            }
            Content::Filler(_) => return,
        };
        let (byte, mask) = (bit / 8, 1 << (bit % 8));
        match byte.checked_sub(HEADER_LEN) {
            None => header[byte] ^= mask,
            Some(byte) => {
                let mut damaged = payload.to_vec();
                damaged[byte] ^= mask;
                *payload = damaged.into();
            }
        }
    }
}
