//! What a packet costs the sender and the receiver, acknowledgements included: an item is a packet.
//! `cargo bench -p farhaul-engine --bench hot_path`.
//!
//! Packets come as the kernel's offloads deliver them: 44 in a buffer, at 20 Gb/s.

#![allow(clippy::unwrap_used, reason = "a bench may panic")]

#[path = "../tests/lone/mod.rs"]
mod lone;

use core::time::Duration;

use bytes::{Bytes, BytesMut};
use divan::Bencher;
use divan::counter::ItemsCount;
use farhaul_engine::{Chunks, Config, ConnectionId, Transmit};
use farhaul_wire::{
    Ack, AckDetail, AckRates, AckSeq, Boundary, Control, DataHeader, MsgNo, Packet,
};
use lone::{ISN, Lone};

fn main() {
    divan::main();
}

/// Packets of one call, and how long they take at 20 Gb/s.
const BATCH: u32 = 44;
const BATCH_TIME: Duration = Duration::from_nanos(26_000);
const PAYLOAD: usize = 1_456;
/// Batches between two acknowledgements: at 20 Gb/s and a window of a megabyte, a quarter of it.
const BATCHES_AN_ACK: u32 = 4;

/// The sender: takes what the application writes, makes headers and gathers, and handles the
/// acknowledgements.
#[divan::bench]
fn send(bencher: Bencher) {
    let mut sender = Sender::new();
    for _ in 0..2_000 {
        sender.try_batch();
    }
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| sender.batch());
}

/// The receiver: stores a batch by reference, hands it to the application, and acknowledges.
#[divan::bench]
fn receive(bencher: Bencher) {
    let mut receiver = Receiver::new();
    for n in 0..2_000 {
        receiver.batch(&buffer(receiver.id, n, 0));
    }
    let mut next = 2_000;
    let id = receiver.id;
    bencher
        .counter(ItemsCount::new(BATCH))
        .with_inputs(|| {
            next += 1;
            buffer(id, next - 1, 0)
        })
        .bench_local_refs(|buffer| receiver.batch(buffer));
}

/// The same where one packet of each batch is lost and comes again with the next.
#[divan::bench]
fn receive_with_losses(bencher: Bencher) {
    let mut receiver = Receiver::new();
    let mut next = 0;
    let id = receiver.id;
    let mut generate = move || {
        next += 1;
        buffer(id, next - 1, 1)
    };
    for _ in 0..2_000 {
        receiver.batch(&generate());
    }
    bencher
        .counter(ItemsCount::new(BATCH))
        .with_inputs(generate)
        .bench_local_refs(|buffer| receiver.batch(buffer));
}

struct Sender {
    lone: Lone,
    id: ConnectionId,
    transmit: Transmit,
    block: Bytes,
    batches: u32,
    sent: u32,
    acks: u32,
}

impl Sender {
    fn new() -> Self {
        let (lone, id) = Lone::accepted(Config::default());
        let block = Bytes::from(vec![7; BATCH as usize * PAYLOAD]);
        Sender { lone, id, transmit: Transmit::new(), block, batches: 0, sent: 0, acks: 0 }
    }

    fn batch(&mut self) {
        let taken = self.try_batch();
        assert!(taken, "the windows are open and the buffer is not full");
    }

    /// False if the buffer is full, as while slow start begins.
    fn try_batch(&mut self) -> bool {
        let block = self.block.clone();
        let taken = self.lone.endpoint.update(self.id, |c| c.send_bytes(block)).unwrap().is_ok();
        self.lone.now += BATCH_TIME;
        self.poll();
        self.batches += 1;
        if self.batches.is_multiple_of(BATCHES_AN_ACK) {
            self.acks += 1;
            let detail = AckDetail {
                rtt_us: 100,
                rtt_var_us: 10,
                available: 8_192,
                rates: self
                    .acks
                    .is_multiple_of(100)
                    .then_some(AckRates { receive_rate: 17_000_000, link_capacity: 1_700_000 }),
            };
            let ack = Ack { next: ISN.plus(self.sent), detail: Some(detail) };
            let ack = Control::Ack { ack_seq: AckSeq::new(self.acks), ack };
            let mut packet = [0; 40];
            let len = ack.write(1, self.id.value(), &mut packet).unwrap();
            self.lone.push(&packet[..len]);
            self.poll();
        }
        taken
    }

