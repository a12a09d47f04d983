//! What is sent arrives as it was: names, contents, modes, times, links, holes.

#![allow(clippy::unwrap_used)]

mod common;

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use common::{assert_no_leftovers, paths, picture, transfer, without_access_times};

/// A tree to be made.
#[derive(Clone, Debug)]
enum Node {
    File { runs: Vec<(u16, Vec<u8>)>, tail: u32, mode: u32, times: Times },
    Directory { children: Vec<(OsString, Node)>, mode: u32, times: Times },
    Link { target: OsString, times: Times },
}

#[derive(Clone, Copy, Debug)]
struct Times {
    accessed: (i64, i64),
    modified: (i64, i64),
}

impl Node {
    fn make(&self, path: &Path) {
        match self {
            Node::File { runs, tail, mode, times } => {
                let file = File::create(path).unwrap();
                let mut offset = 0;
                for (hole, data) in runs {
                    offset += u64::from(*hole) * 4096;
                    file.write_all_at(data, offset).unwrap();
                    offset += data.len() as u64;
                }
                file.set_len(offset + u64::from(*tail)).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
                times.set(path);
            }
            Node::Directory { children, mode, times } => {
                fs::create_dir(path).unwrap();
                for (name, child) in children {
                    // Two children of one name: the first one stays.
                    if fs::symlink_metadata(path.join(name)).is_err() {
                        child.make(&path.join(name));
                    }
                }
                fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
                times.set(path);
            }
            Node::Link { target, times } => {
                symlink(target, path).unwrap();
                times.set(path);
            }
        }
    }
}

impl Times {
    fn set(self, path: &Path) {
        let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
        let times =
            Timestamps { last_access: time(self.accessed), last_modification: time(self.modified) };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// Any bytes but `/` and NUL, with a liking for what breaks programs.
fn names() -> impl Strategy<Value = OsString> {
    const ODD: &[&str] =
        &["...", "..a", "-rf", " ", "\n", "~", "été ☃", "\u{202e}x", "a\\b", ".hidden", "*"];
    prop_oneof![
        prop::sample::select(ODD).prop_map(OsString::from),
        "[a-z]{1,6}".prop_map(OsString::from),
        prop::collection::vec(any::<u8>(), 1..40)
            .prop_map(|mut bytes| {
                bytes.iter_mut().for_each(|b| {
                    if matches!(b, 0 | b'/') {
                        *b = b'_'
                    }
                });
                OsString::from_vec(bytes)
            })
            .prop_filter("not a name", |name| name != "." && name != ".."),
    ]
}

fn times() -> impl Strategy<Value = Times> {
    // Within what every file system keeps: 1970 to 2106.
    let time = || (0i64..4_294_967_295, 0i64..1_000_000_000);
    (time(), time()).prop_map(|(accessed, modified)| Times { accessed, modified })
}

fn leaves() -> impl Strategy<Value = Node> {
    let data = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..300),
        (1usize..700_000, any::<u8>()).prop_map(|(length, seed)| {
            (0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
        }),
    ];
    let runs = prop::collection::vec((prop_oneof![Just(0), 0u16..2000], data), 0..4);
    let tail = prop_oneof![Just(0), 0u32..3_000_000];
    prop_oneof![
        4 => (runs, tail, 0u32..0o1000, times())
            .prop_map(|(runs, tail, mode, times)| {
                Node::File { runs, tail, mode: mode | 0o400, times }
            }),
        1 => (prop::collection::vec(1u8..=255, 1..60), times())
            .prop_map(|(target, times)| Node::Link { target: OsString::from_vec(target), times }),
    ]
}

fn directories(inside: impl Strategy<Value = Node>) -> impl Strategy<Value = Node> {
    (prop::collection::vec((names(), inside), 0..5), 0u32..0o1000, times())
        .prop_map(|(children, mode, times)| Node::Directory { children, mode: mode | 0o700, times })
}

fn trees() -> impl Strategy<Value = Node> {
    directories(leaves().prop_recursive(4, 30, 5, |inside| directories(inside).boxed()))
}

proptest! {
    #![proptest_config(common::seeded(60))]

    #[test]
    fn random_trees_arrive_as_they_were(tree in trees(), name in names()) {
        let dir = tempfile::tempdir().unwrap();
        let (from, into) = (dir.path().join("from"), dir.path().join("into"));
        fs::create_dir(&from).unwrap();
        tree.make(&from.join(&name));
        // Looked at before anything is read, which would change them; those of directories are
        // changed by this very look.
        let accessed: Vec<_> = paths(&from)
            .into_iter()
            .map(|path| (fs::symlink_metadata(from.join(&path)).unwrap(), path))
            .filter(|(meta, _)| !meta.is_dir())
            .map(|(meta, path)| (path, (meta.atime(), meta.atime_nsec())))
            .collect();
        let (sent, received) = transfer(&[from.join(&name)], &into);
        let (sent, received) = (sent.unwrap(), received.unwrap());
        let arrived = picture(&into);
        let entries = sent.tally.files + sent.tally.directories + sent.tally.symlinks;
        prop_assert_eq!(entries, arrived.len() as u64);
        prop_assert_eq!(sent, received);
        for (path, accessed) in accessed {
            prop_assert_eq!(arrived[&path].accessed, accessed, "{:?}", path);
        }
        let source = without_access_times(picture(&from));
        prop_assert_eq!(without_access_times(arrived), source);
    }
}

#[test]
fn several_sources_and_contents_land_beside_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("a/deep")).unwrap();
    fs::create_dir_all(at("b")).unwrap();
    fs::write(at("a/deep/f"), "1").unwrap();
    fs::write(at("b/g"), "2").unwrap();
    fs::write(at("b/h"), "").unwrap();
    symlink("a", at("link")).unwrap();
    let (sent, received) = transfer(&[at("a/"), at("b/."), at("link")], &at("into"));
    assert_eq!(sent.unwrap(), received.unwrap());
    let paths: Vec<PathBuf> = picture(&at("into")).into_keys().collect();
    let expected = ["a", "a/deep", "a/deep/f", "g", "h", "link"];
    assert_eq!(paths, expected.map(PathBuf::from));
    assert_eq!(fs::read_link(at("into/link")).unwrap(), Path::new("a"));
}

