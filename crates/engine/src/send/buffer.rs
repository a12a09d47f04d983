//! The sender's buffer: what the application wrote and the peer has not acknowledged.
//!
//! Payload lies in blocks held by reference count. A packet is a slot that points into a block.
//! Slots wait in `queue` until they are first sent, which gives them their sequence number, and
//! then in `sent` until they are acknowledged.

use std::collections::VecDeque;

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_wire::{Boundary, HEADER_LEN, MsgNo};

use crate::frames::Frames;
use crate::transmit::{self, Transmit};

/// A packet's place in the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Running number of the block.
    block: u32,
    start: u32,
    len: u16,
    pub boundary: Boundary,
    pub in_order: bool,
    /// The message has a time to live.
    pub expires: bool,
    /// Given up: never sent again.
    pub dropped: bool,
    /// Running number of the message.
    pub message: u32,
    /// Microseconds at the last transmission, on the connection's clock.
    pub sent_us: u32,
    pub fate: Fate,
}

/// What has become of a packet, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Sent at most once, and not known to be lost.
    Fresh,
    /// Taken for lost, and not sent again yet.
    Lost,
    /// Sent more than once.
    Resent,
}

impl Slot {
    /// Sent more than once.
    pub fn retransmitted(&self) -> bool {
        self.fate == Fate::Resent
    }

    /// Payload bytes.
    pub fn len(&self) -> u32 {
        u32::from(self.len)
    }

    /// Microseconds since the last transmission when the connection's clock is at `clock_us`: none
    /// if that was when something arrived that had waited while this packet was sent.
    pub fn age_us(&self, clock_us: u32) -> u32 {
        (clock_us.wrapping_sub(self.sent_us) as i32).max(0) as u32
    }
}

#[derive(Debug)]
struct Block {
    payload: transmit::Block,
    /// Slots that still point here.
    live: u32,
}

/// When a message expires.
#[derive(Clone, Copy, Debug)]
struct Expiry {
    message: u32,
    at: Time,
}

#[derive(Debug)]
pub struct SendBuffer {
    /// Largest payload of a packet.
    payload_size: usize,
    sent: VecDeque<Slot>,
    queue: VecDeque<Slot>,
    blocks: VecDeque<Block>,
    /// Running number of the first block.
    first_block: u32,
    /// The last packet of a stream while it is not full and not sent.
    tail: Vec<u8>,
    /// Payload bytes held.
    bytes: usize,
    next_message: u32,
    expiries: VecDeque<Expiry>,
}

impl SendBuffer {
    pub fn new(payload_size: usize) -> Self {
        SendBuffer {
            payload_size,
            sent: VecDeque::new(),
            queue: VecDeque::new(),
            blocks: VecDeque::new(),
            first_block: 0,
            tail: Vec::new(),
            bytes: 0,
            next_message: 0,
            expiries: VecDeque::new(),
        }
    }

    /// Payload bytes held, sent or not.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Packets sent and not acknowledged.
    pub fn in_flight(&self) -> u32 {
        self.sent.len() as u32
    }

    /// Whether there is something that was never sent.
    pub fn has_unsent(&self) -> bool {
        !self.queue.is_empty() || !self.tail.is_empty()
    }

    /// Packets never sent.
    pub fn unsent(&self) -> u32 {
        self.queue.len() as u32 + u32::from(!self.tail.is_empty())
    }

    pub fn is_empty(&self) -> bool {
        self.sent.is_empty() && !self.has_unsent()
    }

    /// The wire's number of a message.
    pub fn message_number(message: u32) -> MsgNo {
        const NUMBERS: u32 = 0x1fff_fffe;
        MsgNo::new(1 + message % NUMBERS)
    }

    /// Starts message numbers at `message` (tests of the wrap).
    pub fn set_next_message(&mut self, message: u32) {
        self.next_message = message;
    }

    /// Appends to the stream, by reference but for what fills up the last packet: less than a
    /// packet at either end.
    pub fn append(&mut self, mut data: Bytes) {
        if !self.tail.is_empty() {
            let missing = (self.payload_size - self.tail.len()).min(data.len());
            self.append_to_tail(&data.split_to(missing));
        }
        let whole = data.len() / self.payload_size * self.payload_size;
        if whole > 0 {
            self.bytes += whole;
            let packets = data.split_to(whole);
            let block = transmit::Block::Bytes(packets);
            let block = self.push_block(block, (whole / self.payload_size) as u32);
            for start in (0..whole).step_by(self.payload_size) {
                self.queue_stream_packet(block, start as u32, self.payload_size as u16);
            }
        }
        self.append_to_tail(&data);
    }

