//! What `farhaul serve` stands on: its configuration, what it counts, what it writes down.
//!
//! | file | subject |
//! |---|---|
//! | `config.rs`, `limits.rs` | its file: clients, what is granted to them, exports |
//! | `metrics.rs`, `families.rs` | what it counts, in the form of OpenMetrics; what there is to count |
//! | `status.rs`, `http.rs` | how it does, over HTTP, for hosts and people that watch over it |
//! | `log.rs` | lines about what happens |

pub mod config;
pub mod families;
pub mod http;
mod limits;
pub mod log;
pub mod metrics;
pub mod status;

pub use limits::Limits;
