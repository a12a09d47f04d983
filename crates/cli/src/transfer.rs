//! `farhaul send` and `farhaul recv`: files and trees over one connection, verified.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use farhaul::{Connection, Endpoint, Listener};
use farhaul_mover::{
    Cancel, Event, Failures, Progress, ReceiveError, ReceiveOptions, SendError, SendOptions,
    Summary,
};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::exit::{Failed, INTERRUPTED, Usage, describe};
use crate::greeting::GreetingArgs;
use crate::interrupt;
use crate::output;
use crate::transport::{TransportArgs, check_peer, report_kernel_buffers, resolve};
use crate::units::{self, show_rate, show_size, show_time};

/// Time between two updates of what is shown.
const REFRESH: Duration = Duration::from_millis(100);
/// How long interrupted transfers may take to remove what they have not finished.
const TIDY: Duration = Duration::from_secs(3);
/// Where nobody watches a bar move, a line each so often.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Send files and trees to a `farhaul recv`.
///
/// Each path arrives under its last component, as with scp -r; DIR/. sends the contents of DIR.
/// Every file is verified by its BLAKE3 digest before it gets its name. Paths that are not there,
/// cannot be opened or have no name of their own are told before anything is sent: then nothing is.
#[derive(Args, Debug)]
pub struct SendArgs {
    /// What to send
    #[arg(value_name = "PATH", required = true, num_args = 1..)]
    paths: Vec<PathBuf>,
    /// Where to
    #[arg(value_name = "HOST:PORT")]
    peer: String,
    /// Do not count files and bytes beforehand: no estimate of the time left
    #[arg(long)]
    no_count: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    greeting: GreetingArgs,
    #[command(flatten)]
    transport: TransportArgs,
}

/// Receive files and trees from `farhaul send`.
///
/// Files are written under temporary names and renamed when they are complete and verified.
/// Nothing that a sender says can write outside the target directory. Anybody who can reach the
/// port can send.
#[derive(Args, Debug)]
pub struct RecvArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDR", default_value = ":9000")]
    listen: String,
    /// The directory to write to; made if there is none
    #[arg(long, value_name = "DIR", default_value = ".")]
    into: PathBuf,
    /// End after one transfer; peers that do not speak its protocol do not count
    #[arg(long)]
    once: bool,
    /// Wait for the medium (fsync) before a file gets its name
    #[arg(long)]
    durable: bool,
    /// Keep set-user-ID and set-group-ID bits
    #[arg(long)]
    keep_set_id: bool,
    /// Refuse transfers with more bytes than this
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    max_bytes: Option<u64>,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Print one JSON document; without --once one a transfer, on a line each
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    greeting: GreetingArgs,
    #[command(flatten)]
    transport: TransportArgs,
}

/// What a transfer came to.
#[derive(Debug, Serialize)]
struct TransferReport {
    role: &'static str,
    peer: String,
    files: u64,
    directories: u64,
    symlinks: u64,
    skipped: u64,
    /// Entries that could not be moved, and why the first of them could not.
    failed: u64,
    failures: Vec<String>,
    bytes: u64,
    data_bytes: u64,
    seconds: f64,
    bits_per_second: f64,
    rtt_ms: f64,
    packets_sent: u64,
    retransmitted: u64,
    verified: bool,
}

impl TransferReport {
    fn new(
        role: &'static str,
        connection: &Connection,
        summary: &Summary,
        failures: &Failures,
        elapsed: Duration,
    ) -> Self {
        let stats = connection.stats(false).unwrap_or_default();
        let seconds = elapsed.as_secs_f64();
        TransferReport {
            role,
            peer: connection.peer_addr().to_string(),
            files: summary.tally.files,
            directories: summary.tally.directories,
            symlinks: summary.tally.symlinks,
            skipped: summary.skipped,
            failed: failures.count,
            failures: failures.first.iter().map(ToString::to_string).collect(),
            bytes: summary.tally.bytes,
            data_bytes: summary.data_bytes,
            seconds,
            bits_per_second: summary.data_bytes as f64 * 8.0 / seconds.max(1e-9),
            rtt_ms: stats.instant.rtt.as_secs_f64() * 1e3,
            packets_sent: stats.total.counters.packets_sent,
            retransmitted: stats.total.counters.packets_retransmitted,
            // What was moved was verified, or the transfer ended with another error.
            verified: true,
        }
    }

    fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{} {} files, {} directories, {} links, {} in {:.1} s ({}), verified",
            if self.role == "sender" { "sent" } else { "received" },
            self.files,
            self.directories,
            self.symlinks,
            show_size(self.bytes),
            self.seconds,
            show_rate(self.bits_per_second)
        )
    }
}

/// Runs `farhaul send`.
pub fn send(args: &SendArgs) -> Result<()> {
    // Nobody is to be bothered before it is known that there is something to send.
    farhaul_mover::check_sources(&args.paths)?;
    let peer = resolve(&args.peer, "localhost")?;
    check_peer(peer, None)?;
    let waiting = interrupt::while_waiting();
    let connection = Connection::connect(peer, &args.transport.options())
        .with_context(|| format!("cannot connect to {peer}"))?;
    let cancel = Cancel::default();
    stop_on_interrupt(&cancel, &connection);
    drop(waiting);
    let options = SendOptions { count: !args.no_count, cancel };
    let started = Instant::now();
    let mut display = Display::new(&MultiProgress::new(), &connection, args.quiet);
    let streams = (connection.clone(), connection.clone());
    let mut greeting = Greeting::expect(&connection, args.greeting);
    let result = farhaul_mover::send(&args.paths, streams, &options, &mut |event| {
        greeting.look_for(&event);
        display.show(&event);
    });
    display.finish();
    let report = match &result {
        Ok(summary) => Some((summary, &Failures::default())),
        Err(SendError::Incomplete { summary, failures }) => Some((summary, failures)),
        Err(_) => None,
    };
    let report = report.map(|(summary, failures)| {
        TransferReport::new("sender", &connection, summary, failures, started.elapsed())
    });
    let result = result
        .map(drop)
        .map_err(|error| greeting.explain(error.exit_code(), error, "farhaul recv"));
    // Also after a failure: the peer is to hear of it. After a success it has everything and has said
    // so; it may even have closed first.
    let _ = connection.close();
    let shown =
        report.map_or(Ok(()), |report| output::emit(args.json, &report, TransferReport::show));
    result.and(shown)
}

/// Runs `farhaul recv`.
pub fn recv(args: &RecvArgs) -> Result<()> {
    let addr = resolve(&args.listen, "[::]")?;
    std::fs::create_dir_all(&args.into)
        .map_err(|e| Usage(format!("{}: {e}", args.into.display())))?;
    let options = args.transport.options();
    let endpoint =
        Endpoint::bind(addr, &options).with_context(|| format!("cannot listen at {addr}"))?;
    report_kernel_buffers(&endpoint);
    let listener = endpoint.listen(&options)?;
    let local = listener.local_addr();
    let cancel = Cancel::default();
    let bars = MultiProgress::new();
    let running = Running::default();
    running.end_on_interrupt(&cancel);
    tell!("farhaul: listening at {local}, writing to {}", args.into.display());
    if args.once {
        return receive_once(args, &listener, &running, &cancel, &bars);
    }
    std::thread::scope(|scope| {
        loop {
            let connection = listener.accept()?;
            let peer: SocketAddr = connection.peer_addr();
            let (cancel, bars, running) = (cancel.clone(), bars.clone(), running.clone());
            let key = running.add(&connection);
            scope.spawn(move || {
                if let (_, Err(error)) = receive_one(args, &connection, &cancel, &bars) {
                    report_failure(peer, &error);
                }
                running.remove(key);
            });
        }
    })
}

