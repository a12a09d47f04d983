//! What the source announces, in the order of its walk.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{
    AtFlags, Mode, fchmod, fstat, mkdirat, readlinkat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::entry::{Again, Content, Kind, MAX_UNFINISHED, Pending, Work};
use super::lanes::DAMAGED_CHUNK;
use super::marker::Doubts;
use super::names::{Names, Taken};
use super::root::{Root, Target};
use super::tree::{Directory, Finally, Left, Place, open_directory};
use super::{Sink, lock, subtract, trouble, violation};
use crate::frame::{Attributes, MAX_DEPTH, Tally};
use crate::inode;
use crate::name::Name;
use crate::report::printable;
use crate::target::allow_reading;
use crate::temporary::TemporaryNames;
use crate::temporary::is_ours;
use crate::transfer::error::TransferError;
use crate::transfer::memory::allocated;
use crate::transfer::message::{Entry, Extra, Message, Skip, Verdict, What};

/// The most directories that are unfinished: those above 64 Ki files, and more.
const MAX_DIRECTORIES: u64 = 1 << 19;

/// Where the source is in its tree.
#[derive(Debug)]
pub(super) struct Walk {
    /// Until the first entry, or until [`Sink::begin_known`].
    target: Option<Target>,
    /// The target and the directories entered.
    levels: Vec<Level>,
    /// The only entry's name here.
    rename: Option<Box<[u8]>>,
    next: u64,
    /// Entries of the target itself.
    top: u64,
    /// One of them, a directory that could not be made, and why.
    lost: Option<(PathBuf, io::Error)>,
    pub(super) tally: Tally,
    /// Sum of what was announced, streams as they come.
    pub(super) bytes: u64,
    pub(super) ended: bool,
    /// Entries that the source could not read.
    pub(super) omitted: u64,
}

#[derive(Debug)]
struct Level {
    /// None: it could not be made, and so nothing in it.
    directory: Option<Arc<Directory>>,
    names: Names,
    /// The source says that it has nothing there.
    empty: bool,
}

impl Level {
    fn new(directory: Option<Arc<Directory>>) -> Self {
        Level { directory, names: Names::default(), empty: false }
    }
}

impl Walk {
    pub(super) fn new(target: Target) -> Self {
        Walk {
            target: Some(target),
            levels: Vec::new(),
            rename: None,
            next: 0,
            top: 0,
            lost: None,
            tally: Tally::default(),
            bytes: 0,
            ended: false,
            omitted: 0,
        }
    }

    /// Of a target that has no directories.
    pub(super) fn standard() -> Self {
        let directory = Some(Directory::root(None, true, Doubts::default()));
        let levels = vec![Level::new(directory)];
        let target = Target::Known(Root { directory: None, fresh: true, rename: None });
        Walk { target: None, levels, ..Walk::new(target) }
    }
}

/// What became of a name.
pub(super) enum Named {
    /// It can be used here.
    Free(Place),
    /// It cannot, for this reason; or its directory could not be made.
    No(Option<(Place, io::Error)>),
}

