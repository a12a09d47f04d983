//! Two endpoints joined by two links, in virtual time.

#![allow(dead_code, reason = "each test file uses a part of this")]

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use farhaul_base::{Rng, Time};
use farhaul_engine::{Chunks, Config, ConnectionId, Endpoint, Events, Mode, Transmit};
use farhaul_link::{Link, LinkConfig, Packet};
use farhaul_wire as wire;

#[derive(Clone, Debug)]
pub struct Datagram {
    pub from: SocketAddr,
    pub bytes: Vec<u8>,
}

impl Packet for Datagram {
    fn wire_len(&self) -> usize {
        self.bytes.len() + if self.from.is_ipv6() { 48 } else { 28 }
    }

    fn corruptible_bits(&self) -> usize {
        self.bytes.len() * 8
    }

    fn flip_bit(&mut self, bit: usize) {
        self.bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

pub struct Host {
    pub addr: SocketAddr,
    pub endpoint: Endpoint,
    pub events: Vec<(ConnectionId, Events)>,
    /// Datagrams sent, for tests that look at them or send them again.
    pub log: Option<Vec<Vec<u8>>>,
    /// What arrives is lost: the host is down.
    pub deaf: bool,
    /// It is like the stock library: it reports no loss twice, and its control packets bear no time
    /// stamp. The losses reported.
    pub stock: Option<BTreeSet<u32>>,
    /// When it is stalled: from and until, in order. Nothing is read, sent or timed then; the kernel
    /// goes on to take what arrives, and stamps it.
    pub stalls: Vec<(Time, Time)>,
    transmit: Transmit,
    chunks: Chunks,
}

impl Host {
    fn new(addr: &str, seed: u64) -> Self {
        Host {
            addr: addr.parse().unwrap(),
            endpoint: Endpoint::new(Time::ZERO, seed),
            events: Vec::new(),
            log: None,
            deaf: false,
            stock: None,
            stalls: Vec::new(),
            transmit: Transmit::new(),
            chunks: Chunks::default(),
        }
    }

    /// Stalls it for 1 ms to `longest`, after `pause` each time on the average, for a minute.
    pub fn stall(&mut self, seed: u64, pause: Duration, longest: Duration) {
        let mut rng = Rng::new(seed);
        let mut at = Time::from_millis(500);
        while at < Time::from_secs(60) {
            let start = at + Duration::from_secs_f64(rng.exponential(pause.as_secs_f64()));
            let most = longest.as_nanos() as u64 - 1_000_000;
            at = start.plus_nanos(1_000_000 + rng.below(most + 1));
            self.stalls.push((start, at));
        }
    }

    /// When it next runs, `at` or later.
    fn runs_at(&self, at: Time) -> Time {
        let over = self.stalls.partition_point(|(_, end)| *end <= at);
        self.stalls.get(over).map_or(at, |(start, end)| if *start <= at { *end } else { at })
    }

    /// Makes a stock host's packet of one of ours; false if it would not send it.
    fn make_stock(&mut self, bytes: &mut [u8]) -> bool {
        let Some(reported) = &mut self.stock else { return true };
        let Ok(wire::Packet::Control(packet)) = wire::Packet::parse(bytes) else { return true };
        let fresh = match packet.body {
            wire::Control::Nak(report) => {
                let lost = |r: wire::LossRange| (0..r.len()).map(move |n| r.first.plus(n).value());
                report.ranges().flat_map(lost).fold(true, |all, seq| reported.insert(seq) & all)
            }
            _ => true,
        };
        bytes[8..12].fill(0);
        fresh
    }
}

pub const A: usize = 0;
pub const B: usize = 1;

/// Hosts `A` and `B`; link `A` leads from `A` to `B`, link `B` back.
pub struct Net {
    pub now: Time,
    pub hosts: [Host; 2],
    pub links: [Link<Datagram>; 2],
    /// Hand packets over as retained buffers of several, where they arrive together.
    pub batch: bool,
    /// Hand packets over as header and payload apart.
    pub apart: bool,
    /// The hosts look for packets this often only, as one does whose processor is busy.
    pub interval: Duration,
    pub datagrams: u64,
    /// Steps since something was last sent or received.
    idle_steps: u32,
}

impl Net {
    pub fn new(config: &LinkConfig, seed: u64) -> Self {
        Net::asymmetric(config.clone(), config.clone(), seed)
    }

    pub fn asymmetric(ab: LinkConfig, ba: LinkConfig, seed: u64) -> Self {
        Net {
            now: Time::from_millis(1),
            hosts: [Host::new("10.0.0.1:1000", seed + 1), Host::new("10.0.0.2:2000", seed + 2)],
            links: [Link::new(ab, seed + 3), Link::new(ba, seed + 4)],
            batch: seed.is_multiple_of(2),
            apart: false,
            interval: Duration::ZERO,
            datagrams: 0,
            idle_steps: 0,
        }
    }

    /// The hosts have these addresses.
    pub fn with_addresses(mut self, a: &str, b: &str) -> Self {
        self.hosts[A].addr = a.parse().unwrap();
        self.hosts[B].addr = b.parse().unwrap();
        self
    }

    /// The host's process ends and another begins, on the same port.
    pub fn restart(&mut self, side: usize, seed: u64) {
        self.hosts[side].endpoint = Endpoint::new(self.now, seed);
        self.hosts[side].events.clear();
    }

    /// Puts a datagram on the link towards `to`, as if `from` had sent it.
    pub fn inject(&mut self, to: usize, from: SocketAddr, bytes: Vec<u8>) {
        let _ = self.links[1 - to].offer(self.now, Datagram { from, bytes });
    }

    /// Sends what is to be sent, delivers what has arrived, at this instant.
    pub fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 1_000_000, "packets go to and fro without end");
            let mut busy = false;
            for side in [A, B] {
                busy |= self.send(side) | self.deliver(1 - side);
                let host = &mut self.hosts[side];
                while let Some(event) = host.endpoint.poll_event() {
                    host.events.push(event);
                }
            }
            if !busy {
                break;
            }
            self.idle_steps = 0;
        }
    }

    fn send(&mut self, side: usize) -> bool {
        let host = &mut self.hosts[side];
        let mut sent = false;
        if host.runs_at(self.now) != self.now {
            return false;
        }
        while host.endpoint.poll_transmit(self.now, &mut host.transmit) {
            sent = true;
            assert!(host.transmit.len() <= 65_507 && !host.transmit.is_empty());
            let datagrams = host.transmit.datagrams().map(|(h, p)| [h.as_slice(), p].concat());
            for mut bytes in datagrams.collect::<Vec<_>>() {
                if !host.make_stock(&mut bytes) {
                    continue;
                }
                if let Some(log) = &mut host.log {
                    log.push(bytes.clone());
                }
                self.datagrams += 1;
                let _ = self.links[side].offer(self.now, Datagram { from: host.addr, bytes });
            }
        }
        sent
    }

    fn deliver(&mut self, to: usize) -> bool {
        let mut delivered = false;
        if self.now != self.next_look(to, self.now) {
            return false;
        }
        let mut waiting = self.links[1 - to].poll(self.now);
        while let Some((at, first)) = waiting.take() {
            delivered = true;
            // A host that was stalled has the kernel's stamps.
            let at = if self.hosts[to].stalls.is_empty() { self.now } else { at };
            let segment = first.bytes.len();
            let mut buffer = BytesMut::from(&first.bytes[..]);
            let mut last = segment;
            waiting = self.links[1 - to].poll(self.now);
            // As receive offload does: equal sizes from one address, the last may be shorter.
            while self.batch
                && !self.apart
                && let Some((_, next)) = &waiting
                && next.from == first.from
                && last == segment
                && next.bytes.len() <= segment
                && segment > 0
            {
                last = next.bytes.len();
                buffer.extend_from_slice(&next.bytes);
                waiting = self.links[1 - to].poll(self.now);
            }
            if !self.hosts[to].deaf {
                let endpoint = &mut self.hosts[to].endpoint;
                let mut bytes = buffer.freeze();
                match bytes.first_chunk().copied().filter(|_| self.apart) {
                    Some(header) => {
                        let payload = bytes.split_off(wire::HEADER_LEN);
                        endpoint.handle_packet(at, first.from, &header, &payload);
                    }
                    None => endpoint.handle(at, first.from, &bytes, segment, self.batch),
                }
            }
        }
        delivered
    }

    /// Goes on to the next thing that happens, but not beyond `until`. False if that came first.
    pub fn step(&mut self, until: Time) -> bool {
        self.settle();
        let links = [A, B]
            .into_iter()
            .filter_map(|to| self.links[1 - to].next_event().map(|at| self.next_look(to, at)));
        let timers = self.hosts.iter().filter(|h| !h.deaf).filter_map(|host| {
            host.endpoint.poll_timeout().map(|at| host.runs_at(at.max(self.now)))
        });
        let next = links.chain(timers).min().unwrap_or(Time::MAX);
        if next > until {
            self.now = until;
            return false;
        }
        self.idle_steps += 1;
        assert!(self.idle_steps < 10_000, "time-outs that lead to nothing, at {:?}", self.now);
        self.now = next.max(self.now);
        for side in [A, B] {
            // What has come while the host was stalled comes before the timers.
            if !self.hosts[side].stalls.is_empty() {
                self.deliver(side);
            }
            let host = &mut self.hosts[side];
            if !host.deaf && host.runs_at(self.now) == self.now {
                host.endpoint.handle_timeout(self.now);
            }
        }
        self.settle();
        true
    }

    /// When a host that looks now and then, or is stalled, finds what arrives at `at`.
    fn next_look(&self, host: usize, at: Time) -> Time {
        let interval = self.interval.as_nanos().max(1) as u64;
        let look = Time::from_nanos(at.as_nanos().div_ceil(interval) * interval);
        self.hosts[host].runs_at(look)
    }

    pub fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        while self.step(until) {}
    }

    /// Runs until `done`, at most `limit`; returns whether it was.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Net) -> bool) -> bool {
        let until = self.now + limit;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(until) {
                return done(self);
            }
        }
    }

    /// `B` listens and `A` connects; returns both ends.
    pub fn connect(&mut self, a: Config, b: Config) -> (ConnectionId, ConnectionId) {
        let peer = self.hosts[B].addr;
        self.hosts[B].endpoint.listen(b, 16).unwrap();
        let a = self.hosts[A].endpoint.connect(self.now, peer, a).unwrap();
        let mut accepted = None;
        let connected = self.run_until(Duration::from_secs(60), |net| {
            accepted = accepted.or_else(|| net.hosts[B].endpoint.accept());
            accepted.is_some() && net.hosts[A].endpoint.connection(a).is_some()
        });
        assert!(connected, "no connection");
        (a, accepted.unwrap())
    }

    pub fn update<R>(
        &mut self,
        side: usize,
        id: ConnectionId,
        action: impl FnOnce(&mut farhaul_engine::Connection) -> R,
    ) -> R {
        self.hosts[side].endpoint.update(id, action).expect("the connection is set up")
    }

    pub fn stats(&mut self, side: usize, id: ConnectionId) -> farhaul_engine::Stats {
        let now = self.now;
        self.update(side, id, |c| c.stats(now, false))
    }

    /// Everything that can be read now.
    pub fn read(&mut self, side: usize, id: ConnectionId) -> Vec<u8> {
        if self.hosts[side].endpoint.connection(id).is_none_or(|c| !c.readable()) {
            return Vec::new();
        }
        let mut chunks = Chunks::default();
        self.update(side, id, |c| c.read(usize::MAX, &mut chunks));
        let mut out = vec![0; chunks.len()];
        chunks.copy_to(&mut out);
        out
    }

    /// Takes everything that can be read now, unread; returns how many bytes.
    pub fn skim(&mut self, side: usize, id: ConnectionId) -> usize {
        let mut chunks = core::mem::take(&mut self.hosts[side].chunks);
        self.update(side, id, |c| c.read(usize::MAX, &mut chunks));
        let bytes = chunks.len();
        while chunks.pop().is_some() {}
        self.hosts[side].chunks = chunks;
        bytes
    }

    /// Every message that can be read now.
    pub fn read_messages(&mut self, side: usize, id: ConnectionId) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let mut chunks = Chunks::default();
        while self.update(side, id, |c| c.read_message(&mut chunks)) {
            let mut message = vec![0; chunks.len()];
            chunks.copy_to(&mut message);
            out.push(message);
        }
        out
    }
}

