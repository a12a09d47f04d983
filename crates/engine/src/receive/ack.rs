//! When to acknowledge, and the round trips that acknowledgements measure.

use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;
use farhaul_control::SYN;
use farhaul_wire::{AckSeq, Seq};

/// ACKs whose ACK2 may still come: so many full ones, which the peer answers all, at one a SYN
/// interval on a path of 80 s, and so many small ones, of which it answers few.
const FULL_HISTORY: usize = 8192;
const SMALL_HISTORY: usize = 256;
/// A light ACK after every so many packets (gu05 §5.2), at most one a receive batch.
const LIGHT_INTERVAL: u32 = 64;
/// A numbered ACK is at least so many packets after the one before, but where a timer asks for it.
const LEAST_INTERVAL: u32 = 8;
/// While a hole stands and data comes, the round trip is measured so often.
const RTT_MEASURED_EACH: Duration = SYN.saturating_mul(2);
/// An unconfirmed ACK is repeated, at doubling intervals up to this.
const LONGEST_REPEAT: Duration = Duration::from_secs(2);
/// After a packet that ends a burst, the ACK follows at once, but not more often than this, unless
/// [`LEAST_INTERVAL`] packets have come: the window that the peer begins with is 16.
const SHORTEST_GAP: Duration = Duration::from_micros(100);

/// The three forms of an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckForm {
    /// The number alone; neither answered nor repeated.
    Light,
    /// What has arrived behind a hole; no ACK, for the number stands still.
    Beyond,
    /// With RTT and flow window.
    Small(AckSeq),
    /// With arrival speed and link capacity as well: at most one a SYN interval.
    Full(AckSeq),
}

/// An ACK that may be answered: its own number, what it acknowledged, and when.
#[derive(Clone, Copy, Debug)]
struct Sent {
    ack_seq: AckSeq,
    point: Seq,
    at: Time,
}

#[derive(Debug)]
pub struct AckSchedule {
    next: AckSeq,
    /// The largest number in an ACK of any form, in a numbered one, and confirmed by an ACK2.
    sent: Seq,
    numbered: Seq,
    confirmed: Seq,
    numbered_at: Time,
    /// When anything was last told.
    told_at: Time,
    full_at: Option<Time>,
    repeats: u32,
    /// The peer sends what it has been told has arrived.
    doubted: bool,
    full: VecDeque<Sent>,
    small: VecDeque<Sent>,
    /// Data packets since the last ACK of any form and since the last numbered one.
    packets: u32,
    packets_numbered: u32,
    /// A numbered ACK is due then.
    due: Option<Time>,
    /// Send one even if the number has not moved: the window has opened.
    forced: bool,
    /// Tell the number again.
    restated: bool,
}

impl AckSchedule {
    /// `isn`: the first sequence number to expect.
    pub fn new(now: Time, isn: Seq) -> Self {
        AckSchedule {
            next: AckSeq::new(1),
            sent: isn,
            numbered: isn,
            confirmed: isn,
            numbered_at: now,
            told_at: now,
            full_at: None,
            repeats: 0,
            doubted: false,
            full: VecDeque::new(),
            small: VecDeque::new(),
            packets: 0,
            packets_numbered: 0,
            due: None,
            forced: false,
            restated: false,
        }
    }

    /// Starts ACK sequence numbers at `next` (tests of the wrap).
    pub fn set_next(&mut self, next: AckSeq) {
        self.next = next;
    }

    /// Data packets have arrived, the last perhaps at the end of a burst.
    pub fn on_data(&mut self, now: Time, packets: u32, period: Duration, burst_ends: bool) {
        self.packets = self.packets.saturating_add(packets);
        self.packets_numbered = self.packets_numbered.saturating_add(packets);
        let wait = match burst_ends {
            true if self.packets_numbered >= LEAST_INTERVAL => Duration::ZERO,
            true => SHORTEST_GAP,
            false => period.min(SYN),
        };
        let due = now.max(self.numbered_at + wait);
        self.due = Some(self.due.map_or(due, |d| d.min(due)));
    }

    /// A packet has come again: the peer may not have heard of it.
    pub fn on_duplicate(&mut self) {
        self.doubted = true;
    }

    /// The receiver's buffer has room again that the peer does not know of.
    pub fn on_window_opened(&mut self) {
        self.forced = true;
    }

    /// The number is to be told again, as a sign of life that tells the peer more than that: see
    /// [`disowned`](crate::connection).
    pub fn restate(&mut self) {
        self.restated = true;
    }

    /// When anything was last told.
    pub fn told_at(&self) -> Time {
        self.told_at
    }

