//! A scenario running: time goes on from sample to sample, and everything is measured.

use core::time::Duration;
use std::collections::BTreeSet;

use farhaul_base::Time;
use farhaul_link::LinkStats;

use crate::build::{receiver, sender};
use crate::host::{HostCounts, HostProfile};
use crate::indices;
use crate::network::{LinkId, NodeId};
use crate::packet::UDP_HEADERS;
use crate::report::{
    FlowReport, HostReport, Indices, LinkReport, MessageReport, Report, Spread, TransferReport,
};
use crate::scenario::{FlowSpec, Protocol, Scenario};
use crate::simulation::{Agent, AgentId, Sent, Simulation};

/// A run that can be watched between samples.
///
/// If the scenario asks for the TCP friendliness index, the run with TCP alone follows the run
/// proper.
#[derive(Debug)]
pub struct Run {
    main: Recording,
    reference: Option<Recording>,
}

/// A simulation and what has been recorded of it.
#[derive(Debug)]
struct Recording {
    scenario: Scenario,
    simulation: Simulation,
    samples: u32,
    flows: Vec<FlowRecord>,
    links: Vec<LinkRecord>,
}

#[derive(Clone, Debug, Default)]
struct FlowRecord {
    /// Payload bytes delivered until the last sample, the start and the end of measuring.
    sampled: u64,
    measured: [u64; 2],
    series: Vec<f64>,
    /// Full packets that had arrived at the last sample, in whatever order.
    arrived: u64,
    arrivals: Vec<f64>,
    rtt_ms: Vec<f64>,
    /// When everything had been delivered.
    completed: Option<Time>,
}

impl FlowRecord {
    /// What was delivered while measuring, over that time, bits/s.
    fn throughput(&self, (from, to): (Duration, Duration)) -> f64 {
        let measured = to.saturating_sub(from).as_secs_f64();
        let delivered = (self.measured[1] - self.measured[0]) as f64 * 8.0;
        if measured > 0.0 { delivered / measured } else { 0.0 }
    }
}

#[derive(Clone, Debug, Default)]
struct LinkRecord {
    measured: [LinkStats; 2],
    queue: Vec<u64>,
}

impl Scenario {
    /// The part of a flow's own time in which averages are taken.
    fn measured_of(&self, flow: &FlowSpec) -> (Duration, Duration) {
        let (from, to) = self.measure;
        (from.max(flow.start), flow.stop.map_or(to, |stop| stop.min(to)))
    }

    /// Begins to run it.
    pub fn start(&self) -> Run {
        let reference = self.with_tcp_alone().map(Recording::new);
        Run { main: Recording::new(self.clone()), reference }
    }

    /// Runs it to its end.
    pub fn run(&self) -> Report {
        let mut run = self.start();
        while run.step() {}
        run.finish()
    }
}

impl Run {
    /// Goes on to the next sample. False: the end has been reached.
    pub fn step(&mut self) -> bool {
        self.main.step() || self.reference.as_mut().is_some_and(Recording::step)
    }

    /// How much of all has been simulated, and how much there is.
    pub fn progress(&self) -> (Duration, Duration) {
        let now = |recording: &Recording| recording.simulation.now() - Time::ZERO;
        let whole = self.main.scenario.duration;
        match &self.reference {
            None => (now(&self.main), whole),
            Some(reference) => (now(&self.main) + now(reference), whole * 2),
        }
    }

    /// The simulation proper.
    pub fn simulation_mut(&mut self) -> &mut Simulation {
        &mut self.main.simulation
    }

    /// What has been measured.
    pub fn finish(self) -> Report {
        let Run { mut main, reference } = self;
        let mut report = main.report();
        if let Some(mut reference) = reference {
            let beside = main.tcp_throughputs(&report);
            let alone = reference.report();
            let alone = reference.tcp_throughputs(&alone);
            report.indices.tcp_friendliness = indices::tcp_friendliness(&beside, &alone);
        }
        report
    }
}

impl Recording {
    fn new(scenario: Scenario) -> Self {
        Recording {
            simulation: scenario.build(),
            samples: 0,
            flows: vec![FlowRecord::default(); scenario.flows.len()],
            links: vec![LinkRecord::default(); scenario.links.len()],
            scenario,
        }
    }

    fn step(&mut self) -> bool {
        let Scenario { duration, sample, measure, .. } = self.scenario;
        let end = Time::ZERO + duration;
        if self.simulation.now() >= end {
            return false;
        }
        let sampled = Time::ZERO + sample * (self.samples + 1);
        let measured = [measure.0, measure.1].map(|at| Time::ZERO + at);
        let now = self.simulation.now();
        // However far apart the samples are, whoever runs it can show how far it is, and stop.
        let slice = now + (duration / 1_000).max(Duration::from_nanos(1));
        let next = measured.into_iter().filter(|at| *at > now).chain([sampled, slice, end]).min();
        let next = next.unwrap_or(end);
        self.simulation.run_until(next);
        if next == sampled {
            self.samples += 1;
            self.take_sample(next);
        }
        for (edge, at) in measured.iter().enumerate() {
            if *at == next {
                self.take_edge(edge);
            }
        }
        true
    }

