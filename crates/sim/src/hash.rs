//! A whole run in one number.

use core::hash::Hasher as _;

use farhaul_link::Cause;
use farhaul_wire::is_control;
use siphasher::sip::SipHasher24;

use crate::observer::{Event, EventKind, Observer};
use crate::packet::Content;
use crate::tcp::{Kind, Segment};

/// Hashes every event: runs with equal hashes were the same to the nanosecond and to the byte of
/// every header, on any machine.
#[derive(Clone, Debug)]
pub struct TraceHash {
    hasher: SipHasher24,
    record: Vec<u8>,
    events: u64,
}

impl Default for TraceHash {
    fn default() -> Self {
        TraceHash { hasher: SipHasher24::new_with_keys(0, 0), record: Vec::new(), events: 0 }
    }
}

impl TraceHash {
    /// The hash of what has happened so far.
    pub fn value(&self) -> u64 {
        self.hasher.finish()
    }

    /// How many events that is.
    pub fn events(&self) -> u64 {
        self.events
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.record.extend_from_slice(&bytes);
    }

    fn put_content(&mut self, content: &Content) {
        match content {
            Content::Udt { header, payload } => {
                self.put([0]);
                self.put(*header);
                self.put((payload.len() as u64).to_le_bytes());
                // Data is the same bytes again and again.
                if is_control(header) {
                    self.record.extend_from_slice(payload);
                }
            }
            Content::Tcp(segment) => {
                self.put([1]);
                self.put_segment(segment);
            }
            // Its number is that of the event that sends it.
            Content::Filler { bytes, .. } => {
                self.put([2]);
                self.put(bytes.to_le_bytes());
            }
            Content::Damaged(bytes) => {
                self.put([3]);
                self.put(bytes.to_le_bytes());
            }
        }
    }

    fn put_segment(&mut self, segment: &Segment) {
        self.put(segment.connection.to_le_bytes());
        self.put([u8::from(segment.damaged)]);
        if segment.ecn.is_capable() || segment.marks > 0 {
            self.put([segment.ecn as u8]);
            self.put(segment.marks.to_le_bytes());
        }
        match &segment.kind {
            Kind::Syn => self.put([0]),
            Kind::SynAck { window } => {
                self.put([1]);
                self.put(window.to_le_bytes());
            }
            Kind::Data { number, len, last } => {
                self.put([2, u8::from(*last)]);
                self.put(number.to_le_bytes());
                self.put(len.to_le_bytes());
            }
            Kind::Ack { next, window, blocks } => {
                self.put([3]);
                self.put(next.to_le_bytes());
                self.put(window.to_le_bytes());
                for block in blocks {
                    self.put(block.gap.to_le_bytes());
                    self.put(block.len.to_le_bytes());
                }
            }
            Kind::Reset => self.put([4]),
        }
    }
}

impl Observer for TraceHash {
    fn event(&mut self, event: &Event<'_>) {
        let kind = match event.kind {
            EventKind::Sent => 0,
            EventKind::Arrived => 1,
            EventKind::Received => 2,
            EventKind::Dropped(Cause::Full) => 3,
            EventKind::Dropped(Cause::Early) => 4,
            EventKind::Dropped(Cause::Loss) => 5,
            EventKind::Dropped(Cause::Blackout) => 6,
            EventKind::Overrun => 7,
            EventKind::Dropped(Cause::Policed) => 8,
        };
        self.record.clear();
        self.put(event.at.as_nanos().to_le_bytes());
        self.put([kind]);
        self.put(event.link.map_or(u32::MAX, |link| link.0).to_le_bytes());
        self.put(event.node.0.to_le_bytes());
        self.put(event.packet.from.0.to_le_bytes());
        self.put(event.packet.to.0.to_le_bytes());
        self.put_content(&event.packet.content);
        self.hasher.write(&self.record);
        self.events += 1;
    }
}
