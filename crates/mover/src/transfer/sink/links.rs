//! Further names of files.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use rustix::fs::{AtFlags, linkat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::announce::{Named, in_the_way};
use super::entry::{Content, Kind, Pending, Work};
use super::tree::Place;
use super::{Sink, lock, violation};
use crate::frame::Attributes;
use crate::inode;
use crate::transfer::error::TransferError;
use crate::transfer::memory::{Account, allocated, mapped};
use std::sync::atomic::Ordering;

/// The most files that are remembered for the sake of further names.
const MAX_FILES: usize = 4 << 20;

/// Where files are that may get further names.
#[derive(Debug, Default)]
pub(super) struct Links(HashMap<u64, Place>);

impl Links {
    /// A file comes.
    pub(super) fn announce(&mut self, file: u64, place: &Place, memory: &Account) {
        let bytes = mapped(size_of::<(u64, Place)>()) + allocated(place.name.len());
        if self.0.len() < MAX_FILES && memory.spare(bytes) {
            self.0.insert(file, place.clone());
        }
    }

    /// It failed.
    pub(super) fn remove(&mut self, file: u64) {
        self.0.remove(&file);
    }
}

impl Sink<'_> {
    /// A further name of the file `to` comes.
    pub(super) fn hard_link(
        &self,
        number: u64,
        named: Named,
        to: u64,
        attributes: Attributes,
    ) -> Result<(), TransferError> {
        if to >= number {
            return Err(violation("another name of a file that is not announced"));
        }
        let place = match named {
            Named::Free(place) => place,
            Named::No(why) => return self.refuse(number, why, false),
        };
        let charge = self.memory.charge(Pending::bytes(&place)).map_err(TransferError::from)?;
        let content = Content::default();
        let pending = Pending::new(number, place, Kind::Link, content, attributes, None, charge);
        lock(&pending.inner).work = Work::Waiting;
        self.add_pending(&pending)?;
        if let Some(file) = self.find(to) {
            let mut inner = lock(&file.inner);
            if file.kind != Kind::File {
                return Err(violation("another name of what is no file"));
            }
            if !inner.closed {
                inner.links.push(pending);
                return Ok(());
            }
        }
        self.link(&pending, to)
    }

    /// Gives the file `to`, which is over, another name.
    pub(super) fn link(&self, pending: &Arc<Pending>, to: u64) -> Result<(), TransferError> {
        let from = lock(&self.links).0.get(&to).cloned();
        let linked = match from {
            Some(from) => self.make_name(&from, &pending.place),
            None => Err(io::Error::other("the file of which it is another name is not here")),
        };
        match linked {
            Ok(()) => {
                lock(&pending.inner).work = Work::Over;
                self.counts.files.fetch_add(1, Ordering::Relaxed);
                self.over(pending, true)
            }
            Err(error) => self.fail(pending, error),
        }
    }

    fn make_name(&self, from: &Place, to: &Place) -> io::Result<()> {
        if to.directory.missing || self.settings.dry_run {
            return Ok(());
        }
        let (there, here) =
            (self.directories.get(&from.directory)?, self.directories.get(&to.directory)?);
        let file = statat(&there, &*from.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if inode::kind(&file) != inode::Kind::File {
            return Err(io::Error::other("the file of which it is another name was replaced"));
        }
        self.mark(to);
        let link = |name: &[u8]| linkat(&there, &*from.name, &here, name, AtFlags::empty());
        match statat(&here, &*to.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => match link(&to.name) {
                Err(Errno::EXIST) => {}
                linked => return Ok(linked?),
            },
            Err(error) => return Err(error.into()),
            Ok(_) if self.settings.existing.stays() => return self.settings.existing.keep_name(),
            // A rename would do nothing.
            Ok(found) if (found.st_dev, found.st_ino) == (file.st_dev, file.st_ino) => {
                return Ok(());
            }
            Ok(found) => match inode::kind(&found) {
                inode::Kind::Directory => return Err(Errno::ISDIR.into()),
                inode::Kind::Special(what) => return Err(in_the_way(what)),
                _ => {}
            },
        }
        if self.settings.existing.stays() {
            return self.settings.existing.keep_name(); // another was faster
        }
        let (temporary, ()) = self.temporary.make(|temporary| link(temporary.as_bytes()))?;
        let renamed = renameat(&here, temporary.as_str(), &here, &*to.name);
        // It is still there if somebody has made the same name meanwhile.
        let _ = unlinkat(&here, temporary.as_str(), AtFlags::empty());
        Ok(renamed?)
    }
}
