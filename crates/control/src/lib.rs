//! Congestion control: the interface of Composable UDT and the laws, one file a law.
//!
//! A law is a value that implements [`Law`]: it is told of events, reads a [`View`] of the
//! connection and writes [`Knobs`]. It never touches a socket or a clock. Laws are made by name
//! through a [`Spec`], so that every tool takes the same text: `udt`, `udt:noisy=true`,
//! `cubic`. TCP's laws are a [`Rule`] each on one base, [`TcpLike`].

#![forbid(unsafe_code)]

mod bbr;
mod bic;
mod blast;
mod cm;
mod copa;
mod cubic;
mod fast;
mod governor;
mod group;
mod gtp;
mod haul;
mod hstcp;
mod hystart;
mod law;
mod ledbat;
mod registry;
mod reno;
mod rounds;
mod sampler;
mod scalable;
mod tcp_like;
mod udt;
mod udt4;
mod udt_module;
mod vegas;
mod westwood;

pub use bbr::{Bbr, Tolerated};
pub use bic::{Bic, BicRule};
pub use blast::Blast;
pub use cm::CongestionManager;
pub use copa::Copa;
pub use cubic::{Cubic, CubicRule};
pub use farhaul_wire::{LossRange, Seq};
pub use fast::{Fast, FastRule};
pub use governor::Governor;
pub use group::{GroupControl, Groups, max_min};
pub use gtp::Gtp;
pub use haul::Haul;
pub use hstcp::{HighSpeed, HighSpeedRule};
pub use law::{
    Arrival, CustomMessage, Delivery, ENGINE_SUBTYPES, Knobs, LEAST_GROWTH, LEAST_WINDOW,
    LONGEST_WAIT, Law, MOST_GROWTH, MOST_MESSAGES, MOST_WINDOW, SHORTEST_WAIT, SYN, SentPacket,
    TOLERATED_LOSS, Trace, View,
};
pub use ledbat::Ledbat;
pub use registry::{Kind, LawInfo, Make, Param, Spec, SpecError, Values, laws, own_laws, register};
pub use reno::{Aimd, Reno};
pub use sampler::Sampler;
pub use scalable::{Scalable, ScalableRule};
pub use tcp_like::{INITIAL_WINDOW, Rule, TcpLike};
pub use udt::Udt;
pub use udt_module::UdtModule;
pub use udt4::Udt4;
pub use vegas::{Vegas, VegasRule};
pub use westwood::{Westwood, WestwoodRule};
