//! Non-blocking UDP sockets in batches, and waiting for them. All system calls without a safe
//! wrapper are in this module.
//!
//! Segmentation offload on both sides (`UDP_GRO`, `UDP_SEGMENT`): a sender's super-packet arrives in
//! one piece with the size of its segments, and datagrams of one size to one address leave in one.
//! Where the kernel refuses, datagrams travel one by one.

#![allow(unsafe_code)]

mod wait;

use std::cell::Cell;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Type};

pub(crate) use wait::{Poller, set_timer_slack, sleep};

/// Messages per system call; more gain nothing.
const MESSAGES: usize = 16;
/// The largest UDP payload and so the largest super-packet.
const BUFFER_BYTES: usize = 65_536;
/// Payload of the largest IPv4 datagram.
const MESSAGE_BYTES_MAX: usize = 65_507;
/// Segments that every kernel with the offload takes (UDP_MAX_SEGMENTS was 64 first).
const SEGMENTS_MAX: usize = 64;
/// Asked for in each direction: at 2 Gb/s some 30 ms of small datagrams with their bookkeeping.
const SOCKET_BUFFER_BYTES: libc::c_int = 16 << 20;
/// How often a message is tried again after an error that may pass.
const ATTEMPTS: usize = 3;
/// How long to wait for room in the send buffer before each attempt.
const ROOM_WAIT: Duration = Duration::from_millis(5);

/// A non-blocking UDP socket with arrival stamps and offload.
#[derive(Debug)]
pub(crate) struct Socket {
    inner: UdpSocket,
    /// Whether the kernel still takes super-packets.
    segmentation: Cell<bool>,
}

/// Room for one batch of received messages.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffers: Box<[[u8; BUFFER_BYTES]]>,
    /// Of the latest batch.
    messages: Vec<Message>,
}

/// A received datagram, or several that came as one super-packet.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    pub from: SocketAddr,
    pub payload: &'a [u8],
    /// Size of each datagram in `payload`; the last may be shorter. 0 if `payload` is empty.
    pub segment: usize,
    /// When the kernel got it, since the Unix epoch.
    pub stamp: Option<Duration>,
    /// Datagrams that this socket's buffer had no room for so far.
    pub overflowed: Option<u32>,
}

/// What the kernel took for sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub packets: u64,
    pub bytes: u64,
}

