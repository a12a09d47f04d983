//! The side that reads.

mod announce;
mod desk;
mod exported;
pub mod filter;
mod lanes;
mod mounts;
mod opened;
mod options;
mod stream;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use self::announce::arrives;
use self::desk::{Desk, Job, Next, Over, Place, Seen, Work};
pub use self::mounts::mount_points;
use self::opened::{Opened, Roots};
pub use self::options::{SourceOptions, Sources};
use self::stream::Stream;
use super::block::Block;
use super::error::TransferError;
use super::event::{Event, Observer, Outcome, Progress};
use super::message::{
    About, Entry, Extra, Heard, Hearing, MAX_NOTES, Message, Skip, TOO_MANY_NOTES, What,
};
use super::processors::give_way;
use super::role::{Flow, Lane, LaneEnd, Role};
use super::session::Session;
use super::stages::{Stage, Stages};
use crate::digest::Digest;
use crate::frame::{Attributes, Tally};
use crate::report::{Failure, Failures, LeftOut, Side, Special, printable_path};
use crate::scan::scan;
use crate::sources::{Resolved, Source as Named, resolve_with_slashes};

/// Whoever waits looks again after so long, whatever it was told.
const LOOK: Duration = Duration::from_millis(500);

/// The source of a transfer.
pub struct Source<'a> {
    options: SourceOptions,
    sources: Vec<Named>,
    /// Sources that were named and cannot be read.
    missing: Vec<(PathBuf, io::Error)>,
    roots: Roots,
    stream: Option<Stream>,
    session: &'a Session,
    stages: Arc<Stages>,
    observe: Observer<'a>,
    state: Mutex<State>,
    /// There is room for another file, or work for a lane.
    changed: Condvar,
    stopped: AtomicBool,
    /// Notes that the sink's user was told.
    notes: AtomicU64,
    heard: Heard,
}

#[derive(Debug, Default)]
struct State {
    desk: Desk,
    entries: u64,
    announced_all: bool,
    /// The content of a directory was announced as that of the target, and all of it.
    complete: bool,
    ended: bool,
    /// Entries that the sink has said of that they failed.
    refused: u64,
    report: SourceReport,
    progress: Progress,
    stream_digest: Option<Digest>,
}

/// What a source has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceReport {
    /// What was announced.
    pub tally: Tally,
    /// Files that were moved, or would be.
    pub moved_files: u64,
    /// Their bytes, without what an earlier transfer had moved.
    pub moved_bytes: u64,
    /// Files that were there, or were to stay.
    pub same_files: u64,
    /// Of those, files whose content was compared.
    pub compared_files: u64,
    /// Of those, files that were to stay whatever they are.
    pub kept_files: u64,
    /// Bytes that an earlier transfer had moved.
    pub resumed_bytes: u64,
    /// Special files, which are not moved.
    pub left_out: LeftOut,
    /// Entries that could not be read, counted apart from those that could not be written.
    pub omitted: u64,
    /// Files that became longer while they were copied, as far as they were announced.
    pub grown_files: u64,
    /// Entries of the sink that were deleted.
    pub deleted: u64,
    /// Entries of the sink that stay only as no more may be deleted.
    pub not_deleted: u64,
    /// What failed, on either side.
    pub failures: Failures,
}

impl<'a> Source<'a> {
    /// Checks the sources; nothing is sent before [`Source::announce_everything`] and the session run.
    ///
    /// # Errors
    ///
    /// [`TransferError::Sources`]: none of them is there, or one has no name to arrive under.
    pub fn new(
        what: Sources,
        options: SourceOptions,
        session: &'a Session,
        observe: Observer<'a>,
    ) -> Result<Self, TransferError> {
        let (Resolved { sources, missing }, stream) = match what {
            Sources::Paths(paths) => (resolve_with_slashes(&paths)?, None),
            Sources::Below { root, paths } => (exported::resolve(&root, &paths)?, None),
            Sources::Stream { name, stream } => {
                let nothing = Resolved { sources: Vec::new(), missing: Vec::new() };
                (nothing, Some(Stream::new(name, stream)))
            }
        };
        let roots = Roots::open(&sources, options.sparse).map_err(|source| TransferError::Io {
            path: sources.first().map(|source| source.path.clone()).unwrap_or_default(),
            source,
        })?;
        let desk = Desk::new(options.verify, Arc::clone(&session.memory));
        Ok(Source {
            options,
            sources,
            missing,
            roots,
            stream,
            session,
            stages: Arc::clone(&session.stages),
            observe,
            state: Mutex::new(State { desk, ..State::default() }),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
            notes: AtomicU64::new(0),
            heard: Heard::default(),
        })
    }
}

