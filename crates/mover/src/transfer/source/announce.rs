//! Walking the sources and telling the sink of every entry, not further ahead than memory allows.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Stat, fgetxattr, flistxattr};

use super::desk::Place;
use super::opened::{below, seen};
use super::{Source, mounts};
use crate::frame::MAX_TARGET;
use crate::inode::{self, Kind};
use crate::report::Side;
use crate::scan::holds_something;
use crate::sources::Source as Named;
use crate::temporary::{UNSYNCED, is_mark, is_ours};
use crate::transfer::message::{Extra, MAX_XATTRS, Message, What};
use crate::walk::{Found, Step, Walk};

/// The most hard-linked files whose further names are recognised.
const MAX_LINKED: usize = 1 << 20;

/// Announces everything, until the transfer is stopped.
pub(super) fn announce(source: &Source<'_>, sources: &[Named], missing: &[(PathBuf, io::Error)]) {
    for (path, error) in missing {
        source.omit(path, error);
    }
    let levels = vec![Level::new(false)];
    let mut announcer = Announcer { source, linked: HashMap::new(), levels, empty: false };
    for (number, named) in sources.iter().enumerate() {
        if !announcer.tree(number, named) {
            return;
        }
    }
    if announcer.empty {
        source.say(&Message::Empty);
    }
    let content = sources.iter().any(|named| named.name.is_none());
    let complete = matches!(announcer.levels[..], [Level { complete: true, .. }]);
    source.announced_all(content && missing.is_empty() && complete);
}

struct Announcer<'a, 'b> {
    source: &'a Source<'b>,
    /// Files with several names: device and inode, and the entry of the first name.
    linked: HashMap<(u64, u64), u64>,
    /// The target and each directory entered.
    levels: Vec<Level>,
    /// A source that is announced as the content of the target has nothing that is copied.
    empty: bool,
}

struct Level {
    /// All of it could be read.
    complete: bool,
    /// There was anything in it, be it left out or not to be read.
    filled: bool,
    /// Something is to be mounted on it and is not.
    unmounted: bool,
}

impl Level {
    fn new(unmounted: bool) -> Self {
        Level { complete: true, filled: false, unmounted }
    }
}

impl Announcer<'_, '_> {
    /// Announces one source; false if the transfer was stopped.
    fn tree(&mut self, number: usize, named: &Named) -> bool {
        let mut walk = Walk::new(named.clone());
        // Before the first directory is over, as what has gone from it may be deleted then.
        let holds = holds_something(named, &self.source.options.filter, &self.source.stopped);
        while let Some(step) = walk.next() {
            if self.source.is_stopped() {
                return false;
            }
            if walk.is_within()
                && !matches!(step, Step::Leave)
                && let Some(level) = self.levels.last_mut()
            {
                level.filled = true;
            }
            match step {
                Step::Found(found) => {
                    let arrives = arrives(named, walk.path());
                    let directory = found.kind == Kind::Directory;
                    if !self.source.options.filter.takes(&arrives, directory) {
                        continue;
                    }
                    if !self.entry(number, named, &mut walk, &found, arrives) {
                        return false;
                    }
                }
                Step::Leave => {
                    let Some(level) = self.levels.pop() else { continue };
                    if !holds || !level.filled && level.unmounted {
                        self.source.say(&Message::Empty);
                    }
                    self.source.say(&Message::Leave { complete: level.complete });
                }
                Step::Failed(error) => {
                    self.incomplete();
                    self.source.omit(&arrives(named, walk.path()), &error);
                }
            }
        }
        self.empty |= named.name.is_none() && !holds;
        true
    }

    fn entry(
        &mut self,
        number: usize,
        named: &Named,
        walk: &mut Walk,
        found: &Found,
        arrives: PathBuf,
    ) -> bool {
        let name = walk.name(found).bytes().to_vec();
        // What is no special file would be missed, and the sink refuses such names.
        let special = matches!(found.kind, Kind::Special(_));
        if name == UNSYNCED.as_bytes() && found.kind == Kind::Directory {
            let is_such = |name: &[u8], kind| kind == Kind::File && is_mark(name);
            match walk.has_only(found, is_such) {
                Ok(true) => return true, // marks of copies to this place, and no content
                Ok(false) => {}          // content of the user's
                Err(error) => {
                    self.source.omit(&arrives, &error);
                    return true;
                }
            }
        }
        if is_ours(&name) && !special {
            let text = "its name is of the form that farhaul keeps for partial copies, so it is not \
                        copied: rename it, or leave it out with --exclude";
            self.source.omit(&arrives, &io::Error::other(text));
            return true;
        }
        let announced = match found.kind {
            Kind::Directory => self.directory(walk, found, name),
            Kind::File => return self.file(number, named, walk, found, name, arrives),
            Kind::Symlink => self.symlink(walk, found, name),
            Kind::Special(what) if !walk.is_within() => {
                let text = format!("a {what} is not copied: name a file, a directory or a link");
                self.source.omit(&arrives, &io::Error::other(text));
                return true;
            }
            Kind::Special(what) => {
                self.source.leave_out(&arrives, what);
                return true;
            }
        };
        if let Err(error) = announced {
            self.incomplete();
            self.source.omit(&arrives, &error);
        }
        true
    }

