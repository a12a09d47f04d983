//! What other copies may not have got to the medium.

use std::cell::Cell;

use rustix::io::Errno;

use super::*;
use crate::temporary::UNSYNCED;

const A: CopyId = [0xa; 16];
const B: CopyId = [0xb; 16];
const CONTENT: &[u8] = b"content";

fn copy(target: &Path, copy: CopyId) -> SinkOptions {
    SinkOptions { copy, ..into(target) }
}

fn marks(dir: &Path) -> usize {
    names(dir).into_iter().filter(|name| name.ends_with(".unsynced")).count()
}

/// A copy that ends before its sync: it has stored these files, each in directories of its own.
fn cut_off(target: &Path, id: CopyId, paths: &[&str]) {
    run(copy(target, id), |source| {
        walk(source, paths, |source, name| {
            source.small(name, CONTENT);
        })
    })
    .1
    .unwrap();
    assert!(marks(target) > 0);
}

/// Announces files with the directories that they are in; those of one directory come together.
fn walk(source: &mut Script<'_>, paths: &[&str], mut file: impl FnMut(&mut Script<'_>, &str)) {
    let mut at: Vec<&str> = Vec::new();
    for path in paths {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let above: Vec<&str> = above.split('/').filter(|name| !name.is_empty()).collect();
        let same = at.iter().zip(&above).take_while(|(here, there)| here == there).count();
        (same..at.len()).for_each(|_| source.leave());
        for name in &above[same..] {
            source.directory(name);
        }
        file(source, name);
        at = above;
    }
    at.iter().for_each(|_| source.leave());
}

/// What the machine has lost of a file, and its size and time do not tell.
fn lose(path: &Path) {
    fs::write(path, vec![0; CONTENT.len()]).unwrap();
    let time = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// A copy that ends well: how many of the files it compared, and how many came again.
fn again(target: &Path, id: CopyId, paths: &[&str]) -> (u32, u32) {
    let (compared, moved) = (Cell::new(0), Cell::new(0));
    run(copy(target, id), |source| {
        walk(source, paths, |source, name| {
            let file = source.announce(name, CONTENT.len() as u64);
            let differs = match source.verdict(file) {
                Verdict::Skip { .. } => return,
                Verdict::Take { .. } => true,
                Verdict::Compare { digest } => {
                    compared.set(compared.get() + 1);
                    digest != whole(CONTENT)
                }
            };
            if differs {
                moved.set(moved.get() + 1);
                source.send(&[(whole_piece(file, CONTENT), CONTENT)]).unwrap();
            } else {
                source.say(Message::Same { file }).unwrap();
            }
        });
        source.end();
    })
    .1
    .unwrap();
    for path in paths {
        assert_eq!(fs::read(target.join(path)).unwrap(), CONTENT, "{path}");
    }
    (compared.get(), moved.get())
}

#[test]
fn two_copies_into_one_directory_that_were_cut_off_doubt_until_each_has_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (of_a, of_b) = (["d/a", "d/a2"], ["d/b", "d/b2"]);
    cut_off(dir.path(), A, &of_a);
    cut_off(dir.path(), B, &of_b);
    assert_eq!(marks(dir.path()), 2);
    lose(&dir.path().join("d/a2"));
    lose(&dir.path().join("d/b"));
    assert_eq!(again(dir.path(), A, &of_a), (2, 1));
    assert_eq!(marks(dir.path()), 1, "the other's mark stays");
    assert_eq!(again(dir.path(), A, &of_a), (0, 0), "it has compared what is its own");
    assert_eq!(again(dir.path(), B, &of_b), (2, 1));
    assert_eq!(again(dir.path(), B, &of_b), (0, 0));
    assert_eq!(names(dir.path()), ["d", "d/a", "d/a2", "d/b", "d/b2"]);
}

#[test]
fn a_copy_that_is_not_known_again_leaves_marks_and_doubts() {
    let dir = tempfile::tempdir().unwrap();
    cut_off(dir.path(), CopyId::default(), &["f"]);
    for _ in 0..2 {
        assert_eq!(again(dir.path(), CopyId::default(), &["f"]), (1, 0));
        assert_eq!(marks(dir.path()), 1);
    }
}

