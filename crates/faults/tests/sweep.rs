//! What a test leaves that is killed is taken away by the next.

use std::process::Command;

use farhaul_faults::{FileSystem, Volume, volume};

const CHILD: &str = "FARHAUL_TEST_LEAVES_A_VOLUME";

#[test]
fn volumes_of_killed_tests_are_taken_away() {
    if let Some(why) = volume::missing() {
        eprintln!("skipped: {why}");
        return;
    }
    if std::env::var_os(CHILD).is_some() {
        let _left = Volume::new(FileSystem::Xfs, "").unwrap();
        std::process::abort();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "volumes_of_killed_tests_are_taken_away"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert!(!child.status.success());
    // mkfs.btrfs asks every loop device whether it is mounted, and ends if one does not answer.
    Volume::new(FileSystem::Btrfs, "").unwrap();
}
