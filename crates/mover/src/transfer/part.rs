//! A file that is not complete yet, beside the place where it will be, with a journal of what is
//! there. Whatever ends the transfer, a later one of the same file takes it up.
//!
//! What the journal says then is a claim, which holds once it has been read from the medium
//! ([`PartFile::prove`]); what does not hold is to be sent again. A file is complete when every chunk
//! was written by this transfer or read by it.
//!
//! Data is written before the journal says so, and the journal's word that something is on the
//! medium after it is. Both files are named after the target, so that a later transfer finds them,
//! and the journal's lock keeps two transfers from writing one file.

mod log;
mod open;
mod prove;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{fsync, renameat};

use super::journal::{Epoch, Record};
use super::medium::Medium;
use super::place;
use super::tree_hash::{CHUNK, ChunkTree, Cv, Node, ZEROS, is_zero};
use crate::digest::Digest;
use crate::name::Name;
use log::Log;
use open::{Names, Parts};

pub use super::journal::{Identity, Origin};
pub(super) use open::part_of;
pub use prove::Proof;

/// So many bytes are written at most between two syncs.
const SYNC_EVERY: u64 = 256 << 20;
/// What a sparse file leaves out within a chunk: runs of blocks of this many bytes.
const BLOCK: usize = 4096;

/// What [`PartFile::open`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Nothing, or nothing of use.
    New,
    /// A part of this very file.
    Resumed {
        /// Bytes of it that are taken for sure, without reading.
        trusted: u64,
        /// Bytes that are to be [proved](PartFile::prove).
        claimed: u64,
    },
    /// A part of a file of another [`Identity`], which is discarded.
    Again,
}

/// A partial file. All calls may come from several threads at once.
///
/// Dropped, it stays for a later transfer.
#[derive(Debug)]
pub struct PartFile {
    names: Names,
    epoch: Epoch,
    state: Mutex<State>,
    never_replaces: AtomicBool,
    /// Something in the state ended that others may wait for.
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    standing: Standing,
    identity: Identity,
    /// What is there: written by this transfer, read by it, or trusted.
    tree: ChunkTree,
    /// What the journal says is there and was not looked at yet. Disjoint from the tree, and not
    /// written.
    unproved: ChunkTree,
    /// A thread is looking.
    proving: bool,
    /// The file for that.
    medium: Option<Arc<Medium>>,
    file: Arc<File>,
    log: Log,
    /// The file may have other bytes than zeros before this offset.
    touched: u64,
    /// What an earlier transfer has written lies before this offset.
    inherited: u64,
    /// Chunks that are being written; disjoint.
    claims: Vec<Range<u64>>,
    /// Bytes written since the last sync began.
    unsynced: u64,
    syncing: bool,
    /// Threads that wait for writers to end; no write begins while there are some.
    hushed: usize,
    /// How often the file was begun anew.
    generation: u64,
}

type Guard<'a> = MutexGuard<'a, State>;
type Claimed<'a> = Option<(Guard<'a>, Claim<'a>)>;

/// What may be done with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Open,
    Unlocked,
    Finished,
    Failed,
}

