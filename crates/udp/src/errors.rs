//! What the network says of datagrams that it did not deliver: ICMP errors, from the socket's error
//! queue (ip(7), `IP_RECVERR`).
//!
//! The kernel takes an ICMP error for a socket's only if the packet quoted in it is one that the socket
//! can have sent. Whether it did, the quoted payload tells.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use socket2::SockAddrStorage;

use crate::control::{self, ControlBuffer};
use crate::receive::socket_addr;
use crate::{UdpSocket, canonical};

/// Bytes of a datagram that is told of: a handshake fits.
const QUOTED: usize = 128;
/// `SO_EE_ORIGIN_ICMP`, `SO_EE_ORIGIN_ICMP6` of linux/errqueue.h.
const ICMP: u8 = 2;
const ICMP6: u8 = 3;
/// Destination unreachable: port unreachable, of ICMP (RFC 792) and ICMPv6 (RFC 4443 section 3.1).
const PORT_UNREACHABLE: (u8, u8) = (3, 3);
const PORT_UNREACHABLE6: (u8, u8) = (1, 4);

/// A host says that no socket of its own has the port that a datagram was sent to.
#[derive(Clone, Copy, Debug)]
pub struct Unreachable {
    /// Where the datagram went.
    pub to: SocketAddr,
    quoted: [u8; QUOTED],
    len: usize,
}

impl Unreachable {
    /// The beginning of the datagram, as far as the host has quoted it and it is told here: perhaps nothing.
    pub fn quoted(&self) -> &[u8] {
        &self.quoted[..self.len]
    }
}

impl UdpSocket {
    /// Remembers that the error queue may have something.
    pub(crate) fn note_errors(&self) {
        self.has_errors.store(true, Ordering::Relaxed);
    }

    /// The next port that was found unreachable, if the queue of errors has such news; other errors in
    /// it are dropped. Costs nothing while there are none. While this is not called, waits for arrivals
    /// end at once.
    pub fn take_unreachable(&self) -> Option<Unreachable> {
        while self.has_errors.load(Ordering::Relaxed) {
            match self.next_error() {
                Ok(Some(news)) => return Some(news),
                Ok(None) => {}
                Err(_) => self.has_errors.store(false, Ordering::Relaxed),
            }
        }
        None
    }

    /// Takes one error from the queue; none if it is of another kind.
    fn next_error(&self) -> io::Result<Option<Unreachable>> {
        let mut name = SockAddrStorage::zeroed();
        let mut ancillary = ControlBuffer::new();
        let mut quoted = [0u8; QUOTED];
        let mut slice = libc::iovec { iov_base: quoted.as_mut_ptr().cast(), iov_len: QUOTED };
        // SAFETY: all fields are integers and pointers, for which zero is a valid value.
        let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = size_of::<SockAddrStorage>() as libc::socklen_t;
        header.msg_iov = &raw mut slice;
        header.msg_iovlen = 1;
        header.msg_control = ancillary.0.as_mut_ptr().cast();
        header.msg_controllen = ancillary.0.len() as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: `header` points to a name, a slice and an ancillary buffer of the lengths given, all of
        // which outlive the call and are not used otherwise during it.
        let len = unsafe { libc::recvmsg(self.fd(), &raw mut header, flags) };
        let Ok(len) = usize::try_from(len) else { return Err(io::Error::last_os_error()) };
        let Some(error) = control::read(&header).error else { return Ok(None) };
        let port = match error.origin {
            ICMP => (error.kind, error.code) == PORT_UNREACHABLE,
            ICMP6 => (error.kind, error.code) == PORT_UNREACHABLE6,
            _ => false,
        };
        // The kernel has written an address of `msg_namelen` bytes into the storage.
        let to = socket_addr(&name, header.msg_namelen).map(canonical);
        Ok(to.filter(|_| port).map(|to| Unreachable { to, quoted, len: len.min(QUOTED) }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Options, Waker};

    fn closed_port(local: &str) {
        let Ok(socket) = UdpSocket::bind(local.parse().unwrap(), &Options::default()) else {
            eprintln!("skipped: no {local} here");
            return;
        };
        // A port that was free a moment ago.
        let other = std::net::UdpSocket::bind(local).unwrap();
        let closed = other.local_addr().unwrap();
        drop(other);
        let waker = Waker::new().unwrap();
        let since = Instant::now();
        let news = loop {
            socket.send(closed, 8, &[IoSlice::new(b"head"), IoSlice::new(b"tail")]);
            socket.wait(&waker, Some(Duration::from_millis(100))).unwrap();
            match socket.take_unreachable() {
                Some(news) => break news,
                None => assert!(since.elapsed() < Duration::from_secs(10), "no news"),
            }
        };
        assert_eq!((news.to, news.quoted()), (closed, &b"headtail"[..]));
        while socket.take_unreachable().is_some() {}
        // What was wrong with one peer does not stop what is sent to another.
        let peer = std::net::UdpSocket::bind(local).unwrap();
        socket.send(closed, 8, &[IoSlice::new(b"head"), IoSlice::new(b"tail")]);
        std::thread::sleep(Duration::from_millis(20));
        let to = peer.local_addr().unwrap();
        let sent = socket.send(to, 8, &[IoSlice::new(b"more"), IoSlice::new(b"data")]);
        assert!(sent.error.is_none() && sent.datagrams == 1, "{sent:?}");
        let mut bytes = [0; 16];
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(peer.recv(&mut bytes).unwrap(), 8);
    }

    #[test]
    fn a_closed_port_is_told_of_with_what_was_sent_there() {
        closed_port("127.0.0.1:0");
        closed_port("[::1]:0");
    }
}
