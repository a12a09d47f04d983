//! Copies while power fails, processes are killed and file systems go away: what has been reported as done is on the medium.
//! FARHAUL_LONG=1 and FARHAUL_SEED: see `common/storage.rs`.

mod common;

use common::storage::keep_the_law;
use farhaul_faults::{FileSystem, Theme};

#[test]
fn on_ext4() {
    keep_the_law(Theme::Power, FileSystem::Ext4);
}

#[test]
fn on_xfs() {
    keep_the_law(Theme::Power, FileSystem::Xfs);
}

#[test]
fn on_btrfs() {
    keep_the_law(Theme::Power, FileSystem::Btrfs);
}