    fn take_sample(&mut self, now: Time) {
        let interval = self.scenario.sample.as_secs_f64();
        for (number, flow) in self.flows.iter_mut().enumerate() {
            let delivered = self.simulation.agent(receiver(number)).delivered();
            flow.series.push((delivered - flow.sampled) as f64 * 8.0 / interval);
            flow.sampled = delivered;
            let spec = &self.scenario.flows[number];
            // The last message may go beyond.
            let complete = spec.protocol.is_bulk() && spec.bytes.is_some_and(|b| delivered >= b);
            if flow.completed.is_none() && complete {
                flow.completed = Some(now);
            }
            if let Some(arrived) = self.simulation.agent_mut(receiver(number)).arrived(now) {
                let bits =
                    (arrived - flow.arrived) as f64 * f64::from(spec.protocol.payload()) * 8.0;
                flow.arrivals.push(bits / interval);
                flow.arrived = arrived;
            } else {
                flow.arrivals.push(0.0);
            }
            if let Some(rtt) = self.simulation.agent_mut(sender(number)).sent(now).rtt {
                flow.rtt_ms.push(rtt.as_secs_f64() * 1e3);
            }
        }
        for (number, link) in self.links.iter_mut().enumerate() {
            let stats = self.simulation.link_stats(LinkId(number as u32));
            link.queue.push(stats.queue.packets);
        }
    }

    fn take_edge(&mut self, edge: usize) {
        for (number, flow) in self.flows.iter_mut().enumerate() {
            flow.measured[edge] = self.simulation.agent(receiver(number)).delivered();
        }
        for (number, link) in self.links.iter_mut().enumerate() {
            link.measured[edge] = self.simulation.link_stats(LinkId(number as u32));
        }
    }

    /// What has been measured; once, for the series go with it.
    fn report(&mut self) -> Report {
        let under_way = self.simulation.fillers_under_way();
        let flows = (0..self.flows.len()).map(|n| self.flow(n, &under_way));
        let flows: Vec<FlowReport> = flows.collect();
        let links = (0..self.links.len()).map(|n| self.link(n)).collect();
        let indices = self.indices(&flows);
        let seconds = |span: Duration| span.as_secs_f64();
        Report {
            title: self.scenario.title.clone(),
            seed: self.scenario.seed,
            duration_s: seconds(self.scenario.duration),
            sample_s: seconds(self.scenario.sample),
            measured_s: self.scenario.measured_s(),
            flows,
            links,
            hosts: self.hosts(),
            indices,
            events: self.simulation.events(),
            packets: self.simulation.packets(),
            wall_seconds: None,
        }
    }

    /// `under_way`: packets of constant rate that may still arrive.
    fn flow(&mut self, number: usize, under_way: &BTreeSet<(AgentId, u64)>) -> FlowReport {
        let now = self.simulation.now();
        let Sent { packets, mut lost, retransmitted, .. } =
            self.simulation.agent_mut(sender(number)).sent(now);
        if let Agent::Counter(counter) = self.simulation.agent(receiver(number)) {
            // Its sender knows of no loss.
            let to = receiver(number);
            let numbers = under_way.range((to, 0)..=(to, u64::MAX));
            let late = numbers.filter(|(_, number)| !counter.has(*number)).count() as u64;
            lost = packets - counter.packets - late;
        }
        let bytes = self.simulation.agent(receiver(number)).delivered();
        let ended = match self.simulation.agent_mut(sender(number)) {
            Agent::Udt(agent) => agent.ended(),
            Agent::TcpSource(source) => source.ended(),
            _ => None,
        };
        let (transfers, messages) = (self.transfers(number), self.messages(number));
        let spec = &self.scenario.flows[number];
        let record = &mut self.flows[number];
        // A flow that begins or ends while the others are measured is measured over its own time.
        let throughput = record.throughput(self.scenario.measured_of(spec));
        let end = spec.stop.unwrap_or(self.scenario.duration).min(self.scenario.duration);
        let stop = record.completed.map_or(end, |at| (at - Time::ZERO).min(end));
        FlowReport {
            name: spec.name.clone(),
            protocol: spec.protocol.name(),
            cc: spec.protocol.law(),
            start_s: spec.start.as_secs_f64(),
            stop_s: stop.as_secs_f64(),
            ended,
            bytes,
            throughput_bps: throughput,
            packet_throughput_bps: throughput / spec.protocol.payload_share(),
            loss_rate: if packets > 0 { (lost as f64 / packets as f64).min(1.0) } else { 0.0 },
            packets_sent: packets,
            retransmitted,
            rtt_ms: Spread::of(&record.rtt_ms),
            messages,
            transfers,
            series: core::mem::take(&mut record.series),
            arrivals: core::mem::take(&mut record.arrivals),
        }
    }

    /// Of the TCP connections that are flows of their own, in whole packets.
    fn tcp_throughputs(&self, report: &Report) -> Vec<f64> {
        let flows = report.flows.iter().zip(&self.scenario.flows);
        flows
            .filter(|(_, spec)| matches!(spec.protocol, Protocol::Tcp(_)))
            .map(|(flow, _)| flow.packet_throughput_bps)
            .collect()
    }

