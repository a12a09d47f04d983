//! Flows over one bottleneck.

use farhaul_base::Time;
use farhaul_engine::Config;
use farhaul_link::LinkConfig;
use farhaul_sim::{Agent, AgentId, Network, Simulation, UdtAgent};

#[path = "../paths/mod.rs"]
mod paths;

pub use paths::path;

/// UDT flows that begin together and do not end. Flow n is from agent 2n to agent 2n + 1.
pub fn udt_flows(link: &LinkConfig, flows: u32, seed: u64) -> Simulation {
    udt_flows_with(&Config::default(), link, flows, seed)
}

/// The same with other options.
pub fn udt_flows_with(config: &Config, link: &LinkConfig, flows: u32, seed: u64) -> Simulation {
    let mut network = Network::new();
    let (left, right) = (network.node(), network.node());
    network.link(left, right, link.clone(), seed);
    network.link(right, left, link.clone(), seed + 1);
    let mut agents = Vec::new();
    for flow in 0..flows {
        let (from, to) = (AgentId(2 * flow), AgentId(2 * flow + 1));
        let seed = seed + 2 + 2 * u64::from(flow);
        let time = (Time::ZERO, Time::from_secs(1_000_000));
        let sender = UdtAgent::sender(from, to, config.clone(), time, None, seed);
        let receiver = UdtAgent::receiver(to, config.clone(), seed + 1);
        agents.push((left, Agent::Udt(Box::new(sender))));
        agents.push((right, Agent::Udt(Box::new(receiver))));
    }
    Simulation::new(network, agents)
}

/// Bytes that each flow's receiver has read.
pub fn received(simulation: &mut Simulation, flows: u32) -> Vec<u64> {
    (0..flows)
        .map(|flow| match simulation.agent_mut(AgentId(2 * flow + 1)) {
            Agent::Udt(agent) => agent.received,
            other => panic!("not a UDT agent: {other:?}"),
        })
        .collect()
}
