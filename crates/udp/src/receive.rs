//! Receiving: several receive-offload buffers in one call.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use socket2::SockAddrStorage;

use crate::control::{self, ControlBuffer};
use crate::{UdpSocket, canonical};

/// Buffers in one call.
const MAX_SLOTS: usize = 32;

/// What came into one slot.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Who sent it.
    pub from: SocketAddr,
    /// Bytes.
    pub len: usize,
    /// Bytes of each datagram but the last, which may be shorter.
    pub segment: usize,
    /// How long before the call returned it arrived, as far as the kernel says.
    pub age: Duration,
}

/// The kernel's view of receive slots, reused from call to call.
pub struct ReceiveSlots {
    headers: Box<[libc::mmsghdr; MAX_SLOTS]>,
    names: Box<[SockAddrStorage; MAX_SLOTS]>,
    controls: Box<[ControlBuffer; MAX_SLOTS]>,
}

// SAFETY: the pointers in `headers` are only set and used within one call of `receive`; between
// calls they mean nothing.
unsafe impl Send for ReceiveSlots {}

impl ReceiveSlots {
    /// Room for the bookkeeping of a call.
    pub fn new() -> Self {
        ReceiveSlots {
            // SAFETY: all fields are integers and pointers, for which zero is a valid value.
            headers: Box::new(unsafe { core::mem::zeroed() }),
            names: Box::new(core::array::from_fn(|_| SockAddrStorage::zeroed())),
            controls: Box::new([ControlBuffer::new(); MAX_SLOTS]),
        }
    }
}

impl Default for ReceiveSlots {
    fn default() -> Self {
        ReceiveSlots::new()
    }
}

impl UdpSocket {
    /// Receives into `buffers`, one message each, without waiting; appends to `out` what came.
    /// Messages truncated for want of room, and such without an IP address, are left out with a
    /// length of 0.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if nothing is there.
    pub fn receive(
        &self,
        slots: &mut ReceiveSlots,
        buffers: &mut [IoSliceMut<'_>],
        out: &mut Vec<Received>,
    ) -> io::Result<()> {
        let count = buffers.len().min(MAX_SLOTS);
        for (index, buffer) in buffers[..count].iter_mut().enumerate() {
            let header = &mut slots.headers[index].msg_hdr;
            header.msg_name = (&raw mut slots.names[index]).cast();
            header.msg_namelen = size_of::<SockAddrStorage>() as libc::socklen_t;
            // IoSliceMut has the layout of iovec on Unix (its documentation guarantees it).
            header.msg_iov = core::ptr::from_mut(buffer).cast();
            header.msg_iovlen = 1;
            header.msg_control = slots.controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = slots.controls[index].0.len() as _;
            header.msg_flags = 0;
        }
        let received = loop {
            // SAFETY: the first `count` headers point to names, buffers and ancillary buffers of
            // the lengths given, all borrowed mutably for the duration of the call.
            let received = unsafe {
                libc::recvmmsg(
                    self.fd(),
                    slots.headers.as_mut_ptr(),
                    count as u32,
                    libc::MSG_DONTWAIT,
                    core::ptr::null_mut(),
                )
            };
            if received >= 0 {
                break received as usize;
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => return Err(error),
                // News of a datagram that was not delivered, told once here; the queue says which.
                _ => self.note_errors(),
            }
        };
        let real_ns =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        for index in 0..received {
            let message = &slots.headers[index];
            let ancillary = control::read(&message.msg_hdr);
            let truncated = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            // The kernel has written an address of `msg_namelen` bytes into the storage.
            let from = socket_addr(&slots.names[index], message.msg_hdr.msg_namelen);
            let len = if truncated || from.is_none() { 0 } else { message.msg_len as usize };
            let age = ancillary.arrival_ns.map_or(0, |at| real_ns.saturating_sub(at));
            out.push(Received {
                from: from.unwrap_or_else(|| ([0, 0, 0, 0], 0).into()),
                len,
                segment: ancillary.segment.filter(|&s| s > 0).unwrap_or(len.max(1)),
                age: Duration::from_nanos(age),
            });
        }
        Ok(())
    }
}

/// The sender's address, in its one form.
pub(crate) fn socket_addr(storage: &SockAddrStorage, len: libc::socklen_t) -> Option<SocketAddr> {
    // SAFETY: the storage was zeroed at creation and then written by the kernel with a valid
    // address of `len` bytes; the copy is bitwise.
    let addr = unsafe { socket2::SockAddr::new(core::ptr::read(storage), len) };
    addr.as_socket().map(canonical)
}
