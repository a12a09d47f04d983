//! Walking a source depth first, one descriptor a level, never through a symbolic link.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};

use crate::frame::{Attributes, MAX_DEPTH};
use crate::inode::{self, Kind};
use crate::name::Name;
use crate::sources::{Source, open_content};

/// A walk over one source.
///
/// Memory does not grow with the number of entries: a directory is read as a stream, in whatever
/// order the file system gives.
#[derive(Debug)]
pub(crate) struct Walk {
    source: Source,
    /// The directories entered and not yet left, outermost first.
    open: Vec<Dir>,
    /// The last entry, as the user would name it.
    path: PathBuf,
    state: State,
}

/// What the walk comes to next.
#[derive(Debug)]
pub(crate) enum Step {
    /// An entry. A directory is walked only if [`Walk::enter`] is called for it.
    Found(Found),
    /// The present directory, once entered, has no more entries.
    Leave,
    /// The present directory could not be read further, or an entry of it not looked at.
    Failed(io::Error),
}

/// An entry of the present directory.
#[derive(Debug)]
pub(crate) struct Found {
    name: CString,
    pub(crate) kind: Kind,
    pub(crate) stat: Stat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was given out yet.
    Start,
    /// The last component of `path` is an entry or a directory that was left.
    AtEntry,
    /// `path` is a directory that was just entered.
    InDirectory,
}

impl Walk {
    /// Begins; nothing is opened yet.
    pub(crate) fn new(source: Source) -> Self {
        let path = source.path.clone();
        Walk { source, open: Vec::new(), path, state: State::Start }
    }

    /// The next step; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Step> {
        let before = std::mem::replace(&mut self.state, State::AtEntry);
        if before == State::Start {
            return self.start();
        }
        if before == State::AtEntry && !self.open.is_empty() {
            self.path.pop();
        }
        let directory = self.open.last_mut()?;
        loop {
            let name = match directory.read() {
                None => return self.leave(),
                Some(Err(errno)) => {
                    self.state = State::InDirectory;
                    return Some(Step::Failed(errno.into()));
                }
                Some(Ok(entry)) => entry.file_name().to_owned(),
            };
            if Name::new(name.to_bytes()).is_err() {
                continue; // `.` and `..`; the kernel gives nothing else that is no name.
            }
            let stat = directory
                .fd()
                .and_then(|fd| statat(fd, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW));
            self.path.push(OsStr::from_bytes(name.to_bytes()));
            return Some(match stat {
                Ok(stat) => Step::Found(Found { name, kind: inode::kind(&stat), stat }),
                Err(errno) => Step::Failed(errno.into()),
            });
        }
    }

    /// Opens a directory just found, so that its entries come next. Its attributes.
    pub(crate) fn enter(&mut self, found: &Found) -> io::Result<Attributes> {
        if self.open.len() >= MAX_DEPTH {
            return Err(io::Error::other(format!("more than {MAX_DEPTH} directories deep")));
        }
        let directory = Dir::new(self.open_entry(found, OFlags::DIRECTORY)?)?;
        let attributes = inode::attributes(&directory.stat()?);
        self.open.push(directory);
        self.state = State::InDirectory;
        Ok(attributes)
    }

    /// Whether all entries of a directory just found, which is not entered, are such: `is_such` is asked
    /// of each with its name and kind.
    pub(crate) fn has_only(
        &self,
        found: &Found,
        is_such: impl Fn(&[u8], Kind) -> bool,
    ) -> io::Result<bool> {
        let mut directory = Dir::new(self.open_entry(found, OFlags::DIRECTORY)?)?;
        while let Some(entry) = directory.read() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = match statat(directory.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(rustix::io::Errno::NOENT) => continue, // it has gone meanwhile
                stat => stat?,
            };
            if !is_such(name.to_bytes(), inode::kind(&stat)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether it is in a directory.
    pub(crate) fn is_within(&self) -> bool {
        !self.open.is_empty()
    }

    /// The present directory.
    pub(crate) fn directory(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.open.last().and_then(|directory| directory.fd().ok())
    }

    /// Opens a regular file just found. It is an error if it is no regular file any more.
    pub(crate) fn open_file(&self, found: &Found) -> io::Result<(File, Stat)> {
        // Should a named pipe have taken its place, opening it must not wait for a writer.
        let file: File = self.open_entry(found, OFlags::NONBLOCK | OFlags::NOCTTY)?.into();
        let stat = fstat(&file)?;
        if inode::kind(&stat) != Kind::File {
            return Err(changed());
        }
        Ok((file, stat))
    }

    /// The text of a symbolic link just found.
    pub(crate) fn read_link(&self, found: &Found) -> io::Result<CString> {
        Ok(match self.open.last() {
            None => readlinkat(CWD, &self.source.path, Vec::new()),
            Some(directory) => readlinkat(directory.fd()?, found.name.as_c_str(), Vec::new()),
        }?)
    }

    /// The name under which an entry just found arrives.
    pub(crate) fn name<'a>(&'a self, found: &'a Found) -> Name<'a> {
        Name::new(found.name.to_bytes()).expect("the walk gives out names only")
    }

    /// The entry just found, or the directory just left or failed.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn start(&mut self) -> Option<Step> {
        let Some(name) = &self.source.name else {
            return match open_content(&self.source.path) {
                Ok(directory) => {
                    self.open.push(directory);
                    self.state = State::InDirectory;
                    self.next()
                }
                Err(error) => Some(Step::Failed(error)),
            };
        };
        let name = CString::new(name.as_slice()).expect("names have no NUL");
        Some(match statat(CWD, &self.source.path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Step::Found(Found { name, kind: inode::kind(&stat), stat }),
            Err(errno) => Step::Failed(errno.into()),
        })
    }

    fn leave(&mut self) -> Option<Step> {
        self.open.pop();
        // The content of a directory was never entered as far as the peer knows.
        let content = self.open.is_empty() && self.source.name.is_none();
        (!content).then_some(Step::Leave)
    }

    fn open_entry(&self, found: &Found, flags: OFlags) -> rustix::io::Result<std::os::fd::OwnedFd> {
        let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match self.open.last() {
            None => openat(CWD, &self.source.path, flags, Mode::empty()),
            Some(directory) => openat(directory.fd()?, found.name.as_c_str(), flags, Mode::empty()),
        }
    }
}

