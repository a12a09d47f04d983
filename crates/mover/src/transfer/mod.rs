//! A transfer: files and trees over several connections at once, resumed after anything.

pub mod block;
pub mod channel;
mod error;
mod event;
pub mod link;
pub mod message;
mod role;
pub mod session;
pub mod stages;
pub mod tree_hash;

pub use error::TransferError;
pub use event::{Event, Observer, Outcome, Progress};
pub use role::{Flow, Lane, LaneEnd, Role};
