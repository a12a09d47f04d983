//! What slows transfers down, and what would help: an audit of hosts and of the path between them.
//!
//! [`audit_host`] reads and measures one host, [`path`] a path between two, [`advise`] makes of both
//! what the transfer would be limited by and what to do about it, and [`show`] writes that for people.
//! Reports are plain data, so that the other host can send its own. Nothing is changed by itself.

#![forbid(unsafe_code)]

pub mod host;
pub mod path;
mod root;
pub use host::*;
pub use root::Root;
