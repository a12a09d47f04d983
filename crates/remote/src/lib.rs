//! Reaching the other side: what stands between two processes on two hosts and a secured stream of
//! bytes between them.
//!
//! [`Remote`] starts a program on another host over ssh and talks with it in lines of JSON;
//! [`agent`] is that program's half. Both then know each other's fresh keys and a secret
//! ([`bootstrap`]). One side listens ([`Listening`]), the other dials ([`Dialer`]); each connection,
//! of UDT or of TCP, becomes a [`Link`] once both have shown that they are who they should be.

#![forbid(unsafe_code)]

pub mod agent;
pub mod bootstrap;
mod dial;
mod host;
mod lines;
mod link;
mod listen;
mod secured;
mod ssh;
mod wire;

pub use dial::{DialConfig, DialError, DialFailure, Dialer, Transport, resolve};
pub use host::{configured_hostname, interface_addresses, own_addresses};
pub use lines::Received;
pub use link::{Injection, Kind, Link, LinkHandle, LinkReader, LinkStats, LinkWriter};
pub use listen::{ListenConfig, Listening};
pub use secured::{Context, LinkError, Terms};
#[doc(hidden)]
pub use ssh::look_for_greeting;
pub use ssh::{Remote, RemoteSender, SshCommand, SshError};

use core::time::Duration;

/// Silence of the peer after which a link counts as broken, unless the caller wants another.
pub const SILENCE: Duration = Duration::from_secs(10);

/// What a stranger may have kept over UDT before it has shown who it is, bytes. A handshake needs a
/// hundredth of it.
const STRANGER_MEMORY: usize = 1 << 20;

/// The same state is consistent after a panic of another holder: nothing is left half-done under
/// the locks of this crate.
fn lock<T: ?Sized>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
