//! Schedules of copies onto volumes that fail: how many, and by which seeds.
//!
//! FARHAUL_SEED is the first seed, else the clock is; FARHAUL_SEEDS is how many there are in each
//! test. FARHAUL_LONG=1 has a thousand in all the tests of storage_*.rs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use farhaul_faults::check::compare;
use farhaul_faults::disk::{Failure, Fault, Loss, Operation};
use farhaul_faults::run::{Copy, End, Injection, program};
use farhaul_faults::schedule::{CALLS, Figures, Schedule, Theme};
use farhaul_faults::tree::{Shape, Source};
use farhaul_faults::{FileSystem, Volume, volume};

/// Twelve tests have so many each.
const LONG: u64 = 84;
const SHORT: u64 = 2;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Runs schedules with this theme on this file system; none may break the law.
pub fn keep_the_law(theme: Theme, file_system: FileSystem) {
    if let Some(why) = volume::missing() {
        super::skip!("{why}");
    }
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros());
    let first = number("FARHAUL_SEED").unwrap_or_else(|| clock() as u64);
    let count = match (number("FARHAUL_SEEDS"), number("FARHAUL_SEED")) {
        (Some(count), _) => count,
        (None, Some(_)) => 1,
        (None, None) if super::long() => LONG,
        (None, None) => SHORT,
    };
    let name = format!("{theme:?} on {}", file_system.name());
    println!("{name}: FARHAUL_SEED={first}, {count} schedules");
    let farhaul = PathBuf::from(env!("CARGO_BIN_EXE_farhaul"));
    let mut figures = Figures::default();
    let mut violations = 0;
    for seed in first..first + count {
        let schedule = Schedule { farhaul: farhaul.clone(), file_system, theme, seed };
        match schedule.run() {
            Ok(Ok(more)) => figures += more,
            Ok(Err(violation)) => {
                violations += 1;
                eprintln!("FARHAUL_SEED={seed} repeats it:\n{violation}");
            }
            Err(error) => panic!("the test cannot go on: {error}"),
        }
    }
    println!("measured: {name}: {count} schedules, {violations} violations, {figures:?}");
    assert_eq!(violations, 0, "of {count} schedules from FARHAUL_SEED={first} on");
}

/// `farhaul cp SOURCE/ TARGET/`.
fn copy(home: &Path, source: &Path, target: &Path) -> Copy {
    Copy {
        farhaul: env!("CARGO_BIN_EXE_farhaul").into(),
        home: home.to_owned(),
        args: [source, target].map(|path| format!("{}/", path.display())).into(),
        injection: None,
    }
}

/// Copies until one is done, on a volume that fails no more.
fn until_done(volume: &mut Volume, copy: &Copy) {
    let mut ends = Vec::new();
    for _ in 0..4 {
        let end = copy.run().expect("it is started");
        if end.is_done() {
            return;
        }
        ends.push(end);
        volume.remount().expect("it was mounted before");
    }
    panic!("nothing fails any more, and {:?} still does: {ends:#?}", copy.args);
}

/// One tree onto a file system whose device lies on a tmpfs that is too small, and then grows.
pub fn on_a_tmpfs_that_grows(file_system: FileSystem) {
    if let Some(why) = volume::missing() {
        super::skip!("{why}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let [home, pool] = ["home", "pool"].map(|name| dir.path().join(name));
    let shape = Shape { small: 40, medium: 1, large: true };
    let source = Source::new(dir.path().join("source"), "", shape, 1).expect("a tree");
    for path in [&home, &pool] {
        fs::create_dir(path).expect("a directory");
    }
    let small = Tmpfs::mount(pool.clone(), "1g").expect("a tmpfs");
    let image = pool.join("image");
    File::create(&image).and_then(|file| file.set_len(volume::SIZE)).expect("a file with a hole");
    let mut volume = Volume::on_file(file_system, "", &image).expect("a volume");
    assert!(volume.write_back());
    // What the file system has for itself, and some forty megabytes of eighty.
    let used = fs::metadata(&image).expect("it is there").blocks() * 512;
    small.resize(used + (40 << 20));
    let target = volume.path().join("copy");
    let copy = copy(&home, source.root(), &target);
    let end = copy.run().expect("it is started");
    assert!(!end.is_done(), "{file_system:?}: there is no room for all of it");
    small.resize(1 << 30);
    until_done(&mut volume, &copy);
    volume.remount().expect("it was mounted before");
    let differences = compare(source.root(), &target, false).expect("two trees");
    assert!(differences.is_empty(), "{file_system:?}: {differences:#?}");
}

struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(at: PathBuf, size: &str) -> io::Result<Tmpfs> {
        let options = format!("size={size}");
        program("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", &at.to_string_lossy()])?;
        Ok(Tmpfs(at))
    }

    fn resize(&self, bytes: u64) {
        let options = format!("remount,size={bytes}");
        program("mount", &["-o", &options, &self.0.to_string_lossy()]).expect("it grows");
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = program("umount", &["-l", &self.0.to_string_lossy()]);
    }
}

