//! Random early detection at work.
//!
//! What is computed, and in which order, is as in ns-2 (`queue/red.cc`), so that results can be
//! compared; its adaptive mode and its choice of victims other than the packet that
//! comes are left out.

use core::time::Duration;

use farhaul_base::{Rng, Time};

use super::Verdict;
use crate::series::{one_less_exp, power};
use crate::{Rate, Red};

#[derive(Clone, Debug)]
pub(crate) struct RedQueue {
    rng: Rng,
    /// Thresholds, in packets or, in byte mode, in bytes.
    min: f64,
    max: f64,
    max_p: f64,
    weight: f64,
    gentle: bool,
    wait: bool,
    bytes: bool,
    mean_bytes: f64,
    /// Packets of the mean size that the link sends in a nanosecond: what an idle time counts.
    packets_per_ns: f64,
    /// In packets or bytes.
    average: f64,
    /// When the link ran out of packets, if it has none.
    idle_since: Option<Time>,
    /// Packets and bytes that have come since the last drop, the one at hand included.
    count: u64,
    count_bytes: u64,
    /// Whether the former packet found the average above `min` as well.
    above: bool,
}

/// What waits when a packet comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backlog {
    pub packets: u64,
    pub bytes: u64,
}

impl RedQueue {
    /// For a link of this rate, or with the first of its rates, and this delay.
    pub(crate) fn new(config: &Red, rate: Rate, delay: Duration, rng: Rng) -> Self {
        let mean_bytes = f64::from(config.mean.get());
        let per_second = rate.bits_per_second() as f64 / (8.0 * mean_bytes);
        let min = config.min.unwrap_or_else(|| {
            let target_ns = config.target.as_nanos() as f64;
            (target_ns * 1e-9 * per_second / 2.0).max(5.0)
        });
        let max = config.max.unwrap_or(3.0 * min);
        let weight = config.weight.map_or_else(
            || {
                let delay_ns = delay.as_nanos() as f64;
                let rtt = (3.0 * (delay_ns * 1e-9 + 1.0 / per_second)).max(0.1);
                one_less_exp(1.0 / (10.0 * rtt * per_second))
            },
            |weight| weight.value(),
        );
        let unit = if config.bytes { mean_bytes } else { 1.0 };
        RedQueue {
            rng,
            min: min * unit,
            max: max * unit,
            max_p: config.max_p.value(),
            weight,
            gentle: config.gentle,
            wait: config.wait,
            bytes: config.bytes,
            mean_bytes,
            packets_per_ns: per_second * 1e-9,
            average: 0.0,
            idle_since: Some(Time::ZERO),
            count: 0,
            count_bytes: 0,
            above: false,
        }
    }

    /// A packet of `bytes` comes at `at`; `fits` tells whether the limit lets it in, `capable` whether it
    /// can be marked.
    pub(crate) fn admit(
        &mut self,
        at: Time,
        bytes: usize,
        waiting: Backlog,
        fits: bool,
        capable: bool,
    ) -> Verdict {
        let queue = if self.bytes { waiting.bytes } else { waiting.packets };
        self.average_over(at, queue);
        self.count += 1;
        self.count_bytes += bytes as u64;
        let mut verdict = Verdict::Pass;
        if self.average >= self.min && queue > 1 {
            let end = if self.gentle { 2.0 * self.max } else { self.max };
            if self.average >= end {
                verdict = Verdict::Drop;
            } else if !self.above {
                // Just crossed: the spacing of drops begins here.
                self.above = true;
                self.count = 1;
                self.count_bytes = bytes as u64;
            } else if self.rng.chance(self.probability(bytes)) {
                verdict = if capable { Verdict::Mark } else { Verdict::Drop };
            }
        } else {
            self.above = false;
        }
        if !fits {
            verdict = Verdict::Full;
        }
        if verdict != Verdict::Pass {
            self.count = 0;
            self.count_bytes = 0;
        }
        verdict
    }

