//! Trees to copy, by seed, and how they change between copies.
//!
//! Every block of a file's content begins with a mark, so that a disk tells content from what the
//! file system keeps for itself.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use farhaul_base::Rng;

use crate::disk::BLOCK;

/// What a block of content begins with.
const MARK: &[u8; 16] = b"farhaul content\n";

/// Whether a block is of a file that this module has made.
pub fn is_content(block: &[u8]) -> bool {
    block.starts_with(MARK)
}

/// A tree that changes.
#[derive(Debug)]
pub struct Source {
    root: PathBuf,
    rng: Rng,
    /// Of files made so far.
    made: u64,
}

/// What a tree is made of besides some directories of small files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Small files, up to 200 KiB.
    pub small: u64,
    /// Files of several chunks, up to 8 MiB.
    pub medium: u64,
    /// A file that is on the medium before it has its name: above 64 MiB.
    pub large: bool,
}

impl Source {
    /// Makes a tree in `root`, which is made too. `prefix` begins all names of files, so that two
    /// trees may go into one target.
    pub fn new(root: PathBuf, prefix: &str, shape: Shape, seed: u64) -> io::Result<Source> {
        let mut source = Source { root, rng: Rng::new(seed), made: 0 };
        for directory in ["", "one", "one/two", "one/two/three", "other"] {
            fs::create_dir_all(source.root.join(directory))?;
        }
        for number in 0..shape.small {
            let size = source.small();
            source.file(&format!("{prefix}small{number}"), size)?;
        }
        for number in 0..shape.medium {
            let size = (1 << 20) + source.rng.below(7 << 20);
            source.file(&format!("{prefix}medium{number}"), size)?;
        }
        if shape.large {
            let size = (64 << 20) + source.rng.below(8 << 20);
            source.file(&format!("{prefix}large"), size)?;
        }
        source.sparse(&format!("{prefix}sparse"))?;
        symlink("one/two", source.root.join(format!("{prefix}link")))?;
        let files = source.files()?;
        for number in 0..3 {
            let of = source.pick(&files);
            fs::hard_link(of, source.root.join(format!("other/{prefix}name{number}")))?;
        }
        Ok(source)
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn small(&mut self) -> u64 {
        match self.rng.below(10) {
            0 => 0,
            1..6 => self.rng.below(9000),
            _ => self.rng.below(200 << 10),
        }
    }

    fn pick(&mut self, files: &[PathBuf]) -> PathBuf {
        files[self.rng.below(files.len() as u64) as usize].clone()
    }

    fn directory(&mut self) -> PathBuf {
        let directories = ["", "one", "one/two", "one/two/three", "other"];
        self.root.join(directories[self.rng.below(5) as usize])
    }

    fn file(&mut self, name: &str, size: u64) -> io::Result<()> {
        let path = self.directory().join(name);
        self.fill(&File::create(path)?, 0, size)
    }

    fn fill(&mut self, file: &File, from: u64, to: u64) -> io::Result<()> {
        self.made += 1;
        let mut piece = Vec::with_capacity(1 << 20);
        let mut at = from;
        while at < to {
            piece.clear();
            let end = to.min(at + (1 << 20));
            for offset in (at..end).step_by(BLOCK) {
                let start = piece.len();
                piece.resize(start + BLOCK.min((end - offset) as usize), self.made as u8 | 1);
                let mut head = MARK.to_vec();
                head.extend(self.rng.next_u64().to_le_bytes());
                head.extend(offset.to_le_bytes());
                let length = head.len().min(piece.len() - start);
                piece[start..start + length].copy_from_slice(&head[..length]);
            }
            file.write_all_at(&piece, at)?;
            at = end;
        }
        Ok(())
    }

    fn sparse(&mut self, name: &str) -> io::Result<()> {
        let file = File::create(self.directory().join(name))?;
        file.set_len(9 << 20)?;
        for _ in 0..3 {
            let at = self.rng.below(2000) * BLOCK as u64;
            self.fill(&file, at, at + 50_000)?;
        }
        Ok(())
    }

    /// Its regular files, in order.
    pub fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut todo = vec![self.root.clone()];
        while let Some(directory) = todo.pop() {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                match entry.file_type()? {
                    kind if kind.is_dir() => todo.push(entry.path()),
                    kind if kind.is_file() => found.push(entry.path()),
                    _ => {}
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Changes some of it: content of the same size, other sizes, new files, other names.
    pub fn change(&mut self) -> io::Result<()> {
        for _ in 0..1 + self.rng.below(6) {
            let path = {
                let files = self.files()?;
                self.pick(&files)
            };
            let size = fs::metadata(&path)?.len();
            match self.rng.below(5) {
                0 | 1 => {
                    let file = File::options().write(true).open(&path)?;
                    let from = self.rng.below(size / BLOCK as u64 + 1) * BLOCK as u64;
                    self.fill(&file, from, size.min(from + (1 << 20)))?;
                    // Changed, whatever the clock's tick.
                    file.set_modified(std::time::SystemTime::now())?;
                }
                2 => {
                    // A new inode, as editors do.
                    fs::remove_file(&path)?;
                    let size = self.small();
                    self.fill(&File::create(&path)?, 0, size)?;
                }
                3 => {
                    let size = self.small();
                    let name = format!("new{}", self.made);
                    self.file(&name, size)?;
                }
                _ => {
                    let to = self.directory().join(format!("moved{}", self.made));
                    self.made += 1;
                    fs::rename(&path, to)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::compare;

    #[test]
    fn a_seed_says_what_a_tree_is() {
        let dir = tempfile::tempdir().unwrap();
        let shape = Shape { small: 20, medium: 1, large: false };
        let make = |name: &str, seed| {
            let mut source = Source::new(dir.path().join(name), "", shape, seed).unwrap();
            source.change().unwrap();
            source.root
        };
        let (a, b, c) = (make("a", 1), make("b", 1), make("c", 2));
        assert_eq!(compare(&a, &b, true).unwrap(), [] as [String; 0]);
        assert_ne!(compare(&a, &c, true).unwrap(), [] as [String; 0]);
        let mut content = vec![0; 2 * BLOCK];
        assert!(!is_content(&content));
        File::open(Source { root: a, rng: Rng::new(0), made: 0 }.files().unwrap().pop().unwrap())
            .unwrap()
            .read_at(&mut content, 0)
            .unwrap();
    }
}
