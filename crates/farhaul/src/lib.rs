//! farhaul: reliable transport of big data over long, fat and lossy networks.
//!
//! The protocol is UDT, wire version 4, over UDP. A [`Connection`] is a duplex stream of bytes (or
//! of messages); a [`Listener`] accepts them; an [`Endpoint`] is the UDP port that many of them
//! share. Nothing needs tuning: windows and buffers follow the path's bandwidth-delay product.
//!
//! ```
//! use farhaul::{Connection, Listener, Options};
//! use std::io::{Read, Write};
//!
//! let listener = Listener::bind("127.0.0.1:0", &Options::new())?;
//! let addr = listener.local_addr();
//! let sender = std::thread::spawn(move || {
//!     let mut connection = Connection::connect(addr, &Options::new())?;
//!     connection.write_all(b"hello")?;
//!     connection.close()
//! });
//! let mut received = String::new();
//! listener.accept()?.read_to_string(&mut received)?;
//! assert_eq!(received, "hello");
//! sender.join().expect("the thread does not panic")?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! With the feature `tokio`, the module `tokio` has the same for asynchronous programs.

#![forbid(unsafe_code)]

mod connection;
mod endpoint;
mod error;
mod file;
mod options;
mod pool;
mod port;
mod receiver;
#[cfg(feature = "tokio")]
pub mod tokio;
mod waiting;

pub use bytes::Bytes;
pub use connection::{Connection, MessageOptions};
pub use endpoint::{Endpoint, Listener};
pub use farhaul_base::newcomers;
pub use farhaul_control::{Spec as Law, laws};
pub use farhaul_engine::{
    CloseReason, ConnectError, Counters, EndpointCounters, Invitation, Mode, ReorderTolerance,
    Snapshot, Span, Stats, TagKeys,
};
pub use farhaul_udp::BufferSizes;
pub use options::Options;
