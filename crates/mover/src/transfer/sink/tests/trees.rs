//! Whole trees, and what is deleted of them.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

#[test]
fn a_tree_arrives_with_its_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let (receipt, worked, world) = run(into(dir.path()), |source| {
        source.entry(b"tree", 0o550, What::Directory);
        source.small("one", b"1");
        source.small("empty", b"");
        source.entry(b"link", 0o777, What::Symlink(b"../../nowhere".to_vec()));
        source.directory("inner");
        let data = noise(3 * CHUNK as usize + 5);
        let big = source.announce("big", data.len() as u64);
        assert_eq!(source.verdict(big), Verdict::Take { have: Vec::new() });
        source.leave();
        source.leave();
        for index in [2, 0, 3, 1, 2] {
            source.chunk(big, index, &data).unwrap();
        }
        source.file_end(big, &data).unwrap();
        source.finished(big);
        let receipt = source.end();
        assert_eq!(source.sink.progress().files, 3);
        assert_eq!(source.sink.progress().bytes, data.len() as u64 + 1);
        receipt
    });
    worked.unwrap();
    assert_eq!((receipt.1, receipt.2), (0, 0));
    let expected = ["tree", "tree/empty", "tree/inner", "tree/inner/big", "tree/link", "tree/one"];
    assert_eq!(names(dir.path()), expected);
    assert!(tree(dir.path())[Path::new("tree/inner/big")] == Some(noise(3 * CHUNK as usize + 5)));
    for (name, mode) in [("tree", 0o550), ("tree/inner", 0o755), ("tree/one", 0o644)] {
        let meta = fs::metadata(dir.path().join(name)).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.mtime()), (mode, TIME.seconds), "{name}");
    }
    assert_eq!(world.told(), ["tree/empty moved", "tree/inner/big moved", "tree/one moved"]);
    // So that it can be removed.
    fs::set_permissions(dir.path().join("tree"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_is_there_is_not_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let once = |existing, expected: Verdict| {
        let options = SinkOptions { existing, ..into(dir.path()) };
        run(options, |source| {
            source.directory("d");
            let file = source.announce("f", 7);
            let verdict = source.verdict(file);
            assert_eq!(verdict, expected, "{existing:?}");
            match verdict {
                Verdict::Take { .. } => {
                    source.send(&[(whole_piece(file, b"content"), b"content")]).unwrap();
                }
                Verdict::Compare { .. } => drop(source.say(Message::Same { file }).unwrap()),
                _ => {}
            }
            source.leave();
            source.end();
        })
        .1
        .unwrap();
    };
    let take = || Verdict::Take { have: Vec::new() };
    once(Existing::Update, take());
    let path = dir.path().join("d/f");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    once(Existing::Update, Verdict::Skip { reason: Skip::Same, digest: None });
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644, "its mode is put right");
    once(Existing::Checksum, Verdict::Compare { digest: whole(b"content") });
    once(Existing::Keep, Verdict::Skip { reason: Skip::Exists, digest: None });
    once(Existing::Overwrite, take());
    fs::write(&path, "Content").unwrap();
    once(Existing::Update, take());
    fs::write(&path, "longer content").unwrap();
    once(Existing::Checksum, take());
    assert_eq!(fs::read(&path).unwrap(), b"content");
}

#[test]
fn receipts_can_have_digests_of_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "content").unwrap();
    let there = fs::File::options().write(true).open(dir.path().join("f")).unwrap();
    let time = Duration::new(TIME.seconds as u64, TIME.nanoseconds);
    there.set_modified(std::time::UNIX_EPOCH + time).unwrap();
    let digest = Some(whole(b"content"));
    for (existing, size, verdict) in [
        (Existing::Update, 7, Verdict::Skip { reason: Skip::Same, digest }),
        // One that is left alone is none of the source's.
        (Existing::Keep, 100, Verdict::Skip { reason: Skip::Exists, digest: None }),
    ] {
        let options = SinkOptions { existing, want_digests: true, ..into(dir.path()) };
        run(options, |source| {
            let file = source.announce("f", size);
            assert_eq!(source.verdict(file), verdict);
            source.end();
        })
        .1
        .unwrap();
    }
}

#[test]
fn a_transfer_whose_peer_is_away_leaves_no_mark() {
    let dir = tempfile::tempdir().unwrap();
    // Gone with its directory at any moment.
    let marks =
        || fs::read_dir(dir.path().join(crate::temporary::UNSYNCED)).map_or(0, Iterator::count);
    run(into(dir.path()), |source| {
        for (round, name) in ["f", "g"].into_iter().enumerate() {
            source.small(name, b"content");
            assert_eq!(marks(), 1, "after round {round}");
            source.sink.connected(false).unwrap();
            let limit = Instant::now() + Duration::from_secs(60);
            while marks() > 0 {
                assert!(Instant::now() < limit, "it stays");
                thread::sleep(Duration::from_millis(1));
            }
            source.sink.connected(true).unwrap();
        }
        source.end();
    })
    .1
    .unwrap();
    assert_eq!(names(dir.path()), ["f", "g"]);
}

