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
    let Some((header, here)) = replay(bytes, boot(bytes)) else { return };
    let (_, elsewhere) = replay(bytes, [0; 16]).expect("the header is sound");
    for replayed in [&here, &elsewhere] {
        assert!(replayed.records <= ((bytes.len() - HEADER) / RECORD) as u64);
        assert!(replayed.synced <= replayed.records);
        let mut end = 0;
        for node in replayed.tree.nodes() {
            let chunks = replayed.tree.place(&node).expect("within the file");
            assert!(chunks.start >= end, "twice");
            end = chunks.end;
        }
        assert_eq!(replayed.tree.is_complete(), replayed.tree.missing().next().is_none());
        let _ = replayed.tree.root();
        assert!(replayed.unproved.len() as u64 <= replayed.records);
    }
    let length = HEADER + here.records as usize * RECORD;
    let (again, alone) = replay(&bytes[..length], header.boot).expect("the header is sound");
    assert_eq!((again, alone.records), (header, here.records));
    if header.boot != [0; 16] {
        assert!(here.unproved.is_empty());
        assert_eq!(alone.tree.nodes(), here.tree.nodes());
    }
}

/// The boot that a sound header names.
fn boot(bytes: &[u8]) -> [u8; 16] {
    Header::decode(bytes).map_or([0; 16], |header| header.boot)
}
