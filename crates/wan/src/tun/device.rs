//! A network device whose cable ends in this process.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use super::sys::{self, Settings};
use super::{Namespace, context, netlink};

/// Packets that may wait to be read: what a TCP sender has under way on a fast path, sent at once.
/// The default of 500 would be a narrower queue than the one that is emulated.
const QUEUE_PACKETS: u32 = 20_000;

/// A TUN device: what its namespace sends is read here, and what is written here its namespace
/// receives. One IP packet a call.
#[derive(Debug)]
pub struct TunDevice {
    file: File,
}

impl TunDevice {
    /// Makes a point-to-point device in `namespace`, in service, with addresses for IPv4.
    ///
    /// `name` has 1 to 15 bytes; `mtu` is the largest packet in bytes, headers of IP included, 68 at
    /// least.
    ///
    /// # Errors
    /// If `/dev/net/tun` is missing or closed to this process, or the namespace is not its own.
    pub fn open(
        namespace: &Namespace,
        name: &str,
        local: Ipv4Addr,
        peer: Ipv4Addr,
        mtu: u16,
    ) -> io::Result<TunDevice> {
        namespace.run(|| {
            const TUN: &str = "/dev/net/tun";
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
            let file = options.open(TUN).map_err(|e| context(TUN, &e))?;
            sys::attach_tun(&file, name).map_err(|e| context("a TUN device cannot be made", &e))?;
            let settings = Settings::open()?;
            settings
                .set_mtu(name, mtu)
                .map_err(|e| context(&format!("an MTU of {mtu} is not possible"), &e))?;
            netlink::set_queue_length(name, QUEUE_PACKETS)
                .map_err(|e| context("the device's queue cannot be set", &e))?;
            // The kernel's own search for neighbours and routers would use up losses that a seed
            // has planned for others. Where there is no IPv6 there is nothing to switch off.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
            let refused = |e| context("the device cannot be configured", &e);
            settings.set_addresses(name, local, peer).map_err(refused)?;
            settings.set_up(name).map_err(refused)?;
            Ok(TunDevice { file })
        })?
    }

    /// Reads a packet that the namespace has sent; what does not fit into `buffer` is cut off. Its
    /// length.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Writes a packet, which the namespace receives at once.
    ///
    /// # Errors
    /// If the kernel does not take it: it is no IP packet, or there is no memory.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(|_| ())
    }
}

impl AsRawFd for TunDevice {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