#[test]
fn marks_are_seen_above_and_below_and_cover_what_they_name() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    cut_off(&target, A, &["sub/deep/f", "sub/g"]);
    fs::create_dir(target.join("other")).unwrap();
    for path in ["sub/deep/f", "other/f"] {
        lose(&target.join(path));
    }
    // A part of what was cut off.
    assert_eq!(again(&target.join("sub"), B, &["deep/f", "g"]), (2, 1));
    assert_eq!(again(&target.join("sub"), B, &["deep/f", "g"]), (0, 0));
    // Beside it: not covered.
    fs::write(target.join("other/f"), CONTENT).unwrap();
    lose(&target.join("other/f"));
    let verdict = run(copy(&target.join("other"), B), |source| {
        let file = source.announce("f", CONTENT.len() as u64);
        source.verdict(file)
    });
    assert!(matches!(verdict.0, Verdict::Skip { reason: Skip::Same, .. }), "{:?}", verdict.0);
    // All that is above it.
    lose(&target.join("sub/g"));
    assert_eq!(again(dir.path(), [0xc; 16], &["t/sub/deep/f", "t/sub/g"]), (2, 1));
    assert_eq!(marks(dir.path()), 1);
    fs::remove_file(target.join("other/f")).unwrap();
    assert_eq!(again(&target, A, &["sub/deep/f", "sub/g"]), (2, 0));
    assert_eq!(marks(dir.path()), 0);
}

#[test]
fn neither_chmod_nor_a_clock_hides_a_doubt() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    cut_off(dir.path(), A, &["d/f"]);
    let path = dir.path().join("d/f");
    lose(&path);
    let later = std::time::SystemTime::now() + Duration::from_secs(3600);
    for name in names(dir.path()).into_iter().filter(|name| name.contains("unsynced")) {
        fs::File::open(dir.path().join(name)).unwrap().set_modified(later).unwrap();
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(again(dir.path(), A, &["d/f"]), (1, 1));
}

#[test]
fn a_copy_that_is_alive_is_doubted_and_its_mark_stays() {
    let dir = tempfile::tempdir().unwrap();
    run(copy(dir.path(), A), |source| {
        source.small("f", CONTENT);
        for id in [A, B] {
            assert_eq!(again(dir.path(), id, &["f"]), (1, 0));
            assert_eq!(marks(dir.path()), 1);
        }
        source.end();
    })
    .1
    .unwrap();
    assert_eq!(names(dir.path()), ["f"]);
}

#[test]
fn a_sync_that_failed_once_fails_the_copy_and_leaves_its_mark() {
    let failing = |_: &OwnedFd| Err(Errno::IO);
    let dir = tempfile::tempdir().unwrap();
    let (_, worked, _) = run_on(copy(dir.path(), A), failing, |source| {
        source.small("f", CONTENT);
        source.say(Message::End { tally: source.tally, omitted: 0, complete: true }).unwrap();
        while !source.sink.is_stopped() {
            thread::yield_now();
        }
    });
    assert!(matches!(worked, Err(TransferError::Io { .. })), "{worked:?}");
    assert_eq!(marks(dir.path()), 1);
    lose(&dir.path().join("f"));
    assert_eq!(again(dir.path(), A, &["f"]), (1, 1));
    assert_eq!(marks(dir.path()), 0);

    // Also if it failed while the peer was away, and the last one does not.
    static FIRST: AtomicBool = AtomicBool::new(true);
    let once = |directory: &OwnedFd| match FIRST.swap(false, Ordering::SeqCst) {
        true => Err(Errno::IO),
        false => rustix::fs::syncfs(directory),
    };
    let (_, worked, _) = run_on(copy(dir.path(), A), once, |source| {
        source.small("g", CONTENT);
        source.sink.connected(false).unwrap();
        while FIRST.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        source.sink.connected(true).unwrap();
        source.small("h", CONTENT);
        source.say(Message::End { tally: source.tally, omitted: 0, complete: true }).unwrap();
        while !source.sink.is_stopped() {
            thread::yield_now();
        }
    });
    assert!(matches!(worked, Err(TransferError::Io { .. })), "{worked:?}");
    assert_eq!(marks(dir.path()), 2);
    assert_eq!(again(dir.path(), A, &["g", "h"]), (2, 0));
    assert_eq!(marks(dir.path()), 0);
}

#[test]
fn without_a_mark_every_file_is_synced_on_its_own() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(UNSYNCED), "in the way").unwrap();
    run(copy(dir.path(), A), |source| {
        source.directory("d");
        source.small("f", CONTENT);
        assert!(source.sink.syncs_each());
        source.leave();
        source.end();
    })
    .1
    .unwrap();
    // What cannot be read may be any mark.
    assert_eq!(again(dir.path(), A, &["d/f"]), (1, 0));
    assert_eq!(names(dir.path()), [UNSYNCED, "d", "d/f"]);
}

/// A copy of one file that ends well, on a file system that answers this to changes of marks.
fn on_one_that_refuses(
    target: &Path,
    id: CopyId,
    errno: Errno,
) -> (Result<(), TransferError>, World) {
    let (_, worked, world) = run(copy(target, id), |source| {
        lock(&source.sink.marks).refuses = Some(errno);
        walk(source, &["f"], |source, name| {
            let file = source.announce(name, CONTENT.len() as u64);
            match source.verdict(file) {
                Verdict::Skip { .. } => {}
                Verdict::Compare { .. } => drop(source.say(Message::Same { file }).unwrap()),
                Verdict::Take { .. } => {
                    source.send(&[(whole_piece(file, CONTENT), CONTENT)]).unwrap();
                }
            }
        });
        source.say(Message::End { tally: source.tally, omitted: 0, complete: true }).unwrap();
        while !source.sink.is_stopped() && !source.sink.counts.receipt.load(Ordering::Acquire) {
            thread::yield_now();
        }
    });
    (worked, world)
}

