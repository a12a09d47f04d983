//! A scenario: what a simulation is made of, as its file describes it.
//!
//! | file | subject |
//! |---|---|
//! | `plan.rs` | a file with its variables and sweep: one scenario a point |
//! | `tables.rs` | the tables of a scenario: simulation, links, flows |
//! | `link_table.rs`, `flow_table.rs`, `host_table.rs` | one link, one flow, what hosts are like |
//! | `reader.rs`, `expression.rs`, `problems.rs` | values, variables, what is wrong in which line |
//! | `duplicates.rs` | which values are the same |
//! | `files.rs` | files that a scenario names |

mod duplicates;
mod expression;
mod files;
mod flow_table;
mod host_table;
mod link_table;
mod plan;
mod problems;
mod reader;
mod tables;

use core::time::Duration;

use farhaul_engine::Config;
use farhaul_link::{LinkConfig, QueueConfig, QueueLimit, Rate};

use crate::host::HostProfile;
use crate::packet::{UDP_HEADERS, UDT_HEADERS};
use crate::tcp::{TCP_HEADERS, TcpConfig};
use crate::udt::MessageSpec;

pub use plan::{Plan, Point};
pub use problems::{Problem, Problems};

/// A network, the flows over it, and what to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What it shows, in one line.
    pub title: String,
    /// Everything random is a function of this.
    pub seed: u64,
    /// Simulated time.
    pub duration: Duration,
    /// From one sample of the series to the next.
    pub sample: Duration,
    /// Averages and indices are taken from here, to here.
    pub measure: (Duration, Duration),
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// What the agents of each node have for a host, in the order of the nodes.
    pub hosts: Vec<HostProfile>,
    /// Links, one direction each.
    pub links: Vec<LinkSpec>,
    /// Flows.
    pub flows: Vec<FlowSpec>,
    /// The TCP that takes the place of every flow in the run that TCP friendliness is compared
    /// with; none: that index is not computed.
    pub friendliness: Option<TcpConfig>,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Its name in results.
    pub name: String,
    /// Where packets enter: a number in [`Scenario::nodes`].
    pub from: usize,
    /// Where they leave.
    pub to: usize,
    /// What it does to them; the queue is in `queue`.
    pub config: LinkConfig,
    /// The queue as [`farhaul_link::QueueConfig::parse`] reads it: `bdp` means the longest round
    /// trip of the flows over this link, which is known once the ways are.
    pub queue: String,
}

/// One flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSpec {
    /// Its name in results.
    pub name: String,
    /// The sender's node.
    pub from: usize,
    /// The receiver's node.
    pub to: usize,
    /// When it begins.
    pub start: Duration,
    /// When it is cut off; none: with the simulation.
    pub stop: Option<Duration>,
    /// Bytes to send; none: as many as can be.
    pub bytes: Option<u64>,
    /// The messages of a UDT flow; none: a stream.
    pub messages: Option<MessageSpec>,
    /// How.
    pub protocol: Protocol,
}