    /// Something here could not be read. It may well be at the sink: it is not to be deleted.
    fn incomplete(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.complete = false;
        }
    }

    fn directory(&mut self, walk: &mut Walk, found: &Found, name: Vec<u8>) -> io::Result<()> {
        let last = OsStr::from_bytes(&name).to_owned();
        let attributes = walk.enter(found)?;
        let unmounted = walk
            .directory()
            .is_some_and(|fd| mounts::is_unmounted(fd, &last, &self.source.options.mount_points));
        let extra = walk.directory().map_or(Ok(None), |fd| self.extra(fd, &found.stat));
        self.source.announce(name, attributes, extra.unwrap_or_default(), What::Directory);
        self.source.count(|report| report.tally.directories += 1);
        self.levels.push(Level::new(unmounted));
        Ok(())
    }

    fn symlink(&mut self, walk: &Walk, found: &Found, name: Vec<u8>) -> io::Result<()> {
        let target = walk.read_link(found)?.into_bytes();
        if !(1..=MAX_TARGET).contains(&target.len()) {
            return Err(io::Error::other("a link with such a target"));
        }
        let attributes = inode::attributes(&found.stat);
        let owner = self.owner(&found.stat);
        let extra = owner.map(|owner| Box::new(Extra { owner: Some(owner), xattrs: Vec::new() }));
        self.source.announce(name, attributes, extra, What::Symlink(target));
        self.source.count(|report| report.tally.symlinks += 1);
        Ok(())
    }

    fn file(
        &mut self,
        number: usize,
        named: &Named,
        walk: &Walk,
        found: &Found,
        name: Vec<u8>,
        arrives: PathBuf,
    ) -> bool {
        let key = (found.stat.st_dev, found.stat.st_ino);
        let several = self.source.options.hard_links && found.stat.st_nlink > 1;
        if several && let Some(to) = self.linked.get(&key) {
            let attributes = inode::attributes(&found.stat);
            self.source.announce(name, attributes, None, What::HardLink { to: *to });
            self.source.count(|report| report.tally.files += 1);
            return true;
        }
        let extra = match self.source.options.xattrs {
            // Only then is it worth opening the file now.
            true => walk.open_file(found).and_then(|(file, stat)| self.extra(&file, &stat)),
            false => Ok(self
                .owner(&found.stat)
                .map(|owner| Box::new(Extra { owner: Some(owner), xattrs: Vec::new() }))),
        };
        let seen = seen(&found.stat, self.source.options.sparse);
        let place = Place { source: number, path: below(named, walk.path()).to_path_buf().into() };
        let extra = extra.unwrap_or_default();
        let announced = self.source.announce_file(arrives, place, seen, name, extra);
        if several
            && let Some(entry) = announced
            && self.linked.len() < MAX_LINKED
        {
            self.linked.insert(key, entry);
        }
        announced.is_some()
    }

    fn owner(&self, stat: &Stat) -> Option<(u32, u32)> {
        self.source.options.owner.then_some((stat.st_uid, stat.st_gid))
    }

    /// What is to be kept beside mode and times.
    fn extra(&self, fd: impl AsFd, stat: &Stat) -> io::Result<Option<Box<Extra>>> {
        let owner = self.owner(stat);
        let xattrs = if self.source.options.xattrs { xattrs(fd)? } else { Vec::new() };
        let some = owner.is_some() || !xattrs.is_empty();
        Ok(some.then(|| Box::new(Extra { owner, xattrs })))
    }
}

/// Where an entry arrives, from the top of the transfer on.
pub(crate) fn arrives(named: &Named, path: &Path) -> PathBuf {
    let below = below(named, path);
    match &named.name {
        // Joining nothing would add a slash.
        Some(name) if below.as_os_str().is_empty() => OsStr::from_bytes(name).into(),
        Some(name) if below != path => Path::new(OsStr::from_bytes(name)).join(below),
        Some(name) => OsStr::from_bytes(name).into(),
        None => below.to_path_buf(),
    }
}

/// The extended attributes of a file, as many as are kept. A file system without any has none.
fn xattrs(fd: impl AsFd) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    use rustix::io::Errno;
    let mut names = vec![0; 64 << 10];
    let length = match flistxattr(fd.as_fd(), &mut names[..]) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Err(errno) => return Err(errno.into()),
    };
    names.truncate(length);
    let (mut found, mut bytes) = (Vec::new(), 0);
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        // One that has gone, or is not for us to read.
        let Ok(length) = fgetxattr(fd.as_fd(), name, &mut value[..]) else { continue };
        value.truncate(length);
        bytes += name.len() + value.len();
        if bytes > MAX_XATTRS {
            break;
        }
        found.push((name.to_vec(), value));
    }
    Ok(found)
}

/// The text of a failure here.
pub(super) fn failure(path: &Path, error: &io::Error) -> crate::report::Failure {
    crate::report::Failure { side: Side::Here, text: crate::report::describe(path, error) }
}
