//! A network of namespaces at work.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farhaul_link::LinkStats;

use super::device::Addresses;
use super::fabric::Fabric;
use super::{Namespace, Topology, TunDevice, sys};
use crate::relay::Timing;

/// Hosts that a network may have: their numbers are the last byte of an address.
pub const MOST_HOSTS: usize = 250;
/// The hosts' networks, in ranges for private use (RFC 1918, RFC 4193).
const NETWORK_V4: [u8; 3] = [10, 77, 0];
const NETWORK_V6: u16 = 0xfd77;
const PREFIXES: (u8, u8) = (24, 64);

/// How a network carries packets.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// Everything random follows from this and from the order of the packets.
    pub seed: u64,
    /// The largest packet in bytes, headers of IP included, 68 at least; 1280 for IPv6. Default 1500.
    pub mtu: u16,
    /// Packets due within one tick may leave together, so times are kept to about a tick. Default
    /// 50 us.
    pub tick: Duration,
    /// The most that all links together hold, in bytes of memory; what comes beyond is dropped and counted.
    /// Default 512 MiB.
    pub max_held_bytes: u64,
}

/// Namespaces and the network between them, at work in a thread of its own. Dropping it ends the network.
#[derive(Debug)]
pub struct TunNetwork {
    hosts: Vec<Namespace>,
    stats: Arc<Mutex<NetworkStats>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Counters of a network since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Of each link, in the topology's order.
    pub links: Vec<LinkStats>,
    /// Of each host.
    pub hosts: Vec<HostStats>,
}

/// What a host's device has counted. IP packets, as on a wire with the network's MTU, unless the name says
/// bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStats {
    /// Sent by the host, to other hosts.
    pub received: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Handed to the host.
    pub sent: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Sent by the host, and dropped at the network's limit of memory.
    pub dropped_memory: u64,
    /// The host's kernel would not take them.
    pub dropped_send: u64,
    /// Sent by the host, and lost in the device because the emulator came late.
    pub overflowed: u64,
    /// Sent by the host to addresses to which there is no way.
    pub unroutable: u64,
    /// How well the packets that were handed to the host kept to the schedule.
    pub timing: Timing,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        let tick = Duration::from_micros(50);
        NetworkConfig { seed: 0, mtu: 1500, tick, max_held_bytes: 512 << 20 }
    }
}

