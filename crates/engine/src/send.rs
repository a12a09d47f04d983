//! The send half of a connection: the sending algorithm of gu05 Figure 5-2, acknowledgements,
//! loss reports and the retransmission timer.

mod backoff;
mod buffer;
mod delivered;
mod flight;

use core::time::Duration;

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_control::{LEAST_WINDOW, MOST_WINDOW, SYN, SentPacket, TOLERATED_LOSS};
use farhaul_wire::{DataHeader, LossRange, MsgNo, Seq};

use crate::tags::DataKey;

use self::backoff::Backoff;
pub use self::buffer::SendBuffer;
use self::buffer::{Fate, Slot};
use self::delivered::Delivered;
use self::flight::Flight;
use crate::loss_list::LossList;
use crate::pacer::Pacer;
use crate::transmit::Transmit;

/// Every so many packets two leave together, for the receiver to measure the capacity
/// (gu05 §3.4).
const PROBE_INTERVAL: u32 = 16;
/// The retransmission timer waits at least this long: an ACK may be held back for a SYN interval,
/// and a receiver's process may lose its processor for a few.
const MIN_RTO: Duration = Duration::from_millis(50);
/// And at most this long between two tries, so that a path that comes back is found at once.
const MAX_RTO: Duration = Duration::from_secs(1);

/// The round-trip time before the first sample.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// Windows that may be unacknowledged while a hole is repaired: one on the fly, and one for each of
/// the round trips that the repair may take if the retransmission is lost as well.
const REPAIR_WINDOWS: u32 = 4;

/// What an ACK came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckOutcome {
    /// New packets are acknowledged, so many of them.
    Advanced(u32),
    /// Nothing new.
    Stale,
    /// It acknowledges what was never sent.
    Impossible,
}

/// What goes out in place of a message given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropNotice {
    pub message: MsgNo,
    pub first: Seq,
    pub last: Seq,
}

/// What the retransmission timer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Expirations in a row.
    pub count: u32,
}

#[derive(Debug)]
pub struct SendHalf {
    pub buffer: SendBuffer,
    pub pacer: Pacer,
    /// Data packets bear tags.
    pub tagger: Option<DataKey>,
    loss: LossList,
    /// First unacknowledged sequence number; the buffer's packets in flight follow it.
    una: Seq,
    /// Beyond what numbered ACKs acknowledge: not beyond `una`, which light ones move as well.
    numbered: Seq,
    /// Bytes between the two, or more.
    bytes_not_numbered: usize,
    /// The first sequence number beyond the peer's flow window.
    flow_limit: Seq,
    /// Congestion window, packets.
    window: u32,
    flight: Flight,
    /// The peer tells what arrives behind a hole, so that what is in the network can be counted.
    pub sees_beyond_holes: bool,
    backoff: Backoff,
    /// Smoothed round-trip time.
    rtt: Duration,
    delivered: Delivered,
    /// The last new packet began a packet pair.
    pair_open: bool,
    /// The clock of data packets started here.
    clock_origin: Time,
    clock_offset_us: u32,
    /// When the ACK number or the timer last moved.
    last_progress: Time,
    expirations: u32,
    /// Since the timer has expired last the peer has told nothing.
    unheard: bool,
    /// How many packets to take for lost at a hole that nobody reports.
    silent_run: u32,
    /// Expired or given up: to be told to the peer.
    drops: Vec<DropNotice>,
    app_limited: bool,
    pub packets_sent: u64,
    pub bytes_sent: u64,
    pub packets_retransmitted: u64,
    pub packets_lost: u64,
    pub packets_acked: u64,
    pub messages_dropped: u64,
}

impl SendHalf {
    /// `isn`: the first sequence number; `flight_flag`: the window the peer announced.
    pub fn new(
        now: Time,
        isn: Seq,
        payload_size: usize,
        flight_flag: u32,
        max_burst: u32,
        clock_offset_us: u32,
    ) -> Self {
        SendHalf {
            buffer: SendBuffer::new(payload_size),
            pacer: Pacer::new(now, max_burst),
            tagger: None,
            loss: LossList::new(1024),
            una: isn,
            numbered: isn,
            bytes_not_numbered: 0,
            flow_limit: isn.plus(flight_flag),
            window: 16,
            flight: Flight::default(),
            sees_beyond_holes: false,
            backoff: Backoff::new(TOLERATED_LOSS),
            rtt: INITIAL_RTT,
            delivered: Delivered::new(isn),
            pair_open: false,
            clock_origin: now,
            clock_offset_us,
            last_progress: now,
            expirations: 0,
            unheard: false,
            silent_run: 1,
            drops: Vec::new(),
            app_limited: true,
            packets_sent: 0,
            bytes_sent: 0,
            packets_retransmitted: 0,
            packets_lost: 0,
            packets_acked: 0,
            messages_dropped: 0,
        }
    }

