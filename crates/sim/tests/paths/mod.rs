//! A path that flows share.

use core::time::Duration;

use farhaul_link::LinkConfig;

/// A link of `rate` and a round trip of `rtt_ms`, with a queue of their product.
pub fn path(rate: &str, rtt_ms: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(rate.parse().expect("a rate")),
        delay: Duration::from_millis(rtt_ms) / 2,
        queue: format!("bdp:{rtt_ms}ms").parse().expect("a queue"),
        ..LinkConfig::default()
    }
}
