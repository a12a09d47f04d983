//! What it costs to tell a law of an event: through the governor, which contains it, and directly.

use core::hint::black_box;
use core::time::Duration;

use divan::Bencher;
use farhaul_base::Time;
use farhaul_control::{Governor, Knobs, Law, SentPacket, Spec, Udt, View};
use farhaul_wire::Seq;

fn main() {
    divan::main();
}

/// A connection at 1 Gb/s that gets an ACK each 10 ms.
fn view(nth: u32) -> View {
    View {
        now: Time::from_millis(10 * u64::from(nth)),
        rtt: Duration::from_millis(50),
        rtt_min: Duration::from_millis(50),
        arrival_rate: 80_000.0,
        delivery_rate: 80_000.0,
        capacity: 83_333.0,
        in_flight: 4_000,
        largest_sent: Seq::new(nth * 800 + 4_000),
        largest_acked: Seq::new(nth * 800),
        ..View::default()
    }
}

/// `udt` called as what it is.
#[divan::bench]
fn udt_directly(bencher: Bencher<'_, '_>) {
    let mut law = Udt::new(1, 16.0, false, 0.02);
    let mut knobs = Knobs::default();
    law.init(&view(0), &mut knobs);
    let mut nth = 0;
    bencher.bench_local(|| {
        nth += 1;
        law.on_ack(Seq::new(nth * 800), black_box(&view(nth)), &mut knobs);
    });
}

/// The same law through the trait and the governor.
#[divan::bench]
fn udt_governed(bencher: Bencher<'_, '_>) {
    on_ack(bencher, "udt");
}

/// An ACK, under each law.
#[divan::bench(args = LAWS)]
fn on_ack(bencher: Bencher<'_, '_>, law: &str) {
    let mut governor = governor(law);
    let mut nth = 0;
    bencher.bench_local(|| {
        nth += 1;
        let next = Seq::new(nth * 800);
        governor.tell(black_box(&view(nth)), |law, view, knobs| law.on_ack(next, view, knobs));
    });
}

/// A packet sent, to a law that watches packets or not: what the call itself costs.
#[divan::bench(args = LAWS)]
fn on_packet_sent(bencher: Bencher<'_, '_>, law: &str) {
    let mut governor = governor(law);
    let mut nth = 0;
    let view = view(1);
    bencher.bench_local(|| {
        nth += 1;
        let seq = Seq::new(nth);
        let packet = SentPacket { seq, len: 1_456, timestamp: nth, retransmission: false };
        governor.tell(black_box(&view), |law, view, knobs| law.on_packet_sent(&packet, view, knobs))
    });
}

const LAWS: &[&str] = &["udt", "reno", "cubic", "vegas", "copa"];

fn governor(law: &str) -> Governor {
    let spec: Spec = law.parse().expect("a law");
    let mut governor = Governor::new(spec.build(1));
    governor.tell(&view(0), |law, view, knobs| law.init(view, knobs));
    governor
}
