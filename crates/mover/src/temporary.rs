//! Names for what is not complete yet.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

/// The directory of the marks of what is not on the medium yet.
pub(crate) const UNSYNCED: &str = ".farhaul-unsynced";

/// Names for unfinished entries: hidden, and unlike those of any other transfer, also of the same process: once
/// one has ended, what bears its names may be swept away.
#[derive(Debug)]
pub struct TemporaryNames {
    prefix: u64,
    next: AtomicU64,
}

impl TemporaryNames {
    /// A peer may guess a name and take it: another is tried then, this often.
    const ATTEMPTS: usize = 100;

    /// Those of a new transfer.
    #[expect(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> Self {
        // The standard library's hash seed is the operating system's randomness.
        TemporaryNames { prefix: RandomState::new().hash_one(0), next: AtomicU64::new(0) }
    }

    /// A new name for what tells others that names of this kind may be in use, with another end.
    pub(crate) fn mark(&self, end: &str) -> String {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        format!(".farhaul-{:016x}-{next:x}{end}", self.prefix)
    }

    /// Makes an entry under a new name with `make`, which fails with `EXIST` if it is taken.
    pub(crate) fn make<T>(
        &self,
        mut make: impl FnMut(&str) -> rustix::io::Result<T>,
    ) -> io::Result<(String, T)> {
        for _ in 0..Self::ATTEMPTS {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let name = format!(".farhaul-{:016x}-{next:x}.part", self.prefix);
            match make(&name) {
                Err(Errno::EXIST) => {}
                made => return Ok((name, made?)),
            }
        }
        Err(Errno::EXIST.into())
    }
}

/// Whether a name is one of those that transfers keep beside files: nobody may send such.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    name == UNSYNCED.as_bytes()
        || name.strip_prefix(b".farhaul-").is_some_and(|rest| {
            [&b".part"[..], b".journal", b".unsynced"].iter().any(|end| rest.ends_with(end))
        })
}

/// Whose a name is: what all names of one [`TemporaryNames`] have in common.
pub(crate) fn owner(name: &[u8]) -> Option<u64> {
    let rest = std::str::from_utf8(name.strip_prefix(b".farhaul-")?).ok()?;
    let (prefix, rest) = rest.split_once('-')?;
    let (number, _) = rest.split_once('.')?;
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if prefix.len() != 16 || !hex(prefix) || !hex(number) {
        return None;
    }
    u64::from_str_radix(prefix, 16).ok()
}

/// Whether a name is that of a mark of what is not on the medium yet: see [`TemporaryNames::mark`].
pub(crate) fn is_mark(name: &[u8]) -> bool {
    let stem = name.strip_suffix(b".unsynced");
    owner(name).is_some() && stem.is_some_and(|stem| !stem[1..].contains(&b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

    #[test]
    fn only_names_of_marks_are_those_of_marks() {
        assert!(is_mark(TemporaryNames::new().mark(".unsynced").as_bytes()));
        for other in [
            "",
            ".unsynced",
            "thesis.unsynced",
            ".farhaul-0123456789abcdef-0.part",
            ".farhaul-0123456789abcdef-0.x.unsynced",
            ".farhaul-0123456789abcdef-.unsynced",
            ".farhaul-mine-0.unsynced",
        ] {
            assert!(!is_mark(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn names_tell_whose_they_are() {
        let names = TemporaryNames::new();
        let (made, ()) = names.make(|_| Ok(())).unwrap();
        let owner_of = |name: &str| owner(name.as_bytes()).unwrap();
        assert_eq!(owner_of(&made), owner_of(&names.mark(".unsynced")));
        assert_ne!(owner_of(&made), owner_of(&TemporaryNames::new().mark(".unsynced")));
        for other in ["x", ".farhaul-0123456789abcdef.part", ".farhaul-0123456789abcdef-.part"] {
            assert_eq!(owner(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn names_of_our_own_are_known() {
        for name in
            [&b".farhaul-0123456789abcdef.part"[..], b".farhaul-0.journal", UNSYNCED.as_bytes()]
        {
            assert!(is_ours(name));
        }
        for name in [&b".farhaul-notes"[..], b"a.part", b".farhaulx.part"] {
            assert!(!is_ours(name), "{name:?}");
        }
    }

    #[test]
    fn a_taken_temporary_name_is_passed_over() {
        let names = TemporaryNames::new();
        let mut tried = Vec::new();
        let (made, ()) = names
            .make(|name| {
                tried.push(name.to_owned());
                if tried.len() < 5 { Err(Errno::EXIST) } else { Ok(()) }
            })
            .unwrap();
        tried.dedup();
        assert_eq!((tried.len(), tried.last()), (5, Some(&made)));
        assert!(Name::new(made.as_bytes()).is_ok());
        let errno = |error| names.make(|_| Err::<(), _>(error)).unwrap_err().raw_os_error();
        assert_eq!(errno(Errno::EXIST), Some(Errno::EXIST.raw_os_error()));
        assert_eq!(errno(Errno::NOSPC), Some(Errno::NOSPC.raw_os_error()));
        let other = TemporaryNames::new();
        assert_ne!(names.prefix, other.prefix, "two transfers into one directory do not meet");
    }
}
