//! Large files, taken up, damaged, changed; further names.

use std::os::unix::fs::MetadataExt;

use super::*;

#[test]
fn a_file_is_taken_up_where_it_was_left() {
    let dir = tempfile::tempdir().unwrap();
    let data = noise(4 * CHUNK as usize);
    run(into(dir.path()), |source| {
        let file = source.announce("f", data.len() as u64);
        source.verdict(file);
        source.chunk(file, 1, &data).unwrap();
        source.chunk(file, 2, &data).unwrap();
        // And then the transfer ends.
    })
    .1
    .unwrap();
    let (_, worked, world) = run(into(dir.path()), |source| {
        let file = source.announce("f", data.len() as u64);
        let Verdict::Take { have } = source.verdict(file) else { panic!() };
        let mut tree = ChunkTree::new(data.len() as u64, false);
        have.into_iter().for_each(|node| tree.insert_node(node).unwrap());
        let missing: Vec<_> = tree.missing().collect();
        assert_eq!(missing, [0..1, 3..4]);
        // The end overtakes the data.
        source.file_end(file, &data).unwrap();
        source.chunk(file, 0, &data).unwrap();
        source.chunk(file, 3, &data).unwrap();
        source.finished(file);
        source.end();
        assert_eq!(source.sink.progress().bytes, data.len() as u64);
        assert_eq!(source.sink.progress().moved, 2 * CHUNK);
    });
    worked.unwrap();
    assert_eq!(world.told(), ["f moved after 2097152"]);
    assert!(fs::read(dir.path().join("f")).unwrap() == data);
    assert_eq!(names(dir.path()), ["f"]);
}

/// Leaves the first three chunks of a file in its part.
fn leave_part(dir: &Path, data: &[u8]) -> std::fs::File {
    run(into(dir), |source| {
        let file = source.announce("f", data.len() as u64);
        source.verdict(file);
        (0..3).for_each(|index| source.chunk(file, index, data).unwrap());
    })
    .1
    .unwrap();
    let part = names(dir).into_iter().find(|name| name.ends_with(".part")).unwrap();
    std::fs::File::options().write(true).open(dir.join(part)).unwrap()
}

#[test]
fn what_is_lost_of_a_part_is_asked_for_before_the_file_gets_its_name() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let data = noise(4 * CHUNK as usize);
    let damaged = CHUNK as usize + 77;
    leave_part(dir.path(), &data).write_all_at(&[!data[damaged]], damaged as u64).unwrap();
    let (_, worked, world) = run(into(dir.path()), |source| {
        let file = source.announce("f", data.len() as u64);
        let Verdict::Take { have } = source.verdict(file) else { panic!() };
        assert_eq!(have.len(), 3);
        source.world.wait(|m| (*m == Message::Lost { file, first: 1, count: 1 }).then_some(()));
        source.chunk(file, 3, &data).unwrap();
        source.file_end(file, &data).unwrap();
        assert_eq!(source.sink.progress().bytes, 3 * CHUNK);
        source.chunk(file, 1, &data).unwrap();
        source.finished(file);
        source.end();
        assert_eq!(source.sink.progress().bytes, data.len() as u64);
    });
    worked.unwrap();
    let told = world.told();
    assert!(told.contains(&format!("f moved after {}", 2 * CHUNK)), "{told:?}");
    assert!(fs::read(dir.path().join("f")).unwrap() == data);
    assert_eq!(names(dir.path()), ["f"]);
}

#[test]
fn a_part_is_of_no_use_where_all_of_the_file_comes() {
    let dir = tempfile::tempdir().unwrap();
    let data = noise(4 * CHUNK as usize);
    leave_part(dir.path(), &data);
    fs::write(dir.path().join("f"), vec![0; data.len()]).unwrap();
    let options = SinkOptions { existing: Existing::Checksum, ..into(dir.path()) };
    let (_, worked, _) = run(options, |source| {
        let file = source.announce("f", data.len() as u64);
        assert!(matches!(source.verdict(file), Verdict::Compare { .. }));
        (0..4).for_each(|index| source.chunk(file, index, &data).unwrap());
        source.file_end(file, &data).unwrap();
        source.finished(file);
        source.end();
        let lost = |message: &Message| matches!(message, Message::Lost { .. });
        assert!(!lock(&source.world.said).iter().any(lost));
    });
    worked.unwrap();
    assert!(fs::read(dir.path().join("f")).unwrap() == data);
}

