//! Hosts, routers and the links between them.

use farhaul_link::{Leg, LinkConfig, Rate, routes_to};

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
    /// The ways are the simulator's.
    pub(super) fn routes(&self) -> Vec<Vec<Option<usize>>> {
        let leg =
            |link: &TopologyLink| Leg { from: link.from, to: link.to, delay: link.config.delay };
        let legs: Vec<Leg> = self.links.iter().map(leg).collect();
        routes_to(self.nodes, &legs, &self.hosts)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn link(from: usize, to: usize, ms: u64) -> TopologyLink {
        let config = LinkConfig { delay: Duration::from_millis(ms), ..LinkConfig::default() };
        TopologyLink { from, to, config }
    }

    #[test]
    fn a_node_with_a_host_forwards_too() {
        let links = vec![link(0, 1, 1), link(1, 2, 1), link(0, 2, 9)];
        let topology = Topology { nodes: 3, hosts: vec![0, 1, 2], links, access_rate: None };
        assert_eq!(topology.routes()[0][2], Some(0));
        assert_eq!(topology.routes()[1][2], Some(1));
    }
}
