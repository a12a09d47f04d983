//! Forging packets in the name of those who talk through the relay, as an attacker on the path could:
//! for tests of what that does to them.
//!
//! The relay shows every datagram that it takes in. What is forged names connections that are alive,
//! with socket IDs and sequence numbers that were seen on them, and enters the path like the packets of
//! the one in whose name it is.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::collections::BTreeMap;

use farhaul_base::{Rng, Time};
use farhaul_wire::{
    Ack, AckDetail, AckSeq, Boundary, Control, DataHeader, Handshake, LossRange, MsgNo, Packet,
    PeerIp, Request, Seq, SocketType, write_nak,
};

use super::flows::FlowKey;

/// What is forged, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct InjectConfig {
    /// One of these at a time, by chance; the same may stand there several times.
    pub kinds: Vec<Forged>,
    /// How many a second, above 0 and at most [`MAX_FORGED_PER_SECOND`].
    pub per_second: f64,
}

/// The most that are forged in a second.
pub const MAX_FORGED_PER_SECOND: f64 = 10_000.0;

/// A kind of forged packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Forged {
    /// A shutdown.
    Shutdown,
    /// An ACK of packets that are under way.
    Ack,
    /// A report that packets under way, or acknowledged, are lost.
    Nak,
    /// A data packet with other content, where the next are expected.
    Data,
    /// A handshake to a connection that stands.
    Handshake,
    /// A TLS alert in plain text, the first data of a new connection.
    Alert,
    /// A request to give up packets.
    Drop,
    /// An ACK that tells of a tiny window and a huge round trip.
    Window,
    /// A control packet that was seen before, as it was.
    Replay,
}

impl Forged {
    /// All of them.
    pub const ALL: [Forged; 9] = [
        Forged::Shutdown,
        Forged::Ack,
        Forged::Nak,
        Forged::Data,
        Forged::Handshake,
        Forged::Alert,
        Forged::Drop,
        Forged::Window,
        Forged::Replay,
    ];

    /// Its name, one word.
    pub const fn name(self) -> &'static str {
        match self {
            Forged::Shutdown => "shutdown",
            Forged::Ack => "ack",
            Forged::Nak => "nak",
            Forged::Data => "data",
            Forged::Handshake => "handshake",
            Forged::Alert => "alert",
            Forged::Drop => "drop",
            Forged::Window => "window",
            Forged::Replay => "replay",
        }
    }
}

impl fmt::Display for Forged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Forged {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Forged::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| {
            let names: Vec<_> = Forged::ALL.iter().map(|kind| kind.name()).collect();
            format!("'{text}' is no kind of packet; write all or some of {}", names.join(", "))
        })
    }
}

/// How many packets were forged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InjectStats([u64; Forged::ALL.len()]);

impl InjectStats {
    /// Of one kind.
    pub fn of(&self, kind: Forged) -> u64 {
        self.0[kind as usize]
    }

    /// Of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// What was forged: enters the path there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Injected {
    pub flow: FlowKey,
    pub forward: bool,
    pub payload: Vec<u8>,
}

/// Forgeries end for a connection that has been silent for this time.
const ALIVE: Duration = Duration::from_secs(2);
/// And forgotten after this.
const REMEMBERED: Duration = Duration::from_secs(10);
/// The most ends of connections that are watched.
const MAX_ENDS: usize = 512;
/// Control packets kept of each to be repeated.
const MAX_KEPT: usize = 16;
/// Forged packets name places so far from the newest that was seen at most, packets.
const REACH: u64 = 64;
/// access_denied (RFC 8446 §6) as a record, framed as farhaul's handshake frames messages.
const ALERT: [u8; 9] = [0, 7, 0x15, 3, 3, 0, 2, 2, 49];

/// One end of a connection: its socket ID and the direction in which packets go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EndKey {
    flow: FlowKey,
    forward: bool,
    id: u32,
}

/// What was seen of the packets to an end.
#[derive(Debug)]
struct End {
    seen: Time,
    timestamp: u32,
    /// The other end's socket ID.
    peer: Option<u32>,
    /// The highest data packet to it.
    newest: Option<Seq>,
    /// What was acknowledged to it last.
    acked: Option<(AckSeq, Seq)>,
    kept: Vec<Vec<u8>>,
}