/// The error of an entry that is not any more what it was.
pub(crate) fn changed() -> io::Error {
    io::Error::other("changed while it was being read")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::sources::resolve;

    /// Every step as text, sorted: `+` entered, `-` left, else the kind.
    fn steps(path: &Path) -> Vec<String> {
        let mut seen = Vec::new();
        let mut depth = 0;
        for source in resolve(&[path.to_owned()]).unwrap() {
            let mut walk = Walk::new(source);
            while let Some(step) = walk.next() {
                let mark = match &step {
                    Step::Found(found) if found.kind == Kind::Directory => {
                        walk.enter(found).unwrap();
                        depth += 1;
                        "+"
                    }
                    Step::Found(found) if found.kind == Kind::Symlink => "@",
                    Step::Found(found) if found.kind == Kind::File => "f",
                    Step::Found(_) => "?",
                    Step::Leave => {
                        depth -= 1;
                        "-"
                    }
                    Step::Failed(_) => "!",
                };
                seen.push(format!("{mark}{}", walk.path().display()));
            }
        }
        assert_eq!(depth, 0, "every directory entered is left");
        seen.sort();
        seen
    }

    #[test]
    fn everything_is_found_once_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("d/e")).unwrap();
        fs::write(root.join("f"), "").unwrap();
        fs::write(root.join("d/e/g"), "").unwrap();
        symlink("/", root.join("away")).unwrap();
        symlink(".", root.join("d/loop")).unwrap();
        let at = |path: &str| root.join(path).display().to_string();
        let inner = vec![
            format!("+{}", at("d")),
            format!("+{}", at("d/e")),
            format!("-{}", at("d")),
            format!("-{}", at("d/e")),
            format!("@{}", at("away")),
            format!("@{}", at("d/loop")),
            format!("f{}", at("d/e/g")),
            format!("f{}", at("f")),
        ];
        let mut all = inner.clone();
        all.extend([format!("+{}", root.display()), format!("-{}", root.display())]);
        all.sort();
        assert_eq!(steps(&root), all);
        let content = steps(&root.join("."));
        let bare: BTreeSet<String> = content.iter().map(|s| s.replace("/./", "/")).collect();
        assert_eq!(bare, inner.into_iter().collect());
    }

    #[test]
    fn a_link_as_source_stays_a_link_unless_a_slash_follows() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        fs::write(dir.path().join("real/f"), "").unwrap();
        let link = dir.path().join("link");
        symlink("real", &link).unwrap();
        assert_eq!(steps(&link), [format!("@{}", link.display())]);
        let slash = dir.path().join("link/");
        assert_eq!(steps(&slash).len(), 3);
        assert_eq!(steps(&slash.join(".")).len(), 1);
    }

    #[test]
    fn an_entry_that_changed_its_kind_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let found = |path: &Path| {
            let mut walk = Walk::new(resolve(&[path.to_owned()]).unwrap().remove(0));
            match walk.next() {
                Some(Step::Found(found)) => (walk, found),
                other => panic!("{other:?}"),
            }
        };
        fs::write(&path, "content").unwrap();
        let (walk, file) = found(&path);
        assert!(walk.open_file(&file).is_ok());
        fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(walk.open_file(&file).is_err(), "a link put in the file's place is not followed");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(walk.open_file(&file).unwrap_err().to_string(), changed().to_string());
        let (mut walk, directory) = found(&path);
        fs::remove_dir(&path).unwrap();
        symlink("/etc", &path).unwrap();
        assert!(walk.enter(&directory).is_err(), "nor in the directory's");
    }
}
