//! The fuzzers' seed corpora, `fuzz/seeds/<target>/<vector>`, are the captured packets.
//!
//! After a change of the vectors, `FARHAUL_WRITE_SEEDS=1 cargo test -p farhaul-wire --test
//! fuzz_seeds` writes them anew.

mod vectors;

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

/// File contents by file name.
type Files = BTreeMap<String, Vec<u8>>;

#[test]
#[expect(clippy::disallowed_methods, reason = "the files are written anew on request")]
fn seeds_are_the_vectors() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let [mut packet, mut nak, mut handshake] = [Files::new(), Files::new(), Files::new()];
    for vector in vectors::load() {
        let payload = vector.bytes[16..].to_vec();
        match vector.fields.get("type").and_then(|kind| kind.as_u64()) {
            Some(0) => handshake.insert(vector.name.clone(), payload),
            Some(3) => nak.insert(vector.name.clone(), payload),
            _ => None,
        };
        packet.insert(vector.name, vector.bytes);
    }
    for (target, expected) in [("packet", packet), ("nak", nak), ("handshake", handshake)] {
        let folder = seeds.join(target);
        if env::var_os("FARHAUL_WRITE_SEEDS").is_some() {
            fs::create_dir_all(&folder).unwrap();
            for (name, bytes) in &expected {
                fs::write(folder.join(name), bytes).unwrap();
            }
        }
        let found: Files = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
            })
            .collect();
        assert_eq!(found, expected, "{}", folder.display());
    }
}
