//! Sets of paths for a race.

use core::str::FromStr;
use std::time::Duration;

use farhaul_base::Rng;
use farhaul_base::math::{exp, ln};

use super::Cell;

/// More paths than this take weeks.
const MOST_RANDOM: usize = 10_000;

/// A set of paths by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// [`standard`].
    Standard,
    /// [`quick`].
    Quick,
    /// [`random`], so many, from a seed; a fresh one if none is given.
    Random(usize, Option<u64>),
}

/// What is no set of paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no set of paths: give standard, quick, random:N or random:N:SEED, with N from 1 to {MOST_RANDOM}"
)]
pub struct PathsError(String);

impl FromStr for Paths {
    type Err = PathsError;

    fn from_str(text: &str) -> Result<Self, PathsError> {
        let error = || PathsError(text.to_owned());
        match text.split(':').collect::<Vec<_>>()[..] {
            ["standard"] => Ok(Paths::Standard),
            ["quick"] => Ok(Paths::Quick),
            ["random", count, ref seed @ ..] if seed.len() < 2 => {
                let count = count.parse().ok().filter(|count| (1..=MOST_RANDOM).contains(count));
                let seed = seed.first().map(|seed| seed.parse()).transpose();
                Ok(Paths::Random(count.ok_or_else(error)?, seed.map_err(|_| error())?))
            }
            _ => Err(error()),
        }
    }
}

/// Rates, round trips and losses; what else may befall two of them; and flows that share a path.
pub fn standard() -> Vec<Cell> {
    let mut cells = Vec::new();
    for rate in [10_000_000, 100_000_000, 1_000_000_000] {
        for rtt in [1, 10, 50, 100, 200] {
            for loss in [0.0, 0.1, 1.0, 2.0] {
                cells.push(Cell::new(rate, rtt, loss));
            }
        }
        cells.push(Cell::new(rate, 50, 3.0));
    }
    for rate in [100_000_000, 1_000_000_000] {
        let cell = Cell::new(rate, 50, 0.0);
        let tenth = rate / 10;
        let others = [
            "queue=0.1".to_owned(),
            "queue=5".into(),
            "queue=0.1,loss=1".into(),
            "jitter=1ms".into(),
            "jitter=3ms".into(),
            "jitter=3ms,loss=1".into(),
            "loss=1,burst=5".into(),
            "blackout=2s+1s".into(),
            format!("change=2s:{tenth}+4s:{rate}"),
        ];
        cells.extend(others.iter().map(|keys| changed(&cell, keys)));
    }
    let shared = ["flows=2", "against=tcp:cubic", "queue=4,against=tcp:cubic", "against=tcp:bbr"];
    for cell in [Cell::new(100_000_000, 50, 0.0), Cell::new(1_000_000_000, 10, 0.0)] {
        cells.extend(shared.iter().map(|keys| changed(&cell, keys)));
    }
    cells
}

/// A few of each kind.
pub fn quick() -> Vec<Cell> {
    let gigabit = Cell::new(1_000_000_000, 50, 0.0);
    let tenth = Cell::new(100_000_000, 50, 0.0);
    vec![
        Cell::new(10_000_000, 50, 0.0),
        Cell::new(100_000_000, 10, 0.1),
        Cell::new(100_000_000, 100, 1.0),
        Cell::new(1_000_000_000, 1, 1.0),
        Cell::new(1_000_000_000, 10, 1.0),
        gigabit.clone(),
        Cell::new(1_000_000_000, 100, 0.1),
        changed(&gigabit, "jitter=2ms"),
        changed(&tenth, "flows=2"),
        changed(&tenth, "against=tcp:cubic"),
    ]
}

fn changed(cell: &Cell, keys: &str) -> Cell {
    cell.changed(keys).expect("a path of our own")
}

