//! Any datagrams, in any order and at any time, against an endpoint that listens and has an open
//! connection: no panic, no more memory than was granted, no deadline that leads to nothing.
//!
//! The input is a program: each step is a byte that says what, and the bytes that say how. Numbers
//! of packets are relative to the connection's, so that many are nearly right.

#![no_main]

use std::hash::Hasher;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_engine::{Chunks, Config, ConnectionId, Endpoint, Mode, TagKeys, Transmit};
use farhaul_wire::{
    Ack, AckDetail, AckRates, AckSeq, Boundary, Control, DataHeader, Handshake, LossRange, MsgNo,
    Packet, PeerIp, Request, Seq, SocketType, write_nak,
};
use libfuzzer_sys::fuzz_target;
use siphasher::sip::SipHasher24;

const MEMORY: usize = 1 << 20;
const BACKLOG: usize = 4;
const PEER_ID: u32 = 0x0123_4567;
const ISN: Seq = Seq::new(Seq::MAX - 20);

fuzz_target!(|program: &[u8]| {
    let mut input = Input(program);
    let mut run = Run::new(if input.byte() % 2 == 0 { Mode::Stream } else { Mode::Message });
    while !input.0.is_empty() {
        run.step(&mut input);
        run.check();
    }
    // Time passes, and everything comes to its end.
    for _ in 0..200 {
        run.pass(Duration::from_secs(2));
    }
    assert_eq!(run.endpoint.connection(run.id).map(|c| c.close_reason().is_some()), Some(true));
});

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    /// A number near zero, seldom far from it.
    fn offset(&mut self) -> u32 {
        match self.byte() {
            near @ 0..200 => u32::from(near).wrapping_sub(60),
            200..250 => u32::from(self.u16()),
            _ => self.u32(),
        }
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = (usize::from(self.u16()) % (most + 1)).min(self.0.len());
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        head.to_vec()
    }
}

/// The key of what the peer sends.
const PEER_KEY: [u8; 16] = [2; 16];

/// Puts a control packet into an envelope, as the engine's `tags.rs` describes it.
fn seal(number: u64, packet: &[u8]) -> Vec<u8> {
    let low = (number as u32).to_be_bytes();
    let mark = [0xff, 0xff, 0xff, 0x01];
    let mut out = [&mark, &low, &packet[8..16], &packet[..8], &packet[16..]].concat();
    let mut hasher = SipHasher24::new_with_key(&PEER_KEY);
    hasher.write(&number.to_be_bytes());
    hasher.write(&out);
    out.extend(hasher.finish().to_be_bytes());
    out
}

struct Run {
    now: Time,
    endpoint: Endpoint,
    id: ConnectionId,
    mode: Mode,
    peer: SocketAddr,
    transmit: Transmit,
    /// The last cookie that was offered.
    cookie: u32,
    /// The peer tags its control packets, the last of which had this number.
    seals: bool,
    sealed: u64,
}

impl Run {
    fn new(mode: Mode) -> Self {
        let peer = SocketAddr::from(([10, 0, 0, 1], 1_000));
        let now = Time::from_millis(1);
        let config =
            Config { mode, receive_memory: MEMORY, send_memory: MEMORY, ..Config::default() };
        let mut endpoint = Endpoint::new(now, 1);
        endpoint.listen(config.clone(), BACKLOG).expect("the options are in range");
        // Any ID will do until there is one.
        let id = endpoint.connect(now, peer, config).expect("the options are in range");
        endpoint.release(now, id, true);
        let mut run = Run {
            now,
            endpoint,
            id,
            mode,
            peer,
            transmit: Transmit::new(),
            cookie: 0,
            seals: false,
            sealed: 0,
        };
        let hello = run.hello(Request::Hello);
        run.push(&packet(0, &Control::Handshake(hello)));
        run.poll();
        let conclusion = Handshake { cookie: run.cookie, ..run.hello(Request::Conclusion) };
        run.push(&packet(0, &Control::Handshake(conclusion)));
        run.poll();
        run.id = run.endpoint.accept().expect("the cookie was right");
        run
    }

