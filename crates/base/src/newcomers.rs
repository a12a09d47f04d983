//! Newcomers by where they come from: places that are shared fairly, and counts.
//!
//! Until it has shown more, a newcomer is known by its source alone: an IPv4 address, or the first 64
//! bits of an IPv6 address, which is what one host or one subscriber has. When all places are taken,
//! one of the source that has the most goes. So a source that floods pushes out its own, and a host
//! that has one place keeps it as long as any source has two.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use crate::Rng;

/// Where newcomers come from: an IPv4 address, or an IPv6 network of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An address.
    V4([u8; 4]),
    /// The first half of an address.
    V6([u8; 8]),
}

impl Source {
    /// Of this address; one of IPv4 in the form of IPv6 counts as of IPv4.
    pub fn of(address: SocketAddr) -> Source {
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => Source::V4(ip.octets()),
            IpAddr::V6(ip) => {
                let [a, b, c, d, e, f, g, h, ..] = ip.octets();
                Source::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

impl core::fmt::Display for Source {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Source::V4(octets) => IpAddr::from(octets).fmt(f),
            Source::V6(half) => {
                let mut octets = [0; 16];
                octets[..8].copy_from_slice(&half);
                write!(f, "{}/64", IpAddr::from(octets))
            }
        }
    }
}

/// A limited number of places. Entering and leaving cost the logarithm of it.
#[derive(Debug)]
pub struct Crowd<T> {
    most: usize,
    most_of_source: usize,
    rng: Rng,
    next: u64,
    members: BTreeMap<u64, (Source, T)>,
    sources: BTreeMap<Source, Held>,
    /// The sources with so many places: those with one at 0.
    levels: Vec<Vec<Source>>,
}

/// What a source has.
#[derive(Debug, Default)]
struct Held {
    members: Vec<u64>,
    /// Its place in its level.
    at: usize,
}

impl<T> Crowd<T> {
    /// Of `most` places, at least 1. Which of several goes is drawn with `seed`: who cannot guess it
    /// cannot choose whom to push out.
    pub fn new(most: usize, seed: u64) -> Self {
        Crowd {
            most: most.max(1),
            most_of_source: usize::MAX,
            rng: Rng::new(seed),
            next: 0,
            members: BTreeMap::new(),
            sources: BTreeMap::new(),
            levels: Vec::new(),
        }
    }

    /// The same, of which one source gets `most`, at least 1.
    #[must_use]
    pub fn of_each_source(mut self, most: usize) -> Self {
        self.most_of_source = most.max(1);
        self
    }

    /// How many are in.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Places that `source` has.
    pub fn of(&self, source: Source) -> usize {
        self.sources.get(&source).map_or(0, |held| held.members.len())
    }

    /// One more of `source`: the number to find it by, and who went for it.
    pub fn enter(&mut self, source: Source, item: T) -> (u64, Option<(Source, T)>) {
        let gone = if self.of(source) >= self.most_of_source {
            self.push_out_of(source)
        } else if self.members.len() >= self.most {
            self.push_out(source)
        } else {
            None
        };
        let number = self.next;
        self.next += 1;
        self.members.insert(number, (source, item));
        self.recount(source, |members| members.push(number));
        (number, gone)
    }

    /// The one with this number goes; none if it has gone already.
    pub fn leave(&mut self, number: u64) -> Option<T> {
        let (source, item) = self.members.remove(&number)?;
        self.recount(source, |members| {
            if let Some(at) = members.iter().position(|other| *other == number) {
                members.swap_remove(at);
            }
        });
        Some(item)
    }

    /// The one with this number.
    pub fn get(&self, number: u64) -> Option<&T> {
        self.members.get(&number).map(|(_, item)| item)
    }

    /// The one that has been there longest.
    pub fn oldest(&self) -> Option<(u64, &T)> {
        self.members.first_key_value().map(|(number, (_, item))| (*number, item))
    }

    /// All, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.members.iter().map(|(number, (_, item))| (*number, item))
    }

    /// Makes room for one of `source`: where that has as many as any, one of its own goes.
    fn push_out(&mut self, source: Source) -> Option<(Source, T)> {
        let level = self.levels.iter().rposition(|level| !level.is_empty())?;
        let victim = match self.of(source) > level {
            true => source,
            false => self.levels[level][self.rng.below(self.levels[level].len() as u64) as usize],
        };
        self.push_out_of(victim)
    }

