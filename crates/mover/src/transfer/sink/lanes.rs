//! What lanes bring.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::entry::{End, Inner, Kind, Pending, Work};
use super::stream::{Ordered, Refused};
use super::{Job, Sink, add, lock, subtract, violation};
use crate::digest::Digest;
use crate::name::Name;
use crate::transfer::block::{BadBlock, Block, MAX_DATA, MAX_PIECES, Piece};
use crate::transfer::error::TransferError;
use crate::transfer::event::Outcome;
use crate::transfer::memory::mapped;
use crate::transfer::message::Message;
use crate::transfer::part::PartFile;
use crate::transfer::passage::Incoming;
use crate::transfer::role::{Lane, LaneEnd};
use crate::transfer::small::write_small;
use crate::transfer::stages::Stage;
use crate::transfer::tree_hash::{CHUNK, chunk_cv, leaf, whole};

/// So often the same chunk may arrive damaged, and not once more.
const DAMAGED: u8 = 4;
/// What a chunk that came damaged takes of memory.
pub(super) const DAMAGED_CHUNK: usize = mapped(size_of::<(u64, u8)>());
/// What a lane's block takes of memory.
const BLOCK: usize = MAX_DATA + MAX_PIECES * 2 * size_of::<Piece>();
/// A piece that is far ahead of what is missing waits so long before it is to be sent again, and it is
/// looked so often whether there is room.
const ROOM_TIME: Duration = Duration::from_secs(2);
const ROOM_LOOK: Duration = Duration::from_millis(10);
/// The most ranges of zeros in files that are not finished.
const MAX_ZEROS: u64 = 4 << 20;

