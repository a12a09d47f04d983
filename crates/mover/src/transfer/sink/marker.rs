//! What a crash of the machine or a write-back that failed may have taken.
//!
//! Small files are renamed before their data is on the medium; one sync at the end is for all of
//! them. Until that has succeeded, a mark says so. It lies in the directory [`UNSYNCED`] of the copy's
//! target, and names what of the target it covers, and whose it is. Its lock tells that its copy is
//! alive.
//!
//! A copy that comes to a file that another copy's mark covers doubts it: size and time do not tell that it is
//! the same, and what the cache has of it does not either. That ends when the mark's own copy, run
//! again, ends well; for another copy, when that one has compared all of its files.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, fchmod, fchown, flock, fstat, fsync, mkdirat,
    openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, getegid};

use super::sweep::Dead;
use super::trouble;
use crate::inode::{self, Kind};
use crate::temporary::TemporaryNames;
use crate::temporary::{self, UNSYNCED};
use crate::transfer::place;

/// The most marks of a directory that are read; with more of them everything is doubted.
const MOST: usize = 1000;
/// The most directories whose marks are kept in mind, to be removed in the end.
const PLACES: usize = 64;
/// The most bytes of a mark.
const LENGTH: u64 = 1 << 16;
/// The most names that a mark covers; beyond them it covers all.
const NAMES: usize = 8;
/// The most copies that a mark names as having compared what is theirs.
const COMPARED: usize = 64;
/// How far up marks are looked for.
const ABOVE: usize = 256;

/// What a copy is known by: the same sources, to the same target. All zeros: not known.
pub type CopyId = [u8; 16];

/// What is known by `parts`, such as hosts and paths; every part counts by itself.
pub fn copy_id(parts: &[&[u8]]) -> CopyId {
    let mut hasher = blake3::Hasher::new_derive_key("farhaul mover 2 copy");
    for part in parts {
        hasher.update(&(part.len() as u64).to_be_bytes()).update(part);
    }
    let mut id = CopyId::default();
    hasher.finalize_xof().fill(&mut id);
    id
}

/// What a mark covers of the directory that it lies in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cover {
    all: bool,
    names: Vec<Vec<u8>>,
}

impl Cover {
    fn has(&self, name: &[u8]) -> bool {
        self.all || self.names.iter().any(|covered| covered == name)
    }
}

/// What a mark says, line by line; lines are only ever added.
#[derive(Debug, Default)]
struct Said {
    copy: CopyId,
    cover: Cover,
    compared: Vec<CopyId>,
}

impl Said {
    /// One that cannot be read covers everything.
    fn unknown() -> Self {
        Said { cover: Cover { all: true, names: Vec::new() }, ..Said::default() }
    }

    /// None: it is no mark.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut said = Said::default();
        let mut lines = text.split_inclusive(|byte| *byte == b'\n');
        if lines.next() != Some(FIRST.as_bytes()) {
            return None;
        }
        // What has no end was not waited for either.
        let lines = lines.filter_map(|line| line.strip_suffix(b"\n"));
        for line in lines.filter(|line| !line.is_empty()) {
            let line = std::str::from_utf8(line).unwrap_or_default();
            match line.split_once(' ') {
                Some(("copy", id)) => said.copy = id_of(id).unwrap_or_default(),
                Some(("compared", id)) => said.compared.extend(id_of(id)),
                Some(("met", _)) => {}
                Some(("name", hex)) => match bytes_of(hex) {
                    Some(name) => said.cover.names.push(name),
                    None => said.cover.all = true,
                },
                // `all`, or what a later version says.
                _ => said.cover.all = true,
            }
        }
        Some(said)
    }
}

const FIRST: &str = "farhaul unsynced 1\n";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? << 4 | digit(*low)?) as u8);
    rest.is_empty().then(|| pairs.iter().map(byte).collect()).flatten()
}

