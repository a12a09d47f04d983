//! A transfer: files and trees over several connections at once, resumed after anything.

pub mod block;
mod error;
mod event;
pub mod journal;
pub mod link;
pub mod message;
pub mod part;
mod place;
mod role;
pub mod sink;
pub mod small;
pub mod stages;
pub mod tree_hash;

pub use error::TransferError;
pub use event::{Event, Observer, Outcome, Progress};
pub use role::{Flow, Lane, LaneEnd, Role};
