//! Secured connections as a transfer takes them.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farhaul_mover::transfer::link::{self, LinkFacts};
use farhaul_mover::transfer::session::{Dial, NoLink, Way};
use farhaul_remote::{
    DialError, DialFailure, Dialer, Kind, Link, LinkError, LinkHandle, LinkReader, Transport,
};

/// How long an attempt to connect may take.
pub const DIAL_TIME: Duration = Duration::from_secs(15);
/// What TCP has taken may be on its way so long without anything of it arriving: longer than a few lost
/// retransmissions take, and less than the system takes to give a connection up.
const TCP_LAG: Duration = Duration::from_secs(5);

/// A connection for a transfer, on which the peer's memory allows windows of so many packets.
pub fn adapt(link: Link, most_window: u32) -> link::Link {
    let (reader, writer, handle) = link.into_parts();
    link::Link {
        reader: Box::new(Reader(reader)),
        writer: Box::new(writer),
        handle: Arc::new(Handle { handle, most_window }),
    }
}

/// Reads, and tells a session what the peer says of this side where that was not waited for.
struct Reader(LinkReader);

impl Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(|error| match error.downcast::<LinkError>() {
            Ok(why) => io::Error::other(match no_link(&why.failure(), why) {
                NoLink::Unproven(error) => NoLink::Unconfirmed(error),
                other => other,
            }),
            Err(error) => error,
        })
    }
}

/// What a failure to connect is for a session.
fn no_link(failure: &DialFailure, why: impl std::error::Error + Send + Sync + 'static) -> NoLink {
    let (what, kind): (fn(io::Error) -> NoLink, _) = match failure {
        DialFailure::NotAuthenticated => (NoLink::Unproven, io::ErrorKind::PermissionDenied),
        // Trying again would not make another of the peer.
        DialFailure::Denied
        | DialFailure::Plain
        | DialFailure::Name(_)
        | DialFailure::NoCandidate => (NoLink::Refused, io::ErrorKind::PermissionDenied),
        DialFailure::Interrupted => (NoLink::Unreached, io::ErrorKind::Interrupted),
        DialFailure::NoAnswer
        | DialFailure::Unfinished
        | DialFailure::Refused
        | DialFailure::Local => (NoLink::Unreached, io::ErrorKind::TimedOut),
    };
    what(io::Error::new(kind, why))
}

struct Handle {
    handle: LinkHandle,
    most_window: u32,
}

/// Whether a way is TCP, as [`LinkHandle::describe`](link::LinkHandle::describe) tells of it here.
pub fn is_tcp(way: &str) -> bool {
    way.starts_with("TCP")
}

impl link::LinkHandle for Handle {
    fn abort(&self) {
        self.handle.abort();
    }

    fn set_max_rate(&self, bits_per_second: Option<u64>) {
        self.handle.set_max_rate(bits_per_second);
    }

    fn facts(&self) -> LinkFacts {
        let stats = self.handle.stats();
        // A window that is as large as the peer's memory allows, and full. Laws follow what is
        // delivered, so that their own may be a little smaller.
        let full = stats.in_flight >= stats.flow_window / 5 * 4 && stats.in_flight > 0;
        let largest = stats.flow_window >= self.most_window / 5 * 4;
        let lag = match self.handle.kind() {
            Kind::Tcp => TCP_LAG,
            Kind::Udp | Kind::Pipe => Duration::ZERO,
        };
        LinkFacts {
            udp: self.handle.kind() == Kind::Udp,
            rtt: stats.rtt,
            packets_sent: stats.packets_sent,
            retransmitted: stats.packets_retransmitted,
            blocked_by_peer: stats.blocked_by_peer || (full && largest),
            capacity: stats.capacity,
            acknowledged: stats.acknowledged,
            arrived: stats.arrived,
            lag,
            waited: stats.waited,
            forged: stats.forged,
        }
    }

    fn is_confirmed(&self) -> bool {
        self.handle.is_confirmed()
    }

    fn describe(&self) -> String {
        let kind = match self.handle.kind() {
            Kind::Udp => "UDP",
            Kind::Tcp => "TCP",
            Kind::Pipe => return "a pipe".into(),
        };
        match self.handle.peer() {
            Some(peer) => format!("{kind} to {peer}"),
            None => kind.into(),
        }
    }
}

/// Connects to a peer that listens.
pub struct Dialing {
    dialer: Arc<Dialer>,
    stop: Arc<AtomicBool>,
    most_window: u32,
    /// Connections that are being made before they are asked for.
    ahead: Mutex<VecDeque<JoinHandle<Result<Link, DialError>>>>,
}

impl Dialing {
    /// Gives up when `stop` is set; windows as of [`adapt`].
    pub fn new(dialer: Dialer, stop: Arc<AtomicBool>, most_window: u32) -> Self {
        let (dialer, ahead) = (Arc::new(dialer), Mutex::default());
        Dialing { dialer, stop, most_window, ahead }
    }

    /// Begins to make so many connections, which the first that are asked for will be: what must be waited for elsewhere
    /// meanwhile takes no time of its own.
    pub fn make_ahead(&self, count: u32) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..count {
            let (dialer, stop) = (Arc::clone(&self.dialer), Arc::clone(&self.stop));
            let dial = move || dialer.dial(DIAL_TIME, &stop);
            // Without a thread it is made when it is asked for.
            let begun = thread::Builder::new().name("farhaul-ahead".into()).spawn(dial);
            ahead.extend(begun.ok());
        }
    }

    /// The next that is being made.
    fn made_ahead(&self) -> Option<Result<Link, DialError>> {
        let next = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).pop_front()?;
        // One that panicked has said so, and is made again.
        next.join().ok()
    }
}

impl Dial for Dialing {
    fn dial(&self, way: Way) -> Result<link::Link, NoLink> {
        let transport = match way {
            Way::Any => self.dialer.config().transport,
            Way::Tcp => Transport::Tcp,
        };
        let ahead = if way == Way::Any { self.made_ahead() } else { None };
        let link = ahead.unwrap_or_else(|| self.dialer.dial_over(transport, DIAL_TIME, &self.stop));
        let adapted = link.map(|link| adapt(link, self.most_window));
        adapted.map_err(|error| no_link(&error.failure.clone(), error))
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn has_choice(&self) -> bool {
        let config = self.dialer.config();
        config.transport == Transport::Auto && !config.tcp_candidates.is_empty()
    }
}