impl Sink<'_> {
    pub(super) fn work_lane(&self, lane: Lane<'_>) -> Result<(), LaneEnd> {
        let mut block = Block::default();
        let _block = self.memory.charge(BLOCK).map_err(TransferError::from)?;
        let (number, reader) = (lane.number, lane.reader);
        loop {
            match block.read_from(&mut Incoming::new(reader, lane.handle, &self.stages)) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => return Err(lane_end(error)),
            }
            if self.is_stopped() {
                return Ok(());
            }
            // What ends with this block is confirmed before the receipt says that it has ended.
            let _answering = self.answering.read().unwrap_or_else(PoisonError::into_inner);
            for (piece, data) in block.each() {
                self.piece(piece, data)?;
                add(&self.counts.moved, data.len() as u64);
            }
            if let Some(carried) = lock(&self.carried).get_mut(&number) {
                *carried += block.each().map(|(_, data)| data.len() as u64).sum::<u64>();
            }
            self.say(Message::Stored { block: block.number });
        }
    }

    fn piece(&self, piece: &Piece, data: &[u8]) -> Result<(), LaneEnd> {
        let Some(pending) = self.find_announced(piece.entry)? else {
            return Ok(()); // it is over: a piece that comes again, or of a file that failed
        };
        let (work, size, sparse) = {
            let inner = lock(&pending.inner);
            if inner.version != piece.version {
                return Ok(());
            }
            (inner.work.clone(), inner.size, inner.sparse)
        };
        match work {
            Work::Over => Ok(()),
            Work::Deciding | Work::Waiting => Err(bad("data that nobody asked for")),
            Work::Comparing(_) if self.settings.dry_run => Ok(self.would_move(&pending)?),
            Work::Small => self.small(&pending, piece, size, data),
            Work::Comparing(_) if size <= CHUNK => self.small(&pending, piece, size, data),
            Work::Comparing(_) => {
                check_chunk(piece, size)?;
                match self.open_compared(&pending, piece.version)? {
                    Some(part) => self.chunk(&pending, &part, piece, (size, sparse), data),
                    None => Ok(()),
                }
            }
            Work::Part(part) => {
                check_chunk(piece, size)?;
                self.chunk(&pending, &part, piece, (size, sparse), data)
            }
            Work::Ordered(ordered) => {
                self.in_order(&pending, &ordered, piece, (size, sparse), data)
            }
        }
    }

    /// The entry, if it is under way; an error if it is not announced.
    pub(super) fn find_announced(&self, entry: u64) -> Result<Option<Arc<Pending>>, TransferError> {
        let pending = self.find(entry);
        if pending.is_none() && entry >= self.announced.load(Ordering::Acquire) {
            return Err(violation("something of a file that is not announced"));
        }
        Ok(pending)
    }

    /// All of a small file.
    fn small(
        &self,
        pending: &Arc<Pending>,
        piece: &Piece,
        size: u64,
        data: &[u8],
    ) -> Result<(), LaneEnd> {
        check_whole(piece, size)?;
        if self.settings.verify && self.stages.during(Stage::Hash, || whole(data)) != piece.hash {
            return self.damaged(pending, 0);
        }
        let (attributes, extra, before) = {
            let mut inner = lock(&pending.inner);
            if inner.version != piece.version
                || !matches!(inner.work, Work::Small | Work::Comparing(_))
            {
                return Ok(());
            }
            inner.work = Work::Over;
            (inner.attributes, inner.extra.clone(), inner.before)
        };
        let place = &pending.place;
        let written = self.stages.during(Stage::Write, || {
            self.mark(place);
            let directory = self.directories.get(&place.directory)?;
            let name = Name::new(&place.name).map_err(io::Error::other)?;
            let policy = &self.settings.policy;
            let mode = policy.file_mode(&attributes, before);
            let set = |file: &std::fs::File| policy.set(file, mode, &attributes, extra.as_deref());
            let replace = !self.settings.existing.stays();
            write_small(&self.temporary, &directory, name, data, set, self.syncs_each(), replace)
        });
        match written {
            Ok(kept) => {
                if let Some(error) = kept {
                    self.not_kept(&place.path(), &error);
                }
                let digest = self.settings.verify.then_some(piece.hash);
                self.finished(pending, Outcome::Moved { resumed: 0 }, digest, false)?;
            }
            Err(error) => self.fail(pending, error)?,
        }
        Ok(())
    }

    /// The partial file for one that was compared and differs.
    fn open_compared(
        &self,
        pending: &Arc<Pending>,
        version: u8,
    ) -> Result<Option<Arc<PartFile>>, LaneEnd> {
        let _one = lock(&self.opening);
        {
            let inner = lock(&pending.inner);
            match &inner.work {
                Work::Part(part) => return Ok(Some(Arc::clone(part))),
                Work::Comparing(_) if inner.version == version => {}
                _ => return Ok(None),
            }
        }
        // All of it comes, whatever an earlier transfer has left.
        let opened = self.open_part(pending).and_then(|(work, _, have)| {
            if let Work::Part(part) = &work {
                part.forget(&have)?;
            }
            Ok(work)
        });
        let work = match opened {
            Ok(work) => work,
            Err(error) => {
                self.fail(pending, error)?;
                return Ok(None);
            }
        };
        let mut inner = lock(&pending.inner);
        if inner.version != version || !matches!(inner.work, Work::Comparing(_)) {
            return Ok(None);
        }
        inner.work = work;
        match &inner.work {
            Work::Part(part) => Ok(Some(Arc::clone(part))),
            _ => Ok(None),
        }
    }

    /// A chunk of a large file.
    fn chunk(
        &self,
        pending: &Arc<Pending>,
        part: &PartFile,
        piece: &Piece,
        (size, sparse): (u64, bool),
        data: &[u8],
    ) -> Result<(), LaneEnd> {
        let index = piece.offset / CHUNK;
        if !part.has(index) {
            if !self.matches(piece, || leaf(size, sparse, index, data)) {
                return self.damaged(pending, index);
            }
            let write = || part.write_chunk(index, data, piece.hash);
            if let Err(error) = self.stages.during(Stage::Write, write) {
                return self.chunk_failed(pending, piece, error);
            }
            self.count(pending, piece.version, data.len() as u64);
        }
        if lock(&pending.inner).end.is_some() {
            self.complete(pending)?;
        }
        Ok(())
    }

    fn matches(&self, piece: &Piece, hash: impl FnOnce() -> Digest) -> bool {
        !self.settings.verify || self.stages.during(Stage::Hash, hash) == piece.hash
    }

    fn chunk_failed(
        &self,
        pending: &Arc<Pending>,
        piece: &Piece,
        error: io::Error,
    ) -> Result<(), LaneEnd> {
        {
            let inner = lock(&pending.inner);
            // It was begun anew or given up meanwhile.
            if inner.version != piece.version || matches!(inner.work, Work::Over) {
                return Ok(());
            }
        }
        if error.kind() == io::ErrorKind::WouldBlock {
            // The connection is thought to be lost; this comes again over the next.
            return Err(LaneEnd::Broken(error));
        }
        Ok(self.fail(pending, error)?)
    }

    fn count(&self, pending: &Pending, version: u8, bytes: u64) {
        let mut inner = lock(&pending.inner);
        if inner.version == version {
            inner.counted = inner.counted.saturating_add(bytes);
            add(&self.counts.bytes, bytes);
            drop(inner);
            self.show(pending);
        }
    }

    /// A piece of a file that is written in order.
    fn in_order(
        &self,
        pending: &Arc<Pending>,
        ordered: &Mutex<Ordered>,
        piece: &Piece,
        (size, sparse): (u64, bool),
        data: &[u8],
    ) -> Result<(), LaneEnd> {
        let index = piece.offset / CHUNK;
        let right = match pending.kind {
            Kind::File if size <= CHUNK => {
                check_whole(piece, size)?;
                self.matches(piece, || whole(data))
            }
            Kind::File => {
                check_chunk(piece, size)?;
                self.matches(piece, || leaf(size, sparse, index, data))
            }
            _ if piece.whole => return Err(bad("a stream in one piece")),
            _ => {
                let aligned = piece.offset.is_multiple_of(CHUNK);
                self.matches(piece, || whole(data))
                    || (aligned && self.matches(piece, || chunk_cv(index, data)))
            }
        };
        if !right {
            return self.damaged(pending, index);
        }
        let written = match self.put_in_order(ordered, piece.offset, data) {
            Ok(written) => written,
            Err(Refused::Ahead) => {
                // The lane that brings what is missing may be this one.
                subtract(&self.counts.moved, data.len() as u64);
                self.say(Message::Damaged { file: pending.entry, chunk: index });
                return Ok(());
            }
            Err(refused) => return Ok(self.refused(pending, refused)?),
        };
        self.count(pending, piece.version, data.len() as u64);
        if pending.kind == Kind::Stream && self.settings.max_bytes.is_some() {
            let announced = lock(&self.walk).bytes;
            self.check_limit(announced.saturating_add(written))?;
        }
        if piece.whole {
            let digest = self.settings.verify.then_some(piece.hash);
            lock(&pending.inner).end.get_or_insert(End { digest, size });
        }
        if lock(&pending.inner).end.is_some() {
            self.complete(pending)?;
        }
        Ok(())
    }

    /// Waits a while for room: other lanes may be slower than this one. Returns how much is written.
    fn put_in_order(
        &self,
        ordered: &Mutex<Ordered>,
        offset: u64,
        data: &[u8],
    ) -> Result<u64, Refused> {
        let until = Instant::now() + ROOM_TIME;
        loop {
            let mut ordered = lock(ordered);
            let taken =
                self.stages.during(Stage::Write, || ordered.data(offset, data, &self.memory));
            match taken {
                Err(Refused::Ahead) if Instant::now() < until && !self.is_stopped() => {}
                taken => return taken.map(|()| ordered.written()),
            }
            drop(ordered);
            std::thread::sleep(ROOM_LOOK);
        }
    }

    fn refused(&self, pending: &Arc<Pending>, refused: Refused) -> Result<(), TransferError> {
        match refused {
            Refused::Violation(text) => Err(violation(text)),
            Refused::Ahead => Err(violation("zeros too far ahead")),
            Refused::Io(error) if self.standard.is_some() => {
                Err(self.fatal(self.settings.shown.clone(), error))
            }
            Refused::Io(error) => self.fail(pending, error),
        }
    }

    /// A chunk did not arrive as it was read.
    fn damaged(&self, pending: &Pending, chunk: u64) -> Result<(), LaneEnd> {
        let times = {
            let mut inner = lock(&pending.inner);
            if !inner.closed && !inner.damaged.contains_key(&chunk) {
                self.memory.take(DAMAGED_CHUNK).map_err(TransferError::from)?;
            }
            let times = inner.damaged.entry(chunk).or_default();
            *times += 1;
            *times
        };
        if times > DAMAGED {
            return Err(LaneEnd::Fatal(TransferError::Verification { path: pending.place.path() }));
        }
        self.say(Message::Damaged { file: pending.entry, chunk });
        Ok(())
    }

    /// Chunks of a file are zeros.
    pub(super) fn zeros(&self, file: u64, first: u64, count: u64) -> Result<(), TransferError> {
        let Some(pending) = self.find_announced(file)? else { return Ok(()) };
        let (work, size) = {
            let inner = lock(&pending.inner);
            if matches!(inner.work, Work::Over) || self.settings.dry_run {
                return Ok(());
            }
            let chunks = inner.size.div_ceil(CHUNK);
            let within = first.checked_add(count).is_some_and(|end| end <= chunks);
            if !inner.sparse || !within || count == 0 || inner.size <= CHUNK {
                return Err(violation("zeros where there can be none"));
            }
            (inner.work.clone(), inner.size)
        };
        if self.counts.zeros.fetch_add(1, Ordering::Relaxed) > MAX_ZEROS {
            return Err(violation("too many holes"));
        }
        let part = match work {
            Work::Part(part) => part,
            Work::Comparing(_) => {
                let version = lock(&pending.inner).version;
                match self.open_compared(&pending, version) {
                    Ok(Some(part)) => part,
                    Ok(None) => return Ok(()),
                    Err(LaneEnd::Fatal(error)) => return Err(error),
                    Err(LaneEnd::Broken(error)) => return self.fail(&pending, error),
                }
            }
            Work::Ordered(ordered) => {
                let bytes = (first + count).saturating_mul(CHUNK).min(size) - first * CHUNK;
                let taken = lock(&ordered).zeros(first * CHUNK, bytes, &self.memory);
                if let Err(refused) = taken {
                    return self.refused(&pending, refused);
                }
                self.slow.push(Job::Zeros(pending));
                return Ok(());
            }
            _ => return Err(violation("zeros that nobody asked for")),
        };
        let before = part.present_bytes();
        if let Err(error) = part.zeros(first, count) {
            return self.fail(&pending, error);
        }
        let version = lock(&pending.inner).version;
        self.count(&pending, version, part.present_bytes().saturating_sub(before));
        Ok(())
    }

    /// Writes the zeros whose turn it is.
    pub(super) fn write_zeros(&self, pending: &Arc<Pending>) -> Result<(), TransferError> {
        let work = lock(&pending.inner).work.clone();
        let Work::Ordered(ordered) = work else { return Ok(()) };
        let advanced = lock(&ordered).advance(&|| self.is_stopped());
        match advanced {
            Ok(()) => self.complete(pending),
            Err(refused) => self.refused(pending, refused),
        }
    }

    /// The source has said all of a file.
    pub(super) fn file_end(
        &self,
        file: u64,
        digest: Option<Digest>,
        size: u64,
    ) -> Result<(), TransferError> {
        let Some(pending) = self.find_announced(file)? else {
            let stream = matches!(lock(&self.gone).get(file), Some((Kind::Stream, _)));
            return if stream { self.stream_size(size) } else { Ok(()) };
        };
        if self.settings.dry_run {
            self.would_move(&pending)?;
            self.say(Message::Finished { file });
            return Ok(());
        }
        let stream = pending.kind == Kind::Stream;
        let ended = lock(&pending.inner).accept_end(End { digest, size }, stream);
        if !ended? {
            return Ok(());
        }
        if digest.is_none() && self.settings.verify {
            return Err(violation("a file without its digest"));
        }
        if stream {
            self.stream_size(size)?;
        }
        self.quick.push(Job::Finish(pending));
        Ok(())
    }

    /// The length of a stream is known.
    fn stream_size(&self, size: u64) -> Result<(), TransferError> {
        let mut walk = lock(&self.walk);
        walk.tally.bytes = walk.tally.bytes.saturating_add(size);
        walk.bytes = walk.bytes.saturating_add(size);
        self.check_limit(walk.bytes)
    }
}

