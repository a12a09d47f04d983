//! What is wanted of a file.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, fstatfs, fstatvfs, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::announce::in_the_way;
use super::end::SYNC_FROM;
use super::entry::{Kind, Pending, Waiting, Work};
use super::options::Existing;
use super::stream::{NewFile, Ordered, Output};
use super::{Job, Sink, attributes, lock};
use crate::digest::Digest;
use crate::inode;
use crate::name::Name;
use crate::report::{describe, printable};
use crate::transfer::error::TransferError;
use crate::transfer::event::Outcome;
use crate::transfer::message::{MAX_NODES, Message, Skip, Verdict};
use crate::transfer::part::{Opened, PartFile};
use crate::transfer::tree_hash::{CHUNK, Node};

/// How long a file is waited for that another transfer writes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks whether it still does.
const LOOK: Duration = Duration::from_millis(200);

/// A large file or a stream to be opened.
#[derive(Debug)]
pub(super) struct Opening {
    pending: Arc<Pending>,
    version: u8,
    /// When another transfer that has the file is not waited for any more.
    until: Instant,
    /// Another transfer had it at the last look.
    waited: bool,
}

/// What is to be done with a file that comes.
enum Choice {
    /// It is wanted. With the mode of the file that it replaces.
    Take(Option<u32>),
    /// It is there; whether its attributes are not right.
    Same(bool),
    /// Something is there that is to stay.
    Exists,
    /// It depends on the digest.
    Compare(u32),
}

