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

impl DirectionStats {
    /// Whether what was emulated is the path that was asked for: nothing was lost for want of a processor or memory,
    /// and no more than one datagram in a hundred left more than half a millisecond late.
    pub fn time_kept(&self) -> bool {
        let lost = self.overflowed + self.dropped_memory;
        lost == 0 && self.timing.share_late() <= MAY_BE_LATE
    }
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
    /// Those later than [`LATE`].
    late: u64,
    count: u64,
}

/// What leaves later than this has not kept its time.
const LATE: Duration = Duration::from_micros(500);
/// The share that may be late.
const MAY_BE_LATE: f64 = 0.01;

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

    /// Share of the datagrams that left more than half a millisecond late.
    pub fn share_late(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.late as f64 / self.count as f64 }
    }

    /// Notes a datagram that was due at `due` and is sent at `now`.
    pub(crate) fn note(&mut self, due: Time, now: Time) {
        let (late, early) = (now.nanos_since(due), due.nanos_since(now));
        self.sum_ns = self.sum_ns.saturating_add_unsigned(late).saturating_sub_unsigned(early);
        self.sum_abs_ns = self.sum_abs_ns.saturating_add(late + early);
        self.max_late_ns = self.max_late_ns.max(late);
        self.late += u64::from(u128::from(late) > LATE.as_nanos());
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
        assert_eq!(timing.share_late(), 0.0);
        timing.note(Time::ZERO, Time::from_micros(501));
        assert!((timing.share_late() - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn time_is_kept_while_one_in_a_hundred_is_late_at_most() {
        let mut stats = DirectionStats::default();
        (0..99).for_each(|_| stats.timing.note(Time::ZERO, Time::from_micros(499)));
        stats.timing.note(Time::ZERO, Time::from_millis(1));
        assert!(stats.time_kept());
        assert!(!DirectionStats { overflowed: 1, ..stats }.time_kept());
        stats.timing.note(Time::ZERO, Time::from_millis(1));
        assert!(!stats.time_kept());
    }
}
