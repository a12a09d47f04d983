//! A connection to the other side as a transfer sees it.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::frame::AbortReason;

/// One duplex stream of bytes, ready for use: whatever secures it is done.
///
/// When it breaks, or the peer goes, both halves must say so within a bounded time.
pub struct Link {
    /// What the peer writes.
    pub reader: Box<dyn Read + Send>,
    /// What the peer reads. Buffered: [`Write::flush`] sends what waits.
    pub writer: Box<dyn Write + Send>,
    /// The rest of it.
    pub handle: Arc<dyn LinkHandle>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.handle.describe())
    }
}

/// What can be done with a connection beside reading and writing.
pub trait LinkHandle: Send + Sync {
    /// Ends it at once; both halves fail from now on, those that wait included.
    fn abort(&self);

    /// Limits what it sends, bits/s; none: no limit. One that cannot does nothing.
    fn set_max_rate(&self, bits_per_second: Option<u64>) {
        let _ = bits_per_second;
    }

    /// For how long a rate that its owner has set has held this side's lane back so far.
    fn held_back(&self) -> Duration {
        Duration::ZERO
    }

    /// What it knows of the path.
    fn facts(&self) -> LinkFacts {
        LinkFacts::default()
    }

    /// Whether the peer has shown that it knows this side. If not yet, it has shown who it is, and the reader will tell.
    fn is_confirmed(&self) -> bool {
        true
    }

    /// The transport and the peer, for people: `UDP 192.0.2.1:4000`.
    fn describe(&self) -> String;
}

/// What a connection knows of its path. Zero is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkFacts {
    /// Whether it is UDT over UDP.
    pub udp: bool,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Packets sent, first time and again.
    pub packets_sent: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// The peer's window holds this side back.
    pub blocked_by_peer: bool,
    /// What the path seems to carry, bits/s.
    pub capacity: f64,
    /// How much of what this side has sent the transport takes for arrived, in units of its own.
    pub acknowledged: Option<u64>,
    /// How much has come from the peer without a gap before it, in the same units. The transport of
    /// an honest path tells the peer of no more than that, if [`LinkFacts::lag`] is zero.
    pub arrived: Option<u64>,
    /// How long nothing may come of what is [acknowledged](LinkFacts::acknowledged), where that is what the
    /// transport has taken, and not what the peer has: a proxy may have it. Zero where it is what the peer has.
    pub lag: Duration,
    /// For how long this side has been waiting for bytes of the peer; zero if it is not.
    pub waited: Duration,
    /// Control packets that were not the peer's, and changed nothing.
    pub forged: u64,
}

/// What a new connection is for: the first thing that its dialer says on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Purpose {
    /// The control channel.
    Control {
        /// Frames that this side has received on it before.
        received: u64,
    },
    /// A lane.
    Lane {
        /// Which; never the same twice in a transfer.
        number: u32,
    },
    /// A lane beside those that are wanted, until a [message](super::message::Message::Lanes) says that
    /// it is over.
    Trial {
        /// As of a lane.
        number: u32,
    },
}

/// What a dialer says first on a link.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum First {
    /// It belongs to a transfer that is known.
    Join(Join),
    /// A transfer is asked for, of a server. If it grants it, a [`First::Join`] may follow on the same
    /// link.
    Open(Open),
}

/// A transfer that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Open {
    /// [`PROTOCOL`](super::message::PROTOCOL).
    pub protocol: u32,
    /// What the server is to do, at most [`MAX_ORDER`] bytes of whatever form both sides know.
    pub order: Vec<u8>,
}

/// The answer to it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Opened {
    /// Granted: links may join it.
    Yes {
        /// The transfer.
        session: [u8; 16],
    },
    /// No.
    No {
        /// For the exit code.
        reason: AbortReason,
        /// Why, for people.
        why: String,
    },
}

/// That a link belongs to a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Join {
    /// [`PROTOCOL`](super::message::PROTOCOL).
    pub protocol: u32,
    /// Which transfer.
    pub session: [u8; 16],
    /// What for.
    pub purpose: Purpose,
}

