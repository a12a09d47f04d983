//! `farhaul lab race`: bulk flows and copies of several systems over the same paths.

mod folder;
mod place;
mod real;
mod side;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use farhaul_base::names::suggestion;
use farhaul_lab::race::{
    Cell, Figures, Ground, Kind, Paths, Race, Record, Run, System, SystemError, names, quick,
    random, simulate, standard,
};
use farhaul_lab::{report, sweep};
use farhaul_sim::HostProfile;
use serde::{Deserialize, Serialize};

use self::place::Place;
pub use self::side::{SideArgs, run as run_side};
use super::{CommonArgs, OUT, Summary, finish, fresh_seed, make_folder, write};
use crate::demo::{tcp_congestion_controls_offered, usual_tcp_congestion_control};
use crate::exit::{Failed, Usage, interrupted};
use crate::interrupt::stop_flag;
use crate::output;
use crate::progress::Progress;
use crate::transport::DEFAULT_LAW;

/// Where runs are kept until the race is complete, and for `--resume`.
const RUNS_FILE: &str = "race-runs.json";
/// Where the programs of bench/ are.
const PEERS: &str = "bench/out";
/// A law that is for measurements without a congestion control.
const NO_CONTROL: &str = "blast";

/// Race farhaul against other transports and tools: one bulk flow at a time over the same emulated paths, in turns.
///
/// Measures goodput, the time to 90% of the steady rate, what is sent again, the queue that stands, and
/// processor time and memory of both ends, of each system on each path, and how flows share a path. Ends in a page with heat
/// maps, tables and the verdicts on farhaul's targets, wins and losses alike.
///
/// Systems are farhaul's laws by name, tcp:NAME, a congestion control of the kernel's TCP, and programs: libudt, srt,
/// quic and quic:bbr send from memory to memory (they are built from bench/, see bench/README.md); cp, cp:LAW, scp,
/// rsync and rclone copy a file over a private sshd, and are measured as whole commands. file:FILE is a program that
/// a TOML file describes. What is not installed is told, and left out.
///
/// The paths lie between network namespaces (see `wan run`), so both ends are real kernels and processes; that
/// takes /dev/net/tun, and root or a system that lets users make namespaces. The kernel's TCP has
/// buffers for all of the path. --sim does the same in the simulator, with its own TCP.
///
/// Nothing else should run meanwhile: runs in which the emulator could not keep the time do not count, and are named.
///
/// Returns 4 if a target is missed.
#[derive(Args, Debug)]
pub struct RaceArgs {
    /// A system, or laws for every law, or all for the default law, haul, the kernel's TCPs and all programs; may be given
    /// several times, and the verdicts are about the first [default: the default law, haul, and what the kernel's TCP has]
    #[arg(long, value_name = "SYSTEM", value_delimiter = ';')]
    system: Vec<Choice>,
    /// A path: rate=1G,rtt=50ms and, if wanted, loss=1%, burst=5 (packets), jitter=2ms, queue=0.5 (bandwidth-delay
    /// products), blackout=3s+500ms, change=3s:100M+5s:1G, flows=2 (of one system at the same time), against=tcp:cubic
    /// (beside another system); may be given several times
    #[arg(long, value_name = "KEY=VALUE,…")]
    path: Vec<Cell>,
    /// A set of paths: standard, quick, or random:N, which are drawn from a fresh seed that is told, or with --resume from
    /// that of the runs that are kept; random:N:SEED are the same again [default without --path: standard]
    #[arg(long, value_name = "SET")]
    paths: Option<Paths>,
    /// Runs of each system on each path
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// In the simulator
    #[arg(long)]
    sim: bool,
    /// What the simulator's hosts are like: none, or a profile of noise such as vm
    #[arg(long, value_name = "PROFILE", requires = "sim", default_value = HostProfile::NONE,
          value_parser = host_profile)]
    hosts: String,
    /// Keep the runs that the folder has of a race that was interrupted, and do the others
    #[arg(long)]
    resume: bool,
    /// Where the programs of bench/ are, if not in the PATH
    #[arg(long, value_name = "DIR", default_value = PEERS)]
    peers: PathBuf,
    #[command(flatten)]
    common: CommonArgs,
}

