//! The side that writes: it places what the source announces, and says what it wants of it.
//!
//! Messages are handled in order, and never wait for anything long; lanes write what they bring at
//! once, each on its own; what takes long is done by [`Sink::work`]. Every entry under way has a lock
//! of its own, which nobody holds while a file is read or written. A directory is finished when all
//! in it is, and so at last is the transfer.
//!
//! What a peer may say is bounded: how many entries are unfinished, how many files are open, what is
//! remembered of names. All paths are one checked [name](crate::name::Name) in an open directory.

mod announce;
mod attributes;
mod compare;
mod delete;
mod durable;
mod end;
mod entry;
mod folding;
mod lanes;
mod links;
mod marker;
mod names;
mod options;
mod prove;
mod root;
mod stream;
mod sweep;
mod tree;
mod trouble;
mod verdict;
mod workers;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread;

use self::announce::Walk;
use self::attributes::Policy;
use self::entry::{Again, Content, Gone, Pending, Recent, SLOTS, Slots, Work};
use self::links::Links;
use self::marker::Marks;
pub use self::marker::{CopyId, copy_id};
use self::names::Naming;
pub use self::options::{Existing, Preserve, SinkOptions, SinkTarget};
use self::stream::Standard;
use self::sweep::Dead;
use self::tree::{Directory, OpenDirectories, Place};
pub use self::workers::Helpers;
use self::workers::Queue;
use super::error::TransferError;
use super::event::{Event, Observer, Progress};
use super::memory::Account;
use super::message::{About, Heard, Hearing, MAX_NOTES, Message, Skip, TOO_MANY_NOTES};
use super::processors::give_way;
use super::role::{Flow, Lane, LaneEnd, Role};
use super::source::filter::Filter;
use super::stages::Stages;
use crate::frame::Tally;
use crate::report::{Failure, Failures, LeftOut, Side, describe};
use crate::temporary::TemporaryNames;

/// Notes of one kind that are told; further ones are not.
const NOTES: u64 = 20;

/// What says something to the source; it never waits.
pub type Say<'a> = Box<dyn Fn(Message) + Send + Sync + 'a>;

/// The side that writes.
///
/// [`Sink::work`] must run beside the session that drives it.
pub struct Sink<'a> {
    settings: Settings,
    say: Say<'a>,
    stages: Arc<Stages>,
    observe: Observer<'a>,
    heard: Heard,
    /// What only messages touch.
    walk: Mutex<Walk>,
    /// How names are compared.
    naming: Naming,
    /// Directories that are to fold capitals, by path.
    #[cfg(test)]
    folding: Mutex<std::collections::HashSet<PathBuf>>,
    directories: OpenDirectories,
    /// Entries announced so far.
    announced: AtomicU64,
    /// Entries that are not finished.
    files: Mutex<HashMap<u64, Arc<Pending>>>,
    recent: Mutex<Recent>,
    gone: Mutex<Gone>,
    slots: Mutex<Slots>,
    /// Held while a file that was to be compared is opened for its first chunk.
    opening: Mutex<()>,
    /// The target, once there is one.
    root: OnceLock<Arc<Directory>>,
    links: Mutex<Links>,
    /// What entries are called until they have their own names; also its marks.
    temporary: Arc<TemporaryNames>,
    marks: Mutex<Marks>,
    /// Earlier transfers to this target, after which it is cleaned up.
    dead: OnceLock<Dead>,
    /// This copy's own mark covers everything; written under the lock of the marks.
    marked: AtomicBool,
    /// One directory of every file system that is written to, opened before that.
    devices: Mutex<Vec<(u64, Arc<OwnedFd>)>>,
    /// The user knows of another copy into the target.
    told_of_another: AtomicBool,
    /// The user knows of marks that could not be ended.
    told_of_staying: AtomicBool,
    /// Every file and directory is synced on its own: the sync at the end would not tell, or there can be
    /// no mark.
    each: AtomicBool,
    /// What was to be written back has been tried, for those that read it from the medium.
    flushed: OnceLock<()>,
    /// A sync has failed: what it was for may be lost, whatever a later one says.
    unsynced: Mutex<Option<io::Error>>,
    /// [`rustix::fs::syncfs`], but in tests.
    syncfs: fn(&OwnedFd) -> rustix::io::Result<()>,
    /// Where standard output is the target.
    /// What lanes at work have brought, bytes.
    carried: Mutex<BTreeMap<u32, u64>>,
    standard: Option<Arc<Standard>>,
    /// What takes little time, and what may take much.
    quick: Queue<Job>,
    slow: Queue<Job>,
    memory: Arc<Account>,
    helpers: Arc<Helpers>,
    counts: Counts,
    failures: Mutex<Failures>,
    left_out: Mutex<LeftOut>,
    current: Mutex<Option<Place>>,
    /// Held by those who deal with a block, or complete a file, until they have said so: the receipt
    /// comes after, and so does the end of a mark.
    answering: RwLock<()>,
    /// What ended the work.
    fatal: Mutex<Option<TransferError>>,
    connected: AtomicBool,
    stopped: AtomicBool,
}

