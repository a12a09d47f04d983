//! `farhaul lab`: published figures and tables, measured again; certificates of control laws.

mod certify;
mod race;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use farhaul_base::names::nearest;
use farhaul_lab::certificate::overview;
use farhaul_lab::experiment::{Experiment, Options, catalogue};
use farhaul_lab::report::{self, Outcome, Verdict};
use farhaul_lab::sweep;
use farhaul_lab::table::{Cell, Column, Table};
use serde::Serialize;

use crate::exit::{Failed, Usage, interrupted};
use crate::interrupt::stop_flag;
use crate::output;
use crate::progress::{self, Progress};

/// Repeat published experiments and compare; put control laws to the test; race against TCP.
#[derive(Subcommand, Debug)]
pub enum LabCommand {
    List(ListArgs),
    Run(RunArgs),
    Certify(certify::CertifyArgs),
    Race(Box<race::RaceArgs>),
    #[command(hide = true)]
    Side(race::SideArgs),
    Report(ReportArgs),
}

/// List the experiments: what they show, where they were published, how long they take.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Run experiments: a figure as SVG and PNG, a table as CSV and JSON, and a verdict.
///
/// Returns 4 if a measurement is not as published and there is no explanation for it.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Which; see `lab list`
    #[arg(value_name = "ID", required_unless_present = "all")]
    ids: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Make one page of all experiments, published and measured side by side, and all certificates.
///
/// Runs what has no result in the folder yet, and whose result is of another version of farhaul or of
/// the experiment. A result of the reduced version counts with `--quick` only.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Run all of them again
    #[arg(long)]
    rerun: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Where results go if nothing is said.
const OUT: &str = "farhaul-lab";

#[derive(Args, Debug)]
struct CommonArgs {
    /// The reduced version, in seconds rather than minutes
    #[arg(long)]
    quick: bool,
    /// Where results go and are looked for
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
    /// Simulate so many points at the same time; all processors if not given
    #[arg(long, value_name = "N", value_parser = crate::sim::jobs)]
    jobs: Option<usize>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl CommonArgs {
    fn options<'a>(&self, stop: &'a AtomicBool) -> Options<'a> {
        Options { quick: self.quick, jobs: self.jobs.unwrap_or_else(sweep::processors), stop }
    }
}

/// An experiment as it is listed.
#[derive(Serialize)]
struct Listed {
    id: String,
    source: String,
    title: String,
    shows: String,
    minutes: f64,
}

/// What a run or a report has come to.
#[derive(Serialize)]
struct Summary {
    outcomes: Vec<Outcome>,
    files: Vec<PathBuf>,
    /// The page about all outcomes, which is also among the files.
    #[serde(skip)]
    page: Option<PathBuf>,
}

/// Runs one of the commands.
pub fn run(command: &LabCommand) -> Result<()> {
    match command {
        LabCommand::List(args) => list(args),
        LabCommand::Run(args) => {
            let chosen = choose(&args.ids)?;
            let summary = run_all(&chosen, &args.common)?;
            finish(summary, &args.common)
        }
        LabCommand::Certify(args) => certify::run(args),
        LabCommand::Race(args) => race::run(args),
        LabCommand::Side(args) => race::run_side(args),
        LabCommand::Report(args) => make_report(args),
    }
}

fn list(args: &ListArgs) -> Result<()> {
    let listed: Vec<Listed> = catalogue()
        .into_iter()
        .map(|Experiment { id, source, title, shows, minutes, .. }| {
            let shows = shows.trim().to_owned();
            Listed { id, source, title, shows, minutes }
        })
        .collect();
    output::emit(args.json, &listed, |listed, out| {
        let columns = ["id", "source", "what it shows", "minutes"];
        let rows = listed.iter().map(|one| {
            let texts = [&one.id, &one.source, &one.title];
            let mut row: Vec<Cell> = texts.map(|text| Cell::Text(text.clone())).into();
            row.push(Cell::Number(one.minutes));
            row
        });
        let columns = columns.iter().map(|name| Column::new(*name, "")).collect();
        let table = Table { title: String::new(), columns, rows: rows.collect() };
        writeln!(out, "{}", table.text())
    })
}

/// The experiments of these ids, each once; all without any.
fn choose(ids: &[String]) -> Result<Vec<Experiment>> {
    let all = catalogue();
    if ids.is_empty() {
        return Ok(all);
    }
    let find = |id: &String| {
        all.iter().find(|experiment| experiment.id == *id).cloned().ok_or_else(|| {
            let ids = all.iter().map(|experiment| experiment.id.as_str());
            let near = nearest(&id.to_lowercase(), ids);
            let hint = near.map_or(String::new(), |id| format!("did you mean '{id}'? "));
            Usage(format!("there is no experiment '{id}'; {hint}`farhaul lab list` shows all"))
        })
    };
    let mut chosen: Vec<Experiment> = Vec::new();
    for id in ids {
        let experiment = find(id)?;
        if chosen.iter().all(|other| other.id != experiment.id) {
            chosen.push(experiment);
        }
    }
    Ok(chosen)
}

