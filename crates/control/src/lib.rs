//! Congestion control: the interface of Composable UDT and the laws, one file a law.
//!
//! A law is a value that implements [`Law`]: it is told of events, reads a [`View`] of the
//! connection and writes [`Knobs`]. It never touches a socket or a clock. Laws are made by name
//! through a [`Spec`], so that every tool takes the same text: `udt`, `udt:noisy=true`,
//! `cubic`. TCP's laws are a [`Rule`] each on one base, [`TcpLike`].

#![forbid(unsafe_code)]

mod bbr;
mod cubic;
mod governor;
mod group;
mod hystart;
mod law;
mod registry;
mod reno;
mod sampler;
mod tcp_like;
mod udt;
mod udt4;
mod udt_module;

pub use bbr::Bbr;
pub use cubic::{Cubic, CubicRule};
pub use governor::Governor;
pub use group::GroupControl;
pub use law::{
    Arrival, CustomMessage, Delivery, Knobs, LEAST_WINDOW, LONGEST_WAIT, Law, MOST_MESSAGES,
    MOST_WINDOW, SHORTEST_WAIT, SYN, SentPacket, Trace, View,
};
pub use registry::{Groups, Kind, LawInfo, Make, Param, Spec, SpecError, Values, laws, register};
pub use reno::{Aimd, Reno};
pub use sampler::Sampler;
pub use tcp_like::{INITIAL_WINDOW, Rule, TcpLike};
pub use udt::Udt;
pub use udt_module::UdtModule;
pub use udt4::Udt4;
