//! What slows transfers down, and what would help: an audit of hosts and of the path between them.
//!
//! [`audit_host`] reads and measures one host, [`probe_path`] a path between two, [`advise`] makes of
//! both what the transfer would be limited by and what to do about it, and [`show`] writes that for
//! people; [`noise::measure`] tells what a host does to time. Reports are plain data, so that the other host can send its own. Nothing is changed by
//! itself.

#![forbid(unsafe_code)]

pub mod advice;
pub mod host;
pub mod noise;
pub mod path;
mod root;
mod show;

#[doc(hidden)]
pub use advice::own_commands;
pub use advice::{Advice, Diagnosis, Severity, Stage, StageKind, advise};
pub use host::{AuditOptions, HostReport, audit_host};
pub use path::{PathReport, probe_path};
pub use root::Root;
pub use show::{Report, show};
