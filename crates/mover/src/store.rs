//! What the receiver does with each frame.

use std::io::{self, Write};
use std::path::PathBuf;

use rustix::io::Errno;

use crate::digest::{ContentHasher, Digest, Transcript};
use crate::error::{ReceiveError, Violation};
use crate::frame::{AbortReason, Attributes, Frame, MAX_DEPTH, Tally};
use crate::name::Name;
use crate::receive::ReceiveOptions;
use crate::report::{Event, Failure, Failures, Progress, Side, Summary, describe, printable};
use crate::stream::{FrameWriter, Received};
use crate::target::{PartFile, Target};

/// The state of one transfer at the receiver.
pub(crate) struct Store<'a, W> {
    /// Before the target, so that it is gone before directories get their times.
    file: Option<Incoming>,
    target: Target,
    out: &'a mut FrameWriter<W>,
    options: &'a ReceiveOptions,
    observe: &'a mut dyn FnMut(Event<'_>),
    /// The directory that could not be stored and those entered below it.
    lost_levels: usize,
    /// The present entry, relative to the target.
    path: PathBuf,
    /// Entries announced so far.
    entries: u64,
    /// Bytes of all files announced so far.
    announced_bytes: u64,
    hasher: ContentHasher,
    transcript: Transcript,
    /// What was offered completely.
    offered: Tally,
    stored: Tally,
    bytes_done: u64,
    data_bytes: u64,
    /// Files and bytes in all, as the sender says.
    totals: Option<(u64, u64)>,
    /// Of this side; those of the sender are added at the end.
    failures: Failures,
    /// Files that the sender began and could not read to their end.
    dropped: u64,
    /// Entries that the sender could not read, the dropped files among them.
    omitted: u64,
}

/// The file whose bytes are arriving.
struct Incoming {
    /// `None`: it cannot be stored, and its bytes are only hashed.
    part: Option<PartFile>,
    name: Vec<u8>,
    attributes: Attributes,
    size: u64,
    offset: u64,
}

/// Whether more frames follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    End,
}

