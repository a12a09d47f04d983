//! Back-off below the least window, whatever the law says.
//!
//! No law here goes below [`LEAST_WINDOW`](farhaul_control::LEAST_WINDOW) packets a round trip, and
//! where a path has no room for that much of every flow, it would carry little else than packets that are
//! lost: congestion collapse (RFC 9743 §5.1.1, RFC 8085 §3.1). There a flow may send at most at the rate
//! of the TCP throughput equation at the loss event rate that it measures (RFC 5348 §3.1), and while
//! losses follow each other without an arrival the spacing of its packets doubles, as a
//! retransmission time-out of TCP does.
//!
//! Losses of what left before the first was heard of are one event, so that the rate of events is at most
//! one over the packets sent in a round trip: a flow that has more than a few tens of packets under way is
//! never held back, nor is one on a path with random loss at a usual rate.

use core::time::Duration;

use farhaul_base::Time;

/// Weights of the last loss intervals in their mean, the newest first (RFC 5348 §5.4).
const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
/// Of two events in a row that each take more than one packet, and more than this share of those to the next
/// event, the second says as much of the path as [`HEAVY_SLOTS`] events that take one each. One alone may
/// be a path that was away for a moment.
const HEAVY: f64 = 0.1;
const HEAVY_SLOTS: usize = 7;
/// The least weight of what was before, while nothing is lost (RFC 5348 §5.5).
const LEAST_DISCOUNT: f64 = 0.25;
/// No higher loss event rate goes into the equation: beyond it, time-outs that double are most of what it has, and those
/// are counted here one by one.
const MOST_RATE: f64 = 0.4;
/// The retransmission time-out in the equation, in round trips (RFC 5348 §3.1).
const TIMEOUT_ROUNDS: f64 = 4.0;
/// And at least so much, for TCP's has a floor (200 ms in Linux), and on shorter paths the equation would grant
/// more than a TCP takes.
const LEAST_TIMEOUT_S: f64 = 0.05;
/// The equation is in force in full from so many times the tolerated rate beyond that.
const IN_FORCE: f64 = 0.3;
/// The longest spacing of packets.
const LONGEST_PERIOD_NS: f64 = 4e9;
/// Doublings of the spacing, at most: beyond them it is the longest anyway.
const MOST_DOUBLINGS: u32 = 14;

#[derive(Debug)]
pub struct Backoff {
    /// The loss event rate up to which the law alone decides.
    tolerated: f64,
    /// Packets that arrived from one loss event to the next, and one; the newest first.
    intervals: [f64; 8],
    /// Packets that have arrived since the last event.
    open: f64,
    /// When the last event was first heard of.
    event_at: Option<Time>,
    /// Packets that the last event took.
    lost: u32,
    /// The event before the last was heavy.
    heavy: bool,
    /// Events since the last arrival.
    in_a_row: u32,
    /// There has been an event before the last one: one makes no rate.
    repeated: bool,
    /// The mean of the closed intervals is shorter than tolerated.
    engaged: bool,
}

impl Backoff {
    /// `tolerated`: see [`Backoff::set_tolerated`].
    pub fn new(tolerated: f64) -> Self {
        Backoff {
            tolerated,
            // Those before the first are taken to be as long as is tolerated.
            intervals: [1.0 / tolerated; 8],
            open: 0.0,
            event_at: None,
            lost: 0,
            heavy: false,
            in_a_row: 0,
            repeated: false,
            engaged: false,
        }
    }

    /// The loss event rate, from 0 to 1, up to which the law alone decides; 1 switches it off.
    /// Returns whether that is new; the events of before are then forgotten.
    pub fn set_tolerated(&mut self, tolerated: f64) -> bool {
        let new = tolerated != self.tolerated;
        if new {
            *self = Backoff::new(tolerated);
        }
        new
    }

    /// Whether it holds packets back.
    pub fn is_engaged(&self) -> bool {
        self.engaged && self.tolerated < 1.0
    }

