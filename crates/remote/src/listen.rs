//! Listening: newcomers are let in, over UDT and TCP, once they have shown who they are.

use core::fmt;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farhaul::{Endpoint, Listener, Options};
use farhaul_secure::{PublicKey, Role};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};

use crate::link::Link;
use crate::lock;
use crate::secured::{LinkError, Terms, secure};
use crate::wire::Raw;

/// How long a newcomer may take to show who it is.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Newcomers at once. One more ends the oldest: who holds places must hurry to keep others out.
const MAX_NEWCOMERS: usize = 64;
/// TCP connections that the system keeps until they are accepted.
const BACKLOG: i32 = 128;
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
    newcomers: Mutex<Newcomers>,
    deliver: Box<dyn Fn(Link) + Send + Sync>,
    stranger: Box<dyn Fn(PublicKey, Option<SocketAddr>) + Send + Sync>,
}

/// Those that have not shown yet who they are, the oldest first.
#[derive(Default)]
struct Newcomers {
    next: u64,
    raws: VecDeque<(u64, Raw)>,
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
            newcomers: Mutex::default(),
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
                .stranger_memory(crate::STRANGER_MEMORY);
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
            listening.spawn(move || accept_tcp(&listener, &woken, &shared))?;
        }
        Ok(listening)
    }

    fn spawn(&self, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
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
        self.shared.closed.store(true, Ordering::Relaxed);
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
        let newcomers: Vec<_> = lock(&self.shared.newcomers).raws.drain(..).collect();
        newcomers.iter().for_each(|(_, raw)| raw.abort());
    }
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

fn accept_tcp(listener: &TcpListener, mut woken: &UnixStream, shared: &Arc<Shared>) {
    while !shared.closed.load(Ordering::Relaxed) {
        let mut fds =
            [listener.as_fd(), woken.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        // Interrupted: it looks again.
        let _ = poll(&mut fds, PollTimeout::NONE);
        if fds[1].any() == Some(true) {
            let _ = woken.read(&mut [0]);
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                if let Ok(raw) = greeted(stream, shared.silence) {
                    greet(raw, shared);
                }
            }
            // Nobody there after all, or gone again.
            Err(error) if is_passing(&error) => {}
            Err(_) => thread::sleep(EXHAUSTED_PAUSE),
        }
    }
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
    let number = {
        let mut newcomers = lock(&shared.newcomers);
        if newcomers.raws.len() >= MAX_NEWCOMERS
            && let Some((_, oldest)) = newcomers.raws.pop_front()
        {
            oldest.abort();
        }
        let number = newcomers.next;
        newcomers.next += 1;
        newcomers.raws.push_back((number, raw.clone()));
        number
    };
    let of_thread = Arc::clone(shared);
    let spawned = thread::Builder::new().name("farhaul-greet".into()).spawn(move || {
        let shared = of_thread;
        let deadline = Instant::now() + HANDSHAKE_TIME;
        let yields = shared.plain_if_asked.load(Ordering::Relaxed);
        let peer = raw.peer();
        let secured = secure(raw, Role::Server, &shared.terms, yields, deadline);
        let in_time = shared.forget(number);
        match secured {
            Ok(link) if in_time => (shared.deliver)(link),
            Err(LinkError::Stranger(key)) => (shared.stranger)(key, peer),
            _ => {}
        }
    });
    if spawned.is_err() {
        // No thread, no newcomer.
        shared.forget(number);
    }
}

impl Shared {
    /// A newcomer is none any more; false if it was ended meanwhile.
    fn forget(&self, number: u64) -> bool {
        let mut newcomers = lock(&self.newcomers);
        let place = newcomers.raws.iter().position(|(other, _)| *other == number);
        place.is_some_and(|place| newcomers.raws.remove(place).is_some())
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