    fn hello(&self, request: Request) -> Handshake {
        let socket_type = match self.mode {
            Mode::Stream => SocketType::Stream,
            Mode::Message => SocketType::Message,
        };
        Handshake {
            version: 4,
            socket_type,
            isn: ISN,
            mss: 1_500,
            flight_flag: 8_192,
            request,
            socket_id: PEER_ID,
            cookie: 0,
            peer_ip: PeerIp::NONE,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let id = self.id.value();
        match input.byte() % 18 {
            0 => {
                let bytes = input.bytes(1_600);
                self.push(&bytes);
            }
            1 => {
                let mut bytes = input.bytes(1_600);
                if let Some(dest) = bytes.get_mut(12..16) {
                    dest.copy_from_slice(&id.to_be_bytes());
                }
                self.push(&bytes);
            }
            2 => self.push_from(SocketAddr::from(([10, 0, 0, input.byte()], 7)), &input.bytes(100)),
            3..=5 => {
                let bytes = data(id, input);
                self.push(&bytes);
            }
            6 => {
                // A receive-offload buffer: equal sizes, the last shorter.
                let mut buffer = Vec::new();
                let segment = 16 + usize::from(input.byte());
                for _ in 0..input.byte() % 50 {
                    let mut bytes = data(id, input);
                    bytes.resize(segment, 7);
                    buffer.extend(bytes);
                }
                let rest = input.bytes(segment);
                buffer.extend(rest);
                let retain = input.byte() % 4 > 0;
                self.endpoint.handle(self.now, self.peer, &buffer.into(), segment, retain);
            }
            7 => {
                let control =
                    Control::Ack { ack_seq: AckSeq::new(input.offset()), ack: ack(input) };
                self.push(&packet(id, &control));
            }
            8 => {
                let ranges: Vec<_> = (0..1 + input.byte() % 8).map(|_| range(input)).collect();
                let mut out = [0; 200];
                let (len, _) = write_nak(&ranges, input.u32(), id, &mut out);
                self.push(&out[..len]);
            }
            9 => {
                let control = match input.byte() % 8 {
                    0 => Control::Ack2 { ack_seq: AckSeq::new(input.offset()) },
                    1 => Control::KeepAlive,
                    2 => Control::CongestionWarning,
                    3 => Control::ErrorSignal { code: input.u32() },
                    4 => Control::User { subtype: 1, info: 2, payload: &[1, 2, 3, 4] },
                    5 if input.byte() == 0 => Control::Shutdown { code: input.u32() },
                    _ => Control::Ack2 { ack_seq: AckSeq::new(u32::from(input.byte())) },
                };
                self.push(&packet(id, &control));
            }
            10 => {
                let LossRange { first, last } = range(input);
                let message = MsgNo::new(input.offset());
                let timestamp = u32::from(input.byte() % 2);
                let mut out = [0; 24];
                let control = Control::DropRequest { message, first, last };
                let _ = control.write(timestamp, id, &mut out);
                self.push(&out);
            }
            11 => {
                let request = Request::from_wire(i32::from(input.byte()) - 3);
                let cookie = if input.byte() % 2 == 0 { self.cookie } else { input.u32() };
                let mut handshake = Handshake { cookie, ..self.hello(request) };
                match input.byte() % 8 {
                    0 => handshake.mss = input.u32(),
                    1 => handshake.flight_flag = input.u32(),
                    2 => handshake.version = input.u32(),
                    3 => handshake.socket_id = input.u32() >> 1,
                    4 => handshake.isn = Seq::new(input.u32()),
                    _ => {}
                }
                let dest = if input.byte() % 2 == 0 { 0 } else { id };
                self.push(&packet(dest, &Control::Handshake(handshake)));
            }
            12 => self.pass(Duration::from_micros(u64::from(input.u16()))),
            13 => self.pass(Duration::from_millis(u64::from(input.u16()) / 8)),
            14 => self.write(input),
            // Control packets are authenticated from now on; the peer's are, or not.
            15 => {
                let (now, keys) = (self.now, TagKeys { send: [1; 16], receive: PEER_KEY });
                self.endpoint.update(self.id, |c| {
                    c.set_tag_keys(keys);
                    c.authenticate(now);
                });
                self.seals = input.byte() % 4 > 0;
            }
            // Something in an envelope, with the right tag or a wrong one.
            16 => {
                let payload = input.bytes(200);
                let info = u32::from(input.byte());
                self.push(&packet(id, &Control::User { subtype: 0xff01, info, payload: &payload }));
            }
            _ => self.read(usize::from(input.u16())),
        }
    }

    fn write(&mut self, input: &mut Input<'_>) {
        let bytes = Bytes::from(vec![7; usize::from(input.u16())]);
        let (now, mode) = (self.now, self.mode);
        let ttl = Some(Duration::from_millis(u64::from(input.byte()))).filter(|t| !t.is_zero());
        let in_order = input.byte() % 2 == 0;
        let _ = self.endpoint.update(self.id, |c| match mode {
            Mode::Stream => c.send_bytes(bytes),
            Mode::Message => c.send_message(now, bytes, ttl, in_order),
        });
    }

    fn read(&mut self, most: usize) {
        let mut chunks = Chunks::default();
        let mode = self.mode;
        self.endpoint.update(self.id, |c| match mode {
            Mode::Stream => c.read(most, &mut chunks),
            Mode::Message => {
                c.read_message(&mut chunks);
            }
        });
        let mut out = vec![0; chunks.len()];
        assert_eq!(chunks.copy_to(&mut out), out.len());
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.seals && bytes.len() >= 16 && bytes[0] & 0x80 != 0 {
            self.sealed += 1;
            let envelope = seal(self.sealed, bytes);
            self.push_from(self.peer, &envelope);
        } else {
            self.push_from(self.peer, bytes);
        }
    }

    fn push_from(&mut self, from: SocketAddr, bytes: &[u8]) {
        let len = bytes.len();
        self.endpoint.handle(self.now, from, &Bytes::copy_from_slice(bytes), len, false);
    }

    fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        self.poll();
        let mut steps = 0;
        while let Some(at) = self.endpoint.poll_timeout().filter(|at| *at <= until) {
            assert!(at > self.now, "a deadline that has passed");
            self.now = at;
            self.endpoint.handle_timeout(at);
            self.poll();
            steps += 1;
            assert!(steps < 100_000, "deadlines that lead to nothing");
        }
        self.now = until;
    }

