//! A datagram on its way through the relay.

use std::net::SocketAddr;

use farhaul_link::Packet;

use super::flows::FlowKey;

/// Buffers kept for reuse, in bytes: what a fast path has under way, and little for a machine.
const SPARE_BYTES_MAX: usize = 16 << 20;

/// A UDP payload and where it belongs.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub payload: Vec<u8>,
    pub flow: FlowKey,
    /// IP and UDP headers.
    pub header_bytes: usize,
}

/// Makes datagrams in buffers of former ones.
#[derive(Debug)]
pub(crate) struct Pool {
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
    header_bytes: usize,
}

impl Pool {
    /// Counts the headers of packets to and from `peer`.
    pub(crate) fn new(peer: SocketAddr) -> Self {
        // UDP 8 bytes and IPv4 20 or IPv6 40.
        let header_bytes = if peer.ip().to_canonical().is_ipv4() { 28 } else { 48 };
        Pool { spare: Vec::new(), spare_bytes: 0, header_bytes }
    }

    pub(crate) fn datagram(&mut self, payload: &[u8], flow: FlowKey) -> Datagram {
        let mut buffer = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= buffer.capacity();
        buffer.clear();
        buffer.extend_from_slice(payload);
        Datagram { payload: buffer, flow, header_bytes: self.header_bytes }
    }

    pub(crate) fn recycle(&mut self, datagram: Datagram) {
        let bytes = datagram.payload.capacity();
        if self.spare_bytes + bytes <= SPARE_BYTES_MAX {
            self.spare_bytes += bytes;
            self.spare.push(datagram.payload);
        }
    }
}

impl Packet for Datagram {
    fn wire_len(&self) -> usize {
        self.payload.len() + self.header_bytes
    }

    /// Only the payload: the relay writes new headers.
    fn corruptible_bits(&self) -> usize {
        self.payload.len() * 8
    }

    fn flip_bit(&mut self, bit: usize) {
        self.payload[bit / 8] ^= 1 << (bit % 8);
    }
}

impl AsRef<[u8]> for Datagram {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_on_the_wire() {
        let sized = |peer: &str| {
            let mut pool = Pool::new(peer.parse().unwrap());
            pool.datagram(&[0; 100], FlowKey::default()).wire_len()
        };
        assert_eq!(sized("127.0.0.1:1"), 128);
        assert_eq!(sized("[::1]:1"), 148);
        assert_eq!(sized("[::ffff:127.0.0.1]:1"), 128);
    }

    #[test]
    fn buffers_are_reused_without_their_content() {
        let mut pool = Pool::new("127.0.0.1:1".parse().unwrap());
        let first = pool.datagram(b"a long one", FlowKey::default());
        pool.recycle(first);
        assert_eq!(pool.datagram(b"short", FlowKey::default()).as_ref(), b"short");
        assert_eq!((pool.spare.len(), pool.spare_bytes), (0, 0));
    }

    #[test]
    fn spare_buffers_are_bounded() {
        let mut pool = Pool::new("127.0.0.1:1".parse().unwrap());
        let many: Vec<_> =
            (0..300).map(|_| pool.datagram(&[0; 65_000], FlowKey::default())).collect();
        many.into_iter().for_each(|datagram| pool.recycle(datagram));
        assert!((1..300).contains(&pool.spare.len()));
        assert!(pool.spare_bytes <= SPARE_BYTES_MAX);
    }

    #[test]
    fn one_bit_is_flipped() {
        let mut pool = Pool::new("127.0.0.1:1".parse().unwrap());
        let mut datagram = pool.datagram(&[0; 4], FlowKey::default());
        assert_eq!(datagram.corruptible_bits(), 32);
        datagram.flip_bit(17);
        assert_eq!(datagram.as_ref(), [0, 0, 2, 0]);
    }
}
