//! `farhaul cp`: files and trees to and from other hosts, with what ssh knows of them.
//!
//! | file | subject |
//! |---|---|
//! | `job.rs` | what a side is to do, in a form that goes to the other host |
//! | `side.rs` | one side at work in this process |
//! | `agent.rs` | the far side over ssh |
//! | `links.rs` | secured connections as a transfer takes them |
//! | `with.rs` | a copy between this host and another |
//! | `between.rs` | a copy between two other hosts |
//! | `served.rs` | a copy from or to a server |
//! | `show.rs`, `report.rs`, `receipt.rs` | how it goes, what it came to, and proof of that |

pub mod agent;
mod between;
pub mod job;
pub mod links;
pub mod receipt;
pub mod report;
mod served;
pub mod show;
pub mod side;
mod with;

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use farhaul::Law;
use farhaul_mover::Cancel;
use farhaul_mover::location::{Location, Served, There};
use farhaul_mover::transfer::link::Purpose;
use farhaul_mover::transfer::session::{self, Links, greet};
use farhaul_remote::bootstrap::fresh;
use farhaul_remote::{Link, SshError, Transport};

use self::job::{Bytes, Job, Kept, OnExisting, Order, SinkJob, SourceJob, Terms};
use self::links::adapt;
use self::receipt::ReceiptWriter;
use self::report::{Rates, Report, Stages, Summary};
use self::show::{Line, Show, Wanted, progress_line};
use self::side::{Finished, Going, Surroundings, Wish};
use crate::config::value::{
    self, Local, Locals, Memory, PortRange, Preserve, RateLimit, Streams, Verify,
};
use crate::config::{FlagLayer, Settings};
use crate::exit::{self, Failed, INTERRUPTED, Usage};
use crate::{interrupt, output};

/// Lanes to begin with where the user names no number.
const FIRST_LANES: u32 = 2;
/// How long the far side may take to end.
const END: Duration = Duration::from_secs(3);

/// Copy files and trees to or from another host, or between two.
///
/// HOST is whatever ssh reaches by that name; farhaul must be installed there. Data goes directly over
/// UDP, or TCP where UDP does not pass, encrypted and verified. A farhaul:// is at a host that runs farhaul
/// serve, which is reached without ssh and knows you by your key (farhaul key). A directory is copied with all in it;
/// with a slash at its end only its contents are. Files of the same size and time are taken to be the
/// same. Whatever interrupts a copy, the same command goes on where it ended.
#[derive(Args, Debug)]
#[command(override_usage = "farhaul cp [OPTIONS] <SRC>... <DST>")]
pub struct CpArgs {
    /// What to copy, and at last where to: PATH, [USER@]HOST:PATH, farhaul://HOST[:PORT]/EXPORT/PATH, or -
    /// for standard input or output
    #[arg(value_names = ["SRC", "DST"], required = true, num_args = 2..)]
    paths: Vec<OsString>,
    /// Only say what would be done; with -v also which entries would be deleted
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Leave out what matches: *.o by name, /x from the top, x/ directories; the first rule that matches counts
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Take what matches, whatever a later --exclude says
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Delete what is in the target's directories and not in the source's; what --exclude leaves out stays
    #[arg(long)]
    delete: bool,
    /// With --delete: delete also what --exclude leaves out
    #[arg(long, requires = "delete")]
    delete_excluded: bool,
    /// Compare files by their digests, not by size and time
    #[arg(long, conflicts_with_all = ["skip_existing", "overwrite"])]
    checksum: bool,
    /// Leave alone what is there under the same name, whatever it is
    #[arg(long, visible_alias = "no-clobber", conflicts_with = "overwrite")]
    skip_existing: bool,
    /// Copy also files that seem to be the same
    #[arg(long)]
    overwrite: bool,
    /// Keep set-user-ID and set-group-ID bits
    #[arg(long)]
    keep_set_id: bool,
    /// Write a receipt: every file with its digest, for farhaul verify
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Do not count files and bytes beforehand: no estimate of the time left
    #[arg(long)]
    no_count: bool,
    /// Show nothing but failures
    #[arg(short, long)]
    quiet: bool,
    /// Show every file, and what limited the copy
    #[arg(short, long)]
    verbose: bool,
    /// Print one JSON document at the end
    #[arg(long, conflicts_with = "json_stream")]
    json: bool,
    /// Print a JSON document for each event: start, interval, file, failed, deleted, note, end
    #[arg(long)]
    json_stream: bool,
    #[command(flatten)]
    server: served::ServerArgs,
    #[command(flatten)]
    settings: SettingArgs,
}