impl Socket {
    /// A socket bound to `address`.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket =
            socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        if address.is_ipv6() {
            // The system's default, unless its administrator chose otherwise.
            socket.set_only_v6(false)?;
        }
        socket.bind(&address.into())?;
        let socket = Socket { inner: socket.into(), segmentation: Cell::new(true) };
        for (force, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            // Only the administrator may exceed the system's maximum; others get that.
            if socket.set_option(libc::SOL_SOCKET, force, SOCKET_BUFFER_BYTES).is_err() {
                socket.set_option(libc::SOL_SOCKET, plain, SOCKET_BUFFER_BYTES)?;
            }
        }
        // The rest only makes the relay cheaper, more accurate or more talkative.
        let _ = socket.set_option(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
        let _ = socket.set_option(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
        let _ = socket.set_option(libc::SOL_UDP, libc::UDP_GRO, 1);
        Ok(socket)
    }

    /// From now on exchanges datagrams with `peer` only.
    pub(crate) fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.inner.connect(peer)
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Receives one batch into `inbox`. Returns how many messages that is; fewer than
    /// [`Inbox::MESSAGES`] means that there are no more for now.
    ///
    /// # Errors
    /// `WouldBlock` if there are none; else what the kernel says, ICMP errors of a connected socket
    /// among them.
    pub(crate) fn receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        inbox.messages.clear();
        // SAFETY: both are plain C data for which all zeros are valid.
        let (mut names, mut headers): (
            [libc::sockaddr_storage; MESSAGES],
            [libc::mmsghdr; MESSAGES],
        ) = unsafe { (mem::zeroed(), mem::zeroed()) };
        let mut controls = [Control::default(); MESSAGES];
        let mut slices = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MESSAGES];
        for (index, header) in headers.iter_mut().enumerate() {
            slices[index].iov_base = inbox.buffers[index].as_mut_ptr().cast();
            slices[index].iov_len = BUFFER_BYTES;
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut names[index]).cast();
            header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut slices[index];
            header.msg_iovlen = 1;
            header.msg_control = controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = mem::size_of::<Control>() as _;
        }
        // SAFETY: every header points to a name, a slice and a control buffer of the stated size
        // that outlive the call, and the slices to distinct buffers of `inbox`.
        let count = unsafe {
            libc::recvmmsg(
                self.inner.as_raw_fd(),
                headers.as_mut_ptr(),
                MESSAGES as _,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        inbox.messages.extend(headers[..count].iter().zip(&names).map(|(header, name)| Message {
            from: address(name),
            bytes: header.msg_len as usize,
            notes: Notes::of(&header.msg_hdr),
        }));
        Ok(count)
    }

    /// Sends `packets` in their order, to `to` or to the connected peer. Returns what the kernel
    /// took; the rest is gone.
    pub(crate) fn send<P: AsRef<[u8]>>(&self, to: Option<SocketAddr>, packets: &[P]) -> Sent {
        let to = to.map(SockAddr::from);
        let mut sent = Sent::default();
        let mut rest = packets;
        while !rest.is_empty() {
            let groups = self.group(rest);
            match self.send_groups(to.as_ref(), rest, &groups) {
                Ok(messages) => {
                    let (taken, others) = rest.split_at(groups[..messages].iter().sum());
                    sent.add(taken);
                    rest = others;
                }
                Err(_) => {
                    let (first, others) = rest.split_at(groups[0]);
                    self.send_stubbornly(to.as_ref(), first, &mut sent);
                    rest = others;
                }
            }
        }
        sent
    }

    /// How many packets go into each of the next messages.
    fn group<P: AsRef<[u8]>>(&self, packets: &[P]) -> Vec<usize> {
        let mut groups = Vec::with_capacity(MESSAGES);
        let mut rest = packets;
        while !rest.is_empty() && groups.len() < MESSAGES {
            let size = if self.segmentation.get() { segments(rest) } else { 1 };
            groups.push(size);
            rest = &rest[size..];
        }
        groups
    }

    /// Tries to send one group, in single packets if it cannot go as a super-packet.
    fn send_stubbornly<P: AsRef<[u8]>>(
        &self,
        to: Option<&SockAddr>,
        packets: &[P],
        sent: &mut Sent,
    ) {
        for _ in 0..ATTEMPTS {
            let Err(error) = self.send_groups(to, packets, &[packets.len()]) else {
                return sent.add(packets);
            };
            match error.raw_os_error() {
                // Segments too large for the interface, or no checksum offload there.
                Some(code @ (libc::EINVAL | libc::EMSGSIZE | libc::EIO)) if packets.len() > 1 => {
                    self.segmentation.set(code != libc::EIO);
                    for packet in packets.chunks(1) {
                        self.send_stubbornly(to, packet, sent);
                    }
                    return;
                }
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                    wait::for_room(self, ROOM_WAIT)
                }
                // A connected socket reports an ICMP error instead of sending, once; the others
                // are worth one more try as well.
                _ => {}
            }
        }
    }

    /// Sends messages of so many packets each. Returns how many messages went out, at least 1.
    fn send_groups<P: AsRef<[u8]>>(
        &self,
        to: Option<&SockAddr>,
        packets: &[P],
        groups: &[usize],
    ) -> io::Result<usize> {
        let groups = &groups[..groups.len().min(MESSAGES)];
        let total: usize = groups.iter().sum();
        let mut slices: Vec<libc::iovec> = packets[..total]
            .iter()
            .map(|packet| {
                let bytes = packet.as_ref();
                // The kernel only reads from it.
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
            })
            .collect();
        let mut controls = [Control::default(); MESSAGES];
        // SAFETY: plain C data for which all zeros are valid.
        let mut headers: [libc::mmsghdr; MESSAGES] = unsafe { mem::zeroed() };
        let mut slices = slices.as_mut_slice();
        for (index, size) in groups.iter().enumerate() {
            let (group, others) = slices.split_at_mut(*size);
            slices = others;
            let header = &mut headers[index].msg_hdr;
            if let Some(to) = to {
                header.msg_name = to.as_ptr().cast_mut().cast();
                header.msg_namelen = to.len();
            }
            if let [first, _, ..] = group {
                controls[index].announce_segments(header, first.iov_len as u16);
            }
            header.msg_iov = group.as_mut_ptr();
            header.msg_iovlen = group.len() as _;
        }
        // SAFETY: every header points to an address, to slices of living packets and to a control
        // buffer, all of the stated sizes, which outlive the call and are only read.
        let sent = unsafe {
            libc::sendmmsg(
                self.inner.as_raw_fd(),
                headers.as_mut_ptr(),
                groups.len() as _,
                libc::MSG_DONTWAIT as _,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    fn set_option(
        &self,
        level: libc::c_int,
        name: libc::c_int,
        value: libc::c_int,
    ) -> io::Result<()> {
        // SAFETY: the value is a living int and its size is stated.
        let result = unsafe {
            libc::setsockopt(
                self.inner.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                mem::size_of_val(&value) as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

impl<'a> Received<'a> {
    /// How many datagrams there are, at least one.
    pub(crate) fn count(&self) -> usize {
        self.payload.len().div_ceil(self.segment.max(1)).max(1)
    }

    /// The datagrams.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        // One without payload is a datagram, too, but no chunk.
        let empty = self.payload.is_empty().then_some(self.payload);
        self.payload.chunks(self.segment.max(1)).chain(empty)
    }
}

impl Sent {
    fn add<P: AsRef<[u8]>>(&mut self, packets: &[P]) {
        self.packets += packets.len() as u64;
        self.bytes += packets.iter().map(|packet| packet.as_ref().len() as u64).sum::<u64>();
    }
}

impl Inbox {
    /// Messages that one call receives at most.
    pub(crate) const MESSAGES: usize = MESSAGES;

    pub(crate) fn new() -> Self {
        let buffers = vec![[0; BUFFER_BYTES]; MESSAGES].into_boxed_slice();
        Inbox { buffers, messages: Vec::with_capacity(MESSAGES) }
    }

    /// The messages of the latest batch.
    pub(crate) fn messages(&self) -> impl Iterator<Item = Received<'_>> {
        self.buffers.iter().zip(&self.messages).filter_map(|(buffer, message)| {
            let payload = &buffer[..message.bytes];
            Some(Received {
                from: message.from?,
                payload,
                segment: message.notes.segment.unwrap_or(payload.len()),
                stamp: message.notes.stamp,
                overflowed: message.notes.overflowed,
            })
        })
    }
}

/// How many of the first packets can go as one super-packet: one size, the last one may be smaller.
fn segments<P: AsRef<[u8]>>(packets: &[P]) -> usize {
    let size = packets[0].as_ref().len();
    if size == 0 {
        return 1;
    }
    let most = (MESSAGE_BYTES_MAX / size).clamp(1, SEGMENTS_MAX).min(packets.len());
    let full = packets[..most].iter().take_while(|packet| packet.as_ref().len() == size).count();
    let tail = packets[..most].get(full).map_or(0, |packet| packet.as_ref().len());
    full + usize::from((1..size).contains(&tail))
}

/// Ancillary data of one message, aligned as its headers must be.
#[derive(Clone, Copy, Default)]
struct Control([u64; 16]);

impl Control {
    /// Makes `header` a super-packet of segments of `size` bytes.
    fn announce_segments(&mut self, header: &mut libc::msghdr, size: u16) {
        header.msg_control = self.0.as_mut_ptr().cast();
        // SAFETY: pure arithmetic on a size.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(mem::size_of::<u16>() as _) } as _;
        // SAFETY: the control buffer is aligned, zeroed and larger than the space just stated, so
        // the first header and its two bytes of data lie within it.
        unsafe {
            let note = libc::CMSG_FIRSTHDR(header);
            (*note).cmsg_level = libc::SOL_UDP;
            (*note).cmsg_type = libc::UDP_SEGMENT;
            (*note).cmsg_len = libc::CMSG_LEN(mem::size_of::<u16>() as _) as _;
            libc::CMSG_DATA(note).cast::<u16>().write_unaligned(size);
        }
    }
}

#[derive(Debug)]
struct Message {
    /// `None` for an address that is not IP.
    from: Option<SocketAddr>,
    bytes: usize,
    notes: Notes,
}

/// What the kernel notes about a received message.
#[derive(Debug, Default)]
struct Notes {
    segment: Option<usize>,
    stamp: Option<Duration>,
    overflowed: Option<u32>,
}

impl Notes {
    fn of(header: &libc::msghdr) -> Self {
        let mut notes = Notes::default();
        // SAFETY: `header` was filled by recvmmsg; its control buffer is still alive.
        let mut note = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !note.is_null() {
            // SAFETY: the macros return null or a header within the control buffer, and the kernel
            // wrote it completely.
            let (level, kind, length) =
                unsafe { ((*note).cmsg_level, (*note).cmsg_type, (*note).cmsg_len as usize) };
            match (level, kind) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size: Option<libc::c_int> = note_data(note, length);
                    notes.segment = size.and_then(|size| usize::try_from(size).ok());
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let stamp: Option<libc::timespec> = note_data(note, length);
                    notes.stamp = stamp.and_then(since_epoch);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    notes.overflowed = note_data(note, length);
                }
                _ => {}
            }
            // SAFETY: as above; `note` is a header within the control buffer of `header`.
            note = unsafe { libc::CMSG_NXTHDR(header, note) };
        }
        notes
    }
}

/// The data of a note of `length` bytes if they are a `T`. `T` is plain C data.
fn note_data<T: Copy>(note: *const libc::cmsghdr, length: usize) -> Option<T> {
    // SAFETY: pure arithmetic on a size.
    let expected = unsafe { libc::CMSG_LEN(mem::size_of::<T>() as _) } as usize;
    // SAFETY: the callers pass a header within a control buffer; its length says that a `T` of plain
    // integers follows, which need not be aligned.
    (length == expected).then(|| unsafe { libc::CMSG_DATA(note).cast::<T>().read_unaligned() })
}

fn since_epoch(stamp: libc::timespec) -> Option<Duration> {
    let seconds = u64::try_from(stamp.tv_sec).ok()?;
    Some(Duration::new(seconds, u32::try_from(stamp.tv_nsec).ok()?))
}

/// A name that the kernel wrote, as an address; `None` for other families than IP.
fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which structure this is, and the storage is large enough and
            // aligned for each.
            let name = unsafe { *(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { *(&raw const *name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            let address = SocketAddrV6::new(ip, port, name.sin6_flowinfo, name.sin6_scope_id);
            Some(address.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