    /// First unacknowledged sequence number.
    pub fn una(&self) -> Seq {
        self.una
    }

    /// Whether a numbered ACK covers all that was acknowledged.
    pub fn all_numbered(&self) -> bool {
        self.numbered == self.una
    }

    /// Bytes that only light ACKs have acknowledged, at most.
    pub fn bytes_not_numbered(&self) -> usize {
        self.bytes_not_numbered
    }

    /// The sequence number of the next new packet.
    pub fn next_seq(&self) -> Seq {
        self.una.plus(self.buffer.in_flight())
    }

    /// Packets the peer is ready to take beyond those acknowledged.
    pub fn flow_window(&self) -> u32 {
        self.flow_limit.since(self.una).max(0) as u32
    }

    /// Congestion window in force, packets.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Whether the application, not a window or the pacing, was the limit since this was last
    /// asked.
    pub fn take_app_limited(&mut self) -> bool {
        core::mem::replace(&mut self.app_limited, !self.buffer.has_unsent())
    }

    pub fn set_window(&mut self, packets: f64) {
        self.window = packets.clamp(LEAST_WINDOW, MOST_WINDOW) as u32;
    }

    /// Messages to tell the peer are given up.
    pub fn take_drop(&mut self) -> Option<DropNotice> {
        self.drops.pop()
    }

    /// The smoothed round-trip time, and how much longer a packet and the answer to it take.
    pub fn set_round_trip(&mut self, rtt: Duration, wait: Duration) {
        self.rtt = rtt;
        self.pacer.set_round_trip(rtt);
        self.flight.set_span(rtt + wait);
    }

    /// The loss event rate up to which the law alone decides how fast it goes.
    pub fn set_tolerated_loss(&mut self, share: f64) {
        if self.backoff.set_tolerated(share) {
            self.back_off();
        }
    }

    fn back_off(&mut self) {
        self.pacer.set_backoff_period_ns(self.backoff.period_ns(self.rtt));
    }

    /// Whether there is something that the peer is to get and has not acknowledged.
    pub fn owes(&self) -> bool {
        let sent = (0..self.buffer.in_flight()).filter_map(|index| self.buffer.sent(index));
        self.buffer.has_unsent() || sent.into_iter().any(|slot| !slot.dropped)
    }

    /// Whether [`SendHalf::fill`] would send something, were it not for the pacing.
    pub fn can_send(&self) -> bool {
        !self.loss.is_empty() || (self.buffer.has_unsent() && self.window_open())
    }

    /// Something is on its way, and nothing may follow it before the peer has acknowledged some of it.
    pub fn awaits_ack(&self) -> bool {
        self.buffer.in_flight() > 0 && !self.can_send()
    }

    /// Packets that are on the fly, as far as is known: those sent after the newest that has arrived,
    /// and those sent again. Of a peer that does not tell what arrives behind a hole, those not
    /// acknowledged.
    pub fn in_network(&self) -> u32 {
        let unacknowledged = self.buffer.in_flight();
        if !self.sees_beyond_holes {
            return unacknowledged;
        }
        let beyond = self.next_seq().since(self.delivered.seen().later(self.una)).max(0) as u32;
        let again = self.delivered.missing().saturating_sub(self.loss.len());
        let counted = (beyond + again).min(unacknowledged);
        // News that is lost or waits at the peer leaves more than is really there. But of a peer that has
        // told nothing since the timer expired nothing is known: a path that is cut would take a whole
        // window after each time-out.
        let news_is_due = self.is_repairing() && !self.unheard;
        if news_is_due { counted.min(self.flight.packets()) } else { counted }
    }

