//! The payload of a handshake packet.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{HEADER_LEN, ParseError, Seq, words};

/// Bytes of a handshake packet, header included.
pub const HANDSHAKE_LEN: usize = HEADER_LEN + PAYLOAD_LEN;

const PAYLOAD_LEN: usize = 48;

/// The fields of a handshake.
///
/// Only what the number spaces demand is checked here; version, MSS, flight flag and the rest are
/// the peer's claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The protocol version: 4; 0 in the answers of a libudt socket that is already connected.
    pub version: u32,
    /// Whether the sender wants a stream or messages.
    pub socket_type: SocketType,
    /// The first sequence number that the sender will use.
    pub isn: Seq,
    /// The largest packet that the sender takes: bytes, IP and UDP headers included.
    pub mss: u32,
    /// The most packets that the sender can have in flight towards it.
    pub flight_flag: u32,
    /// Which step of the handshake this is.
    pub request: Request,
    /// The sender's socket ID, 31 bits. Cookie answers and rejections echo the client's.
    pub socket_id: u32,
    /// The listener's cookie, opaque to the client; 0 where there is none.
    pub cookie: u32,
    /// The address that the packet is sent to, as its sender sees it.
    pub peer_ip: PeerIp,
}

impl Handshake {
    /// The version that every new handshake carries.
    pub const VERSION: u32 = 4;

    /// Parses the payload of a handshake packet.
    ///
    /// # Errors
    ///
    /// [`ParseError::HandshakeLength`] unless the payload has exactly 48 bytes (libudt ignores all
    /// others too), [`ParseError::InitialSequence`] and [`ParseError::SocketId`] for values of
    /// more than 31 bits.
    pub fn parse(payload: &[u8]) -> Result<Handshake, ParseError> {
        let wrong_length = ParseError::HandshakeLength(payload.len());
        let (fields, peer_ip) = payload.split_last_chunk().ok_or(wrong_length)?;
        let ([version, socket_type, isn, mss, flight_flag, request, socket_id, cookie], []) =
            fields.as_chunks()
        else {
            return Err(wrong_length);
        };
        let isn = u32::from_be_bytes(*isn);
        let socket_id = u32::from_be_bytes(*socket_id);
        if socket_id >> 31 != 0 {
            return Err(ParseError::SocketId(socket_id));
        }
        Ok(Handshake {
            version: u32::from_be_bytes(*version),
            socket_type: SocketType::from_wire(u32::from_be_bytes(*socket_type)),
            isn: Seq::checked(isn).ok_or(ParseError::InitialSequence(isn))?,
            mss: u32::from_be_bytes(*mss),
            flight_flag: u32::from_be_bytes(*flight_flag),
            request: Request::from_wire(i32::from_be_bytes(*request)),
            socket_id,
            cookie: u32::from_be_bytes(*cookie),
            peer_ip: PeerIp(*peer_ip),
        })
    }

    /// The payload as it goes on the wire.
    pub fn to_bytes(&self) -> [u8; PAYLOAD_LEN] {
        let mut out = [0; PAYLOAD_LEN];
        words::put(
            &mut out,
            &[
                self.version,
                self.socket_type.to_wire(),
                self.isn.value(),
                self.mss,
                self.flight_flag,
                self.request.to_wire().cast_unsigned(),
                self.socket_id,
                self.cookie,
            ],
        );
        if let Some(peer_ip) = out.last_chunk_mut() {
            *peer_ip = self.peer_ip.0;
        }
        out
    }
}

/// What a socket carries. The draft counts from 0, libudt from 1; the wire has libudt's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketType {
    /// A byte stream: 1.
    Stream,
    /// Messages: 2.
    Message,
    /// Any other value. A connected libudt socket answers late handshakes with 0.
    Other(u32),
}

impl SocketType {
    /// The type that `value` stands for.
    pub const fn from_wire(value: u32) -> Self {
        match value {
            1 => SocketType::Stream,
            2 => SocketType::Message,
            other => SocketType::Other(other),
        }
    }

