//! TCP data segments simulated a second: one flow over 1 Gb/s, 20 ms and over 10 Gb/s, 100 ms.

#![allow(missing_docs, reason = "a program of its own")]

use divan::Bencher;
use divan::counter::ItemsCount;
use tcp_run::{Run, WITHOUT_END, config, path};

#[path = "../tests/tcp_run/mod.rs"]
mod tcp_run;

/// What is not counted, seconds: slow start and the repair of what it lost.
const BEGIN: f64 = 4.0;
/// What is.
const END: f64 = 6.0;

#[divan::bench(args = [("1G", 20, "reno"), ("10G", 100, "reno"), ("10G", 100, "cubic")], sample_count = 3)]
fn segments(bencher: Bencher<'_, '_>, (rate, rtt_ms, law): (&str, u64, &str)) {
    let begun = || {
        let mut run = Run::one(&path(rate, rtt_ms), config(law), WITHOUT_END, 1);
        run.until(BEGIN);
        run
    };
    let mut run = begun();
    let before = run.source(0).stats().segments_sent;
    let sent = run.until(END).source(0).stats().segments_sent - before;
    bencher.counter(ItemsCount::new(sent)).with_inputs(begun).bench_values(|mut run| {
        run.until(END);
        run
    });
}

fn main() {
    divan::main();
}