    /// `packets` have arrived. Returns whether [`Backoff::period_ns`] may have changed.
    pub fn on_arrived(&mut self, packets: u64) -> bool {
        if packets == 0 {
            return false;
        }
        self.open += packets as f64;
        let changed = self.engaged;
        self.in_a_row = 0;
        if changed {
            self.engaged = self.loss_event_rate() > self.tolerated;
        }
        changed
    }

    /// At `now` it is heard that `packets` are lost, of which the first left at `first`.
    pub fn on_lost(&mut self, now: Time, packets: u32, first: Time) {
        // What left before an event was heard of is part of it: neither law nor back-off could have answered
        // it. A smoothed round-trip time would not do for RFC 5348's round trip: it lags behind a queue
        // that a start fills.
        if self.event_at.is_none_or(|heard| first > heard) {
            let heavy =
                self.lost > 1 && f64::from(self.lost) > HEAVY * (self.open + f64::from(self.lost));
            let slots = if heavy && self.heavy { HEAVY_SLOTS } else { 1 };
            self.heavy = heavy;
            self.intervals.rotate_right(slots);
            let interval = core::mem::take(&mut self.open) + 1.0;
            self.intervals[..slots].fill(interval);
            self.lost = 0;
            self.repeated = self.event_at.is_some();
            self.event_at = Some(now);
            self.in_a_row = (self.in_a_row + 1).min(MOST_DOUBLINGS);
        }
        self.lost += packets;
        self.engaged = self.repeated && self.loss_event_rate() > self.tolerated;
    }

    /// One over the mean loss interval (RFC 5348 §5.4). What was before counts the less, the longer nothing has
    /// been lost (§5.5): where a path has recovered a flow is to notice while it sends little.
    fn loss_event_rate(&self) -> f64 {
        let sum = |intervals: &[f64], weights: &[f64]| -> f64 {
            intervals.iter().zip(weights).map(|(interval, weight)| interval * weight).sum()
        };
        let total: f64 = WEIGHTS.iter().sum();
        let closed = sum(&self.intervals, &WEIGHTS) / total;
        let discount = (2.0 * closed / self.open).clamp(LEAST_DISCOUNT, 1.0);
        let (newest, before) = (WEIGHTS[0], &WEIGHTS[1..]);
        let with_open = newest * self.open + discount * sum(&self.intervals[..7], before);
        let weight = newest + discount * (total - newest);
        1.0 / closed.max(with_open / weight)
    }

