//! Digests of what is there.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, fstat, openat};

use super::entry::{Pending, Work};
use super::{Sink, lock, violation};
use crate::digest::Digest;
use crate::inode::{self, Kind};
use crate::transfer::check::file_digest;
use crate::transfer::error::TransferError;
use crate::transfer::event::Outcome;
use crate::transfer::medium::{Medium, Room};
use crate::transfer::message::Skip;
use crate::transfer::tree_hash::{CHUNK, ChunkTree, leaf};

impl Sink<'_> {
    /// Takes the digest of the file that is there, for the source to compare, or for the receipt of
    /// one that is skipped.
    pub(super) fn compare(
        &self,
        pending: &Arc<Pending>,
        version: u8,
        skip: Option<Skip>,
    ) -> Result<(), TransferError> {
        let (size, sparse) = {
            let inner = lock(&pending.inner);
            if inner.version != version || !matches!(inner.work, Work::Deciding) {
                return Ok(());
            }
            (inner.size, inner.sparse)
        };
        let digest = self.digest(pending, skip.is_none().then_some(size), sparse);
        {
            let inner = lock(&pending.inner);
            let changed = inner.version != version || !matches!(inner.work, Work::Deciding);
            if changed || self.is_stopped() {
                return Ok(());
            }
        }
        match (skip, digest) {
            (Some(skip), digest) => self.skipped(pending, skip, digest.ok()),
            (None, Ok(digest)) if size > CHUNK && !self.settings.dry_run => {
                self.want(pending, Some(digest))
            }
            (None, Ok(digest)) => {
                lock(&pending.inner).work = Work::Comparing(digest);
                self.say_compare(pending, digest);
                Ok(())
            }
            // It cannot be read, or has changed: it is replaced.
            (None, Err(_)) => self.take(pending),
        }
    }

    /// The digest of the file that is there, as of a source with or without holes. `size`: what it
    /// must have.
    fn digest(&self, pending: &Pending, size: Option<u64>, sparse: bool) -> io::Result<Digest> {
        let here = self.directories.get(&pending.place.directory)?;
        if lock(&pending.inner).doubted {
            return self.digest_on_medium(&here, &pending.place.name, size, sparse);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&here, &*pending.place.name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        let length = inode::size(&stat);
        if inode::kind(&stat) != Kind::File || size.is_some_and(|size| size != length) {
            return Err(io::Error::other("it is another file"));
        }
        let stopped = || self.is_stopped();
        file_digest(File::from(file), length, sparse && length > CHUNK, &stopped)
    }

    /// The same from the medium, whatever the cache has.
    fn digest_on_medium(
        &self,
        here: &OwnedFd,
        name: &[u8],
        size: Option<u64>,
        sparse: bool,
    ) -> io::Result<Digest> {
        self.flush();
        let medium = Medium::open(here, name)?;
        let stat = fstat(medium.file())?;
        let length = inode::size(&stat);
        if inode::kind(&stat) != Kind::File || size.is_some_and(|size| size != length) {
            return Err(io::Error::other("it is another file"));
        }
        let (mut room, sparse) = (Room::new(), sparse && length > CHUNK);
        let mut tree = ChunkTree::new(length, sparse);
        for index in 0..tree.chunks() {
            if self.is_stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let data = medium.read(&mut room, index * CHUNK, tree.chunk_length(index) as usize)?;
            tree.insert(index, leaf(length, sparse, index, data));
        }
        tree.root().ok_or_else(|| io::Error::other("it changes while it is read"))
    }

    /// The source has the same file.
    pub(super) fn same(&self, file: u64) -> Result<(), TransferError> {
        let Some(pending) = self.find_announced(file)? else { return Ok(()) };
        let digest = {
            let mut inner = lock(&pending.inner);
            let digest = match &inner.work {
                Work::Comparing(digest) => *digest,
                Work::Over => return Ok(()),
                _ => return Err(violation("the same file that nobody compared")),
            };
            inner.work = Work::Over;
            digest
        };
        if !self.settings.dry_run {
            self.correct(&pending);
        }
        self.finished(&pending, Outcome::Same { compared: true }, Some(digest), false)
    }
}
