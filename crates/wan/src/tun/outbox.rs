//! What leaves through a device: segments that are due together are joined into super-packets.

use std::io::{self, IoSlice};
use std::sync::Arc;

use farhaul_base::Time;

use super::{HostStats, Joined, Segment, TunDevice};
use crate::clock::Clock;

/// Flows whose segments are joined at a time: as many as the kernel's own coalescing keeps in a list.
const FLOWS: usize = 8;

/// Collects what is due now, and writes it.
#[derive(Debug)]
pub(super) struct Outbox {
    device: Arc<TunDevice>,
    open: Vec<Parcel>,
    head: Vec<u8>,
    /// Of parcels that have left.
    spare: Vec<Vec<Time>>,
}

/// Segments that leave together, and when each was due.
#[derive(Debug)]
struct Parcel {
    joined: Joined,
    due: Vec<Time>,
}

impl Outbox {
    pub(super) fn new(device: Arc<TunDevice>) -> Self {
        Outbox { device, open: Vec::new(), head: Vec::new(), spare: Vec::new() }
    }

    /// Takes a segment that was due at `due`. The order within a flow is kept.
    pub(super) fn push(
        &mut self,
        due: Time,
        segment: Segment,
        clock: &Clock,
        stats: &mut HostStats,
    ) {
        let mut segment = segment;
        if let Some(index) = self.open.iter().position(|parcel| parcel.joined.is_of(&segment)) {
            let parcel = &mut self.open[index];
            match parcel.joined.join(segment) {
                Ok(()) => return parcel.due.push(due),
                Err(back) => segment = back,
            }
            let parcel = self.open.remove(index);
            self.write(parcel, clock, stats);
        } else if self.open.len() == FLOWS {
            let oldest = self.open.remove(0);
            self.write(oldest, clock, stats);
        }
        let mut times = self.spare.pop().unwrap_or_default();
        times.push(due);
        let parcel = Parcel { joined: Joined::new(segment), due: times };
        if parcel.joined.has_flow() {
            self.open.push(parcel);
        } else {
            // Nothing tells whose it is: it keeps its place among all.
            self.flush(clock, stats);
            self.write(parcel, clock, stats);
        }
    }

    /// Writes all that is left.
    pub(super) fn flush(&mut self, clock: &Clock, stats: &mut HostStats) {
        for parcel in std::mem::take(&mut self.open) {
            self.write(parcel, clock, stats);
        }
    }

    fn write(&mut self, parcel: Parcel, clock: &Clock, stats: &mut HostStats) {
        let Parcel { joined, mut due } = parcel;
        let now = clock.now();
        due.drain(..).for_each(|due| stats.timing.note(due, now));
        if self.spare.len() < FLOWS {
            self.spare.push(due);
        }
        if self.send(&joined).is_ok() {
            stats.sent += joined.count() as u64;
            stats.sent_bytes += joined.wire_bytes() as u64;
            return;
        }
        // Damaged so that it is no IP packet any more, a passing shortage, or a kernel that does not take
        // this kind of super-packet.
        for segment in joined.apart() {
            let one = Joined::new(segment);
            if joined.count() > 1 && self.send(&one).is_ok() {
                stats.sent += 1;
                stats.sent_bytes += one.wire_bytes() as u64;
            } else {
                stats.dropped_send += 1;
            }
        }
    }

    fn send(&mut self, joined: &Joined) -> io::Result<()> {
        let (head, pieces) = joined.write(&mut self.head);
        let mut slices = Vec::with_capacity(4);
        slices.push(IoSlice::new(head));
        slices.extend(pieces.map(IoSlice::new));
        self.device.send(&slices)
    }
}
