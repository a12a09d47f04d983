//! What one read of a TUN device gives: an IP packet, or a super-packet that stands for many.
//!
//! The kernel puts a header in front (`struct virtio_net_hdr`, virtio 1.2 §5.1.6), which says how large the
//! segments of a super-packet are and where a checksum is left to the device. A [`Frame`] is that with
//! its headers found; its segments are what would be packets on a wire. They share the frame's bytes and
//! become bytes of their own only when something asks for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;

use farhaul_link::Ecn;

use super::memory::Bytes;

/// Bytes of the header in front of each packet.
pub const VIRTIO_BYTES: usize = 10;
/// The checksum behind `csum_start` is not complete (VIRTIO_NET_HDR_F_NEEDS_CSUM).
const NEEDS_CHECKSUM: u8 = 1;
/// Kinds of super-packets (VIRTIO_NET_HDR_GSO_*).
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;

/// Congestion experienced: both bits of the ECN field (RFC 3168 §5).
const CE: u8 = 0b11;
const IPV4_CHECKSUM: usize = 10;

const TCP: u8 = 6;
const UDP: u8 = 17;
const UDP_HEADER_BYTES: usize = 8;
const IPV6_HEADER_BYTES: usize = 40;
/// Where TCP's and UDP's checksums lie in their headers.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
/// Where TCP's flags lie.
const TCP_FLAGS: usize = 13;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;

/// An IP packet or a super-packet, as it was read.
#[derive(Debug)]
pub struct Frame {
    bytes: Bytes,
    /// Where the IP header begins.
    begin: usize,
    destination: IpAddr,
    kind: Kind,
}

/// What can be done with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One packet to pass on as it is, with the checksum that is left to the device, if one is.
    Whole(Option<Checksum>),
    /// TCP or UDP with a checksum left to the device: may be several packets, and may travel with others.
    Segments(Layout),
}

/// A checksum that is left to the device: over what begins at `start`, to be stored at `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checksum {
    start: usize,
    at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    transport: Transport,
    v6: bool,
    /// Where the transport's header begins.
    transport_at: usize,
    /// Where the payload begins.
    headers: usize,
    /// Payload of each segment, bytes; the last may have less.
    payload: usize,
}

/// The protocols of super-packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Segments of a stream.
    Tcp,
    /// Datagrams.
    Udp,
}

/// Why something is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFrame {
    /// It is no IP packet, or shorter than its headers.
    NotIp,
    /// Its virtio header promises segments of a kind that does not fit the packet behind it.
    NotSegments,
}

/// One packet of a frame: on a wire it would be a packet of its own.
#[derive(Clone, Debug)]
pub struct Segment {
    frame: Arc<Frame>,
    index: usize,
}

impl Frame {
    /// Reads a frame: the virtio header in the machine's byte order, and the packet.
    ///
    /// # Errors
    /// If it is not what its headers say.
    pub fn parse(bytes: &[u8]) -> Result<Frame, BadFrame> {
        Frame::new(bytes.to_vec().into())
    }

    /// As [`parse`](Frame::parse), of bytes that need not be copied.
    pub(super) fn new(bytes: Bytes) -> Result<Frame, BadFrame> {
        let (virtio, packet) = bytes.split_at_checked(VIRTIO_BYTES).ok_or(BadFrame::NotIp)?;
        if packet.len() > usize::from(u16::MAX) {
            return Err(BadFrame::NotIp);
        }
        let word = |at: usize| usize::from(u16::from_ne_bytes([virtio[at], virtio[at + 1]]));
        let (flags, gso, size) = (virtio[0], virtio[1], word(4));
        let checksum = (flags & NEEDS_CHECKSUM != 0)
            .then(|| Checksum { start: word(6), at: word(6) + word(8) })
            .filter(|checksum| checksum.at + 2 <= packet.len());
        let destination = destination(packet).ok_or(BadFrame::NotIp)?;
        let layout = checksum.and_then(|checksum| Layout::find(packet, checksum));
        let kind = match (gso, layout) {
            (GSO_NONE, Some(layout)) => Kind::Segments(layout),
            (GSO_NONE, None) => Kind::Whole(checksum),
            (gso, Some(layout)) if layout.gso() == gso && size > 0 && layout.payload > 0 => {
                Kind::Segments(Layout { payload: size.min(layout.payload), ..layout })
            }
            _ => return Err(BadFrame::NotSegments),
        };
        Ok(Frame { bytes, begin: VIRTIO_BYTES, destination, kind })
    }

