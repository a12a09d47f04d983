//! The receive half of a connection: the receiving algorithm of gu05 Figure 5-3.

mod ack;
mod buffer;
mod gaps;
mod messages;

use core::time::Duration;

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_wire::{DataHeader, LossRange, Seq};

pub use self::ack::{AckForm, AckSchedule};
pub use self::buffer::Chunks;
use self::buffer::{Content, ReceiveBuffer, Slot};
use self::gaps::Gaps;
pub use self::gaps::{ReorderTolerance, Repeat};
use self::messages::Messages;
use crate::arrival::{Arrival, ArrivalEstimator};

/// Packets advertised however little the path has shown so far: the protocol's least, so that a
/// full buffer cannot stop the connection for good.
const MIN_WINDOW: u32 = 2;

/// Where the payload of a packet lies.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    pub batch: u32,
    pub start: u32,
    pub len: u16,
}

#[derive(Debug)]
pub struct ReceiveHalf {
    buffer: ReceiveBuffer,
    pub gaps: Gaps,
    pub acks: AckSchedule,
    pub arrivals: ArrivalEstimator,
    messages: Option<Messages>,
    /// The sequence number of the buffer's first slot.
    base: Seq,
    /// Up to where `in_order` has counted.
    counted: Seq,
    in_order: u64,
    /// The highest sequence number that has come, and the sender's clock in that packet.
    highest: Seq,
    highest_timestamp: u32,
    /// Packets the buffer may span.
    capacity: u32,
    /// The flow window last advertised was small for want of room.
    held_back: bool,
    /// Position of `highest` in the sequence space, without wrap.
    position: u64,
    /// In-order packets of one time stamp that have just come.
    run: Option<(Arrival, u32)>,
    /// The last drop request, which counts in full when it is repeated.
    last_drop: Option<(u32, Seq, Seq)>,
    pub packets_received: u64,
    pub bytes_received: u64,
    pub duplicates: u64,
    pub reordered: u64,
    pub lost: u64,
    pub out_of_window: u64,
}

impl ReceiveHalf {
    /// `isn`: the first sequence number to expect; `capacity`: packets the buffer may span.
    pub fn new(
        now: Time,
        isn: Seq,
        capacity: u32,
        message_mode: bool,
        tolerance: ReorderTolerance,
    ) -> Self {
        ReceiveHalf {
            buffer: ReceiveBuffer::new(),
            gaps: Gaps::new(tolerance),
            acks: AckSchedule::new(now, isn),
            arrivals: ArrivalEstimator::new(),
            messages: message_mode.then(|| Messages::new(isn)),
            base: isn,
            counted: isn,
            in_order: 0,
            highest: isn.prev(),
            highest_timestamp: 0,
            capacity,
            held_back: false,
            position: 0,
            run: None,
            last_drop: None,
            packets_received: 0,
            bytes_received: 0,
            duplicates: 0,
            reordered: 0,
            lost: 0,
            out_of_window: 0,
        }
    }

    /// The ACK point: everything before it has come or was given up.
    pub fn point(&self) -> Seq {
        self.gaps.first(self.base, self.highest).unwrap_or(self.highest.next())
    }

    /// How many packets lie before the ACK point. To be asked within 2^30 of them, for sequence numbers
    /// wrap.
    pub fn count_in_order(&mut self) -> u64 {
        let point = self.point();
        self.in_order += u64::from(point.since(self.counted).max(0).unsigned_abs());
        self.counted = point;
        self.in_order
    }

    /// Packets from the first that is missing to the highest that has come.
    pub fn waiting(&self) -> u32 {
        self.highest.next().since(self.point()).max(0) as u32
    }

    /// Beyond the highest packet that has come, and how many are missing before it; none if none is.
    pub fn beyond(&self) -> Option<(Seq, u32)> {
        let missing = self.gaps.missing();
        (missing > 0).then(|| (self.highest.next(), missing))
    }

    /// The buffer may span so many packets from now on, not fewer than before.
    pub fn widen(&mut self, capacity: u32) {
        self.capacity = self.capacity.max(capacity);
        if std::mem::take(&mut self.held_back) {
            self.acks.on_window_opened();
        }
    }

    /// Packets the buffer may span.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Bytes of memory held for packets not taken yet.
    pub fn pinned(&self) -> usize {
        self.buffer.pinned()
    }

    /// Payload bytes not taken yet.
    pub fn stored(&self) -> usize {
        self.buffer.stored()
    }

