//! What a crash of the machine may have taken.
//!
//! Small files are renamed before their data is on the medium; one sync at the end is for all of
//! them. Until it is over, a file in the target's top directory says so, with the machine's boot. A
//! transfer that finds one of another boot doubts the files that have been changed since it was made:
//! size and time do not tell that they are the same.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, Stat, flock, fsync, openat, unlinkat,
};
use rustix::io::Errno;

use crate::inode::{self, Kind};
use crate::temporary;
use crate::transfer::small::TEMPORARY;

/// The most marks of other transfers that are removed at a time.
const OTHERS: usize = 1000;

/// Seconds and nanoseconds since 1970.
type Time = (i64, i64);

/// The marks of a target.
#[derive(Debug)]
pub(super) struct Marks {
    boot: String,
    own: Option<Mark>,
    /// An attempt to make one was in vain.
    failed: bool,
    /// Those of other boots, by name.
    foreign: Vec<String>,
    /// Those of this boot.
    others: Vec<String>,
    /// The oldest mark of another boot.
    from: Option<Time>,
    /// The oldest of this boot: what came later is not lost.
    until: Option<Time>,
}

/// A transfer's own mark, and locked as long as it is there.
#[derive(Debug)]
pub(super) struct Mark {
    name: String,
    _lock: File,
}

impl Mark {
    /// What it speaks of is on the medium.
    pub(super) fn remove(self, root: &OwnedFd) {
        // One that stays costs the next transfer some reading.
        let _ = unlinkat(root, self.name.as_str(), AtFlags::empty());
    }
}

impl Marks {
    /// Of a target without any.
    pub(super) fn none() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim().to_owned();
        Marks {
            boot,
            own: None,
            failed: false,
            foreign: Vec::new(),
            others: Vec::new(),
            from: None,
            until: None,
        }
    }

    /// Those in a directory.
    pub(super) fn find(root: &OwnedFd) -> io::Result<Self> {
        let mut marks = Self::none();
        for entry in Dir::read_from(root)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name.starts_with(".farhaul-") && name.ends_with(".unsynced") {
                // One that is gone or cannot be read says nothing.
                let _ = marks.look(root, name);
            }
        }
        Ok(marks)
    }

    fn look(&mut self, root: &OwnedFd, name: &str) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(root, name, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(());
        }
        let time = (metadata.mtime(), metadata.mtime_nsec());
        let mut text = String::new();
        file.take(64).read_to_string(&mut text)?;
        if text.trim() == self.boot && !self.boot.is_empty() {
            self.until = Some(self.until.map_or(time, |until| until.min(time)));
            if self.others.len() < OTHERS {
                self.others.push(name.to_owned());
            }
        } else {
            self.from = Some(self.from.map_or(time, |from| from.min(time)));
            if self.foreign.len() < OTHERS {
                self.foreign.push(name.to_owned());
            }
        }
        Ok(())
    }

    /// Those among the other transfers that are not alive any more.
    pub(super) fn dead(&self, root: &OwnedFd) -> Dead {
        let names = self.others.iter().chain(&self.foreign);
        let dead = names.filter(|name| {
            !TEMPORARY.owns(name.as_bytes())
                && CString::new(name.as_bytes()).is_ok_and(|name| !is_locked(root, &name))
        });
        Dead(dead.filter_map(|name| temporary::owner(name.as_bytes())).collect())
    }

    /// Whether a file may have lost what it seems to have.
    #[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
    pub(super) fn doubts(&self, stat: &Stat) -> bool {
        let changed = (stat.st_ctime as i64, stat.st_ctime_nsec as i64);
        self.from.is_some_and(|from| changed >= from)
            && self.until.is_none_or(|until| changed < until)
    }

    /// Makes this transfer's own, before anything is renamed. An error is told once.
    pub(super) fn make(&mut self, root: &OwnedFd) -> io::Result<()> {
        if self.own.is_some() || self.failed {
            return Ok(());
        }
        self.failed = true;
        let name = TEMPORARY.mark(".unsynced");
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(root, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?);
        let written = file.write_all(self.boot.as_bytes()).and_then(|()| file.sync_all());
        if let Err(error) = written.and_then(|()| Ok(fsync(root)?)) {
            let _ = unlinkat(root, name.as_str(), AtFlags::empty());
            return Err(error);
        }
        // Tells others that it is alive; a file system without locks does not matter.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        self.own = Some(Mark { name, _lock: file });
        self.failed = false;
        Ok(())
    }

    /// This transfer's own; what is renamed from now on needs another.
    pub(super) fn give_up(&mut self) -> Option<Mark> {
        self.own.take()
    }

    /// Everything is on the medium. If `all` that the source has is here, nothing is doubted any more.
    pub(super) fn remove(&mut self, root: &OwnedFd, all: bool) {
        if let Some(mark) = self.own.take() {
            mark.remove(root);
        }
        for name in self.foreign.drain(..).filter(|_| all) {
            let _ = unlinkat(root, name.as_str(), AtFlags::empty());
        }
        // What transfers that ended early had left is on the medium by now, too.
        for name in self.others.drain(..) {
            let _ = remove_dead(root, &name);
        }
    }
}

