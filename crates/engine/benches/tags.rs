//! What tags cost: of a data packet, SipHash-1-3 over its payload; of a control packet, SipHash-2-4 over the longest
//! common one.
//!
//! `cargo bench -p farhaul-engine --bench tags`

use std::hash::Hasher;
use std::hint::black_box;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use siphasher::sip::{SipHasher13, SipHasher24};

fn main() {
    divan::main();
}

const PAYLOAD: usize = 1_456;
/// An ACK with everything in it, 40 bytes, behind the envelope's front of 8: see `engine/src/tags.rs`.
const CONTROL: usize = 48;
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

#[divan::bench]
fn tag_control_packets(bencher: Bencher) {
    let packets = vec![5; COUNT * CONTROL];
    bencher.counter(ItemsCount::new(COUNT)).bench_local(|| {
        for (number, packet) in (0u64..).zip(packets.chunks(CONTROL)) {
            let mut hasher = SipHasher24::new_with_key(black_box(&[7; 16]));
            hasher.write(&number.to_be_bytes());
            hasher.write(packet);
            black_box(hasher.finish());
        }
    });
}
