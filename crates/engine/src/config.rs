//! Options of a connection.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use farhaul_control::Spec;
use farhaul_wire::{AckSeq, HEADER_LEN, Seq};

use crate::invitation::Invitation;
use crate::receive::ReorderTolerance;

/// Bytes of IPv4 and UDP headers: what the protocol takes off the MSS, over IPv6 as well.
const IPV4_UDP_HEADERS: u32 = 28;
/// Bytes that an IPv6 header is longer by.
const IPV6_EXTRA: u32 = 20;
/// The lowest limit of the sending rate, bits/s.
pub(crate) const MIN_BANDWIDTH: u64 = 8_000;
/// Share of the receive memory that packets may take; the rest is for buffers held in part.
const RECEIVE_SHARE: usize = 2;

/// How data is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A stream of bytes.
    #[default]
    Stream,
    /// Messages: whole, at most once, with a time to live and optionally in order.
    Message,
}

/// Options of a connection. Both sides of a connection may differ in all but the mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Maximum segment size: bytes of a full packet with its IP and UDP headers, hence the MTU of
    /// the path. 96 to 65535; 1500. The smaller of both sides' counts. Less costs calls and
    /// cycles a byte, more is lost where the path's MTU is smaller.
    pub mss: u32,
    /// Stream or messages.
    pub mode: Mode,
    /// Most packets the peer may have in flight towards this side; none: as many as
    /// [`Config::receive_memory`] allows. 32 and up. The flow window follows the
    /// bandwidth-delay product by itself below this.
    pub flow_window: Option<u32>,
    /// Bytes that unacknowledged and unsent data may take; 256 MiB. The buffer follows the
    /// windows by itself below this.
    pub send_memory: usize,
    /// Bytes that received data may take until it is read; 512 MiB, half of it for the data
    /// itself, but room for 32 full packets at least. What is not needed is not used.
    pub receive_memory: usize,
    /// So much of it a peer gets that has only shown its address, until
    /// [`Connection::welcome`](crate::Connection::welcome); none: all of it at once. For those who
    /// authenticate their peers.
    pub stranger_memory: Option<usize>,
    /// Congestion control law.
    pub law: Spec,
    /// Most bits/s to send, with all headers, from 8000 on; none: no limit.
    pub max_bandwidth: Option<u64>,
    /// How long closing waits for data to be acknowledged; 180 s.
    pub linger: Duration,
    /// How long connecting may take; 3 s until the first answer and then twice as long as that took, and 30 s for a
    /// rendezvous.
    pub connect_timeout: Option<Duration>,
    /// The peer counts as gone when nothing has come from it for so long; 45 s.
    pub peer_timeout: Duration,
    /// Silence after which a sign of life is sent; 3 s. A stock peer gives up after 46 s.
    pub keep_alive: Duration,
    /// What a listener takes from clients that were told of it elsewhere in place of a cookie, and what such a client
    /// says at once instead of asking for one: that saves a round trip. A client that is not understood asks for a cookie
    /// after all.
    pub invitation: Option<Invitation>,
    /// Both sides connect to each other.
    pub rendezvous: bool,
    /// How much reordering is not taken for loss; adaptive, up to 256 packets.
    pub reorder_tolerance: ReorderTolerance,
    /// Packets that this host can take at once without losing some, however short the path: what
    /// its kernel's receive buffer holds. The connections of a port that receive share them, and
    /// none takes more than 720, a mebibyte, for the cache's sake. 720.
    pub burst_room: u32,
    /// Packets that one send call takes at most. 1 to 64.
    pub max_segments: u32,
    /// A flow that has but a few packets under way on a path that loses many of them spaces them as
    /// TCP would, whatever its law wants. Without that, flows of a law that knows no such limit take a thin link
    /// from others and fill it with packets that are lost: `false` is for measurements of such laws,
    /// on paths of one's own.
    pub back_off: bool,
    /// Where counters start.
    pub origins: Origins,
}

/// Where the counters of a connection start. They all wrap; tests start them just before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// Initial sequence number; none: random.
    pub isn: Option<Seq>,
    /// Microseconds on the clock of data packets.
    pub timestamp: u32,
    /// Running number of the first message, 0 for message number 1.
    pub message: u32,
    /// The first ACK sequence number; none: 1.
    pub ack: Option<AckSeq>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mss: 1500,
            mode: Mode::Stream,
            flow_window: None,
            send_memory: 256 << 20,
            receive_memory: 512 << 20,
            stranger_memory: None,
            law: Spec::default(),
            max_bandwidth: None,
            linger: Duration::from_secs(180),
            connect_timeout: None,
            peer_timeout: Duration::from_secs(45),
            keep_alive: Duration::from_secs(3),
            invitation: None,
            rendezvous: false,
            reorder_tolerance: ReorderTolerance::Adaptive(256),
            burst_room: 720,
            max_segments: 64,
            back_off: true,
            origins: Origins::default(),
        }
    }
}

