//! Gaps in what has arrived: when one counts as a loss, and when to report it again.
//!
//! A gap may be a loss or a packet overtaken by others. It is reported (NAK) once a few more
//! packets, or a little time, have come without closing it: the tolerance, which grows with the
//! reordering seen and shrinks without (robust reordering, gu05 §2.2.6). A loss that stays is
//! reported again, at growing intervals (gu05 §2.2.3).

use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;
use farhaul_wire::{LossRange, Seq};

use crate::loss_list::LossList;

/// How often a report's interval still grows.
const LEVELS: usize = 4;
/// A gap waits no less than this for a packet overtaken, if it waits at all.
const MIN_WAIT: Duration = Duration::from_millis(2);
const MAX_WAIT: Duration = Duration::from_millis(100);
/// Packets without reordering after which the tolerance shrinks.
const CALM: u32 = 4096;

/// Reports that go with a new one, at most.
const REMINDERS: usize = 16;

/// When a loss is reported again that has been reported already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    interval: Duration,
    /// After how many intervals the first repetition comes, and the next after that, …
    after: [u32; LEVELS],
}

impl Repeat {
    /// At growing intervals, for a sender that answers each report (gu05 §2.2.3).
    pub fn growing(interval: Duration) -> Self {
        Repeat { interval, after: [1, 2, 3, 4] }
    }

    /// At equal intervals at first, for a sender that sends nothing again which may still arrive: on a path
    /// that loses 3%, one packet in a thousand is lost twice, and the ACK number waits for the
    /// slowest of a window.
    pub fn steady(interval: Duration) -> Self {
        Repeat { interval, after: [1, 1, 1, 2] }
    }

    fn wait(self, level: usize) -> Duration {
        self.interval * self.after[level]
    }
}

/// How much reordering to put up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReorderTolerance {
    /// A gap is reported once so many later packets have come: 0 is the protocol's own rule, at
    /// once.
    Fixed(u32),
    /// The tolerance follows the reordering seen, up to so many packets.
    Adaptive(u32),
}

#[derive(Debug)]
pub struct Gaps {
    loss: LossList,
    tolerance: ReorderTolerance,
    /// Packets that must follow a gap, and time that must pass, before it is reported.
    packets: u32,
    wait: Duration,
    calm: u32,
    /// Gaps not reported yet, oldest first.
    fresh: VecDeque<Fresh>,
    /// Gaps reported once, twice, …: each queue is in order of time.
    reported: [VecDeque<(LossRange, Time)>; LEVELS],
}

#[derive(Debug)]
struct Fresh {
    range: LossRange,
    /// It counts as lost when this packet has come, or at this time.
    until_seq: Seq,
    until: Time,
}

/// Packets a gap waits for before any reordering was seen: the usual three (RFC 5681).
const START: u32 = 3;

impl Gaps {
    pub fn new(tolerance: ReorderTolerance) -> Self {
        let packets = match tolerance {
            ReorderTolerance::Fixed(n) => n,
            ReorderTolerance::Adaptive(max) => START.min(max),
        };
        Gaps {
            loss: LossList::new(1024),
            tolerance,
            packets,
            wait: MIN_WAIT,
            calm: 0,
            fresh: VecDeque::new(),
            reported: Default::default(),
        }
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.loss.is_empty()
    }

    /// How many packets are missing.
    pub fn missing(&self) -> u32 {
        self.loss.len()
    }

    /// The first missing packet of `from ..= to`.
    pub fn first(&self, from: Seq, to: Seq) -> Option<Seq> {
        self.loss.first(from, to)
    }

    /// The first run of missing packets in `from ..= to`.
    pub fn next(&self, from: Seq, to: Seq) -> Option<LossRange> {
        self.loss.next_range(from, to)
    }

    /// Packets that must follow a gap before it counts as a loss.
    pub fn tolerance(&self) -> u32 {
        self.packets
    }

    /// `range` is missing, below a packet that has just come. `base`: the first packet that may be
    /// in the list; `window`: packets the list must be able to span from there.
    pub fn open(&mut self, now: Time, range: LossRange, base: Seq, window: u32) {
        self.loss.grow(window, base);
        self.loss.insert(range);
        self.fresh.push_back(Fresh {
            range,
            until_seq: range.last.plus(self.packets.max(1)),
            until: now + self.wait,
        });
    }

    /// A missing packet has come.
    pub fn close(&mut self, seq: Seq) {
        self.loss.remove(seq);
    }

    /// The sender gives up `range`.
    pub fn give_up(&mut self, range: LossRange) {
        self.loss.remove_range(range);
    }