/// Receives until somebody has sent something; others do not count.
fn receive_once(
    args: &RecvArgs,
    listener: &Listener,
    running: &Running,
    cancel: &Cancel,
    bars: &MultiProgress,
) -> Result<()> {
    loop {
        let connection = listener.accept()?;
        let key = running.add(&connection);
        let (greeted, result) = receive_one(args, &connection, cancel, bars);
        running.remove(key);
        match result {
            Err(error) if !greeted && !cancel.is_cancelled() => {
                report_failure(connection.peer_addr(), &error);
            }
            result => return result,
        }
    }
}

fn report_failure(peer: SocketAddr, error: &anyhow::Error) {
    tell!("farhaul: from {peer}: {}", describe(error));
}

/// The transfers of a `recv` that goes on for ever.
#[derive(Clone, Default)]
struct Running(Arc<Mutex<(u64, BTreeMap<u64, Connection>)>>);

impl Running {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Connection>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, connection: &Connection) -> u64 {
        let mut running = self.lock();
        running.0 += 1;
        let key = running.0;
        running.1.insert(key, connection.clone());
        key
    }

    fn remove(&self, key: u64) {
        self.lock().1.remove(&key);
    }

    /// On an interruption ends all transfers, gives them a moment to tidy up, and the program.
    fn end_on_interrupt(&self, cancel: &Cancel) {
        let (running, cancel) = (self.clone(), cancel.clone());
        interrupt::on_interrupt(move || {
            cancel.cancel();
            running.lock().1.values().for_each(Connection::abort);
            let patience = Instant::now() + TIDY;
            while !running.lock().1.is_empty() && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::process::exit(INTERRUPTED.into());
        });
    }
}

/// Receives one transfer; returns also whether the peer spoke the mover's protocol at all.
fn receive_one(
    args: &RecvArgs,
    connection: &Connection,
    cancel: &Cancel,
    bars: &MultiProgress,
) -> (bool, Result<()>) {
    let options = ReceiveOptions {
        keep_set_id: args.keep_set_id,
        durable: args.durable,
        max_bytes: args.max_bytes,
        cancel: cancel.clone(),
    };
    let started = Instant::now();
    let mut display = Display::new(bars, connection, args.quiet);
    let streams = (connection.clone(), connection.clone());
    let into: &Path = &args.into;
    let mut greeting = Greeting::expect(connection, args.greeting);
    let result = farhaul_mover::receive(into, streams, &options, &mut |event| {
        greeting.look_for(&event);
        display.show(&event);
    });
    display.finish();
    let report = match &result {
        Ok(summary) => Some((summary, &Failures::default())),
        Err(ReceiveError::Incomplete { summary, failures }) => Some((summary, failures)),
        Err(_) => None,
    };
    let report = report.map(|(summary, failures)| {
        TransferReport::new("receiver", connection, summary, failures, started.elapsed())
    });
    let result = result
        .map(drop)
        .map_err(|error| greeting.explain(error.exit_code(), error, "farhaul send"));
    // Whether the sender also hears of the end is its own affair: it has had its receipt.
    let _ = connection.clone().close();
    let shown = report.map_or(Ok(()), |report| match (args.json, args.once) {
        // One of many: a line each.
        (true, false) => output::emit_line(&report),
        (json, _) => output::emit(json, &report, TransferReport::show),
    });
    (greeting.heard, result.and(shown))
}

/// Ends a transfer when the user interrupts: it fails on both sides, and leaves nothing half-done.
fn stop_on_interrupt(cancel: &Cancel, connection: &Connection) {
    let (cancel, connection) = (cancel.clone(), connection.clone());
    interrupt::on_interrupt(move || {
        cancel.cancel();
        connection.abort();
    });
}

/// Whether the peer has shown that it speaks the mover's protocol. Until then reads have a time-out;
/// after it a peer may be silent for as long as its disks take.
struct Greeting<'a> {
    connection: &'a Connection,
    heard: bool,
}

