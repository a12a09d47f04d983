//! What happens to a packet between the end of its transmission and its arrival.
//!
//! Everything is drawn when the transmission ends, from one stream of random numbers per
//! impairment. So the fate of the n-th packet does not depend on when the link is asked, and turning
//! one impairment on leaves the draws of the others as they were.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};

use farhaul_base::{Rng, Time};

use crate::fate::Cause;
use crate::jitter::Additions;
use crate::loss::LossProcess;
use crate::slots::SlotTimes;
use crate::{
    Blackout, DelayChanges, Displacement, LinkConfig, LinkStats, Packet, Probability, Reorder,
};

#[derive(Clone, Debug)]
pub(crate) struct Wire<P> {
    delay: Duration,
    delay_changes: DelayChanges,
    /// Of all the delays the shortest.
    least_ns: u64,
    /// How many changes of delay the last packet had seen.
    changes: u64,
    jitter: Additions,
    slots: Option<SlotTimes>,
    reorder: Option<Reorder>,
    /// Packets since one has come early.
    since_ahead: u32,
    duplicate: Probability,
    corrupt: Probability,
    blackouts: Vec<Blackout>,
    loss: LossProcess,
    rngs: Rngs,
    /// Arrivals in ascending order. On most links these are all there are, and cheap.
    in_order: VecDeque<Arrival<P>>,
    /// The other arrivals.
    others: BinaryHeap<Reverse<Arrival<P>>>,
    /// Held back until others have passed.
    held: VecDeque<Held<P>>,
    /// Bytes of all packets that have not been handed out.
    bytes: u64,
    /// Latest arrival of a packet in order.
    latest: Time,
    /// Number of the latest arrival: equal times keep the order in which they were decided.
    last_number: u64,
    /// The highest number of those handed out that reordering has not chosen.
    highest_out: u64,
}

#[derive(Clone, Debug)]
struct Rngs {
    reorder: Rng,
    duplicate: Rng,
    corrupt: Rng,
}

#[derive(Clone, Debug)]
struct Arrival<P> {
    at: Time,
    number: u64,
    /// By reordering, and so counted.
    chosen: bool,
    packet: P,
}

#[derive(Clone, Debug)]
struct Held<P> {
    packet: P,
    /// How many are still to pass; at least 1.
    to_pass: u32,
    /// Arrives then at the latest.
    deadline: Time,
}

impl<P: Packet> Wire<P> {
    /// Takes its streams from `seeds`.
    pub(crate) fn new(config: &LinkConfig, seeds: &mut Rng) -> Self {
        let loss = LossProcess::new(&config.loss, seeds.fork());
        Wire {
            delay: config.delay,
            delay_changes: config.delay_changes.clone(),
            least_ns: u64::try_from(least_delay(config).as_nanos()).unwrap_or(u64::MAX),
            changes: 0,
            jitter: Additions::new(config.jitter, seeds.fork()),
            slots: None,
            reorder: config.reorder,
            since_ahead: 0,
            duplicate: config.duplicate,
            corrupt: config.corrupt,
            blackouts: config.blackouts.clone(),
            loss,
            rngs: Rngs { reorder: seeds.fork(), duplicate: seeds.fork(), corrupt: seeds.fork() },
            in_order: VecDeque::new(),
            others: BinaryHeap::new(),
            held: VecDeque::new(),
            bytes: 0,
            latest: Time::ZERO,
            last_number: 0,
            highest_out: 0,
        }
    }

    /// Packets arrive at these times only. Of a wire that has taken no packet yet.
    pub(crate) fn set_slots(&mut self, slots: SlotTimes) {
        self.slots = Some(slots);
    }

