//! Whether two trees are the same.
//!
//! Looks at the trees alone and shares no code with what moved them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

use super::stop::Stop;

/// Differences that are told one by one; the others are counted.
const TOLD: usize = 20;

/// What a comparison has shown.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    /// Regular files of the first tree.
    pub files: u64,
    /// Its directories, the root not counted.
    pub directories: u64,
    /// Its symbolic links.
    pub symlinks: u64,
    /// Sizes of its files together, holes counted.
    pub bytes: u64,
    /// How many entries differ.
    pub different: u64,
    /// The first of them, and in what they differ.
    pub differences: Vec<String>,
}

/// Compares the trees at `first` and `second`: names and kinds of all entries; modes; dates of change
/// of files and directories; sizes and contents (by BLAKE3) of files; what links say.
///
/// # Errors
/// Only if `stop` is set. What cannot be read counts as different.
pub fn compare(first: &Path, second: &Path, stop: &Stop) -> io::Result<Comparison> {
    let mut comparison = Comparison::default();
    let mut walk = Walk { stop, buffer: vec![0; 1 << 18], comparison: &mut comparison };
    walk.entry(first, second)?;
    // The root does not count.
    comparison.directories = comparison.directories.saturating_sub(1);
    Ok(comparison)
}

struct Walk<'a> {
    stop: &'a Stop,
    buffer: Vec<u8>,
    comparison: &'a mut Comparison,
}

impl Walk<'_> {
    fn entry(&mut self, first: &Path, second: &Path) -> io::Result<()> {
        self.stop.check()?;
        let both = (fs::symlink_metadata(first), fs::symlink_metadata(second));
        let (one, two) = match both {
            (Ok(one), Ok(two)) => (one, two),
            (Err(error), _) | (_, Err(error)) => {
                self.differ(first, &error.to_string());
                return Ok(());
            }
        };
        self.count(&one);
        let found = self.look(first, second, &one, &two);
        self.stop.check()?;
        match found {
            Ok(None) => {}
            Ok(Some(difference)) => self.differ(first, difference),
            Err(error) => self.differ(first, &error.to_string()),
        }
        if one.is_dir() && two.is_dir() { self.directory(first, second) } else { Ok(()) }
    }

    /// The entries of two directories: in one of them, or in both.
    fn directory(&mut self, first: &Path, second: &Path) -> io::Result<()> {
        let mut entries: BTreeMap<OsString, [bool; 2]> = BTreeMap::new();
        for (index, path) in [first, second].into_iter().enumerate() {
            let names = fs::read_dir(path).and_then(|entries| {
                entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()
            });
            match names {
                Ok(names) => {
                    names.into_iter().for_each(|n| entries.entry(n).or_default()[index] = true);
                }
                Err(error) => self.differ(path, &error.to_string()),
            }
        }
        for (name, found) in entries {
            let (one, two) = (first.join(&name), second.join(&name));
            match found {
                [true, true] => self.entry(&one, &two)?,
                [true, false] => self.differ(&one, "missing"),
                _ => self.differ(&two, "not in the source"),
            }
        }
        Ok(())
    }

    /// In what two entries of one name differ, if they do.
    fn look(
        &mut self,
        first: &Path,
        second: &Path,
        one: &Metadata,
        two: &Metadata,
    ) -> io::Result<Option<&'static str>> {
        if kind(one) != kind(two) {
            return Ok(Some("another kind"));
        }
        if one.is_symlink() {
            let same = fs::read_link(first)? == fs::read_link(second)?;
            return Ok((!same).then_some("another target"));
        }
        if one.is_file() && one.len() != two.len() {
            return Ok(Some("another size"));
        }
        if one.is_file() && self.digest(first)? != self.digest(second)? {
            return Ok(Some("other content"));
        }
        if one.mode() != two.mode() {
            return Ok(Some("another mode"));
        }
        let date = |entry: &Metadata| (entry.mtime(), entry.mtime_nsec());
        Ok((date(one) != date(two)).then_some("another date"))
    }

    fn digest(&mut self, path: &Path) -> io::Result<blake3::Hash> {
        let mut file = File::open(path)?;
        let mut hasher = blake3::Hasher::new();
        loop {
            self.stop.check()?;
            match file.read(&mut self.buffer)? {
                0 => return Ok(hasher.finalize()),
                length => drop(hasher.update(&self.buffer[..length])),
            }
        }
    }

    fn count(&mut self, entry: &Metadata) {
        if entry.is_dir() {
            self.comparison.directories += 1;
        } else if entry.is_symlink() {
            self.comparison.symlinks += 1;
        } else if entry.is_file() {
            self.comparison.files += 1;
            self.comparison.bytes += entry.len();
        }
    }

    fn differ(&mut self, path: &Path, how: &str) {
        self.comparison.different += 1;
        if self.comparison.differences.len() < TOLD {
            self.comparison.differences.push(format!("{}: {how}", path.display()));
        }
    }
}

