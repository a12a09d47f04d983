//! Real-packet path emulation: a userspace UDP relay, and a path between network namespaces.
//!
//! The relay stands between UDP endpoints and does to their datagrams what a [`farhaul_link::Link`]
//! says, in each direction. It needs no privileges. [`tun`] does the same to all IP packets between
//! two network namespaces. Linux only.
//!
//! ```no_run
//! use farhaul_wan::{Relay, RelayConfig};
//! use std::time::Duration;
//!
//! let listen = ([127, 0, 0, 1], 7000).into();
//! let target = ([127, 0, 0, 1], 9000).into();
//! let mut config = RelayConfig::new(listen, target);
//! for link in [&mut config.forward, &mut config.backward] {
//!     link.rate = Some("200M".parse()?);
//!     link.delay = Duration::from_millis(40);
//! }
//! config.forward.loss = "0.1%".parse()?;
//! let relay = Relay::bind(config)?.spawn()?;
//! // … endpoints talk through relay.local_addr() …
//! println!("{:?}", relay.stats().forward);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

pub mod check;
mod clock;
mod relay;
mod socket;
pub mod tun;

pub use relay::{
    DirectionStats, Ends, Forged, InjectConfig, InjectStats, MAX_FORGED_PER_SECOND, PeerPort,
    Relay, RelayConfig, RelayHandle, RelayStats, Timing,
};