/// What a sink is told, as it is used.
#[derive(Debug)]
struct Settings {
    /// The target, for people.
    shown: PathBuf,
    existing: Existing,
    delete: bool,
    max_delete: u64,
    allow_empty: bool,
    filter: Filter,
    dry_run: bool,
    verify: bool,
    durable: bool,
    trust_partial: bool,
    want_digests: bool,
    max_bytes: Option<u64>,
    max_entries: Option<u64>,
    owner: Option<[u8; 32]>,
    hard_links: bool,
    policy: Policy,
}

/// What is counted.
#[derive(Debug, Default)]
struct Counts {
    files: AtomicU64,
    bytes: AtomicU64,
    moved: AtomicU64,
    deleted: AtomicU64,
    /// Entries that would have been deleted if more were allowed.
    not_deleted: AtomicU64,
    /// Announced entries that are not stored.
    failed: AtomicU64,
    notes: AtomicU64,
    /// Notes that the source's user was told.
    told: AtomicU64,
    /// Files that the source says have grown.
    grown: AtomicU64,
    directories: AtomicU64,
    totals: Mutex<Option<(u64, u64)>>,
    /// Ranges of zeros in unfinished files.
    zeros: AtomicU64,
    /// The receipt has been given.
    receipt: AtomicBool,
}

/// What is done apart from messages and lanes.
#[derive(Debug)]
enum Job {
    /// Opens a large file or a stream.
    Open(verdict::Opening),
    /// Takes the digest of what is there.
    Digest { pending: Arc<Pending>, version: u8, skip: Option<Skip> },
    /// Reads again what an earlier transfer has left of a file.
    Prove { pending: Arc<Pending>, version: u8 },
    /// Completes a file.
    Finish(Arc<Pending>),
    /// Writes zeros where they are wanted in order.
    Zeros(Arc<Pending>),
    /// Makes sure of what there is, while the peer is away.
    Settle,
    /// Ends a directory.
    Directory(Arc<Directory>),
    /// Ends everything.
    End(Arc<Directory>),
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

/// Sums what peers say; they may say anything.
fn add(sum: &AtomicU64, more: u64) -> u64 {
    let before = sum
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| Some(sum.saturating_add(more)));
    before.unwrap_or_default().saturating_add(more)
}

fn subtract(sum: &AtomicU64, less: u64) {
    let _ = sum
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| Some(sum.saturating_sub(less)));
}

fn violation(text: &str) -> TransferError {
    TransferError::Violation(text.to_owned())
}

impl fmt::Debug for Sink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sink({})", self.settings.shown.display())
    }
}

