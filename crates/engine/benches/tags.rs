//! What the tag of a data packet costs: SipHash-1-3 over the payload of one.
//!
//! `cargo bench -p farhaul-engine --bench tags`

use std::hash::Hasher;
use std::hint::black_box;

use divan::Bencher;
use divan::counter::BytesCount;
use siphasher::sip::SipHasher13;

fn main() {
    divan::main();
}

const PAYLOAD: usize = 1_456;
/// Packets a round.
const COUNT: usize = 10_000;

#[divan::bench]
fn tag_data_packets(bencher: Bencher) {
    let packets = vec![5; COUNT * PAYLOAD];
    bencher.counter(BytesCount::new(packets.len())).bench_local(|| {
        for (number, payload) in (0u32..).zip(packets.chunks(PAYLOAD)) {
            let mut hasher = SipHasher13::new_with_key(black_box(&[7; 16]));
            hasher.write(&number.to_be_bytes());
            hasher.write(payload);
            black_box(hasher.finish() as u32);
        }
    });
}
