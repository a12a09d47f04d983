//! What TCP connections exchange: what of a segment matters to the course of a connection, without
//! its payload.

use farhaul_link::Ecn;

/// Bytes of IPv4 and TCP headers without options.
pub const TCP_HEADERS: u32 = 40;
/// Bytes of options of a SYN: maximum segment size, window scale, SACK permitted, padding.
const SYN_OPTIONS: u32 = 12;
/// Bytes of the SACK option without its blocks, padded.
const SACK_OPTION: u32 = 4;
/// Bytes of a SACK block.
const SACK_BLOCK: u32 = 8;

/// SACK blocks in an ACK (RFC 2018 §3: three beside other options).
pub const BLOCKS: usize = 3;

/// A TCP segment. Data segments are counted and not their bytes: the first is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which of the connections between two agents: what their ports are on the wire.
    pub connection: u32,
    /// A bit was inverted on the way, so that the checksum is wrong.
    pub damaged: bool,
    /// Explicit congestion notification, of data where its sender knows it.
    pub ecn: Ecn,
    /// Of an ACK, how many of the connection's data segments have come marked: what accurate feedback
    /// tells (RFC 9768), which echoes (RFC 3168 §6.1.3) are the lowest bit of.
    pub marks: u32,
    /// What it is.
    pub kind: Kind,
}

/// What a segment is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Asks for a connection.
    Syn,
    /// Grants it.
    SynAck {
        /// The receive window, segments.
        window: u32,
    },
    /// Data.
    Data {
        /// Which one.
        number: u64,
        /// Bytes of payload.
        len: u32,
        /// The last one of the connection: carries FIN.
        last: bool,
    },
    /// An acknowledgement.
    Ack {
        /// Everything before this one has arrived.
        next: u64,
        /// The receive window from there on, segments.
        window: u32,
        /// What has arrived beyond, most recent first; empty blocks are not there.
        blocks: [Block; BLOCKS],
    },
    /// There is no such connection.
    Reset,
}

/// A SACK block, relative to the acknowledgement number so as to be small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Segments between the acknowledgement number and the block.
    pub gap: u32,
    /// Segments in the block.
    pub len: u32,
}

impl Segment {
    /// One as its host sends it, without congestion notification.
    pub fn new(connection: u32, kind: Kind) -> Self {
        Segment { connection, damaged: false, ecn: Ecn::NotCapable, marks: 0, kind }
    }

    /// Bytes on the wire with all headers.
    pub fn wire_len(&self) -> u32 {
        let rest = match &self.kind {
            Kind::Syn | Kind::SynAck { .. } => SYN_OPTIONS,
            Kind::Data { len, .. } => *len,
            Kind::Ack { blocks, .. } => match blocks.iter().filter(|b| b.len > 0).count() as u32 {
                0 => 0,
                count => SACK_OPTION + count * SACK_BLOCK,
            },
            Kind::Reset => 0,
        };
        TCP_HEADERS + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let size = |kind| Segment::new(0, kind).wire_len();
        assert_eq!(size(Kind::Data { number: 0, len: 1460, last: false }), 1500);
        assert_eq!(size(Kind::Syn), 52);
        let mut blocks = [Block::default(); BLOCKS];
        assert_eq!(size(Kind::Ack { next: 0, window: 1, blocks }), 40);
        blocks[0] = Block { gap: 1, len: 2 };
        blocks[1] = Block { gap: 5, len: 1 };
        assert_eq!(size(Kind::Ack { next: 0, window: 1, blocks }), 60);
    }
}