/// What the session and its caller do.
impl Source<'_> {
    /// Walks the sources and announces everything. For a thread of its own, beside the session.
    pub fn announce_everything(&self) {
        give_way();
        std::thread::scope(|threads| {
            if self.options.count && !self.sources.is_empty() {
                threads.spawn(|| {
                    if let Some(totals) = scan(&self.sources, &self.options.filter, &self.stopped) {
                        self.lock().progress.totals = Some((totals.files, totals.bytes));
                        self.say(&Message::Totals { files: totals.files, bytes: totals.bytes });
                    }
                });
            }
            match &self.stream {
                Some(stream) => self.announce_stream(stream),
                None => announce::announce(self, &self.sources, &self.missing),
            }
        });
    }

    /// What has been done so far.
    pub fn report(&self) -> SourceReport {
        self.lock().report.clone()
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.lock().progress.clone()
    }

    /// Bytes that the sink has from this transfer of files that are not complete.
    pub fn in_part(&self) -> u64 {
        self.lock().desk.in_part()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, message: &Message) {
        self.session.channel.say(message);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What the announcer does.
impl Source<'_> {
    fn count(&self, add: impl FnOnce(&mut SourceReport)) {
        add(&mut self.lock().report);
    }

    /// Announces an entry; its number.
    fn announce(
        &self,
        name: Vec<u8>,
        attributes: Attributes,
        extra: Option<Box<Extra>>,
        what: What,
    ) -> u64 {
        let mut state = self.lock();
        let entry = state.entries;
        state.entries += 1;
        // With the lock held, so that entries are numbered in the order in which they are said.
        self.say(&Message::Entry(Entry { name, attributes, extra, what }));
        entry
    }

    /// Announces a file, once there is room for it; its number, or none if the transfer is stopped.
    fn announce_file(
        &self,
        path: PathBuf,
        place: Place,
        seen: Seen,
        name: Vec<u8>,
        extra: Option<Box<Extra>>,
    ) -> Option<u64> {
        let mut state = self.lock();
        while !state.desk.has_room() {
            if self.is_stopped() {
                return None;
            }
            state = self.wait(state);
        }
        let entry = state.entries;
        state.entries += 1;
        state.report.tally.files += 1;
        state.report.tally.bytes = state.report.tally.bytes.saturating_add(seen.size);
        state.desk.announce(entry, path, place, seen);
        let what = What::File { size: seen.size, sparse: seen.sparse, origin: seen.origin };
        self.say(&Message::Entry(Entry { name, attributes: seen.attributes, extra, what }));
        Some(entry)
    }

    /// An entry that cannot be read and is not announced.
    fn omit(&self, path: &Path, error: &io::Error) {
        let failure = announce::failure(path, error);
        (self.observe)(Event::Failed { path: Some(path), failure: &failure });
        self.say(&Message::Note { about: About::Failure, text: failure.text.clone() });
        let mut state = self.lock();
        state.report.omitted += 1;
        state.report.failures.count += 1;
        state.report.failures.keep(failure);
    }

    /// A special file is not moved.
    fn leave_out(&self, path: &Path, what: Special) {
        (self.observe)(Event::Skipped { path, what });
        let text = format!("{}: {what}", printable_path(path));
        self.tell(About::LeftOut, &text);
        let mut state = self.lock();
        state.report.left_out.count += 1;
        state.report.left_out.keep(&text);
    }

    /// Whether a note of the peer's is shown.
    fn hears(&self, about: About) -> bool {
        let hearing = self.heard.note(about);
        if hearing == Hearing::TooMany {
            (self.observe)(Event::Note(TOO_MANY_NOTES));
        }
        hearing == Hearing::Show
    }

    /// Tells both users something.
    fn note(&self, about: About, text: &str) {
        (self.observe)(Event::Note(text));
        self.tell(about, text);
    }

    /// Tells the user of the sink something.
    fn tell(&self, about: About, text: &str) {
        if self.notes.fetch_add(1, Ordering::Relaxed) < MAX_NOTES {
            self.say(&Message::Note { about, text: text.to_owned() });
        }
    }

    fn announced_all(&self, complete: bool) {
        let mut state = self.lock();
        state.complete = complete;
        state.announced_all = true;
        self.end_if_over(&mut state);
    }

    /// Says the end once there is nothing more to announce. The sink then knows what it waits for, and its
    /// receipt needs no further round trip. How long a stream is shows at its end, and what a dry run
    /// would move when all has been looked at.
    fn end_if_over(&self, state: &mut State) {
        let stream_over = self.stream.as_ref().is_none_or(Stream::is_over);
        let looked_at = !self.options.dry_run || state.desk.is_empty();
        if state.announced_all && !state.ended && looked_at && stream_over {
            state.ended = true;
            let (tally, omitted) = (state.report.tally, state.report.omitted);
            let count = state.report.left_out.count;
            if count > 0 {
                self.say(&Message::LeftOut { count });
            }
            self.say(&Message::End { tally, omitted, complete: state.complete });
        }
    }
}

