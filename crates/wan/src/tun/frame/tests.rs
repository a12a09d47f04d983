use super::*;

const PSH_ACK: u8 = PSH | ACK;

/// A frame as the kernel would hand it over: `payload` bytes in segments of `size`, or one packet if `size` is 0.
struct Sample {
    v6: bool,
    transport: Transport,
    flags: u8,
    sequence: u32,
    payload: usize,
    size: usize,
}

impl Sample {
    const TCP: Sample = Sample {
        v6: false,
        transport: Transport::Tcp,
        flags: PSH_ACK,
        sequence: u32::MAX - 1_000,
        payload: 3_500,
        size: 1_000,
    };

    fn bytes(&self) -> Vec<u8> {
        let tcp = self.transport == Transport::Tcp;
        let (ip, header) = (if self.v6 { 40 } else { 20 }, if tcp { 32 } else { 8 });
        let total = ip + header + self.payload;
        let mut packet = vec![0u8; total];
        if self.v6 {
            packet[0] = 0x60;
            packet[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
            packet[6] = if tcp { TCP } else { UDP };
            packet[7] = 64;
            packet[8..24].copy_from_slice(&"fd77::1".parse::<Ipv6Addr>().unwrap().octets());
            packet[24..40].copy_from_slice(&"fd77::2".parse::<Ipv6Addr>().unwrap().octets());
        } else {
            packet[0] = 0x45;
            packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            packet[4..6].copy_from_slice(&[0xff, 0xff]);
            packet[6] = 0x40;
            packet[8..10].copy_from_slice(&[64, if tcp { TCP } else { UDP }]);
            packet[12..20].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        }
        packet[ip..ip + 4].copy_from_slice(&[0x12, 0x34, 0x56, 0x78]);
        if tcp {
            packet[ip + 4..ip + 8].copy_from_slice(&self.sequence.to_be_bytes());
            packet[ip + 12] = 8 << 4;
            packet[ip + TCP_FLAGS] = self.flags;
        }
        for (index, byte) in packet[ip + header..].iter_mut().enumerate() {
            *byte = (index % 251) as u8;
        }
        let gso = match (self.size, self.transport, self.v6) {
            (0, ..) => GSO_NONE,
            (_, Transport::Udp, _) => GSO_UDP,
            (_, Transport::Tcp, false) => GSO_TCP4,
            (_, Transport::Tcp, true) => GSO_TCP6,
        };
        let field = if tcp { TCP_CHECKSUM } else { UDP_CHECKSUM };
        let mut frame = vec![NEEDS_CHECKSUM, gso];
        for word in [ip + header, self.size, ip, field] {
            frame.extend((word as u16).to_ne_bytes());
        }
        frame.extend(packet);
        frame
    }

    fn frame(&self) -> Arc<Frame> {
        Arc::new(Frame::parse(&self.bytes()).unwrap())
    }
}

/// What a joined frame is on the device: virtio header and packet.
fn written(joined: &Joined) -> Vec<u8> {
    let mut head = Vec::new();
    let (head, pieces) = joined.write(&mut head);
    [head, &pieces.collect::<Vec<_>>().concat()].concat()
}

fn joined(segments: impl IntoIterator<Item = Segment>) -> Joined {
    let mut segments = segments.into_iter();
    let mut joined = Joined::new(segments.next().unwrap());
    segments.for_each(|segment| joined.join(segment).unwrap());
    joined
}

/// Whether a packet's checksums hold, by the receiver's rule: with the pseudo-header all sums are zero.
fn checksums_hold(packet: &[u8]) -> bool {
    let (ip, protocol, addresses) = match packet[0] >> 4 {
        4 => (20, packet[9], &packet[12..20]),
        _ => (40, packet[6], &packet[8..40]),
    };
    let transport = &packet[ip..];
    let pseudo = sum(u32::from(protocol) + transport.len() as u32, addresses);
    let header_holds = ip == 40 || fold(sum(0, &packet[..20])) == u16::MAX;
    header_holds && fold(sum(0, transport).wrapping_add(pseudo)) == u16::MAX
}

#[test]
fn a_stream_is_cut_as_a_network_card_would() {
    for v6 in [false, true] {
        let frame = Sample { v6, flags: PSH_ACK | FIN | CWR, ..Sample::TCP }.frame();
        let ip = if v6 { 40 } else { 20 };
        let packets: Vec<Vec<u8>> = frame.segments().map(|segment| segment.to_packet()).collect();
        let sizes: Vec<usize> = packets.iter().map(|packet| packet.len() - ip - 32).collect();
        assert_eq!(sizes, [1_000, 1_000, 1_000, 500]);
        for (index, packet) in packets.iter().enumerate() {
            assert!(checksums_hold(packet), "{v6} {index}");
            let sequence = u32::from_be_bytes(packet[ip + 4..ip + 8].try_into().unwrap());
            assert_eq!(sequence, (u32::MAX - 1_000).wrapping_add(1_000 * index as u32));
            let flags = match index {
                0 => ACK | CWR,
                3 => PSH_ACK | FIN,
                _ => ACK,
            };
            assert_eq!(packet[ip + TCP_FLAGS], flags, "{index}");
            assert_eq!(packet[ip + 32], (1_000 * index % 251) as u8);
            if !v6 {
                let id = u16::from_be_bytes([packet[4], packet[5]]);
                assert_eq!(id, u16::MAX.wrapping_add(index as u16));
            }
        }
        let wire: Vec<usize> = frame.segments().map(|segment| segment.wire_len()).collect();
        assert_eq!(wire, packets.iter().map(Vec::len).collect::<Vec<_>>());
        assert_eq!(frame.count(), 4);
    }
}

#[test]
fn datagrams_are_cut_too() {
    for v6 in [false, true] {
        let sample = Sample { v6, transport: Transport::Udp, ..Sample::TCP };
        let ip = if v6 { 40 } else { 20 };
        let packets: Vec<Vec<u8>> =
            sample.frame().segments().map(|segment| segment.to_packet()).collect();
        assert_eq!(packets.len(), 4);
        for packet in &packets {
            assert!(checksums_hold(packet));
            let length = u16::from_be_bytes([packet[ip + 4], packet[ip + 5]]);
            assert_eq!(usize::from(length), packet.len() - ip);
        }
    }
}

/// What was cut and joined again is what it was, but for the sums that the kernel does not look at.
#[test]
fn what_stays_together_leaves_as_it_came() {
    for transport in [Transport::Tcp, Transport::Udp] {
        for v6 in [false, true] {
            let sample = Sample { transport, v6, ..Sample::TCP };
            let frame = sample.frame();
            let whole = joined(frame.segments());
            assert_eq!(whole.count(), 4);
            let (came, left) = (sample.bytes(), written(&whole));
            assert_eq!(left.len(), came.len());
            assert_eq!(left[..VIRTIO_BYTES], came[..VIRTIO_BYTES]);
            let packets = |bytes: &[u8]| -> Vec<Vec<u8>> {
                let frame = Arc::new(Frame::parse(bytes).unwrap());
                frame.segments().map(|segment| segment.to_packet()).collect()
            };
            assert_eq!(packets(&left), packets(&came));
            let wire = packets(&came).iter().map(Vec::len).sum::<usize>();
            assert_eq!(whole.wire_bytes(), wire);
            let apart: Vec<Vec<u8>> = whole.apart().map(|segment| segment.to_packet()).collect();
            assert_eq!(apart, packets(&came));
        }
    }
}

#[test]
fn a_hole_ends_a_super_packet() {
    let segments: Vec<Segment> = Sample::TCP.frame().segments().collect();
    let mut first = Joined::new(segments[0].clone());
    first.join(segments[1].clone()).unwrap();
    // The third is lost.
    assert!(first.is_of(&segments[3]));
    assert!(first.join(segments[3].clone()).is_err());
    assert_eq!(first.count(), 2);
    let left = written(&first);
    assert_eq!(left[1], GSO_TCP4);
    assert_eq!(left.len(), VIRTIO_BYTES + 52 + 2_000);
    // Not the last of its frame: no push.
    assert_eq!(left[VIRTIO_BYTES + 20 + TCP_FLAGS], ACK);
}

#[test]
fn one_alone_is_a_packet() {
    let segments: Vec<Segment> = Sample::TCP.frame().segments().collect();
    let left = written(&Joined::new(segments[3].clone()));
    assert_eq!((left[1], left.len()), (GSO_NONE, VIRTIO_BYTES + 52 + 500));
    assert_eq!(left[VIRTIO_BYTES + 20 + TCP_FLAGS], PSH_ACK);
}

#[test]
fn frames_that_continue_each_other_are_joined() {
    let first = Sample { payload: 2_000, flags: ACK, ..Sample::TCP };
    let next = Sample { sequence: first.sequence.wrapping_add(2_000), ..Sample::TCP };
    let together = joined(first.frame().segments().chain(next.frame().segments()));
    assert_eq!((together.count(), written(&together).len()), (6, VIRTIO_BYTES + 52 + 5_500));
    // After a push nothing follows, nor out of sequence, nor with another acknowledgement.
    let pushed = Sample { flags: PSH_ACK, ..first };
    let mut pushed = joined(pushed.frame().segments());
    assert!(pushed.join(next.frame().segments().next().unwrap()).is_err());
    let mut first = joined(first.frame().segments());
    let later = Sample { sequence: next.sequence.wrapping_add(1), ..next };
    assert!(first.join(later.frame().segments().next().unwrap()).is_err());
    let mut other = next.bytes();
    other[VIRTIO_BYTES + 20 + 11] = 7;
    let other = Arc::new(Frame::parse(&other).unwrap());
    assert!(first.is_of(&other.segments().next().unwrap()));
    assert!(first.join(other.segments().next().unwrap()).is_err());
}

#[test]
fn datagrams_that_were_sent_alone_are_joined_by_size() {
    let one = Sample { transport: Transport::Udp, size: 0, payload: 800, ..Sample::TCP };
    let frame = |sample: &Sample| sample.frame().segments().next().unwrap();
    let mut together = joined([frame(&one), frame(&one)]);
    assert!(together.join(frame(&Sample { payload: 801, ..one })).is_err());
    together.join(frame(&Sample { payload: 5, ..one })).unwrap();
    assert!(together.join(frame(&one)).is_err(), "behind a smaller one");
    let left = written(&together);
    assert_eq!(left[1], GSO_UDP);
    assert_eq!(u16::from_ne_bytes([left[4], left[5]]), 800);
    assert_eq!(left.len(), VIRTIO_BYTES + 28 + 1_605);
}

#[test]
fn a_super_packet_has_a_size_that_fits() {
    let one = Sample { transport: Transport::Udp, size: 0, payload: 100, ..Sample::TCP };
    let mut many = Joined::new(one.frame().segments().next().unwrap());
    let mut datagrams = std::iter::repeat_with(|| one.frame().segments().next().unwrap());
    while many.join(datagrams.next().unwrap()).is_ok() {}
    assert_eq!(many.count(), 64);
    let stream = |number: u32| {
        let sequence = number * 40_000;
        let sample = Sample { payload: 40_000, size: 1_000, flags: ACK, sequence, ..Sample::TCP };
        sample.frame()
    };
    let mut many = joined(stream(0).segments());
    let taken = stream(1).segments().take_while(|segment| many.join(segment.clone()).is_ok());
    assert_eq!(taken.count(), 25);
}

#[test]
fn bare_acknowledgements_and_other_packets_stay_alone() {
    let bare = Sample { payload: 0, size: 0, flags: ACK, ..Sample::TCP };
    let mut joined = Joined::new(bare.frame().segments().next().unwrap());
    assert!(joined.has_flow());
    assert!(joined.join(bare.frame().segments().next().unwrap()).is_err());
    assert_eq!(written(&joined)[1], GSO_NONE);
    let mut fragment = Sample { size: 0, ..Sample::TCP }.bytes();
    fragment[VIRTIO_BYTES + 6] = 0x20;
    let fragment = Arc::new(Frame::parse(&fragment).unwrap());
    assert!(!Joined::new(fragment.segments().next().unwrap()).has_flow());
}

#[test]
fn a_packet_whose_checksum_is_complete_passes_unchanged() {
    let mut bytes = Sample { size: 0, ..Sample::TCP }.bytes();
    bytes[0] = 0;
    let frame = Arc::new(Frame::parse(&bytes).unwrap());
    let one = Joined::new(frame.segments().next().unwrap());
    let left = written(&one);
    assert_eq!(left[..VIRTIO_BYTES], [0; VIRTIO_BYTES]);
    assert_eq!(left[VIRTIO_BYTES..], bytes[VIRTIO_BYTES..]);
    assert_eq!(one.apart().count(), 1);
}

#[test]
fn a_damaged_segment_has_a_sum_that_does_not_hold() {
    let frame = Sample::TCP.frame();
    for (index, segment) in frame.segments().enumerate() {
        let mut damaged = segment.clone();
        damaged.flip_bit(20 * 8 + 300);
        let packet = damaged.to_packet();
        assert_eq!(packet.len(), segment.wire_len());
        assert!(!checksums_hold(&packet), "{index}");
        assert_eq!(written(&Joined::new(damaged))[..VIRTIO_BYTES], [0; VIRTIO_BYTES]);
    }
}

#[test]
fn what_is_no_frame_is_refused() {
    let good = Sample::TCP.bytes();
    for length in 0..VIRTIO_BYTES + 20 {
        assert_eq!(Frame::parse(&good[..length]).unwrap_err(), BadFrame::NotIp, "{length}");
    }
    let broken = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Frame::parse(&bytes).unwrap_err()
    };
    assert_eq!(broken(&|bytes| bytes[VIRTIO_BYTES] = 0x35), BadFrame::NotIp);
    assert_eq!(broken(&|bytes| bytes.resize(VIRTIO_BYTES + 70_000, 0)), BadFrame::NotIp);
    // No size, another protocol, a checksum elsewhere or none at all, more header than packet.
    type Change = dyn Fn(&mut Vec<u8>);
    let changes: [&Change; 6] = [
        &|bytes| bytes[4..6].fill(0),
        &|bytes| bytes[1] = GSO_UDP,
        &|bytes| bytes[8..10].copy_from_slice(&6u16.to_ne_bytes()),
        &|bytes| bytes[0] = 0,
        &|bytes| bytes[VIRTIO_BYTES + 32] = 4 << 4,
        &|bytes| bytes.truncate(VIRTIO_BYTES + 50),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        assert_eq!(broken(change), BadFrame::NotSegments, "{index}");
    }
}