    /// The link has run out of packets.
    pub(crate) fn run_dry(&mut self, at: Time) {
        self.idle_since = Some(at);
    }

    /// Takes `queue` into the average, after a zero for each packet that could have been sent in
    /// an idle time.
    fn average_over(&mut self, at: Time, queue: u64) {
        let mut keep = 1.0 - self.weight;
        if let Some(since) = self.idle_since.take() {
            let missed = (self.packets_per_ns * at.nanos_since(since) as f64) as u64;
            keep = power(keep, missed.saturating_add(1));
        }
        self.average = keep * self.average + self.weight * queue as f64;
    }

    /// Of dropping a packet of `bytes` that comes now.
    fn probability(&self, bytes: usize) -> f64 {
        let base = if self.average >= self.max {
            // Only if gentle; up to twice `max`, where it is 1.
            (1.0 - self.max_p) * self.average / self.max + 2.0 * self.max_p - 1.0
        } else {
            self.max_p * (self.average - self.min) / (self.max - self.min)
        };
        let count = if self.bytes {
            (self.count_bytes as f64 / self.mean_bytes).floor()
        } else {
            self.count as f64
        };
        let expected = count * base;
        let spaced = if self.wait {
            match expected {
                ..1.0 => 0.0,
                ..2.0 => base / (2.0 - expected),
                _ => 1.0,
            }
        } else if expected < 1.0 {
            base / (1.0 - expected)
        } else {
            1.0
        };
        if self.bytes && spaced < 1.0 { spaced * bytes as f64 / self.mean_bytes } else { spaced }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Probability;

    const MEGABIT: u64 = 1_000_000;

    fn queue(config: Red, megabits: u64) -> RedQueue {
        let rate = Rate::from_bits_per_second(megabits * MEGABIT).unwrap();
        RedQueue::new(&config, rate, Duration::from_millis(10), Rng::new(3))
    }

    fn near(value: f64, expected: f64, relative: f64) -> bool {
        (value - expected).abs() <= relative * expected.abs()
    }

    /// Numbers of the packets that are dropped of `count` that each find `packets` waiting, which
    /// has been the average all the time.
    fn drops(config: Red, packets: u64, bytes: usize, count: u64) -> Vec<u64> {
        let mut red = queue(config, 10);
        let waiting = Backlog { packets, bytes: packets * 1_000 };
        red.idle_since = None;
        red.average = if config.bytes { waiting.bytes } else { packets } as f64;
        let dropped =
            |n: &u64| red.admit(Time::from_nanos(*n), bytes, waiting, true, false) != Verdict::Pass;
        (0..count).filter(dropped).collect()
    }

    fn gaps(drops: &[u64]) -> Vec<u64> {
        drops.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// The values that the formulas give with ns-2's defaults: 10 Mb/s are 2500 packets of 500
    /// bytes a second.
    #[test]
    fn automatic_parameters() {
        let slow = queue(Red::default(), 10);
        assert_eq!((slow.min, slow.max), (6.25, 18.75));
        // R = 0.1 s: the weight is 1 - exp(-1/2500).
        assert!(near(slow.weight, 3.999_200_106_7e-4, 1e-9), "{}", slow.weight);
        let gigabit = queue(Red::default(), 1_000);
        assert_eq!((gigabit.min, gigabit.max), (625.0, 1_875.0));
        let least = queue(Red::default(), 1);
        assert_eq!((least.min, least.max), (5.0, 15.0));
        let bytes = queue(Red { bytes: true, ..Red::default() }, 10);
        assert_eq!((bytes.min, bytes.max), (3_125.0, 9_375.0));
        // R = 3 (100 ms + 0.4 ms).
        let rate = Rate::from_bits_per_second(10 * MEGABIT).unwrap();
        let long = RedQueue::new(&Red::default(), rate, Duration::from_millis(100), Rng::new(3));
        assert!(near(long.weight, 1.0 / (10.0 * 0.3012 * 2_500.0), 1e-4), "{}", long.weight);
        let set = Red { min: Some(7.0), weight: Probability::new(0.002), ..Red::default() };
        let set = queue(set, 10);
        assert_eq!((set.min, set.max, set.weight), (7.0, 21.0, 0.002));
    }

    /// Without `wait` the gaps are uniform over 1 to 1/p - 1, with it over 1/p to 2/p - 1: ns-2
    /// counts the packet that it decides on.
    #[test]
    fn gaps_between_drops() {
        // The average is half way: p = 0.05.
        let config = Red { min: Some(5.0), max: Some(15.0), ..Red::default() };
        let waiting = gaps(&drops(config, 10, 500, 300_000));
        assert!(waiting.iter().all(|gap| (20..=39).contains(gap)));
        let mean = |gaps: &[u64]| gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
        assert!(near(mean(&waiting), 29.5, 0.01), "{}", mean(&waiting));
        let eager = gaps(&drops(Red { wait: false, ..config }, 10, 500, 300_000));
        assert!(eager.iter().all(|gap| (1..=19).contains(gap)));
        assert!(near(mean(&eager), 10.0, 0.01), "{}", mean(&eager));
    }

    #[test]
    fn classic_and_gentle_above_max() {
        let gentle = Red { min: Some(5.0), max: Some(10.0), ..Red::default() };
        let classic = Red { gentle: false, ..gentle };
        assert_eq!(drops(gentle, 4, 500, 10_000), []);
        assert_eq!(drops(classic, 10, 500, 10_000).len(), 10_000);
        assert_eq!(drops(gentle, 20, 500, 10_000).len(), 10_000);
        // Half way from max to twice max p is 0.55, so that a gap is 2 or 3.
        let gaps = gaps(&drops(gentle, 15, 500, 10_000));
        assert!(gaps.iter().all(|gap| (2..=3).contains(gap)), "{gaps:?}");
    }

    #[test]
    fn byte_mode_drops_large_packets_more_often() {
        let config =
            Red { bytes: true, wait: false, min: Some(5.0), max: Some(35.0), ..Red::default() };
        // 10 kB waiting are 20 packets of 500 bytes: half way, too.
        let small = drops(config, 10, 100, 100_000).len();
        let large = drops(config, 10, 1_000, 100_000).len();
        assert!(large > 8 * small, "{large} {small}");
    }

    #[test]
    fn the_average_decays_over_an_idle_time() {
        let mut red = queue(Red { weight: Probability::new(0.25), ..Red::default() }, 10);
        let waiting = Backlog { packets: 0, bytes: 0 };
        red.idle_since = None;
        red.average = 64.0;
        assert_eq!(red.admit(Time::ZERO, 500, waiting, true, false), Verdict::Pass);
        assert_eq!(red.average, 48.0);
        // 0.4 ms a packet: in 0.9 ms two could have been sent.
        red.run_dry(Time::from_micros(100));
        assert_eq!(red.admit(Time::from_micros(1_000), 500, waiting, true, false), Verdict::Pass);
        assert_eq!(red.average, 48.0 * 0.75 * 0.75 * 0.75);
        red.run_dry(Time::from_secs(1));
        assert_eq!(red.admit(Time::MAX, 500, waiting, true, false), Verdict::Pass);
        assert_eq!(red.average, 0.0);
    }

    #[test]
    fn the_limit_is_told_from_early_drops() {
        let mut red = queue(Red::default(), 10);
        let waiting = Backlog { packets: 100, bytes: 50_000 };
        assert_eq!(red.admit(Time::ZERO, 500, waiting, false, false), Verdict::Full);
        red.average = 1_000.0;
        assert_eq!(red.admit(Time::ZERO, 500, waiting, true, false), Verdict::Drop);
        assert_eq!(
            red.admit(Time::ZERO, 500, waiting, true, true),
            Verdict::Drop,
            "marks would not help"
        );
        assert_eq!(red.admit(Time::ZERO, 500, waiting, false, false), Verdict::Full);
    }
}
