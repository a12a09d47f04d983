//! Control packets.

use crate::handshake::HANDSHAKE_LEN;
use crate::loss::NAK;
use crate::{AckSeq, HEADER_LEN, Handshake, LossReport, MsgNo, ParseError, Seq, words};

const HANDSHAKE: u16 = 0;
const KEEP_ALIVE: u16 = 1;
const ACK: u16 = 2;
const CONGESTION_WARNING: u16 = 4;
const SHUTDOWN: u16 = 5;
const ACK2: u16 = 6;
const DROP_REQUEST: u16 = 7;
const ERROR_SIGNAL: u16 = 8;
const USER: u16 = 0x7fff;

/// libudt sends no control packet without payload: types that have nothing to say carry this many
/// zero bytes.
const PADDING: usize = 4;

/// A control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlPacket<'a> {
    /// Microseconds since the sender's socket was opened, or 0: libudt always writes 0, and nobody
    /// reads it.
    pub timestamp: u32,
    /// The receiver's socket ID, 31 bits; 0 for a listener or a rendezvous socket.
    pub dest: u32,
    /// What the packet says.
    pub body: Control<'a>,
}

/// What a control packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// Type 0: connection set-up.
    Handshake(Handshake),
    /// Type 1: the sender is alive and has nothing to send.
    KeepAlive,
    /// Type 2: what has been received.
    Ack {
        /// The ACK's own number, which the ACK2 repeats; [`AckSeq::LIGHT`] in a light ACK.
        ack_seq: AckSeq,
        /// What the ACK says.
        ack: Ack,
    },
    /// Type 3: what has been lost.
    Nak(LossReport<'a>),
    /// Type 4: delay grows. libudt 4.11 never sends it.
    CongestionWarning,
    /// Type 5: the sender is gone.
    Shutdown {
        /// The additional information of the header, which libudt leaves 0 and does not read: free
        /// for peers that know each other.
        code: u32,
    },
    /// Type 6: answers a numbered ACK.
    Ack2 {
        /// The number of the ACK answered.
        ack_seq: AckSeq,
    },
    /// Type 7: packets of a message that the sender has given up. libudt's `last` is one too high.
    DropRequest {
        /// The message given up.
        message: MsgNo,
        /// Its first packet that will not come.
        first: Seq,
        /// Its last packet that will not come; `last.since(first) >= 0`.
        last: Seq,
    },
    /// Type 8, unknown to the draft: the peer's application has failed.
    ErrorSignal {
        /// The error; libudt sends 4000 only, when a file cannot be written.
        code: u32,
    },
    /// Type 0x7fff: defined by a congestion control law.
    User {
        /// The law's own type.
        subtype: u16,
        /// The additional information of the header, free.
        info: u32,
        /// Free. libudt takes whole big-endian words only. Written empty, it arrives as four
        /// zero bytes.
        payload: &'a [u8],
    },
    /// Any other type: to be ignored, but a sign of life.
    Unknown {
        /// The type, 15 bits, none of the above.
        kind: u16,
        /// The low half of the header's first word.
        subtype: u16,
        /// The additional information of the header.
        info: u32,
        /// The rest of the packet.
        payload: &'a [u8],
    },
}

/// What an ACK says. It has three forms: light, small and full, with payloads of 4, 16 and 24
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ack {
    /// The first packet not received: everything before it is.
    pub next: Seq,
    /// What the small and full forms add; `None` in the light one.
    pub detail: Option<AckDetail>,
}

/// What small and full ACKs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckDetail {
    /// The ACK sender's estimate of the round-trip time, microseconds.
    pub rtt_us: u32,
    /// The ACK sender's estimate of the round-trip time's variation, microseconds.
    pub rtt_var_us: u32,
    /// Room in the receive buffer: packets, whatever the draft says about bytes. At least 2 from a
    /// libudt peer.
    pub available: u32,
    /// What the full form adds; `None` in the small one.
    pub rates: Option<AckRates>,
}

/// What only full ACKs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckRates {
    /// The rate at which packets arrive, packets per second; 0 if unknown.
    pub receive_rate: u32,
    /// The estimated capacity of the path, packets per second; 0 if unknown.
    pub link_capacity: u32,
}

