//! Which messages are complete.
//!
//! Everything before the ACK point is gone through once, in order: it gives the messages in order.
//! A message that need not wait for its turn is watched apart while it lies beyond that point.

use std::collections::{BTreeMap, VecDeque};

use farhaul_wire::Seq;

use super::buffer::{Content, ReceiveBuffer};

/// A message that waits to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    pub first: Seq,
    pub last: Seq,
}

/// What has come of a message beyond the ACK point.
#[derive(Clone, Copy, Debug, Default)]
struct Partial {
    packets: u32,
    first: Option<Seq>,
    last: Option<Seq>,
}

#[derive(Debug)]
pub struct Messages {
    ready: VecDeque<Ready>,
    /// Everything before it has been gone through.
    cursor: Seq,
    /// The message that the cursor is in began here.
    open: Option<Seq>,
    /// Messages not in order, by number. Each entry stands for at least one stored packet.
    partial: BTreeMap<u32, Partial>,
    /// The last few messages that the sender gave up, by number and last packet.
    given_up: VecDeque<(u32, Seq)>,
}

/// Messages given up that are remembered. Parts of one forgotten stay until the next message comes.
const GIVEN_UP: usize = 32;

impl Messages {
    pub fn new(isn: Seq) -> Self {
        Messages {
            ready: VecDeque::new(),
            cursor: isn,
            open: None,
            partial: BTreeMap::new(),
            given_up: VecDeque::new(),
        }
    }

    /// The next message to read.
    pub fn next(&self) -> Option<Ready> {
        self.ready.front().copied()
    }

    pub fn pop(&mut self) -> Option<Ready> {
        self.ready.pop_front()
    }

    /// Whether `seq` lies before the ACK point and has been gone through.
    pub fn has_passed(&self, seq: Seq) -> bool {
        seq.since(self.cursor) < 0
    }

    /// A packet that need not wait for its turn has been stored.
    pub fn on_unordered(&mut self, seq: Seq, base: Seq, buffer: &mut ReceiveBuffer) {
        let Some(slot) = buffer.slot(seq.since(base) as u32).copied() else { return };
        let partial = self.partial.entry(slot.message).or_default();
        partial.packets += 1;
        if slot.first {
            partial.first = Some(seq);
        }
        if slot.last {
            partial.last = Some(seq);
        }
        let (Some(first), Some(last)) = (partial.first, partial.last) else { return };
        if last.since(first) + 1 == partial.packets as i32 {
            let (from, to) = (first.since(base), last.since(base));
            if from >= 0 && whole(buffer, from as u32, to as u32, slot.message) {
                self.accept(Ready { first, last }, base, buffer);
            }
            self.partial.remove(&slot.message);
        }
    }

    /// Goes through what now lies before the ACK point.
    pub fn advance(&mut self, point: Seq, base: Seq, buffer: &mut ReceiveBuffer) {
        while point.since(self.cursor) > 0 {
            let seq = self.cursor;
            self.cursor = seq.next();
            let index = seq.since(base);
            let Some(slot) = u32::try_from(index).ok().and_then(|i| buffer.slot(i)).copied() else {
                continue;
            };
            if slot.content != Content::Present {
                // Read ahead of its turn, or given up: an open message cannot be whole any more.
                self.abandon(seq, base, buffer);
                continue;
            }
            self.partial.remove(&slot.message);
            let continues = self.open.is_some_and(|first| {
                let head = buffer.slot(first.since(base) as u32);
                !slot.first && head.is_some_and(|h| h.message == slot.message)
            });
            if slot.first {
                self.abandon(seq, base, buffer);
                self.open = Some(seq);
            } else if !continues {
                // A fragment without a head.
                self.abandon(seq, base, buffer);
                buffer.discard(index as u32);
                continue;
            }
            if slot.last
                && let Some(first) = self.open.take()
            {
                self.accept(Ready { first, last: seq }, base, buffer);
            }
        }
        if !self.given_up.is_empty() {
            self.abandon_given_up(base, buffer);
        }
    }

    /// The sender has given `message` up, the last of whose packets that were sent is `last`.
    pub fn give_up(&mut self, message: u32, last: Seq) {
        if self.given_up.len() == GIVEN_UP {
            self.given_up.pop_front();
        }
        self.given_up.push_back((message, last));
    }

    /// Discards the open message if the sender has given it up and no more of it will come.
    fn abandon_given_up(&mut self, base: Seq, buffer: &mut ReceiveBuffer) {
        let head = self.open.and_then(|first| buffer.slot(first.since(base) as u32));
        let Some(head) = head else { return };
        if self.given_up.contains(&(head.message, self.cursor.prev())) {
            self.abandon(self.cursor, base, buffer);
        }
    }

    /// Discards the open message, which ends before `end` without its last packet.
    fn abandon(&mut self, end: Seq, base: Seq, buffer: &mut ReceiveBuffer) {
        if let Some(first) = self.open.take() {
            for index in first.since(base) as u32..end.since(base) as u32 {
                buffer.discard(index);
            }
        }
    }

    fn accept(&mut self, ready: Ready, base: Seq, buffer: &mut ReceiveBuffer) {
        for index in ready.first.since(base) as u32..=ready.last.since(base) as u32 {
            buffer.make_ready(index);
        }
        self.ready.push_back(ready);
    }
}

/// Whether the packets `from ..= to` are all there and of one message.
fn whole(buffer: &ReceiveBuffer, from: u32, to: u32, message: u32) -> bool {
    (from..=to).all(|index| {
        buffer.slot(index).is_some_and(|s| s.content == Content::Present && s.message == message)
    })
}