/// One system, or several.
#[derive(Clone, Debug)]
enum Choice {
    All,
    Laws,
    One(System),
}

impl FromStr for Choice {
    type Err = SystemError;

    fn from_str(text: &str) -> Result<Self, SystemError> {
        Ok(match text {
            "all" => Choice::All,
            "laws" => Choice::Laws,
            text => Choice::One(text.parse()?),
        })
    }
}

/// Runs that are kept, and of which race they are.
#[derive(Serialize, Deserialize)]
struct Kept {
    ground: Ground,
    /// Of the simulator.
    #[serde(default = "no_profile")]
    hosts: String,
    /// From which the paths were drawn, where they were.
    #[serde(default)]
    seed: Option<u64>,
    records: Vec<Record>,
}

fn no_profile() -> String {
    HostProfile::NONE.into()
}

/// Runs the command.
pub fn run(args: &RaceArgs) -> Result<()> {
    make_folder(&args.common.out)?;
    let began = Instant::now();
    let file = args.common.out.join(RUNS_FILE);
    let kept = if args.resume { Kept::read(&file)? } else { None };
    let seed = seed(args, kept.as_ref(), &file)?;
    let mut race = Race::new(systems(args)?, cells(args, seed), args.runs);
    race.ground = if args.sim { Ground::Simulator } else { Ground::Emulator };
    race.seed = seed;
    race.command = command(args, seed);
    if let Some(seed) = seed {
        tell!("farhaul: the paths are drawn from seed {seed}");
    }
    if args.hosts != HostProfile::NONE {
        race.remarks.push(format!("The simulator's hosts have the profile {}.", args.hosts));
    }
    if let (Ground::Emulator, Some(name)) = (race.ground, usual_tcp_congestion_control()) {
        let what =
            "What goes over TCP and is not named tcp:NAME, as ssh does, has the kernel's default";
        race.remarks.push(format!("{what} congestion control, {name}."));
    }
    let mut place = Place::new(&args.peers)?;
    leave_out_absent(&mut race, &place)?;
    if let Some(kept) = kept {
        take_up(&mut race, &args.hosts, kept, &file)?;
    }
    let stop = stop_flag();
    match race.ground {
        Ground::Simulator => simulate_all(&mut race, args, &file, &stop)?,
        Ground::Emulator => run_all(&mut race, &mut place, args, &file, &stop)?,
    }
    let outcome = race.outcome(args.common.quick, began.elapsed());
    let mut files = write(&outcome, &args.common.out)?;
    let page = args.common.out.join("race.html");
    let text = report::page("The race", std::slice::from_ref(&outcome));
    report::write_whole(&page, text.as_bytes()).context("cannot write the page")?;
    files.push(page.clone());
    // What was kept is in the outcome's files now.
    let _ = std::fs::remove_file(&file);
    if !args.common.json {
        output::emit(false, &outcome, |outcome, out| {
            writeln!(out, "{}", outcome.shows)?;
            outcome.tables.first().map_or(Ok(()), |table| writeln!(out, "{}", table.text()))
        })?;
    }
    finish(Summary { outcomes: vec![outcome], files, page: Some(page) }, &args.common)
}

fn systems(args: &RaceArgs) -> Result<Vec<System>> {
    let mut systems: Vec<System> = Vec::new();
    let mut add = |system: System| {
        if !systems.contains(&system) {
            systems.push(system);
        }
    };
    if args.system.is_empty() {
        usual(args)?.into_iter().for_each(&mut add);
    }
    for choice in &args.system {
        match choice {
            Choice::One(system) => add(system.clone()),
            Choice::Laws => {
                let laws = farhaul_control::laws();
                for law in laws.iter().filter(|law| law.name != NO_CONTROL) {
                    add(law.name.parse()?);
                }
            }
            Choice::All => {
                usual(args)?.into_iter().for_each(&mut add);
                for name in names() {
                    add(name.parse()?);
                    if name == "quic" {
                        add("quic:bbr".parse()?);
                    }
                }
            }
        }
    }
    Ok(systems)
}

