#![allow(clippy::single_range_in_vec_init, reason = "one range of chunks is meant")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::*;
use crate::frame::{Attributes, Timestamp};
use crate::transfer::small::set_attributes;
use crate::transfer::tree_hash::leaf;

mod history;

const CHUNK_LENGTH: usize = CHUNK as usize;
const EPOCH: Epoch = Epoch { boot: [1; 16], mount: (7, 8) };
const SECOND_BOOT: Epoch = Epoch { boot: [2; 16], ..EPOCH };
const SECOND_MOUNT: Epoch = Epoch { mount: (9, 8), ..EPOCH };

struct Place {
    dir: tempfile::TempDir,
    directory: Arc<OwnedFd>,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = Arc::new(openat(CWD, dir.path(), flags, Mode::empty()).unwrap());
        Place { dir, directory }
    }

    fn open_in(&self, epoch: Epoch, identity: Identity) -> io::Result<(PartFile, Opened)> {
        let name = Name::new(b"file").unwrap();
        PartFile::open_in(epoch, Arc::clone(&self.directory), name, identity, false)
    }

    fn open_trusting(&self, epoch: Epoch, identity: Identity) -> (PartFile, Opened) {
        let name = Name::new(b"file").unwrap();
        PartFile::open_in(epoch, Arc::clone(&self.directory), name, identity, true).unwrap()
    }

    fn open(&self, identity: Identity) -> (PartFile, Opened) {
        self.open_in(EPOCH, identity).unwrap()
    }

    /// The file in the directory whose name ends so.
    fn path(&self, end: &str) -> PathBuf {
        let named = |path: &PathBuf| path.to_str().unwrap().ends_with(end);
        paths(self.dir.path()).into_iter().find(named).unwrap()
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("file")
    }
}

/// A part is resumed; so much is claimed of it.
fn claimed(claimed: u64) -> Opened {
    Opened::Resumed { trusted: 0, claimed }
}

/// Looks at everything that is claimed; what of it is lost.
fn prove(part: &PartFile) -> Vec<Range<u64>> {
    let mut lost = Vec::new();
    loop {
        let before = part.present_bytes();
        let proof = part.prove().unwrap();
        assert_eq!(before - part.present_bytes(), proof.lost_bytes);
        lost.extend(proof.lost);
        if !proof.more {
            return lost;
        }
    }
}

