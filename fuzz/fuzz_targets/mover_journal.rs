//! Whatever a journal's bytes are: reading them ends, what they prove is within the file and told
//! once, and the sound part of them, read alone, says the same.

#![no_main]

use farhaul_mover::transfer::journal::{HEADER, Header, RECORD, Record, replay};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // Check bytes are not guessed, so the fuzzer's records get sound ones.
    let Some(mut header) = Header::decode(bytes) else { return };
    header.identity.size &= i64::MAX as u64;
    let seal = header.seal();
    let mut sound = header.encode().to_vec();
    for (number, raw) in bytes[HEADER..].chunks_exact(RECORD).enumerate() {
        let number = number as u64;
        let word = |at| u64::from_be_bytes(std::array::from_fn(|byte| raw[at + byte]));
        let (first, count) = (word(1) >> (raw[17] & 63), word(9) >> (raw[18] & 63));
        let record = match raw[0] {
            0 => Record::Synced { records: first },
            254.. => Record::Lost { first, count },
            kind @ 1..128 => {
                let node = farhaul_mover::transfer::tree_hash::Node {
                    level: kind % 64,
                    index: first,
                    cv: std::array::from_fn(|byte| raw[9 + byte]),
                };
                Record::Proved(node)
            }
            _ => Record::Zeros { first, count },
        };
        let encoded = record.encode(seal, number);
        assert_eq!(Record::decode(&encoded, seal, number), Some(record));
        sound.extend(encoded);
    }
    check(&sound);
});

fn check(bytes: &[u8]) {
    let Some((header, believed)) = replay(bytes, true) else { return };
    let (_, doubted) = replay(bytes, false).expect("the header is sound");
    assert!(doubted.sure.is_empty());
    for replayed in [&believed, &doubted] {
        assert!(replayed.records <= ((bytes.len() - HEADER) / RECORD) as u64);
        assert!(replayed.synced <= replayed.records);
        for tree in [&replayed.sure, &replayed.claims] {
            let mut end = 0;
            for node in tree.each_node() {
                let chunks = tree.place(&node).expect("within the file");
                assert!(chunks.start >= end, "twice");
                end = chunks.end;
            }
            assert_eq!(tree.is_complete(), tree.missing().next().is_none());
            let _ = tree.root();
        }
        for node in replayed.claims.each_node() {
            let chunks = replayed.claims.place(&node).expect("within the file");
            assert!(replayed.sure.missing_in(chunks.clone()).eq([chunks]), "sure and claimed");
        }
    }
    let length = HEADER + believed.records as usize * RECORD;
    let (again, alone) = replay(&bytes[..length], true).expect("the header is sound");
    assert_eq!((again, alone.records), (header, believed.records));
    assert_eq!(alone.sure.nodes(), believed.sure.nodes());
    assert_eq!(alone.claims.nodes(), believed.claims.nodes());
}