    /// The connection ends: what has arrived up to `point` and is not confirmed to be known to the
    /// peer is acknowledged now.
    pub fn settle(&mut self, point: Seq) {
        self.forced |= point.since(self.confirmed) > 0;
    }

    /// The ACK to send now, if any, when everything before `point` has arrived. `interval`: after
    /// so many packets a law of either end wants one, or 0; `window`: packets advertised; `beyond`:
    /// there is a hole, and the peer understands what comes behind it.
    pub fn poll(
        &mut self,
        now: Time,
        point: Seq,
        repeat_after: Duration,
        interval: u32,
        window: u32,
        beyond: bool,
    ) -> Option<AckForm> {
        let news = point.since(self.numbered) > 0;
        // The window must open before it is used up, or the sender stalls: at high rates that is
        // many times in a SYN interval.
        let enough = (window / 4).max(LEAST_INTERVAL);
        // What a law wants to know besides is the number alone (gu05 §5.2).
        let light = if interval > 0 { interval } else { LIGHT_INTERVAL.max(enough / 2) };
        let timer = self.due.is_some_and(|due| now >= due);
        if timer {
            self.due = None;
        }
        if news && (timer || self.packets_numbered >= enough) || core::mem::take(&mut self.forced) {
            return Some(self.number(now, point));
        }
        if !news && self.unconfirmed(point) && now >= self.repeat_at(repeat_after) {
            self.repeats += 1;
            return Some(self.number(now, point));
        }
        // A hole may stand for many round trips, and the time after which losses are reported again rests on the
        // round trip that only the answers to numbered ACKs measure.
        if beyond && self.packets > 0 && now >= self.numbered_at + RTT_MEASURED_EACH {
            return Some(self.number(now, point));
        }
        if core::mem::take(&mut self.restated)
            || self.packets >= light && point.since(self.sent) > 0
        {
            self.packets = 0;
            self.sent = point;
            self.told_at = now;
            return Some(AckForm::Light);
        }
        if beyond
            && self.packets > 0
            && (self.packets >= light.min(enough) || now >= self.told_at + SYN)
        {
            self.packets = 0;
            self.told_at = now;
            return Some(AckForm::Beyond);
        }
        None
    }

    fn number(&mut self, now: Time, point: Seq) -> AckForm {
        if point != self.numbered {
            self.repeats = 0;
        }
        let ack_seq = self.next;
        self.next = ack_seq.next();
        self.sent = point;
        self.numbered = point;
        self.numbered_at = now;
        self.told_at = now;
        self.packets = 0;
        self.packets_numbered = 0;
        self.due = None;
        self.doubted = false;
        self.restated = false;
        let sent = Sent { ack_seq, point, at: now };
        if self.full_at.is_none_or(|at| now - at >= SYN) {
            self.full_at = Some(now);
            remember(&mut self.full, sent, FULL_HISTORY);
            AckForm::Full(ack_seq)
        } else {
            remember(&mut self.small, sent, SMALL_HISTORY);
            AckForm::Small(ack_seq)
        }
    }

    /// Whether an ACK of this number can have been sent: it is not ahead of the last.
    pub fn has_sent(&self, ack_seq: AckSeq) -> bool {
        let behind = self.next.value().wrapping_sub(ack_seq.value()) & Seq::MAX;
        (1..=Seq::MAX / 2).contains(&behind)
    }

    /// An ACK2 answers `ack_seq`: the round trip it took, unless it answers none of ours.
    pub fn on_ack2(&mut self, now: Time, ack_seq: AckSeq) -> Option<Duration> {
        let sent = recall(&mut self.full, ack_seq).or(recall(&mut self.small, ack_seq))?;
        if sent.point.since(self.confirmed) > 0 {
            self.confirmed = sent.point;
        }
        Some(now - sent.at)
    }

    /// When [`AckSchedule::poll`] will next have something to send if nothing more arrives; `beyond`
    /// as there.
    pub fn timeout(&self, point: Seq, repeat_after: Duration, beyond: bool) -> Option<Time> {
        if self.forced || self.restated {
            return Some(Time::ZERO);
        }
        let beyond = (beyond && self.packets > 0).then_some(self.told_at + SYN);
        let own = if point.since(self.numbered) > 0 {
            self.due
        } else {
            self.unconfirmed(point).then(|| self.repeat_at(repeat_after))
        };
        own.into_iter().chain(beyond).min()
    }

    fn unconfirmed(&self, point: Seq) -> bool {
        point == self.numbered && point.since(self.confirmed) > 0
    }

    fn repeat_at(&self, after: Duration) -> Time {
        if self.doubted {
            return self.numbered_at + SYN;
        }
        self.numbered_at + (after * (1 << self.repeats.min(6))).min(LONGEST_REPEAT.max(after))
    }
}