fn paths(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// A file to transfer: what its source has.
#[derive(Clone)]
struct Content {
    data: Vec<u8>,
    identity: Identity,
}

impl Content {
    /// `zero` says which chunks are zeros; the last is short by `rest` bytes.
    fn new(zero: &[bool], rest: u64, sparse: bool) -> Self {
        let mut data = vec![0; zero.len() * CHUNK_LENGTH];
        for (index, chunk) in data.chunks_mut(CHUNK_LENGTH).enumerate() {
            if !zero[index] {
                let seed = (index as u64).to_le_bytes();
                blake3::Hasher::new()
                    .update(&seed)
                    .finalize_xof()
                    .fill(&mut chunk[..CHUNK_LENGTH / 2]);
            }
        }
        data.truncate(data.len() - rest as usize);
        let size = data.len() as u64;
        let modified = Timestamp { seconds: 5, nanoseconds: 6 };
        let origin = Origin { changed: Timestamp { seconds: 7, nanoseconds: 8 }, inode: 9 };
        Content { data, identity: Identity { size, modified, origin, sparse, verify: true } }
    }

    fn dense(chunks: usize) -> Self {
        Self::new(&vec![false; chunks], 0, false)
    }

    fn chunks(&self) -> u64 {
        self.identity.size.div_ceil(CHUNK)
    }

    fn chunk(&self, index: u64) -> &[u8] {
        let data = &self.data[index as usize * CHUNK_LENGTH..];
        &data[..data.len().min(CHUNK_LENGTH)]
    }

    fn cv(&self, index: u64) -> Cv {
        leaf(self.identity.size, self.identity.sparse, index, self.chunk(index))
    }

    fn write(&self, part: &PartFile, index: u64) -> io::Result<()> {
        part.write_chunk(index, self.chunk(index), self.cv(index))
    }

    fn digest(&self) -> Digest {
        let mut tree = self.identity.tree();
        (0..self.chunks()).for_each(|index| assert!(tree.insert(index, self.cv(index))));
        tree.root().unwrap()
    }

    /// Writes what is missing, and gives the file its name.
    fn complete(&self, part: &PartFile, place: &Place) {
        prove(part);
        for range in part.missing(usize::MAX) {
            assert!(!part.is_complete());
            range.for_each(|index| self.write(part, index).unwrap());
        }
        assert_eq!(part.digest(), self.identity.verify.then(|| self.digest()));
        assert!(part.finish(|_| Ok(()), true).unwrap().is_none());
        assert!(fs::read(place.target()).unwrap() == self.data, "another content");
        assert_eq!(paths(place.dir.path()), [place.target()]);
    }
}

#[test]
fn a_file_gets_its_name_content_and_attributes() {
    for content in [Content::dense(3), Content::new(&[true, false, true], 9, true)] {
        let place = Place::new();
        fs::write(place.target(), "an older one").unwrap();
        let (part, opened) = place.open(content.identity);
        assert_eq!(opened, Opened::New);
        assert_eq!(fs::metadata(place.path(".part")).unwrap().mode() & 0o7777, 0o600);
        for index in [2, 0, 1] {
            assert!(!part.has(index));
            assert_eq!(
                part.finish(|_| Ok(()), false).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
            content.write(&part, index).unwrap();
            assert!(part.has(index));
        }
        assert_eq!(part.digest(), Some(content.digest()));
        let time = Timestamp { seconds: -5, nanoseconds: 123_456_789 };
        let attributes = Attributes { mode: 0o640, accessed: time, modified: time };
        let kept = part.finish(|file| set_attributes(file, &attributes), true).unwrap();
        assert!(kept.is_none());
        assert!(fs::read(place.target()).unwrap() == content.data);
        let meta = fs::metadata(place.target()).unwrap();
        assert_eq!(
            (meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec()),
            (0o640, -5, 123_456_789)
        );
        assert_eq!(paths(place.dir.path()), [place.target()]);
        assert!(part.finish(|_| Ok(()), false).is_err(), "twice");
        assert!(part.sync().is_err());
    }
}

#[test]
fn attributes_that_cannot_be_kept_are_told() {
    let place = Place::new();
    let content = Content::dense(2);
    let (part, _) = place.open(content.identity);
    (0..2).for_each(|index| content.write(&part, index).unwrap());
    let kept = part.finish(|_| Err(io::Error::other("no")), false).unwrap();
    assert_eq!(kept.unwrap().to_string(), "no");
    assert!(fs::read(place.target()).unwrap() == content.data);
}

#[test]
fn what_a_peer_may_not_write_is_refused() {
    let place = Place::new();
    let content = Content::new(&[false, false, false], 9, false);
    let (part, _) = place.open(content.identity);
    let refused = |done: io::Result<()>| {
        assert_eq!(done.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    };
    let chunk = content.chunk(0);
    refused(part.write_chunk(3, chunk, [1; 32]));
    refused(part.write_chunk(u64::MAX, chunk, [1; 32]));
    refused(part.write_chunk(0, &chunk[1..], [1; 32]));
    refused(part.write_chunk(0, &[], [1; 32]));
    refused(part.write_chunk(2, chunk, [1; 32]));
    refused(part.write_chunk(0, &vec![1; 2 * CHUNK_LENGTH], [1; 32]));
    refused(part.zeros(0, 1));
    let place = Place::new();
    let (part, _) = place.open(Identity { sparse: true, ..content.identity });
    refused(part.zeros(2, 2));
    refused(part.zeros(2, u64::MAX));
    refused(part.zeros(u64::MAX, 1));
    refused(part.write_chunk(0, chunk, ZEROS));
    part.zeros(3, 0).unwrap();
    part.zeros(1, 0).unwrap();
    assert!(part.nodes().is_empty());
    let huge = Identity { size: 1 << 63, ..content.identity };
    assert!(Place::new().open_in(EPOCH, huge).is_err());
}

/// What happens to a part between two runs, while its size stays.
type Damage = fn(&File, &Content);

#[test]
fn what_was_damaged_between_two_runs_is_lost_and_not_believed() {
    let punch: Damage = |file, _| place::punch(file, 2 * CHUNK, 2 * CHUNK + (1 << 16)).unwrap();
    let damages: [Damage; 4] = [
        |file, content| file.write_all_at(&[content.chunk(2)[5] ^ 1], 2 * CHUNK + 5).unwrap(),
        |file, _| file.write_all_at(&[0; 1 << 16], 2 * CHUNK).unwrap(),
        punch,
        |file, content| {
            let before = file.metadata().unwrap().modified().unwrap();
            file.write_all_at(&[!content.chunk(2)[9]], 2 * CHUNK + 9).unwrap();
            file.set_modified(before).unwrap();
        },
    ];
    for (sparse, synced) in [(false, false), (false, true), (true, true)] {
        for damage in damages {
            let place = Place::new();
            let content = Content::new(&[false, false, false, true, false], 9, sparse);
            let (part, _) = place.open(content.identity);
            [0, 2, 3, 1].into_iter().for_each(|index| content.write(&part, index).unwrap());
            if synced {
                part.sync().unwrap();
            }
            drop(part);
            damage(&File::options().write(true).open(place.path(".part")).unwrap(), &content);
            let (part, opened) = place.open(content.identity);
            assert_eq!(opened, claimed(4 * CHUNK));
            assert!(!part.is_complete() && part.missing(9) == [4..5]);
            // New data comes meanwhile.
            content.write(&part, 4).unwrap();
            assert!(!part.is_complete() && part.digest().is_none());
            assert!(part.finish(|_| Ok(()), true).is_err());
            assert_eq!(prove(&part), [2..3]);
            assert_eq!(part.missing(9), [2..3]);
            drop(part);
            // The journal says so from then on.
            let (part, opened) = place.open(content.identity);
            assert_eq!((opened, part.missing(9)), (claimed(4 * CHUNK - 9), vec![2..3]));
            content.complete(&part, &place);
        }
    }
}

#[test]
fn only_what_was_synced_in_the_same_time_is_trusted_unread() {
    let place = Place::new();
    let content = Content::dense(5);
    let (part, _) = place.open(content.identity);
    content.write(&part, 0).unwrap();
    part.sync().unwrap();
    content.write(&part, 1).unwrap();
    drop(part);
    let trusted = |trusted, claimed| Opened::Resumed { trusted, claimed };
    let (part, opened) = place.open_trusting(EPOCH, content.identity);
    assert_eq!(opened, trusted(CHUNK, CHUNK));
    // What is synced while there are claims is not noted: the claims would be covered as well.
    content.write(&part, 2).unwrap();
    part.sync().unwrap();
    drop(part);
    let (part, opened) = place.open_trusting(EPOCH, content.identity);
    assert_eq!(opened, trusted(CHUNK, 2 * CHUNK));
    assert_eq!(prove(&part), []);
    content.write(&part, 3).unwrap();
    part.sync().unwrap();
    drop(part);
    let (_, opened) = place.open_trusting(EPOCH, content.identity);
    assert_eq!(opened, trusted(4 * CHUNK, 0));
    for other in [SECOND_MOUNT, SECOND_BOOT] {
        let (part, opened) = place.open_trusting(other, content.identity);
        assert_eq!(opened, claimed(4 * CHUNK));
        assert_eq!(part.prove().unwrap().held, 4 * CHUNK);
        drop(part);
        // Read, and not waited for.
        assert_eq!(place.open_trusting(other, content.identity).1, claimed(4 * CHUNK));
    }
    // What was lost once is not covered any more.
    let (part, _) = place.open(content.identity);
    prove(&part);
    content.write(&part, 4).unwrap();
    part.sync().unwrap();
    drop(part);
    assert_eq!(place.open_trusting(EPOCH, content.identity).1, trusted(5 * CHUNK, 0));
    let file = File::options().write(true).open(place.path(".part")).unwrap();
    file.write_all_at(&[!content.chunk(1)[0]], CHUNK).unwrap();
    let (part, _) = place.open(content.identity);
    assert_eq!(prove(&part), [1..2]);
    drop(part);
    let (part, opened) = place.open_trusting(EPOCH, content.identity);
    assert_eq!(opened, trusted(4 * CHUNK, 0));
    content.complete(&part, &place);
}

#[test]
fn the_time_is_told_by_boot_and_mount() {
    let place = Place::new();
    let epoch = open::epoch(&place.directory);
    assert!(epoch.is(&open::epoch(&place.directory)), "{epoch:?}");
    let other: OwnedFd = File::open("/proc").unwrap().into();
    assert!(!epoch.is(&open::epoch(&other)));
    assert!(!Epoch::default().is(&Epoch::default()));
    for half in [Epoch { boot: [0; 16], ..EPOCH }, Epoch { mount: (0, 0), ..EPOCH }] {
        assert!(!half.is(&half));
    }
}

#[test]
fn a_part_that_was_copied_or_replaced_is_taken_up() {
    for sparse in [false, true] {
        let place = Place::new();
        let content = Content::new(&[false, false, true, false], 0, sparse);
        let (part, _) = place.open(content.identity);
        [0, 1, 2].into_iter().for_each(|index| content.write(&part, index).unwrap());
        part.sync().unwrap();
        drop(part);
        let path = place.path(".part");
        fs::rename(&path, place.dir.path().join("aside")).unwrap();
        fs::copy(place.dir.path().join("aside"), &path).unwrap();
        fs::remove_file(place.dir.path().join("aside")).unwrap();
        let (part, opened) = place.open(content.identity);
        assert_eq!(opened, claimed(3 * CHUNK));
        content.complete(&part, &place);
    }
}

#[test]
fn a_journal_that_was_not_replaced_in_time_leaves_nothing() {
    let place = Place::new();
    let content = Content::dense(3);
    let (part, _) = place.open(content.identity);
    content.write(&part, 0).unwrap();
    part.sync().unwrap();
    drop(part);
    // Its transfer was ended while it wrote that.
    let journal = place.path(".journal");
    fs::write(journal.with_extension("new.journal"), "half of it").unwrap();
    let (part, opened) = place.open_in(SECOND_BOOT, content.identity).unwrap();
    assert_eq!(opened, claimed(CHUNK));
    assert_eq!(paths(place.dir.path()).len(), 2);
    content.complete(&part, &place);
}

#[test]
fn what_is_cut_off_is_not_proved() {
    for (sparse, synced) in [(false, false), (false, true), (true, true)] {
        let place = Place::new();
        let content = Content::new(&[false; 4], 0, sparse);
        let (part, _) = place.open(content.identity);
        (0..4).for_each(|index| content.write(&part, index).unwrap());
        if synced {
            part.sync().unwrap();
        }
        drop(part);
        let file = File::options().write(true).open(place.path(".part")).unwrap();
        file.set_len(3 * CHUNK + 7).unwrap();
        let (part, opened) = place.open_trusting(EPOCH, content.identity);
        assert_eq!((opened, prove(&part)), (claimed(4 * CHUNK), vec![3..4]));
        content.complete(&part, &place);
    }
}

#[test]
fn another_file_discards_the_part() {
    let old = Content::dense(3);
    let other = Content::new(&[false, false, true, true], 5, true);
    let identity = old.identity;
    let later = Timestamp { nanoseconds: 7, ..identity.modified };
    let changed = Origin { changed: later, ..identity.origin };
    let replaced = Origin { inode: 10, ..identity.origin };
    for new in [
        other,
        Content { identity: Identity { modified: later, ..identity }, ..old.clone() },
        Content { identity: Identity { origin: changed, ..identity }, ..old.clone() },
        Content { identity: Identity { origin: replaced, ..identity }, ..old.clone() },
        Content { identity: Identity { sparse: true, ..identity }, ..old.clone() },
        Content { identity: Identity { verify: false, ..identity }, ..old.clone() },
    ] {
        let place = Place::new();
        let (part, _) = place.open(identity);
        (0..3).for_each(|index| old.write(&part, index).unwrap());
        drop(part);
        let (part, opened) = place.open(new.identity);
        assert_eq!((opened, part.nodes()), (Opened::Again, vec![]));
        new.complete(&part, &place);
    }
}

#[test]
fn without_verification_there_is_no_digest_and_what_is_not_sure_is_forgotten() {
    let place = Place::new();
    let mut content = Content::new(&[false, true, false, false], 3, true);
    content.identity.verify = false;
    let (part, _) = place.open(content.identity);
    content.write(&part, 0).unwrap();
    part.zeros(1, 1).unwrap();
    part.sync().unwrap();
    content.write(&part, 2).unwrap();
    drop(part);
    let (part, opened) = place.open(content.identity);
    assert_eq!(opened, Opened::Resumed { trusted: 2 * CHUNK, claimed: 0 });
    content.write(&part, 3).unwrap();
    drop(part);
    assert_eq!(place.open(content.identity).1, opened);
    let (part, opened) = place.open_in(SECOND_BOOT, content.identity).unwrap();
    assert_eq!(opened, Opened::New);
    content.complete(&part, &place);
}

#[test]
fn two_transfers_do_not_write_one_file() {
    let place = Place::new();
    let content = Content::dense(4);
    let busy = |place: &Place| place.open_in(EPOCH, content.identity).unwrap_err().kind();
    let (part, _) = place.open(content.identity);
    content.write(&part, 0).unwrap();
    assert_eq!(busy(&place), io::ErrorKind::WouldBlock);
    part.unlock();
    assert_eq!(content.write(&part, 1).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    // One that only looks does no harm.
    let (second, opened) = place.open(content.identity);
    assert_eq!(opened, claimed(CHUNK));
    assert_eq!(part.relock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(second);
    part.relock().unwrap();
    part.relock().unwrap();
    assert_eq!(busy(&place), io::ErrorKind::WouldBlock);
    content.write(&part, 1).unwrap();
    part.unlock();
    // One that goes on has the file.
    let (second, _) = place.open(content.identity);
    content.write(&second, 2).unwrap();
    drop(second);
    assert_ne!(part.relock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert!(content.write(&part, 3).is_err());
    let (second, opened) = place.open(content.identity);
    assert_eq!(opened, claimed(3 * CHUNK));
    content.complete(&second, &place);
}

#[test]
fn a_part_taken_over_in_any_way_is_not_taken_back() {
    let content = Content::dense(2);
    let other = Identity { modified: Timestamp::default(), ..content.identity };
    type TakeOver = fn(&Place, &Content, Identity);
    let ways: [TakeOver; 4] = [
        |place, content, _| content.complete(&place.open(content.identity).0, place),
        |place, content, _| place.open(content.identity).0.discard().unwrap(),
        |place, _, other| drop(place.open(other)),
        |place, content, _| drop(place.open_in(SECOND_BOOT, content.identity).unwrap()),
    ];
    for take_over in ways {
        let place = Place::new();
        let (part, _) = place.open(content.identity);
        content.write(&part, 0).unwrap();
        part.unlock();
        take_over(&place, &content, other);
        let before = paths(place.dir.path());
        assert_eq!(part.relock().unwrap_err().kind(), io::ErrorKind::Other);
        assert!(content.write(&part, 1).is_err() && part.discard().is_err());
        drop(part);
        assert_eq!(paths(place.dir.path()), before);
    }
}

#[test]
fn a_changed_source_begins_anew() {
    let place = Place::new();
    let old = Content::dense(3);
    let new = Content::new(&[false, true], 1, true);
    let (part, _) = place.open(old.identity);
    (0..3).for_each(|index| old.write(&part, index).unwrap());
    part.restart(new.identity).unwrap();
    assert_eq!((part.identity(), part.nodes()), (new.identity, vec![]));
    assert_eq!(place.open_in(EPOCH, new.identity).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    new.write(&part, 0).unwrap();
    drop(part);
    let (part, opened) = place.open(new.identity);
    assert_eq!(opened, claimed(CHUNK));
    new.complete(&part, &place);
}

#[test]
fn a_discarded_part_leaves_nothing() {
    let place = Place::new();
    let content = Content::dense(2);
    let (part, _) = place.open(content.identity);
    content.write(&part, 0).unwrap();
    part.discard().unwrap();
    assert!(paths(place.dir.path()).is_empty());
    assert!(content.write(&part, 1).is_err());
}

#[test]
fn no_call_goes_through_what_stands_in_the_way() {
    let content = Content::dense(2);
    for end in [".part", ".journal"] {
        let probe = Place::new();
        let opened = probe.open(content.identity);
        let name = probe.path(end).file_name().unwrap().to_owned();
        drop(opened);
        let place = Place::new();
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        fs::write(&victim, "not yours").unwrap();
        let path = place.dir.path().join(&name);
        let untouched = || {
            let (part, _) = place.open(content.identity);
            content.complete(&part, &place);
            fs::remove_file(place.target()).unwrap();
            assert_eq!(fs::read(&victim).unwrap(), b"not yours");
        };
        symlink(&victim, &path).unwrap();
        untouched();
        fs::hard_link(&victim, &path).unwrap();
        untouched();
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        untouched();
        fs::write(&path, "unreadable").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
        untouched();
        fs::create_dir(&path).unwrap();
        let error = place.open_in(EPOCH, content.identity).unwrap_err().to_string();
        assert!(error.contains(name.to_str().unwrap()) && error.contains("in the way"), "{error}");
    }
    let place = Place::new();
    fs::create_dir(place.target()).unwrap();
    let error = place.open_in(EPOCH, content.identity).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
}

#[test]
fn a_part_that_was_replaced_meanwhile_does_not_get_the_name() {
    let place = Place::new();
    let content = Content::dense(2);
    let (part, _) = place.open(content.identity);
    (0..2).for_each(|index| content.write(&part, index).unwrap());
    let path = place.path(".part");
    fs::remove_file(&path).unwrap();
    fs::write(&path, "somebody's").unwrap();
    assert!(part.finish(|_| Ok(()), false).is_err());
    assert!(!place.target().exists());
}

#[test]
fn holes_stay_holes() {
    let place = Place::new();
    let content = Content::new(&[false, true, true, true, true, true, true, true], 0, true);
    let (part, _) = place.open(content.identity);
    part.zeros(4, 4).unwrap();
    content.complete(&part, &place);
    let meta = fs::metadata(place.target()).unwrap();
    if meta.blocks() * 512 > 7 * CHUNK {
        eprintln!("skipped: a file system without holes");
        return;
    }
    assert!(meta.blocks() * 512 < CHUNK, "half a chunk has data: {} blocks", meta.blocks());
}

#[test]
fn an_exabyte_of_holes_costs_nothing() {
    let place = Place::new();
    let modified = Timestamp::default();
    // As much as any file system of Linux takes here.
    let Some(size) = [i64::MAX as u64, 8 << 40, 1 << 40]
        .into_iter()
        .find(|size| tempfile::tempfile_in(place.dir.path()).unwrap().set_len(*size).is_ok())
    else {
        eprintln!("skipped: no large files here");
        return;
    };
    let origin = Origin::default();
    let identity = Identity { size, modified, origin, sparse: true, verify: true };
    let (part, _) = place.open(identity);
    let data = vec![7; CHUNK_LENGTH];
    part.write_chunk(1000, &data, leaf(size, true, 1000, &data)).unwrap();
    part.zeros(0, size.div_ceil(CHUNK)).unwrap();
    let digest = part.digest().unwrap();
    part.sync().unwrap();
    drop(part);
    // Even if all of it has to be looked at.
    let path = place.path(".part");
    fs::remove_file(&path).unwrap();
    let file = File::options().create_new(true).write(true).open(&path).unwrap();
    file.set_len(size).unwrap();
    file.write_all_at(&data, 1000 * CHUNK).unwrap();
    let (part, opened) = place.open(identity);
    assert_eq!((opened, prove(&part)), (claimed(size), vec![]));
    assert_eq!(part.digest(), Some(digest));
    part.finish(|_| Ok(()), false).unwrap();
    assert_eq!(fs::metadata(place.target()).unwrap().len(), size);
}

/// Threads that write the same chunks, wrong ones among them, while others sync and ask: of each
/// chunk, the file has the content that its digest says.
#[test]
fn many_threads_write_one_file() {
    let place = Place::new();
    let content = Content::new(&[false; 8], 77, true);
    let (part, _) = place.open(content.identity);
    let wrong = vec![3; CHUNK_LENGTH];
    let barrier = Barrier::new(5);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (part, content, barrier, wrong) = (&part, &content, &barrier, &wrong);
            scope.spawn(move || {
                barrier.wait();
                for index in 0..8 {
                    let data = &wrong[..content.chunk(index).len()];
                    match (thread + index) % 4 {
                        0 => part.write_chunk(
                            index,
                            data,
                            leaf(content.identity.size, true, index, data),
                        ),
                        1 => part.zeros(index, 8 - index),
                        _ => content.write(part, index),
                    }
                    .unwrap();
                    assert!(part.has(index));
                }
            });
        }
        barrier.wait();
        for _ in 0..8 {
            part.sync().unwrap();
        }
    });
    let digest = part.digest().unwrap();
    part.finish(|_| Ok(()), false).unwrap();
    let written = fs::read(place.target()).unwrap();
    assert_eq!(Content { data: written, ..content }.digest(), digest);
}

#[test]
fn a_restart_under_writers_mixes_nothing() {
    let place = Place::new();
    let old = Content::dense(6);
    let mut new = Content::dense(6);
    new.identity.modified.seconds += 1;
    new.data.reverse();
    let (part, _) = place.open(old.identity);
    let barrier = Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                barrier.wait();
                for index in 0..6 {
                    if part.identity() == old.identity {
                        let _ = old.write(&part, index);
                    }
                }
            });
        }
        barrier.wait();
        old.write(&part, 5).unwrap();
        part.restart(new.identity).unwrap();
    });
    // A writer may have asked just before: what it wrote then has a digest that tells.
    let digest = |part: &PartFile| part.nodes();
    let nodes = digest(&part);
    drop(part);
    let (part, _) = place.open(new.identity);
    assert_eq!(part.nodes(), nodes);
    part.restart(new.identity).unwrap();
    new.complete(&part, &place);
}
