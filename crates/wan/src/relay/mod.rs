//! A UDP relay that behaves like a network path.
//!
//! One thread. Departures follow the links' own schedule, not the thread's: when the thread comes
//! late, what was due leaves at once and what follows is not delayed by that.

mod flows;
mod inject;
pub(crate) mod pace;
mod packet;
mod run;
mod stats;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farhaul_link::LinkConfig;

pub use inject::{Forged, InjectConfig, InjectStats, MAX_FORGED_PER_SECOND};
use run::Runner;
pub use stats::{DirectionStats, RelayStats, Timing};

/// What a relay connects and what it does to the datagrams.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Who talks to whom.
    pub ends: Ends,
    /// The path from the clients to the target, or from `a` to `b`. Its packets are IP packets:
    /// payload and 28 bytes of headers over IPv4, 48 over IPv6. Its time starts when the relay
    /// runs.
    pub forward: LinkConfig,
    /// The path back.
    pub backward: LinkConfig,
    /// Everything random follows from this and from the order of the datagrams.
    pub seed: u64,
    /// Datagrams due within one tick may leave together, so times are kept to about a tick.
    /// Shorter costs processor time. Default 50 us.
    pub tick: Duration,
    /// The most that both links together hold, in bytes of [`LinkConfig`]'s count; what comes
    /// beyond is dropped and counted. Default 512 MiB. A batch of arrivals may exceed it by about
    /// 8 MB.
    pub max_held_bytes: u64,
    /// Packets are forged in the name of those who talk; for tests. Default: none.
    pub inject: Option<InjectConfig>,
}

/// The endpoints of a relay.
#[derive(Clone, Debug)]
pub enum Ends {
    /// Clients talk to the relay's address, each is forwarded to the target from a port of its own,
    /// and the target's answers go back.
    Clients {
        /// Where the clients send to; port 0 lets the system choose.
        listen: SocketAddr,
        /// Where their datagrams go.
        target: SocketAddr,
        /// Datagrams of more clients than this at a time are dropped and counted. Default 64.
        max_clients: usize,
        /// A client that neither sent nor was sent anything for so long is forgotten. Default 5
        /// minutes.
        idle_timeout: Duration,
    },
    /// Two endpoints with fixed addresses, as a rendezvous needs: each talks to the relay's port on
    /// its side, and what arrives there leaves from the other port. Datagrams from others are not
    /// taken.
    Between {
        /// One side.
        a: PeerPort,
        /// The other side.
        b: PeerPort,
    },
}

/// One side of [`Ends::Between`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerPort {
    /// Where the peer sends to and receives from; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
}

/// A relay with its sockets bound.
#[derive(Debug)]
pub struct Relay {
    runner: Runner,
    local: SocketAddr,
    far: Option<SocketAddr>,
    stats: Arc<Mutex<RelayStats>>,
}

/// A relay at work in its own thread. Dropping the handle stops it.
#[derive(Debug)]
pub struct RelayHandle {
    local: SocketAddr,
    far: Option<SocketAddr>,
    stats: Arc<Mutex<RelayStats>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl RelayConfig {
    /// Clients at `listen` are forwarded to `target` over perfect wires.
    pub fn new(listen: SocketAddr, target: SocketAddr) -> Self {
        let idle_timeout = Duration::from_secs(300);
        Self::with_ends(Ends::Clients { listen, target, max_clients: 64, idle_timeout })
    }

    /// `a` and `b` talk over perfect wires.
    pub fn between(a: PeerPort, b: PeerPort) -> Self {
        Self::with_ends(Ends::Between { a, b })
    }

    fn with_ends(ends: Ends) -> Self {
        RelayConfig {
            ends,
            forward: LinkConfig::default(),
            backward: LinkConfig::default(),
            seed: 0,
            tick: Duration::from_micros(50),
            max_held_bytes: 512 << 20,
            inject: None,
        }
    }
}

impl Relay {
    /// Binds the sockets.
    ///
    /// # Errors
    /// If an address cannot be bound, or a fixed peer's cannot be reached from it.
    pub fn bind(config: RelayConfig) -> io::Result<Self> {
        let stats = Arc::new(Mutex::new(RelayStats::default()));
        let runner = Runner::bind(config, Arc::clone(&stats))?;
        let (local, far) = runner.addresses()?;
        Ok(Relay { runner, local, far, stats })
    }

    /// Where clients send to, or the port for `a`.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The port for `b` of [`Ends::Between`]; `None` for clients.
    pub fn far_addr(&self) -> Option<SocketAddr> {
        self.far
    }

    /// Relays on this thread until `stop` is set, which it looks at every 50 ms at least. What is
    /// under way then is lost. Returns what it counted.
    ///
    /// # Errors
    /// Only if the system cannot wait for sockets; errors of the network are counted.
    pub fn run(mut self, stop: &AtomicBool) -> io::Result<RelayStats> {
        self.runner.run(stop)?;
        Ok(snapshot(&self.stats))
    }

    /// Relays in a thread of its own.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn spawn(self) -> io::Result<RelayHandle> {
        let Relay { mut runner, local, far, stats } = self;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("farhaul-relay".to_owned())
            .spawn(move || runner.run(&told))?;
        Ok(RelayHandle { local, far, stats, stop, thread: Some(thread) })
    }
}

impl RelayHandle {
    /// Where clients send to, or the port for `a`.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The port for `b` of [`Ends::Between`]; `None` for clients.
    pub fn far_addr(&self) -> Option<SocketAddr> {
        self.far
    }

    /// What the relay has counted so far.
    pub fn stats(&self) -> RelayStats {
        snapshot(&self.stats)
    }

    /// Stops the relay and returns what it counted.
    ///
    /// # Errors
    /// If the relay had ended with an error before.
    pub fn stop(mut self) -> io::Result<RelayStats> {
        self.join()?;
        Ok(snapshot(&self.stats))
    }

    fn join(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the relay's thread panicked")))
    }
}

impl Drop for RelayHandle {
    fn drop(&mut self) {
        // Who wants to know of an error calls `stop`.
        let _ = self.join();
    }
}

fn snapshot(stats: &Mutex<RelayStats>) -> RelayStats {
    *stats.lock().unwrap_or_else(PoisonError::into_inner)
}
