//! Copies while the disk has less room than it says: what has been reported as done is on the medium.
//! FARHAUL_LONG=1 and FARHAUL_SEED: see `common/storage.rs`.

mod common;

use common::storage::{keep_the_law, on_a_tmpfs_that_grows};
use farhaul_faults::{FileSystem, Theme};

#[test]
fn on_ext4() {
    keep_the_law(Theme::Thin, FileSystem::Ext4);
}

#[test]
fn on_xfs() {
    keep_the_law(Theme::Thin, FileSystem::Xfs);
}

#[test]
fn on_btrfs() {
    keep_the_law(Theme::Thin, FileSystem::Btrfs);
}

#[test]
fn a_tmpfs_that_grows_on_ext4() {
    on_a_tmpfs_that_grows(FileSystem::Ext4);
}

#[test]
fn a_tmpfs_that_grows_on_xfs() {
    on_a_tmpfs_that_grows(FileSystem::Xfs);
}

#[test]
fn a_tmpfs_that_grows_on_btrfs() {
    on_a_tmpfs_that_grows(FileSystem::Btrfs);
}
