//! From a scenario to a simulation.

use core::time::Duration;

use farhaul_base::{Rng, Time};
use farhaul_control::Groups;
use farhaul_link::{LinkConfig, QueueConfig};

use crate::cbr::{CbrSource, Counter, Phase};
use crate::network::{LinkId, Network, NodeId};
use crate::scenario::{FlowSpec, LinkSpec, Protocol, Scenario};
use crate::simulation::{Agent, AgentId, Simulation};
use crate::tcp::{TcpConfig, TcpSink, TcpSource, Workload};
use crate::udt::{UdtAgent, ip};

/// Short transfers of one flow at the same time; more are refused, and counted.
const MOST_TRANSFERS: usize = 10_000;

/// What the seeds of hosts differ from those of the rest in: the rest is the same whatever hosts do.
const HOST_SEEDS: u64 = 0x686f_7374;

/// At this rate a packet of 1500 bytes takes a nanosecond, bits/s: beyond, no time passes.
const FASTEST: u64 = 12_000_000_000_000;

/// The agents of flow n are the sender 2n and the receiver 2n + 1.
pub(crate) fn sender(flow: usize) -> AgentId {
    AgentId(2 * flow as u32)
}

/// See [`sender`].
pub(crate) fn receiver(flow: usize) -> AgentId {
    AgentId(2 * flow as u32 + 1)
}

impl Scenario {
    /// What each link does, with its queue.
    pub fn link_configs(&self) -> Vec<LinkConfig> {
        let config = |(spec, round_trip): (&LinkSpec, Duration)| {
            // Read before with another round trip, so that it can be read.
            let queue = QueueConfig::parse(&spec.queue, round_trip).unwrap_or_default();
            LinkConfig { queue, ..spec.config.clone() }
        };
        self.links.iter().zip(self.round_trips()).map(config).collect()
    }

    /// A simulation at time zero.
    pub(crate) fn build(&self) -> Simulation {
        let mut seeds = Rng::new(self.seed);
        let configs = self.link_configs();
        let network = self.network(|index| configs[index].clone(), || seeds.next_u64());
        // What laws of a host share, a node's agents share.
        let groups: Vec<Groups> = self.nodes.iter().map(|_| Groups::default()).collect();
        let agents = (0..self.flows.len()).flat_map(|number| {
            let flow = &self.flows[number];
            let [mut from, mut to] = self.agents(number, flow, &mut seeds);
            let ends =
                [(flow.from, flow.to, receiver(number)), (flow.to, flow.from, sender(number))];
            for (agent, (node, peer, peer_agent)) in [&mut from, &mut to].into_iter().zip(ends) {
                if let Agent::Udt(agent) = agent {
                    agent.share_groups(&groups[node]);
                    // Agents have addresses of their own, but one host.
                    let host = ip(sender(peer));
                    groups[node].add_address(ip(peer_agent).into(), host.into());
                }
            }
            [(NodeId(flow.from as u32), from), (NodeId(flow.to as u32), to)]
        });
        let agents = agents.collect();
        let mut simulation = Simulation::new(network, agents);
        let mut seeds = Rng::new(self.seed ^ HOST_SEEDS);
        for (node, profile) in (0..).map(NodeId).zip(&self.hosts) {
            let seed = seeds.next_u64();
            if !profile.is_none() {
                simulation.set_host(node, profile.clone(), seed);
            }
        }
        simulation
    }

    /// For each flow the links that it takes there and back; none where there is no way.
    pub(crate) fn ways(&self) -> Vec<Option<Vec<LinkId>>> {
        self.paths(|network, from, to| {
            Some([network.path(from, to)?, network.path(to, from)?].concat())
        })
    }

    /// For each flow the links that its data takes; none where there is no way.
    pub(crate) fn ways_there(&self) -> Vec<Option<Vec<LinkId>>> {
        self.paths(Network::path)
    }

    /// What `path` finds in the network for the ends of each flow.
    fn paths<T>(&self, path: impl Fn(&Network, NodeId, NodeId) -> T) -> Vec<T> {
        let delay = |index: usize| self.links[index].config.delay;
        let config = |index| LinkConfig { delay: delay(index), ..LinkConfig::default() };
        let mut network = self.network(config, || 0);
        network.route();
        let ends = |flow: &FlowSpec| (NodeId(flow.from as u32), NodeId(flow.to as u32));
        self.flows.iter().map(ends).map(|(from, to)| path(&network, from, to)).collect()
    }

