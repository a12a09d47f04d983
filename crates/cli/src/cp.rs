//! `farhaul cp`: files and trees to and from other hosts, with what ssh knows of them.
//!
//! | file | subject |
//! |---|---|
//! | `job.rs` | what a side is to do, in a form that goes to the other host |
//! | `args.rs`, `plan.rs` | what the user wants |
//! | `side.rs` | one side at work in this process |
//! | `agent.rs` | the far side over ssh |
//! | `links.rs` | secured connections as a transfer takes them |
//! | `here.rs` | a copy within this host |
//! | `with.rs` | a copy between this host and another |
//! | `between.rs` | a copy between two other hosts |
//! | `served.rs` | a copy from or to a server |
//! | `show.rs`, `report.rs`, `receipt.rs` | how it goes, what it came to, and proof of that |

pub mod agent;
mod args;
mod between;
mod here;
pub mod job;
pub mod links;
mod plan;
pub mod receipt;
pub mod report;
mod served;
pub mod show;
pub mod side;
mod with;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farhaul_mover::Cancel;
use farhaul_remote::SshError;

pub use self::args::CpArgs;
use self::job::Job;
use self::plan::{Plan, Way, plan};
use self::receipt::ReceiptWriter;
use self::report::{Rates, Report, Stages, Summary};
use self::show::{Line, Show, Wanted};
use self::side::{Finished, Going};
use crate::exit::{self, Failed, INTERRUPTED};
use crate::{interrupt, output};

/// How long the far side may take to end.
const END: Duration = Duration::from_secs(3);

/// Runs `farhaul cp`.
pub fn run(args: &CpArgs) -> Result<()> {
    let plan = plan(args)?;
    let texts: Vec<String> =
        args.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let (target, sources) = texts.split_last().context("clap asks for two paths")?;
    if plan.way.sends_from_here() {
        // Nobody is to be bothered before it is known that there is something to send.
        side::check(&Job::Source(plan.source.clone()), &plan.terms)?;
    }
    if let Way::Here | Way::With { sending: false, .. } = plan.way {
        side::check(&Job::Sink(plan.sink.clone()), &plan.terms)?;
    }
    let receipt = match &args.receipt {
        Some(path) => Some(ReceiptWriter::create(path, sources, target)?),
        None => None,
    };
    let streaming = plan.sink.stream;
    let wanted = Wanted {
        quiet: args.quiet,
        verbose: args.verbose,
        progress: plan.settings.progress.value,
        json_stream: args.json_stream && !streaming,
    };
    let show = Show::new(wanted, receipt);
    show.line(&Line::Start { sources, target });
    let began = Instant::now();
    let finished = match &plan.way {
        Way::Here => here::run(&plan, &show).map(Ended::from),
        Way::With { host, sending } => with::run(&plan, host, *sending, &show).map(Ended::from),
        Way::Served { export, sending } => {
            served::run(&plan, export, *sending, &args.server, &show).map(Ended::from)
        }
        Way::Between { from, to } => between::run(&plan, from, to, &show),
    };
    let (begun, ended) = match finished {
        Ok(ended) => (true, ended),
        Err(error) => {
            let result = Err(Failed { code: exit::code(&error), message: exit::describe(&error) });
            (false, Ended { result, ..Ended::default() })
        }
    };
    let receipt = show.end_progress().filter(|_| begun);
    conclude(args, &plan, &show, receipt, ended, began.elapsed())
}

/// What became of a copy.
struct Ended {
    summary: Summary,
    going: Going,
    /// Entries that failed do not count.
    result: Result<(), Failed>,
}

impl Default for Ended {
    fn default() -> Self {
        Ended { summary: Summary::default(), going: Going::default(), result: Ok(()) }
    }
}

impl From<Finished> for Ended {
    fn from(Finished { summary, going, result }: Finished) -> Self {
        let some = going.progress.moved > 0;
        let again = some || summary.moved_bytes + summary.resumed_bytes > 0;
        let result = result.map_err(|error| {
            let code = error.exit_code();
            let hint = match code {
                1 | INTERRUPTED if again => "; the same command goes on from here",
                _ => "",
            };
            Failed { code, message: format!("{error}{hint}") }
        });
        Ended { summary, going, result }
    }
}

