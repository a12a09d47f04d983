//! Connections of a test, whatever carries them.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use farhaul::{Connection, Endpoint, Listener, Stats};
use socket2::{Domain, Socket, Type};

use super::{PerfArgs, Protocol};
use crate::transport::report_kernel_buffers;

/// One connection.
#[derive(Clone)]
pub enum Channel {
    Udt(Connection),
    Tcp(Arc<TcpStream>),
}

impl Channel {
    /// Who is at the other end.
    pub fn peer(&self) -> String {
        match self {
            Channel::Udt(connection) => connection.peer_addr().to_string(),
            Channel::Tcp(stream) => match stream.peer_addr() {
                Ok(peer) => peer.to_string(),
                Err(_) => "a peer that is gone".into(),
            },
        }
    }

    /// The address of the other end; none if it is gone.
    pub fn source(&self) -> Option<IpAddr> {
        match self {
            Channel::Udt(connection) => Some(connection.peer_addr().ip()),
            Channel::Tcp(stream) => stream.peer_addr().ok().map(|peer| peer.ip()),
        }
    }

    /// Limits how long a read waits, more than zero; none: for ever.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Channel::Udt(connection) => {
                connection.set_read_timeout(timeout);
                Ok(())
            }
            Channel::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// Transport statistics, where there are some.
    pub fn stats(&self) -> Option<Stats> {
        match self {
            Channel::Udt(connection) => connection.stats(false).ok(),
            Channel::Tcp(_) => None,
        }
    }

    /// What the kernel has dropped at this connection's port, and which that is: connections may share one.
    /// None where the kernel itself carries the data.
    pub fn kernel_dropped(&self) -> Option<(SocketAddr, u32)> {
        match self {
            Channel::Udt(connection) => {
                Some((connection.local_addr(), connection.kernel_dropped()))
            }
            Channel::Tcp(_) => None,
        }
    }

    /// The kernel's congestion control that is in force, where it is the kernel's TCP.
    pub fn tcp_congestion_control(&self) -> Option<String> {
        let Channel::Tcp(stream) = self else { return None };
        let name = socket2::SockRef::from(&**stream).tcp_congestion().ok()?;
        // The kernel fills up with zeros.
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Writes everything out and closes.
    pub fn close(self) -> io::Result<()> {
        match self {
            Channel::Udt(connection) => connection.close(),
            Channel::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
        }
    }

    /// Closes without waiting.
    pub fn abort(&self) {
        match self {
            Channel::Udt(connection) => connection.abort(),
            Channel::Tcp(stream) => {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        }
    }
}

impl Read for Channel {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Channel::Udt(connection) => connection.read(buf),
            Channel::Tcp(stream) => (&**stream).read(buf),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Channel::Udt(connection) => connection.write(buf),
            Channel::Tcp(stream) => (&**stream).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes connections to one peer.
pub struct Connector<'a> {
    args: &'a PerfArgs,
    peer: SocketAddr,
}

impl<'a> Connector<'a> {
    pub fn new(args: &'a PerfArgs, peer: SocketAddr) -> Self {
        Connector { args, peer }
    }

    pub fn connect(&self) -> Result<Channel> {
        let peer = self.peer;
        match self.args.protocol {
            Protocol::Tcp => {
                let stream = match self.args.bind {
                    Some(bind) => connect_from(bind, peer),
                    None => TcpStream::connect(peer),
                };
                let stream = stream.with_context(|| format!("cannot connect to {peer} by TCP"))?;
                set_congestion_control(&stream, self.args)?;
                Ok(Channel::Tcp(stream.into()))
            }
            Protocol::Udt => {
                let mut options = self.args.transport.options();
                if let Some(bind) = self.args.bind {
                    options = options.bind(bind);
                }
                let connection = Connection::connect(peer, &options)
                    .with_context(|| format!("cannot connect to {peer}"))?;
                Ok(Channel::Udt(connection))
            }
        }
    }
}

/// That of `--tcp-cc`, if it was given; connections have it from their listener.
fn set_congestion_control(socket: &impl AsFd, args: &PerfArgs) -> Result<()> {
    let Some(name) = &args.tcp_cc else { return Ok(()) };
    socket2::SockRef::from(socket)
        .set_tcp_congestion(name.as_bytes())
        .with_context(|| format!("the kernel has no TCP congestion control '{name}' for this user"))
}

/// A TCP connection from `bind`.
fn connect_from(bind: SocketAddr, peer: SocketAddr) -> io::Result<TcpStream> {
    // Sockets know only addresses of their own family.
    let in_family = |addr: SocketAddr| match addr {
        SocketAddr::V4(v4) if bind.is_ipv6() => {
            SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
        }
        SocketAddr::V6(_) if bind.is_ipv4() => {
            SocketAddr::new(addr.ip().to_canonical(), addr.port())
        }
        _ => addr,
    };
    let socket = Socket::new(Domain::for_address(bind), Type::STREAM, None)?;
    if bind.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // The port of a connection that has just ended may be taken again.
    socket.set_reuse_address(true)?;
    socket.bind(&bind.into())?;
    socket.connect(&in_family(peer).into())?;
    Ok(socket.into())
}

/// Takes connections.
pub enum Acceptor {
    Udt(Listener),
    Tcp(TcpListener),
}

impl Acceptor {
    pub fn bind(args: &PerfArgs, addr: SocketAddr) -> Result<Self> {
        let context = || format!("cannot listen at {addr}");
        match args.protocol {
            Protocol::Tcp => {
                let listener = TcpListener::bind(addr).with_context(context)?;
                set_congestion_control(&listener, args)?;
                Ok(Acceptor::Tcp(listener))
            }
            Protocol::Udt => {
                let options = args.transport.options();
                let endpoint = Endpoint::bind(addr, &options).with_context(context)?;
                report_kernel_buffers(&endpoint);
                Ok(Acceptor::Udt(endpoint.listen(&options)?))
            }
        }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Acceptor::Udt(listener) => Ok(listener.local_addr()),
            Acceptor::Tcp(listener) => listener.local_addr(),
        }
    }

    pub fn accept(&self) -> io::Result<Channel> {
        match self {
            Acceptor::Udt(listener) => listener.accept().map(Channel::Udt),
            Acceptor::Tcp(listener) => listener.accept().map(|(s, _)| Channel::Tcp(s.into())),
        }
    }
}
