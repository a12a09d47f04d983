//! `farhaul sim`: scenarios in the simulator.

mod figure;
mod fuzz;
mod show;
mod title;
mod trace;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use farhaul_lab::sweep::{self, Measured};
use farhaul_lab::table::Table;
use farhaul_sim::Plan;
use serde::Serialize;

use crate::exit::{Usage, interrupted};
use crate::interrupt::stop_flag;
use crate::progress::Progress;
use crate::{files, output, picture, units};

/// Simulate networks: the engine as it is, in virtual time.
#[derive(Subcommand, Debug)]
pub enum SimCommand {
    Run(RunArgs),
    Check(CheckArgs),
    Gather(GatherArgs),
    Fuzz(fuzz::FuzzArgs),
}

/// Run a scenario, or all points of its sweep.
///
/// Prints a table, and draws the throughput over time, or over the swept variable.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Run only this point of the sweep, counted from 0; see `sim check`
    #[arg(long, value_name = "N")]
    point: Option<u64>,
    /// Simulate so many points at the same time; all processors if not given
    #[arg(long, value_name = "N", value_parser = jobs)]
    jobs: Option<usize>,
    /// Where to draw, as .svg or .png; NAME.svg if not given
    #[arg(long, value_name = "FILE", value_parser = picture::path)]
    plot: Option<PathBuf>,
    /// Do not draw
    #[arg(long, conflicts_with = "plot")]
    no_plot: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    trace: trace::TraceArgs,
}

/// Check a scenario file: what is wrong in which line, or what it would run.
#[derive(Args, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Put the results of single points, as `sim run --point N --json` prints them, into one table.
#[derive(Args, Debug)]
pub struct GatherArgs {
    /// Files with results; several may be in one
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What the table is called; the scenario's title if not given
    #[arg(long)]
    name: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A scenario file and what is changed in it.
#[derive(Args, Debug)]
struct ScenarioArgs {
    /// The scenario
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Give a variable of the file's `[set]` or `[sweep]` another value, or several:
    /// `rtt=[1ms,10ms]`
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Another seed than the file's
    #[arg(long, value_name = "N", value_parser = units::seed, allow_hyphen_values = true)]
    seed: Option<u64>,
}

/// A result with everything in it.
#[derive(Serialize)]
struct SweepResult {
    scenario: String,
    points: Vec<Measured>,
    table: Table,
    #[serde(skip_serializing_if = "Option::is_none")]
    plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct Checked {
    scenario: String,
    variables: Vec<String>,
    seeds: u64,
    points: u64,
    nodes: usize,
    links: usize,
    flows: usize,
    duration_s: f64,
}

/// Runs one of the commands.
pub fn run(command: &SimCommand) -> Result<()> {
    match command {
        SimCommand::Run(args) => simulate(args),
        SimCommand::Check(args) => check(args),
        SimCommand::Gather(args) => gather(args),
        SimCommand::Fuzz(args) => fuzz::run(args),
    }
}

/// A number of threads.
pub fn jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("nothing would run: give at least 1".into()),
        Ok(jobs) => Ok(jobs),
        Err(_) => Err("give a number of runs at the same time".into()),
    }
}

/// What a scenario file may have, bytes: the text of a file that is none, or has no end, is not
/// waited for.
const MOST_TEXT: u64 = 16 << 20;