/// An error at the first, the second, … of these calls, each in a copy of its own after which power
/// takes what was not flushed: then nothing of it is believed that is not on the medium.
pub fn each_call_fails(file_system: FileSystem) {
    if let Some(why) = volume::missing() {
        super::skip!("{why}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let home = dir.path().join("home");
    fs::create_dir(&home).expect("a directory");
    let [small, large] = [false, true].map(|large| {
        let shape = Shape { small: 8, medium: 1, large };
        Source::new(dir.path().join(format!("large {large}")), "", shape, 1).expect("a tree")
    });
    let mut volume = Volume::new(file_system, "").expect("a volume");
    let (mut runs, mut failed) = (0, 0);
    for calls in CALLS {
        // Only a large file is waited for alone.
        let source = if calls.contains("sync") { &large } else { &small };
        let most = if super::long() { 200 } else { 1 };
        for first in 1..=most {
            let target = volume.path().join(format!("{calls}{first}"));
            let mut copy = copy(&home, source.root(), &target);
            copy.injection = Some(Injection {
                calls: calls.to_owned(),
                what: if first % 2 == 0 { "error=ENOSPC" } else { "error=EIO" }.to_owned(),
                first,
                on: false,
            });
            let end = copy.run().expect("it is started");
            let injected = copy.injected();
            assert!(injected || end.is_done(), "{calls}, call {first}: {end:?}");
            runs += u64::from(injected);
            let image = volume.disk().image(Loss::Unflushed);
            volume.replace(image).expect("it can be mounted");
            if !end.is_done() {
                failed += 1;
                copy.injection = None;
                until_done(&mut volume, &copy);
                let image = volume.disk().image(Loss::Unflushed);
                volume.replace(image).expect("it can be mounted");
            }
            let differences = compare(source.root(), &target, false).expect("two trees");
            assert!(differences.is_empty(), "{calls}, call {first}, {end:?}: {differences:#?}");
            fs::remove_dir_all(&target).expect("it is there");
            assert!(volume.write_back(), "there is room for the next");
            if !injected {
                break;
            }
        }
    }
    let name = file_system.name();
    println!(
        "measured: each call fails on {name}: {runs} failed, {failed} of the copies with them"
    );
    assert!(runs >= 8, "most of these calls are made: {runs}");
}

/// A file system that cannot commit turns read-only, or shuts itself down, and stays mounted. What
/// the kernel shows of the copy before is then not on the medium, however it is read.
pub fn cannot_commit(file_system: FileSystem) {
    if let Some(why) = volume::missing() {
        super::skip!("{why}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let home = dir.path().join("home");
    fs::create_dir(&home).expect("a directory");
    let shape = Shape { small: 30, medium: 1, large: false };
    let source = Source::new(dir.path().join("source"), "", shape, 1).expect("a tree");
    let most = if super::long() { 20 } else { 4 };
    for skip in 0..most {
        let mut volume = Volume::new(file_system, "").expect("a volume");
        let target = volume.path().join("copy");
        let mut copy = copy(&home, source.root(), &target);
        // All of it has its names, and waits for the medium.
        let [calls, what] = ["syncfs", "signal=KILL"].map(str::to_owned);
        copy.injection = Some(Injection { calls, what, first: 1, on: false });
        assert_eq!(copy.run().expect("it is started"), End::Killed);
        copy.injection = None;
        let operations = vec![Operation::WriteOther];
        let fault = Fault { operations, skip, count: u64::MAX, failure: Failure::Io };
        volume.disk().inject(fault);
        volume.write_back();
        volume.disk().mend();
        // As it is, and when the cache has forgotten what it can.
        for forget in [false, true] {
            if forget {
                volume.forget(&target);
            }
            let end = copy.run().expect("it is started");
            if end.is_done() {
                volume.replace(volume.disk().image(Loss::Unflushed)).expect("it is mounted");
                let differences = compare(source.root(), &target, false).expect("two trees");
                assert!(differences.is_empty(), "skip {skip}: {end:#?}: {differences:#?}");
                break;
            }
        }
        volume.remount().expect("it was mounted before");
        until_done(&mut volume, &copy);
    }
}
