//! The queue in front of the transmitter: which packets it lets in, and which leaves next.
//!
//! Packets leave in the order in which they came, but for the kinds that tell flows apart. All kinds drop
//! at the tail what does not fit, or make room; RED and PIE drop others as they come, CoDel and those
//! made of it as they leave. What can be marked (ECN) is marked in the place of an early drop.

mod codel;
mod config;
mod dual_pi2;
mod fq_codel;
mod pie;
mod red;
mod text;

use std::collections::VecDeque;

use farhaul_base::{Rng, Time};

pub use self::config::{CoDel, DualPi2, FqCoDel, Pie, QueueConfig, QueueLimit, Red};

use self::codel::CoDelQueue;
use self::dual_pi2::DualPi2Queue;
use self::fq_codel::FqCoDelQueue;
use self::pie::PieQueue;
use self::red::{Backlog, RedQueue};
use crate::fate::Cause;
use crate::stats::QueueDepth;
use crate::{LinkConfig, Packet};

/// Packets that wait, oldest first, and the account of what the link holds.
#[derive(Clone, Debug)]
pub(crate) struct Queue<P> {
    waiting: Waiting<P>,
    limit: Limit,
    discipline: Discipline<P>,
    depth: QueueDepth,
    /// Packets marked.
    marked: u64,
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
enum Discipline<P> {
    Tail,
    Red(Box<RedQueue>),
    CoDel(Box<CoDelQueue>),
    Pie(Box<PieQueue>),
    FqCoDel(Box<FqCoDelQueue<P>>),
    DualPi2(Box<DualPi2Queue<P>>),
}

/// What becomes of a packet that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    /// It passes, marked.
    Mark,
    Drop,
    /// There is no room.
    Full,
}