/// Flags of what the environment and the settings file may say as well.
#[derive(Args, Debug)]
#[command(
    next_help_heading = "Settings, also in the environment and in ~/.config/farhaul/config.toml"
)]
struct SettingArgs {
    /// Congestion control law of the sending side; farhaul cc list lists them
    #[arg(long, value_name = value::LAW.form, value_parser = value::LAW.parse)]
    cc: Option<Law>,
    /// Send at most so fast, all connections together
    #[arg(long, value_name = value::RATE.form, value_parser = value::RATE.parse)]
    rate: Option<RateLimit>,
    /// Connections that carry data side by side
    #[arg(long, value_name = value::STREAMS.form, value_parser = value::STREAMS.parse)]
    streams: Option<Streams>,
    /// What data travels over
    #[arg(long, value_name = value::TRANSPORT.form, value_parser = value::TRANSPORT.parse)]
    transport: Option<value::Transport>,
    /// Command, with options, that starts the other side's farhaul
    #[arg(long, value_name = "COMMAND", value_parser = value::WORDS.parse)]
    ssh: Option<String>,
    /// Path of farhaul on the other side
    #[arg(long, value_name = "PATH", value_parser = value::WORDS.parse)]
    remote_farhaul: Option<String>,
    /// Take and compare digests, or do not
    #[arg(long, value_name = value::VERIFY.form, value_parser = value::VERIFY.parse)]
    verify: Option<Verify>,
    /// Do not encrypt data; the other side must allow it
    #[arg(long)]
    plain: bool,
    /// Keep trying for so long when the network is away
    #[arg(long, value_name = value::TIME.form, value_parser = value::TIME.parse)]
    outage: Option<Duration>,
    /// What beside contents is kept: mode, times, owner, xattrs, hardlinks, sparse
    #[arg(long, value_name = "LIST", value_parser = value::PRESERVE.parse)]
    preserve: Option<Preserve>,
    /// Maximum segment size, bytes: the MTU of the path
    #[arg(long, value_name = value::MSS.form, value_parser = value::MSS.parse)]
    mss: Option<u32>,
    /// Memory of a connection for received data that waits to be read
    #[arg(long, value_name = value::MEMORY.form, value_parser = value::MEMORY.parse)]
    receive_memory: Option<Memory>,
    /// Memory of a connection for data that is not acknowledged yet
    #[arg(long, value_name = value::MEMORY.form, value_parser = value::MEMORY.parse)]
    send_memory: Option<Memory>,
    /// Local addresses or interfaces that connections go out from, one after the other
    #[arg(long, visible_alias = "interface", value_name = "LIST", value_parser = value::LOCALS.parse)]
    bind: Option<Locals>,
    /// Ports that the other side may listen at
    #[arg(long, value_name = "FIRST-LAST", value_parser = value::PORTS.parse)]
    listen_ports: Option<PortRange>,
    /// Show no progress
    #[arg(long)]
    no_progress: bool,
}

