//! A UDP socket and what the kernel grants it.

use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::MAX_SEND;

/// Calls without segmentation offload after which it is tried again.
const TRY_AGAIN_AFTER: usize = 4096;

/// How to open a socket.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kernel receive buffer to ask for, bytes as the kernel counts them.
    pub receive_buffer: usize,
    /// Kernel send buffer to ask for.
    pub send_buffer: usize,
    /// Use segmentation and receive offload where the kernel has them.
    pub offload: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { receive_buffer: 8 << 20, send_buffer: 4 << 20, offload: true }
    }
}

/// Kernel buffers that were granted, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// Receive buffer.
    pub receive: usize,
    /// Send buffer.
    pub send: usize,
    /// Less was granted than asked for: the limits `net.core.rmem_max` and `wmem_max` hold for
    /// users without privileges.
    pub limited: bool,
}

/// A non-blocking UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: StdSocket,
    local: SocketAddr,
    buffers: BufferSizes,
    receive_offload: bool,
    /// Segmentation offload takes datagrams up to this size; 0: not at all. It shrinks when the
    /// kernel refuses: no support, or datagrams beyond the MTU.
    max_segment: AtomicUsize,
    /// Calls since then that went without it.
    unsegmented: AtomicUsize,
    /// The error queue may have something.
    pub(crate) has_errors: AtomicBool,
}

impl UdpSocket {
    /// Binds `addr`. An IPv6 wildcard address takes IPv4 as well.
    ///
    /// # Errors
    ///
    /// Whatever the system says of socket, bind and options. A buffer granted smaller than asked
    /// for is none.
    pub fn bind(addr: SocketAddr, options: &Options) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        if addr.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        let receive = grow(options.receive_buffer, libc::SO_RCVBUFFORCE, &socket, |s, n| {
            s.set_recv_buffer_size(n)?;
            s.recv_buffer_size()
        })?;
        let send = grow(options.send_buffer, libc::SO_SNDBUFFORCE, &socket, |s, n| {
            s.set_send_buffer_size(n)?;
            s.send_buffer_size()
        })?;
        let limited = receive < options.receive_buffer || send < options.send_buffer;
        socket.bind(&SockAddr::from(addr))?;
        socket.set_nonblocking(true)?;
        let socket = StdSocket::from(socket);
        let fd = socket.as_raw_fd();
        // Arrival stamps are a refinement: without them, the time of the call serves.
        let _ = set_flag(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
        // So is what the network says of datagrams that it does not deliver. An IPv6 socket hears of IPv4
        // hosts as well.
        let _ = set_flag(fd, libc::SOL_IP, libc::IP_RECVERR, 1);
        if addr.is_ipv6() {
            let _ = set_flag(fd, libc::SOL_IPV6, libc::IPV6_RECVERR, 1);
        }
        let receive_offload =
            options.offload && set_flag(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        // Setting the size to none changes nothing and tells whether the option is known.
        let send_offload =
            options.offload && set_flag(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        Ok(UdpSocket {
            local: socket.local_addr()?,
            socket,
            buffers: BufferSizes { receive, send, limited },
            receive_offload,
            max_segment: AtomicUsize::new(if send_offload { MAX_SEND } else { 0 }),
            unsegmented: AtomicUsize::new(0),
            has_errors: AtomicBool::new(false),
        })
    }

    /// The address it is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Kernel buffers that were granted.
    pub fn buffers(&self) -> BufferSizes {
        self.buffers
    }

    /// How many datagrams the kernel has dropped because the receive buffer was full, since the socket
    /// was opened; the count wraps. 0 where the kernel does not tell.
    pub fn dropped(&self) -> u32 {
        // `SK_MEMINFO_VARS` and `SK_MEMINFO_DROPS` of linux/sock_diag.h, Linux 4.12.
        const VARIABLES: usize = 9;
        const DROPS: usize = 8;
        let mut memory = [0u32; VARIABLES];
        let mut size = size_of_val(&memory) as libc::socklen_t;
        // SAFETY: the kernel writes at most `size` bytes, those of `memory`, which outlives the call.
        let status = unsafe {
            libc::getsockopt(
                self.fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                memory.as_mut_ptr().cast(),
                &raw mut size,
            )
        };
        if status == 0 { memory[DROPS] } else { 0 }
    }

    /// Whether the kernel joins datagrams that arrive together.
    pub fn receive_offload(&self) -> bool {
        self.receive_offload
    }

    /// Whether the kernel splits datagrams of `segment` bytes, as far as is known.
    pub fn send_offload(&self, segment: usize) -> bool {
        segment <= self.max_segment.load(Ordering::Relaxed)
    }

    /// Whether to split datagrams of `segment` bytes now. What was refused is tried again now and
    /// then: it may have been the way to another peer that did not allow it.
    pub(crate) fn should_segment(&self, segment: usize) -> bool {
        let max = self.max_segment.load(Ordering::Relaxed);
        segment <= max
            || (max > 0
                && (self.unsegmented.fetch_add(1, Ordering::Relaxed) + 1)
                    .is_multiple_of(TRY_AGAIN_AFTER))
    }

    /// Remembers that the kernel split datagrams of `segment` bytes.
    pub(crate) fn accept_segment(&self, segment: usize) {
        if segment > self.max_segment.load(Ordering::Relaxed) {
            self.max_segment.store(segment, Ordering::Relaxed);
        }
    }

    /// Remembers that the kernel did not split datagrams of `segment` bytes.
    pub(crate) fn refuse_segment(&self, segment: usize) {
        self.max_segment.fetch_min(segment.saturating_sub(1), Ordering::Relaxed);
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The address in the form that this socket sends to: an IPv6 socket reaches IPv4 hosts
    /// through mapped addresses.
    pub(crate) fn addressable(&self, to: SocketAddr) -> SocketAddr {
        match to {
            SocketAddr::V4(v4) if self.local.is_ipv6() => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            other => other,
        }
    }
}

/// For options that this crate does not set. Whoever makes it blocking makes calls wait.
impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The one form of an address by which a peer is known: an IPv4-mapped one as IPv4, and an IPv6
/// one without a flow label, which the kernel does not tell of arrivals. The scope of a link-local
/// address belongs to it.
pub fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V6(mut v6) if v6.ip().to_ipv4_mapped().is_none() => {
            v6.set_flowinfo(0);
            v6.into()
        }
        other => SocketAddr::new(other.ip().to_canonical(), other.port()),
    }
}

/// Asks for a buffer of `size`, beyond the system's limit if allowed; returns what was granted.
fn grow(
    size: usize,
    force: i32,
    socket: &Socket,
    ask: impl Fn(&Socket, usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let granted = ask(socket, size)?;
    if granted >= size {
        return Ok(granted);
    }
    let forced = i32::try_from(size).unwrap_or(i32::MAX);
    match set_flag(socket.as_raw_fd(), libc::SOL_SOCKET, force, forced) {
        // The kernel doubles what is asked for, for its own bookkeeping.
        Ok(()) => Ok(size * 2),
        Err(_) => Ok(granted),
    }
}

fn set_flag(fd: RawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let size = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option's value is the four bytes of `value`, which outlives the call.
    let status = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), size) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_at_least_the_systems_default() {
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
        assert!(socket.buffers().receive >= 4096);
        assert_ne!(socket.local_addr().port(), 0);
    }