fn kind(entry: &Metadata) -> FileType {
    entry.file_type()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    /// Two like trees: a directory with a file, and a link.
    fn trees() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for tree in ["one", "two"] {
            let root = dir.path().join(tree);
            fs::create_dir_all(root.join("d")).unwrap();
            fs::write(root.join("d/file"), "content").unwrap();
            symlink("d/file", root.join("link")).unwrap();
            date_all(&root);
        }
        dir
    }

    /// Gives everything one date, so that only the intended differences remain.
    fn date_all(root: &Path) {
        for path in [root.join("d/file"), root.join("d"), root.to_owned()] {
            let Ok(entry) = File::open(path) else { continue };
            entry.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
        }
    }

    /// What is found after a change to the second tree.
    fn after(change: impl FnOnce(&Path)) -> Vec<String> {
        let dir = trees();
        let two = dir.path().join("two");
        change(&two);
        let found = compare(&dir.path().join("one"), &two, &Stop::default()).unwrap();
        assert_eq!(found.different, found.differences.len() as u64);
        let prefix = dir.path().display().to_string();
        found.differences.iter().map(|d| d.replace(&prefix, "")).collect()
    }

    #[test]
    fn like_trees_are_the_same() {
        let dir = trees();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let found = compare(&one, &two, &Stop::default()).unwrap();
        assert_eq!((found.files, found.directories, found.symlinks), (1, 1, 1));
        assert_eq!((found.bytes, found.different), (7, 0));
    }

    #[test]
    fn every_difference_is_found() {
        let flipped = after(|two| {
            fs::write(two.join("d/file"), "contenu").unwrap();
            date_all(two);
        });
        assert_eq!(flipped, ["/one/d/file: other content"]);
        let longer = after(|two| {
            fs::write(two.join("d/file"), "contents").unwrap();
            date_all(two);
        });
        assert_eq!(longer, ["/one/d/file: another size"]);
        let gone = after(|two| {
            fs::remove_file(two.join("d/file")).unwrap();
            date_all(two);
        });
        assert_eq!(gone, ["/one/d/file: missing"]);
        let more = after(|two| {
            fs::write(two.join("d/more"), "").unwrap();
            date_all(two);
        });
        assert_eq!(more, ["/two/d/more: not in the source"]);
        let mode = after(|two| {
            fs::set_permissions(two.join("d/file"), Permissions::from_mode(0o4755)).unwrap();
        });
        assert_eq!(mode, ["/one/d/file: another mode"]);
        let directory_mode = after(|two| {
            fs::set_permissions(two.join("d"), Permissions::from_mode(0o711)).unwrap();
        });
        assert_eq!(directory_mode, ["/one/d: another mode"]);
        let date = after(|two| {
            let file = File::open(two.join("d/file")).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::new(1_000_000, 1)).unwrap();
        });
        assert_eq!(date, ["/one/d/file: another date"]);
        let link = after(|two| {
            fs::remove_file(two.join("link")).unwrap();
            symlink("d", two.join("link")).unwrap();
            date_all(two);
        });
        assert_eq!(link, ["/one/link: another target"]);
        let kind = after(|two| {
            fs::remove_file(two.join("link")).unwrap();
            fs::write(two.join("link"), "content").unwrap();
            date_all(two);
        });
        assert_eq!(kind, ["/one/link: another kind"]);
        let all = after(|two| fs::remove_dir_all(two).unwrap());
        assert_eq!(all.len(), 1, "{all:?}");
    }

    #[test]
    fn many_differences_are_counted() {
        let dir = trees();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        (0..100).for_each(|number| fs::write(one.join(format!("{number}")), "").unwrap());
        date_all(&one);
        let found = compare(&one, &two, &Stop::default()).unwrap();
        assert_eq!((found.different, found.differences.len()), (100, TOLD));
    }

    #[test]
    fn comparing_can_be_stopped() {
        let dir = trees();
        let stop = Stop::default();
        stop.stop();
        let error = compare(dir.path(), dir.path(), &stop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
