//! Discrete-event simulator: engines as hosts, links in any topology, virtual time.
//!
//! The code that moves real bytes runs here unchanged: a host is the engine's
//! [`Endpoint`](farhaul_engine::Endpoint), a path is made of [`farhaul_link::Link`]s. A run is a
//! function of what it was given, on any machine.

#![forbid(unsafe_code)]

mod build;
mod cbr;
pub mod fuzz;
pub mod indices;
mod network;
mod packet;
mod report;
mod run;
mod scenario;
mod schedule;
mod simulation;
mod tcp;
mod udt;

pub use cbr::{CbrSource, Counter, Phase};
pub use network::{Hop, LinkId, Network, NodeId};
pub use packet::{Content, Packet};
pub use report::{FlowReport, Indices, LinkReport, Queue, Report, Spread, TransferReport};
pub use run::Run;
pub use scenario::{FlowSpec, LinkSpec, Plan, Point, Problem, Problems, Protocol, Scenario};
pub use simulation::{Agent, AgentId, Sent, Simulation};
pub use tcp::{
    BLOCKS, Block, HEADERS, Kind, RttSamples, Segment, SinkStats, TcpConfig, TcpSink, TcpSource,
    TcpStats, Transfers, Workload,
};
pub use udt::UdtAgent;
