//! When packets came that are read later.
//!
//! A TUN device stamps nothing. A packet has come since the device was last found empty; what is read together
//! is taken to have come evenly over that time, not in the instant of the read, which would be a burst that no
//! host has sent.

use std::fs::File;
use std::os::unix::fs::FileExt;

use farhaul_base::Time;

/// The time in which what is read now has come to a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrivals {
    /// It was empty then.
    empty_at: Time,
    /// The first packet since then has woken the thread, so it is older than all others.
    woken_at: Option<Time>,
}

impl Arrivals {
    /// The device is known to have been empty at `now`.
    pub(super) fn found_empty(&mut self, now: Time) {
        *self = Arrivals { empty_at: now, woken_at: None };
    }

    /// When the device was last known to have been empty.
    pub(super) fn empty_at(&self) -> Time {
        self.empty_at
    }

    /// A packet came while the thread slept, and woke it so that it went on at `now`, after it had waited for a
    /// processor for `waited_ns`.
    pub(super) fn woken(&mut self, now: Time, waited_ns: u64) {
        let came = Time::from_nanos(now.nanos_since(Time::from_nanos(waited_ns)));
        self.woken_at = Some(came.max(self.empty_at));
    }

    /// When a packet came that is read by `now`, if `before` of the `all` bytes that are read together
    /// precede it and `own` are its.
    pub(super) fn date(&self, now: Time, before: usize, own: usize, all: usize) -> Time {
        let all = all.max(1) as u128;
        let (begin, share) = match self.woken_at {
            // The one that woke the thread came at that time precisely.
            Some(woken) => (woken, before as u128),
            None => (self.empty_at, before as u128 + own as u128 / 2),
        };
        let span = u128::from(now.nanos_since(begin));
        begin.plus_nanos((span * share / all) as u64)
    }
}

/// How long the calling thread has waited for a processor so far.
#[derive(Debug)]
pub(super) struct RunDelay {
    file: Option<File>,
    total_ns: u64,
}

impl RunDelay {
    /// Of the calling thread.
    pub(super) fn open() -> Self {
        let file = File::open("/proc/thread-self/schedstat").ok();
        let mut delay = RunDelay { file, total_ns: 0 };
        delay.since_last();
        delay
    }

    /// Nanoseconds since the last call; 0 where the kernel does not tell.
    pub(super) fn since_last(&mut self) -> u64 {
        let mut buffer = [0; 64];
        let length = self.file.as_ref().and_then(|file| file.read_at(&mut buffer, 0).ok());
        let Some(total) = waited(&buffer[..length.unwrap_or(0)]) else { return 0 };
        let before = std::mem::replace(&mut self.total_ns, total);
        total.saturating_sub(before)
    }
}

/// The second field: nanoseconds of waiting (Documentation/scheduler/sched-stats.rst).
fn waited(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_late_is_spread_over_the_time_it_covers() {
        let us = Time::from_micros;
        let mut arrivals = Arrivals::default();
        arrivals.found_empty(us(100));
        // Four packets of 100 bytes, read at 180: each in the middle of its quarter.
        let dates: Vec<u64> =
            (0..4).map(|i| arrivals.date(us(180), i * 100, 100, 400).as_micros()).collect();
        assert_eq!(dates, [110, 130, 150, 170]);
    }

    #[test]
    fn what_wakes_the_thread_came_when_it_woke() {
        let us = Time::from_micros;
        let mut arrivals = Arrivals::default();
        arrivals.found_empty(us(100));
        arrivals.woken(us(1_000), 0);
        assert_eq!(arrivals.date(us(1_002), 0, 100, 100), us(1_000));
        // It had to wait for a processor, while others came.
        arrivals.woken(us(1_000), 400_000);
        assert_eq!(arrivals.date(us(1_000), 0, 100, 400), us(600));
        assert_eq!(arrivals.date(us(1_000), 200, 100, 400), us(800));
        // Never before the device was empty.
        arrivals.woken(us(1_000), 5_000_000);
        assert_eq!(arrivals.date(us(1_000), 0, 100, 100), us(100));
    }

    #[test]
    fn the_kernels_account_is_read() {
        assert_eq!(waited(b"12 51496 1\n"), Some(51_496));
        assert_eq!(waited(b""), None);
    }
}