/// So many paths, a function of `seed`: rates from 10 Mb/s to 1 Gb/s and round trips from 1 to 200 ms, both
/// evenly over their logarithms; losses from 0 to 3%, also in bursts; queues from 0.1 to 5 bandwidth-delay
/// products; jitter up to 3 ms, black-outs, rates that change; flows that share the path.
pub fn random(count: usize, seed: u64) -> Vec<Cell> {
    let mut rng = Rng::new(seed);
    (0..count).map(|_| changed(&Cell::new(1, 1, 0.0), &draw(&mut rng))).collect()
}

/// The keys of a path.
fn draw(rng: &mut Rng) -> String {
    // To two digits, so that a path has a short name.
    let rate = two_digits(between(rng, 1e7, 1e9) as u64);
    let rtt = Duration::from_millis(between(rng, 1.0, 200.5) as u64);
    let mut keys = format!("rate={rate},rtt={}ms", rtt.as_millis());
    let lossy = rng.chance(0.6);
    if lossy {
        keys += &format!(",loss={:.2}", between(rng, 0.01, 3.0));
        if rng.chance(0.25) {
            keys += &format!(",burst={}", 2 + rng.below(7));
        }
    }
    if rng.chance(0.5) {
        keys += &format!(",queue={:.1}", between(rng, 0.1, 5.0));
    }
    if rng.chance(0.4) {
        keys += &format!(",jitter={}us", 100 * (1 + rng.below(30)));
    }
    match rng.below(10) {
        0 => {
            keys += &format!(",blackout={}ms+{}ms", 1_500 + rng.below(1_500), 200 + rng.below(800))
        }
        1 => {
            let other = two_digits(rate / (2 + rng.below(9)));
            keys += &format!(",change={}ms:{other}+4s:{rate}", 1_500 + rng.below(1_500));
        }
        2 => keys += ",flows=2",
        3 => keys += ",against=tcp:cubic",
        _ => {}
    }
    keys
}

/// Evenly over the logarithms.
fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    exp(ln(low) + (ln(high) - ln(low)) * rng.unit())
}

fn two_digits(number: u64) -> u64 {
    let unit = 10_u64.pow(number.max(10).ilog10() - 1);
    number / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_chosen_by_name() {
        assert_eq!("standard".parse(), Ok(Paths::Standard));
        assert_eq!("random:20".parse(), Ok(Paths::Random(20, None)));
        assert_eq!("random:20:7".parse(), Ok(Paths::Random(20, Some(7))));
        for text in ["", "random", "random:0", "random:x", "random:20:x", "random:1:2:3", "quick:1"]
        {
            assert!(text.parse::<Paths>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_standard_set_has_all_kinds() {
        let cells = standard();
        let some = |what: fn(&Cell) -> bool| assert!(cells.iter().any(what));
        some(|cell| cell.queue < 0.2);
        some(|cell| cell.queue == 5.0);
        some(|cell| cell.jitter == Duration::from_millis(3));
        some(|cell| cell.burst > 1.0);
        some(|cell| cell.blackout.is_some());
        some(|cell| !cell.changes.is_empty());
        some(|cell| cell.loss == 3.0);
        some(|cell| cell.flows == 2);
        some(|cell| cell.against.is_some());
    }

    #[test]
    fn random_paths_follow_from_the_seed_and_stay_within_their_limits() {
        let cells = random(300, 5);
        assert_eq!(cells, random(300, 5));
        assert_ne!(cells, random(300, 6));
        for cell in &cells {
            let rate = cell.rate.bits_per_second();
            assert!((10_000_000..=1_000_000_000).contains(&rate), "{cell}");
            assert!((1..=200).contains(&cell.rtt.as_millis()), "{cell}");
            assert!((0.0..=3.0).contains(&cell.loss), "{cell}");
            assert!((0.1..=5.0).contains(&cell.queue), "{cell}");
            assert!(cell.jitter <= Duration::from_millis(3), "{cell}");
        }
        let share = |what: fn(&Cell) -> bool| cells.iter().filter(|cell| what(cell)).count();
        assert!(share(Cell::is_shared) > 30 && share(|cell| cell.blackout.is_some()) > 10);
        assert!(share(|cell| cell.rate.bits_per_second() < 100_000_000) > 100);
    }
}