    /// Appends full packets to the stream, by reference. A packet that is being filled goes as it
    /// is.
    pub fn append_frames(&mut self, frames: Frames) {
        debug_assert_eq!(frames.payload_size, self.payload_size);
        if frames.is_empty() {
            return;
        }
        self.close_tail();
        self.bytes += frames.len();
        let memory = transmit::Block::Frames(frames.memory);
        let block = self.push_block(memory, frames.packets as u32);
        for index in 0..frames.packets {
            let start = index * (HEADER_LEN + self.payload_size) + HEADER_LEN;
            self.queue_stream_packet(block, start as u32, self.payload_size as u16);
        }
    }

    /// Bytes that the packet that is being filled has room for; none if there is no such packet.
    pub fn tail_room(&self) -> usize {
        if self.tail.is_empty() { 0 } else { self.payload_size - self.tail.len() }
    }

    /// Adds bytes to the packet that is being filled; they fit.
    fn append_to_tail(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.bytes += data.len();
        self.tail.extend_from_slice(data);
        if self.tail.len() == self.payload_size {
            self.close_tail();
        }
    }

    /// Makes the packet that is being filled one to send.
    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            let len = self.tail.len();
            let block = transmit::Block::Bytes(Bytes::copy_from_slice(&self.tail));
            let block = self.push_block(block, 1);
            self.tail.clear();
            self.queue_stream_packet(block, 0, len as u16);
        }
    }

    fn queue_stream_packet(&mut self, block: u32, start: u32, len: u16) {
        let message = self.take_message();
        self.queue.push_back(Slot {
            block,
            start,
            len,
            boundary: Boundary::SOLO,
            in_order: false,
            expires: false,
            dropped: false,
            message,
            sent_us: 0,
            fate: Fate::Fresh,
        });
    }

    /// Appends a message; `expires_at`: when it may be given up.
    pub fn push_message(&mut self, data: Bytes, in_order: bool, expires_at: Option<Time>) {
        let len = data.len();
        let packets = len.div_ceil(self.payload_size).max(1);
        let message = self.take_message();
        if let Some(at) = expires_at {
            self.expiries.push_back(Expiry { message, at });
        }
        self.bytes += len;
        let block = self.push_block(transmit::Block::Bytes(data), packets as u32);
        for index in 0..packets {
            let start = index * self.payload_size;
            self.queue.push_back(Slot {
                block,
                start: start as u32,
                len: (len - start).min(self.payload_size) as u16,
                boundary: Boundary { first: index == 0, last: index + 1 == packets },
                in_order,
                expires: expires_at.is_some(),
                dropped: false,
                message,
                sent_us: 0,
                fate: Fate::Fresh,
            });
        }
    }

    /// The slot of the packet `index` places after the first unacknowledged one.
    pub fn sent(&self, index: u32) -> Option<&Slot> {
        self.sent.get(index as usize)
    }

    pub fn sent_mut(&mut self, index: u32) -> Option<&mut Slot> {
        self.sent.get_mut(index as usize)
    }

    /// The next packet never sent.
    pub fn peek_unsent(&mut self) -> Option<&Slot> {
        if self.queue.is_empty() {
            self.close_tail();
        }
        self.queue.front()
    }

    /// Takes that packet for sent: it is now the last of those in flight.
    pub fn send_next(&mut self, now_us: u32) -> Option<Slot> {
        let mut slot = self.queue.pop_front()?;
        slot.sent_us = now_us;
        self.sent.push_back(slot);
        Some(slot)
    }

    /// Adds the packet of `slot` to `out`, to be followed by [`SendBuffer::close_run`].
    pub fn put(&mut self, slot: &Slot, header: [u8; HEADER_LEN], out: &mut Transmit) {
        if out.open_block() != Some(slot.block) {
            self.close_run(out);
        }
        out.push_data(header, slot.block, slot.start, slot.len());
    }

    /// The payload of `slot`.
    pub fn payload(&self, slot: &Slot) -> &[u8] {
        let index = slot.block.wrapping_sub(self.first_block) as usize;
        let start = slot.start as usize;
        &self.blocks[index].payload.as_ref()[start..start + slot.len() as usize]
    }

    /// Hands `out` the block that its last packets lie in.
    pub fn close_run(&mut self, out: &mut Transmit) {
        if let Some(number) = out.open_block() {
            let index = number.wrapping_sub(self.first_block) as usize;
            out.close_block(&mut self.blocks[index].payload);
        }
    }

    /// Releases the first `packets` in flight; returns their payload bytes.
    pub fn acknowledge(&mut self, packets: u32) -> usize {
        let before = self.bytes;
        for _ in 0..packets {
            let Some(slot) = self.sent.pop_front() else { break };
            self.release(&slot);
        }
        let oldest = self.sent.front().or(self.queue.front()).map(|s| s.message);
        let done = |e: &Expiry| oldest.is_none_or(|m| (e.message.wrapping_sub(m) as i32) < 0);
        while self.expiries.front().is_some_and(done) {
            self.expiries.pop_front();
        }
        before - self.bytes
    }

    /// Whether the message of `slot` has outlived its time.
    pub fn expired(&self, slot: &Slot, now: Time) -> bool {
        if !slot.expires {
            return false;
        }
        let before = |e: &Expiry| (e.message.wrapping_sub(slot.message) as i32) < 0;
        let index = self.expiries.partition_point(before);
        self.expiries.get(index).is_some_and(|e| e.message == slot.message && e.at < now)
    }

    /// Gives up what remains of `message`: packets in flight are marked, unsent ones at the head of
    /// the queue removed. Returns the places in flight it spans, first and last, if any.
    pub fn drop_message(&mut self, message: u32, near: Option<u32>) -> Option<(u32, u32)> {
        while self.queue.front().is_some_and(|s| s.message == message) {
            if let Some(slot) = self.queue.pop_front() {
                self.release(&slot);
            }
        }
        let belongs = |index: u32| self.sent(index).is_some_and(|s| s.message == message);
        let near = near.or_else(|| self.in_flight().checked_sub(1))?;
        if !belongs(near) {
            return None;
        }
        let (mut first, mut last) = (near, near);
        while first > 0 && belongs(first - 1) {
            first -= 1;
        }
        while belongs(last + 1) {
            last += 1;
        }
        for index in first..=last {
            if let Some(slot) = self.sent_mut(index) {
                slot.dropped = true;
            }
        }
        Some((first, last))
    }

    fn take_message(&mut self) -> u32 {
        let message = self.next_message;
        self.next_message = message.wrapping_add(1);
        message
    }

    fn push_block(&mut self, payload: transmit::Block, packets: u32) -> u32 {
        self.blocks.push_back(Block { payload, live: packets });
        self.first_block.wrapping_add(self.blocks.len() as u32 - 1)
    }

    fn release(&mut self, slot: &Slot) {
        self.bytes -= usize::from(slot.len);
        let index = slot.block.wrapping_sub(self.first_block) as usize;
        self.blocks[index].live -= 1;
        while self.blocks.front().is_some_and(|b| b.live == 0) {
            self.blocks.pop_front();
            self.first_block = self.first_block.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lens(buffer: &mut SendBuffer) -> Vec<u32> {
        let mut out = Vec::new();
        while buffer.peek_unsent().is_some() {
            out.push(buffer.send_next(0).unwrap().len());
        }
        out
    }

    /// What the packets of `slots` are on the wire.
    fn sent(buffer: &mut SendBuffer, slots: &[Slot]) -> Vec<(u8, Vec<u8>)> {
        let mut out = Transmit::new();
        for (index, slot) in slots.iter().enumerate() {
            buffer.put(slot, [index as u8; HEADER_LEN], &mut out);
        }
        buffer.close_run(&mut out);
        out.datagrams().map(|(header, payload)| (header[0], payload.to_vec())).collect()
    }

    fn frames(first: u8, packets: usize) -> Frames {
        let mut memory = vec![0; packets * (HEADER_LEN + 100)];
        for (index, payload) in Frames::payloads(&mut memory, 100).enumerate() {
            payload.fill(first + index as u8);
        }
        Frames::new(memory, 100, packets)
    }

    #[test]
    fn frames_are_sent_from_where_they_lie() {
        let mut buffer = SendBuffer::new(100);
        buffer.append_frames(frames(10, 3));
        buffer.append(Bytes::from(vec![1; 30]));
        assert_eq!(buffer.tail_room(), 70);
        buffer.append_frames(frames(20, 2));
        assert_eq!((buffer.bytes(), buffer.unsent()), (530, 6));
        assert_eq!(lens(&mut buffer), [100, 100, 100, 30, 100, 100]);
        let slots: Vec<Slot> = (0..6).map(|i| *buffer.sent(i).unwrap()).collect();
        let firsts = |sent: Vec<(u8, Vec<u8>)>| -> Vec<(u8, u8)> {
            sent.iter().map(|(header, payload)| (*header, payload[0])).collect()
        };
        let wanted: Vec<_> = (0..6).zip([10, 11, 12, 1, 20, 21]).collect();
        assert_eq!(firsts(sent(&mut buffer, &slots)), wanted);
        // The second run in the first block finds it held by the first run.
        let mixed = [slots[2], slots[4], slots[0]];
        assert_eq!(firsts(sent(&mut buffer, &mixed)), [(0, 12), (1, 20), (2, 10)]);
        buffer.acknowledge(6);
        assert!(buffer.is_empty() && buffer.blocks.is_empty());
    }

    #[test]
    fn stream_writes_fill_packets() {
        let mut buffer = SendBuffer::new(100);
        buffer.append(Bytes::from(vec![1; 250]));
        buffer.append(Bytes::from(vec![2; 30]));
        buffer.append(Bytes::from(vec![3; 140]));
        assert_eq!(buffer.bytes(), 420);
        assert_eq!(buffer.unsent(), 5);
        assert_eq!(lens(&mut buffer), [100, 100, 100, 100, 20]);
        let slot = *buffer.sent(2).unwrap();
        let payload = sent(&mut buffer, &[slot]).remove(0).1;
        assert_eq!((payload[0], payload[99]), (1, 3), "50 ones, 30 twos, 20 threes");
        assert_eq!(buffer.acknowledge(5), 420);
        assert!(buffer.is_empty() && buffer.blocks.is_empty());
    }

    #[test]
    fn blocks_go_when_their_last_packet_is_acknowledged() {
        let mut buffer = SendBuffer::new(100);
        for _ in 0..3 {
            buffer.append(Bytes::from(vec![0; 200]));
        }
        lens(&mut buffer);
        assert_eq!(buffer.acknowledge(3), 300);
        assert_eq!(buffer.blocks.len(), 2);
        assert_eq!(buffer.in_flight(), 3);
    }

    #[test]
    fn messages_keep_their_bounds_and_expire() {
        let mut buffer = SendBuffer::new(100);
        buffer.push_message(Bytes::from(vec![0; 250]), true, Some(Time::from_millis(5)));
        buffer.push_message(Bytes::new(), false, None);
        buffer.push_message(Bytes::from(vec![0; 300]), false, Some(Time::from_millis(9)));
        buffer.peek_unsent();
        let first = buffer.send_next(0).unwrap();
        assert_eq!(first.boundary, Boundary::FIRST);
        assert!(!buffer.expired(&first, Time::from_millis(5)));
        assert!(buffer.expired(&first, Time::from_millis(6)));
        let second = buffer.send_next(0).unwrap();
        assert_eq!(buffer.drop_message(second.message, None), Some((0, 1)));
        assert!(buffer.sent(0).unwrap().dropped);
        // The third packet of it was never sent and is gone; the empty message is next.
        let next = buffer.send_next(0).unwrap();
        assert_eq!((next.len(), next.boundary), (0, Boundary::SOLO));
        assert_eq!(lens(&mut buffer), [100, 100, 100]);
        assert!(buffer.expired(&buffer.sent(4).copied().unwrap(), Time::from_millis(10)));
        buffer.acknowledge(6);
        assert!(buffer.is_empty() && buffer.expiries.is_empty());
    }

    #[test]
    fn message_numbers_skip_zero_at_the_wrap() {
        assert_eq!(SendBuffer::message_number(0).value(), 1);
        assert_eq!(SendBuffer::message_number(0x1fff_fffd).value(), 0x1fff_fffe);
        assert_eq!(SendBuffer::message_number(0x1fff_fffe).value(), 1);
    }
}
