//! What a lane of the source does: it takes work, reads, hashes, and sends, one block after another.

use std::io::{self, Write};

use super::Source;
use super::desk::{Fate, Job, Next, Seen, Work};
use super::opened::Opened;
use crate::digest::Digest;
use crate::transfer::TransferError;
use crate::transfer::block::{Block, Piece};
use crate::transfer::interrupt::Interrupt;
use crate::transfer::link::LinkHandle;
use crate::transfer::passage::Outgoing;
use crate::transfer::role::{Lane, LaneEnd};
use crate::transfer::stages::Stage;
use crate::transfer::tree_hash::{CHUNK, ChunkTree, leaf, whole};
use crate::walk::changed;

/// How far ahead of a chunk the kernel is asked to read.
const READ_AHEAD: u64 = 4 * CHUNK;

/// Works a lane until the transfer is over or nothing more is wanted of it.
pub(super) fn work(source: &Source<'_>, lane: Lane<'_>) -> Result<(), LaneEnd> {
    let mut block = Block::default();
    let number = lane.number;
    let Lane { writer: out, handle, interrupt, .. } = lane;
    let mut sending = Sending { source, out, handle, interrupt, lane: number };
    while (lane.keep)() {
        if let Some(stream) = &source.stream {
            block.clear(source.block_number());
            let filled = source
                .stages
                .during(Stage::Read, || stream.fill(&mut block, number, source.options.verify));
            let filled = filled.map_err(|error| {
                LaneEnd::Fatal(TransferError::Io { path: "standard input".into(), source: error })
            })?;
            sending.send(&block)?;
            if let Some((size, digest)) = filled.end {
                source.stream_ended(size, digest);
            }
            if filled.some {
                continue;
            }
        }
        let Some(work) = source.take_work() else {
            // What waits in the writer's buffer is not to wait for the next block.
            sending.out.flush()?;
            match source.wait_for_work() {
                true => continue,
                false => return Ok(()),
            }
        };
        match work {
            Work::Open(job) => open(source, &job),
            Work::Bundle(jobs) => {
                block.clear(source.block_number());
                for job in jobs {
                    small(source, &job, &mut block);
                }
                sending.send(&block)?;
            }
            Work::Chunk(job, opened, chunk, before) => {
                block.clear(source.block_number());
                let next = large(source, &job, &opened, (chunk, before), &mut block);
                let mut sent = sending.send(&block);
                if sent.is_ok() && matches!(next, Next::End(_)) {
                    // The last chunk is not to wait in the writer's buffer if the file is read again.
                    sent = sending.out.flush();
                }
                // Also when the lane has broken: another one sends the chunk, and this is said once.
                end(source, &job, &opened, next);
                sent?;
            }
            Work::Compare(job, digest) => compare(source, &job, digest),
        }
    }
    block.clear(source.block_number());
    block.write_to(&mut sending.out)?;
    sending.out.flush()?;
    // The sink closes when it has dealt with everything; the connection lives until then.
    let mut nothing = [0];
    while matches!(lane.reader.read(&mut nothing), Ok(1..)) {}
    Ok(())
}

struct Sending<'a, 'b> {
    source: &'a Source<'b>,
    out: &'a mut (dyn Write + Send),
    handle: &'a dyn LinkHandle,
    interrupt: &'a Interrupt,
    lane: u32,
}

impl Sending<'_, '_> {
    /// Sends a block, unless nothing could be read into it.
    fn send(&mut self, block: &Block) -> io::Result<()> {
        if block.pieces().is_empty() {
            return Ok(());
        }
        // Before it leaves, so that it is known when the confirmation comes.
        self.source.sent(self.lane, block);
        let (pace, stages) = (self.source.options.pace.as_deref(), &self.source.stages);
        block.write_to(&mut Outgoing::new(self.out, self.handle, pace, self.interrupt, stages))
    }
}

/// Opens a large file and finds out what of it is to be sent.
fn open(source: &Source<'_>, job: &Job) {
    let opened = source.stages.during(Stage::Read, || {
        let opened = source.roots.file(&job.place)?;
        let now = opened.seen()?;
        // Of one that has grown, what was announced is taken.
        let data = if job.seen.sparse { opened.data(&job.seen)? } else { Vec::new() };
        Ok::<_, io::Error>((opened, now, data))
    });
    match opened {
        Ok((_, now, _)) if job.seen.fate(&now) == Fate::Changed => source.changed(job, now),
        Ok((opened, _, data)) => source.opened(job, opened, &data),
        Err(error) => source.unreadable(job, &error),
    }
}

/// Adds a small file to a block.
fn small(source: &Source<'_>, job: &Job, block: &mut Block) {
    let size = job.seen.size as usize;
    let mut grown = false;
    let added = block.add(size, |room| {
        let read = source.stages.during(Stage::Read, || {
            let opened = source.roots.file(&job.place)?;
            let read = opened.read(room, 0)?;
            let now = opened.seen()?;
            let fate = if read == size { job.seen.fate(&now) } else { Fate::Changed };
            // What is written to at its end and elsewhere is not the same the second time.
            let same = fate != Fate::Grown || reads_again(&opened, room)?;
            Ok((if same { fate } else { Fate::Changed }, now))
        });
        match read {
            Ok((Fate::Changed, now)) => Err(Trouble::Changed(now)),
            Ok((fate, _)) => {
                grown = fate == Fate::Grown;
                let hash = match source.options.verify {
                    true => source.stages.during(Stage::Hash, || whole(room)),
                    false => Digest::default(),
                };
                let (entry, version) = (job.file, job.version);
                Ok((size, Piece { entry, offset: 0, length: 0, whole: true, version, hash }))
            }
            Err(error) => Err(Trouble::Unreadable(error)),
        }
    });
    match added {
        Ok(()) if grown => source.grown(job),
        Ok(()) => {}
        Err(Trouble::Changed(now)) => source.changed(job, now),
        Err(Trouble::Unreadable(error)) => source.unreadable(job, &error),
    }
}

