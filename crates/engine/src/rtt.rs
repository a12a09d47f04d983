//! Round-trip time: smoothed, its deviation and its minimum.

use core::time::Duration;

use farhaul_base::Time;

/// Before the first sample.
const INITIAL_RTT_US: u32 = 100_000;
const INITIAL_VAR_US: u32 = 50_000;
/// The minimum forgets a route that is no longer taken after one to two of these.
const MIN_WINDOW: Duration = Duration::from_secs(10);
/// No path that a time-out survives is longer; a peer's absurd figure is cut to it.
const LONGEST_US: u32 = 60_000_000;

/// With four times the RTT, the most that one sample counts for.
const LARGEST_STEP_US: u32 = 100_000;

/// The RTT filter of the protocol: gains 1/8 and 1/4, whole microseconds.
#[derive(Debug)]
pub struct Rtt {
    rtt_us: u32,
    var_us: u32,
    sampled: bool,
    /// Minimum of the current window and of the one before.
    min_us: [u32; 2],
    window_start: Time,
}

impl Rtt {
    pub fn new() -> Self {
        Rtt {
            rtt_us: INITIAL_RTT_US,
            var_us: INITIAL_VAR_US,
            sampled: false,
            min_us: [u32::MAX; 2],
            window_start: Time::ZERO,
        }
    }

    /// Takes a sample measured here, or the peer's own estimate.
    pub fn update(&mut self, now: Time, sample_us: u32) {
        let mut sample = sample_us.clamp(1, LONGEST_US);
        if self.sampled {
            // A damaged figure must not stop the timers for a minute; a route that has become
            // longer is believed step by step.
            sample = sample.min(4 * self.rtt_us + LARGEST_STEP_US);
        }
        if now - self.window_start > MIN_WINDOW {
            self.min_us = [u32::MAX, self.min_us[0]];
            self.window_start = now;
        }
        self.min_us[0] = self.min_us[0].min(sample);
        if !self.sampled {
            // A first sample says more than the constants (RFC 6298 starts likewise).
            self.sampled = true;
            self.rtt_us = sample;
            self.var_us = sample / 2;
            return;
        }
        self.var_us = (3 * self.var_us + self.rtt_us.abs_diff(sample)) / 4;
        self.rtt_us = (7 * self.rtt_us + sample) / 8;
    }

    /// Smoothed, microseconds.
    pub fn micros(&self) -> u32 {
        self.rtt_us
    }

    /// Mean deviation, microseconds.
    pub fn var_micros(&self) -> u32 {
        self.var_us
    }

    pub fn smoothed(&self) -> Duration {
        Duration::from_micros(u64::from(self.rtt_us))
    }

    pub fn variation(&self) -> Duration {
        Duration::from_micros(u64::from(self.var_us))
    }

    /// Smallest of the last 10 to 20 seconds; none before the first sample.
    pub fn min(&self) -> Option<Duration> {
        let min = self.min_us[0].min(self.min_us[1]);
        (min != u32::MAX).then(|| Duration::from_micros(u64::from(min)))
    }

    /// RTT + 4 RTTVar: how long an answer may take before it counts as missing.
    pub fn timeout(&self) -> Duration {
        Duration::from_micros(u64::from(self.rtt_us) + 4 * u64::from(self.var_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that the stock library was seen to compute from 100,000/50,000 and 2927.
    #[test]
    fn filter_matches_stock() {
        let mut rtt = Rtt::new();
        rtt.sampled = true;
        rtt.update(Time::ZERO, 2_927);
        assert_eq!((rtt.micros(), rtt.var_micros()), (87_865, 61_768));
    }

    /// One absurd figure does not stop the timers; a path that has become longer is believed soon.
    #[test]
    fn outliers_count_for_little() {
        let mut rtt = Rtt::new();
        for ms in 0..10 {
            rtt.update(Time::from_millis(ms), 80_000);
        }
        rtt.update(Time::from_millis(11), u32::MAX);
        assert!(rtt.smoothed() < Duration::from_millis(150), "{rtt:?}");
        assert!(rtt.timeout() < Duration::from_millis(700), "{rtt:?}");
        for ms in 12..40 {
            rtt.update(Time::from_millis(ms), 3_000_000);
        }
        assert!(rtt.smoothed() > Duration::from_millis(2_500), "{rtt:?}");
    }

    #[test]
    fn first_sample_replaces_the_constants_and_the_minimum_ages() {
        let mut rtt = Rtt::new();
        assert_eq!(rtt.min(), None);
        rtt.update(Time::from_secs(1), 4_000);
        assert_eq!((rtt.micros(), rtt.var_micros()), (4_000, 2_000));
        for s in 2..60 {
            rtt.update(Time::from_secs(s), 9_000);
        }
        assert_eq!(rtt.min(), Some(Duration::from_micros(9_000)));
        rtt.update(Time::from_secs(61), u32::MAX);
        assert!(rtt.micros() < 10_000_000);
    }
}
