use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::transfer::tree_hash::ZEROS;

const HERE: BootId = [1; 16];
const BEFORE: BootId = [2; 16];

fn header(chunks: u64, sparse: bool) -> Header {
    let modified = Timestamp { seconds: -7, nanoseconds: 999_999_999 };
    let origin = Origin { changed: Timestamp { seconds: 8, nanoseconds: 1 }, inode: 77 };
    let identity = Identity { size: chunks * CHUNK - 5, modified, origin, sparse, verify: true };
    Header {
        identity,
        name: [3; 32],
        boot: BEFORE,
        part: FileId { inode: 1234, born: 99 },
        nonce: [9; 8],
    }
}

fn written(header: &Header, records: &[Record]) -> Vec<u8> {
    let mut bytes = header.encode().to_vec();
    for (number, record) in records.iter().enumerate() {
        bytes.extend(record.encode(header.seal(), number as u64));
    }
    bytes
}

fn chunk(index: u64) -> Record {
    Record::Proved(Node::chunk(index, [index as u8 + 1; 32]))
}

/// What holds, chunk by chunk.
fn there(tree: &ChunkTree) -> Vec<u64> {
    (0..tree.chunks()).filter(|index| tree.contains(*index)).collect()
}

#[test]
fn a_journal_says_what_was_written() {
    let header = header(10, true);
    let records =
        [chunk(3), Record::Zeros { first: 5, count: 2 }, Record::Synced { records: 1 }, chunk(9)];
    let bytes = written(&header, &records);
    let (read, same_boot) = replay(&bytes, BEFORE).unwrap();
    assert_eq!(read, header);
    assert_eq!((there(&same_boot.tree), same_boot.records), (vec![3, 5, 6, 9], 4));
    assert!(same_boot.unproved.is_empty());
    let (_, later) = replay(&bytes, HERE).unwrap();
    assert_eq!((there(&later.tree), later.records), (vec![3], 4));
    assert_eq!(later.unproved, [records[1], records[3]]);
}

#[test]
fn a_boot_without_a_name_is_no_other_one() {
    let header = Header { boot: BootId::default(), ..header(3, false) };
    let (_, replayed) = replay(&written(&header, &[chunk(0)]), BootId::default()).unwrap();
    assert_eq!((there(&replayed.tree), replayed.unproved), (vec![], vec![chunk(0)]));
}

#[test]
fn records_of_another_place_or_journal_end_the_reading() {
    let header = header(10, false);
    let good = written(&header, &[chunk(1), chunk(2)]);
    let other = written(&Header { nonce: [8; 8], ..header }, &[chunk(3), chunk(4), chunk(5)]);
    let (first, second) = (&good[HEADER..HEADER + RECORD], &good[HEADER + RECORD..]);
    let records = |bytes: Vec<u8>| replay(&bytes, BEFORE).unwrap().1.records;
    assert_eq!(records([&good[..HEADER], second, first].concat()), 0, "swapped");
    assert_eq!(records([&good[..], second].concat()), 2, "repeated");
    assert_eq!(records([&good[..], &other[HEADER + 2 * RECORD..]].concat()), 2, "recycled blocks");
    assert_eq!(records([&good[..], &[0; RECORD]].concat()), 2, "zeros");
}

#[test]
fn sound_records_that_make_no_sense_end_the_reading() {
    let dense = header(8, false);
    let node = |level, index| Record::Proved(Node { level, index, cv: [1; 32] });
    for record in [
        node(0, 8),
        node(0, u64::MAX),
        node(3, 0),
        node(63, 1),
        Record::Zeros { first: 0, count: 1 },
        Record::Synced { records: 2 },
    ] {
        let (_, replayed) = replay(&written(&dense, &[chunk(0), record]), BEFORE).unwrap();
        assert_eq!(replayed.records, 1, "{record:?}");
    }
    let far = Record::Zeros { first: 7, count: u64::MAX };
    assert_eq!(replay(&written(&header(8, true), &[far]), BEFORE).unwrap().1.records, 0);
}

