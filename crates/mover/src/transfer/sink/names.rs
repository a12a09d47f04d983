//! Which names a directory has at the source.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::transfer::memory::{Account, mapped};

/// Names that are remembered at a time, of all directories together.
const LIMIT: usize = 4 << 20;
/// What a name takes of memory.
const NAME: usize = mapped(size_of::<(u64, u64)>());

/// How names are compared here.
#[derive(Debug, Default)]
pub(super) struct Naming {
    /// Keyed, so that no peer can find two names with one hash.
    key: RandomState,
    remembered: AtomicUsize,
}

/// What became of a name that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is new in its directory.
    New,
    /// It has come before.
    Again,
    /// One that differs in capitals alone has come before, and here that is the same.
    Folded,
}

impl Naming {
    /// Eight bytes for a name, and eight for it without regard to capitals.
    fn hash(&self, name: &[u8]) -> (u64, u64) {
        // By way of capitals, as some letters have several small forms.
        let folded = String::from_utf8_lossy(name).to_uppercase().to_lowercase();
        (self.key.hash_one(name), self.key.hash_one((1, folded)))
    }

    /// Takes a name of a directory. `folds`: whether capitals make no difference in it.
    pub(super) fn insert(
        &self,
        names: &mut Names,
        name: &[u8],
        folds: impl FnOnce() -> bool,
        memory: &Account,
    ) -> Taken {
        if names.overflowed {
            return Taken::New;
        }
        if self.remembered.load(Ordering::Relaxed) >= LIMIT {
            names.overflowed = true;
            return Taken::New;
        }
        let (exact, folded) = self.hash(name);
        match names.first.get(&folded).copied() {
            Some(first) if first == exact || names.further.contains(&exact) => {
                return Taken::Again;
            }
            Some(_) if folds() => return Taken::Folded,
            _ if !memory.spare(NAME) => {
                names.overflowed = true;
                return Taken::New;
            }
            None => drop(names.first.insert(folded, exact)),
            Some(_) => drop(names.further.insert(exact)),
        }
        self.remembered.fetch_add(1, Ordering::Relaxed);
        Taken::New
    }

    /// Whether the name was taken. `folds`: as of [`Naming::insert`].
    pub(super) fn contains(
        &self,
        names: &Names,
        name: &[u8],
        folds: impl FnOnce() -> bool,
    ) -> bool {
        let (exact, folded) = self.hash(name);
        match names.first.get(&folded) {
            None => false,
            Some(first) => *first == exact || names.further.contains(&exact) || folds(),
        }
    }

    /// The names are not wanted any more.
    pub(super) fn forget(&self, names: Names) {
        let count = names.first.len() + names.further.len();
        self.remembered.fetch_sub(count, Ordering::Relaxed);
    }
}

/// The names of one directory.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By the hash without regard to capitals, the first name's own.
    first: HashMap<u64, u64, BuildHasherDefault<Ready>>,
    /// The hashes of those that differ from a first one in capitals alone.
    further: HashSet<u64, BuildHasherDefault<Ready>>,
    /// There were too many: some are not known.
    pub(super) overflowed: bool,
}

impl Names {
    /// What they take of memory.
    pub(super) fn bytes(&self) -> usize {
        (self.first.len() + self.further.len()) * NAME
    }
}

/// What is hashed is a hash already.
#[derive(Debug, Default)]
struct Ready(u64);

impl Hasher for Ready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_once() {
        let naming = Naming::default();
        let mut names = Names::default();
        let mut take = |name: &[u8]| naming.insert(&mut names, name, || false, &Account::default());
        assert_eq!([b"a", b"a", b"A", b"A"].map(|name| take(name)), {
            use Taken::{Again, New};
            [New, Again, New, Again]
        });
        let has = |name: &[u8]| naming.contains(&names, name, || false);
        assert!(has(b"A") && has(b"a") && !has(b"b"));
        naming.forget(names);
        let mut names = Names::default();
        let mut take =
            |name: &str| naming.insert(&mut names, name.as_bytes(), || true, &Account::default());
        assert_eq!((take("É"), take("é"), take("É")), (Taken::New, Taken::Folded, Taken::Again));
        assert!(naming.contains(&names, "é".as_bytes(), || true));
        assert_eq!(naming.remembered.load(Ordering::Relaxed), 1);
        naming.forget(names);
        assert_eq!(naming.remembered.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn too_many_names_are_not_remembered() {
        let naming = Naming::default();
        naming.remembered.store(LIMIT, Ordering::Relaxed);
        let mut names = Names::default();
        for _ in 0..2 {
            assert_eq!(naming.insert(&mut names, b"a", || true, &Account::default()), Taken::New);
        }
        assert!(names.overflowed);
    }

    #[test]
    fn names_that_there_is_no_memory_for_are_not_remembered() {
        let (naming, memory) = (Naming::default(), Account::new(2 * NAME as u64));
        let mut names = Names::default();
        for (name, overflowed) in [(b"a", false), (b"b", true)] {
            assert_eq!(naming.insert(&mut names, name, || true, &memory), Taken::New);
            assert_eq!(names.overflowed, overflowed);
        }
        memory.give(names.bytes());
        assert_eq!(memory.used(), 0);
    }
}