    /// A packet turned out to have been overtaken by `distance` packets, by `late` in time.
    pub fn on_reordered(&mut self, distance: u32, late: Duration) {
        if let ReorderTolerance::Adaptive(max) = self.tolerance {
            // Half as much again: the next one may come later, and each that is taken for a loss
            // costs the sender an eighth of its rate.
            self.packets = self.packets.max(distance + distance / 2 + 1).min(max);
            self.wait = self.wait.max(late + late / 2).min(MAX_WAIT);
            self.calm = 0;
        }
    }

    /// Packets have come in order.
    pub fn on_in_order(&mut self, packets: u32) {
        self.calm += packets;
        if self.calm >= CALM {
            self.calm = 0;
            if let ReorderTolerance::Adaptive(max) = self.tolerance {
                let floor = START.min(max);
                self.packets = (self.packets - self.packets / 4).max(floor);
                self.wait = (self.wait - self.wait / 4).max(MIN_WAIT);
            }
        }
    }

    /// Appends to `out`, behind what is to be reported now, what was first reported less than `span`
    /// ago and is still missing, so that a report which the path loses costs no more time than until
    /// the next one. `base`: nothing is missing before it.
    pub fn recent(&self, now: Time, base: Seq, span: Duration, out: &mut Vec<LossRange>) {
        let mut room = REMINDERS;
        for &(range, at) in self.reported[0].iter().rev() {
            if now - at >= span || room == 0 {
                break;
            }
            // What is reported now has just been put there.
            if at == now {
                continue;
            }
            let first = if range.first.since(base) < 0 { base } else { range.first };
            if let Some(run) = self.loss.next_range(first, range.last) {
                out.push(run);
                room -= 1;
            }
        }
    }

    /// Appends to `out` what is to be reported now: gaps that have become losses, and losses
    /// reported before whose interval is over. `base`: nothing is missing before it; `highest`: the
    /// highest packet that has come.
    pub fn due(
        &mut self,
        now: Time,
        base: Seq,
        highest: Seq,
        repeat: Repeat,
        out: &mut Vec<LossRange>,
    ) {
        while let Some(gap) = self.fresh.front() {
            if highest.since(gap.until_seq) < 0 && now < gap.until {
                break;
            }
            let range = gap.range;
            self.fresh.pop_front();
            self.report(range, base, 0, now, out);
        }
        for level in 0..LEVELS {
            let interval = repeat.wait(level);
            while let Some(&(range, at)) = self.reported[level].front() {
                if now < at + interval {
                    break;
                }
                self.reported[level].pop_front();
                self.report(range, base, (level + 1).min(LEVELS - 1), now, out);
            }
        }
    }

    /// Reports what of `range` is still missing.
    fn report(
        &mut self,
        range: LossRange,
        base: Seq,
        level: usize,
        now: Time,
        out: &mut Vec<LossRange>,
    ) {
        // What lies before the base has come long ago, and the list may use its place again.
        let mut from = if range.first.since(base) < 0 { base } else { range.first };
        while let Some(run) = self.loss.next_range(from, range.last) {
            out.push(run);
            self.reported[level].push_back((run, now));
            if run.last == range.last {
                break;
            }
            from = run.last.next();
        }
    }

    /// When [`Gaps::due`] will next have something.
    pub fn timeout(&self, repeat: Repeat) -> Option<Time> {
        if self.loss.is_empty() {
            return None;
        }
        let repeats = self
            .reported
            .iter()
            .enumerate()
            .filter_map(|(level, queue)| queue.front().map(|(_, at)| *at + repeat.wait(level)));
        repeats.chain(self.fresh.front().map(|gap| gap.until)).min()
    }

