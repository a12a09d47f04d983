//! An instant in nanoseconds since an arbitrary origin.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// An instant: nanoseconds since an origin that the caller chooses.
///
/// 64 bits last 584 years, so arithmetic saturates rather than wraps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// Later than every instant that a run reaches; stands for "never" in comparisons.
    pub const MAX: Time = Time(u64::MAX);

    /// The instant `ns` nanoseconds after the origin.
    pub const fn from_nanos(ns: u64) -> Self {
        Time(ns)
    }

    /// The instant `us` microseconds after the origin.
    pub const fn from_micros(us: u64) -> Self {
        Time(us.saturating_mul(1_000))
    }

    /// The instant `ms` milliseconds after the origin.
    pub const fn from_millis(ms: u64) -> Self {
        Time(ms.saturating_mul(1_000_000))
    }

    /// The instant `s` seconds after the origin.
    pub const fn from_secs(s: u64) -> Self {
        Time(s.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Seconds since the origin.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// Nanoseconds from `earlier` to `self`; zero if `earlier` is later.
    pub const fn nanos_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant `ns` nanoseconds after this one.
    pub const fn plus_nanos(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, span: Duration) -> Time {
        self.plus_nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

/// The time from `earlier` to `self`; zero if `earlier` is later.
impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.9}s", self.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let t = Time::from_millis(5);
        assert_eq!(t + Duration::from_micros(2), Time::from_nanos(5_002_000));
        assert_eq!(t - Time::from_millis(2), Duration::from_millis(3));
        assert_eq!(Time::ZERO - t, Duration::ZERO);
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(t + Duration::MAX, Time::MAX);
    }
}