#[test]
fn damage_is_noticed_and_not_tried_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let data = noise(2 * CHUNK as usize);
    let (_, worked, _) = run(into(dir.path()), |source| {
        let file = source.announce("f", data.len() as u64);
        source.verdict(file);
        let small = source.announce("s", 3);
        source.verdict(small);
        let mut piece = chunk_piece(file, data.len() as u64, 1, &data[CHUNK as usize..]);
        piece.hash[0] ^= 1;
        for _ in 0..4 {
            source.send(&[(piece, &data[CHUNK as usize..])]).unwrap();
            source.world.wait(|m| (*m == Message::Damaged { file, chunk: 1 }).then_some(()));
        }
        source.send(&[(whole_piece(small, b"abc"), b"abd")]).unwrap();
        source.world.wait(|m| (*m == Message::Damaged { file: small, chunk: 0 }).then_some(()));
        let end = source.send(&[(piece, &data[CHUNK as usize..])]);
        assert!(matches!(end, Err(LaneEnd::Fatal(TransferError::Verification { .. }))), "{end:?}");
    });
    worked.unwrap();
    assert!(!dir.path().join("s").exists());
}

#[test]
fn a_file_that_differs_in_the_end_ends_the_transfer() {
    let dir = tempfile::tempdir().unwrap();
    let data = noise(2 * CHUNK as usize);
    let (_, worked, _) = run(into(dir.path()), |source| {
        let file = source.announce("f", data.len() as u64);
        source.verdict(file);
        source.chunk(file, 0, &data).unwrap();
        source.chunk(file, 1, &data).unwrap();
        let digest = Some([0; 32]);
        source.say(Message::FileEnd { file, digest, size: data.len() as u64 }).unwrap();
        while !source.sink.is_stopped() {
            thread::yield_now();
        }
    });
    assert!(matches!(worked, Err(TransferError::Verification { .. })), "{worked:?}");
    assert!(!dir.path().join("f").exists());
}

#[test]
fn a_file_that_changes_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let old = noise(3 * CHUNK as usize);
    let new: Vec<u8> = noise(2 * CHUNK as usize + 7).iter().map(|byte| !byte).collect();
    run(into(dir.path()), |source| {
        let file = source.announce("f", old.len() as u64);
        source.verdict(file);
        source.chunk(file, 0, &old).unwrap();
        let mut again = attributes(0o600);
        again.modified.seconds += 1;
        let size = new.len() as u64;
        source
            .say(Message::FileAgain {
                file,
                attributes: again,
                size,
                sparse: false,
                origin: ORIGIN,
            })
            .unwrap();
        source.tally.bytes = size;
        assert_eq!(source.verdict(file), Verdict::Take { have: Vec::new() });
        // What was under way of the old version.
        source.chunk(file, 1, &old).unwrap();
        for index in 0..3 {
            let at = (index * CHUNK) as usize;
            let chunk = &new[at..new.len().min(at + CHUNK as usize)];
            let piece = Piece { version: 1, ..chunk_piece(file, size, index, chunk) };
            source.send(&[(piece, chunk)]).unwrap();
        }
        source.file_end(file, &new).unwrap();
        source.finished(file);
        source.end();
    })
    .1
    .unwrap();
    assert!(fs::read(dir.path().join("f")).unwrap() == new);
    assert_eq!(names(dir.path()), ["f"]);
}

