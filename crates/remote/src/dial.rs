//! Dialing: the candidates of a peer are tried at once, and the best that answers is taken.

mod error;
mod race;
mod spacing;

use core::fmt;
use core::str::FromStr;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use farhaul::{Endpoint, Options};

pub use self::error::{DialError, DialFailure};
use self::race::{Attempt, Race};
use self::spacing::Spacing;
use crate::lines::shown;
use crate::link::{Injection, Kind, Link};
use crate::lock;
use crate::secured::Terms;

/// One candidate after the other begins, so that the first of them wins where all answer.
const STAGGER: Duration = Duration::from_millis(150);
/// TCP begins so much later than UDP.
const TCP_DELAY: Duration = Duration::from_secs(1);
/// What answered before is tried alone for so long.
const KNOWN_LEAD: Duration = Duration::from_secs(1);
/// For so long UDP may still come in before a TCP link is taken, and the other interfaces wait.
const UDP_LEAD: Duration = Duration::from_secs(3);

/// What carries links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transport {
    /// UDT where UDP gets through, else TCP.
    #[default]
    Auto,
    /// UDT alone.
    Udp,
    /// TCP alone.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Auto => "auto",
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        })
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Transport::Auto),
            "udp" => Ok(Transport::Udp),
            "tcp" => Ok(Transport::Tcp),
            _ => Err(format!("'{}' is no transport; write auto, udp or tcp", shown(text))),
        }
    }
}

/// Whom to dial, and how.
#[derive(Clone, Debug)]
pub struct DialConfig {
    /// Where the peer may listen for UDT, best first.
    pub candidates: Vec<SocketAddr>,
    /// Where the peer may listen for TCP, best first.
    pub tcp_candidates: Vec<SocketAddr>,
    /// Who both sides are. [`Trust::Only`](farhaul_secure::Trust::Only) names the peer.
    pub terms: Terms,
    /// Which transports are tried.
    pub transport: Transport,
    /// The local addresses that links take in turn, one for each interface; none: the system's.
    pub bind: Vec<IpAddr>,
    /// Of UDT. The time-outs of connecting and of a silent peer are set by the dialer.
    pub options: Options,
    /// Silence after which the peer of a link counts as gone; 1 s and up.
    pub silence: Duration,
    /// Links are given out as soon as the peer has shown its key, a round trip before it has said that it knows this side's and
    /// the secret: what is written on them comes with this side's last word of the handshake. Where the peer does
    /// not say so, reading fails, with the [`LinkError`](crate::LinkError) in the error, and the links dialed after that wait
    /// for it.
    pub eager: bool,
}

impl DialConfig {
    /// A peer that listens at `candidates` with UDT and at `tcp_candidates` with TCP.
    pub fn new(
        candidates: Vec<SocketAddr>,
        tcp_candidates: Vec<SocketAddr>,
        terms: Terms,
    ) -> DialConfig {
        DialConfig {
            candidates,
            tcp_candidates,
            terms,
            transport: Transport::Auto,
            bind: Vec::new(),
            options: Options::new(),
            silence: crate::SILENCE,
            eager: false,
        }
    }
}

/// Makes links to one peer. Those over UDT share a UDP port for each local address.
///
/// It dials as often as links are wanted, from any thread. What answered is remembered, and tried
/// first the next time, until it fails or [`Dialer::reset`] is called. Its links are those of one session: they
/// share an [`Injection`].
#[derive(Debug)]
pub struct Dialer {
    config: DialConfig,
    memory: Memory,
    injection: Injection,
}

#[derive(Debug, Default)]
struct Memory {
    endpoints: Mutex<HashMap<IpAddr, Endpoint>>,
    /// What answered, for each transport wanted and local address.
    found: Mutex<HashMap<(Transport, Option<IpAddr>), Attempt>>,
    dials: AtomicUsize,
    /// When the peer is dialed that has closed connections.
    spacing: Spacing,
}

impl Dialer {
    /// Nothing is dialed yet.
    pub fn new(config: DialConfig) -> Dialer {
        Dialer { config, memory: Memory::default(), injection: Injection::default() }
    }

    /// Whom it dials, and how.
    pub fn config(&self) -> &DialConfig {
        &self.config
    }

    /// A link to the peer, within `time` or until `stop` is set.
    ///
    /// # Errors
    ///
    /// See [`DialFailure`]; the text tells of each candidate.
    pub fn dial(&self, time: Duration, stop: &AtomicBool) -> Result<Link, DialError> {
        self.dial_over(self.config.transport, time, stop)
    }

