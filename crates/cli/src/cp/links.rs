//! Secured connections as a transfer takes them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farhaul_mover::transfer::link::{self, LinkFacts};
use farhaul_mover::transfer::session::{Dial, Way};
use farhaul_remote::{DialFailure, Dialer, Kind, Link, LinkHandle, Transport};

/// How long an attempt to connect may take.
pub const DIAL_TIME: Duration = Duration::from_secs(15);

/// A connection for a transfer.
pub fn adapt(link: Link) -> link::Link {
    let (reader, writer, handle) = link.into_parts();
    link::Link {
        reader: Box::new(reader),
        writer: Box::new(writer),
        handle: Arc::new(Handle(handle)),
    }
}

struct Handle(LinkHandle);

impl link::LinkHandle for Handle {
    fn abort(&self) {
        self.0.abort();
    }

    fn set_max_rate(&self, bits_per_second: Option<u64>) {
        self.0.set_max_rate(bits_per_second);
    }

    fn facts(&self) -> LinkFacts {
        let stats = self.0.stats();
        LinkFacts {
            udp: self.0.kind() == Kind::Udp,
            rtt: stats.rtt,
            packets_sent: stats.packets_sent,
            retransmitted: stats.packets_retransmitted,
            loss: stats.loss,
            blocked_by_peer: stats.blocked_by_peer,
            capacity: stats.capacity,
        }
    }

    fn describe(&self) -> String {
        let kind = match self.0.kind() {
            Kind::Udp => "UDP",
            Kind::Tcp => "TCP",
            Kind::Pipe => return "a pipe".into(),
        };
        match self.0.peer() {
            Some(peer) => format!("{kind} to {peer}"),
            None => kind.into(),
        }
    }
}

/// Connects to a peer that listens.
pub struct Dialing {
    dialer: Dialer,
    stop: Arc<AtomicBool>,
}

impl Dialing {
    /// Gives up when `stop` is set.
    pub fn new(dialer: Dialer, stop: Arc<AtomicBool>) -> Self {
        Dialing { dialer, stop }
    }
}

impl Dial for Dialing {
    fn dial(&self, way: Way) -> io::Result<link::Link> {
        let transport = match way {
            Way::Any => self.dialer.config().transport,
            Way::Tcp => Transport::Tcp,
        };
        self.dialer.dial_over(transport, DIAL_TIME, &self.stop).map(adapt).map_err(|error| {
            let kind = match error.failure {
                // Trying again would not make another of the peer.
                DialFailure::NotAuthenticated
                | DialFailure::Plain
                | DialFailure::Name(_)
                | DialFailure::NoCandidate => io::ErrorKind::PermissionDenied,
                DialFailure::Interrupted => io::ErrorKind::Interrupted,
                _ => io::ErrorKind::TimedOut,
            };
            io::Error::new(kind, error)
        })
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn has_choice(&self) -> bool {
        let config = self.dialer.config();
        config.transport == Transport::Auto && !config.tcp_candidates.is_empty()
    }
}
