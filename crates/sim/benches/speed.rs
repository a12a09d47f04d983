//! Data packets simulated a second: one flow and many over 1 Gb/s, 20 ms.

#![allow(missing_docs, reason = "a program of its own")]

use divan::Bencher;
use divan::counter::ItemsCount;
use farhaul_base::Time;

#[path = "../tests/dumbbell/mod.rs"]
mod dumbbell;

/// Simulated, and what of it is not counted: slow start.
const SECONDS: u64 = 5;

#[divan::bench(args = [1, 10, 100, 1000], sample_count = 3)]
fn packets(bencher: Bencher<'_, '_>, flows: u32) {
    let begun = || {
        let mut simulation = dumbbell::udt_flows(&dumbbell::path("1G", 20), flows, 1);
        simulation.run_until(Time::from_secs(SECONDS));
        simulation
    };
    let mut simulation = begun();
    let before = dumbbell::received(&mut simulation, flows).iter().sum::<u64>();
    simulation.run_until(Time::from_secs(2 * SECONDS));
    let after = dumbbell::received(&mut simulation, flows).iter().sum::<u64>();
    let packets = (after - before) / 1456;
    bencher.counter(ItemsCount::new(packets)).with_inputs(begun).bench_values(|mut simulation| {
        simulation.run_until(Time::from_secs(2 * SECONDS));
        simulation
    });
}

fn main() {
    divan::main();
}
