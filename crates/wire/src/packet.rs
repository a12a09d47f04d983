//! A datagram as a whole.

use crate::{ControlPacket, DataHeader, ParseError, words};

/// Bytes of a packet's header.
pub const HEADER_LEN: usize = 16;

/// A parsed datagram, borrowing its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A data packet and its payload, which may be empty.
    Data(DataHeader, &'a [u8]),
    /// A control packet.
    Control(ControlPacket<'a>),
}

impl<'a> Packet<'a> {
    /// Parses one datagram.
    ///
    /// Bits that mean nothing for a type are not looked at: its additional information, its
    /// subtype, padding. A peer may leave anything there.
    ///
    /// # Errors
    ///
    /// A [`ParseError`] that names the first thing found wrong.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Packet<'a>, ParseError> {
        let Some((header, payload)) = datagram.split_first_chunk() else {
            return Err(ParseError::Header(datagram.len()));
        };
        let words = words::from_header(header);
        let [kind, _, _, dest] = words;
        // libudt reads IDs as signed numbers and drops packets to negative ones.
        if dest >> 31 != 0 {
            return Err(ParseError::Destination(dest));
        }
        if kind >> 31 == 0 {
            Ok(Packet::Data(DataHeader::from_words(words), payload))
        } else {
            ControlPacket::parse(words, payload).map(Packet::Control)
        }
    }

    /// Writes the whole datagram to the start of `out` and returns its length, or `None` if `out`
    /// is too short; `out` is then as it was.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        match self {
            Packet::Data(header, payload) => {
                let out = out.get_mut(..HEADER_LEN + payload.len())?;
                let (head, body) = out.split_first_chunk_mut()?;
                *head = header.to_bytes();
                body.copy_from_slice(payload);
                Some(HEADER_LEN + payload.len())
            }
            Packet::Control(packet) => packet.body.write(packet.timestamp, packet.dest, out),
        }
    }
}

/// Whether the datagram is a control packet; false if it is empty.
#[inline]
pub fn is_control(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|byte| byte & 0x80 != 0)
}

/// The destination socket ID, unchecked, or `None` if the datagram is shorter than a header.
#[inline]
pub fn dest(datagram: &[u8]) -> Option<u32> {
    let header: &[u8; HEADER_LEN] = datagram.first_chunk()?;
    let [_, _, _, dest] = words::from_header(header);
    Some(dest)
}
