//! What has come of a round.

use farhaul_base::Time;

/// Most datagrams in a round.
pub const MOST: u32 = 1 << 16;

/// Counts the datagrams of a round as they come, each once.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    counts: Counts,
    /// One more than the highest sequence number.
    next: u32,
    seen: Vec<u64>,
}

/// What a tally tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams, duplicates not counted.
    pub received: u32,
    /// Those that came after one with a higher number.
    pub late: u32,
    /// When the first and the last came.
    pub first: Time,
    /// See `first`.
    pub last: Time,
    /// Those that came later than the first: what the time between `first` and `last` was needed
    /// for. Receive offload gives the datagrams of a batch one time.
    pub after_first: u32,
}

impl Tally {
    /// A datagram came; `false` if it came before, or there cannot be such a number.
    pub fn count(&mut self, sequence: u32, at: Time) -> bool {
        if sequence >= MOST {
            return false;
        }
        let (word, bit) = (sequence as usize / 64, 1u64 << (sequence % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            return false;
        }
        self.seen[word] |= bit;
        let counts = &mut self.counts;
        if counts.received == 0 {
            (counts.first, counts.last) = (at, at);
        }
        counts.received += 1;
        counts.late += u32::from(sequence < self.next);
        counts.after_first += u32::from(at > counts.first);
        counts.last = counts.last.max(at);
        self.next = self.next.max(sequence + 1);
        true
    }

    /// So far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// As the words of a message.
    pub fn words(&self) -> [u64; 5] {
        let Counts { received, late, first, last, after_first } = self.counts;
        [received.into(), late.into(), first.as_nanos(), last.as_nanos(), after_first.into()]
    }
}

impl Counts {
    /// From the words of a message about a round of `sent` datagrams; `None` if they cannot be.
    pub fn from_words(words: [u64; 5], sent: u32) -> Option<Counts> {
        let count = |word: u64| u32::try_from(word).ok().filter(|n| *n <= sent);
        let counts = Counts {
            received: count(words[0])?,
            late: count(words[1])?,
            first: Time::from_nanos(words[2]),
            last: Time::from_nanos(words[3]),
            after_first: count(words[4])?,
        };
        (counts.first <= counts.last).then_some(counts)
    }

    /// Bits per second at which datagrams of `bytes` on the wire came; `None` if too few came to tell.
    pub fn rate(&self, bytes: u32) -> Option<f64> {
        let span = self.last.nanos_since(self.first);
        (self.after_first >= 4 && span > 0)
            .then(|| f64::from(self.after_first) * f64::from(bytes) * 8e9 / span as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn datagrams_count_once() {
        let mut tally = Tally::default();
        let came = [(0, 1), (2, 1), (1, 2), (1, 3), (4, 4), (MOST, 5), (u32::MAX, 6)];
        let counted = came.map(|(sequence, at)| tally.count(sequence, ms(at)));
        assert_eq!(counted, [true, true, true, false, true, false, false]);
        let expected = Counts { received: 4, late: 1, first: ms(1), last: ms(4), after_first: 2 };
        assert_eq!(tally.counts(), expected);
        assert_eq!(Counts::from_words(tally.words(), 5), Some(expected));
    }

    #[test]
    fn a_rate_is_that_of_what_came_after_the_first() {
        let mut tally = Tally::default();
        // 1500 bytes a millisecond, the first two in one batch.
        (0..12).for_each(|n| _ = tally.count(n, ms(u64::from(n.saturating_sub(1)))));
        assert_eq!(tally.counts().rate(1500), Some(12e6));
        assert_eq!(Counts { after_first: 3, ..tally.counts() }.rate(1500), None);
        assert_eq!(Counts::default().rate(1500), None);
    }

    #[test]
    fn impossible_words_are_refused() {
        assert!(Counts::from_words([5, 0, 0, 0, 0], 5).is_some());
        for bad in [[6, 0, 0, 0, 0], [1, u64::MAX, 0, 0, 0], [1, 0, 2, 1, 0], [1, 0, 0, 0, 1 << 32]]
        {
            assert_eq!(Counts::from_words(bad, 5), None);
        }
    }
}
