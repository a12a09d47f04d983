//! What the file systems of the kernel make of a disk of the tests' own: without this, tests of
//! copies would show nothing.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use farhaul_faults::disk::{Failure, Fault, Loss, Operation};
use farhaul_faults::tree::{Shape, Source};
use farhaul_faults::{FileSystem, Volume, check, volume};

/// Ends the test where volumes cannot be made.
macro_rules! volumes_or_skip {
    () => {
        if let Some(why) = volume::missing() {
            eprintln!("skipped: {why}");
            return;
        }
    };
}

const SHAPE: Shape = Shape { small: 10, medium: 1, large: false };

#[test]
fn what_was_synced_survives_and_the_rest_does_not() {
    volumes_or_skip!();
    for file_system in FileSystem::ALL {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::new(dir.path().join("source"), "", SHAPE, 1).unwrap();
        let mut volume = Volume::new(file_system, "").unwrap();
        let path = volume.path().to_owned();
        let mut file = File::create(path.join("synced")).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        file.sync_all().unwrap();
        let flushes = volume.disk().counts().flushes;
        assert!(flushes > 0, "{file_system:?}: an fsync reaches the disk");
        let copied =
            Command::new("cp").arg("-a").arg(source.root()).arg(path.join("copy")).status();
        assert!(copied.unwrap().success());
        drop(file);
        let image = volume.disk().image(Loss::Unflushed);
        volume.replace(image).unwrap();
        assert_eq!(fs::read(path.join("synced")).unwrap(), [7; 100_000], "{file_system:?}");
        let lost = check::compare(source.root(), &path.join("copy"), true).unwrap();
        assert_ne!(lost, [] as [String; 0], "{file_system:?}");
    }
}

#[test]
fn content_that_the_disk_refuses_is_told_once_and_lost() {
    volumes_or_skip!();
    for file_system in FileSystem::ALL {
        for failure in [Failure::Io, Failure::NoSpace] {
            let dir = tempfile::tempdir().unwrap();
            let shape = Shape { small: 0, medium: 1, large: false };
            let source = Source::new(dir.path().join("source"), "", shape, 1).unwrap();
            let mut files = source.files().unwrap();
            files.retain(|path| path.ends_with("medium0"));
            let content = fs::read(&files[0]).unwrap();
            let mut volume = Volume::new(file_system, "").unwrap();
            let path = volume.path().join("copy");
            let operations = vec![Operation::WriteContent];
            volume.disk().inject(Fault { operations, skip: 0, count: 3, failure });
            fs::write(&path, &content).unwrap();
            let told = !volume.write_back();
            let counts = volume.disk().counts();
            assert!(told && counts.failed.content > 0, "{file_system:?} {failure:?}: {counts:?}");
            assert!(volume.write_back(), "{file_system:?} {failure:?}: it is told once");
            volume.disk().mend();
            volume.remount().unwrap();
            let read = fs::read(&path);
            assert!(read.is_err() || read.unwrap() != content, "{file_system:?} {failure:?}");
        }
    }
}

#[test]
fn a_volume_comes_back_from_any_moment() {
    volumes_or_skip!();
    for file_system in FileSystem::ALL {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::new(dir.path().join("source"), "", SHAPE, 1).unwrap();
        let mut volume = Volume::new(file_system, "").unwrap();
        for seed in 0..6 {
            let writes = 1 + 7 * seed;
            let loss = if seed % 3 == 0 { Loss::Nothing } else { Loss::Some(seed) };
            volume.disk().arm(writes, loss);
            let path = volume.path().join(format!("copy{seed}"));
            let copied = Command::new("cp").arg("-a").arg(source.root()).arg(&path).status();
            assert!(copied.unwrap().success());
            assert!(volume.write_back());
            let image = volume.disk().taken().unwrap_or_else(|| volume.disk().image(loss));
            volume.replace(image).unwrap();
        }
    }
}

#[test]
fn a_write_that_fails_in_part_is_told() {
    volumes_or_skip!();
    // What the disk takes for content, in one file that lies in one piece.
    let data = b"farhaul content\n".repeat(4 << 16);
    for file_system in FileSystem::ALL {
        let volume = Volume::new(file_system, "").unwrap();
        for skip in 0.. {
            let mut file = File::create(volume.path().join(format!("{skip}"))).unwrap();
            data.chunks(256 << 10).for_each(|chunk| file.write_all(chunk).unwrap());
            let before = volume.disk().counts().failed.content;
            let operations = vec![Operation::WriteContent];
            volume.disk().inject(Fault { operations, skip, count: 1, failure: Failure::Io });
            let synced = file.sync_all();
            volume.disk().mend();
            if volume.disk().counts().failed.content == before {
                assert!(skip > 3, "{file_system:?}: a write is several requests");
                break;
            }
            assert!(synced.is_err(), "{file_system:?}, request {skip}");
        }
    }
}

#[test]
fn a_mount_that_lives_on_elsewhere_writes_no_more() {
    volumes_or_skip!();
    for file_system in FileSystem::ALL {
        let mut volume = Volume::new(file_system, "").unwrap();
        assert!(volume.write_back());
        // In a mount namespace of its own, as `ip netns exec` makes one.
        let mut elsewhere = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c"])
            .arg("echo; read line; echo more > more; sync -f .; echo")
            .current_dir(volume.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(elsewhere.stdout.take().unwrap());
        told.read_line(&mut String::new()).unwrap();
        let image = volume.disk().image(Loss::Nothing);
        volume.replace(image).unwrap();
        let before = volume.disk().counts().writes;
        drop(elsewhere.stdin.take());
        told.read_line(&mut String::new()).unwrap();
        elsewhere.wait().unwrap();
        assert_eq!(volume.disk().counts().writes, before, "{file_system:?}");
        assert!(!volume.path().join("more").exists());
    }
}

#[test]
fn a_superblock_that_was_half_written_is_repaired() {
    volumes_or_skip!();
    let mut volume = Volume::new(FileSystem::Ext4, "").unwrap();
    let path = volume.path().join("f");
    fs::write(&path, "content").unwrap();
    assert!(volume.write_back());
    volume.unmount().unwrap();
    // Its second sector as power may leave it: the last four bytes are the checksum of all.
    let end = 1024 + 1020;
    volume.disk().write(end, &[0x5a; 4]).unwrap();
    volume.disk().flush().unwrap();
    volume.mount().unwrap();
    assert_eq!((volume.repaired(), fs::read_to_string(&path).unwrap()), (1, "content".to_owned()));
    volume.remount().unwrap();
    assert_eq!(volume.repaired(), 1);
}
