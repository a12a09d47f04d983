//! Both ends of a UDT connection in the simulator: the engine as it is, and an application that
//! writes or reads all it can, or sends and takes messages.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

use bytes::Bytes;
use farhaul_base::{Rng, Time};
use farhaul_control::Groups;
use farhaul_engine::{
    Chunks, CloseReason, Config, Connection, ConnectionId, Endpoint, Mode, Stats, Transmit,
};
use farhaul_wire::HEADER_LEN;

use crate::packet::{Content, Packet};
use crate::report::{Ended, Spread};
use crate::simulation::{AgentId, Sent};

mod messages;

pub use messages::{LEAST_MESSAGE, MOST_MESSAGE, MessageSpec};
use messages::{MessageSink, MessageSource};

/// Bytes after which what is sent begins again: a prime above the size of a packet, so that one that
/// is delivered in the place of another does not look like it.
const PERIOD: usize = 65_537;
/// The most bytes that are written at once.
const MOST_AT_ONCE: usize = 1 << 20;
/// What is sent, by reference: random bytes, again and again.
static PAYLOAD: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let mut rng = Rng::new(1);
    let period: Box<[u8]> = (0..PERIOD).map(|_| rng.next_u32() as u8).collect();
    period.iter().copied().cycle().take(PERIOD + MOST_AT_ONCE).collect()
});
pub(crate) const PORT: u16 = 9000;
/// Packets that the application writes beyond what the windows can take.
const AHEAD: usize = 64;

/// What the engine fills, one for all agents: each of their own would be cold when its turn comes.
#[derive(Debug, Default)]
pub struct Scratch {
    transmit: Transmit,
    chunks: Chunks,
}

/// One end.
#[derive(Debug)]
pub struct UdtAgent {
    own: AgentId,
    endpoint: Endpoint,
    connection: Option<ConnectionId>,
    role: Role,
    /// Bytes that the application has read.
    pub received: u64,
    /// Whether it looks at what it reads.
    verify: bool,
    /// The first thing read that was not what has been sent.
    damaged: Option<String>,
    /// As of when it was asked for last: the connection may be gone.
    sent: Sent,
}

#[derive(Debug)]
enum Role {
    Sender {
        peer: AgentId,
        config: Box<Config>,
        start: Time,
        stop: Time,
        /// Bytes still to be written; none: without end.
        left: Option<u64>,
        written: u64,
        messages: Option<MessageSource>,
    },
    Receiver {
        messages: Option<MessageSink>,
    },
}

impl UdtAgent {
    /// Sends to `peer` from `start` to `stop`, or so many bytes.
    pub fn sender(
        own: AgentId,
        peer: AgentId,
        config: Config,
        (start, stop): (Time, Time),
        bytes: Option<u64>,
        seed: u64,
    ) -> Self {
        let config = Box::new(config);
        let role =
            Role::Sender { peer, config, start, stop, left: bytes, written: 0, messages: None };
        UdtAgent::new(own, role, seed)
    }

    /// Takes a connection and reads what comes.
    ///
    /// # Panics
    ///
    /// An option of `config` is out of range.
    pub fn receiver(own: AgentId, config: Config, seed: u64) -> Self {
        let mut agent = UdtAgent::new(own, Role::Receiver { messages: None }, seed);
        agent.endpoint.listen(config, 1).expect("the scenario's options have been checked");
        agent
    }

    fn new(own: AgentId, role: Role, seed: u64) -> Self {
        UdtAgent {
            own,
            endpoint: Endpoint::new(Time::ZERO, seed),
            connection: None,
            role,
            received: 0,
            verify: false,
            damaged: None,
            sent: Sent::default(),
        }
    }

    /// Has it send or take messages, of a flow that begins at `flow_start`; the configuration's mode
    /// is to be theirs. Where there is an end to what it sends, the last message may go beyond.
    pub fn with_messages(mut self, spec: MessageSpec, flow_start: Time) -> Self {
        match &mut self.role {
            Role::Sender { messages, .. } => *messages = Some(MessageSource::new(spec, flow_start)),
            Role::Receiver { messages } => *messages = Some(MessageSink::new(spec, flow_start)),
        }
        self
    }

