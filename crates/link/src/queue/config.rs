//! How much a queue holds and which packets it drops.

use core::num::NonZeroU32;
use core::time::Duration;

use crate::{Probability, Rate};

/// What waits in front of the transmitter, and what is dropped.
///
/// The first four kinds drop at the tail: a packet that does not fit. A limit counts the packet in
/// transmission with those that wait. (ns-2 and many routers count only the latter; their queue of
/// n packets is n + 1 here.) An idle link takes any packet, so that a limit below one packet does
/// not cut the link but leaves it without a queue.
///
/// Written `unlimited`, `100p` or `100` (packets), `64kB` (bytes), `bdp:80ms`; and for the others
/// `red`, `codel`, `pie`, `fq_codel`, `dualpi2` or with what differs from the defaults,
/// `red:limit=100p,min=5,max=15,weight=0.002,maxp=10%,gentle=false,wait=true,mean=500B,bytes=true,target=5ms`,
/// `codel:limit=bdp:80ms,target=5ms,interval=100ms`, `pie:limit=1000p,target=15ms`,
/// `fq_codel:limit=10240p,flows=1024,quantum=1514B,target=5ms,interval=100ms`,
/// `dualpi2:limit=1000p,target=15ms,coupling=2`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum QueueConfig {
    /// Everything. Its user must bound the memory some other way.
    #[default]
    Unlimited,
    /// This many packets, 0 meaning 1 (and refused as text).
    Packets(u32),
    /// This many bytes, as [`wire_len`](crate::Packet::wire_len) counts them.
    Bytes(u64),
    /// The bytes of the rate times this round-trip time, and at least 15,000, which is ten packets
    /// of 1500 bytes. Without a rate the product has no bound, and neither has the queue. Where the
    /// rate changes it is the first one, see [`LinkConfig::first_rate`](crate::LinkConfig::first_rate).
    Bdp {
        /// Round-trip time of the path that the queue is made for.
        rtt: Duration,
    },
    /// Random early detection.
    Red(Red),
    /// Controlled delay.
    CoDel(CoDel),
    /// Proportional integral controller enhanced.
    Pie(Pie),
    /// Flow queues with controlled delay.
    FqCoDel(FqCoDel),
    /// Coupled queues for scalable and classic congestion controls.
    DualPi2(DualPi2),
}

/// How much a queue holds at most; the kinds of [`QueueConfig`] that drop at the tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueLimit {
    /// As [`QueueConfig::Unlimited`].
    #[default]
    Unlimited,
    /// As [`QueueConfig::Packets`].
    Packets(u32),
    /// As [`QueueConfig::Bytes`].
    Bytes(u64),
    /// As [`QueueConfig::Bdp`].
    Bdp {
        /// Round-trip time of the path that the queue is made for.
        rtt: Duration,
    },
}

