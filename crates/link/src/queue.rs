//! The queue in front of the transmitter: which packets it lets in, and which leaves next.
//!
//! Packets leave in the order in which they came. All kinds drop at the tail what does not fit; RED
//! drops others as they come, CoDel as they leave.

mod codel;
mod config;
mod red;
mod text;

use std::collections::VecDeque;

use farhaul_base::{Rng, Time};

pub use self::config::{CoDel, QueueConfig, QueueLimit, Red};

use self::codel::CoDelQueue;
use self::red::{Backlog, RedQueue};
use crate::LinkConfig;
use crate::fate::Cause;
use crate::stats::QueueDepth;

/// Packets that wait, oldest first, and the account of what the link holds.
#[derive(Clone, Debug)]
pub(crate) struct Queue<P> {
    waiting: Waiting<P>,
    limit: Limit,
    discipline: Discipline,
    depth: QueueDepth,
    /// When `depth` last changed.
    changed_at: Time,
}

/// A packet with the size it was admitted with, so that it leaves the account as it entered.
#[derive(Clone, Debug)]
pub(crate) struct Queued<P> {
    pub packet: P,
    pub bytes: usize,
}

/// Packets with the sum of their sizes.
#[derive(Clone, Debug)]
struct Waiting<P> {
    packets: VecDeque<Queued<P>>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    packets: u64,
    bytes: u64,
}

#[derive(Clone, Debug)]
enum Discipline {
    Tail,
    Red(Box<RedQueue>),
    CoDel(Box<CoDelQueue>),
}

impl<P> Queue<P> {
    pub(crate) fn new(config: &LinkConfig, rng: Rng) -> Self {
        let packets = match config.queue.limit() {
            QueueLimit::Packets(packets) => u64::from(packets),
            _ => u64::MAX,
        };
        let bytes = config.queue.limit_bytes(config.first_rate()).unwrap_or(u64::MAX);
        Queue {
            waiting: Waiting { packets: VecDeque::new(), bytes: 0 },
            limit: Limit { packets, bytes },
            discipline: Discipline::new(config, rng),
            depth: QueueDepth::default(),
            changed_at: Time::ZERO,
        }
    }

    /// Whether a packet of `bytes` that comes at `at` is let in. Asked once a packet.
    pub(crate) fn admit(&mut self, at: Time, bytes: usize) -> Result<(), Cause> {
        let fits = self.fits(bytes);
        match &mut self.discipline {
            Discipline::Tail => {}
            Discipline::CoDel(codel) => codel.meet(bytes),
            Discipline::Red(red) => {
                let packets = self.waiting.packets.len() as u64;
                let waiting = Backlog { packets, bytes: self.waiting.bytes };
                return red.admit(at, bytes, waiting, fits);
            }
        }
        if fits { Ok(()) } else { Err(Cause::Full) }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.depth.packets == 0
            || (self.depth.packets < self.limit.packets
                && self.depth.bytes.saturating_add(bytes as u64) <= self.limit.bytes)
    }

    /// Accounts for a packet that enters, to wait or to be transmitted at once.
    pub(crate) fn enter(&mut self, at: Time, bytes: usize) {
        self.pass_time(at);
        self.depth.packets += 1;
        self.depth.bytes += bytes as u64;
        self.depth.packets_max = self.depth.packets_max.max(self.depth.packets);
        self.depth.bytes_max = self.depth.bytes_max.max(self.depth.bytes);
    }

    /// Accounts for a packet whose transmission has ended.
    pub(crate) fn leave(&mut self, at: Time, bytes: usize) {
        self.pass_time(at);
        self.depth.packets -= 1;
        self.depth.bytes -= bytes as u64;
    }

    /// Lets a packet that has come at `at` wait.
    pub(crate) fn push(&mut self, at: Time, packet: Queued<P>) {
        if let Discipline::CoDel(codel) = &mut self.discipline {
            codel.push(at);
        }
        self.waiting.bytes += packet.bytes as u64;
        self.waiting.packets.push_back(packet);
    }

    /// The packet to transmit from `at` on, when a transmission has ended and been accounted for.
    /// Those that are dropped now go to `dropped`.
    pub(crate) fn pop(&mut self, at: Time, mut dropped: impl FnMut(P)) -> Option<Queued<P>> {
        let Queue { waiting, depth, .. } = self;
        match &mut self.discipline {
            Discipline::Tail => waiting.pop(),
            Discipline::Red(red) => {
                let head = waiting.pop();
                if head.is_none() {
                    red.run_dry(at);
                }
                head
            }
            Discipline::CoDel(codel) => {
                let take = || waiting.pop().map(|head| (head, waiting.bytes));
                let drop = |packet: Queued<P>| {
                    depth.packets -= 1;
                    depth.bytes -= packet.bytes as u64;
                    dropped(packet.packet);
                };
                codel.pop(at, take, drop)
            }
        }
    }

    /// Brings the time average of the depth up to `now`.
    pub(crate) fn pass_time(&mut self, now: Time) {
        // An offer may be dated before what has been settled; its span has been counted already.
        let span = now.nanos_since(self.changed_at);
        self.depth.packet_nanos += u128::from(self.depth.packets) * u128::from(span);
        self.changed_at = self.changed_at.max(now);
    }

    /// Those that wait.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &P> {
        self.waiting.packets.iter().map(|queued| &queued.packet)
    }

    pub(crate) fn depth(&self) -> QueueDepth {
        self.depth
    }
}

impl<P> Waiting<P> {
    fn pop(&mut self) -> Option<Queued<P>> {
        let head = self.packets.pop_front()?;
        self.bytes -= head.bytes as u64;
        Some(head)
    }
}

impl Discipline {
    fn new(config: &LinkConfig, rng: Rng) -> Self {
        match (config.queue, config.first_rate()) {
            (QueueConfig::Red(red), Some(rate)) => {
                Discipline::Red(Box::new(RedQueue::new(&red, rate, config.delay, rng)))
            }
            (QueueConfig::CoDel(codel), _) => Discipline::CoDel(Box::new(CoDelQueue::new(&codel))),
            _ => Discipline::Tail,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn mean_depth_is_weighted_by_time() {
        let mut queue: Queue<()> = Queue::new(&LinkConfig::default(), Rng::new(0));
        queue.enter(Time::from_secs(1), 100);
        queue.enter(Time::from_secs(2), 100);
        queue.leave(Time::from_secs(5), 100);
        queue.pass_time(Time::from_secs(10));
        // 0 for 1 s, 1 for 1 s, 2 for 3 s, 1 for 5 s.
        assert_eq!(queue.depth().mean_packets(Duration::from_secs(10)), 1.2);
        assert_eq!((queue.depth().packets, queue.depth().packets_max), (1, 2));
    }
}
