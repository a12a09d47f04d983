//! Sets of segments as ranges in order: what has arrived beyond a hole.

use core::cmp::Ordering;
use core::ops::Range;
use std::collections::VecDeque;

/// A set of numbers as its maximal ranges, ascending. Cheap where ranges are added at the top and
/// taken away at the bottom, as a window does.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    ranges: VecDeque<Range<u64>>,
}

impl Ranges {
    /// The ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Range<u64>> {
        self.ranges.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The range that holds `number`.
    pub fn find(&self, number: u64) -> Option<&Range<u64>> {
        let order = |range: &Range<u64>| {
            if range.end <= number {
                Ordering::Less
            } else if range.start > number {
                Ordering::Greater
            } else {
                Ordering::Equal
            }
        };
        self.ranges.binary_search_by(order).ok().map(|index| &self.ranges[index])
    }

    /// Adds `range`, and tells `new` of each part of it that was not in the set.
    pub fn insert(&mut self, range: Range<u64>, mut new: impl FnMut(Range<u64>)) {
        if range.is_empty() {
            return;
        }
        // The ranges that overlap or touch it, from..to.
        let from = match self.ranges.back() {
            None => 0,
            Some(last) if last.end < range.start => self.ranges.len(),
            Some(last) if last.start <= range.start => self.ranges.len() - 1,
            Some(_) => self.ranges.partition_point(|r| r.end < range.start),
        };
        let mut to = from;
        let (mut merged, mut at) = (range.clone(), range.start);
        while let Some(known) = self.ranges.get(to).filter(|r| r.start <= range.end) {
            if at < known.start {
                new(at..known.start);
            }
            at = at.max(known.end);
            merged = merged.start.min(known.start)..merged.end.max(known.end);
            to += 1;
        }
        if at < range.end {
            new(at..range.end);
        }
        if from == to {
            self.ranges.insert(from, merged);
        } else {
            self.ranges[from] = merged;
            self.ranges.drain(from + 1..to);
        }
    }

    /// Takes away everything before `number`.
    pub fn remove_before(&mut self, number: u64) {
        while let Some(first) = self.ranges.front_mut() {
            if first.end > number {
                first.start = first.start.max(number);
                break;
            }
            self.ranges.pop_front();
        }
    }

    /// Takes away the first range and returns it, if it begins at `number`.
    pub fn take_from(&mut self, number: u64) -> Option<Range<u64>> {
        self.ranges.front().filter(|first| first.start == number)?;
        self.ranges.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use farhaul_base::Rng;

    use super::*;

    #[test]
    fn like_a_set_of_numbers() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
            for _ in 0..200 {
                let start = rng.below(100);
                let range = start..start + rng.below(12);
                let mut new = Vec::new();
                ranges.insert(range.clone(), |part| new.extend(part));
                let expected: Vec<u64> = range.filter(|n| model.insert(*n)).collect();
                assert_eq!(new, expected);
                if rng.chance(0.1) {
                    let number = rng.below(40);
                    ranges.remove_before(number);
                    model.retain(|n| *n >= number);
                }
                let listed: Vec<u64> = ranges.iter().flat_map(Clone::clone).collect();
                assert!(listed.iter().eq(&model));
                let apart = ranges.iter().zip(ranges.iter().skip(1)).all(|(a, b)| a.end < b.start);
                assert!(apart);
                let number = rng.below(110);
                assert_eq!(ranges.find(number).is_some(), model.contains(&number));
            }
        }
    }
}
