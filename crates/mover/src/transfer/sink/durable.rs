//! Getting things to the medium, and what is left behind until they are there.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, fstat, fstatfs, fstatvfs, fsync, openat};
use rustix::io::Errno;

use super::marker::{Ended, Unread};
use super::tree::{Directory, Place};
use super::{Sink, lock, os, trouble};
use crate::report::describe;
use crate::temporary::UNSYNCED;
use crate::transfer::stages::Stage;

/// File systems that are kept in mind for the sync at the end; with more, everything is synced on its own.
const MAX_DEVICES: usize = 64;

impl Sink<'_> {
    /// Keeps a directory's file system in mind, before anything is written there: only what fails after a
    /// descriptor was opened is told to it.
    pub(super) fn remember_device(&self, directory: &Arc<OwnedFd>) {
        if let (true, Ok(stat)) = (self.settings.durable, fstat(directory)) {
            #[allow(clippy::useless_conversion, reason = "it differs between architectures")]
            self.note_device(u64::from(stat.st_dev), directory);
        }
    }

    pub(super) fn note_device(&self, device: u64, directory: &Arc<OwnedFd>) {
        let mut devices = lock(&self.devices);
        if devices.iter().any(|(known, _)| *known == device) {
            return;
        }
        if devices.len() >= MAX_DEVICES || !tells_of_failures(directory) {
            self.each.store(true, Ordering::Release);
        }
        if devices.len() < MAX_DEVICES {
            devices.push((device, Arc::clone(directory)));
        }
    }

    /// Whether every file is synced before it is renamed, and every directory when it is finished.
    pub(super) fn syncs_each(&self) -> bool {
        self.settings.durable && self.each.load(Ordering::Acquire)
    }

    /// Leaves a mark, or has it cover more, before something is renamed.
    pub(super) fn mark(&self, place: &Place) {
        if !self.settings.durable || self.marked.load(Ordering::Acquire) {
            return;
        }
        let Some(root) = self.root.get() else { return };
        let open = self.directories.get(root);
        let mut marks = lock(&self.marks);
        match open.and_then(|open| marks.cover(&open, place.top())) {
            Ok(all) => self.marked.store(all, Ordering::Release),
            Err(_) => {
                // Then nothing is ever renamed that is not on the medium.
                self.each.store(true, Ordering::Release);
                self.marked.store(true, Ordering::Release);
            }
        }
    }

    /// A directory is finished.
    pub(super) fn sync_directory(&self, directory: &Arc<Directory>) {
        if directory.missing || !self.syncs_each() {
            return;
        }
        let open = self.directories.get(directory);
        if let Err(error) = open.and_then(|open| Ok(fsync(&*open)?)) {
            lock(&self.unsynced).get_or_insert(error);
        }
    }

    /// Waits until all that was written is on the medium. An error is remembered: it is told once by the
    /// kernel, and what it is about is lost.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        let devices = lock(&self.devices).clone();
        for (_, device) in devices {
            let synced = match self.stages.during(Stage::Write, || (self.syncfs)(&device)) {
                // Then everything was synced on its own.
                Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
                    rustix::fs::sync();
                    Ok(())
                }
                synced => synced,
            };
            // A file system that could not commit turns read-only, and syncfs(2) has nothing to do then
            // and succeeds, while the kernel shows what has come, and even what is read past the cache
            // is lost when it is unmounted.
            let synced = match synced {
                Ok(()) if is_read_only(&device) => Err(Errno::ROFS),
                synced => synced,
            };
            if let Err(error) = synced {
                lock(&self.unsynced).get_or_insert(error.into());
            }
        }
        self.synced()
    }

    /// Whether no sync has failed so far.
    fn synced(&self) -> io::Result<()> {
        match &*lock(&self.unsynced) {
            Some(error) => Err(trouble::same(error)),
            None => Ok(()),
        }
    }

    /// Everything is on the medium: the marks say so from now on, or it is an error. If `all` that the
    /// source has is here, what others left is not doubted any more.
    pub(super) fn end_marks(&self, all: bool) -> io::Result<()> {
        let ended = lock(&self.marks).end(all);
        self.ended(ended)
    }

    /// A file system that takes no change of its marks has not taken what they cover either, whatever it
    /// has answered to a sync; unless it only has no room for the change, and can still be written to.
    fn ended(&self, marks: Ended) -> io::Result<()> {
        let failed = marks.failed.or_else(|| {
            let devices = lock(&self.devices);
            let full = marks.no_room.is_some();
            let lost = full && devices.iter().any(|(_, device)| is_read_only(device));
            lost.then(|| Errno::ROFS.into())
        });
        if let Some(error) = failed {
            lock(&self.unsynced).get_or_insert(error);
        } else if let Some(error) = marks.no_room
            && !self.told_of_staying.swap(true, Ordering::Relaxed)
        {
            self.note(&format!(
                "{}: a mark stays here: everything that was copied is on the medium, and the next copy \
                 compares what the mark covers once more; make room first",
                describe(&self.settings.shown.join(UNSYNCED), &error)
            ));
        }
        self.synced()
    }

    /// Tells of a mark that cannot be read, found in or above `directory`.
    pub(super) fn tell_unread(&self, directory: &Path, unread: Option<Unread>) {
        let Some(Unread { above, name, error }) = unread else { return };
        let mut path = directory.to_owned();
        path.extend(std::iter::repeat_n("..", above));
        path.push(UNSYNCED);
        if !name.is_empty() {
            path.push(os(&name));
        }
        self.note(&format!(
            "{}: this mark of an earlier copy cannot be read, so every copy compares all that is there with \
             the medium: make it readable, or if no other copy is running there, remove it when this one has \
             ended well",
            describe(&path, &error)
        ));
    }

    /// Has the kernel write back what it has, once, before what is doubted is read from the medium.
    pub(super) fn flush(&self) {
        self.flushed.get_or_init(|| {
            let root = self.root.get().and_then(|root| self.directories.get(root).ok());
            let devices = lock(&self.devices).clone();
            for device in devices.into_iter().map(|(_, device)| device).chain(root) {
                // On a descriptor of its own: this one's errors are of others' doing, and show in what
                // is read.
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                if let Ok(own) = openat(&*device, ".", flags, Mode::empty()) {
                    let _ = rustix::fs::syncfs(own);
                }
            }
        });
    }

    /// Tells, once, that another copy works on the same target.
    pub(super) fn beside_another(&self, what: &str) {
        if !self.told_of_another.swap(true, Ordering::Relaxed) {
            let consequence = "of a file that both have, the one that came last stays";
            self.note(&format!("another copy {what}: {consequence}"));
        }
    }

    /// The peer is away and may not come back: what is renamed is made sure of, so that no mark of this
    /// transfer stays behind. If it comes back, there is a new one.
    pub(super) fn settle(&self) {
        let retired = {
            let _quiet = self.answering.write().unwrap_or_else(PoisonError::into_inner);
            let mut marks = lock(&self.marks);
            self.marked.store(false, Ordering::Release);
            marks.retire()
        };
        // One that stays is for the next transfer.
        if let Some(last) = retired
            && self.sync_all().is_ok()
        {
            let ended = lock(&self.marks).end_retired(last);
            // What failed is told at the end.
            let _ = self.ended(ended);
        }
    }
}

