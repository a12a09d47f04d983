//! An agent that begins TCP connections and sends.

use core::time::Duration;

use farhaul_base::{Rng, Time};
use farhaul_link::Ecn;

use super::TcpConfig;
use super::connections::Connections;
use super::segment::{Kind, Segment};
use super::sender::{Sender, TcpStats};
use super::workload::{Arrivals, Transfers, Workload};
use crate::packet::{Content, Packet};
use crate::report::Ended;
use crate::simulation::AgentId;

/// The sending ends of connections to one agent.
#[derive(Debug)]
pub struct TcpSource {
    own: AgentId,
    peer: AgentId,
    config: TcpConfig,
    workload: Workload,
    arrivals: Arrivals,
    connections: Connections<Transfer>,
    rng: Rng,
    transfers: Transfers,
    /// Of the connections that are over.
    past: TcpStats,
    stopped: bool,
    /// The law of one of them panicked.
    law_failed: bool,
}

#[derive(Debug)]
struct Transfer {
    sender: Sender,
    begun: Time,
    bytes: u64,
}

impl TcpSource {
    /// Sends `workload` to `peer`.
    pub fn new(
        own: AgentId,
        peer: AgentId,
        config: TcpConfig,
        workload: Workload,
        seed: u64,
    ) -> Self {
        let mut rng = Rng::new(seed);
        TcpSource {
            own,
            peer,
            config,
            workload,
            arrivals: Arrivals::new(workload, rng.fork()),
            connections: Connections::new(),
            rng,
            transfers: Transfers::default(),
            past: TcpStats::default(),
            stopped: false,
            law_failed: false,
        }
    }

    /// Counters of all its connections together.
    pub fn stats(&self) -> TcpStats {
        let mut stats = self.past;
        self.connections.iter().for_each(|transfer| stats.add(&transfer.sender.stats()));
        stats
    }

    /// What has become of its connections.
    pub fn transfers(&self) -> Transfers {
        self.transfers
    }

    /// How its connections ended, if they should not have.
    pub fn ended(&self) -> Option<Ended> {
        self.law_failed.then_some(Ended::LawFailed)
    }

    /// Connections that are not over.
    pub fn concurrent(&self) -> usize {
        self.connections.len()
    }

    /// The congestion window of its oldest connection, packets; none if all are over.
    pub fn window(&self) -> Option<f64> {
        self.connections.iter().next().map(|transfer| transfer.sender.window())
    }

    /// Smoothed round-trip time of its oldest connection; none before the first measurement and if
    /// all are over.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.connections.iter().next()?.sender.smoothed_rtt()
    }

    /// A segment has come.
    pub fn receive(&mut self, now: Time, segment: &Segment) {
        if segment.damaged {
            return;
        }
        let Some(transfer) = self.connections.get_mut(segment.connection) else { return };
        transfer.sender.receive(now, segment);
        self.connections.ask(segment.connection, now);
    }

    /// Lets happen what is due, and hands what is to leave to `send`. Returns when to come again.
    pub fn turn(&mut self, now: Time, send: &mut dyn FnMut(Packet)) -> Option<Time> {
        let (from, to, ecn) = (self.own, self.peer, self.config.ecn.of_data());
        let mut send = |connection, kind| {
            let is_data = matches!(kind, Kind::Data { .. });
            let ecn = if is_data { ecn } else { Ecn::NotCapable };
            let content = Content::Tcp(Segment { ecn, ..Segment::new(connection, kind) });
            send(Packet { from, to, content });
        };
        self.begin(now, &mut send);
        let stop = match self.workload {
            Workload::Bulk { stop, .. } => (!self.stopped).then_some(stop),
            Workload::Arrivals { .. } => None,
        };
        if stop.is_some_and(|at| at <= now) {
            self.stopped = true;
            // What is sent in bulk has the first connection, and no other.
            if let Some(transfer) = self.connections.get_mut(0) {
                transfer.sender.stop();
            }
            self.connections.ask(0, now);
        }
        while let Some(number) = self.connections.due(now) {
            let Some(transfer) = self.connections.get_mut(number) else { continue };
            let next = transfer.sender.turn(now, &mut |kind| send(number, kind));
            if transfer.sender.is_done() {
                self.finish(now, number);
            } else if let Some(at) = next {
                self.connections.ask(number, at);
            }
        }
        let next = self.connections.next_turn().into_iter().chain(self.arrivals.next());
        next.chain(stop.filter(|at| *at > now)).min()
    }

    fn begin(&mut self, now: Time, send: &mut dyn FnMut(u32, Kind)) {
        let most = match self.workload {
            Workload::Bulk { .. } => 1,
            Workload::Arrivals { most, .. } => most,
        };
        while let Some(bytes) = self.arrivals.due(now) {
            if self.connections.len() >= most {
                self.transfers.refused += 1;
                continue;
            }
            let number = self.transfers.begun as u32;
            self.transfers.begun += 1;
            let seed = self.rng.next_u64();
            let mut send = |kind| send(number, kind);
            let sender = Sender::connect(now, &self.config, bytes, seed, &mut send);
            let transfer = Transfer { sender, begun: now, bytes: bytes.unwrap_or(0) };
            self.connections.insert(number, transfer);
            self.connections.ask(number, now);
        }
    }

    fn finish(&mut self, now: Time, number: u32) {
        let Some(transfer) = self.connections.remove(number) else { return };
        self.past.add(&transfer.sender.stats());
        if transfer.sender.law_failed() {
            self.law_failed = true;
            return;
        }
        self.transfers.completed += 1;
        self.transfers.bytes += transfer.bytes;
        self.transfers.time += now - transfer.begun;
    }
}