/// Watches what passes and forges.
#[derive(Debug)]
pub(crate) struct Injector {
    kinds: Vec<Forged>,
    interval: Duration,
    next: Time,
    rng: Rng,
    ends: BTreeMap<EndKey, End>,
    /// An alert waits for a connection that is new.
    alert_due: bool,
    ready: Vec<Injected>,
    stats: InjectStats,
}

impl Injector {
    pub(crate) fn new(config: &InjectConfig, seed: u64) -> Self {
        let per_second = config.per_second.clamp(1e-6, MAX_FORGED_PER_SECOND);
        let interval = Duration::from_secs_f64(1.0 / per_second);
        Injector {
            kinds: config.kinds.clone(),
            interval,
            next: Time::ZERO + interval,
            rng: Rng::new(seed),
            ends: BTreeMap::new(),
            alert_due: false,
            ready: Vec::new(),
            stats: InjectStats::default(),
        }
    }

    pub(crate) fn stats(&self) -> InjectStats {
        self.stats
    }

    /// When the next packet is to be forged.
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    /// A datagram passes.
    pub(crate) fn observe(&mut self, now: Time, flow: FlowKey, forward: bool, bytes: &[u8]) {
        let Ok(packet) = Packet::parse(bytes) else { return };
        let (id, timestamp) = match &packet {
            Packet::Data(header, _) => (header.dest, header.timestamp),
            Packet::Control(control) => (control.dest, control.timestamp),
        };
        if id == 0 {
            return; // to a listener: there is no connection yet
        }
        let key = EndKey { flow, forward, id };
        let Some(end) = self.end(now, key) else { return };
        (end.seen, end.timestamp) = (now, timestamp);
        match packet {
            Packet::Data(header, _) => {
                end.newest = Some(end.newest.map_or(header.seq, |seq| seq.later(header.seq)));
            }
            Packet::Control(control) => {
                if end.kept.len() == MAX_KEPT {
                    end.kept.remove(0);
                }
                end.kept.push(bytes.to_vec());
                match control.body {
                    Control::Ack { ack_seq, ack } => end.acked = Some((ack_seq, ack.next)),
                    Control::Handshake(handshake) => self.introduced(now, key, &handshake),
                    _ => {}
                }
            }
        }
    }

    /// A handshake tells both socket IDs, and where sequence numbers begin.
    fn introduced(&mut self, now: Time, key: EndKey, handshake: &Handshake) {
        let first = handshake.isn.prev();
        let other = EndKey { forward: !key.forward, id: handshake.socket_id, ..key };
        // The listener's first answer only brings a cookie.
        let both = matches!(
            handshake.request,
            Request::Conclusion | Request::Agreement | Request::Rendezvous
        );
        if handshake.socket_id == 0 || !both {
            return;
        }
        for (key, peer) in [(key, other.id), (other, key.id)] {
            if let Some(end) = self.end(now, key) {
                end.peer = Some(peer);
                end.newest.get_or_insert(first);
            }
        }
        if self.alert_due && handshake.request == Request::Conclusion {
            self.alert_due = false;
            self.inject(Forged::Alert, key);
        }
    }

    /// What is known of an end, made if it is new and there is room.
    fn end(&mut self, now: Time, key: EndKey) -> Option<&mut End> {
        if !self.ends.contains_key(&key) {
            if self.ends.len() >= MAX_ENDS {
                self.ends.retain(|_, end| now - end.seen < REMEMBERED);
            }
            if self.ends.len() >= MAX_ENDS {
                return None;
            }
        }
        Some(self.ends.entry(key).or_insert_with(|| End {
            seen: now,
            timestamp: 0,
            peer: None,
            newest: None,
            acked: None,
            kept: Vec::new(),
        }))
    }

    /// What is to enter the path now.
    pub(crate) fn poll(&mut self, now: Time) -> Vec<Injected> {
        while self.next <= now {
            self.next += self.interval;
            if self.kinds.is_empty() {
                continue;
            }
            let kind = self.kinds[self.rng.below(self.kinds.len() as u64) as usize];
            if kind == Forged::Alert {
                // It says nothing where both sides have keys already.
                self.alert_due = true;
                continue;
            }
            let alive: Vec<EndKey> = self
                .ends
                .iter()
                .filter(|(_, end)| now - end.seen < ALIVE && end.peer.is_some())
                .map(|(key, _)| *key)
                .collect();
            if !alive.is_empty() {
                let key = alive[self.rng.below(alive.len() as u64) as usize];
                self.inject(kind, key);
            }
        }
        std::mem::take(&mut self.ready)
    }