    /// From the IP header on.
    fn packet(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }

    /// Where it goes.
    pub fn destination(&self) -> IpAddr {
        self.destination
    }

    /// How many packets it stands for, at least one.
    pub fn count(&self) -> usize {
        match self.kind {
            Kind::Whole(_) => 1,
            Kind::Segments(layout) => {
                (self.packet().len() - layout.headers).div_ceil(layout.payload.max(1)).max(1)
            }
        }
    }

    /// The packets, in their order.
    pub fn segments(self: &Arc<Self>) -> impl Iterator<Item = Segment> + use<> {
        let frame = Arc::clone(self);
        (0..self.count()).map(move |index| Segment { frame: Arc::clone(&frame), index })
    }
}

impl Kind {
    /// What is left to the device.
    fn checksum(&self) -> Option<Checksum> {
        match self {
            Kind::Whole(checksum) => *checksum,
            Kind::Segments(layout) => Some(layout.checksum()),
        }
    }
}

impl Layout {
    /// Finds the headers of a packet whose checksum is left to the device. None for what is not to be
    /// taken apart or joined: other protocols and fragments.
    fn find(packet: &[u8], checksum: Checksum) -> Option<Layout> {
        let v6 = packet[0] >> 4 == 6;
        let protocol = if v6 {
            // With headers of extension in between it is passed on as it is.
            (checksum.start == IPV6_HEADER_BYTES).then_some(packet[6])?
        } else {
            let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff;
            let header = usize::from(packet[0] & 0xf) * 4;
            (fragment == 0 && header >= 20 && checksum.start == header).then_some(packet[9])?
        };
        let transport_at = checksum.start;
        let (transport, bytes, field) = match protocol {
            TCP => {
                let words = packet.get(transport_at + 12)? >> 4;
                (Transport::Tcp, usize::from(words) * 4, TCP_CHECKSUM)
            }
            UDP => (Transport::Udp, UDP_HEADER_BYTES, UDP_CHECKSUM),
            _ => return None,
        };
        let headers = transport_at + bytes;
        let least = if transport == Transport::Tcp { 20 } else { UDP_HEADER_BYTES };
        let fits = bytes >= least && headers <= packet.len() && checksum.at == transport_at + field;
        let payload = packet.len().checked_sub(headers)?;
        fits.then_some(Layout { transport, v6, transport_at, headers, payload })
    }

    /// The kind of super-packet that this is.
    fn gso(&self) -> u8 {
        match (self.transport, self.v6) {
            (Transport::Tcp, false) => GSO_TCP4,
            (Transport::Tcp, true) => GSO_TCP6,
            (Transport::Udp, _) => GSO_UDP,
        }
    }
}

impl Segment {
    /// Size as a packet: headers of IP and what follows.
    pub fn wire_len(&self) -> usize {
        match self.frame.kind {
            Kind::Whole(_) => self.frame.packet().len(),
            Kind::Segments(layout) => layout.headers + self.payload(&layout).len(),
        }
    }

    /// The packet by itself, complete with its checksum.
    pub fn to_packet(&self) -> Vec<u8> {
        let (mut packet, begin, kind) = self.alone();
        packet.drain(..begin);
        if let Some(checksum) = kind.checksum() {
            complete(&mut packet, checksum);
        }
        packet
    }