/// What a chunk or range is refused for; all of it may be a peer's doing.
fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl PartFile {
    /// Opens the partial file for the entry `name` of `directory`, which must be open for reading,
    /// and takes up what an earlier transfer of the same `identity` left.
    ///
    /// Nothing of it is read: see [`PartFile::prove`]. `trusting`: what an earlier transfer has waited
    /// for to be on the medium is taken for sure, if it was in this boot and this mount; that is so
    /// anyway where there are no chaining values to compare with. An error of kind [`WouldBlock`](io::ErrorKind::WouldBlock) means that another transfer
    /// is writing the file. A directory under `name` is an error at once.
    pub fn open(
        directory: Arc<OwnedFd>,
        name: Name<'_>,
        identity: Identity,
        trusting: bool,
    ) -> io::Result<(PartFile, Opened)> {
        Self::open_in(open::epoch(&directory), directory, name, identity, trusting)
    }

    /// As [`PartFile::open`], of what transfers of this `owner` have left: those of others neither see it
    /// nor wait for it.
    pub fn open_of(
        owner: &[u8],
        directory: Arc<OwnedFd>,
        name: Name<'_>,
        identity: Identity,
        trusting: bool,
    ) -> io::Result<(PartFile, Opened)> {
        let (epoch, names) = (open::epoch(&directory), Names::new(directory, name, owner));
        Self::open_at(epoch, names, name, identity, trusting)
    }

    /// Removes what transfers of this `owner` have left of the file: its name is another's. Where one has it now,
    /// it stays.
    pub fn abandon(owner: &[u8], directory: Arc<OwnedFd>, name: Name<'_>) -> io::Result<()> {
        match open::abandon(&Names::new(directory, name, owner)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            done => done,
        }
    }

    fn open_in(
        epoch: Epoch,
        directory: Arc<OwnedFd>,
        name: Name<'_>,
        identity: Identity,
        trusting: bool,
    ) -> io::Result<(PartFile, Opened)> {
        let names = Names::new(directory, name, b"");
        Self::open_at(epoch, names, name, identity, trusting)
    }

    fn open_at(
        epoch: Epoch,
        names: Names,
        name: Name<'_>,
        identity: Identity,
        trusting: bool,
    ) -> io::Result<(PartFile, Opened)> {
        place::check_free(&names.directory, name)?;
        let (parts, opened) = open::open(&names, &identity, epoch, trusting)?;
        let state = Mutex::new(State::new(identity, parts));
        let never_replaces = AtomicBool::new(false);
        Ok((PartFile { names, epoch, state, never_replaces, ended: Condvar::new() }, opened))
    }

    /// What the file is known by.
    pub fn identity(&self) -> Identity {
        self.lock().identity
    }

    /// The subtrees that are there or claimed to be, in order.
    pub fn nodes(&self) -> Vec<Node> {
        let state = self.lock();
        let mut nodes = state.tree.nodes();
        if !state.unproved.is_empty() {
            nodes.extend(state.unproved.each_node());
            nodes.sort_unstable_by_key(|node| node.chunks().map(|chunks| chunks.start));
        }
        nodes
    }

    /// Whether chunk `index` is there or claimed to be.
    pub fn has(&self, index: u64) -> bool {
        let state = self.lock();
        state.tree.contains(index) || state.unproved.contains(index)
    }

    /// The first ranges of chunks that are neither there nor claimed to be, in order, at most `limit`
    /// of them.
    pub fn missing(&self, limit: usize) -> Vec<Range<u64>> {
        let state = self.lock();
        state.missing_in(0..state.tree.chunks()).take(limit).collect()
    }

    /// Bytes that are there or claimed to be.
    pub fn present_bytes(&self) -> u64 {
        let state = self.lock();
        // Only the sum is sure to fit.
        state.tree.present_bytes().wrapping_add(state.unproved.present_bytes())
    }

    /// Whether every chunk is there, and none of them only claimed to be.
    pub fn is_complete(&self) -> bool {
        self.lock().tree.is_complete()
    }

    /// The file's digest as of [`ChunkTree::root`], once it is complete.
    pub fn digest(&self) -> Option<Digest> {
        self.lock().tree.root()
    }

    /// Writes chunk `index`, whose chaining value, as of [`leaf`](super::tree_hash::leaf), is `cv`;
    /// that it is, is the caller's to know. A chunk that is there or claimed to be is left as it is.
    ///
    /// An index or a length that the file does not have is an error of kind
    /// [`InvalidInput`](io::ErrorKind::InvalidInput).
    pub fn write_chunk(&self, index: u64, data: &[u8], cv: Cv) -> io::Result<()> {
        let state = self.lock();
        let Identity { sparse, verify, .. } = state.identity;
        if index >= state.tree.chunks() {
            return Err(invalid("a chunk beyond the end of the file"));
        }
        if data.len() as u64 != state.tree.chunk_length(index) {
            return Err(invalid("a chunk of a wrong length"));
        }
        if sparse && is_zero(data) {
            drop(state);
            return self.zeros(index, 1);
        }
        if sparse && verify && cv == ZEROS {
            return Err(invalid("a chunk of data with the digest of zeros"));
        }
        let length = data.len() as u64;
        let offset = index * CHUNK;
        let Some((mut state, claim)) = self.claim(state, index..index + 1)? else {
            return Ok(());
        };
        let file = Arc::clone(&state.file);
        let stale = state.touched > offset;
        let inherited = state.inherited > offset;
        state.touched = state.touched.max(offset + length);
        drop(state);
        if sparse {
            if stale {
                place::punch(&file, offset, offset + CHUNK)?;
            }
            write_data(&file, data, offset)?;
        } else {
            if inherited {
                // To the end of the file's last page, too: of a part of one only the bytes would go.
                place::renew(&file, offset, offset + CHUNK)?;
            }
            file.write_all_at(data, offset)?;
        }
        let mut state = self.lock();
        state.check()?; // a sync may have failed meanwhile
        let node = Node::chunk(index, if verify { cv } else { ZEROS });
        state.log.append(&[Record::Proved(node)])?;
        state.tree.insert(index, node.cv);
        state.unsynced += length;
        let due = state.unsynced >= SYNC_EVERY && !state.syncing;
        drop(state);
        drop(claim);
        if due { self.sync() } else { Ok(()) }
    }

    /// Makes `count` chunks from chunk `first` on zeros, but for those that are there. Only a sparse
    /// file has such, and a range beyond its end is an error, too.
    pub fn zeros(&self, first: u64, count: u64) -> io::Result<()> {
        let state = self.lock();
        if !state.identity.sparse {
            return Err(invalid("zeros left out of a file that has no holes"));
        }
        let place = state.tree.place_of_zeros(first, count);
        let range = place.map_err(|error| invalid(&error.to_string()))?;
        let Some((state, claim)) = self.claim(state, range.clone())? else { return Ok(()) };
        let file = Arc::clone(&state.file);
        let size = state.identity.size;
        let touched = state.touched;
        let gaps: Vec<Range<u64>> = state.missing_in(range).collect();
        drop(state);
        // What is there of a gap was never proved: the rest of an earlier transfer.
        for gap in gaps.iter().take_while(|gap| gap.start * CHUNK < touched) {
            place::punch(&file, gap.start * CHUNK, (gap.end * CHUNK).min(size))?;
        }
        let mut state = self.lock();
        state.check()?; // a sync may have failed meanwhile
        let record =
            |gap: &Range<u64>| Record::Zeros { first: gap.start, count: gap.end - gap.start };
        state.log.append(&gaps.iter().map(record).collect::<Vec<_>>())?;
        for gap in gaps {
            let inserted = state.tree.insert_zeros(gap.start, gap.end - gap.start);
            debug_assert!(inserted.is_ok());
        }
        drop(state);
        drop(claim);
        Ok(())
    }

    /// Forgets everything: the source changed and is now `identity`. Waits for writers first.
    pub fn restart(&self, identity: Identity) -> io::Result<()> {
        let mut state = self.quiet()?;
        let journal = state.log.file.try_clone()?;
        let begun = open::begin(&self.names, &identity, journal, self.epoch);
        match begun {
            Ok(parts) => {
                let State { generation, hushed, .. } = *state;
                *state =
                    State { generation: generation + 1, hushed, ..State::new(identity, parts) };
            }
            Err(error) => {
                // Neither the old file nor a new one.
                state.standing = Standing::Failed;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits until what is there is on the medium, and notes it, unless some of what is noted before is
    /// only claimed. Other threads write meanwhile.
    ///
    /// If the data does not get there, the file is to be opened again: what is there is a claim then.
    pub fn sync(&self) -> io::Result<()> {
        let mut state = self.lock();
        while state.syncing {
            state = self.wait(state);
        }
        state.check()?;
        let records = state.log.records;
        if records == state.log.synced {
            return Ok(());
        }
        let noted = state.unproved.is_empty() && !state.proving;
        state.unsynced = 0;
        state.syncing = true;
        let file = Arc::clone(&state.file);
        drop(state);
        let synced = file.sync_data();
        let mut state = self.lock();
        let noted = match synced {
            Ok(()) if noted => state.log.note_synced(records),
            synced => synced,
        };
        if noted.is_err() {
            state.fail();
        }
        let journal = state.log.file.try_clone();
        state.syncing = false;
        drop(state);
        self.ended.notify_all();
        noted?;
        journal?.sync_data()
    }

    /// Gives the complete file its attributes and then its name. What stood there, except a
    /// directory, is replaced, and the journal removed. If `durable`, all that is on the medium
    /// afterwards.
    ///
    /// `attributes` sets what is kept, such as with
    /// [`set_attributes`](super::small::set_attributes). If it fails, the file is stored all the
    /// same and its error returned as `Ok(Some(_))`. Whether the [digest](Self::digest) is the
    /// right one is to be asked before. After an error it can be tried again, unless the medium has failed:
    /// then the file is to be opened again, and what is there is a claim.
    pub fn finish(
        &self,
        attributes: impl FnOnce(&File) -> io::Result<()>,
        durable: bool,
    ) -> io::Result<Option<io::Error>> {
        let mut state = self.quiet()?;
        if !state.tree.is_complete() {
            return Err(invalid("the file is not complete"));
        }
        // Others may ask questions meanwhile, and do nothing else.
        state.claims.push(0..u64::MAX);
        let file = Arc::clone(&state.file);
        let size = state.identity.size;
        drop(state);
        let claim = Claim { part: self, first: 0 };
        let Names { directory, name, part, .. } = &self.names;
        let name = Name::new(name).map_err(|error| invalid(&error.to_string()))?;
        place::check_free(directory, name)?;
        if !place::is_named(directory, part, &file)? {
            return Err(io::Error::other("another program removed or replaced the partial file"));
        }
        if file.metadata()?.len() != size {
            file.set_len(size)?;
        }
        let kept = attributes(&file);
        if durable && let Err(error) = file.sync_all() {
            self.lock().fail();
            return Err(error);
        }
        let replace = !self.never_replaces.load(Ordering::Relaxed);
        place::rename(directory, part, name.bytes(), replace)?;
        if durable && let Err(error) = fsync(directory) {
            // A later transfer is not to find a file that has its name already.
            let _ = renameat(directory, name.bytes(), directory, part.as_str());
            self.lock().fail();
            return Err(error.into());
        }
        self.end(self.lock());
        drop(claim);
        Ok(kept.err())
    }

    /// What has its name by the time it is finished is not replaced: finishing it fails then, with
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists).
    pub fn never_replace(&self) {
        self.never_replaces.store(true, Ordering::Relaxed);
    }

    /// Removes the partial file and its journal: no later transfer needs them.
    pub fn discard(&self) -> io::Result<()> {
        let state = self.quiet()?;
        let removed = match place::is_named(&self.names.directory, &self.names.part, &state.file) {
            Ok(true) => place::remove(&self.names.directory, &self.names.part),
            other => other.map(drop),
        };
        self.end(state);
        removed
    }

    /// Lets another transfer take the file over; until [`relock`](Self::relock), every change is
    /// an error of kind [`WouldBlock`](io::ErrorKind::WouldBlock). Waits for writers first.
    pub fn unlock(&self) {
        // A file that is finished or failed is let go already, or soon.
        if let Ok(mut state) = self.quiet() {
            state.standing = Standing::Unlocked;
            place::unlock(&state.log.file);
        }
    }

    /// Takes the file back after [`unlock`](Self::unlock). An error of kind
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) means that another transfer has it now, any other
    /// that one had it or somebody removed it: it is to be opened again.
    pub fn relock(&self) -> io::Result<()> {
        let mut state = self.lock();
        if state.standing != Standing::Unlocked {
            return state.check();
        }
        place::lock(&state.log.file)?;
        let Names { directory, part, journal, .. } = &self.names;
        let ours = (|| {
            Ok(place::is_named(directory, journal, &state.log.file)?
                && place::is_named(directory, part, &state.file)?
                && state.log.is_untouched()?)
        })();
        match ours {
            Ok(true) => {
                state.standing = Standing::Open;
                return Ok(());
            }
            Ok(false) => state.standing = Standing::Failed,
            Err(_) => {}
        }
        place::unlock(&state.log.file);
        ours.and(Err(io::Error::other("another transfer has gone on with this file")))
    }

    /// The file is complete or discarded: the journal goes, and with it the lock.
    fn end(&self, mut state: Guard<'_>) {
        state.standing = Standing::Finished;
        // A journal without its file is of no use and does no harm.
        if place::is_named(&self.names.directory, &self.names.journal, &state.log.file)
            .is_ok_and(|named| named)
        {
            let _ = place::remove(&self.names.directory, &self.names.journal);
        }
        place::unlock(&state.log.file);
    }

    /// Reserves `range` for this thread, once no other has any of it. `None`: all of it is there.
    fn claim<'a>(&'a self, mut state: Guard<'a>, range: Range<u64>) -> io::Result<Claimed<'a>> {
        let generation = state.generation;
        loop {
            state.check()?;
            if state.generation != generation {
                return Err(io::Error::other("the file was begun anew meanwhile"));
            }
            if state.missing_in(range.clone()).next().is_none() {
                return Ok(None);
            }
            let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
            if state.hushed == 0 && !state.claims.iter().any(overlaps) {
                state.claims.push(range.clone());
                return Ok(Some((state, Claim { part: self, first: range.start })));
            }
            state = self.wait(state);
        }
    }

    /// Waits until no thread writes or syncs; one that wants to begin waits meanwhile.
    fn quiet(&self) -> io::Result<Guard<'_>> {
        let mut state = self.lock();
        state.hushed += 1;
        while state.syncing || !state.claims.is_empty() {
            state = self.wait(state);
        }
        state.hushed -= 1;
        self.ended.notify_all();
        state.check()?;
        Ok(state)
    }

    fn lock(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: Guard<'a>) -> Guard<'a> {
        self.ended.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(identity: Identity, parts: Parts) -> Self {
        let Parts { file, log, tree, claims, touched } = parts;
        State {
            standing: Standing::Open,
            identity,
            tree,
            unproved: claims,
            proving: false,
            medium: None,
            file: Arc::new(file),
            log,
            touched,
            inherited: touched,
            claims: Vec::new(),
            unsynced: 0,
            syncing: false,
            hushed: 0,
            generation: 0,
        }
    }

    /// The medium has failed: nothing more is written or noted as written.
    fn fail(&mut self) {
        if self.standing == Standing::Open {
            self.standing = Standing::Failed;
        }
    }

    /// The chunks of a range that are neither there nor claimed to be.
    fn missing_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.tree.missing_in(range).flat_map(|gap| self.unproved.missing_in(gap))
    }

    /// Whether the file may be changed.
    fn check(&self) -> io::Result<()> {
        match self.standing {
            Standing::Open => Ok(()),
            Standing::Unlocked => Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "the file was left to other transfers; take it back first",
            )),
            Standing::Finished => Err(io::Error::other("the file is finished already")),
            Standing::Failed => Err(io::Error::other("the file failed; open it again")),
        }
    }
}

/// Chunks that one thread writes; dropped, they are anybody's. The state must not be locked then.
struct Claim<'a> {
    part: &'a PartFile,
    /// Claims are disjoint, so this tells which one it is.
    first: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.part.lock().claims.retain(|claim| claim.start != self.first);
        self.part.ended.notify_all();
    }
}

/// Writes a chunk of a sparse file where the file has zeros; what is zeros of it stays a hole.
fn write_data(file: &File, data: &[u8], offset: u64) -> io::Result<()> {
    let is_hole = |at: usize| is_zero(&data[at..data.len().min(at + BLOCK)]);
    let mut start = 0;
    while start < data.len() {
        let hole = is_hole(start);
        let mut end = start + BLOCK;
        while end < data.len() && is_hole(end) == hole {
            end += BLOCK;
        }
        let end = end.min(data.len());
        if !hole {
            file.write_all_at(&data[start..end], offset + start as u64)?;
        }
        start = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