/// Whether the sync of a directory's whole file system tells when something did not get to the medium.
#[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
fn tells_of_failures(directory: &OwnedFd) -> bool {
    /// ext2 to ext4, XFS, Btrfs, F2FS, bcachefs, ZFS, NFS, overlayfs, tmpfs, ramfs.
    const TELLING: [u64; 10] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0xf2f5_2010,
        0xca45_1a4e,
        0x2fc1_2fc1,
        0x6969,
        0x794c_7630,
        0x0102_1994,
        0x8584_58f6,
    ];
    let kind = fstatfs(directory).map(|stat| stat.f_type as u64 & 0xffff_ffff);
    kind.is_ok_and(|kind| TELLING.contains(&kind)) && kernel_tells()
}

/// Since Linux 5.8 syncfs(2) tells of content that did not get to the medium, and since 5.17 of what the
/// file system itself could not do.
fn kernel_tells() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    version(&release).is_some_and(|version| version >= (5, 17))
}

/// Whether the file system of a directory is mounted for reading alone, or has turned so after an error.
fn is_read_only(directory: &OwnedFd) -> bool {
    fstatvfs(directory).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_apart() {
        assert_eq!(version("6.18.44-x86\n"), Some((6, 18)));
        assert_eq!(version("5.10.0+"), Some((5, 10)));
        assert_eq!(version("5"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn only_known_file_systems_are_taken_at_their_word() {
        let open = |path: &str| OwnedFd::from(fs::File::open(path).unwrap());
        assert!(!tells_of_failures(&open("/proc")));
        assert!(tells_of_failures(&open("/dev/shm")));
    }
}
