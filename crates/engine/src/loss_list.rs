//! Which sequence numbers of a window are lost.
//!
//! The dissertation keeps ranges in a window-sized static list and searches it for neighbours
//! (gu05 §2.3.2.2). This is a bitmap with summaries instead: a word of 64 packets, a bit of the
//! next level for each word that is not empty, and so on up. Insertion, removal and "what is lost
//! first" cost a handful of word operations whatever has been lost, and nothing scans the window.

use farhaul_wire::{LossRange, Seq};

/// A set of sequence numbers that all lie within one window.
///
/// The caller keeps the span of what it inserts below [`LossList::capacity`].
#[derive(Debug)]
pub struct LossList {
    /// Level 0 has a bit a packet; each higher level a bit for each non-zero word below.
    levels: Vec<Vec<u64>>,
    mask: u32,
    len: u32,
}

impl LossList {
    /// A list for windows of up to `window` packets.
    pub fn new(window: u32) -> Self {
        let capacity = window.clamp(64, 1 << 30).next_power_of_two();
        let mut levels = Vec::new();
        let mut bits = capacity as usize;
        loop {
            let words = bits.div_ceil(64);
            levels.push(vec![0; words]);
            if words == 1 {
                break;
            }
            bits = words;
        }
        LossList { levels, mask: capacity - 1, len: 0 }
    }

    /// Packets that a window may span.
    pub fn capacity(&self) -> u32 {
        self.mask + 1
    }

    /// Packets in the list.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `seq` is lost.
    pub fn contains(&self, seq: Seq) -> bool {
        let index = self.index(seq);
        self.levels[0][index / 64] & (1 << (index % 64)) != 0
    }

    /// Adds a range; returns how many of it are new.
    pub fn insert(&mut self, range: LossRange) -> u32 {
        self.update(range, |word, mask| word | mask)
    }

    /// Removes a packet; returns whether it was lost.
    pub fn remove(&mut self, seq: Seq) -> bool {
        let index = self.index(seq);
        let bit = 1 << (index % 64);
        if self.levels[0][index / 64] & bit == 0 {
            return false;
        }
        self.levels[0][index / 64] &= !bit;
        self.len -= 1;
        self.summarise(index / 64);
        true
    }

    /// Removes a range; returns how many of it were lost.
    pub fn remove_range(&mut self, range: LossRange) -> u32 {
        let before = self.len;
        // Hop from lost packet to lost packet: what was never lost costs nothing.
        let mut from = range.first;
        while let Some(run) = self.next_range(from, range.last) {
            self.update(run, |word, mask| word & !mask);
            if run.last == range.last {
                break;
            }
            from = run.last.next();
        }
        before - self.len
    }

    /// The first lost packet in `from ..= to`.
    pub fn first(&self, from: Seq, to: Seq) -> Option<Seq> {
        if self.len == 0 || to.since(from) < 0 {
            return None;
        }
        let start = self.index(from);
        let found = self.find_from(start).or_else(|| self.find_from(0))?;
        let distance = (found as u32).wrapping_sub(start as u32) & self.mask;
        (distance <= to.since(from) as u32).then(|| from.plus(distance))
    }

    /// The first run of consecutive lost packets in `from ..= to`, cut off at `to`.
    pub fn next_range(&self, from: Seq, to: Seq) -> Option<LossRange> {
        let first = self.first(from, to)?;
        let longest = to.since(first) as u32 + 1;
        let mut length = 0;
        while length < longest {
            let index = self.index(first.plus(length));
            let word = self.levels[0][index / 64] >> (index % 64);
            let ones = (!word).trailing_zeros().min(64 - (index % 64) as u32);
            length += ones;
            if ones < 64 - (index % 64) as u32 {
                break;
            }
        }
        Some(LossRange { first, last: first.plus(length.min(longest) - 1) })
    }

    /// Makes room for windows of `window` packets. All that is in the list lies at `from` or after.
    pub fn grow(&mut self, window: u32, from: Seq) {
        if window <= self.capacity() {
            return;
        }
        let mut larger = LossList::new(window);
        // One packet further, and the first would be found a second time, as if it were the last.
        let to = from.plus(self.mask);
        let mut at = from;
        while let Some(run) = self.next_range(at, to) {
            larger.insert(run);
            at = run.last.next();
        }
        debug_assert_eq!(larger.len, self.len, "what is in the list lies within a window");
        *self = larger;
    }

    fn index(&self, seq: Seq) -> usize {
        (seq.value() & self.mask) as usize
    }

    /// Applies `change(word, bits of the range)` to each word that the range touches; returns by
    /// how many packets the list has changed.
    fn update(&mut self, range: LossRange, change: impl Fn(u64, u64) -> u64) -> u32 {
        let before = self.len;
        let mut left = range.len();
        let mut seq = range.first;
        while left > 0 {
            let index = self.index(seq);
            let count = left.min(64 - (index % 64) as u32);
            let bits = (u64::MAX >> (64 - count)) << (index % 64);
            let word = &mut self.levels[0][index / 64];
            let changed = change(*word, bits);
            self.len = self.len + changed.count_ones() - word.count_ones();
            *word = changed;
            self.summarise(index / 64);
            left -= count;
            seq = seq.plus(count);
        }
        self.len.abs_diff(before)
    }

