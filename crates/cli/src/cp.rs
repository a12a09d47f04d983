//! `farhaul cp`: files and trees to and from other hosts, with what ssh knows of them.
//!
//! | file | subject |
//! |---|---|
//! | `job.rs` | what a side is to do, in a form that goes to the other host |
//! | `args.rs`, `plan.rs` | what the user wants |
//! | `side.rs`, `counted.rs` | one side at work in this process, held to a quota where a server runs it |
//! | `agent.rs` | the far side over ssh |
//! | `links.rs` | secured connections as a transfer takes them |
//! | `itself.rs` | no directory is copied into itself |
//! | `here.rs` | a copy within this host |
//! | `with.rs` | a copy between this host and another |
//! | `between.rs` | a copy between two other hosts |
//! | `served.rs` | a copy from or to a server |
//! | `show.rs`, `report.rs`, `receipt.rs` | how it goes, what it came to, and proof of that |

pub mod agent;
mod args;
mod between;
mod counted;
mod here;
mod itself;
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
use self::report::{Measured, Report, SameBy, Summary, Would};
use self::show::{Line, Show, Wanted};
use self::side::{Finished, Going};
use crate::exit::{self, Failed, INTERRUPTED, Usage, interrupted};
use crate::{config, interrupt, output};

/// What to do about a copy that ended before its time.
const GOES_ON: &str = "the same command goes on";
/// How long the far side may take to end.
const END: Duration = Duration::from_secs(3);

/// Runs `farhaul cp`.
pub fn run(args: &CpArgs) -> Result<()> {
    args.want_target();
    let words = Words::of(args);
    if words.json() {
        interrupt::set_last_words(move || words.failed(&interrupted()));
    }
    if !args.quiet {
        config::hint_at_unknown();
    }
    let prepared = prepare(args);
    prepared.and_then(|prepared| copy(args, words, prepared)).inspect_err(|error| {
        // Programs are told, too. Who has said how it ended has taken the last words away.
        if words.json() && interrupt::take_last_words() {
            words.failed(&Failed { code: exit::code(error), message: exit::describe(error) });
        }
    })
}

/// How programs are told of an end.
#[derive(Clone, Copy)]
struct Words {
    json: bool,
    json_stream: bool,
    dry_run: bool,
}

impl Words {
    fn of(args: &CpArgs) -> Self {
        Words { json: args.json, json_stream: args.json_stream, dry_run: args.dry_run }
    }

    fn json(self) -> bool {
        self.json || self.json_stream
    }

    /// Of a copy that did not begin, or was given up at once.
    fn failed(self, failed: &Failed) {
        let report = Report {
            ok: false,
            error: Some(failed.message.clone()),
            dry_run: self.dry_run,
            summary: Summary::default(),
            would: None,
            verified: false,
            on_disk: false,
            same_by: None,
            encrypted: false,
            seconds: 0.0,
            bits_per_second: 0.0,
            estimate_seconds: None,
            measured: Measured::of(&Going::default()),
        };
        // It has failed anyway.
        let _ = self.say(&report);
    }

    fn say(self, report: &Report) -> Result<()> {
        match self.json_stream {
            true => output::emit_line(&Line::End { report }),
            false => output::emit(true, report, |_, _| Ok(())),
        }
    }
}

/// What can be begun.
struct Prepared {
    plan: Plan,
    receipt: Option<ReceiptWriter>,
    /// The sources and the target, as they were written.
    texts: Vec<String>,
}

/// Looks at what is here, so that nobody else is bothered in vain.
fn prepare(args: &CpArgs) -> Result<Prepared> {
    let plan = plan(args)?;
    let texts: Vec<String> =
        args.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let (target, sources) = texts.split_last().context("clap asks for two paths")?;
    if plan.way.sends_from_here() {
        side::check(&Job::Source(plan.source.clone()), &plan.terms)?;
    }
    if let Way::Here | Way::With { sending: false, .. } = plan.way {
        side::check(&Job::Sink(plan.sink.clone()), &plan.terms)?;
    }
    if let Way::Here = plan.way {
        itself::check(&plan.source, &plan.sink).map_err(Usage)?;
    }
    let receipt = match &args.receipt {
        Some(path) => Some(ReceiptWriter::create(path, sources, target)?),
        None => None,
    };
    Ok(Prepared { plan, receipt, texts })
}

