//! System calls for namespaces and TUN devices that have no safe wrapper.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Priority (nice value) of what must not be late.
const HURRIED: libc::c_int = -15;

/// Moves the calling thread into new namespaces of these kinds.
pub(super) fn unshare(kinds: libc::c_int) -> io::Result<()> {
    // SAFETY: takes one integer and touches no memory of this process. The standard library keeps
    // no state that namespaces of network or user would make wrong.
    check(unsafe { libc::unshare(kinds) })
}

/// Moves the calling thread into an existing network namespace.
pub(super) fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes two integers; the descriptor is borrowed, so it is open.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Sends `signal` to the process `id`. False if there is none any more, or it may not be told.
pub(super) fn signal(id: i32, signal: libc::c_int) -> bool {
    // SAFETY: takes two integers and touches no memory of this process.
    check(unsafe { libc::kill(id, signal) }).is_ok()
}

/// Lets the calling thread run before others, if it may: as a real-time thread of the lowest priority, or else
/// as a nice one. It must leave the processor of its own accord; the kernel takes 5% of its time for others.
pub(super) fn hurry() {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the parameters are living and only read; 0 is the calling thread.
    let real_time = check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) });
    if real_time.is_ok() {
        return;
    }
    // SAFETY: takes three integers and touches no memory of this process. On Linux a priority is one
    // of a thread.
    let _ = check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, HURRIED) });
}

/// The effective user and group.
pub(super) fn user_and_group() -> (u32, u32) {
    // SAFETY: these calls take nothing, touch no memory and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Makes `file`, a freshly opened `/dev/net/tun`, the far side of a new TUN device `name` in the
/// calling thread's namespace: IP packets with a virtio header in front.
pub(super) fn attach_tun(file: &File, name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ioctl(file.as_fd(), libc::TUNSETIFF as libc::c_ulong, &mut request)
}

/// Has the namespace of a TUN device leave checksums and segmentation to the reader of `file`: of TCP, and
/// of UDP where `udp` says so, which kernels before 6.2 refuse.
pub(super) fn take_super_packets(file: &File, udp: bool) -> io::Result<()> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    let features = tcp | if udp { libc::TUN_F_USO4 | libc::TUN_F_USO6 } else { 0 };
    // SAFETY: this call takes an integer in place of a pointer and touches no memory of this process; the
    // descriptor is borrowed, so it is open.
    check(unsafe {
        libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(features))
    })
}

/// Settings of network devices in the namespace where it was opened.
#[derive(Debug)]
pub(super) struct Settings {
    socket: UdpSocket,
}

impl Settings {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Settings { socket: UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))? })
    }

    /// The device's number in its namespace.
    pub(super) fn index(&self, name: &str) -> io::Result<u32> {
        let mut request = request(name)?;
        self.set(libc::SIOCGIFINDEX, &mut request)?;
        // SAFETY: the call above has stored the number in this member.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
    }

    /// The largest packet, bytes.
    pub(super) fn set_mtu(&self, name: &str, bytes: u16) -> io::Result<()> {
        let mut request = request(name)?;
        request.ifr_ifru.ifru_mtu = bytes.into();
        self.set(libc::SIOCSIFMTU, &mut request)
    }

    /// Puts the device into service.
    pub(super) fn set_up(&self, name: &str) -> io::Result<()> {
        let mut request = request(name)?;
        self.set(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: the call above has stored the flags in this member.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
        self.set(libc::SIOCSIFFLAGS, &mut request)
    }

    fn set(&self, call: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        ioctl(self.socket.as_fd(), call, request)
    }
}

/// A request about the device `name`, its value zero.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain C data, for which all zeros are a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero: the kernel wants an end.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("device name '{name}'")));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn ioctl(file: BorrowedFd<'_>, call: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every call used here reads and writes at most one `ifreq`, which is exclusively
    // borrowed; the descriptor is borrowed, so it is open.
    check(unsafe { libc::ioctl(file.as_raw_fd(), call as _, &raw mut *request) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_are_refused() {
        assert!(request("wan0").is_ok());
        assert!(request("fifteen-letters").is_ok());
        for bad in ["", "sixteen--letters", "a\0b"] {
            assert_eq!(request(bad).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{bad:?}");
        }
    }
}
