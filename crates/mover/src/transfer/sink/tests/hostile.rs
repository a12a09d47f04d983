//! Sources that nobody should trust, and targets that somebody meddles with.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;
use crate::frame::MAX_DEPTH;
use crate::transfer::memory::Account;
use crate::transfer::message::{Extra, MAX_XATTR_COUNT};

#[test]
fn names_that_lead_out_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    for name in [&b""[..], b".", b"..", b"a/b", b"/etc", b"a\0b", &[b'x'; 256]] {
        run(into(&inside), |source| {
            for what in [What::Directory, What::File { size: 0, sparse: false, origin: ORIGIN }] {
                let error = source.try_entry(name, 0o644, what).unwrap_err();
                assert!(matches!(error, TransferError::Violation(_)), "{error}");
            }
        })
        .1
        .unwrap();
    }
    assert_eq!(names(dir.path()), ["inside"]);
}

#[test]
fn odd_names_arrive_as_they_are_and_are_told_safely() {
    let dir = tempfile::tempdir().unwrap();
    run(into(dir.path()), |source| {
        source.small("a\x1b[2Jb\n", b"1");
        source.entry(&[b'x'; 255], 0o755, What::Directory);
        source.leave();
        let again = source.announce("a\x1b[2Jb\n", 1);
        let text = source.failed(again);
        assert!(text.contains("another entry of this name") && !text.contains('\x1b'), "{text}");
        assert_eq!(source.end().1, 1);
    })
    .1
    .unwrap();
    assert_eq!(tree(dir.path()).len(), 2);
}

#[test]
fn a_link_that_comes_into_the_path_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
    fs::create_dir_all(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    run(into(&inside), |source| {
        source.directory("d");
        let file = source.announce("f", 1);
        source.verdict(file);
        let inner = source.directory("inner");
        source.leave();
        source.leave();
        assert_eq!(inner, 2);
        // Enough others that the directory is closed.
        for number in 0..600 {
            source.directory(&format!("other{number}"));
            let other = source.announce("o", 1);
            source.leave();
            source.verdict(other);
        }
        fs::rename(inside.join("d"), dir.path().join("moved")).unwrap();
        symlink(&outside, inside.join("d")).unwrap();
        source.send(&[(whole_piece(file, b"x"), b"x")]).unwrap();
        assert!(source.failed(file).contains("no directory"));
    })
    .1
    .unwrap();
    assert!(names(&outside).is_empty());
}

#[test]
fn links_to_directories_are_not_entered() {
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
    fs::create_dir_all(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, inside.join("d")).unwrap();
    run(into(&inside), |source| {
        let directory = source.directory("d");
        let file = source.announce("f", 1);
        let expected = Verdict::Skip { reason: Skip::Failed, digest: None };
        assert_eq!(source.verdict(file), expected);
        source.leave();
        source.failed(directory);
        // One that the source sends itself.
        source.entry(b"l", 0o777, What::Symlink(b"../outside".to_vec()));
        let again = source.directory("l");
        source.failed(again);
        source.leave();
        assert_eq!(source.end().1, 3);
    })
    .1
    .unwrap();
    assert!(names(&outside).is_empty());
}

#[test]
fn pipes_and_directories_in_the_way_stay() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::create_dir(dir.path().join("directory")).unwrap();
    for existing in [Existing::Update, Existing::Overwrite, Existing::Checksum] {
        run(SinkOptions { existing, ..into(dir.path()) }, |source| {
            let file = source.announce("pipe", 0);
            assert!(source.failed(file).contains("a named pipe of this name is in the way"));
            let file = source.announce("directory", 3 * CHUNK);
            assert!(source.failed(file).contains("a directory of this name is in the way"));
            let link = source.entry(b"link", 0o777, What::Symlink(b"x".to_vec()));
            assert_eq!(link, 2);
            let directory = source.directory("pipe2");
            source.leave();
            assert_eq!((directory, source.end().1), (3, 2));
        })
        .1
        .unwrap();
    }
    assert!(!fs::symlink_metadata(&pipe).unwrap().is_file());
}

#[test]
fn our_own_names_cannot_be_sent() {
    let dir = tempfile::tempdir().unwrap();
    run(into(dir.path()), |source| {
        let file = source.announce(".farhaul-0123456789abcdef.journal", 1);
        assert!(source.failed(file).contains("not complete"));
        source.end();
    })
    .1
    .unwrap();
}