    /// One of `source` goes.
    fn push_out_of(&mut self, source: Source) -> Option<(Source, T)> {
        let members = &self.sources.get(&source)?.members;
        let number = members[self.rng.below(members.len() as u64) as usize];
        self.leave(number).map(|item| (source, item))
    }

    /// Changes what a source has, and moves it to the level of that.
    fn recount(&mut self, source: Source, change: impl FnOnce(&mut Vec<u64>)) {
        let held = self.sources.entry(source).or_default();
        let (before, at) = (held.members.len(), held.at);
        change(&mut held.members);
        let after = held.members.len();
        if before == after {
            return;
        }
        if before > 0 {
            let level = &mut self.levels[before - 1];
            level.swap_remove(at);
            let moved = level.get(at).copied();
            if let Some(moved) = moved.and_then(|moved| self.sources.get_mut(&moved)) {
                moved.at = at;
            }
        }
        if after == 0 {
            self.sources.remove(&source);
            return;
        }
        if self.levels.len() < after {
            self.levels.resize_with(after, Vec::new);
        }
        let level = &mut self.levels[after - 1];
        level.push(source);
        let at = level.len() - 1;
        if let Some(held) = self.sources.get_mut(&source) {
            held.at = at;
        }
        while self.levels.last().is_some_and(Vec::is_empty) {
            self.levels.pop();
        }
    }
}

/// Sources that a [`Tally`] tells apart.
const MOST_TOLD: usize = 64;

/// How many newcomers came to nothing, by source; of the sources that came first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub total: u64,
    /// By source, at most 64.
    pub sources: BTreeMap<Source, u64>,
}

impl Tally {
    /// Counts `count` more of `source`.
    pub fn add(&mut self, source: Source, count: u64) {
        self.total += count;
        if self.sources.len() < MOST_TOLD || self.sources.contains_key(&source) {
            *self.sources.entry(source).or_default() += count;
        }
    }

    /// What `other` has counted counts here, too.
    pub fn merge(&mut self, other: &Tally) {
        let told: u64 = other.sources.values().sum();
        self.total += other.total - told;
        other.sources.iter().for_each(|(source, count)| self.add(*source, *count));
    }

    /// Whether there were more sources than are told apart.
    pub fn is_cut(&self) -> bool {
        self.sources.values().sum::<u64>() < self.total
    }

    /// The sources with the most, those first.
    pub fn most(&self, count: usize) -> Vec<(Source, u64)> {
        let mut sources: Vec<_> = self.sources.iter().map(|(s, count)| (*s, *count)).collect();
        sources.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
        sources.truncate(count);
        sources
    }
}

/// Values by source, of which only those are kept that were used last.
#[derive(Debug)]
pub struct Recent<V> {
    most: usize,
    turn: u64,
    values: BTreeMap<Source, (u64, V)>,
    order: BTreeMap<u64, Source>,
}

impl<V> Recent<V> {
    /// Of `most` sources, at least 1.
    pub fn new(most: usize) -> Self {
        Recent { most: most.max(1), turn: 0, values: BTreeMap::new(), order: BTreeMap::new() }
    }

    /// The value of `source`, which counts as used.
    pub fn get_or(&mut self, source: Source, new: impl FnOnce() -> V) -> &mut V {
        self.turn += 1;
        if let Some((turn, _)) = self.values.get(&source) {
            self.order.remove(turn);
        } else if self.values.len() >= self.most
            && let Some((_, last)) = self.order.pop_first()
        {
            self.values.remove(&last);
        }
        self.order.insert(self.turn, source);
        let (turn, value) = self.values.entry(source).or_insert_with(|| (0, new()));
        *turn = self.turn;
        value
    }

    /// The value of `source`, which does not count as used.
    pub fn peek(&self, source: Source) -> Option<&V> {
        self.values.get(&source).map(|(_, value)| value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(n: u32) -> Source {
        Source::V4(n.to_be_bytes())
    }

    /// What it keeps book of is what is there.
    fn check(crowd: &Crowd<u32>) {
        let mut counts = BTreeMap::<Source, usize>::new();
        for (source, _) in crowd.members.values() {
            *counts.entry(*source).or_default() += 1;
        }
        assert_eq!(counts.len(), crowd.sources.len());
        for (source, count) in &counts {
            let held = &crowd.sources[source];
            assert_eq!(held.members.len(), *count);
            assert_eq!(crowd.levels[count - 1][held.at], *source);
        }
        assert_eq!(crowd.levels.iter().map(Vec::len).sum::<usize>(), counts.len());
        assert!(crowd.levels.last().is_none_or(|level| !level.is_empty()));
    }

    #[test]
    fn books_are_right_whatever_happens() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut crowd = Crowd::new(20, seed);
            for n in 0..2_000 {
                if rng.below(3) == 0 && !crowd.is_empty() {
                    let oldest = crowd.oldest().map(|(number, _)| number);
                    let number = oldest.unwrap_or(0) + rng.below(20);
                    let was = crowd.get(number).copied();
                    assert_eq!(crowd.leave(number), was);
                } else {
                    let full = crowd.len() == 20;
                    let (number, gone) = crowd.enter(source(rng.below(8) as u32), n);
                    assert_eq!((crowd.get(number), gone.is_some()), (Some(&n), full));
                }
                check(&crowd);
            }
        }
    }

