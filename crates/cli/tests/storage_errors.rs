//! Copies while the disk or a system call fails: what has been reported as done is on the medium.
//! FARHAUL_LONG=1 and FARHAUL_SEED: see `common/storage.rs`.

mod common;

use common::storage::{cannot_commit, each_call_fails, keep_the_law};
use farhaul_faults::{FileSystem, Theme};

#[test]
fn on_ext4() {
    keep_the_law(Theme::Errors, FileSystem::Ext4);
}

#[test]
fn on_xfs() {
    keep_the_law(Theme::Errors, FileSystem::Xfs);
}

#[test]
fn on_btrfs() {
    keep_the_law(Theme::Errors, FileSystem::Btrfs);
}

#[test]
fn each_call_fails_on_ext4() {
    each_call_fails(FileSystem::Ext4);
}

#[test]
fn each_call_fails_on_xfs() {
    each_call_fails(FileSystem::Xfs);
}

#[test]
fn each_call_fails_on_btrfs() {
    each_call_fails(FileSystem::Btrfs);
}

#[test]
fn a_commit_fails_on_ext4() {
    cannot_commit(FileSystem::Ext4);
}

#[test]
fn a_commit_fails_on_xfs() {
    cannot_commit(FileSystem::Xfs);
}

#[test]
fn a_commit_fails_on_btrfs() {
    cannot_commit(FileSystem::Btrfs);
}