#[test]
fn sizes_without_end_cost_nothing() {
    let dir = tempfile::tempdir().unwrap();
    run(into(dir.path()), |source| {
        let size = i64::MAX as u64;
        for number in 0..3 {
            let name = format!("f{number}");
            let file = source.entry(
                name.as_bytes(),
                0o644,
                What::File { size, sparse: true, origin: ORIGIN },
            );
            // The kernel may refuse such a file, in its own words.
            source.world.wait(|m| match m {
                Message::Verdict { file: other, .. } if *other == file => Some(()),
                _ => None,
            });
        }
        assert_eq!(source.sink.tally().bytes, u64::MAX);
    })
    .1
    .unwrap();
    let options = SinkOptions { max_bytes: Some(1 << 40), ..into(dir.path()) };
    run(options, |source| {
        let what = What::File { size: 1 << 41, sparse: true, origin: ORIGIN };
        let error = source.try_entry(b"big", 0o644, what).unwrap_err();
        assert!(error.to_string().contains("more than the 1099511627776 bytes"), "{error}");
    })
    .1
    .unwrap();
}

#[test]
fn a_file_that_does_not_fit_is_told_and_takes_no_room_before_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _, world) = run(into(dir.path()), |source| {
        let file = source.announce("big", 1 << 60);
        assert_eq!(source.verdict(file), Verdict::Take { have: Vec::new() });
        let blocks = |entry: fs::DirEntry| entry.metadata().unwrap().blocks();
        let taken: u64 =
            fs::read_dir(dir.path()).unwrap().map(|entry| blocks(entry.unwrap())).sum();
        assert!(taken < 1000, "{taken}");
    });
    let told = world.told();
    assert!(told.iter().any(|told| told.contains("what fits is kept")), "{told:?}");
}

#[test]
fn endless_depth_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    run(into(dir.path()), |source| {
        for _ in 0..MAX_DEPTH {
            source.directory("d");
        }
        assert!(matches!(
            source.try_entry(b"d", 0o755, What::Directory),
            Err(TransferError::Violation(_))
        ));
    })
    .1
    .unwrap();
}

#[test]
fn many_entries_leave_nothing_behind_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    // All of them fail, or are skipped, so that it takes no time.
    let options = SinkOptions { dry_run: true, ..into(&dir.path().join("new")) };
    run(options, |source| {
        for number in 0..200_000 {
            source.announce(&format!("{number}"), 0);
            if number % 1000 == 0 {
                lock(&source.world.said).clear();
                lock(&source.world.told).clear();
            }
        }
        assert!(lock(&source.sink.files).is_empty());
        assert!(lock(&source.sink.recent).len() <= 1 << 15);
        lock(&source.world.said).clear();
        source.end();
    })
    .1
    .unwrap();
}

#[test]
fn too_many_unfinished_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    run(into(dir.path()), |source| {
        let error = (0..=entry::MAX_UNFINISHED)
            .find_map(|n| {
                let what = What::File { size: 1, sparse: false, origin: ORIGIN };
                source.try_entry(n.to_string().as_bytes(), 0o644, what).err()
            })
            .unwrap();
        assert!(matches!(error, TransferError::Violation(_)), "{error}");
    })
    .1
    .unwrap();
}

/// Sends two files whose names differ in capitals alone; the second fails where that is the same.
fn two_forms(source: &mut Script<'_>, folds: bool) {
    source.small("Name", b"1");
    let other = source.announce("nAME", 1);
    if folds {
        source.failed(other);
    } else {
        source.verdict(other);
        source.send(&[(whole_piece(other, b"2"), b"2")]).unwrap();
    }
}

#[test]
fn names_that_differ_in_case_collide_where_that_matters() {
    // Which directories fold capitals: each says it for itself.
    for folding in ["", "sub"] {
        let dir = tempfile::tempdir().unwrap();
        for name in ["sub/NAME", "sub/other", "NAME", "other"] {
            fs::create_dir_all(dir.path().join("sub")).unwrap();
            fs::write(dir.path().join(name), "old").unwrap();
        }
        let options = SinkOptions { delete: true, ..into(dir.path()) };
        let (receipt, worked, _) = run(options, |source| {
            lock(&source.sink.folding).insert(folding.into());
            two_forms(source, folding.is_empty());
            source.directory("sub");
            two_forms(source, !folding.is_empty());
            source.leave();
            source.end()
        });
        worked.unwrap();
        // What stands there by another form of a name that has come is that file where capitals fold.
        assert_eq!((receipt.1, receipt.2), (1, 3), "{folding:?}");
        let folded = dir.path().join(folding);
        assert!(folded.join("NAME").exists() && !folded.join("nAME").exists(), "{folding:?}");
        let other = dir.path().join(if folding.is_empty() { "sub" } else { "" });
        assert!(other.join("nAME").exists() && !other.join("NAME").exists(), "{folding:?}");
    }
}