impl<P: Packet> Queue<P> {
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
            marked: 0,
            changed_at: Time::ZERO,
        }
    }

    /// Whether a packet of `bytes` that comes at `at` is let in; it may be marked. Asked once a packet.
    /// What was let in before and must make room goes to `evicted`.
    pub(crate) fn admit(
        &mut self,
        at: Time,
        packet: &mut P,
        bytes: usize,
        evicted: impl FnMut(P),
    ) -> Result<(), Cause> {
        let fits = self.fits(bytes);
        let room = if fits { Verdict::Pass } else { Verdict::Full };
        let capable = packet.ecn().is_capable();
        let verdict = match &mut self.discipline {
            Discipline::Tail | Discipline::DualPi2(_) => room,
            Discipline::CoDel(codel) => {
                codel.meet(bytes);
                room
            }
            Discipline::FqCoDel(flows) => {
                flows.meet(packet, bytes);
                self.make_room(at, bytes, evicted)
            }
            Discipline::Pie(pie) => match pie.admit(at, self.waiting.bytes, capable) {
                verdict if fits => verdict,
                _ => Verdict::Full,
            },
            Discipline::Red(red) => {
                let packets = self.waiting.packets.len() as u64;
                let waiting = Backlog { packets, bytes: self.waiting.bytes };
                red.admit(at, bytes, waiting, fits, capable)
            }
        };
        match verdict {
            Verdict::Pass => Ok(()),
            Verdict::Mark => {
                packet.mark();
                self.marked += 1;
                Ok(())
            }
            Verdict::Drop => Err(Cause::Early),
            Verdict::Full => Err(Cause::Full),
        }
    }

    /// Drops from the longest flow queue until a packet of `bytes` fits.
    fn make_room(&mut self, at: Time, bytes: usize, mut evicted: impl FnMut(P)) -> Verdict {
        while !self.fits(bytes) {
            let Discipline::FqCoDel(flows) = &mut self.discipline else { return Verdict::Full };
            let Some(head) = flows.drop_from_longest() else { return Verdict::Full };
            self.leave(at, head.bytes);
            evicted(head.packet);
        }
        Verdict::Pass
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
        match &mut self.discipline {
            Discipline::FqCoDel(flows) => return flows.push(at, packet),
            Discipline::DualPi2(pair) => return pair.push(at, packet),
            Discipline::CoDel(codel) => codel.push(at),
            Discipline::Pie(pie) => pie.push(at),
            Discipline::Tail | Discipline::Red(_) => {}
        }
        self.waiting.bytes += packet.bytes as u64;
        self.waiting.packets.push_back(packet);
    }

    /// The packet to transmit from `at` on, when a transmission has ended and been accounted for.
    /// Those that are dropped now go to `dropped`.
    pub(crate) fn pop(&mut self, at: Time, mut dropped: impl FnMut(P)) -> Option<Queued<P>> {
        let Queue { waiting, depth, marked, .. } = self;
        let mut drop = |packet: Queued<P>| {
            depth.packets -= 1;
            depth.bytes -= packet.bytes as u64;
            dropped(packet.packet);
        };
        let mut mark = |packet: &mut Queued<P>| {
            packet.packet.mark();
            *marked += 1;
        };
        // What is to tell of congestion: gives back what was marked.
        let mut congested = |mut packet: Queued<P>, may_mark: bool| {
            if may_mark && packet.packet.ecn().is_capable() {
                mark(&mut packet);
                return Some(packet);
            }
            drop(packet);
            None
        };
        match &mut self.discipline {
            Discipline::Tail => waiting.pop(),
            Discipline::Red(red) => {
                let head = waiting.pop();
                if head.is_none() {
                    red.run_dry(at);
                }
                head
            }
            Discipline::Pie(pie) => {
                let head = waiting.pop();
                match &head {
                    Some(_) => pie.pop(at),
                    None => pie.run_dry(at),
                }
                head
            }
            Discipline::CoDel(codel) => {
                let take = || waiting.pop().map(|head| (head, waiting.bytes));
                codel.pop(at, take, |packet| congested(packet, true))
            }
            Discipline::FqCoDel(flows) => flows.pop(at, |packet| congested(packet, true)),
            Discipline::DualPi2(pair) => pair.pop(at, congested),
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
        let (flows, pair) = match &self.discipline {
            Discipline::FqCoDel(flows) => (Some(flows.packets()), None),
            Discipline::DualPi2(pair) => (None, Some(pair.packets())),
            _ => (None, None),
        };
        let waiting = self.waiting.packets.iter().map(|queued| &queued.packet);
        waiting.chain(flows.into_iter().flatten()).chain(pair.into_iter().flatten())
    }

    /// Packets marked.
    pub(crate) fn marked(&self) -> u64 {
        self.marked
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

impl<P: Packet> Discipline<P> {
    fn new(config: &LinkConfig, rng: Rng) -> Self {
        match (config.queue, config.first_rate()) {
            (QueueConfig::Red(red), Some(rate)) => {
                Discipline::Red(Box::new(RedQueue::new(&red, rate, config.delay, rng)))
            }
            (QueueConfig::CoDel(codel), _) => {
                Discipline::CoDel(Box::new(CoDelQueue::new(codel.target, codel.interval)))
            }
            (QueueConfig::Pie(pie), _) => Discipline::Pie(Box::new(PieQueue::new(&pie, rng))),
            (QueueConfig::FqCoDel(flows), _) => {
                Discipline::FqCoDel(Box::new(FqCoDelQueue::new(&flows, rng)))
            }
            (QueueConfig::DualPi2(pair), _) => {
                Discipline::DualPi2(Box::new(DualPi2Queue::new(&pair)))
            }
            _ => Discipline::Tail,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[derive(Clone, Debug)]
    struct Nothing;

    impl Packet for Nothing {
        fn wire_len(&self) -> usize {
            0
        }
        fn corruptible_bits(&self) -> usize {
            0
        }
        fn flip_bit(&mut self, _: usize) {}
    }

    #[test]
    fn mean_depth_is_weighted_by_time() {
        let mut queue: Queue<Nothing> = Queue::new(&LinkConfig::default(), Rng::new(0));
        queue.enter(Time::from_secs(1), 100);
        queue.enter(Time::from_secs(2), 100);
        queue.leave(Time::from_secs(5), 100);
        queue.pass_time(Time::from_secs(10));
        // 0 for 1 s, 1 for 1 s, 2 for 3 s, 1 for 5 s.
        assert_eq!(queue.depth().mean_packets(Duration::from_secs(10)), 1.2);
        assert_eq!((queue.depth().packets, queue.depth().packets_max), (1, 2));
    }
}
