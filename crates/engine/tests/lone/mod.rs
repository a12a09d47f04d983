//! One endpoint, and packets made by hand for it.

#![allow(dead_code, reason = "each test file uses a part of this")]

use core::net::SocketAddr;
use core::time::Duration;

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_engine::{Config, ConnectionId, Endpoint, Mode, Stats, Transmit};
use farhaul_wire::{
    Ack, AckDetail, AckSeq, Boundary, Control, DataHeader, Handshake, LossRange, MsgNo, Packet,
    PeerIp, Request, Seq, SocketType, write_nak,
};

/// The socket ID of the hand-made peer.
pub const PEER_ID: u32 = 0x0123_4567;
/// Its sequence numbers, and the endpoint's, start here.
pub const ISN: Seq = Seq::new(1_000);

pub struct Lone {
    pub now: Time,
    pub endpoint: Endpoint,
    /// Where the hand-made packets come from.
    pub peer: SocketAddr,
}

impl Lone {
    pub fn new(seed: u64) -> Self {
        let peer = "10.0.0.1:1000".parse().unwrap();
        let now = Time::from_millis(1);
        Lone { now, endpoint: Endpoint::new(now, seed), peer }
    }

    /// An endpoint that has accepted a connection from the hand-made peer.
    pub fn accepted(config: Config) -> (Self, ConnectionId) {
        let mut lone = Lone::new(1);
        lone.endpoint.listen(config, 8).unwrap();
        let id = lone.accept(PEER_ID);
        (lone, id)
    }

    /// Goes through the handshake as a client with socket ID `id`.
    pub fn accept(&mut self, id: u32) -> ConnectionId {
        self.accept_mode(id, Mode::Stream)
    }

    pub fn accept_mode(&mut self, id: u32, mode: Mode) -> ConnectionId {
        let socket_type = match mode {
            Mode::Stream => SocketType::Stream,
            Mode::Message => SocketType::Message,
        };
        let hello = Handshake { socket_id: id, socket_type, ..client_hello() };
        let cookie = self.ask(&hello).unwrap().cookie;
        let conclusion = Handshake { request: Request::Conclusion, cookie, ..hello };
        let answer = self.ask(&conclusion).unwrap();
        assert_eq!(answer.request, Request::Conclusion);
        let accepted = self.endpoint.accept().unwrap();
        assert_eq!(accepted.value(), answer.socket_id);
        accepted
    }

