//! What the receiver does with each frame.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::digest::{ContentHasher, Digest, Transcript};
use crate::error::{ReceiveError, Violation};
use crate::frame::{AbortReason, Attributes, Frame, MAX_DEPTH, Tally};
use crate::name::Name;
use crate::receive::ReceiveOptions;
use crate::report::{Event, Failure, Failures, Progress, Side, Summary, printable};
use crate::stream::{FrameWriter, Received};
use crate::target::{PartFile, Target};

/// The state of one transfer at the receiver.
pub(crate) struct Store<'a, W> {
    target: Target,
    out: &'a mut FrameWriter<W>,
    options: &'a ReceiveOptions,
    observe: &'a mut dyn FnMut(Event<'_>),
    file: Option<Incoming>,
    /// Directories entered below one that could not be stored, that one included.
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
    totals: Option<(u64, u64)>,
    /// Of this side; those of the sender are added at the end.
    failures: Failures,
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

/// How a transfer ended that was not stopped.
#[derive(Debug)]
pub(crate) struct Outcome {
    summary: Summary,
    failures: Failures,
}

impl Outcome {
    pub(crate) fn into_result(self) -> Result<Summary, ReceiveError> {
        let Outcome { summary, failures } = self;
        match failures.count {
            0 => Ok(summary),
            _ => Err(ReceiveError::Incomplete { summary, failures }),
        }
    }
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
            target,
            out,
            options,
            observe,
            file: None,
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
            Frame::Abort { reason, text } => {
                let message = match reason {
                    AbortReason::Protocol if text.is_empty() => "it says that we broke the protocol".into(),
                    _ => printable(text),
                };
                return Err(ReceiveError::Remote { message });
            }
            Frame::Data(_) | Frame::Hole { .. } => {}
            Frame::End { .. } => return self.end(&received.frame),
            _ => self.transcript.frame(received.bytes),
        }
        match self.file.take() {
            Some(file) => self.in_file(file, &received.frame)?,
            None => self.in_tree(&received.frame)?,
        }
        Ok(Flow::Continue)
    }

    /// Confirms everything to the sender, after [`Flow::End`].
    pub(crate) fn finish(mut self) -> Result<Outcome, ReceiveError> {
        self.target.finish().map_err(|source| self.io(source))?;
        let transcript = self.transcript.digest();
        let summary = Summary {
            tally: self.stored,
            data_bytes: self.data_bytes,
            skipped: 0,
            transcript,
        };
        let omitted = std::mem::take(&mut self.omitted);
        let mut failures = std::mem::take(&mut self.failures);
        let receipt =
            Frame::Receipt { tally: self.offered, failed: failures.count, transcript };
        self.out.put(&receipt).and_then(|()| self.out.flush()).map_err(ReceiveError::Stream)?;
        failures.count = failures.count.saturating_add(omitted);
        Ok(Outcome { summary, failures })
    }
}
