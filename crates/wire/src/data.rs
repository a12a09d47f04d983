//! The header of a data packet.

use crate::{HEADER_LEN, MsgNo, Seq, words};

/// Which part of its message a data packet is. Streams carry the flags too, and ignore them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Boundary {
    /// The packet starts a message.
    pub first: bool,
    /// The packet ends a message.
    pub last: bool,
}

impl Boundary {
    /// A message of one packet.
    pub const SOLO: Boundary = Boundary { first: true, last: true };
    /// The first packet of several.
    pub const FIRST: Boundary = Boundary { first: true, last: false };
    /// Neither the first nor the last packet.
    pub const MIDDLE: Boundary = Boundary { first: false, last: false };
    /// The last packet of several.
    pub const LAST: Boundary = Boundary { first: false, last: true };
}

/// The header of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataHeader {
    /// The packet's sequence number, kept through retransmissions.
    pub seq: Seq,
    /// Which part of its message the packet is.
    pub boundary: Boundary,
    /// The message must not overtake earlier ones.
    pub in_order: bool,
    /// The message that the packet belongs to.
    pub message: MsgNo,
    /// Microseconds since the sender's socket was opened, modulo 2^32 (71.6 minutes); of this
    /// transmission, not of the first one.
    pub timestamp: u32,
    /// The receiver's socket ID, 31 bits.
    pub dest: u32,
}

const FIRST: u32 = 1 << 31;
const LAST: u32 = 1 << 30;
const IN_ORDER: u32 = 1 << 29;

impl DataHeader {
    /// The header as it goes on the wire; the payload follows it.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let message = self.message.value()
            | flag(self.boundary.first, FIRST)
            | flag(self.boundary.last, LAST)
            | flag(self.in_order, IN_ORDER);
        words::to_header([self.seq.value(), message, self.timestamp, self.dest])
    }

    /// The header in four words; the caller has seen that bit 31 of the first is clear.
    #[inline]
    pub(crate) const fn from_words([seq, message, timestamp, dest]: [u32; 4]) -> Self {
        DataHeader {
            seq: Seq::new(seq),
            boundary: Boundary { first: message & FIRST != 0, last: message & LAST != 0 },
            in_order: message & IN_ORDER != 0,
            message: MsgNo::new(message),
            timestamp,
            dest,
        }
    }
}
