//! Whether the files of a tree are those of a receipt.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;

use blake3::Hasher;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::beneath;
use super::tree_hash::{CHUNK, ChunkTree, leaf};
use crate::digest::Digest;
use crate::extents::{Extent, Extents};
use crate::inode::{self, Kind};

/// A directory in which files are checked; no path leads out of it, and no link is followed.
#[derive(Debug)]
pub struct Tree(OwnedFd);

/// What a file should be.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Bytes.
    pub size: u64,
    /// None: only the size is compared.
    pub digest: Option<Digest>,
    /// What the digest is of: see [`Event::File`](super::Event::File).
    pub sparse: bool,
}

/// What a file is.
#[derive(Debug)]
pub enum Found {
    /// What it should be.
    Same,
    /// Not there.
    Missing,
    /// No regular file, but what this says.
    Other(String),
    /// Of another size, bytes.
    Size(u64),
    /// Of another content.
    Content,
    /// It cannot be read.
    Unreadable(io::Error),
}

impl Tree {
    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// It is none, or cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Tree(openat(CWD, path, flags, Mode::empty())?))
    }

    /// Checks the file at `path`, relative to the directory. `stopped` is asked after each chunk; then
    /// the file is [`Found::Unreadable`], as interrupted.
    pub fn check(&self, path: &Path, wanted: &Wanted, stopped: &dyn Fn() -> bool) -> Found {
        // A path that ends so means a directory; the empty one is the tree.
        if path.file_name().is_none() {
            return Found::Other("no path of a file".into());
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        match beneath::open(&self.0, path, flags, Mode::empty()) {
            Ok(file) => check(File::from(file), wanted, stopped),
            Err(error) => {
                let invalid = error.kind() == io::ErrorKind::InvalidInput;
                match Errno::from_io_error(&error) {
                    Some(Errno::NOENT) => Found::Missing,
                    // No kernel gives a descriptor for reading of a socket.
                    Some(Errno::NXIO) => Found::Other("a socket".into()),
                    // Within the path there is a link or a file, if not at its end.
                    Some(Errno::LOOP | Errno::NOTDIR) => self.other(path),
                    Some(Errno::XDEV) => Found::Other("outside of the directory".into()),
                    _ if invalid => Found::Other("outside of the directory".into()),
                    _ => Found::Unreadable(error),
                }
            }
        }
    }

    /// What is at a path that cannot be opened because of a link, or of a file where a directory should be.
    fn other(&self, path: &Path) -> Found {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let above = path.parent().unwrap_or(Path::new(""));
        let link = beneath::open(&self.0, above, flags | OFlags::DIRECTORY, Mode::empty())
            .ok()
            .zip(path.file_name())
            .and_then(|(above, name)| statat(&above, name, AtFlags::SYMLINK_NOFOLLOW).ok())
            .is_some_and(|stat| inode::kind(&stat) == Kind::Symlink);
        Found::Other(match link {
            true => "a symbolic link, which is not followed".into(),
            false => "behind a symbolic link or a file where there was a directory".into(),
        })
    }
}

/// Checks an open file.
pub fn check(file: File, wanted: &Wanted, stopped: &dyn Fn() -> bool) -> Found {
    let compared = (|| {
        let stat = fstat(&file)?;
        match inode::kind(&stat) {
            Kind::File => {}
            Kind::Directory => return Ok(Found::Other("a directory".into())),
            Kind::Symlink => return Ok(Found::Other("a symbolic link".into())),
            Kind::Special(what) => return Ok(Found::Other(format!("a {what}"))),
        }
        let size = inode::size(&stat);
        if size != wanted.size {
            return Ok(Found::Size(size));
        }
        match wanted.digest {
            Some(digest) if file_digest(file, size, wanted.sparse, stopped)? != digest => {
                Ok(Found::Content)
            }
            _ => Ok(Found::Same),
        }
    })();
    compared.unwrap_or_else(Found::Unreadable)
}

