//! A path between two network namespaces, for the kernel's own protocols.
//!
//! A [`Namespace`] is a network stack of its own. [`TunPath`] makes two, puts a [`TunDevice`] into
//! each, and carries the IP packets between them through a [`farhaul_link::Link`] a direction. What
//! runs in one namespace can reach the other only over this path.
//!
//! Needs `/dev/net/tun` and the right to make namespaces. [`isolate`] gives an ordinary user that
//! right where the system lets users have namespaces.

mod device;
mod namespace;
mod netlink;
mod path;
mod processes;
mod sys;

pub use device::TunDevice;
pub use namespace::{Namespace, isolate};
pub use path::{TunPath, TunPathConfig, TunPathStats};

use std::io;

/// `error` with what was tried.
fn context(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
