//! Listening: newcomers are let in, over UDT and TCP, once they have shown who they are.

mod gate;
mod lobby;

use core::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farhaul::newcomers::{Source, Tally};
use farhaul::{Endpoint, Listener, Options};
use farhaul_secure::PublicKey;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};

use self::gate::{Entered, Gate};
use self::lobby::Lobby;
use crate::link::Link;
use crate::lock;
use crate::secured::{LinkError, Terms, secure};
use crate::wire::Raw;

/// How long a newcomer may take to show who it is.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Connections over UDT that have not said a word; some hundred bytes each.
const SILENT_UDP: usize = 4096;
/// TCP connections that the system keeps until they are accepted; it takes its own limit where that is
/// less.
const BACKLOG: i32 = 4096;
/// TCP connections that are accepted before those that wait are looked at again.
const ACCEPTS: usize = 256;
/// Ports that are tried where the system chooses, until both UDP and TCP have one.
const PORT_TRIES: usize = 16;
/// A pause when the system has no more descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// Where and for whom to listen.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// The local addresses; none: all of both families.
    pub addresses: Vec<IpAddr>,
    /// The ports that may be taken; `0..=0`: the system chooses.
    pub ports: RangeInclusive<u16>,
    /// Whether to listen for UDT.
    pub udp: bool,
    /// Whether to listen for TCP, on the same port where that is free.
    pub tcp: bool,
    /// Who both sides are.
    pub terms: Terms,
    /// While it is set, peers that want bytes to go unsealed have their way; others do not notice.
    pub plain_if_asked: Arc<AtomicBool>,
    /// Of UDT. The time-out of a silent peer is set by the listener.
    pub options: Options,
    /// Silence after which the peer of a link counts as gone; 1 s and up.
    pub silence: Duration,
}

impl ListenConfig {
    /// On all addresses and ports that the system chooses, for UDT and TCP.
    pub fn new(terms: Terms) -> Self {
        ListenConfig {
            addresses: Vec::new(),
            ports: 0..=0,
            udp: true,
            tcp: true,
            terms,
            plain_if_asked: Arc::default(),
            options: Options::new(),
            silence: crate::SILENCE,
        }
    }
}

/// Listens until it is closed or dropped. Links that were handed over go on.
pub struct Listening {
    shared: Arc<Shared>,
    udp: Vec<Arc<Listener>>,
    tcp: Vec<SocketAddr>,
    /// Wakes the threads that wait for TCP connections.
    wake: Vec<UnixStream>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    terms: Terms,
    plain_if_asked: Arc<AtomicBool>,
    silence: Duration,
    closed: AtomicBool,
    /// A thread that accepts has ended, and the listener was not closed.
    failed: AtomicBool,
    gate: Mutex<Gate<Raw>>,
    deliver: Box<dyn Fn(Link) + Send + Sync>,
    stranger: Box<dyn Fn(PublicKey, Option<SocketAddr>) + Send + Sync>,
}

impl Listening {
    /// Begins to listen. Each newcomer that is trusted is handed to `deliver`, on a thread of its
    /// own; others are dropped.
    ///
    /// # Errors
    ///
    /// No port could be had, or an option is out of range.
    pub fn bind(
        config: &ListenConfig,
        deliver: impl Fn(Link) + Send + Sync + 'static,
    ) -> io::Result<Listening> {
        Self::bind_telling(config, deliver, |_, _| {})
    }