fn remember(history: &mut VecDeque<Sent>, sent: Sent, most: usize) {
    if history.len() == most {
        history.pop_front();
    }
    history.push_back(sent);
}

/// The ACK of that number; those before it are forgotten with it.
fn recall(history: &mut VecDeque<Sent>, ack_seq: AckSeq) -> Option<Sent> {
    let oldest = history.front()?.ack_seq.value();
    // Numbers wrap, and lie in order from the oldest on.
    let distance = |seq: AckSeq| seq.value().wrapping_sub(oldest) & Seq::MAX;
    let index =
        history.binary_search_by_key(&distance(ack_seq), |sent| distance(sent.ack_seq)).ok()?;
    history.drain(..=index).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);

    fn poll(acks: &mut AckSchedule, ms: u64, point: u32) -> Option<AckForm> {
        acks.poll(Time::from_millis(ms), Seq::new(point), RTT, 0, 8192, false)
    }

    #[test]
    fn one_numbered_ack_each_syn_interval() {
        let mut acks = AckSchedule::new(Time::ZERO, Seq::new(0));
        acks.on_data(Time::from_millis(100), 3, SYN, false);
        assert_eq!(poll(&mut acks, 100, 3), Some(AckForm::Full(AckSeq::new(1))));
        acks.on_data(Time::from_millis(102), 3, SYN, false);
        assert_eq!(poll(&mut acks, 102, 6), None);
        assert_eq!(acks.timeout(Seq::new(6), RTT, false), Some(Time::from_millis(110)));
        assert_eq!(poll(&mut acks, 110, 6), Some(AckForm::Full(AckSeq::new(2))));
        // A burst ends: at once, and small.
        acks.on_data(Time::from_millis(112), 1, SYN, true);
        assert_eq!(poll(&mut acks, 112, 7), Some(AckForm::Small(AckSeq::new(3))));
    }

    #[test]
    fn many_packets_bring_light_and_numbered_acks() {
        let mut acks = AckSchedule::new(Time::ZERO, Seq::new(0));
        let now = Time::from_millis(1);
        let mut forms = Vec::new();
        for batch in 1..=100u32 {
            acks.on_data(now, 44, SYN, false);
            forms.extend(acks.poll(now, Seq::new(batch * 44), RTT, 0, 4096, false));
        }
        let light = forms.iter().filter(|f| **f == AckForm::Light).count();
        assert_eq!((light, forms.len() - light), (4, 4), "{forms:?}");
    }

    #[test]
    fn a_law_may_ask_for_an_ack_each_n_packets() {
        let mut acks = AckSchedule::new(Time::ZERO, Seq::new(0));
        let now = Time::from_millis(1);
        for n in 1..=10u32 {
            acks.on_data(now, 1, SYN, false);
            let form = acks.poll(now, Seq::new(n), RTT, 2, 4096, false);
            let expected = n.is_multiple_of(2).then_some(AckForm::Light);
            assert_eq!(form, expected, "{n}");
        }
        // The buffers' turn comes with the timer.
        acks.on_data(Time::from_millis(10), 1, SYN, false);
        let form = acks.poll(Time::from_millis(10), Seq::new(11), RTT, 2, 4096, false);
        assert_eq!(form, Some(AckForm::Full(AckSeq::new(1))));
    }

    #[test]
    fn an_unconfirmed_ack_is_repeated_with_backoff_until_its_ack2() {
        let mut acks = AckSchedule::new(Time::ZERO, Seq::new(0));
        acks.on_data(Time::from_millis(100), 3, SYN, false);
        assert!(poll(&mut acks, 100, 3).is_some());
        assert_eq!(poll(&mut acks, 149, 3), None);
        assert_eq!(poll(&mut acks, 150, 3), Some(AckForm::Full(AckSeq::new(2))));
        assert_eq!(acks.timeout(Seq::new(3), RTT, false), Some(Time::from_millis(250)));
        let rtt = acks.on_ack2(Time::from_millis(190), AckSeq::new(2));
        assert_eq!(rtt, Some(Duration::from_millis(40)));
        assert_eq!(acks.timeout(Seq::new(3), RTT, false), None);
        assert_eq!(acks.on_ack2(Time::from_millis(190), AckSeq::new(2)), None, "answered already");
        assert_eq!(acks.on_ack2(Time::from_millis(190), AckSeq::new(99)), None, "never sent");
    }

    /// Satellites, and queues of seconds: the round trip is measured however many ACKs are under way.
    #[test]
    fn round_trips_of_many_seconds() {
        let mut acks = AckSchedule::new(Time::ZERO, Seq::new(0));
        for n in 1..=1_000u32 {
            acks.on_data(Time::from_millis(10 * u64::from(n)), 3, SYN, false);
            assert!(poll(&mut acks, 10 * u64::from(n), 3 * n).is_some());
        }
        let rtt = acks.on_ack2(Time::from_millis(10_010), AckSeq::new(1));
        assert_eq!(rtt, Some(Duration::from_secs(10)));
        let rtt = acks.on_ack2(Time::from_millis(10_070), AckSeq::new(7));
        assert_eq!(rtt, Some(Duration::from_secs(10)));
        assert_eq!(acks.on_ack2(Time::from_millis(10_080), AckSeq::new(7)), None);
        assert_eq!(acks.on_ack2(Time::from_millis(10_080), AckSeq::new(2)), None, "overtaken");
    }

    /// The number stands still, and the round trip is measured all the same.
    #[test]
    fn behind_a_hole_round_trips_are_measured() {
        let mut acks = AckSchedule::new(Time::ZERO, Seq::new(0));
        let mut numbered = 0;
        for ms in 1..=100 {
            let now = Time::from_millis(ms);
            acks.on_data(now, 5, SYN, false);
            match acks.poll(now, Seq::new(0), RTT, 0, 8192, true) {
                Some(AckForm::Full(number) | AckForm::Small(number)) => {
                    let rtt = acks.on_ack2(now + RTT, number);
                    assert_eq!(rtt, Some(RTT));
                    numbered += 1;
                }
                Some(AckForm::Light) => panic!("the number stands still"),
                Some(AckForm::Beyond) | None => {}
            }
        }
        assert_eq!(numbered, 5);
        // Nothing comes, nothing is told.
        assert_eq!(acks.timeout(Seq::new(0), RTT, true), None);
    }

    #[test]
    fn an_opened_window_is_told_once() {
        let mut acks = AckSchedule::new(Time::ZERO, Seq::new(0));
        acks.on_window_opened();
        assert!(poll(&mut acks, 5, 0).is_some());
        assert_eq!(poll(&mut acks, 6, 0), None);
    }

    #[test]
    fn a_number_that_is_told_again_is_told_lightly_and_once() {
        let mut acks = AckSchedule::new(Time::ZERO, Seq::new(0));
        acks.restate();
        assert_eq!(acks.timeout(Seq::new(0), RTT, false), Some(Time::ZERO));
        assert_eq!(poll(&mut acks, 3_000, 0), Some(AckForm::Light));
        assert_eq!((acks.told_at(), poll(&mut acks, 3_001, 0)), (Time::from_secs(3), None));
        // A numbered one that is due tells it as well.
        acks.restate();
        acks.on_data(Time::from_secs(6), 1, SYN, false);
        assert_eq!(poll(&mut acks, 6_000, 1), Some(AckForm::Full(AckSeq::new(1))));
        assert_eq!(poll(&mut acks, 6_001, 1), None);
    }

    #[test]
    fn the_end_settles_what_is_not_confirmed() {
        let mut acks = AckSchedule::new(Time::ZERO, Seq::new(0));
        acks.settle(Seq::new(0));
        assert_eq!(poll(&mut acks, 1, 0), None, "nothing has come");
        acks.on_data(Time::from_millis(1), 3, SYN, false);
        assert_eq!(poll(&mut acks, 2, 3), None, "not due yet");
        acks.settle(Seq::new(3));
        assert_eq!(poll(&mut acks, 2, 3), Some(AckForm::Full(AckSeq::new(1))));
        acks.settle(Seq::new(3));
        assert_eq!(poll(&mut acks, 3, 3), Some(AckForm::Small(AckSeq::new(2))), "not confirmed");
        acks.on_ack2(Time::from_millis(4), AckSeq::new(2));
        acks.settle(Seq::new(3));
        assert_eq!(poll(&mut acks, 5, 3), None);
    }

    #[test]
    fn ack_numbers_wrap() {
        let mut acks = AckSchedule::new(Time::ZERO, Seq::new(Seq::MAX - 3));
        acks.set_next(AckSeq::new(0x7fff_ffff));
        for n in 1..=6u32 {
            let now = Time::from_millis(u64::from(n) * 20);
            acks.on_data(now, 1, SYN, false);
            let point = Seq::new(Seq::MAX - 3).plus(n);
            let form = acks.poll(now, point, RTT, 0, 8192, false);
            let seq = AckSeq::new(if n == 1 { 0x7fff_ffff } else { n - 2 });
            assert_eq!(form, Some(AckForm::Full(seq)));
            assert_eq!(acks.on_ack2(now, seq), Some(Duration::ZERO));
        }
    }
}
