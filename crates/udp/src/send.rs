//! Sending: one call for many datagrams of one size, gathered from slices.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use socket2::SockAddr;

use crate::control::{self, ControlBuffer};
use crate::{MAX_SEGMENTS, UdpSocket};

/// A header and a payload for each datagram of a call.
const MAX_SLICES: usize = 2 * MAX_SEGMENTS;

/// How far a call came.
#[derive(Debug, Default)]
pub struct Sent {
    /// Datagrams that are done with: on their way, or refused by the network. Fewer than were
    /// given: the kernel's send buffer is full, and the rest is to be sent when there is room.
    pub datagrams: usize,
    /// Why the network refused datagrams; they are like lost ones.
    pub error: Option<io::Error>,
}

impl UdpSocket {
    /// Sends datagrams to `to`, without waiting. Each is two consecutive slices, header and
    /// payload; each is of `segment` bytes, but the last may be shorter. At most [`MAX_SEGMENTS`]
    /// datagrams and [`crate::MAX_SEND`] bytes.
    pub fn send(&self, to: SocketAddr, segment: usize, slices: &[IoSlice<'_>]) -> Sent {
        let address = SockAddr::from(self.addressable(to));
        let datagrams = slices.len() / 2;
        if datagrams > 1 && self.should_segment(segment) {
            match self.send_segmented(&address, segment, slices) {
                Ok(()) => {
                    self.accept_segment(segment);
                    return Sent { datagrams, error: None };
                }
                Err(e) if is_refusal(&e) => self.refuse_segment(segment),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Sent::default(),
                Err(e) => return Sent { datagrams, error: Some(e) },
            }
        }
        if datagrams == 1 {
            return match self.send_message(&header(&address, slices)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Sent::default(),
                result => Sent { datagrams, error: result.err() },
            };
        }
        self.send_each(&address, slices)
    }

    fn send_segmented(
        &self,
        to: &SockAddr,
        segment: usize,
        slices: &[IoSlice<'_>],
    ) -> io::Result<()> {
        let size = u16::try_from(segment).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut buffer = ControlBuffer::new();
        let mut runs = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; MAX_SLICES];
        let mut header = header(to, slices);
        header.msg_iovlen = join(slices, &mut runs) as _;
        header.msg_iov = runs.as_mut_ptr();
        control::put_u16(&mut header, &mut buffer, libc::UDP_SEGMENT, size);
        self.send_message(&header)
    }

    fn send_message(&self, header: &libc::msghdr) -> io::Result<()> {
        let mut tries = 0;
        loop {
            // SAFETY: `header` comes from the function of that name, and points to an address,
            // slices and ancillary data that all outlive the call; the kernel only reads them.
            let sent = unsafe { libc::sendmsg(self.fd(), header, libc::MSG_NOSIGNAL) };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if is_of_another(&error) && tries < TRIES {
                tries += 1;
                self.note_errors();
            } else if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Without offload: still one call for all.
    fn send_each(&self, to: &SockAddr, slices: &[IoSlice<'_>]) -> Sent {
        let mut messages: [libc::mmsghdr; MAX_SEGMENTS] =
            // SAFETY: all fields are integers and pointers, for which zero is a valid value.
            unsafe { core::mem::zeroed() };
        let count = (slices.len() / 2).min(MAX_SEGMENTS);
        for (message, datagram) in messages.iter_mut().zip(slices.chunks(2)) {
            message.msg_hdr = header(to, datagram);
        }
        let mut out = Sent::default();
        let mut tries = 0;
        while out.datagrams < count {
            // SAFETY: messages `out.datagrams .. count` are initialised, and point to an address
            // and slices that outlive the call.
            let sent = unsafe {
                libc::sendmmsg(
                    self.fd(),
                    messages[out.datagrams..].as_mut_ptr(),
                    (count - out.datagrams) as u32,
                    libc::MSG_NOSIGNAL,
                )
            };
            if sent > 0 {
                out.datagrams += sent as usize;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => break,
                _ if is_of_another(&error) && tries < TRIES => {
                    tries += 1;
                    self.note_errors();
                }
                // It concerns the first of the rest only: a firewall may refuse one datagram
                // (EPERM) and take the next.
                _ => {
                    out.datagrams += 1;
                    out.error.get_or_insert(error);
                }
            }
        }
        out
    }
}

/// Describes `slices` as few runs of memory: those that lie one behind the other as one, which the
/// kernel then copies as one. Returns how many.
fn join(slices: &[IoSlice<'_>], runs: &mut [libc::iovec; MAX_SLICES]) -> usize {
    let mut count = 0;
    for slice in slices.iter().take(MAX_SLICES) {
        let base = slice.as_ptr().cast_mut();
        match runs[..count].last_mut() {
            Some(run) if run.iov_base.cast::<u8>().wrapping_add(run.iov_len) == base => {
                run.iov_len += slice.len();
            }
            _ => {
                runs[count] = libc::iovec { iov_base: base.cast(), iov_len: slice.len() };
                count += 1;
            }
        }
    }
    count
}

/// A message to `to` from `slices`.
fn header(to: &SockAddr, slices: &[IoSlice<'_>]) -> libc::msghdr {
    // SAFETY: all fields are integers and pointers, for which zero is a valid value.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = to.len();
    // IoSlice has the layout of iovec on Unix (its documentation guarantees it), and the kernel
    // does not write through it on sending.
    header.msg_iov = slices.as_ptr().cast_mut().cast();
    header.msg_iovlen = slices.len() as _;
    header
}

/// How often a call is made again whose error is that of an earlier datagram.
const TRIES: u32 = 4;

/// Whether this is what ICMP said of a datagram sent before, perhaps to another peer: the kernel tells it
/// to the next call, which then does nothing.
fn is_of_another(error: &io::Error) -> bool {
    use libc::{ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, ENOPROTOOPT, EOPNOTSUPP, EPROTO};
    error.raw_os_error().is_some_and(|code| {
        [ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, ENOPROTOOPT, EOPNOTSUPP, EPROTO].contains(&code)
    })
}

/// Whether the kernel cannot segment this, or not datagrams of this size: no support in the device
/// (EIO), or datagrams beyond the MTU (EINVAL, EMSGSIZE).
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    fn slices<'a>(payloads: &'a [Vec<u8>]) -> Vec<IoSlice<'a>> {
        payloads.iter().flat_map(|p| [IoSlice::new(b"head"), IoSlice::new(p)]).collect()
    }

    /// A datagram beyond what IP can carry is refused, as one that a firewall stops would be.
    #[test]
    fn datagrams_behind_a_refused_one_are_sent() {
        let options = Options { offload: false, ..Options::default() };
        let local = "127.0.0.1:0".parse().unwrap();
        let receiver = std::net::UdpSocket::bind(local).unwrap();
        let sender = UdpSocket::bind(local, &options).unwrap();
        let payloads = [vec![1; 8], vec![2; 65_530], vec![3; 8], vec![4; 8]];
        let sent = sender.send(receiver.local_addr().unwrap(), 65_534, &slices(&payloads));
        assert_eq!(sent.datagrams, 4);
        assert_eq!(sent.error.unwrap().raw_os_error(), Some(libc::EMSGSIZE));
        let mut buf = [0; 100];
        for expected in [1, 3, 4] {
            assert_eq!(receiver.recv(&mut buf).unwrap(), 12);
            assert_eq!(buf[4], expected);
        }
    }

    /// As where the path's MTU is less than the datagrams.
    #[test]
    fn segments_that_the_kernel_refuses_go_one_by_one() {
        let local = "127.0.0.1:0".parse().unwrap();
        let receiver = std::net::UdpSocket::bind(local).unwrap();
        let sender = UdpSocket::bind(local, &Options::default()).unwrap();
        let payloads: Vec<_> = (0..3).map(|_| vec![7; 30_000]).collect();
        // 90 kB in one call are beyond what segmentation takes.
        let sent = sender.send(receiver.local_addr().unwrap(), 30_004, &slices(&payloads));
        assert!(sent.error.is_none() && sent.datagrams == 3, "{sent:?}");
        assert!(!sender.send_offload(30_004));
        let mut buf = vec![0; 65_536];
        for _ in 0..3 {
            assert_eq!(receiver.recv(&mut buf).unwrap(), 30_004);
        }
    }

    /// A refusal may have concerned the way to one peer alone.
    #[test]
    fn a_refusal_is_not_for_ever() {
        let local = "127.0.0.1:0".parse().unwrap();
        let receiver = std::net::UdpSocket::bind(local).unwrap();
        let to = receiver.local_addr().unwrap();
        let sender = UdpSocket::bind(local, &Options::default()).unwrap();
        if !sender.send_offload(1_000) {
            return;
        }
        sender.refuse_segment(1_000);
        let payloads = [vec![7; 996], vec![8; 996]];
        let mut calls = 0;
        while !sender.send_offload(1_000) {
            assert_eq!(sender.send(to, 1_000, &slices(&payloads)).datagrams, 2);
            calls += 1;
            assert!(calls < 10_000);
        }
        assert!(calls > 1_000, "{calls}");
    }
}
