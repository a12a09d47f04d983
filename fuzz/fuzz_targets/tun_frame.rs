//! What parses as a frame comes apart into packets that are its own, and joined again it parses to the same packets.

#![no_main]

use std::sync::Arc;

use farhaul_wan::tun::{Frame, Joined, Segment};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(frame) = Frame::parse(bytes) else { return };
    let frame = Arc::new(frame);
    let segments: Vec<Segment> = frame.segments().collect();
    assert_eq!(segments.len(), frame.count());
    let packets: Vec<Vec<u8>> = segments.iter().map(Segment::to_packet).collect();
    for (segment, packet) in segments.iter().zip(&packets) {
        assert_eq!(segment.wire_len(), packet.len());
    }

    // In as many writes as it takes, nothing is lost.
    let mut again = Vec::new();
    let mut head = Vec::new();
    let mut rest = segments.into_iter().peekable();
    while let Some(first) = rest.next() {
        let mut joined = Joined::new(first);
        while let Some(next) = rest.peek() {
            if joined.join(next.clone()).is_err() {
                break;
            }
            rest.next();
        }
        let bytes = {
            let (head, pieces) = joined.write(&mut head);
            [head, &pieces.collect::<Vec<_>>().concat()].concat()
        };
        let written = Arc::new(Frame::parse(&bytes).expect("what is written is a frame"));
        assert_eq!(written.count(), joined.count());
        again.extend(written.segments().map(|segment| segment.to_packet().len()));
    }
    assert_eq!(again, packets.iter().map(Vec::len).collect::<Vec<_>>());
});