/// Random early detection (Floyd and Jacobson 1993) as ns-2 has it: the longer the average queue,
/// the more of the packets that come are dropped at random. The default is ns-2's since the end of
/// 2001, whose thresholds and weight follow from the rate and the delay of the link (where the rate
/// changes, from the first one); all but the limit, which ns-2 sets to 50 packets.
///
/// As in ns-2 the queue that is averaged is what *waits*; the packet in transmission is not in it,
/// so that ns-2's parameters mean here what they mean there. Only `limit` counts it, as every limit
/// does: ns-2's `limit_` of n is n + 1 packets here.
///
/// *departs:* in byte mode ns-2 takes the limit as packets of the mean size. Here a limit has its
/// own unit in either mode.
///
/// Without `limit` the average alone bounds the queue, and it follows slowly. A link that never has
/// a rate has no queue, and RED nothing to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// What is dropped whatever the average is.
    pub limit: QueueLimit,
    /// Average queue in packets of the mean size from which on packets are dropped; finite and
    /// not negative. `None`: half of what passes within `target`, and at least 5 (ns-2: `thresh_`).
    pub min: Option<f64>,
    /// Average queue in packets of the mean size at which `max_p` is reached; above `min`. `None`:
    /// three times `min` (ns-2: `maxthresh_`).
    pub max: Option<f64>,
    /// Weight of the queue that a packet meets in the average; above 0. `None`:
    /// 1 - exp(-1/(10 R C)), where C is the rate in packets of the mean size a second and R three
    /// times the sum of delay and 1/C, but at least 0.1 s (ns-2: `q_weight_` of -1).
    pub weight: Option<Probability>,
    /// Probability of a drop as the average reaches `max` (ns-2: 1/`linterm_`).
    pub max_p: Probability,
    /// Whether from `max` to twice that the probability rises from `max_p` to 1; else it is 1 from
    /// `max` on.
    pub gentle: bool,
    /// Whether after a drop the next is at least 1/p packets away, p being the probability; they
    /// are then 1/p to 2/p packets apart, else 1 to 1/p.
    pub wait: bool,
    /// Mean size of packets in bytes, which scales the rate and, in byte mode, the thresholds.
    pub mean: NonZeroU32,
    /// Byte mode: the queue is measured in bytes, and large packets are dropped more often (ns-2:
    /// `bytes_` and `queue_in_bytes_`).
    pub bytes: bool,
    /// The queueing delay that the automatic `min` aims at.
    pub target: Duration,
}

/// Controlled delay, RFC 8289: packets are dropped as they leave the queue, more and more often,
/// while none of them has waited for less than `target`.
///
/// The wait is that for the transmitter, without the packet's own transmission. The last packet's
/// worth of bytes is never dropped; the largest packet that has come stands for the MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// What is dropped at the tail.
    pub limit: QueueLimit,
    /// The wait that is acceptable at all times, 5 ms by default.
    pub target: Duration,
    /// How long the wait may be above `target` before the first drop, and between drops at first:
    /// the largest round-trip time to be expected, 100 ms by default; above 0.
    pub interval: Duration,
}

/// Proportional integral controller enhanced, RFC 8033: packets are dropped as they come, with a
/// probability that follows the delay's distance from `target` and its growth; up to 10% of
/// probability those that can be marked are marked instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pie {
    /// What is dropped at the tail.
    pub limit: QueueLimit,
    /// The delay that is aimed at, 15 ms by default.
    pub target: Duration,
}

/// Flow queues, RFC 8290: each flow has a queue of its own under [`CoDel`], but for those that share
/// one by chance. Queues are served in turns, those that have just become active before the others.
/// Where there is no room, packets are dropped from the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDel {
    /// What all queues hold together, 10,240 packets by default.
    pub limit: QueueLimit,
    /// Queues, 1024 by default.
    pub flows: NonZeroU32,
    /// Bytes that a queue sends in its turn, 1514 by default.
    pub quantum: NonZeroU32,
    /// As [`CoDel::target`].
    pub target: Duration,
    /// As [`CoDel::interval`].
    pub interval: Duration,
}

/// Coupled queues, RFC 9332 with the DualPI2 of its appendix A: packets of L4S (ECT(1)) have a queue of
/// their own, which marks from 0.8 ms of delay on, and with `coupling` times the square root of the
/// probability with which the classic queue drops or marks, which aims at `target`. So both kinds of
/// flows get the same rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DualPi2 {
    /// What both hold together.
    pub limit: QueueLimit,
    /// The delay that the classic queue aims at, 15 ms by default.
    pub target: Duration,
    /// The coupling factor k, 2 by default.
    pub coupling: NonZeroU32,
}

impl QueueConfig {
    /// The least that a queue of the bandwidth-delay product holds: ten packets of 1500 bytes.
    pub const BDP_MIN_BYTES: u64 = 15_000;