impl<'a> ControlPacket<'a> {
    /// Parses a control packet whose header does not lie before its payload.
    ///
    /// # Errors
    ///
    /// A [`ParseError`] that names the first thing found wrong, as [`Packet::parse`](crate::Packet::parse).
    pub fn from_parts(header: &[u8; HEADER_LEN], payload: &'a [u8]) -> Result<Self, ParseError> {
        let words = words::from_header(header);
        if words[0] >> 31 == 0 {
            return Err(ParseError::NoControl(words[0]));
        }
        ControlPacket::parse(words, payload)
    }

    /// Parses a control packet; the caller has seen that bit 31 of the first word is set.
    pub(crate) fn parse(header: [u32; 4], payload: &'a [u8]) -> Result<Self, ParseError> {
        let [first, info, timestamp, dest] = header;
        let body = Control::parse(first, info, payload)?;
        Ok(ControlPacket { timestamp, dest, body })
    }
}

impl<'a> Control<'a> {
    /// Bytes of the whole datagram that [`Control::write`] makes.
    pub fn datagram_len(&self) -> usize {
        let payload = match self {
            Control::Handshake(_) => return HANDSHAKE_LEN,
            Control::Ack { ack, .. } => ack.words().1 * 4,
            Control::Nak(losses) => losses.as_bytes().len(),
            Control::DropRequest { .. } => 8,
            Control::User { payload: [], .. } => PADDING,
            Control::User { payload, .. } | Control::Unknown { payload, .. } => payload.len(),
            Control::KeepAlive
            | Control::CongestionWarning
            | Control::Shutdown { .. }
            | Control::Ack2 { .. }
            | Control::ErrorSignal { .. } => PADDING,
        };
        HEADER_LEN + payload
    }

    /// Writes the whole datagram, padding included, to the start of `out` and returns its length,
    /// or `None` if `out` is too short; `out` is then as it was.
    ///
    /// The result has the lengths that libudt sends: a handshake 64 bytes, an ACK 20, 32 or 40, a
    /// drop request 24, a packet that has nothing to say 20.
    pub fn write(&self, timestamp: u32, dest: u32, out: &mut [u8]) -> Option<usize> {
        let len = self.datagram_len();
        let (head, payload) = out.get_mut(..len)?.split_first_chunk_mut()?;
        let (kind, subtype, info) = self.head();
        *head = header(kind, subtype, info, timestamp, dest);
        match self {
            Control::Handshake(handshake) => payload.copy_from_slice(&handshake.to_bytes()),
            Control::Ack { ack, .. } => words::put(payload, &ack.words().0),
            Control::Nak(losses) => payload.copy_from_slice(losses.as_bytes()),
            Control::DropRequest { first, last, .. } => {
                words::put(payload, &[first.value(), last.value()]);
            }
            Control::User { payload: bytes @ [_, ..], .. }
            | Control::Unknown { payload: bytes, .. } => payload.copy_from_slice(bytes),
            Control::KeepAlive
            | Control::CongestionWarning
            | Control::Shutdown { .. }
            | Control::Ack2 { .. }
            | Control::ErrorSignal { .. }
            | Control::User { payload: [], .. } => payload.fill(0),
        }
        Some(len)
    }

    fn parse(first: u32, info: u32, payload: &'a [u8]) -> Result<Self, ParseError> {
        let kind = (first >> 16) as u16 & 0x7fff;
        let subtype = first as u16;
        let ack_seq = || AckSeq::checked(info).ok_or(ParseError::AckNumber(info));
        Ok(match kind {
            HANDSHAKE => Control::Handshake(Handshake::parse(payload)?),
            KEEP_ALIVE => Control::KeepAlive,
            ACK => Control::Ack { ack_seq: ack_seq()?, ack: Ack::parse(payload)? },
            NAK => Control::Nak(LossReport::parse(payload)?),
            CONGESTION_WARNING => Control::CongestionWarning,
            SHUTDOWN => Control::Shutdown { code: info },
            ACK2 => Control::Ack2 { ack_seq: ack_seq()? },
            DROP_REQUEST => {
                let (first, last) = parse_drop_range(payload)?;
                // A peer that leaves the flags of the data packet in place means the same message.
                Control::DropRequest { message: MsgNo::new(info), first, last }
            }
            ERROR_SIGNAL => Control::ErrorSignal { code: info },
            USER => Control::User { subtype, info, payload },
            _ => Control::Unknown { kind, subtype, info, payload },
        })
    }