    /// Forgets what it remembers of gaps that are all closed.
    pub fn tidy(&mut self) {
        if self.loss.is_empty() {
            self.fresh.clear();
            self.reported.iter_mut().for_each(VecDeque::clear);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn growing() -> Repeat {
        Repeat::growing(INTERVAL)
    }

    fn range(first: u32, last: u32) -> LossRange {
        LossRange { first: Seq::new(first), last: Seq::new(last) }
    }

    fn due(gaps: &mut Gaps, ms: u64, highest: u32) -> Vec<LossRange> {
        let mut out = Vec::new();
        gaps.due(Time::from_millis(ms), Seq::new(0), Seq::new(highest), growing(), &mut out);
        out
    }

    fn open(gaps: &mut Gaps, ms: u64, range: LossRange) {
        gaps.open(Time::from_millis(ms), range, Seq::new(0), 8192);
    }

    #[test]
    fn without_tolerance_a_gap_is_reported_at_once() {
        let mut gaps = Gaps::new(ReorderTolerance::Fixed(0));
        open(&mut gaps, 10, range(5, 7));
        assert_eq!(due(&mut gaps, 10, 8), [range(5, 7)]);
    }

    #[test]
    fn a_gap_closed_in_time_is_never_reported() {
        let mut gaps = Gaps::new(ReorderTolerance::Adaptive(64));
        open(&mut gaps, 10, range(5, 6));
        assert_eq!(due(&mut gaps, 10, 8), []);
        gaps.close(Seq::new(5));
        gaps.close(Seq::new(6));
        assert_eq!(due(&mut gaps, 11, 9), []);
        assert_eq!(gaps.timeout(growing()), None);
    }

    #[test]
    fn a_gap_is_lost_after_more_packets_or_some_time() {
        let mut gaps = Gaps::new(ReorderTolerance::Adaptive(64));
        open(&mut gaps, 10, range(5, 6));
        assert_eq!(due(&mut gaps, 10, 9), [range(5, 6)]);
        open(&mut gaps, 20, range(30, 30));
        assert_eq!(gaps.timeout(growing()), Some(Time::from_millis(22)));
        assert_eq!(due(&mut gaps, 22, 31), [range(30, 30)]);
    }

    #[test]
    fn repetitions_come_at_growing_intervals_and_name_only_what_is_missing() {
        let mut gaps = Gaps::new(ReorderTolerance::Fixed(0));
        open(&mut gaps, 0, range(10, 20));
        assert_eq!(due(&mut gaps, 0, 21), [range(10, 20)]);
        gaps.close(Seq::new(15));
        assert_eq!(due(&mut gaps, 99, 30), []);
        assert_eq!(due(&mut gaps, 100, 30), [range(10, 14), range(16, 20)]);
        assert_eq!(due(&mut gaps, 299, 30), []);
        gaps.give_up(range(10, 14));
        assert_eq!(due(&mut gaps, 300, 30), [range(16, 20)]);
        assert_eq!(due(&mut gaps, 599, 30), []);
        assert_eq!(due(&mut gaps, 600, 30), [range(16, 20)]);
        assert_eq!(due(&mut gaps, 1_000, 30), [range(16, 20)]);
        assert_eq!(due(&mut gaps, 1_400, 30), [range(16, 20)], "no longer than four intervals");
    }

    #[test]
    fn a_sender_that_waits_for_what_it_has_sent_again_is_told_at_equal_intervals() {
        let mut gaps = Gaps::new(ReorderTolerance::Fixed(0));
        open(&mut gaps, 0, range(10, 10));
        let repeat = Repeat::steady(INTERVAL);
        let mut told = Vec::new();
        for ms in 0..800 {
            let mut out = Vec::new();
            gaps.due(Time::from_millis(ms), Seq::new(0), Seq::new(20), repeat, &mut out);
            told.extend(out.iter().map(|_| ms));
        }
        assert_eq!(told, [0, 100, 200, 300, 500, 700]);
    }

    /// With a new report go those of the last half of a round trip, and nothing that has come since.
    #[test]
    fn a_new_report_reminds_of_those_just_before() {
        let mut gaps = Gaps::new(ReorderTolerance::Fixed(0));
        let recent = |gaps: &Gaps, ms| {
            let mut out = Vec::new();
            let span = Duration::from_millis(20);
            gaps.recent(Time::from_millis(ms), Seq::new(0), span, &mut out);
            out
        };
        for (ms, first) in [(0, 5), (10, 10), (15, 20), (25, 30)] {
            open(&mut gaps, ms, range(first, first + 2));
            due(&mut gaps, ms, first + 3);
        }
        assert_eq!(recent(&gaps, 25), [range(20, 22), range(10, 12)]);
        gaps.close(Seq::new(20));
        gaps.give_up(range(10, 12));
        assert_eq!(recent(&gaps, 25), [range(21, 22)]);
        // However many there are.
        for first in 20..60 {
            open(&mut gaps, 26, range(4 * first, 4 * first));
            due(&mut gaps, 26, 4 * first + 1);
        }
        assert_eq!(recent(&gaps, 27).len(), REMINDERS);
    }

    #[test]
    fn tolerance_follows_the_reordering_seen() {
        let mut gaps = Gaps::new(ReorderTolerance::Adaptive(64));
        gaps.on_reordered(20, Duration::from_millis(8));
        assert_eq!((gaps.tolerance(), gaps.wait), (31, Duration::from_millis(12)));
        gaps.on_reordered(500, Duration::from_secs(1));
        assert_eq!((gaps.tolerance(), gaps.wait), (64, MAX_WAIT));
        for _ in 0..100 {
            gaps.on_in_order(CALM);
        }
        assert_eq!((gaps.tolerance(), gaps.wait), (START, MIN_WAIT));
        let mut fixed = Gaps::new(ReorderTolerance::Fixed(2));
        fixed.on_reordered(20, Duration::ZERO);
        assert_eq!(fixed.tolerance(), 2);
    }
}
