//! Ancillary data of a message: building and walking it.

use core::mem::size_of;

/// Room for the ancillary data of one message: a segment size and an arrival stamp.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct ControlBuffer(pub [u8; 128]);

impl ControlBuffer {
    pub const fn new() -> Self {
        ControlBuffer([0; 128])
    }
}

/// Writes one item at the start of the buffer and lets `header` carry it.
pub fn put_u16(header: &mut libc::msghdr, buffer: &mut ControlBuffer, kind: i32, value: u16) {
    header.msg_control = buffer.0.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE only computes a length.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as _;
    // SAFETY: `msg_control` points to 128 aligned bytes, and `msg_controllen` is not more than
    // that, so that CMSG_FIRSTHDR returns the start of the buffer, with room for the header and
    // two bytes behind it.
    unsafe {
        let item = libc::CMSG_FIRSTHDR(header);
        (*item).cmsg_level = libc::SOL_UDP;
        (*item).cmsg_type = kind;
        (*item).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
        libc::CMSG_DATA(item).cast::<u16>().write_unaligned(value);
    }
}

/// What the kernel said about a message received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ancillary {
    /// Bytes of each datagram in a receive-offload buffer.
    pub segment: Option<usize>,
    /// What the network said of a datagram that was sent.
    pub error: Option<NetworkError>,
    /// Arrival on the system's real-time clock: nanoseconds since its epoch.
    pub arrival_ns: Option<u64>,
}

/// What an item of the error queue says (`sock_extended_err` of linux/errqueue.h).
#[derive(Clone, Copy, Debug)]
pub struct NetworkError {
    /// Who found the error: this host, or another by ICMP.
    pub origin: u8,
    /// Type and code of ICMP.
    pub kind: u8,
    pub code: u8,
}

/// Reads the items that the kernel has attached to `header`.
pub fn read(header: &libc::msghdr) -> Ancillary {
    let mut out = Ancillary::default();
    // SAFETY: `header` was filled by the kernel: `msg_control` points to `msg_controllen` bytes of
    // a ControlBuffer that lives as long as `header` is used.
    let mut item = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !item.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return null or an item that lies, with its header,
        // within the buffer; the kernel writes items whole.
        unsafe {
            match ((*item).cmsg_level, (*item).cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = libc::CMSG_DATA(item).cast::<libc::c_int>().read_unaligned();
                    out.segment = usize::try_from(size).ok();
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let at = libc::CMSG_DATA(item).cast::<libc::timespec>().read_unaligned();
                    out.arrival_ns = u64::try_from(at.tv_sec)
                        .ok()
                        .map(|s| s.saturating_mul(1_000_000_000).saturating_add(at.tv_nsec as u64));
                }
                (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {
                    let error =
                        libc::CMSG_DATA(item).cast::<libc::sock_extended_err>().read_unaligned();
                    let (origin, kind) = (error.ee_origin, error.ee_type);
                    out.error = Some(NetworkError { origin, kind, code: error.ee_code });
                }
                _ => {}
            }
            item = libc::CMSG_NXTHDR(header, item);
        }
    }
    out
}
