//! Doubts about a stock peer's loss reports.
//!
//! A receiver of ours waits a little before it takes a packet that was overtaken for lost; stock
//! reports it at once, and each report costs the sender a share of its rate. Where such a report
//! is seen to be false, the next ones wait until an ACK has had time to show the same of them.

use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;
use farhaul_control::SYN;
use farhaul_wire::{LossRange, Seq};

/// How long a report waits: stock acknowledges once a SYN interval, or each 64 packets.
const WAIT: Duration = Duration::from_nanos(SYN.as_nanos() as u64 * 3 / 2);
/// A path that reorders is expected to do so again for so long.
const MEMORY: Duration = Duration::from_secs(10);
/// More packets in a row than this are not overtaken but lost.
const LONGEST_RUN: u32 = 32;
/// Reports that wait, or are remembered: with more the oldest are let go.
const MAX_REPORTS: usize = 1024;

#[derive(Debug, Default)]
pub struct Doubts {
    /// Reports that were believed: when, and the last packet that they named.
    believed: VecDeque<(Time, Seq)>,
    /// Reports that wait, and since when.
    waiting: VecDeque<(Time, LossRange)>,
    /// When a report was last found false.
    false_at: Option<Time>,
}

impl Doubts {
    /// Whether the report of `range` is to wait; if so, it does.
    pub fn wait(&mut self, now: Time, range: LossRange) -> bool {
        let doubtful = self.false_at.is_some_and(|at| now - at < MEMORY)
            && range.len() <= LONGEST_RUN
            && self.waiting.len() < MAX_REPORTS;
        if doubtful {
            self.waiting.push_back((now, range));
        }
        doubtful
    }

    /// What was reported up to `last` is being sent again.
    pub fn believe(&mut self, now: Time, last: Seq) {
        if self.believed.len() == MAX_REPORTS {
            self.believed.pop_front();
        }
        self.believed.push_back((now, last));
    }

    /// Everything before `next` has arrived; `least`: a time in which no retransmission is made and
    /// acknowledged.
    pub fn on_ack(&mut self, now: Time, next: Seq, least: Duration) {
        let arrived = |last: Seq| next.since(last) > 0;
        let mut refuted = false;
        while let Some((at, _)) = self.believed.front().filter(|(_, last)| arrived(*last)) {
            refuted |= now - *at < least;
            self.believed.pop_front();
        }
        let before = self.waiting.len();
        self.waiting.retain(|(_, range)| !arrived(range.last));
        refuted |= self.waiting.len() < before;
        if refuted {
            self.false_at = Some(now);
        }
    }

    /// The next report that has waited long enough.
    pub fn due(&mut self, now: Time) -> Option<LossRange> {
        let (since, range) = *self.waiting.front()?;
        (since + WAIT <= now).then(|| self.waiting.pop_front())?;
        Some(range)
    }

    /// When there is one.
    pub fn timeout(&self) -> Option<Time> {
        self.waiting.front().map(|(since, _)| *since + WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(5);

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn seq(place: u32) -> Seq {
        Seq::new(Seq::MAX - 10).plus(place)
    }

    fn range(first: u32, last: u32) -> LossRange {
        LossRange { first: seq(first), last: seq(last) }
    }

    /// Doubts of a path on which a report was false at 100 ms.
    fn doubting() -> Doubts {
        let mut doubts = Doubts::default();
        doubts.believe(at(98), seq(3));
        doubts.on_ack(at(100), seq(4), LEAST);
        doubts
    }

    #[test]
    fn reports_are_believed_until_one_is_false() {
        let mut doubts = Doubts::default();
        assert!(!doubts.wait(at(0), range(3, 3)));
        doubts.believe(at(0), seq(3));
        // The ACK takes as long as a retransmission does.
        doubts.on_ack(at(5), seq(9), LEAST);
        assert!(!doubts.wait(at(6), range(12, 12)));
        doubts.believe(at(6), seq(12));
        doubts.on_ack(at(8), seq(12), LEAST);
        assert!(!doubts.wait(at(9), range(14, 14)), "that ACK does not reach the packet");
        doubts.on_ack(at(10), seq(13), LEAST);
        assert!(doubts.wait(at(11), range(16, 16)));
    }

    #[test]
    fn a_report_waits_for_an_ack_and_then_counts() {
        let mut doubts = doubting();
        assert!(doubts.wait(at(101), range(5, 6)));
        assert!(doubts.wait(at(102), range(9, 9)));
        assert_eq!((doubts.timeout(), doubts.due(at(115))), (Some(at(116)), None));
        doubts.on_ack(at(110), seq(8), LEAST);
        assert_eq!((doubts.timeout(), doubts.due(at(116))), (Some(at(117)), None));
        assert_eq!(doubts.due(at(117)), Some(range(9, 9)));
        assert_eq!((doubts.timeout(), doubts.due(at(200))), (None, None));
    }

    #[test]
    fn long_runs_and_old_suspicions_do_not_wait() {
        let mut doubts = doubting();
        assert!(!doubts.wait(at(101), range(5, 40)));
        assert!(doubts.wait(at(10_000), range(50, 50)));
        assert!(!doubts.wait(at(10_100), range(60, 60)));
        // The one that was found false when it had waited renews the suspicion.
        doubts.on_ack(at(10_101), seq(51), LEAST);
        assert!(doubts.wait(at(20_000), range(70, 70)));
    }

    #[test]
    fn there_is_a_limit_to_what_waits() {
        let mut doubts = doubting();
        for place in 0..2 * MAX_REPORTS as u32 {
            doubts.wait(at(101), range(place, place));
            doubts.believe(at(101), seq(place));
        }
        assert_eq!((doubts.waiting.len(), doubts.believed.len()), (MAX_REPORTS, MAX_REPORTS));
    }
}
