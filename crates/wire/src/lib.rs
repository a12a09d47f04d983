//! UDT version 4 packets: parse, build, 31-bit sequence arithmetic, NAK range coding.
//!
//! One UDP datagram is one packet: a header of four big-endian words and a payload. Bit 31 of the
//! first word tells data from control. The format is that of draft-gg-udt-03 with the values that
//! libudt 4.11 really sends; where the two differ, libudt wins and a comment says so.
//!
//! [`Packet::parse`] turns a datagram from the network into checked fields or a [`ParseError`]. It
//! checks what a packet can be judged by alone: lengths, number spaces, the order of ranges.
//! Whether a number fits the connection is the engine's question. The way out is
//! [`DataHeader::to_bytes`], [`Control::write`] and [`write_nak`]. Nothing here allocates, and no
//! input panics.
//!
//! ```
//! use farhaul_wire::{Boundary, DataHeader, MsgNo, Packet, Seq};
//!
//! let header = DataHeader {
//!     seq: Seq::new(232_062_280),
//!     boundary: Boundary::SOLO,
//!     in_order: false,
//!     message: MsgNo::FIRST,
//!     timestamp: 106_724,
//!     dest: 593_249_244,
//! };
//! let mut datagram = header.to_bytes().to_vec();
//! datagram.extend_from_slice(b"ABCDEFGHIJK");
//! assert_eq!(Packet::parse(&datagram), Ok(Packet::Data(header, b"ABCDEFGHIJK")));
//! ```

#![no_std]
#![forbid(unsafe_code)]

mod control;
mod data;
mod error;
mod handshake;
mod loss;
mod packet;
mod seq;
mod words;

pub use control::{Ack, AckDetail, AckRates, Control, ControlPacket};
pub use data::{Boundary, DataHeader};
pub use error::ParseError;
pub use handshake::{HANDSHAKE_LEN, Handshake, PeerIp, Request, SocketType};
pub use loss::{LossRange, LossRanges, LossReport, encode_losses, write_nak};
pub use packet::{HEADER_LEN, Packet, dest, is_control};
pub use seq::{AckSeq, MsgNo, Seq};
