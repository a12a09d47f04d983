//! An experiment: plans to run, what they are to show, what the source printed.
//!
//! An experiment is a file of data; what is code stands in few places.
//!
//! | file | subject |
//! |---|---|
//! | `data.rs` | the file: its keys |
//! | `metric.rs` | measurements by name |
//! | `equation.rs` | what the source's equations predict |
//! | `well_formed.rs` | what may be wrong with a file |
//! | `judge.rs` | expectations held against measurements |
//! | `draw.rs` | charts and tables of measurements |
//! | `catalogue.rs` | all experiments |

mod catalogue;
pub(crate) mod data;
mod draw;
mod equation;
mod judge;
pub(crate) mod metric;
pub(crate) mod well_formed;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

pub use catalogue::catalogue;
pub use data::{Experiment, Ground};
use data::{PlanSpec, Version};

use crate::relay;
use crate::report::Outcome;
use crate::sweep::{self, Measured, Progress};

/// Runs of each point on real sockets, of which the median counts.
const REPEATS: u32 = 3;

/// The version of farhaul.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How an experiment is run.
#[derive(Debug)]
pub struct Options<'a> {
    /// The reduced version, for a quick look, of experiments that have one.
    pub quick: bool,
    /// Runs at the same time.
    pub jobs: usize,
    /// Set to stop.
    pub stop: &'a AtomicBool,
}

/// What each plan has given, by its name.
type Runs = BTreeMap<String, Vec<Measured>>;

impl Experiment {
    /// Runs all plans. None if it was stopped. `watch` is told how far the plan of that name has
    /// come.
    ///
    /// # Errors
    /// What is wrong with a plan, which in the catalogue is tested; or the system refuses sockets.
    pub fn run(
        &self,
        options: &Options<'_>,
        watch: &(dyn Fn(&str, Progress) + Sync),
    ) -> Result<Option<Outcome>, String> {
        let began = Instant::now();
        let quick = options.quick && self.is_reducible();
        let version = if quick { Version::Reduced } else { Version::Full };
        let mut runs = Runs::new();
        let mut notes = self.notes.clone();
        for spec in &self.plan {
            let plan = self.read_plan(spec, version)?;
            let watch = |progress| watch(&spec.name, progress);
            let measured = match spec.on {
                Ground::Simulator => {
                    let points: Vec<u64> = (0..plan.points()).collect();
                    sweep::run(&plan, &points, options.jobs, &watch, options.stop)
                }
                Ground::Relay => {
                    let repeats = if quick { 1 } else { REPEATS };
                    let done = relay::run(&plan, repeats, &watch, options.stop)?;
                    done.map(|real| {
                        notes.extend(real.notes);
                        real.measured
                    })
                }
            };
            match measured {
                None => return Ok(None),
                Some(measured) => drop(runs.insert(spec.name.clone(), measured)),
            }
        }
        if quick {
            notes.push(
                "The reduced version: fewer points and less time than the source had.".into(),
            );
        }
        Ok(Some(Outcome {
            id: self.id.clone(),
            source: self.source.clone(),
            title: self.title.clone(),
            shows: self.shows.trim().to_owned(),
            charts: draw::charts(self, &runs),
            tables: draw::tables(self, &runs),
            checks: judge::checks(self, &runs, version),
            notes,
            quick,
            version: VERSION.into(),
            experiment: self.hash.clone(),
            command: format!("farhaul lab run {}{}", self.id, if quick { " --quick" } else { "" }),
            seconds: began.elapsed().as_secs_f64(),
        }))
    }

    /// Whether the outcome is of this experiment as it is now, by this version of farhaul.
    pub fn is_current(&self, outcome: &Outcome) -> bool {
        let now = (self.id.as_str(), self.hash.as_str(), VERSION);
        (outcome.id.as_str(), outcome.experiment.as_str(), outcome.version.as_str()) == now
    }

    /// Whether its reduced version is another than the full one.
    fn is_reducible(&self) -> bool {
        let shorter = |plan: &PlanSpec| !plan.quick.is_empty() || plan.on == Ground::Relay;
        self.plan.iter().any(shorter) || self.check.iter().any(|check| check.version.is_some())
    }

    /// Whether the file is well-formed, in both versions, as far as can be told without running it:
    /// what it names is there, each check has something to judge by, and a chart something to show.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        well_formed::check(self, Version::Full)?;
        well_formed::check(self, Version::Reduced)
            .map_err(|error| format!("reduced version: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_is_reducible_if_its_plans_or_checks_are() {
        let reducible = |more: &str| {
            let text = format!("id = ''\nsource = ''\ntitle = ''\nshows = ''\nminutes = 1\n{more}");
            Experiment::parse(&text).expect("a file").is_reducible()
        };
        let plan = "[[plan]]\nname = 'main'\nscenario = ''\n";
        let check = "[[check]]\nwhat = ''\nmetric = 'tracking'\nat_least = 1\n";
        assert!(!reducible(&format!("{plan}{check}")));
        assert!(reducible(&format!("{plan}quick = {{ rate = '1M' }}\n{check}")));
        assert!(reducible(&format!("{plan}on = 'relay'\n{check}")));
        assert!(reducible(&format!("{plan}{check}version = 'full'\n")));
    }
}
