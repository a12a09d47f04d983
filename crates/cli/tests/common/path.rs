//! Emulated paths between the processes.

use std::net::SocketAddr;
use std::time::Duration;

use farhaul_link::{LinkConfig, QueueConfig};
use farhaul_wan::{PeerPort, Relay, RelayConfig, RelayHandle};

use super::free_port;

/// What a path does in each direction.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub rate: &'static str,
    /// One way, ms.
    pub delay: u64,
    pub loss: &'static str,
    pub reorder: &'static str,
    pub seed: u64,
}

impl Path {
    pub const fn new(rate: &'static str, delay: u64) -> Path {
        Path { rate, delay, loss: "none", reorder: "", seed: 1 }
    }

    pub const fn loss(self, loss: &'static str) -> Path {
        Path { loss, ..self }
    }

    pub const fn reorder(self, reorder: &'static str) -> Path {
        Path { reorder, ..self }
    }

    fn link(&self) -> LinkConfig {
        let delay = Duration::from_millis(self.delay);
        LinkConfig {
            rate: Some(self.rate.parse().expect("a rate")),
            delay,
            // Deep enough for a sender's bursts on a path that is short.
            queue: QueueConfig::parse("1000p", 2 * delay).expect("a queue"),
            loss: self.loss.parse().expect("a loss"),
            reorder: (!self.reorder.is_empty()).then(|| self.reorder.parse().expect("an order")),
            ..LinkConfig::default()
        }
    }

    /// A relay of this configuration, but for what the path does.
    pub fn open(&self, mut config: RelayConfig) -> RelayHandle {
        (config.forward, config.backward) = (self.link(), self.link());
        config.seed = self.seed;
        Relay::bind(config).and_then(Relay::spawn).expect("a relay")
    }

    /// A relay to `target`; clients talk to its address, at which there may be another later.
    pub fn to(&self, target: SocketAddr) -> RelayHandle {
        let here = (target.ip(), free_port(target.ip())).into();
        self.open(RelayConfig::new(here, target))
    }

    /// A relay between two fixed addresses.
    pub fn between(&self, a: SocketAddr, b: SocketAddr) -> RelayHandle {
        let side = |peer: SocketAddr| PeerPort { listen: (peer.ip(), 0).into(), peer };
        self.open(RelayConfig::between(side(a), side(b)))
    }
}