/// Transfers that were ended before they could clean up after themselves.
#[derive(Debug, Default)]
pub(super) struct Dead(Vec<u64>);

impl Dead {
    /// Removes from a directory what they were writing at their end. What is locked is in use.
    pub(super) fn sweep(&self, directory: &OwnedFd) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let bytes = name.to_bytes();
            let owner = temporary::owner(bytes).filter(|_| bytes.ends_with(b".part"));
            if owner.is_some_and(|owner| self.0.contains(&owner)) && !is_locked(directory, name) {
                // Another transfer may sweep as well.
                let _ = unlinkat(directory, name, AtFlags::empty());
            }
        }
        Ok(())
    }
}

/// Whether somebody holds the lock of a file. What is no file has none.
fn is_locked(directory: &OwnedFd, name: &CStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(directory, name, flags, Mode::empty()) else { return false };
    flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

/// Removes the mark of a transfer that is not alive.
fn remove_dead(root: &OwnedFd, name: &str) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(root, name, flags, Mode::empty())?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(unlinkat(root, name, AtFlags::empty())?)
}

/// Whether capitals make no difference in a directory.
pub(super) fn folds_case(directory: &OwnedFd) -> io::Result<bool> {
    let name = format!(".farhaul-{:016x}.part", RandomState::new().hash_one(1));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
    let other = name.to_uppercase();
    let found = rustix::fs::statat(directory, other.as_str(), AtFlags::SYMLINK_NOFOLLOW);
    unlinkat(directory, name.as_str(), AtFlags::empty())?;
    Ok(found.is_ok_and(|stat| inode::kind(&stat) == Kind::File))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, statat};

    use super::*;

    #[test]
    fn marks_of_another_boot_raise_doubts_about_what_came_after_them() {
        let dir = tempfile::tempdir().unwrap();
        let root: OwnedFd = File::open(dir.path()).unwrap().into();
        let stat = |name: &str| statat(CWD, dir.path().join(name), AtFlags::empty()).unwrap();
        let mark = dir.path().join(".farhaul-0000000000000001.unsynced");
        fs::write(&mark, "another boot").unwrap();
        fs::write(dir.path().join("after"), "").unwrap();
        let mut marks = Marks::find(&root).unwrap();
        assert!(marks.doubts(&stat("after")));
        // Nothing is doubted that is older than the mark.
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
        File::options().write(true).open(&mark).unwrap().set_modified(later).unwrap();
        assert!(!Marks::find(&root).unwrap().doubts(&stat("after")));
        marks.make(&root).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
        marks.remove(&root, true);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn marks_of_this_boot_raise_none() {
        let dir = tempfile::tempdir().unwrap();
        let root: OwnedFd = File::open(dir.path()).unwrap().into();
        let mut other = Marks::none();
        if other.boot.is_empty() {
            eprintln!("skipped: this system does not name its boots");
            return;
        }
        other.make(&root).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let marks = Marks::find(&root).unwrap();
        let stat = statat(CWD, dir.path().join("file"), AtFlags::empty()).unwrap();
        assert!(!marks.doubts(&stat) && marks.foreign.is_empty());
        // One that is alive stays, a dead one does not.
        Marks::find(&root).unwrap().remove(&root, false);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        drop(other);
        Marks::find(&root).unwrap().remove(&root, false);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_the_dead_were_writing_is_swept_away() {
        let dir = tempfile::tempdir().unwrap();
        let root: OwnedFd = File::open(dir.path()).unwrap().into();
        let write = |name: &str| File::create(dir.path().join(name)).unwrap();
        write(".farhaul-0000000000000001-0.unsynced");
        let alive = write(".farhaul-0000000000000002-0.unsynced");
        flock(&alive, FlockOperation::NonBlockingLockExclusive).unwrap();
        write(".farhaul-0000000000000001-1f.part");
        let kept = [
            ".farhaul-0000000000000002-1.part",
            ".farhaul-0000000000000003-1.part",
            ".farhaul-0000000000000001-1.journal",
            ".farhaul-0000000000000001-2.part",
            ".farhaul-0000000000000001.part",
            "file",
        ];
        let in_use: Vec<File> = kept.iter().map(|name| write(name)).collect();
        flock(&in_use[3], FlockOperation::NonBlockingLockExclusive).unwrap();
        Marks::find(&root).unwrap().dead(&root).sweep(&root).unwrap();
        assert!(kept.iter().all(|name| dir.path().join(name).exists()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), kept.len() + 2);
    }

    #[test]
    fn case_is_found_out_without_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        let root: OwnedFd = File::open(dir.path()).unwrap().into();
        let folds = folds_case(&root).unwrap();
        assert_eq!(folds, {
            fs::write(dir.path().join("x"), "").unwrap();
            dir.path().join("X").exists()
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