#[test]
fn pieces_that_nobody_asked_for_are_violations() {
    let dir = tempfile::tempdir().unwrap();
    let data = noise(2 * CHUNK as usize + 1);
    run(into(dir.path()), |source| {
        let big = source.announce("big", data.len() as u64);
        let small = source.announce("small", 3);
        source.verdict(big);
        source.verdict(small);
        let chunk = &data[..CHUNK as usize];
        let piece = |entry, index| chunk_piece(entry, data.len() as u64, index, chunk);
        let bad = [
            (whole_piece(9, b"abc"), &b"abc"[..]),
            (whole_piece(small, b"ab"), b"ab"),
            (whole_piece(small, b"abcd"), b"abcd"),
            (whole_piece(big, b"abc"), b"abc"),
            (piece(small, 0), chunk),
            (piece(big, 2), chunk),
            (piece(big, 3), chunk),
            (piece(big, 1 << 40), chunk),
            (piece(big, 1), &chunk[1..]),
            (Piece { offset: 5, ..piece(big, 0) }, chunk),
        ];
        for (number, (piece, data)) in bad.into_iter().enumerate() {
            assert!(is_violation(source.send(&[(piece, data)])), "{number}");
        }
        let zeros = |file| source.say(Message::Zeros { file, first: 0, count: 1 });
        for file in [big, small, 9] {
            assert!(matches!(zeros(file), Err(TransferError::Violation(_))), "{file}");
        }
        assert!(matches!(source.file_end(small, b"abc"), Err(TransferError::Violation(_))));
        assert!(matches!(source.file_end(big, b"abc"), Err(TransferError::Violation(_))));
        assert!(is_violation(source.lane(&[0xff; 64])));
        assert!(matches!(source.lane(&[0; 5]), Err(LaneEnd::Broken(_))));
    })
    .1
    .unwrap();
}

#[test]
fn messages_out_of_place_are_violations() {
    let dir = tempfile::tempdir().unwrap();
    run(into(dir.path()), |source| {
        let tally = Tally::default();
        for message in [
            Message::Done,
            Message::Leave { complete: true },
            Message::FileDropped { file: 0 },
            Message::Same { file: 0 },
            Message::FileAgain {
                file: 3,
                attributes: attributes(0),
                size: 0,
                sparse: false,
                origin: ORIGIN,
            },
            Message::Stored { block: 1 },
        ] {
            let text = format!("{message:?}");
            let said = source.say(message);
            assert!(matches!(said, Err(TransferError::Violation(_))), "{text}");
        }
        source.directory("d");
        let end = || source.say(Message::End { tally, omitted: 0, complete: true });
        assert!(matches!(end(), Err(TransferError::Violation(_))));
        source.leave();
        assert!(matches!(end(), Err(TransferError::Receipt)));
        source.end();
        assert!(source.try_entry(b"late", 0o644, What::Directory).is_err());
    })
    .1
    .unwrap();
}

#[test]
fn entries_that_may_not_be_written_fail_alone() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make what is closed to others");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(dir.path(), 0o777).unwrap();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    mode(&closed, 0o555).unwrap();
    // A thread without the rights of root, and those that it starts.
    let script = || {
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        run(into(dir.path()), |source| {
            source.directory("closed");
            let file = source.announce("f", 1);
            source.verdict(file);
            source.send(&[(whole_piece(file, b"x"), b"x")]).unwrap();
            assert_eq!(source.failed(file), "closed/f: Permission denied");
            let directory = source.directory("d");
            assert!(source.failed(directory).contains("Permission denied"));
            source.leave();
            source.leave();
            source.small("last", b"2");
            assert_eq!(source.end().1, 2);
        })
        .1
        .unwrap();
    };
    thread::scope(|threads| threads.spawn(script).join().unwrap());
    assert_eq!(names(dir.path()), ["closed", "last"]);
}

