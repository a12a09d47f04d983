//! `farhaul sim fuzz`: random scenarios, and what must hold in each.

use std::fmt;
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
use farhaul_sim::fuzz::{self, Checked};
use serde::Serialize;

use crate::exit::{Failed, interrupted};
use crate::interrupt::stop_flag;
use crate::progress::Progress;
use crate::{files, output, units};

/// Simulate random networks, faults and flows, and check what must hold in all of them.
///
/// A failure is printed when it is found, with the command that repeats it, and its scenario is
/// written to a file.
#[derive(Args, Debug)]
pub struct FuzzArgs {
    /// How many scenarios, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 1000)]
    runs: u64,
    /// The seed of the first one; the others follow it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = units::seed, allow_hyphen_values = true)]
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
    /// None if it could not be written.
    scenario: Option<PathBuf>,
}

/// Runs them.
pub fn run(args: &FuzzArgs) -> Result<()> {
    let stop = stop_flag();
    // Not when there is something to write: what was found would be lost.
    fs::create_dir_all(&args.into)
        .with_context(|| format!("cannot make {}", args.into.display()))?;
    if args.write {
        for index in 0..args.runs {
            if stop.load(Ordering::Relaxed) {
                return Err(interrupted().into());
            }
            let path = write(args, args.seed.wrapping_add(index))?;
            output::print(format!("{}\n", path.display()).as_bytes())?;
        }
        return Ok(());
    }
    let shown = Progress::new();
    let stopped = || stop.load(Ordering::Relaxed);
    let check = |seed| fuzz::check(seed, &stopped);
    // With JSON all of them are in the one document at the end.
    let tell = |failure: &Failure| {
        shown.print_beside(|| {
            let text = failure.to_string();
            if args.json {
                eprint!("{text}");
            } else {
                // If nobody reads it, the exit code still says so.
                output::print(text.as_bytes()).ok();
            }
        });
    };
    let found = check_all(args, &stopped, &check, &shown, &tell);
    drop(shown);
    let stopped = stopped();
    drop(stop);
    output::emit(args.json, &found, show)?;
    match found.failures.len() {
        _ if stopped => Err(interrupted().into()),
        0 => Ok(()),
        count => {
            let message = format!("{count} of {} random scenarios failed", found.runs);
            Err(Failed { code: 1, message }.into())
        }
    }
}

/// Runs the seeds, of each of which `check` says what it has shown, or none if it was stopped. Each
/// failure is written, and `tell` told, when it is found.
fn check_all(
    args: &FuzzArgs,
    stopped: &(dyn Fn() -> bool + Sync),
    check: &(dyn Fn(u64) -> Result<Option<Checked>, String> + Sync),
    shown: &Progress,
    tell: &(dyn Fn(&Failure) + Sync),
) -> Fuzzed {
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let found: Mutex<Fuzzed> = Mutex::default();
    let work = || {
        while !stopped() && args.time.is_none_or(|time| began.elapsed() < time) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= args.runs {
                break;
            }
            let seed = args.seed.wrapping_add(index);
            let result = match check(seed) {
                Ok(None) => break,
                Ok(Some(checked)) => Ok(checked),
                Err(what) => Err(what),
            };
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
                    let written = write(args, seed);
                    if let Err(error) = &written {
                        shown.print_beside(|| tell!("farhaul: {error:#}"));
                    }
                    let failure = Failure { seed, what, command, scenario: written.ok() };
                    tell(&failure);
                    found.failures.push(failure);
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
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.failures.sort_by_key(|failure| failure.seed);
    found.wall_seconds = began.elapsed().as_secs_f64();
    found
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}\n  again: {}", self.seed, self.what, self.command)?;
        match &self.scenario {
            Some(path) => writeln!(f, "  scenario: {}", path.display()),
            None => Ok(()),
        }
    }
}

fn show(found: &Fuzzed, out: &mut dyn Write) -> io::Result<()> {
    let Fuzzed { runs, events, packets, bytes, simulated_s, wall_seconds, .. } = found;
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
    files::write(&path, fuzz::scenario(seed).as_bytes())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: FuzzArgs,
    }

    fn checked() -> Checked {
        Checked { events: 1, packets: 2, bytes: 3, simulated: Duration::from_secs(4) }
    }

    /// Not at the end, which may be hours away, or never come.
    #[test]
    fn a_failure_is_told_and_written_when_it_is_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let into = directory.path().display().to_string();
        let line = ["fuzz", "--seed", "3", "--runs", "4", "--jobs", "1", "--into", &into];
        let args = Line::parse_from(line).args;
        let told: Mutex<Vec<String>> = Mutex::default();
        let tell = |failure: &Failure| told.lock().expect("a lock").push(failure.to_string());
        let file = directory.path().join("fuzz-4.toml");
        let check = |seed| {
            assert_eq!(file.exists(), seed > 4);
            assert_eq!(told.lock().expect("a lock").len(), usize::from(seed > 4));
            if seed == 4 { Err("it is wrong".into()) } else { Ok(Some(checked())) }
        };
        let found = check_all(&args, &|| false, &check, &Progress::hidden(), &tell);
        assert_eq!((found.runs, found.failures.len(), found.bytes), (4, 1, 9));
        let expected = format!(
            "seed 4: it is wrong\n  again: farhaul sim fuzz --seed 4 --runs 1\n  scenario: {}\n",
            file.display()
        );
        assert_eq!(*told.lock().expect("a lock"), [expected]);
        assert_eq!(fs::read_to_string(file).expect("a file"), fuzz::scenario(4));
    }

    /// What was stopped in the middle is no run.
    #[test]
    fn what_was_found_until_it_was_stopped() {
        let args = Line::parse_from(["fuzz", "--jobs", "1"]).args;
        let check = |seed| Ok((seed < 2).then(checked));
        let found = check_all(&args, &|| false, &check, &Progress::hidden(), &|_| ());
        assert_eq!((found.runs, found.bytes), (2, 6));
    }

    /// The seeds go round, with `--write` as without.
    #[test]
    fn seeds_go_round() {
        let directory = tempfile::tempdir().expect("a directory");
        let into = directory.path().join("new").display().to_string();
        let last = u64::MAX.to_string();
        let line = ["fuzz", "--seed", &last, "--runs", "2", "--write", "--into", &into];
        run(&Line::parse_from(line).args).expect("files");
        for seed in [u64::MAX, 0] {
            assert!(directory.path().join(format!("new/fuzz-{seed}.toml")).exists());
        }
    }
}
