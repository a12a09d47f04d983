//! What a path does: whether UDP passes, round-trip time, loss, order, MTU, capacity, clocks.
//!
//! One side asks ([`Prober`]), the other answers ([`Responder`]); both are values without a clock or
//! a socket, which [`probe_path`] and [`respond`] give them. Datagrams are authenticated with a secret
//! that both sides have. An answer is never larger than its question, so that a responder cannot be
//! used to flood others.
//!
//! Capacity is told by the dispersion of trains: packets that leave together arrive spaced by the
//! narrowest link. Sizes on the wire count the headers of IP and UDP.

mod driver;
mod message;
mod prober;
mod report;
mod responder;
mod round;
mod search;
mod tally;

pub use farhaul_udp::UdpSocket;

pub use driver::{ProbeError, bind, probe_path, respond};
pub use message::{HEADER, Secret, SecretError};
pub use prober::{ProbeConfig, Prober};
pub use report::{Load, PathReport, Reach, Rtt, Way};
pub use responder::Responder;
