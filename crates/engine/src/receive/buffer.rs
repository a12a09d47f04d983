//! The receiver's buffer: what has arrived and the application has not taken.
//!
//! A packet is a slot that points into the receive-offload buffer it came in; that buffer, a batch,
//! is held until its last packet is taken. Slots are indexed by their distance from the first
//! packet not taken.

use std::collections::VecDeque;

use bytes::Bytes;

/// Batches held may exceed the payload stored by this factor, and [`PINNED_SLACK`], before what is
/// stored is copied together.
pub const MAX_PINNED_FACTOR: usize = 2;
pub const PINNED_SLACK: usize = 1 << 20;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing has arrived.
    Missing,
    /// A packet that waits to be read.
    Present,
    /// Part of a message that is complete and waits to be read.
    Ready,
    /// Given up by the sender; it may still turn up.
    Dropped,
    /// Read, or of no use.
    Gone,
}

#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub content: Content,
    pub first: bool,
    pub last: bool,
    len: u16,
    /// Message number as on the wire.
    pub message: u32,
    batch: u32,
    start: u32,
}

impl Slot {
    /// A slot with nothing in it.
    pub const MISSING: Slot = Slot {
        content: Content::Missing,
        first: false,
        last: false,
        len: 0,
        message: 0,
        batch: 0,
        start: 0,
    };

    /// A packet of `len` payload bytes at `start` of the batch being received.
    pub fn packet(first: bool, last: bool, message: u32, len: u16) -> Slot {
        Slot { content: Content::Present, first, last, len, message, ..Slot::MISSING }
    }

    /// Payload bytes.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether nothing has arrived, nor been given up.
    pub fn is_missing(&self) -> bool {
        self.content == Content::Missing
    }
}

/// A receive-offload buffer of which something is stored.
#[derive(Debug)]
struct Batch {
    bytes: Bytes,
    /// Slots that point here, and their payload bytes; no slots: a free entry.
    slots: u32,
    live: usize,
}

/// Bytes handed to the application, by reference.
///
/// Reused from call to call, it stops allocating once it has grown.
#[derive(Debug, Default)]
pub struct Chunks {
    batches: Vec<Bytes>,
    pieces: VecDeque<(u32, u32, u32)>,
    len: usize,
}

impl Chunks {
    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Lets go of them, and keeps the room for others.
    pub fn clear(&mut self) {
        self.batches.clear();
        self.pieces.clear();
        self.len = 0;
    }

    /// Copies to `out` what fits and removes it; returns how much.
    pub fn copy_to(&mut self, out: &mut [u8]) -> usize {
        let mut filled = 0;
        while let Some((batch, start, len)) = self.pieces.front_mut() {
            let count = (*len as usize).min(out.len() - filled);
            let from = *start as usize;
            out[filled..filled + count]
                .copy_from_slice(&self.batches[*batch as usize][from..from + count]);
            filled += count;
            *start += count as u32;
            *len -= count as u32;
            if *len > 0 {
                break;
            }
            self.pieces.pop_front();
        }
        self.consumed(filled);
        filled
    }

    /// Takes the next piece, by reference.
    pub fn pop(&mut self) -> Option<Bytes> {
        let (batch, start, len) = self.pieces.pop_front()?;
        let piece = self.batches[batch as usize].slice(start as usize..(start + len) as usize);
        self.consumed(len as usize);
        Some(piece)
    }

    fn consumed(&mut self, bytes: usize) {
        self.len -= bytes;
        if self.pieces.is_empty() {
            self.batches.clear();
        }
    }
}

#[derive(Debug)]
pub struct ReceiveBuffer {
    slots: VecDeque<Slot>,
    batches: Vec<Batch>,
    free: Vec<u32>,
    /// Payload bytes stored, and bytes of all batches held.
    stored: usize,
    pinned: usize,
}

impl ReceiveBuffer {
    pub fn new() -> Self {
        ReceiveBuffer {
            slots: VecDeque::new(),
            batches: Vec::new(),
            free: Vec::new(),
            stored: 0,
            pinned: 0,
        }
    }

    /// Payload bytes stored.
    pub fn stored(&self) -> usize {
        self.stored
    }

    /// Bytes of memory held for them.
    pub fn pinned(&self) -> usize {
        self.pinned
    }