/// Where none is named.
fn usual(args: &RaceArgs) -> Result<Vec<System>> {
    let mut systems: Vec<System> = vec![DEFAULT_LAW.parse()?];
    if !args.common.quick {
        systems.push("haul".parse()?);
    }
    let tcps = match args.sim {
        true => vec!["bbr".to_owned(), "cubic".to_owned()],
        false => tcp_congestion_controls_offered(),
    };
    // Reno is CUBIC on short paths, and nowhere ahead on others.
    for name in tcps.iter().filter(|name| *name != "reno") {
        systems.push(format!("tcp:{name}").parse()?);
    }
    Ok(systems)
}

fn cells(args: &RaceArgs, seed: Option<u64>) -> Vec<Cell> {
    let mut cells = args.path.clone();
    match args.paths {
        Some(Paths::Standard) => cells.extend(standard()),
        Some(Paths::Quick) => cells.extend(quick()),
        Some(Paths::Random(count, _)) => cells.extend(random(count, seed.unwrap_or_default())),
        None if !cells.is_empty() => {}
        None if args.common.quick => cells.extend(quick()),
        None => cells.extend(standard()),
    }
    cells
}

/// Takes those out of the race that cannot take part here, and says so.
///
/// # Errors
/// If no system is left, or a path needs one of them.
fn leave_out_absent(race: &mut Race, place: &Place) -> Result<()> {
    let ground = race.ground;
    let absence = |system: &System| match (ground, system.kind()) {
        (Ground::Simulator, Kind::Program) => Some(format!("{system}: the simulator has none")),
        (Ground::Simulator, _) => None,
        (Ground::Emulator, _) => real::absence(system, place),
    };
    for against in race.cells.iter().filter_map(|cell| cell.against.as_ref()) {
        if let Some(why) = absence(against) {
            return Err(Usage(format!("a path has a flow against {why}")).into());
        }
    }
    let mut absent = Vec::new();
    race.systems.retain(|system| match absence(system) {
        Some(why) => {
            tell!("farhaul: not in the race: {why}");
            absent.push(why);
            false
        }
        None => true,
    });
    race.absent = absent;
    if race.systems.is_empty() {
        return Err(Usage("no system is left to race: name another with --system".into()).into());
    }
    Ok(())
}

/// The name of a host profile that there is.
fn host_profile(text: &str) -> Result<String, String> {
    let names = HostProfile::all().map(|(name, _)| name);
    match HostProfile::named(text) {
        Some(profile) => Ok(profile.name),
        None => Err(format!("no profile '{text}'; {}", suggestion(text, names))),
    }
}

/// How to do it again.
fn command(args: &RaceArgs, seed: Option<u64>) -> String {
    let mut text = String::from("farhaul lab race");
    // Writing to a string cannot fail.
    for choice in &args.system {
        let _ = match choice {
            Choice::All => write!(text, " --system all"),
            Choice::Laws => write!(text, " --system laws"),
            Choice::One(system) => write!(text, " --system '{system}'"),
        };
    }
    for path in &args.path {
        let _ = write!(text, " --path {path}");
    }
    let _ = match (args.paths, seed) {
        (Some(Paths::Standard), _) => write!(text, " --paths standard"),
        (Some(Paths::Quick), _) => write!(text, " --paths quick"),
        (Some(Paths::Random(count, _)), Some(seed)) => {
            write!(text, " --paths random:{count}:{seed}")
        }
        _ => Ok(()),
    };
    let _ = write!(text, " --runs {}", args.runs);
    if args.hosts != HostProfile::NONE {
        let _ = write!(text, " --hosts {}", args.hosts);
    }
    for (given, option) in [(args.sim, " --sim"), (args.common.quick, " --quick")] {
        text += if given { option } else { "" };
    }
    text
}

impl Kept {
    /// None if there is no file.
    fn read(file: &Path) -> Result<Option<Kept>> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| file.display().to_string()),
        };
        let kept = serde_json::from_str(&text).with_context(|| {
            format!("{}: no runs of a race: remove it, or leave out --resume", file.display())
        })?;
        Ok(Some(kept))
    }
}

/// From which paths are drawn, if they are: the given one, that of the runs that are kept, or a fresh one.
fn seed(args: &RaceArgs, kept: Option<&Kept>, file: &Path) -> Result<Option<u64>> {
    let Some(Paths::Random(count, given)) = args.paths else { return Ok(None) };
    match (given, kept) {
        (Some(seed), _) => Ok(Some(seed)),
        (None, None) => fresh_seed().map(Some),
        (None, Some(Kept { seed: Some(seed), .. })) => Ok(Some(*seed)),
        (None, Some(_)) => {
            let message = format!(
                "{} does not tell from which seed its paths were drawn: give --paths random:{count}:SEED, or leave out \
                 --resume",
                file.display()
            );
            Err(Usage(message).into())
        }
    }
}

