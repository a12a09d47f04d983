//! Which names a directory has at the source.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names that are remembered at a time, of all directories together.
const LIMIT: usize = 4 << 20;

/// How names are compared here.
#[derive(Debug, Default)]
pub(super) struct Naming {
    /// Keyed, so that nobody can find two names with one hash.
    key: RandomState,
    /// Capitals make no difference in the target.
    pub(super) folds: bool,
    remembered: AtomicUsize,
}

impl Naming {
    /// Eight bytes for a name.
    pub(super) fn hash(&self, name: &[u8]) -> u64 {
        if self.folds {
            return self.key.hash_one(String::from_utf8_lossy(name).to_lowercase().as_bytes());
        }
        self.key.hash_one(name)
    }

    /// Takes a name of a directory. `false`: it is there.
    pub(super) fn insert(&self, names: &mut Names, name: &[u8]) -> bool {
        if names.overflowed {
            return true;
        }
        if self.remembered.load(Ordering::Relaxed) >= LIMIT {
            names.overflowed = true;
            return true;
        }
        let new = names.hashes.insert(self.hash(name));
        if new {
            self.remembered.fetch_add(1, Ordering::Relaxed);
        }
        new
    }

    /// Whether the name was taken.
    pub(super) fn contains(&self, names: &Names, name: &[u8]) -> bool {
        names.hashes.contains(&self.hash(name))
    }

    /// The names are not wanted any more.
    pub(super) fn forget(&self, names: Names) {
        self.remembered.fetch_sub(names.hashes.len(), Ordering::Relaxed);
    }
}

/// The names of one directory.
#[derive(Debug, Default)]
pub(super) struct Names {
    hashes: HashSet<u64, BuildHasherDefault<Ready>>,
    /// There were too many: some are not known.
    pub(super) overflowed: bool,
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
        let mut naming = Naming::default();
        let mut names = Names::default();
        assert!(naming.insert(&mut names, b"a"));
        assert!(!naming.insert(&mut names, b"a"));
        assert!(naming.insert(&mut names, b"A"));
        assert!(naming.contains(&names, b"A") && !naming.contains(&names, b"b"));
        naming.forget(names);
        naming.folds = true;
        let mut names = Names::default();
        assert!(naming.insert(&mut names, "É".as_bytes()));
        assert!(!naming.insert(&mut names, "é".as_bytes()));
        assert_eq!(naming.remembered.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn too_many_names_are_not_remembered() {
        let naming = Naming::default();
        naming.remembered.store(LIMIT, Ordering::Relaxed);
        let mut names = Names::default();
        assert!(naming.insert(&mut names, b"a") && naming.insert(&mut names, b"a"));
        assert!(names.overflowed);
    }
}
