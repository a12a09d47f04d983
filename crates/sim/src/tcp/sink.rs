//! An agent that takes TCP connections and reads.

use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;
use farhaul_link::Ecn;

use super::TcpConfig;
use super::connections::Connections;
use super::receiver::Receiver;
use super::segment::{BLOCKS, Block, Kind, Segment};
use crate::packet::{Content, Packet};
use crate::simulation::AgentId;

/// How long a connection that is over is remembered, to acknowledge what comes late; its sender
/// tries again within this time (RFC 6298 §2.5).
const LINGER: Duration = Duration::from_secs(60);

/// The receiving ends of connections from one agent.
#[derive(Debug)]
pub struct TcpSink {
    own: AgentId,
    config: TcpConfig,
    connections: Connections<Inbound>,
    /// When connections that are over are forgotten.
    over: VecDeque<(Time, u32)>,
    /// What leaves in the next turn, beside what connections have to say.
    replies: Vec<Packet>,
    /// Who sends.
    peer: Option<AgentId>,
    stats: SinkStats,
    /// Bytes that have arrived in order, of all connections.
    bytes: u64,
}

/// A connection.
#[derive(Debug)]
enum Inbound {
    Open(Box<Receiver>),
    /// All of these segments have arrived.
    Over(u64),
}

/// What a sink counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Data segments that arrived undamaged.
    pub segments: u64,
    /// Those of them that had arrived before.
    pub duplicates: u64,
    /// Segments that arrived damaged.
    pub damaged: u64,
    /// ACKs sent.
    pub acks: u64,
    /// Connections of which everything has arrived.
    pub completed: u64,
}

impl TcpSink {
    /// Takes what connections come.
    pub fn new(own: AgentId, config: TcpConfig) -> Self {
        TcpSink {
            own,
            config,
            connections: Connections::new(),
            over: VecDeque::new(),
            replies: Vec::new(),
            peer: None,
            stats: SinkStats::default(),
            bytes: 0,
        }
    }

    /// Bytes that have arrived, in order and each once: the goodput.
    pub fn received(&self) -> u64 {
        self.bytes
    }

    /// Its counters.
    pub fn stats(&self) -> SinkStats {
        self.stats
    }

    /// A segment has come.
    pub fn receive(&mut self, now: Time, from: AgentId, segment: &Segment) {
        if segment.damaged {
            self.stats.damaged += 1;
            return;
        }
        self.peer = Some(from);
        let number = segment.connection;
        match segment.kind {
            Kind::Syn => {
                if self.connections.get_mut(number).is_none() {
                    let receiver = Box::new(Receiver::new(&self.config));
                    self.connections.insert(number, Inbound::Open(receiver));
                }
                if let Some(Inbound::Open(receiver)) = self.connections.get_mut(number) {
                    let answer = receiver.syn_ack();
                    self.reply(number, answer);
                }
            }
            Kind::Data { number: which, len, last } => {
                self.on_data(now, number, which, len, last, segment.ecn == Ecn::Marked);
            }
            Kind::SynAck { .. } | Kind::Ack { .. } | Kind::Reset => {}
        }
    }

    fn on_data(&mut self, now: Time, number: u32, which: u64, len: u32, last: bool, marked: bool) {
        self.stats.segments += 1;
        match self.connections.get_mut(number) {
            Some(Inbound::Open(receiver)) => {
                let (bytes, duplicates) = (receiver.bytes(), receiver.duplicates());
                receiver.receive(now, which, len, last);
                receiver.count_mark(marked);
                self.bytes += receiver.bytes() - bytes;
                self.stats.duplicates += receiver.duplicates() - duplicates;
                self.connections.ask(number, now);
            }
            Some(&mut Inbound::Over(end)) => {
                self.stats.duplicates += 1;
                let window = self.config.window_segments();
                let blocks = [Block::default(); BLOCKS];
                self.reply(number, Kind::Ack { next: end, window, blocks });
            }
            None => {
                self.stats.duplicates += 1;
                self.reply(number, Kind::Reset);
            }
        }
    }

    fn reply(&mut self, connection: u32, kind: Kind) {
        let Some(to) = self.peer else { return };
        self.stats.acks += u64::from(matches!(kind, Kind::Ack { .. }));
        let marks = match self.connections.get_mut(connection) {
            Some(Inbound::Open(receiver)) => receiver.marks(),
            _ => 0,
        };
        let content = Content::Tcp(Segment { marks, ..Segment::new(connection, kind) });
        self.replies.push(Packet { from: self.own, to, content });
    }

    /// Lets happen what is due, and hands what is to leave to `send`. Returns when to come again.
    pub fn turn(&mut self, now: Time, send: &mut dyn FnMut(Packet)) -> Option<Time> {
        while let Some(number) = self.connections.due(now) {
            let Some(Inbound::Open(receiver)) = self.connections.get_mut(number) else { continue };
            let (ack, next) = receiver.turn(now);
            let done = receiver.done();
            if let Some(ack) = ack {
                self.reply(number, ack);
            }
            if let Some(end) = done {
                self.stats.completed += 1;
                self.connections.insert(number, Inbound::Over(end));
                self.over.push_back((now + LINGER, number));
            } else if let Some(at) = next {
                self.connections.ask(number, at);
            }
        }
        self.replies.drain(..).for_each(send);
        while let Some((at, number)) = self.over.front().copied()
            && at <= now
        {
            self.over.pop_front();
            self.connections.remove(number);
        }
        // To forget needs no turn of its own.
        self.connections.next_turn()
    }
}