    fn poll(&mut self) {
        let endpoint = &mut self.lone.endpoint;
        if endpoint.poll_timeout().is_some_and(|at| at <= self.lone.now) {
            endpoint.handle_timeout(self.lone.now);
        }
        while endpoint.poll_transmit(self.lone.now, &mut self.transmit) {
            if self.transmit.segment_size() > PAYLOAD {
                self.sent += self.transmit.segments() as u32;
                // What a driver does: an address and a length each.
                let lens = self.transmit.datagrams().map(|(_, payload)| payload.len());
                divan::black_box(lens.sum::<usize>());
            }
        }
        while let Some(event) = endpoint.poll_event() {
            divan::black_box(event);
        }
    }
}

struct Receiver {
    lone: Lone,
    id: ConnectionId,
    transmit: Transmit,
    chunks: Chunks,
    /// ACKs to answer.
    answers: Vec<AckSeq>,
}

impl Receiver {
    fn new() -> Self {
        let (lone, id) = Lone::accepted(Config::default());
        let (transmit, chunks) = (Transmit::new(), Chunks::default());
        Receiver { lone, id, transmit, chunks, answers: Vec::new() }
    }

    fn batch(&mut self, buffer: &Bytes) {
        let Lone { now, endpoint, peer } = &mut self.lone;
        *now += BATCH_TIME;
        if endpoint.poll_timeout().is_some_and(|at| at <= *now) {
            endpoint.handle_timeout(*now);
        }
        endpoint.handle(*now, *peer, buffer, PAYLOAD + 16, true);
        while endpoint.poll_transmit(*now, &mut self.transmit) {
            for (header, payload) in self.transmit.datagrams() {
                if u32::from_be_bytes(*header.first_chunk().unwrap()) == 0x8002_0000 {
                    let bytes = [header.as_slice(), payload].concat();
                    let Ok(Packet::Control(c)) = Packet::parse(&bytes) else { panic!() };
                    let Control::Ack { ack_seq, ack } = c.body else { panic!() };
                    self.answers.extend(ack.detail.map(|_| ack_seq));
                }
            }
        }
        while let Some(event) = endpoint.poll_event() {
            divan::black_box(event);
        }
        let chunks = &mut self.chunks;
        endpoint.update(self.id, |c| c.read(usize::MAX, chunks)).unwrap();
        while let Some(piece) = chunks.pop() {
            divan::black_box(piece);
        }
        while let Some(ack_seq) = self.answers.pop() {
            self.lone.push_control(self.id, &Control::Ack2 { ack_seq });
        }
    }
}

/// The `n`-th buffer of packets; of each, `lost` are missing and come at the end of the next.
fn buffer(id: ConnectionId, n: u32, lost: u32) -> Bytes {
    let fresh = BATCH - lost;
    let again = (0..lost).map(|l| (n.wrapping_sub(1) * BATCH).wrapping_add(20 + l));
    let places = (0..BATCH).filter(|i| !(20..20 + lost).contains(i)).map(|i| n * BATCH + i);
    let mut out = BytesMut::with_capacity(BATCH as usize * (PAYLOAD + 16));
    for (i, place) in places.chain(again.filter(|_| n > 0)).enumerate() {
        let header = DataHeader {
            seq: ISN.plus(place),
            boundary: Boundary::SOLO,
            in_order: false,
            message: MsgNo::new(1 + place % 1_000),
            timestamp: n * 26 + u32::from(i as u32 >= fresh),
            dest: id.value(),
        };
        out.extend_from_slice(&header.to_bytes());
        out.resize(out.len() + PAYLOAD, place as u8);
    }
    out.freeze()
}
