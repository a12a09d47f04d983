//! What `farhaul serve` stands on: its configuration, what it counts, what it writes down.
//!
//! | file | subject |
//! |---|---|
//! | `limits.rs` | what is granted to a client |

mod limits;

pub use limits::Limits;