/// The answer to it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Joined {
    /// Welcome.
    Yes {
        /// Of the control channel: frames that the answering side has received on it before.
        received: u64,
    },
    /// No, and why.
    No(String),
    /// There is no such transfer, or none any more.
    Unknown,
}

/// The longest order, bytes.
pub const MAX_ORDER: usize = 64 << 10;
/// The longest of these frames, bytes.
const MAX_FRAME: usize = MAX_ORDER + 64;

/// Writes one of these frames and flushes.
///
/// # Errors
///
/// Those of the stream.
pub(crate) fn put<T: serde::Serialize>(out: &mut dyn Write, frame: &T) -> io::Result<()> {
    put_before(out, frame, &[])
}

/// The same, and `more` in one go with it.
///
/// # Errors
///
/// Those of the stream.
pub(crate) fn put_before<T: serde::Serialize>(
    out: &mut dyn Write,
    frame: &T,
    more: &[u8],
) -> io::Result<()> {
    let bytes = postcard::to_allocvec(frame).map_err(io::Error::other)?;
    out.write_all(&(bytes.len() as u32).to_be_bytes())?;
    out.write_all(&bytes)?;
    out.write_all(more)?;
    out.flush()
}

/// Reads one of these frames.
///
/// # Errors
///
/// Those of the stream; [`io::ErrorKind::InvalidData`] for what is none.
pub(crate) fn get<T: serde::de::DeserializeOwned>(stream: &mut dyn Read) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "not a transfer's first frame");
    if length > MAX_FRAME {
        return Err(bad());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::message::PROTOCOL;
    use crate::transfer::session::{greet, meet, open};

    struct Nothing;

    impl LinkHandle for Nothing {
        fn abort(&self) {}
        fn describe(&self) -> String {
            "nothing".into()
        }
    }

    /// A connection on which this comes.
    fn link(bytes: Vec<u8>) -> Link {
        let reader = Box::new(io::Cursor::new(bytes));
        Link { reader, writer: Box::new(io::sink()), handle: Arc::new(Nothing) }
    }

    fn bytes<T: serde::Serialize>(frame: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, frame).unwrap();
        bytes
    }

    fn asked(protocol: u32, length: usize) -> First {
        First::Open(Open { protocol, order: vec![b'x'; length] })
    }

    #[test]
    fn orders_are_bounded_on_both_sides() {
        let longest = asked(PROTOCOL, MAX_ORDER);
        assert_eq!(meet(&mut link(bytes(&longest))).unwrap(), longest);
        let kind = |first: Vec<u8>| meet(&mut link(first)).unwrap_err().kind();
        assert_eq!(kind(bytes(&asked(PROTOCOL, MAX_ORDER + 64))), io::ErrorKind::InvalidData);
        assert_eq!(kind(vec![0xff; 100]), io::ErrorKind::InvalidData);
        assert_eq!(kind(vec![0, 0, 0, 9, 1]), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(bytes(&asked(PROTOCOL + 1, 1))), io::ErrorKind::InvalidData);
        let refused = open(&mut link(Vec::new()), vec![0; MAX_ORDER + 1]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn who_is_no_server_takes_no_orders() {
        let refused = greet(&mut link(bytes(&asked(PROTOCOL, 1)))).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        let purpose = Purpose::Lane { number: 1 };
        let join = Join { protocol: PROTOCOL, session: [1; 16], purpose };
        assert_eq!(greet(&mut link(bytes(&First::Join(join)))).unwrap(), join);
    }

    #[test]
    fn what_a_server_says_cannot_steer_a_terminal() {
        let why = "a\x1b[2Jb".to_owned();
        let no = Opened::No { reason: AbortReason::Refused, why };
        let Opened::No { why, .. } = open(&mut link(bytes(&no)), Vec::new()).unwrap() else {
            panic!("it was refused")
        };
        assert!(!why.contains('\x1b') && why.ends_with('b'), "{why:?}");
    }
}