/// The digest of a file of `size` bytes: plain BLAKE3, or of a `sparse` file the root of its
/// [`ChunkTree`], for which holes are not read. `stopped` is asked after each chunk.
///
/// # Errors
///
/// It cannot be read, has become shorter, or the work was stopped.
pub(crate) fn file_digest(
    mut file: File,
    size: u64,
    sparse: bool,
    stopped: &dyn Fn() -> bool,
) -> io::Result<Digest> {
    let mut room = vec![0; size.clamp(1, CHUNK) as usize];
    let mut tree = ChunkTree::new(size, sparse);
    if !sparse {
        let mut plain = Hasher::new();
        for index in 0..tree.chunks() {
            plain.update(read(&mut file, &mut room, &tree, index, stopped)?);
        }
        return Ok(plain.finalize().into());
    }
    let asked = file.try_clone()?;
    let mut extents = Extents::new(&asked, size, true);
    let mut at = 0;
    while let Some(extent) = extents.next()? {
        let Extent::Data { offset, length } = extent else { continue };
        let (first, end) = ((offset / CHUNK).max(at), (offset + length).div_ceil(CHUNK));
        if first > at {
            // Within the file and missing, so there is no reason to refuse it.
            let _ = tree.insert_zeros(at, first - at);
        }
        for index in first..end {
            // Asking for extents moves the same offset.
            file.seek(SeekFrom::Start(index * CHUNK))?;
            let data = read(&mut file, &mut room, &tree, index, stopped)?;
            tree.insert(index, leaf(size, sparse, index, data));
        }
        at = at.max(end);
    }
    if at < tree.chunks() {
        let _ = tree.insert_zeros(at, tree.chunks() - at);
    }
    tree.root().ok_or_else(|| io::Error::other("it changes while it is read"))
}

/// Reads the next chunk, which is `index`.
fn read<'a>(
    file: &mut File,
    room: &'a mut [u8],
    tree: &ChunkTree,
    index: u64,
    stopped: &dyn Fn() -> bool,
) -> io::Result<&'a [u8]> {
    if stopped() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let data = &mut room[..tree.chunk_length(index) as usize];
    file.read_exact(data)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt, symlink};

    use rustix::fs::mkfifoat;

    use super::*;

    fn found(tree: &Tree, path: &str, content: &[u8]) -> Found {
        let digest = Some(blake3::hash(content).into());
        let wanted = Wanted { size: content.len() as u64, digest, sparse: false };
        tree.check(Path::new(path), &wanted, &|| false)
    }

    #[test]
    fn every_difference_has_its_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("tree/sub")).unwrap();
        fs::write(dir.path().join("tree/sub/f"), "content").unwrap();
        fs::write(dir.path().join("secret"), "content").unwrap();
        symlink("sub", dir.path().join("tree/link")).unwrap();
        let tree = Tree::open(&dir.path().join("tree")).unwrap();
        assert!(matches!(found(&tree, "sub/f", b"content"), Found::Same));
        assert!(matches!(found(&tree, "sub/f", b"c0ntent"), Found::Content));
        assert!(matches!(found(&tree, "sub/f", b"contents"), Found::Size(7)));
        assert!(matches!(found(&tree, "no", b"content"), Found::Missing));
        mkfifoat(CWD, dir.path().join("tree/pipe"), Mode::RUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("tree/s")).unwrap();
        for (path, what) in [
            ("", "no path"),
            ("/", "no path"),
            ("..", "no path"),
            ("../secret", "outside"),
            ("sub/../../secret", "outside"),
            ("sub", "a directory"),
            ("pipe", "a named pipe"),
            ("s", "a socket"),
            ("link", "a symbolic link"),
            ("link/f", "behind a symbolic link"),
            ("sub/f/f", "behind a symbolic link or a file"),
        ] {
            let found = found(&tree, path, b"content");
            assert!(matches!(&found, Found::Other(it) if it.contains(what)), "{path}: {found:?}");
        }
    }

    /// Holes are skipped, and the digest is what reading all of it would give.
    #[test]
    fn digests_of_sparse_files_do_not_depend_on_where_holes_are() {
        let size = 5 * CHUNK + 17;
        let (holes, dense) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        dense.write_all_at(&vec![0; size as usize], 0).unwrap();
        holes.set_len(size).unwrap();
        for file in [&holes, &dense] {
            file.write_all_at(b"data", 2 * CHUNK + 5).unwrap();
            file.write_all_at(b"end", size - 3).unwrap();
        }
        let digest = |file: &File, sparse| {
            let file = file.try_clone().unwrap();
            (&file).seek(SeekFrom::Start(0)).unwrap();
            file_digest(file, size, sparse, &|| false).unwrap()
        };
        assert_eq!(digest(&holes, true), digest(&dense, true));
        assert_eq!(digest(&holes, false), digest(&dense, false));
        assert_ne!(digest(&holes, true), digest(&holes, false));
        let stopped = file_digest(dense.try_clone().unwrap(), size, false, &|| true).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }
}