    fn window_open(&self) -> bool {
        let unacknowledged = self.buffer.in_flight();
        if self.sees_beyond_holes {
            return self.in_network() < self.window && unacknowledged < self.flow_window();
        }
        if self.is_repairing() {
            unacknowledged < (REPAIR_WINDOWS * self.window).min(self.flow_window())
                && self.flight.packets() < self.window
        } else {
            unacknowledged < self.window.min(self.flow_window())
        }
    }

    /// The first packet not acknowledged is known to be lost: what came after it waits at the
    /// receiver and cannot be acknowledged.
    fn is_repairing(&self) -> bool {
        self.loss.contains(self.una) || self.buffer.sent(0).is_some_and(Slot::retransmitted)
    }

    /// Microseconds on the clock of data packets.
    pub fn clock_us(&self, now: Time) -> u32 {
        ((now - self.clock_origin).as_micros() as u32).wrapping_add(self.clock_offset_us)
    }

    /// Fills `out` with the burst that may leave now: lost packets first, then new ones while the
    /// windows allow. Returns how many packets. `sent` is told of each if `watched`.
    pub fn fill(
        &mut self,
        now: Time,
        dest: u32,
        max_segments: usize,
        out: &mut Transmit,
        mut sent: Option<&mut dyn FnMut(SentPacket)>,
    ) -> u32 {
        self.flight.advance(now);
        if !self.can_send() {
            self.pair_open = false;
            // To wait for a hole's repair is not to be slower than the rate: the time is not missed.
            match (self.buffer.has_unsent(), self.is_repairing()) {
                (true, false) => self.pacer.set_held(),
                (true, true) if self.sees_beyond_holes => self.pacer.set_repairing(),
                _ => self.pacer.set_idle(),
            }
            return 0;
        }
        let budget = self.pacer.budget(now).min(max_segments as u32);
        let ready = self.loss.len() + self.buffer.unsent();
        // The second of a packet pair follows the first at once, in a call of its own if need be.
        self.pair_open &= self.loss.is_empty();
        let pair = self.pair_open;
        if !pair && (budget == 0 || (now < self.pacer.next_burst() && budget < ready)) {
            return 0;
        }
        let clock = self.clock_us(now);
        let mut count = 0;
        while (count as usize) < max_segments {
            let pair = core::mem::take(&mut self.pair_open) && self.loss.is_empty();
            if count >= budget && !pair {
                break;
            }
            let Some((slot, seq)) = self.pick(now, clock, out) else { break };
            let header = DataHeader {
                seq,
                boundary: slot.boundary,
                in_order: slot.in_order,
                message: SendBuffer::message_number(slot.message),
                timestamp: clock,
                dest,
            };
            let mut header = header.to_bytes();
            if let Some(key) = &self.tagger {
                let tag = key.tag(seq, self.buffer.payload(&slot));
                header[4..8].copy_from_slice(&tag.to_be_bytes());
            }
            self.buffer.put(&slot, header, out);
            self.bytes_sent += u64::from(slot.len());
            count += 1;
            self.flight.on_sent(now);
            if let Some(sent) = sent.as_mut() {
                sent(SentPacket {
                    seq,
                    len: slot.len(),
                    timestamp: clock,
                    retransmission: slot.retransmitted(),
                });
            }
        }
        self.buffer.close_run(out);
        if count > 0 {
            if self.packets_sent == 0 || self.buffer.in_flight() == count {
                // The first packets of a busy period start the retransmission timer.
                self.last_progress = now;
            }
            self.packets_sent += u64::from(count);
            self.pacer.sent(now, count);
            if !self.buffer.has_unsent() {
                self.app_limited = true;
            }
        }
        count
    }