/// Reproducible bytes.
pub fn data(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    out.truncate(len);
    out
}

/// One direction of a transfer: writes as room permits, checks what is read as it comes.
pub struct Flow {
    pub from: usize,
    pub ids: [ConnectionId; 2],
    pub data: Bytes,
    pub written: usize,
    pub read: usize,
    /// The largest write.
    pub piece: usize,
}

impl Flow {
    pub fn new(from: usize, ids: (ConnectionId, ConnectionId), data: Vec<u8>) -> Self {
        let data = Bytes::from(data);
        Flow { from, ids: [ids.0, ids.1], data, written: 0, read: 0, piece: 64 << 10 }
    }

    /// Writes and reads what it can; true when everything has been read.
    pub fn pump(&mut self, net: &mut Net) -> bool {
        while self.written < self.data.len() {
            let end = (self.written + self.piece).min(self.data.len());
            let piece = self.data.slice(self.written..end);
            if net.update(self.from, self.ids[self.from], |c| c.send_bytes(piece)).is_err() {
                break;
            }
            self.written = end;
        }
        self.drain(net)
    }

    /// Reads what it can; true when everything has been read.
    pub fn drain(&mut self, net: &mut Net) -> bool {
        let to = 1 - self.from;
        let got = net.read(to, self.ids[to]);
        let expected = self.data.get(self.read..self.read + got.len());
        assert_eq!(expected, Some(&got[..]), "at byte {}", self.read);
        self.read += got.len();
        self.read == self.data.len()
    }
}

