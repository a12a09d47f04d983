//! One side of a copy at work, in this process.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use farhaul_mover::Cancel;
use farhaul_mover::transfer::adapt::Lanes;
use farhaul_mover::transfer::detour::{Detour, Seen, Step};
use farhaul_mover::transfer::limit::{Evidence, Held, Limit};
use farhaul_mover::transfer::memory::Account;
use farhaul_mover::transfer::message::Pulse;
use farhaul_mover::transfer::pace::Pace;
use farhaul_mover::transfer::session::{Links, Session, Way};
use farhaul_mover::transfer::sink::{Existing, Helpers, Sink, SinkOptions, SinkTarget};
use farhaul_mover::transfer::source::filter::Filter;
use farhaul_mover::transfer::source::{Source, SourceOptions, Sources, mount_points};
use farhaul_mover::transfer::{Event, Observer, Outcome, Progress, Role, TransferError};

use super::counted::{Counted, Quota};
use super::job::{Bytes, Job, OnExisting, SinkJob, SourceJob, Terms};
use super::links::is_tcp;
use super::report::Summary;
use super::show::told;
use crate::interrupt;
use crate::units::show_rate;

/// Between two looks at how it goes.
const LOOK: Duration = Duration::from_millis(200);
/// How long an interrupted sink writes on before the user is told.
const WAITED: Duration = Duration::from_millis(500);

/// How a running side is doing.
#[derive(Clone, Debug, Default)]
pub struct Going {
    /// What is done.
    pub progress: Progress,
    /// What it is limited by, lately.
    pub lately: Evidence,
    /// And since the beginning.
    pub overall: Evidence,
    /// Which limit held for how long.
    pub held: Held,
    /// Of the lanes' connections: the largest RTT, all packets, the sum of the capacities.
    pub rtt: Duration,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Control packets that bore the peer's address and were not its own, of all connections that
    /// there were at a look.
    pub forged: u64,
    /// Connections that broke and had to be replaced.
    pub reconnects: u64,
    /// What the path carries, bits/s.
    pub capacity: f64,
    /// The transport.
    pub path: Option<String>,
    /// Since when there has been a connection.
    pub connected: Option<Instant>,
    /// When it was over.
    pub ended: Option<Instant>,
    /// There is none now.
    pub cut_off: bool,
    /// TCP has been found to carry more than UDP.
    pub tcp_is_better: bool,
}

impl Going {
    /// What held it up most of the time; none if nothing stands out.
    pub fn limit(&self) -> Option<Limit> {
        let overall = || Some(self.overall.limit()).filter(|limit| *limit != Limit::Unknown);
        self.held.most().or_else(overall)
    }
}

/// What became of it.
pub struct Finished {
    /// What was done.
    pub summary: Summary,
    /// How it went.
    pub going: Going,
    /// Whether it ended well: entries that failed do not count.
    pub result: Result<(), TransferError>,
}

/// What a side needs beside its job.
pub struct Surroundings<'a> {
    /// Which transfer.
    pub session: [u8; 16],
    /// Ends it.
    pub cancel: Cancel,
    /// Is told of events.
    pub observe: Observer<'a>,
    /// Is told how it goes, some times a second, and says what is to be done.
    pub show: &'a mut dyn FnMut(&Going) -> Wish,
    /// It runs for a client of a server.
    pub service: Option<Service<'a>>,
}

/// What a server adds.
#[derive(Clone, Copy)]
pub struct Service<'a> {
    /// The directory that all paths are below, and that nothing leads out of.
    pub root: &'a Path,
    /// Is called once connections may come: the job can be begun.
    pub ready: &'a dyn Fn(),
    /// Ends the transfer with what somebody has put in.
    pub end: &'a Mutex<Option<TransferError>>,
    /// What the client makes the server keep.
    pub memory: &'a Arc<Account>,
    /// Threads that a sink may have beyond those that it needs; all sessions of the client share them.
    pub second_workers: &'a Arc<Helpers>,
    /// The most entries that it may announce.
    pub max_entries: Option<u64>,
    /// Is asked before anything that the client says is acted upon.
    pub quota: Quota<'a>,
    /// The permission bits that it may give.
    pub mode_mask: u32,
    /// Who it is, where what is there is not its own.
    pub owner: Option<[u8; 32]>,
}

/// What whoever looks on wants.
#[derive(Debug, Default)]
pub enum Wish {
    /// Nothing.
    #[default]
    None,
    /// All connections made anew.
    Reconnect,
    /// An end, for this reason.
    End(TransferError),
}