/// Copies.
fn copy(args: &CpArgs, words: Words, prepared: Prepared) -> Result<()> {
    let Prepared { plan, receipt, texts } = prepared;
    let (target, sources) = texts.split_last().context("clap asks for two paths")?;
    let wanted = Wanted {
        quiet: args.quiet,
        verbose: args.verbose,
        progress: plan.settings.progress.value,
        json_stream: args.json_stream,
        dry_run: args.dry_run,
        takes_stream: plan.takes_stream(),
    };
    let show = Show::new(wanted, receipt);
    show.line(&Line::Start { sources, target });
    let began = Instant::now();
    // What was read of a stream, or written to one, is not there any more.
    let streams = plan.source.stream || plan.sink.stream;
    let ended = |finished| Ended::of(finished, !streams);
    let finished = match &plan.way {
        Way::Here => here::run(&plan, &show).map(ended),
        Way::With { host, sending } => with::run(&plan, host, *sending, &show).map(ended),
        Way::Served { export, sending } => {
            served::run(&plan, export, *sending, &args.server, &show).map(ended)
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
    if ended.result.is_ok() && !plan.source.rules.is_empty() && ended.summary.is_nothing() {
        let hint = match ended.summary.directories {
            0 => ": '*' leaves out directories as well, unless --include '*/' stands before it",
            _ => "",
        };
        show.note(&format!("--exclude and --include leave no file to copy{hint}"));
    }
    let receipt = show.end_progress().filter(|_| begun);
    conclude(args, words, &plan, &show, receipt, ended, began.elapsed())
}

/// What became of a copy.
struct Ended {
    summary: Summary,
    measured: Measured,
    /// Entries that failed do not count.
    result: Result<(), Failed>,
}

impl Default for Ended {
    fn default() -> Self {
        let measured = Measured::of(&Going::default());
        Ended { summary: Summary::default(), measured, result: Ok(()) }
    }
}

impl Ended {
    /// Of a copy that can be taken up `again`, if it has got anywhere.
    fn of(Finished { summary, going, result }: Finished, again: bool) -> Self {
        let some = going.progress.moved > 0;
        let again = again && (some || summary.moved_bytes + summary.resumed_bytes > 0);
        let result = result.map_err(|error| {
            let code = error.exit_code();
            let mut message = farhaul_mover::without_numbers(&error.to_string());
            // Which some errors say themselves.
            if again && matches!(code, 1 | INTERRUPTED) && !message.contains(GOES_ON) {
                message += &format!("; {GOES_ON} from here");
            }
            Failed { code, message }
        });
        Ended { summary, measured: Measured::of(&going), result }
    }
}

/// What came of it: the report, the receipt, the exit code.
fn conclude(
    args: &CpArgs,
    words: Words,
    plan: &Plan,
    show: &Show,
    receipt: Option<ReceiptWriter>,
    ended: Ended,
    took: Duration,
) -> Result<()> {
    let Ended { summary, measured, mut result } = ended;
    let well = result.is_ok();
    // A dry run has nothing to prove.
    if let Some(receipt) = receipt.filter(|_| !plan.terms.dry_run)
        && let Err(error) =
            receipt.finish(well && summary.failed + summary.not_deleted == 0, &summary)
    {
        result = also(result, &error);
    }
    let (failed, not_deleted) = (summary.failed, summary.not_deleted);
    let none = summary.moved_files + summary.same_files == 0;
    let report = report(plan, summary, measured, &result, took);
    // If they are being said, the process is about to end.
    if words.json() && !interrupt::take_last_words() {
        return Err(interrupted().into());
    }
    let written = if words.json() {
        words.say(&report)
    } else if !args.quiet && well {
        let mut text = Vec::new();
        report.show(args.verbose, &mut text)?;
        // Standard output may be the copy itself.
        match plan.sink.stream {
            true => {
                show::told(String::from_utf8_lossy(&text).trim_end());
                Ok(())
            }
            false => output::print(&text),
        }
    } else {
        Ok(())
    };
    if let Some(error) = show.unwritten().or(written.err()) {
        result = also(result, &error);
    }
    match result {
        Ok(()) if failed > 0 => {
            let entries = if failed == 1 { "entry" } else { "entries" };
            let rest = if none { "no file was copied" } else { "the rest is done" };
            let message = format!("{failed} {entries} could not be copied; {rest}");
            Err(Failed { code: 5, message }.into())
        }
        Ok(()) if not_deleted > 0 => {
            let entries = if not_deleted == 1 { "entry was" } else { "entries were" };
            let message =
                format!("{not_deleted} more {entries} not deleted: --max-delete allows no more");
            Err(Failed { code: 5, message }.into())
        }
        result => Ok(result?),
    }
}

/// Something else has failed, too.
fn also(result: Result<(), Failed>, error: &anyhow::Error) -> Result<(), Failed> {
    let text = exit::describe(error);
    Err(match result {
        Ok(()) => Failed { code: exit::code(error), message: text },
        Err(Failed { code, message }) => Failed { code, message: format!("{message}; {text}") },
    })
}

fn report(
    plan: &Plan,
    mut summary: Summary,
    measured: Measured,
    result: &Result<(), Failed>,
    took: Duration,
) -> Report {
    let seconds = took.as_secs_f64();
    let dry_run = plan.terms.dry_run;
    let would = dry_run.then(|| Would::take(&mut summary, plan.source.stream, plan.takes_stream()));
    let rate = plan.terms.rate.map(|rate| rate as f64).or(measured.rates.network);
    let to_move = would.and_then(|would| would.move_bytes);
    let estimate = to_move.zip(rate.filter(|rate| *rate > 0.0));
    let connected = measured.transport.is_some() && !matches!(plan.way, Way::Here);
    let done = result.is_ok() && !dry_run;
    // What an earlier command has left was not read again.
    let trusted = plan.sink.trust_partial && summary.resumed_bytes > 0;
    let compared = summary.moved_files > 0 || summary.compared_files > 0 && summary.failed == 0;
    Report {
        ok: result.is_ok() && summary.failed + summary.not_deleted == 0,
        error: result.as_ref().err().map(ToString::to_string),
        dry_run,
        would,
        verified: plan.terms.verify && !trusted && done && compared,
        on_disk: done && summary.moved_files > 0 && !plan.sink.stream,
        same_by: SameBy::of(&summary),
        encrypted: !plan.terms.plain && !dry_run && connected,
        seconds,
        bits_per_second: summary.data_bytes as f64 * 8.0 / seconds.max(1e-9),
        estimate_seconds: estimate.map(|(bytes, rate)| bytes as f64 * 8.0 / rate),
        measured,
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
