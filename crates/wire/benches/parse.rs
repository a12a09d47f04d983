//! What a packet costs to parse and to build: `cargo bench -p farhaul-wire`.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use farhaul_wire::{
    Ack, AckDetail, AckRates, AckSeq, Boundary, Control, DataHeader, LossRange, LossReport, MsgNo,
    Packet, Seq, encode_losses, is_control,
};

fn main() {
    divan::main();
}

const HEADER: DataHeader = DataHeader {
    seq: Seq::new(0x7fff_fff0),
    boundary: Boundary::SOLO,
    in_order: true,
    message: MsgNo::FIRST,
    timestamp: 1_000_000,
    dest: 0x1234_5678,
};

/// Packets per iteration, so that the clock is read once for many.
const BATCH: u32 = 64;

#[divan::bench]
fn data_build(bencher: Bencher) {
    let mut out = [[0u8; 16]; BATCH as usize];
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        let mut header = black_box(HEADER);
        for slot in &mut out {
            *slot = header.to_bytes();
            header.seq = header.seq.next();
        }
        black_box(&out);
    });
}

#[divan::bench]
fn data_parse(bencher: Bencher) {
    let mut buffer = vec![0u8; BATCH as usize * 1_472];
    for (i, datagram) in (0..).zip(buffer.chunks_exact_mut(1_472)) {
        let header = DataHeader { seq: HEADER.seq.plus(i), ..HEADER };
        datagram[..16].copy_from_slice(&header.to_bytes());
    }
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        let mut sum = 0;
        for datagram in black_box(&buffer).chunks_exact(1_472) {
            if let Ok(Packet::Data(header, payload)) = Packet::parse(datagram) {
                sum += u64::from(header.seq.value()) + payload.len() as u64;
            }
        }
        sum
    });
}

#[divan::bench]
fn peek(bencher: Bencher) {
    let datagram = [HEADER.to_bytes(); 4].concat();
    bencher.bench_local(|| {
        let datagram = black_box(datagram.as_slice());
        (is_control(datagram), farhaul_wire::dest(datagram))
    });
}

#[divan::bench]
fn ack_round_trip(bencher: Bencher) {
    let rates = Some(AckRates { receive_rate: 100_000, link_capacity: 120_000 });
    let detail = AckDetail { rtt_us: 80_000, rtt_var_us: 500, available: 8_190, rates };
    let ack = Ack { next: HEADER.seq, detail: Some(detail) };
    let body = Control::Ack { ack_seq: AckSeq::FIRST, ack };
    let mut out = [0; 64];
    bencher.bench_local(|| {
        let len = black_box(&body).write(0, HEADER.dest, &mut out).unwrap_or(0);
        black_box(Packet::parse(&out[..len])).is_ok()
    });
}

/// Every third range is a single packet, as scattered and bursty loss together make.
fn losses(count: u32) -> Vec<LossRange> {
    (0..count)
        .map(|i| {
            let first = HEADER.seq.plus(i * 10);
            LossRange { first, last: first.plus(i % 3) }
        })
        .collect()
}

#[divan::bench(args = [1, 16, 200])]
fn nak_encode(bencher: Bencher, count: u32) {
    let ranges = losses(count);
    let mut out = vec![0; 1_456];
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        let written = encode_losses(black_box(&ranges), &mut out);
        black_box(&out);
        written
    });
}

#[divan::bench(args = [1, 16, 200])]
fn nak_decode(bencher: Bencher, count: u32) {
    let mut out = vec![0; 1_456];
    let (bytes, taken) = encode_losses(&losses(count), &mut out);
    let payload = &out[..bytes];
    bencher.counter(ItemsCount::new(taken)).counter(BytesCount::new(bytes)).bench_local(|| {
        let list = LossReport::parse(black_box(payload)).ok()?;
        Some(list.ranges().map(LossRange::len).sum::<u32>())
    });
}
