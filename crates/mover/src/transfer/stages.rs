//! Where the lanes of a side spend their time: the evidence for what a transfer is limited by.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a lane does at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// Waits for the other side: everything that is known of has been dealt with.
    Idle = 0,
    /// Reads files.
    Read = 1,
    /// Computes or checks hashes.
    Hash = 2,
    /// Seals and hands over to the network, as far as that costs processor time.
    Seal = 3,
    /// Waits until the network takes more.
    Send = 4,
    /// Waits for the network to bring more, and opens what it brought.
    Receive = 5,
    /// Writes files and their journals.
    Write = 6,
    /// Is held back by a rate that was set, for it or for its peer.
    Limit = 7,
    /// Waits for further files to be found.
    Find = 8,
}

/// The number of stages.
pub const STAGES: usize = 9;

/// The time spent in each stage by all lanes of a side, µs since the beginning.
#[derive(Debug, Default)]
pub struct Stages([AtomicU64; STAGES]);

impl Stages {
    /// Adds to a stage.
    pub fn add(&self, stage: Stage, time: Duration) {
        self.0[stage as usize].fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// Does something and adds what it took.
    pub fn during<T>(&self, stage: Stage, action: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = action();
        self.add(stage, start.elapsed());
        result
    }

    /// All of them.
    pub fn read(&self) -> [u64; STAGES] {
        std::array::from_fn(|stage| self.0[stage].load(Ordering::Relaxed))
    }
}
