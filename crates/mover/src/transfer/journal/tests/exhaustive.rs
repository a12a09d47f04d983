//! Every short journal, held against a model without trees, and every way to cut one or to change a bit
//! of it.

use std::ops::Range;

use super::*;

const CHUNKS: u64 = 5;

fn proved(level: u8, index: u64, cv: u8) -> Record {
    Record::Proved(Node { level, index, cv: [cv; 32] })
}

fn proved_chunks(record: &Record) -> Option<Range<u64>> {
    match record {
        Record::Proved(node) => node.chunks(),
        _ => None,
    }
}

/// What sequences are made of: each kind of record, those that overlap, contradict each other or mean nothing.
fn alphabet() -> Vec<Record> {
    let zeros = |first, count| Record::Zeros { first, count };
    let lost = |first, count| Record::Lost { first, count };
    let mut all = vec![
        proved(0, 0, 1),
        proved(0, 0, 2),
        proved(0, 1, 3),
        proved(0, 4, 4),
        proved(1, 0, 5),
        proved(1, 1, 6),
        proved(2, 0, 7),
        zeros(0, 5),
        zeros(1, 2),
        zeros(3, 0),
        lost(0, 1),
        lost(2, 2),
        lost(0, 5),
        // Beyond the end.
        proved(0, 5, 8),
        zeros(4, 2),
        lost(5, 1),
    ];
    all.extend((0..4).map(|records| Record::Synced { records }));
    all
}

/// What is stated: chunks that hold together, and their value. Never two over one chunk.
type Stated = Vec<(Range<u64>, Cv)>;

