//! Proportional integral controller enhanced at work: RFC 8033, with its names.
//!
//! The delay is that of the last packet that left, by its time stamp (RFC 8033 §5.2), and not estimated
//! by the rate of departures.

use std::collections::VecDeque;

use farhaul_base::{Rng, Time};

use super::Verdict;
use crate::Pie;

const MS: u64 = 1_000_000;
/// `T_UPDATE`.
const UPDATE_NS: u64 = 15 * MS;
/// `MAX_BURST`.
const BURST_NS: u64 = 150 * MS;
/// Per second of delay beyond the target, and per second that it has grown by.
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// Beyond this probability packets are dropped that could be marked: their sender does not heed marks
/// (`mark_ecnth`).
const MARK_UP_TO: f64 = 0.1;
/// After so many updates without a queue nothing is left of any probability.
const MOST_UPDATES: u64 = 2_000;

#[derive(Clone, Debug)]
pub(crate) struct PieQueue {
    rng: Rng,
    target: f64,
    /// When each packet that waits has come, oldest first.
    entered: VecDeque<Time>,
    drop_prob: f64,
    /// `accu_prob`: of the packets that have come since the last drop.
    accumulated: f64,
    /// Seconds.
    delay: f64,
    delay_before: f64,
    burst_left_ns: u64,
    updated: u64,
}

impl PieQueue {
    pub(crate) fn new(config: &Pie, rng: Rng) -> Self {
        PieQueue {
            rng,
            target: config.target.as_secs_f64(),
            entered: VecDeque::new(),
            drop_prob: 0.0,
            accumulated: 0.0,
            delay: 0.0,
            delay_before: 0.0,
            burst_left_ns: BURST_NS,
            updated: 0,
        }
    }

    /// A packet has come; `waiting_bytes` wait, and `capable` tells whether it can be marked.
    pub(crate) fn admit(&mut self, at: Time, waiting_bytes: u64, capable: bool) -> Verdict {
        self.pass_time(at);
        if !self.drops(waiting_bytes) {
            return Verdict::Pass;
        }
        if capable && self.drop_prob <= MARK_UP_TO { Verdict::Mark } else { Verdict::Drop }
    }

    fn drops(&mut self, waiting_bytes: u64) -> bool {
        /// Packets that are no queue (RFC 8033 §4.1: two of the mean size).
        const FEW_BYTES: u64 = 2 * 1_500;
        let short = self.delay_before < self.target / 2.0 && self.drop_prob < 0.2;
        if self.burst_left_ns > 0 || short || waiting_bytes <= FEW_BYTES {
            return false;
        }
        // Neither in runs nor far apart (RFC 8033 §5.4).
        self.accumulated += self.drop_prob;
        if self.accumulated < 0.85 {
            return false;
        }
        let drops = self.accumulated >= 8.5 || self.rng.chance(self.drop_prob);
        if drops {
            self.accumulated = 0.0;
        }
        drops
    }

    /// A packet waits.
    pub(crate) fn push(&mut self, at: Time) {
        self.entered.push_back(at);
    }

    /// The packet at the head leaves.
    pub(crate) fn pop(&mut self, now: Time) {
        self.pass_time(now);
        let waited = self.entered.pop_front().map_or(0, |at| now.nanos_since(at));
        self.delay = waited as f64 * 1e-9;
    }

    /// The link has run out of packets.
    pub(crate) fn run_dry(&mut self, now: Time) {
        self.pass_time(now);
        self.delay = 0.0;
    }

    fn pass_time(&mut self, now: Time) {
        let due = (now.as_nanos() / UPDATE_NS).saturating_sub(self.updated);
        self.updated += due;
        for _ in 0..due.min(MOST_UPDATES) {
            self.update();
        }
    }

    /// `calculate_drop_prob` (RFC 8033 §4.2, §4.3, §5.5).
    fn update(&mut self) {
        let scale = match self.drop_prob {
            p if p < 0.000_001 => 1.0 / 2048.0,
            p if p < 0.000_01 => 1.0 / 512.0,
            p if p < 0.000_1 => 1.0 / 128.0,
            p if p < 0.001 => 1.0 / 32.0,
            p if p < 0.01 => 1.0 / 8.0,
            p if p < 0.1 => 1.0 / 2.0,
            _ => 1.0,
        };
        let growth = self.delay - self.delay_before;
        let step = (ALPHA * (self.delay - self.target) + BETA * growth) * scale;
        // A high probability rises slowly, but for a delay that is far beyond (§5.5).
        let step = if self.drop_prob >= 0.1 { step.min(0.02) } else { step };
        self.drop_prob += if self.delay > 0.25 { step.max(0.02) } else { step };
        if self.delay == 0.0 && self.delay_before == 0.0 {
            self.drop_prob *= 0.98;
        }
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        self.burst_left_ns = self.burst_left_ns.saturating_sub(UPDATE_NS);
        let quiet = self.target / 2.0;
        if self.drop_prob == 0.0 && self.delay < quiet && self.delay_before < quiet {
            self.burst_left_ns = BURST_NS;
        }
        self.delay_before = self.delay;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` packets of a queue of `delay_ms` that come each millisecond from `from_ms` on: dropped
    /// or marked.
    fn verdicts(
        pie: &mut PieQueue,
        from_ms: u64,
        count: u64,
        delay_ms: u64,
        ecn: bool,
    ) -> [u64; 2] {
        let (mut dropped, mut marked) = (0, 0);
        for ms in from_ms..from_ms + count {
            match pie.admit(Time::from_millis(ms), 1_000_000, ecn) {
                Verdict::Pass => {}
                Verdict::Mark => marked += 1,
                Verdict::Drop | Verdict::Full => dropped += 1,
            }
            pie.entered.clear();
            pie.push(Time::from_millis(ms.saturating_sub(delay_ms)));
            pie.pop(Time::from_millis(ms));
        }
        [dropped, marked]
    }

    fn pie() -> PieQueue {
        PieQueue::new(&Pie::default(), Rng::new(1))
    }

    #[test]
    fn a_burst_passes_and_a_queue_that_stays_does_not() {
        let mut pie = pie();
        assert_eq!(verdicts(&mut pie, 1_000, 140, 60, false), [0, 0]);
        let [dropped, marked] = verdicts(&mut pie, 1_140, 20_000, 60, false);
        assert!(dropped > 1_000 && marked == 0, "{dropped} {marked}");
    }

    #[test]
    fn the_target_is_no_queue() {
        let mut pie = pie();
        assert_eq!(verdicts(&mut pie, 1_000, 20_000, 14, false), [0, 0]);
    }

    #[test]
    fn marks_come_before_drops_of_those_that_do_not_heed_them() {
        let mut pie = pie();
        let [dropped, marked] = verdicts(&mut pie, 1_000, 1_500, 25, true);
        assert!(dropped == 0 && marked > 0, "{dropped} {marked}");
        verdicts(&mut pie, 2_500, 30_000, 60, true);
        let [dropped, marked] = verdicts(&mut pie, 32_500, 1_000, 60, true);
        assert!(dropped > 100 && marked == 0, "{dropped} {marked}");
    }

    #[test]
    fn it_forgets_while_nothing_waits() {
        let mut pie = pie();
        verdicts(&mut pie, 1_000, 20_000, 60, false);
        assert!(pie.drop_prob > 0.5);
        pie.run_dry(Time::from_secs(21));
        pie.pass_time(Time::from_secs(3_600));
        assert!(pie.drop_prob < 1e-9 && pie.burst_left_ns == BURST_NS, "{pie:?}");
    }
}
