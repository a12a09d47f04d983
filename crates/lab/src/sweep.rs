//! Runs the points of a plan on all processors, and makes tables and curves of what they measured.

mod curves;
mod parallel;
mod summary;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farhaul_sim::{Plan, Point, Report};
use serde::{Deserialize, Serialize};

pub(crate) use curves::named_curves;
pub use curves::{axis, curves};
pub use parallel::in_parallel;
pub use summary::summary;
pub(crate) use summary::{RunColumn, table};

/// What one run of a plan has given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The run's number in the plan.
    pub point: u64,
    /// The swept variables' values, in the plan's order.
    pub values: Vec<(String, String)>,
    /// What was measured; its members stand beside those above in JSON.
    #[serde(flatten)]
    pub report: Report,
}

impl Measured {
    /// The value of a swept variable, as it stands in the scenario.
    pub fn value(&self, variable: &str) -> Option<&str> {
        let found = self.values.iter().find(|(name, _)| name == variable);
        found.map(|(_, value)| value.as_str())
    }

    /// As [`label`], of all swept variables but one.
    pub fn label_without(&self, variable: &str) -> String {
        label(self.values.iter().filter(|(name, _)| name != variable))
    }
}

/// Variables with their values: `rate 1M, rtt 10ms`. Of a case, its name says enough.
pub fn label<'a>(values: impl IntoIterator<Item = &'a (String, String)>) -> String {
    let text = |(name, value): &(String, String)| match name.as_str() {
        "case" => value.clone(),
        _ => format!("{name} {value}"),
    };
    values.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The runs with the same values, which differ in their seeds; `measured` is in the plan's order.
pub(crate) fn groups(measured: &[Measured]) -> impl Iterator<Item = &[Measured]> {
    measured.chunk_by(|a, b| a.values == b.values)
}

/// How far a sweep has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Runs that have ended, and all of them.
    pub runs: (u64, u64),
    /// The share of what is to be simulated that has been, 0 to 1: each run counts as much as another.
    pub share: f64,
    /// Simulated seconds a second of wall time.
    pub speed_up: f64,
}

/// Processors to use where nobody says how many.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Runs `points` of `plan`, by their numbers, on so many threads; what each has given, in their order.
/// `watch` is told now and then how far it has come, from any of the threads. None if `stop` was set
/// meanwhile.
///
/// The result is a function of the plan alone, but for [`Report::wall_seconds`].
pub fn run(
    plan: &Plan,
    points: &[u64],
    jobs: usize,
    watch: &(dyn Fn(Progress) + Sync),
    stop: &AtomicBool,
) -> Option<Vec<Measured>> {
    let tasks: Vec<(&Plan, u64)> = points.iter().map(|point| (plan, *point)).collect();
    run_tasks(&tasks, jobs, watch, stop)
}

/// As [`run`], of all points of several plans; what each of them has given.
pub(crate) fn run_plans(
    plans: &[Plan],
    jobs: usize,
    watch: &(dyn Fn(Progress) + Sync),
    stop: &AtomicBool,
) -> Option<Vec<Vec<Measured>>> {
    let points = |plan| (0..Plan::points(plan)).map(move |point| (plan, point));
    let tasks: Vec<(&Plan, u64)> = plans.iter().flat_map(points).collect();
    let mut results = run_tasks(&tasks, jobs, watch, stop)?.into_iter();
    Some(plans.iter().map(|plan| results.by_ref().take(plan.points() as usize).collect()).collect())
}

/// Runs points of plans; what each has given, in their order.
fn run_tasks(
    tasks: &[(&Plan, u64)],
    jobs: usize,
    watch: &(dyn Fn(Progress) + Sync),
    stop: &AtomicBool,
) -> Option<Vec<Measured>> {
    let shared = Shared {
        runs: tasks.len() as u64,
        ended: AtomicU64::new(0),
        simulated: AtomicU64::new(0),
        parts: AtomicU64::new(0),
        began: Instant::now(),
    };
    in_parallel(tasks, jobs, stop, |(plan, number)| {
        // The plan has been checked at every point when it was read.
        let point = plan.point(*number).ok()?;
        let report = shared.run_one(&point, watch, stop)?;
        shared.ended.fetch_add(1, Ordering::Relaxed);
        Some(Measured { point: *number, values: point.values, report })
    })
}

/// Of a run, in what is counted of the share that has been simulated.
const PARTS: f64 = 1e9;

/// What the threads share.
struct Shared {
    runs: u64,
    ended: AtomicU64,
    /// Nanoseconds of simulated time.
    simulated: AtomicU64,
    /// What has been simulated of the runs: each has [`PARTS`], however long it is.
    parts: AtomicU64,
    began: Instant,
}

impl Shared {
    /// None: stopped.
    fn run_one(
        &self,
        point: &Point,
        watch: &(dyn Fn(Progress) + Sync),
        stop: &AtomicBool,
    ) -> Option<Report> {
        let began = Instant::now();
        let mut run = point.scenario.start();
        let mut before = Duration::ZERO;
        while run.step() {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let (simulated, whole) = run.progress();
            let new = simulated - before;
            before = simulated;
            let part = (new.as_secs_f64() / whole.as_secs_f64().max(1e-9) * PARTS) as u64;
            let parts = self.parts.fetch_add(part, Ordering::Relaxed) + part;
            let new = new.as_nanos() as u64;
            let all = Duration::from_nanos(self.simulated.fetch_add(new, Ordering::Relaxed) + new);
            watch(Progress {
                runs: (self.ended.load(Ordering::Relaxed), self.runs),
                share: (parts as f64 / PARTS / self.runs as f64).min(1.0),
                speed_up: all.as_secs_f64() / self.began.elapsed().as_secs_f64().max(1e-9),
            });
        }
        let mut report = run.finish();
        report.wall_seconds = Some(began.elapsed().as_secs_f64());
        Some(report)
    }
}