/// Does a job over these connections.
pub fn run(job: &Job, terms: &Terms, links: Links<'_>, around: Surroundings<'_>) -> Finished {
    let session = match around.service {
        Some(service) => Session::with_memory(Arc::clone(service.memory)),
        None => Session::default(),
    };
    let root = around.service.map(|service| service.root);
    match job {
        Job::Source(job) => match source(job, terms, root, &session, around.observe) {
            Ok(source) => {
                let announce = || source.announce_everything();
                let progress = || source.progress();
                let (result, going) =
                    drive(&source, &session, terms, links, around, true, &announce, &progress);
                Finished { summary: of_source(&source), going, result }
            }
            Err(error) => refused(error),
        },
        Job::Sink(job) => {
            let Surroundings { session: id, cancel, observe, show, service } = around;
            let outcomes = Outcomes::default();
            let observe = |event: Event<'_>| {
                outcomes.count(&event);
                observe(event);
            };
            match sink(job, terms, service, &session, &observe) {
                Ok(sink) => {
                    let progress = || sink.progress();
                    let work = || {
                        if let Err(error) = sink.work() {
                            session.end(Err(error));
                        }
                    };
                    let observe = &observe;
                    let around = Surroundings { session: id, cancel, observe, show, service };
                    let (result, going) =
                        drive(&sink, &session, terms, links, around, false, &work, &progress);
                    Finished { summary: of_sink(&sink, &outcomes), going, result }
                }
                Err(error) => refused(error),
            }
        }
    }
}

/// What a sink tells of its files as they end.
#[derive(Debug, Default)]
struct Outcomes {
    moved: AtomicU64,
    bytes: AtomicU64,
    resumed: AtomicU64,
    same: AtomicU64,
    compared: AtomicU64,
    kept: AtomicU64,
}

impl Outcomes {
    fn count(&self, event: &Event<'_>) {
        let Event::File { size, outcome, .. } = event else { return };
        let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
        match outcome {
            Outcome::Moved { resumed } => {
                add(&self.moved, 1);
                add(&self.bytes, size.saturating_sub(*resumed));
                add(&self.resumed, *resumed);
            }
            Outcome::Same { .. } | Outcome::Kept => {
                add(&self.same, 1);
                add(&self.compared, u64::from(*outcome == Outcome::Same { compared: true }));
                add(&self.kept, u64::from(*outcome == Outcome::Kept));
            }
        }
    }
}

fn refused(error: TransferError) -> Finished {
    Finished { summary: Summary::default(), going: Going::default(), result: Err(error) }
}

/// Finds out whether a job can be begun at all, so that the other side is not bothered with one that
/// cannot.
pub fn check(job: &Job, terms: &Terms) -> Result<(), TransferError> {
    let session = Session::default();
    match job {
        Job::Source(job) if job.stream => Ok(()),
        Job::Source(job) => source(job, terms, None, &session, &|_| {}).map(drop),
        Job::Sink(job) if job.stream => Ok(()),
        // As in a dry run nothing is made.
        Job::Sink(job) => {
            let terms = Terms { dry_run: true, ..terms.clone() };
            sink(job, &terms, None, &session, &|_| {}).map(drop)
        }
    }
}

fn source<'a>(
    job: &SourceJob,
    terms: &Terms,
    root: Option<&Path>,
    session: &'a Session,
    observe: Observer<'a>,
) -> Result<Source<'a>, TransferError> {
    let options = SourceOptions {
        filter: filter(&job.rules)?,
        verify: terms.verify,
        dry_run: terms.dry_run,
        owner: terms.preserve.owner,
        sparse: terms.preserve.sparse,
        xattrs: terms.preserve.xattrs,
        hard_links: terms.preserve.hard_links,
        count: job.count,
        mount_points: mount_points(),
        pace: terms.rate.map(|rate| Arc::new(Pace::new(rate))),
    };
    let what = match (root, job.stream) {
        (Some(root), _) => {
            let paths = job.paths.iter().map(Bytes::path).collect();
            Sources::Below { root: root.into(), paths }
        }
        (None, true) => Sources::Stream { name: b"stdin".to_vec(), stream: Box::new(io::stdin()) },
        (None, false) => Sources::Paths(job.paths.iter().map(Bytes::path_at_home).collect()),
    };
    // Of a server's export, the sink refuses it when it comes.
    if let (Sources::Paths(paths), true) = (&what, job.one_file)
        && let Some(path) = paths
            .iter()
            .find(|path| std::fs::symlink_metadata(path).is_ok_and(|known| known.is_dir()))
    {
        let why = "it is a directory, and standard output takes one file only";
        let source = io::Error::new(io::ErrorKind::IsADirectory, why);
        return Err(TransferError::Target { path: path.clone(), source });
    }
    Source::new(what, options, session, observe)
}