    #[test]
    fn what_finds_the_buffer_full_is_counted() {
        let small = Options { receive_buffer: 4096, ..Options::default() };
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &small).unwrap();
        assert_eq!(socket.dropped(), 0);
        let sender = StdSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 1000], socket.local_addr()).unwrap();
        }
        assert!((50..100).contains(&socket.dropped()), "{}", socket.dropped());
    }

    #[test]
    fn an_ipv6_socket_reaches_ipv4_through_mapped_addresses() {
        let Ok(socket) = UdpSocket::bind("[::]:0".parse().unwrap(), &Options::default()) else {
            eprintln!("skipped: no IPv6 here");
            return;
        };
        let to = socket.addressable("127.0.0.1:9".parse().unwrap());
        assert_eq!(to, "[::ffff:127.0.0.1]:9".parse().unwrap());
    }

    #[test]
    fn a_peer_has_one_address_and_keeps_its_scope() {
        let form = |text: &str| canonical(text.parse().unwrap()).to_string();
        assert_eq!(form("[::ffff:10.0.0.1]:5"), "10.0.0.1:5");
        assert_eq!(form("10.0.0.1:5"), "10.0.0.1:5");
        assert_eq!(form("[fe80::1%3]:5"), "[fe80::1%3]:5");
        let labelled = std::net::SocketAddrV6::new("2001:db8::1".parse().unwrap(), 5, 77, 0);
        assert_eq!(canonical(labelled.into()), "[2001:db8::1]:5".parse().unwrap());
    }
}
