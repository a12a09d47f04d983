//! The race: one bulk flow of several systems after each other over the same paths, again and again.
//!
//! What runs is told by [`Race::runs`], in an order in which each system has its turn on a path before
//! any has a second; the caller does each run, in the emulator or in the simulator ([`simulate`]), and notes
//! what came of it with [`Race::note`]; what it all shows is [`Race::outcome`], wins and losses alike.
//!
//! | file | subject |
//! |---|---|
//! | `cell.rs`, `paths.rs` | a path; sets of paths |
//! | `system.rs`, `program.rs`, `systems/` | the systems; how a program is described; those described here |
//! | `sharing.rs` | what flows get of a path that they share |
//! | `judge.rs`, `telling.rs` | medians and checks; who was ahead, in words |
//! | `pictures.rs` | heat maps and tables |
//! | `simulate.rs` | a run in the simulator |

mod cell;
mod judge;
mod paths;
mod pictures;
pub mod program;
mod sharing;
mod simulate;
mod system;
mod telling;

use core::fmt;

use serde::{Deserialize, Serialize};

pub use cell::{Cell, CellError};
pub use paths::{Paths, PathsError, quick, random, standard};
pub use sharing::{Flow, Sharing};
pub use simulate::simulate;
pub use system::{Kind, System, SystemError, names};

use crate::statistics::median;

/// Where a race takes place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ground {
    /// Between two network namespaces, over an emulated path of real packets.
    #[default]
    Emulator,
    /// The simulator.
    Simulator,
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ground::Emulator => "real packets between two kernels",
            Ground::Simulator => "simulated",
        })
    }
}

/// What one run has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Payload that arrived over the time from the opened connection to the end, bits a second. Of a command that
    /// copies a file, over the time from its start to its end. Of several flows of the system, all together.
    pub goodput_bps: f64,
    /// From the same beginning until an interval in which 90% of the system's own steady rate
    /// arrived, seconds: see [`to_90`]. None if that is unknown.
    pub to_90_s: Option<f64>,
    /// The rate once the start is over, bits a second: see [`steady`]. None if that is unknown.
    pub steady_bps: Option<f64>,
    /// Share of the packets that entered the path which the payload does not need: retransmissions, and
    /// a few for control.
    pub again: f64,
    /// Packets sent again, as the sender counts them; none where it does not tell.
    pub retransmitted: Option<f64>,
    /// Mean time in the path's queue, milliseconds.
    pub queue_ms: f64,
    /// Processor time of both ends, seconds a gigabyte of payload; none where it is not measured.
    pub cpu_s_per_gb: Option<f64>,
    /// The most memory that a process of an end has had, bytes; none where it is not measured.
    pub memory_bytes: Option<f64>,
    /// The path was as asked.
    pub time_kept: bool,
    /// It was stopped before all had arrived.
    pub stopped: bool,
    /// On a path that flows share.
    pub sharing: Option<Sharing>,
}

/// The rate once the start is over: the median of the second half of `series`, which has the ends of
/// intervals, seconds, and the rates in them. None if nothing arrived then.
pub fn steady(series: &[(f64, f64)]) -> Option<f64> {
    let half: Vec<f64> = series[series.len() / 2..].iter().map(|(_, rate)| *rate).collect();
    median(&half).filter(|rate| *rate > 0.0)
}

/// When 90% of the [`steady`] rate was first reached.
pub fn to_90(series: &[(f64, f64)]) -> Option<f64> {
    let steady = steady(series)?;
    series.iter().find(|(_, rate)| *rate >= 0.9 * steady).map(|(end, _)| *end)
}

/// A run and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The path, as [`Cell`] is written.
    pub cell: String,
    /// The system, as [`System`] is written.
    pub system: String,
    /// Which repetition, from 0.
    pub round: u32,
    /// What was measured, or why nothing was.
    pub result: Result<Figures, String>,
}

/// A run to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Run<'a> {
    /// The path.
    pub cell: &'a Cell,
    /// The system.
    pub system: &'a System,
    /// Which repetition, from 0: what is random about the path follows from it.
    pub round: u32,
}

