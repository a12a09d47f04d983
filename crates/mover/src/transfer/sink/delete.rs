//! Removing what the source does not have.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, Stat, fstat, statat, unlinkat};
use rustix::io::Errno;

use super::names::Names;
use super::tree::{Directory, open_directory};
use super::{Sink, os, trouble};
use crate::frame::MAX_DEPTH;
use crate::inode::{self, Kind};
use crate::name::Name;
use crate::target::allow_reading;
use crate::temporary::is_ours;
use crate::transfer::event::Event;
use crate::transfer::message::About;

/// How long what a transfer has left behind may wait for the next.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

impl Sink<'_> {
    /// Deletes what is in a directory and not among the names; goes on after errors.
    pub(super) fn delete_others(&self, directory: &Arc<Directory>, names: &Names) {
        let path = directory.path();
        let listed = self.directories.get(directory).and_then(|open| {
            for entry in Dir::read_from(&*open)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if self.is_stopped() {
                    break;
                }
                if name == b"." || name == b".." || self.is_named(names, name) {
                    continue;
                }
                let path = path.join(os(name));
                match self.delete(&open, name, &path, 0) {
                    Ok(true) => {
                        (self.observe)(Event::Deleted { path: &path });
                        self.tell(About::Deleted, &crate::report::printable_path(&path));
                    }
                    Ok(false) => {}
                    Err(error) => self.fail_to_delete(&path, error),
                }
            }
            Ok(())
        });
        if let Err(error) = listed {
            self.fail_to_delete(&path, error);
        }
    }

    fn fail_to_delete(&self, path: &Path, error: io::Error) {
        let text = self.fail_here(path, &not_deleted(error));
        self.tell(About::Failure, &text);
    }

    fn is_named(&self, names: &Names, name: &[u8]) -> bool {
        let naming = self.naming.read().unwrap_or_else(PoisonError::into_inner);
        naming.contains(names, name)
    }

    /// Deletes an entry and what is in it; false if it is to stay. `path`: from the top of the transfer.
    fn delete(&self, here: &OwnedFd, name: &[u8], path: &Path, depth: usize) -> io::Result<bool> {
        let stat = statat(here, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if is_ours(name) && (name.ends_with(b"unsynced") || is_young(&stat)) {
            return Ok(false);
        }
        let directory = inode::kind(&stat) == Kind::Directory;
        if !self.settings.filter.takes(path, directory) {
            return Ok(false);
        }
        if directory && !self.empty(here, name, path, depth)? {
            return Ok(false);
        }
        if !self.settings.dry_run {
            let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            match unlinkat(here, name, flags) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.counts.deleted.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Deletes what is in a directory; false if something of it is to stay. The first error counts, but
    /// the rest is deleted all the same.
    fn empty(&self, here: &OwnedFd, name: &[u8], path: &Path, depth: usize) -> io::Result<bool> {
        if depth >= MAX_DEPTH {
            return Err(io::Error::other("directories nested too deeply"));
        }
        let open = match open_directory(here, name) {
            Err(Errno::ACCESS) if !self.settings.dry_run => {
                allow_reading(here, Name::new(name).map_err(io::Error::other)?)?;
                open_directory(here, name)?
            }
            opened => opened?,
        };
        if fstat(&open)?.st_dev != fstat(here)?.st_dev {
            return Err(io::Error::other("another file system is mounted there"));
        }
        let mut result = Ok(true);
        for entry in Dir::read_from(&open)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if self.is_stopped() {
                return Ok(false);
            }
            match self.delete(&open, name, &path.join(os(name)), depth + 1) {
                Ok(true) => {}
                Ok(false) => result = result.and(Ok(false)),
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