    fn messages(&self, number: usize) -> Option<MessageReport> {
        let of = |agent| match self.simulation.agent(agent) {
            Agent::Udt(agent) => agent.messages(),
            _ => None,
        };
        let ((sent, _), (delivered, delay_ms)) = (of(sender(number))?, of(receiver(number))?);
        Some(MessageReport { sent, delivered, delay_ms })
    }

    fn transfers(&self, number: usize) -> Option<TransferReport> {
        let Protocol::TcpArrivals { .. } = self.scenario.flows[number].protocol else {
            return None;
        };
        let Agent::TcpSource(source) = self.simulation.agent(sender(number)) else { return None };
        let counted = source.transfers();
        Some(TransferReport {
            started: counted.begun,
            completed: counted.completed,
            refused: counted.refused,
            mean_s: counted.mean_time().as_secs_f64(),
        })
    }

    fn hosts(&self) -> Vec<HostReport> {
        let nodes = self.scenario.nodes.iter().zip(&self.scenario.hosts);
        let report = |((name, profile), node): ((&String, &HostProfile), u32)| {
            let counts = self.simulation.host_counts(NodeId(node))?;
            let HostCounts { overruns, thinned, stalls, interrupts, packets } = counts;
            let (name, profile) = (name.clone(), profile.name.clone());
            Some(HostReport { name, profile, interrupts, packets, overruns, thinned, stalls })
        };
        nodes.zip(0..).filter_map(report).collect()
    }

    fn link(&mut self, number: usize) -> LinkReport {
        let end = self.simulation.link_stats(LinkId(number as u32));
        let spec = &self.scenario.links[number];
        let record = &mut self.links[number];
        let [before, after] = record.measured;
        let queue = core::mem::take(&mut record.queue);
        let (name, measured) = (spec.name.clone(), self.scenario.measure);
        LinkReport::new(name, &spec.config, measured, [before, after, end], queue)
    }

    fn indices(&self, flows: &[FlowReport]) -> Indices {
        let specs = &self.scenario.flows;
        let bulk: Vec<usize> = (0..specs.len()).filter(|n| specs[*n].protocol.is_bulk()).collect();
        let throughputs: Vec<f64> = bulk.iter().map(|n| flows[*n].throughput_bps).collect();
        // From the first one's begin to the last one's end. Averages over each flow's own time do not
        // add up: the first of two has the whole link until the second comes, and together they would
        // have more than there is.
        let spans = bulk.iter().map(|n| self.scenario.measured_of(&specs[*n]));
        let common = spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let common = common.unwrap_or_default();
        let parts: Vec<f64> = bulk.iter().map(|n| self.flows[*n].throughput(common)).collect();
        let sample = self.scenario.sample.as_secs_f64();
        let measured = self.scenario.measured_s();
        let in_samples = |n: &usize| flows[*n].measured(&flows[*n].series, sample, measured);
        let samples: Vec<&[f64]> = bulk.iter().map(in_samples).collect();
        Indices {
            efficiency_bps: indices::efficiency(&parts),
            jain: indices::jain(&throughputs),
            stability: indices::stability(&samples),
            tcp_friendliness: None,
        }
    }
}

/// The sender or the receiver of a flow.
impl Agent {
    /// Payload bytes that a receiver has delivered.
    pub fn delivered(&self) -> u64 {
        match self {
            Agent::Udt(agent) => agent.received,
            Agent::Counter(counter) => counter.bytes - counter.packets * u64::from(UDP_HEADERS),
            Agent::TcpSink(sink) => sink.received(),
            Agent::Cbr(_) | Agent::TcpSource(_) => 0,
        }
    }

    /// Packets that have come to a receiver for the first time, in whatever order; none before
    /// there is a connection and once it is forgotten.
    pub fn arrived(&mut self, now: Time) -> Option<u64> {
        match self {
            Agent::Udt(agent) => {
                let counters = agent.stats(now)?.total.counters;
                let again = counters.duplicates + counters.out_of_window;
                Some(counters.packets_received - again)
            }
            Agent::Counter(counter) => Some(counter.packets),
            Agent::TcpSink(sink) => Some(sink.stats().segments - sink.stats().duplicates),
            Agent::Cbr(_) | Agent::TcpSource(_) => None,
        }
    }

    /// What a sender has sent.
    pub fn sent(&mut self, now: Time) -> Sent {
        match self {
            Agent::Udt(agent) => agent.sent(now),
            Agent::Cbr(source) => Sent { packets: source.sent, ..Sent::default() },
            Agent::TcpSource(source) => {
                let stats = source.stats();
                Sent {
                    packets: stats.segments_sent,
                    lost: stats.segments_lost,
                    retransmitted: stats.segments_retransmitted,
                    rtt: source.smoothed_rtt(),
                }
            }
            Agent::TcpSink(_) | Agent::Counter(_) => Sent::default(),
        }
    }
}