    /// Hands a handshake over and returns the one that answers it, which is no longer.
    pub fn ask(&mut self, handshake: &Handshake) -> Option<Handshake> {
        let request = packet(0, &Control::Handshake(*handshake));
        self.push(&request);
        let answers = self.pull();
        assert!(answers.len() <= 1, "{answers:?}");
        let (to, answer) = answers.first()?;
        assert_eq!(*to, self.peer);
        assert!(answer.len() <= request.len());
        match Packet::parse(answer).unwrap() {
            Packet::Control(c) if c.dest == handshake.socket_id => match c.body {
                Control::Handshake(answer) => Some(answer),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// A datagram from the peer.
    pub fn push(&mut self, bytes: &[u8]) {
        self.push_from(self.peer, bytes);
    }

    pub fn push_from(&mut self, from: SocketAddr, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        let len = bytes.len();
        self.endpoint.handle(self.now, from, &bytes, len, false);
    }

    /// A control packet from the peer.
    pub fn push_control(&mut self, id: ConnectionId, control: &Control<'_>) {
        self.push(&packet(id.value(), control));
    }

    /// As a farhaul peer sends it: with a time stamp, which a stock peer leaves zero.
    pub fn push_stamped(&mut self, id: ConnectionId, control: &Control<'_>) {
        let mut out = vec![0; control.datagram_len()];
        assert_eq!(control.write(7, id.value(), &mut out), Some(out.len()));
        self.push(&out);
    }

    /// A data packet from the peer, `n` places after its first, in a message of its own.
    pub fn push_data(&mut self, id: ConnectionId, n: u32, payload: &[u8]) {
        self.push(&data_packet(id.value(), n, Boundary::SOLO, true, n + 1, payload));
    }

    /// What the endpoint sends now.
    pub fn pull(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut out = Vec::new();
        let mut transmit = Transmit::new();
        while self.endpoint.poll_transmit(self.now, &mut transmit) {
            for (header, payload) in transmit.datagrams() {
                out.push((transmit.to(), [header.as_slice(), payload].concat()));
            }
            assert!(out.len() < 100_000, "it sends without end");
        }
        out
    }

    /// Lets time pass, and returns what is sent meanwhile.
    pub fn pass(&mut self, span: Duration) -> Vec<(SocketAddr, Vec<u8>)> {
        let until = self.now + span;
        let mut out = self.pull();
        while let Some(at) = self.endpoint.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.endpoint.handle_timeout(self.now);
            out.extend(self.pull());
        }
        self.now = until;
        out
    }

    pub fn stats(&mut self, id: ConnectionId) -> Stats {
        let now = self.now;
        self.endpoint.update(id, |c| c.stats(now, false)).unwrap()
    }
}

/// What a client asks for first.
pub fn client_hello() -> Handshake {
    Handshake {
        version: 4,
        socket_type: SocketType::Stream,
        isn: ISN,
        mss: 1_500,
        flight_flag: 8_192,
        request: Request::Hello,
        socket_id: PEER_ID,
        cookie: 0,
        peer_ip: PeerIp::NONE,
    }
}

pub fn packet(dest: u32, control: &Control<'_>) -> Vec<u8> {
    let mut out = vec![0; control.datagram_len()];
    assert_eq!(control.write(0, dest, &mut out), Some(out.len()));
    out
}

/// A data packet `n` places after the first.
pub fn data_packet(
    dest: u32,
    n: u32,
    boundary: Boundary,
    in_order: bool,
    message: u32,
    payload: &[u8],
) -> Vec<u8> {
    let header = DataHeader {
        seq: ISN.plus(n),
        boundary,
        in_order,
        message: MsgNo::new(message),
        timestamp: n.wrapping_mul(100),
        dest,
    };
    [header.to_bytes().as_slice(), payload].concat()
}

/// A numbered ACK for everything before `n`.
pub fn ack(ack_seq: u32, n: u32, available: u32) -> Control<'static> {
    let detail = AckDetail { rtt_us: 20_000, rtt_var_us: 1_000, available, rates: None };
    Control::Ack {
        ack_seq: AckSeq::new(ack_seq),
        ack: Ack { next: ISN.plus(n), detail: Some(detail) },
    }
}

/// A light ACK for everything before `n`.
pub fn light_ack(n: u32) -> Control<'static> {
    Control::Ack { ack_seq: AckSeq::LIGHT, ack: Ack { next: ISN.plus(n), detail: None } }
}

pub fn nak(dest: u32, ranges: &[(u32, u32)]) -> Vec<u8> {
    let ranges: Vec<_> = ranges
        .iter()
        .map(|(first, last)| LossRange { first: ISN.plus(*first), last: ISN.plus(*last) })
        .collect();
    let mut out = vec![0; 1_472];
    let (len, taken) = write_nak(&ranges, 0, dest, &mut out);
    assert_eq!(taken, ranges.len());
    out.truncate(len);
    out
}

/// The control packets among `sent`.
pub fn controls(sent: &[(SocketAddr, Vec<u8>)]) -> Vec<Control<'_>> {
    let parsed = sent.iter().map(|(_, bytes)| Packet::parse(bytes).unwrap());
    parsed
        .filter_map(|p| match p {
            Packet::Control(c) => Some(c.body),
            Packet::Data(..) => None,
        })
        .collect()
}

/// The places of the data packets among `sent`, after the first.
pub fn data_places(sent: &[(SocketAddr, Vec<u8>)]) -> Vec<i32> {
    let parsed = sent.iter().map(|(_, bytes)| Packet::parse(bytes).unwrap());
    parsed
        .filter_map(|p| match p {
            Packet::Data(header, _) => Some(header.seq.since(ISN)),
            Packet::Control(_) => None,
        })
        .collect()
}