/// A lane may break after a small file has arrived and before the source knows.
#[test]
fn a_small_file_that_is_over_can_begin_anew_or_be_dropped() {
    let dir = tempfile::tempdir().unwrap();
    run(into(dir.path()), |source| {
        source.directory("d");
        let changed = source.small("changed", b"old");
        let dropped = source.small("dropped", b"old");
        source.leave();
        let again = Message::FileAgain {
            file: changed,
            attributes: attributes(0o644),
            size: 5,
            sparse: false,
            origin: ORIGIN,
        };
        source.say(again).unwrap();
        assert_eq!(source.verdict(changed), Verdict::Take { have: Vec::new() });
        let piece = Piece { version: 1, ..whole_piece(changed, b"newer") };
        source.send(&[(piece, b"newer")]).unwrap();
        source.say(Message::FileDropped { file: dropped }).unwrap();
        source.tally.files -= 1;
        source.tally.bytes = 5;
        source.end();
        assert_eq!(source.sink.progress().files, 2);
    })
    .1
    .unwrap();
    assert_eq!(fs::read(dir.path().join("d/changed")).unwrap(), b"newer");
}

#[test]
fn dropped_files_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = noise(2 * CHUNK as usize);
    let (_, worked, world) = run(into(dir.path()), |source| {
        let file = source.announce("f", data.len() as u64);
        source.verdict(file);
        source.chunk(file, 0, &data).unwrap();
        source.say(Message::FileDropped { file }).unwrap();
        source.tally = Tally::default();
        source.say(Message::End { tally: source.tally, omitted: 1, complete: true }).unwrap();
        source.world.wait(|m| matches!(m, Message::Receipt { failed: 0, .. }).then_some(()));
        assert_eq!(source.sink.failures().count, 1);
    });
    worked.unwrap();
    assert!(world.told().is_empty(), "why, the source tells by a note");
    assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
}

#[test]
fn holes_arrive_as_holes() {
    let dir = tempfile::tempdir().unwrap();
    let size = 1 << 40;
    run(into(dir.path()), |source| {
        let file = source.entry(b"f", 0o644, What::File { size, sparse: true, origin: ORIGIN });
        source.verdict(file);
        let data = noise(CHUNK as usize);
        let last = size / CHUNK - 1;
        source.say(Message::Zeros { file, first: 0, count: last }).unwrap();
        let hash = leaf(size, true, last, &data);
        let piece =
            Piece { entry: file, offset: last * CHUNK, length: 0, whole: false, version: 0, hash };
        source.send(&[(piece, &data)]).unwrap();
        let mut tree = ChunkTree::new(size, true);
        tree.insert_zeros(0, last).unwrap();
        tree.insert(last, hash);
        source.say(Message::FileEnd { file, digest: tree.root(), size }).unwrap();
        source.finished(file);
        source.end();
    })
    .1
    .unwrap();
    let meta = fs::metadata(dir.path().join("f")).unwrap();
    assert_eq!(meta.len(), size);
    assert!(meta.blocks() * 512 < 16 * CHUNK);
}

#[test]
fn a_compared_file_that_differs_is_sent_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (vec![1; 2 * CHUNK as usize], noise(2 * CHUNK as usize));
    fs::write(dir.path().join("big"), &old).unwrap();
    fs::write(dir.path().join("small"), "old").unwrap();
    let options = SinkOptions { existing: Existing::Checksum, ..into(dir.path()) };
    run(options, |source| {
        let big = source.announce("big", new.len() as u64);
        let small = source.announce("small", 3);
        let digest = blake3::hash(&old).into();
        assert_eq!(source.verdict(big), Verdict::Compare { digest });
        assert_eq!(source.verdict(small), Verdict::Compare { digest: whole(b"old") });
        source.file_end(big, &new).unwrap();
        source.chunk(big, 1, &new).unwrap();
        source.chunk(big, 0, &new).unwrap();
        source.send(&[(whole_piece(small, b"new"), b"new")]).unwrap();
        source.finished(big);
        source.end();
    })
    .1
    .unwrap();
    assert!(fs::read(dir.path().join("big")).unwrap() == new);
    assert_eq!(fs::read(dir.path().join("small")).unwrap(), b"new");
}

