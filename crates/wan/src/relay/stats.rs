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
        lost == 0 && self.timing.keeps_time()
    }

    /// What has been counted since `earlier`, a former state of this. What is under way is that of now, and the
    /// most that there was in a queue is that of all time.
    pub fn since(&self, earlier: &DirectionStats) -> DirectionStats {
        DirectionStats {
            link: self.link.since(&earlier.link),
            received: self.received - earlier.received,
            received_bytes: self.received_bytes - earlier.received_bytes,
            sent: self.sent - earlier.sent,
            sent_bytes: self.sent_bytes - earlier.sent_bytes,
            dropped_memory: self.dropped_memory - earlier.dropped_memory,
            dropped_stale: self.dropped_stale - earlier.dropped_stale,
            dropped_send: self.dropped_send - earlier.dropped_send,
            overflowed: self.overflowed - earlier.overflowed,
            timing: self.timing.since(&earlier.timing),
        }
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
    sizes: Sizes,
}

/// How many differences there were of each size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes([u64; SIZES]);

/// Classes of size: up to 1 us, then four to each doubling, the last one from half a second on.
const SIZES: usize = 1 + 4 * DOUBLINGS;
const DOUBLINGS: usize = 19;
const FIRST_BITS: u32 = 10;

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

    /// Whether no more than one in a hundred left more than half a millisecond late.
    pub(crate) fn keeps_time(&self) -> bool {
        self.share_late() <= MAY_BE_LATE
    }

    /// Notes a datagram that was due at `due` and is sent at `now`.
    pub(crate) fn note(&mut self, due: Time, now: Time) {
        let (late, early) = (now.nanos_since(due), due.nanos_since(now));
        self.sum_ns = self.sum_ns.saturating_add_unsigned(late).saturating_sub_unsigned(early);
        self.sum_abs_ns = self.sum_abs_ns.saturating_add(late + early);
        self.max_late_ns = self.max_late_ns.max(late);
        self.late += u64::from(u128::from(late) > LATE.as_nanos());
        self.count += 1;
        self.sizes.count(late + early);
    }

    /// The size that this share of the differences does not exceed, to a quarter of it: 0.99 for the 99th
    /// percentile.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (self.count as f64 * share).ceil() as u64;
        let mut below = 0;
        for (class, count) in self.sizes.0.iter().enumerate() {
            below += count;
            if below >= rank && below > 0 {
                return Duration::from_nanos(Sizes::end_ns(class)).min(self.largest());
            }
        }
        Duration::ZERO
    }

    /// An upper bound of the sizes.
    fn largest(&self) -> Duration {
        let class = self.sizes.0.iter().rposition(|count| *count > 0).unwrap_or(0);
        Duration::from_nanos(Sizes::end_ns(class))
    }

    /// What has been noted since `earlier`, a former state of this. The latest of all is known to a quarter.
    pub(crate) fn since(&self, earlier: &Timing) -> Timing {
        let mut sizes = self.sizes;
        for (count, before) in sizes.0.iter_mut().zip(earlier.sizes.0) {
            *count = count.saturating_sub(before);
        }
        let mut since = Timing {
            sum_ns: self.sum_ns - earlier.sum_ns,
            sum_abs_ns: self.sum_abs_ns.saturating_sub(earlier.sum_abs_ns),
            max_late_ns: 0,
            late: self.late.saturating_sub(earlier.late),
            count: self.count.saturating_sub(earlier.count),
            sizes,
        };
        let largest = u64::try_from(since.largest().as_nanos()).unwrap_or(u64::MAX);
        since.max_late_ns = if since.count == 0 { 0 } else { self.max_late_ns.min(largest) };
        since
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes([0; SIZES])
    }
}

impl Sizes {
    fn count(&mut self, ns: u64) {
        let class = match ns.checked_ilog2() {
            Some(bits) if bits >= FIRST_BITS => {
                let quarter = (ns >> (bits - 2)) & 3;
                1 + 4 * (bits - FIRST_BITS) as usize + quarter as usize
            }
            _ => 0,
        };
        self.0[class.min(SIZES - 1)] += 1;
    }

    /// Where a class ends, in nanoseconds.
    fn end_ns(class: usize) -> u64 {
        let Some(above) = class.checked_sub(1) else { return 1 << FIRST_BITS };
        let (doubling, quarter) = (above / 4, above as u64 % 4);
        ((5 + quarter) << (FIRST_BITS as usize + doubling)) / 4
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
    fn quantiles_are_exact_to_a_quarter() {
        let mut timing = Timing::default();
        assert_eq!(timing.quantile(0.99), Duration::ZERO);
        (1..=1_000).for_each(|us| timing.note(Time::ZERO, Time::from_micros(us)));
        for (share, us) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let found = timing.quantile(share).as_secs_f64() * 1e6;
            assert!((us..us * 1.25).contains(&found), "{share}: {found}");
        }
        timing.note(Time::ZERO, Time::from_secs(3_600));
        assert!(timing.quantile(1.0) >= Duration::from_millis(500));
    }

    #[test]
    fn what_was_counted_in_between_is_a_difference() {
        let mut stats = DirectionStats { received: 5, ..DirectionStats::default() };
        stats.timing.note(Time::ZERO, Time::from_millis(20));
        let earlier = stats;
        stats.received = 7;
        stats.link.offered = 2;
        stats.link.queue.packet_nanos = 3_000;
        stats.timing.note(Time::ZERO, Time::from_micros(100));
        let between = stats.since(&earlier);
        assert_eq!((between.received, between.link.mean_wait().as_nanos()), (2, 1_500));
        assert_eq!(between.timing.mean_error(), Duration::from_micros(100));
        assert!(between.time_kept() && !stats.time_kept());
        let latest = between.timing.max_late();
        assert!(latest >= Duration::from_micros(100) && latest < Duration::from_micros(125));
        assert_eq!(stats.since(&stats).timing, Timing::default());
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
