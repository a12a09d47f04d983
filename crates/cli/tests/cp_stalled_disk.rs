//! `farhaul cp` onto a disk that does not answer.

mod common;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use common::copying::make_file;
use common::process::Process;
use common::server::Site;
use farhaul_faults::disk::Disk;
use farhaul_faults::{FileSystem, Volume, volume};

/// Has the disk answer again when it is dropped, lest a process waits for it for ever.
struct Stalled<'a>(&'a Disk);

impl Drop for Stalled<'_> {
    fn drop(&mut self) {
        self.0.answer();
    }
}

/// The threads of a process that wait in the kernel for what cannot be interrupted, as a disk.
fn waiting(process: &Process) -> BTreeSet<OsString> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).expect("it runs");
    let waits = |task: &fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
    };
    tasks.flatten().filter(waits).map(|task| task.file_name()).collect()
}

/// Waits until a thread of it has been waiting for some time.
fn wait_until_it_waits(process: &Process) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut same, mut since) = (BTreeSet::new(), Instant::now());
    while same.is_empty() || since.elapsed() < Duration::from_secs(1) {
        assert!(Instant::now() < deadline, "nothing waits for the disk");
        let now = waiting(process);
        same = &same & &now;
        if same.is_empty() {
            (same, since) = (now, Instant::now());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A call that waits for a disk cannot be ended. The user hears at once what is waited for, and the copy ends
/// when the disk answers.
#[test]
fn an_interrupted_copy_says_that_it_waits_for_the_disk_and_ends_when_that_answers() {
    if let Some(why) = volume::missing() {
        common::skip!("{why}");
    }
    let volume = match Volume::new(FileSystem::Ext4, "") {
        Ok(volume) => volume,
        Err(error) => common::skip!("no volume of the test's own: {error}"),
    };
    let site = Site::new("[export.out]\npath = \"DIR/out\"\naccess = \"read\"\nclients = \"*\"\n");
    let _server = site.serve();
    make_file(&site.path("out/file"), 8 << 20, 1);
    volume.disk().stall();
    let to = volume.path().join("copy");
    let copy = site.start_cp(&[&site.url("out/file"), to.to_str().expect("text")]);
    // Dropped before the copy, whose end is waited for.
    let stalled = Stalled(volume.disk());
    wait_until_it_waits(&copy);
    copy.interrupt();
    let began = Instant::now();
    copy.wait_error_line("waiting for the disk");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(!waiting(&copy).is_empty(), "the disk has not answered");
    drop(stalled);
    let ended = copy.finish();
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
