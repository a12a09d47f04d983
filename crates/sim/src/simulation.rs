//! The course of a simulation: agents on the nodes of a network, in virtual time.

use core::time::Duration;
use std::collections::BTreeSet;

use farhaul_base::Time;
use farhaul_link::LinkStats;

use crate::cbr::{CbrSource, Counter};
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
        let mut schedule = Schedule::new(network.hops().len(), agents.len());
        for number in 0..agents.len() as u32 {
            schedule.ask(Time::ZERO, Who::Agent(number));
        }
        Simulation {
            now: Time::ZERO,
            network,
            agents,
            schedule,
            packets: 0,
            events: 0,
            outgoing: Vec::new(),
            scratch: Scratch::default(),
            watch: None,
        }
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
        packets
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
                Who::Agent(number) => self.turn(AgentId(number)),
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
                self.tell(EventKind::Received, Some(id), at, &packet);
                self.hand_over(packet);
            } else {
                self.forward(at, packet);
            }
        }
        self.ask_for_link(id);
    }

    fn hand_over(&mut self, packet: Packet) {
        match (&mut self.agents[packet.to.0 as usize].1, &packet.content) {
            (Agent::Udt(agent), Content::Udt { header, payload }) => {
                agent.receive(self.now, packet.from, header, payload);
            }
            (Agent::TcpSource(agent), Content::Tcp(segment)) => agent.receive(self.now, segment),
            (Agent::TcpSink(agent), Content::Tcp(segment)) => {
                agent.receive(self.now, packet.from, segment);
            }
            (Agent::Counter(counter), Content::Filler { bytes, number }) => {
                counter.receive(*number, *bytes);
                return;
            }
            // A packet with a wrong checksum, or of another protocol, of which a host that does not
            // speak it knows nothing.
            _ => return,
        }
        self.turn(packet.to);
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
        if let Some(at) = due {
            self.schedule.ask(at.max(self.now.plus_nanos(1)), Who::Agent(id.0));
        }
        let mut outgoing = core::mem::take(&mut self.outgoing);
        self.packets += outgoing.len() as u64;
        for packet in outgoing.drain(..) {
            if self.watch.is_some() {
                self.tell(EventKind::Sent, self.next_link(node, &packet), node, &packet);
            }
            self.forward(node, packet);
        }
        self.outgoing = outgoing;
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

    fn ask_for_link(&mut self, id: LinkId) {
        if let Some(at) = self.network.hop_mut(id).link.next_event() {
            self.schedule.ask(at, Who::Link(id.0));
        }
    }
}
