//! The sources as directories that are open, and files in them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};

use super::desk::{Place, Seen};
use crate::digest::Digest;
use crate::extents::{Extent, Extents};
use crate::inode::{self, Kind};
use crate::sources::Source;
use crate::transfer::beneath;
use crate::transfer::tree_hash::{CHUNK, whole};
use crate::walk::changed;

/// Where files are opened: the directory of each source that is one.
#[derive(Debug)]
pub(super) struct Roots {
    roots: Vec<Root>,
    /// Holes count as such.
    sparse: bool,
}

#[derive(Debug)]
enum Root {
    /// A directory: paths are relative to it.
    Directory(OwnedFd),
    /// A single file, at the source's own path.
    Single(Source),
}

impl Roots {
    /// Opens the directories among the sources. `sparse`: their holes travel as such.
    pub(super) fn open(sources: &[Source], sparse: bool) -> io::Result<Self> {
        let open = |source: &Source| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // A link without a slash after it is sent as a link.
            let nofollow = if source.name.is_some() { OFlags::NOFOLLOW } else { OFlags::empty() };
            match openat(CWD, &source.path, flags | nofollow, Mode::empty()) {
                Ok(directory) => Ok(Root::Directory(directory)),
                Err(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                    Ok(Root::Single(source.clone()))
                }
                Err(errno) => Err(errno.into()),
            }
        };
        let roots = sources.iter().map(open).collect::<io::Result<_>>()?;
        Ok(Roots { roots, sparse })
    }

    /// Opens a regular file. Links are not followed, wherever they stand in the path.
    pub(super) fn file(&self, place: &Place) -> io::Result<Opened> {
        // Should a named pipe have taken its place, opening it must not wait for a writer.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match &self.roots[place.source] {
            Root::Directory(root) => beneath::open(root, &place.path, flags, Mode::empty())?,
            Root::Single(source) => openat(CWD, &source.path, flags, Mode::empty())?,
        };
        let opened = Opened { file: file.into(), sparse: self.sparse, samples: Mutex::default() };
        if inode::kind(&opened.stat()?) != Kind::File {
            return Err(changed());
        }
        Ok(opened)
    }
}

/// A regular file that is open.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    /// Holes count as such.
    sparse: bool,
    /// Digests of some of the chunks that were read, by offset, if nothing is verified.
    samples: Mutex<BTreeMap<u64, (usize, Digest)>>,
}

/// So many chunks of a large file are read a second time if it has grown and nothing is verified: without
/// digests there is nothing to compare the others with.
const SAMPLES: u64 = 8;

/// Whether this chunk of `chunks` is one of those: the first, the last, and some between them. Formats that
/// are written in place change their beginning, and logs that are cut do.
fn is_sample(chunk: u64, chunks: u64) -> bool {
    let last = chunks.saturating_sub(1);
    let at = |number: u64| (u128::from(last) * u128::from(number) / u128::from(SAMPLES - 1)) as u64;
    (0..SAMPLES).any(|number| at(number) == chunk)
}

impl Opened {
    #[cfg(test)]
    pub(super) fn of(file: File) -> Self {
        Opened { file, sparse: true, samples: Mutex::default() }
    }

    fn stat(&self) -> io::Result<Stat> {
        Ok(fstat(&self.file)?)
    }

    /// What it is now.
    pub(super) fn seen(&self) -> io::Result<Seen> {
        Ok(seen(&self.stat()?, self.sparse))
    }

    /// Fills `room` from `offset` on; how much there was.
    pub(super) fn read(&self, room: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < room.len() {
            match self.file.read_at(&mut room[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Keeps in mind what a chunk was, if it is one of those that [`Opened::begins_as_read`] looks at.
    pub(super) fn sample(&self, seen: &Seen, chunk: u64, data: &[u8]) {
        if is_sample(chunk, seen.size.div_ceil(CHUNK)) {
            let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
            samples.insert(chunk * CHUNK, (data.len(), whole(data)));
        }
    }

    /// Whether a file that has grown still begins with what was read of it, as far as samples tell.
    pub(super) fn begins_as_read(&self) -> io::Result<bool> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut room = Vec::new();
        for (offset, (length, digest)) in samples {
            room.resize(length, 0);
            if self.read(&mut room, offset)? < length || whole(&room) != digest {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets the kernel read ahead from `offset`.
    pub(super) fn will_need(&self, offset: u64, length: u64) {
        let length = std::num::NonZeroU64::new(length);
        // Only a hint.
        let _ = rustix::fs::fadvise(&self.file, offset, length, rustix::fs::Advice::WillNeed);
    }

    /// The chunks that are not all hole, in order. So fragmented a file that the list would be long
    /// is taken to have no more holes.
    pub(super) fn data(&self, seen: &Seen) -> io::Result<Vec<Range<u64>>> {
        const MANY: usize = 1 << 16;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut extents = Extents::new(&self.file, seen.size, seen.sparse);
        while let Some(extent) = extents.next()? {
            let Extent::Data { offset, length } = extent else { continue };
            let chunks = offset / CHUNK..(offset + length).div_ceil(CHUNK);
            let many = ranges.len() >= MANY;
            match ranges.last_mut() {
                Some(last) if chunks.start <= last.end => last.end = chunks.end,
                Some(last) if many => {
                    last.end = seen.size.div_ceil(CHUNK);
                    return Ok(ranges);
                }
                _ => ranges.push(chunks),
            }
        }
        Ok(ranges)
    }
}

/// What an inode says of a regular file. One that fits into a piece counts as dense: its zeros are
/// cheaper sent than told of; as everything does if nothing is to be `sparse`.
pub(super) fn seen(stat: &Stat, sparse: bool) -> Seen {
    let size = inode::size(stat);
    let sparse = sparse && size > CHUNK && inode::may_have_holes(stat);
    Seen { size, sparse, attributes: inode::attributes(stat), origin: inode::origin(stat) }
}

/// `path` from the top of its source on.
pub(super) fn below<'a>(source: &Source, path: &'a Path) -> &'a Path {
    path.strip_prefix(&source.path).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_the_ends_and_some_between() {
        let of = |chunks| (0..chunks).filter(|chunk| is_sample(*chunk, chunks)).collect::<Vec<_>>();
        assert_eq!(of(1), [0]);
        assert_eq!(of(3), [0, 1, 2]);
        let many = of(100_000);
        assert_eq!((many.len(), many[0], many[7]), (8, 0, 99_999));
        assert!(is_sample(u64::MAX / CHUNK, u64::MAX / CHUNK + 1));
    }
}
