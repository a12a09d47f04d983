use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::transfer::tree_hash::ZEROS;

mod exhaustive;

const EPOCH: Epoch = Epoch { boot: [2; 16], mount: (3, 4) };

fn header(chunks: u64, sparse: bool) -> Header {
    let modified = Timestamp { seconds: -7, nanoseconds: 999_999_999 };
    let origin = Origin { changed: Timestamp { seconds: 8, nanoseconds: 1 }, inode: 77 };
    let identity = Identity { size: chunks * CHUNK - 5, modified, origin, sparse, verify: true };
    Header {
        identity,
        name: [3; 32],
        epoch: EPOCH,
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

/// What is sure and what is claimed, if the journal is believed.
fn believed(header: Header, records: &[Record]) -> (Vec<u64>, Vec<u64>) {
    let (_, replayed) = replay(&written(&header, records), true).unwrap();
    assert_eq!(replayed.records, records.len() as u64);
    (there(&replayed.sure), there(&replayed.claims))
}

/// What is claimed if it is not.
fn doubted(header: Header, records: &[Record]) -> Vec<u64> {
    let (_, replayed) = replay(&written(&header, records), false).unwrap();
    assert!(replayed.sure.is_empty() && replayed.records == records.len() as u64);
    there(&replayed.claims)
}

#[test]
fn a_journal_says_what_was_written() {
    let header = header(10, true);
    let records =
        [chunk(3), Record::Zeros { first: 5, count: 2 }, Record::Synced { records: 1 }, chunk(9)];
    assert_eq!(believed(header, &records), (vec![3], vec![5, 6, 9]));
    assert_eq!(doubted(header, &records), [3, 5, 6, 9]);
}

#[test]
fn what_was_lost_is_covered_by_no_sync_but_a_later_one() {
    let header = header(10, true);
    let lost = |first, count| Record::Lost { first, count };
    let synced = |records| Record::Synced { records };
    let mut records = vec![chunk(1), chunk(2), chunk(3), synced(3), lost(2, 1)];
    assert_eq!(believed(header, &records), (vec![1, 3], vec![]));
    assert_eq!(doubted(header, &records), [1, 3]);
    records.extend([synced(5), chunk(2)]);
    assert_eq!(believed(header, &records), (vec![1, 3], vec![2]));
    records.push(synced(7));
    assert_eq!(believed(header, &records), (vec![1, 2, 3], vec![]));
    // Claims that no sync has covered.
    let records = [chunk(1), chunk(2), lost(0, 10), chunk(2), synced(4)];
    assert_eq!(believed(header, &records), (vec![2], vec![]));
    assert_eq!(doubted(header, &records), [2]);
    // One chunk takes its subtree along.
    let pair = Record::Proved(Node { level: 1, index: 1, cv: [1; 32] });
    assert_eq!(doubted(header, &[chunk(1), pair, lost(3, 1)]), [1]);
}

#[test]
fn claims_are_fine_and_few() {
    for (chunks, level) in [(1, 0), (4096, 0), (4097, 1), (1 << 20, 8), (1 << 40, 28)] {
        let identity = Identity { size: chunks * CHUNK, ..header(1, false).identity };
        let mut claims = identity.claims();
        let pair = |index| Node { level: 27, index, cv: [1; 32] };
        match chunks {
            1 => {}
            0x100_0000_0000 => (0..2).for_each(|index| claims.insert_node(pair(index)).unwrap()),
            _ => (0..1 << 9).for_each(|index| assert!(claims.insert(index, [1; 32]))),
        }
        assert!(claims.each_node().all(|node| node.level == level), "{chunks} {claims:?}");
        assert_eq!(claims.root(), None);
    }
}

#[test]
fn records_of_another_place_or_journal_end_the_reading() {
    let header = header(10, false);
    let good = written(&header, &[chunk(1), chunk(2)]);
    let other = written(&Header { nonce: [8; 8], ..header }, &[chunk(3), chunk(4), chunk(5)]);
    let (first, second) = (&good[HEADER..HEADER + RECORD], &good[HEADER + RECORD..]);
    let records = |bytes: Vec<u8>| replay(&bytes, true).unwrap().1.records;
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
        Record::Lost { first: 8, count: 1 },
        Record::Lost { first: 1, count: u64::MAX },
    ] {
        let (_, replayed) = replay(&written(&dense, &[chunk(0), record]), true).unwrap();
        assert_eq!(replayed.records, 1, "{record:?}");
    }
    let far = Record::Zeros { first: 7, count: u64::MAX };
    assert_eq!(replay(&written(&header(8, true), &[far]), true).unwrap().1.records, 0);
}

fn any_record(chunks: u64) -> impl Strategy<Value = Record> {
    prop_oneof![
        4 => (0..chunks).prop_map(chunk),
        2 => (0..chunks, 0..4u64).prop_map(move |(first, count)| Record::Zeros {
            first,
            count: count.min(chunks - first)
        }),
        1 => Just(Record::Synced { records: u64::MAX }),
        1 => (0..chunks, 0..4u64).prop_map(move |(first, count)| Record::Lost {
            first,
            count: count.min(chunks - first)
        }),
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
        believed: bool,
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
        let bytes = written(&header, &records);
        let at = at.index(bytes.len());
        let mut wrong = bytes.clone();
        wrong[at] ^= 1 << bit;
        for damaged in [&bytes[..at], &wrong] {
            let replayed = replay(damaged, believed).map(|(_, replayed)| replayed);
            if at < HEADER {
                prop_assert!(replayed.is_none());
                continue;
            }
            let sound = (at - HEADER) / RECORD;
            let replayed = replayed.unwrap();
            let expected = replay(&written(&header, &records[..sound]), believed).unwrap().1;
            prop_assert_eq!(replayed.records, sound as u64);
            prop_assert_eq!(replayed.sure.nodes(), expected.sure.nodes());
            prop_assert_eq!(replayed.claims.nodes(), expected.claims.nodes());
        }
    }

    /// What is claimed, chunk by chunk, is what the records say one after the other, but for subtrees
    /// that lose all when they lose a chunk; what is believed is what a sync covers, and the same.
    #[test]
    fn a_journal_is_its_records_one_after_the_other(
        records in prop::collection::vec(any_record(12), 0..30),
        covered in any::<prop::sample::Index>(),
    ) {
        let header = header(12, true);
        let chunks = |record: &Record| match record {
            Record::Proved(node) => node.chunks().unwrap(),
            Record::Zeros { first, count } | Record::Lost { first, count } => *first..first + count,
            Record::Synced { .. } => 0..0,
        };
        let mut records = records;
        records.retain(|record| !matches!(record, Record::Synced { .. }));
        let mut said = [false; 12];
        for record in &records {
            for chunk in chunks(record) {
                said[chunk as usize] = !matches!(record, Record::Lost { .. });
            }
        }
        let pairs = records.iter().any(|record| matches!(record, Record::Proved(n) if n.level > 0));
        let zeros = records.iter().any(|record| matches!(record, Record::Zeros { .. }));
        let said: Vec<u64> = (0..12).filter(|chunk| said[*chunk as usize]).collect();
        let claimed = doubted(header, &records);
        prop_assert!(claimed.iter().all(|chunk| said.contains(chunk)));
        prop_assert!(pairs || zeros || claimed == said);
        let covered = covered.index(records.len() + 1) as u64;
        records.push(Record::Synced { records: covered });
        let (sure, rest) = believed(header, &records);
        prop_assert!(sure.iter().chain(&rest).all(|chunk| said.contains(chunk)));
        prop_assert!(sure.iter().all(|chunk| !rest.contains(chunk)));
        let before: Vec<Record> = records[..covered as usize].to_vec();
        let before = doubted(header, &before);
        prop_assert!(sure.iter().all(|chunk| before.contains(chunk)));
    }

    #[test]
    fn headers_and_records_come_back(
        header in (any::<[u64; 8]>(), any::<(bool, bool, u32)>(), any::<[u8; 32]>()),
        kind in 0..4,
        level in 0..64u8,
        (a, b) in any::<(u64, u64)>(),
        number in any::<u64>(),
    ) {
        let ([size, seconds, part, nonce, later, inode, mount, device], flags, name) = header;
        let (sparse, verify, nanoseconds) = flags;
        let modified = Timestamp { seconds: seconds as i64, nanoseconds };
        let changed = Timestamp { seconds: later as i64, nanoseconds: !nanoseconds };
        let origin = Origin { changed, inode };
        let identity = Identity { size, modified, origin, sparse, verify };
        let part = FileId { inode: part, born: !part };
        let epoch = Epoch { boot: [1; 16], mount: (mount, device) };
        let header = Header { identity, name, epoch, part, nonce: nonce.to_le_bytes() };
        prop_assert_eq!(Header::decode(&header.encode()), Some(header));
        let record = match kind {
            0 => Record::Proved(Node { level, index: a, cv: name }),
            1 => Record::Zeros { first: a, count: b },
            2 => Record::Lost { first: a, count: b },
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
    let lost = Record::Lost { first: 1, count: 1 };
    let dense = [chunk(0), chunk(1), Record::Synced { records: 2 }, chunk(7), lost, chunk(5)];
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