/// What lanes do.
impl Source<'_> {
    fn take_work(&self) -> Option<Work> {
        self.lock().desk.work()
    }

    /// Waits until there may be work; false when the transfer is over.
    fn wait_for_work(&self) -> bool {
        let state = self.lock();
        if self.is_stopped() {
            return false;
        }
        // Further files would be announced, if they were found.
        let finding = !state.announced_all && state.desk.has_room();
        let stage = if finding { Stage::Find } else { Stage::Idle };
        self.stages.during(stage, || drop(self.wait(state)));
        !self.is_stopped()
    }

    fn block_number(&self) -> u64 {
        self.lock().desk.number()
    }

    fn sent(&self, lane: u32, block: &Block) {
        let pieces = block.pieces();
        let mut state = self.lock();
        state.desk.sent(block.number, lane, pieces);
        if let Some(path) = pieces.last().and_then(|piece| state.desk.get(piece.entry)) {
            state.progress.current = path.path.to_path_buf();
        }
    }

    fn opened(&self, job: &Job, opened: Opened, data: &[std::ops::Range<u64>]) {
        let opened = Arc::new(opened);
        let mut state = self.lock();
        let zeros = state.desk.opened(job, Arc::clone(&opened), data);
        for range in zeros {
            let (first, count) = (range.start, range.end - range.start);
            self.say(&Message::Zeros { file: job.file, first, count });
            let bytes = count.saturating_mul(super::tree_hash::CHUNK);
            state.progress.bytes = state.progress.bytes.saturating_add(bytes);
        }
        let next = state.desk.next(job);
        drop(state);
        self.changed.notify_all();
        lanes::end(self, job, &opened, next);
    }

    /// A chunk has been read; what follows.
    fn read(&self, job: &Job, chunk: u64, cv: Digest) -> Next {
        let mut state = self.lock();
        state.desk.read(job, chunk, cv);
        state.desk.next(job)
    }

    /// The file has been read to its end, and is what was announced.
    fn ended(&self, job: &Job, digest: Option<Digest>) {
        // With the lock held: another lane may find that it has changed, and the sink takes no end of a
        // file that it has been told to begin anew.
        let state = self.lock();
        if state.desk.get(job.file).is_some_and(|pending| pending.version == job.version) {
            self.say(&Message::FileEnd { file: job.file, digest, size: job.seen.size });
        }
    }

    /// The file is not what was announced: it is announced anew.
    fn changed(&self, job: &Job, now: Seen) {
        let mut state = self.lock();
        let resumed = state.desk.resumed(job.file);
        match state.desk.changed(job, now) {
            None => {}
            Some(Ok(path)) => {
                state.progress.bytes = state.progress.bytes.saturating_sub(resumed);
                let tally = &mut state.report.tally;
                tally.bytes = tally.bytes.saturating_sub(job.seen.size).saturating_add(now.size);
                self.say(&Message::FileAgain {
                    file: job.file,
                    attributes: now.attributes,
                    size: now.size,
                    sparse: now.sparse,
                    origin: now.origin,
                });
                drop(state);
                if job.version == 0 {
                    let path = printable_path(&path);
                    self.note(
                        About::Remark,
                        &format!("{path} changed while it was read: sent again"),
                    );
                }
            }
            Some(Err(over)) => {
                drop(state);
                let text = format!(
                    "changed while it was read, {} times, and is not copied: copy it when it is \
                     not being written",
                    desk::ATTEMPTS
                );
                self.drop_file(job.file, &over, &io::Error::other(text));
            }
        }
    }

    /// The file has become longer, and what was announced of it is sent.
    fn grown(&self, job: &Job) {
        let mut state = self.lock();
        let Some(path) = state.desk.grown(job) else { return };
        state.report.grown_files += 1;
        drop(state);
        let (path, size) = (printable_path(&path), job.seen.size);
        let text = format!("{path} grew while it was copied: its first {size} bytes are copied");
        self.note(About::Grown, &text);
    }

    /// The file cannot be read.
    fn unreadable(&self, job: &Job, error: &io::Error) {
        let over = self.lock().desk.remove(job.file, None);
        if let Some(over) = over {
            self.drop_file(job.file, &over, error);
        }
    }

    fn drop_file(&self, file: u64, over: &Over, error: &io::Error) {
        // With the lock held: the receipt that follows from it finds these numbers.
        let mut state = self.lock();
        state.progress.bytes = state.progress.bytes.saturating_sub(over.resumed);
        self.say(&Message::FileDropped { file });
        state.report.tally.files -= 1;
        state.report.tally.bytes = state.report.tally.bytes.saturating_sub(over.size);
        drop(state);
        self.omit(&over.path, error);
        self.end_if_over(&mut self.lock());
        self.changed.notify_all();
    }

    /// The sink has the same file.
    fn same(&self, file: u64, digest: Digest) {
        // With the lock held: the receipt that follows from it finds the file over.
        let mut state = self.lock();
        self.say(&Message::Same { file });
        if let Some(over) = state.desk.remove(file, Some(digest)) {
            self.finished(state, over, Outcome::Same { compared: true });
        }
    }

    fn differs(&self, file: u64) {
        let mut state = self.lock();
        if self.options.dry_run {
            if let Some(over) = state.desk.remove(file, None) {
                self.finished(state, over, Outcome::Moved { resumed: 0 });
            }
            return;
        }
        state.desk.differs(file);
        drop(state);
        self.changed.notify_all();
    }

    /// A file is over and done with.
    fn finished(&self, mut state: MutexGuard<'_, State>, over: Over, outcome: Outcome) {
        let State { report, progress, .. } = &mut *state;
        progress.files += 1;
        match outcome {
            Outcome::Moved { resumed } => {
                report.moved_files += 1;
                report.moved_bytes = report.moved_bytes.saturating_add(over.size - resumed);
                report.resumed_bytes = report.resumed_bytes.saturating_add(resumed);
            }
            Outcome::Same { .. } | Outcome::Kept => {
                report.same_files += 1;
                report.compared_files += u64::from(outcome == Outcome::Same { compared: true });
                report.kept_files += u64::from(outcome == Outcome::Kept);
                progress.bytes = progress.bytes.saturating_add(over.size);
            }
        }
        self.end_if_over(&mut state);
        drop(state);
        self.changed.notify_all();
        let Over { path, size, digest, sparse, .. } = over;
        (self.observe)(Event::File { path: &path, size, digest, sparse, outcome });
    }
}

