//! `farhaul sim fuzz`: random scenarios, and what must hold in each.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use farhaul_lab::sweep;
use farhaul_sim::fuzz;
use serde::Serialize;

use crate::exit::Failed;
use crate::progress::Progress;
use crate::{output, units};

/// Simulate random networks, faults and flows, and check what must hold in all of them.
///
/// A failure is printed with the command that repeats it, and its scenario is written to a file.
#[derive(Args, Debug)]
pub struct FuzzArgs {
    /// How many scenarios, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 1000)]
    runs: u64,
    /// The seed of the first one; the others follow it
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Begin no other after so long
    #[arg(long, value_name = "TIME", value_parser = farhaul_link::parse_duration)]
    time: Option<Duration>,
    /// Simulate so many at the same time; all processors if not given
    #[arg(long, value_name = "N", value_parser = super::jobs)]
    jobs: Option<usize>,
    /// Where to write the scenarios of failures
    #[arg(long, value_name = "DIR", default_value = ".")]
    into: PathBuf,
    /// Run none: only write their scenarios
    #[arg(long)]
    write: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Fuzzed {
    runs: u64,
    failures: Vec<Failure>,
    events: u64,
    packets: u64,
    bytes: u64,
    simulated_s: f64,
    wall_seconds: f64,
}

#[derive(Debug, Serialize)]
struct Failure {
    seed: u64,
    what: String,
    command: String,
    scenario: PathBuf,
}

/// Runs them.
pub fn run(args: &FuzzArgs) -> Result<()> {
    if args.write {
        for seed in args.seed..args.seed.saturating_add(args.runs) {
            output::print(format!("{}\n", write(args, seed)?.display()).as_bytes())?;
        }
        return Ok(());
    }
    // Not when there is something to write: what was found would be lost.
    fs::create_dir_all(&args.into)
        .with_context(|| format!("cannot make {}", args.into.display()))?;
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let shown = Progress::new();
    let found: Mutex<Fuzzed> = Mutex::default();
    let work = || {
        while args.time.is_none_or(|time| began.elapsed() < time) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= args.runs {
                break;
            }
            let seed = args.seed.wrapping_add(index);
            let result = fuzz::check(seed);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.runs += 1;
            match result {
                Ok(checked) => {
                    found.events += checked.events;
                    found.packets += checked.packets;
                    found.bytes += checked.bytes;
                    found.simulated_s += checked.simulated.as_secs_f64();
                }
                Err(what) => {
                    let command = format!("farhaul sim fuzz --seed {seed} --runs 1");
                    let scenario = PathBuf::new();
                    found.failures.push(Failure { seed, what, command, scenario });
                }
            }
            let (runs, failures) = (found.runs, found.failures.len());
            shown
                .show(runs as f64 / args.runs as f64, || format!("{runs} runs, {failures} failed"));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..args.jobs.unwrap_or_else(sweep::processors) {
            scope.spawn(work);
        }
        work();
    });
    drop(shown);
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.failures.sort_by_key(|failure| failure.seed);
    for failure in &mut found.failures {
        failure.scenario = write(args, failure.seed)?;
    }
    found.wall_seconds = began.elapsed().as_secs_f64();
    output::emit(args.json, &found, show)?;
    match found.failures.len() {
        0 => Ok(()),
        count => {
            let message = format!("{count} of {} random scenarios failed", found.runs);
            Err(Failed { code: 1, message }.into())
        }
    }
}

fn show(found: &Fuzzed, out: &mut dyn Write) -> io::Result<()> {
    let Fuzzed { runs, events, packets, bytes, simulated_s, wall_seconds, .. } = found;
    for Failure { seed, what, command, scenario } in &found.failures {
        writeln!(out, "seed {seed}: {what}")?;
        writeln!(out, "  again: {command}\n  scenario: {}", scenario.display())?;
    }
    let bytes = units::show_size(*bytes);
    writeln!(
        out,
        "{runs} random scenarios, each run twice: {} failed; {simulated_s:.0} s simulated in \
         {wall_seconds:.1} s, {bytes} delivered, {packets} packets, {events} events",
        found.failures.len()
    )
}

/// Writes the scenario of `seed`, so that `sim run` can show it.
fn write(args: &FuzzArgs, seed: u64) -> Result<PathBuf> {
    let path = args.into.join(format!("fuzz-{seed}.toml"));
    fs::write(&path, fuzz::scenario(seed))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