impl<'a> Sink<'a> {
    /// Finds the target. A directory that it must be is made.
    ///
    /// # Errors
    ///
    /// [`TransferError::Io`]: the target is not there and cannot be made, or is no directory.
    pub fn new(
        options: SinkOptions,
        say: Say<'a>,
        stages: Arc<Stages>,
        observe: Observer<'a>,
    ) -> Result<Self, TransferError> {
        let SinkOptions { target, dry_run, mode_mask, preserve, keep_set_id, .. } = options;
        let (shown, target, standard) = match target {
            SinkTarget::Path { path, directory } => {
                let found = root::find(&path, directory, dry_run, mode_mask)?;
                (path, Some(found), None)
            }
            SinkTarget::Below { root, path, directory } => {
                let found = root::find_below(&root, &path, directory, dry_run, mode_mask)?;
                (path, Some(found), None)
            }
            SinkTarget::Standard(out) => {
                ("standard output".into(), None, Some(Arc::new(Mutex::new(out))))
            }
        };
        let settings = Settings {
            shown,
            existing: options.existing,
            delete: options.delete,
            max_delete: options.max_delete.unwrap_or(u64::MAX),
            allow_empty: options.allow_empty,
            filter: options.filter,
            dry_run,
            verify: options.verify,
            durable: options.durable && standard.is_none() && !dry_run,
            trust_partial: options.trust_partial,
            want_digests: options.want_digests,
            max_bytes: options.max_bytes,
            max_entries: options.max_entries,
            owner: options.owner,
            hard_links: preserve.hard_links,
            policy: Policy { preserve, keep_set_id, mask: mode_mask, umask: attributes::umask() },
        };
        let slots = if standard.is_some() { 1 } else { SLOTS };
        let walk = match target {
            Some(target) => Walk::new(target),
            None => Walk::standard(),
        };
        let temporary = Arc::new(TemporaryNames::new());
        let sink = Sink {
            settings,
            say,
            stages,
            observe,
            heard: Heard::default(),
            walk: Mutex::new(walk),
            naming: Naming::default(),
            #[cfg(test)]
            folding: Mutex::default(),
            directories: OpenDirectories::default(),
            announced: AtomicU64::new(0),
            files: Mutex::default(),
            recent: Mutex::default(),
            gone: Mutex::default(),
            slots: Mutex::new(Slots { free: slots, waiting: Default::default() }),
            opening: Mutex::default(),
            root: OnceLock::new(),
            links: Mutex::default(),
            marks: Mutex::new(Marks::new(options.copy, Arc::clone(&temporary))),
            temporary,
            dead: OnceLock::new(),
            marked: AtomicBool::new(false),
            told_of_another: AtomicBool::new(false),
            told_of_staying: AtomicBool::new(false),
            devices: Mutex::default(),
            each: AtomicBool::new(false),
            flushed: OnceLock::new(),
            unsynced: Mutex::default(),
            syncfs: |directory| rustix::fs::syncfs(directory),
            standard,
            quick: Queue::default(),
            slow: Queue::default(),
            memory: options.memory,
            helpers: options.helpers,
            counts: Counts::default(),
            failures: Mutex::default(),
            left_out: Mutex::default(),
            current: Mutex::default(),
            answering: RwLock::default(),
            fatal: Mutex::default(),
            carried: Mutex::default(),
            connected: AtomicBool::new(true),
            stopped: AtomicBool::new(false),
        };
        sink.begin_known()?;
        Ok(sink)
    }

    /// Does what takes long, until [`Role::stop`]. For a thread of its own, beside the session, which
    /// is to be ended with its error.
    ///
    /// # Errors
    ///
    /// Whatever ends the transfer.
    pub fn work(&self) -> Result<(), TransferError> {
        thread::scope(|threads| {
            threads.spawn(|| self.work_off(&self.slow));
            for queue in [&self.quick, &self.slow] {
                let Some(helper) = self.helpers.take() else { continue };
                threads.spawn(move || {
                    let _helper = helper;
                    self.work_off(queue);
                });
            }
            self.work_off(&self.quick);
        });
        lock(&self.fatal).take().map_or(Ok(()), Err)
    }

    fn work_off(&self, queue: &Queue<Job>) {
        give_way();
        while let Some(job) = queue.next() {
            let done = catch_unwind(AssertUnwindSafe(|| self.run(job)));
            let done = done.unwrap_or_else(|panic| Err(TransferError::panicked(&*panic)));
            if let Err(error) = done {
                lock(&self.fatal).get_or_insert(error);
                self.halt();
            }
        }
    }

