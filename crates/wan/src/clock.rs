//! The link's time from the machine's clocks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farhaul_base::Time;

/// The longest that a datagram is believed to have lain in the socket. Older stamps come from a
/// wall clock that was set meanwhile.
const OLDEST: Duration = Duration::from_secs(1);

/// Time since the relay started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

/// Both clocks at one moment, to turn the kernel's stamps, which are wall-clock time, into the
/// relay's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub now: Time,
    wall: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock { origin: Instant::now() }
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    pub(crate) fn read(&self) -> Reading {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Reading { now: self.now(), wall }
    }
}

impl Reading {
    /// When a datagram with this stamp arrived: not after this reading. Without a stamp, or with
    /// one that cannot be, it has just arrived.
    pub(crate) fn arrival(&self, stamp: Option<Duration>) -> Time {
        let age = stamp.and_then(|stamp| self.wall.checked_sub(stamp)).unwrap_or_default();
        if age > OLDEST {
            return self.now;
        }
        Time::from_nanos(self.now.nanos_since(Time::ZERO + age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_become_arrivals() {
        let reading = Reading { now: Time::from_secs(10), wall: Duration::from_secs(1_000) };
        let stamp = |ms| Some(Duration::from_millis(ms));
        assert_eq!(reading.arrival(stamp(999_750)), Time::from_millis(9_750));
        assert_eq!(reading.arrival(None), reading.now);
        // In the future, or the clock was set.
        assert_eq!(reading.arrival(stamp(1_000_001)), reading.now);
        assert_eq!(reading.arrival(stamp(5)), reading.now);
        let first = Reading { now: Time::ZERO, wall: Duration::from_secs(1_000) };
        assert_eq!(first.arrival(stamp(999_750)), Time::ZERO);
    }
}
