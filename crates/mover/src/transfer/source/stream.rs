//! A stream as a source: it can be read only once, so what is not confirmed is kept.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Source;
use super::desk::Over;
use crate::digest::Digest;
use crate::frame::Attributes;
use crate::transfer::block::{Block, MAX_DATA, Piece};
use crate::transfer::event::Outcome;
use crate::transfer::message::{Entry, Message, Verdict, What};
use crate::transfer::tree_hash::{CHUNK, whole};

/// The most blocks that are kept: more than any sink takes ahead of the one it waits for.
const KEPT: usize = 32;
/// Blocks that are read ahead.
const AHEAD: usize = 4;
/// How long a lane waits for the stream before it looks whether the transfer goes on.
const PATIENCE: Duration = Duration::from_millis(200);
/// The entry of the stream: there is no other.
pub(super) const ENTRY: u64 = 0;

/// A stream and what of it is under way.
pub(super) struct Stream {
    name: Vec<u8>,
    input: Mutex<Input>,
    sent: Mutex<Sent>,
}

struct Input {
    /// From a thread that may wait for ever in a read: nobody waits for it to end.
    data: Receiver<io::Result<Vec<u8>>>,
    hasher: blake3::Hasher,
    offset: u64,
    ended: bool,
}

#[derive(Default)]
struct Sent {
    wanted: bool,
    over: bool,
    /// Not confirmed, by block: the lane, the offset, the data.
    blocks: BTreeMap<u64, (u32, u64, Vec<u8>)>,
    /// What a broken lane has left.
    again: Vec<(u64, Vec<u8>)>,
}

/// What there was to send.
pub(super) struct Filled {
    /// Something.
    pub(super) some: bool,
    /// That was the end: size and digest. Told once.
    pub(super) end: Option<(u64, Digest)>,
}

impl Stream {
    /// Begins to read.
    pub(super) fn new(name: Vec<u8>, mut stream: Box<dyn Read + Send>) -> Self {
        let (give, data) = sync_channel(AHEAD);
        std::thread::spawn(move || {
            loop {
                let mut block = Vec::new();
                let read = (&mut stream).take(MAX_DATA as u64).read_to_end(&mut block);
                let last = !matches!(read, Ok(MAX_DATA));
                if give.send(read.map(|_| block)).is_err() || last {
                    return;
                }
            }
        });
        let hasher = blake3::Hasher::new();
        let input = Mutex::new(Input { data, hasher, offset: 0, ended: false });
        Stream { name, input, sent: Mutex::default() }
    }

    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sink wants it.
    pub(super) fn want(&self) {
        self.sent().wanted = true;
    }

    /// The sink has all of it, or never will.
    pub(super) fn over(&self) {
        self.sent().over = true;
    }

    /// Whether there is nothing left to do with it.
    pub(super) fn is_over(&self) -> bool {
        self.sent().over
    }

    /// The sink has a block.
    pub(super) fn stored(&self, block: u64) {
        self.sent().blocks.remove(&block);
    }

    /// What a broken lane carried is to be sent again.
    pub(super) fn lane_broke(&self, lane: u32) {
        let mut sent = self.sent();
        let lost: Vec<u64> =
            sent.blocks.iter().filter(|(_, sent)| sent.0 == lane).map(|(n, _)| *n).collect();
        for block in lost {
            if let Some((_, offset, data)) = sent.blocks.remove(&block) {
                sent.again.push((offset, data));
            }
        }
    }

    /// The sink wants what is at this offset again.
    pub(super) fn damaged(&self, chunk: u64) {
        let mut sent = self.sent();
        let at = chunk.saturating_mul(CHUNK);
        let block = sent.blocks.iter().find(|(_, sent)| sent.1 == at).map(|(number, _)| *number);
        if let Some((_, offset, data)) = block.and_then(|number| sent.blocks.remove(&number)) {
            sent.again.push((offset, data));
        }
    }

