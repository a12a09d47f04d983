use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::frame::Timestamp;

/// A target directory, and beside it a directory that must never change.
struct Place {
    _dir: tempfile::TempDir,
    into: PathBuf,
    outside: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let (into, outside) = (dir.path().join("into"), dir.path().join("outside"));
    fs::create_dir(&into).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "untouched").unwrap();
    Place { _dir: dir, into, outside }
}

impl Place {
    fn target(&self) -> Target {
        Target::open(&self.into, Policy::default()).unwrap()
    }

    fn entries(&self) -> Vec<String> {
        names_in(&self.into)
    }

    #[track_caller]
    fn assert_outside_untouched(&self) {
        assert_eq!(names_in(&self.outside), ["secret"]);
        assert_eq!(fs::read(self.outside.join("secret")).unwrap(), b"untouched");
    }
}

fn names_in(path: &Path) -> Vec<String> {
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(path).unwrap().map(name).collect();
    names.sort();
    names
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn attributes(mode: u16) -> Attributes {
    Attributes {
        mode,
        accessed: Timestamp { seconds: 1_111_111_111, nanoseconds: 1 },
        modified: Timestamp { seconds: -5, nanoseconds: 123_456_789 },
    }
}

fn store(target: &mut Target, as_name: &str, content: &[u8]) -> io::Result<Option<io::Error>> {
    let mut part = target.begin_file(name(as_name))?;
    part.write(content)?;
    target.finish_file(part, name(as_name), attributes(0o640))
}

fn errno(result: io::Result<impl std::fmt::Debug>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}

#[test]
fn a_file_appears_complete_or_not_at_all() {
    let place = place();
    let mut target = place.target();
    fs::write(place.into.join("f"), "old").unwrap();
    let mut part = target.begin_file(name("f")).unwrap();
    part.write(b"new").unwrap();
    let during = place.entries();
    assert_eq!(during.len(), 2);
    assert!(during[0].starts_with(".farhaul-") && during[0].ends_with(".part"), "{during:?}");
    assert_eq!(fs::read(place.into.join("f")).unwrap(), b"old");
    assert!(target.finish_file(part, name("f"), attributes(0o666)).unwrap().is_none());
    assert_eq!(place.entries(), ["f"]);
    let meta = fs::metadata(place.into.join("f")).unwrap();
    assert_eq!(fs::read(place.into.join("f")).unwrap(), b"new");
    assert_eq!(meta.mode() & 0o7777, 0o666, "whatever the umask");
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (-5, 123_456_789));
    assert_eq!((meta.atime(), meta.atime_nsec()), (1_111_111_111, 1));

    let part = target.begin_file(name("g")).unwrap();
    drop(part);
    assert_eq!(place.entries(), ["f"]);
}