impl Sink<'_> {
    /// Takes the target, if it is known before the first entry.
    pub(super) fn begin_known(&self) -> Result<(), TransferError> {
        let mut walk = lock(&self.walk);
        match walk.target.take() {
            Some(Target::Known(root)) => self.begin(&mut walk, root),
            target => {
                walk.target = target;
                Ok(())
            }
        }
    }

    fn begin(&self, walk: &mut Walk, root: Root) -> Result<(), TransferError> {
        let Root { directory, fresh, rename } = root;
        let directory = directory.map(Arc::new);
        let mut doubts = Doubts::default();
        if let Some(open) = &directory {
            let failed = |error: io::Error| self.fatal(self.settings.shown.clone(), error);
            if !fresh {
                let mut marks = lock(&self.marks);
                doubts = marks.begin(open).map_err(failed)?;
                let unread = marks.take_unread();
                let mut met = false;
                if !self.settings.dry_run {
                    self.dead.get_or_init(|| marks.dead());
                    met = marks.meet();
                }
                drop(marks);
                if met {
                    self.beside_another("is writing to this target");
                }
                self.tell_unread(&self.settings.shown, unread);
            }
        }
        let root = self.root.get_or_init(|| Directory::root(directory, fresh, doubts)).clone();
        if !root.missing {
            let open = self.directories.get(&root);
            self.remember_device(&open.map_err(|e| self.fatal(self.settings.shown.clone(), e))?);
        }
        walk.rename = rename;
        walk.levels.push(Level::new(Some(root)));
        Ok(())
    }

    /// An entry comes.
    pub(super) fn entry(&self, entry: Entry) -> Result<(), TransferError> {
        let walk = &mut *lock(&self.walk);
        if walk.ended {
            return Err(violation("an entry after the end"));
        }
        let name = Name::new(&entry.name).map_err(|bad| violation(&bad.to_string()))?;
        if let Some(Target::Waiting(waiting)) = walk.target.take() {
            let root = match entry.what {
                What::Directory => waiting.directory()?,
                _ => waiting.single(),
            };
            self.begin(walk, root)?;
        } else if walk.rename.is_some() && walk.levels.len() == 1 {
            let text = "it is no directory, and several entries are to go there";
            let error = trouble::other(io::ErrorKind::NotADirectory, text);
            return Err(self.fatal(self.settings.shown.clone(), error));
        }
        let number = walk.next;
        walk.next += 1;
        walk.top += u64::from(walk.levels.len() == 1);
        self.announced.store(walk.next, Ordering::Release);
        if self.settings.max_entries.is_some_and(|most| walk.next > most) {
            let why = "more entries than this client may have stored in one session";
            return Err(TransferError::Stopped(why.into()));
        }
        self.count_entry(walk, &entry.what)?;
        let named = self.take_name(walk, name);
        let Entry { attributes, extra, what, .. } = entry;
        match what {
            What::Directory => self.directory(walk, number, named, attributes, extra),
            What::File { size, sparse, origin } => {
                let content = Content { size, sparse, origin };
                self.file(number, named, Kind::File, content, attributes, extra)
            }
            What::Stream => {
                self.file(number, named, Kind::Stream, Content::default(), attributes, extra)
            }
            What::Symlink(text) => self.symlink(number, named, &text, &attributes, extra),
            What::HardLink { to } => self.hard_link(number, named, to, attributes),
        }
    }

    fn count_entry(&self, walk: &mut Walk, what: &What) -> Result<(), TransferError> {
        match what {
            What::Directory => walk.tally.directories += 1,
            What::Symlink(_) => walk.tally.symlinks += 1,
            What::Stream | What::HardLink { .. } => walk.tally.files += 1,
            What::File { size, .. } => {
                walk.tally.files += 1;
                walk.tally.bytes = walk.tally.bytes.saturating_add(*size);
                walk.bytes = walk.bytes.saturating_add(*size);
            }
        }
        self.check_limit(walk.bytes)
    }

    pub(super) fn check_limit(&self, bytes: u64) -> Result<(), TransferError> {
        match self.settings.max_bytes {
            Some(limit) if bytes > limit => {
                let text = format!("more than the {limit} bytes that may be stored here");
                let error = io::Error::new(io::ErrorKind::FileTooLarge, text);
                Err(TransferError::Io { path: self.settings.shown.clone(), source: error })
            }
            _ => Ok(()),
        }
    }

    /// Takes an entry's name in the present directory.
    fn take_name(&self, walk: &mut Walk, name: Name<'_>) -> Named {
        let top = walk.levels.len() == 1;
        let renamed = if top { walk.rename.as_deref() } else { None };
        let name = renamed.unwrap_or(name.bytes());
        let Some(level) = walk.levels.last_mut() else { return Named::No(None) };
        let Some(directory) = &level.directory else { return Named::No(None) };
        let place = Place { directory: Arc::clone(directory), name: name.into() };
        if is_ours(name) {
            let text = "names such as this one are for files that are not complete yet";
            return Named::No(Some((place, io::Error::other(text))));
        }
        let before = level.names.overflowed;
        let folds = || self.folds(directory);
        let text = match self.naming.insert(&mut level.names, name, folds, &self.memory) {
            Taken::New => None,
            Taken::Again => Some("another entry of this name has come"),
            Taken::Folded => {
                Some("another entry has this name here, where capitals make no difference")
            }
        };
        if let Some(text) = text {
            return Named::No(Some((place, io::Error::other(text))));
        }
        if level.names.overflowed && !before && self.settings.delete {
            let path = directory.path();
            let path = printable(path.as_os_str().as_encoded_bytes());
            self.note(&format!("{path}: too many names; nothing is deleted there"));
        }
        Named::Free(place)
    }

    fn directory(
        &self,
        walk: &mut Walk,
        number: u64,
        named: Named,
        attributes: Attributes,
        extra: Option<Box<Extra>>,
    ) -> Result<(), TransferError> {
        // The first level is the target.
        if walk.levels.len() > MAX_DEPTH {
            return Err(violation("directories nested too deeply"));
        }
        if self.counts.directories.load(Ordering::Relaxed) >= MAX_DIRECTORIES {
            return Err(violation("too many directories with unfinished files"));
        }
        let entered = match named {
            Named::Free(place) if self.standard.is_some() => {
                Err(Some((place, io::Error::other("a directory cannot go to standard output"))))
            }
            Named::Free(place) => {
                let extra = self.keep_extra(&place, extra);
                let entered = self.enter(&place, attributes, extra);
                entered.map_err(|error| Some((place, error)))
            }
            Named::No(why) => Err(why),
        };
        let directory = match entered {
            Ok(directory) => {
                self.counts.directories.fetch_add(1, Ordering::Relaxed);
                Some(directory)
            }
            Err(why) => {
                if let (1, Some((place, error))) = (walk.levels.len(), &why) {
                    walk.lost = Some((place.path(), trouble::same(error)));
                }
                self.refuse(number, why, false)?;
                None
            }
        };
        walk.levels.push(Level::new(directory));
        Ok(())
    }

    /// Makes or opens a directory.
    fn enter(
        &self,
        place: &Place,
        attributes: Attributes,
        extra: Option<Arc<Extra>>,
    ) -> io::Result<Arc<Directory>> {
        let Place { directory: parent, name } = place;
        let Ok(charge) = self.memory.charge(Directory::bytes(name)) else {
            // The session ends for it.
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let new = |open, fresh, doubts, before, set_group_id| {
            let finally = Finally { attributes, extra, before, set_group_id };
            Directory::below(parent, name, open, fresh, doubts, finally, charge)
        };
        if parent.missing {
            return Ok(new(None, true, Doubts::default(), None, 0));
        }
        let here = self.directories.get(parent)?;
        let fresh = if self.settings.dry_run {
            match statat(&here, &**name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => return Ok(new(None, true, Doubts::default(), None, 0)),
                found => found.map(|_| false)?,
            }
        } else {
            match mkdirat(&here, &**name, Mode::RWXU) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            }
        };
        let open = match open_directory(&here, name) {
            Err(Errno::ACCESS) if !self.settings.dry_run && !self.settings.existing.stays() => {
                allow_reading(&here, Name::new(name).map_err(io::Error::other)?)?;
                open_directory(&here, name)?
            }
            opened => opened?,
        };
        let stat = fstat(&open)?;
        let mode = stat.st_mode & 0o7777;
        let stays = !fresh && self.settings.existing.stays();
        if mode & 0o700 != 0o700 && !self.settings.dry_run && !stays {
            // One that an earlier transfer left without write permission. If it is not ours to
            // change, the entries below will say so.
            let _ = fchmod(&open, Mode::from_raw_mode(mode | 0o700));
        }
        let open = Arc::new(open);
        if self.settings.durable {
            #[allow(clippy::useless_conversion, reason = "it differs between architectures")]
            self.note_device(u64::from(stat.st_dev), &open);
        }
        let doubts = match fresh {
            true => Doubts::default(),
            false => {
                let mut marks = lock(&self.marks);
                let doubts = parent.doubts.below(name, marks.look(&open)?);
                let unread = marks.take_unread();
                drop(marks);
                self.tell_unread(&self.settings.shown.join(place.path()), unread);
                doubts
            }
        };
        let before = (!fresh).then_some(mode);
        let directory = new(Some(open), fresh, doubts, before, mode & 0o2000);
        self.directories.note(&directory);
        Ok(directory)
    }

    /// A file or a stream comes.
    fn file(
        &self,
        number: u64,
        named: Named,
        kind: Kind,
        content: Content,
        attributes: Attributes,
        extra: Option<Box<Extra>>,
    ) -> Result<(), TransferError> {
        let place = match named {
            Named::Free(place) => place,
            Named::No(why) => {
                lock(&self.gone).add(number, kind, content.size, &self.memory);
                return self.refuse(number, why, true);
            }
        };
        let extra = self.keep_extra(&place, extra);
        let charge = self.memory.charge(Pending::bytes(&place));
        let charge = charge.map_err(TransferError::from)?;
        let pending = Pending::new(number, place, kind, content, attributes, extra, charge);
        self.add_pending(&pending)?;
        if self.settings.hard_links && kind == Kind::File {
            lock(&self.links).announce(number, &pending.place, &self.memory);
        }
        self.decide(&pending)
    }

    pub(super) fn add_pending(&self, pending: &Arc<Pending>) -> Result<(), TransferError> {
        pending.place.directory.begin();
        let mut files = lock(&self.files);
        if files.len() >= MAX_UNFINISHED {
            return Err(violation("too many unfinished files"));
        }
        files.insert(pending.entry, Arc::clone(pending));
        Ok(())
    }

    /// What is kept beside mode and times, as far as there is room for it.
    fn keep_extra(&self, place: &Place, extra: Option<Box<Extra>>) -> Option<Arc<Extra>> {
        let mut extra = extra?;
        if !self.settings.policy.preserve.xattrs {
            extra.xattrs = Vec::new();
        }
        if !self.memory.spare(extra_bytes(&extra)) {
            extra.xattrs = Vec::new();
            self.memory.note(extra_bytes(&extra));
            let error = io::Error::other("too many extended attributes at once");
            self.not_kept(&place.path(), &error);
        }
        Some(Arc::new(*extra))
    }

    /// An entry that comes cannot be stored. `why`: none if its directory could not be made.
    pub(super) fn refuse(
        &self,
        number: u64,
        why: Option<(Place, io::Error)>,
        file: bool,
    ) -> Result<(), TransferError> {
        if file {
            let verdict = Verdict::Skip { reason: Skip::Failed, digest: None };
            self.say(Message::Verdict { file: number, verdict });
        }
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        let Some((place, error)) = why else {
            lock(&self.failures).count += 1;
            return Ok(());
        };
        if trouble::concerns_all(&error) {
            return Err(self.fatal(place.path(), error));
        }
        let text = self.fail_here(&place.path(), &trouble::plain(error));
        self.say(Message::Failed { entry: number, text });
        Ok(())
    }

    fn symlink(
        &self,
        number: u64,
        named: Named,
        text: &[u8],
        attributes: &Attributes,
        extra: Option<Box<Extra>>,
    ) -> Result<(), TransferError> {
        let place = match named {
            Named::Free(place) => place,
            Named::No(why) => return self.refuse(number, why, false),
        };
        if self.standard.is_some() {
            let error = io::Error::other("a link cannot go to standard output");
            return self.refuse(number, Some((place, error)), false);
        }
        match self.make_link(&place, text, attributes, extra.as_deref()) {
            Ok(None) => Ok(()),
            Ok(Some(error)) => {
                self.not_kept(&place.path(), &error);
                Ok(())
            }
            Err(error) => self.refuse(number, Some((place, error)), false),
        }
    }

    /// Makes a symbolic link, with any text: nobody here follows it. `Some`: what was not kept.
    fn make_link(
        &self,
        place: &Place,
        text: &[u8],
        attributes: &Attributes,
        extra: Option<&Extra>,
    ) -> io::Result<Option<io::Error>> {
        let Place { directory, name } = place;
        if directory.missing {
            return Ok(None);
        }
        let here = self.directories.get(directory)?;
        let found = match directory.fresh {
            true => None,
            false => look(&here, name)?,
        };
        let same = match found {
            None => false,
            Some(_) if self.settings.existing.stays() => {
                return self.settings.existing.keep_name().map(|()| None);
            }
            Some(found) => match found {
                inode::Kind::Directory => return Err(Errno::ISDIR.into()),
                inode::Kind::Special(what) => return Err(in_the_way(what)),
                inode::Kind::File => false,
                inode::Kind::Symlink => readlinkat(&here, &**name, Vec::new())?.to_bytes() == text,
            },
        };
        if self.settings.dry_run {
            return Ok(None);
        }
        let policy = &self.settings.policy;
        if !same {
            self.mark(place);
            let direct = match found {
                None => symlinkat(text, &here, &**name),
                Some(_) => Err(Errno::EXIST),
            };
            match direct {
                Err(Errno::EXIST) if self.settings.existing.stays() => {
                    return self.settings.existing.keep_name().map(|()| None);
                }
                Err(Errno::EXIST) => replace_link(&self.temporary, &here, name, text)?,
                made => made?,
            }
        }
        Ok(policy.set_link(&here, name, attributes, extra).err())
    }

    /// The present directory has no more entries.
    pub(super) fn leave(&self, complete: bool) -> Result<(), TransferError> {
        let mut walk = lock(&self.walk);
        if walk.levels.len() <= 1 {
            return Err(violation("a directory left twice"));
        }
        let Some(Level { directory, names, empty }) = walk.levels.pop() else { return Ok(()) };
        drop(walk);
        match directory {
            Some(directory) => self.leave_directory(&directory, Left { complete, empty, names }),
            None => {
                self.forget(names);
                Ok(())
            }
        }
    }

    /// The source has nothing that is copied, or there in the present directory nothing is mounted.
    pub(super) fn nothing_there(&self) {
        if let Some(level) = lock(&self.walk).levels.last_mut() {
            level.empty = true;
        }
    }

    fn leave_directory(&self, directory: &Arc<Directory>, left: Left) -> Result<(), TransferError> {
        if self.settings.delete {
            *lock(&directory.left) = Some(left);
        } else {
            self.forget(left.names);
        }
        self.entry_over(directory)
    }

    pub(super) fn forget(&self, names: Names) {
        self.memory.give(names.bytes());
        self.naming.forget(names);
    }

    /// The source has announced everything.
    pub(super) fn end(
        &self,
        tally: Tally,
        omitted: u64,
        complete: bool,
    ) -> Result<(), TransferError> {
        let mut walk = lock(&self.walk);
        if walk.ended {
            return Err(violation("a second end"));
        }
        if walk.levels.len() > 1 {
            return Err(violation("an end inside a directory"));
        }
        if walk.tally != tally {
            return Err(TransferError::Receipt);
        }
        if let (1, Some((path, error))) = (walk.top, walk.lost.take()) {
            // All that came was to go there.
            return Err(self.fatal(self.settings.shown.join(path), trouble::plain(error)));
        }
        walk.ended = true;
        walk.omitted = omitted;
        lock(&self.failures).count += omitted;
        let level = walk.levels.pop();
        let renamed = walk.rename.is_some();
        drop(walk);
        if self.settings.dry_run {
            // What the source would have compared or sent.
            let left: Vec<_> = lock(&self.files).values().cloned().collect();
            for pending in left {
                self.would_move(&pending)?;
            }
        }
        match level {
            Some(Level { directory: Some(root), names, empty }) => {
                // A file that has got the target's name says nothing of what is beside it.
                let complete = complete && !renamed;
                self.leave_directory(&root, Left { complete, empty, names })
            }
            // Nothing came, and nothing was made.
            _ => self.entry_over(&Directory::root(None, true, Doubts::default())),
        }
    }

    /// A file has changed while it was read and begins anew.
    pub(super) fn file_again(&self, file: u64, again: Again) -> Result<(), TransferError> {
        let size = again.content.size;
        let pending = self.find(file);
        let recent = if pending.is_none() { lock(&self.recent).get(file) } else { None };
        let Some(pending) = pending.or(recent) else {
            return self.gone_again(file, Some(size));
        };
        if pending.kind != Kind::File {
            return Err(violation("another version of what is no file"));
        }
        let before = lock(&pending.inner).size();
        self.recount(Some(before), Some(size))?;
        {
            let mut inner = lock(&pending.inner);
            if matches!(inner.work, Work::Over) && !inner.closed {
                // It is being given its name by now; then it begins anew.
                inner.next = Some(again);
                return Ok(());
            }
        }
        self.begin_again(&pending, again)
    }

    /// Begins anew with a file.
    pub(super) fn begin_again(
        &self,
        pending: &Arc<Pending>,
        again: Again,
    ) -> Result<(), TransferError> {
        let (old, reopened) = {
            let mut inner = lock(&pending.inner);
            let reopened = std::mem::take(&mut inner.closed);
            inner.again |= reopened;
            subtract(&self.counts.bytes, inner.counted);
            self.memory.give(inner.damaged.len() * DAMAGED_CHUNK);
            (inner.begin_again(again), reopened)
        };
        if reopened {
            subtract(&self.counts.files, 1);
            let mut files = lock(&self.files);
            if files.len() >= MAX_UNFINISHED {
                return Err(violation("too many unfinished files"));
            }
            files.insert(pending.entry, Arc::clone(pending));
        }
        match old {
            // Whoever still writes to the old one fails, and knows why by the version.
            Work::Part(part) => drop(part.discard()),
            Work::Ordered(ordered) if self.standard.is_some() && lock(&ordered).written() > 0 => {
                let text = "it changed while it was read, and some of it has been written";
                return Err(self.fatal(pending.place.path(), io::Error::other(text)));
            }
            _ => {}
        }
        self.decide(pending)
    }

    /// A file could not be read to its end.
    pub(super) fn file_dropped(&self, file: u64) -> Result<(), TransferError> {
        {
            let mut walk = lock(&self.walk);
            if walk.ended {
                // The end has not counted it.
                walk.omitted += 1;
                lock(&self.failures).count += 1;
            }
        }
        let Some(pending) = self.find(file) else {
            let recent = lock(&self.recent).get(file);
            if let Some(pending) = recent {
                // It is here as it was.
                let size = lock(&pending.inner).size();
                return self.recount(Some(size), None);
            }
            return self.gone_again(file, None);
        };
        let (work, size) = {
            let mut inner = lock(&pending.inner);
            let size = inner.size();
            match &inner.work {
                Work::Waiting => return Err(violation("a file dropped that is a link")),
                Work::Over => {
                    // It is being given its name by now, and stays as it was.
                    inner.next = None;
                    drop(inner);
                    return self.recount(Some(size), None);
                }
                _ => {}
            }
            subtract(&self.counts.bytes, std::mem::take(&mut inner.counted));
            (std::mem::replace(&mut inner.work, Work::Over), size)
        };
        self.recount(Some(size), None)?;
        if let Work::Part(part) = work {
            // What cannot be removed now is removed or used by the next transfer.
            let _ = part.discard();
        }
        // Why, the source tells by a note.
        self.over(&pending, false)
    }

    /// What the source says of a file that failed here meanwhile. `size`: none, it is dropped.
    fn gone_again(&self, file: u64, size: Option<u64>) -> Result<(), TransferError> {
        if file >= self.announced.load(Ordering::Acquire) {
            return Err(violation("a message about a file that is not announced"));
        }
        let mut gone = lock(&self.gone);
        let Some((_, known)) = gone.get(file) else {
            return Err(violation("a message about a file that is over"));
        };
        let before = std::mem::replace(known, size.unwrap_or(0));
        drop(gone);
        self.recount(Some(before), size)
    }

    /// Counts a file anew that is announced anew or dropped.
    pub(super) fn recount(
        &self,
        before: Option<u64>,
        now: Option<u64>,
    ) -> Result<(), TransferError> {
        if self.counts.receipt.load(Ordering::Acquire) {
            return Err(violation("a file begun anew after the receipt"));
        }
        let mut walk = lock(&self.walk);
        let bytes = walk.tally.bytes.saturating_sub(before.unwrap_or(0));
        walk.tally.bytes = bytes.saturating_add(now.unwrap_or(0));
        if now.is_none() {
            walk.tally.files = walk.tally.files.saturating_sub(1);
        }
        walk.bytes = walk.bytes.saturating_add(now.unwrap_or(0));
        self.check_limit(walk.bytes)
    }
}

