//! How fast a disk takes and gives files.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{self, Advice};
use serde::{Deserialize, Serialize};

use crate::Root;

/// Written and read at once: the mover's chunk.
const CHUNK: usize = 1 << 20;
/// What is left free on the disk, whatever else is asked for.
const SPARE: u64 = 64 << 20;

/// A disk, as a folder on it shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// The folder.
    pub folder: String,
    /// Kind of file system, such as `ext4`; empty: unknown.
    pub kind: String,
    /// Bytes that this user may still write.
    pub free: u64,
    /// Bits per second written, with the time until they are on the disk.
    pub write: Option<f64>,
    /// Bits per second read, without the kernel's cache as far as it can be told to forget.
    pub read: Option<f64>,
    /// Bytes that were written and read.
    pub bytes: u64,
}

/// A disk that was not measured.
#[derive(Debug, thiserror::Error)]
#[error("cannot measure the disk of {folder}: {error}")]
pub struct DiskError {
    folder: String,
    error: io::Error,
}

/// Writes at most `bytes`, for at most `time`, to a new file in `folder`, reads it back, and removes
/// it. A disk with little room is not written to.
///
/// # Errors
/// The folder is not there, or cannot be written to.
pub fn measure(root: &Root, folder: &Path, bytes: u64, time: Duration) -> Result<Disk, DiskError> {
    let failed = |error| DiskError { folder: folder.display().to_string(), error };
    let full = folder.canonicalize().map_err(failed)?;
    let space = fs::statvfs(&full).map_err(|error| failed(error.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let mut disk = Disk {
        kind: kind(root, &full).unwrap_or_default(),
        folder: full.display().to_string(),
        free,
        ..Disk::default()
    };
    let bytes = bytes.min(free.saturating_sub(SPARE));
    if bytes < CHUNK as u64 {
        return Ok(disk);
    }
    // It has no name, or is removed when it goes, even if this fails; nobody sees it.
    let mut file = tempfile::tempfile_in(&full).map_err(failed)?;
    let (written, write) = write(&mut file, bytes, time).map_err(failed)?;
    disk.bytes = written;
    disk.write = Some(write);
    disk.read = Some(read(&mut file, time).map_err(failed)?);
    Ok(disk)
}

/// How much was written, and how fast.
fn write(file: &mut File, bytes: u64, time: Duration) -> io::Result<(u64, f64)> {
    // Disks and file systems that compress or know zeros would look faster than they are.
    let mut chunk = vec![0; CHUNK];
    blake3::Hasher::new().update(b"farhaul doctor").finalize_xof().fill(&mut chunk);
    let begin = Instant::now();
    let mut written = 0;
    while written < bytes && begin.elapsed() < time {
        // So that no chunk is like another.
        chunk[..8].copy_from_slice(&written.to_be_bytes());
        file.write_all(&chunk)?;
        written += CHUNK as u64;
        // What a slow disk has to take before the end stays small.
        if written.is_multiple_of(32 << 20) {
            file.sync_data()?;
        }
    }
    file.sync_all()?;
    Ok((written, rate(written, begin)))
}

fn read(file: &mut File, time: Duration) -> io::Result<f64> {
    // Advice that a file system does not take leaves the cache as it is.
    let _ = fs::fadvise(&*file, 0, None, Advice::DontNeed);
    let _ = fs::fadvise(&*file, 0, None, Advice::Sequential);
    file.seek(SeekFrom::Start(0))?;
    let mut chunk = vec![0; CHUNK];
    let begin = Instant::now();
    let mut total = 0;
    while begin.elapsed() < time {
        match file.read(&mut chunk)? {
            0 => break,
            len => total += len as u64,
        }
    }
    Ok(rate(total, begin))
}

fn rate(bytes: u64, begin: Instant) -> f64 {
    bytes as f64 * 8.0 / begin.elapsed().as_secs_f64().max(1e-9)
}

/// The kind of the file system with the longest mount point that `folder` is below.
fn kind(root: &Root, folder: &Path) -> Option<String> {
    let mounts = root.read("/proc/self/mounts").or_else(|| root.read("/proc/mounts"))?;
    let fields = |line: &str| {
        let mut fields = line.split(' ');
        let point = unescape(fields.nth(1)?);
        folder.starts_with(&point).then(|| Some((point.len(), fields.next()?.to_owned())))?
    };
    // Of those mounted at the same point the last one is seen.
    mounts.lines().filter_map(fields).max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

/// Spaces and the like are octal in that file.
fn unescape(point: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(point.to_owned(), |text, (code, character)| text.replace(code, character))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_disk_is_measured_and_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let disk =
            measure(&Root::system(), folder.path(), 4 << 20, Duration::from_secs(60)).unwrap();
        assert_eq!(disk.bytes, 4 << 20);
        assert!(disk.write.unwrap() > 0.0 && disk.read.unwrap() > 0.0, "{disk:?}");
        assert!(disk.free > 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn no_folder_is_told() {
        let error = measure(&Root::system(), Path::new("/no/such/folder"), 1 << 20, Duration::ZERO)
            .unwrap_err()
            .to_string();
        assert!(error.contains("/no/such/folder") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn the_innermost_mount_counts() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc")).unwrap();
        let mounts = "/dev/sda / ext4 rw 0 0\nnone /mnt/a\\040b tmpfs rw 0 0\n\
                      /dev/sdb /mnt xfs rw 0 0\nbroken\n/dev/sdc /mnt btrfs rw 0 0\n";
        std::fs::write(folder.path().join("proc/mounts"), mounts).unwrap();
        let root = Root::recorded(folder.path(), BTreeMap::new());
        let of = |path: &str| kind(&root, Path::new(path)).unwrap();
        assert_eq!(of("/home/x"), "ext4");
        assert_eq!(of("/mnt/a b/c"), "tmpfs");
        assert_eq!(of("/mnt/c"), "btrfs");
        assert_eq!(of("/mntx"), "ext4");
    }
}