    /// Whether a packet of this sequence number would be stored.
    pub fn wants(&self, seq: Seq) -> bool {
        let index = seq.since(self.base);
        if index < 0 || index >= self.capacity as i32 {
            return false;
        }
        match self.buffer.slot(index as u32).map(|slot| slot.content) {
            None | Some(Content::Missing) => true,
            // Given up, and perhaps the first packet of the next message: while what came before is
            // not complete, it may still turn up.
            Some(Content::Dropped) => self.messages.as_ref().is_some_and(|m| !m.has_passed(seq)),
            Some(_) => false,
        }
    }

    pub fn open_batch(&mut self, bytes: Bytes) -> u32 {
        self.buffer.open_batch(bytes)
    }

    /// All packets of a batch are in.
    pub fn close_batch(&mut self, now: Time, batch: Option<u32>) {
        self.end_run(now);
        if let Some(batch) = batch {
            self.buffer.close_batch(batch);
        }
        if let Some(messages) = &mut self.messages {
            let point = self.gaps.first(self.base, self.highest).unwrap_or(self.highest.next());
            messages.advance(point, self.base, &mut self.buffer);
            let gone = self.buffer.trim(point.since(self.base).max(0) as u32);
            self.base = self.base.plus(gone);
        }
        if self.gaps.is_empty() {
            self.gaps.tidy();
        }
    }

    /// A data packet has come; returns whether it was stored.
    pub fn on_data(&mut self, now: Time, header: &DataHeader, payload: Payload) -> bool {
        self.packets_received += 1;
        self.bytes_received += u64::from(payload.len);
        if !self.wants(header.seq) {
            self.arrivals.on_stray(now);
            if header.seq.since(self.base) >= self.capacity as i32 {
                self.out_of_window += 1;
            } else {
                self.duplicates += 1;
                self.acks.on_duplicate();
            }
            return false;
        }
        let slot = Slot::packet(
            header.boundary.first,
            header.boundary.last,
            header.message.value(),
            payload.len,
        );
        let ahead = header.seq.since(self.highest);
        if ahead == 1 {
            self.buffer.push(slot, payload.batch, payload.start);
            self.note_in_order(now, header);
        } else if ahead > 1 {
            self.open_gap_to(now, header.seq.prev());
            self.buffer.push(slot, payload.batch, payload.start);
            self.note_in_order(now, header);
        } else {
            self.end_run(now);
            self.arrivals.on_stray(now);
            let index = header.seq.since(self.base) as u32;
            let was_missing = self.buffer.slot(index).is_some_and(Slot::is_missing);
            self.buffer.put(index, slot, payload.batch, payload.start);
            if was_missing {
                self.gaps.close(header.seq);
            }
            // Every transmission carries a fresh time stamp, so one not later than that of the
            // highest packet is a first transmission, overtaken.
            let late = self.highest_timestamp.wrapping_sub(header.timestamp);
            if was_missing && (late as i32) >= 0 {
                self.reordered += 1;
                let late = Duration::from_micros(u64::from(late));
                self.gaps.on_reordered(self.highest.since(header.seq) as u32, late);
            }
        }
        if let Some(messages) = &mut self.messages
            && !header.in_order
        {
            messages.on_unordered(header.seq, self.base, &mut self.buffer);
        }
        true
    }

    fn note_in_order(&mut self, now: Time, header: &DataHeader) {
        self.highest = header.seq;
        self.highest_timestamp = header.timestamp;
        self.position += 1;
        match &mut self.run {
            Some((first, packets))
                if first.timestamp == header.timestamp
                    && first.position + u64::from(*packets) == self.position =>
            {
                *packets += 1;
            }
            _ => {
                self.end_run(now);
                let arrival = Arrival {
                    position: self.position,
                    timestamp: header.timestamp,
                    phase: header.seq.value() % 16,
                };
                self.run = Some((arrival, 1));
            }
        }
    }

    fn end_run(&mut self, now: Time) {
        if let Some((first, packets)) = self.run.take() {
            self.arrivals.on_run(now, first, packets);
            self.gaps.on_in_order(packets);
        }
    }