fn run_all(chosen: &[Experiment], args: &CommonArgs) -> Result<Summary> {
    make_folder(&args.out)?;
    let stop = stop_flag();
    let options = args.options(&stop);
    let mut summary = Summary { outcomes: Vec::new(), files: Vec::new(), page: None };
    for experiment in chosen {
        let outcome = run_one(experiment, &options)?;
        summary.files.extend(write(&outcome, &args.out)?);
        summary.outcomes.push(outcome);
    }
    Ok(summary)
}

/// Makes the folder for results, and tries whether files can be written there: to learn it after
/// half an hour of simulation would be late.
fn make_folder(folder: &Path) -> Result<()> {
    let tried = std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder));
    let unfit = |error| Usage(format!("cannot write into {}: {error}", folder.display()));
    Ok(tried.map(drop).map_err(unfit)?)
}

/// What is drawn is drawn from, if the user gives no seed.
fn fresh_seed() -> Result<u64> {
    // Short enough to be typed.
    let seed = getrandom::u32().map_err(|error| anyhow!("no random seed: {error}"))?;
    Ok(seed.into())
}

fn run_one(experiment: &Experiment, options: &Options<'_>) -> Result<Outcome> {
    let shown = Progress::new();
    let watch = |plan: &str, now: sweep::Progress| {
        shown.show(now.share, || format!("{} {plan}: {}", experiment.id, progress::line(now)));
    };
    let outcome = experiment.run(options, &watch);
    drop(shown);
    outcome.map_err(|message| anyhow!("{}: {message}", experiment.id))?.ok_or(interrupted().into())
}

fn write(outcome: &Outcome, folder: &Path) -> Result<Vec<PathBuf>> {
    let replaces_full = || stored(folder, &outcome.id).is_some_and(|earlier| !earlier.quick);
    if outcome.quick && replaces_full() {
        tell!("{}: the reduced result replaces the full one", outcome.id);
    }
    outcome.write(folder).with_context(|| format!("results of {}", outcome.id))
}

/// The result of that experiment in the folder, if there is one.
fn stored(folder: &Path, id: &str) -> Option<Outcome> {
    let outcome = Outcome::read(&folder.join(format!("{id}.json"))).ok()?;
    Some(outcome).filter(|outcome| outcome.id == id)
}

fn make_report(args: &ReportArgs) -> Result<()> {
    let common = &args.common;
    let fits = |outcome: &Outcome| !args.rerun && (common.quick || !outcome.quick);
    let (mut outcomes, mut missing, mut files) = (Vec::new(), Vec::new(), Vec::new());
    let all = catalogue();
    for experiment in &all {
        let Some(outcome) = stored(&common.out, &experiment.id).filter(fits) else {
            missing.push(experiment.clone());
            continue;
        };
        if !experiment.is_current(&outcome) {
            tell!("{}: its result is of another version, so it is run again", experiment.id);
            missing.push(experiment.clone());
            continue;
        }
        // The outcome has all that its pictures and tables are made of.
        if !outcome.is_whole(&common.out) {
            files.extend(write(&outcome, &common.out)?);
        }
        outcomes.push(outcome);
    }
    let mut summary = run_all(&missing, common)?;
    summary.outcomes.append(&mut outcomes);
    summary.files.append(&mut files);
    summary.outcomes.sort_by_key(|outcome| all.iter().position(|one| one.id == outcome.id));
    let certificates = certify::all(common, args.rerun)?;
    summary.files.extend(certificates.files);
    summary.outcomes.push(overview(&certificates.certificates));
    let path = common.out.join("report.html");
    let page = report::page("Published and measured", &summary.outcomes);
    report::write_whole(&path, page.as_bytes()).context("cannot write the page")?;
    summary.files.push(path.clone());
    summary.page = Some(path);
    finish(summary, common)
}

fn finish(summary: Summary, args: &CommonArgs) -> Result<()> {
    output::emit(args.json, &summary, |summary, out| {
        for outcome in &summary.outcomes {
            writeln!(out, "{}: {} ({})", outcome.id, outcome.title, outcome.source)?;
            for check in &outcome.checks {
                let bound = &check.tolerance;
                let bound = if bound.is_empty() { String::new() } else { format!(" ({bound})") };
                let verdict = check.verdict.shown();
                writeln!(out, "  {verdict:9} {}{bound}: {}", check.what, check.measured)?;
                if !check.published.is_empty() {
                    writeln!(out, "            published: {}", check.published)?;
                }
                if check.verdict == Verdict::Explained {
                    writeln!(out, "            because: {}", check.reason)?;
                }
            }
        }
        writeln!(out, "{} files in {}", summary.files.len(), args.out.display())?;
        if let Some(page) = &summary.page {
            writeln!(out, "page: {}", page.display())?;
        }
        Ok(())
    })?;
    let failed: Vec<&str> = summary
        .outcomes
        .iter()
        .filter(|outcome| outcome.verdict() == Some(Verdict::Fail))
        .map(|outcome| outcome.id.as_str())
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    let message = format!("not as expected: {}", failed.join(", "));
    Err(Failed { code: 4, message }.into())
}