    /// How much the queue holds at most.
    pub fn limit(self) -> QueueLimit {
        match self {
            QueueConfig::Unlimited => QueueLimit::Unlimited,
            QueueConfig::Packets(packets) => QueueLimit::Packets(packets),
            QueueConfig::Bytes(bytes) => QueueLimit::Bytes(bytes),
            QueueConfig::Bdp { rtt } => QueueLimit::Bdp { rtt },
            QueueConfig::Red(red) => red.limit,
            QueueConfig::CoDel(codel) => codel.limit,
            QueueConfig::Pie(pie) => pie.limit,
            QueueConfig::FqCoDel(flows) => flows.limit,
            QueueConfig::DualPi2(pair) => pair.limit,
        }
    }

    /// The limit in bytes on a link of `rate`; `None` if there is none or it counts packets.
    pub fn limit_bytes(self, rate: Option<Rate>) -> Option<u64> {
        match self.limit() {
            QueueLimit::Unlimited | QueueLimit::Packets(_) => None,
            QueueLimit::Bytes(bytes) => Some(bytes),
            QueueLimit::Bdp { rtt } => Some(rate?.bytes_within(rtt).max(Self::BDP_MIN_BYTES)),
        }
    }
}

impl From<QueueLimit> for QueueConfig {
    /// The queue that drops at the tail.
    fn from(limit: QueueLimit) -> Self {
        match limit {
            QueueLimit::Unlimited => QueueConfig::Unlimited,
            QueueLimit::Packets(packets) => QueueConfig::Packets(packets),
            QueueLimit::Bytes(bytes) => QueueConfig::Bytes(bytes),
            QueueLimit::Bdp { rtt } => QueueConfig::Bdp { rtt },
        }
    }
}

impl Red {
    /// ns-2's `mean_pktsize_`.
    pub const MEAN_BYTES: NonZeroU32 = NonZeroU32::new(500).expect("not zero");
    /// That of ns-2's `linterm_` of 10.
    pub const MAX_P: Probability = Probability::new(0.1).expect("within [0, 1]");
}

impl Default for Red {
    fn default() -> Self {
        Red {
            limit: QueueLimit::Unlimited,
            min: None,
            max: None,
            weight: None,
            max_p: Red::MAX_P,
            gentle: true,
            wait: true,
            mean: Red::MEAN_BYTES,
            bytes: false,
            target: Duration::from_millis(5),
        }
    }
}

impl Default for Pie {
    fn default() -> Self {
        Pie { limit: QueueLimit::Unlimited, target: Duration::from_millis(15) }
    }
}

impl FqCoDel {
    /// The most queues.
    pub const MOST_FLOWS: u32 = 65_536;
    const FLOWS: NonZeroU32 = NonZeroU32::new(1_024).expect("not zero");
    const QUANTUM: NonZeroU32 = NonZeroU32::new(1_514).expect("not zero");
}

impl Default for FqCoDel {
    fn default() -> Self {
        let CoDel { target, interval, .. } = CoDel::default();
        FqCoDel {
            limit: QueueLimit::Packets(10_240),
            flows: Self::FLOWS,
            quantum: Self::QUANTUM,
            target,
            interval,
        }
    }
}

impl DualPi2 {
    const COUPLING: NonZeroU32 = NonZeroU32::new(2).expect("not zero");
}

impl Default for DualPi2 {
    fn default() -> Self {
        DualPi2 {
            limit: QueueLimit::Unlimited,
            target: Duration::from_millis(15),
            coupling: Self::COUPLING,
        }
    }
}

impl Default for CoDel {
    fn default() -> Self {
        CoDel {
            limit: QueueLimit::Unlimited,
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_and_its_floor() {
        let bdp = |ms| QueueConfig::Bdp { rtt: Duration::from_millis(ms) };
        let rate = Rate::from_bits_per_second(200_000_000);
        assert_eq!(bdp(80).limit_bytes(rate), Some(2_000_000));
        assert_eq!(bdp(0).limit_bytes(rate), Some(15_000));
        assert_eq!(bdp(80).limit_bytes(None), None);
        let red = QueueConfig::Red(Red { limit: bdp(80).limit(), ..Red::default() });
        assert_eq!(red.limit_bytes(rate), Some(2_000_000));
        assert_eq!(QueueConfig::from(red.limit()), bdp(80));
    }
}