#[test]
fn a_marked_segment_is_that_segment_with_both_bits_set() {
    for v6 in [false, true] {
        let mut bytes = Sample { v6, ..Sample::TCP }.bytes();
        // ECT(0).
        bytes[VIRTIO_BYTES + 1] |= if v6 { 0x20 } else { 0x02 };
        let frame = Arc::new(Frame::parse(&bytes).unwrap());
        for segment in frame.segments() {
            assert_eq!(segment.ecn(), Ecn::Ect0);
            let (plain, mut marked) = (segment.to_packet(), segment.clone());
            marked.mark();
            assert_eq!((marked.ecn(), marked.wire_len()), (Ecn::Marked, plain.len()));
            let packet = marked.to_packet();
            let mut expected = plain;
            expected[1] |= if v6 { 0x30 } else { 0x03 };
            if !v6 {
                // A header with its checksum sums up to all ones.
                assert_eq!(fold(sum(0, &packet[..20])), 0xffff);
                expected[10..12].copy_from_slice(&packet[10..12]);
            }
            assert_eq!(packet, expected, "v6: {v6}");
            assert_eq!(marked.flow_number(), segment.flow_number());
        }
    }
}

#[test]
fn flows_have_numbers_of_their_own() {
    let number = |sample: &Sample| sample.frame().segments().next().unwrap().flow_number();
    let tcp = number(&Sample::TCP);
    assert_eq!(tcp, number(&Sample { sequence: 7, flags: ACK, ..Sample::TCP }));
    assert_ne!(tcp, number(&Sample { transport: Transport::Udp, ..Sample::TCP }));
    assert_ne!(tcp, number(&Sample { v6: true, ..Sample::TCP }));
}