fn id_of(hex: &str) -> Option<CopyId> {
    bytes_of(hex)?.try_into().ok()
}

/// A mark of another copy, or of this one as it ran before.
#[derive(Debug)]
pub(super) struct Mark {
    name: Vec<u8>,
    said: Said,
    /// No copy held its lock.
    dead: bool,
    /// Another copy held it.
    alive: bool,
    /// This copy came to what it covers.
    met: AtomicBool,
    /// Why it is not known what it says.
    unread: Option<io::Error>,
}

/// A mark that cannot be read: it covers everything, and no copy that ends well removes it.
#[derive(Debug)]
pub(super) struct Unread {
    /// So many directories above the one that was looked at.
    pub(super) above: usize,
    /// Its name; empty: all of them.
    pub(super) name: Vec<u8>,
    pub(super) error: io::Error,
}

/// What came of ending marks.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Why one that should have gone, or should say more, is as it was: there was no room for the change. What
    /// it covers is doubted the next time, and nothing is lost by that.
    pub(super) no_room: Option<io::Error>,
    /// What else a file system has answered: it may not have taken what they cover either.
    pub(super) failed: Option<io::Error>,
}

impl Ended {
    fn add(&mut self, done: io::Result<()>) {
        let Err(error) = done else { return };
        // Btrfs needs room to remove a file, and any file system to make one longer.
        match Errno::from_io_error(&error) {
            Some(Errno::NOSPC | Errno::DQUOT) => self.no_room.get_or_insert(error),
            _ => self.failed.get_or_insert(error),
        };
    }
}

/// The marks of one directory.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The directory; none if there are too many of them to keep it.
    at: Option<Arc<OwnedFd>>,
    marks: Vec<Arc<Mark>>,
}

/// The marks that cover a directory of the target.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    /// All that is in it.
    all: Vec<Arc<Mark>>,
    /// Some names in it.
    here: Vec<Arc<Mark>>,
}

impl Doubts {
    /// Whether an entry is covered. Those that cover it are met by that.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        let mut doubted = false;
        for mark in self.all.iter().chain(self.here.iter().filter(|m| m.said.cover.has(name))) {
            mark.met.store(true, Ordering::Relaxed);
            doubted = true;
        }
        doubted
    }

    /// Those of the directory `name` in this one, in which `found` are.
    pub(super) fn below(&self, name: &[u8], found: &Found) -> Doubts {
        let here = self.here.iter().filter(|mark| mark.said.cover.has(name));
        let all = self.all.iter().chain(here).cloned().collect();
        Doubts { all, here: found.marks.clone() }
    }
}

/// The marks of a copy.
#[derive(Debug)]
pub(super) struct Marks {
    copy: CopyId,
    names: Arc<TemporaryNames>,
    own: Option<Own>,
    /// Those that cover nothing new, until what they cover is on the medium.
    retired: VecDeque<Own>,
    /// Retired ones that have been removed.
    ended: u64,
    /// Those that could not be removed. They stay locked: a copy that is alive must not be taken for dead,
    /// for what it writes would be swept away.
    staying: Vec<Own>,
    found: Vec<Found>,
    /// The first that could not be read, until it is told.
    unread: Option<Unread>,
    /// Whether one that could not be read was among those found.
    any_unread: bool,
    /// What a file system answers to a change of a mark instead of making it.
    #[cfg(test)]
    pub(super) refuses: Option<Errno>,
}

/// A copy's own mark, locked as long as it is open.
#[derive(Debug)]
pub(super) struct Own {
    name: String,
    file: File,
    directory: OwnedFd,
    root: Arc<OwnedFd>,
    cover: Cover,
}

impl Own {
    /// What it speaks of is on the medium.
    fn remove(&self) -> io::Result<()> {
        let removed = unlinkat(&self.directory, self.name.as_str(), AtFlags::empty());
        // Others may be in it.
        let _ = unlinkat(&*self.root, UNSYNCED, AtFlags::REMOVEDIR);
        taken(removed)
    }

