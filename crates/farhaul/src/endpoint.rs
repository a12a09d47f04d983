//! A UDP port shared by many connections, and the listener on it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farhaul_base::newcomers::Tally;
use farhaul_engine::{Config, ConnectionId, EndpointCounters};
use farhaul_udp::{BufferSizes, canonical};

use crate::connection::Connection;
use crate::error::connect_error;
use crate::options::Options;
use crate::port::{Port, PortHandle};

/// Connections that may wait to be accepted when the options do not say.
const BACKLOG: usize = 128;

/// A UDP port. Any number of connections share it, outgoing and accepted ones.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(crate) port: PortHandle,
}

impl Endpoint {
    /// Opens a port at `addr`; port 0 lets the system choose.
    ///
    /// # Errors
    ///
    /// The address cannot be bound, or an option is out of range.
    pub fn bind(addr: SocketAddr, options: &Options) -> io::Result<Endpoint> {
        options.config.validate().map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        Ok(Endpoint { port: Port::open(addr, options)? })
    }

    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.port.socket.local_addr()
    }

    /// What the kernel granted for the socket's buffers. If that is little, bursts are kept short
    /// enough to fit, which costs throughput on fast short paths.
    pub fn kernel_buffers(&self) -> BufferSizes {
        self.port.socket.buffers()
    }

    /// How many datagrams the kernel has dropped because the socket's receive buffer was full: this process
    /// did not take them in time. Since the port was opened, for all its connections; the count wraps. 0
    /// where the kernel does not tell (before Linux 4.12). It is asked with each call, and costs nothing else.
    pub fn kernel_dropped(&self) -> u32 {
        self.port.socket.dropped()
    }

    /// Packets that no connection took: malformed, forged or late.
    pub fn counters(&self) -> EndpointCounters {
        self.port.lock().endpoint.counters()
    }

    /// Connects to `peer`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] if no answer comes, [`io::ErrorKind::ConnectionRefused`] with the
    /// reason ([`ConnectError`](farhaul_engine::ConnectError)) if the peer refuses, or if its host says
    /// for half a second that nothing listens at the port (ICMP, on Linux): a server may start that much
    /// later than its client.
    pub fn connect(&self, peer: SocketAddr, options: &Options) -> io::Result<Connection> {
        let id = self.start(peer, options, false)?;
        self.wait_connected(id, peer)
    }

    /// Meets `peer`, which does the same towards this port.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::connect`].
    pub fn rendezvous(&self, peer: SocketAddr, options: &Options) -> io::Result<Connection> {
        let id = self.start(peer, options, true)?;
        self.wait_connected(id, peer)
    }

    /// Begins to connect.
    pub(crate) fn start(
        &self,
        peer: SocketAddr,
        options: &Options,
        rendezvous: bool,
    ) -> io::Result<ConnectionId> {
        let config = Config { rendezvous, ..self.config(options) };
        let peer = canonical(peer);
        if peer.ip().is_unspecified() {
            let text = format!("{peer} names no peer; this machine is 127.0.0.1 or [::1]");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if peer.port() == 0 {
            let text = format!("{peer} names no port: add the one that the peer listens at");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if peer.is_ipv6() && self.local_addr().is_ipv4() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a port with an IPv4 address does not reach IPv6 addresses",
            ));
        }
        // What the network said of earlier attempts is not what it says of this one.
        drop(self.port.take_send_error(peer));
        self.port.update(|now, state| {
            let id = state
                .endpoint
                .connect(now, peer, config)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
            state.hooks(id);
            Ok(id)
        })
    }

    fn wait_connected(&self, id: ConnectionId, peer: SocketAddr) -> io::Result<Connection> {
        let mut state = self.port.lock();
        let hooks = state.hooks(id);
        loop {
            if let Some(error) = state.endpoint.take_failure(id) {
                state.remove_hooks(id);
                drop(state);
                return Err(connect_error(error, self.port.take_send_error(canonical(peer))));
            }
            if state.endpoint.connection(id).is_some() {
                drop(state);
                return Connection::new(self.port.clone(), id);
            }
            state = hooks.writable.wait(state, None)?;
        }
    }

    /// Takes connections on this port from now on.
    ///
    /// # Errors
    ///
    /// An option is out of range; [`io::ErrorKind::AddrInUse`] while there is a listener.
    pub fn listen(&self, options: &Options) -> io::Result<Listener> {
        let config = self.config(options);
        let backlog = options.backlog.unwrap_or(BACKLOG);
        if backlog == 0 {
            let text = "backlog is 0, must be at least 1";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut state = self.port.lock();
        if state.listening {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "the port has a listener"));
        }
        state
            .endpoint
            .listen(config, backlog)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        if let Some(most) = options.defer_accept {
            state.endpoint.defer_accept(most);
        }
        state.listening = true;
        drop(state);
        Ok(Listener { endpoint: self.clone(), closed: AtomicBool::new(false) })
    }

    /// Has the port's thread panic: a seam for tests of what becomes of a service whose port has failed.
    #[doc(hidden)]
    pub fn fail_driver(&self) {
        self.port.fail_driver();
    }

    fn config(&self, options: &Options) -> Config {
        let mut config = options.config.clone();
        config.burst_room = self.port.burst_room();
        config
    }
}

/// Accepts connections.
#[derive(Debug)]
pub struct Listener {
    pub(crate) endpoint: Endpoint,
    closed: AtomicBool,
}

impl Listener {
    /// Listens at `addr`.
    ///
    /// # Errors
    ///
    /// The address cannot be bound, or an option is out of range.
    pub fn bind(addr: impl ToSocketAddrs, options: &Options) -> io::Result<Listener> {
        let mut last = None;
        for addr in addr.to_socket_addrs()? {
            match Endpoint::bind(addr, options) {
                Ok(endpoint) => return endpoint.listen(options),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::other("the name has no address")))
    }

    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    /// The port it listens on.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Waits for a connection; the one that came first is accepted first.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] after [`Listener::close`]; else the port has failed, which is
    /// a bug.
    pub fn accept(&self) -> io::Result<Connection> {
        let port = &self.endpoint.port;
        let mut state = port.lock();
        let acceptable = Arc::clone(&state.acceptable);
        loop {
            if self.closed.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "the listener is closed"));
            }
            if let Some(id) = state.endpoint.accept() {
                drop(state);
                return Connection::new(port.clone(), id);
            }
            state = acceptable.wait(state, None)?;
        }
    }

    /// With [`Options::defer_accept`]: the connections that came to nothing before their first data, since
    /// this was last asked.
    pub fn take_silent(&self) -> Tally {
        self.endpoint.port.lock().endpoint.take_silent()
    }

    /// Takes no more connections; threads that wait in [`Listener::accept`] return. Connections that
    /// were accepted go on.
    pub fn close(&self) {
        self.endpoint.port.update(|now, state| {
            // Another listener of the port may have come since.
            if !self.closed.swap(true, Ordering::Relaxed) {
                state.listening = false;
                state.endpoint.stop_listening(now);
                state.acceptable.notify();
            }
        });
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}