impl<'a> Greeting<'a> {
    fn expect(connection: &'a Connection, args: GreetingArgs) -> Self {
        connection.set_read_timeout(Some(args.greeting_timeout));
        Greeting { connection, heard: false }
    }

    fn look_for(&mut self, event: &Event<'_>) {
        if let Event::Greeted = event {
            self.connection.set_read_timeout(None);
            self.heard = true;
        }
    }

    /// `error`, and what the user may have mistaken if it came before the greeting. `wanted`: the
    /// command that should have answered.
    fn explain<E>(&self, code: u8, error: E, wanted: &str) -> anyhow::Error
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        if self.heard || code != 1 {
            return error.into();
        }
        let peer = self.connection.peer_addr();
        Failed { code, message: format!("{error}; is {peer} a `{wanted}`?") }.into()
    }
}

/// Shows progress: a bar on a terminal, else a line now and then.
struct Display {
    connection: Connection,
    bar: Option<ProgressBar>,
    quiet: bool,
    started: Instant,
    shown: Instant,
}

impl Display {
    fn new(bars: &MultiProgress, connection: &Connection, quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = bars.add(ProgressBar::no_length());
            if let Ok(style) = ProgressStyle::with_template("{msg}\n{wide_bar} {percent}%") {
                bar.set_style(style);
            }
            bar
        });
        let now = Instant::now();
        Display { connection: connection.clone(), bar, quiet, started: now, shown: now }
    }

    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Progress(progress) => self.progress(progress),
            Event::Failed(failure) => self.note(&format!("farhaul: {failure}")),
            Event::Skipped { path, what } => {
                self.note(&format!("farhaul: left out {}: {what}", path.display()));
            }
            Event::AttributesNotKept { path, error } => {
                let path = path.display();
                self.note(&format!("farhaul: mode or times of {path} not kept: {error}"));
            }
            _ => {}
        }
    }

    fn note(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => tell!("{line}"),
        }
    }

    fn progress(&mut self, progress: &Progress<'_>) {
        let now = Instant::now();
        let pause = if self.bar.is_some() { REFRESH } else { LINE_EVERY };
        if self.quiet || now - self.shown < pause {
            return;
        }
        self.shown = now;
        let line = self.line(progress, now - self.started);
        match &self.bar {
            Some(bar) => {
                bar.set_length(progress.bytes_total.unwrap_or(progress.bytes_done).max(1));
                bar.set_position(progress.bytes_done);
                bar.set_message(line);
            }
            None => tell!("{line}"),
        }
    }

    /// Bytes, rate, time left, RTT and retransmission share.
    fn line(&self, progress: &Progress<'_>, elapsed: Duration) -> String {
        let stats = self.connection.stats(true).unwrap_or_default();
        let rate = progress.data_bytes as f64 * 8.0 / elapsed.as_secs_f64().max(1e-9);
        let mut line = show_size(progress.bytes_done);
        if let Some(total) = progress.bytes_total {
            let left = total.saturating_sub(progress.bytes_done) as f64;
            let speed = progress.bytes_done as f64 / elapsed.as_secs_f64().max(1e-9);
            line += &format!(" of {}", show_size(total));
            if let Ok(eta) = Duration::try_from_secs_f64(left / speed.max(1.0)) {
                line += &format!(", {} left", show_time(eta));
            }
        }
        let counters = stats.total.counters;
        let sent = counters.packets_sent + counters.packets_received;
        let again = counters.packets_retransmitted + counters.duplicates;
        let share = if sent > 0 { again as f64 * 100.0 / sent as f64 } else { 0.0 };
        line += &format!(
            ", {}, rtt {:.1} ms, retransmitted {share:.2}%  {}",
            show_rate(rate),
            stats.instant.rtt.as_secs_f64() * 1e3,
            progress.current.display()
        );
        line
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