    fn run(&self, job: Job) -> Result<(), TransferError> {
        match job {
            Job::Open(opening) => self.open(opening),
            Job::Digest { pending, version, skip } => self.compare(&pending, version, skip),
            Job::Prove { pending, version } => self.prove(&pending, version),
            Job::Finish(pending) => {
                let _renaming = self.answering.read().unwrap_or_else(PoisonError::into_inner);
                self.complete(&pending)
            }
            Job::Settle => {
                self.settle();
                Ok(())
            }
            Job::Zeros(pending) => self.write_zeros(&pending),
            Job::Directory(directory) => self.end_directory(&directory),
            Job::End(root) => self.end_everything(&root),
        }
    }

    fn halt(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.quick.stop();
        self.slow.stop();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let current = lock(&self.current).clone();
        Progress {
            entries: self.announced.load(Ordering::Relaxed),
            files: self.counts.files.load(Ordering::Relaxed),
            bytes: self.counts.bytes.load(Ordering::Relaxed),
            moved: self.counts.moved.load(Ordering::Relaxed),
            totals: *lock(&self.counts.totals),
            current: current.map(|place| place.path()).unwrap_or_default(),
        }
    }

    /// Bytes that came with this transfer of files that are not complete.
    pub fn in_part(&self) -> u64 {
        let files = lock(&self.files);
        let of = |pending: &Arc<Pending>| {
            let inner = lock(&pending.inner);
            inner.counted.saturating_sub(inner.resumed)
        };
        files.values().map(of).sum()
    }

    /// What failed: entries that could not be stored or deleted here, and in the end those that the
    /// source could not read.
    pub fn failures(&self) -> Failures {
        lock(&self.failures).clone()
    }

    /// Special files that the source has left out, as it says.
    pub fn left_out(&self) -> LeftOut {
        lock(&self.left_out).clone()
    }

    /// Files that grew while they were copied, as the source says.
    pub fn grown(&self) -> u64 {
        self.counts.grown.load(Ordering::Relaxed)
    }

    /// Entries that were deleted, or in a dry run would be.
    pub fn deleted(&self) -> u64 {
        self.counts.deleted.load(Ordering::Relaxed)
    }

    /// Entries that the source does not have and that stay, as no more may be deleted.
    pub fn not_deleted(&self) -> u64 {
        self.counts.not_deleted.load(Ordering::Relaxed)
    }

    /// What was announced so far.
    pub fn tally(&self) -> Tally {
        lock(&self.walk).tally
    }

    fn say(&self, message: Message) {
        (self.say)(message);
    }

    /// Tells both users something.
    fn note(&self, text: &str) {
        (self.observe)(Event::Note(text));
        self.tell(About::Remark, text);
    }

    /// Tells the user of the source something.
    fn tell(&self, about: About, text: &str) {
        let before = self.counts.told.fetch_add(1, Ordering::Relaxed);
        if before < MAX_NOTES || about == About::Failure {
            self.say(Message::Note { about, text: text.to_owned() });
        } else if before == MAX_NOTES {
            let text = "what else was deleted is only counted".to_owned();
            self.say(Message::Note { about: About::Remark, text });
        }
    }

    /// Whether a note of the peer's is shown.
    fn hears(&self, about: About) -> bool {
        let hearing = self.heard.note(about);
        if hearing == Hearing::TooMany {
            (self.observe)(Event::Note(TOO_MANY_NOTES));
        }
        hearing == Hearing::Show
    }

    /// Tells that something of an entry was not kept, the first times.
    fn not_kept(&self, path: &Path, error: &io::Error) {
        let before = self.counts.notes.fetch_add(1, Ordering::Relaxed);
        if before < NOTES {
            self.note(&format!("not all attributes kept: {}", describe(path, error)));
        } else if before == NOTES {
            self.note("attributes of further entries are not kept");
        }
    }