/// What came of it: the report, the receipt, the exit code.
fn conclude(
    args: &CpArgs,
    plan: &Plan,
    show: &Show,
    receipt: Option<ReceiptWriter>,
    ended: Ended,
    took: Duration,
) -> Result<()> {
    let Ended { summary, going, result } = ended;
    let ok = result.is_ok() && summary.failed == 0;
    let report = report(plan, summary, &going, &result, took);
    show.line(&Line::End { report: &report });
    // A dry run has nothing to prove.
    if let Some(receipt) = receipt.filter(|_| !plan.terms.dry_run) {
        receipt.finish(ok, &report.summary)?;
    }
    let summary = &report.summary;
    if args.json {
        output::emit(true, &report, |_, _| Ok(()))?;
    } else if !args.json_stream && !args.quiet && result.is_ok() {
        let mut text = Vec::new();
        report.show(args.verbose, &mut text)?;
        // Standard output may be the copy itself.
        match plan.sink.stream {
            true => eprint!("{}", String::from_utf8_lossy(&text)),
            false => output::print(&text)?,
        }
    }
    match result {
        Ok(()) if summary.failed > 0 => {
            let entries = if summary.failed == 1 { "entry" } else { "entries" };
            let message =
                format!("{} {entries} could not be copied; the rest is done", summary.failed);
            Err(Failed { code: 5, message }.into())
        }
        result => Ok(result?),
    }
}

fn report(
    plan: &Plan,
    summary: Summary,
    going: &Going,
    result: &Result<(), Failed>,
    took: Duration,
) -> Report {
    let seconds = took.as_secs_f64();
    let ended = going.ended.unwrap_or_else(Instant::now);
    let transfer = going.connected.map_or(0.0, |at| (ended - at).as_secs_f64());
    let moved = summary.moved_bytes as f64 * 8.0;
    let rate = plan.terms.rate.map_or(going.capacity, |rate| rate as f64);
    let estimate = (plan.terms.dry_run && rate > 0.0).then(|| moved / rate);
    Report {
        ok: result.is_ok() && summary.failed == 0,
        error: result.as_ref().err().map(ToString::to_string),
        dry_run: plan.terms.dry_run,
        verified: plan.terms.verify,
        encrypted: !plan.terms.plain && !matches!(plan.way, Way::Here),
        seconds,
        transfer_seconds: transfer,
        bits_per_second: if plan.terms.dry_run { 0.0 } else { moved / seconds.max(1e-9) },
        estimate_seconds: estimate,
        transport: going.path.clone(),
        rtt_ms: going.rtt.as_secs_f64() * 1e3,
        packets_sent: going.packets_sent,
        retransmitted: going.retransmitted,
        limited_by: going.limit().map(|limit| limit.to_string()),
        source_stages: Stages::of(&going.overall.source),
        sink_stages: Stages::of(&going.overall.sink),
        rates: Rates::of(&going.overall, going.progress.moved, going.capacity),
        summary,
    }
}

/// What a side tells at its end: what it did; the exit code and the reason if it could not go on.
type LastWord = (Summary, Option<(u8, String)>);

/// Why there is no far side, with the exit code for it.
fn refused(error: SshError) -> anyhow::Error {
    let code = match &error {
        SshError::Command(_) => 2,
        SshError::Version(_) => 3,
        SshError::Agent { code, .. } => *code,
        SshError::Interrupted(_) => INTERRUPTED,
        _ => 1,
    };
    Failed { code, message: error.to_string() }.into()
}

/// Ends a copy when the user interrupts.
fn cancel_on_interrupt(cancel: &Cancel, stop: Option<&Arc<AtomicBool>>) -> interrupt::Registered {
    let (cancel, stop) = (cancel.clone(), stop.cloned());
    interrupt::while_registered(move || {
        cancel.cancel();
        if let Some(stop) = &stop {
            stop.store(true, Ordering::Relaxed);
        }
    })
}
