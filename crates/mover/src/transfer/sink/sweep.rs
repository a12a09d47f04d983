//! What transfers that were ended by a crash or a signal have left beside files.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, statat, unlinkat};
use rustix::io::Errno;

use super::marker::{is_dead, open};
use crate::temporary;
use crate::transfer::part::part_of;
use crate::transfer::place::is_named;

/// Transfers that were ended before they could clean up after themselves.
#[derive(Debug, Default)]
pub(super) struct Dead(Vec<u64>);

impl Dead {
    /// Those whose names these are: see [`temporary::owner`].
    pub(super) fn new(owners: Vec<u64>) -> Self {
        Dead(owners)
    }

    /// Removes from a directory what they were writing at their end. What is locked, or may be, is in use.
    pub(super) fn sweep(&self, directory: &OwnedFd) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let bytes = name.to_bytes();
            if let Some(part) = part_of(bytes) {
                sweep_journal(directory, bytes, &part)?;
                continue;
            }
            let owner = temporary::owner(bytes).filter(|_| bytes.ends_with(b".part"));
            let dead = owner.is_some_and(|owner| self.0.contains(&owner))
                && open(directory, bytes).is_ok_and(|(file, wr)| wr && is_dead(&file));
            if dead {
                // Another transfer may sweep as well.
                let _ = unlinkat(directory, name, AtFlags::empty());
            }
        }
        Ok(())
    }
}

/// Removes the journal of a partial file that is gone: its file has its name, or was never begun.
///
/// Who has the lock of a journal may make the partial file. Another transfer that has opened this one, and
/// not locked it yet, finds that it has lost its name, and makes another.
fn sweep_journal(directory: &OwnedFd, journal: &[u8], part: &[u8]) -> io::Result<()> {
    let gone = || {
        let found = statat(directory, part, AtFlags::SYMLINK_NOFOLLOW);
        found.is_err_and(|error| error == Errno::NOENT)
    };
    if gone()
        && let Ok((file, true)) = open(directory, journal)
        && is_dead(&file)
        && is_named(directory, journal, &file)?
        && gone()
    {
        let _ = unlinkat(directory, journal, AtFlags::empty());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    use rustix::fs::{FlockOperation, flock};

    use super::super::marker::Marks;
    use super::*;
    use crate::frame::Timestamp;
    use crate::name::Name;
    use crate::temporary::{TemporaryNames, UNSYNCED};
    use crate::transfer::part::{Identity, Origin, PartFile};

    #[test]
    fn what_the_dead_were_writing_is_swept_away() {
        let dir = tempfile::tempdir().unwrap();
        let root: Arc<OwnedFd> = Arc::new(File::open(dir.path()).unwrap().into());
        fs::create_dir(dir.path().join(UNSYNCED)).unwrap();
        let write = |name: &str| File::create(dir.path().join(name)).unwrap();
        let mark = |owner: u64| write(&format!("{UNSYNCED}/.farhaul-{owner:016x}-0.unsynced"));
        mark(1);
        let alive = mark(2);
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
        let mut marks = Marks::new([9; 16], Arc::new(TemporaryNames::new()));
        marks.begin(&root).unwrap();
        marks.dead().sweep(&root).unwrap();
        assert!(kept.iter().all(|name| dir.path().join(name).exists()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), kept.len() + 1);
    }

    #[test]
    fn a_transfer_of_the_same_process_keeps_what_it_writes() {
        let dir = tempfile::tempdir().unwrap();
        let root: Arc<OwnedFd> = Arc::new(File::open(dir.path()).unwrap().into());
        let [ended, alive] = [(); 2].map(|()| Arc::new(TemporaryNames::new()));
        let [(left, _), (kept, _)] = [&ended, &alive]
            .map(|names| names.make(|name| Ok(File::create(dir.path().join(name)))).unwrap());
        let mut failed = Marks::new([1; 16], ended);
        failed.cover(&root, b"a").unwrap();
        drop(failed);
        let mut writing = Marks::new([2; 16], alive);
        writing.cover(&root, b"b").unwrap();
        let mut other = Marks::new([3; 16], Arc::new(TemporaryNames::new()));
        other.begin(&root).unwrap();
        other.dead().sweep(&root).unwrap();
        assert!(!dir.path().join(left).exists() && dir.path().join(kept).exists());
    }

    #[test]
    fn a_journal_goes_once_nothing_belongs_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let root: OwnedFd = File::open(dir.path()).unwrap().into();
        let write = |name: &str| File::create(dir.path().join(name)).unwrap();
        let left = [".farhaul-00000000000000aa.journal", ".farhaul-00000000000000bb.new.journal"];
        left.iter().for_each(|name| drop(write(name)));
        let kept = [
            // Taken up by the next copy of that file.
            ".farhaul-00000000000000cc.journal",
            ".farhaul-00000000000000cc.new.journal",
            ".farhaul-00000000000000cc.part",
            // Its transfer may be about to make the other.
            ".farhaul-00000000000000dd.journal",
            // None of these is one.
            ".farhaul-00000000000000ee-1.journal",
            ".farhaul-ee.journal",
            "00000000000000ee.journal",
        ];
        let files: Vec<File> = kept.iter().map(|name| write(name)).collect();
        flock(&files[3], FlockOperation::NonBlockingLockExclusive).unwrap();
        Dead::new(Vec::new()).sweep(&root).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), kept.len() + left.len());
        Dead::new(vec![1]).sweep(&root).unwrap();
        assert!(kept.iter().all(|name| dir.path().join(name).exists()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), kept.len());
    }

    #[test]
    fn a_transfer_that_begins_meanwhile_keeps_its_journal() {
        let dir = tempfile::tempdir().unwrap();
        let root: Arc<OwnedFd> = Arc::new(File::open(dir.path()).unwrap().into());
        let identity = Identity {
            size: 5 << 20,
            modified: Timestamp { seconds: 1, nanoseconds: 0 },
            origin: Origin { changed: Timestamp { seconds: 1, nanoseconds: 0 }, inode: 1 },
            sparse: false,
            verify: true,
        };
        let open = || PartFile::open(Arc::clone(&root), Name::new(b"f").unwrap(), identity, false);
        let (part, _) = open().unwrap();
        let journal = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|end| end == "journal"))
            .unwrap();
        part.discard().unwrap();
        let over = AtomicBool::new(false);
        let swept = AtomicU64::new(0);
        thread::scope(|threads| {
            threads.spawn(|| {
                let dead = Dead::new(vec![1]);
                while !over.load(Ordering::Relaxed) {
                    // What is listed may be gone by then.
                    dead.sweep(&root).unwrap();
                    swept.fetch_add(1, Ordering::Relaxed);
                }
            });
            let stop = Stop(&over);
            for _ in 0..500 {
                // One that is left, to be taken by either.
                drop(File::options().append(true).create(true).open(&journal).unwrap());
                let part = loop {
                    match open() {
                        Ok((part, _)) => break part,
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                };
                part.unlock();
                part.relock().unwrap();
                part.discard().unwrap();
            }
            drop(stop);
        });
        assert!(swept.into_inner() > 0);
    }

    /// So that a test that fails does not leave a thread behind.
    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