    fn inject(&mut self, kind: Forged, key: EndKey) {
        let Some(payload) = self.forge(kind, key) else { return };
        self.stats.0[kind as usize] += 1;
        self.ready.push(Injected { flow: key.flow, forward: key.forward, payload });
    }

    /// A packet to `key`, in the name of its peer; `None` if too little has been seen for it.
    fn forge(&mut self, kind: Forged, key: EndKey) -> Option<Vec<u8>> {
        let rng = &mut self.rng;
        let end = self.ends.get(&key)?;
        let peer = end.peer?;
        // What the end has sent: it goes the other way.
        let sent = self.ends.get(&EndKey { forward: !key.forward, id: peer, ..key });
        let sent = sent.and_then(|other| other.newest);
        let timestamp = end.timestamp.wrapping_add(rng.below(1000) as u32);
        let control = |control: Control<'_>| {
            let mut out = vec![0; control.datagram_len()];
            control.write(timestamp, key.id, &mut out).map(|_| out)
        };
        let data = |seq: Seq, payload: &[u8]| {
            let header = DataHeader {
                seq,
                boundary: Boundary::SOLO,
                in_order: true,
                message: MsgNo::new(1),
                timestamp,
                dest: key.id,
            };
            [&header.to_bytes()[..], payload].concat()
        };
        let ack_seq = end.acked.map_or(AckSeq::new(1), |(ack_seq, _)| ack_seq.next());
        match kind {
            Forged::Shutdown => {
                // A plain one, one that breaks off, and one that says what has come.
                let account = 1 << 31 | end.acked.map_or(0, |(_, next)| next.value());
                control(Control::Shutdown { code: [0, 1, account][rng.below(3) as usize] })
            }
            Forged::Ack => {
                let next = sent?.minus(rng.below(REACH) as u32).next();
                let rtt_us = 1000 + rng.below(100_000) as u32;
                let detail = rng.chance(0.5).then_some(AckDetail {
                    rtt_us,
                    rtt_var_us: rtt_us / 8,
                    available: 8192,
                    rates: None,
                });
                let ack_seq = if detail.is_some() { ack_seq } else { AckSeq::LIGHT };
                control(Control::Ack { ack_seq, ack: Ack { next, detail } })
            }
            Forged::Window => {
                let next = end.acked.map(|(_, next)| next).or(sent)?;
                let detail = AckDetail {
                    rtt_us: 5_000_000,
                    rtt_var_us: 2_000_000,
                    available: rng.below(4) as u32,
                    rates: None,
                };
                control(Control::Ack { ack_seq, ack: Ack { next, detail: Some(detail) } })
            }
            Forged::Nak => {
                let last = sent?.minus(rng.below(REACH) as u32);
                let first = last.minus(rng.below(REACH) as u32);
                let mut out = vec![0; 64];
                let (length, _) =
                    write_nak(&[LossRange { first, last }], timestamp, key.id, &mut out);
                out.truncate(length);
                Some(out)
            }
            Forged::Data => {
                let seq = end.newest?.plus(1 + rng.below(REACH) as u32);
                let length = 1 + rng.below(1400);
                let payload: Vec<u8> = (0..length).map(|_| rng.next_u32() as u8).collect();
                Some(data(seq, &payload))
            }
            Forged::Alert => Some(data(end.newest?.next(), &ALERT)),
            Forged::Drop => {
                let first = end.newest?.plus(rng.below(REACH) as u32);
                let last = first.plus(rng.below(REACH) as u32);
                control(Control::DropRequest { message: MsgNo::new(1), first, last })
            }
            Forged::Handshake => {
                let all = [Request::Hello, Request::Conclusion, Request::Rendezvous];
                let request = all[rng.below(all.len() as u64) as usize];
                control(Control::Handshake(Handshake {
                    version: Handshake::VERSION,
                    socket_type: SocketType::Stream,
                    isn: Seq::new(rng.next_u32()),
                    mss: 1500,
                    flight_flag: 8192,
                    request,
                    socket_id: if rng.chance(0.5) { peer } else { rng.next_u32() >> 1 },
                    cookie: rng.next_u32(),
                    peer_ip: PeerIp::NONE,
                }))
            }
            Forged::Replay => {
                let choice = rng.below(end.kept.len().max(1) as u64) as usize;
                end.kept.get(choice).cloned()
            }
        }
    }
}

#[cfg(test)]
mod tests;
