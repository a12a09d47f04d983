//! Controlled delay at work: RFC 8289, section 5, with its names.

use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;

#[derive(Clone, Debug)]
pub(crate) struct CoDelQueue {
    target_ns: u64,
    interval_ns: u64,
    /// When each packet that waits has come, oldest first.
    entered: VecDeque<Time>,
    /// Largest packet that has come, bytes: a queue of no more is never too long.
    maxpacket: u64,
    /// When the wait will have been above the target for an interval; `None` while it is below.
    first_above: Option<Time>,
    dropping: bool,
    drop_next: Time,
    /// Drops since this round of drops began, and the count that it began with.
    count: u64,
    lastcount: u64,
}

/// A packet off the head, if there is one, and whether it may be dropped.
struct Head<T> {
    packet: Option<T>,
    ok_to_drop: bool,
}

impl CoDelQueue {
    pub(crate) fn new(target: Duration, interval: Duration) -> Self {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        CoDelQueue {
            target_ns: nanos(target),
            interval_ns: nanos(interval),
            entered: VecDeque::new(),
            maxpacket: 0,
            first_above: None,
            dropping: false,
            drop_next: Time::ZERO,
            count: 0,
            lastcount: 0,
        }
    }

    /// A packet has been put at the tail.
    pub(crate) fn push(&mut self, at: Time) {
        self.entered.push_back(at);
    }

    /// The packet at the head has been taken away, and not by [`CoDelQueue::pop`].
    pub(crate) fn forget_head(&mut self) {
        self.entered.pop_front();
    }

    /// A packet of `bytes` has come, to wait or not.
    pub(crate) fn meet(&mut self, bytes: usize) {
        self.maxpacket = self.maxpacket.max(bytes as u64);
    }

    /// The packet to transmit next. `take` gives the one at the head of the queue and the bytes
    /// that wait behind it. `congested` is given those that are to tell of congestion, and gives back
    /// what it has marked and not dropped.
    pub(crate) fn pop<T>(
        &mut self,
        now: Time,
        mut take: impl FnMut() -> Option<(T, u64)>,
        mut congested: impl FnMut(T) -> Option<T>,
    ) -> Option<T> {
        let mut head = self.head(now, &mut take);
        if self.dropping {
            self.dropping = head.ok_to_drop;
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                let marked = head.packet.and_then(&mut congested);
                if marked.is_some() {
                    self.drop_next = self.control_law(self.drop_next);
                    return marked;
                }
                head = self.head(now, &mut take);
                if head.ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if head.ok_to_drop {
            let marked = head.packet.and_then(&mut congested);
            head = match marked {
                Some(packet) => Head { packet: Some(packet), ok_to_drop: true },
                None => self.head(now, &mut take),
            };
            self.dropping = true;
            // Soon after the last round: go on at the rate of drops that it has found.
            let delta = self.count - self.lastcount;
            let recent = now.nanos_since(self.drop_next) < self.interval_ns.saturating_mul(16);
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = self.control_law(now);
            self.lastcount = self.count;
        }
        head.packet
    }

    fn head<T>(&mut self, now: Time, take: &mut impl FnMut() -> Option<(T, u64)>) -> Head<T> {
        let Some((packet, bytes_behind)) = take() else {
            self.first_above = None;
            return Head { packet: None, ok_to_drop: false };
        };
        let waited = self.entered.pop_front().map_or(0, |at| now.nanos_since(at));
        let mut ok_to_drop = false;
        if waited < self.target_ns || bytes_behind <= self.maxpacket {
            self.first_above = None;
        } else if let Some(first_above) = self.first_above {
            ok_to_drop = now >= first_above;
        } else {
            self.first_above = Some(now.plus_nanos(self.interval_ns));
        }
        Head { packet: Some(packet), ok_to_drop }
    }

    /// The drop after one at `from`. A square root is rounded alike on every machine.
    fn control_law(&self, from: Time) -> Time {
        from.plus_nanos((self.interval_ns as f64 / (self.count as f64).sqrt()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Takes a packet of 1500 bytes each millisecond from `from_ms` on, with a backlog of 50 ms that
    /// never ends. The times of drops in milliseconds.
    fn drops(codel: &mut CoDelQueue, from_ms: u64, count: u64) -> Vec<u64> {
        let mut dropped = Vec::new();
        for ms in from_ms..from_ms + count {
            let now = Time::from_millis(ms);
            for _ in 0..10 {
                codel.push(Time::from_nanos((ms * MS).saturating_sub(50 * MS)));
            }
            let drop = |()| {
                dropped.push(ms);
                None
            };
            let passed = codel.pop(now, || Some(((), 75_000)), drop);
            assert!(passed.is_some());
            codel.entered.clear();
        }
        dropped
    }

    fn codel() -> CoDelQueue {
        let mut codel = CoDelQueue::new(Duration::from_millis(5), Duration::from_millis(100));
        codel.meet(1_500);
        codel
    }

    /// The first drop comes an interval after the wait was first too long; the n-th follows the
    /// one before by 100 ms / sqrt(n).
    #[test]
    fn the_control_law() {
        let mut expected = vec![1_100];
        let mut next = 1_100.0;
        for n in 1..20 {
            next += 100.0 / f64::from(n).sqrt();
            expected.push(f64::ceil(next) as u64);
        }
        let seen = drops(&mut codel(), 1_000, 1_000);
        assert_eq!(seen[..20], expected);
    }

    /// As often as it would drop, it marks what can be marked, and then lets it pass.
    #[test]
    fn marks_are_as_frequent_as_drops() {
        let (mut dropping, mut marking) = (codel(), codel());
        let dropped = drops(&mut dropping, 1_000, 1_000).len();
        let mut marked = 0;
        for ms in 1_000..2_000 {
            marking.push(Time::from_millis(ms - 50));
            let mark = |()| {
                marked += 1;
                Some(())
            };
            assert!(marking.pop(Time::from_millis(ms), || Some(((), 75_000)), mark).is_some());
        }
        assert_eq!(marked, dropped);
    }

    #[test]
    fn a_short_wait_ends_the_drops_and_a_new_round_begins_near_the_old_rate() {
        let mut codel = codel();
        let first = drops(&mut codel, 1_000, 1_000).len() as u64;
        codel.push(Time::from_secs(2));
        assert!(
            codel.pop(Time::from_millis(2_004), || Some(((), 75_000)), |()| panic!()).is_some()
        );
        assert!(!codel.dropping);
        let again = drops(&mut codel, 2_005, 150);
        assert_eq!(again[0], 2_105);
        assert_eq!(codel.lastcount, first - 1);
        // A long time later it begins anew.
        codel.push(Time::from_secs(4));
        codel.pop(Time::from_secs(4), || Some(((), 75_000)), |()| panic!());
        drops(&mut codel, 6_000, 101);
        assert_eq!(codel.lastcount, 1);
    }

    #[test]
    fn a_packet_behind_is_no_queue() {
        let mut codel = codel();
        for ms in 0..1_000 {
            codel.push(Time::ZERO);
            let taken = codel.pop(Time::from_millis(ms), || Some(((), 1_500)), |()| panic!());
            assert!(taken.is_some());
        }
        assert_eq!(codel.pop(Time::from_secs(1), || None::<((), u64)>, |()| panic!()), None);
    }
}
