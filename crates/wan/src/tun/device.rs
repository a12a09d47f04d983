//! A network device whose cable ends in this process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use super::sys::{self, Settings};
use super::{Namespace, context, netlink};

/// Packets that may wait to be read: what a TCP sender has under way on a fast path, sent at once.
/// The default of 500 would be a narrower queue than the one that is emulated.
const QUEUE_PACKETS: u32 = 20_000;
/// The least MTU over which the kernel speaks IPv6 (RFC 8200 §5).
const IPV6_MTU_MIN: u16 = 1280;
/// Which field behind the device's name in `/proc/net/dev` counts what it dropped when sending.
const DROPPED_FIELD: usize = 11;

/// A TUN device: what its namespace sends is read here, and what is written here its namespace
/// receives. A call carries one IP packet or a super-packet, with a virtio header in front
/// ([`Frame`](super::Frame)).
#[derive(Debug)]
pub struct TunDevice {
    file: File,
    name: String,
    /// `/proc/net/dev` of its namespace.
    devices: Option<File>,
}

/// The addresses of a device, and how many bits of them are its network's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// For IPv4.
    pub v4: Ipv4Addr,
    /// For IPv6.
    pub v6: Ipv6Addr,
    /// Bits of the networks: of all that the device reaches.
    pub prefixes: (u8, u8),
}

impl TunDevice {
    /// Makes a device in `namespace`, in service, with its addresses. Below an MTU of 1280 bytes there is no
    /// IPv6.
    ///
    /// `name` has 1 to 15 bytes; `mtu` is the largest packet in bytes, headers of IP included, 68 at
    /// least.
    ///
    /// # Errors
    /// If `/dev/net/tun` is missing or closed to this process, or the namespace is not its own.
    pub fn open(
        namespace: &Namespace,
        name: &str,
        addresses: Addresses,
        mtu: u16,
    ) -> io::Result<TunDevice> {
        namespace.run(|| {
            const TUN: &str = "/dev/net/tun";
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
            let file = options.open(TUN).map_err(|e| context(TUN, &e))?;
            sys::attach_tun(&file, name).map_err(|e| context("a TUN device cannot be made", &e))?;
            sys::take_super_packets(&file, true)
                .or_else(|_| sys::take_super_packets(&file, false))
                .map_err(|e| context("the device cannot take super-packets", &e))?;
            let settings = Settings::open()?;
            settings
                .set_mtu(name, mtu)
                .map_err(|e| context(&format!("an MTU of {mtu} is not possible"), &e))?;
            netlink::set_queue_length(name, QUEUE_PACKETS)
                .map_err(|e| context("the device's queue cannot be set", &e))?;
            keep_silent(name);
            let refused = |e| context("the device cannot be configured", &e);
            let index = settings.index(name).map_err(refused)?;
            let (v4, v6) = addresses.prefixes;
            netlink::add_address(index, addresses.v4.into(), v4).map_err(refused)?;
            settings.set_up(name).map_err(refused)?;
            if mtu >= IPV6_MTU_MIN && has_ipv6() {
                netlink::add_address(index, addresses.v6.into(), v6).map_err(refused)?;
            }
            let devices = File::open("/proc/thread-self/net/dev").ok();
            Ok(TunDevice { file, name: name.to_owned(), devices })
        })?
    }

    /// Reads what the namespace has sent: a virtio header and a packet, `buffer` should have room for
    /// 10 and 65,535 bytes; what does not fit is cut off. Its length.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is nothing.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Writes a virtio header and a packet, in pieces, which the namespace receives at once.
    ///
    /// # Errors
    /// If the kernel does not take it: it is no IP packet, or there is no memory.
    pub fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        (&self.file).write_vectored(pieces).map(|_| ())
    }

    /// How many packets the namespace sent that were dropped because too many waited to be read.
    pub fn overflowed(&self) -> u64 {
        let mut buffer = [0; 4096];
        let length = self.devices.as_ref().and_then(|file| file.read_at(&mut buffer, 0).ok());
        let table = String::from_utf8_lossy(&buffer[..length.unwrap_or(0)]);
        dropped(&table, &self.name).unwrap_or(0)
    }
}

impl AsRawFd for TunDevice {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// What the device `name` dropped when sending, by a table in the form of `/proc/net/dev`.
fn dropped(table: &str, name: &str) -> Option<u64> {
    let fields =
        table.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
    fields.split_whitespace().nth(DROPPED_FIELD)?.parse().ok()
}

/// The kernel's own search for neighbours and routers would use up losses that a seed has planned for
/// others.
fn keep_silent(name: &str) {
    // No address but those given, no routers asked for. Where there is no IPv6 there is nothing to set.
    for (parameter, value) in
        [("addr_gen_mode", "1"), ("accept_ra", "0"), ("router_solicitations", "0")]
    {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/{parameter}"), value);
    }
}

/// Whether the calling thread's namespace speaks IPv6.
fn has_ipv6() -> bool {
    let disabled = fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6");
    disabled.is_ok_and(|text| text.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_found_by_the_devices_name() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
                     lo:       1       2    3    4    5     6          7         8        9      10   11   12   13    14      15         16\n  \
                     wan0: 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107\n";
        assert_eq!(dropped(table, "wan0"), Some(103));
        assert_eq!(dropped(table, "lo"), Some(12));
        assert_eq!(dropped(table, "wan"), None);
    }
}