    #[test]
    fn one_of_the_fullest_source_goes() {
        let mut crowd = Crowd::new(100, 1);
        let (honest, _) = crowd.enter(source(7), 0);
        for n in 0..100_000 {
            crowd.enter(source(1 + n % 6), n);
        }
        assert_eq!(crowd.get(honest), Some(&0));
        assert_eq!((crowd.len(), crowd.of(source(7))), (100, 1));
        // Many sources with two places each on the average leave those alone that have one.
        let mut crowd = Crowd::new(100, 1);
        let (honest, _) = crowd.enter(source(1_000), 0);
        for n in 0..100_000 {
            crowd.enter(source(n % 49), n);
        }
        assert_eq!(crowd.get(honest), Some(&0));
    }

    #[test]
    fn a_source_gets_no_more_than_its_places() {
        let mut crowd = Crowd::new(100, 1).of_each_source(3);
        let (honest, _) = crowd.enter(source(7), 0);
        for n in 0..1_000 {
            let gone = crowd.enter(source(1), n).1;
            assert_eq!(gone.map(|(from, _)| from), (n >= 3).then(|| source(1)));
            check(&crowd);
        }
        assert_eq!((crowd.get(honest), crowd.of(source(1)), crowd.len()), (Some(&0), 3, 4));
    }

    #[test]
    fn within_a_source_chance_decides() {
        // Twice as many come as there are places: one of them stays with a probability of e^-2.
        let stays = |seed| {
            let mut crowd = Crowd::new(50, seed);
            let fill = |crowd: &mut Crowd<u32>, count| {
                for n in 0..count {
                    crowd.enter(source(1), n);
                }
            };
            fill(&mut crowd, 50);
            let (ours, _) = crowd.enter(source(1), 0);
            fill(&mut crowd, 100);
            crowd.get(ours).is_some()
        };
        let stayed = (0..400).filter(|seed| stays(*seed)).count();
        assert!((30..90).contains(&stayed), "{stayed} of 400");
    }

    #[test]
    fn what_was_used_last_is_kept() {
        let mut recent = Recent::new(3);
        for n in [1, 2, 3, 1, 4, 4, 5] {
            *recent.get_or(source(n), || 0) += 1;
        }
        let left = [1, 2, 3, 4, 5].map(|n| recent.peek(source(n)).copied());
        assert_eq!(left, [Some(2), None, None, Some(2), Some(1)]);
        assert_eq!((recent.len(), recent.order.len()), (3, 3));
    }

    #[test]
    fn counts_are_bounded_and_complete() {
        let mut tally = Tally::default();
        (0..1_000).for_each(|n| tally.add(source(n), 1));
        tally.add(source(5), 9);
        let mut both = Tally::default();
        both.add(source(2_000), 2);
        both.merge(&tally);
        assert_eq!((both.total, both.sources.len()), (1_011, 64));
        assert!(both.is_cut());
        let mut few = Tally::default();
        (0..64).for_each(|n| few.add(source(n), 2));
        assert!(!few.is_cut());
        assert_eq!(both.most(2), [(source(5), 10), (source(2_000), 2)]);
    }

    #[test]
    fn sources_are_addresses_and_networks() {
        let of = |text: &str| Source::of(text.parse().unwrap()).to_string();
        assert_eq!(of("192.0.2.1:5"), "192.0.2.1");
        assert_eq!(of("[::ffff:192.0.2.1]:5"), "192.0.2.1");
        assert_eq!(of("[2001:db8:1:2:3:4:5:6]:5"), "2001:db8:1:2::/64");
        let same = ["[2001:db8:1:2::1]:1", "[2001:db8:1:2:ffff::]:2"].map(of);
        assert_eq!(same[0], same[1]);
        assert_ne!(same[0], of("[2001:db8:1:3::1]:1"));
    }
}
