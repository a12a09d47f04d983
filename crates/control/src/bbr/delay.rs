//! The queue that a probe makes, seen in round trips. The least of several counts, which noise and single
//! late packets do not reach.

use core::time::Duration;

/// Samples whose least is compared; fewer are enough where they are all of a round trip.
const SAMPLES: u32 = 16;
const FEWEST_SAMPLES: u32 = 4;

#[derive(Debug)]
pub(super) struct Delay {
    /// The least while the path was filled for a probe.
    before: Duration,
    refilling: bool,
    /// Of the samples that are being taken: how many, and the least; and the least of the last that
    /// were taken whole.
    taken: u32,
    least: Duration,
    recent: Option<Duration>,
}

impl Default for Delay {
    fn default() -> Self {
        Delay {
            before: Duration::MAX,
            refilling: false,
            taken: 0,
            least: Duration::MAX,
            recent: None,
        }
    }
}

impl Delay {
    pub fn update(&mut self, rtt: Option<Duration>, round_ends: bool) {
        if let Some(rtt) = rtt {
            self.least = self.least.min(rtt);
            self.taken += 1;
            if self.taken == SAMPLES || (round_ends && self.taken >= FEWEST_SAMPLES) {
                self.recent = Some(self.least);
                (self.taken, self.least) = (0, Duration::MAX);
            }
            if self.refilling {
                self.before = self.before.min(rtt);
            }
        }
    }

    /// The path is filled for a probe, which is to begin after this.
    pub fn begin_refill(&mut self) {
        (self.refilling, self.before) = (true, Duration::MAX);
    }

    pub fn begin_probe(&mut self) {
        self.refilling = false;
        (self.taken, self.least, self.recent) = (0, Duration::MAX, None);
    }

    /// Round trips are longer than `least` by the share `queue`.
    pub fn queues(&self, least: Duration, queue: f64) -> bool {
        self.recent.is_some_and(|recent| longer(recent, least, queue))
    }

    /// The probe has made the round trip longer by the share `queue`.
    pub fn probe_queues(&self, queue: f64) -> bool {
        let known = self.before != Duration::MAX;
        known && self.recent.is_some_and(|recent| longer(recent, self.before, queue))
    }
}

fn longer(rtt: Duration, than: Duration, queue: f64) -> bool {
    rtt.as_secs_f64() > (1.0 + queue) * than.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn tell(delay: &mut Delay, rtts: &[u64]) {
        rtts.iter().for_each(|rtt| delay.update(Some(ms(*rtt)), false));
    }

    #[test]
    fn a_queue_is_what_the_least_of_sixteen_shows() {
        let mut delay = Delay::default();
        tell(&mut delay, &[200; 15]);
        assert!(!delay.queues(ms(100), 0.25), "too few");
        tell(&mut delay, &[101]);
        assert!(!delay.queues(ms(100), 0.25), "one of them was not late");
        tell(&mut delay, &[126; 16]);
        assert!(delay.queues(ms(100), 0.25));
        assert!(!delay.queues(ms(101), 0.25));
        tell(&mut delay, &[100; 16]);
        assert!(!delay.queues(ms(100), 0.25), "the last ones count");
    }

    #[test]
    fn a_round_trip_of_few_packets_is_enough() {
        let mut delay = Delay::default();
        tell(&mut delay, &[200; 2]);
        delay.update(Some(ms(200)), true);
        assert!(!delay.queues(ms(100), 0.25), "three are not");
        delay.update(Some(ms(200)), true);
        assert!(delay.queues(ms(100), 0.25));
    }

    /// The queue of others, which stood before the probe, does not end it.
    #[test]
    fn a_probe_is_compared_with_what_was_before_it() {
        let mut delay = Delay::default();
        tell(&mut delay, &[50; 16]);
        delay.begin_refill();
        tell(&mut delay, &[210, 200, 220]);
        delay.begin_probe();
        tell(&mut delay, &[240; 16]);
        assert!(!delay.probe_queues(0.25));
        tell(&mut delay, &[260; 16]);
        assert!(delay.probe_queues(0.25));
        delay.begin_refill();
        delay.begin_probe();
        tell(&mut delay, &[260; 16]);
        assert!(!delay.probe_queues(0.25), "nothing is known of before");
    }
}