    fn poll(&mut self) {
        let mut calls = 0;
        while self.endpoint.poll_transmit(self.now, &mut self.transmit) {
            calls += 1;
            assert!(calls < 20_000, "it sends without end");
            assert!(self.transmit.len() <= 65_507 && !self.transmit.is_empty());
            for (header, payload) in self.transmit.datagrams() {
                let bytes = [header.as_slice(), payload].concat();
                let sent = Packet::parse(&bytes).expect("what is sent can be read");
                if let Packet::Control(control) = sent
                    && let Control::Handshake(handshake) = control.body
                {
                    self.cookie = handshake.cookie;
                }
            }
        }
        while self.endpoint.poll_event().is_some() {}
    }

    fn check(&mut self) {
        assert!(self.endpoint.len() <= BACKLOG + 1);
        let now = self.now;
        let stats = self.endpoint.update(self.id, |c| c.stats(now, false));
        let instant = stats.expect("it is not released").instant;
        assert!(instant.receive_buffer.0 <= MEMORY / 2);
        assert!(instant.receive_memory <= MEMORY + (1 << 20) + 65_536);
        assert!(instant.send_buffer.0 <= 2 * MEMORY);
    }
}

fn packet(dest: u32, control: &Control<'_>) -> Vec<u8> {
    let mut out = vec![0; control.datagram_len()];
    let _ = control.write(1, dest, &mut out);
    out
}

fn data(dest: u32, input: &mut Input<'_>) -> Vec<u8> {
    let flags = input.byte();
    let header = DataHeader {
        seq: ISN.plus(input.offset()),
        boundary: Boundary { first: flags & 1 == 0, last: flags & 2 == 0 },
        in_order: flags & 4 == 0,
        message: MsgNo::new(input.offset()),
        timestamp: input.u32(),
        dest,
    };
    let len =
        if flags & 8 == 0 { usize::from(input.byte()) } else { usize::from(input.u16()) % 1_600 };
    let mut out = header.to_bytes().to_vec();
    out.resize(16 + len, flags);
    out
}

fn ack(input: &mut Input<'_>) -> Ack {
    let next = ISN.plus(input.offset());
    let kind = input.byte() % 3;
    let rates =
        (kind == 2).then(|| AckRates { receive_rate: input.u32(), link_capacity: input.u32() });
    let detail = (kind > 0).then(|| AckDetail {
        rtt_us: input.u32(),
        rtt_var_us: input.u32(),
        available: input.offset(),
        rates,
    });
    Ack { next, detail }
}

fn range(input: &mut Input<'_>) -> LossRange {
    let first = ISN.plus(input.offset());
    LossRange { first, last: first.plus(input.offset() & 0x3fff_ffff) }
}
