//! What the source knows of files under way: which are wanted, what of them has been sent and not
//! confirmed, and what is next.
//!
//! Pure bookkeeping: it reads no file and knows no connection. Files between announcement and end are
//! here, and no others, so that memory does not grow with the tree.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::opened::Opened;
use crate::digest::Digest;
use crate::frame::Attributes;
use crate::transfer::block::{MAX_DATA, MAX_PIECES, Piece};
use crate::transfer::journal::Origin;
use crate::transfer::memory::{Account, allocated, mapped};
use crate::transfer::message::{Skip, Verdict};
use crate::transfer::tree_hash::{CHUNK, ChunkTree};

/// The most files between announcement and end.
pub(super) const WINDOW: usize = 16_384;
/// The most small files in a block: so many are read before the first of them leaves.
const BUNDLE: usize = 256;
/// How often a file is read that changes meanwhile: a log that is rotated is at rest the second time, and
/// what is rewritten all the time should not cost its size again and again.
pub(super) const ATTEMPTS: u8 = 3;
/// The most large files that are open at a time.
const OPEN: usize = 256;

/// A file under way.
#[derive(Debug)]
pub(super) struct Pending {
    /// Relative to the target.
    pub(super) path: Arc<Path>,
    /// Where to open it.
    pub(super) place: Place,
    /// As announced.
    pub(super) seen: Seen,
    /// How often it was announced anew.
    pub(super) version: u8,
    phase: Phase,
    /// Bytes that an earlier transfer had moved.
    resumed: u64,
    /// Bytes of its chunks that the sink has confirmed.
    stored: u64,
    /// That it grows has been told.
    grown: bool,
}

/// Where a file is opened: in which source, and the path in it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) source: usize,
    pub(super) path: Arc<Path>,
}

/// What a file was when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) size: u64,
    pub(super) sparse: bool,
    pub(super) attributes: Attributes,
    pub(super) origin: Origin,
}

/// What has become of a file since it was announced, as far as size and times tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has the content that was announced.
    Same,
    /// It is longer. What was announced may still be as it was: whether it is, only its content tells.
    Grown,
    /// It was written to, or cut.
    Changed,
}

impl Seen {
    /// What has become of the file by `now`. The time of content can be set back, that of change cannot.
    /// The inode proves no more, and some file systems number files anew while none has them open.
    pub(super) fn fate(&self, now: &Seen) -> Fate {
        let untouched = self.attributes.modified == now.attributes.modified
            && self.origin.changed == now.origin.changed;
        match now.size.cmp(&self.size) {
            Ordering::Equal if untouched => Fate::Same,
            Ordering::Greater => Fate::Grown,
            _ => Fate::Changed,
        }
    }
}

#[derive(Debug)]
enum Phase {
    /// Announced; the verdict is not there yet.
    Asked,
    /// Its digest is compared with the sink's.
    Comparing,
    /// Wanted, and small enough for one piece.
    Small,
    /// Wanted, chunk by chunk.
    Large(Box<Large>),
}

#[derive(Debug)]
struct Large {
    file: Option<Arc<Opened>>,
    tree: ChunkTree,
    /// Ranges of chunks that nobody has taken yet.
    todo: VecDeque<Range<u64>>,
    /// Ranges that the sink had and has lost, of a file that is not open yet.
    lost: Vec<Range<u64>>,
    /// Lanes that read chunks of it.
    reading: u32,
    /// `FileEnd` has been said, with this digest.
    ended: Option<Option<Digest>>,
}

/// What a lane is to do.
#[derive(Debug)]
pub(super) enum Work {
    /// Read these small files into a block.
    Bundle(Vec<Job>),
    /// Read this chunk. One that was sent before has this hash, or the file has changed.
    Chunk(Job, Arc<Opened>, u64, Option<Digest>),
    /// Open this large file, tell what of it is to be sent: [`Desk::opened`].
    Open(Job),
    /// Compare this file's digest.
    Compare(Job, Digest),
}

/// A file that a lane works on.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) file: u64,
    pub(super) place: Place,
    pub(super) seen: Seen,
    pub(super) version: u8,
}

/// A file that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Over {
    pub(super) path: Arc<Path>,
    pub(super) size: u64,
    pub(super) digest: Option<Digest>,
    pub(super) sparse: bool,
    pub(super) resumed: u64,
}

/// What follows from a chunk that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// That was the last: `FileEnd`, once it is sure that the file is what it was.
    End(Option<Digest>),
}