/// A flow from `A` to `B` without end: writes all there is room for, takes what comes unread.
pub struct Flood {
    ids: (ConnectionId, ConnectionId),
    pattern: Bytes,
    /// Bytes taken.
    pub read: usize,
}

impl Flood {
    pub fn new(ids: (ConnectionId, ConnectionId)) -> Self {
        Flood { ids, pattern: Bytes::from(data(1, 256 << 10)), read: 0 }
    }

    pub fn pump(&mut self, net: &mut Net) {
        while net.update(A, self.ids.0, |c| c.send_bytes(self.pattern.clone())).is_ok() {}
        self.read += net.skim(B, self.ids.1);
    }

    /// Goes on for so long; returns the bytes taken.
    pub fn run_for(&mut self, net: &mut Net, span: Duration) -> usize {
        let before = self.read;
        net.run_until(span, |net| {
            self.pump(net);
            false
        });
        self.read - before
    }
}

pub fn stream() -> Config {
    Config::default()
}

pub fn message() -> Config {
    Config { mode: Mode::Message, ..Config::default() }
}

/// 100 Mb/s, 20 ms round trip, a queue of 200 packets.
pub fn path() -> LinkConfig {
    LinkConfig {
        rate: Some("100M".parse().unwrap()),
        delay: Duration::from_millis(10),
        queue: "200p".parse().unwrap(),
        ..LinkConfig::default()
    }
}
