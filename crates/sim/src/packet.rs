//! What travels over the links of a simulated network.

use bytes::Bytes;
use farhaul_link::Ecn;
use farhaul_wire::HEADER_LEN;

use crate::simulation::AgentId;
use crate::tcp::Segment;

/// Bytes of IPv4 and UDP headers, which are all that packets of constant rate have.
pub const UDP_HEADERS: u32 = 28;
/// Bytes of headers of a UDT packet: IPv4, UDP and its own.
pub const UDT_HEADERS: u32 = UDP_HEADERS + HEADER_LEN as u32;

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
    /// What nobody answers.
    Filler {
        /// All headers included.
        bytes: u32,
        /// Which of its source's packets it is, from 0.
        number: u64,
    },
    /// A UDP datagram of so many bytes, all headers included, of which a bit was inverted on the
    /// way: UDP's checksum does not fit, and the receiving host drops it.
    Damaged(u32),
}

impl farhaul_link::Packet for Packet {
    fn wire_len(&self) -> usize {
        match &self.content {
            Content::Udt { payload, .. } => UDT_HEADERS as usize + payload.len(),
            Content::Tcp(segment) => segment.wire_len() as usize,
            Content::Filler { bytes, .. } | Content::Damaged(bytes) => *bytes as usize,
        }
    }

    fn corruptible_bits(&self) -> usize {
        match &self.content {
            // Which one makes no difference to a checksum.
            Content::Udt { .. } | Content::Tcp(_) | Content::Filler { .. } => self.wire_len() * 8,
            Content::Damaged(_) => 0,
        }
    }

    fn flip_bit(&mut self, _: usize) {
        let bytes = self.wire_len() as u32;
        match &mut self.content {
            Content::Udt { .. } | Content::Filler { .. } => self.content = Content::Damaged(bytes),
            Content::Tcp(segment) => segment.damaged = true,
            Content::Damaged(_) => {}
        }
    }

    fn ecn(&self) -> Ecn {
        match &self.content {
            Content::Tcp(segment) => segment.ecn,
            _ => Ecn::NotCapable,
        }
    }

    fn mark(&mut self) {
        if let Content::Tcp(segment) = &mut self.content {
            segment.ecn = Ecn::Marked;
        }
    }

    fn flow(&self) -> u64 {
        let connection = match &self.content {
            Content::Tcp(segment) => segment.connection,
            _ => 0,
        };
        // The addresses, and what of a TCP flow is the port.
        u64::from(connection) << 32 | u64::from(self.from.0)
    }
}
