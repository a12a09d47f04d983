//! Holes stay holes, and enormous files cost what their data costs.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use common::{assert_no_leftovers, transfer};

const GB: u64 = 1 << 30;

/// Whether the file system of the temporary directory keeps holes at all.
fn keeps_holes(dir: &Path) -> bool {
    let file = File::create(dir.join("probe")).unwrap();
    file.set_len(GB).unwrap();
    file.metadata().unwrap().blocks() * 512 < GB
}

#[test]
fn a_five_gigabyte_file_with_holes_arrives_with_its_holes() {
    let dir = tempfile::tempdir().unwrap();
    if !keeps_holes(dir.path()) {
        eprintln!("skipped: no sparse files in {:?}", dir.path());
        return;
    }
    let from = dir.path().join("image");
    let file = File::options().read(true).write(true).create_new(true).open(&from).unwrap();
    // Data at the start, across 2 GB and 4 GB (where 32-bit offsets end), not at the end.
    let pieces = [(0, 100_000), (2 * GB - 5000, 10_000), (4 * GB - 1, 2), (4 * GB + 70_000, 1)];
    for (offset, length) in pieces {
        let data: Vec<u8> = (0..length).map(|i: usize| (i * 7 + 1) as u8).collect();
        file.write_all_at(&data, offset).unwrap();
    }
    file.set_len(5 * GB + 1).unwrap();
    let into = dir.path().join("into");
    let (sent, received) = transfer(&[from], &into);
    let summary = sent.unwrap();
    assert_eq!(summary, received.unwrap());
    assert_eq!(summary.tally.bytes, 5 * GB + 1);
    assert!(summary.data_bytes < 4 << 20, "{} bytes of data", summary.data_bytes);

    let (before, after) = (file.metadata().unwrap(), fs::metadata(into.join("image")).unwrap());
    assert_eq!(after.len(), before.len());
    assert!(after.blocks() <= before.blocks() + 64, "{} for {}", after.blocks(), before.blocks());
    let arrived = File::open(into.join("image")).unwrap();
    for (offset, length) in pieces {
        // With some zeros on either side.
        let from = u64::saturating_sub(offset, 3000);
        let mut a = vec![1; length + 6000];
        let mut b = vec![2; length + 6000];
        file.read_exact_at(&mut a, from).unwrap();
        arrived.read_exact_at(&mut b, from).unwrap();
        assert_eq!(a, b, "around {offset}");
    }
}

#[test]
fn files_of_nothing_but_a_hole_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir(&from).unwrap();
    for (name, size) in [("empty", 0), ("one", 1), ("odd", 12_345), ("large", 3 * GB)] {
        File::create(from.join(name)).unwrap().set_len(size).unwrap();
    }
    let into = dir.path().join("into");
    let (sent, received) = transfer(&[from.join(".")], &into);
    assert_eq!(sent.unwrap(), received.unwrap());
    for (name, size) in [("empty", 0), ("one", 1), ("odd", 12_345), ("large", 3 * GB)] {
        assert_eq!(fs::metadata(into.join(name)).unwrap().len(), size, "{name}");
    }
    assert_eq!(fs::read(into.join("odd")).unwrap(), [0; 12_345]);
    assert_no_leftovers(dir.path());
}