    /// Carries the emptiness of a word of level 0 up.
    fn summarise(&mut self, mut word: usize) {
        for level in 1..self.levels.len() {
            let occupied = self.levels[level - 1][word] != 0;
            let bit = 1 << (word % 64);
            word /= 64;
            let summary = &mut self.levels[level][word];
            let updated = if occupied { *summary | bit } else { *summary & !bit };
            if updated == *summary {
                break;
            }
            *summary = updated;
        }
    }

    /// The first bit of level 0 at or after `index`, without going round.
    fn find_from(&self, index: usize) -> Option<usize> {
        // Up until some word has a later bit, then down to the bit itself.
        let mut position = index;
        let mut level = 0;
        loop {
            let word = self.levels.get(level)?.get(position / 64)?;
            let rest = word & (u64::MAX << (position % 64));
            if rest != 0 {
                position = position / 64 * 64 + rest.trailing_zeros() as usize;
                break;
            }
            position = position / 64 + 1;
            level += 1;
        }
        while level > 0 {
            level -= 1;
            position = position * 64 + self.levels[level][position].trailing_zeros() as usize;
        }
        Some(position)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use farhaul_base::Rng;

    use super::*;

    fn range(first: u32, last: u32) -> LossRange {
        LossRange { first: Seq::new(first), last: Seq::new(last) }
    }

    #[test]
    fn ranges_merge_and_split() {
        let mut list = LossList::new(1000);
        assert_eq!(list.insert(range(3, 5)), 3);
        assert_eq!(list.insert(range(7, 7)), 1);
        assert_eq!(list.insert(range(5, 7)), 1);
        let (from, to) = (Seq::new(0), Seq::new(900));
        assert_eq!(list.next_range(from, to), Some(range(3, 7)));
        assert!(list.remove(Seq::new(5)));
        assert!(!list.remove(Seq::new(5)));
        assert_eq!(list.next_range(from, to), Some(range(3, 4)));
        assert_eq!(list.next_range(Seq::new(5), to), Some(range(6, 7)));
        assert_eq!(list.first(from, Seq::new(2)), None);
        assert_eq!(list.remove_range(range(0, 6)), 3);
        assert_eq!(list.first(from, to), Some(Seq::new(7)));
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn a_run_may_cover_the_whole_window_and_the_wrap() {
        let start = Seq::new(Seq::MAX - 5000);
        let whole = LossRange { first: start, last: start.plus(8191) };
        let mut list = LossList::new(8192);
        assert_eq!(list.insert(whole), 8192);
        assert_eq!(list.next_range(start, whole.last), Some(whole));
        assert_eq!(list.remove_range(whole), 8192);
        assert!(list.is_empty());
        assert_eq!(list.first(start, whole.last), None);
    }

    #[test]
    fn growing_keeps_what_is_lost() {
        let mut list = LossList::new(64);
        let start = Seq::new(Seq::MAX - 10);
        list.insert(LossRange { first: start, last: start.plus(3) });
        list.insert(LossRange { first: start.plus(20), last: start.plus(63) });
        list.grow(100_000, start);
        assert!(list.capacity() >= 100_000);
        assert_eq!(list.len(), 48);
        assert_eq!(list.first(start.plus(4), start.plus(63)), Some(start.plus(20)));
    }

    /// Against a set, over random operations in a moving window that crosses the wrap.
    #[test]
    fn agrees_with_a_set() {
        let mut rng = Rng::new(11);
        let window = 5000u32;
        let mut base = Seq::new(Seq::MAX - 20_000);
        let mut list = LossList::new(window);
        let mut set: BTreeSet<u64> = BTreeSet::new();
        let mut origin = 0u64;
        for _ in 0..20_000 {
            let at = rng.below(u64::from(window)) as u32;
            let length = (1 + rng.below(300) as u32).min(window - at);
            let run = LossRange { first: base.plus(at), last: base.plus(at + length - 1) };
            let keys = origin + u64::from(at)..origin + u64::from(at + length);
            match rng.below(4) {
                0 => {
                    let new = keys.filter(|&k| set.insert(k)).count();
                    assert_eq!(list.insert(run), new as u32);
                }
                1 => {
                    let gone = keys.filter(|k| set.remove(k)).count();
                    assert_eq!(list.remove_range(run), gone as u32);
                }
                2 => assert_eq!(list.remove(run.first), set.remove(&keys.start)),
                _ => {
                    let step = rng.below(50) as u32;
                    if step > 0 {
                        list.remove_range(LossRange { first: base, last: base.plus(step - 1) });
                    }
                    base = base.plus(step);
                    origin += u64::from(step);
                    set = set.split_off(&origin);
                }
            }
            let to = base.plus(window - 1);
            let expected = set.range(origin..).next().map(|k| base.plus((k - origin) as u32));
            assert_eq!(list.first(base, to), expected);
            assert_eq!(list.len() as usize, set.len());
        }
    }
}
