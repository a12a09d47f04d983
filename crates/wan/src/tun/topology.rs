//! Hosts, routers and the links between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use farhaul_link::{LinkConfig, Rate};

/// A network to emulate. Nodes are numbered from zero, and each forwards in no time; where there is a host, it is
/// attached to the node.
#[derive(Clone, Debug)]
pub struct Topology {
    /// How many nodes there are.
    pub nodes: usize,
    /// Which of them have a host, each a namespace of its own. The first has the addresses 10.77.0.1 and fd77::1,
    /// the second 10.77.0.2 and fd77::2, and so on.
    pub hosts: Vec<usize>,
    /// The links, each in one direction.
    pub links: Vec<TopologyLink>,
    /// How fast each host's own device puts packets onto its first link; `None`: in no time.
    pub access_rate: Option<Rate>,
}

/// A link in one direction.
#[derive(Clone, Debug)]
pub struct TopologyLink {
    /// The node where packets enter.
    pub from: usize,
    /// The node where they arrive.
    pub to: usize,
    /// What it does to them.
    pub config: LinkConfig,
}

impl Topology {
    /// For each node and each host (by its place among the hosts) the link to take; none where there is no way.
    ///
    /// Ways have the least propagation delay, then the fewest links, then the lowest numbers, as in the
    /// simulator.
    pub(super) fn routes(&self) -> Vec<Vec<Option<usize>>> {
        let mut into = vec![Vec::new(); self.nodes];
        for (number, link) in self.links.iter().enumerate() {
            into[link.to].push(number);
        }
        let mut routes = vec![vec![None; self.hosts.len()]; self.nodes];
        for (host, &to) in self.hosts.iter().enumerate() {
            for (node, link) in self.towards(to, &into).into_iter().enumerate() {
                routes[node][host] = link;
            }
        }
        routes
    }

    /// Dijkstra's algorithm from the destination backwards.
    fn towards(&self, to: usize, into: &[Vec<usize>]) -> Vec<Option<usize>> {
        let mut next = vec![None; self.nodes];
        let mut best: Vec<Option<(Duration, u32)>> = vec![None; self.nodes];
        best[to] = Some((Duration::ZERO, 0));
        let mut open = BinaryHeap::from([Reverse((Duration::ZERO, 0, to))]);
        while let Some(Reverse((delay, links, node))) = open.pop() {
            if best[node] != Some((delay, links)) {
                continue;
            }
            for &number in &into[node] {
                let link = &self.links[number];
                let cost = (delay.saturating_add(link.config.delay), links + 1);
                if best[link.from].is_none_or(|known| cost < known) {
                    best[link.from] = Some(cost);
                    next[link.from] = Some(number);
                    open.push(Reverse((cost.0, cost.1, link.from)));
                }
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(from: usize, to: usize, ms: u64) -> TopologyLink {
        let config = LinkConfig { delay: Duration::from_millis(ms), ..LinkConfig::default() };
        TopologyLink { from, to, config }
    }

    #[test]
    fn ways_are_the_shortest() {
        // Two hosts, 0 and 3, over router 1 or, slower, router 2; and a second link beside the first.
        let links = vec![link(0, 1, 3), link(0, 1, 3), link(0, 2, 9), link(1, 3, 1), link(2, 3, 1)];
        let topology = Topology { nodes: 4, hosts: vec![0, 3], links, access_rate: None };
        let routes = topology.routes();
        assert_eq!((routes[0][1], routes[1][1], routes[2][1]), (Some(0), Some(3), Some(4)));
        // No way back.
        assert_eq!((routes[3][0], routes[1][0]), (None, None));
    }

    #[test]
    fn a_node_with_a_host_forwards_too() {
        let links = vec![link(0, 1, 1), link(1, 2, 1), link(0, 2, 9)];
        let topology = Topology { nodes: 3, hosts: vec![0, 1, 2], links, access_rate: None };
        assert_eq!(topology.routes()[0][2], Some(0));
        assert_eq!(topology.routes()[1][2], Some(1));
    }
}
