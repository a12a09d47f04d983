//! What a receiver without privileges meets.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use common::process::{LIMIT, Process};
use common::skip;

/// A directory that nobody may enter comes with an entry, and later once more.
#[test]
fn a_closed_directory_is_received_again() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let (tree, into) = (dir.path().join("tree"), dir.path().join("into"));
    fs::create_dir_all(tree.join("closed")).expect("a directory");
    fs::create_dir(&into).expect("a directory");
    let mode = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the owner may");
    };
    mode(dir.path(), 0o755);
    mode(&into, 0o777);
    mode(&tree.join("closed"), 0);
    // Nothing is closed for root, who can therefore send it; somebody else receives.
    if fs::read_dir(tree.join("closed")).is_err() {
        skip!("only root can send a directory that nobody may read");
    }
    let mut probe = Command::new(env!("CARGO_BIN_EXE_farhaul"));
    if let Err(error) = probe.arg("--version").uid(65_534).output() {
        skip!("farhaul cannot be run by another user: {error}");
    }
    let (tree, into) = (tree.display().to_string(), into.display().to_string());
    for _ in 0..2 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        command.args(["recv", "--listen", "127.0.0.1:0", "--into", &into, "--once"]).uid(65_534);
        let receiver = Process::with_lines(command, "recv as somebody else".into(), LIMIT);
        let addr = receiver.listening_at().to_string();
        Process::farhaul(&["send", &tree, &addr]).finish_well();
        receiver.finish_well();
    }
}