/// Whether the file still begins so.
fn reads_again(opened: &Opened, data: &[u8]) -> io::Result<bool> {
    let mut again = vec![0; data.len()];
    Ok(opened.read(&mut again, 0)? == data.len() && again == data)
}

enum Trouble {
    Changed(Seen),
    Unreadable(io::Error),
}

/// Adds a chunk of a large file to a block. A chunk that was sent before is to be what it was.
fn large(
    source: &Source<'_>,
    job: &Job,
    opened: &Opened,
    (chunk, before): (u64, Option<Digest>),
    block: &mut Block,
) -> Next {
    let Seen { size, sparse, .. } = job.seen;
    let offset = chunk * CHUNK;
    let want = size.saturating_sub(offset).min(CHUNK) as usize;
    let added = block.add(want, |room| {
        let read = source.stages.during(Stage::Read, || {
            let read = opened.read(room, offset)?;
            opened.will_need(offset + CHUNK, READ_AHEAD);
            Ok((read, opened.seen()?))
        });
        match read {
            // Whether one that has grown begins as it was read is found out at its end.
            Ok((read, now)) if read == want && job.seen.fate(&now) != Fate::Changed => {
                let hash = match source.options.verify {
                    true => source.stages.during(Stage::Hash, || leaf(size, sparse, chunk, room)),
                    false => Digest::default(),
                };
                if before.is_some_and(|before| before != hash) {
                    return Err(Trouble::Changed(now));
                }
                if !source.options.verify {
                    source.stages.during(Stage::Hash, || opened.sample(&job.seen, chunk, room));
                }
                let (entry, version) = (job.file, job.version);
                Ok((want, Piece { entry, offset, length: 0, whole: false, version, hash }))
            }
            Ok((_, now)) => Err(Trouble::Changed(now)),
            Err(error) => Err(Trouble::Unreadable(error)),
        }
    });
    match added {
        Ok(()) => source.read(job, chunk, block.pieces()[0].hash),
        Err(Trouble::Changed(now)) => {
            source.changed(job, now);
            Next::Nothing
        }
        Err(Trouble::Unreadable(error)) => {
            source.unreadable(job, &error);
            Next::Nothing
        }
    }
}

/// Tells the end of a file that has been read, if what was announced is still what it was.
///
/// Of a file that has grown, size and times do not tell: all that was announced is read a second time. No
/// lock is held meanwhile, so other lanes may find that it has changed.
pub(super) fn end(source: &Source<'_>, job: &Job, opened: &Opened, next: Next) {
    let Next::End(sent) = next else { return };
    let look = || {
        let now = source.stages.during(Stage::Read, || opened.seen())?;
        Ok::<_, io::Error>((job.seen.fate(&now), now))
    };
    let looked = look().and_then(|(fate, now)| {
        if fate != Fate::Grown {
            return Ok((fate, now));
        }
        let same = match sent {
            Some(sent) => digest(source, opened, job)? == Some(sent),
            // Without digests there are but samples.
            None => source.stages.during(Stage::Read, || opened.begins_as_read())?,
        };
        // As it is after that: the same is announced if it has changed.
        let (fate, now) = look()?;
        Ok((if same { fate } else { Fate::Changed }, now))
    });
    match looked {
        _ if source.is_stopped() => {}
        Ok((Fate::Changed, now)) => source.changed(job, now),
        Ok((fate, _)) => {
            if fate == Fate::Grown {
                source.grown(job);
            }
            source.ended(job, sent);
        }
        Err(error) => source.unreadable(job, &error),
    }
}

/// Whether the file has the digest that the sink told; if not, it is sent.
fn compare(source: &Source<'_>, job: &Job, theirs: Digest) {
    let digest = source.roots.file(&job.place).and_then(|opened| digest(source, &opened, job));
    match digest.and_then(|digest| digest.ok_or_else(changed)) {
        Ok(ours) if ours == theirs => source.same(job.file, ours),
        Ok(_) => source.differs(job.file),
        Err(error) => source.unreadable(job, &error),
    }
}

/// The digest of what was announced of a file, as the two sides would agree on it; none if the file is
/// shorter by now. It takes the memory of one chunk, and ends with an error once the transfer is stopped.
fn digest(source: &Source<'_>, opened: &Opened, job: &Job) -> io::Result<Option<Digest>> {
    let Seen { size, sparse, .. } = job.seen;
    let mut room = vec![0; CHUNK.min(size.max(1)) as usize];
    let mut tree = ChunkTree::new(size, sparse);
    let data = match sparse {
        true => opened.data(&job.seen)?,
        false => std::iter::once(0..tree.chunks()).collect(),
    };
    let mut at = 0;
    for range in data {
        if range.start > at {
            let _ = tree.insert_zeros(at, range.start - at);
        }
        at = range.end;
        for chunk in range {
            if source.is_stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let room = &mut room[..tree.chunk_length(chunk) as usize];
            let read = source.stages.during(Stage::Read, || opened.read(room, chunk * CHUNK))?;
            if read < room.len() {
                return Ok(None);
            }
            let cv = source.stages.during(Stage::Hash, || leaf(size, sparse, chunk, room));
            tree.insert(chunk, cv);
        }
    }
    if at < tree.chunks() {
        let _ = tree.insert_zeros(at, tree.chunks() - at);
    }
    Ok(tree.root())
}
