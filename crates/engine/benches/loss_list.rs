//! What an access to the loss list costs under congestion: `cargo bench -p farhaul-engine`.

#![allow(clippy::unwrap_used, reason = "a bench may panic")]

mod congestion;

use divan::Bencher;
use divan::counter::ItemsCount;
use farhaul_engine::LossList;
use farhaul_wire::{LossRange, Seq};

use congestion::{Step, pattern};

fn main() {
    divan::main();
}

/// Windows of 1 Gb/s and 100 ms, and of twelve times that.
const WINDOWS: [u32; 2] = [8_333, 100_000];

/// The whole pattern: an item is an access, whether the insertion of a burst, the question which
/// packet is the first lost, or the removal of one.
#[divan::bench(args = WINDOWS)]
fn congestion_pattern(bencher: Bencher, window: u32) {
    let steps = pattern(window, 300, 1);
    let accesses: u64 = steps.iter().map(|s| if let Step::Insert(_) = s { 1 } else { 2 }).sum();
    bencher
        .counter(ItemsCount::new(accesses))
        .with_inputs(|| LossList::new(window))
        .bench_local_values(|mut list| {
            for step in &steps {
                match *step {
                    Step::Insert(range) => {
                        list.insert(range);
                    }
                    Step::Repair { from, to } => {
                        list.remove(list.first(from, to).unwrap());
                    }
                }
            }
            list
        });
}

/// A burst of 3000, and its removal by one acknowledgement.
#[divan::bench(args = WINDOWS)]
fn burst_of_3000(bencher: Bencher, window: u32) {
    let mut list = LossList::new(window);
    let range = LossRange { first: Seq::new(100), last: Seq::new(3_099) };
    bencher.counter(ItemsCount::new(2u32)).bench_local(|| {
        list.insert(range);
        list.remove_range(range)
    });
}

/// Every other packet of a window is lost, the worst there is; the list is asked from its middle.
#[divan::bench(args = WINDOWS)]
fn first_of_many_holes(bencher: Bencher, window: u32) {
    let mut list = LossList::new(window);
    for n in (0..window).step_by(2) {
        list.insert(LossRange::single(Seq::new(n)));
    }
    let (from, to) = (Seq::new(window / 2), Seq::new(window - 1));
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| list.first(from, to));
}

/// The only lost packet is at the other end of the window.
#[divan::bench(args = WINDOWS)]
fn first_of_one_far_away(bencher: Bencher, window: u32) {
    let mut list = LossList::new(window);
    list.insert(LossRange::single(Seq::new(window - 1)));
    let (from, to) = (Seq::new(0), Seq::new(window - 1));
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| list.first(from, to));
}