/// Notes that name a mark, or the directory of marks.
fn notes_of_marks(world: &World) -> usize {
    world.told().iter().filter(|told| told.starts_with("note ") && told.contains(UNSYNCED)).count()
}

#[test]
fn a_mark_that_no_room_is_left_to_remove_stays_and_fails_nothing() {
    for errno in [Errno::NOSPC, Errno::DQUOT] {
        let dir = tempfile::tempdir().unwrap();
        // Its own, then one of a former run of the same copy.
        for _ in 0..2 {
            let (worked, world) = on_one_that_refuses(dir.path(), A, errno);
            assert!(worked.is_ok(), "{worked:?}");
            assert_eq!((marks(dir.path()), notes_of_marks(&world)), (1, 1));
        }
        // Another's, which cannot be made to say more.
        let (worked, world) = on_one_that_refuses(dir.path(), B, errno);
        assert!(worked.is_ok(), "{worked:?}");
        assert_eq!((marks(dir.path()), notes_of_marks(&world)), (1, 1));
        // It is doubted until its own copy can remove it.
        lose(&dir.path().join("f"));
        assert_eq!(again(dir.path(), B, &["f"]), (1, 1));
        assert_eq!(again(dir.path(), A, &["f"]), (1, 0));
        assert_eq!(names(dir.path()), ["f"]);
    }
}

#[test]
fn a_mark_that_an_error_keeps_from_being_removed_fails_the_copy() {
    for errno in [Errno::IO, Errno::ROFS] {
        let dir = tempfile::tempdir().unwrap();
        let (worked, _) = on_one_that_refuses(dir.path(), A, errno);
        assert!(matches!(worked, Err(TransferError::Io { .. })), "{worked:?}");
        assert_eq!(marks(dir.path()), 1);
    }
}

#[test]
fn a_mark_that_cannot_be_read_stays_and_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    for path in [dir.path(), &target, &target.join("d")] {
        fs::create_dir_all(path.join(UNSYNCED)).unwrap();
        // What a crash may leave, what is no mark, and what cannot be opened as one.
        fs::write(path.join(UNSYNCED).join(".farhaul-0000000000000001-0.unsynced"), "").unwrap();
        fs::write(path.join(UNSYNCED).join(".farhaul-0000000000000002-0.unsynced"), "x").unwrap();
        fs::create_dir(path.join(UNSYNCED).join(".farhaul-0000000000000003-0.unsynced")).unwrap();
    }
    fs::write(target.join("d/f"), "").unwrap();
    let untouched = names(dir.path());
    for at in [&target, dir.path()] {
        let (_, worked, world) = run(copy(at, A), |source| {
            walk(source, &["d/g"], |source, name| {
                source.small(name, CONTENT);
            });
            source.end();
        });
        worked.unwrap();
        assert_eq!(notes_of_marks(&world), 1, "{:?}", world.told());
        fs::remove_file(at.join("d/g")).unwrap();
        let _ = fs::remove_dir(dir.path().join("d"));
    }
    assert_eq!(names(dir.path()), untouched);
    // Where only one further down is concerned.
    fs::remove_dir_all(dir.path().join(UNSYNCED)).unwrap();
    fs::remove_dir_all(target.join(UNSYNCED)).unwrap();
    let (_, worked, world) = run(copy(&target, A), |source| {
        walk(source, &["d/g"], |source, name| {
            source.small(name, CONTENT);
        });
        source.end();
    });
    worked.unwrap();
    assert_eq!(notes_of_marks(&world), 1, "{:?}", world.told());
    assert!(world.told().iter().any(|told| told.contains("/t/d/.farhaul-unsynced/")));
}

#[test]
fn what_a_killed_copy_has_left_of_a_file_that_has_its_name_goes() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(UNSYNCED)).unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    let mark = format!("{UNSYNCED}/.farhaul-0000000000000001-0.unsynced");
    let id: String = A.iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(dir.path().join(mark), format!("farhaul unsynced 1\ncopy {id}\nname 64\n")).unwrap();
    // Killed between the file's name and the end of its journal.
    fs::write(dir.path().join("d/.farhaul-0123456789abcdef.journal"), "").unwrap();
    assert_eq!(again(dir.path(), A, &["d/f"]), (0, 1));
    assert_eq!(names(dir.path()), ["d", "d/f"]);
}