/// The text of a scenario file, or of one that it names.
pub fn read_scenario(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(MOST_TEXT + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MOST_TEXT {
        return Err(format!(
            "a scenario has at most {} MiB, and so has a file that it names",
            MOST_TEXT >> 20
        ));
    }
    Ok(text)
}

pub fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl ScenarioArgs {
    fn plan(&self) -> Result<Plan> {
        let text = read_scenario(&self.file)
            .map_err(|error| Usage(format!("{}: {error}", self.file.display())))?;
        // A file that it names is looked for beside it.
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let load = |name: &str| {
            let path = folder.join(name);
            read_scenario(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        Plan::parse_file(&text, &self.set, self.seed, &load).map_err(|problems| {
            let lines = problems.to_string().replace('\n', "\n  ");
            Usage(format!("{} cannot be run:\n  {lines}", self.file.display())).into()
        })
    }

    /// What results are called by.
    fn name(&self) -> String {
        self.file.file_stem().map_or("scenario".into(), |name| name.to_string_lossy().into_owned())
    }
}

fn simulate(args: &RunArgs) -> Result<()> {
    let plan = args.scenario.plan()?;
    let points: Vec<u64> = match args.point {
        None => (0..plan.points()).collect(),
        Some(point) if point < plan.points() => vec![point],
        Some(point) => {
            let last = plan.points() - 1;
            return Err(Usage(format!("there is no point {point}; the last one is {last}")).into());
        }
    };
    let plot = match (&args.plot, args.no_plot) {
        (_, true) => None,
        (Some(path), _) => Some(path.clone()),
        (None, _) => Some(PathBuf::from(format!("{}.svg", args.scenario.name()))),
    };
    // Now, and not when there is something to write: what was found would be lost.
    let [trace, pcap] = args.trace.files();
    let outputs = [("the plot", plot.as_deref()), ("--trace", trace), ("--pcap", pcap)];
    files::check(&args.scenario.file, outputs)?;
    let jobs = args.jobs.unwrap_or_else(sweep::processors);
    let measured = if args.trace.is_on() {
        match args.trace.run(&plan, &points, args.json)? {
            Some(only) => vec![only],
            None => return Ok(()),
        }
    } else {
        run_points(&plan, &points, jobs)?
    };
    let title = Some(title::of(&measured)).filter(|title| !title.is_empty());
    let title = title.unwrap_or_else(|| args.scenario.name());
    let plot = match plot.map(|path| (path, figure::of(&title, &measured))) {
        Some((path, Ok(figure))) => {
            picture::write(&path, &figure)?;
            Some(path)
        }
        Some((_, Err(why))) => {
            tell!("no plot: {why}");
            None
        }
        None => None,
    };
    if let ([only], true) = (measured.as_slice(), args.json) {
        // One run is its report, and which run of the plan it was.
        return output::emit(true, only, |_, _| Ok(()));
    }
    let table = summary(&title, &measured);
    let result = SweepResult { scenario: args.scenario.name(), points: measured, table, plot };
    if args.trace.takes_stdout() {
        // If nobody reads this, there is no place left to say so.
        result.show(&mut io::stderr()).ok();
        return Ok(());
    }
    output::emit(args.json, &result, SweepResult::show)
}

/// Runs `points` with a bar or a line of progress now and then, on standard error.
pub fn run_points(plan: &Plan, points: &[u64], jobs: usize) -> Result<Vec<Measured>> {
    let stop = stop_flag();
    let shown = Progress::new();
    // Of a single run; it is run again with TCP alone if it is to be compared with that.
    let seconds = match points {
        [only] => plan.point(*only).map_or(0.0, |point| {
            let runs = if point.scenario.friendliness.is_some() { 2.0 } else { 1.0 };
            runs * point.scenario.duration.as_secs_f64()
        }),
        _ => 0.0,
    };
    let watch = |progress| shown.show_sweep(progress, seconds);
    let measured = sweep::run(plan, points, jobs, &watch, &stop);
    measured.ok_or_else(|| interrupted().into())
}

/// The table of what was measured.
fn summary(name: &str, measured: &[Measured]) -> Table {
    let mut table = sweep::summary(name, measured);
    let variables = measured.first().map_or(0, |first| first.values.len());
    // These are the first columns.
    let (variables, columns) = table.columns.split_at_mut(variables);
    // What was measured may be called as what was swept over.
    for column in columns {
        if variables.iter().any(|variable| variable.name == column.name) {
            column.name = format!("measured {}", column.name);
        }
    }
    table
}

impl SweepResult {
    fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.points.as_slice() {
            [only] => show::report(out, &only.report)?,
            points => {
                writeln!(out, "{}", self.table.text())?;
                for Measured { point, report, .. } in points {
                    show::ended(out, &format!("point {point}, "), report)?;
                }
            }
        }
        match &self.plot {
            Some(plot) => writeln!(out, "plot: {}", plot.display()),
            None => Ok(()),
        }
    }
}

fn check(args: &CheckArgs) -> Result<()> {
    let plan = args.scenario.plan()?;
    let first = plan.point(0).map_err(|problems| Usage(problems.to_string()))?.scenario;
    let checked = Checked {
        scenario: args.scenario.name(),
        variables: plan.swept().map(str::to_owned).collect(),
        seeds: plan.seeds(),
        points: plan.points(),
        nodes: first.nodes.len(),
        links: first.links.len(),
        flows: first.flows.len(),
        duration_s: first.duration.as_secs_f64(),
    };
    output::emit(args.json, &checked, |checked, out| {
        let Checked { scenario, points, nodes, links, flows, duration_s, .. } = checked;
        writeln!(out, "{scenario}: {nodes} nodes, {links} links, {flows} flows, {duration_s} s")?;
        if *points > 1 {
            let over = checked.variables.join(", ");
            let over = if over.is_empty() { String::new() } else { format!(" over {over}") };
            writeln!(out, "{points} runs{over}, {} of each", checked.seeds)?;
        }
        Ok(())
    })
}

fn gather(args: &GatherArgs) -> Result<()> {
    let mut measured: Vec<Measured> = Vec::new();
    for file in &args.files {
        let path = file.display();
        let no_result = |what: &dyn std::fmt::Display| {
            Usage(format!("{path}: no result of `sim run --point N --json`: {what}"))
        };
        let before = measured.len();
        let text = File::open(file).map_err(|error| Usage(format!("{path}: {error}")))?;
        for value in serde_json::Deserializer::from_reader(BufReader::new(text)).into_iter() {
            measured.push(value.map_err(|error| no_result(&error))?);
        }
        if measured.len() == before {
            return Err(no_result(&"it is empty").into());
        }
    }
    measured.sort_by_key(|measured| measured.point);
    if measured.windows(2).any(|pair| pair[0].point == pair[1].point) {
        let message = "a point is there twice: gather the results of one sweep";
        return Err(Usage(message.into()).into());
    }
    let name = args.name.clone().unwrap_or_else(|| title::of(&measured));
    let table = summary(&name, &measured);
    output::emit(args.json, &table, |table, out| writeln!(out, "{}", table.text()))
}
