//! Which is the largest packet that passes: many sizes a round trip, so that few are needed.

/// The smallest size that is tried: what every path should take (RFC 9000 §14.1).
pub const FLOOR: u16 = 1200;
/// The largest: jumbo frames.
pub const CEILING: u16 = 9000;
/// Sizes at once, beside the usual ones.
const AT_ONCE: u16 = 8;
/// Sizes that are often the answer: tunnels, PPPoE, Ethernet, jumbo frames of clouds.
const USUAL: [u16; 13] =
    [1280, 1360, 1380, 1400, 1420, 1440, 1450, 1460, 1476, 1480, 1492, 1500, 8900];

/// A search for the largest size from [`FLOOR`] up to a ceiling.
#[derive(Clone, Debug)]
pub struct Search {
    /// The largest that passed; 0: none yet.
    passed: u16,
    /// The smallest that did not, above `passed`.
    failed: u16,
    begun: bool,
}

impl Search {
    /// A search up to `ceiling`, at least [`FLOOR`].
    pub fn new(ceiling: u16) -> Self {
        Search { passed: 0, failed: ceiling.max(FLOOR) + 1, begun: false }
    }

    /// The sizes to try next, ascending; none when the search is over.
    pub fn candidates(&self) -> Vec<u16> {
        if !self.begun {
            // What follows a size that is often the answer: if that fails, it is the answer.
            let usual = USUAL.iter().flat_map(|size| [*size, size + 1]);
            let mut sizes: Vec<u16> =
                usual.chain([FLOOR, self.failed - 1]).filter(|size| *size < self.failed).collect();
            sizes.sort_unstable();
            sizes.dedup();
            return sizes;
        }
        if self.passed == 0 {
            return Vec::new();
        }
        let between = self.failed - self.passed - 1;
        let count = between.min(AT_ONCE);
        let step = |n: u16| {
            let offset = u32::from(n) * u32::from(between + 1) / u32::from(count + 1);
            self.passed + offset.max(1) as u16
        };
        let mut sizes: Vec<u16> = (1..=count).map(step).collect();
        sizes.dedup();
        sizes
    }

    /// Of `tried`, those in `passed` came through.
    pub fn learn(&mut self, tried: &[u16], passed: &[u16]) {
        self.begun = true;
        self.passed = passed.iter().copied().max().unwrap_or(0).max(self.passed);
        let failed = tried.iter().copied().filter(|size| *size > self.passed).min();
        self.failed = failed.unwrap_or(self.failed).min(self.failed).max(self.passed + 1);
    }

    /// The largest that passed; `None`: not even the smallest.
    pub fn found(&self) -> Option<u16> {
        (self.passed > 0).then_some(self.passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(mtu: u16, ceiling: u16) -> (Option<u16>, usize) {
        let mut search = Search::new(ceiling);
        let mut rounds = 0;
        loop {
            let tried = search.candidates();
            if tried.is_empty() {
                return (search.found(), rounds);
            }
            assert!(tried.iter().all(|size| (FLOOR..=ceiling).contains(size)), "{tried:?}");
            let passed: Vec<u16> = tried.iter().copied().filter(|size| *size <= mtu).collect();
            search.learn(&tried, &passed);
            rounds += 1;
        }
    }

    #[test]
    fn every_size_is_found_in_few_rounds() {
        for mtu in 1200..=9000 {
            let (found, rounds) = search(mtu, CEILING);
            assert_eq!(found, Some(mtu));
            assert!(rounds <= 6, "{mtu}: {rounds}");
        }
        assert_eq!(search(1500, CEILING), (Some(1500), 1));
        assert_eq!(search(1400, 1400), (Some(1400), 1));
        assert_eq!(search(65_000, CEILING), (Some(9000), 1));
    }

    #[test]
    fn a_path_that_takes_little_is_none() {
        assert_eq!(search(1199, CEILING), (None, 1));
    }

    /// A copy of each may be lost, so a larger size may pass where a smaller one seemed to fail.
    #[test]
    fn what_passed_counts_more_than_what_did_not() {
        let mut search = Search::new(1500);
        search.learn(&[1200, 1400, 1500], &[1500]);
        assert_eq!((search.found(), search.candidates()), (Some(1500), vec![]));
    }
}