    /// Counts and tells a failure of this side.
    fn fail_here(&self, path: &Path, error: &io::Error) -> String {
        let text = describe(path, error);
        let failure = Failure { side: Side::Here, text: text.clone() };
        (self.observe)(Event::Failed { path: Some(path), failure: &failure });
        let mut failures = lock(&self.failures);
        failures.count += 1;
        failures.keep(failure);
        text
    }

    /// An error that ends the transfer.
    fn fatal(&self, path: PathBuf, error: io::Error) -> TransferError {
        TransferError::Io { path, source: trouble::with_advice(error) }
    }

    fn find(&self, entry: u64) -> Option<Arc<Pending>> {
        lock(&self.files).get(&entry).cloned()
    }
}

impl Role for Sink<'_> {
    fn message(&self, message: Message) -> Result<Flow, TransferError> {
        match message {
            Message::Entry(entry) => self.entry(entry)?,
            Message::Leave { complete } => self.leave(complete)?,
            Message::Totals { files, bytes } => {
                *lock(&self.counts.totals) = Some((files, bytes));
            }
            Message::Zeros { file, first, count } => self.zeros(file, first, count)?,
            Message::FileEnd { file, digest, size } => self.file_end(file, digest, size)?,
            Message::FileAgain { file, attributes, size, sparse, origin } => {
                let content = Content { size, sparse, origin };
                self.file_again(file, Again { attributes, content })?;
            }
            Message::FileDropped { file } => self.file_dropped(file)?,
            Message::Same { file } => self.same(file)?,
            Message::End { tally, omitted, complete } => self.end(tally, omitted, complete)?,
            Message::Note { about: About::Failure, text } => {
                let failure = Failure { side: Side::Peer, text };
                if self.hears(About::Failure) {
                    (self.observe)(Event::Failed { path: None, failure: &failure });
                }
                lock(&self.failures).keep(failure);
            }
            Message::Note { about: About::LeftOut, text } => {
                if self.hears(About::LeftOut) {
                    (self.observe)(Event::Note(&format!("left out {text}")));
                }
                lock(&self.left_out).keep(&text);
            }
            Message::Note { about, text } => {
                if about == About::Grown {
                    self.counts.grown.fetch_add(1, Ordering::Relaxed);
                }
                if self.hears(about) {
                    (self.observe)(Event::Note(&text));
                }
            }
            Message::Empty => self.nothing_there(),
            Message::LeftOut { count } => lock(&self.left_out).count = count,
            Message::Done if self.counts.receipt.load(Ordering::Acquire) => return Ok(Flow::Over),
            // The session keeps these to itself, and the rest is for sources.
            _ => return Err(violation("a message out of place")),
        }
        Ok(Flow::Continue)
    }

    fn lane(&self, lane: Lane<'_>) -> Result<(), LaneEnd> {
        let number = lane.number;
        lock(&self.carried).insert(number, 0);
        let worked = self.work_lane(lane);
        lock(&self.carried).remove(&number);
        worked
    }

    fn carried(&self) -> BTreeMap<u32, u64> {
        lock(&self.carried).clone()
    }

    fn connected(&self, yes: bool) -> Result<(), TransferError> {
        self.connected.store(yes, Ordering::SeqCst);
        if !yes {
            self.slow.push(Job::Settle);
        }
        let parts: Vec<_> = lock(&self.files)
            .values()
            .filter_map(|pending| match &lock(&pending.inner).work {
                Work::Part(part) => Some((Arc::clone(pending), Arc::clone(part))),
                _ => None,
            })
            .collect();
        for (pending, part) in parts {
            if !yes {
                part.unlock();
                continue;
            }
            if let Err(error) = part.relock() {
                return Err(TransferError::Io { path: pending.place.path(), source: error });
            }
            self.prove_later(&pending);
            // One that was complete when the connection went.
            self.quick.push(Job::Finish(pending));
        }
        Ok(())
    }

    fn stop(&self) {
        self.halt();
    }
}

#[cfg(test)]
mod tests;