    pub fn slot(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index as usize)
    }

    /// Makes the span reach `index`, exclusive, with missing slots.
    pub fn extend_to(&mut self, index: u32) {
        if index as usize > self.slots.len() {
            self.slots.resize(index as usize, Slot::MISSING);
        }
    }

    /// Starts a batch: `bytes` is a receive-offload buffer whose packets may be stored.
    pub fn open_batch(&mut self, bytes: Bytes) -> u32 {
        self.pinned += bytes.len();
        let batch = Batch { bytes, slots: 0, live: 0 };
        if let Some(index) = self.free.pop() {
            self.batches[index as usize] = batch;
            return index;
        }
        self.batches.push(batch);
        self.batches.len() as u32 - 1
    }

    /// Ends a batch: if nothing of it was stored, it is released; and memory that is mostly held
    /// for nothing is given back.
    pub fn close_batch(&mut self, batch: u32) {
        if self.batches[batch as usize].slots == 0 {
            self.free_batch(batch);
        }
        if self.pinned > MAX_PINNED_FACTOR * self.stored + PINNED_SLACK {
            self.compact();
        }
    }

    /// Stores a packet that directly follows the last one.
    #[inline]
    pub fn push(&mut self, mut slot: Slot, batch: u32, start: u32) {
        self.account(&mut slot, batch, start);
        self.slots.push_back(slot);
    }

    /// Stores a packet into a missing slot, or one given up that turns up after all.
    pub fn put(&mut self, index: u32, mut slot: Slot, batch: u32, start: u32) {
        self.account(&mut slot, batch, start);
        self.slots[index as usize] = slot;
    }

    #[inline]
    fn account(&mut self, slot: &mut Slot, batch: u32, start: u32) {
        slot.batch = batch;
        slot.start = start;
        let entry = &mut self.batches[batch as usize];
        entry.slots += 1;
        entry.live += slot.len();
        self.stored += slot.len();
    }

    /// Marks what `index` holds as of no use.
    pub fn discard(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        let old = *slot;
        slot.content = Content::Gone;
        if matches!(old.content, Content::Present | Content::Ready) {
            self.release(&old);
        }
    }

    /// Marks a missing packet as given up by the sender.
    pub fn give_up(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize)
            && slot.content == Content::Missing
        {
            slot.content = Content::Dropped;
        }
    }

    /// Marks a packet as part of a complete message.
    pub fn make_ready(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.content = Content::Ready;
        }
    }

    /// Takes the first `packets` slots out, whose packets are all present, and appends them to
    /// `chunks`.
    pub fn take_front(&mut self, packets: u32, chunks: &mut Chunks) {
        let mut last_batch = None;
        for _ in 0..packets {
            let Some(slot) = self.slots.pop_front() else { break };
            self.append(&slot, &mut last_batch, chunks);
            self.release(&slot);
        }
    }

    /// Takes the packets `first ..= last` of a message; their slots stay until the front reaches
    /// them.
    pub fn take_message(&mut self, first: u32, last: u32, chunks: &mut Chunks) {
        let mut last_batch = None;
        for index in first..=last {
            let slot = self.slots[index as usize];
            self.append(&slot, &mut last_batch, chunks);
            self.discard(index);
        }
    }

    /// Removes slots at the front that hold nothing more, at most `limit`; returns how many.
    pub fn trim(&mut self, limit: u32) -> u32 {
        let mut count = 0;
        let done = |s: &Slot| matches!(s.content, Content::Gone | Content::Dropped);
        while count < limit && self.slots.front().is_some_and(done) {
            self.slots.pop_front();
            count += 1;
        }
        count
    }

    fn append(&self, slot: &Slot, last_batch: &mut Option<u32>, chunks: &mut Chunks) {
        if slot.len == 0 {
            return;
        }
        if *last_batch != Some(slot.batch) || chunks.batches.is_empty() {
            chunks.batches.push(self.batches[slot.batch as usize].bytes.clone());
            *last_batch = Some(slot.batch);
        }
        let batch = chunks.batches.len() as u32 - 1;
        chunks.pieces.push_back((batch, slot.start, u32::from(slot.len)));
        chunks.len += slot.len();
    }

    #[inline]
    fn release(&mut self, slot: &Slot) {
        self.stored -= slot.len();
        let batch = &mut self.batches[slot.batch as usize];
        batch.live -= slot.len();
        batch.slots -= 1;
        if batch.slots == 0 {
            self.free_batch(slot.batch);
        }
    }

    fn free_batch(&mut self, batch: u32) {
        let entry = &mut self.batches[batch as usize];
        self.pinned -= entry.bytes.len();
        entry.bytes = Bytes::new();
        self.free.push(batch);
    }

    /// Copies packets out of batches of which a quarter or more is held for nothing. It runs when
    /// twice what is stored is held and leaves at most 4/3 of it, so that much must arrive before
    /// the next run.
    fn compact(&mut self) {
        for slot in &mut self.slots {
            if !matches!(slot.content, Content::Present | Content::Ready) {
                continue;
            }
            let batch = &mut self.batches[slot.batch as usize];
            if batch.live * 4 >= batch.bytes.len() * 3 {
                continue;
            }
            let range = slot.start as usize..slot.start as usize + slot.len();
            let bytes = Bytes::copy_from_slice(&batch.bytes[range]);
            batch.slots -= 1;
            batch.live -= slot.len();
            let emptied = (batch.slots == 0).then_some(slot.batch);
            let copy = Batch { live: bytes.len(), slots: 1, bytes };
            self.pinned += copy.live;
            slot.start = 0;
            slot.batch = match self.free.pop() {
                Some(index) => {
                    self.batches[index as usize] = copy;
                    index
                }
                None => {
                    self.batches.push(copy);
                    self.batches.len() as u32 - 1
                }
            };
            if let Some(index) = emptied {
                let entry = &mut self.batches[index as usize];
                self.pinned -= entry.bytes.len();
                entry.bytes = Bytes::new();
                self.free.push(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solo(len: u16) -> Slot {
        Slot::packet(true, true, 1, len)
    }

    #[test]
    fn packets_of_a_batch_are_read_by_copy_or_by_reference() {
        let mut buffer = ReceiveBuffer::new();
        let bytes = Bytes::from((0..=99u8).collect::<Vec<_>>());
        let batch = buffer.open_batch(bytes.clone());
        for i in 0..4 {
            buffer.push(solo(20), batch, i * 25 + 5);
        }
        buffer.close_batch(batch);
        assert_eq!((buffer.stored(), buffer.pinned()), (80, 100));
        let mut chunks = Chunks::default();
        buffer.take_front(3, &mut chunks);
        let mut out = [0; 30];
        assert_eq!(chunks.copy_to(&mut out), 30);
        assert_eq!((out[0], out[19], out[20], out[29]), (5, 24, 30, 39));
        assert_eq!(chunks.pop().unwrap(), bytes.slice(40..50));
        assert_eq!(chunks.pop().unwrap(), bytes.slice(55..75));
        assert!(chunks.pop().is_none() && chunks.is_empty());
        buffer.take_front(1, &mut chunks);
        assert_eq!((buffer.stored(), buffer.pinned()), (0, 0));
    }

    /// One packet stored of each large batch: what a peer can do to hold memory.
    #[test]
    fn memory_held_follows_what_is_stored() {
        let mut buffer = ReceiveBuffer::new();
        for i in 0..2_000u32 {
            let batch = buffer.open_batch(Bytes::from(vec![i as u8; 64_000]));
            buffer.push(solo(1_000), batch, 500);
            buffer.close_batch(batch);
            assert!(buffer.pinned() <= 2 * buffer.stored() + PINNED_SLACK);
        }
        let mut chunks = Chunks::default();
        buffer.take_front(2_000, &mut chunks);
        for i in 0..2_000u32 {
            assert!(chunks.pop().unwrap().iter().all(|&b| b == i as u8));
        }
        assert_eq!((buffer.stored(), buffer.pinned()), (0, 0));
    }

    #[test]
    fn slots_of_messages_are_trimmed_in_order() {
        let mut buffer = ReceiveBuffer::new();
        let batch = buffer.open_batch(Bytes::from(vec![7; 300]));
        buffer.push(solo(100), batch, 0);
        buffer.extend_to(2);
        buffer.push(solo(100), batch, 100);
        buffer.close_batch(batch);
        let mut chunks = Chunks::default();
        buffer.take_message(2, 2, &mut chunks);
        assert_eq!(chunks.len(), 100);
        assert_eq!(buffer.trim(9), 0);
        buffer.discard(0);
        assert_eq!(buffer.trim(9), 1);
        let batch = buffer.open_batch(Bytes::from(vec![8; 10]));
        buffer.put(0, solo(10), batch, 0);
        assert_eq!(buffer.slot(0).unwrap().content, Content::Present);
    }
}
