//! What can be wrong with a datagram.

use core::error::Error;
use core::fmt;

use crate::Seq;

/// Why a datagram is not a UDT packet. The right answer is to drop it and count it: anybody can
/// send such bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// The datagram, of this many bytes, is shorter than a header.
    Header(usize),
    /// Bit 31 of the destination socket ID is set.
    Destination(u32),
    /// The first word should be that of a control packet, and its bit 31 is not set.
    NoControl(u32),
    /// The handshake's payload, of this many bytes, is not 48 bytes long.
    HandshakeLength(usize),
    /// Bit 31 of the handshake's initial sequence number is set.
    InitialSequence(u32),
    /// Bit 31 of the handshake's socket ID is set.
    SocketId(u32),
    /// The ACK's payload, of this many bytes, is none of 4, 16 and 24 bytes long.
    AckLength(usize),
    /// Bit 31 of the sequence number that an ACK confirms is set.
    AckSequence(u32),
    /// Bit 31 of an ACK's or ACK2's own number is set.
    AckNumber(u32),
    /// The NAK's payload, of this many bytes, is empty or not made of whole words.
    NakLength(usize),
    /// The NAK ends in the first word of a range.
    NakRangeOpen(Seq),
    /// Bit 31 of the last number of a NAK's range is set.
    NakRangeEnd(u32),
    /// A range of a NAK runs backwards.
    NakRangeOrder {
        /// The range's first number.
        first: Seq,
        /// The range's last number.
        last: Seq,
    },
    /// The drop request's payload, of this many bytes, is shorter than 8 bytes.
    DropLength(usize),
    /// Bit 31 of one of the drop request's sequence numbers is set.
    DropSequence(u32),
    /// The drop request's range runs backwards.
    DropOrder {
        /// The range's first number.
        first: Seq,
        /// The range's last number.
        last: Seq,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ParseError::*;
        match *self {
            Header(len) => write!(f, "datagram of {len} bytes is shorter than a header"),
            Destination(id) => write!(f, "destination socket ID {id:#010x} exceeds 31 bits"),
            NoControl(word) => write!(f, "first word {word:#010x} is not that of a control packet"),
            HandshakeLength(len) => write!(f, "handshake payload has {len} bytes, not 48"),
            InitialSequence(n) => write!(f, "initial sequence number {n:#010x} exceeds 31 bits"),
            SocketId(id) => write!(f, "handshake socket ID {id:#010x} exceeds 31 bits"),
            AckLength(len) => write!(f, "ACK payload has {len} bytes, not 4, 16 or 24"),
            AckSequence(n) => write!(f, "acknowledged sequence number {n:#010x} exceeds 31 bits"),
            AckNumber(n) => write!(f, "ACK sequence number {n:#010x} exceeds 31 bits"),
            NakLength(len) => write!(f, "NAK payload of {len} bytes is not a list of words"),
            NakRangeOpen(first) => {
                write!(f, "NAK ends inside the range that starts at {}", first.value())
            }
            NakRangeEnd(n) => write!(f, "last number of a NAK range {n:#010x} exceeds 31 bits"),
            NakRangeOrder { first, last } => {
                write!(f, "NAK range {}..={} runs backwards", first.value(), last.value())
            }
            DropLength(len) => write!(f, "drop request payload has {len} bytes, fewer than 8"),
            DropSequence(n) => write!(f, "drop request sequence number {n:#010x} exceeds 31 bits"),
            DropOrder { first, last } => {
                write!(f, "drop request range {}..={} runs backwards", first.value(), last.value())
            }
        }
    }
}

impl Error for ParseError {}
