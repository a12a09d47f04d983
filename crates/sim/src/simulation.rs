//! The course of a simulation: agents on the nodes of a network, in virtual time.

use core::time::Duration;
use std::collections::BTreeSet;

use farhaul_base::Time;
use farhaul_link::LinkStats;

use crate::cbr::{CbrSource, Counter};
use crate::host::{Doze, Host, HostCounts, HostProfile};
use crate::network::{LinkId, Network, NodeId};
use crate::observer::{Event, EventKind, Observer, Watch};
use crate::packet::{Content, Packet};
use crate::schedule::{Schedule, Who};
use crate::tcp::{TcpSink, TcpSource};
use crate::udt::{Scratch, UdtAgent};

/// An agent's number: one end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentId(pub u32);

/// One end of a flow.
#[derive(Debug)]
pub enum Agent {
    /// A UDT endpoint with an application.
    Udt(Box<UdtAgent>),
    /// The sending ends of TCP connections.
    TcpSource(Box<TcpSource>),
    /// The receiving ends.
    TcpSink(Box<TcpSink>),
    /// A source of constant bit rate.
    Cbr(CbrSource),
    /// Where such a source sends to.
    Counter(Counter),
}

/// What a sender has sent, from its own point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sent {
    /// Data packets, retransmissions included.
    pub packets: u64,
    /// Data packets that were found to be lost.
    pub lost: u64,
    /// Data packets sent again.
    pub retransmitted: u64,
    /// Smoothed round-trip time; none before the first measurement.
    pub rtt: Option<Duration>,
}

/// A network with its agents, and the time.
#[derive(Debug)]
pub struct Simulation {
    now: Time,
    network: Network,
    agents: Vec<(NodeId, Agent)>,
    /// Those that take their time, by node, and what their agents wait for. Empty where none does.
    hosts: Vec<Option<Box<Host>>>,
    dozes: Vec<Doze>,
    schedule: Schedule,
    /// Packets that agents have sent.
    packets: u64,
    /// Turns that were taken.
    events: u64,
    /// What an agent sends in its turn.
    outgoing: Vec<Packet>,
    scratch: Scratch,
    /// None as a rule: then nobody is told of anything.
    watch: Option<Box<Watch>>,
}

impl Simulation {
    /// At time zero, with all agents about to have their first turn.
    pub fn new(mut network: Network, agents: Vec<(NodeId, Agent)>) -> Self {
        network.route();
        let nodes = network.nodes();
        let mut schedule = Schedule::new(network.hops().len(), agents.len(), nodes);
        for number in 0..agents.len() as u32 {
            schedule.ask(Time::ZERO, Who::Agent(number));
        }
        Simulation {
            now: Time::ZERO,
            network,
            agents,
            hosts: Vec::new(),
            dozes: Vec::new(),
            schedule,
            packets: 0,
            events: 0,
            outgoing: Vec::new(),
            scratch: Scratch::default(),
            watch: None,
        }
    }

    /// Has `node` take its time as `profile` says, before the simulation begins; everything random about
    /// that is a function of `seed`.
    pub fn set_host(&mut self, node: NodeId, profile: HostProfile, seed: u64) {
        self.hosts.resize_with(self.network.nodes(), || None);
        self.dozes.resize_with(self.agents.len(), Doze::default);
        if let Some(host) = self.hosts.get_mut(node.0 as usize) {
            *host = (!profile.is_none()).then(|| Box::new(Host::new(profile, seed)));
        }
    }

    /// What a host that takes its time has counted; none of other nodes.
    pub fn host_counts(&self, node: NodeId) -> Option<HostCounts> {
        Some(self.hosts.get(node.0 as usize)?.as_ref()?.counts)
    }

    /// Has `observer` told of everything that happens from now on. Of several, each event is told
    /// to the one that came first first.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        let Simulation { network, now, watch, .. } = self;
        watch.get_or_insert_with(|| Box::new(Watch::new(network, *now))).add(observer);
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Packets that agents have sent.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Turns that links and agents have taken.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The counters of a link, as of now.
    pub fn link_stats(&mut self, id: LinkId) -> LinkStats {
        let link = &mut self.network.hop_mut(id).link;
        link.advance(self.now);
        link.stats()
    }

    /// An agent.
    pub fn agent(&self, id: AgentId) -> &Agent {
        &self.agents[id.0 as usize].1
    }

    /// An agent.
    pub fn agent_mut(&mut self, id: AgentId) -> &mut Agent {
        &mut self.agents[id.0 as usize].1
    }

