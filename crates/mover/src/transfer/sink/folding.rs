//! Whether capitals make a difference in a directory.
//!
//! That is asked only when it matters: when two names that come, or one that came and one that is there,
//! differ in nothing else. On ext4, f2fs and others it is an attribute of the directory, `chattr +F`, that
//! subdirectories inherit when they are made; so no directory answers for another.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{fstatfs, ioctl_getflags};

use super::Sink;
use super::marker::folds_case;
use super::tree::Directory;

/// `FS_CASEFOLD_FL` (linux/fs.h).
const CASEFOLD: u32 = 0x4000_0000;
/// File systems whose directories say by that flag whether they fold: ext4, f2fs, tmpfs, bcachefs; and btrfs,
/// which never does.
const BY_FLAG: [u64; 5] = [0xef53, 0xf2f5_2010, 0x0102_1994, 0xca45_1a4e, 0x9123_683e];
/// Those that always fold: vfat and exfat.
const ALWAYS: [u64; 2] = [0x4d44, 0x2011_bab0];

impl Sink<'_> {
    /// Whether two names that differ in capitals alone are one in this directory.
    pub(super) fn folds(&self, directory: &Arc<Directory>) -> bool {
        *directory.folds.get_or_init(|| {
            #[cfg(test)]
            if super::lock(&self.folding).contains(&directory.path()) {
                return true;
            }
            // Where nothing can be asked or made, nothing is overwritten either.
            let Ok(open) = self.directories.get(directory) else { return false };
            match known(&open) {
                Some(folds) => folds,
                None => !self.settings.dry_run && folds_case(&open).unwrap_or(false),
            }
        })
    }
}

/// What the file system says of it, if it does.
fn known(directory: &OwnedFd) -> Option<bool> {
    if ioctl_getflags(directory).is_ok_and(|flags| flags.bits() & CASEFOLD != 0) {
        return Some(true);
    }
    #[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
    let kind = fstatfs(directory).ok()?.f_type as u64 & 0xffff_ffff;
    if ALWAYS.contains(&kind) {
        return Some(true);
    }
    BY_FLAG.contains(&kind).then_some(false)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn what_the_file_system_says_is_so() {
        let dir = tempfile::tempdir().unwrap();
        let root: OwnedFd = File::open(dir.path()).unwrap().into();
        fs::write(dir.path().join("x"), "").unwrap();
        let folds = dir.path().join("X").exists();
        assert!(known(&root).is_none_or(|known| known == folds));
    }
}