fn filter(rules: &[(String, bool)]) -> Result<Filter, TransferError> {
    let mut filter = Filter::default();
    for (pattern, include) in rules {
        filter.add(pattern, *include).map_err(|error| {
            TransferError::Unreachable(io::Error::new(io::ErrorKind::InvalidInput, error))
        })?;
    }
    Ok(filter)
}

fn sink<'a>(
    job: &SinkJob,
    terms: &Terms,
    service: Option<Service<'_>>,
    session: &'a Session,
    observe: Observer<'a>,
) -> Result<Sink<'a>, TransferError> {
    let directory = job.directory;
    let target = match (service, job.stream) {
        (Some(service), _) => {
            let root = service.root;
            SinkTarget::Below { root: root.into(), path: job.path.path(), directory }
        }
        (None, true) => SinkTarget::Standard(Box::new(io::stdout())),
        (None, false) => SinkTarget::Path { path: job.path.path_at_home(), directory },
    };
    let usual = SinkOptions::new(target);
    let existing = match job.existing {
        // What would replace something, or only compare it, is not admitted to a drop box.
        existing if service.is_some_and(|service| service.owner.is_some()) => match existing {
            OnExisting::Keep => Existing::Keep,
            _ => Existing::Refuse,
        },
        existing => existing.into(),
    };
    let options = SinkOptions {
        existing,
        delete: job.delete,
        max_delete: job.max_delete,
        allow_empty: job.allow_empty,
        filter: filter(&job.spared)?,
        dry_run: terms.dry_run,
        verify: terms.verify,
        preserve: terms.preserve.into(),
        keep_set_id: job.keep_set_id,
        want_digests: job.want_digests,
        trust_partial: job.trust_partial,
        copy: job.copy,
        max_entries: service.and_then(|service| service.max_entries),
        mode_mask: service.map_or(usual.mode_mask, |service| service.mode_mask),
        owner: service.and_then(|service| service.owner),
        memory: Arc::clone(&session.memory),
        helpers: service.map_or(usual.helpers, |service| Arc::clone(service.second_workers)),
        ..usual
    };
    let say = Box::new(|message| session.channel.say(&message));
    Sink::new(options, say, Arc::clone(&session.stages), observe)
}

fn taken(end: &Mutex<Option<TransferError>>) -> Option<TransferError> {
    end.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Runs a role beside its other work and what shows.
#[allow(clippy::too_many_arguments, reason = "what the two roles have in common, said once")]
fn drive(
    role: &(dyn Role + Sync),
    session: &Session,
    terms: &Terms,
    links: Links<'_>,
    around: Surroundings<'_>,
    source: bool,
    beside: &(dyn Fn() + Sync),
    progress: &(dyn Fn() -> Progress + Sync),
) -> (Result<(), TransferError>, Going) {
    let Surroundings { session: id, cancel, observe, show, service } = around;
    let options = &terms.session(id, cancel);
    let counted = service.map(|service| Counted::new(role, service.quota));
    let role = counted.as_ref().map_or(role, |counted| counted);
    let over = AtomicBool::new(false);
    let processors = thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let mut lanes = Lanes::new(terms.lanes, processors);
    // One side decides how many lanes there are, lest it end those that the other is trying.
    let dials = matches!(&links, Links::Dial(_));
    let choice = matches!(&links, Links::Dial(dial) if dial.has_choice());
    let mut compared =
        Compared { role, session, observe, detour: Detour::default(), carried: BTreeMap::new() };
    let mut watch = Watch::new(session, source, progress);
    let watcher = thread::current();
    if let Some(service) = service {
        (service.ready)();
    }
    let result = thread::scope(|threads| {
        let beside = threads.spawn(|| session.contain(beside));
        let over = &over;
        let runner = threads.spawn(move || {
            // However it ends, the watcher is to see it.
            struct Set<'a>(&'a AtomicBool, thread::Thread);
            impl Drop for Set<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Release);
                    self.1.unpark();
                }
            }
            let _set = Set(over, watcher);
            session.run(role, links, options, observe)
        });
        // The threads of an interrupted sink end at once, unless they are in a call that writes.
        let mut waiting = Waiting::default();
        let look = || {
            while !over.load(Ordering::Acquire) {
                thread::park_timeout(LOOK);
                waiting.look(!source && (session.lanes().0 > 0 || !beside.is_finished()));
                let full = watch.look_is_full();
                if full && choice {
                    compared.look(watch.passed, watch.going.lately.limit());
                }
                if let Some(why) = service.and_then(|service| taken(service.end)) {
                    session.end(Err(why));
                }
                if full && dials && !terms.fixed_lanes && !compared.detour.is_trying() {
                    let passed = watch.passed;
                    let moved = watch.going.progress.moved.saturating_sub(watch.moved);
                    let rate = moved as f64 / passed.as_secs_f64();
                    if let Some(wanted) = lanes.next(passed, rate, watch.going.lately.limit()) {
                        session.want_lanes(wanted);
                    }
                }
                if full {
                    watch.moved = watch.going.progress.moved;
                }
                match show(&watch.going) {
                    Wish::None => {}
                    Wish::Reconnect => session.reconnect(),
                    Wish::End(error) => session.end(Err(error)),
                }
            }
        };
        session.contain(look);
        let joined = runner.join();
        while !source && interrupt::has_come() && !beside.is_finished() {
            waiting.look(true);
            thread::sleep(LOOK / 10);
        }
        match joined {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    watch.look_is_full();
    (result, watch.going)
}