#[derive(Debug, Default)]
pub(super) struct Desk {
    files: BTreeMap<u64, Pending>,
    compare: VecDeque<(u64, Digest)>,
    small_next: VecDeque<u64>,
    /// Small files that did not arrive as they were read: their block does not end them.
    damaged: BTreeSet<u64>,
    /// Chunks to be sent again: the file, the chunk, and its hash when it was sent, as far as known.
    again: VecDeque<(u64, u64, Option<Digest>)>,
    /// The files and chunks among them: none is there twice.
    queued: HashSet<(u64, u64)>,
    large_next: VecDeque<u64>,
    /// Large files that are open.
    open: usize,
    blocks: BTreeMap<u64, Sent>,
    /// Bytes of the blocks that were confirmed, by lane.
    carried: BTreeMap<u32, u64>,
    next_block: u64,
    verify: bool,
    memory: Arc<Account>,
}

/// What a chunk that is to be sent again takes of memory.
const AGAIN: usize = mapped(size_of::<(u64, u64)>()) + 2 * size_of::<(u64, u64, Option<Digest>)>();

#[derive(Debug)]
struct Sent {
    lane: u32,
    bytes: u64,
    /// Entry, version, chunk; none: the whole file, with its digest.
    pieces: Vec<(u64, u8, Option<u64>, Digest)>,
}

impl Desk {
    /// What the sink makes it keep is charged to `memory`.
    pub(super) fn new(verify: bool, memory: Arc<Account>) -> Self {
        Desk { verify, memory, ..Desk::default() }
    }

    /// A chunk is to be sent again.
    fn queue(&mut self, file: u64, chunk: u64, before: Option<Digest>) {
        if self.queued.insert((file, chunk)) {
            self.memory.note(AGAIN);
            self.again.push_back((file, chunk, before));
        }
    }

    /// What a block takes of memory until it is confirmed.
    fn kept(sent: &Sent) -> usize {
        mapped(size_of::<(u64, Sent)>()) + allocated(size_of_val(&*sent.pieces))
    }

    /// Takes a block out that is not waited for any more.
    fn take_block(&mut self, number: u64) -> Option<Sent> {
        let sent = self.blocks.remove(&number)?;
        self.memory.give(Self::kept(&sent));
        Some(sent)
    }

    /// Whether another file may be announced.
    pub(super) fn has_room(&self) -> bool {
        self.files.len() < WINDOW
    }

    /// Whether no file is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// A file has been announced.
    pub(super) fn announce(&mut self, file: u64, path: PathBuf, place: Place, seen: Seen) {
        let (path, phase) = (path.into(), Phase::Asked);
        let pending =
            Pending { path, place, seen, version: 0, phase, resumed: 0, stored: 0, grown: false };
        self.files.insert(file, pending);
    }

    /// The file, if it is under way.
    pub(super) fn get(&self, file: u64) -> Option<&Pending> {
        self.files.get(&file)
    }