#[test]
fn further_names_are_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("c"), "another").unwrap();
    let once = || {
        let preserve = Preserve { hard_links: true, ..Preserve::default() };
        let options = SinkOptions { preserve, ..into(dir.path()) };
        run(options, |source| {
            let file = source.announce("a", 2);
            // Before the file is there, and after.
            source.entry(b"b", 0o644, What::HardLink { to: file });
            if matches!(source.verdict(file), Verdict::Take { .. }) {
                source.send(&[(whole_piece(file, b"hi"), b"hi")]).unwrap();
            }
            source.entry(b"c", 0o644, What::HardLink { to: file });
            assert_eq!(source.end().1, 0);
        })
        .1
        .unwrap();
        let inode = |name| fs::metadata(dir.path().join(name)).unwrap().ino();
        assert_eq!((inode("a"), inode("a")), (inode("b"), inode("c")));
        assert_eq!(names(dir.path()), ["a", "b", "c"]);
    };
    once();
    once();
}

#[test]
fn names_of_a_file_that_failed_fail() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("a")).unwrap();
    let preserve = Preserve { hard_links: true, ..Preserve::default() };
    let options = SinkOptions { preserve, ..into(dir.path()) };
    run(options, |source| {
        let file = source.announce("a", 2);
        let link = source.entry(b"b", 0o644, What::HardLink { to: file });
        assert!(source.failed(file).contains("directory"));
        assert!(source.failed(link).contains("another name"));
        assert_eq!(source.end().1, 2);
    })
    .1
    .unwrap();
}

#[test]
fn another_transfer_may_take_over_while_there_is_no_connection() {
    let dir = tempfile::tempdir().unwrap();
    let data = noise(2 * CHUNK as usize);
    let (_, worked, _) = run(into(dir.path()), |source| {
        let file = source.announce("f", data.len() as u64);
        source.verdict(file);
        source.sink.connected(false).unwrap();
        let late = source.chunk(file, 0, &data);
        assert!(matches!(late, Err(LaneEnd::Broken(_))), "{late:?}");
        source.sink.connected(true).unwrap();
        source.chunk(file, 0, &data).unwrap();
        source.sink.connected(false).unwrap();
        run(into(dir.path()), |other| {
            let file = other.announce("f", data.len() as u64);
            let Verdict::Take { have } = other.verdict(file) else { panic!() };
            assert_eq!(have.len(), 1);
            other.chunk(file, 1, &data).unwrap();
            other.file_end(file, &data).unwrap();
            other.finished(file);
            other.end();
        })
        .1
        .unwrap();
        let error = source.sink.connected(true).unwrap_err();
        assert!(error.to_string().contains("another transfer"), "{error}");
    });
    worked.unwrap();
    assert!(fs::read(dir.path().join("f")).unwrap() == data);
}

#[test]
fn without_verification_nothing_is_hashed() {
    let dir = tempfile::tempdir().unwrap();
    let data = noise(2 * CHUNK as usize);
    run(SinkOptions { verify: false, ..into(dir.path()) }, |source| {
        let big = source.announce("big", data.len() as u64);
        let small = source.announce("small", 2);
        source.verdict(big);
        source.verdict(small);
        for index in [1, 0] {
            let at = (index * CHUNK) as usize;
            let chunk = &data[at..at + CHUNK as usize];
            let piece = Piece { hash: [0; 32], ..chunk_piece(big, 0, index, b"") };
            source.send(&[(piece, chunk)]).unwrap();
        }
        let piece = Piece { hash: [0; 32], ..whole_piece(small, b"hi") };
        source.send(&[(piece, b"hi")]).unwrap();
        source.say(Message::FileEnd { file: big, digest: None, size: data.len() as u64 }).unwrap();
        source.finished(big);
        source.end();
    })
    .1
    .unwrap();
    assert!(fs::read(dir.path().join("big")).unwrap() == data);
}