/// A file system of its own, gone with the value.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_full_disk_ends_it_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let size = c"size=1m";
    if let Err(error) = mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), size) {
        eprintln!("skipped: a small file system cannot be mounted: {error}");
        return;
    }
    let _mounted = Mounted(dir.path().into());
    run(into(dir.path()), |source| {
        source.small("first", &noise(600_000));
        let data = noise(600_000);
        let file = source.announce("second", data.len() as u64);
        source.verdict(file);
        let end = source.send(&[(whole_piece(file, &data), &data)]);
        let Err(LaneEnd::Fatal(error)) = end else { panic!("{end:?}") };
        let text = error.to_string();
        assert!(text.contains("second") && text.contains("make room"), "{text}");
    })
    .1
    .unwrap();
    assert!(dir.path().join("first").exists() && !dir.path().join("second").exists());
}

/// What a source may make a sink keep, in tests of that.
fn of_memory(path: &Path, limit: u64) -> SinkOptions {
    SinkOptions { memory: Arc::new(Account::new(limit)), ..into(path) }
}

fn is_memory(error: &TransferError) -> bool {
    matches!(error, TransferError::Memory { .. })
}

#[test]
fn pieces_ahead_of_all_streams_together_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let options = of_memory(dir.path(), 8 << 20);
    let memory = Arc::clone(&options.memory);
    run(options, |source| {
        let data = vec![7; CHUNK as usize];
        for stream in 0..4u64 {
            let file = source.entry(format!("s{stream}").as_bytes(), 0o644, What::Stream);
            assert_eq!(source.verdict(file), Verdict::Take { have: Vec::new() });
            for at in 1..=2 {
                let hash = whole(&data);
                let offset = at * CHUNK;
                let piece =
                    Piece { entry: file, offset, length: 0, whole: false, version: 0, hash };
                source.send(&[(piece, &data)]).unwrap();
            }
        }
        // Half of it is for what cannot come again.
        assert!(memory.used() > 1 << 20 && memory.used() <= 4 << 20, "{}", memory.used());
        source.world.wait(|said| matches!(said, Message::Damaged { .. }).then_some(()));
    })
    .1
    .unwrap();
    assert!(memory.used() < 1000, "only names: {}", memory.used());
}

#[test]
fn attributes_are_charged_at_what_they_take() {
    let dir = tempfile::tempdir().unwrap();
    let options = of_memory(dir.path(), 4 << 20);
    let memory = Arc::clone(&options.memory);
    let preserve = Preserve { xattrs: true, ..Preserve::default() };
    run(SinkOptions { preserve, ..options }, |source| {
        // 10,000 bytes of names take a megabyte.
        for number in 0..3 {
            let xattrs = vec![(vec![b'x'], Vec::new()); 10_000];
            let extra = Some(Box::new(Extra { owner: None, xattrs }));
            let what = What::File { size: 9, sparse: false, origin: ORIGIN };
            let name = format!("f{number}").into_bytes();
            let entry = Entry { name, attributes: attributes(0o644), extra, what };
            source.say(Message::Entry(entry)).unwrap();
        }
        assert!(memory.used() > 1 << 20 && memory.used() <= 2 << 20, "{}", memory.used());
    })
    .1
    .unwrap();
    let mut bytes = Vec::new();
    let xattrs = vec![(vec![b'x'], Vec::new()); MAX_XATTR_COUNT + 1];
    let extra = Some(Box::new(Extra { owner: None, xattrs }));
    let entry =
        Entry { name: b"f".into(), attributes: attributes(0o644), extra, what: What::Stream };
    Message::Entry(entry).encode(&mut bytes);
    assert!(Message::decode(&bytes).is_err(), "more than there can be");
}

#[test]
fn damaged_chunks_are_counted_only_within_the_account() {
    let dir = tempfile::tempdir().unwrap();
    run(of_memory(dir.path(), 2 << 20), |source| {
        let file = source.entry(b"s", 0o644, What::Stream);
        source.verdict(file);
        let wrong = |at: u64| {
            let hash = whole(b"right");
            let offset = at * CHUNK;
            (Piece { entry: file, offset, length: 0, whole: false, version: 0, hash }, &b"w"[..])
        };
        let ended = (0..100u64).find_map(|block| {
            let pieces: Vec<_> = (block * 1000..(block + 1) * 1000).map(wrong).collect();
            source.send(&pieces).err()
        });
        let Some(LaneEnd::Fatal(error)) = ended else { panic!("{ended:?}") };
        assert!(is_memory(&error), "{error}");
    })
    .1
    .unwrap();
}