impl Sink<'_> {
    /// Decides on a file that comes, or comes anew.
    pub(super) fn decide(&self, pending: &Arc<Pending>) -> Result<(), TransferError> {
        match (&self.standard, self.settings.dry_run) {
            (Some(_), true) => return self.take(pending),
            (Some(_), false) => return self.want(pending, None),
            _ => {}
        }
        match self.choose(pending) {
            Ok(Choice::Take(before)) => {
                lock(&pending.inner).before = before;
                self.take(pending)
            }
            Ok(Choice::Same(differs)) => {
                if differs && !self.settings.dry_run {
                    self.correct(pending);
                }
                self.skip(pending, Skip::Same)
            }
            Ok(Choice::Exists) => {
                self.abandon(pending);
                self.skip(pending, Skip::Exists)
            }
            Ok(Choice::Compare(before)) => {
                let version = {
                    let mut inner = lock(&pending.inner);
                    inner.before = Some(before);
                    inner.version
                };
                let pending = Arc::clone(pending);
                self.slow.push(Job::Digest { pending, version, skip: None });
                Ok(())
            }
            Err(error) => self.fail(pending, error),
        }
    }

    fn choose(&self, pending: &Pending) -> io::Result<Choice> {
        let directory = &pending.place.directory;
        let inner = lock(&pending.inner);
        // Nothing is in a new directory but what this transfer has put there, and that has other
        // names, unless it is an older version of the file.
        if directory.missing || (directory.fresh && inner.version == 0) {
            return Ok(Choice::Take(None));
        }
        let (size, attributes) = (inner.size, inner.attributes);
        let extra = inner.extra.clone();
        drop(inner);
        let here = self.directories.get(directory)?;
        let stat = match statat(&here, &*pending.place.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(Choice::Take(None)),
            Err(error) => return Err(error.into()),
        };
        let existing = self.settings.existing;
        if existing.stays() {
            return Ok(Choice::Exists);
        }
        match inode::kind(&stat) {
            inode::Kind::Directory => return Err(Errno::ISDIR.into()),
            inode::Kind::Special(what) => return Err(in_the_way(what)),
            inode::Kind::Symlink => return Ok(Choice::Take(None)),
            inode::Kind::File => {}
        }
        let mode = stat.st_mode & 0o7777;
        if existing == Existing::Overwrite
            || pending.kind == Kind::Stream
            || inode::size(&stat) != size
        {
            return Ok(Choice::Take(Some(mode)));
        }
        if existing != Existing::Checksum && !attributes::same_time(&stat, &attributes) {
            return Ok(Choice::Take(Some(mode)));
        }
        // Larger ones were on the medium before they had their names.
        let doubted = size < SYNC_FROM && pending.place.is_doubted();
        lock(&pending.inner).doubted = doubted;
        if doubted || existing == Existing::Checksum {
            return Ok(Choice::Compare(mode));
        }
        Ok(Choice::Same(self.settings.policy.differs(&stat, &attributes, extra.as_deref())))
    }

    /// In a box, what this owner has left of a file is of no use once another has its name.
    fn abandon(&self, pending: &Pending) {
        let Some(owner) = self.settings.owner.filter(|_| !self.settings.dry_run) else { return };
        let place = &pending.place;
        let removed = self.directories.get(&place.directory).and_then(|here| {
            let name = Name::new(&place.name).map_err(io::Error::other)?;
            PartFile::abandon(&owner, here, name)
        });
        if let Err(error) = removed {
            self.note(&format!("a partial file stays: {}", describe(&place.path(), &error)));
        }
    }

    /// Gives a file that stays the attributes that it should have.
    pub(super) fn correct(&self, pending: &Pending) {
        let (attributes, extra) = {
            let inner = lock(&pending.inner);
            (inner.attributes, inner.extra.clone())
        };
        let place = &pending.place;
        let corrected = self.directories.get(&place.directory).and_then(|here| {
            let policy = &self.settings.policy;
            policy.correct(&here, &place.name, &attributes, extra.as_deref())
        });
        if let Err(error) = corrected {
            self.not_kept(&place.path(), &error);
        }
    }

    /// A file is wanted.
    pub(super) fn take(&self, pending: &Arc<Pending>) -> Result<(), TransferError> {
        if self.settings.dry_run {
            self.say_take(pending, Vec::new());
            return self.would_move(pending);
        }
        {
            let mut inner = lock(&pending.inner);
            if pending.kind == Kind::Stream || inner.size > CHUNK {
                drop(inner);
                return self.want(pending, None);
            }
            inner.work = Work::Small;
        }
        self.say_take(pending, Vec::new());
        Ok(())
    }

    fn say_take(&self, pending: &Pending, have: Vec<Node>) {
        self.say(Message::Verdict { file: pending.entry, verdict: Verdict::Take { have } });
    }

    /// A file is not wanted. If its digest is, that comes first.
    fn skip(&self, pending: &Arc<Pending>, reason: Skip) -> Result<(), TransferError> {
        if self.settings.want_digests && reason == Skip::Same && pending.kind == Kind::File {
            let version = lock(&pending.inner).version;
            let pending = Arc::clone(pending);
            self.slow.push(Job::Digest { pending, version, skip: Some(reason) });
            return Ok(());
        }
        self.skipped(pending, reason, None)
    }

    /// A file stays as it is.
    pub(super) fn skipped(
        &self,
        pending: &Arc<Pending>,
        reason: Skip,
        digest: Option<Digest>,
    ) -> Result<(), TransferError> {
        lock(&pending.inner).work = Work::Over;
        let verdict = Verdict::Skip { reason, digest };
        self.say(Message::Verdict { file: pending.entry, verdict });
        let outcome = match reason {
            Skip::Same => Outcome::Same { compared: false },
            _ => Outcome::Kept,
        };
        self.finished(pending, outcome, digest, false)
    }

    /// In a dry run: a file would be moved.
    pub(super) fn would_move(&self, pending: &Arc<Pending>) -> Result<(), TransferError> {
        {
            let mut inner = lock(&pending.inner);
            if matches!(inner.work, Work::Over) {
                return Ok(());
            }
            inner.work = Work::Over;
        }
        self.finished(pending, Outcome::Moved { resumed: 0 }, None, false)
    }

    /// A file is to be opened, or compared and then opened: as soon as there is a slot for it.
    pub(super) fn want(
        &self,
        pending: &Arc<Pending>,
        compare: Option<Digest>,
    ) -> Result<(), TransferError> {
        let (version, has) = {
            let inner = lock(&pending.inner);
            (inner.version, inner.slot)
        };
        let waiting = Waiting { pending: Arc::clone(pending), version, compare };
        if !has {
            let mut slots = lock(&self.slots);
            if slots.free == 0 {
                slots.waiting.push_back(waiting);
                return Ok(());
            }
            slots.free -= 1;
        }
        if !self.start(waiting) && !has {
            self.give_slot();
        }
        Ok(())
    }

    /// A slot is free: the next gets it.
    pub(super) fn give_slot(&self) {
        loop {
            let mut slots = lock(&self.slots);
            let Some(waiting) = slots.waiting.pop_front() else {
                slots.free += 1;
                return;
            };
            drop(slots);
            if self.start(waiting) {
                return;
            }
        }
    }

    /// Begins with a file that has a slot; false if it is not wanted any more.
    fn start(&self, waiting: Waiting) -> bool {
        let Waiting { pending, version, compare } = waiting;
        {
            let mut inner = lock(&pending.inner);
            if inner.version != version || !matches!(inner.work, Work::Deciding) {
                return false;
            }
            inner.slot = true;
            if let Some(digest) = compare {
                inner.work = Work::Comparing(digest);
            }
        }
        match compare {
            Some(digest) => self.say_compare(&pending, digest),
            None => {
                let until = Instant::now() + PATIENCE;
                self.quick.push(Job::Open(Opening { pending, version, until, waited: false }));
            }
        }
        true
    }

    pub(super) fn say_compare(&self, pending: &Pending, digest: Digest) {
        let verdict = Verdict::Compare { digest };
        self.say(Message::Verdict { file: pending.entry, verdict });
    }

    /// Opens a large file or a stream.
    pub(super) fn open(&self, mut opening: Opening) -> Result<(), TransferError> {
        let pending = &Arc::clone(&opening.pending);
        if !self.still(&opening) {
            return Ok(());
        }
        let opened = match pending.kind {
            Kind::File if self.standard.is_none() => self.open_part(pending),
            _ => self.open_ordered(pending).map(|work| (work, 0, Vec::new())),
        };
        let (work, resumed, have) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !std::mem::replace(&mut opening.waited, true) {
                    let path = opening.pending.place.path();
                    let path = printable(path.as_os_str().as_encoded_bytes());
                    self.note(&format!("{path}: another copy is writing it: waiting for its end"));
                }
                if Instant::now() < opening.until {
                    self.quick.push_later(Instant::now() + LOOK, Job::Open(opening));
                    return Ok(());
                }
                return self.fail(pending, error);
            }
            Err(error) => return self.fail(pending, error),
        };
        if let (true, Work::Part(part), 0) = (opening.waited, &work, resumed)
            && let Ok(Choice::Same(_)) = self.choose(pending)
        {
            // The other copy has brought it meanwhile.
            let _ = part.discard();
            return self.skip(pending, Skip::Same);
        }
        let part = match &work {
            Work::Part(part) => Some(Arc::clone(part)),
            _ => None,
        };
        {
            let mut inner = lock(&pending.inner);
            if inner.version != opening.version || !matches!(inner.work, Work::Deciding) {
                return Ok(());
            }
            inner.work = work;
            inner.resumed = resumed;
            inner.counted = resumed;
            // With the lock held: what is lost of it is told after.
            self.say_take(pending, have);
        }
        super::add(&self.counts.bytes, resumed);
        if let Some(part) = part {
            if !self.connected.load(Ordering::SeqCst) {
                part.unlock();
            }
            self.prove_later(pending);
        }
        Ok(())
    }

    fn still(&self, opening: &Opening) -> bool {
        let inner = lock(&opening.pending.inner);
        inner.version == opening.version && matches!(inner.work, Work::Deciding)
    }

    /// Opens the partial file; bytes and subtrees that an earlier transfer has left.
    pub(super) fn open_part(&self, pending: &Pending) -> io::Result<(Work, u64, Vec<Node>)> {
        let place = &pending.place;
        let directory = self.directories.get(&place.directory)?;
        let name = Name::new(&place.name).map_err(io::Error::other)?;
        let identity = lock(&pending.inner).identity(self.settings.verify);
        let trusting = self.settings.trust_partial;
        let owner = self.settings.owner.as_ref().map_or(&[][..], |owner| owner);
        let (part, opened) =
            PartFile::open_of(owner, Arc::clone(&directory), name, identity, trusting)?;
        let resumed = part.present_bytes();
        if !identity.sparse
            && let Some(free) = lacking(&directory, identity.size - resumed)
        {
            // Room may be made meanwhile, and what fits is of use the next time.
            let path = printable(place.path().as_os_str().as_encoded_bytes());
            let left = identity.size - resumed;
            self.note(&format!(
                "{path}: it needs {left} bytes, and there is room for {free}: what fits is kept"
            ));
        }
        let mut have = part.nodes();
        if have.len() > MAX_NODES {
            // The largest count; the rest comes again.
            have.sort_by_key(|node| std::cmp::Reverse(node.level));
            part.forget(&have[MAX_NODES..])?;
            have.truncate(MAX_NODES);
        }
        let resumed = part.present_bytes();
        if let Opened::Resumed { trusted, .. } = opened
            && trusted > 0
            && identity.verify
        {
            let path = printable(place.path().as_os_str().as_encoded_bytes());
            self.note(&format!("{path}: {trusted} bytes are taken as they are, not read again"));
        }
        if self.settings.existing.stays() {
            part.never_replace();
        }
        Ok((Work::Part(Arc::new(part)), resumed, have))
    }

    fn open_ordered(&self, pending: &Pending) -> io::Result<Work> {
        let out = match &self.standard {
            Some(standard) => Output::Standard(Arc::clone(standard)),
            None => {
                // Before there is a temporary file, so that others know whose it is.
                self.mark(&pending.place);
                Output::File(NewFile::new(
                    &self.temporary,
                    self.directories.get(&pending.place.directory)?,
                    !self.settings.existing.stays(),
                )?)
            }
        };
        let file = {
            let inner = lock(&pending.inner);
            (pending.kind == Kind::File).then_some((inner.size, inner.sparse))
        };
        let ordered = Ordered::new(out, file, self.settings.verify);
        Ok(Work::Ordered(Arc::new(Mutex::new(ordered))))
    }
}

/// The room that there is, bytes, if so many do not fit, as far as the file system tells.
fn lacking(directory: &OwnedFd, bytes: u64) -> Option<u64> {
    /// Those that compress, so that more may fit: btrfs, ZFS, bcachefs.
    const COMPRESSING: [u64; 3] = [0x9123_683e, 0x2fc1_2fc1, 0xca45_1a4e];
    let room = fstatvfs(directory).ok()?;
    let blocks = if geteuid().is_root() { room.f_bfree } else { room.f_bavail };
    let free = blocks.saturating_mul(room.f_frsize);
    // One that has no blocks at all does not tell.
    if room.f_blocks == 0 || bytes <= free {
        return None;
    }
    #[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
    let kind = fstatfs(directory).ok()?.f_type as u64 & 0xffff_ffff;
    (!COMPRESSING.contains(&kind)).then_some(free)
}
