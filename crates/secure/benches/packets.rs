//! What it would cost to seal each packet instead of records: AES-256-GCM and a tag of 16 bytes for
//! each, its header bound to it. And GMAC alone, a tag over a packet that is sealed already.
//!
//! `cargo bench -p farhaul-secure --features known-keys --bench packets`

use std::hint::black_box;
use std::io::{self, Write};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use divan::Bencher;
use divan::counter::BytesCount;
use farhaul_secure::{Cipher, Role, Sealer, Session};

fn main() {
    divan::main();
}

/// Payload of a packet, its header, and the tag that takes room from the payload.
const PAYLOAD: usize = 1_456;
const HEADER: usize = 16;
const TAG: usize = 16;
const BODY: usize = PAYLOAD - TAG;
/// Bytes of content a round.
const TOTAL: usize = 16 << 20;

fn key() -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).expect("a key of 256 bits"))
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[divan::bench]
fn seal_records(bencher: Bencher) {
    let session = Session::with_known_keys(Role::Client, Cipher::Aes256Gcm, [7; 32]);
    let block = vec![5; 256 << 10];
    bencher.counter(BytesCount::new(TOTAL)).bench_local(|| {
        let mut sealer = Sealer::new(io::sink(), &session);
        for _ in 0..TOTAL / block.len() {
            sealer.write_all(black_box(&block)).expect("room");
        }
        sealer.finish().expect("room");
    });
}

#[divan::bench]
fn seal_packets(bencher: Bencher) {
    let (key, block) = (key(), vec![5; TOTAL]);
    let mut packet = vec![0; PAYLOAD];
    bencher.counter(BytesCount::new(TOTAL)).bench_local(|| {
        for (number, body) in block.chunks(BODY).enumerate() {
            let header = [number as u8; HEADER];
            let (out, tag) = packet.split_at_mut(body.len());
            let aad = Aad::from(black_box(&header));
            key.seal_out_of_place_scatter(
                nonce(number as u64),
                aad,
                body,
                out,
                &[],
                &mut tag[..TAG],
            )
            .expect("room");
        }
    });
}

#[divan::bench]
fn open_packets(bencher: Bencher) {
    let (key, block) = (key(), vec![5; TOTAL]);
    let header = [1; HEADER];
    let packets: Vec<(Vec<u8>, Vec<u8>)> = block
        .chunks(BODY)
        .enumerate()
        .map(|(number, body)| {
            let (mut out, mut tag) = (vec![0; body.len()], vec![0; TAG]);
            let aad = Aad::from(&header);
            key.seal_out_of_place_scatter(nonce(number as u64), aad, body, &mut out, &[], &mut tag)
                .expect("room");
            (out, tag)
        })
        .collect();
    let mut out = vec![0; BODY];
    bencher.counter(BytesCount::new(TOTAL)).bench_local(|| {
        for (number, (body, tag)) in packets.iter().enumerate() {
            let (nonce, aad) = (nonce(number as u64), Aad::from(black_box(&header)));
            key.open_separate_gather(nonce, aad, body, tag, &mut out[..body.len()])
                .expect("it was sealed so");
        }
    });
}

#[divan::bench]
fn tag_packets_with_gmac(bencher: Bencher) {
    let (key, block) = (key(), vec![5; TOTAL]);
    bencher.counter(BytesCount::new(TOTAL)).bench_local(|| {
        for (number, packet) in block.chunks(PAYLOAD).enumerate() {
            let aad = Aad::from(black_box(packet));
            let tag = key.seal_in_place_separate_tag(nonce(number as u64), aad, &mut []);
            let _ = black_box(tag.expect("no body"));
        }
    });
}
