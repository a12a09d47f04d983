//! Several attempts at once, of which one wins.

use core::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use farhaul::{Endpoint, Options};
use socket2::{Domain, Protocol, Socket, Type};

use super::{DialError, DialFailure, Dialer, UDP_LEAD, any};
use crate::link::{Kind, Link};
use crate::lock;
use crate::secured::{LinkError, Terms, approach};
use crate::wire::Raw;

/// How often a race looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);
/// A peer that is flooded closes connections before it has shown its key, and an attacker on the path forges
/// an alert there. Such an attempt is made again when it is its turn ([`Spacing`](super::spacing::Spacing)), for
/// this time since the race has begun.
const REDIAL_TIME: Duration = Duration::from_secs(6);

/// One way to reach the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub kind: Kind,
    pub local: Option<IpAddr>,
    pub peer: SocketAddr,
    /// When it begins.
    pub after: Duration,
}

impl Attempt {
    /// Whether both are the same way, whenever they begin.
    pub fn is_as(&self, other: &Attempt) -> bool {
        (self.kind, self.local, self.peer) == (other.kind, other.local, other.peer)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.kind, self.peer)?;
        self.local.map_or(Ok(()), |local| write!(f, " from {local}"))
    }
}

type Outcome = Result<Link, LinkError>;

pub(crate) struct Race<'a> {
    dialer: &'a Dialer,
    /// Later than now where the peer has closed connections and others are dialed before.
    begun: Instant,
    deadline: Instant,
    /// Those that have not begun, the last first.
    waiting: Vec<Attempt>,
    running: Vec<Attempt>,
    /// Those that are made again, when, and why.
    again: Vec<(Instant, Attempt, LinkError)>,
    failed: Vec<(Attempt, LinkError)>,
    /// A TCP link, while UDP has time left.
    second_best: Option<(Link, Attempt)>,
    entered: Arc<Entered>,
    told: Sender<(Attempt, Outcome)>,
    outcomes: Receiver<(Attempt, Outcome)>,
}

/// Connections that are being secured, to be ended when another has won.
#[derive(Default)]
struct Entered {
    over: AtomicBool,
    connections: Mutex<Vec<(Attempt, Raw)>>,
}

impl Entered {
    /// Takes part, unless the race is over.
    fn enter(&self, attempt: Attempt, raw: &Raw) -> Result<(), LinkError> {
        let mut connections = lock(&self.connections);
        if self.over.load(Ordering::Relaxed) {
            raw.abort();
            return Err(LinkError::Connect(ErrorKind::Interrupted.into()));
        }
        connections.push((attempt, raw.clone()));
        Ok(())
    }

    fn end(&self, winner: Option<Attempt>) {
        let mut connections = lock(&self.connections);
        self.over.store(true, Ordering::Relaxed);
        for (attempt, raw) in connections.drain(..) {
            if Some(attempt) != winner {
                raw.abort();
            }
        }
    }

    /// One that has failed is left to tell the peer why.
    fn leave(&self, attempt: Attempt) {
        lock(&self.connections).retain(|(other, _)| *other != attempt);
    }
}

impl<'a> Race<'a> {
    /// Of `attempts`, which are in the order of their beginnings.
    pub fn new(dialer: &'a Dialer, mut attempts: Vec<Attempt>, deadline: Instant) -> Self {
        attempts.reverse();
        let (told, outcomes) = mpsc::channel();
        Race {
            dialer,
            begun: dialer.memory.spacing.turn(Instant::now()),
            deadline,
            waiting: attempts,
            running: Vec::new(),
            again: Vec::new(),
            failed: Vec::new(),
            second_best: None,
            entered: Arc::default(),
            told,
            outcomes,
        }
    }

    /// The winner and the way it took.
    pub fn run(mut self, stop: &AtomicBool) -> Result<(Link, Attempt), DialError> {
        let result = self.decide(stop);
        self.entered.end(result.as_ref().ok().map(|(_, attempt)| *attempt));
        result
    }