/// Tells a user who has interrupted, once, that it is the disk which is waited for.
#[derive(Default)]
struct Waiting {
    since: Option<Instant>,
    told: bool,
}

impl Waiting {
    fn look(&mut self, writes: bool) {
        if !writes || !interrupt::has_come() {
            return;
        }
        let since = self.since.get_or_insert_with(Instant::now);
        if since.elapsed() > WAITED && !std::mem::replace(&mut self.told, true) {
            told("farhaul: waiting for the disk to take what was written");
        }
    }
}

/// UDP and TCP, side by side where that may help.
struct Compared<'a> {
    role: &'a (dyn Role + Sync),
    session: &'a Session,
    observe: Observer<'a>,
    detour: Detour,
    /// What lanes had carried at the last look.
    carried: BTreeMap<u32, u64>,
}

impl Compared<'_> {
    /// After an interval in which this was the limit.
    fn look(&mut self, interval: Duration, limit: Limit) {
        let carried = self.role.carried();
        let rate = |lane: u32| {
            // A lane that is new since the last look says nothing yet.
            let (now, before) = (carried.get(&lane)?, self.carried.get(&lane)?);
            Some(now.saturating_sub(*before) as f64 / interval.as_secs_f64())
        };
        let (lanes, trial) = self.session.ways();
        let of_udp = lanes.iter().filter(|(_, udp)| *udp).filter_map(|(lane, _)| rate(*lane));
        let udp = of_udp.reduce(|sum, rate| sum + rate);
        let tcp = trial.and_then(rate);
        self.carried = carried;
        match self.detour.next(Seen { interval, limit, udp, tcp }) {
            None => {}
            Some(Step::Begin) => self.session.begin_trial(),
            Some(Step::End) => self.session.end_trial(false),
            Some(Step::Switch { before, together, tcp }) => {
                let shown = [before, together, tcp].map(|bytes| show_rate(bytes * 8.0));
                let [before, together, tcp] = shown;
                let text = format!(
                    "UDP alone carried {before}, together with one connection over TCP {together}, {tcp} of it \
                     over TCP: continuing over TCP (--transport udt keeps to UDP)"
                );
                (self.observe)(Event::Note(&text));
                self.session.end_trial(true);
            }
        }
    }
}

/// Looks at a running session again and again.
struct Watch<'a> {
    session: &'a Session,
    source: bool,
    progress: &'a (dyn Fn() -> Progress + Sync),
    going: Going,
    /// Forged packets of the connections at the last look.
    forged: u64,
    /// What this side and the other had told at the end of the last window.
    before: (Pulse, Pulse),
    at: Instant,
    /// How long the last window was, and what had been moved before it.
    passed: Duration,
    moved: u64,
}

/// What a transfer is limited by is judged over so long.
const WINDOW: Duration = Duration::from_secs(2);

impl<'a> Watch<'a> {
    fn new(
        session: &'a Session,
        source: bool,
        progress: &'a (dyn Fn() -> Progress + Sync),
    ) -> Self {
        let (going, before) = Default::default();
        let (at, passed) = (Instant::now(), Duration::ZERO);
        Watch { session, source, progress, going, forged: 0, before, at, passed, moved: 0 }
    }

