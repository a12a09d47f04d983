//! The queue in front of the transmitter.
//!
//! Tail drop: a packet that does not fit is dropped, the others leave in their order. Queues that
//! choose otherwise (RED, CoDel) belong here as further kinds.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;

use crate::stats::QueueDepth;
use crate::{ParseError, Rate, parse_duration, parse_size};

/// How much the queue of a link holds, the packet in transmission included.
///
/// (ns-2 and many routers do not count the packet in transmission; their queue of n packets is
/// n + 1 here.) An idle link takes any packet, so that a limit below one packet does not cut the
/// link but leaves it without a queue.
///
/// Written `unlimited`, `100p` or `100` (packets), `64kB` (bytes), `bdp:80ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueConfig {
    /// Everything. Its user must bound the memory some other way.
    #[default]
    Unlimited,
    /// This many packets, 0 meaning 1.
    Packets(u32),
    /// This many bytes, as [`wire_len`](crate::Packet::wire_len) counts them.
    Bytes(u64),
    /// The bytes of the rate times this round-trip time, and at least 15,000, which is ten packets
    /// of 1500 bytes. Without a rate the product has no bound, and neither has the queue.
    Bdp {
        /// Round-trip time of the path that the queue is made for.
        rtt: Duration,
    },
}

/// Packets that wait, oldest first, and the account of what the link holds.
#[derive(Clone, Debug)]
pub(crate) struct Queue<P> {
    waiting: VecDeque<Queued<P>>,
    limit: Limit,
    depth: QueueDepth,
    /// When `depth` last changed.
    changed_at: Time,
}

/// A packet with the size it was admitted with, so that it leaves the account as it entered.
#[derive(Clone, Debug)]
pub(crate) struct Queued<P> {
    pub packet: P,
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    packets: u64,
    bytes: u64,
}

impl QueueConfig {
    /// The least that a queue of the bandwidth-delay product holds: ten packets of 1500 bytes.
    pub const BDP_MIN_BYTES: u64 = 15_000;

    /// As [`FromStr`], and `bdp` alone means the product with `rtt`.
    ///
    /// # Errors
    /// If the text is none of the forms above.
    pub fn parse(text: &str, rtt: Duration) -> Result<Self, ParseError> {
        if text.trim() == "bdp" { Ok(QueueConfig::Bdp { rtt }) } else { text.parse() }
    }

    /// The limit in bytes on a link of `rate`; `None` if there is none or it counts packets.
    pub fn limit_bytes(self, rate: Option<Rate>) -> Option<u64> {
        match self {
            QueueConfig::Unlimited | QueueConfig::Packets(_) => None,
            QueueConfig::Bytes(bytes) => Some(bytes),
            QueueConfig::Bdp { rtt } => Some(rate?.bytes_within(rtt).max(Self::BDP_MIN_BYTES)),
        }
    }
}

impl<P> Queue<P> {
    pub(crate) fn new(config: QueueConfig, rate: Option<Rate>) -> Self {
        let packets = match config {
            QueueConfig::Packets(packets) => u64::from(packets),
            _ => u64::MAX,
        };
        let bytes = config.limit_bytes(rate).unwrap_or(u64::MAX);
        Queue {
            waiting: VecDeque::new(),
            limit: Limit { packets, bytes },
            depth: QueueDepth::default(),
            changed_at: Time::ZERO,
        }
    }