impl Inner {
    /// Takes a file's end; false if it is over.
    fn accept_end(&mut self, end: End, stream: bool) -> Result<bool, TransferError> {
        match &self.work {
            Work::Over => return Ok(false),
            Work::Part(_) | Work::Ordered(_) => {}
            Work::Comparing(_) if self.size > CHUNK => {}
            _ => return Err(violation("the end of a file that nobody asked for")),
        }
        if self.end.is_some() || (!stream && self.size != end.size) {
            return Err(violation("a second or wrong end of a file"));
        }
        if stream {
            self.size = end.size;
        }
        self.end = Some(end);
        Ok(true)
    }
}

fn bad(text: &str) -> LaneEnd {
    LaneEnd::Fatal(violation(text))
}

fn check_whole(piece: &Piece, size: u64) -> Result<(), LaneEnd> {
    if !piece.whole || u64::from(piece.length) != size {
        return Err(bad("a piece that is not all of its file"));
    }
    Ok(())
}

fn check_chunk(piece: &Piece, size: u64) -> Result<(), LaneEnd> {
    let expected = size.saturating_sub(piece.offset).min(CHUNK);
    if piece.whole
        || !piece.offset.is_multiple_of(CHUNK)
        || expected == 0
        || u64::from(piece.length) != expected
    {
        return Err(bad("a piece that is no chunk of its file"));
    }
    Ok(())
}

/// What is no block is the peer's doing; anything else is the connection's.
fn lane_end(error: io::Error) -> LaneEnd {
    if error.get_ref().is_some_and(|inner| inner.is::<BadBlock>()) {
        return bad(&error.to_string());
    }
    LaneEnd::Broken(error)
}