impl Config {
    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// Names the first option out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let checks = [
            ("mss", u64::from(self.mss), 96, 65_535),
            ("flow_window", u64::from(self.flow_window.unwrap_or(32)), 32, 1 << 24),
            ("send_memory", self.send_memory as u64, 64 << 10, 1 << 40),
            ("receive_memory", self.receive_memory as u64, 128 << 10, 1 << 40),
            ("max_bandwidth", self.max_bandwidth.unwrap_or(u64::MAX), MIN_BANDWIDTH, u64::MAX),
            (
                "stranger_memory",
                self.stranger_memory.unwrap_or(128 << 10) as u64,
                128 << 10,
                1 << 40,
            ),
            ("burst_room", u64::from(self.burst_room), 2, 1 << 24),
            ("max_segments", u64::from(self.max_segments), 1, 64),
            ("peer_timeout in ms", self.peer_timeout.as_millis() as u64, 100, u64::MAX),
            ("keep_alive in ms", self.keep_alive.as_millis() as u64, 10, u64::MAX),
        ];
        for (option, value, min, max) in checks {
            if !(min..=max).contains(&value) {
                return Err(ConfigError { option, value, min, max });
            }
        }
        Ok(())
    }

    /// The MSS as the protocol counts it towards `peer`: it takes 28 bytes off for headers whatever
    /// the IP version, so that over IPv6 the announced value is smaller by the difference, or
    /// packets would exceed the MTU.
    pub(crate) fn wire_mss(&self, peer: IpAddr) -> u32 {
        if is_ipv6(peer) { self.mss - IPV6_EXTRA } else { self.mss }
    }

    /// Bytes of the largest message between two ends with these options, over IPv4: it fits the one's
    /// send buffer and the other's flow window.
    pub fn largest_message(&self) -> usize {
        let window = self.receive_capacity(self.mss) as usize * payload_size(self.mss);
        window.min(self.send_memory)
    }

    /// Packets that fit the receive memory.
    pub(crate) fn receive_capacity(&self, wire_mss: u32) -> u32 {
        self.capacity_of(self.receive_memory, wire_mss)
    }

    /// Packets that fit what a peer gets that is not known yet.
    pub(crate) fn stranger_capacity(&self, wire_mss: u32) -> u32 {
        let memory = self.stranger_memory.unwrap_or(usize::MAX);
        self.capacity_of(memory.min(self.receive_memory), wire_mss)
    }

    fn capacity_of(&self, memory: usize, wire_mss: u32) -> u32 {
        let packets = memory / RECEIVE_SHARE / payload_size(wire_mss);
        let limit = self.flow_window.unwrap_or(1 << 24);
        (packets.min(1 << 24) as u32).min(limit).max(32)
    }
}

/// Whether packets to this address carry an IPv6 header.
pub(crate) fn is_ipv6(peer: IpAddr) -> bool {
    matches!(peer, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_none())
}

/// Payload bytes of a full packet.
pub(crate) fn payload_size(wire_mss: u32) -> usize {
    (wire_mss - IPV4_UDP_HEADERS) as usize - HEADER_LEN
}

/// The smallest MSS that a peer may ask for: the stock library's own.
pub(crate) const MIN_WIRE_MSS: u32 = 76;

/// An option out of range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    option: &'static str,
    value: u64,
    min: u64,
    max: u64,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { option, value, min, max } = self;
        if *max == u64::MAX {
            write!(f, "{option} is {value}, must be {min} or more")
        } else {
            write!(f, "{option} is {value}, must be {min} to {max}")
        }
    }
}

impl core::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn defaults_are_valid_and_ranges_named() {
        assert_eq!(Config::default().validate(), Ok(()));
        let bad = Config { mss: 20, ..Config::default() };
        assert_eq!(bad.validate().unwrap_err().to_string(), "mss is 20, must be 96 to 65535");
        let bad = Config { max_bandwidth: Some(1), ..Config::default() };
        assert!(bad.validate().unwrap_err().to_string().ends_with("must be 8000 or more"));
    }

    #[test]
    fn ipv6_leaves_room_for_its_longer_header() {
        let config = Config::default();
        assert_eq!(config.wire_mss(Ipv4Addr::LOCALHOST.into()), 1500);
        assert_eq!(config.wire_mss(Ipv6Addr::LOCALHOST.into()), 1480);
        assert_eq!(config.wire_mss(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into()), 1500);
        assert_eq!(payload_size(1500), 1456);
    }
}