    /// Whether a packet of `bytes` may enter now.
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        self.depth.packets == 0
            || (self.depth.packets < self.limit.packets
                && self.depth.bytes.saturating_add(bytes as u64) <= self.limit.bytes)
    }

    /// Accounts for a packet that enters, to wait or to be transmitted at once.
    pub(crate) fn enter(&mut self, at: Time, bytes: usize) {
        self.pass_time(at);
        self.depth.packets += 1;
        self.depth.bytes += bytes as u64;
        self.depth.packets_max = self.depth.packets_max.max(self.depth.packets);
        self.depth.bytes_max = self.depth.bytes_max.max(self.depth.bytes);
    }

    /// Accounts for a packet whose transmission has ended.
    pub(crate) fn leave(&mut self, at: Time, bytes: usize) {
        self.pass_time(at);
        self.depth.packets -= 1;
        self.depth.bytes -= bytes as u64;
    }

    pub(crate) fn push(&mut self, packet: Queued<P>) {
        self.waiting.push_back(packet);
    }

    pub(crate) fn pop(&mut self) -> Option<Queued<P>> {
        self.waiting.pop_front()
    }

    /// Brings the time average of the depth up to `now`.
    pub(crate) fn pass_time(&mut self, now: Time) {
        // An offer may be dated before what has been settled; its span has been counted already.
        let span = now.nanos_since(self.changed_at);
        self.depth.packet_nanos += u128::from(self.depth.packets) * u128::from(span);
        self.changed_at = self.changed_at.max(now);
    }

    pub(crate) fn depth(&self) -> QueueDepth {
        self.depth
    }
}

impl FromStr for QueueConfig {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "a queue (write unlimited, 100p, 64kB or bdp:80ms)");
        let trimmed = text.trim();
        if trimmed == "unlimited" {
            return Ok(QueueConfig::Unlimited);
        }
        if trimmed == "bdp" {
            let expected = "complete: a queue of the bandwidth-delay product needs the round-trip \
                            time (write bdp:80ms)";
            return Err(ParseError::new(text, expected));
        }
        if let Some(rtt) = trimmed.strip_prefix("bdp:") {
            return Ok(QueueConfig::Bdp { rtt: parse_duration(rtt)? });
        }
        if trimmed.ends_with('B') {
            return Ok(QueueConfig::Bytes(parse_size(trimmed)?));
        }
        let packets = trimmed.strip_suffix('p').unwrap_or(trimmed);
        packets.parse().map(QueueConfig::Packets).map_err(|_| error())
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for QueueConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueConfig::Unlimited => f.write_str("unlimited"),
            QueueConfig::Packets(packets) => write!(f, "{packets}p"),
            QueueConfig::Bytes(bytes) => write!(f, "{bytes}B"),
            QueueConfig::Bdp { rtt } => write!(f, "bdp:{rtt:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let rtt = Duration::from_millis(80);
        let parsed = |text: &str| text.parse::<QueueConfig>();
        assert_eq!(parsed("unlimited"), Ok(QueueConfig::Unlimited));
        assert_eq!(parsed("100"), Ok(QueueConfig::Packets(100)));
        assert_eq!(parsed("64kB"), Ok(QueueConfig::Bytes(64_000)));
        assert_eq!(parsed("bdp:80ms"), Ok(QueueConfig::Bdp { rtt }));
        assert_eq!(QueueConfig::parse("bdp", rtt), Ok(QueueConfig::Bdp { rtt }));
        assert_eq!(QueueConfig::parse("7p", rtt), Ok(QueueConfig::Packets(7)));
        for bad in ["", "bdp", "bdp:", "-1", "64k", "ten", "99999999999p", "xB"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        for text in ["unlimited", "100p", "64000B", "bdp:80ms"] {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn product_and_its_floor() {
        let bdp = |ms| QueueConfig::Bdp { rtt: Duration::from_millis(ms) };
        let rate = Rate::from_bits_per_second(200_000_000);
        assert_eq!(bdp(80).limit_bytes(rate), Some(2_000_000));
        assert_eq!(bdp(0).limit_bytes(rate), Some(15_000));
        assert_eq!(bdp(80).limit_bytes(None), None);
    }

    #[test]
    fn mean_depth_is_weighted_by_time() {
        let mut queue: Queue<()> = Queue::new(QueueConfig::Unlimited, None);
        queue.enter(Time::from_secs(1), 100);
        queue.enter(Time::from_secs(2), 100);
        queue.leave(Time::from_secs(5), 100);
        queue.pass_time(Time::from_secs(10));
        // 0 for 1 s, 1 for 1 s, 2 for 3 s, 1 for 5 s.
        assert_eq!(queue.depth().mean_packets(Time::from_secs(10) - Time::ZERO), 1.2);
        assert_eq!((queue.depth().packets, queue.depth().packets_max), (1, 2));
    }
}