    /// Whether a packet takes any time on one of these links. Where none does, nothing limits a flow
    /// without an end, and no time passes.
    pub(crate) fn takes_time(&self, way: &[LinkId]) -> bool {
        way.iter().any(|id| {
            let config = &self.links[id.0 as usize].config;
            let slow = config.first_rate().is_some_and(|r| r.bits_per_second() < FASTEST);
            slow || !config.delay.is_zero()
        })
    }

    /// For each link the longest round trip, by propagation, of the flows that take it in either
    /// direction; where there are none, that of the link itself.
    fn round_trips(&self) -> Vec<Duration> {
        let mut longest: Vec<Option<Duration>> = vec![None; self.links.len()];
        for way in self.ways().into_iter().flatten() {
            let links = || way.iter().map(|id| id.0 as usize);
            let delay = links().map(|index| self.links[index].config.delay).sum();
            for index in links() {
                longest[index] = longest[index].max(Some(delay));
            }
        }
        let alone = |index: usize| self.links[index].config.delay * 2;
        longest.iter().enumerate().map(|(n, found)| found.unwrap_or_else(|| alone(n))).collect()
    }

    fn network(
        &self,
        config: impl Fn(usize) -> LinkConfig,
        mut seed: impl FnMut() -> u64,
    ) -> Network {
        let mut network = Network::new();
        for _ in &self.nodes {
            network.node();
        }
        for (index, link) in self.links.iter().enumerate() {
            let (from, to) = (NodeId(link.from as u32), NodeId(link.to as u32));
            let id = network.link(from, to, config(index), seed());
            debug_assert_eq!(id, LinkId(index as u32));
        }
        network
    }

    /// Sender and receiver of a flow.
    fn agents(&self, number: usize, flow: &FlowSpec, seeds: &mut Rng) -> [Agent; 2] {
        let (from, to) = (sender(number), receiver(number));
        let start = Time::ZERO + flow.start;
        let stop = flow.stop.map_or(Time::MAX, |stop| Time::ZERO + stop);
        let late_timers = self.hosts.get(flow.from).is_some_and(|host| !host.timer.is_zero());
        let on_its_host = |tcp: &TcpConfig| TcpConfig { late_timers, ..tcp.clone() };
        match &flow.protocol {
            Protocol::Udt(config) => {
                let config = (**config).clone();
                let (bytes, span) = (flow.bytes, (start, stop));
                let ends = [
                    UdtAgent::sender(from, to, config.clone(), span, bytes, seeds.next_u64()),
                    UdtAgent::receiver(to, config, seeds.next_u64()),
                ];
                ends.map(|agent| match flow.messages {
                    Some(messages) => agent.with_messages(messages, start),
                    None => agent,
                })
                .map(|agent| Agent::Udt(Box::new(agent)))
            }
            Protocol::Tcp(tcp) => {
                let workload = Workload::Bulk { start, stop, bytes: flow.bytes };
                tcp_agents([from, to], &on_its_host(tcp), workload, seeds.next_u64())
            }
            Protocol::TcpArrivals { tcp, per_second } => {
                let workload = Workload::Arrivals {
                    start,
                    stop,
                    rate: *per_second,
                    bytes: flow.bytes.unwrap_or_default(),
                    most: MOST_TRANSFERS,
                };
                tcp_agents([from, to], &on_its_host(tcp), workload, seeds.next_u64())
            }
            Protocol::Cbr { packet_size, phases } => {
                let phases = phases
                    .iter()
                    .map(|(at, rate)| Phase { start: start + *at, rate: *rate })
                    .collect();
                let source = CbrSource::new(from, to, *packet_size, phases, stop);
                [Agent::Cbr(source), Agent::Counter(Counter::default())]
            }
        }
    }
}

fn tcp_agents([from, to]: [AgentId; 2], tcp: &TcpConfig, work: Workload, seed: u64) -> [Agent; 2] {
    let source = TcpSource::new(from, to, tcp.clone(), work, seed);
    let sink = TcpSink::new(to, tcp.clone());
    [Agent::TcpSource(Box::new(source)), Agent::TcpSink(Box::new(sink))]
}
