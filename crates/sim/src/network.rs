//! Nodes and the links between them, and the way from each node to each other.

use farhaul_link::{Leg, Link, LinkConfig, routes_to};

use crate::packet::Packet;

/// A node's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A link's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// A link, from where to where.
#[derive(Debug)]
pub struct Hop {
    /// Where packets are offered.
    pub from: NodeId,
    /// Where they arrive.
    pub to: NodeId,
    /// The link.
    pub link: Link<Packet>,
}

/// A topology that does not change.
#[derive(Debug, Default)]
pub struct Network {
    nodes: u32,
    hops: Vec<Hop>,
    /// For each node and each destination the link to take; none where there is no way.
    routes: Vec<Vec<Option<LinkId>>>,
}

impl Network {
    /// Without nodes.
    pub fn new() -> Self {
        Network::default()
    }

    /// Adds a node.
    pub fn node(&mut self) -> NodeId {
        self.nodes += 1;
        self.routes.clear();
        NodeId(self.nodes - 1)
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes as usize
    }

    /// Adds a link in one direction. Its randomness is a function of `seed`.
    pub fn link(&mut self, from: NodeId, to: NodeId, config: LinkConfig, seed: u64) -> LinkId {
        self.hops.push(Hop { from, to, link: Link::new(config, seed) });
        self.routes.clear();
        LinkId(self.hops.len() as u32 - 1)
    }

    /// All links, in the order of their numbers.
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    pub(crate) fn hop_mut(&mut self, id: LinkId) -> &mut Hop {
        &mut self.hops[id.0 as usize]
    }

    /// The link on which a packet leaves `at` towards `to`.
    pub(crate) fn next(&self, at: NodeId, to: NodeId) -> Option<LinkId> {
        *self.routes.get(at.0 as usize)?.get(to.0 as usize)?
    }

    /// The links from `from` to `to`; none if there is no way.
    pub fn path(&self, from: NodeId, to: NodeId) -> Option<Vec<LinkId>> {
        let (mut at, mut links) = (from, Vec::new());
        while at != to {
            let link = self.next(at, to)?;
            links.push(link);
            at = self.hops[link.0 as usize].to;
        }
        Some(links)
    }

    /// Finds the ways: of least propagation delay, then of fewest links, then by the numbers of the
    /// links, so that they are the same on every machine.
    pub fn route(&mut self) {
        let legs: Vec<Leg> = self
            .hops
            .iter()
            .map(|hop| {
                let (from, to) = (hop.from.0 as usize, hop.to.0 as usize);
                Leg { from, to, delay: hop.link.config().delay }
            })
            .collect();
        let nodes: Vec<usize> = (0..self.nodes as usize).collect();
        let routes = routes_to(nodes.len(), &legs, &nodes).into_iter();
        let id = |link: Option<usize>| link.map(|number| LinkId(number as u32));
        self.routes = routes.map(|row| row.into_iter().map(id).collect()).collect();
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn delay(ms: u64) -> LinkConfig {
        LinkConfig { delay: Duration::from_millis(ms), ..LinkConfig::default() }
    }

    #[test]
    fn ways_are_the_shortest() {
        let mut net = Network::new();
        let n: Vec<NodeId> = (0..5).map(|_| net.node()).collect();
        let slow = net.link(n[0], n[2], delay(10), 1);
        let a = net.link(n[0], n[1], delay(3), 1);
        let b = net.link(n[1], n[2], delay(4), 1);
        let twin = net.link(n[0], n[1], delay(3), 1);
        net.link(n[2], n[3], delay(1), 1);
        net.route();
        assert_eq!(net.next(n[0], n[2]), Some(a));
        assert_eq!(net.next(n[0], n[3]), Some(a));
        assert_eq!(net.next(n[1], n[3]), Some(b));
        assert_eq!(net.path(n[0], n[3]).map(|links| links.len()), Some(3));
        assert_eq!(net.path(n[3], n[0]), None);
        assert_eq!((net.next(n[3], n[0]), net.next(n[0], n[4])), (None, None));
        assert_ne!(slow, twin);
    }
}
