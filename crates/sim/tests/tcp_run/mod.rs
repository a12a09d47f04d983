//! One or more TCP flows over a link and back.

#![allow(dead_code, reason = "each test uses some of it")]

use core::fmt::Debug;
use core::str::FromStr;

use farhaul_base::Time;
use farhaul_link::{LinkConfig, QueueConfig};
use farhaul_sim::{Agent, AgentId, Network, Simulation, TcpConfig, TcpSink, TcpSource, Workload};

#[path = "../paths/mod.rs"]
mod paths;

pub use paths::path;

/// What a text says.
pub fn read<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect(text)
}

/// As [`path`] with a queue without bound.
pub fn open_path(rate: &str, rtt_ms: u64) -> LinkConfig {
    LinkConfig { queue: QueueConfig::Unlimited, ..path(rate, rtt_ms) }
}

pub fn config(law: &str) -> TcpConfig {
    TcpConfig { law: read(law), ..TcpConfig::default() }
}

/// Each segment acknowledged, as the response functions have it.
pub fn undelayed(law: &str) -> TcpConfig {
    TcpConfig { delayed_ack: None, ..config(law) }
}

pub const WITHOUT_END: Workload =
    Workload::Bulk { start: Time::ZERO, stop: Time::from_secs(1_000_000), bytes: None };

pub fn transfer(bytes: u64) -> Workload {
    Workload::Bulk { start: Time::ZERO, stop: Time::from_secs(1_000_000), bytes: Some(bytes) }
}

pub struct Run {
    pub simulation: Simulation,
}

impl Run {
    /// Flow n is from agent 2n to agent 2n + 1; `there` and `back` are the links.
    pub fn new(
        (there, back): (&LinkConfig, &LinkConfig),
        flows: &[(TcpConfig, Workload)],
        seed: u64,
    ) -> Self {
        let mut network = Network::new();
        let (left, right) = (network.node(), network.node());
        network.link(left, right, there.clone(), seed);
        network.link(right, left, back.clone(), seed + 1);
        let mut agents = Vec::new();
        for (flow, (config, workload)) in flows.iter().enumerate() {
            let (from, to) = (AgentId(2 * flow as u32), AgentId(2 * flow as u32 + 1));
            let seed = seed + 2 + flow as u64;
            let source = TcpSource::new(from, to, config.clone(), *workload, seed);
            let sink = TcpSink::new(to, config.clone());
            agents.push((left, Agent::TcpSource(Box::new(source))));
            agents.push((right, Agent::TcpSink(Box::new(sink))));
        }
        Run { simulation: Simulation::new(network, agents) }
    }

    /// One flow over a link, and back over one like it that does nothing but delay.
    pub fn one(link: &LinkConfig, config: TcpConfig, workload: Workload, seed: u64) -> Self {
        let back = LinkConfig { rate: link.rate, delay: link.delay, ..LinkConfig::default() };
        Run::new((link, &back), &[(config, workload)], seed)
    }

    pub fn until(&mut self, seconds: f64) -> &mut Self {
        self.simulation.run_until(Time::from_nanos((seconds * 1e9) as u64));
        self
    }

    pub fn source(&mut self, flow: u32) -> &TcpSource {
        match self.simulation.agent_mut(AgentId(2 * flow)) {
            Agent::TcpSource(source) => source,
            other => panic!("not a source: {other:?}"),
        }
    }

    pub fn sink(&mut self, flow: u32) -> &TcpSink {
        match self.simulation.agent_mut(AgentId(2 * flow + 1)) {
            Agent::TcpSink(sink) => sink,
            other => panic!("not a sink: {other:?}"),
        }
    }

    /// Bits of payload a second that each of `flows` gets between two times.
    pub fn goodput(&mut self, flows: u32, from: f64, to: f64) -> Vec<f64> {
        self.until(from);
        let before: Vec<u64> = (0..flows).map(|flow| self.sink(flow).received()).collect();
        self.until(to);
        let bits = |flow| (self.sink(flow).received() - before[flow as usize]) as f64 * 8.0;
        (0..flows).map(bits).map(|bits| bits / (to - from)).collect()
    }

    /// Segments a round trip of `rtt` seconds, between two times.
    pub fn mean_window(&mut self, rtt: f64, from: f64, to: f64) -> f64 {
        self.goodput(1, from, to)[0] / 8.0 / 1460.0 * rtt
    }
}

/// Of the payload that fits a link.
pub const PAYLOAD_SHARE: f64 = 1460.0 / 1500.0;
