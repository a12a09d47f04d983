//! Congestion control: the interface of Composable UDT and the laws, one file a law.
//!
//! A law is a value that implements [`Law`]: it is told of events, reads a [`View`] of the
//! connection and writes [`Knobs`]. It never touches a socket or a clock. Laws are made by name
//! through a [`Spec`], so that every tool takes the same text: `udt`, `udt:noisy=true`,
//! `cubic`. TCP's laws are a [`Rule`] each on one base, [`TcpLike`].

#![forbid(unsafe_code)]

mod cubic;
mod law;
mod registry;
mod reno;
mod tcp_like;
mod udt;
mod udt4;
mod udt_module;

pub use cubic::{Cubic, CubicRule};
pub use law::{CustomMessage, Knobs, Law, SYN, SentPacket, Trace, View};
pub use registry::{LawInfo, Param, Spec, SpecError, laws};
pub use reno::{Aimd, Reno};
pub use tcp_like::{Rule, TcpLike};
pub use udt::Udt;
pub use udt_module::UdtModule;
pub use udt4::Udt4;