    /// As [`Dialer::dial`], over this transport instead of the configured one.
    ///
    /// # Errors
    ///
    /// As of [`Dialer::dial`].
    pub fn dial_over(
        &self,
        transport: Transport,
        time: Duration,
        stop: &AtomicBool,
    ) -> Result<Link, DialError> {
        let deadline = Instant::now() + time;
        let turn = self.memory.dials.fetch_add(1, Ordering::Relaxed);
        let local =
            (!self.config.bind.is_empty()).then(|| self.config.bind[turn % self.config.bind.len()]);
        let known = lock(&self.memory.found).get(&(transport, local)).copied();
        let mut attempts = self.attempts(transport, local);
        if let Some(known) = known {
            // What answered before has a start; the others follow where it does not any more.
            attempts.retain(|other| !known.is_as(other));
            attempts.iter_mut().for_each(|other| other.after += KNOWN_LEAD);
            attempts.insert(0, known);
        }
        if attempts.is_empty() {
            return Err(DialError::new(DialFailure::NoCandidate, Vec::new()));
        }
        let raced = Race::new(self, attempts, deadline).run(stop);
        let mut found = lock(&self.memory.found);
        match &raced {
            Ok((_, attempt)) => {
                let attempt = Attempt { after: Duration::ZERO, ..*attempt };
                found.insert((transport, local), attempt);
            }
            Err(error) if error.failure == DialFailure::Interrupted => {}
            Err(_) => drop(found.remove(&(transport, local))),
        }
        raced.map(|(link, _)| {
            self.memory.spacing.taken();
            link.handle().share(&self.injection);
            link
        })
    }

    /// Forgets what answered and the ports it was dialed from: an address of this host has changed,
    /// or UDP is to be tried again.
    pub fn reset(&self) {
        lock(&self.memory.found).clear();
        lock(&self.memory.endpoints).clear();
    }

    /// All that may be tried, in the order of their beginnings. Another local address than the one
    /// whose turn it is comes later.
    fn attempts(&self, transport: Transport, local: Option<IpAddr>) -> Vec<Attempt> {
        let (mut udp, mut tcp) = (&self.config.candidates[..], &self.config.tcp_candidates[..]);
        match transport {
            Transport::Auto => {}
            Transport::Udp => tcp = &[],
            Transport::Tcp => udp = &[],
        }
        let tcp_delay = if udp.is_empty() { Duration::ZERO } else { TCP_DELAY };
        let others = self.config.bind.iter().copied().map(Some).filter(|other| *other != local);
        let mut attempts = Vec::new();
        for (local, delay) in
            [(local, Duration::ZERO)].into_iter().chain(others.map(|other| (other, UDP_LEAD)))
        {
            for (kind, peers, delay) in
                [(Kind::Udp, udp, delay), (Kind::Tcp, tcp, delay + tcp_delay)]
            {
                let reached = peers.iter().filter(|peer| reaches(local, **peer));
                attempts.extend((0..).zip(reached).map(|(n, peer)| Attempt {
                    kind,
                    local,
                    peer: *peer,
                    after: delay + STAGGER * n,
                }));
            }
        }
        attempts.sort_by_key(|attempt| attempt.after);
        attempts
    }

    /// The UDP port at `local`.
    fn endpoint(&self, local: IpAddr) -> io::Result<Endpoint> {
        let mut endpoints = lock(&self.memory.endpoints);
        if let Some(endpoint) = endpoints.get(&local) {
            return Ok(endpoint.clone());
        }
        let endpoint = Endpoint::bind((local, 0).into(), &self.config.options)?;
        endpoints.insert(local, endpoint.clone());
        Ok(endpoint)
    }
}

/// Whether a socket at `local` can reach `peer`.
fn reaches(local: Option<IpAddr>, peer: SocketAddr) -> bool {
    local.is_none_or(|local| local.is_ipv4() == peer.ip().to_canonical().is_ipv4())
}

/// The local address where the system chooses.
fn any(peer: SocketAddr) -> IpAddr {
    match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The addresses of `host`, each with `port`, each once.
///
/// # Errors
///
/// [`DialFailure::Name`].
pub fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    let failed = |why: String| {
        let failure = DialFailure::Name(host.to_owned());
        DialError::new(failure, vec![(host.to_owned(), why)])
    };
    let mut found = Vec::new();
    for addr in (host, port).to_socket_addrs().map_err(|error| failed(error.to_string()))? {
        if !found.contains(&addr) {
            found.push(addr);
        }
    }
    if found.is_empty() {
        return Err(failed("it has no address".into()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