    /// Type, subtype and additional information.
    fn head(&self) -> (u16, u16, u32) {
        match *self {
            Control::Handshake(_) => (HANDSHAKE, 0, 0),
            Control::KeepAlive => (KEEP_ALIVE, 0, 0),
            Control::Ack { ack_seq, .. } => (ACK, 0, ack_seq.value()),
            Control::Nak(_) => (NAK, 0, 0),
            Control::CongestionWarning => (CONGESTION_WARNING, 0, 0),
            Control::Shutdown { code } => (SHUTDOWN, 0, code),
            Control::Ack2 { ack_seq } => (ACK2, 0, ack_seq.value()),
            Control::DropRequest { message, .. } => (DROP_REQUEST, 0, message.value()),
            Control::ErrorSignal { code } => (ERROR_SIGNAL, 0, code),
            Control::User { subtype, info, .. } => (USER, subtype, info),
            Control::Unknown { kind, subtype, info, .. } => (kind, subtype, info),
        }
    }
}

impl Ack {
    /// Other lengths than the three are refused: libudt reads past the end of short ones.
    fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let (next, detail): (_, &[[u8; 4]]) = match payload.as_chunks() {
            ([next], []) => (next, &[]),
            ([next, detail @ ..], []) if matches!(detail.len(), 3 | 5) => (next, detail),
            _ => return Err(ParseError::AckLength(payload.len())),
        };
        let next = u32::from_be_bytes(*next);
        let rates = match detail {
            [_, _, _, receive_rate, link_capacity] => Some(AckRates {
                receive_rate: u32::from_be_bytes(*receive_rate),
                link_capacity: u32::from_be_bytes(*link_capacity),
            }),
            _ => None,
        };
        let detail = match detail {
            [rtt, rtt_var, available, ..] => Some(AckDetail {
                rtt_us: u32::from_be_bytes(*rtt),
                rtt_var_us: u32::from_be_bytes(*rtt_var),
                available: u32::from_be_bytes(*available),
                rates,
            }),
            _ => None,
        };
        let next = Seq::checked(next).ok_or(ParseError::AckSequence(next))?;
        Ok(Ack { next, detail })
    }

    /// The payload's words, and how many of them count.
    fn words(&self) -> ([u32; 6], usize) {
        let next = self.next.value();
        let Some(AckDetail { rtt_us, rtt_var_us, available, rates }) = self.detail else {
            return ([next, 0, 0, 0, 0, 0], 1);
        };
        let Some(AckRates { receive_rate, link_capacity }) = rates else {
            return ([next, rtt_us, rtt_var_us, available, 0, 0], 4);
        };
        ([next, rtt_us, rtt_var_us, available, receive_rate, link_capacity], 6)
    }
}

/// First and last packet of a drop request.
fn parse_drop_range(payload: &[u8]) -> Result<(Seq, Seq), ParseError> {
    let [first, last, ..] = payload.as_chunks().0 else {
        return Err(ParseError::DropLength(payload.len()));
    };
    let seq = |bytes: &[u8; 4]| {
        let word = u32::from_be_bytes(*bytes);
        Seq::checked(word).ok_or(ParseError::DropSequence(word))
    };
    let (first, last) = (seq(first)?, seq(last)?);
    if last.since(first) < 0 {
        return Err(ParseError::DropOrder { first, last });
    }
    Ok((first, last))
}

/// The header of a control packet.
pub(crate) const fn header(
    kind: u16,
    subtype: u16,
    info: u32,
    timestamp: u32,
    dest: u32,
) -> [u8; HEADER_LEN] {
    let first = 1 << 31 | (kind as u32) << 16 | subtype as u32;
    words::to_header([first, info, timestamp, dest])
}