#[test]
fn entries_and_directories_under_way_are_charged() {
    let dir = tempfile::tempdir().unwrap();
    run(of_memory(dir.path(), 1 << 20), |source| {
        let what = || What::File { size: 1, sparse: false, origin: ORIGIN };
        let ended = (0..10_000)
            .find_map(|at| source.try_entry(format!("{at}").as_bytes(), 0, what()).err());
        assert!(ended.as_ref().is_some_and(is_memory), "{ended:?}");
    })
    .1
    .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let options = of_memory(dir.path(), 16 << 10);
    let memory = Arc::clone(&options.memory);
    run(options, |source| {
        for at in 0..100 {
            let _ = source.try_entry(format!("{at}").as_bytes(), 0o755, What::Directory);
        }
        assert!(memory.check().is_err(), "{}", memory.used());
    })
    .1
    .unwrap();
}

#[test]
fn more_entries_than_allowed_end_the_session() {
    let dir = tempfile::tempdir().unwrap();
    run(SinkOptions { max_entries: Some(2), ..into(dir.path()) }, |source| {
        source.directory("a");
        source.leave();
        source.directory("b");
        source.leave();
        let ended = source.try_entry(b"c", 0o755, What::Directory);
        assert!(matches!(ended, Err(TransferError::Stopped(_))), "{ended:?}");
    })
    .1
    .unwrap();
    assert_eq!(names(dir.path()), ["a", "b"]);
}

/// A box for new files, to which the source with this number brings some.
fn box_of(path: &Path, owner: u8) -> SinkOptions {
    let preserve = Preserve { hard_links: true, ..Preserve::default() };
    let existing = Existing::Refuse;
    SinkOptions { owner: Some([owner; 32]), existing, preserve, ..into(path) }
}

#[test]
fn in_a_box_only_own_files_get_further_names() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("report"), "another's").unwrap();
    let before = fs::metadata(dir.path().join("report")).unwrap();
    run(box_of(dir.path(), 1), |source| {
        let file = source.announce("report", 9);
        let kept = Verdict::Skip { reason: Skip::Exists, digest: None };
        assert_eq!(source.verdict(file), kept);
        let stolen = source.entry(b"stolen", 0o644, What::HardLink { to: file });
        source.failed(stolen);
        let own = source.small("own", b"mine");
        source.entry(b"again", 0o644, What::HardLink { to: own });
        assert_eq!(source.end().1, 1);
    })
    .1
    .unwrap();
    assert_eq!(names(dir.path()), ["again", "own", "report"]);
    let after = fs::metadata(dir.path().join("report")).unwrap();
    assert_eq!((after.nlink(), after.ctime_nsec()), (1, before.ctime_nsec()));
}

#[test]
fn in_a_box_links_whose_names_are_taken_have_failed() {
    for existing in [Existing::Refuse, Existing::Keep] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("taken"), "another's").unwrap();
        symlink("elsewhere", dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("directory")).unwrap();
        run(SinkOptions { existing, ..box_of(dir.path(), 1) }, |source| {
            let own = source.small("own", b"mine");
            let symlink = || What::Symlink(b"elsewhere".to_vec());
            for (name, link) in [
                (&b"taken"[..], symlink()),
                (b"link", What::HardLink { to: own }),
                (b"directory", symlink()),
            ] {
                let number = source.entry(name, 0o777, link);
                if existing == Existing::Refuse {
                    source.failed(number);
                }
            }
            let expected = if existing == Existing::Refuse { 3 } else { 0 };
            assert_eq!(source.end().1, expected);
        })
        .1
        .unwrap();
        assert_eq!(fs::read(dir.path().join("taken")).unwrap(), b"another's");
        assert_eq!(fs::metadata(dir.path().join("own")).unwrap().nlink(), 1);
    }
}

#[test]
fn in_a_box_a_name_that_another_took_meanwhile_is_not_a_way_to_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("name");
    run(box_of(dir.path(), 1), |source| {
        // Free when it is announced, and taken when it comes.
        let file = source.announce("name", 4);
        assert_eq!(source.verdict(file), Verdict::Take { have: Vec::new() });
        fs::write(&path, "another's").unwrap();
        source.send(&[(whole_piece(file, b"mine"), b"mine")]).unwrap();
        source.failed(file);
        let stolen = source.entry(b"stolen", 0o644, What::HardLink { to: file });
        source.failed(stolen);
        source.end();
    })
    .1
    .unwrap();
    assert_eq!(names(dir.path()), ["name"]);
    assert_eq!(fs::read(&path).unwrap(), b"another's");
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
}

