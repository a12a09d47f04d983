//! The tree of files that the demonstration moves.
//!
//! Made from a seed, with what file movers stumble over: big files and many small ones, deep and
//! empty directories, an empty file, holes, odd names, links that lead nowhere, modes and old dates.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farhaul_base::Rng;
use serde::Serialize;

use super::stop::Stop;

/// The smallest tree, bytes of data: below this the parts do not fit.
pub const MIN_BYTES: u64 = 1_000_000;

/// The small files' share of the data.
const SMALL_SHARE: f64 = 0.08;
/// One piece of data in the file with holes.
const EXTENT_BYTES: u64 = 64 << 10;
/// Written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// What was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Made {
    /// Regular files.
    pub files: u64,
    /// Directories, the root not counted.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Sizes of all files together.
    pub bytes: u64,
    /// The same without holes.
    pub data_bytes: u64,
}

/// Makes a tree at `root`, which must not exist, with `data_bytes` of data, [`MIN_BYTES`] at least.
/// All of it follows from `seed`.
///
/// # Errors
/// If the file system refuses, or `stop` is set meanwhile.
pub fn make(root: &Path, data_bytes: u64, seed: u64, stop: &Stop) -> io::Result<Made> {
    let mut maker = Maker {
        rng: Rng::new(seed),
        made: Made::default(),
        directories: Vec::new(),
        chunk: vec![0; CHUNK_BYTES],
        stop,
    };
    fs::create_dir(root)?;
    maker.directories.push((root.to_owned(), 0o755));
    maker.small_files(root, data_bytes)?;
    maker.odd_names(root)?;
    maker.holes(root, data_bytes)?;
    maker.links(root)?;
    maker.big_files(root, data_bytes)?;
    maker.date_directories()?;
    Ok(maker.made)
}

struct Maker<'a> {
    rng: Rng,
    made: Made,
    /// Parents before children, with their modes.
    directories: Vec<(PathBuf, u32)>,
    chunk: Vec<u8>,
    stop: &'a Stop,
}

