//! `farhaul serve`: directories for clients that are known by their keys.
//!
//! | file | subject |
//! |---|---|
//! | `command.rs`, `notify.rs` | the process: its signals and what started it |
//! | `daemon.rs` | who comes, and the sessions' threads |
//! | `admit.rs` | what of an order is allowed |
//! | `sessions.rs` | the sessions that run, and how many there may be |
//! | `accounts.rs`, `meter.rs` | what clients use up; how their connections are counted and paced |
//! | `config.rs`, `clients.rs`, `limits.rs` | its file: clients, what is granted to them, exports |
//! | `metrics.rs`, `families.rs` | what it counts, in the form of OpenMetrics; what there is to count |
//! | `status.rs`, `http.rs` | how it does, over HTTP, for hosts and people that watch over it |
//! | `log.rs` | lines about what happens |
//! | `sandbox.rs`, `sandbox/` | what the process gives up before the first client comes |

mod accounts;
mod admit;
pub mod clients;
mod command;
pub mod config;
mod daemon;
pub mod families;
pub mod http;
mod limits;
pub mod log;
mod meter;
pub mod metrics;
mod notify;
mod sandbox;
mod sessions;
pub mod status;

pub use command::{ServeArgs, run};
pub use limits::Limits;
