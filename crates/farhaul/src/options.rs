//! What a user may set. Nothing needs to be: windows and buffers follow the path by themselves.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use farhaul_control::Spec;
use farhaul_engine::{Config, Invitation, Mode, ReorderTolerance};

/// The largest kernel buffer to ask for.
const MAX_KERNEL_BUFFER: usize = 1 << 30;

/// Options of a connection, a listener or a port.
///
/// ```
/// use farhaul::Options;
/// use std::time::Duration;
///
/// let options = Options::new()
///     .mss(9000)
///     .law("udt:noisy".parse()?)
///     .linger(Duration::from_secs(10));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) config: Config,
    pub(crate) udp: farhaul_udp::Options,
    pub(crate) bind: Option<SocketAddr>,
    pub(crate) backlog: Option<usize>,
    pub(crate) defer_accept: Option<usize>,
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Options::default()
    }

    /// Maximum segment size: bytes of a full packet with IP and UDP headers, hence the path's MTU.
    /// 96 to 65535; default 1500. Both sides use the smaller of theirs.
    pub fn mss(mut self, bytes: u32) -> Self {
        self.config.mss = bytes;
        self
    }

    /// A stream of bytes or messages; default a stream. Both sides must agree.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.config.mode = mode;
        self
    }

    /// Most packets the peer may have in flight towards this side, 32 to 2^24; by default as many as
    /// the receive memory allows.
    pub fn flow_window(mut self, packets: u32) -> Self {
        self.config.flow_window = Some(packets);
        self
    }

    /// Most bytes of unsent and unacknowledged data, 64 KiB to 1 TiB; default 256 MiB. The buffer
    /// grows with the bandwidth-delay product up to this. With less than 256 KiB the peer may have
    /// acknowledged all of it only when its timer does so, every 10 ms.
    pub fn send_memory(mut self, bytes: usize) -> Self {
        self.config.send_memory = bytes;
        self
    }

    /// Most bytes that received data may take until it is read, 128 KiB to 1 TiB; default 512 MiB,
    /// half of it for the data itself. What is not needed is not used. Below 1 MiB throughput falls
    /// with it even on short paths.
    pub fn receive_memory(mut self, bytes: usize) -> Self {
        self.config.receive_memory = bytes;
        self
    }

    /// How much of the receive memory a peer gets until
    /// [`Connection::welcome`](crate::Connection::welcome) is called, 128 KiB to 1 TiB; default all of
    /// it. For those who authenticate their peers: before, nobody can have much kept.
    pub fn stranger_memory(mut self, bytes: usize) -> Self {
        self.config.stranger_memory = Some(bytes);
        self
    }

    /// Kernel buffers of the UDP socket, bytes, up to 1 GiB (more counts as that); default 8 MiB to
    /// receive and 4 MiB to send. Without privileges the kernel grants at most `net.core.rmem_max`
    /// and `wmem_max`; see
    /// [`Endpoint::kernel_buffers`](crate::Endpoint::kernel_buffers).
    pub fn kernel_buffers(mut self, receive: usize, send: usize) -> Self {
        self.udp.receive_buffer = receive.min(MAX_KERNEL_BUFFER);
        self.udp.send_buffer = send.min(MAX_KERNEL_BUFFER);
        self
    }

    /// Segmentation and receive offload of the kernel, where it has them; default on.
    pub fn offload(mut self, on: bool) -> Self {
        self.udp.offload = on;
        self
    }

    /// Congestion control law; default `udt`.
    pub fn law(mut self, law: Spec) -> Self {
        self.config.law = law;
        self
    }

    /// Most bits/s to send, headers included, 8000 and up; default no limit.
    pub fn max_bandwidth(mut self, bits_per_second: u64) -> Self {
        self.config.max_bandwidth = Some(bits_per_second);
        self
    }

    /// How long closing waits until everything is acknowledged, any time; default 180 s.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.config.linger = linger;
        self
    }

    /// The key of what clients that were told of it elsewhere say in place of a listener's cookie, so that connecting takes
    /// one round trip: the same on both sides; none: cookies alone, the default.
    pub fn invitation(mut self, invitation: Option<Invitation>) -> Self {
        self.config.invitation = invitation;
        self
    }

    /// How long connecting may take, any time. Default: 3 s until the peer's first answer and then twice as long as that
    /// took, or 3 s in all if that is more; for a rendezvous 30 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = Some(timeout);
        self
    }

    /// Silence of the peer after which the connection counts as broken, 100 ms and up; default
    /// 45 s.
    pub fn peer_timeout(mut self, timeout: Duration) -> Self {
        self.config.peer_timeout = timeout;
        self
    }

    /// How many later packets may overtake one before it counts as lost; 0: none. Default adaptive
    /// up to 256 packets.
    pub fn reorder_tolerance(mut self, tolerance: ReorderTolerance) -> Self {
        self.config.reorder_tolerance = tolerance;
        self
    }

    /// The local address; default any, with a port that the system picks.
    pub fn bind(mut self, addr: SocketAddr) -> Self {
        self.bind = Some(addr);
        self
    }

    /// Connections that may wait to be accepted, 1 and up; default 128.
    pub fn backlog(mut self, connections: usize) -> Self {
        self.backlog = Some(connections);
        self
    }

    /// Of a listener: a connection comes to be, and can be accepted, only with its first data. Until then
    /// it costs some hundred bytes and no thread sees it; at most so many are kept, for 10 s each, and when
    /// there are more, one of the source that has the most goes (a source: an IPv4 address, or an IPv6 network
    /// of 64 bits). Clients that do not speak first wait in vain. Default off.
    pub fn defer_accept(mut self, connections: usize) -> Self {
        self.defer_accept = Some(connections);
        self
    }

    /// The local address to use for a connection to `peer`.
    pub(crate) fn bind_towards(&self, peer: SocketAddr) -> SocketAddr {
        self.bind.unwrap_or_else(|| match peer {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        })
    }
}