    fn decide(&mut self, stop: &AtomicBool) -> Result<(Link, Attempt), DialError> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(DialError::new(DialFailure::Interrupted, Vec::new()));
            }
            let now = Instant::now();
            let over = now >= self.deadline;
            let udp_is_late = self.begun + UDP_LEAD <= now || !self.udp_may_come();
            if (over || udp_is_late)
                && let Some(found) = self.second_best.take()
            {
                return Ok(found);
            }
            self.begin_those_due(now);
            self.redial_those_due(now);
            let none = self.running.is_empty() && self.waiting.is_empty() && self.again.is_empty();
            if over || none {
                return Err(self.failure());
            }
            let next = self.waiting.last().map_or(self.deadline, |next| self.begun + next.after);
            let next = self.again.iter().fold(next, |next, (at, ..)| next.min(*at));
            let pause = next.min(self.deadline).saturating_duration_since(now).min(LOOK);
            match self.outcomes.recv_timeout(pause) {
                Ok((attempt, outcome)) => {
                    self.running.retain(|other| *other != attempt);
                    match outcome {
                        // What answered before is as good as UDP.
                        Ok(link) if attempt.kind == Kind::Udp || attempt.after.is_zero() => {
                            return Ok((link, attempt));
                        }
                        Ok(link) if self.second_best.is_none() => {
                            self.second_best = Some((link, attempt));
                        }
                        Ok(link) => link.handle().abort(),
                        Err(error) => self.lost(attempt, error),
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    fn udp_may_come(&self) -> bool {
        let again = self.again.iter().map(|(_, attempt, _)| attempt);
        let mut all = self.running.iter().chain(&self.waiting).chain(again);
        all.any(|attempt| attempt.kind == Kind::Udp)
    }

    /// An attempt has come to nothing: perhaps it is made again.
    fn lost(&mut self, attempt: Attempt, error: LinkError) {
        if !error.is_worth_another() {
            return self.failed.push((attempt, error));
        }
        let (spacing, now) = (&self.dialer.memory.spacing, Instant::now());
        spacing.closed(now);
        let at = spacing.turn(now);
        if at < self.deadline.min(self.begun + REDIAL_TIME) {
            self.again.push((at, attempt, error));
        } else {
            self.failed.push((attempt, error));
        }
    }

    /// Makes those attempts again whose pause is over.
    fn redial_those_due(&mut self, now: Instant) {
        let (due, later) = self.again.drain(..).partition(|(at, ..)| *at <= now);
        self.again = later;
        let due: Vec<_> = due;
        for (_, attempt, _) in due {
            match self.begin(attempt) {
                Ok(()) => self.running.push(attempt),
                Err(error) => self.failed.push((attempt, LinkError::Connect(error))),
            }
        }
    }

    /// Begins what is due; the next one at once, where nobody is left to wait for.
    fn begin_those_due(&mut self, now: Instant) {
        let Some(elapsed) = now.checked_duration_since(self.begun) else { return };
        while let Some(next) = self.waiting.last()
            && (next.after <= elapsed || self.running.is_empty())
        {
            let attempt = *next;
            self.waiting.pop();
            if self.second_best.is_some() && attempt.kind == Kind::Tcp {
                continue;
            }
            match self.begin(attempt) {
                Ok(()) => self.running.push(attempt),
                Err(error) => self.failed.push((attempt, LinkError::Connect(error))),
            }
        }
    }

    /// On a thread of its own, which ends by itself even if nobody waits for it any more.
    fn begin(&self, attempt: Attempt) -> io::Result<()> {
        let local = attempt.local.unwrap_or_else(|| any(attempt.peer));
        let endpoint = match attempt.kind {
            Kind::Udp => Some(self.dialer.endpoint(local)?),
            _ => None,
        };
        let runner = Runner {
            attempt,
            endpoint,
            options: self.dialer.config.options.clone(),
            silence: self.dialer.config.silence,
            terms: self.dialer.config.terms.clone(),
            // Where data is injected, TCP has its turn while the peer's word is waited for.
            eager: self.dialer.config.eager && !self.dialer.injection.is_known(),
            deadline: self.deadline,
        };
        let (told, entered) = (self.told.clone(), Arc::clone(&self.entered));
        thread::Builder::new().name("farhaul-dial".into()).spawn(move || {
            let outcome = runner.run(&entered);
            if outcome.is_err() {
                entered.leave(runner.attempt);
            }
            // A link that nobody wants any more is aborted by who ended the race.
            let _ = told.send((runner.attempt, outcome));
        })?;
        Ok(())
    }

    fn failure(&mut self) -> DialError {
        let again = self.again.drain(..);
        self.failed.extend(again.map(|(_, attempt, error)| (attempt, error)));
        let waited = self.begun.elapsed();
        for attempt in self.running.drain(..) {
            let text = format!("no answer within {:.0} s", waited.as_secs_f64());
            let error = LinkError::Connect(io::Error::new(ErrorKind::TimedOut, text));
            self.failed.push((attempt, error));
        }
        DialError::of(&self.failed)
    }
}

/// What the thread of an attempt needs.
struct Runner {
    attempt: Attempt,
    endpoint: Option<Endpoint>,
    options: Options,
    silence: Duration,
    terms: Terms,
    eager: bool,
    deadline: Instant,
}

impl Runner {
    fn run(&self, entered: &Entered) -> Outcome {
        let raw = self.connect(entered).map_err(LinkError::Connect)?;
        entered.enter(self.attempt, &raw)?;
        let link = approach(raw, &self.terms, self.deadline)?;
        if !self.eager {
            link.confirm()?;
        }
        Ok(link)
    }

    fn connect(&self, entered: &Entered) -> io::Result<Raw> {
        let peer = self.attempt.peer;
        let Some(endpoint) = &self.endpoint else { return self.connect_tcp() };
        loop {
            // Anew now and then, so that an attempt does not outlive its race for long.
            let time = self.left()?.min(UDP_LEAD);
            let options = self
                .options
                .clone()
                .connect_timeout(time)
                .peer_timeout(self.silence)
                .stranger_memory(crate::STRANGER_MEMORY);
            match endpoint.connect(peer, &options) {
                Err(error)
                    if error.kind() == ErrorKind::TimedOut
                        && !entered.over.load(Ordering::Relaxed)
                        && self.left().is_ok() => {}
                result => return result.map(Raw::Udp),
            }
        }
    }

    fn connect_tcp(&self) -> io::Result<Raw> {
        let peer = self.attempt.peer;
        let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))?;
        if let Some(local) = self.attempt.local {
            socket.bind(&SocketAddr::new(local, 0).into())?;
        }
        socket.connect_timeout(&peer.into(), self.left()?)?;
        Raw::tcp(TcpStream::from(socket), self.silence)
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, "no answer from the peer"));
        }
        Ok(left)
    }
}
