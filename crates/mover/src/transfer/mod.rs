//! The parts of a transfer that can be stopped and taken up again.
//!
//! Files travel in [chunks](tree_hash::CHUNK), in any order. A file's digest is put together from
//! the chunks' ([`tree_hash`]), a journal says which of them are stored and proved ([`journal`]),
//! and a partial file stays beside its target until it is complete ([`part`]).

pub mod journal;
pub mod part;
mod place;
pub mod small;
pub mod tree_hash;
