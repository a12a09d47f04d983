//! Whoever wants to see each packet.

use core::cmp::Reverse;
use core::fmt;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, PoisonError};

use farhaul_base::Time;
use farhaul_link::{Cause, LossModel, Lost, QueueConfig};

use crate::network::{Hop, LinkId, Network, NodeId};
use crate::packet::Packet;

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// An agent has sent it, and it is about to be put on its first link.
    Sent,
    /// It will not come out of a link.
    Dropped(Cause),
    /// It came out of a link.
    Arrived,
    /// It is handed to its agent.
    Received,
    /// The interface of its agent's host holds as many as it can, and it is lost.
    Overrun,
}

/// Something that happens to a packet.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// When.
    pub at: Time,
    /// What.
    pub kind: EventKind,
    /// The link that the packet is put on, is dropped by, or has come over; none if there is no way
    /// to its agent, and where a host that takes its time hands it over.
    pub link: Option<LinkId>,
    /// Where: of what a link drops, where that link begins.
    pub node: NodeId,
    /// The packet as it is then: it may have been damaged on its way.
    pub packet: &'a Packet,
}

/// Is told of everything that happens to a packet, in order of time. What it does must not depend
/// on anything but the events, so that they can be repeated; what happens does not depend on it.
pub trait Observer: Send {
    /// Something has happened.
    fn event(&mut self, event: &Event<'_>);
}

/// For who wants to look at an observer while it is at work, or afterwards.
impl<T: Observer> Observer for Arc<Mutex<T>> {
    fn event(&mut self, event: &Event<'_>) {
        self.lock().unwrap_or_else(PoisonError::into_inner).event(event);
    }
}

/// The observers of a simulation, and what is needed to tell them of losses in time.
pub(crate) struct Watch {
    observers: Vec<Box<dyn Observer>>,
    /// Links that lose packets otherwise than by refusing them, with the ends of their current
    /// transmissions: nothing is lost before.
    ends: BinaryHeap<Reverse<(Time, LinkId)>>,
    /// For each link, whether it is in the heap.
    awaited: Vec<bool>,
}

impl Watch {
    /// From `now` on.
    pub(crate) fn new(network: &mut Network, now: Time) -> Self {
        let mut watch = Watch {
            observers: Vec::new(),
            ends: BinaryHeap::new(),
            awaited: vec![false; network.hops().len()],
        };
        for number in 0..network.hops().len() as u32 {
            let hop = network.hop_mut(LinkId(number));
            if loses(hop) {
                hop.link.keep_lost(true);
                // What was lost by now is past.
                hop.link.foresee(now);
                while hop.link.take_lost().is_some() {}
                watch.wait_for(LinkId(number), hop);
            }
        }
        watch
    }

    pub(crate) fn add(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    #[cold]
    pub(crate) fn tell(&mut self, event: &Event<'_>) {
        for observer in &mut self.observers {
            observer.event(event);
        }
    }

    /// A packet has been offered to a link; if it was refused it is `lost`.
    #[cold]
    pub(crate) fn offered(&mut self, id: LinkId, hop: &mut Hop, lost: Option<Lost<Packet>>) {
        // What had to make room for it.
        while let Some(evicted) = hop.link.take_lost() {
            self.tell_lost(id, hop.from, &evicted);
        }
        if let Some(lost) = lost {
            self.tell_lost(id, hop.from, &lost);
        }
        self.wait_for(id, hop);
    }

    fn tell_lost(&mut self, id: LinkId, node: NodeId, lost: &Lost<Packet>) {
        let kind = EventKind::Dropped(lost.cause);
        self.tell(&Event { at: lost.at, kind, link: Some(id), node, packet: &lost.packet });
    }

    /// Waits for the end of a transmission that may end in a loss.
    fn wait_for(&mut self, id: LinkId, hop: &Hop) {
        let awaited = &mut self.awaited[id.0 as usize];
        if !*awaited
            && loses(hop)
            && let Some(end) = hop.link.next_end()
        {
            *awaited = true;
            self.ends.push(Reverse((end, id)));
        }
    }

    /// Tells of what is lost by `now`.
    #[cold]
    pub(crate) fn pass_time(&mut self, network: &mut Network, now: Time) {
        while let Some(&Reverse((end, id))) = self.ends.peek()
            && end <= now
        {
            self.ends.pop();
            self.awaited[id.0 as usize] = false;
            let hop = network.hop_mut(id);
            hop.link.foresee(end);
            while let Some(lost) = hop.link.take_lost() {
                self.tell_lost(id, hop.from, &lost);
            }
            self.wait_for(id, hop);
        }
    }
}

/// Whether a link loses packets that it has let in.
fn loses(hop: &Hop) -> bool {
    let config = hop.link.config();
    config.loss != LossModel::None
        || !config.blackouts.is_empty()
        || matches!(
            config.queue,
            QueueConfig::CoDel(_) | QueueConfig::FqCoDel(_) | QueueConfig::DualPi2(_)
        )
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("observers", &self.observers.len()).finish_non_exhaustive()
    }
}