    /// What a frame of this segment alone is: its bytes, where the packet begins in them, and of which kind.
    fn alone(&self) -> (Vec<u8>, usize, Kind) {
        match self.frame.kind {
            Kind::Whole(checksum) => (self.frame.packet().to_vec(), 0, Kind::Whole(checksum)),
            Kind::Segments(layout) => {
                let mut bytes = Vec::new();
                self.write_head(&layout, None, &mut bytes);
                let payload = self.payload(&layout);
                let own = Layout { payload: payload.len(), ..layout };
                bytes.extend_from_slice(&self.frame.packet()[payload]);
                (bytes, VIRTIO_BYTES, Kind::Segments(own))
            }
        }
    }

    /// Makes it the one segment of a frame of its own, as [`alone`](Self::alone) gives one.
    fn become_frame(&mut self, bytes: Vec<u8>, begin: usize, kind: Kind) {
        let destination = self.frame.destination;
        self.frame = Arc::new(Frame { bytes: bytes.into(), begin, destination, kind });
        self.index = 0;
    }

    /// Makes it a packet of its own with one bit inverted, whose checksum no longer holds.
    pub(super) fn flip_bit(&mut self, bit: usize) {
        let mut packet = self.to_packet();
        packet[bit / 8] ^= 1 << (bit % 8);
        self.become_frame(packet, 0, Kind::Whole(None));
    }

    /// What its IP header says of congestion notification.
    pub(super) fn ecn(&self) -> Ecn {
        let packet = self.frame.packet();
        let bits = if packet[0] >> 4 == 6 { packet[1] >> 4 } else { packet[1] };
        match bits & CE {
            0 => Ecn::NotCapable,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Marked,
        }
    }

    /// Makes it a frame of its own that says that it has experienced congestion.
    pub(super) fn mark(&mut self) {
        let (mut bytes, begin, kind) = self.alone();
        let packet = &mut bytes[begin..];
        if packet[0] >> 4 == 6 {
            packet[1] |= CE << 4;
        } else {
            packet[1] |= CE;
            let header = (usize::from(packet[0] & 0xf) * 4).min(packet.len());
            put_ipv4_checksum(&mut packet[..header]);
        }
        self.become_frame(bytes, begin, kind);
    }

