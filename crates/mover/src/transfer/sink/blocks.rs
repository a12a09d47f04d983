//! Which blocks have been handled, so that each is once, however often it comes.

use std::collections::{BTreeMap, HashSet};

/// The most gaps between blocks that have been handled.
const GAPS: usize = 1 << 16;

/// The numbers of blocks.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Handled: the first and the one after the last of every run.
    stored: BTreeMap<u64, u64>,
    busy: HashSet<u64>,
}

/// What is to be done with a block that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// To be handled by who asks.
    New,
    /// Another lane is about to.
    Busy,
    /// It has been.
    Stored,
}

impl Blocks {
    /// Whether to handle a block.
    pub(super) fn claim(&mut self, number: u64) -> Claim {
        let run = self.stored.range(..=number).next_back();
        if run.is_some_and(|(_, end)| number < *end) {
            Claim::Stored
        } else if self.busy.insert(number) {
            Claim::New
        } else {
            Claim::Busy
        }
    }

    /// A block has been handled. `false`: there are too many gaps.
    pub(super) fn stored(&mut self, number: u64) -> bool {
        self.busy.remove(&number);
        let mut first = number;
        // The number is below 2^64 - 1: see `lanes`.
        let mut end = number + 1;
        if let Some((before, before_end)) = self.stored.range(..number).next_back()
            && *before_end == number
        {
            first = *before;
        }
        if let Some(after) = self.stored.remove(&end) {
            end = after;
        }
        self.stored.insert(first, end);
        self.stored.len() <= GAPS
    }

    /// A block could not be handled now and will come again.
    pub(super) fn release(&mut self, number: u64) {
        self.busy.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_handled_once() {
        let mut blocks = Blocks::default();
        for number in [5, 0, 2, 1, 4, 3, 9] {
            assert_eq!(blocks.claim(number), Claim::New);
            assert_eq!(blocks.claim(number), Claim::Busy);
            assert!(blocks.stored(number));
            assert_eq!(blocks.claim(number), Claim::Stored);
        }
        assert_eq!(blocks.stored, BTreeMap::from([(0, 6), (9, 10)]));
        assert_eq!(blocks.claim(7), Claim::New);
        blocks.release(7);
        assert_eq!(blocks.claim(7), Claim::New);
    }

    #[test]
    fn gaps_are_bounded() {
        let mut blocks = Blocks::default();
        assert!((0..GAPS as u64).all(|n| blocks.stored(2 * n)));
        assert!(!blocks.stored(2 * GAPS as u64));
    }
}
