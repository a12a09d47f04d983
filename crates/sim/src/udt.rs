//! Both ends of a UDT connection in the simulator: the engine as it is, and an application that
//! writes or reads all it can.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

use bytes::Bytes;
use farhaul_base::{Rng, Time};
use farhaul_engine::{Chunks, Config, ConnectionId, Endpoint, Mode, Stats, Transmit};
use farhaul_wire::HEADER_LEN;

use crate::packet::{Content, Packet};
use crate::simulation::{AgentId, Sent};

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
    /// Where in the stream the first piece began that was not what has been sent.
    damaged: Option<u64>,
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
    },
    Receiver,
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
        let role =
            Role::Sender { peer, config: Box::new(config), start, stop, left: bytes, written: 0 };
        UdtAgent::new(own, role, seed)
    }

    /// Takes a connection and reads what comes.
    ///
    /// # Panics
    ///
    /// An option of `config` is out of range.
    pub fn receiver(own: AgentId, config: Config, seed: u64) -> Self {
        let mut agent = UdtAgent::new(own, Role::Receiver, seed);
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

    /// From now on compares what is read with what was sent; costs time for each byte.
    pub fn verify(&mut self) {
        self.verify = true;
    }

    /// The first piece of what was read while verifying that is not what was sent: where it began.
    pub fn damaged(&self) -> Option<u64> {
        self.damaged
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
        if let Role::Sender { start, stop, .. } = self.role {
            let next = if now < start { start } else { stop };
            if next > now {
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
                Role::Receiver => self.endpoint.accept(),
                Role::Sender { start, .. } if now < *start => None,
                Role::Sender { peer, config, .. } => {
                    let config = (**config).clone();
                    self.endpoint.connect(now, address(*peer), config).ok()
                }
            };
        }
        let Some(id) = self.connection else { return };
        match &mut self.role {
            Role::Receiver => {
                self.endpoint.update(id, |c| {
                    if c.mode() == Mode::Stream && c.readable() {
                        c.read(usize::MAX, chunks);
                    }
                });
                while self.verify
                    && let Some(piece) = chunks.pop()
                {
                    if *piece != *payload(self.received, piece.len()) {
                        self.damaged.get_or_insert(self.received);
                    }
                    self.received += piece.len() as u64;
                }
                self.received += chunks.len() as u64;
                chunks.clear();
            }
            Role::Sender { stop, left, written, .. } => {
                let stop = *stop;
                self.endpoint.update(id, |c| {
                    if c.close_reason().is_some() {
                        return;
                    }
                    let ahead = AHEAD * c.payload_size();
                    while now < stop && *left != Some(0) {
                        // Only what the windows may take soon: what lies about is cold when its
                        // turn comes.
                        let missing = c.send_space_ahead(ahead);
                        if missing < c.payload_size() {
                            break;
                        }
                        let most = left.unwrap_or(u64::MAX).min(MOST_AT_ONCE.min(missing) as u64);
                        let most = most as usize;
                        // Whole packets, so that none is filled up by copying.
                        let whole = most / c.payload_size() * c.payload_size();
                        let count = if whole > 0 { whole } else { most };
                        if c.send_bytes(Bytes::from_static(payload(*written, count))).is_err() {
                            break;
                        }
                        *written += count as u64;
                        *left = left.map(|left| left - count as u64);
                    }
                    if now >= stop {
                        c.abort(now);
                    } else if *left == Some(0) {
                        c.close(now);
                    }
                });
            }
        }
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