    /// What laws share is that of a host.
    pub fn share_groups(&mut self, groups: &Groups) {
        self.endpoint.share_groups(groups);
    }

    /// From now on compares what is read with what was sent; costs time for each byte.
    pub fn verify(&mut self) {
        self.verify = true;
        if let Role::Receiver { messages: Some(messages) } = &mut self.role {
            messages.verify();
        }
    }

    /// The first of what was read while verifying that is not what was sent, and why.
    pub fn damaged(&self) -> Option<&str> {
        self.damaged.as_deref()
    }

    /// Messages sent, or those that have come and how long they took, milliseconds.
    pub fn messages(&self) -> Option<(u64, Option<Spread>)> {
        match &self.role {
            Role::Sender { messages, .. } => Some((messages.as_ref()?.sent(), None)),
            Role::Receiver { messages } => {
                messages.as_ref().map(|messages| (messages.delivered(), messages.delay_ms()))
            }
        }
    }

    /// Whether it has sent everything, and knows or has given up knowing that it arrived.
    pub fn is_finished(&mut self) -> bool {
        let Role::Sender { left: Some(0), .. } = self.role else { return false };
        let Some(id) = self.connection else { return false };
        self.endpoint.update(id, |c| c.close_reason().is_some()).unwrap_or(true)
    }

    /// How the sender's connection ended, if it should not have.
    pub fn ended(&mut self) -> Option<Ended> {
        let Role::Sender { .. } = self.role else { return None };
        // Without one it has not begun.
        let id = self.connection?;
        match self.endpoint.update(id, |c| c.close_reason()) {
            None => Some(Ended::NeverConnected),
            Some(None | Some(CloseReason::Local)) => None,
            Some(Some(CloseReason::LingerTimeout)) => Some(Ended::NotAcknowledged),
            Some(Some(CloseReason::LawFailed)) => Some(Ended::LawFailed),
            // Nothing has come for too long, or the peer has found so.
            Some(Some(_)) => Some(Ended::Broken),
        }
    }

    /// The connection's performance monitor, while there is one.
    pub fn stats(&mut self, now: Time) -> Option<Stats> {
        self.endpoint.update(self.connection?, |connection| connection.stats(now, false))
    }

    /// What the sender has sent so far.
    pub fn sent(&mut self, now: Time) -> Sent {
        if let Some(Stats { total, instant, .. }) = self.stats(now) {
            let counters = total.counters;
            self.sent = Sent {
                packets: counters.packets_sent,
                lost: counters.send_lost,
                retransmitted: counters.packets_retransmitted,
                rtt: instant.rtt_min.map(|_| instant.rtt),
            };
        }
        self.sent
    }

    /// A datagram has arrived.
    pub fn receive(
        &mut self,
        now: Time,
        from: AgentId,
        header: &[u8; HEADER_LEN],
        payload: &Bytes,
    ) {
        self.endpoint.handle_packet(now, address(from), header, payload);
    }

    /// Lets happen what is due, and hands what is to be sent to `send`. Returns when to come again.
    pub fn turn(
        &mut self,
        now: Time,
        scratch: &mut Scratch,
        send: &mut dyn FnMut(Packet),
    ) -> Option<Time> {
        self.endpoint.handle_timeout(now);
        self.run_application(now, &mut scratch.chunks);
        let transmit = &mut scratch.transmit;
        while self.endpoint.poll_transmit(now, transmit) {
            let to = agent(transmit.to());
            for (header, payload) in transmit.packets() {
                send(Packet { from: self.own, to, content: Content::Udt { header, payload } });
            }
        }
        let mut due = self.endpoint.poll_timeout();
        if let Role::Sender { start, stop, messages, .. } = &self.role {
            let edge = if now < *start { *start } else { *stop };
            let message = messages.as_ref().and_then(MessageSource::next);
            for next in [Some(edge), message].into_iter().flatten().filter(|next| *next > now) {
                due = Some(due.map_or(next, |at| at.min(next)));
            }
        }
        due
    }