/// Takes over the runs that are kept.
fn take_up(race: &mut Race, hosts: &str, kept: Kept, file: &Path) -> Result<()> {
    if (kept.ground, kept.hosts.as_str()) != (race.ground, hosts) {
        let message = format!(
            "{} has runs of another race ({}, hosts {}): leave out --resume, or take another folder",
            file.display(),
            kept.ground,
            kept.hosts
        );
        return Err(Usage(message).into());
    }
    kept.records.into_iter().for_each(|record| race.note(record));
    Ok(())
}

fn keep(race: &Race, hosts: &str, file: &Path) -> Result<()> {
    let (ground, records) = (race.ground, race.records().to_vec());
    let kept = Kept { ground, hosts: hosts.to_owned(), seed: race.seed, records };
    let text = serde_json::to_vec(&kept)?;
    report::write_whole(file, &text).context("cannot keep the runs")
}

/// That the user has interrupted, and how to do the rest.
fn stopped(race: &Race, args: &RaceArgs) -> Failed {
    let runs = race.runs();
    let (done, all) = (runs.iter().filter(|run| race.has(run)).count(), runs.len());
    if done == 0 {
        return interrupted();
    }
    let mut command = race.command.clone();
    for (option, folder, usual) in
        [("--out", &args.common.out, OUT), ("--peers", &args.peers, PEERS)]
    {
        if folder != Path::new(usual) {
            let folder = folder.display().to_string();
            // Writing to a string cannot fail.
            let _ = write!(command, " {option} {}", shell_words::quote(&folder));
        }
    }
    Failed {
        message: format!(
            "interrupted after {done} of {all} runs, which are kept: {command} --resume does the others"
        ),
        ..interrupted()
    }
}

fn record(run: &Run<'_>, result: Result<Figures, String>) -> Record {
    Record { cell: run.cell.to_string(), system: run.system.to_string(), round: run.round, result }
}

fn simulate_all(race: &mut Race, args: &RaceArgs, file: &Path, stop: &AtomicBool) -> Result<()> {
    let planned = race.clone();
    let runs: Vec<Run<'_>> = planned.runs().into_iter().filter(|run| !planned.has(run)).collect();
    let (begun, kept) = (AtomicUsize::new(0), Mutex::new((race, Ok(()))));
    let shown = Progress::new();
    let jobs = args.common.jobs.unwrap_or_else(sweep::processors);
    let done = sweep::in_parallel(&runs, jobs, stop, |run| {
        let number = begun.fetch_add(1, Ordering::Relaxed);
        shown.show(number as f64 / runs.len() as f64, || line(run, number, runs.len()));
        let record = record(run, simulate(run, &args.hosts));
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0.note(record);
        kept.1 = keep(kept.0, &args.hosts, file);
        kept.1.is_ok().then_some(())
    });
    drop(shown);
    let (race, kept) = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
    kept?;
    done.map(drop).ok_or_else(|| stopped(race, args).into())
}

fn line(run: &Run<'_>, number: usize, all: usize) -> String {
    format!("{} of {all} runs, {} over {}", number + 1, run.system, run.cell)
}

fn run_all(
    race: &mut Race,
    place: &mut Place,
    args: &RaceArgs,
    file: &Path,
    stop: &AtomicBool,
) -> Result<()> {
    let planned = race.clone();
    let runs: Vec<Run<'_>> = planned.runs().into_iter().filter(|run| !planned.has(run)).collect();
    let shown = Progress::new();
    for (number, run) in runs.iter().enumerate() {
        shown.show(number as f64 / runs.len() as f64, || line(run, number, runs.len()));
        let result = real::run_one(run, place, stop)?;
        if stop.load(Ordering::Relaxed) {
            return Err(stopped(race, args).into());
        }
        race.note(record(run, result.map_err(|error| format!("{error:#}"))));
        keep(race, HostProfile::NONE, file)?;
    }
    Ok(())
}