    /// The same; `stranger` is told the key of each newcomer that is not trusted, and where it is. That
    /// it holds that key it has not shown.
    ///
    /// # Errors
    ///
    /// As of [`Listening::bind`].
    pub fn bind_telling(
        config: &ListenConfig,
        deliver: impl Fn(Link) + Send + Sync + 'static,
        stranger: impl Fn(PublicKey, Option<SocketAddr>) + Send + Sync + 'static,
    ) -> io::Result<Listening> {
        let (udp, tcp) = bind_some_port(config)?;
        let shared = Arc::new(Shared {
            terms: config.terms.clone(),
            plain_if_asked: Arc::clone(&config.plain_if_asked),
            silence: config.silence,
            closed: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            gate: Mutex::new(Gate::new(Instant::now(), seed()?)),
            deliver: Box::new(deliver),
            stranger: Box::new(stranger),
        });
        let mut listening = Listening {
            shared,
            udp: Vec::new(),
            tcp: Vec::new(),
            wake: Vec::new(),
            threads: Mutex::default(),
        };
        for endpoint in udp {
            let options = config
                .options
                .clone()
                .peer_timeout(config.silence)
                .stranger_memory(crate::STRANGER_MEMORY)
                .defer_accept(SILENT_UDP);
            let listener = Arc::new(endpoint.listen(&options)?);
            listening.udp.push(Arc::clone(&listener));
            let shared = Arc::clone(&listening.shared);
            listening.spawn(move || accept_udp(&listener, &shared))?;
        }
        for listener in tcp {
            let (wake, woken) = UnixStream::pair()?;
            listening.tcp.push(listener.local_addr()?);
            listening.wake.push(wake);
            let shared = Arc::clone(&listening.shared);
            let lobby = Lobby::new(seed()?);
            listening.spawn(move || accept_tcp(&listener, &woken, lobby, &shared))?;
        }
        Ok(listening)
    }

    fn spawn(&self, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let accepting = Accepting(Arc::clone(&self.shared));
        let run = move || {
            let _accepting = accepting;
            run();
        };
        let thread = thread::Builder::new().name("farhaul-accept".into()).spawn(run)?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// The UDP port; none if it does not listen there.
    pub fn udp_port(&self) -> Option<u16> {
        self.udp.first().map(|listener| listener.local_addr().port())
    }

    /// The TCP port; none if it does not listen there.
    pub fn tcp_port(&self) -> Option<u16> {
        self.tcp.first().map(SocketAddr::port)
    }

    /// Where it listens for UDT.
    pub fn udp_addresses(&self) -> Vec<SocketAddr> {
        self.udp.iter().map(|listener| listener.local_addr()).collect()
    }

    /// Where it listens for TCP.
    pub fn tcp_addresses(&self) -> Vec<SocketAddr> {
        self.tcp.clone()
    }

    /// The UDP ports, of which more may be asked.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.udp.iter().map(|listener| listener.endpoint())
    }

    /// The addresses at which a peer may dial this host: see
    /// [`own_addresses`](crate::own_addresses); where local addresses were given, only those.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let bound: Vec<IpAddr> =
            self.udp_addresses().iter().chain(&self.tcp).map(SocketAddr::ip).collect();
        let everywhere = bound.iter().any(IpAddr::is_unspecified);
        let mut addresses = if everywhere { crate::own_addresses() } else { Vec::new() };
        for address in bound.into_iter().filter(|address| !address.is_unspecified()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let takes = |own: &IpAddr| {
            let v4_only = self.udp_addresses().iter().chain(&self.tcp).all(SocketAddr::is_ipv4);
            own.is_ipv4() || !v4_only
        };
        addresses.retain(takes);
        addresses
    }

    /// Lets nobody in any more, ends those that have not shown yet who they are, and waits until no
    /// thread accepts.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        self.udp.iter().for_each(|listener| listener.close());
        for mut wake in &self.wake {
            // One byte always has room.
            let _ = wake.write_all(&[0]);
        }
        let threads: Vec<_> = lock(&self.threads).drain(..).collect();
        for thread in threads {
            // A panic of it has been reported already.
            let _ = thread.join();
        }
        let newcomers: Vec<_> = lock(&self.shared.gate).newcomers().cloned().collect();
        newcomers.iter().for_each(Raw::abort);
    }

    /// Whether it accepts wherever it was bound. If not, a thread of it has failed, which is a bug: it will
    /// not accept there any more.
    pub fn is_alive(&self) -> bool {
        !self.shared.failed.load(Ordering::Acquire)
    }

    /// The newcomers since this was last asked that have not shown who they are: silent, broken off, too
    /// many of their source, or not trusted.
    pub fn take_unfinished(&self) -> Tally {
        let mut tally = lock(&self.shared.gate).take_tally();
        self.udp.iter().for_each(|listener| tally.merge(&listener.take_silent()));
        tally
    }
}

/// The share of a thread that accepts: its end is noticed, whatever it comes from.
struct Accepting(Arc<Shared>);