impl SettingArgs {
    fn layer(&self) -> FlagLayer {
        FlagLayer {
            cc: self.cc.clone(),
            rate: self.rate,
            streams: self.streams,
            transport: self.transport,
            ssh: self.ssh.clone(),
            remote_farhaul: self.remote_farhaul.clone(),
            verify: self.verify,
            plain: self.plain.then_some(true),
            outage: self.outage,
            preserve: self.preserve,
            mss: self.mss,
            receive_memory: self.receive_memory,
            send_memory: self.send_memory,
            bind: self.bind.clone(),
            listen_ports: self.listen_ports,
            advertise: None,
            progress: self.no_progress.then_some(false),
        }
    }
}

/// From where to where.
enum Way {
    /// In this process alone.
    Here,
    /// To or from this host, which runs the other side.
    With { host: String, sending: bool },
    /// To or from an export of a server.
    Served { export: Export, sending: bool },
    /// Between two others.
    Between { from: String, to: String },
}

impl Way {
    fn sends_from_here(&self) -> bool {
        matches!(
            self,
            Way::Here | Way::With { sending: true, .. } | Way::Served { sending: true, .. }
        )
    }
}

/// A directory that a server exports.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Export {
    host: String,
    port: u16,
    name: String,
}

/// Where a source or a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum At {
    Here,
    Ssh(String),
    Server(Export),
}

impl At {
    fn of(location: &Location) -> (At, PathBuf) {
        match location {
            Location::Here(path) => (At::Here, path.clone()),
            Location::There(There { host, path }) => (At::Ssh(host.clone()), path.clone()),
            Location::Served(Served { host, port, export, path }) => {
                let export = Export { host: host.clone(), port: *port, name: export.clone() };
                (At::Server(export), path.clone())
            }
            Location::Standard => (At::Here, PathBuf::from("-")),
        }
    }
}

/// A copy, understood.
pub(crate) struct Plan {
    way: Way,
    source: SourceJob,
    sink: SinkJob,
    terms: Terms,
    settings: Settings,
}

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
        Way::Here => here(&plan, &show),
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
        limited_by: going.held.most().unwrap_or(going.overall.limit()).to_string(),
        source_stages: Stages::of(&going.overall.source),
        sink_stages: Stages::of(&going.overall.sink),
        rates: Rates::of(&going.overall, going.progress.moved, going.capacity),
        summary,
    }
}

