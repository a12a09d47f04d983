//! Removing what the source does not have.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, Stat, fstat, statat, unlinkat};
use rustix::io::Errno;

use super::names::Names;
use super::tree::{Directory, open_directory};
use super::{Sink, os, subtract, trouble};
use crate::frame::MAX_DEPTH;
use crate::inode::{self, Kind};
use crate::name::Name;
use crate::target::allow_reading;
use crate::temporary::is_ours;
use crate::transfer::event::Event;
use crate::transfer::message::{About, Message};

/// How long what a transfer has left behind may wait for the next.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// What becomes of an entry that the source does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// It is deleted, or in a dry run would be.
    Deleted,
    /// It is left, as no more may be deleted.
    Held,
    /// It is to stay.
    Kept,
}

impl Sink<'_> {
    /// Deletes what is in a directory and not among the names; errors do not end it. `refused`: only tells
    /// that there is something, as the source is empty.
    pub(super) fn delete_others(&self, directory: &Arc<Directory>, names: &Names, refused: bool) {
        let path = directory.path();
        let listed = self.directories.get(directory).and_then(|open| {
            for entry in Dir::read_from(&*open)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if self.is_stopped() {
                    break;
                }
                if name == b"." || name == b".." || self.is_named(directory, names, name) {
                    continue;
                }
                let path = path.join(os(name));
                if refused {
                    let stat = statat(&open, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    if self.is_kept(name, &path, &stat) {
                        continue;
                    }
                    return Err(io::Error::other(
                        "the source has no file to copy: mount it, or say --allow-empty-source",
                    ));
                }
                match self.delete(&open, name, &path, 0) {
                    Ok(Fate::Deleted) => {
                        (self.observe)(Event::Deleted { path: &path });
                        self.tell(About::Deleted, &crate::report::printable_path(&path));
                    }
                    Ok(Fate::Held | Fate::Kept) => {}
                    Err(error) => self.fail_to_delete(&path, error),
                }
            }
            Ok(())
        });
        if let Err(error) = listed {
            let top = path.as_os_str().is_empty();
            self.fail_to_delete(if top { &self.settings.shown } else { &path }, error);
        }
    }

    fn fail_to_delete(&self, path: &Path, error: io::Error) {
        let text = self.fail_here(path, &not_deleted(error));
        self.tell(About::Failure, &text);
    }

    /// Tells of what is left as no more may be deleted, once all directories are over. Nothing has failed.
    pub(super) fn tell_not_deleted(&self) {
        let count = self.not_deleted();
        if count > 0 {
            self.say(Message::NotDeleted { count });
        }
    }

    /// Whether an entry has come under this name, or under one that means the same here.
    fn is_named(&self, directory: &Arc<Directory>, names: &Names, name: &[u8]) -> bool {
        self.naming.contains(names, name, || self.folds(directory))
    }

    /// Whether an entry is to stay, whatever the source has. `path`: from the top of the transfer.
    fn is_kept(&self, name: &[u8], path: &Path, stat: &Stat) -> bool {
        let ours = is_ours(name) && (name.ends_with(b"unsynced") || is_young(stat));
        ours || !self.settings.filter.takes(path, inode::kind(stat) == Kind::Directory)
    }

    /// Deletes an entry and what is in it. `path`: from the top of the transfer.
    fn delete(&self, here: &OwnedFd, name: &[u8], path: &Path, depth: usize) -> io::Result<Fate> {
        let stat = statat(here, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if self.is_kept(name, path, &stat) {
            return Ok(Fate::Kept);
        }
        let directory = inode::kind(&stat) == Kind::Directory;
        if directory {
            match self.empty(here, name, path, depth)? {
                Fate::Deleted => {}
                Fate::Held => return Ok(self.hold()),
                Fate::Kept => return Ok(Fate::Kept),
            }
        }
        let counted = self.counts.deleted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            (n < self.settings.max_delete).then_some(n + 1)
        });
        if counted.is_err() {
            return Ok(self.hold());
        }
        if !self.settings.dry_run {
            let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            match unlinkat(here, name, flags) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => {
                    subtract(&self.counts.deleted, 1);
                    return Err(error.into());
                }
            }
        }
        Ok(Fate::Deleted)
    }

    fn hold(&self) -> Fate {
        self.counts.not_deleted.fetch_add(1, Ordering::Relaxed);
        Fate::Held
    }

    /// Deletes what is in a directory; says what stays of it, if anything does. The first error counts, but
    /// the rest is deleted all the same.
    fn empty(&self, here: &OwnedFd, name: &[u8], path: &Path, depth: usize) -> io::Result<Fate> {
        if depth >= MAX_DEPTH {
            return Err(io::Error::other("directories nested too deeply"));
        }
        let open = match open_directory(here, name) {
            Err(Errno::ACCESS) if self.deleted() >= self.settings.max_delete => {
                return Ok(Fate::Held);
            }
            Err(Errno::ACCESS) if !self.settings.dry_run => {
                allow_reading(here, Name::new(name).map_err(io::Error::other)?)?;
                open_directory(here, name)?
            }
            opened => opened?,
        };
        if fstat(&open)?.st_dev != fstat(here)?.st_dev {
            return Err(io::Error::other("another file system is mounted there"));
        }
        let mut result = Ok(Fate::Deleted);
        for entry in Dir::read_from(&open)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if self.is_stopped() {
                return Ok(Fate::Kept);
            }
            match self.delete(&open, name, &path.join(os(name)), depth + 1) {
                Ok(fate) => result = result.map(|before| before.max(fate)),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }
}

fn not_deleted(error: io::Error) -> io::Error {
    let error = trouble::plain(error);
    io::Error::new(error.kind(), format!("not deleted: {error}"))
}

/// Whether somebody may still go on with it.
#[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
fn is_young(stat: &Stat) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let changed = Duration::from_secs(u64::try_from(stat.st_mtime as i64).unwrap_or(0));
    now.saturating_sub(changed) < KEPT
}