    /// The sink has said what it wants. `Ok`: a file that is over by that, and why.
    pub(super) fn verdict(
        &mut self,
        file: u64,
        verdict: Verdict,
        dry_run: bool,
    ) -> Result<Option<(Over, Option<Skip>)>, &'static str> {
        let pending =
            self.files.get_mut(&file).ok_or("a verdict on a file that is not announced")?;
        if !matches!(pending.phase, Phase::Asked) {
            return Err("two verdicts on a file");
        }
        match verdict {
            Verdict::Skip { reason, digest } => {
                let over = self.remove(file, digest).ok_or("no such file")?;
                Ok(Some((over, Some(reason))))
            }
            Verdict::Compare { digest } => {
                pending.phase = Phase::Comparing;
                self.compare.push_back((file, digest));
                Ok(None)
            }
            Verdict::Take { have } => {
                let Seen { size, sparse, .. } = pending.seen;
                let mut tree = match self.verify {
                    true => ChunkTree::new(size, sparse),
                    false => ChunkTree::unverified(size),
                };
                for node in have {
                    tree.insert_node(node).map_err(|_| "it has chunks that cannot be")?;
                }
                pending.resumed = tree.present_bytes();
                if dry_run {
                    let over = self.remove(file, None).ok_or("no such file")?;
                    return Ok(Some((over, None)));
                }
                self.take(file, tree);
                Ok(None)
            }
        }
    }

    /// The file is wanted, but for what is in the tree.
    fn take(&mut self, file: u64, tree: ChunkTree) {
        let Some(pending) = self.files.get_mut(&file) else { return };
        if pending.seen.size <= CHUNK {
            pending.phase = Phase::Small;
            self.small_next.push_back(file);
        } else {
            pending.phase = Phase::Large(Box::new(Large {
                file: None,
                todo: tree.missing().collect(),
                tree,
                lost: Vec::new(),
                reading: 0,
                ended: None,
            }));
            self.large_next.push_back(file);
        }
    }

    /// The file that was to be compared is not the same: all of it is wanted.
    pub(super) fn differs(&mut self, file: u64) {
        let Some(pending) = self.files.get(&file) else { return };
        let Seen { size, sparse, .. } = pending.seen;
        let tree =
            if self.verify { ChunkTree::new(size, sparse) } else { ChunkTree::unverified(size) };
        self.take(file, tree);
    }

    /// What a lane should do next, if there is anything.
    pub(super) fn work(&mut self) -> Option<Work> {
        while let Some((file, chunk, before)) = self.again.pop_front() {
            self.queued.remove(&(file, chunk));
            self.memory.give(AGAIN);
            let Some(pending) = self.files.get_mut(&file) else { continue };
            let job = pending.job(file);
            if let Phase::Large(large) = &mut pending.phase
                && let Some(opened) = &large.file
            {
                large.reading += 1;
                return Some(Work::Chunk(job, Arc::clone(opened), chunk, before));
            }
        }
        if let Some((file, digest)) = self.compare.pop_front() {
            return self.files.get(&file).map(|pending| Work::Compare(pending.job(file), digest));
        }
        let bundle = self.bundle();
        if !bundle.is_empty() {
            return Some(Work::Bundle(bundle));
        }
        // The first that has something left for another lane.
        for at in 0..self.large_next.len() {
            let file = self.large_next[at];
            let Some(pending) = self.files.get_mut(&file) else { continue };
            let job = pending.job(file);
            let Phase::Large(large) = &mut pending.phase else { continue };
            let Some(opened) = large.file.clone() else {
                if large.reading == 0 && self.open < OPEN {
                    large.reading = 1;
                    self.open += 1;
                    return Some(Work::Open(job));
                }
                continue;
            };
            if let Some(range) = large.todo.front_mut() {
                let chunk = range.start;
                range.start += 1;
                if range.is_empty() {
                    large.todo.pop_front();
                }
                large.reading += 1;
                return Some(Work::Chunk(job, opened, chunk, None));
            }
        }
        None
    }

    /// Small files for one block.
    fn bundle(&mut self) -> Vec<Job> {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        while let Some(file) = self.small_next.front().copied()
            && jobs.len() < BUNDLE.min(MAX_PIECES)
        {
            let Some(pending) = self.files.get(&file) else {
                self.small_next.pop_front();
                continue;
            };
            if !matches!(pending.phase, Phase::Small) {
                self.small_next.pop_front();
                continue;
            }
            let size = pending.seen.size as usize;
            if bytes + size > MAX_DATA {
                break;
            }
            bytes += size;
            jobs.push(pending.job(file));
            self.small_next.pop_front();
        }
        jobs
    }

    /// A large file has been opened. `data`: its chunks that are not all hole, in order. Returns the
    /// ranges that the sink is to be told of as zeros.
    pub(super) fn opened(
        &mut self,
        job: &Job,
        opened: Arc<Opened>,
        data: &[Range<u64>],
    ) -> Vec<Range<u64>> {
        let Some((seen, large)) = self.large(job) else { return Vec::new() };
        large.file = Some(opened);
        large.reading = 0;
        let mut zeros = Vec::new();
        if seen.sparse {
            let mut todo = VecDeque::new();
            let mut at = 0;
            let end = large.tree.chunks();
            for data in data.iter().cloned().chain(std::iter::once(end..end)) {
                zeros.extend(large.tree.missing_in(at..data.start));
                todo.extend(large.tree.missing_in(data.clone()));
                at = data.end;
            }
            for range in &zeros {
                // Within the file and missing, so there is no reason to refuse it.
                let _ = large.tree.insert_zeros(range.start, range.end - range.start);
            }
            large.todo = todo;
        }
        large.todo.extend(std::mem::take(&mut large.lost));
        zeros
    }

    /// The large file of a job, unless it is over or another version by now.
    fn large(&mut self, job: &Job) -> Option<(Seen, &mut Large)> {
        let pending = self.files.get_mut(&job.file).filter(|p| p.version == job.version)?;
        match &mut pending.phase {
            Phase::Large(large) => Some((pending.seen, large)),
            _ => None,
        }
    }

    /// A chunk has been read, with this chaining value.
    pub(super) fn read(&mut self, job: &Job, chunk: u64, cv: Digest) {
        if let Some((_, large)) = self.large(job) {
            large.reading = large.reading.saturating_sub(1);
            large.tree.insert(chunk, cv);
        }
    }

    /// Whether the file has been read to its end: then its end is to be told, once.
    pub(super) fn next(&mut self, job: &Job) -> Next {
        let Some((_, large)) = self.large(job) else { return Next::Nothing };
        let read = large.reading == 0 && large.todo.is_empty() && large.file.is_some();
        if !read || large.ended.is_some() || !large.tree.is_complete() {
            return Next::Nothing;
        }
        let digest = large.tree.root();
        large.ended = Some(digest);
        let file = job.file;
        self.large_next.retain(|large| *large != file);
        Next::End(digest)
    }

    /// A block with these pieces leaves over a lane; its number is that of [`Desk::number`].
    pub(super) fn sent(&mut self, number: u64, lane: u32, pieces: &[Piece]) {
        let bytes = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        let pieces = pieces
            .iter()
            .map(|piece| {
                let chunk = (!piece.whole).then_some(piece.offset / CHUNK);
                (piece.entry, piece.version, chunk, piece.hash)
            })
            .collect();
        let sent = Sent { lane, bytes, pieces };
        self.memory.note(Self::kept(&sent));
        self.blocks.insert(number, sent);
    }

    /// A number for a block.
    pub(super) fn number(&mut self) -> u64 {
        self.next_block += 1;
        self.next_block
    }

    /// The sink has dealt with a block: how many bytes of it are proved, and the small files in it, which
    /// are over.
    pub(super) fn stored(&mut self, number: u64) -> (u64, Vec<Over>) {
        let Some(sent) = self.take_block(number) else { return (0, Vec::new()) };
        let mut damaged = 0;
        if let Some(carried) = self.carried.get_mut(&sent.lane) {
            *carried += sent.bytes;
        }
        let mut over = Vec::new();
        for (file, version, chunk, digest) in sent.pieces {
            if let Some(chunk) = chunk
                && self.queued.contains(&(file, chunk))
            {
                damaged = sent.bytes; // a chunk has a block of its own
            }
            let Some(pending) = self.files.get_mut(&file) else { continue };
            if chunk.is_some() && pending.version == version {
                pending.stored += sent.bytes.saturating_sub(damaged);
            }
            if chunk.is_none() && pending.version == version {
                if self.damaged.remove(&file) {
                    damaged += pending.seen.size;
                    self.small_next.push_front(file);
                    continue;
                }
                let digest = self.verify.then_some(digest);
                over.extend(self.remove(file, digest));
            }
        }
        (sent.bytes.saturating_sub(damaged), over)
    }

    /// A lane begins, or is over.
    pub(super) fn lane_works(&mut self, lane: u32, yes: bool) {
        match yes {
            true => drop(self.carried.insert(lane, 0)),
            false => drop(self.carried.remove(&lane)),
        }
    }

    /// What lanes at work have carried, bytes.
    pub(super) fn carried(&self) -> BTreeMap<u32, u64> {
        self.carried.clone()
    }

    /// A lane has broken: what it carried and was not confirmed is sent again.
    pub(super) fn lane_broke(&mut self, lane: u32) {
        let lost: Vec<u64> =
            self.blocks.iter().filter(|(_, sent)| sent.lane == lane).map(|(n, _)| *n).collect();
        for number in lost {
            let Some(sent) = self.take_block(number) else { continue };
            for (file, version, chunk, hash) in sent.pieces {
                let Some(pending) = self.files.get(&file) else { continue };
                if pending.version != version {
                    continue;
                }
                match chunk {
                    Some(chunk) => self.queue(file, chunk, Some(hash)),
                    None => self.small_next.push_front(file),
                }
            }
        }
    }

    /// The sink wants a chunk again.
    pub(super) fn damaged(&mut self, file: u64, chunk: u64) {
        match self.files.get(&file).map(|pending| &pending.phase) {
            Some(Phase::Small) => drop(self.damaged.insert(file)),
            Some(Phase::Large(large))
                if chunk < large.tree.chunks() && !self.queued.contains(&(file, chunk)) =>
            {
                let sent = self.blocks.values().flat_map(|sent| &sent.pieces);
                let before = sent.filter(|piece| (piece.0, piece.2) == (file, Some(chunk)));
                let before = before.map(|piece| piece.3).next_back();
                self.queue(file, chunk, before);
            }
            _ => {}
        }
    }

    /// The sink has lost chunks that it said it has. An error: it never said so.
    pub(super) fn lost(&mut self, file: u64, first: u64, count: u64) -> Result<(), &'static str> {
        let Some(pending) = self.files.get_mut(&file) else { return Ok(()) };
        let Phase::Large(large) = &mut pending.phase else { return Ok(()) };
        let range = first..first.saturating_add(count);
        let length = |chunk| large.tree.chunk_length(chunk);
        let last = range.end.checked_sub(1).filter(|last| *last < large.tree.chunks());
        let last = last.ok_or("it has lost chunks that cannot be")?;
        let bytes = (count - 1).saturating_mul(CHUNK).saturating_add(length(last));
        // So no sink has a source send its file for ever.
        pending.resumed =
            pending.resumed.checked_sub(bytes).ok_or("it has lost more than it had")?;
        match large.file {
            Some(_) => large.todo.push_back(range),
            None => large.lost.push(range),
        }
        if large.ended.is_some() {
            self.large_next.push_back(file);
        }
        Ok(())
    }

    /// The file is not any more what was announced. `Some`: it is announced anew, with this version;
    /// `None`: another lane has seen it before, or it has been over.
    pub(super) fn changed(&mut self, job: &Job, now: Seen) -> Option<Result<Arc<Path>, Over>> {
        let pending = self.files.get_mut(&job.file).filter(|p| p.version == job.version)?;
        if pending.version + 1 >= ATTEMPTS {
            return self.remove(job.file, None).map(Err);
        }
        pending.version += 1;
        pending.seen = now;
        (pending.resumed, pending.stored) = (0, 0);
        let phase = std::mem::replace(&mut pending.phase, Phase::Asked);
        let file = job.file;
        self.close(file, &phase);
        let before = self.again.len();
        self.again.retain(|(again, _, _)| *again != file);
        self.memory.give((before - self.again.len()) * AGAIN);
        self.queued.retain(|(again, _)| *again != file);
        self.files.get(&file).map(|pending| Ok(Arc::clone(&pending.path)))
    }

    /// Bytes of a file under way that an earlier transfer had moved.
    pub(super) fn resumed(&self, file: u64) -> u64 {
        self.files.get(&file).map_or(0, |pending| pending.resumed)
    }

    /// Bytes of files that are not over that the sink has from this transfer.
    pub(super) fn in_part(&self) -> u64 {
        self.files.values().map(|pending| pending.stored).sum()
    }

    /// The file has grown and is taken as it was announced. Its path, the first time.
    pub(super) fn grown(&mut self, job: &Job) -> Option<Arc<Path>> {
        let pending = self.files.get_mut(&job.file).filter(|p| p.version == job.version)?;
        let before = std::mem::replace(&mut pending.grown, true);
        (!before).then(|| Arc::clone(&pending.path))
    }

    /// The file is over.
    pub(super) fn remove(&mut self, file: u64, digest: Option<Digest>) -> Option<Over> {
        let pending = self.files.remove(&file)?;
        let digest = match &pending.phase {
            Phase::Large(large) => large.ended.flatten(),
            _ => digest,
        };
        self.close(file, &pending.phase);
        let Pending { path, seen, resumed, .. } = pending;
        Some(Over { path, size: seen.size, digest, sparse: seen.sparse, resumed })
    }
}

impl Desk {
    /// A file is not read any more.
    fn close(&mut self, file: u64, phase: &Phase) {
        if let Phase::Large(large) = phase {
            self.large_next.retain(|large| *large != file);
            // One that is being opened counts as open.
            if large.file.is_some() || large.reading > 0 {
                self.open = self.open.saturating_sub(1);
            }
        }
    }
}

impl Pending {
    fn job(&self, file: u64) -> Job {
        Job { file, place: self.place.clone(), seen: self.seen, version: self.version }
    }
}

#[cfg(test)]
mod tests;