    /// Packets of constant rate that are on their way: the agent each is for, and its number.
    pub fn fillers_under_way(&self) -> BTreeSet<(AgentId, u64)> {
        let packets = self.network.hops().iter().flat_map(|hop| hop.link.packets());
        let held = self.hosts.iter().flatten().flat_map(|host| host.packets());
        packets
            .chain(held)
            .filter_map(|packet| match packet.content {
                Content::Filler { number, .. } => Some((packet.to, number)),
                _ => None,
            })
            .collect()
    }

    /// Lets everything happen until `until`.
    pub fn run_until(&mut self, until: Time) {
        while let Some((at, who)) = self.schedule.next(until) {
            self.now = at;
            self.events += 1;
            self.pass_time();
            match who {
                Who::Link(number) => self.deliver(LinkId(number)),
                Who::Agent(number) => self.wake(AgentId(number)),
                Who::Host(number) => self.host_turn(NodeId(number)),
            }
        }
        self.now = until;
        self.pass_time();
    }

    /// Tells whoever watches of the losses up to now.
    #[inline]
    fn pass_time(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.pass_time(&mut self.network, self.now);
        }
    }

    /// Tells whoever watches that something happens now.
    #[inline]
    fn tell(&mut self, kind: EventKind, link: Option<LinkId>, node: NodeId, packet: &Packet) {
        if let Some(watch) = &mut self.watch {
            watch.tell(&Event { at: self.now, kind, link, node, packet });
        }
    }

    /// Takes what has arrived at the end of a link.
    fn deliver(&mut self, id: LinkId) {
        loop {
            let hop = self.network.hop_mut(id);
            let Some((_, packet)) = hop.link.poll(self.now) else { break };
            let at = hop.to;
            self.tell(EventKind::Arrived, Some(id), at, &packet);
            if self.agents.get(packet.to.0 as usize).is_some_and(|(node, _)| *node == at) {
                self.arrive(id, at, packet);
            } else {
                self.forward(at, packet);
            }
        }
        self.ask_for_link(id);
    }

    /// A packet has reached the node of its agent.
    fn arrive(&mut self, id: LinkId, at: NodeId, packet: Packet) {
        let Some(Some(host)) = self.hosts.get_mut(at.0 as usize) else {
            self.tell(EventKind::Received, Some(id), at, &packet);
            let to = packet.to;
            if self.hand_over(self.now, packet) {
                self.turn(to);
            }
            return;
        };
        match host.arrive(self.now, packet) {
            Ok(()) => self.ask_for_host(at),
            Err(packet) => self.tell(EventKind::Overrun, Some(id), at, &packet),
        }
    }

    /// Gives an agent a packet of whose arrival it was told by a time stamp of `stamp`; whether it
    /// has something to do then.
    fn hand_over(&mut self, stamp: Time, packet: Packet) -> bool {
        match (&mut self.agents[packet.to.0 as usize].1, &packet.content) {
            (Agent::Udt(agent), Content::Udt { header, payload }) => {
                agent.receive(stamp, packet.from, header, payload);
            }
            (Agent::TcpSource(agent), Content::Tcp(segment)) => agent.receive(self.now, segment),
            (Agent::TcpSink(agent), Content::Tcp(segment)) => {
                agent.receive(self.now, packet.from, segment);
            }
            (Agent::Counter(counter), Content::Filler { bytes, number }) => {
                counter.receive(*number, *bytes);
                return false;
            }
            // A packet with a wrong checksum, or of another protocol, of which a host that does not
            // speak it knows nothing.
            _ => return false,
        }
        true
    }

    /// What a host that takes its time does: ACKs that have waited leave, the interrupt brings what has
    /// arrived.
    fn host_turn(&mut self, node: NodeId) {
        let now = self.now;
        let Some(Some(host)) = self.hosts.get_mut(node.0 as usize) else { return };
        if let Some(end) = host.stalled(now) {
            self.schedule.ask(end, Who::Host(node.0));
            return;
        }
        let batch = host.batch();
        let mut arrived = host.take_arrived(now);
        while let Some(Some(host)) = self.hosts.get_mut(node.0 as usize)
            && let Some(ack) = host.release(now)
        {
            self.put_on_link(node, ack);
        }
        while !arrived.is_empty() {
            let mut turns = Vec::new();
            for packet in arrived.drain(..batch.min(arrived.len())) {
                self.tell(EventKind::Received, None, node, &packet);
                let to = packet.to;
                let is_process = matches!(self.agents[to.0 as usize].1, Agent::Udt(_));
                if is_process {
                    let doze = &mut self.dozes[to.0 as usize];
                    doze.inbox.push_back((now, packet));
                    if let Some(Some(host)) = self.hosts.get_mut(node.0 as usize) {
                        host.wake(now, doze);
                    }
                    self.ask_for_agent(to);
                } else if self.hand_over(now, packet) && !turns.contains(&to) {
                    turns.push(to);
                }
            }
            for agent in turns {
                self.turn(agent);
            }
        }
        self.ask_for_host(node);
    }

    /// An agent's turn, if it is: on a host that takes its time it may have been put off.
    fn wake(&mut self, id: AgentId) {
        let now = self.now;
        let node = self.agents[id.0 as usize].0;
        let Some(Some(host)) = self.hosts.get_mut(node.0 as usize) else {
            self.turn(id);
            return;
        };
        if let Some(end) = host.stalled(now) {
            self.schedule.ask(end, Who::Agent(id.0));
            return;
        }
        let doze = &mut self.dozes[id.0 as usize];
        if now > Time::ZERO && doze.next().is_none_or(|at| at > now) {
            self.ask_for_agent(id);
            return;
        }
        while let Some((stamp, packet)) = self.dozes[id.0 as usize].inbox.pop_front() {
            self.hand_over(stamp, packet);
        }
        self.turn(id);
    }

    fn turn(&mut self, id: AgentId) {
        let (node, agent) = &mut self.agents[id.0 as usize];
        let (node, outgoing) = (*node, &mut self.outgoing);
        let mut send = |packet| outgoing.push(packet);
        let due = match agent {
            Agent::Udt(agent) => agent.turn(self.now, &mut self.scratch, &mut send),
            Agent::TcpSource(agent) => agent.turn(self.now, &mut send),
            Agent::TcpSink(agent) => agent.turn(self.now, &mut send),
            Agent::Cbr(source) => source.turn(self.now, &mut send),
            Agent::Counter(_) => None,
        };
        if let Some(Some(host)) = self.hosts.get_mut(node.0 as usize) {
            let doze = &mut self.dozes[id.0 as usize];
            doze.awake(self.now);
            host.sleep(self.now, due, doze);
            self.ask_for_agent(id);
        } else if let Some(at) = due {
            self.schedule.ask(at.max(self.now.plus_nanos(1)), Who::Agent(id.0));
        }
        let mut outgoing = core::mem::take(&mut self.outgoing);
        for packet in outgoing.drain(..) {
            self.send(node, packet);
        }
        self.outgoing = outgoing;
    }

    /// An agent sends a packet.
    fn send(&mut self, node: NodeId, mut packet: Packet) {
        if let Some(Some(host)) = self.hosts.get_mut(node.0 as usize) {
            let before = host.release_of(&packet);
            let Some(now) = host.hold(self.now, packet) else {
                self.ask_for_host(node);
                return;
            };
            packet = now;
            if let Some(before) = before {
                self.put_on_link(node, before);
            }
        }
        self.put_on_link(node, packet);
    }

    /// A packet leaves its agent's host.
    fn put_on_link(&mut self, node: NodeId, packet: Packet) {
        self.packets += 1;
        if self.watch.is_some() {
            self.tell(EventKind::Sent, self.next_link(node, &packet), node, &packet);
        }
        self.forward(node, packet);
    }

    /// Puts a packet on the link towards its destination. Without a way it is lost.
    fn forward(&mut self, at: NodeId, packet: Packet) {
        let Some(id) = self.next_link(at, &packet) else { return };
        let hop = self.network.hop_mut(id);
        // A full queue drops it, which the link has counted.
        let offered = hop.link.try_offer(self.now, packet);
        if let Some(watch) = &mut self.watch {
            watch.offered(id, hop, offered.err());
        }
        self.ask_for_link(id);
    }

    /// The link that a packet takes from `at`, if there is a way.
    fn next_link(&self, at: NodeId, packet: &Packet) -> Option<LinkId> {
        let (to, _) = self.agents.get(packet.to.0 as usize)?;
        self.network.next(at, *to)
    }

    fn ask_for_host(&mut self, node: NodeId) {
        if let Some(Some(host)) = self.hosts.get(node.0 as usize)
            && let Some(at) = host.next_event()
        {
            self.schedule.ask(at.max(self.now), Who::Host(node.0));
        }
    }

    fn ask_for_agent(&mut self, id: AgentId) {
        if let Some(at) = self.dozes[id.0 as usize].next() {
            self.schedule.ask(at.max(self.now), Who::Agent(id.0));
        }
    }

    fn ask_for_link(&mut self, id: LinkId) {
        if let Some(at) = self.network.hop_mut(id).link.next_event() {
            self.schedule.ask(at, Who::Link(id.0));
        }
    }
}
