//! A transfer: files and trees over several connections at once, taken up again after anything.
//!
//! Files travel in [chunks](tree_hash::CHUNK), in any order. A file's digest is put together from
//! the chunks' ([`tree_hash`]), a journal says which of them are stored and proved ([`journal`]),
//! and a partial file stays beside its target until it is complete.

pub mod adapt;
mod beneath;
pub mod block;
pub mod channel;
pub mod check;
pub mod detour;
mod error;
mod event;
pub mod interrupt;
pub mod journal;
pub mod limit;
pub mod link;
mod medium;
pub mod memory;
pub mod message;
pub mod pace;
pub mod part;
mod passage;
pub(crate) mod place;
pub mod processors;
mod role;
pub mod session;
pub mod sink;
pub mod small;
pub mod source;
pub mod stages;
pub mod tree_hash;

pub use error::TransferError;
pub use event::{Event, Observer, Outcome, Progress};
pub use role::{Flow, Lane, LaneEnd, Role};