    fn run_application(&mut self, now: Time, chunks: &mut Chunks) {
        while let Some((id, _)) = self.endpoint.poll_event() {
            self.connection.get_or_insert(id);
        }
        if self.connection.is_none() {
            self.connection = match &self.role {
                Role::Receiver { .. } => self.endpoint.accept(),
                Role::Sender { start, .. } if now < *start => None,
                Role::Sender { peer, config, .. } => {
                    let config = (**config).clone();
                    self.endpoint.connect(now, address(*peer), config).ok()
                }
            };
        }
        let Some(id) = self.connection else { return };
        match &mut self.role {
            Role::Receiver { messages: Some(messages) } => {
                self.endpoint.update(id, |c| {
                    while c.mode() == Mode::Message && c.read_message(chunks) {
                        self.received += chunks.len() as u64;
                        if let Err(what) = messages.take(now, chunks) {
                            self.damaged.get_or_insert(what);
                            chunks.clear();
                        }
                    }
                });
            }
            Role::Receiver { messages: None } => {
                self.endpoint.update(id, |c| {
                    if c.mode() == Mode::Stream && c.readable() {
                        c.read(usize::MAX, chunks);
                    }
                });
                while self.verify
                    && let Some(piece) = chunks.pop()
                {
                    if *piece != *payload(self.received, piece.len()) {
                        let at = self.received;
                        self.damaged.get_or_insert_with(|| format!("from byte {at} on it differs"));
                    }
                    self.received += piece.len() as u64;
                }
                self.received += chunks.len() as u64;
                chunks.clear();
            }
            Role::Sender { stop, left, written, messages, .. } => {
                let stop = *stop;
                self.endpoint.update(id, |c| {
                    if c.close_reason().is_some() {
                        return;
                    }
                    if now >= stop {
                        c.abort(now);
                        return;
                    }
                    match messages {
                        Some(messages) => messages.run(now, c, left),
                        None => write_stream(c, written, left),
                    }
                    if *left == Some(0) {
                        c.close(now);
                    }
                });
            }
        }
    }
}

/// Writes what the windows may take soon: what lies about is cold when its turn comes. `written`:
/// where in the stream; `left`: bytes still to be written.
fn write_stream(connection: &mut Connection, written: &mut u64, left: &mut Option<u64>) {
    let packet = connection.payload_size();
    while *left != Some(0) {
        let missing = connection.send_space_ahead(AHEAD * packet);
        if missing < packet {
            break;
        }
        let most = left.unwrap_or(u64::MAX).min(MOST_AT_ONCE.min(missing) as u64) as usize;
        // Whole packets, so that none is filled up by copying.
        let whole = most / packet * packet;
        let count = if whole > 0 { whole } else { most };
        if connection.send_bytes(Bytes::from_static(payload(*written, count))).is_err() {
            break;
        }
        *written += count as u64;
        *left = left.map(|left| left - count as u64);
    }
}

/// So many bytes of a stream from `position` on, at most [`MOST_AT_ONCE`].
fn payload(position: u64, len: usize) -> &'static [u8] {
    let start = (position % PERIOD as u64) as usize;
    &PAYLOAD[start..start + len]
}

/// The address of an agent's host.
pub(crate) fn ip(agent: AgentId) -> Ipv4Addr {
    let [_, b, c, d] = agent.0.to_be_bytes();
    Ipv4Addr::new(10, b, c, d)
}

/// The address that an agent is known by.
fn address(agent: AgentId) -> SocketAddr {
    SocketAddr::new(ip(agent).into(), PORT)
}

fn agent(address: SocketAddr) -> AgentId {
    match address.ip() {
        IpAddr::V4(ip) => AgentId(u32::from(ip) & 0x00ff_ffff),
        IpAddr::V6(_) => AgentId(0),
    }
}