    /// The next packet to send, taken, if it fits behind what is in `out`.
    fn pick(&mut self, now: Time, clock: u32, out: &Transmit) -> Option<(Slot, Seq)> {
        while let Some(seq) = self.loss.first(self.una, self.next_seq().prev()) {
            let index = seq.since(self.una) as u32;
            let slot = *self.buffer.sent(index)?;
            if slot.dropped || self.buffer.expired(&slot, now) {
                self.give_up(slot.message, Some(index));
                continue;
            }
            if !out.fits(slot.len() as usize) {
                return None;
            }
            self.loss.remove(seq);
            let slot = self.buffer.sent_mut(index)?;
            slot.sent_us = clock;
            slot.fate = Fate::Resent;
            self.packets_retransmitted += 1;
            return Some((*slot, seq));
        }
        while self.window_open() {
            let slot = *self.buffer.peek_unsent()?;
            // Once begun, a message is sent to its end: on a path too slow for all of them, each
            // would else expire half sent, and none arrive.
            if slot.boundary.first && self.buffer.expired(&slot, now) {
                self.give_up(slot.message, None);
                continue;
            }
            if !out.fits(slot.len() as usize) {
                return None;
            }
            let seq = self.next_seq();
            let slot = self.buffer.send_next(clock)?;
            self.pair_open =
                seq.value().is_multiple_of(PROBE_INTERVAL) && !self.backoff.is_engaged();
            if self.buffer.in_flight() > self.loss.capacity() {
                let wanted = self.buffer.in_flight() * 2;
                self.loss.grow(wanted, self.una);
            }
            return Some((slot, seq));
        }
        None
    }

    /// Drops a message and tells the peer, or tells it again, if any of it was sent.
    fn give_up(&mut self, message: u32, near: Option<u32>) {
        let again = near.and_then(|index| self.buffer.sent(index)).is_some_and(|s| s.dropped);
        self.messages_dropped += u64::from(!again);
        if let Some((first, last)) = self.buffer.drop_message(message, near) {
            let (first, last) = (self.una.plus(first), self.una.plus(last));
            self.loss.remove_range(LossRange { first, last });
            self.drops.push(DropNotice {
                message: SendBuffer::message_number(message),
                first,
                last,
            });
        }
    }

    /// Packets known to have arrived: those acknowledged, and those beyond a hole of which a report
    /// of losses tells. Those sent again count when they are acknowledged.
    pub fn delivered(&self) -> u64 {
        self.delivered.count()
    }

    /// The peer has told of a packet just before `end`. Returns that packet if it is newer than all
    /// before and was sent once, and how long ago it was.
    pub fn on_seen(&mut self, now: Time, end: Seq) -> Option<(Seq, Duration)> {
        if end.since(self.next_seq()) > 0 || !self.delivered.see(end) {
            return None;
        }
        let newest = end.prev();
        let slot = self.buffer.sent(u32::try_from(newest.since(self.una)).ok()?)?;
        let age = slot.age_us(self.clock_us(now));
        (slot.fate == Fate::Fresh).then_some((newest, Duration::from_micros(age.into())))
    }

    /// The peer has everything before `end` but `missing` packets, from `point` on, and takes
    /// `available` packets from there. False if that cannot be.
    pub fn on_beyond(
        &mut self,
        now: Time,
        point: Seq,
        end: Seq,
        missing: u32,
        available: u32,
    ) -> bool {
        let behind = end.since(point);
        let sent = end.since(self.next_seq()) <= 0;
        if !sent || behind <= 0 || missing == 0 || missing > behind as u32 {
            return false;
        }
        // What is older than the last ACK tells nothing.
        if point.since(self.una) < 0 {
            return true;
        }
        let limit = point.plus(available.min(1 << 29));
        if limit.since(self.flow_limit) > 0 {
            self.flow_limit = limit;
        }
        let arrived = point.since(self.una) as u64 + (behind as u32 - missing) as u64;
        self.delivered.told(end, missing);
        self.count_known(self.packets_acked + arrived);
        self.on_heard(now);
        true
    }

    /// To be called after [`SendHalf::on_seen`] and all that the same packet of the peer tells.
    pub fn count_delivered(&mut self) -> u64 {
        self.count_known(self.packets_acked + self.delivered.beyond(self.una));
        self.delivered.count()
    }

    /// So many packets are known to have arrived, unless more were already.
    fn count_known(&mut self, known: u64) {
        let arrived = self.delivered.reach(known);
        if self.backoff.on_arrived(arrived) {
            self.back_off();
        }
    }

    /// Takes the packets of `range`, all in flight, for lost; returns how many were not so yet.
    fn take_for_lost(&mut self, now: Time, range: LossRange) -> u32 {
        let lost = self.loss.insert(range);
        if lost > 0 {
            self.count_lost(now, range, lost);
            let first = range.first.since(self.una) as u32;
            for index in first..first + range.len() {
                if let Some(slot) = self.buffer.sent_mut(index)
                    && slot.fate == Fate::Fresh
                {
                    slot.fate = Fate::Lost;
                    self.delivered.lose();
                }
            }
        }
        self.packets_lost += u64::from(lost);
        lost
    }