impl TunNetwork {
    /// Makes a namespace for each host and starts to carry packets.
    ///
    /// # Errors
    /// If there are more than [`MOST_HOSTS`], or namespaces or TUN devices are not permitted here; the text says
    /// which.
    pub fn open(topology: &Topology, config: &NetworkConfig) -> io::Result<TunNetwork> {
        if topology.hosts.len() > MOST_HOSTS {
            let text = format!("{} hosts are more than {MOST_HOSTS}", topology.hosts.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let hosts: Vec<Namespace> =
            topology.hosts.iter().map(|_| Namespace::create()).collect::<io::Result<_>>()?;
        let device = |(number, namespace): (usize, &Namespace)| {
            let (v4, v6) = addresses(number);
            let addresses = Addresses { v4, v6, prefixes: PREFIXES };
            TunDevice::open(namespace, "wan0", addresses, config.mtu).map(Arc::new)
        };
        let devices: Vec<_> = hosts.iter().enumerate().map(device).collect::<io::Result<_>>()?;
        let stats = Arc::new(Mutex::new(NetworkStats::empty(topology)));
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let limits = (config.seed, config.tick, config.max_held_bytes);
        let links = topology.links.len();
        let mut fabric = Fabric::new(topology, &devices, limits, Arc::clone(&stats));
        let thread = thread::Builder::new().name("farhaul-router".to_owned()).spawn(move || {
            // A network takes no processor from those who use it, and waits for none.
            sys::hurry();
            fabric.run(links, &told)
        })?;
        Ok(TunNetwork { hosts, stats, stop, thread: Some(thread) })
    }

    /// The hosts' namespaces, in the topology's order.
    pub fn hosts(&self) -> &[Namespace] {
        &self.hosts
    }

    /// What the network has counted so far.
    pub fn stats(&self) -> NetworkStats {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the network and returns what it counted. What is under way is lost.
    ///
    /// # Errors
    /// If the network had ended with an error before.
    pub fn stop(mut self) -> io::Result<NetworkStats> {
        self.join()?;
        Ok(self.stats())
    }

    fn join(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the router's thread panicked")))
    }
}

impl Drop for TunNetwork {
    fn drop(&mut self) {
        // Who wants to know of an error calls `stop`.
        let _ = self.join();
    }
}

impl HostStats {
    /// Whether what was emulated is the network that was asked for: nothing that the host has sent was lost for want
    /// of a processor or memory, and no more than one packet in a hundred reached it more than half a
    /// millisecond late.
    pub fn time_kept(&self) -> bool {
        self.overflowed + self.dropped_memory == 0 && self.timing.keeps_time()
    }

    /// What has been counted since `earlier`, a former state of this.
    fn since(&self, earlier: &HostStats) -> HostStats {
        HostStats {
            received: self.received - earlier.received,
            received_bytes: self.received_bytes - earlier.received_bytes,
            sent: self.sent - earlier.sent,
            sent_bytes: self.sent_bytes - earlier.sent_bytes,
            dropped_memory: self.dropped_memory - earlier.dropped_memory,
            dropped_send: self.dropped_send - earlier.dropped_send,
            overflowed: self.overflowed - earlier.overflowed,
            unroutable: self.unroutable - earlier.unroutable,
            timing: self.timing.since(&earlier.timing),
        }
    }
}

impl NetworkStats {
    /// What has been counted since `earlier`, a former state of the same network. What is under way is that of
    /// now, and the most that there was in a queue is that of all time.
    pub fn since(&self, earlier: &NetworkStats) -> NetworkStats {
        let links = self.links.iter().zip(&earlier.links);
        let hosts = self.hosts.iter().zip(&earlier.hosts);
        NetworkStats {
            links: links.map(|(now, earlier)| now.since(earlier)).collect(),
            hosts: hosts.map(|(now, earlier)| now.since(earlier)).collect(),
        }
    }

    /// Whether the network was as asked for all its hosts.
    pub fn time_kept(&self) -> bool {
        self.hosts.iter().all(HostStats::time_kept)
    }

    fn empty(topology: &Topology) -> Self {
        NetworkStats {
            links: vec![LinkStats::default(); topology.links.len()],
            hosts: vec![HostStats::default(); topology.hosts.len()],
        }
    }
}

/// The addresses of a host by its number, from zero on.
pub fn addresses(number: usize) -> (Ipv4Addr, Ipv6Addr) {
    let [a, b, c] = NETWORK_V4;
    let last = number as u8 + 1;
    (Ipv4Addr::new(a, b, c, last), Ipv6Addr::new(NETWORK_V6, 0, 0, 0, 0, 0, 0, last.into()))
}

/// The number of the host that has an address.
pub(super) fn host_number(address: IpAddr) -> Option<usize> {
    let last = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    let number = usize::from(last).checked_sub(1)?;
    let (v4, v6) = addresses(number);
    (address == IpAddr::V4(v4) || address == IpAddr::V6(v6)).then_some(number)
}

#[cfg(test)]
mod tests {
    use farhaul_base::Time;

    use super::*;

    #[test]
    fn a_stall_shows_in_its_second_and_in_its_host() {
        let host = HostStats { received: 100, ..HostStats::default() };
        let first = NetworkStats { links: vec![LinkStats::default()], hosts: vec![host; 2] };
        let mut second = first.clone();
        second.hosts[1].received += 50;
        second.hosts[1].timing.note(Time::ZERO, Time::from_millis(3));
        let between = second.since(&first);
        assert_eq!((between.hosts[0].received, between.hosts[1].received), (0, 50));
        assert!(between.hosts[0].time_kept() && !between.time_kept());
        assert!(first.time_kept() && second.since(&second).time_kept());
    }

    #[test]
    fn hosts_are_found_by_their_addresses() {
        for number in [0, 1, MOST_HOSTS - 1] {
            let (v4, v6) = addresses(number);
            assert_eq!(host_number(v4.into()), Some(number));
            assert_eq!(host_number(v6.into()), Some(number));
        }
        for other in ["10.77.0.0", "10.78.0.1", "127.0.0.1", "ff02::1", "fe80::1", "::"] {
            assert_eq!(host_number(other.parse().unwrap()), None, "{other}");
        }
    }
}