impl LinkSpec {
    /// The bytes that its queue holds if those are its limit; none of a link where none waits.
    pub(crate) fn queue_bytes(&self) -> Option<u64> {
        self.config.first_rate()?;
        // What is not in bytes does not depend on the round trip either.
        match QueueConfig::parse(&self.queue, Duration::ZERO).ok()?.limit() {
            QueueLimit::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl FlowSpec {
    /// Bytes of its largest packet, all headers included.
    pub(crate) fn largest_packet(&self) -> u32 {
        let headers = self.protocol.packet_size().saturating_sub(self.protocol.payload());
        let message = self.messages.map_or(u64::MAX, |messages| messages.size.into());
        // With messages the last one may go beyond the bytes.
        let most = if self.messages.is_some() { message } else { self.bytes.unwrap_or(u64::MAX) };
        headers + most.min(self.protocol.payload().into()) as u32
    }

    /// Whether only the network and its stop limit it.
    pub(crate) fn takes_all_it_can(&self) -> bool {
        self.bytes.is_none() && !matches!(self.protocol, Protocol::Cbr { .. })
    }
}

/// How a flow sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Protocol {
    /// UDT: the engine with these options.
    Udt(Box<Config>),
    /// TCP: one connection.
    Tcp(TcpConfig),
    /// TCP: transfers of [`FlowSpec::bytes`] that arrive at random, so many a second on average.
    TcpArrivals {
        /// Each transfer's connection.
        tcp: TcpConfig,
        /// Transfers a second.
        per_second: f64,
    },
    /// A constant rate that nothing holds back, from each time to the next.
    Cbr {
        /// Bytes of a packet, all headers included.
        packet_size: u32,
        /// From when on at which rate, counted from the flow's start; none: silence.
        phases: Vec<(Duration, Option<Rate>)>,
    },
}

impl Protocol {
    /// Whether it is one transfer that takes what it can get. What holds nothing back, and what is
    /// there for a moment only, says nothing about a law, and [`FlowSpec::bytes`] is not its total.
    pub fn is_bulk(&self) -> bool {
        matches!(self, Protocol::Udt(_) | Protocol::Tcp(_))
    }

    /// Bytes of payload in a full packet, at least 1.
    pub fn payload(&self) -> u32 {
        let headers = match self {
            Protocol::Udt(_) => UDT_HEADERS,
            Protocol::Tcp(_) | Protocol::TcpArrivals { .. } => TCP_HEADERS,
            Protocol::Cbr { .. } => UDP_HEADERS,
        };
        self.packet_size().saturating_sub(headers).max(1)
    }

    /// The part of a full packet that is payload.
    pub fn payload_share(&self) -> f64 {
        f64::from(self.payload()) / f64::from(self.packet_size())
    }

    /// Bytes of a full packet with all headers.
    fn packet_size(&self) -> u32 {
        match self {
            Protocol::Udt(config) => config.mss,
            Protocol::Tcp(tcp) | Protocol::TcpArrivals { tcp, .. } => tcp.packet_size,
            Protocol::Cbr { packet_size, .. } => *packet_size,
        }
    }

    /// Its name in scenario files and results.
    pub fn name(&self) -> String {
        match self {
            Protocol::Udt(_) => "udt".into(),
            Protocol::Tcp(tcp) | Protocol::TcpArrivals { tcp, .. } => {
                format!("tcp-{}", tcp.law.name())
            }
            Protocol::Cbr { .. } => "cbr".into(),
        }
    }

    /// The text of its law; none where there is none.
    pub fn law(&self) -> Option<String> {
        match self {
            Protocol::Udt(config) => Some(config.law.to_string()),
            Protocol::Tcp(tcp) | Protocol::TcpArrivals { tcp, .. } => Some(tcp.law.to_string()),
            Protocol::Cbr { .. } => None,
        }
    }
}

impl Scenario {
    /// [`Scenario::measure`] in seconds.
    pub fn measured_s(&self) -> (f64, f64) {
        (self.measure.0.as_secs_f64(), self.measure.1.as_secs_f64())
    }

    /// Samples of all flows and links together.
    pub(crate) fn values(&self) -> u64 {
        let samples = (self.duration.as_nanos() / self.sample.as_nanos().max(1)) as u64;
        samples.saturating_mul((self.flows.len() + self.links.len()) as u64)
    }

    /// The same with a TCP flow of [`Scenario::friendliness`] in the place of each UDT flow: the
    /// run that gives the fair share of the TCP friendliness index (gu05 §4).
    pub fn with_tcp_alone(&self) -> Option<Scenario> {
        let tcp = self.friendliness.as_ref()?;
        let mut reference = Scenario { friendliness: None, ..self.clone() };
        for flow in &mut reference.flows {
            if let Protocol::Udt(_) = flow.protocol {
                flow.protocol = Protocol::Tcp(tcp.clone());
            }
        }
        Some(reference)
    }
}
