//! Partial files on media that fail: file systems of their own on loop devices.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farhaul_mover::frame::Timestamp;
use farhaul_mover::name::Name;
use farhaul_mover::transfer::part::{Identity, Opened, Origin, PartFile};
use farhaul_mover::transfer::tree_hash::{CHUNK, chunk_cv};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

/// A tmpfs with the image of a file system, which is mounted.
struct Volume {
    dir: tempfile::TempDir,
    /// One at a time: programs that another thread starts hold what is open for a moment.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Volume {
    /// Of so many bytes of a tmpfs, and so many that the file system believes to have.
    fn new(kind: &str, room: &str, size: u64) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={room}")).unwrap();
        if let Err(error) = mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), &*options) {
            eprintln!("skipped: no file system can be mounted: {error}");
            return None;
        }
        let volume = Volume { dir, _turn: turn };
        File::create(volume.image()).unwrap().set_len(size).unwrap();
        fs::create_dir(volume.path()).unwrap();
        let mkfs = format!("mkfs.{kind}");
        let image = volume.image();
        if !succeeds(&mkfs, &["-q", image.to_str().unwrap()]) || !volume.mount() {
            eprintln!("skipped: {kind} cannot be made or mounted here");
            return None;
        }
        Some(volume)
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    fn mount(&self) -> bool {
        let (image, path) = (self.image(), self.path());
        succeeds("mount", &["-o", "loop", image.to_str().unwrap(), path.to_str().unwrap()])
    }

    fn unmount(&self) {
        unmount(self.path(), UnmountFlags::empty()).unwrap();
    }

    /// The tmpfs has so many more MiB than what the file system has used.
    fn leave_room(&self, mebibytes: u64) {
        use std::os::unix::fs::MetadataExt;
        rustix::fs::syncfs(&*self.directory()).unwrap();
        let used = fs::metadata(self.image()).unwrap().blocks() * 512;
        self.resize(&format!("{}m", (used >> 20) + mebibytes));
    }

    fn resize(&self, room: &str) {
        let options = format!("size={room}");
        mount_remount(self.dir.path(), MountFlags::empty(), options).unwrap();
    }

    fn directory(&self) -> Arc<OwnedFd> {
        Arc::new(File::open(self.path()).unwrap().into())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
        let _ = unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}

fn chunk(index: u64) -> Vec<u8> {
    let mut data = vec![0; CHUNK as usize];
    blake3::Hasher::new().update(&index.to_le_bytes()).finalize_xof().fill(&mut data);
    data
}

fn identity(chunks: u64) -> Identity {
    let (modified, origin) = (Timestamp::default(), Origin::default());
    Identity { size: chunks * CHUNK, modified, origin, sparse: false, verify: true }
}

fn open(volume: &Volume, chunks: u64) -> (PartFile, Opened) {
    let name = Name::new(b"file").unwrap();
    PartFile::open(volume.directory(), name, identity(chunks), false).unwrap()
}

fn write(part: &PartFile, index: u64) -> std::io::Result<()> {
    let data = chunk(index);
    part.write_chunk(index, &data, chunk_cv(index, &data))
}

/// Chunks that are lost.
fn prove(part: &PartFile) -> u64 {
    let mut lost = 0;
    loop {
        let proof = part.prove().unwrap();
        lost += proof.lost_bytes / CHUNK;
        if !proof.more {
            return lost;
        }
    }
}

fn assert_content(path: &Path, chunks: u64) {
    let file = File::open(path.join("file")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), chunks * CHUNK);
    let mut data = vec![0; CHUNK as usize];
    for index in 0..chunks {
        file.read_exact_at(&mut data, index * CHUNK).unwrap();
        assert!(data == chunk(index), "chunk {index}");
    }
}

/// What the cache has is not asked: the bytes of the device are changed beneath it.
#[test]
fn claims_are_read_from_the_medium() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(volume) = Volume::new(kind, "400m", 320 << 20) else { continue };
        let (part, _) = open(&volume, 6);
        (0..5).for_each(|index| write(&part, index).unwrap());
        part.sync().unwrap();
        drop(part);
        let image = fs::read(volume.image()).unwrap();
        let wanted = &chunk(3)[4096..4096 + 64];
        let at = image.chunks(512).position(|block| block.starts_with(wanted)).unwrap() * 512;
        let image = File::options().write(true).open(volume.image()).unwrap();
        image.write_all_at(&[!wanted[0]], at as u64).unwrap();
        let entries = fs::read_dir(volume.path()).unwrap().flatten();
        let mut entries = entries.map(|entry| entry.path()).collect::<Vec<_>>().into_iter();
        let part = entries.find(|path| path.to_str().unwrap().ends_with(".part")).unwrap();
        let cached = fs::read(part).unwrap();
        assert!(cached[3 << 20..4 << 20] == chunk(3), "{kind}: the cache has another content");
        let (part, opened) = open(&volume, 6);
        assert_eq!(opened, Opened::Resumed { trusted: 0, claimed: 5 * CHUNK });
        assert_eq!((prove(&part), part.missing(9)), (1, vec![3..4, 5..6]), "{kind}");
        [3, 5].into_iter().for_each(|index| write(&part, index).unwrap());
        part.finish(|_| Ok(()), true).unwrap();
        drop(part);
        volume.unmount();
        assert!(volume.mount(), "{kind}");
        assert_content(&volume.path(), 6);
    }
}

/// A thin volume that runs full and grows: Linux drops the pages whose write-back failed, tells it once,
/// and serves what was written from its cache.
#[test]
fn a_write_back_that_failed_is_found_in_the_next_run() {
    const CHUNKS: u64 = 73;
    for kind in ["ext4", "xfs"] {
        let Some(volume) = Volume::new(kind, "400m", 320 << 20) else { continue };
        volume.leave_room(40);
        let (part, _) = open(&volume, CHUNKS);
        let written = (0..CHUNKS).try_for_each(|index| write(&part, index));
        let ended = written.and_then(|()| part.finish(|_| Ok(()), true).map(drop));
        assert!(ended.is_err(), "{kind}: it all fitted");
        assert!(part.finish(|_| Ok(()), true).is_err(), "{kind}: it is told once, and remembered");
        drop(part);
        volume.resize("400m");
        // The file system may have given itself up: then it is mounted again, in the same boot.
        if File::create(volume.path().join("probe")).is_err() {
            volume.unmount();
            assert!(volume.mount(), "{kind}");
        }
        let (part, opened) = open(&volume, CHUNKS);
        let lost = prove(&part);
        println!("{kind}: {opened:?}, {lost} chunks lost");
        for range in part.missing(usize::MAX) {
            range.for_each(|index| write(&part, index).unwrap());
        }
        part.finish(|_| Ok(()), true).unwrap();
        drop(part);
        volume.unmount();
        assert!(volume.mount(), "{kind}");
        assert_content(&volume.path(), CHUNKS);
    }
}
