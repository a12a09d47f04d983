//! Sending: one call for many datagrams of one size, gathered from slices.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use socket2::SockAddr;

use crate::control::{self, ControlBuffer};
use crate::{MAX_SEGMENTS, UdpSocket};

impl UdpSocket {
    /// Sends datagrams to `to`. Each is two consecutive slices, header and payload; each is of
    /// `segment` bytes, but the last may be shorter. At most [`MAX_SEGMENTS`] datagrams and
    /// [`crate::MAX_SEND`] bytes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if the kernel's send buffer is full and nothing was sent.
    /// Other errors are the network's: they concern this call only, and are like a loss.
    pub fn send(&self, to: SocketAddr, segment: usize, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let address = SockAddr::from(self.addressable(to));
        let datagrams = slices.len() / 2;
        if datagrams > 1 && self.send_offload(segment) {
            match self.send_segmented(&address, segment, slices) {
                Err(e) if is_refusal(&e) => self.refuse_segment(segment),
                result => return result,
            }
        }
        if datagrams == 1 {
            return self.send_one(&address, slices, None);
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
        self.send_one(to, slices, Some(size))
    }

    fn send_one(
        &self,
        to: &SockAddr,
        slices: &[IoSlice<'_>],
        segment: Option<u16>,
    ) -> io::Result<()> {
        let mut buffer = ControlBuffer::new();
        let mut header = header(to, slices);
        if let Some(segment) = segment {
            control::put_u16(&mut header, &mut buffer, libc::UDP_SEGMENT, segment);
        }
        loop {
            // SAFETY: `header` points to an address, slices and ancillary data that all outlive
            // the call; the kernel only reads them.
            let sent = unsafe { libc::sendmsg(self.fd(), &raw const header, libc::MSG_NOSIGNAL) };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Without offload: still one call for all.
    fn send_each(&self, to: &SockAddr, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let mut messages: [libc::mmsghdr; MAX_SEGMENTS] =
            // SAFETY: all fields are integers and pointers, for which zero is a valid value.
            unsafe { core::mem::zeroed() };
        let count = (slices.len() / 2).min(MAX_SEGMENTS);
        for (message, datagram) in messages.iter_mut().zip(slices.chunks(2)) {
            message.msg_hdr = header(to, datagram);
        }
        let mut done = 0;
        while done < count {
            // SAFETY: messages `done .. count` are initialised, and point to an address and slices
            // that outlive the call.
            let sent = unsafe {
                libc::sendmmsg(
                    self.fd(),
                    messages[done..].as_mut_ptr(),
                    (count - done) as u32,
                    libc::MSG_NOSIGNAL,
                )
            };
            if sent > 0 {
                done += sent as usize;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                // What has gone is gone: the rest waits for room.
                io::ErrorKind::WouldBlock if done > 0 => self.wait_writable()?,
                _ => return Err(error),
            }
        }
        Ok(())
    }
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

/// Whether the kernel cannot segment this, or not datagrams of this size: no support in the device
/// (EIO), or datagrams beyond the MTU (EINVAL, EMSGSIZE).
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE))
}
