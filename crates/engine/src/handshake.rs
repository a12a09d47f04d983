//! Connection set-up from the connecting side: client and rendezvous.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;

use farhaul_base::Time;
use farhaul_wire::{HEADER_LEN, Handshake, PeerIp, Request, Seq, SocketType};

use crate::config::{Config, MIN_WIRE_MSS, Mode, payload_size};

/// An unanswered request is repeated after this.
const REPEAT: Duration = Duration::from_millis(250);
/// For a client, until the peer's first answer. A path on which that took long has more: see [`Connecting::wait_longer`].
const CLIENT_TIMEOUT: Duration = Duration::from_secs(3);
const RENDEZVOUS_TIMEOUT: Duration = Duration::from_secs(30);
/// Unanswered conclusions after which the client asks for a new cookie: the stock listener
/// silently refuses one that crossed its minute.
const CONCLUSIONS_BEFORE_RESTART: u32 = 4;
/// No peer needs to be sent more than this before its first ACK.
const MAX_FLIGHT_FLAG: u32 = 1 << 24;

/// A port that is closed is so for good when its host has said it so often, over so long: a server that
/// starts with its client has that time.
const CLOSED_TIMES: u32 = 3;
const CLOSED_FOR: Duration = Duration::from_millis(450);

/// Why a connection could not be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody answered in time.
    TimedOut,
    /// The peer speaks another version of the protocol.
    Version(u32),
    /// One side wants a stream, the other messages.
    Mode,
    /// The peer refused and did not say more: its backlog is full, or it is closing.
    Refused,
    /// The peer's host says that nothing listens at the port ([`Endpoint::on_unreachable`](crate::Endpoint::on_unreachable)).
    Closed,
    /// The peer accepted with values that no connection can have: its MSS and its flight flag size.
    Values(u32, u32),
    /// An answer came that does not belong to the request.
    Security,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::TimedOut => f.write_str("no answer from the peer"),
            ConnectError::Version(v) => {
                write!(f, "the peer speaks version {v} of the protocol, not {}", Handshake::VERSION)
            }
            ConnectError::Mode => f.write_str(
                "the peer wants messages where this side wants a stream, or the reverse",
            ),
            ConnectError::Refused => {
                f.write_str("the peer refused the connection: its backlog is full or it is closing")
            }
            ConnectError::Closed => f.write_str(
                "nothing listens at the peer's port: start the other side first, or check the port",
            ),
            ConnectError::Values(mss, flag) => write!(
                f,
                "the peer answers with an MSS of {mss} bytes and a flight flag size of {flag} packets, \
                 which no connection can have"
            ),
            ConnectError::Security => f.write_str("the answer does not belong to the request"),
        }
    }
}

impl core::error::Error for ConnectError {}

/// The time stamp of this side's handshakes: the stock library leaves that of all control packets zero, and
/// looks at none.
pub const STAMP: u32 = 1;

/// What both sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    pub peer_id: u32,
    /// The peer is a farhaul one by the time stamp of its handshake: see [`STAMP`].
    pub ours: bool,
    /// MSS as the protocol counts it.
    pub wire_mss: u32,
    /// First sequence numbers, of this side and of the peer.
    pub isn: Seq,
    pub peer_isn: Seq,
    /// Packets the peer takes at most.
    pub flight_flag: u32,
    /// The round trip that the set-up took, if it was not repeated.
    pub rtt: Option<Duration>,
}

impl Agreement {
    /// With what a handshake of the peer says, checked.
    pub fn new(own_mss: u32, isn: Seq, peer: &Handshake, stamp: u32) -> Option<Self> {
        let sane = peer.mss >= MIN_WIRE_MSS && peer.flight_flag > 0 && peer.socket_id > 0;
        sane.then(|| Agreement {
            peer_id: peer.socket_id,
            ours: stamp != 0,
            wire_mss: own_mss.min(peer.mss),
            isn,
            peer_isn: peer.isn,
            flight_flag: peer.flight_flag.min(MAX_FLIGHT_FLAG),
            rtt: None,
        })
    }

    pub fn payload_size(&self) -> usize {
        payload_size(self.wire_mss)
    }
}

/// What a packet did to the set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    None,
    Connected(Agreement),
    Failed(ConnectError),
}