    /// The least spacing of packets on a path of this round-trip time, nanoseconds; 0 if the law alone
    /// decides.
    pub fn period_ns(&self, rtt: Duration) -> f64 {
        if !self.is_engaged() {
            return 0.0;
        }
        let p = self.loss_event_rate().min(MOST_RATE);
        let rtt = rtt.as_secs_f64();
        let timeout = (TIMEOUT_ROUNDS * rtt).max(LEAST_TIMEOUT_S);
        // RFC 5348 §3.1 with b = 2.
        let spacing = rtt * (4.0 * p / 3.0).sqrt()
            + timeout * (3.0 * (3.0 * p / 4.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
        let beyond = (p - self.tolerated) / (IN_FORCE * self.tolerated);
        let doubled = f64::from(1u32 << self.in_a_row.saturating_sub(1));
        (spacing * beyond.clamp(0.0, 1.0) * doubled * 1e9).min(LONGEST_PERIOD_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    fn at(ms: u64) -> Time {
        Time::from_millis(1000 + ms)
    }

    /// `rounds` round trips with so many packets each, of which `lost` are lost together.
    fn run(backoff: &mut Backoff, rounds: u64, packets: u64, lost: u32) {
        let begin = backoff.event_at.map_or(at(0), |before| before + RTT);
        for round in 0..rounds {
            let sent = begin + 2 * RTT * round as u32;
            backoff.on_arrived(packets - u64::from(lost));
            if lost > 0 {
                backoff.on_lost(sent + RTT, lost, sent);
            }
        }
    }

    #[test]
    fn few_packets_a_round_trip_and_losses_in_each_are_held_back() {
        let mut backoff = Backoff::new(0.05);
        run(&mut backoff, 1, 4, 2);
        assert_eq!(backoff.period_ns(RTT), 0.0, "one event is no rate");
        run(&mut backoff, 20, 4, 2);
        // p = 1/3: 0.67 RTT + 80 ms · 1.5.
        let period = backoff.period_ns(RTT);
        assert!((20e6..200e6).contains(&period), "{period}");
    }

    #[test]
    fn a_wide_flow_is_never_held_back() {
        let mut backoff = Backoff::new(0.05);
        run(&mut backoff, 100, 40, 20);
        assert_eq!(backoff.period_ns(RTT), 0.0, "half of it is lost, at once");
    }

    #[test]
    fn arrivals_without_losses_give_it_back_to_the_law() {
        let mut backoff = Backoff::new(0.05);
        run(&mut backoff, 50, 4, 2);
        let mut before = backoff.period_ns(RTT);
        let mut arrivals = 0;
        while before > 0.0 {
            backoff.on_arrived(1);
            let period = backoff.period_ns(RTT);
            assert!(period <= before, "{period} after {before}");
            before = period;
            arrivals += 1;
        }
        assert!((20..=120).contains(&arrivals), "{arrivals}");
    }

    /// A token bucket that is empty takes most of what a start sends, and then nothing more: what was lost is
    /// not to be repaired at a packet every four seconds.
    #[test]
    fn a_path_that_takes_no_more_is_used_again_within_seconds() {
        let mut backoff = Backoff::new(0.05);
        run(&mut backoff, 20, 20, 18);
        run(&mut backoff, 20, 2, 1);
        let (rtt, mut seconds, mut arrivals) = (Duration::from_millis(78), 0.0, 0);
        while backoff.is_engaged() {
            seconds += backoff.period_ns(rtt) / 1e9;
            backoff.on_arrived(1);
            arrivals += 1;
        }
        assert!(seconds < 10.0 && arrivals < 60, "{seconds} s, {arrivals} packets");
    }

    #[test]
    fn losses_in_a_row_double_the_spacing_and_an_arrival_ends_that() {
        let mut backoff = Backoff::new(0.05);
        run(&mut backoff, 50, 1, 1);
        assert_eq!(backoff.period_ns(RTT), LONGEST_PERIOD_NS);
        backoff.on_arrived(1);
        assert!(backoff.period_ns(RTT) < 3e9, "{}", backoff.period_ns(RTT));
    }

    #[test]
    fn a_law_that_answers_for_its_losses_is_left_alone() {
        let mut backoff = Backoff::new(1.0);
        run(&mut backoff, 50, 1, 1);
        assert_eq!(backoff.period_ns(RTT), 0.0);
    }

    /// Neither the law nor the back-off could have answered before the first was heard of.
    #[test]
    fn what_left_before_an_event_was_heard_of_is_part_of_it() {
        let mut backoff = Backoff::new(0.05);
        backoff.on_arrived(7);
        backoff.on_lost(at(140), 10, at(0));
        backoff.on_lost(at(150), 20, at(139));
        assert_eq!(backoff.intervals[..2], [8.0, 20.0]);
        // Four fifths and more were lost, twice in a row: that counts seven times.
        backoff.on_arrived(3);
        backoff.on_lost(at(170), 9, at(151));
        assert_eq!(backoff.intervals[..3], [4.0, 8.0, 20.0], "once may be a path that was away");
        backoff.on_arrived(2);
        backoff.on_lost(at(190), 1, at(171));
        assert_eq!(backoff.intervals, [3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 4.0]);
    }
}