#[test]
fn an_unfinished_file_is_nobody_else_s_to_read() {
    let place = place();
    let _part = place.target().begin_file(name("f")).unwrap();
    let temporary = place.into.join(&place.entries()[0]);
    assert_eq!(fs::metadata(temporary).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn holes_at_either_end_count() {
    let place = place();
    let mut target = place.target();
    let mut part = target.begin_file(name("f")).unwrap();
    part.skip(10);
    part.write(b"x").unwrap();
    part.skip(5);
    target.finish_file(part, name("f"), attributes(0o600)).unwrap();
    let expected = [&[0; 10][..], b"x", &[0; 5]].concat();
    assert_eq!(fs::read(place.into.join("f")).unwrap(), expected);
}

#[test]
fn links_in_the_target_are_replaced_and_never_followed() {
    let place = place();
    symlink(place.outside.join("secret"), place.into.join("file")).unwrap();
    symlink(&place.outside, place.into.join("dir")).unwrap();
    symlink(place.outside.join("not-there-yet"), place.into.join("dangling")).unwrap();
    let mut target = place.target();
    assert!(target.enter(name("dir"), attributes(0o755)).is_err());
    assert!(target.enter(name("dangling"), attributes(0o755)).is_err());
    assert_eq!(target.depth(), 0);
    for as_name in ["file", "dir", "dangling"] {
        store(&mut target, as_name, b"mine").unwrap();
        assert!(fs::symlink_metadata(place.into.join(as_name)).unwrap().is_file());
    }
    place.assert_outside_untouched();
}

#[test]
fn a_directory_swapped_for_a_link_does_not_lead_away() {
    let place = place();
    let mut target = place.target();
    target.enter(name("d"), attributes(0o755)).unwrap();
    fs::rename(place.into.join("d"), place.into.join("moved")).unwrap();
    symlink(&place.outside, place.into.join("d")).unwrap();
    store(&mut target, "f", b"mine").unwrap();
    target.enter(name("sub"), attributes(0o755)).unwrap();
    drop(target);
    assert_eq!(names_in(&place.into.join("moved")), ["f", "sub"]);
    place.assert_outside_untouched();
}

#[test]
fn links_keep_their_text_and_times() {
    let place = place();
    let mut target = place.target();
    for (as_name, text) in [("a", "/etc/passwd"), ("b", "../../.."), ("c", "nowhere"), ("a", "x")] {
        let set = target.symlink(name(as_name), text.as_bytes(), attributes(0o777)).unwrap();
        assert!(set.is_none());
        let path = place.into.join(as_name);
        assert_eq!(fs::read_link(&path).unwrap(), Path::new(text));
        let meta = fs::symlink_metadata(&path).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (-5, 123_456_789));
    }
    assert_eq!(place.entries(), ["a", "b", "c"]);
}

#[test]
fn a_directory_is_never_replaced() {
    let place = place();
    let mut target = place.target();
    fs::create_dir(place.into.join("d")).unwrap();
    assert_eq!(errno(target.begin_file(name("d"))), Errno::ISDIR);
    assert_eq!(errno(target.symlink(name("d"), b"x", attributes(0))), Errno::ISDIR);
    // One that comes while the file is on its way.
    let part = target.begin_file(name("e")).unwrap();
    fs::create_dir(place.into.join("e")).unwrap();
    assert_eq!(errno(target.finish_file(part, name("e"), attributes(0o600))), Errno::ISDIR);
    assert_eq!(place.entries(), ["d", "e"], "and nothing is left over");
}

#[test]
fn a_file_is_not_entered() {
    let place = place();
    fs::write(place.into.join("f"), "").unwrap();
    assert_eq!(errno(place.target().enter(name("f"), attributes(0o755))), Errno::NOTDIR);
}

#[test]
fn directories_get_mode_and_times_when_they_are_left() {
    let place = place();
    let mut target = place.target();
    target.enter(name("d"), attributes(0o500)).unwrap();
    target.enter(name("e"), attributes(0o711)).unwrap();
    store(&mut target, "f", b"").unwrap();
    assert!(target.leave().unwrap().is_none());
    store(&mut target, "g", b"").unwrap();
    assert!(target.leave().unwrap().is_none());
    for (path, mode) in [("d", 0o500), ("d/e", 0o711)] {
        let meta = fs::metadata(place.into.join(path)).unwrap();
        assert_eq!(meta.mode() & 0o7777, mode, "{path}");
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (-5, 123_456_789), "{path}");
    }
    // Again into what is now read-only, and this time without an orderly end.
    target.enter(name("d"), attributes(0o500)).unwrap();
    store(&mut target, "h", b"").unwrap();
    drop(target);
    let meta = fs::metadata(place.into.join("d")).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.mtime()), (0o500, -5));
    fs::set_permissions(place.into.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(names_in(&place.into.join("d")), ["e", "g", "h"]);
}

#[test]
fn set_id_bits_are_dropped_unless_wanted() {
    let place = place();
    for (keep_set_id, expected) in [(false, 0o1755), (true, 0o7755)] {
        let policy = Policy { keep_set_id, durable: true };
        let mut target = Target::open(&place.into, policy).unwrap();
        let part = target.begin_file(name("f")).unwrap();
        target.finish_file(part, name("f"), attributes(0o7755)).unwrap();
        let mode = fs::metadata(place.into.join("f")).unwrap().mode() & 0o7777;
        assert_eq!(mode, expected);
        target.finish().unwrap();
    }
}

#[test]
fn a_directory_keeps_the_group_bit_it_has_here() {
    let place = place();
    fs::create_dir(place.into.join("shared")).unwrap();
    fs::set_permissions(place.into.join("shared"), fs::Permissions::from_mode(0o2775)).unwrap();
    let mut target = place.target();
    target.enter(name("shared"), attributes(0o755)).unwrap();
    target.leave().unwrap();
    let mode = fs::metadata(place.into.join("shared")).unwrap().mode() & 0o7777;
    assert_eq!(mode, 0o2755);
}

#[test]
fn the_target_is_made_if_need_be_and_must_be_a_directory() {
    let place = place();
    let deep = place.into.join("a/b");
    store(&mut Target::open(&deep, Policy::default()).unwrap(), "f", b"x").unwrap();
    assert_eq!(names_in(&deep), ["f"]);
    assert!(Target::open(&deep.join("f"), Policy::default()).is_err());
    symlink(&deep, place.into.join("link")).unwrap();
    let mut target = Target::open(&place.into.join("link"), Policy::default()).unwrap();
    store(&mut target, "g", b"x").unwrap();
    assert_eq!(names_in(&deep), ["f", "g"]);
}