impl Maker<'_> {
    /// Some hundred files of 50 kB on average, fewer and smaller ones in a small tree.
    fn small_files(&mut self, root: &Path, data_bytes: u64) -> io::Result<()> {
        const IN_A_DIRECTORY: u64 = 25;
        let count = (data_bytes / 500_000).clamp(20, 400);
        let mean = (data_bytes as f64 * SMALL_SHARE) as u64 / count;
        let small = self.directory(root.join("small"), 0o755)?;
        let mut group = small.clone();
        for number in 0..count {
            if number % IN_A_DIRECTORY == 0 {
                group =
                    self.directory(small.join(format!("{:02}", number / IN_A_DIRECTORY)), 0o750)?;
            }
            let mode = [0o644, 0o600, 0o755, 0o444][self.rng.below(4) as usize];
            let bytes = self.rng.below(2 * mean);
            self.file(&group.join(format!("{number:03}.dat")), bytes, mode)?;
        }
        Ok(())
    }

    fn odd_names(&mut self, root: &Path) -> io::Result<()> {
        let odd = self.directory(root.join("odd names"), 0o700)?;
        let names =
            ["Übergröße – данные – 数据.txt", "it's \"quoted\"", ".hidden", "-dash", "two\nlines"];
        for name in names {
            self.file(&odd.join(name), 100, 0o640)?;
        }
        self.file(&root.join("empty.dat"), 0, 0o644)?;
        self.directory(root.join("empty"), 0o755)?;
        let mut deep = root.to_owned();
        for level in 1..=12 {
            deep = self.directory(deep.join(format!("level {level}")), 0o755)?;
        }
        self.file(&deep.join("leaf"), 1, 0o644)
    }

    /// A file with data at its beginning, in the middle and near the end, which is a hole.
    fn holes(&mut self, root: &Path, data_bytes: u64) -> io::Result<()> {
        let extents = (data_bytes / 4 / EXTENT_BYTES).max(8);
        let path = root.join("holes.img");
        let mut file = File::create_new(&path)?;
        file.set_len(extents * EXTENT_BYTES)?;
        for extent in [0, extents / 2, extents - 2] {
            file.seek(SeekFrom::Start(extent * EXTENT_BYTES))?;
            self.fill(&mut file, EXTENT_BYTES)?;
        }
        self.made.bytes += (extents - 3) * EXTENT_BYTES;
        self.finish_file(&file, 0o660)
    }

    fn links(&mut self, root: &Path) -> io::Result<()> {
        let links = self.directory(root.join("links"), 0o755)?;
        for (name, to) in
            [("to file", "../holes.img"), ("to directory", "../small"), ("to nowhere", "no/such")]
        {
            symlink(to, links.join(name))?;
            self.made.symlinks += 1;
        }
        Ok(())
    }

    /// Three, of which the last takes what is left.
    fn big_files(&mut self, root: &Path, data_bytes: u64) -> io::Result<()> {
        let big = self.directory(root.join("big"), 0o755)?;
        let sizes = [data_bytes / 4, data_bytes / 8];
        for (number, bytes) in (1..).zip(sizes) {
            self.file(&big.join(format!("{number}.bin")), bytes, 0o644)?;
        }
        let rest = data_bytes.saturating_sub(self.made.data_bytes);
        self.file(&big.join("3.bin"), rest, 0o644)
    }

    fn directory(&mut self, path: PathBuf, mode: u32) -> io::Result<PathBuf> {
        fs::create_dir(&path)?;
        self.made.directories += 1;
        self.directories.push((path.clone(), mode));
        Ok(path)
    }

    fn file(&mut self, path: &Path, bytes: u64, mode: u32) -> io::Result<()> {
        let mut file = File::create_new(path)?;
        self.fill(&mut file, bytes)?;
        self.finish_file(&file, mode)
    }

    /// Writes data that cannot be compressed.
    fn fill(&mut self, file: &mut File, bytes: u64) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            self.stop.check()?;
            let length = left.min(CHUNK_BYTES as u64) as usize;
            for word in self.chunk[..length.next_multiple_of(8)].chunks_exact_mut(8) {
                word.copy_from_slice(&self.rng.next_u64().to_le_bytes());
            }
            file.write_all(&self.chunk[..length])?;
            left -= length as u64;
        }
        self.made.bytes += bytes;
        self.made.data_bytes += bytes;
        Ok(())
    }

    fn finish_file(&mut self, file: &File, mode: u32) -> io::Result<()> {
        self.made.files += 1;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.set_modified(self.date())
    }

    /// Directories get their dates at last, as every new entry would change them.
    fn date_directories(&mut self) -> io::Result<()> {
        for (path, mode) in std::mem::take(&mut self.directories).iter().rev() {
            let directory = File::open(path)?;
            directory.set_permissions(Permissions::from_mode(*mode))?;
            directory.set_times(FileTimes::new().set_modified(self.date()))?;
        }
        Ok(())
    }

    /// Some time in the thirty years from 1990, with nanoseconds.
    fn date(&mut self) -> SystemTime {
        const FROM: u64 = 631_152_000;
        let seconds = FROM + self.rng.below(30 * 365 * 86_400);
        UNIX_EPOCH + Duration::new(seconds, self.rng.below(1_000_000_000) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::super::compare::compare;
    use super::*;

    #[test]
    fn the_tree_is_what_it_says() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        let made = make(&root, 3_000_000, 1, &Stop::default()).unwrap();
        assert_eq!(made.data_bytes, 3_000_000);
        assert!(made.bytes > 3_000_000, "holes");
        assert!(made.files > 25 && made.directories > 15 && made.symlinks == 3, "{made:?}");
        let seen = compare(&root, &root, &Stop::default()).unwrap();
        assert_eq!(
            (seen.files, seen.directories, seen.symlinks, seen.bytes),
            (made.files, made.directories, made.symlinks, made.bytes)
        );
    }

    #[test]
    fn the_tree_follows_from_the_seed() {
        let dir = tempfile::tempdir().unwrap();
        let tree = |name: &str, seed| {
            let root = dir.path().join(name);
            let made = make(&root, MIN_BYTES, seed, &Stop::default()).unwrap();
            assert_eq!(made.data_bytes, MIN_BYTES);
            root
        };
        let (first, again, other) = (tree("first", 1), tree("again", 1), tree("other", 2));
        assert_eq!(compare(&first, &again, &Stop::default()).unwrap().different, 0);
        assert!(compare(&first, &other, &Stop::default()).unwrap().different > 0);
    }

    #[test]
    fn making_can_be_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let stop = Stop::default();
        stop.stop();
        let error = make(&dir.path().join("tree"), MIN_BYTES, 1, &stop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
