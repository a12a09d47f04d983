//! Reading what is on the medium, past the kernel's cache.
//!
//! When a write-back fails, Linux marks the pages clean all the same: from the cache the file reads
//! as it was written, until the pages are dropped. So what is read through the cache proves nothing.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, Mode, OFlags, fadvise, fcntl_setfl, fstat, openat};
use rustix::io::Errno;

use super::tree_hash::CHUNK;

/// Direct reading wants the memory aligned to a block of the device; none has larger ones than this.
const ALIGNED: usize = 1 << 16;

/// A file that is read past the cache, on a descriptor of its own, so that an error
/// of write-back that this one gets is not kept from the one that writes.
#[derive(Debug)]
pub(crate) struct Medium {
    file: File,
    direct: AtomicBool,
}

/// Memory for one chunk.
#[derive(Debug)]
pub(crate) struct Room(Vec<u8>);

impl Room {
    pub(crate) fn new() -> Self {
        Room(vec![0; CHUNK as usize + ALIGNED])
    }

    fn aligned(&mut self) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        &mut self.0[start..start + CHUNK as usize]
    }
}

impl Medium {
    /// Opens `name`, which must not be a link. What is written of it should have been written back before,
    /// or be with [`flush`](Self::flush).
    pub(crate) fn open(directory: &OwnedFd, name: &[u8]) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let (file, direct) = match openat(directory, name, flags | OFlags::DIRECT, Mode::empty()) {
            Ok(file) => (file, true),
            // A file system that reads through the cache only.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                (openat(directory, name, flags, Mode::empty())?, false)
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Medium { file: File::from(file), direct: AtomicBool::new(direct) })
    }

    /// Has what is written of it written back. Whether that succeeds shows in what is read.
    pub(crate) fn flush(&self) {
        // An error is of no use: some of what did not get there may be marked as written before.
        let _ = self.file.sync_data();
    }

    /// The file, for questions about it.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether this is the file that is open as `other`.
    pub(crate) fn is(&self, other: &File) -> io::Result<bool> {
        let (here, there) = (fstat(&self.file)?, fstat(other)?);
        Ok((here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
    }

    /// `length` bytes from `offset` on, both of a chunk.
    pub(crate) fn read<'a>(
        &self,
        room: &'a mut Room,
        offset: u64,
        length: usize,
    ) -> io::Result<&'a [u8]> {
        let room = room.aligned();
        // Also before reading directly: a file that is compressed is read through the cache even so.
        let _ = fadvise(&self.file, offset, NonZeroU64::new(CHUNK), Advice::DontNeed);
        while self.direct.load(Ordering::Relaxed) {
            match self.file.read_at(room, offset) {
                Ok(read) if read >= length => return Ok(&room[..length]),
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    // It could be opened so, but this file cannot be read so.
                    fcntl_setfl(&self.file, OFlags::empty())?;
                    self.direct.store(false, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        self.file.read_exact_at(&mut room[..length], offset)?;
        Ok(&room[..length])
    }
}