fn meets(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// A journal's meaning, from its records one after the other.
struct Model {
    dense: bool,
    records: Vec<Record>,
}

impl Model {
    fn is_sound(&self, record: &Record) -> bool {
        match *record {
            Record::Proved(node) => (node.index + 1) << node.level <= CHUNKS,
            Record::Zeros { first, count } => !self.dense && first + count <= CHUNKS,
            Record::Lost { first, count } => first + count <= CHUNKS,
            Record::Synced { records } => records <= self.records.len() as u64,
        }
    }

    fn synced(&self) -> u64 {
        let synced = self.records.iter().filter_map(|record| match record {
            Record::Synced { records } => Some(*records),
            _ => None,
        });
        synced.max().unwrap_or(0)
    }

    /// What records with these numbers state, less what any record has taken back later.
    fn stated(&self, numbers: Range<u64>) -> Stated {
        let mut stated = Stated::new();
        for (number, record) in self.records.iter().enumerate() {
            let counts = numbers.contains(&(number as u64));
            match *record {
                Record::Proved(node) if counts => {
                    let chunks = node.index << node.level..(node.index + 1) << node.level;
                    if !stated.iter().any(|(other, _)| meets(other, &chunks)) {
                        stated.push((chunks, node.cv));
                    }
                }
                Record::Zeros { first, count } if counts => {
                    for chunks in gaps(&stated, first..first + count) {
                        stated.push((chunks, ZEROS));
                    }
                }
                Record::Lost { first, count } => {
                    stated.retain(|(chunks, _)| !meets(chunks, &(first..first + count)));
                }
                _ => {}
            }
        }
        stated.sort_by_key(|(chunks, _)| chunks.start);
        stated
    }

    /// Whether one of the records with these numbers says so, and no later one has taken anything of it
    /// back.
    fn holds(&self, (chunks, cv): &(Range<u64>, Cv), numbers: Range<u64>) -> bool {
        let mut holds = false;
        for (number, record) in self.records.iter().enumerate() {
            match *record {
                Record::Lost { first, count } => holds &= !meets(chunks, &(first..first + count)),
                _ if !numbers.contains(&(number as u64)) => {}
                Record::Proved(node) => {
                    holds |= node.chunks().as_ref() == Some(chunks) && node.cv == *cv
                }
                Record::Zeros { first, count } => {
                    holds |= first <= chunks.start && chunks.end <= first + count && *cv == ZEROS;
                }
                _ => {}
            }
        }
        holds
    }

    /// Whether pieces of different sizes were proved over one chunk, which no copy does.
    fn overlaps(&self) -> bool {
        let proved: Vec<_> = self.records.iter().filter_map(proved_chunks).collect();
        let differ = |a: &Range<u64>, b: &Range<u64>| meets(a, b) && a != b;
        proved.iter().any(|a| proved.iter().any(|b| differ(a, b)))
    }

    /// Fails unless that is what is sure and what is claimed.
    fn check(&self, sure: &Stated, claims: &Stated, believed: bool) {
        let end = self.records.len() as u64;
        let middle = if believed { self.synced() } else { 0 };
        let context = || format!("{:?}, believed: {believed}", self.records);
        assert!(sure.iter().all(|said| self.holds(said, 0..middle)), "{}", context());
        assert!(claims.iter().all(|said| self.holds(said, middle..end)), "{}", context());
        let all: Vec<_> = sure.iter().chain(claims).collect();
        for (number, (chunks, _)) in all.iter().enumerate() {
            let twice = all[..number].iter().any(|(other, _)| meets(other, chunks));
            assert!(!twice, "{}", context());
        }
        let any = |wanted: fn(&Record) -> bool| self.records.iter().any(wanted);
        let lost = any(|record| matches!(record, Record::Lost { .. }));
        let (must_be_sure, mut must_be_claimed) =
            (self.stated(0..middle), self.stated(middle..end));
        if !lost {
            must_be_claimed
                .retain(|(chunks, _)| !sure.iter().any(|(other, _)| meets(other, chunks)));
            assert_eq!((sure, claims), (&must_be_sure, &must_be_claimed), "{}", context());
        } else if !any(|record| matches!(record, Record::Zeros { .. })) {
            // Of what contradicts itself and was lost in part, other parts may be left. What is certain: no
            // chunk is missing. (Zeros may be cut into larger pieces, and more of them lost with one.) Of what
            // overlaps without being the same, a claim may keep another out: that chunk is sent again.
            let overlaps = self.overlaps();
            let has = |said: &Stated, chunk| said.iter().any(|(chunks, _)| chunks.contains(&chunk));
            for chunk in 0..CHUNKS {
                let must = has(&must_be_sure, chunk);
                assert!(has(sure, chunk) || !must, "{}", context());
                let must = has(&must_be_claimed, chunk) && !believed && !overlaps;
                assert!(has(claims, chunk) || !must, "{}", context());
            }
        }
    }
}

/// The gaps of `within`, in aligned pieces of 2^n chunks, the largest first that fits.
fn gaps(stated: &Stated, within: Range<u64>) -> Vec<Range<u64>> {
    let free = |chunk: u64| !stated.iter().any(|(chunks, _)| chunks.contains(&chunk));
    let mut pieces = Vec::new();
    let mut at = within.start;
    while at < within.end {
        if !free(at) {
            at += 1;
            continue;
        }
        let fits = |length: &u64| {
            at.is_multiple_of(*length) && at + length <= within.end && (at..at + length).all(free)
        };
        let length = [4, 2, 1].into_iter().find(fits).expect("one chunk fits");
        pieces.push(at..at + length);
        at += length;
    }
    pieces
}

fn nodes(tree: &ChunkTree) -> Stated {
    tree.each_node().map(|node| (node.chunks().expect("small"), node.cv)).collect()
}

/// Takes every record of the alphabet, and after each sound one again, to this depth. How many journals.
fn extend(header: &Header, replay: &Replay, model: &mut Model, depth: usize) -> u64 {
    let number = model.records.len() as u64;
    let mut journals = 0;
    for record in alphabet() {
        journals += 1;
        let mut replay = replay.clone();
        let taken = replay.take(&record.encode(header.seal(), number));
        assert_eq!(taken, model.is_sound(&record), "{:?}, then {record:?}", model.records);
        if !taken {
            continue;
        }
        model.records.push(record);
        for believed in [true, false] {
            let replayed = replay.clone().finish(&header.identity, believed);
            model.check(&nodes(&replayed.sure), &nodes(&replayed.claims), believed);
            assert_eq!((replayed.records, replayed.synced), (number + 1, model.synced()));
        }
        if depth > 1 {
            journals += extend(header, &replay, model, depth - 1);
        }
        model.records.pop();
    }
    journals
}

/// All sequences of up to four records, of dense files and of sparse ones; of five with FARHAUL_LONG=1.
#[test]
fn every_short_journal_means_what_its_records_say() {
    let long = std::env::var_os("FARHAUL_LONG").is_some_and(|value| value == "1");
    let depth = if long { 5 } else { 4 };
    for sparse in [true, false] {
        let header = header(CHUNKS, sparse);
        let mut model = Model { dense: !sparse, records: Vec::new() };
        let journals = extend(&header, &Replay::new(header), &mut model, depth);
        eprintln!("measured: {journals} journals of at most {depth} records, sparse: {sparse}");
    }
}

/// A journal with a record of each kind.
fn small(sparse: bool) -> (Header, Vec<Record>) {
    let mut records = vec![
        proved(0, 0, 1),
        proved(1, 1, 2),
        Record::Synced { records: 2 },
        Record::Lost { first: 0, count: 1 },
        proved(0, 4, 3),
    ];
    if sparse {
        records.push(Record::Zeros { first: 0, count: 2 });
    }
    records.push(Record::Synced { records: 4 });
    (header(CHUNKS, sparse), records)
}

/// What `bytes` say is what the first `records` of them say, or nothing if there is no header.
fn says_only(bytes: &[u8], header: &Header, records: &[Record], what: &str) {
    let Some((found, replayed)) = replay(bytes, true) else { panic!("no header: {what}") };
    assert_eq!((&found, replayed.records), (header, records.len() as u64), "{what}");
    let (_, expected) = replay(&written(header, records), true).expect("it is sound");
    assert_eq!(nodes(&replayed.sure), nodes(&expected.sure), "{what}");
    assert_eq!(nodes(&replayed.claims), nodes(&expected.claims), "{what}");
}

#[test]
fn every_beginning_of_a_journal_says_what_its_whole_records_say() {
    for sparse in [true, false] {
        let (header, records) = small(sparse);
        let bytes = written(&header, &records);
        for length in 0..=bytes.len() {
            match length.checked_sub(HEADER) {
                None => assert!(replay(&bytes[..length], true).is_none(), "{length} bytes"),
                Some(rest) => {
                    let whole = &records[..rest / RECORD];
                    says_only(&bytes[..length], &header, whole, &format!("{length} bytes"));
                }
            }
        }
    }
}

/// Every bit of the journal by itself, and every byte turned into zero and into ones.
#[test]
fn every_wrong_bit_costs_only_what_is_behind_it() {
    for sparse in [true, false] {
        let (header, records) = small(sparse);
        let bytes = written(&header, &records);
        for at in 0..bytes.len() {
            let bits = (0..8).map(|bit| bytes[at] ^ 1 << bit);
            for byte in bits.chain([0, 0xff]).filter(|byte| *byte != bytes[at]) {
                let mut damaged = bytes.clone();
                damaged[at] = byte;
                match at.checked_sub(HEADER) {
                    None => assert!(replay(&damaged, true).is_none(), "byte {at}: {byte:#x}"),
                    Some(rest) => {
                        let before = &records[..rest / RECORD];
                        says_only(&damaged, &header, before, &format!("byte {at}: {byte:#x}"));
                    }
                }
            }
        }
    }
}

/// A record is of its place and its journal: moved to any other place it ends the reading.
#[test]
fn no_record_holds_in_another_place() {
    let (header, records) = small(true);
    let bytes = written(&header, &records);
    let record = |number: usize| HEADER + number * RECORD..HEADER + (number + 1) * RECORD;
    for to in 0..records.len() {
        for from in (0..records.len()).filter(|from| *from != to) {
            let mut moved = bytes.clone();
            moved.copy_within(record(from), record(to).start);
            says_only(&moved, &header, &records[..to], &format!("record {from} as {to}"));
        }
        let other = Header { nonce: [8; 8], ..header };
        let mut foreign = bytes.clone();
        foreign[record(to)].copy_from_slice(&written(&other, &records)[record(to)]);
        says_only(&foreign, &header, &records[..to], &format!("another journal's record {to}"));
    }
}
