//! Between the kernel's idea of a file's attributes and the protocol's.

use rustix::fs::{FileType, Stat, Timespec, Timestamps};

use crate::frame::{Attributes, Timestamp};
use crate::report::Special;
use crate::transfer::journal::Origin;

/// What an entry is, as far as the mover cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
    Symlink,
    Special(Special),
}

pub(crate) fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File,
        FileType::Symlink => Kind::Symlink,
        FileType::BlockDevice => Kind::Special(Special::BlockDevice),
        FileType::CharacterDevice => Kind::Special(Special::CharacterDevice),
        FileType::Fifo => Kind::Special(Special::Fifo),
        FileType::Socket => Kind::Special(Special::Socket),
        _ => Kind::Special(Special::Unknown),
    }
}

pub(crate) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Whether fewer blocks are allocated than the size needs, so that looking for holes pays.
pub(crate) fn may_have_holes(stat: &Stat) -> bool {
    // st_blocks counts 512 bytes, whatever the file system's block size (stat(2)).
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) < size(stat)
}

fn time(seconds: i64, nanoseconds: u64) -> Timestamp {
    // The kernel keeps this below a second; a file system that does not gets whole seconds.
    let nanoseconds = if nanoseconds < 1_000_000_000 { nanoseconds as u32 } else { 0 };
    Timestamp { seconds, nanoseconds }
}

#[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
pub(crate) fn origin(stat: &Stat) -> Origin {
    let changed = time(stat.st_ctime as i64, stat.st_ctime_nsec as u64);
    Origin { changed, inode: stat.st_ino as u64 }
}

#[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
pub(crate) fn attributes(stat: &Stat) -> Attributes {
    Attributes {
        mode: (stat.st_mode & 0o7777) as u16,
        accessed: time(stat.st_atime as i64, stat.st_atime_nsec as u64),
        modified: time(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
    }
}

pub(crate) fn timestamps(attributes: &Attributes) -> Timestamps {
    let time =
        |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) };
    Timestamps {
        last_access: time(attributes.accessed),
        last_modification: time(attributes.modified),
    }
}
