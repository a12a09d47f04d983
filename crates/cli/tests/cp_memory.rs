//! How much memory both sides of `farhaul cp` take at most.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use common::copying::{Scene, wait_until};
use common::process::Process;
use serde_json::Value;

/// What either side may take, bytes.
const MOST: u64 = 256 << 20;

/// A scene, or the test is skipped.
macro_rules! scene_or_skip {
    () => {
        match Scene::new() {
            Ok(scene) => scene,
            Err(why) => common::skip!("{why}"),
        }
    };
}

/// The most memory that a process has had so far, bytes; none once it has ended.
fn peak(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes << 10)
}

/// Runs to the end; the peaks of this side and the other.
fn peaks(scene: &Scene, run: Process) -> ([u64; 2], Value) {
    let before = scene.agents();
    let mut most = [0; 2];
    wait_until("the end", || {
        let agent = if scene.agents() >= before { scene.agents() } else { before };
        let agent = (agent > 0).then(|| scene.agent());
        let now = [Some(run.id()), agent].map(|pid| pid.and_then(peak));
        for (most, now) in most.iter_mut().zip(now) {
            *most = now.map_or(*most, |now| now.max(*most));
        }
        // A process that has ended has no memory.
        now[0].is_none() && most[0] > 0
    });
    (most, run.finish_well().json())
}

fn start(scene: &Scene, push: bool) -> Process {
    let (from, to) = match push {
        true => (scene.here("source"), scene.there("copy")),
        false => (scene.there("source"), scene.here("copy")),
    };
    scene.start(&["--json", &from, &to])
}

/// So many empty files, a thousand to a directory.
fn make_files(scene: &Scene, count: usize) {
    for number in 0..count {
        let directory = scene.path("source").join(format!("d{}", number / 1000));
        if number % 1000 == 0 {
            fs::create_dir_all(&directory).expect("a directory");
        }
        File::create(directory.join(format!("a file of a usual name {number}"))).expect("a file");
    }
}

#[test]
fn many_files_take_little_memory() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let (some, many) = if common::long() { (20_000, 1_000_000) } else { (5_000, 20_000) };
    let mut found = Vec::new();
    for count in [some, many] {
        make_files(&scene, count);
        for push in [true, false] {
            let (peaks, report) = peaks(&scene, start(&scene, push));
            assert_eq!(report["files"], count, "{report}");
            eprintln!(
                "measured: {count} files, push {push}: {peaks:?} bytes, {} s",
                report["seconds"]
            );
            found.push(peaks);
            fs::remove_dir_all(scene.path("copy")).expect("it is there");
        }
    }
    assert!(found.iter().flatten().all(|peak| (1..MOST).contains(peak)), "{found:?}");
    // What a file more takes, so that a million would fit as well; windows fill up to 16,384.
    let slope = |a: [u64; 2], b: [u64; 2]| {
        (0..2).map(|at| b[at].saturating_sub(a[at]) / (many - some) as u64).max().unwrap_or(0)
    };
    for (few, more) in [(found[0], found[2]), (found[1], found[3])] {
        let slope = slope(few, more);
        assert!(found[2].iter().max().unwrap_or(&0) + slope * 100_000 < MOST, "{slope}: {found:?}");
    }
}

#[test]
fn a_large_file_takes_little_memory() {
    let _turn = common::turn();
    let scene = scene_or_skip!();
    let data = if common::long() { 2 << 30 } else { 200 << 20 };
    for push in [true, false] {
        let file = File::create(scene.path("source")).expect("a file");
        file.set_len(100 << 30).expect("a hole");
        let piece = vec![b'x'; 1 << 20];
        for at in (0..data / piece.len() as u64).map(|at| at << 21) {
            file.write_all_at(&piece, at).expect("room for it");
        }
        let (peaks, report) = peaks(&scene, start(&scene, push));
        assert_eq!(report["ok"], true, "{report}");
        eprintln!("measured: a large file, push {push}: {peaks:?} bytes, {} s", report["seconds"]);
        assert!(peaks.iter().all(|peak| (1..MOST).contains(peak)), "{peaks:?}");
        fs::remove_file(scene.path("copy")).expect("it is there");
    }
}
