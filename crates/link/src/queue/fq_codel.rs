//! Flow queues, each under CoDel, served in turns: RFC 8290, section 4, with its names.

use std::collections::VecDeque;

use farhaul_base::{Rng, Time};

use super::Queued;
use super::codel::CoDelQueue;
use crate::{FqCoDel, Packet};

#[derive(Clone, Debug)]
pub(crate) struct FqCoDelQueue<P> {
    queues: Vec<FlowQueue<P>>,
    /// The queues in their turns, by number: those that have just become active, then the others.
    new_flows: VecDeque<usize>,
    old_flows: VecDeque<usize>,
    quantum: i64,
    /// Which flows share a queue is a matter of chance.
    salt: u64,
}

#[derive(Clone, Debug)]
struct FlowQueue<P> {
    packets: VecDeque<Queued<P>>,
    bytes: u64,
    codel: CoDelQueue,
    deficit: i64,
    listed: bool,
}

impl<P: Packet> FqCoDelQueue<P> {
    pub(crate) fn new(config: &FqCoDel, mut rng: Rng) -> Self {
        let queue = FlowQueue {
            packets: VecDeque::new(),
            bytes: 0,
            codel: CoDelQueue::new(config.target, config.interval),
            deficit: 0,
            listed: false,
        };
        FqCoDelQueue {
            queues: vec![queue; config.flows.get() as usize],
            new_flows: VecDeque::new(),
            old_flows: VecDeque::new(),
            quantum: i64::from(config.quantum.get()),
            salt: rng.next_u64(),
        }
    }

    /// A packet has come, to wait or not.
    pub(crate) fn meet(&mut self, packet: &P, bytes: usize) {
        let number = self.number(packet);
        self.queues[number].codel.meet(bytes);
    }

    fn number(&self, packet: &P) -> usize {
        Rng::new(packet.flow() ^ self.salt).below(self.queues.len() as u64) as usize
    }

    /// Lets a packet wait.
    pub(crate) fn push(&mut self, at: Time, packet: Queued<P>) {
        let number = self.number(&packet.packet);
        let queue = &mut self.queues[number];
        queue.codel.push(at);
        queue.bytes += packet.bytes as u64;
        queue.packets.push_back(packet);
        if !queue.listed {
            queue.listed = true;
            queue.deficit = self.quantum;
            self.new_flows.push_back(number);
        }
    }

    /// Takes a packet from the head of the longest queue: there is no room for the one that comes.
    pub(crate) fn drop_from_longest(&mut self) -> Option<Queued<P>> {
        let queue = self.queues.iter_mut().max_by_key(|queue| queue.bytes)?;
        let head = queue.packets.pop_front()?;
        queue.bytes -= head.bytes as u64;
        queue.codel.forget_head();
        Some(head)
    }

    /// The packet to transmit next. `congested` is as of [`CoDelQueue::pop`].
    pub(crate) fn pop(
        &mut self,
        now: Time,
        mut congested: impl FnMut(Queued<P>) -> Option<Queued<P>>,
    ) -> Option<Queued<P>> {
        loop {
            let is_new = !self.new_flows.is_empty();
            let list = if is_new { &mut self.new_flows } else { &mut self.old_flows };
            let number = *list.front()?;
            let FlowQueue { packets, bytes, codel, deficit, listed } = &mut self.queues[number];
            if *deficit <= 0 {
                *deficit += self.quantum;
                list.pop_front();
                self.old_flows.push_back(number);
                continue;
            }
            let take = || {
                let head = packets.pop_front()?;
                *bytes -= head.bytes as u64;
                Some((head, *bytes))
            };
            match codel.pop(now, take, &mut congested) {
                Some(packet) => {
                    *deficit -= packet.bytes as i64;
                    return Some(packet);
                }
                // A new one that is empty waits for the others' turns before it is new again.
                None => {
                    list.pop_front();
                    if is_new && !self.old_flows.is_empty() {
                        self.old_flows.push_back(number);
                    } else {
                        *listed = false;
                    }
                }
            }
        }
    }

    /// Those that wait.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &P> {
        self.queues.iter().flat_map(|queue| &queue.packets).map(|queued| &queued.packet)
    }
}
