//! Networks between network namespaces, for the kernel's own protocols.
//!
//! A [`Namespace`] is a network stack of its own. [`TunNetwork`] makes one for each host of a [`Topology`],
//! puts a [`TunDevice`] into each, and carries the IP packets between them through a [`farhaul_link::Link`]
//! a direction. What runs in one namespace can reach the others only over this network. [`TunPath`] is the
//! network of two hosts.
//!
//! Needs `/dev/net/tun` and the right to make namespaces. [`isolate`] gives an ordinary user that
//! right where the system lets users have namespaces.

mod arrivals;
mod device;
mod fabric;
mod frame;
mod leftovers;
mod memory;
mod namespace;
mod netlink;
mod network;
mod outbox;
mod parameter;
mod path;
mod processes;
mod sys;
mod topology;

pub use device::{Addresses, TunDevice};
pub use frame::{BadFrame, Frame, Joined, Segment, Transport, VIRTIO_BYTES};
pub use leftovers::{Leftover, MARK, leftovers, mark};
pub use namespace::{Namespace, isolate};
pub use network::{HostStats, MOST_HOSTS, NetworkConfig, NetworkStats, TunNetwork, addresses};
pub use parameter::{BadParameter, Parameter, ParameterError};
pub use path::{TunPath, TunPathConfig, TunPathStats};
pub use topology::{Topology, TopologyLink};

use std::io;

use network::host_number;

/// `error` with what was tried.
fn context(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
