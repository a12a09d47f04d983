//! Packets simulated a second, with one flow and with many; the round trip is 20 ms.

#![allow(missing_docs, reason = "a program of its own")]

use divan::Bencher;
use divan::counter::ItemsCount;
use farhaul_base::Time;
use farhaul_engine::Config;
use farhaul_sim::Simulation;

#[path = "../tests/dumbbell/mod.rs"]
mod dumbbell;

/// Simulated, and what of it is not counted: slow start.
const SECONDS: u64 = 5;

/// Flows that share a link: the more there are, the fewer packets each timer and turn is for.
#[divan::bench(args = [1, 10, 100, 1000], sample_count = 3)]
fn data_packets_of_a_shared_link(bencher: Bencher<'_, '_>, flows: u32) {
    measure(bencher, flows, &|| dumbbell::udt_flows(&dumbbell::path("1G", 20), flows, 1), true);
}

/// All packets of flows of 10 Mb/s each: as much to do for each, however many there are.
#[divan::bench(args = [1, 10, 100, 1000], sample_count = 3)]
fn packets_of_equal_flows(bencher: Bencher<'_, '_>, flows: u32) {
    let config = Config { max_bandwidth: Some(10_000_000), ..Config::default() };
    let path = dumbbell::path(&format!("{}M", 12 * flows), 20);
    measure(bencher, flows, &|| dumbbell::udt_flows_with(&config, &path, flows, 1), false);
}

/// The time for as many seconds after the start; counted are data packets that arrive, or all that
/// are sent.
fn measure(
    bencher: Bencher<'_, '_>,
    flows: u32,
    start: &(dyn Fn() -> Simulation + Sync),
    only_data: bool,
) {
    let begun = || {
        let mut simulation = start();
        simulation.run_until(Time::from_secs(SECONDS));
        simulation
    };
    let count = |simulation: &mut Simulation| match only_data {
        true => dumbbell::received(simulation, flows).iter().sum::<u64>() / 1456,
        false => simulation.packets(),
    };
    let mut simulation = begun();
    let before = count(&mut simulation);
    simulation.run_until(Time::from_secs(2 * SECONDS));
    let packets = count(&mut simulation) - before;
    bencher.counter(ItemsCount::new(packets)).with_inputs(begun).bench_values(|mut simulation| {
        simulation.run_until(Time::from_secs(2 * SECONDS));
        simulation
    });
}

fn main() {
    divan::main();
}