    /// Whether another copy has written that it has seen it.
    fn was_met(&self) -> bool {
        let (mut file, mut text) = (&self.file, Vec::new());
        let read = file.rewind().and_then(|()| file.take(LENGTH).read_to_end(&mut text));
        read.is_ok() && text.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"met "))
    }

    /// Takes another name into it; `true` if it covers everything by then.
    fn cover(&mut self, name: &[u8]) -> io::Result<bool> {
        if self.cover.has(name) {
            return Ok(self.cover.all);
        }
        let all = self.cover.names.len() >= NAMES;
        let line = if all { "all\n".to_owned() } else { format!("name {}\n", hex(name)) };
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        self.cover.all = all;
        self.cover.names.push(name.to_vec());
        Ok(all)
    }
}

impl Marks {
    /// Of a copy that has seen none.
    pub(super) fn new(copy: CopyId, names: Arc<TemporaryNames>) -> Self {
        Marks {
            copy,
            names,
            own: None,
            retired: VecDeque::new(),
            ended: 0,
            staying: Vec::new(),
            found: Vec::new(),
            unread: None,
            any_unread: false,
            #[cfg(test)]
            refuses: None,
        }
    }

    /// Asked before a mark is changed or removed in the end.
    #[cfg(test)]
    fn refused(&self) -> io::Result<()> {
        self.refuses.map_or(Ok(()), |error| Err(error.into()))
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "only in tests it refuses")]
    fn refused(&self) -> io::Result<()> {
        Ok(())
    }

    /// The first mark that could not be read, once.
    pub(super) fn take_unread(&mut self) -> Option<Unread> {
        self.unread.take()
    }

    /// Looks for marks in the target, and above it up to where its file system is mounted.
    pub(super) fn begin(&mut self, root: &Arc<OwnedFd>) -> io::Result<Doubts> {
        let mut doubts = Doubts::default();
        let path = std::fs::read_link(format!("/proc/self/fd/{}", root.as_raw_fd())).ok();
        let mut names = path.as_deref().map(Path::iter).into_iter().flatten().rev();
        let mut at = Arc::clone(root);
        for above in 1..=ABOVE {
            let name = names.next().map(OsStr::as_bytes);
            // One that may not be read is another user's business.
            let Ok(next) = openat(&*at, "..", DIRECTORY, Mode::empty()) else { break };
            let (here, there) = (fstat(&*at)?, fstat(&next)?);
            if here.st_dev != there.st_dev || here.st_ino == there.st_ino {
                break;
            }
            at = Arc::new(next);
            let marks = self.look_above(&at, above)?.marks.clone();
            doubts.all.extend(
                marks.into_iter().filter(|mark| name.is_none_or(|name| mark.said.cover.has(name))),
            );
        }
        doubts.here = self.look(root)?.marks.clone();
        Ok(doubts)
    }

    /// Looks for marks in a directory.
    pub(super) fn look(&mut self, directory: &Arc<OwnedFd>) -> io::Result<&Found> {
        self.look_above(directory, 0)
    }

    fn look_above(&mut self, directory: &Arc<OwnedFd>, above: usize) -> io::Result<&Found> {
        static NONE: Found = Found { at: None, marks: Vec::new() };
        let marks = find(directory, self.copy)?;
        let unread = marks.iter().find_map(|mark| Some((mark, mark.unread.as_ref()?)));
        if let (false, Some((mark, error))) = (self.any_unread, unread) {
            let (name, error) = (mark.name.clone(), trouble::same(error));
            self.unread = Some(Unread { above, name, error });
            self.any_unread = true;
        }
        if marks.is_empty() {
            return Ok(&NONE);
        }
        let at = (self.found.len() < PLACES).then(|| Arc::clone(directory));
        self.found.push(Found { at, marks });
        Ok(&self.found[self.found.len() - 1])
    }

    /// Whether another copy was writing to the target, or around it, when this one came to it. Each is
    /// told by a line in its mark.
    pub(super) fn meet(&self) -> bool {
        let mut any = false;
        for found in &self.found {
            for mark in found.marks.iter().filter(|mark| mark.alive) {
                any = true;
                let directory = found
                    .at
                    .as_ref()
                    .and_then(|at| openat(at, UNSYNCED, DIRECTORY, Mode::empty()).ok());
                if let Some(directory) = directory
                    && let Ok((mut file, true)) = open(&directory, &mark.name)
                {
                    // It says what is so without it, only not to the other.
                    let _ = file.write_all(format!("\nmet {}\n", hex(&self.copy)).as_bytes());
                }
            }
        }
        any
    }

    /// Whether another copy has come to the target since this one did.
    pub(super) fn were_met(&self) -> bool {
        self.own.iter().chain(&self.retired).any(Own::was_met)
    }

    /// Copies to the target itself that are not alive any more.
    pub(super) fn dead(&self) -> Dead {
        let marks = self.found.iter().flat_map(|found| &found.marks).filter(|mark| mark.dead);
        let owners = marks.filter_map(|mark| temporary::owner(&mark.name));
        Dead::new(owners.collect())
    }

    /// Has this copy's own cover `name` in the target, before anything is renamed there; `true` if it
    /// covers everything by then.
    pub(super) fn cover(&mut self, root: &Arc<OwnedFd>, name: &[u8]) -> io::Result<bool> {
        match &mut self.own {
            Some(own) => own.cover(name),
            None => {
                let mut own = make(root, self.copy, &self.names)?;
                let covered = own.cover(name).and_then(|all| {
                    fsync(&own.directory)?;
                    fsync(&**root)?;
                    Ok(all)
                });
                match covered {
                    Ok(_) => self.own = Some(own),
                    Err(_) => drop(own.remove()),
                }
                covered
            }
        }
    }

    /// What is renamed from now on needs another mark than this copy's present one. Tells which ones
    /// to [end](Self::end_retired) when all that was renamed before is on the medium, if there are any.
    pub(super) fn retire(&mut self) -> Option<u64> {
        self.retired.extend(self.own.take());
        let last = self.ended + self.retired.len() as u64;
        (!self.retired.is_empty()).then_some(last)
    }

    /// What the marks cover that were retired up to the `last` is on the medium.
    pub(super) fn end_retired(&mut self, last: u64) -> Ended {
        let mut ended = Ended::default();
        while self.ended < last
            && let Some(own) = self.retired.pop_front()
        {
            self.ended += 1;
            let removed = self.refused().and_then(|()| own.remove());
            if removed.is_err() {
                self.staying.push(own);
            }
            ended.add(removed);
        }
        ended
    }

    /// Everything is on the medium. If `all` that the source has is here, nothing of it is doubted any
    /// more.
    pub(super) fn end(&mut self, all: bool) -> Ended {
        // Also those that another thread has retired and is waiting for.
        let mut ended = match self.retire() {
            Some(last) => self.end_retired(last),
            None => Ended::default(),
        };
        for found in std::mem::take(&mut self.found).into_iter().filter(|_| all) {
            let Some(at) = &found.at else { continue };
            for mark in found.marks {
                ended.add(mark.end(at, self.copy, || self.refused()));
            }
        }
        ended
    }
}