impl Role for Source<'_> {
    fn message(&self, message: Message) -> Result<Flow, TransferError> {
        let bad = |why: &str| TransferError::Violation(why.to_owned());
        match message {
            Message::Verdict { file: stream::ENTRY, verdict } if self.stream_verdict(&verdict) => {
                self.changed.notify_all();
            }
            Message::Verdict { file, verdict } => {
                let mut state = self.lock();
                let over = state.desk.verdict(file, verdict, self.options.dry_run).map_err(bad)?;
                match over {
                    None => {
                        // It is there already: progress that counted it at its end would stand still before.
                        let resumed = state.desk.resumed(file);
                        state.progress.bytes = state.progress.bytes.saturating_add(resumed);
                        drop(state);
                    }
                    Some((over, None)) => {
                        let resumed = over.resumed;
                        self.finished(state, over, Outcome::Moved { resumed });
                    }
                    Some((over, Some(Skip::Same))) => {
                        self.finished(state, over, Outcome::Same { compared: false });
                    }
                    Some((over, Some(Skip::Exists))) => self.finished(state, over, Outcome::Kept),
                    // `Failed` says why.
                    Some((_, Some(Skip::Failed))) => self.end_if_over(&mut state),
                }
                self.changed.notify_all();
            }
            Message::Stored { block } => {
                if let Some(stream) = &self.stream {
                    stream.stored(block);
                }
                let mut state = self.lock();
                let (bytes, over) = state.desk.stored(block);
                state.progress.bytes = state.progress.bytes.saturating_add(bytes);
                state.progress.moved = state.progress.moved.saturating_add(bytes);
                drop(state);
                for over in over {
                    let resumed = over.resumed;
                    self.finished(self.lock(), over, Outcome::Moved { resumed });
                }
            }
            Message::Finished { .. } if self.stream.is_some() => {
                self.stream_over(Outcome::Moved { resumed: 0 });
            }
            Message::Finished { file } => {
                let mut state = self.lock();
                if let Some(over) = state.desk.remove(file, None) {
                    let resumed = over.resumed;
                    self.finished(state, over, Outcome::Moved { resumed });
                }
            }
            Message::Lost { file, first, count } => {
                self.lock().desk.lost(file, first, count).map_err(bad)?;
                self.changed.notify_all();
            }
            Message::Damaged { file, chunk } => {
                if let Some(stream) = &self.stream {
                    stream.damaged(chunk);
                }
                self.lock().desk.damaged(file, chunk);
                self.changed.notify_all();
            }
            Message::Failed { entry, text } => {
                let mut state = self.lock();
                if entry >= state.entries {
                    return Err(bad("a failure of an entry that is not announced"));
                }
                let over = state.desk.remove(entry, None);
                if let Some(stream) = &self.stream {
                    stream.over();
                }
                self.end_if_over(&mut state);
                drop(state);
                self.changed.notify_all();
                let failure = Failure { side: Side::Peer, text };
                let path = over.map(|over| over.path);
                (self.observe)(Event::Failed { path: path.as_deref(), failure: &failure });
                let mut state = self.lock();
                state.refused += 1;
                state.report.failures.count += 1;
                state.report.failures.keep(failure);
            }
            Message::Note { about: About::Failure, text } => {
                let failure = Failure { side: Side::Peer, text };
                if self.hears(About::Failure) {
                    (self.observe)(Event::Failed { path: None, failure: &failure });
                }
                let mut state = self.lock();
                state.report.failures.count += 1;
                state.report.failures.keep(failure);
            }
            Message::Note { about, .. } if !self.hears(about) => {}
            Message::Note { about: About::Deleted, text } => {
                (self.observe)(Event::Deleted { path: Path::new(&text) });
            }
            Message::Note { text, .. } => (self.observe)(Event::Note(&text)),
            Message::NotDeleted { count } => self.lock().report.not_deleted = count,
            Message::Receipt { tally, failed, deleted } => {
                let mut state = self.lock();
                // Everything that is over has been told of before.
                if !state.ended || !state.desk.is_empty() || tally != state.report.tally {
                    return Err(TransferError::Receipt);
                }
                // What is below a directory that could not be made fails without a word of its own.
                if failed < state.refused || failed > state.entries {
                    return Err(TransferError::Receipt);
                }
                state.report.failures.count += failed - state.refused;
                state.report.deleted = deleted;
                drop(state);
                self.say(&Message::Done);
                return Ok(Flow::Over);
            }
            _ => return Err(bad("a message out of place")),
        }
        Ok(Flow::Continue)
    }

    fn lane(&self, lane: Lane<'_>) -> Result<(), LaneEnd> {
        let number = lane.number;
        self.lock().desk.lane_works(number, true);
        let worked = lanes::work(self, lane);
        self.lock().desk.lane_works(number, false);
        // Also of one that ended well: who confirms its last blocks may not be reached any more.
        if !self.is_stopped() {
            let mut state = self.lock();
            state.desk.lane_broke(number);
            drop(state);
            if let Some(stream) = &self.stream {
                stream.lane_broke(number);
            }
            self.changed.notify_all();
        }
        worked
    }

    fn connected(&self, _yes: bool) -> Result<(), TransferError> {
        Ok(())
    }

    fn carried(&self) -> BTreeMap<u32, u64> {
        self.lock().desk.carried()
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }
}