/// What it takes of memory.
pub(super) fn extra_bytes(extra: &Extra) -> usize {
    let of = |bytes: &Vec<u8>| allocated(bytes.capacity());
    let pairs: usize = extra.xattrs.iter().map(|(name, value)| of(name) + of(value)).sum();
    let listed = extra.xattrs.capacity() * size_of::<(Vec<u8>, Vec<u8>)>();
    pairs + allocated(listed) + allocated(size_of::<Extra>())
}

/// Puts a link in the place of what is there.
fn replace_link(
    names: &TemporaryNames,
    here: &OwnedFd,
    name: &[u8],
    text: &[u8],
) -> io::Result<()> {
    let (temporary, ()) = names.make(|temporary| symlinkat(text, here, temporary))?;
    let renamed = renameat(here, temporary.as_str(), here, name);
    if renamed.is_err() {
        let _ = unlinkat(here, temporary.as_str(), AtFlags::empty());
    }
    Ok(renamed?)
}

/// What stands at a name.
fn look(here: &OwnedFd, name: &[u8]) -> io::Result<Option<inode::Kind>> {
    match statat(here, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(inode::kind(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A device, socket or pipe is never replaced: it is there for somebody else.
pub(super) fn in_the_way(what: crate::report::Special) -> io::Error {
    io::Error::other(format!("a {what} of this name is in the way; remove it first"))
}
