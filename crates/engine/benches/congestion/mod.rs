//! Losses as in gu05 Figure 2-7: heavy congestion on a long 1 Gb/s path, bursts of up to 3000 lost
//! packets and more among many short ones, and their repair.

#![allow(dead_code, reason = "the bench and the figure use a part each")]

use farhaul_base::Rng;
use farhaul_wire::{LossRange, Seq};

/// The longest burst.
pub const LONGEST: u32 = 3_500;

/// What a loss list is asked to do.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// These packets are lost.
    Insert(LossRange),
    /// Which is the first lost, from here to there? It is sent again, and arrives.
    Repair { from: Seq, to: Seq },
}

/// `events` bursts of losses in a window of so many packets, over the wrap of sequence numbers, each
/// followed by the repair of as many packets as it takes for the next to fit.
pub fn pattern(window: u32, events: usize, seed: u64) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let mut steps = Vec::new();
    // Lost and not repaired, oldest first.
    let mut open: Vec<LossRange> = Vec::new();
    let mut next = Seq::new(Seq::MAX - 50_000);
    for _ in 0..events {
        let burst = burst(&mut rng);
        next = next.plus(1 + rng.below(300) as u32);
        let last = next.plus(burst - 1);
        while let Some(oldest) = open.first_mut() {
            if last.since(oldest.first) < window as i32 / 2 {
                break;
            }
            steps.push(Step::Repair { from: oldest.first, to: next });
            if oldest.first == oldest.last {
                open.remove(0);
            } else {
                oldest.first = oldest.first.next();
            }
        }
        let range = LossRange { first: next, last };
        steps.push(Step::Insert(range));
        open.push(range);
        next = last.next();
    }
    steps
}

/// Most events lose a few packets, some hundreds, and a few thousands.
fn burst(rng: &mut Rng) -> u32 {
    let most = match rng.below(20) {
        0..=9 => 8,
        10..=15 => 120,
        16..=18 => 1_200,
        _ => u64::from(LONGEST),
    };
    1 + rng.below(most) as u32
}
