//! Where a file has data and where it has holes.

use std::fs::File;
use std::io;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The file's stretches in order, covering exactly its size.
#[derive(Debug)]
pub(crate) struct Extents<'a> {
    file: &'a File,
    size: u64,
    offset: u64,
    /// Whether the file system is asked; without it all is data.
    ask: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Bytes that must be read.
    Data { offset: u64, length: u64 },
    /// Bytes that are zero and have no blocks.
    Hole { length: u64 },
}

impl<'a> Extents<'a> {
    /// Of a file of `size` bytes; asks the file system only if it `may_have_holes`.
    pub(crate) fn new(file: &'a File, size: u64, may_have_holes: bool) -> Self {
        Extents { file, size, offset: 0, ask: may_have_holes }
    }

    /// The next stretch, never empty; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Extent>> {
        let offset = self.offset;
        if offset >= self.size {
            return Ok(None);
        }
        let data = if self.ask { self.next_data()? } else { offset };
        if data > offset {
            self.offset = data;
            return Ok(Some(Extent::Hole { length: data - offset }));
        }
        let end = if self.ask { self.next_hole()? } else { self.size };
        self.offset = end;
        Ok(Some(Extent::Data { offset, length: end - offset }))
    }

    fn next_data(&mut self) -> io::Result<u64> {
        match seek(self.file, SeekFrom::Data(self.offset)) {
            Ok(data) => Ok(data.clamp(self.offset, self.size)),
            Err(Errno::NXIO) => Ok(self.size), // lseek(2): no data from here to the end
            Err(error) => self.not_supported(error).map(|()| self.offset),
        }
    }

    fn next_hole(&mut self) -> io::Result<u64> {
        match seek(self.file, SeekFrom::Hole(self.offset)) {
            // A hole that was just punched here is read as zeros instead, so that we move on.
            Ok(hole) if hole <= self.offset => Ok(self.size),
            Ok(hole) => Ok(hole.min(self.size)),
            Err(Errno::NXIO) => Ok(self.size),
            Err(error) => self.not_supported(error).map(|()| self.size),
        }
    }

    fn not_supported(&mut self, error: Errno) -> io::Result<()> {
        self.ask = false;
        match error {
            Errno::INVAL | Errno::OPNOTSUPP => Ok(()),
            _ => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn extents(file: &File, size: u64, ask: bool) -> Vec<Extent> {
        let mut extents = Extents::new(file, size, ask);
        std::iter::from_fn(|| extents.next().unwrap()).collect()
    }

    #[test]
    fn a_dense_file_is_one_stretch() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(extents(&file, 0, true), []);
        file.write_all_at(&[1; 5000], 0).unwrap();
        assert_eq!(extents(&file, 5000, false), [Extent::Data { offset: 0, length: 5000 }]);
        assert_eq!(extents(&file, 5000, true), [Extent::Data { offset: 0, length: 5000 }]);
    }

    /// Whatever the file system's granularity, stretches must cover the size without overlap and
    /// all that was written must be in data.
    #[test]
    fn stretches_cover_a_sparse_file() {
        let file = tempfile::tempfile().unwrap();
        let size = 64 << 20;
        file.set_len(size).unwrap();
        assert!(!extents(&file, size, true).is_empty());
        let written = [(1 << 20, 100), (8 << 20, 300_000), (size - 1, 1)];
        for (at, length) in written {
            file.write_all_at(&vec![7; length], at).unwrap();
        }
        let (mut offset, mut data) = (0, Vec::new());
        for extent in extents(&file, size, true) {
            match extent {
                Extent::Hole { length } => offset += length,
                Extent::Data { offset: at, length } => {
                    assert_eq!(at, offset);
                    data.push(at..at + length);
                    offset += length;
                }
            }
        }
        assert_eq!(offset, size);
        for (at, length) in written {
            let end = at + length as u64;
            assert!(data.iter().any(|run| run.start <= at && end <= run.end), "{at} in {data:?}");
        }
    }

    #[test]
    fn a_file_that_shrank_still_comes_to_its_announced_size() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 5000], 0).unwrap();
        let total: u64 = extents(&file, 1 << 30, true)
            .iter()
            .map(|extent| match extent {
                Extent::Data { length, .. } | Extent::Hole { length } => *length,
            })
            .sum();
        assert_eq!(total, 1 << 30);
    }
}