/// What a file system has said to a change of a mark. What may not be changed, or is gone, is doubted
/// the next time; any other error is the file system's own.
fn taken(done: rustix::io::Result<()>) -> io::Result<()> {
    match done {
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => Ok(()),
        done => Ok(done?),
    }
}

impl Mark {
    /// The copy has compared all that this covers of its own.
    fn end(
        &self,
        at: &OwnedFd,
        copy: CopyId,
        refused: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        if copy == CopyId::default() {
            return Ok(());
        }
        let Ok(directory) = openat(at, UNSYNCED, DIRECTORY, Mode::empty()) else { return Ok(()) };
        let Ok((mut file, true)) = open(&directory, &self.name) else { return Ok(()) };
        if !is_dead(&file) {
            return Ok(());
        }
        if self.said.copy == copy {
            refused()?;
            let removed = unlinkat(&directory, &*self.name, AtFlags::empty());
            // Others may be in it.
            let _ = unlinkat(at, UNSYNCED, AtFlags::REMOVEDIR);
            return taken(removed);
        }
        if self.met.load(Ordering::Relaxed) && self.said.compared.len() < COMPARED {
            refused()?;
            // A line that was cut off must not swallow this one.
            file.write_all(format!("\ncompared {}\n", hex(&copy)).as_bytes())?;
            file.sync_data()?;
        }
        Ok(())
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The marks in a directory, but for those that do not concern this copy any more.
fn find(directory: &OwnedFd, copy: CopyId) -> io::Result<Vec<Arc<Mark>>> {
    let unknown = |name: &[u8], error: io::Error| Mark {
        name: name.to_vec(),
        said: Said::unknown(),
        dead: false,
        alive: false,
        met: AtomicBool::new(false),
        unread: Some(error),
    };
    let marks = match openat(directory, UNSYNCED, DIRECTORY, Mode::empty()) {
        Ok(marks) => marks,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(error @ (Errno::ACCESS | Errno::NOTDIR | Errno::LOOP)) => {
            return Ok(vec![Arc::new(unknown(b"", error.into()))]);
        }
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for entry in Dir::read_from(&marks)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let mark = match read(&marks, name) {
            Ok(Some(mark)) => mark,
            Ok(None) => continue,
            Err(error) => unknown(name, error),
        };
        let compared = mark.said.compared.contains(&copy) && copy != CopyId::default();
        if !compared {
            found.push(Arc::new(mark));
        }
        if found.len() >= MOST {
            let error = io::Error::other(format!("there are {MOST} of them or more"));
            return Ok(vec![Arc::new(unknown(b"", error))]);
        }
    }
    Ok(found)
}

/// A mark; none if it has gone meanwhile.
fn read(marks: &OwnedFd, name: &[u8]) -> io::Result<Option<Mark>> {
    let (file, writable) = match open(marks, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = Vec::new();
    (&file).take(LENGTH).read_to_end(&mut text)?;
    let said = if text.len() as u64 == LENGTH { None } else { Said::parse(&text) };
    let asked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    let (dead, alive) = (writable && is_free(asked), asked == Err(Errno::WOULDBLOCK));
    // That of a copy that is alive may only just be made.
    let unread = (said.is_none() && !alive)
        .then(|| io::Error::new(io::ErrorKind::InvalidData, "it says nothing that is understood"));
    let said = said.unwrap_or_else(Said::unknown);
    let met = AtomicBool::new(false);
    Ok(Some(Mark { name: name.to_vec(), said, dead, alive, met, unread }))
}

/// Opens a file; for writing (`true`) if that may be, which NFS wants for its locks.
pub(super) fn open(directory: &OwnedFd, name: &[u8]) -> io::Result<(File, bool)> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::APPEND;
    let (file, writable) = match openat(directory, name, flags | OFlags::RDWR, Mode::empty()) {
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            (openat(directory, name, flags | OFlags::RDONLY, Mode::empty())?, false)
        }
        opened => (opened?, true),
    };
    if inode::kind(&fstat(&file)?) != Kind::File {
        return Err(io::Error::other("it is no file"));
    }
    Ok((File::from(file), writable))
}

/// Whether no process holds the lock of a file, which is open for writing. If that cannot be told, one
/// may.
pub(super) fn is_dead(file: &File) -> bool {
    is_free(flock(file, FlockOperation::NonBlockingLockExclusive))
}

fn is_free(asked: rustix::io::Result<()>) -> bool {
    asked.is_ok()
}

/// Makes a mark that covers nothing yet.
fn make(root: &Arc<OwnedFd>, copy: CopyId, names: &TemporaryNames) -> io::Result<Own> {
    for _ in 0..place::ATTEMPTS {
        let directory = match openat(&**root, UNSYNCED, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => match mkdirat(&**root, UNSYNCED, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {
                    let made = openat(&**root, UNSYNCED, DIRECTORY, Mode::empty());
                    if let Ok(made) = &made {
                        open_up(root, made);
                    }
                    made
                }
                Err(error) => Err(error),
            },
            opened => opened,
        };
        let directory = match directory {
            Err(Errno::NOENT) => continue, // another copy has removed it
            directory => directory?,
        };
        let name = names.mark(".unsynced");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let flags = flags | OFlags::CLOEXEC | OFlags::APPEND;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let mut file = match openat(&directory, name.as_str(), flags, mode) {
            Err(Errno::NOENT | Errno::EXIST) => continue,
            made => File::from(made?),
        };
        // Tells others that it is alive. Where there are no locks, everything counts as alive.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let own = |file, directory| {
            let cover = Cover::default();
            Own { name, file, directory, root: Arc::clone(root), cover }
        };
        let text = format!("{FIRST}copy {}\n", hex(&copy));
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let own = own(file, directory);
        return match written {
            Ok(()) => Ok(own),
            Err(error) => {
                let _ = own.remove();
                Err(error)
            }
        };
    }
    Err(Errno::EXIST.into())
}

