//! The network of two hosts.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use farhaul_link::{LinkConfig, Rate};

use crate::DirectionStats;

use super::{
    Namespace, NetworkConfig, NetworkStats, Topology, TopologyLink, TunNetwork, addresses,
};

/// The hosts' numbers, and those of the links.
const NEAR: usize = 0;
const FAR: usize = 1;
const FORWARD: usize = 0;
const BACKWARD: usize = 1;

/// A path between two namespaces, and what it does to the packets.
#[derive(Clone, Debug)]
pub struct TunPathConfig {
    /// From the near namespace to the far one. Its time starts when the path is opened.
    pub forward: LinkConfig,
    /// The way back.
    pub backward: LinkConfig,
    /// How fast the hosts' devices put packets onto the path, which spaces the packets of a super-packet;
    /// `None`: in no time. Default none.
    pub access_rate: Option<Rate>,
    /// Everything random follows from this and from the order of the packets.
    pub seed: u64,
    /// The largest packet in bytes, headers of IP included, 68 at least; 1280 for IPv6. Default 1500.
    pub mtu: u16,
    /// Packets due within one tick may leave together, so times are kept to about a tick. Default
    /// 50 us.
    pub tick: Duration,
    /// The most that both links together hold, in bytes of memory; what comes beyond is dropped and counted.
    /// Default 512 MiB.
    pub max_held_bytes: u64,
}

/// Two namespaces and the path between them, at work in a thread of its own. Dropping it ends the
/// path.
#[derive(Debug)]
pub struct TunPath(TunNetwork);

/// Counters of a path since it was opened: IP packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunPathStats {
    /// From the near namespace to the far one.
    pub forward: DirectionStats,
    /// Back.
    pub backward: DirectionStats,
}

impl Default for TunPathConfig {
    fn default() -> Self {
        let NetworkConfig { seed, mtu, tick, max_held_bytes } = NetworkConfig::default();
        TunPathConfig {
            forward: LinkConfig::default(),
            backward: LinkConfig::default(),
            access_rate: None,
            seed,
            mtu,
            tick,
            max_held_bytes,
        }
    }
}

impl TunPathConfig {
    /// The path as a network: of two hosts, the near one first, and two links, forward first.
    pub fn into_network(self) -> (Topology, NetworkConfig) {
        let TunPathConfig { forward, backward, access_rate, seed, mtu, tick, max_held_bytes } =
            self;
        let links = vec![
            TopologyLink { from: NEAR, to: FAR, config: forward },
            TopologyLink { from: FAR, to: NEAR, config: backward },
        ];
        let topology = Topology { nodes: 2, hosts: vec![NEAR, FAR], links, access_rate };
        (topology, NetworkConfig { seed, mtu, tick, max_held_bytes })
    }
}

impl TunPath {
    /// Makes both namespaces and starts to carry packets.
    ///
    /// # Errors
    /// If namespaces or TUN devices are not permitted here; the text says which.
    pub fn open(config: TunPathConfig) -> io::Result<TunPath> {
        let (topology, config) = config.into_network();
        TunNetwork::open(&topology, &config).map(TunPath)
    }

    /// Where forward packets come from.
    pub fn near(&self) -> &Namespace {
        &self.0.hosts()[NEAR]
    }

    /// Where forward packets go to.
    pub fn far(&self) -> &Namespace {
        &self.0.hosts()[FAR]
    }

    /// The near namespace's address.
    pub fn near_addr(&self) -> Ipv4Addr {
        addresses(NEAR).0
    }

    /// The far namespace's address.
    pub fn far_addr(&self) -> Ipv4Addr {
        addresses(FAR).0
    }

    /// The near namespace's address for IPv6.
    pub fn near_addr_v6(&self) -> Ipv6Addr {
        addresses(NEAR).1
    }

    /// The far namespace's address for IPv6.
    pub fn far_addr_v6(&self) -> Ipv6Addr {
        addresses(FAR).1
    }

    /// What the path has counted so far.
    pub fn stats(&self) -> TunPathStats {
        (&self.0.stats()).into()
    }

    /// Ends the path and returns what it counted. What is under way is lost.
    ///
    /// # Errors
    /// If the path had ended with an error before.
    pub fn stop(self) -> io::Result<TunPathStats> {
        Ok((&self.0.stop()?).into())
    }
}

/// Of a network that [`TunPathConfig::into_network`] describes.
impl From<&NetworkStats> for TunPathStats {
    fn from(stats: &NetworkStats) -> Self {
        let direction = |link: usize, from: usize, to: usize| {
            let (from, to) = (&stats.hosts[from], &stats.hosts[to]);
            DirectionStats {
                link: stats.links[link],
                received: from.received,
                received_bytes: from.received_bytes,
                sent: to.sent,
                sent_bytes: to.sent_bytes,
                dropped_memory: from.dropped_memory,
                dropped_stale: 0,
                dropped_send: to.dropped_send,
                overflowed: from.overflowed,
                timing: to.timing,
            }
        };
        TunPathStats {
            forward: direction(FORWARD, NEAR, FAR),
            backward: direction(BACKWARD, FAR, NEAR),
        }
    }
}

#[cfg(test)]
mod tests;