    /// A number that the packets of its connection have in this direction, and others as a rule not; 0 for all
    /// that are not of TCP or UDP, or have their checksums already.
    pub(super) fn flow_number(&self) -> u64 {
        let Some(Flow { transport, addresses, ports }) = self.flow() else { return 0 };
        // FNV-1a: Fowler, Noll, Vo, draft-eastlake-fnv.
        let protocol = if transport == Transport::Tcp { TCP } else { UDP };
        let bytes = addresses.iter().chain(ports).chain([&protocol]);
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        })
    }

    /// Where in the frame its payload lies.
    fn payload(&self, layout: &Layout) -> Range<usize> {
        let begin = layout.headers + self.index * layout.payload;
        begin..(begin + layout.payload).min(self.frame.packet().len())
    }

    /// Writes the virtio header and the headers for a frame that begins with this segment: for it alone, or
    /// as a super-packet of what is joined to it.
    fn write_head(&self, layout: &Layout, joined: Option<&Joined>, out: &mut Vec<u8>) {
        let own = self.payload(layout).len();
        let payload = joined.map_or(own, |joined| joined.bytes);
        let last = joined.map_or(self, |joined| &joined.last);
        out.clear();
        let many = joined.is_some_and(|joined| joined.count > 1);
        let (gso, size) = if many { (layout.gso(), own) } else { (GSO_NONE, 0) };
        let checksum = layout.checksum();
        out.extend_from_slice(&[NEEDS_CHECKSUM, gso]);
        for word in [layout.headers, size, checksum.start, checksum.at - checksum.start] {
            // All within a packet's 64 KiB.
            out.extend_from_slice(&(word as u16).to_ne_bytes());
        }
        out.extend_from_slice(&self.frame.packet()[..layout.headers]);
        let head = &mut out[VIRTIO_BYTES..];
        let length = (layout.headers + payload) as u16;
        if layout.v6 {
            head[4..6].copy_from_slice(&(length - IPV6_HEADER_BYTES as u16).to_be_bytes());
        } else {
            head[2..4].copy_from_slice(&length.to_be_bytes());
            // As the kernel counts where it takes a super-packet apart itself.
            let id = u16::from_be_bytes([head[4], head[5]]).wrapping_add(self.index as u16);
            head[4..6].copy_from_slice(&id.to_be_bytes());
            put_ipv4_checksum(&mut head[..layout.transport_at]);
        }
        let (ip, transport) = head.split_at_mut(layout.transport_at);
        match layout.transport {
            Transport::Tcp => {
                transport[4..8].copy_from_slice(&self.sequence(layout).to_be_bytes());
                let flags = &mut transport[TCP_FLAGS];
                *flags &= !(FIN | PSH);
                *flags |= last.closing_flags();
                if self.index > 0 {
                    *flags &= !CWR;
                }
            }
            Transport::Udp => {
                let length = (UDP_HEADER_BYTES + payload) as u16;
                transport[4..6].copy_from_slice(&length.to_be_bytes());
            }
        }
        // What the kernel leaves to devices: the sum of the pseudo-header, not complemented.
        let addresses = if layout.v6 { &ip[8..40] } else { &ip[12..20] };
        let protocol = if layout.transport == Transport::Tcp { TCP } else { UDP };
        let length = u32::from(length) - layout.transport_at as u32;
        let pseudo = fold(sum(u32::from(protocol) + length, addresses));
        let at = checksum.at - checksum.start;
        transport[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
    }

    /// Its number in TCP's sequence.
    fn sequence(&self, layout: &Layout) -> u32 {
        let at = layout.transport_at + 4;
        let field = &self.frame.packet()[at..at + 4];
        let first = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
        first.wrapping_add((self.index * layout.payload) as u32)
    }

    /// Those of TCP's flags that belong to the last segment of a frame, if this is it.
    fn closing_flags(&self) -> u8 {
        let Kind::Segments(layout) = self.frame.kind else { return 0 };
        let last = self.payload(&layout).end == self.frame.packet().len();
        let flags = self.frame.packet().get(layout.transport_at + TCP_FLAGS);
        flags
            .filter(|_| last && layout.transport == Transport::Tcp)
            .map_or(0, |flags| flags & (FIN | PSH))
    }

    /// Of which flow it is: the addresses and the ports. None if it may not travel with others.
    fn flow(&self) -> Option<Flow<'_>> {
        let Kind::Segments(layout) = self.frame.kind else { return None };
        let bytes = self.frame.packet();
        let addresses = if layout.v6 { &bytes[8..40] } else { &bytes[12..20] };
        let ports = &bytes[layout.transport_at..layout.transport_at + 4];
        Some(Flow { transport: layout.transport, addresses, ports })
    }
}

/// What the segments of a connection in one direction have in common.
#[derive(PartialEq, Eq)]
struct Flow<'a> {
    transport: Transport,
    addresses: &'a [u8],
    ports: &'a [u8],
}

impl Layout {
    fn checksum(&self) -> Checksum {
        let field = if self.transport == Transport::Tcp { TCP_CHECKSUM } else { UDP_CHECKSUM };
        Checksum { start: self.transport_at, at: self.transport_at + field }
    }
}

/// Segments of one flow that leave in one write, as a network card's receive coalescing would join them.
#[derive(Debug)]
pub struct Joined {
    first: Segment,
    last: Segment,
    /// Payload in the order in which it leaves; neighbours in a frame are one piece.
    pieces: Vec<(Arc<Frame>, Range<usize>)>,
    /// Payload of all.
    bytes: usize,
    count: usize,
    /// Nothing can follow.
    closed: bool,
}

impl Joined {
    /// Datagrams in one super-packet (UDP_MAX_SEGMENTS was 64 first).
    const MOST_DATAGRAMS: usize = 64;