/// A user who may make files in a directory may make marks in it: as far as that can be given.
fn open_up(root: &OwnedFd, marks: &OwnedFd) {
    let Ok(stat) = fstat(root) else { return };
    let same = stat.st_gid == getegid().as_raw()
        || fchown(marks, None, Some(Gid::from_raw(stat.st_gid))).is_ok();
    let given = if same { 0o1077 } else { 0o1057 };
    let _ = fchmod(marks, Mode::RWXU | Mode::from_raw_mode(stat.st_mode & given));
}

/// Whether capitals make no difference in a directory. What a killed transfer has left of the question
/// is used and removed.
pub(super) fn folds_case(directory: &OwnedFd) -> io::Result<bool> {
    const NAME: &str = ".farhaul-case.part";
    const OTHER: &str = ".FARHAUL-CASE.PART";
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let is_file = |name: &str| {
        let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|stat| inode::kind(&stat) == Kind::File)
    };
    for _ in 0..place::ATTEMPTS {
        openat(directory, NAME, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
        let found = is_file(OTHER);
        // Another transfer that asks the same may have removed it in between.
        if found || is_file(NAME) {
            let _ = unlinkat(directory, NAME, AtFlags::empty());
            return Ok(found);
        }
    }
    Err(Errno::NOENT.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn marks(copy: CopyId) -> Marks {
        Marks::new(copy, Arc::new(TemporaryNames::new()))
    }

    fn ended_well(ended: Ended) {
        assert!(ended.no_room.is_none() && ended.failed.is_none(), "{ended:?}");
    }

    #[test]
    fn marks_are_read_as_they_were_written_however_they_end() {
        let id = [7; 16];
        let text = format!("{FIRST}copy {}\nname 6162\nname ff\ncompared {}\n", hex(&id), hex(&id));
        let said = Said::parse(text.as_bytes()).unwrap();
        assert_eq!((said.copy, said.compared), (id, vec![id]));
        assert_eq!(said.cover, Cover { all: false, names: vec![b"ab".into(), vec![255]] });
        for end in 0..=text.len() {
            let said = Said::parse(&text.as_bytes()[..end]);
            // What is cut off covers everything, or what was waited for.
            assert_eq!(said.is_none(), end < FIRST.len(), "{end}");
            assert!(said.is_none_or(|said| !said.cover.all), "{end}");
        }
        for line in ["all", "name 6", "name xy", "something new", "\u{7f}"] {
            assert!(Said::parse(format!("{text}{line}\n").as_bytes()).unwrap().cover.all, "{line}");
        }
        assert!(!Said::parse(format!("{text}name 61").as_bytes()).unwrap().cover.has(b"a"));
        assert!(Said::parse(b"").is_none() && Said::unknown().cover.all);
    }

    #[test]
    fn a_mark_covers_few_names_or_all() {
        let dir = tempfile::tempdir().unwrap();
        let root: Arc<OwnedFd> = Arc::new(File::open(dir.path()).unwrap().into());
        let mut marks = marks([1; 16]);
        for (number, name) in ["a", "b", "a", "c", "d", "e", "f", "g", "h"].iter().enumerate() {
            assert!(!marks.cover(&root, name.as_bytes()).unwrap(), "{number}");
        }
        let seen = || find(&root, [2; 16]).unwrap().remove(0);
        assert!(seen().said.cover.has(b"h") && !seen().said.cover.has(b"x") && !seen().dead);
        assert!(marks.cover(&root, b"x").unwrap());
        assert!(seen().said.cover.has(b"y"));
        ended_well(marks.end(false));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_end_takes_what_another_thread_still_waits_for() {
        let dir = tempfile::tempdir().unwrap();
        let root: Arc<OwnedFd> = Arc::new(File::open(dir.path()).unwrap().into());
        let mut marks = marks([1; 16]);
        let left = || find(&root, [2; 16]).unwrap().len();
        assert_eq!(marks.retire(), None);
        marks.cover(&root, b"a").unwrap();
        let first = marks.retire().unwrap();
        marks.cover(&root, b"b").unwrap();
        let second = marks.retire().unwrap();
        marks.cover(&root, b"c").unwrap();
        assert_eq!(left(), 3);
        // What the second covers came after the sync that ends the first.
        ended_well(marks.end_retired(first));
        assert_eq!(left(), 2);
        ended_well(marks.end(false));
        ended_well(marks.end_retired(second));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn copies_into_one_target_learn_of_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let root: Arc<OwnedFd> = Arc::new(File::open(dir.path()).unwrap().into());
        let [mut first, mut second] = [[1; 16], [2; 16]].map(marks);
        first.begin(&root).unwrap();
        first.cover(&root, b"a").unwrap();
        assert!(!first.meet() && !first.were_met());
        second.begin(&root).unwrap();
        assert!(second.meet() && !second.were_met());
        assert!(first.were_met());
        // What was written into it by the other does not make it cover more.
        let seen = find(&root, [3; 16]).unwrap().remove(0);
        assert!(seen.said.cover.has(b"a") && !seen.said.cover.has(b"b"));
        first.retire();
        assert!(first.were_met());
        ended_well(first.end(true));
        assert!(!first.were_met());
        ended_well(second.end(true));
        let mut third = marks([3; 16]);
        third.begin(&root).unwrap();
        assert!(!third.meet());
    }

    #[test]
    fn only_a_lock_that_was_got_tells_of_an_end() {
        assert!(is_free(Ok(())));
        let errors = [Errno::WOULDBLOCK, Errno::BADF, Errno::NOLCK, Errno::OPNOTSUPP, Errno::IO];
        assert!(errors.into_iter().all(|error| !is_free(Err(error))));
    }

    #[test]
    fn case_is_found_out_without_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        let root: OwnedFd = File::open(dir.path()).unwrap().into();
        // One that was killed while it asked.
        for left in [false, true] {
            if left {
                fs::write(dir.path().join(".farhaul-case.part"), "").unwrap();
            }
            let folds = folds_case(&root).unwrap();
            assert_eq!(folds, {
                fs::write(dir.path().join("x"), "").unwrap();
                dir.path().join("X").exists()
            });
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
