//! How files, directories and the transfer end.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::announce::extra_bytes;
use super::entry::{End, Kind, Pending, Work};
use super::lanes::DAMAGED_CHUNK;
use super::stream::Ordered;
use super::tree::{Directory, Left};
use super::{Job, Sink, add, lock, subtract, trouble, violation};
use crate::digest::Digest;
use crate::name::Name;
use crate::transfer::error::TransferError;
use crate::transfer::event::{Event, Outcome};
use crate::transfer::message::{Message, Skip, Verdict};
use crate::transfer::part::PartFile;
use crate::transfer::stages::Stage;
use crate::transfer::tree_hash::CHUNK;

/// Files from this size on are on the medium before they have their names: to doubt one of these
/// after a crash would cost too much. Bytes.
pub(super) const SYNC_FROM: u64 = 64 << 20;

impl Sink<'_> {
    /// Completes a file, if all of it is there and its end is known.
    pub(super) fn complete(&self, pending: &Arc<Pending>) -> Result<(), TransferError> {
        let (work, end, version) = {
            let inner = lock(&pending.inner);
            let Some(end) = inner.end else { return Ok(()) };
            (inner.work.clone(), end, inner.version)
        };
        let ready = match &work {
            Work::Part(part) => part.is_complete(),
            Work::Ordered(ordered) => lock(ordered).is_complete(end.size).map_err(violation)?,
            _ => return Ok(()),
        };
        if !ready {
            return Ok(());
        }
        {
            let mut inner = lock(&pending.inner);
            if inner.version != version || matches!(inner.work, Work::Over) {
                return Ok(());
            }
            inner.work = Work::Over;
        }
        match work {
            Work::Part(part) => self.finish_part(pending, part, end, version),
            Work::Ordered(ordered) => self.finish_ordered(pending, &mut lock(&ordered), end),
            _ => Ok(()),
        }
    }

    fn check_digest(
        &self,
        pending: &Pending,
        ours: Option<Digest>,
        end: End,
    ) -> Result<(), TransferError> {
        if self.settings.verify && (ours.is_none() || ours != end.digest) {
            return Err(TransferError::Verification { path: pending.place.path() });
        }
        Ok(())
    }

    fn finish_part(
        &self,
        pending: &Arc<Pending>,
        part: Arc<PartFile>,
        end: End,
        version: u8,
    ) -> Result<(), TransferError> {
        if let Err(error) = self.check_digest(pending, part.digest(), end) {
            // Going on from it would end here again.
            let _ = part.discard();
            return Err(error);
        }
        let (attributes, extra, before, resumed) = {
            let inner = lock(&pending.inner);
            (inner.attributes, inner.extra.clone(), inner.before, inner.resumed)
        };
        self.mark(&pending.place);
        let policy = &self.settings.policy;
        let mode = policy.file_mode(&attributes, before);
        let durable = self.settings.durable && (end.size >= SYNC_FROM || self.syncs_each());
        let set = |file: &std::fs::File| policy.set(file, mode, &attributes, extra.as_deref());
        match self.stages.during(Stage::Write, || part.finish(set, durable)) {
            Ok(kept) => {
                if let Some(error) = kept {
                    self.not_kept(&pending.place.path(), &error);
                }
                self.finished(pending, Outcome::Moved { resumed }, end.digest, true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // The connection has gone; it is completed when there is one again.
                let mut inner = lock(&pending.inner);
                if inner.version == version {
                    inner.work = Work::Part(part);
                }
                drop(inner);
                if self.connected.load(Ordering::SeqCst) {
                    self.quick.push(Job::Finish(Arc::clone(pending)));
                }
                Ok(())
            }
            Err(error) => {
                if self.settings.owner.is_some() && error.kind() == io::ErrorKind::AlreadyExists {
                    // Another was first, and what is there stays: no later transfer needs this one.
                    let _ = part.discard();
                }
                self.fail(pending, error)
            }
        }
    }

    fn finish_ordered(
        &self,
        pending: &Arc<Pending>,
        ordered: &mut Ordered,
        end: End,
    ) -> Result<(), TransferError> {
        self.check_digest(pending, ordered.digest(), end)?;
        let (attributes, extra, before) = {
            let inner = lock(&pending.inner);
            (inner.attributes, inner.extra.clone(), inner.before)
        };
        if self.standard.is_none() {
            self.mark(&pending.place);
        }
        let durable = self.syncs_each();
        let policy = &self.settings.policy;
        let mode = policy.file_mode(&attributes, before);
        let set = |file: &std::fs::File| policy.set(file, mode, &attributes, extra.as_deref());
        let finished = Name::new(&pending.place.name)
            .map_err(io::Error::other)
            .and_then(|name| ordered.finish(name, set, durable));
        match finished {
            Ok(kept) => {
                if let Some(error) = kept {
                    self.not_kept(&pending.place.path(), &error);
                }
                // A file in one piece has no end of its own.
                let told = pending.kind == Kind::Stream || end.size > CHUNK;
                self.finished(pending, Outcome::Moved { resumed: 0 }, end.digest, told)
            }
            Err(error) if self.standard.is_some() => {
                Err(self.fatal(self.settings.shown.clone(), error))
            }
            Err(error) => self.fail(pending, error),
        }
    }

    /// A file is here, or was.
    pub(super) fn finished(
        &self,
        pending: &Arc<Pending>,
        outcome: Outcome,
        digest: Option<Digest>,
        tell: bool,
    ) -> Result<(), TransferError> {
        let (size, sparse) = {
            let mut inner = lock(&pending.inner);
            let rest = inner.size.saturating_sub(inner.counted);
            inner.counted = inner.size;
            add(&self.counts.bytes, rest);
            (inner.size, inner.sparse)
        };
        if self.settings.owner.is_some() && !matches!(outcome, Outcome::Moved { .. }) {
            // It is another's, and gets no further names here.
            lock(&self.links).remove(pending.entry);
        }
        self.counts.files.fetch_add(1, Ordering::Relaxed);
        self.show(pending);
        if tell {
            self.say(Message::Finished { file: pending.entry });
        }
        let path = pending.place.path();
        (self.observe)(Event::File { path: &path, size, digest, sparse, outcome });
        if matches!(outcome, Outcome::Moved { .. }) && size <= CHUNK && pending.kind == Kind::File {
            lock(&self.recent).add(pending);
        }
        self.over(pending, true)
    }

    /// A file is the present one, for progress.
    pub(super) fn show(&self, pending: &Pending) {
        if let Ok(mut current) = self.current.try_lock() {
            *current = Some(pending.place.clone());
        }
    }

    /// An entry could not be stored; the transfer goes on, if others can be.
    pub(super) fn fail(
        &self,
        pending: &Arc<Pending>,
        error: io::Error,
    ) -> Result<(), TransferError> {
        if trouble::concerns_all(&error) {
            return Err(self.fatal(pending.place.path(), error));
        }
        let (asked, size) = {
            let mut inner = lock(&pending.inner);
            if inner.closed {
                return Ok(());
            }
            subtract(&self.counts.bytes, std::mem::take(&mut inner.counted));
            let before = std::mem::replace(&mut inner.work, Work::Over);
            (matches!(before, Work::Deciding), inner.size())
        };
        lock(&self.gone).add(pending.entry, pending.kind, size, &self.memory);
        if asked {
            let verdict = Verdict::Skip { reason: Skip::Failed, digest: None };
            self.say(Message::Verdict { file: pending.entry, verdict });
        }
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        let text = self.fail_here(&pending.place.path(), &trouble::plain(error));
        self.say(Message::Failed { entry: pending.entry, text });
        self.over(pending, false)
    }

    /// An entry is over and done with.
    pub(super) fn over(&self, pending: &Arc<Pending>, stored: bool) -> Result<(), TransferError> {
        let (slot, links, again, next) = {
            let mut inner = lock(&pending.inner);
            if inner.closed {
                return Ok(());
            }
            inner.closed = true;
            let damaged = std::mem::take(&mut inner.damaged);
            self.memory.give(damaged.len() * DAMAGED_CHUNK);
            if let Some(extra) = inner.extra.take() {
                self.memory.give(extra_bytes(&extra));
            }
            let slot = std::mem::take(&mut inner.slot);
            (slot, std::mem::take(&mut inner.links), inner.again, inner.next.take())
        };
        lock(&self.files).remove(&pending.entry);
        if !stored && self.settings.hard_links {
            lock(&self.links).remove(pending.entry);
        }
        if slot {
            self.give_slot();
        }
        for link in links {
            self.link(&link, pending.entry)?;
        }
        if let (true, Some(next)) = (stored, next) {
            self.begin_again(pending, next)?;
        }
        // One that was over before has been counted then.
        if again { Ok(()) } else { self.entry_over(&pending.place.directory) }
    }

    /// An entry of this directory is over, or it has been left.
    pub(super) fn entry_over(&self, directory: &Arc<Directory>) -> Result<(), TransferError> {
        let mut at = Arc::clone(directory);
        while at.end() {
            let Some(parent) = at.parent.clone() else {
                self.slow.push(Job::End(at));
                return Ok(());
            };
            if self.settings.delete && !at.missing && !at.fresh {
                // That may take long, and goes on from there.
                self.slow.push(Job::Directory(at));
                return Ok(());
            }
            self.finish_directory(&at);
            at = parent;
        }
        Ok(())
    }

    /// Ends a directory in which something may have to be deleted, and those above it.
    pub(super) fn end_directory(&self, directory: &Arc<Directory>) -> Result<(), TransferError> {
        self.finish_directory(directory);
        match &directory.parent {
            Some(parent) => self.entry_over(parent),
            None => Ok(()),
        }
    }

    fn finish_directory(&self, directory: &Arc<Directory>) {
        self.sweep(directory);
        self.delete_left(directory);
        self.counts.directories.fetch_sub(1, Ordering::Relaxed);
        let Some(finally) = &directory.finally else { return };
        if let Some(extra) = &finally.extra {
            self.memory.give(extra_bytes(extra));
        }
        // What is there and is to stay stays as it is.
        let stays = finally.before.is_some() && self.settings.existing.stays();
        if directory.missing || self.settings.dry_run || stays {
            self.sync_directory(directory);
            return;
        }
        let policy = &self.settings.policy;
        let mode = match finally.before {
            Some(before) if !policy.preserve.mode => before,
            _ => policy.mode(&finally.attributes) | finally.set_group_id,
        };
        let set = self.directories.get(directory).and_then(|open| {
            policy.set(&*open, mode, &finally.attributes, finally.extra.as_deref())
        });
        if let Err(error) = set {
            self.not_kept(&directory.path(), &error);
        }
        self.sync_directory(directory);
        directory.close();
    }

    /// Removes what an earlier transfer was writing here when it was ended.
    fn sweep(&self, directory: &Arc<Directory>) {
        if let Some(dead) = self.dead.get()
            && !directory.missing
            && !directory.fresh
            && let Err(error) = self.directories.get(directory).and_then(|open| dead.sweep(&open))
        {
            let path = directory.path();
            self.note(&format!("{}: not cleaned up: {error}", path.display()));
        }
    }

    /// Deletes what the source does not have in a directory.
    fn delete_left(&self, directory: &Arc<Directory>) {
        let Some(Left { complete, empty, names }) = lock(&directory.left).take() else { return };
        if complete && !directory.missing && !directory.fresh && !names.overflowed {
            self.delete_others(directory, &names, empty && !self.settings.allow_empty);
        }
        self.forget(names);
    }

    /// Everything is finished: it is made sure of, and confirmed.
    pub(super) fn end_everything(&self, root: &Arc<Directory>) -> Result<(), TransferError> {
        self.sweep(root);
        self.delete_left(root);
        self.tell_not_deleted();
        let (tally, omitted) = {
            let walk = lock(&self.walk);
            (walk.tally, walk.omitted)
        };
        let failed = self.counts.failed.load(Ordering::Relaxed);
        if self.settings.durable {
            self.sync_directory(root);
            self.sync_all().map_err(|error| self.fatal(self.settings.shown.clone(), error))?;
            if lock(&self.marks).were_met() {
                self.beside_another("was writing to this target meanwhile");
            }
            // What is to stay was not looked at.
            let all = failed + omitted == 0 && !self.settings.existing.stays();
            self.end_marks(all).map_err(|error| self.fatal(self.settings.shown.clone(), error))?;
        }
        let _answered = self.answering.write().unwrap_or_else(PoisonError::into_inner);
        // Before it is said, as the answer may come at once.
        self.counts.receipt.store(true, Ordering::Release);
        self.say(Message::Receipt { tally, failed, deleted: self.deleted() });
        Ok(())
    }
}
