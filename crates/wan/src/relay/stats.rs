//! What a relay counts.

use std::time::Duration;

use farhaul_base::Time;
use farhaul_link::LinkStats;

use super::InjectStats;

/// Counters of a relay since it was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayStats {
    /// From the clients to the target, or from `a` to `b`.
    pub forward: DirectionStats,
    /// Back.
    pub backward: DirectionStats,
    /// Clients now; 1 between fixed peers.
    pub clients: usize,
    /// Datagrams of clients for which there was no place.
    pub refused: u64,
    /// Packets that the relay has forged.
    pub forged: InjectStats,
}

/// One direction. Datagrams unless the name says bytes; bytes are payload here, and IP packets in
/// `link`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// What the emulated path did, and holds.
    pub link: LinkStats,
    /// Read from the sockets.
    pub received: u64,
    /// Bytes read from the sockets.
    pub received_bytes: u64,
    /// Passed on.
    pub sent: u64,
    /// Bytes passed on.
    pub sent_bytes: u64,
    /// Dropped at the relay's memory limit.
    pub dropped_memory: u64,
    /// The client had been forgotten when they arrived at the far end.
    pub dropped_stale: u64,
    /// The system would not send them.
    pub dropped_send: u64,
    /// Lost before the relay could read them, because it came late: the socket's buffer was full.
    /// When this grows the machine is too slow for what is asked of it.
    pub overflowed: u64,
    /// How well departures kept to the link's schedule.
    pub timing: Timing,
}

/// Differences between the times at which datagrams were due and were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// The sum of all differences, early ones negative.
    sum_ns: i64,
    /// The sum of their sizes.
    sum_abs_ns: u64,
    /// The latest of all.
    max_late_ns: u64,
    count: u64,
}

impl Timing {
    /// Mean difference without its sign.
    pub fn mean_error(&self) -> Duration {
        Duration::from_nanos(self.sum_abs_ns.checked_div(self.count).unwrap_or(0))
    }

    /// Mean difference in microseconds: above zero when datagrams leave late on average.
    pub fn bias_us(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 / 1e3 }
    }

    /// How late the latest datagram was.
    pub fn max_late(&self) -> Duration {
        Duration::from_nanos(self.max_late_ns)
    }

    /// Notes a datagram that was due at `due` and is sent at `now`.
    pub(crate) fn note(&mut self, due: Time, now: Time) {
        let (late, early) = (now.nanos_since(due), due.nanos_since(now));
        self.sum_ns = self.sum_ns.saturating_add_unsigned(late).saturating_sub_unsigned(early);
        self.sum_abs_ns = self.sum_abs_ns.saturating_add(late + early);
        self.max_late_ns = self.max_late_ns.max(late);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timing() {
        let mut timing = Timing::default();
        assert_eq!((timing.mean_error(), timing.bias_us()), (Duration::ZERO, 0.0));
        timing.note(Time::from_micros(100), Time::from_micros(130));
        timing.note(Time::from_micros(100), Time::from_micros(90));
        assert_eq!(timing.mean_error(), Duration::from_micros(20));
        assert_eq!(timing.bias_us(), 10.0);
        assert_eq!(timing.max_late(), Duration::from_micros(30));
    }
}