/// Paths, systems, repetitions, and what is known so far.
#[derive(Clone, Debug, Default)]
pub struct Race {
    /// The first is the one that the checks are about.
    pub systems: Vec<System>,
    /// The paths.
    pub cells: Vec<Cell>,
    /// How often each runs on each.
    pub rounds: u32,
    /// Where it takes place.
    pub ground: Ground,
    /// Systems that were asked for and cannot take part, each with the reason.
    pub absent: Vec<String>,
    /// What else is to be known of the ground, a sentence each.
    pub remarks: Vec<String>,
    /// The seed that the paths were drawn from, if they were.
    pub seed: Option<u64>,
    /// How to do it again.
    pub command: String,
    records: Vec<Record>,
}

impl Race {
    /// A race of which nothing has been run.
    pub fn new(systems: Vec<System>, cells: Vec<Cell>, rounds: u32) -> Self {
        Race { systems, cells, rounds, ..Race::default() }
    }

    /// All runs: round by round, path by path, and on each path the systems in turn, beginning with
    /// another one each round.
    pub fn runs(&self) -> Vec<Run<'_>> {
        let mut runs = Vec::new();
        for round in 0..self.rounds {
            for cell in &self.cells {
                let first = round as usize % self.systems.len().max(1);
                let (before, from) = self.systems.split_at(first);
                let turn = from.iter().chain(before);
                runs.extend(turn.map(|system| Run { cell, system, round }));
            }
        }
        runs
    }

    /// What became of a run. That of the same run before is forgotten.
    pub fn note(&mut self, record: Record) {
        let same = |known: &Record| {
            (&known.cell, &known.system, known.round)
                == (&record.cell, &record.system, record.round)
        };
        self.records.retain(|known| !same(known));
        self.records.push(record);
    }

    /// What has become of the runs so far.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Whether that run has been done, and did not fail.
    pub fn has(&self, run: &Run<'_>) -> bool {
        let (cell, system) = (run.cell.to_string(), run.system.to_string());
        self.records.iter().any(|record| {
            (&record.cell, &record.system, record.round) == (&cell, &system, run.round)
                && record.result.is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_take_turns_and_each_begins_once() {
        let systems: Vec<System> = ["bbr", "tcp:cubic"].map(|text| text.parse().unwrap()).into();
        let race = Race::new(systems, quick()[..2].to_vec(), 2);
        let order: Vec<(String, u32)> =
            race.runs().iter().map(|run| (run.system.to_string(), run.round)).collect();
        let named = |name: &str, round| (name.to_owned(), round);
        let first = [named("bbr", 0), named("tcp:cubic", 0)];
        let second = [named("tcp:cubic", 1), named("bbr", 1)];
        assert_eq!(order, [first.clone(), first, second.clone(), second].concat());
    }

    #[test]
    fn the_start_ends_at_nine_tenths_of_the_steady_rate() {
        let series =
            [(0.2, 10.0), (0.4, 89.0), (0.6, 91.0), (0.8, 100.0), (1.0, 100.0), (1.2, 99.0)];
        assert_eq!((steady(&series), to_90(&series)), (Some(100.0), Some(0.6)));
        assert_eq!(to_90(&[]), None);
        assert_eq!(to_90(&[(1.0, 0.0); 4]), None);
    }

    #[test]
    fn a_run_that_is_done_again_counts_once() {
        let mut race = Race::new(vec!["bbr".parse().unwrap()], quick()[..1].to_vec(), 1);
        let record = |result| Record {
            cell: race.cells[0].to_string(),
            system: "bbr".into(),
            round: 0,
            result,
        };
        let (failed, done) = (record(Err("no path".into())), record(Ok(Figures::default())));
        race.note(failed);
        assert!(!race.has(&race.runs()[0]));
        race.note(done);
        assert!(race.has(&race.runs()[0]));
        assert_eq!(race.records().len(), 1);
    }
}