/// Both sides in this process, over pipes.
fn here(plan: &Plan, show: &Show) -> Result<Ended> {
    let cancel = Cancel::default();
    let _registered = cancel_on_interrupt(&cancel, None);
    let (_, _, id) = fresh()?;
    let (give, accepted) = channel();
    let pipes = Pipes { give: std::sync::Mutex::new(give) };
    let (source, sink) = (Job::Source(plan.source.clone()), Job::Sink(plan.sink.clone()));
    let terms = &plan.terms;
    std::thread::scope(|threads| {
        let sinks_cancel = cancel.clone();
        let sink = threads.spawn(move || {
            let around = Surroundings {
                session: id.0,
                cancel: sinks_cancel,
                // What the user is to know it tells the source.
                observe: &|_| {},
                show: &mut |_| Wish::None,
                service: None,
            };
            side::run(&sink, terms, Links::Accept(accepted), around)
        });
        let finished = side::run(
            &source,
            terms,
            Links::Dial(&pipes),
            Surroundings {
                session: id.0,
                cancel,
                observe: &|event| show.event(&event),
                show: &mut |going| {
                    show.progress(&progress_line(going));
                    Wish::None
                },
                service: None,
            },
        );
        drop(pipes);
        match sink.join() {
            // The sink knows better why it does not go on.
            Ok(Finished { result: Err(error), .. }) if finished.result.is_err() => {
                Ok(Finished { result: Err(error), ..finished }.into())
            }
            Ok(_) => Ok(finished.into()),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Connections within this process.
struct Pipes {
    give: std::sync::Mutex<std::sync::mpsc::Sender<(Purpose, farhaul_mover::transfer::link::Link)>>,
}

impl farhaul_mover::transfer::session::Dial for Pipes {
    fn dial(&self, _way: session::Way) -> io::Result<farhaul_mover::transfer::link::Link> {
        let (near, far) = Link::pair()?;
        let give = self.give.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        std::thread::spawn(move || {
            let mut far = adapt(far, 0);
            if let Ok(join) = greet(&mut far) {
                // Nobody takes it any more when the copy is over.
                let _ = give.send((join.purpose, far));
            }
        });
        Ok(adapt(near, 0))
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

/// The addresses that connections go out from.
fn bound(locals: &[Local]) -> Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for local in locals {
        match local {
            Local::Address(address) => addresses.push(*address),
            Local::Interface(name) => {
                let found = farhaul_remote::interface_addresses(name);
                if found.is_empty() {
                    let text = format!("there is no interface '{name}' with an address");
                    return Err(Usage(text).into());
                }
                addresses.extend(found);
            }
        }
    }
    Ok(addresses)
}

impl Plan {
    /// Tells what nobody should overlook.
    fn warn(&self, show: &Show) {
        if self.terms.plain {
            show.note("NOT ENCRYPTED: anybody on the way can read what is copied");
        }
    }

    fn transport(&self) -> Transport {
        match self.settings.transport.value {
            value::Transport::Auto => Transport::Auto,
            value::Transport::Udp => Transport::Udp,
            value::Transport::Tcp => Transport::Tcp,
        }
    }

    /// What an agent is told.
    fn order(&self, job: Job, tell: bool) -> Order {
        let ports = self.settings.listen_ports.value.map(|ports| (ports.first, ports.last));
        Order { job, terms: self.terms.clone(), ports, tell }
    }
}

/// What the user wants.
fn plan(args: &CpArgs) -> Result<Plan> {
    let parse = |path: &OsString| Location::parse(path).map_err(|error| Usage(error.to_string()));
    let locations: Vec<Location> = args.paths.iter().map(parse).collect::<Result<_, _>>()?;
    let (target, sources) = locations.split_last().context("clap asks for two paths")?;
    let (from, stream, paths) = sources_of(sources)?;
    let target_stream = matches!(target, Location::Standard);
    let (to, target_path) = At::of(target);
    if target_stream && (args.json || args.json_stream) {
        return Err(Usage("standard output cannot be both the copy and JSON".into()).into());
    }
    if stream && target_path.as_os_str().is_empty() {
        return Err(
            Usage("standard input has no name: name the file, as in HOST:FILE".into()).into()
        );
    }
    let whole_export = matches!(to, At::Server(_)) && target_path.as_os_str().is_empty();
    let way = match (from, to) {
        (At::Here, At::Here) => Way::Here,
        (At::Here, At::Ssh(host)) => Way::With { host, sending: true },
        (At::Ssh(host), At::Here) => Way::With { host, sending: false },
        (At::Ssh(from), At::Ssh(to)) => Way::Between { from, to },
        (At::Here, At::Server(export)) => Way::Served { export, sending: true },
        (At::Server(export), At::Here) => Way::Served { export, sending: false },
        (At::Server(_), _) | (_, At::Server(_)) => {
            let text = "a server copies from and to the host that asks it: run farhaul cp on the host \
                        at the other end";
            return Err(Usage(text.into()).into());
        }
    };
    let host = match &way {
        Way::Here => None,
        Way::With { host, .. } | Way::Between { from: host, .. } => Some(host.as_str()),
        Way::Served { export, .. } => Some(export.host.as_str()),
    };
    if !matches!(way, Way::Served { .. }) {
        args.server.refuse_without_server()?;
    }
    let settings = Settings::load(&args.settings.layer(), host)?;
    let slash = |path: &Path| path.as_os_str().as_bytes().ends_with(b"/");
    let contents = |path: &PathBuf| {
        let bytes = path.as_os_str().as_bytes();
        slash(path) || matches!(bytes, b"" | b"." | b"~") || bytes.ends_with(b"/.")
    };
    let directory =
        paths.len() > 1 || paths.iter().any(contents) || slash(&target_path) || whole_export;
    let existing = match (args.checksum, args.skip_existing, args.overwrite) {
        (true, ..) => OnExisting::Checksum,
        (_, true, _) => OnExisting::Keep,
        (.., true) => OnExisting::Overwrite,
        _ => OnExisting::Update,
    };
    let rules = rules(args)?;
    let sink = SinkJob {
        path: Bytes::from(target_path.as_path()),
        stream: target_stream,
        directory,
        existing,
        delete: args.delete,
        spared: if args.delete_excluded { Vec::new() } else { rules.clone() },
        keep_set_id: args.keep_set_id,
        want_digests: args.receipt.is_some(),
    };
    let source = SourceJob {
        paths: paths.iter().map(|path| Bytes::from(path.as_path())).collect(),
        stream,
        rules,
        count: !args.no_count,
    };
    let terms = terms(args, &settings, stream || target_stream);
    Ok(Plan { way, source, sink, terms, settings })
}

/// Where the sources are, whether they are standard input, and their paths.
fn sources_of(sources: &[Location]) -> Result<(At, bool, Vec<PathBuf>)> {
    let mut all_at = None;
    let mut paths = Vec::new();
    for source in sources {
        match source {
            Location::Standard if sources.len() == 1 => return Ok((At::Here, true, Vec::new())),
            Location::Standard => {
                return Err(Usage("standard input can only be copied alone".into()).into());
            }
            _ => {}
        }
        let (at, path) = At::of(source);
        if all_at.as_ref().is_some_and(|before| *before != at) {
            let text = "all sources must be on one host, and of a server in one export: copy the others \
                        by commands of their own";
            return Err(Usage(text.into()).into());
        }
        all_at = Some(at);
        paths.push(path);
    }
    Ok((all_at.unwrap_or(At::Here), false, paths))
}

/// Patterns in the order in which they were given, which clap's fields do not keep.
fn rules(args: &CpArgs) -> Result<Vec<(String, bool)>> {
    let mut rules: Vec<(String, bool)> = Vec::new();
    let mut words = std::env::args_os().skip(1).peekable();
    let mut left = args.exclude.len() + args.include.len();
    while let Some(word) = words.next()
        && left > 0
    {
        let Some(word) = word.to_str() else { continue };
        for (flag, include) in [("--exclude", false), ("--include", true)] {
            let pattern = match word.strip_prefix(flag) {
                Some("") => words.peek().and_then(|next| next.to_str()).map(str::to_owned),
                Some(rest) => rest.strip_prefix('=').map(str::to_owned),
                None => None,
            };
            if let Some(pattern) = pattern {
                rules.push((pattern, include));
                left -= 1;
            }
        }
    }
    let mut filter = farhaul_mover::transfer::source::filter::Filter::default();
    for (pattern, include) in &rules {
        filter.add(pattern, *include).map_err(|error| Usage(error.to_string()))?;
    }
    Ok(rules)
}

fn terms(args: &CpArgs, settings: &Settings, stream: bool) -> Terms {
    let preserve = settings.preserve.value;
    let lanes = match settings.streams.value {
        // A stream is read and written in order.
        _ if stream => 1,
        Streams::Auto => FIRST_LANES,
        Streams::Count(count) => count.get().into(),
    };
    Terms {
        verify: settings.verify.value == Verify::Full,
        dry_run: args.dry_run,
        outage_ms: settings.outage.value.as_millis() as u64,
        lanes,
        fixed_lanes: stream || settings.streams.value != Streams::Auto,
        cc: settings.cc.value.to_string(),
        mss: settings.mss.value,
        receive_memory: settings.receive_memory.value,
        send_memory: settings.send_memory.value,
        rate: settings.rate.value,
        preserve: Kept {
            mode: preserve.mode,
            times: preserve.times,
            owner: preserve.owner,
            xattrs: preserve.xattrs,
            hard_links: preserve.hardlinks,
            sparse: preserve.sparse,
        },
        plain: settings.plain.value,
    }
}