impl<'a, W: Write> Store<'a, W> {
    /// Failures and the receipt go to `out`.
    pub(crate) fn new(
        target: Target,
        out: &'a mut FrameWriter<W>,
        options: &'a ReceiveOptions,
        observe: &'a mut dyn FnMut(Event<'_>),
    ) -> Self {
        Store {
            file: None,
            target,
            out,
            options,
            observe,
            lost_levels: 0,
            path: PathBuf::new(),
            entries: 0,
            announced_bytes: 0,
            hasher: ContentHasher::default(),
            transcript: Transcript::default(),
            offered: Tally::default(),
            stored: Tally::default(),
            bytes_done: 0,
            data_bytes: 0,
            totals: None,
            failures: Failures::default(),
            dropped: 0,
            omitted: 0,
        }
    }

    /// Does what one frame asks for.
    pub(crate) fn handle(&mut self, received: &Received<'_>) -> Result<Flow, ReceiveError> {
        match received.frame {
            Frame::Totals { files, bytes } => {
                self.check_limit(bytes)?;
                self.totals = Some((files, bytes));
                return Ok(Flow::Continue);
            }
            Frame::Abort { reason, text } => return Err(remote(reason, text)),
            Frame::End { tally, omitted, transcript } => {
                self.end(tally, omitted, transcript)?;
                return Ok(Flow::End);
            }
            Frame::Data(_) | Frame::Hole { .. } => {}
            _ => self.transcript.frame(received.bytes),
        }
        match self.file.take() {
            Some(file) => self.in_file(file, &received.frame)?,
            None => self.in_tree(&received.frame)?,
        }
        Ok(Flow::Continue)
    }

    /// Confirms everything to the sender, after [`Flow::End`].
    pub(crate) fn finish(mut self) -> Result<(Summary, Failures), ReceiveError> {
        self.target.finish().map_err(|error| self.fatal(error))?;
        let transcript = self.transcript.digest();
        let mut failures = std::mem::take(&mut self.failures);
        let receipt = Frame::Receipt { tally: self.offered, failed: failures.count, transcript };
        self.out.put(&receipt).and_then(|()| self.out.flush()).map_err(ReceiveError::Stream)?;
        failures.count = failures.count.saturating_add(self.omitted);
        let data_bytes = self.data_bytes;
        Ok((Summary { tally: self.stored, data_bytes, skipped: 0, transcript }, failures))
    }

    fn in_tree(&mut self, frame: &Frame<'_>) -> Result<(), ReceiveError> {
        match *frame {
            Frame::Directory { name, attributes } => self.directory(name, attributes)?,
            Frame::Leave => self.leave()?,
            Frame::File { name, attributes, size } => {
                self.announced_bytes = self.announced_bytes.saturating_add(size);
                self.check_limit(self.announced_bytes)?;
                self.arrive(name);
                let part = self.unless_lost(|target| target.begin_file(name))?;
                let name = name.bytes().to_vec();
                self.file = Some(Incoming { part, name, attributes, size, offset: 0 });
            }
            Frame::Symlink { name, attributes, target: text } => {
                self.arrive(name);
                self.offered.symlinks += 1;
                if let Some(set) = self.unless_lost(|here| here.symlink(name, text, attributes))? {
                    self.stored.symlinks += 1;
                    self.warn(set);
                }
                self.depart();
            }
            _ => return Err(Violation::Unexpected.into()),
        }
        Ok(())
    }

    fn directory(&mut self, name: Name<'_>, attributes: Attributes) -> Result<(), ReceiveError> {
        if self.target.depth() + self.lost_levels >= MAX_DEPTH {
            return Err(Violation::TooDeep.into());
        }
        self.arrive(name);
        self.offered.directories += 1;
        match self.unless_lost(|target| target.enter(name, attributes))? {
            Some(()) => self.stored.directories += 1,
            None => self.lost_levels += 1,
        }
        self.progress();
        Ok(())
    }

    fn leave(&mut self) -> Result<(), ReceiveError> {
        if self.lost_levels > 0 {
            self.lost_levels -= 1;
        } else if self.target.depth() == 0 {
            return Err(Violation::LeaveAtTop.into());
        } else {
            let set = self.target.leave().map_err(|error| self.fatal(error))?;
            self.warn(set);
        }
        self.path.pop();
        Ok(())
    }

    fn in_file(&mut self, mut file: Incoming, frame: &Frame<'_>) -> Result<(), ReceiveError> {
        match *frame {
            Frame::Data(data) => {
                file.advance(data.len() as u64)?;
                self.hasher.data(data);
                if let Some(Err(error)) = file.part.as_mut().map(|part| part.write(data)) {
                    file.part = None;
                    self.fail(error)?;
                }
                self.data_bytes += data.len() as u64;
                self.bytes_done = self.bytes_done.saturating_add(data.len() as u64);
                self.progress();
            }
            Frame::Hole { length } => {
                file.advance(length)?;
                self.hasher.hole(length);
                if let Some(part) = &mut file.part {
                    part.skip(length);
                }
                self.bytes_done = self.bytes_done.saturating_add(length);
            }
            Frame::FileEnd { digest } => return self.file_end(file, digest),
            Frame::FileDropped => {
                self.hasher.finish();
                self.file_dropped(file);
                return Ok(());
            }
            _ => return Err(Violation::Unexpected.into()),
        }
        self.file = Some(file);
        Ok(())
    }

    fn file_end(&mut self, file: Incoming, digest: Digest) -> Result<(), ReceiveError> {
        if file.offset != file.size {
            return Err(Violation::ShortFile.into());
        }
        if self.hasher.finish() != digest {
            return Err(ReceiveError::VerificationFailed { path: self.path.clone() });
        }
        self.offered.files += 1;
        self.offered.bytes = self.offered.bytes.saturating_add(file.size);
        let Incoming { part, name, attributes, size, .. } = file;
        let name = Name::new(&name).expect("it was a name when it came");
        match part.map(|part| self.target.finish_file(part, name, attributes)) {
            None => {}
            Some(Ok(set)) => {
                self.stored.files += 1;
                self.stored.bytes = self.stored.bytes.saturating_add(size);
                self.warn(set);
            }
            Some(Err(error)) => self.fail(error)?,
        }
        self.depart();
        Ok(())
    }

    fn file_dropped(&mut self, file: Incoming) {
        if file.part.is_none() {
            // Lost on both sides; the sender counts it among the omitted.
            self.failures.count -= 1;
        }
        drop(file);
        self.dropped += 1;
        let error = io::Error::other("the sender could not read it to its end");
        let failure = Failure { side: Side::Peer, text: describe(&self.path, &error) };
        (self.observe)(Event::Failed(&failure));
        self.failures.keep(failure);
        self.depart();
    }

    fn end(&mut self, tally: Tally, omitted: u64, transcript: Digest) -> Result<(), ReceiveError> {
        if self.file.is_some() {
            return Err(Violation::Unexpected.into());
        }
        if self.target.depth() + self.lost_levels > 0 {
            return Err(Violation::UnfinishedDirectory.into());
        }
        let same = (tally, transcript) == (self.offered, self.transcript.digest());
        if !same || omitted < self.dropped {
            return Err(ReceiveError::TotalsMismatch);
        }
        self.omitted = omitted;
        Ok(())
    }

    fn arrive(&mut self, name: Name<'_>) {
        self.entries += 1;
        self.path.push(name.os());
    }

    fn depart(&mut self) {
        self.progress();
        self.path.pop();
    }

    /// Stores an entry. `None`: it could not be stored, which is counted and told, or its
    /// directory could not, which was told then.
    fn unless_lost<T>(
        &mut self,
        store: impl FnOnce(&mut Target) -> io::Result<T>,
    ) -> Result<Option<T>, ReceiveError> {
        if self.lost_levels > 0 {
            self.failures.count += 1;
            return Ok(None);
        }
        match store(&mut self.target) {
            Ok(stored) => Ok(Some(stored)),
            Err(error) => self.fail(error).map(|()| None),
        }
    }

    /// Counts and tells that the present entry could not be stored, unless the error concerns
    /// everything that follows as well.
    fn fail(&mut self, error: io::Error) -> Result<(), ReceiveError> {
        if concerns_all(&error) {
            return Err(self.fatal(error));
        }
        let text = describe(&self.path, &error);
        let failed = Frame::Failed { entry: self.entries - 1, text: text.as_bytes() };
        self.out.put(&failed).and_then(|()| self.out.flush()).map_err(ReceiveError::Stream)?;
        let failure = Failure { side: Side::Here, text };
        (self.observe)(Event::Failed(&failure));
        self.failures.count += 1;
        self.failures.keep(failure);
        Ok(())
    }

    fn fatal(&self, source: io::Error) -> ReceiveError {
        ReceiveError::Io { path: self.path.clone(), source }
    }

    fn warn(&mut self, set: Option<io::Error>) {
        if let Some(error) = set {
            (self.observe)(Event::AttributesNotKept { path: &self.path, error: &error });
        }
    }

    fn check_limit(&self, bytes: u64) -> Result<(), ReceiveError> {
        match self.options.max_bytes {
            Some(limit) if bytes > limit => Err(ReceiveError::OverLimit { limit }),
            _ => Ok(()),
        }
    }

    fn progress(&mut self) {
        (self.observe)(Event::Progress(Progress {
            files_done: self.stored.files,
            files_total: self.totals.map(|(files, _)| files),
            bytes_done: self.bytes_done,
            bytes_total: self.totals.map(|(_, bytes)| bytes),
            data_bytes: self.data_bytes,
            current: &self.path,
        }));
    }
}

impl Incoming {
    fn advance(&mut self, length: u64) -> Result<(), Violation> {
        if length > self.size - self.offset {
            return Err(Violation::LongFile);
        }
        self.offset += length;
        Ok(())
    }
}

/// Whether what failed for one entry will fail for the others too, so that going on would only
/// waste the network's time.
fn concerns_all(error: &io::Error) -> bool {
    let fatal = [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ROFS, Errno::STALE, Errno::NODEV];
    Errno::from_io_error(error).is_some_and(|errno| fatal.contains(&errno))
}

fn remote(reason: AbortReason, text: &[u8]) -> ReceiveError {
    let message = match reason {
        AbortReason::Protocol if text.is_empty() => "this side broke the protocol".into(),
        _ => printable(text),
    };
    ReceiveError::Remote { message }
}
