//! What unfinished files need of the directory they are in. No call follows a link.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

use rustix::fs::{
    Advice, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom, Stat,
    fadvise, fallocate, flock, fstat, linkat, openat, renameat, renameat_with, seek, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::inode::{self, Kind};
use crate::name::Name;

/// Others may make and remove what is looked for meanwhile: so often it is tried.
pub(super) const ATTEMPTS: usize = 100;

const OPEN: OFlags =
    OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// A file of this name that is new and ours alone to open; `EXIST` if the name is taken.
pub(super) fn create(directory: &OwnedFd, name: &str) -> rustix::io::Result<File> {
    let flags = OPEN | OFlags::CREATE | OFlags::EXCL;
    openat(directory, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Opens the file `name`, or makes it (`true`). What else has this name is removed: a link, something
/// that is no file, one with a second name, one of another user.
pub(super) fn open_or_create(directory: &OwnedFd, name: &str) -> io::Result<(File, bool)> {
    for _ in 0..ATTEMPTS {
        match create(directory, name) {
            Err(Errno::EXIST) => {}
            made => return Ok((made?, true)),
        }
        match openat(directory, name, OPEN, Mode::empty()) {
            Ok(file) => {
                let stat = fstat(&file)?;
                if stat.st_nlink == 0 {
                    continue; // removed meanwhile: what has the name now is another file
                }
                if is_plain(&stat) {
                    return Ok((file.into(), false));
                }
                // A transfer of another user may be at work, as far as we may know.
                if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
                {
                    return Err(busy());
                }
            }
            Err(Errno::NOENT) => continue,
            Err(_) => {}
        }
        remove(directory, name)?;
    }
    Err(Errno::EXIST.into())
}

/// Removes the file `name`, if there is one.
pub(super) fn remove(directory: &OwnedFd, name: &str) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => {
            let error = io::Error::from(error);
            let text = format!("{name} is in the way and cannot be removed ({error}); remove it");
            Err(io::Error::new(error.kind(), text))
        }
    }
}

fn is_plain(stat: &Stat) -> bool {
    inode::kind(stat) == Kind::File && stat.st_nlink == 1 && stat.st_uid == geteuid().as_raw()
}

/// Whether `name` is still the name of `file`.
pub(super) fn is_named(
    directory: &OwnedFd,
    name: impl rustix::path::Arg,
    file: &File,
) -> io::Result<bool> {
    let open = fstat(file)?;
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Takes the lock of `file`, or says that another has it.
pub(super) fn lock(file: &File) -> io::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        // A file system without locks cannot keep two transfers apart, and must not keep one away.
        Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(busy()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn unlock(file: &File) {
    // Nothing was locked where this fails.
    let _ = flock(file, FlockOperation::Unlock);
}

fn busy() -> io::Error {
    let text = "another transfer is writing this file; try again when it has ended";
    io::Error::new(io::ErrorKind::WouldBlock, text)
}

/// A file cannot take the name of a directory, which is better known before it is sent.
pub(super) fn check_free(directory: &OwnedFd, name: Name<'_>) -> io::Result<()> {
    match statat(directory, name.bytes(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if inode::kind(&stat) == Kind::Directory => Err(Errno::ISDIR.into()),
        _ => Ok(()), // any other trouble shows when the entry is made
    }
}

/// Where the next data at or after `offset` begins; the end of the file if there is none, `offset`
/// where the file system does not tell.
pub(crate) fn next_data(file: &File, offset: u64, end: u64) -> u64 {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data.clamp(offset, end),
        Err(Errno::NXIO) => end,
        Err(_) => offset,
    }
}

/// Makes the bytes from `offset` to `end` zeros, as a hole where the file system can.
pub(super) fn punch(file: &File, offset: u64, end: u64) -> io::Result<()> {
    if offset >= end {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, flags, offset, end - offset) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, offset, end),
        done => Ok(done?),
    }
}

/// Prepares what is between `offset` and `end` for being written again, when its last write-back may
/// have failed. The pages that are left of that keep their places on the medium, and ext4 does not
/// record that those have content if they are written back once more: after a sync that succeeds the
/// medium still has zeros there. So the range becomes a hole, or its pages go.
pub(super) fn renew(file: &File, offset: u64, end: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punch = || fallocate(file, flags, offset, end - offset);
    // XFS tells here, once, of a write-back that failed before.
    match punch().or_else(|error| match error {
        Errno::IO | Errno::NOSPC | Errno::DQUOT => punch(),
        _ => Err(error),
    }) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let _ = fadvise(file, offset, NonZeroU64::new(end - offset), Advice::DontNeed);
            Ok(())
        }
        done => Ok(done?),
    }
}

/// Writes zeros over the data between `offset` and `end`. Beyond the file there is none.
fn write_zeros(file: &File, mut offset: u64, end: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;

    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    let end = end.min(file.metadata()?.len());
    while offset < end {
        offset = next_data(file, offset, end);
        let length = (end - offset).min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..length as usize], offset)?;
        offset += length;
    }
    Ok(())
}

/// Gives `from` the name `to` in the same directory. Unless it may `replace`, what has that name by then
/// stays, and the error is of kind [`AlreadyExists`](io::ErrorKind::AlreadyExists).
pub(super) fn rename(directory: &OwnedFd, from: &str, to: &[u8], replace: bool) -> io::Result<()> {
    if replace {
        return Ok(renameat(directory, from, directory, to)?);
    }
    match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        // A file system that cannot: linking does not replace either.
        Err(Errno::INVAL | Errno::NOSYS) => {
            linkat(directory, from, directory, to, AtFlags::empty())?;
            Ok(unlinkat(directory, from, AtFlags::empty())?)
        }
        renamed => Ok(renamed?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn zeros_are_the_same_with_and_without_holes() {
        for make_zeros in [punch, write_zeros] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&[7; 300_000], 0).unwrap();
            file.set_len(1 << 40).unwrap();
            make_zeros(&file, 10, 200_000).unwrap();
            make_zeros(&file, 1 << 30, 1 << 39).unwrap();
            make_zeros(&file, 5, 5).unwrap();
            let mut data = vec![1; 400_000];
            file.read_exact_at(&mut data, 0).unwrap();
            let expected = |at| if (10..200_000).contains(&at) || at >= 300_000 { 0 } else { 7 };
            assert!(data.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
            assert_eq!(file.metadata().unwrap().len(), 1 << 40);
        }
    }

    #[test]
    fn what_is_not_to_be_replaced_stays() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap().into();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("part"), "new").unwrap();
        std::fs::write(path("name"), "old").unwrap();
        let error = rename(&directory, "part", b"name", false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(path("name")).unwrap(), b"old");
        rename(&directory, "part", b"other", false).unwrap();
        assert_eq!(std::fs::read(path("other")).unwrap(), b"new");
        rename(&directory, "other", b"name", true).unwrap();
        assert_eq!(std::fs::read(path("name")).unwrap(), b"new");
        assert!(!path("part").exists() && !path("other").exists());
    }
}
