//! The queue that stands between probes, and how much of what looks like one is noise.
//!
//! A round trip has a queue as far as the least of its samples is above the shortest round trip. Noise of hosts and
//! paths looks the same: where a path keeps the order of packets that it delays by chance, hardly one of a thousand comes
//! as early as the few that were alone on it. Noise also spreads the samples of a round trip, and a queue that
//! stands does not. So what has not gone in the last seconds is noise as far as it is not more than some times the spread.

use core::time::Duration;

use farhaul_base::Time;

/// Samples of a round trip whose least counts.
const FEWEST_SAMPLES: u32 = 4;
/// What has not gone in so long, to twice that, may be noise: several probes, after each of which the queue is drained.
const SPAN: Duration = Duration::from_secs(5);
/// So many times the spread of samples may noise be.
const SPREADS: f64 = 2.0;
/// And by so many more does the least of a round trip vary. With one, jitter of 1 ms on noisy hosts takes a tenth of
/// 1 Gb/s at 10 ms; with two, two flows with jitter of 2 ms share worse and the queue of several is longer.
const VARIES: f64 = 1.5;
/// The part of a round trip in the mean of their spreads.
const PART: f64 = 1.0 / 8.0;

/// Times in seconds.
#[derive(Debug)]
pub(super) struct Standing {
    /// Of the samples of the round trip that runs: the least, the sum and how many.
    least: f64,
    sum: f64,
    samples: u32,
    /// The least of the round trip that has ended; infinite before the first.
    ended: f64,
    /// The least of whole round trips while nothing is probed, of the span that runs and of the one before it.
    floors: [f64; 2],
    since: Time,
    /// By how much the mean of a round trip's samples is above their least.
    spread: f64,
}

/// What a round trip has shown, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Queue {
    /// By how much it was longer than the shortest.
    pub standing: f64,
    /// How much of that is noise.
    pub noise: f64,
}

impl Default for Standing {
    fn default() -> Self {
        Standing {
            least: f64::INFINITY,
            sum: 0.0,
            samples: 0,
            ended: f64::INFINITY,
            floors: [f64::INFINITY; 2],
            since: Time::ZERO,
            spread: 0.0,
        }
    }
}

impl Standing {
    /// `calm`: nothing is probed. `round_ends`: with this event.
    pub fn update(&mut self, now: Time, calm: bool, rtt: Option<Duration>, round_ends: bool) {
        if let Some(rtt) = rtt.map(|rtt| rtt.as_secs_f64()) {
            self.least = self.least.min(rtt);
            self.sum += rtt;
            self.samples += 1;
        }
        if round_ends {
            self.end_round(now, calm);
        }
    }

    fn end_round(&mut self, now: Time, calm: bool) {
        self.ended = core::mem::replace(&mut self.least, f64::INFINITY);
        let samples = core::mem::take(&mut self.samples);
        let sum = core::mem::take(&mut self.sum);
        if now - self.since > SPAN {
            (self.floors, self.since) = ([f64::INFINITY, self.floors[0]], now);
        }
        if calm && samples >= FEWEST_SAMPLES {
            let spread = (sum / f64::from(samples) - self.ended).max(0.0);
            self.spread += PART * (spread - self.spread);
            self.floors[0] = self.floors[0].min(self.ended);
        }
    }

    /// What the round trip that has ended had above `least`; none where nothing is known of noise.
    pub fn queue(&self, least: Duration) -> Option<Queue> {
        let least = least.as_secs_f64();
        let floor = self.floors[0].min(self.floors[1]);
        if self.ended.is_infinite() || floor.is_infinite() {
            return None;
        }
        let lasting = (floor - least).clamp(0.0, SPREADS * self.spread);
        let standing = (self.ended - least).max(0.0);
        Some(Queue { standing, noise: lasting + VARIES * self.spread })
    }

    /// All of the round trip that has ended was longer than `least` by `queue`.
    pub fn exceeds(&self, least: Duration, queue: Duration) -> bool {
        self.ended.is_finite() && self.ended > (least + queue).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(100);

    /// Round trips of so many samples as `rtts` has, milliseconds, one a second.
    fn seen(standing: &mut Standing, seconds: core::ops::Range<u64>, calm: bool, rtts: &[u64]) {
        for second in seconds {
            let now = Time::from_millis(1_000 * second);
            for rtt in rtts {
                standing.update(now, calm, Some(Duration::from_millis(*rtt)), false);
            }
            standing.update(now, calm, None, true);
        }
    }

    fn milliseconds(standing: &Standing) -> (f64, f64) {
        let Queue { standing, noise } = standing.queue(LEAST).expect("round trips in calm");
        (standing * 1e3, noise * 1e3)
    }

    /// A competitor's queue has no spread, however long it stays.
    #[test]
    fn a_queue_that_stays_is_no_noise() {
        let mut standing = Standing::default();
        seen(&mut standing, 0..60, true, &[120; 8]);
        let (queue, noise) = milliseconds(&standing);
        assert!((queue - 20.0).abs() < 1e-6 && noise < 1e-6, "{queue} {noise}");
        assert!(standing.exceeds(LEAST, Duration::from_millis(19)));
        assert!(!standing.exceeds(LEAST, Duration::from_millis(21)));
    }

    #[test]
    fn delays_that_spread_and_never_go_are_noise() {
        let mut standing = Standing::default();
        // The mean is 4 ms above the least, which is 6 ms above the shortest.
        seen(&mut standing, 0..60, true, &[106, 108, 112, 114]);
        let (queue, noise) = milliseconds(&standing);
        assert!((queue - 6.0).abs() < 1e-6 && (noise - 12.0).abs() < 0.1, "{queue} {noise}");
        // A queue on top of it is told apart until it has stood for two spans.
        seen(&mut standing, 60..63, true, &[126, 128, 132, 134]);
        let (queue, noise) = milliseconds(&standing);
        assert!((queue - 26.0).abs() < 1e-6 && (noise - 12.0).abs() < 0.1, "{queue} {noise}");
        seen(&mut standing, 63..80, true, &[126, 128, 132, 134]);
        let (_, noise) = milliseconds(&standing);
        assert!((noise - 14.0).abs() < 0.1, "three and a half spreads at most: {noise}");
    }

    #[test]
    fn nothing_is_learnt_of_probes_and_of_few_samples() {
        let mut standing = Standing::default();
        seen(&mut standing, 0..5, false, &[106, 108, 112, 114]);
        seen(&mut standing, 5..10, true, &[106, 108, 112]);
        assert_eq!(standing.queue(LEAST), None);
    }
}