    /// Fills a block with what comes next, if there is anything.
    pub(super) fn fill(&self, block: &mut Block, lane: u32, verify: bool) -> io::Result<Filled> {
        let again = {
            let mut sent = self.sent();
            if !sent.wanted || sent.over || (sent.blocks.len() >= KEPT && sent.again.is_empty()) {
                return Ok(Filled { some: false, end: None });
            }
            sent.again.pop()
        };
        let (offset, data, end) = match again {
            Some((offset, data)) => (offset, data, None),
            None => match self.read()? {
                Some(read) => read,
                None => return Ok(Filled { some: false, end: None }),
            },
        };
        if data.is_empty() {
            return Ok(Filled { some: false, end });
        }
        block.add(data.len(), |room| {
            room.copy_from_slice(&data);
            let hash = if verify { whole(&data) } else { Digest::default() };
            let piece = Piece { entry: ENTRY, offset, length: 0, whole: false, version: 0, hash };
            Ok::<_, io::Error>((data.len(), piece))
        })?;
        self.sent().blocks.insert(block.number, (lane, offset, data));
        Ok(Filled { some: true, end })
    }

    /// The next piece of the stream: where it is, and at the end the size and digest of all.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn read(&self) -> io::Result<Option<(u64, Vec<u8>, Option<(u64, Digest)>)>> {
        // Another lane waits for it already.
        let Ok(mut input) = self.input.try_lock() else { return Ok(None) };
        if input.ended {
            return Ok(None);
        }
        let data = match input.data.recv_timeout(PATIENCE) {
            // Told once: other lanes find nothing more.
            Ok(data) => data.inspect_err(|_| input.ended = true)?,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            // Whoever reads it says why it goes, unless it has panicked. It is not the end of the stream.
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("internal error: nobody reads it any more"));
            }
        };
        let offset = input.offset;
        input.offset += data.len() as u64;
        input.hasher.update(&data);
        input.ended = data.len() < MAX_DATA;
        let end = input.ended.then(|| (input.offset, input.hasher.finalize().into()));
        Ok(Some((offset, data, end)))
    }
}

impl Source<'_> {
    /// Announces the stream, the only entry there is.
    pub(super) fn announce_stream(&self, stream: &Stream) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap_or_default();
        let time = crate::frame::Timestamp {
            seconds: now.as_secs() as i64,
            nanoseconds: now.subsec_nanos(),
        };
        let attributes = Attributes { mode: 0o644, accessed: time, modified: time };
        let mut state = self.lock();
        state.entries = ENTRY + 1;
        state.report.tally.files = 1;
        state.announced_all = true;
        let (name, what) = (stream.name.clone(), What::Stream);
        self.say(&Message::Entry(Entry { name, attributes, extra: None, what }));
    }
}

/// What the sink says of the stream.
impl Source<'_> {
    /// What is wanted of it: all, or nothing. False if there is no stream.
    pub(super) fn stream_verdict(&self, verdict: &Verdict) -> bool {
        let Some(stream) = &self.stream else { return false };
        match verdict {
            Verdict::Take { .. } if !self.options.dry_run => stream.want(),
            Verdict::Compare { .. } => {
                // There is nothing to compare before all of it has been read.
                stream.want();
            }
            _ => self.stream_over(Outcome::Kept),
        }
        true
    }

    /// The stream is over.
    pub(super) fn stream_over(&self, outcome: Outcome) {
        let Some(stream) = &self.stream else { return };
        stream.over();
        let mut state = self.lock();
        let size = state.report.tally.bytes;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(&stream.name)).into();
        let over =
            Over { path, size, digest: state.stream_digest.take(), sparse: false, resumed: 0 };
        self.end_if_over(&mut state);
        self.finished(state, over, outcome);
    }

    /// The stream has been read to its end.
    pub(super) fn stream_ended(&self, size: u64, digest: Digest) {
        let digest = self.options.verify.then_some(digest);
        let mut state = self.lock();
        state.report.tally.bytes = size;
        state.stream_digest = digest;
        self.say(&Message::FileEnd { file: ENTRY, digest, size });
    }
}