impl Drop for Accepting {
    fn drop(&mut self) {
        if !self.0.closed.load(Ordering::Acquire) {
            self.0.failed.store(true, Ordering::Release);
        }
    }
}

fn seed() -> io::Result<u64> {
    getrandom::u64().map_err(io::Error::other)
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening")
            .field("udp", &self.udp_addresses())
            .field("tcp", &self.tcp)
            .finish_non_exhaustive()
    }
}

fn accept_udp(listener: &Listener, shared: &Arc<Shared>) {
    while let Ok(connection) = listener.accept() {
        greet(Raw::Udp(connection), shared);
    }
}

fn accept_tcp(
    listener: &TcpListener,
    mut woken: &UnixStream,
    mut lobby: Lobby,
    shared: &Arc<Shared>,
) {
    while !shared.closed.load(Ordering::Relaxed) {
        let (numbers, heard, stop) = wait(listener, woken, &lobby);
        if stop {
            let _ = woken.read(&mut [0]);
            return;
        }
        let now = Instant::now();
        let numbers: Vec<u64> =
            numbers.into_iter().zip(heard).filter_map(|(n, heard)| heard.then_some(n)).collect();
        let looked = lobby.look(&numbers);
        for stream in looked.speaking {
            if let Ok(raw) = greeted(stream, shared.silence) {
                greet(raw, shared);
            }
        }
        let mut gone = looked.gone;
        gone.extend(lobby.expire(now));
        for _ in 0..ACCEPTS {
            match listener.accept() {
                Ok((stream, peer)) => {
                    // One that blocks would hold up all others.
                    if stream.set_nonblocking(true).is_ok() {
                        gone.extend(lobby.enter(Source::of(peer), stream, now));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Gone again.
                Err(error) if is_passing(&error) => {}
                Err(error) if is_final(&error) => return,
                Err(_) => {
                    thread::sleep(EXHAUSTED_PAUSE);
                    break;
                }
            }
        }
        if !gone.is_empty() {
            let mut gate = lock(&shared.gate);
            gone.into_iter().for_each(|source| gate.count(source, 1));
        }
    }
}

/// Waits for a connection, or a word of those that wait, or the end of their time: their numbers, whether
/// something was heard of each, and whether it is to stop.
fn wait(listener: &TcpListener, woken: &UnixStream, lobby: &Lobby) -> (Vec<u64>, Vec<bool>, bool) {
    let (numbers, waiting): (Vec<_>, Vec<_>) = lobby.waiting().unzip();
    let own = [listener.as_fd(), woken.as_fd()];
    let fds = own.into_iter().chain(waiting).map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    let mut fds: Vec<_> = fds.collect();
    let time = lobby.next(Instant::now()).map(|time| time + Duration::from_millis(1));
    let time = time.and_then(|time| PollTimeout::try_from(time).ok());
    // Interrupted: it looks again.
    let _ = poll(&mut fds, time.unwrap_or(PollTimeout::NONE));
    let heard = |fd: &PollFd<'_>| fd.any() == Some(true);
    let stop = heard(&fds[1]);
    (numbers, fds[2..].iter().map(heard).collect(), stop)
}

/// Whether the socket does not listen any more, and never will: accept(2).
fn is_final(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EBADF | Errno::EINVAL | Errno::ENOTSOCK | Errno::EOPNOTSUPP))
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

fn greeted(stream: TcpStream, silence: Duration) -> io::Result<Raw> {
    stream.set_nonblocking(false)?;
    Raw::tcp(stream, silence)
}

/// Has a newcomer show who it is, on a thread of its own.
fn greet(raw: Raw, shared: &Arc<Shared>) {
    let Some(peer) = raw.peer() else { return };
    let entered = lock(&shared.gate).enter(peer, raw.clone(), Instant::now());
    let place = match entered {
        Entered::In(place, gone) => {
            gone.iter().for_each(Raw::abort);
            place
        }
        Entered::Shed(raw) => return raw.abort(),
    };
    let of_thread = Arc::clone(shared);
    let spawned = thread::Builder::new().name("farhaul-greet".into()).spawn(move || {
        let shared = of_thread;
        let deadline = Instant::now() + HANDSHAKE_TIME;
        let yields = shared.plain_if_asked.load(Ordering::Relaxed);
        let secured = secure(raw, &shared.terms, yields, deadline);
        let in_time = lock(&shared.gate).leave(place, secured.is_ok(), Instant::now());
        match secured {
            Ok(link) if in_time => (shared.deliver)(link),
            Err(LinkError::Stranger(key)) => (shared.stranger)(key, Some(peer)),
            _ => {}
        }
    });
    if spawned.is_err() {
        // No thread, no newcomer.
        lock(&shared.gate).leave(place, false, Instant::now());
    }
}

type Bound = (Vec<Endpoint>, Vec<TcpListener>);

/// Binds all addresses at one port, for UDP and TCP alike where that can be had.
fn bind_some_port(config: &ListenConfig) -> io::Result<Bound> {
    if config.ports.is_empty() {
        let text = format!(
            "no ports from {} to {}; write the lower one first",
            config.ports.start(),
            config.ports.end()
        );
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    if !config.udp && !config.tcp {
        let text = "neither UDP nor TCP is to be listened on";
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    let chosen_by_system = *config.ports.end() == 0;
    let ports: Vec<u16> = match chosen_by_system {
        true => vec![0; PORT_TRIES],
        false => config.ports.clone().filter(|port| *port != 0).collect(),
    };
    let mut last = io::Error::from(ErrorKind::AddrInUse);
    for port in ports {
        match bind_port(config, port) {
            Ok(bound) => return Ok(bound),
            Err(error) if error.kind() == ErrorKind::AddrInUse => last = error,
            Err(error) => return Err(error),
        }
    }
    if chosen_by_system {
        return bind_apart(config);
    }
    let (start, end) = (config.ports.start(), config.ports.end());
    let text = match start == end {
        true => format!("port {start} is in use: {last}"),
        false => format!("all ports from {start} to {end} are in use: {last}"),
    };
    Err(io::Error::new(ErrorKind::AddrInUse, text))
}

/// UDP and TCP on different ports.
fn bind_apart(config: &ListenConfig) -> io::Result<Bound> {
    let (udp, _) = match config.udp {
        true => bind_port(&ListenConfig { tcp: false, ..config.clone() }, 0)?,
        false => Bound::default(),
    };
    let (_, tcp) = match config.tcp {
        true => bind_port(&ListenConfig { udp: false, ..config.clone() }, 0)?,
        false => Bound::default(),
    };
    Ok((udp, tcp))
}

fn bind_port(config: &ListenConfig, mut port: u16) -> io::Result<Bound> {
    let both = [IpAddr::from(Ipv6Addr::UNSPECIFIED)];
    let addresses = if config.addresses.is_empty() { &both[..] } else { &config.addresses };
    let mut bound = Bound::default();
    for address in addresses {
        if config.udp {
            let endpoint =
                or_v4(*address, config, |ip| Endpoint::bind((ip, port).into(), &config.options))?;
            port = endpoint.local_addr().port();
            bound.0.push(endpoint);
        }
        if config.tcp {
            let listener = or_v4(*address, config, |ip| bind_tcp((ip, port).into()))?;
            port = listener.local_addr()?.port();
            bound.1.push(listener);
        }
    }
    Ok(bound)
}

/// All addresses are those of IPv4 where the host has no IPv6.
fn or_v4<T>(
    address: IpAddr,
    config: &ListenConfig,
    bind: impl Fn(IpAddr) -> io::Result<T>,
) -> io::Result<T> {
    match bind(address) {
        Err(error) if config.addresses.is_empty() && error.kind() != ErrorKind::AddrInUse => {
            bind(Ipv4Addr::UNSPECIFIED.into())
        }
        bound => bound,
    }
}

fn bind_tcp(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(!addr.ip().is_unspecified())?;
    }
    if addr.port() != 0 {
        // Connections of an earlier listener that still time out are no hindrance.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    // A connection may be gone between poll and accept.
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    #[test]
    fn a_socket_that_does_not_listen_any_more_ends_its_thread() {
        let listener = bind_tcp((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        assert!(!is_final(&listener.accept().unwrap_err()), "there is no connection yet");
        let socket = Socket::from(listener);
        socket.shutdown(Shutdown::Read).unwrap();
        assert!(is_final(&socket.accept().unwrap_err()));
    }
}
