//! Disks that fail on purpose, and the file systems on them, for tests of what farhaul promises
//! about storage. Linux and root only; no part of any program.
//!
//! A [`Disk`] is a block device in memory with a volatile cache: it logs what is written and when
//! it was flushed, fails what it is told to fail, and gives the image that a loss of power leaves at
//! any moment. [`serve`] shows it to the kernel as a file over FUSE, and a [`Volume`] puts a loop
//! device and a file system on that. A [`Schedule`] makes copies onto such a volume, with faults
//! between and within, and checks one law: what a copy has reported as done is on the medium.

pub mod check;
pub mod disk;
pub mod run;
pub mod schedule;
pub mod serve;
pub mod tree;
pub mod volume;

pub use disk::Disk;
pub use schedule::{Schedule, Theme, Violation};
pub use volume::{FileSystem, Volume};
