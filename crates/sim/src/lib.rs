//! Discrete-event simulator: engines as hosts, links in any topology, virtual time.
//!
//! The code that moves real bytes runs here unchanged: a host is the engine's
//! [`Endpoint`](farhaul_engine::Endpoint), a path is made of [`farhaul_link::Link`]s. A run is a
//! function of what it was given, on any machine.

#![forbid(unsafe_code)]

mod build;
mod cbr;
pub mod fuzz;
mod hash;
mod host;
pub mod indices;
mod network;
mod observer;
mod output;
mod packet;
mod pcap;
mod report;
mod run;
mod scenario;
mod schedule;
mod simulation;
mod tcp;
mod trace;
mod udt;

pub use cbr::{CbrSource, Counter, Phase};
pub use hash::TraceHash;
pub use host::{Batch, HostCounts, HostProfile, Quantiles};
pub use network::{Hop, LinkId, Network, NodeId};
pub use observer::{Event, EventKind, Observer};
pub use packet::{Content, Packet, UDP_HEADERS, UDT_HEADERS};
pub use pcap::Capture;
pub use report::{
    Ended, FlowReport, HostReport, Indices, LinkReport, MessageReport, Queue, Report, Spread,
    TransferReport,
};
pub use run::Run;
pub use scenario::{FlowSpec, LinkSpec, Plan, Point, Problem, Problems, Protocol, Scenario};
pub use simulation::{Agent, AgentId, Sent, Simulation};
pub use tcp::{
    BLOCKS, Block, Kind, RttSamples, Segment, SinkStats, TCP_HEADERS, TcpConfig, TcpEcn, TcpSink,
    TcpSource, TcpStats, Transfers, Workload,
};
pub use trace::{Filter, FilterError, Trace};
pub use udt::{MessageSpec, UdtAgent};
