//! Moves files and trees over a byte stream, verified.
//!
//! [`send`] on one side and [`receive`] on the other need one reliable, ordered stream in both
//! directions, of any kind. A tree is streamed while it is walked: neither side ever holds a list
//! of it. Every file's BLAKE3 is taken from what was read and from what was written, and both
//! sides compare; a file appears under its name only after that.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::os::unix::net::UnixStream;
//! use std::thread;
//!
//! use farhaul_mover::{ReceiveOptions, SendOptions, receive, send};
//!
//! # let dir = tempfile::tempdir()?;
//! # let (from, to) = (dir.path().join("from"), dir.path().join("to"));
//! # std::fs::create_dir(&from)?;
//! # std::fs::write(from.join("file"), "content")?;
//! let (near, far) = UnixStream::pair()?;
//! let into = to.clone();
//! let receiver = thread::spawn(move || {
//!     receive(&into, (&far, &far), &ReceiveOptions::default(), &mut |_| {})
//! });
//! let sent = send(&[from], (&near, &near), &SendOptions::default(), &mut |_| {})?;
//! let received = receiver.join().expect("no panic")?;
//! assert_eq!(sent.transcript, received.transcript);
//! assert_eq!(std::fs::read(to.join("from/file"))?, b"content");
//! # Ok(())
//! # }
//! ```
//!
//! The protocol is in [`frame`]; its decoder is pure and safe for any bytes. Unix only.

#![forbid(unsafe_code)]

pub mod digest;
mod error;
mod extents;
pub mod frame;
mod inode;
pub mod location;
pub mod name;
mod receive;
mod replies;
mod report;
mod scan;
mod send;
mod sources;
mod store;
mod stream;
mod target;
mod temporary;
pub mod transfer;
mod walk;

pub use error::{ReceiveError, SendError, Violation};
pub use receive::{ReceiveOptions, receive};
pub use report::{
    Cancel, Event, Failure, Failures, LeftOut, Progress, Side, Special, Summary, printable_path,
    without_numbers,
};
pub use send::{SendOptions, send};
pub use sources::check_sources;