/// A connection being set up by this side.
#[derive(Debug)]
pub struct Connecting {
    pub id: u32,
    pub peer: SocketAddr,
    pub config: Config,
    isn: Seq,
    stage: Stage,
    begun: Time,
    deadline: Time,
    /// When to send the current request, again or at once.
    next_send: Time,
    /// When the current request was first sent, and how often.
    asked_at: Time,
    asked: u32,
    /// The client has begun anew: an answer may be that to an earlier request.
    restarted: bool,
    /// When the peer's host first said that the port is closed, and how often it did.
    closed: Option<(Time, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Client: asking for a cookie.
    Hello,
    /// Client: returning it.
    Conclusion { cookie: u32 },
    /// Rendezvous: nothing heard of the peer.
    Calling,
    /// Rendezvous: the peer has been heard and is being answered.
    Answering(Agreement),
}

impl Connecting {
    pub fn new(now: Time, id: u32, peer: SocketAddr, isn: Seq, config: Config) -> Self {
        let (stage, default) = if config.rendezvous {
            (Stage::Calling, RENDEZVOUS_TIMEOUT)
        } else {
            let invited =
                config.invitation.map(|key| Stage::Conclusion { cookie: key.cookie(isn, id) });
            (invited.unwrap_or(Stage::Hello), CLIENT_TIMEOUT)
        };
        let timeout = config.connect_timeout.unwrap_or(default);
        Connecting {
            id,
            peer,
            config,
            isn,
            stage,
            begun: now,
            deadline: now + timeout,
            next_send: now,
            asked_at: now,
            asked: 0,
            restarted: false,
            closed: None,
        }
    }

    /// The peer's host says that the port is closed to what was sent, of which it quotes `quoted`. One
    /// such word may be about a server that is just starting; a rendezvous waits for its peer to begin.
    pub fn on_unreachable(&mut self, now: Time, quoted: &[u8]) -> Progress {
        // The handshake's own fields, behind the header: the first sequence number and the socket ID.
        let word = |at: usize| quoted.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let own = word(HEADER_LEN + 8) == Some(self.isn.value())
            && word(HEADER_LEN + 24) == Some(self.id);
        if !own || self.config.rendezvous {
            return Progress::None;
        }
        let (since, times) = self.closed.unwrap_or((now, 0));
        self.closed = Some((since, times + 1));
        let over = times + 1 >= CLOSED_TIMES && now - since >= CLOSED_FOR;
        if over { Progress::Failed(ConnectError::Closed) } else { Progress::None }
    }

    /// A handshake has come from the peer's address, to socket ID `dest`.
    pub fn on_handshake(&mut self, now: Time, reply: &Handshake, stamp: u32) -> Progress {
        match self.stage {
            Stage::Hello | Stage::Conclusion { .. } => self.on_client_reply(now, reply, stamp),
            Stage::Calling | Stage::Answering(_) => self.on_rendezvous(now, reply, stamp),
        }
    }

    fn on_client_reply(&mut self, now: Time, reply: &Handshake, stamp: u32) -> Progress {
        match reply.request {
            Request::Hello => {
                // The cookie. A late copy of it does not restart the conclusion.
                if self.stage == Stage::Hello && reply.isn == self.isn {
                    self.wait_longer(now);
                    self.ask(now, Stage::Conclusion { cookie: reply.cookie });
                }
                Progress::None
            }
            Request::Conclusion => {
                if reply.isn != self.isn {
                    return Progress::Failed(ConnectError::Security);
                }
                // A stock server's repeated answer leaves the version zero.
                if reply.version != Handshake::VERSION && reply.version != 0 {
                    return Progress::Failed(ConnectError::Version(reply.version));
                }
                self.connected(now, reply, stamp)
            }
            // A listener says 1002; everything positive but 1 is taken for a refusal, since the
            // original numbers more reasons than it sends.
            Request::Rejected => Progress::Failed(self.reason(reply)),
            Request::Other(code) if code > 0 => Progress::Failed(self.reason(reply)),
            _ => Progress::None,
        }
    }

    /// The peer is there, and its next answer takes as long as the first, or twice that if a request is lost: three
    /// times [`CLIENT_TIMEOUT`] at most. A time that the user has set is kept.
    fn wait_longer(&mut self, now: Time) {
        let answered_by = self.begun + CLIENT_TIMEOUT;
        if self.config.connect_timeout.is_none() && now <= answered_by {
            self.deadline = self.deadline.max(now + (now - self.begun) * 2);
        }
    }