    /// Appends to `out` the losses to report now. `remind`: with a new report go those that are not as old as this.
    pub fn report_losses(
        &mut self,
        now: Time,
        repeat: Repeat,
        remind: Duration,
        out: &mut Vec<LossRange>,
    ) {
        let before = out.len();
        self.gaps.due(now, self.base, self.highest, repeat, out);
        if out.len() > before && !remind.is_zero() {
            self.gaps.recent(now, self.base, remind, out);
        }
    }

    /// The sender gives up the packets `first ..= last` of a message; returns whether it may.
    /// `exact`: the range is what it says; the stock library names one packet too many, the first of
    /// the next message, so its last is believed when it is repeated.
    pub fn on_drop_request(
        &mut self,
        now: Time,
        message: u32,
        first: Seq,
        last: Seq,
        exact: bool,
    ) -> bool {
        // A stream has no messages to give up, and a range beyond the window, at either end, for a
        // long one may come round to the other side, is no range of ours.
        let (from, to) = (first.since(self.base), last.since(self.base));
        if self.messages.is_none() || from.max(to) >= self.capacity as i32 {
            return false;
        }
        let request = (message, first, last);
        let believed = exact || first == last || self.last_drop == Some(request);
        self.last_drop = Some(request);
        let (from, to) = (from.max(0), to - i32::from(!believed));
        if to < from {
            // An old one: the peer has not heard that this is settled.
            self.acks.on_duplicate();
            return true;
        }
        let (first, last) = (self.base.plus(from as u32), self.base.plus(to as u32));
        if last.since(self.highest) > 0 {
            self.open_gap_to(now, last);
        }
        let mut from = first;
        while let Some(run) = self.gaps.next(from, last) {
            for index in run.first.since(self.base)..=run.last.since(self.base) {
                self.buffer.give_up(index as u32);
            }
            self.gaps.give_up(run);
            from = run.last.next();
        }
        if let Some(messages) = &mut self.messages {
            messages.give_up(message, last);
        }
        self.close_batch(now, None);
        true
    }

    /// Everything up to `last`, which lies beyond the highest that has come, is missing.
    fn open_gap_to(&mut self, now: Time, last: Seq) {
        self.end_run(now);
        let missing = LossRange { first: self.highest.next(), last };
        let window = last.since(self.base) as u32 + 1;
        self.buffer.extend_to(window);
        self.gaps.open(now, missing, self.base, window);
        self.lost += u64::from(missing.len());
        self.position += u64::from(missing.len());
        self.highest = last;
    }

    /// Bytes of the stream that can be read, or of the next message.
    pub fn readable(&self) -> bool {
        match &self.messages {
            Some(messages) => messages.next().is_some(),
            None => self.point().since(self.base) > 0,
        }
    }

    /// Takes stream data, at least `max_bytes` if there is so much, in whole packets.
    pub fn read(&mut self, max_bytes: usize, chunks: &mut Chunks) {
        let ready = self.point().since(self.base).max(0) as u32;
        let mut packets = 0;
        let mut bytes = 0;
        while packets < ready && bytes < max_bytes {
            bytes += self.buffer.slot(packets).map_or(0, Slot::len);
            packets += 1;
        }
        self.buffer.take_front(packets, chunks);
        self.base = self.base.plus(packets);
        self.reopen_window();
    }

    /// Takes the next message; returns whether there was one.
    pub fn read_message(&mut self, chunks: &mut Chunks) -> bool {
        let point = self.point();
        let Some(messages) = &mut self.messages else { return false };
        let Some(ready) = messages.pop() else { return false };
        let first = ready.first.since(self.base) as u32;
        self.buffer.take_message(first, ready.last.since(self.base) as u32, chunks);
        let gone = self.buffer.trim(point.since(self.base).max(0) as u32);
        self.base = self.base.plus(gone);
        self.reopen_window();
        true
    }

    /// Packets to advertise beyond the ACK point: room in the buffer, but not more than `target`.
    pub fn advertise(&mut self, target: u32) -> u32 {
        let unread = self.point().since(self.base).max(0) as u32;
        let room = self.capacity.saturating_sub(unread);
        self.held_back = room < target.min(self.capacity / 4);
        room.min(target).max(MIN_WINDOW)
    }

    /// Tells the peer when reading has made much room that it does not know of.
    fn reopen_window(&mut self) {
        let unread = self.point().since(self.base).max(0) as u32;
        let room = self.capacity.saturating_sub(unread);
        if self.held_back && room > self.capacity / 2 {
            self.held_back = false;
            self.acks.on_window_opened();
        }
    }
}

#[cfg(test)]
mod tests;
