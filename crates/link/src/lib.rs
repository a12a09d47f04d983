//! What a network path does to a packet: rate, delay, queue, loss, reordering, duplication,
//! corruption.
//!
//! A [`Link`] is one direction of a path. It is a value without a clock: time and the seed are
//! arguments, so that the same link serves a simulator in virtual time and a relay of real packets,
//! and a run can be repeated. A packet passes these stages, in this order:
//!
//! 1. a [`Policer`] drops it, or the queue admits or drops it ([`QueueConfig`]: at the tail, by [`Red`],
//!    [`CoDel`], [`Pie`], [`FqCoDel`] or [`DualPi2`]), or marks it ([`Ecn`]);
//! 2. it is transmitted, one packet at a time, at the link's [`Rate`], which may change over time
//!    ([`RateChanges`]), or when a [`DeliveryTrace`] says;
//! 3. the wire loses it ([`LossModel`], [`Blackout`]). A packet lost here has used its share of the
//!    rate, as on a real link;
//! 4. the wire duplicates it, damages it and puts it out of order ([`Reorder`]);
//! 5. it arrives after the propagation delay, which may change over time ([`DelayChanges`]), and its
//!    [`Jitter`], at any time or at the end of one of its [`Slots`].
//!
//! A [`Profile`] has what other emulators do where nothing is said.
//!
//! ```
//! use farhaul_base::Time;
//! use farhaul_link::{Link, LinkConfig, Packet};
//! use std::time::Duration;
//!
//! #[derive(Clone, Debug)]
//! struct Datagram(Vec<u8>);
//!
//! impl Packet for Datagram {
//!     fn wire_len(&self) -> usize {
//!         self.0.len() + 28
//!     }
//!     fn corruptible_bits(&self) -> usize {
//!         self.0.len() * 8
//!     }
//!     fn flip_bit(&mut self, bit: usize) {
//!         self.0[bit / 8] ^= 1 << (bit % 8);
//!     }
//! }
//!
//! let config = LinkConfig {
//!     rate: Some("12M".parse()?),
//!     delay: Duration::from_millis(40),
//!     ..LinkConfig::default()
//! };
//! let mut link = Link::new(config, 1);
//! link.offer(Time::ZERO, Datagram(vec![0; 1472])).expect("the queue is unlimited");
//! // 1500 bytes at 12 Mb/s take 1 ms.
//! assert_eq!(link.next_event(), Some(Time::from_millis(41)));
//! assert!(link.poll(Time::from_millis(40)).is_none());
//! assert!(link.poll(Time::from_millis(41)).is_some());
//! # Ok::<(), farhaul_link::ParseError>(())
//! ```

#![forbid(unsafe_code)]

mod config;
mod delay_changes;
mod delivery;
mod ecn;
mod fate;
mod jitter;
mod link;
mod loss;
mod loss_text;
mod normal;
mod policer;
mod profile;
mod queue;
mod rate_changes;
mod routes;
mod series;
mod slots;
mod stats;
mod transmitter;
mod wire;

pub use config::{Blackout, Displacement, LinkConfig, Reorder};
pub use delay_changes::{DelayChange, DelayChanges};
pub use delivery::DeliveryTrace;
pub use ecn::Ecn;
pub use farhaul_base::units::{
    ParseError, Probability, Rate, parse_duration, parse_size, split_number,
};
pub use fate::{Cause, Lost};
pub use jitter::{Jitter, JitterShape};
pub use link::Link;
pub use loss::{GilbertElliott, LossModel};
pub use policer::Policer;
pub use profile::Profile;
pub use queue::{CoDel, DualPi2, FqCoDel, Pie, QueueConfig, QueueLimit, Red};
pub use rate_changes::{RateChange, RateChanges};
pub use routes::{Leg, routes_to};
pub use slots::Slots;
pub use stats::{LinkStats, QueueDepth};

/// What a link must know of a packet. A duplicating link clones it.
pub trait Packet: Clone {
    /// Size on the wire in bytes: the packet with every header that the link's rate and queue
    /// count. For a UDP payload over IPv4 this is the payload and 28 bytes.
    fn wire_len(&self) -> usize;

    /// How many bits corruption may choose from; zero for a packet that cannot be damaged.
    fn corruptible_bits(&self) -> usize;

    /// Inverts one bit; `bit` is below [`corruptible_bits`](Packet::corruptible_bits).
    fn flip_bit(&mut self, bit: usize);

    /// What it says of congestion notification.
    fn ecn(&self) -> Ecn {
        Ecn::NotCapable
    }

    /// A queue marks it; it is capable of that.
    fn mark(&mut self) {}

    /// A number that all packets of its flow have, and others as a rule not.
    fn flow(&self) -> u64 {
        0
    }
}