fn old_tree(dir: &Path) {
    fs::create_dir_all(dir.join("d/old/deep")).unwrap();
    for name in ["d/keep", "d/old/deep/file", "d/gone", "beside"] {
        fs::write(dir.join(name), name).unwrap();
    }
    symlink("/", dir.join("d/root")).unwrap();
    fs::write(dir.join("d/.farhaul-0123456789abcdef.part"), "young").unwrap();
    fs::write(dir.join("d/.farhaul-0123456789abcdee.part"), "old").unwrap();
    let file = fs::File::options().write(true).open(dir.join("d/.farhaul-0123456789abcdee.part"));
    file.unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
}

#[test]
fn what_the_source_does_not_have_is_deleted_if_asked() {
    for (delete, dry_run, complete) in
        [(true, false, true), (true, true, true), (true, false, false), (false, false, true)]
    {
        let dir = tempfile::tempdir().unwrap();
        old_tree(dir.path());
        let before = names(dir.path());
        let options = SinkOptions { delete, dry_run, ..into(dir.path()) };
        let ((_, failed, deleted), worked, world) = run(options, |source| {
            source.directory("d");
            let file = source.announce("keep", 6);
            source.verdict(file);
            if !dry_run {
                source.send(&[(whole_piece(file, b"d/keep"), b"d/keep")]).unwrap();
            }
            source.say(Message::Leave { complete }).unwrap();
            source.end_with(false)
        });
        worked.unwrap();
        let told = world.told();
        let told: Vec<_> = told.iter().filter(|line| line.starts_with("deleted")).collect();
        if !delete || !complete {
            assert_eq!((names(dir.path()), deleted, told.len()), (before, 0, 0));
            continue;
        }
        assert_eq!((failed, deleted), (0, 6));
        let expected = [
            "deleted d/.farhaul-0123456789abcdee.part",
            "deleted d/gone",
            "deleted d/old",
            "deleted d/root",
        ];
        assert_eq!(told, expected.iter().collect::<Vec<_>>());
        if dry_run {
            assert_eq!(names(dir.path()), before);
        } else {
            let left = ["beside", "d", "d/.farhaul-0123456789abcdef.part", "d/keep"];
            assert_eq!(names(dir.path()), left);
        }
        assert!(Path::new("/usr").exists());
    }
}

#[test]
fn the_target_itself_is_cleared_when_its_content_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("gone"), "").unwrap();
    let options = SinkOptions { delete: true, ..into(dir.path()) };
    run(options, |source| {
        source.small("new", b"1");
        source.end_with(true)
    })
    .1
    .unwrap();
    assert_eq!(names(dir.path()), ["new"]);
    // But not what is beside a file that gets a name of its own.
    let path = dir.path().join("name");
    let target = SinkTarget::Path { path, directory: false };
    let options = SinkOptions { delete: true, ..SinkOptions::new(target) };
    run(options, |source| {
        source.small("x", b"2");
        source.end_with(true)
    })
    .1
    .unwrap();
    assert_eq!(names(dir.path()), ["name", "new"]);
}

#[test]
fn a_dry_run_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("there")).unwrap();
    fs::write(dir.path().join("there/f"), "old").unwrap();
    let before = tree(dir.path());
    let options = SinkOptions { dry_run: true, existing: Existing::Checksum, ..into(dir.path()) };
    let (_, worked, world) = run(options, |source| {
        source.directory("there");
        let same = source.announce("f", 3);
        source.leave();
        source.directory("new");
        source.directory("newer");
        let big = source.announce("big", 10 * CHUNK);
        source.entry(b"link", 0o777, What::Symlink(b"x".to_vec()));
        source.leave();
        source.leave();
        assert_eq!(source.verdict(big), Verdict::Take { have: Vec::new() });
        assert_eq!(source.verdict(same), Verdict::Compare { digest: whole(b"old") });
        source.say(Message::Same { file: same }).unwrap();
        source.end();
    });
    worked.unwrap();
    assert_eq!(tree(dir.path()), before);
    assert_eq!(world.told(), ["new/newer/big moved", "there/f same"]);
}

#[test]
fn many_directories_need_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let open = || fs::read_dir("/proc/self/fd").map_or(0, |fds| fds.count());
    run(into(dir.path()), |source| {
        let before = open();
        let mut files = Vec::new();
        for number in 0..1500 {
            source.directory(&format!("d{number}"));
            source.directory("inner");
            files.push(source.announce("f", 2));
            source.leave();
            source.leave();
        }
        // Other tests run beside this one.
        assert!(open() < before + 1000, "{} and {before} before", open());
        for file in files.into_iter().rev() {
            source.send(&[(whole_piece(file, b"hi"), b"hi")]).unwrap();
        }
        source.end();
    })
    .1
    .unwrap();
    let tree = tree(dir.path());
    assert_eq!(tree.len(), 4500);
    for number in 0..1500 {
        let meta = fs::metadata(dir.path().join(format!("d{number}"))).unwrap();
        assert_eq!(meta.mtime(), TIME.seconds, "bottom-up, so that the times stay");
    }
}
