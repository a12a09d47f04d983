//! What every pure crate shares: virtual time, seeded randomness, mathematics that are the same on
//! every machine, quantities and names as people write them, and newcomers by where they come from.
//!
//! Protocol code never asks for the time or for entropy: both arrive as arguments, as a [`Time`]
//! and as an [`Rng`] made from a seed. A run is then a function of its inputs.

#![forbid(unsafe_code)]

pub mod math;
pub mod names;
pub mod newcomers;
mod rng;
mod time;
pub mod units;

pub use rng::Rng;
pub use time::Time;
