//! What is kept of entries beside their content.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::{CWD, XattrFlags, getxattr, setxattr};

use super::*;
use crate::transfer::message::Extra;

fn send(source: &mut Script<'_>, mode: u16, extra: Option<Extra>) {
    let entry = Entry {
        name: b"f".to_vec(),
        attributes: attributes(mode),
        extra: extra.map(Box::new),
        what: What::File { size: 1, sparse: false, origin: ORIGIN },
    };
    let file = source.entries;
    source.entries += 1;
    source.tally = Tally { files: 1, bytes: 1, ..Tally::default() };
    source.say(Message::Entry(entry)).unwrap();
    source.verdict(file);
    source.send(&[(whole_piece(file, b"x"), b"x")]).unwrap();
    source.end();
}

#[test]
fn set_id_bits_are_kept_only_if_asked_for() {
    for (keep_set_id, expected) in [(false, 0o755), (true, 0o6755)] {
        let dir = tempfile::tempdir().unwrap();
        let options = SinkOptions { keep_set_id, ..into(dir.path()) };
        run(options, |source| send(source, 0o6755, None)).1.unwrap();
        let mode = fs::metadata(dir.path().join("f")).unwrap().mode();
        assert_eq!(mode & 0o7777, expected);
    }
}

#[test]
fn a_mask_takes_from_modes_whatever_else_is_kept() {
    let mode =
        |dir: &tempfile::TempDir| fs::metadata(dir.path().join("f")).unwrap().mode() & 0o7777;
    for preserve in [Preserve::default(), Preserve { mode: false, ..Preserve::default() }] {
        for existing in [Existing::Update, Existing::Checksum] {
            let dir = tempfile::tempdir().unwrap();
            let options = || SinkOptions {
                keep_set_id: true,
                mode_mask: 0o2700,
                preserve,
                existing,
                ..into(dir.path())
            };
            run(options(), |source| send(source, 0o7777, None)).1.unwrap();
            let set_id = if preserve.mode { 0o2000 } else { 0 };
            assert_eq!(mode(&dir), 0o700 | set_id);
        }
    }
}

#[test]
fn modes_and_times_that_are_not_kept_are_those_of_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let preserve = Preserve { mode: false, times: false, ..Preserve::default() };
    let options = || SinkOptions { preserve, existing: Existing::Overwrite, ..into(dir.path()) };
    run(options(), |source| send(source, 0o4777, None)).1.unwrap();
    let path = dir.path().join("f");
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o777 & !super::super::attributes::umask());
    assert_ne!(meta.mtime(), TIME.seconds);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    run(options(), |source| send(source, 0o777, None)).1.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
}

#[test]
fn extended_attributes_are_kept_as_far_as_they_may() {
    let dir = tempfile::tempdir().unwrap();
    let probe = setxattr(dir.path(), "user.probe", b"", XattrFlags::empty());
    if let Err(error) = probe {
        eprintln!("skipped: no extended attributes here: {error}");
        return;
    }
    let preserve = Preserve { xattrs: true, ..Preserve::default() };
    let extra = Extra {
        owner: None,
        xattrs: vec![
            (b"user.kept".to_vec(), b"value".to_vec()),
            (b"system.odd".to_vec(), b"".to_vec()),
            (b"security.capability".to_vec(), b"x".to_vec()),
        ],
    };
    let options = SinkOptions { preserve, ..into(dir.path()) };
    let (_, worked, world) = run(options, |source| send(source, 0o644, Some(extra)));
    worked.unwrap();
    let mut value = [0; 64];
    let length = getxattr(dir.path().join("f"), "user.kept", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"value");
    let told = world.told();
    assert!(told.iter().any(|line| line.contains("system.odd")), "{told:?}");
}

#[test]
fn owners_are_kept_only_if_asked_for() {
    for owner in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let preserve = Preserve { owner, ..Preserve::default() };
        let extra = Extra { owner: Some((1234, 2345)), xattrs: Vec::new() };
        let options = SinkOptions { preserve, ..into(dir.path()) };
        let (_, worked, world) = run(options, |source| send(source, 0o4755, Some(extra)));
        worked.unwrap();
        let meta = fs::metadata(dir.path().join("f")).unwrap();
        if !owner {
            assert_ne!(meta.uid(), 1234);
        } else if rustix::process::geteuid().is_root() {
            assert_eq!((meta.uid(), meta.gid()), (1234, 2345));
        } else {
            assert!(world.told().iter().any(|line| line.contains("owner")));
        }
    }
}

#[test]
fn a_set_group_id_bit_of_the_place_stays() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("d");
    fs::create_dir(&inner).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o2700);
    rustix::fs::chmodat(CWD, &inner, mode, rustix::fs::AtFlags::empty()).unwrap();
    run(into(dir.path()), |source| {
        source.directory("d");
        source.leave();
        source.end();
    })
    .1
    .unwrap();
    assert_eq!(fs::metadata(&inner).unwrap().mode() & 0o7777, 0o2755);
}

#[test]
fn a_mask_takes_from_the_mode_of_a_directory_that_is_made_for_the_copy() {
    let dir = tempfile::tempdir().unwrap();
    for (name, target) in [
        ("one", SinkTarget::Path { path: dir.path().join("one"), directory: true }),
        ("two", SinkTarget::Below { root: dir.path().into(), path: "two".into(), directory: true }),
    ] {
        let options = SinkOptions { mode_mask: 0o2700, ..SinkOptions::new(target) };
        run(options, |source| {
            source.small("file", b"1");
            source.end();
        })
        .1
        .unwrap();
        assert_eq!(fs::metadata(dir.path().join(name)).unwrap().mode() & 0o7777, 0o700, "{name}");
    }
}