#[test]
fn in_a_box_directories_of_others_keep_their_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let (theirs, new) = (dir.path().join("theirs"), dir.path().join("theirs/new"));
    fs::create_dir(&theirs).unwrap();
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o751)).unwrap();
    run(box_of(dir.path(), 1), |source| {
        source.entry(b"theirs", 0o777, What::Directory);
        source.small("new", b"mine");
        source.leave();
        source.end();
    })
    .1
    .unwrap();
    assert_eq!(fs::read(&new).unwrap(), b"mine");
    let there = fs::metadata(&theirs).unwrap();
    assert_eq!(there.mode() & 0o7777, 0o751);
    assert_ne!(there.mtime(), TIME.seconds, "nor is it given a time");
}

#[test]
fn in_a_box_partial_files_are_their_owners() {
    let dir = tempfile::tempdir().unwrap();
    let data = vec![7; 3 * CHUNK as usize];
    let chunk = |file| {
        let data = &data[..CHUNK as usize];
        let hash = leaf(3 * CHUNK, false, 0, data);
        Piece { entry: file, offset: 0, length: 0, whole: false, version: 0, hash }
    };
    let have = |verdict| match verdict {
        Verdict::Take { have } => have.len(),
        other => panic!("{other:?}"),
    };
    // Both are there at once, and neither waits for the other.
    run(box_of(dir.path(), 1), |alice| {
        let file = alice.announce("big", 3 * CHUNK);
        assert_eq!(have(alice.verdict(file)), 0);
        alice.send(&[(chunk(file), &data[..CHUNK as usize])]).unwrap();
        run(box_of(dir.path(), 2), |bob| {
            let file = bob.announce("big", 3 * CHUNK);
            assert_eq!(have(bob.verdict(file)), 0, "what alice has left is not told");
        })
        .1
        .unwrap();
    })
    .1
    .unwrap();
    run(box_of(dir.path(), 1), |alice| {
        let file = alice.announce("big", 3 * CHUNK);
        assert_eq!(have(alice.verdict(file)), 1, "it is hers");
    })
    .1
    .unwrap();
}

#[test]
fn in_a_box_nothing_stays_of_a_file_whose_name_another_has() {
    let data: Vec<u8> = (0..3 * CHUNK).map(|at| at as u8).collect();
    let left = |path: &Path| {
        let ends = [".part", ".journal"];
        let all = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        all.filter(|name| ends.iter().any(|end| name.to_str().unwrap().ends_with(end))).count()
    };
    // It was interrupted, and comes again.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("big");
    run(box_of(dir.path(), 1), |alice| {
        let file = alice.announce("big", 3 * CHUNK);
        alice.verdict(file);
        alice.chunk(file, 0, &data).unwrap();
    })
    .1
    .unwrap();
    assert_eq!(left(dir.path()), 2);
    fs::write(&path, "bob's").unwrap();
    // Bob's own is no reason to remove hers.
    for (owner, stay) in [(2, 2), (1, 0)] {
        run(box_of(dir.path(), owner), |source| {
            let file = source.announce("big", 3 * CHUNK);
            let kept = Verdict::Skip { reason: Skip::Exists, digest: None };
            assert_eq!(source.verdict(file), kept);
        })
        .1
        .unwrap();
        assert_eq!(left(dir.path()), stay, "{owner}");
    }
    // The name is taken while it comes.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("big");
    run(box_of(dir.path(), 1), |alice| {
        let file = alice.announce("big", 3 * CHUNK);
        alice.verdict(file);
        fs::write(&path, "bob's").unwrap();
        (0..3).for_each(|index| alice.chunk(file, index, &data).unwrap());
        alice.file_end(file, &data).unwrap();
        alice.failed(file);
    })
    .1
    .unwrap();
    assert_eq!(left(dir.path()), 0);
    assert_eq!(fs::read(&path).unwrap(), b"bob's");
}

/// A source that does not keep to its own limit of notes: neither a log nor a terminal is flooded.
#[test]
fn a_source_that_says_too_much_is_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let (_, worked, world) = run(into(dir.path()), |source| {
        for n in 0..10_000 {
            let about = if n % 2 == 0 { About::Failure } else { About::Remark };
            source.sink.message(Message::Note { about, text: "noise".into() }).unwrap();
        }
    });
    worked.unwrap();
    let told = lock(&world.told);
    let count = |text: &str| told.iter().filter(|line| line.contains(text)).count() as u64;
    assert_eq!(count("failed"), MAX_NOTES);
    assert_eq!(count("note noise"), 2 * MAX_NOTES);
    assert_eq!(told.len() as u64, 3 * MAX_NOTES + 2, "and one line each that says so");
}