    /// Begins with a segment, alone so far.
    pub fn new(first: Segment) -> Joined {
        let frame = &first.frame;
        let piece = match frame.kind {
            Kind::Whole(_) => 0..frame.packet().len(),
            Kind::Segments(layout) => first.payload(&layout),
        };
        Joined {
            bytes: piece.len(),
            closed: !first.may_be_followed(),
            pieces: vec![(Arc::clone(frame), piece)],
            last: first.clone(),
            first,
            count: 1,
        }
    }

    /// How many packets these are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the packets that these are, each with its headers.
    pub fn wire_bytes(&self) -> usize {
        match self.first.frame.kind {
            Kind::Whole(_) => self.bytes,
            Kind::Segments(layout) => self.bytes + self.count * layout.headers,
        }
    }

    /// Whether `segment` is of the same flow.
    pub fn is_of(&self, segment: &Segment) -> bool {
        let one_frame = Arc::ptr_eq(&self.last.frame, &segment.frame);
        self.first.flow().is_some_and(|flow| one_frame || segment.flow() == Some(flow))
    }

    /// Whether it belongs to some flow: its place among other packets is then its flow's.
    pub fn has_flow(&self) -> bool {
        self.first.flow().is_some()
    }

    /// Adds a segment of the same flow, if one super-packet can stand for all: they are of one size (the
    /// last may be smaller), follow each other, and their headers say the same.
    ///
    /// # Errors
    /// The segment, if it cannot.
    pub fn join(&mut self, segment: Segment) -> Result<(), Segment> {
        if !self.takes(&segment) {
            return Err(segment);
        }
        let Kind::Segments(layout) = segment.frame.kind else { return Err(segment) };
        let piece = segment.payload(&layout);
        self.bytes += piece.len();
        self.count += 1;
        let full = match self.first.frame.kind {
            Kind::Segments(first) => piece.len() == self.first.payload(&first).len(),
            Kind::Whole(_) => false,
        };
        self.closed = !full || !segment.may_be_followed();
        match self.pieces.last_mut() {
            Some((frame, last))
                if Arc::ptr_eq(frame, &segment.frame) && last.end == piece.start =>
            {
                last.end = piece.end;
            }
            _ => self.pieces.push((Arc::clone(&segment.frame), piece)),
        }
        self.last = segment;
        Ok(())
    }

    fn takes(&self, segment: &Segment) -> bool {
        let (Kind::Segments(first), Kind::Segments(layout)) =
            (self.first.frame.kind, segment.frame.kind)
        else {
            return false;
        };
        let own = segment.payload(&layout).len();
        let room = usize::from(u16::MAX) - first.headers;
        if self.closed || own == 0 || self.bytes + own > room || !self.is_of(segment) {
            return false;
        }
        if own > self.first.payload(&first).len() {
            return false;
        }
        match layout.transport {
            Transport::Udp => {
                self.count < Self::MOST_DATAGRAMS && self.same_headers(segment, &layout)
            }
            Transport::Tcp => {
                let Kind::Segments(before) = self.last.frame.kind else { return false };
                let payload = self.last.payload(&before).len() as u32;
                let next = self.last.sequence(&before).wrapping_add(payload);
                segment.sequence(&layout) == next && self.same_headers(segment, &layout)
            }
        }
    }

    /// Whether all fields agree that do not differ from segment to segment.
    fn same_headers(&self, segment: &Segment, layout: &Layout) -> bool {
        let frame = &segment.frame;
        if Arc::ptr_eq(&self.last.frame, frame) {
            return true;
        }
        let (one, other) = (self.first.frame.packet(), frame.packet());
        let Kind::Segments(first) = self.first.frame.kind else { return false };
        if (first.headers, first.transport_at) != (layout.headers, layout.transport_at) {
            return false;
        }
        let same = |range: Range<usize>| one[range.clone()] == other[range];
        let at = layout.transport_at;
        // Not the lengths, IPv4's identification and its checksum.
        let ip = if layout.v6 {
            same(0..4) && same(6..at)
        } else {
            same(0..2) && same(6..10) && same(12..at)
        };
        ip && match layout.transport {
            Transport::Udp => same(at..at + 4),
            Transport::Tcp => {
                let flags = |bytes: &[u8]| bytes[at + TCP_FLAGS] & !(FIN | PSH);
                // Ports, acknowledgement, length, flags, window, urgent pointer, options.
                same(at..at + 4)
                    && same(at + 8..at + TCP_FLAGS)
                    && flags(one) == flags(other)
                    && same(at + TCP_FLAGS + 1..at + TCP_CHECKSUM)
                    && same(at + TCP_CHECKSUM + 2..layout.headers)
            }
        }
    }