    /// Whether this was the look at the end of a window.
    fn look_is_full(&mut self) -> bool {
        let going = &mut self.going;
        going.progress = (self.progress)();
        going.connected = self.session.connected();
        going.ended = self.session.ended();
        let facts = self.session.facts();
        going.reconnects = self.session.reconnects();
        going.tcp_is_better = self.session.way() == Way::Tcp;
        let path = self.session.path();
        going.cut_off = path.is_none();
        let over_tcp = |going: &Going| going.path.as_deref().is_some_and(is_tcp);
        if let Some(path) = path {
            let before = over_tcp(going);
            going.path = Some(path);
            if over_tcp(going) != before {
                // Each transport counts its own packets.
                (going.packets_sent, going.retransmitted) = (0, 0);
            }
        }
        let tcp = over_tcp(going);
        let forged = facts.iter().map(|facts| facts.forged).sum::<u64>();
        // Less is that of connections which are gone.
        going.forged += forged.saturating_sub(std::mem::replace(&mut self.forged, forged));
        if !facts.is_empty() {
            going.rtt = facts.iter().map(|facts| facts.rtt).max().unwrap_or_default();
            going.capacity = facts.iter().map(|facts| facts.capacity).fold(0.0, f64::max);
        }
        let (own, peer) = (self.session.own(), self.session.peer());
        // What has not been told yet counts, too.
        let counted = facts.iter().filter(|facts| facts.udp != tcp);
        let (sent, again) = counted.fold((0, 0), |(sent, again), facts| {
            (sent + facts.packets_sent, again + facts.retransmitted)
        });
        // What lanes have told that are gone is of UDP for the most part.
        let told = if tcp { (0, 0) } else { own.packets };
        going.packets_sent = going.packets_sent.max(sent).max(told.0);
        going.retransmitted = going.retransmitted.max(again).max(told.1);
        let stages = self.session.stages.read();
        let since = self.going.connected.map_or(0.0, |at| at.elapsed().as_secs_f64());
        let rate = self.going.progress.moved as f64 * 8.0 / since.max(1e-3);
        self.going.overall = self.evidence(&Pulse { stages, ..own }, &peer, rate);
        self.passed = self.at.elapsed();
        let full = self.passed >= WINDOW;
        if full {
            let rate = (self.going.progress.moved.saturating_sub(self.moved)) as f64 * 8.0
                / self.passed.as_secs_f64();
            let (ours, theirs) = (own.since(&self.before.0), peer.since(&self.before.1));
            self.going.lately = self.evidence(&ours, &theirs, rate);
            self.going.held.add(self.going.lately.limit(), self.passed);
            self.before = (own, peer);
            self.at = Instant::now();
        }
        full
    }

    fn evidence(&self, ours: &Pulse, theirs: &Pulse, rate: f64) -> Evidence {
        match self.source {
            true => Evidence::of(ours, theirs, rate),
            false => Evidence::of(theirs, ours, rate),
        }
    }
}

fn of_source(source: &Source<'_>) -> Summary {
    let report = source.report();
    Summary {
        files: report.tally.files,
        directories: report.tally.directories,
        symlinks: report.tally.symlinks,
        bytes: report.tally.bytes,
        moved_files: report.moved_files,
        moved_bytes: report.moved_bytes,
        resumed_bytes: report.resumed_bytes,
        data_bytes: source.progress().moved,
        part_bytes: source.in_part(),
        same_files: report.same_files,
        compared_files: report.compared_files,
        kept_files: report.kept_files,
        skipped: report.left_out.count,
        left_out: report.left_out.first,
        grown_files: report.grown_files,
        deleted: report.deleted,
        not_deleted: report.not_deleted,
        failed: report.failures.count,
        failures: report.failures.first.iter().map(ToString::to_string).collect(),
    }
}

/// What a sink knows: which of its files were moved is known to the source.
fn of_sink(sink: &Sink<'_>, outcomes: &Outcomes) -> Summary {
    let (tally, failures, left_out) = (sink.tally(), sink.failures(), sink.left_out());
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Summary {
        files: tally.files,
        directories: tally.directories,
        symlinks: tally.symlinks,
        bytes: tally.bytes,
        moved_files: read(&outcomes.moved),
        moved_bytes: read(&outcomes.bytes),
        resumed_bytes: read(&outcomes.resumed),
        data_bytes: sink.progress().moved,
        part_bytes: sink.in_part(),
        same_files: read(&outcomes.same),
        compared_files: read(&outcomes.compared),
        kept_files: read(&outcomes.kept),
        skipped: left_out.count,
        left_out: left_out.first,
        grown_files: sink.grown(),
        deleted: sink.deleted(),
        not_deleted: sink.not_deleted(),
        failed: failures.count,
        failures: failures.first.iter().map(ToString::to_string).collect(),
    }
}