    /// `lost` packets of `range` are lost, for all that is known.
    fn count_lost(&mut self, now: Time, range: LossRange, lost: u32) {
        // A path that is cut tells nothing of its room: of time-outs in a row the first counts, for a
        // window of one packet has no other sign, and those that follow are spaced already.
        if self.expirations > 1 {
            return;
        }
        let clock = self.clock_us(now);
        let age = |seq: Seq| {
            let slot = self.buffer.sent(seq.since(self.una) as u32);
            Duration::from_micros(slot.map_or(0, |slot| slot.age_us(clock)).into())
        };
        let oldest = age(range.first).max(age(range.last));
        let first = Time::from_nanos(now.as_nanos().saturating_sub(nanos(oldest)));
        self.backoff.on_lost(now, lost, first);
        self.back_off();
    }

    /// The peer has everything before `next`; `available`: packets it can take beyond, if the ACK
    /// says so.
    pub fn on_ack(&mut self, now: Time, next: Seq, available: Option<u32>) -> AckOutcome {
        let advance = next.since(self.una);
        if advance > self.buffer.in_flight() as i32 {
            return AckOutcome::Impossible;
        }
        if available.is_some() {
            self.number(next);
        }
        if advance < 0 {
            return AckOutcome::Stale;
        }
        if let Some(available) = available {
            self.flow_limit = next.plus(available.min(1 << 29));
        }
        if advance == 0 {
            return AckOutcome::Stale;
        }
        if !self.loss.is_empty() {
            self.loss.remove_range(LossRange { first: self.una, last: next.prev() });
        }
        let mut lost = 0;
        if self.delivered.missing() > 0 {
            let acked = (0..advance as u32).filter_map(|index| self.buffer.sent(index));
            lost = acked.filter(|slot| slot.fate != Fate::Fresh).count() as u32;
        }
        self.delivered.acknowledge(next, lost);
        let before = self.buffer.bytes();
        self.buffer.acknowledge(advance as u32);
        if available.is_none() {
            self.bytes_not_numbered += before - self.buffer.bytes();
        }
        self.packets_acked += advance as u64;
        self.una = next;
        self.on_heard(now);
        self.expirations = 0;
        AckOutcome::Advanced(advance as u32)
    }

    /// A numbered ACK acknowledges everything before `next`.
    fn number(&mut self, next: Seq) {
        if next.since(self.numbered) > 0 {
            self.numbered = next;
        }
        if self.numbered.since(self.una) >= 0 {
            self.bytes_not_numbered = 0;
        }
    }

    /// A hole that nobody reports: the ACK number comes to a packet that should long have arrived,
    /// because the report was lost and the receiver does not repeat it, as the stock library does
    /// not. How long the hole is, the next ACK tells: twice as much is sent each time.
    pub fn resend_silent_hole(&mut self, now: Time, timeout: Duration) {
        self.lose_overdue_retransmissions(now, timeout);
        let overdue = self.overdue(now, timeout);
        let run = (0..self.silent_run).take_while(|i| self.buffer.sent(*i).is_some_and(&overdue));
        let run = run.count() as u32;
        if run == 0 {
            self.silent_run = 1;
            return;
        }
        self.silent_run = self.silent_run.saturating_mul(2);
        let range = LossRange { first: self.una, last: self.una.plus(run - 1) };
        self.take_for_lost(now, range);
    }

    /// A receiver that reports a loss once does not tell which retransmissions were lost as well.
    /// When the first packet missing is one of them and its time is up, so it is for all others.
    fn lose_overdue_retransmissions(&mut self, now: Time, timeout: Duration) {
        let overdue = self.overdue(now, timeout);
        let lost = |slot: &Slot| slot.retransmitted() && overdue(slot);
        if !self.buffer.sent(0).is_some_and(lost) {
            return;
        }
        for index in 0..self.buffer.in_flight() {
            if self.buffer.sent(index).is_some_and(lost) {
                self.take_for_lost(now, LossRange::single(self.una.plus(index)));
            }
        }
    }