fn any_record(chunks: u64) -> impl Strategy<Value = Record> {
    prop_oneof![
        4 => (0..chunks).prop_map(chunk),
        2 => (0..chunks, 0..4u64).prop_map(move |(first, count)| Record::Zeros {
            first,
            count: count.min(chunks - first)
        }),
        1 => Just(Record::Synced { records: u64::MAX }),
        1 => (0..chunks / 2).prop_map(|index| Record::Proved(Node { level: 1, index, cv: ZEROS })),
    ]
}

proptest! {
    /// A journal cut anywhere says what its whole records say; one with a wrong bit, what those
    /// before it say.
    #[test]
    fn damage_costs_only_what_is_behind_it(
        records in prop::collection::vec(any_record(12), 0..30),
        at in any::<prop::sample::Index>(),
        bit in 0..8u32,
        same_boot: bool,
    ) {
        let records: Vec<Record> = records
            .into_iter()
            .enumerate()
            .map(|(number, record)| match record {
                Record::Synced { .. } => Record::Synced { records: number as u64 },
                other => other,
            })
            .collect();
        let header = header(12, true);
        let boot = if same_boot { BEFORE } else { HERE };
        let bytes = written(&header, &records);
        let at = at.index(bytes.len());
        let mut wrong = bytes.clone();
        wrong[at] ^= 1 << bit;
        for damaged in [&bytes[..at], &wrong] {
            let replayed = replay(damaged, boot).map(|(_, replayed)| replayed);
            if at < HEADER {
                prop_assert!(replayed.is_none());
                continue;
            }
            let sound = (at - HEADER) / RECORD;
            let replayed = replayed.unwrap();
            let expected = replay(&written(&header, &records[..sound]), boot).unwrap().1;
            prop_assert_eq!(replayed.records, sound as u64);
            prop_assert_eq!(replayed.tree.nodes(), expected.tree.nodes());
            prop_assert_eq!(replayed.unproved, expected.unproved);
        }
    }

    #[test]
    fn headers_and_records_come_back(
        header in (any::<[u64; 6]>(), any::<(bool, bool, u32)>(), any::<[u8; 32]>()),
        kind in 0..3,
        level in 0..64u8,
        (a, b) in any::<(u64, u64)>(),
        number in any::<u64>(),
    ) {
        let ([size, seconds, part, nonce, later, inode], flags, name) = header;
        let (sparse, verify, nanoseconds) = flags;
        let modified = Timestamp { seconds: seconds as i64, nanoseconds };
        let changed = Timestamp { seconds: later as i64, nanoseconds: !nanoseconds };
        let origin = Origin { changed, inode };
        let identity = Identity { size, modified, origin, sparse, verify };
        let part = FileId { inode: part, born: !part };
        let header = Header { identity, name, boot: HERE, part, nonce: nonce.to_le_bytes() };
        prop_assert_eq!(Header::decode(&header.encode()), Some(header));
        let record = match kind {
            0 => Record::Proved(Node { level, index: a, cv: name }),
            1 => Record::Zeros { first: a, count: b },
            _ => Record::Synced { records: a },
        };
        let bytes = record.encode(header.seal(), number);
        prop_assert_eq!(Record::decode(&bytes, header.seal(), number), Some(record));
    }
}

/// The fuzzer's seeds are journals of today's format: `FARHAUL_WRITE_SEEDS=1` writes them anew.
#[test]
fn the_fuzzers_seeds_are_journals() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/mover_journal");
    let sparse = [chunk(3), Record::Zeros { first: 5, count: 2 }, Record::Synced { records: 2 }];
    let dense = [chunk(0), chunk(1), Record::Synced { records: 2 }, chunk(7), chunk(5)];
    for (name, header, records) in
        [("sparse", header(10, true), &sparse[..]), ("dense", header(9, false), &dense[..])]
    {
        let bytes = written(&header, records);
        if std::env::var_os("FARHAUL_WRITE_SEEDS").is_some() {
            std::fs::create_dir_all(&seeds).unwrap();
            std::fs::write(seeds.join(name), &bytes).unwrap();
        }
        assert_eq!(std::fs::read(seeds.join(name)).unwrap(), bytes, "{name}");
    }
}