    /// The value on the wire.
    pub const fn to_wire(self) -> u32 {
        match self {
            SocketType::Stream => 1,
            SocketType::Message => 2,
            SocketType::Other(value) => value,
        }
    }
}

/// Which step of connection set-up a handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A client's first packet, and the listener's answer with the cookie: 1.
    Hello,
    /// A client's packet with the cookie, the server's acceptance, the response between rendezvous
    /// peers: -1.
    Conclusion,
    /// A rendezvous peer's first packet: 0.
    Rendezvous,
    /// The last answer between rendezvous peers: -2.
    Agreement,
    /// The server refuses: 1002.
    Rejected,
    /// Any other value.
    Other(i32),
}

impl Request {
    /// The request that `value` stands for.
    pub const fn from_wire(value: i32) -> Self {
        match value {
            1 => Request::Hello,
            -1 => Request::Conclusion,
            0 => Request::Rendezvous,
            -2 => Request::Agreement,
            1002 => Request::Rejected,
            other => Request::Other(other),
        }
    }

    /// The value on the wire.
    pub const fn to_wire(self) -> i32 {
        match self {
            Request::Hello => 1,
            Request::Conclusion => -1,
            Request::Rendezvous => 0,
            Request::Agreement => -2,
            Request::Rejected => 1002,
            Request::Other(value) => value,
        }
    }
}

/// An IP address as a handshake carries it: 16 bytes in wire order.
///
/// libudt on little-endian hosts reverses the bytes of each 32-bit group, on big-endian hosts only
/// those of IPv6. We write the reversed form always. The bytes do not tell the family apart, nor
/// which kind of host sent them: never rely on the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerIp([u8; 16]);

impl PeerIp {
    /// No address: all zeros.
    pub const NONE: PeerIp = PeerIp([0; 16]);

    /// The address with these bytes on the wire.
    pub const fn from_wire(bytes: [u8; 16]) -> Self {
        PeerIp(bytes)
    }

    /// The bytes on the wire.
    pub const fn to_wire(self) -> [u8; 16] {
        self.0
    }

    /// The address, read as the reversed form of IPv6 if `v6` and of IPv4 otherwise.
    pub fn to_ip(self, v6: bool) -> IpAddr {
        let octets = reverse_groups(self.0);
        let [a, b, c, d, ..] = octets;
        if v6 { Ipv6Addr::from(octets).into() } else { Ipv4Addr::new(a, b, c, d).into() }
    }
}

impl From<IpAddr> for PeerIp {
    fn from(ip: IpAddr) -> Self {
        PeerIp(reverse_groups(match ip {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
            }
            IpAddr::V6(ip) => ip.octets(),
        }))
    }
}

/// Reverses the bytes of each group of four.
fn reverse_groups(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|group| group.reverse());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_byte_reversed() {
        let v4 = IpAddr::from([192, 0, 2, 17]);
        let wire = PeerIp::from(v4);
        assert_eq!(wire.to_wire(), [17, 2, 0, 192, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(wire.to_ip(false), v4);

        let v6 = IpAddr::from([0x2001, 0x0db8, 0, 0, 0, 0, 0x1122, 0x3344]);
        let wire = PeerIp::from(v6);
        assert_eq!(
            wire.to_wire(),
            [0xb8, 0x0d, 0x01, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11]
        );
        assert_eq!(wire.to_ip(true), v6);
    }

    #[test]
    fn values_on_the_wire_keep_their_names() {
        for (value, request) in [
            (1, Request::Hello),
            (-1, Request::Conclusion),
            (0, Request::Rendezvous),
            (-2, Request::Agreement),
            (1002, Request::Rejected),
            (1004, Request::Other(1004)),
        ] {
            assert_eq!(Request::from_wire(value), request);
            assert_eq!(request.to_wire(), value);
        }
        for (value, kind) in
            [(0, SocketType::Other(0)), (1, SocketType::Stream), (2, SocketType::Message)]
        {
            assert_eq!(SocketType::from_wire(value), kind);
            assert_eq!(kind.to_wire(), value);
        }
    }
}