    /// A stock listener echoes this side's own fields; one of ours puts its own version and type
    /// where they are the reason.
    fn reason(&self, reply: &Handshake) -> ConnectError {
        if reply.version != Handshake::VERSION {
            ConnectError::Version(reply.version)
        } else if reply.socket_type != socket_type(self.config.mode) {
            ConnectError::Mode
        } else {
            ConnectError::Refused
        }
    }

    fn on_rendezvous(&mut self, now: Time, hs: &Handshake, stamp: u32) -> Progress {
        match (self.stage, hs.request) {
            (Stage::Calling, Request::Rendezvous | Request::Conclusion | Request::Agreement) => {
                if hs.version == Handshake::VERSION
                    && hs.socket_type != socket_type(self.config.mode)
                {
                    return Progress::Failed(ConnectError::Mode);
                }
                let mss = self.config.wire_mss(self.peer.ip());
                if let Some(agreement) = Agreement::new(mss, self.isn, hs, stamp) {
                    self.ask(now, Stage::Answering(agreement));
                }
                Progress::None
            }
            (Stage::Answering(_), Request::Rendezvous) => {
                self.next_send = now;
                Progress::None
            }
            (Stage::Answering(agreement), Request::Conclusion | Request::Agreement)
                if hs.socket_id == agreement.peer_id =>
            {
                Progress::Connected(agreement)
            }
            _ => Progress::None,
        }
    }

    /// Something else than a handshake has come from the peer: a rendezvous peer that has been
    /// heard is then connected already.
    pub fn on_other(&mut self) -> Progress {
        match self.stage {
            Stage::Answering(agreement) => Progress::Connected(agreement),
            _ => Progress::None,
        }
    }

    fn connected(&self, now: Time, reply: &Handshake, stamp: u32) -> Progress {
        let mss = self.config.wire_mss(self.peer.ip());
        // A conclusion that is answered late comes with version and type 0: not looked at.
        match Agreement::new(mss, self.isn, reply, stamp) {
            Some(agreement) => Progress::Connected(Agreement {
                // As Karn has it: no sample where it is open which request was answered.
                rtt: (self.asked == 1 && !self.restarted).then(|| now - self.asked_at),
                ..agreement
            }),
            None => Progress::Failed(ConnectError::Values(reply.mss, reply.flight_flag)),
        }
    }

    fn ask(&mut self, now: Time, stage: Stage) {
        self.stage = stage;
        self.next_send = now;
        self.asked = 0;
    }

    /// The request to send now, and to which socket ID.
    pub fn poll(&mut self, now: Time) -> Option<(u32, Handshake)> {
        if now < self.next_send {
            return None;
        }
        if matches!(self.stage, Stage::Conclusion { .. })
            && self.asked >= CONCLUSIONS_BEFORE_RESTART
        {
            self.ask(now, Stage::Hello);
            self.restarted = true;
        }
        if self.asked == 0 {
            self.asked_at = now;
        }
        self.asked += 1;
        self.next_send = now + REPEAT;
        let (request, cookie, dest) = match self.stage {
            Stage::Hello => (Request::Hello, 0, 0),
            Stage::Conclusion { cookie } => (Request::Conclusion, cookie, 0),
            Stage::Calling => (Request::Rendezvous, 0, 0),
            Stage::Answering(agreement) => (Request::Conclusion, 0, agreement.peer_id),
        };
        let own = own_fields(self.id, self.peer, self.isn, &self.config);
        Some((dest, Handshake { request, cookie, ..own }))
    }

    /// When [`Connecting::poll`] has something, or the set-up fails.
    pub fn timeout(&self) -> Time {
        self.next_send.min(self.deadline)
    }

    pub fn timed_out(&self, now: Time) -> bool {
        now >= self.deadline
    }
}

/// A handshake with this side's values; request and cookie are still to be set.
pub fn own_fields(id: u32, peer: SocketAddr, isn: Seq, config: &Config) -> Handshake {
    let mss = config.wire_mss(peer.ip());
    Handshake {
        version: Handshake::VERSION,
        socket_type: socket_type(config.mode),
        isn,
        mss,
        flight_flag: config.receive_capacity(mss),
        request: Request::Conclusion,
        socket_id: id,
        cookie: 0,
        peer_ip: PeerIp::from(peer.ip().to_canonical()),
    }
}

pub fn socket_type(mode: Mode) -> SocketType {
    match mode {
        Mode::Stream => SocketType::Stream,
        Mode::Message => SocketType::Message,
    }
}