#[test]
fn a_second_transfer_brings_a_changed_tree_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let (from, into) = (dir.path().join("tree"), dir.path().join("into"));
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::write(from.join("sub/f"), "first").unwrap();
    fs::set_permissions(from.join("sub/f"), fs::Permissions::from_mode(0o444)).unwrap();
    symlink("x", from.join("l")).unwrap();
    fs::set_permissions(from.join("sub"), fs::Permissions::from_mode(0o555)).unwrap();
    let sources = [from.clone()];
    transfer(&sources, &into).0.unwrap();
    fs::set_permissions(from.join("sub"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(from.join("sub/f")).unwrap();
    fs::write(from.join("sub/f"), "second").unwrap();
    fs::remove_file(from.join("l")).unwrap();
    symlink("y", from.join("l")).unwrap();
    transfer(&sources, &into).0.unwrap();
    let arrived = without_access_times(picture(&into.join("tree")));
    assert_eq!(arrived, without_access_times(picture(&from)));
}

#[test]
fn a_tree_with_many_small_files_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("many");
    for sub in 0..20 {
        let sub = from.join(sub.to_string());
        fs::create_dir_all(&sub).unwrap();
        for n in 0..150usize {
            fs::write(sub.join(n.to_string()), vec![n as u8; n % 7]).unwrap();
        }
    }
    let (sent, received) = transfer(std::slice::from_ref(&from), &dir.path().join("into"));
    let summary = sent.unwrap();
    assert_eq!(summary, received.unwrap());
    assert_eq!((summary.tally.files, summary.tally.directories), (3000, 21));
    let arrived = without_access_times(picture(&dir.path().join("into/many")));
    assert_eq!(arrived, without_access_times(picture(&from)));
    assert_no_leftovers(dir.path());
}
