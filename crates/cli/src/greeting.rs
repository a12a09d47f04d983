//! How long a peer may take to show that it speaks the protocol that is expected of it.

use std::time::Duration;

use clap::Args;

use crate::units;

/// The patience of a command whose protocol begins with a greeting.
#[derive(Args, Clone, Copy, Debug)]
pub struct GreetingArgs {
    /// How long to wait for the first bytes. Several round trips of any path, and not longer than
    /// a person waits for a message. Only tests set it.
    #[arg(long, hide = true, value_parser = units::time, default_value = "10s")]
    pub greeting_timeout: Duration,
}