    /// Writes what precedes the payload into `head`, the virtio header first, and hands it over with the
    /// payload's pieces.
    pub fn write<'a>(
        &'a self,
        head: &'a mut Vec<u8>,
    ) -> (&'a [u8], impl Iterator<Item = &'a [u8]>) {
        match self.first.frame.kind {
            Kind::Whole(checksum) => {
                head.clear();
                head.resize(VIRTIO_BYTES, 0);
                if let Some(checksum) = checksum {
                    head[0] = NEEDS_CHECKSUM;
                    head[6..8].copy_from_slice(&(checksum.start as u16).to_ne_bytes());
                    let offset = (checksum.at - checksum.start) as u16;
                    head[8..10].copy_from_slice(&offset.to_ne_bytes());
                }
            }
            Kind::Segments(layout) => self.first.write_head(&layout, Some(self), head),
        }
        (head, self.pieces.iter().map(|(frame, range)| &frame.packet()[range.clone()]))
    }

    /// The packets again, one by one.
    pub fn apart(&self) -> impl Iterator<Item = Segment> + '_ {
        let of_frame = |(frame, range): &(Arc<Frame>, Range<usize>)| {
            let (frame, range) = (Arc::clone(frame), range.clone());
            let segments = frame.segments().collect::<Vec<_>>();
            segments.into_iter().filter(move |segment| match segment.frame.kind {
                Kind::Whole(_) => true,
                Kind::Segments(layout) => {
                    let payload = segment.payload(&layout);
                    range.start <= payload.start && payload.end <= range.end
                }
            })
        };
        self.pieces.iter().flat_map(of_frame)
    }
}

impl Segment {
    /// Whether others of its flow may be joined to it: it carries something, and no flag that a stack acts
    /// upon at once.
    fn may_be_followed(&self) -> bool {
        let Kind::Segments(layout) = self.frame.kind else { return false };
        if self.payload(&layout).is_empty() {
            return false;
        }
        match layout.transport {
            Transport::Udp => true,
            Transport::Tcp => {
                let flags = self.frame.packet()[layout.transport_at + TCP_FLAGS];
                flags & !(FIN | PSH) == ACK && self.closing_flags() == 0
            }
        }
    }
}

/// Where an IP packet goes; none if it is none.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let bytes: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            Some(Ipv4Addr::from(bytes).into())
        }
        6 => {
            let bytes: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// Completes a checksum whose field has the sum of the pseudo-header so far (RFC 1071).
fn complete(packet: &mut [u8], checksum: Checksum) {
    let sum = !fold(sum(0, packet.get(checksum.start..).unwrap_or_default()));
    // Over UDP a sum of zero means that there is none (RFC 768); TCP takes either.
    let sum = if sum == 0 { u16::MAX } else { sum };
    if let Some(field) = packet.get_mut(checksum.at..checksum.at + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

/// Adds `bytes` to a sum of 16-bit words.
fn sum(start: u32, bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |&byte| u32::from(byte) << 8);
    // At most 32,768 words of 16 bits each: no overflow.
    words.fold(start + odd, |sum, word| sum + u32::from(u16::from_be_bytes([word[0], word[1]])))
}

/// Sets the checksum of an IPv4 header.
fn put_ipv4_checksum(header: &mut [u8]) {
    header[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].fill(0);
    let checksum = !fold(sum(0, header));
    header[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// A sum of 16-bit words in one's complement.
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests;
