//! Partial and small files where the disk is full.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farhaul_mover::frame::Timestamp;
use farhaul_mover::name::Name;
use farhaul_mover::transfer::part::{Identity, Opened, Origin, PartFile};
use farhaul_mover::transfer::small::{TemporaryNames, write_small};
use farhaul_mover::transfer::tree_hash::{CHUNK, chunk_cv};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A file system of its own, gone with the value.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(size: &std::ffi::CStr) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        if let Err(error) = mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), size) {
            eprintln!("skipped: a small file system cannot be mounted: {error}");
            return None;
        }
        Some(Mounted(dir))
    }

    fn directory(&self) -> OwnedFd {
        fs::File::open(self.0.path()).unwrap().into()
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(self.path(), UnmountFlags::DETACH).unwrap();
    }
}

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

#[test]
fn a_full_disk_leaves_what_is_proved() {
    let Some(mounted) = Mounted::new(c"size=5m") else { return };
    let other = mounted.path().join("other");
    fs::write(&other, vec![0; 3 << 20]).unwrap();
    let directory = Arc::new(mounted.directory());
    let name = Name::new(b"big").unwrap();
    let modified = Timestamp::default();
    let (size, origin) = (4 * CHUNK, Origin::default());
    let identity = Identity { size, modified, origin, sparse: false, verify: true };
    let data = |index: u64| vec![index as u8 + 1; CHUNK as usize];
    let open = || PartFile::open(Arc::clone(&directory), name, identity, false).unwrap();
    let write = |part: &PartFile, index| {
        let data = data(index);
        part.write_chunk(index, &data, chunk_cv(index, &data))
    };
    let (part, _) = open();
    let proved = (0..4).take_while(|index| write(&part, *index).is_ok()).count() as u64;
    assert!(proved < 4);
    assert_eq!(errno(write(&part, proved)), Some(Errno::NOSPC));
    assert_eq!(part.missing(9), std::slice::from_ref(&(proved..4)));
    drop(part);
    let (part, opened) = open();
    assert_eq!(opened, Opened::Resumed { trusted: 0, claimed: proved * CHUNK });
    let proof = part.prove().unwrap();
    assert_eq!((proof.held, proof.more), (proved * CHUNK, false));
    assert_eq!(errno(write(&part, 3)), Some(Errno::NOSPC));
    // Once there is room, the same object goes on.
    fs::remove_file(&other).unwrap();
    assert!((proved..4).all(|index| write(&part, index).is_ok()));
    part.finish(|_| Ok(()), true).unwrap();
    let whole: Vec<u8> = (0..4).flat_map(data).collect();
    assert!(fs::read(mounted.path().join("big")).unwrap() == whole);
    assert_eq!(names(&mounted), [mounted.path().join("big")]);
}

#[test]
fn a_small_file_is_whole_or_not_there() {
    let Some(mounted) = Mounted::new(c"size=1m") else { return };
    let directory = mounted.directory();
    let name = Name::new(b"small").unwrap();
    let temporary = TemporaryNames::new();
    let write =
        |data: &[u8]| write_small(&temporary, &directory, name, data, |_| Ok(()), true, true);
    assert!(write(b"first").unwrap().is_none());
    assert_eq!(errno(write(&vec![1; 2 << 20])), Some(Errno::NOSPC));
    assert_eq!(fs::read(mounted.path().join("small")).unwrap(), b"first");
    assert_eq!(names(&mounted), [mounted.path().join("small")]);
}

fn names(mounted: &Mounted) -> Vec<PathBuf> {
    fs::read_dir(mounted.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
}
