//! Round-trip time and retransmission time-out (RFC 6298).

use core::time::Duration;

/// The time-out before any sample (RFC 6298 §2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// The longest time-out (RFC 6298 §2.5).
const MAX_RTO: Duration = Duration::from_secs(60);

/// The estimator. Samples must be of segments that were sent once (Karn's rule).
#[derive(Clone, Debug)]
pub struct RttEstimator {
    smoothed: Option<Duration>,
    deviation: Duration,
    min_rto: Duration,
    /// Times that the time-out was doubled since the last sample (RFC 6298 §5.5 and 5.7).
    doublings: u32,
    /// All samples.
    pub samples: RttSamples,
}

/// What the samples of a connection, or of many, come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RttSamples {
    /// How many.
    pub count: u64,
    /// Their sum, nanoseconds.
    pub sum_ns: u128,
    /// The smallest, if there is one.
    pub min: Option<Duration>,
    /// The largest.
    pub max: Duration,
}

impl RttSamples {
    /// Their mean; zero without samples.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos((self.sum_ns / u128::from(self.count.max(1))) as u64)
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &RttSamples) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.min = self.min.into_iter().chain(other.min).min();
        self.max = self.max.max(other.max);
    }
}

impl RttEstimator {
    /// Without samples. A time-out is at least `min_rto` longer than the smoothed round-trip time.
    pub fn new(min_rto: Duration) -> Self {
        RttEstimator {
            smoothed: None,
            deviation: Duration::ZERO,
            min_rto,
            doublings: 0,
            samples: RttSamples::default(),
        }
    }

    /// Takes a sample.
    pub fn update(&mut self, sample: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => {
                self.deviation = sample / 2;
                sample
            }
            Some(smoothed) => {
                self.deviation = (self.deviation * 3 + smoothed.abs_diff(sample)) / 4;
                (smoothed * 7 + sample) / 8
            }
        });
        self.doublings = 0;
        self.samples.add(&RttSamples {
            count: 1,
            sum_ns: sample.as_nanos(),
            min: Some(sample),
            max: sample,
        });
    }

    /// Smoothed round-trip time; none before any sample.
    pub fn measured(&self) -> Option<Duration> {
        self.smoothed
    }

    /// What to reckon with: the smoothed round-trip time, or the initial time-out before any sample.
    pub fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL_RTO)
    }

    /// Mean deviation.
    pub fn deviation(&self) -> Duration {
        self.deviation
    }

    /// The time-out has expired: the next one is twice as long.
    pub fn back_off(&mut self) {
        self.doublings = (self.doublings + 1).min(31);
    }

    /// The time-out; `fixed` in place of what follows from the samples.
    pub fn timeout(&self, fixed: Option<Duration>) -> Duration {
        let computed = match self.smoothed {
            None => INITIAL_RTO,
            // *departs:* RFC 6298 §2.4 has the floor for the whole, and nothing but the clock's
            // granularity for the deviation. A simulated round trip may not vary at all, and each
            // repair would then end in a time-out. As in Linux the floor is the deviation's.
            Some(smoothed) => smoothed + (self.deviation * 4).max(self.min_rto),
        };
        fixed.unwrap_or(computed).saturating_mul(1 << self.doublings).min(MAX_RTO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn samples_are_smoothed_as_in_rfc_6298() {
        let mut rtt = RttEstimator::new(MS(200));
        assert_eq!((rtt.timeout(None), rtt.measured()), (MS(1_000), None));
        rtt.update(MS(100));
        assert_eq!(rtt.measured(), Some(MS(100)));
        assert_eq!((rtt.smoothed(), rtt.deviation()), (MS(100), MS(50)));
        assert_eq!(rtt.timeout(None), MS(300));
        rtt.update(MS(180));
        assert_eq!((rtt.smoothed(), rtt.deviation()), (MS(110), Duration::from_micros(57_500)));
        for _ in 0..100 {
            rtt.update(MS(100));
        }
        let floor = MS(300)..MS(300) + Duration::from_micros(1);
        assert!(floor.contains(&rtt.timeout(None)), "{:?}", rtt.timeout(None));
        assert_eq!((rtt.samples.min, rtt.samples.max), (Some(MS(100)), MS(180)));
        assert!(rtt.samples.mean() > MS(100) && rtt.samples.mean() < MS(101));
    }

    #[test]
    fn doubles_up_to_a_minute_until_the_next_sample() {
        let mut rtt = RttEstimator::new(MS(200));
        rtt.update(MS(100));
        rtt.back_off();
        assert_eq!(rtt.timeout(None), MS(600));
        assert_eq!(rtt.timeout(Some(MS(1_000))), MS(2_000));
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(None), Duration::from_secs(60));
        rtt.update(MS(100));
        assert!(rtt.timeout(None) < MS(301));
    }
}