    /// Whether a packet should long have arrived and been acknowledged.
    fn overdue(&self, now: Time, timeout: Duration) -> impl Fn(&Slot) -> bool + use<> {
        let (clock, timeout) = (self.clock_us(now), timeout.as_micros() as u32);
        move |slot| slot.age_us(clock) > timeout
    }

    /// The peer reports `range` lost. Returns the part of it that is in flight, if that is news, or
    /// an error if it names what was never sent. A packet sent again within `fresh` is left alone:
    /// the report crossed it.
    pub fn on_loss_report(
        &mut self,
        now: Time,
        range: LossRange,
        fresh: Duration,
    ) -> Result<Option<LossRange>, ()> {
        if range.last.since(self.next_seq()) >= 0 || range.last.since(range.first) < 0 {
            return Err(());
        }
        if range.last.since(self.una) < 0 {
            return Ok(None);
        }
        let first = if range.first.since(self.una) < 0 { self.una } else { range.first };
        let clock = self.clock_us(now);
        let from = first.since(self.una) as u32;
        let to = range.last.since(self.una) as u32;
        let mut run: Option<Seq> = None;
        let mut lost = 0;
        for index in from..=to + 1 {
            let seq = self.una.plus(index);
            let wanted = index <= to
                && self.buffer.sent(index).is_some_and(|slot| {
                    !slot.retransmitted() || slot.age_us(clock) > fresh.as_micros() as u32
                });
            match (wanted, run) {
                (true, None) => run = Some(seq),
                (false, Some(start)) => {
                    lost += self.take_for_lost(now, LossRange { first: start, last: seq.prev() });
                    run = None;
                }
                _ => {}
            }
        }
        Ok((lost > 0).then_some(LossRange { first, last: range.last }))
    }

    /// The peer tells what it misses, and will again: the retransmission timer starts anew.
    pub fn on_heard(&mut self, now: Time) {
        self.last_progress = now;
        self.unheard = false;
    }

    /// When the retransmission timer expires.
    pub fn timeout(&self, rto: Duration) -> Option<Time> {
        // Packets in the loss list wait for the pacing, not for the peer.
        (self.buffer.in_flight() > 0 && self.loss.is_empty())
            .then(|| self.last_progress + self.backed_off(rto))
    }

    fn backed_off(&self, rto: Duration) -> Duration {
        let doubled = rto.max(MIN_RTO) * (1 << self.expirations.min(5));
        doubled.min(MAX_RTO.max(rto))
    }

    /// Lets the retransmission timer expire if it is due.
    pub fn on_timeout(&mut self, now: Time, rto: Duration, reports_once: bool) -> Option<Expired> {
        if self.timeout(rto)? > now {
            return None;
        }
        if reports_once {
            self.lose_overdue_retransmissions(now, rto);
        }
        self.expirations += 1;
        self.unheard = true;
        self.last_progress = now;
        // *departs:* gu05 Figure 2-5 step 1c takes everything unacknowledged for lost. The ends of
        // the window will do: their answer, an ACK or a NAK, tells exactly what is missing.
        let last = self.next_seq().prev();
        self.take_for_lost(now, LossRange::single(self.una));
        self.take_for_lost(now, LossRange::single(last));
        Some(Expired { count: self.expirations })
    }

    /// When the pacing lets the next burst go, if nothing else holds it.
    pub fn next_paced(&self) -> Option<Time> {
        self.can_send().then(|| self.pacer.next_burst())
    }

    /// When the next burst may go, if time alone is what holds it.
    pub fn next_send(&self) -> Option<Time> {
        if let Some(at) = self.next_paced() {
            return Some(at);
        }
        let by_time = self.buffer.has_unsent() && self.is_repairing() && !self.sees_beyond_holes;
        by_time.then(|| self.flight.next_change())?
    }

    /// Appends to the stream.
    pub fn append(&mut self, data: Bytes) {
        self.buffer.append(data);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Retransmission time-out for an RTT filter's RTT + 4 RTTVar: an ACK may wait a SYN interval at
/// the receiver.
pub fn retransmission_timeout(rtt_timeout: Duration) -> Duration {
    rtt_timeout + 2 * SYN
}

#[cfg(test)]
mod tests;
