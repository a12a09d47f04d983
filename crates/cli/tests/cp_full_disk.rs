//! `farhaul cp` to a file system that is too small.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::copying::{Scene, make_file};

/// A file system of this size; taken away when it is dropped.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf, size: &str) -> Result<Small, String> {
        fs::create_dir(&at).expect("a directory");
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(&at)
            .output()
            .map_err(|error| error.to_string())?;
        match mounted.status.success() {
            true => Ok(Small(at)),
            false => Err(String::from_utf8_lossy(&mounted.stderr).trim().to_owned()),
        }
    }

    fn resize(&self, size: &str) {
        let options = format!("remount,size={size}");
        let mut command = Command::new("mount");
        assert!(command.args(["-o", &options]).arg(&self.0).status().expect("mount").success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_told_and_the_copy_goes_on_when_there_is_room() {
    let scene = match Scene::new() {
        Ok(scene) => scene,
        Err(why) => common::skip!("{why}"),
    };
    let disk = match Small::mount(scene.path("disk"), "24m") {
        Ok(disk) => disk,
        Err(why) => common::skip!("no file system of a test's own can be mounted: {why}"),
    };
    for push in [true, false] {
        let source = scene.path("source");
        fs::create_dir_all(&source).expect("a directory");
        make_file(&source.join("a"), 15 << 20, 1);
        make_file(&source.join("b"), 15 << 20, 2);
        for small in 0..50 {
            make_file(&source.join(format!("c{small}")), 100_000, small);
        }
        let (from, to) = match push {
            true => (scene.here("source"), scene.there("disk")),
            false => (scene.there("source"), scene.here("disk")),
        };
        let args = ["--json", &from, &to];
        let ended = scene.start(&args).finish();
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        let told = |line: &String| line.contains("No space left") && line.contains("make room");
        assert!(ended.errors.iter().any(told), "{ended:#?}");
        let told = ended.errors.join("\n");
        assert_eq!(told.matches("the same command goes on").count(), 1, "{told}");
        assert_eq!(ended.json()["ok"], false, "{ended:#?}");
        disk.resize("100m");
        let report = scene.start(&args).finish_well().json();
        let number = |name: &str| report[name].as_u64().expect("a number");
        let kept = number("resumed_bytes") + number("bytes") - number("moved_bytes");
        assert!(kept > 10 << 20, "what fitted is not moved again: {report}");
        common::copying::assert_same(&source, &scene.path("disk/source"));
        fs::remove_dir_all(scene.path("disk/source")).expect("it is there");
        disk.resize("24m");
    }
}

#[test]
fn what_fits_of_a_file_is_kept() {
    let scene = match Scene::new() {
        Ok(scene) => scene,
        Err(why) => common::skip!("{why}"),
    };
    let disk = match Small::mount(scene.path("disk"), "8m") {
        Ok(disk) => disk,
        Err(why) => common::skip!("no file system of a test's own can be mounted: {why}"),
    };
    make_file(&scene.path("file"), 12 << 20, 1);
    for push in [true, false] {
        let (from, to) = match push {
            true => (scene.here("file"), scene.there("disk/copy")),
            false => (scene.there("file"), scene.here("disk/copy")),
        };
        let args = ["--json", &from, &to];
        let ended = scene.start(&args).finish();
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        for part in ["there is room for", "No space left"] {
            assert_eq!(
                ended.errors.iter().filter(|line| line.contains(part)).count(),
                1,
                "{ended:#?}"
            );
        }
        disk.resize("50m");
        let report = scene.start(&args).finish_well().json();
        assert!(report["resumed_bytes"].as_u64() > Some(5 << 20), "{report}");
        let [from, to] = ["file", "disk/copy"].map(|name| fs::read(scene.path(name)).expect(name));
        assert!(from == to, "the copy differs");
        fs::remove_file(scene.path("disk/copy")).expect("it is there");
        disk.resize("8m");
    }
}
