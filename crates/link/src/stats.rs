//! What a link counts.

use core::time::Duration;

use crate::fate::Cause;

/// Counters of a link since it was made. Packets unless the name says bytes; bytes are those of
/// [`wire_len`](crate::Packet::wire_len).
///
/// At any time `offered + duplicated = passed + dropped() + queue.packets + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Given to the link.
    pub offered: u64,
    /// Bytes given to the link.
    pub offered_bytes: u64,
    /// Sent over the wire, the ones it then lost included. Times 8, over rate and time, this is
    /// the link's utilisation.
    pub transmitted_bytes: u64,
    /// Handed out at the far end, copies included.
    pub passed: u64,
    /// Bytes handed out at the far end.
    pub passed_bytes: u64,
    /// Dropped by the policer.
    pub dropped_policer: u64,
    /// Dropped because the queue was full.
    pub dropped_queue: u64,
    /// Dropped by the queue though there was room: by RED and PIE as they came, by CoDel and those made of
    /// it as they left.
    pub dropped_early: u64,
    /// Marked by the queue instead of being dropped (ECN).
    pub marked: u64,
    /// Lost by the loss model.
    pub dropped_loss: u64,
    /// Lost in a blackout.
    pub dropped_blackout: u64,
    /// Copies that the wire made.
    pub duplicated: u64,
    /// Delivered with a bit inverted.
    pub corrupted: u64,
    /// Put out of order: chosen for that by [`Reorder`](crate::Reorder), or handed out after one of
    /// the others that was sent later (RFC 4737 §3), as [`Jitter`](crate::Jitter) may bring about.
    pub reordered: u64,
    /// On the wire: transmitted and not yet handed out.
    pub in_flight: u64,
    /// Bytes on the wire.
    pub in_flight_bytes: u64,
    /// What the link holds in front of the wire.
    pub queue: QueueDepth,
}

/// Fill of a queue, the packet in transmission included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Packets now.
    pub packets: u64,
    /// Bytes now.
    pub bytes: u64,
    /// The most packets that there were.
    pub packets_max: u64,
    /// The most bytes that there were.
    pub bytes_max: u64,
    /// The sum of all packets' times in the queue so far, in nanoseconds.
    pub packet_nanos: u128,
}

impl LinkStats {
    pub(crate) fn count(&mut self, cause: Cause) {
        *match cause {
            Cause::Policed => &mut self.dropped_policer,
            Cause::Full => &mut self.dropped_queue,
            Cause::Early => &mut self.dropped_early,
            Cause::Loss => &mut self.dropped_loss,
            Cause::Blackout => &mut self.dropped_blackout,
        } += 1;
    }

    /// Mean time of a packet in the queue, its own transmission included.
    pub fn mean_wait(&self) -> Duration {
        // Between two instants more packets may be dropped early than came.
        let dropped = self.dropped_policer + self.dropped_queue + self.dropped_early;
        let taken = self.offered.saturating_sub(dropped);
        let nanos = self.queue.packet_nanos.checked_div(u128::from(taken)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// What has been counted since `earlier`, a former state of the same link. What it holds is that of now, and the
    /// most that there was in its queue is that of all time.
    pub fn since(&self, earlier: &LinkStats) -> LinkStats {
        // Each field by name, so that a new one cannot be forgotten.
        let LinkStats {
            offered,
            offered_bytes,
            transmitted_bytes,
            passed,
            passed_bytes,
            dropped_policer,
            dropped_queue,
            dropped_early,
            marked,
            dropped_loss,
            dropped_blackout,
            duplicated,
            corrupted,
            reordered,
            in_flight,
            in_flight_bytes,
            queue,
        } = *self;
        LinkStats {
            offered: offered.saturating_sub(earlier.offered),
            offered_bytes: offered_bytes.saturating_sub(earlier.offered_bytes),
            transmitted_bytes: transmitted_bytes.saturating_sub(earlier.transmitted_bytes),
            passed: passed.saturating_sub(earlier.passed),
            passed_bytes: passed_bytes.saturating_sub(earlier.passed_bytes),
            dropped_policer: dropped_policer.saturating_sub(earlier.dropped_policer),
            dropped_queue: dropped_queue.saturating_sub(earlier.dropped_queue),
            dropped_early: dropped_early.saturating_sub(earlier.dropped_early),
            marked: marked.saturating_sub(earlier.marked),
            dropped_loss: dropped_loss.saturating_sub(earlier.dropped_loss),
            dropped_blackout: dropped_blackout.saturating_sub(earlier.dropped_blackout),
            duplicated: duplicated.saturating_sub(earlier.duplicated),
            corrupted: corrupted.saturating_sub(earlier.corrupted),
            reordered: reordered.saturating_sub(earlier.reordered),
            in_flight,
            in_flight_bytes,
            queue: QueueDepth {
                packet_nanos: queue.packet_nanos.saturating_sub(earlier.queue.packet_nanos),
                ..queue
            },
        }
    }

    /// Packets dropped for any cause.
    pub fn dropped(&self) -> u64 {
        self.dropped_policer
            + self.dropped_queue
            + self.dropped_early
            + self.dropped_loss
            + self.dropped_blackout
    }
}

impl QueueDepth {
    /// Mean number of packets over `span`, which began with an empty queue and ends now.
    pub fn mean_packets(&self, span: Duration) -> f64 {
        let nanos = span.as_nanos();
        if nanos == 0 { self.packets as f64 } else { self.packet_nanos as f64 / nanos as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_its_own_drops_and_marks() {
        let earlier = LinkStats { dropped_policer: 3, marked: 5, ..LinkStats::default() };
        let now = LinkStats { dropped_policer: 4, marked: 7, in_flight: 2, ..earlier };
        let expected =
            LinkStats { dropped_policer: 1, marked: 2, in_flight: 2, ..LinkStats::default() };
        assert_eq!(now.since(&earlier), expected);
    }
}
