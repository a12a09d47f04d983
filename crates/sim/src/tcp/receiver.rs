//! The receiving side of a TCP connection. Its application reads at once.

use core::time::Duration;

use farhaul_base::Time;

use super::TcpConfig;
use super::ranges::Ranges;
use super::segment::{BLOCKS, Block, Kind};

/// Data segments that are acknowledged together at most (RFC 5681 §4.2).
const ACK_INTERVAL: u32 = 2;

/// One connection.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// The first segment that has not arrived.
    next: u64,
    /// What has arrived beyond.
    beyond: Ranges,
    /// One number of each of the blocks that were reported last, most recent first.
    recent: [Option<u64>; BLOCKS],
    /// The window, segments.
    window: u32,
    delayed_ack: Option<Duration>,
    /// Segments that wait to be acknowledged.
    pending: u32,
    /// When they are at the latest.
    due: Option<Time>,
    /// An ACK is to leave now.
    ack_now: bool,
    /// Bytes and segments that have arrived in order.
    bytes: u64,
    /// Bytes of a full segment.
    payload: u32,
    /// The last segment and what it lacks to a full one, once it has arrived.
    end: Option<(u64, u32)>,
    /// Segments that had arrived before.
    duplicates: u64,
    /// Segments that have come marked.
    marks: u32,
}

impl Receiver {
    /// A connection that a SYN has asked for.
    pub fn new(config: &TcpConfig) -> Self {
        Receiver {
            next: 0,
            beyond: Ranges::default(),
            recent: [None; BLOCKS],
            window: config.window_segments(),
            delayed_ack: config.delayed_ack,
            pending: 0,
            due: None,
            ack_now: false,
            bytes: 0,
            payload: config.payload(),
            end: None,
            duplicates: 0,
            marks: 0,
        }
    }

    /// Bytes that have arrived in order.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Segments that had arrived before.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// The segment that has just come was marked, or not.
    pub fn count_mark(&mut self, marked: bool) {
        self.marks = self.marks.wrapping_add(u32::from(marked));
    }

    /// Segments that have come marked.
    pub fn marks(&self) -> u32 {
        self.marks
    }

    /// Whether everything has arrived; and how many segments that was.
    pub fn done(&self) -> Option<u64> {
        self.end.map(|(number, _)| number + 1).filter(|end| *end == self.next)
    }

    /// The answer to a SYN.
    pub fn syn_ack(&self) -> Kind {
        Kind::SynAck { window: self.window }
    }

    /// A data segment has come.
    pub fn receive(&mut self, now: Time, number: u64, len: u32, last: bool) {
        if last {
            self.end = Some((number, self.payload - len));
        }
        let beyond_window = number >= self.next + u64::from(self.window);
        let mut new = false;
        if number == self.next {
            new = true;
            // Filling a hole, all or part of it, is reported at once (RFC 5681 §4.2).
            self.ack_now |= !self.beyond.is_empty();
            self.next += 1;
            if let Some(range) = self.beyond.take_from(self.next) {
                self.next = range.end;
            }
            self.count_bytes();
        } else if number > self.next && !beyond_window {
            self.beyond.insert(number..number + 1, |_| new = true);
            self.report_first(number);
            self.ack_now = true;
        }
        if !new {
            self.duplicates += u64::from(!beyond_window);
            self.ack_now = true;
        }
        self.pending += 1;
        match self.delayed_ack {
            Some(delay)
                if !self.ack_now && self.pending < ACK_INTERVAL && self.done().is_none() =>
            {
                self.due.get_or_insert(now + delay);
            }
            _ => self.ack_now = true,
        }
    }

    fn count_bytes(&mut self) {
        self.bytes = self.next * u64::from(self.payload);
        if let Some((_, short)) = self.end.filter(|(number, _)| *number < self.next) {
            self.bytes -= u64::from(short);
        }
    }

    /// The block that holds `number` comes first, the others after it in their order, each once
    /// (RFC 2018 §4).
    fn report_first(&mut self, number: u64) {
        let Some(block) = self.beyond.find(number) else { return };
        let known = self.recent.iter().position(|n| n.is_some_and(|n| block.contains(&n)));
        let from = known.unwrap_or(BLOCKS - 1);
        self.recent[..=from].rotate_right(1);
        self.recent[0] = Some(number);
    }

    /// The ACK to send now, if there is one, and when to come again.
    pub fn turn(&mut self, now: Time) -> (Option<Kind>, Option<Time>) {
        if !self.ack_now && self.due.is_none_or(|due| due > now) {
            return (None, self.due);
        }
        self.ack_now = false;
        self.pending = 0;
        self.due = None;
        (Some(self.ack()), None)
    }

    fn ack(&mut self) -> Kind {
        let mut blocks = [Block::default(); BLOCKS];
        if !self.beyond.is_empty() {
            let mut filled = 0;
            for index in 0..BLOCKS {
                let range = self.recent[index].and_then(|number| self.beyond.find(number));
                // Two of them may have grown together.
                let block = range.map(|range| Block {
                    gap: (range.start - self.next) as u32,
                    len: (range.end - range.start) as u32,
                });
                let Some(block) = block.filter(|block| !blocks[..filled].contains(block)) else {
                    self.recent[index] = None;
                    continue;
                };
                blocks[filled] = block;
                filled += 1;
            }
        } else {
            self.recent = [None; BLOCKS];
        }
        Kind::Ack { next: self.next, window: self.window, blocks }
    }
}

#[cfg(test)]
mod tests;