    /// No packet arrives earlier than this after the end of its transmission.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.least_ns
    }

    /// Takes a packet of `bytes` whose transmission ended at `sent_at`; calls are in this order.
    /// Hands it back if it is lost.
    pub(crate) fn send(
        &mut self,
        sent_at: Time,
        packet: P,
        bytes: usize,
        stats: &mut LinkStats,
    ) -> Result<(), (Cause, P)> {
        stats.transmitted_bytes += bytes as u64;
        if self.loss.loses(bytes) {
            return Err((Cause::Loss, packet));
        }
        if self.blackouts.iter().any(|blackout| blackout.covers(sent_at)) {
            return Err((Cause::Blackout, packet));
        }
        let copy = self.rngs.duplicate.chance(self.duplicate.value()).then(|| packet.clone());
        self.propagate(sent_at, packet, stats);
        if let Some(copy) = copy {
            stats.duplicated += 1;
            self.propagate(sent_at, copy, stats);
        }
        Ok(())
    }

    /// The next packet that has arrived by `now`, and when it did.
    pub(crate) fn poll(&mut self, now: Time, stats: &mut LinkStats) -> Option<(Time, P)> {
        self.release_held(now);
        if self.next_arrival()? > now {
            return None;
        }
        let arrival = if self.others_are_next() {
            self.others.pop().map(|Reverse(arrival)| arrival)
        } else {
            self.in_order.pop_front()
        };
        let Arrival { at, number, chosen, packet } = arrival?;
        if !chosen {
            // The numbers of these are in the order in which they were sent.
            stats.reordered += u64::from(number < self.highest_out);
            self.highest_out = self.highest_out.max(number);
        }
        self.bytes -= packet.wire_len() as u64;
        Some((at, packet))
    }

    /// When the next packet arrives, as far as it is known.
    pub(crate) fn next_event(&self) -> Option<Time> {
        let held = self.held.iter().map(|held| held.deadline).min();
        self.next_arrival().into_iter().chain(held).min()
    }

    /// The packets that have not been handed out.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &P> {
        let others = self.others.iter().map(|Reverse(arrival)| arrival);
        let arrivals = self.in_order.iter().chain(others).map(|arrival| &arrival.packet);
        arrivals.chain(self.held.iter().map(|held| &held.packet))
    }

    /// How many these are.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_order.len() + self.others.len() + self.held.len()
    }

    /// Bytes of those packets.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.bytes
    }

    fn propagate(&mut self, sent_at: Time, mut packet: P, stats: &mut LinkStats) {
        self.bytes += packet.wire_len() as u64;
        self.damage(&mut packet, stats);
        let delay = self.delay_at(sent_at);
        let at = self.jitter.arrival(sent_at, delay);
        let displacement = self.draw_displacement();
        stats.reordered += u64::from(displacement.is_some());
        match displacement {
            Some(Displacement::Delay(delay)) => {
                // At the end of `in_order` it would push all that overtake it out of there.
                let at = self.handed_out(at + delay);
                let arrival = self.number(at, true, packet);
                self.others.push(Reverse(arrival));
            }
            Some(Displacement::Positions { packets, at_most }) if packets > 0 => {
                let deadline = at + at_most;
                self.held.push_back(Held { packet, to_pass: packets, deadline });
            }
            Some(Displacement::Ahead { .. }) => {
                let at = self.handed_out(sent_at);
                self.insert(at, true, packet);
            }
            _ => {
                let at = if self.jitter.may_overtake() { at } else { at.max(self.latest) };
                let at = self.handed_out(at);
                self.latest = self.latest.max(at);
                self.insert(at, displacement.is_some(), packet);
                self.pass_held(at);
            }
        }
    }

    /// How far the next packet is put out of order, if it is.
    fn draw_displacement(&mut self) -> Option<Displacement> {
        let reorder = self.reorder?;
        if let Displacement::Ahead { gap } = reorder.by {
            self.since_ahead = self.since_ahead.saturating_add(1);
            if self.since_ahead < gap || !self.rngs.reorder.chance(reorder.probability.value()) {
                return None;
            }
            self.since_ahead = 0;
            return Some(reorder.by);
        }
        self.rngs.reorder.chance(reorder.probability.value()).then_some(reorder.by)
    }

    /// When a packet is handed out that would arrive at `at`.
    fn handed_out(&self, at: Time) -> Time {
        self.slots.as_ref().map_or(at, |slots| slots.defer(at))
    }

    /// The delay of a packet whose transmission ends at `at`.
    fn delay_at(&mut self, at: Time) -> Duration {
        if self.delay_changes.is_empty() {
            return self.delay;
        }
        let (count, latest) = self.delay_changes.by(at);
        let Some(latest) = latest else { return self.delay };
        if count > self.changes {
            self.changes = count;
            if latest.reorder {
                // Another route: nothing that is on the old one is before it.
                self.latest = Time::ZERO;
            }
        }
        latest.delay
    }

    fn damage(&mut self, packet: &mut P, stats: &mut LinkStats) {
        let bits = packet.corruptible_bits();
        if self.rngs.corrupt.chance(self.corrupt.value()) && bits > 0 {
            packet.flip_bit(self.rngs.corrupt.below(bits as u64) as usize);
            stats.corrupted += 1;
        }
    }

    fn insert(&mut self, at: Time, chosen: bool, packet: P) {
        let arrival = self.number(at, chosen, packet);
        if self.in_order.back().is_some_and(|last| last.at > at) {
            self.others.push(Reverse(arrival));
        } else {
            self.in_order.push_back(arrival);
        }
    }

    fn number(&mut self, at: Time, chosen: bool, packet: P) -> Arrival<P> {
        self.last_number += 1;
        Arrival { at, number: self.last_number, chosen, packet }
    }

    /// Counts a packet that arrives at `at` as passing those held back.
    fn pass_held(&mut self, at: Time) {
        let mut index = 0;
        while let Some(held) = self.held.get_mut(index) {
            // One that comes before is not passed, even if nobody has asked for it yet.
            if held.deadline > at {
                held.to_pass -= 1;
            }
            if held.to_pass > 0 {
                index += 1;
            } else if let Some(held) = self.held.remove(index) {
                self.insert(at, true, held.packet);
            }
        }
    }

    /// Lets go those that have waited for long enough.
    fn release_held(&mut self, now: Time) {
        let mut index = 0;
        while let Some(held) = self.held.get(index) {
            if held.deadline > now {
                index += 1;
            } else if let Some(held) = self.held.remove(index) {
                self.insert(held.deadline, true, held.packet);
            }
        }
    }

    fn next_arrival(&self) -> Option<Time> {
        let others = self.others.peek().map(|Reverse(arrival)| arrival.at);
        self.in_order.front().map(|arrival| arrival.at).into_iter().chain(others).min()
    }

    fn others_are_next(&self) -> bool {
        match (self.in_order.front(), self.others.peek()) {
            (Some(front), Some(Reverse(top))) => top < front,
            (front, _) => front.is_none(),
        }
    }
}

/// No packet of such a link arrives earlier than this after the end of its transmission.
fn least_delay(config: &LinkConfig) -> Duration {
    if config.reorder.is_some_and(|reorder| matches!(reorder.by, Displacement::Ahead { .. })) {
        return Duration::ZERO;
    }
    config.delay_changes.shortest(config.delay).saturating_sub(config.jitter.earliest())
}

impl<P> PartialEq for Arrival<P> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<P> Eq for Arrival<P> {}

impl<P> PartialOrd for Arrival<P> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for Arrival<P> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
