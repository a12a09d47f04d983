//! The sending side.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{Stat, fstat};

use crate::digest::{ContentHasher, Digest};
use crate::error::SendError;
use crate::extents::{Extent, Extents};
use crate::frame::{AbortReason, Frame, HEADER, MAX_REPLY, MAX_TARGET, Role, Tally};
use crate::inode::{self, Kind};
use crate::replies::{LastWord, Shared, listen};
use crate::report::{
    Cancel, Event, Failure, Failures, Progress, Side, Summary, describe, printable,
};
use crate::scan::{Totals, scan};
use crate::sources::{Source, resolve};
use crate::stream::{CHUNK, FrameReader, FrameWriter, PreambleError, ReadError};
use crate::transfer::place::next_data;
use crate::transfer::source::filter::Filter;
use crate::transfer::tree_hash::is_zero;
use crate::walk::{Found, Step, Walk, changed};

/// How to send. [`Default`] is what most callers want.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// Count files and bytes on a second thread while sending, so that progress has totals.
    /// Default true; costs one more walk over the tree's inodes.
    pub count: bool,
    /// Stops the transfer.
    pub cancel: Cancel,
}

impl Default for SendOptions {
    fn default() -> Self {
        SendOptions { count: true, cancel: Cancel::default() }
    }
}

/// Sends files and trees over one stream to a peer that runs [`receive`](crate::receive).
///
/// Each path arrives under its last component: `send dir` and `send dir/` make `dir` in the
/// target. A path that ends in `/.`, or is `.`, sends the content of the directory without the
/// directory, as with scp. Symbolic links are sent as links, a path that is one included, unless
/// a slash follows it; those of the tree are never followed. Sockets, named pipes and devices are
/// left out with an [`Event::Skipped`]. Each of several hard links is sent as a file of its own.
/// Modes, access and modification times and holes are kept; owners, extended attributes and
/// access lists are not. Directories may be nested [`MAX_DEPTH`](crate::frame::MAX_DEPTH) deep.
///
/// An entry that cannot be read, or changes while it is read, does not stop the others: it is
/// shown as [`Event::Failed`], and the transfer ends as [`SendError::Incomplete`]. `Ok` means that
/// the receiver has confirmed every entry as stored and verified.
///
/// `stream` is the reading and the writing half of one connection. When it breaks, or the peer
/// goes, both halves must say so: there is no time-out of its own here. A time-out that the reading
/// half has at first ends the wait for a peer that does not begin ([`SendError::PeerSilent`]); it
/// is to be taken away at [`Event::Greeted`], since a receiver may be silent for long.
pub fn send<R, W>(
    paths: &[PathBuf],
    stream: (R, W),
    options: &SendOptions,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<Summary, SendError>
where
    R: Read + Send,
    W: Write,
{
    let sources = resolve(paths)?;
    let mut reader = FrameReader::new(stream.0, MAX_REPLY);
    let mut out = FrameWriter::new(stream.1, 2 * (HEADER + CHUNK));
    out.preamble(Role::Sender)
        .map_err(ReadError::Stream)
        .map_err(PreambleError::Read)
        .and_then(|()| reader.preamble(Role::Sender))
        .map_err(|error| match error {
            PreambleError::Version(theirs) => SendError::IncompatibleVersion { theirs },
            PreambleError::Read(ReadError::Violation(rule)) => SendError::ProtocolViolation(rule),
            _ if options.cancel.is_cancelled() => SendError::Interrupted,
            PreambleError::Silent => SendError::PeerSilent,
            PreambleError::Read(ReadError::Closed) => SendError::PeerVanished,
            PreambleError::Read(ReadError::Stream(error)) => SendError::Stream(error),
        })?;
    observe(Event::Greeted);

    let shared = Shared::default();
    let totals = OnceLock::new();
    let stop_counting = AtomicBool::new(false);
    thread::scope(|scope| {
        let listener = scope.spawn(|| listen(reader, &shared));
        if options.count {
            scope.spawn(|| {
                scan(&sources, &Filter::default(), &stop_counting).map(|found| totals.set(found))
            });
        }
        let mut sending = Sending::new(out, &shared, options, &totals, observe);
        let sent = sending.everything(&sources);
        stop_counting.store(true, Ordering::Relaxed);
        if matches!(sent, Err(Stop::Interrupted)) {
            // The peer answers, so the listener ends.
            sending.abort(AbortReason::Interrupted, b"interrupted");
        }
        let last = listener.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sending.conclude(sent, last)
    })
}

/// So many stretches of data and holes of a file are kept in mind, to read it again if it has grown.
const MAX_RUNS: usize = 1 << 16;

/// Why sending stops before its end.
#[derive(Debug)]
enum Stop {
    /// The caller cancelled.
    Interrupted,
    /// The listener has the reason.
    PeerSilent,
    /// Writing failed; the listener may know better why.
    Stream(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Stream(error)
    }
}

struct Sending<'a, W: Write> {
    out: FrameWriter<W>,
    shared: &'a Shared,
    options: &'a SendOptions,
    observe: &'a mut dyn FnMut(Event<'_>),
    totals: &'a OnceLock<Totals>,
    totals_said: bool,
    hasher: ContentHasher,
    /// Where the present file had data and where holes, as far as it was read.
    runs: Vec<Extent>,
    /// What was offered completely.
    tally: Tally,
    bytes_done: u64,
    data_bytes: u64,
    skipped: u64,
    /// Of this side until the end, of both after it.
    failures: Failures,
}

impl<'a, W: Write> Sending<'a, W> {
    fn new(
        out: FrameWriter<W>,
        shared: &'a Shared,
        options: &'a SendOptions,
        totals: &'a OnceLock<Totals>,
        observe: &'a mut dyn FnMut(Event<'_>),
    ) -> Self {
        Sending {
            out,
            shared,
            options,
            observe,
            totals,
            totals_said: false,
            runs: Vec::new(),
            hasher: ContentHasher::default(),
            tally: Tally::default(),
            bytes_done: 0,
            data_bytes: 0,
            skipped: 0,
            failures: Failures::default(),
        }
    }

    fn everything(&mut self, sources: &[Source]) -> Result<(), Stop> {
        for source in sources {
            let mut walk = Walk::new(source.clone());
            while let Some(step) = walk.next() {
                self.look_up()?;
                match step {
                    Step::Found(found) => self.entry(&mut walk, &found)?,
                    Step::Leave => self.out.put_recorded(&Frame::Leave)?,
                    Step::Failed(error) => self.omit(walk.path(), &error),
                }
            }
        }
        self.shared.announce_end();
        let transcript = self.out.transcript();
        let end = Frame::End { tally: self.tally, omitted: self.failures.count, transcript };
        self.out.put(&end)?;
        self.out.flush()?;
        Ok(())
    }

    fn entry(&mut self, walk: &mut Walk, found: &Found) -> Result<(), Stop> {
        match found.kind {
            Kind::Directory => match walk.enter(found) {
                Ok(attributes) => {
                    let directory = Frame::Directory { name: walk.name(found), attributes };
                    self.announce(&directory)?;
                    self.tally.directories += 1;
                }
                Err(error) => self.omit(walk.path(), &error),
            },
            Kind::File => match walk.open_file(found) {
                Ok((file, stat)) => self.file(walk, found, &file, &stat)?,
                Err(error) => self.omit(walk.path(), &error),
            },
            Kind::Symlink => match walk.read_link(found) {
                Ok(target) if (1..=MAX_TARGET).contains(&target.as_bytes().len()) => {
                    self.announce(&Frame::Symlink {
                        name: walk.name(found),
                        attributes: inode::attributes(&found.stat),
                        target: target.as_bytes(),
                    })?;
                    self.tally.symlinks += 1;
                }
                Ok(_) => self.omit(walk.path(), &io::Error::other("a link with such a target")),
                Err(error) => self.omit(walk.path(), &error),
            },
            Kind::Special(what) => {
                self.skipped += 1;
                (self.observe)(Event::Skipped { path: walk.path(), what });
            }
        }
        self.progress(walk.path());
        Ok(())
    }

    fn file(&mut self, walk: &Walk, found: &Found, file: &File, before: &Stat) -> Result<(), Stop> {
        let (size, attributes) = (inode::size(before), inode::attributes(before));
        self.announce(&Frame::File { name: walk.name(found), attributes, size })?;
        let mut extents = Extents::new(file, size, inode::may_have_holes(before));
        self.runs.clear();
        let read = loop {
            let next = extents.next();
            if let Ok(Some(extent)) = &next
                && self.runs.len() <= MAX_RUNS
            {
                self.runs.push(*extent);
            }
            match next {
                Ok(Some(Extent::Hole { length })) => {
                    self.out.put(&Frame::Hole { length })?;
                    self.hasher.hole(length);
                    self.bytes_done += length;
                }
                Ok(Some(Extent::Data { offset, length })) => {
                    if let Err(error) = self.data(walk.path(), file, (offset, length))? {
                        break Err(error);
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let digest = self.hasher.finish();
        let read = match read {
            Ok(()) => self.unchanged(file, before, digest)?,
            error => error,
        };
        match read {
            Ok(()) => {
                self.out.put_recorded(&Frame::FileEnd { digest })?;
                self.tally.files += 1;
                self.tally.bytes += size;
            }
            Err(error) => {
                self.out.put_recorded(&Frame::FileDropped)?;
                self.omit(walk.path(), &error);
            }
        }
        Ok(())
    }

    /// Sends one stretch of data. The inner error is the file's, the outer one the transfer's.
    fn data(
        &mut self,
        path: &Path,
        file: &File,
        (mut offset, length): (u64, u64),
    ) -> Result<io::Result<()>, Stop> {
        let end = offset + length;
        while offset < end {
            let want = usize::try_from(end - offset).map_or(CHUNK, |left| left.min(CHUNK));
            let room = self.out.data_room(want)?;
            let got = match read_full(file, room, offset) {
                Ok(got) => got,
                Err(error) => return Ok(Err(error)),
            };
            self.hasher.data(&room[..got]);
            self.out.commit_data(got);
            if got < want {
                return Ok(Err(changed())); // it shrank
            }
            offset += got as u64;
            self.bytes_done += got as u64;
            self.data_bytes += got as u64;
            self.look_up()?;
            self.progress(path);
        }
        Ok(Ok(()))
    }

    /// A file that was written to meanwhile may have been read half old, half new. One that has only become
    /// longer, such as a log, is taken as far as it was announced. The inner error is the file's, the outer
    /// one the transfer's.
    fn unchanged(
        &mut self,
        file: &File,
        before: &Stat,
        digest: Digest,
    ) -> Result<io::Result<()>, Stop> {
        let after = match fstat(file) {
            Ok(after) => after,
            Err(error) => return Ok(Err(error.into())),
        };
        let modified = |stat| inode::attributes(stat).modified;
        let (size, now) = (inode::size(before), inode::size(&after));
        if now > size {
            // Neither size nor time tells whether it has also been written to elsewhere.
            return Ok(match self.read_again(file)? {
                Ok(Some(again)) if again == digest => Ok(()),
                Ok(_) => Err(changed()),
                Err(error) => Err(error),
            });
        }
        if now != size || modified(&after) != modified(before) {
            return Ok(Err(changed()));
        }
        // Files of procfs and the like say that they are empty and are not.
        Ok(match read_full(file, &mut [0], size) {
            Ok(0) => Ok(()),
            Ok(_) => Err(io::Error::other("has more content than its size says")),
            Err(error) => Err(error),
        })
    }

    /// The digest of what was announced of a file, as it is now: data is read again, and what was a hole must
    /// have nothing but zeros. None: it has other content, or too many holes to tell.
    fn read_again(&mut self, file: &File) -> Result<io::Result<Option<Digest>>, Stop> {
        if self.runs.len() > MAX_RUNS {
            return Ok(Ok(None));
        }
        let mut room = vec![0; CHUNK];
        let mut hasher = ContentHasher::default();
        let mut at = 0;
        for number in 0..self.runs.len() {
            let (end, hole) = match self.runs[number] {
                Extent::Hole { length } => (at + length, true),
                Extent::Data { offset, length } => (offset + length, false),
            };
            if hole {
                hasher.hole(end - at);
                at = next_data(file, at, end);
            }
            while at < end {
                self.look_up()?;
                let want = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
                match read_full(file, &mut room[..want], at) {
                    Ok(got) if got < want => return Ok(Ok(None)),
                    Ok(_) if !hole => hasher.data(&room[..want]),
                    Ok(_) if is_zero(&room[..want]) => {}
                    Ok(_) => return Ok(Ok(None)),
                    Err(error) => return Ok(Err(error)),
                }
                at += want as u64;
                if hole {
                    at = next_data(file, at, end);
                }
            }
        }
        Ok(Ok(Some(hasher.finish())))
    }

    fn announce(&mut self, entry: &Frame<'_>) -> Result<(), Stop> {
        // Counted before the peer can have read it.
        self.shared.announce_entry();
        Ok(self.out.put_recorded(entry)?)
    }

    fn omit(&mut self, path: &Path, error: &io::Error) {
        self.failures.count += 1;
        let failure = Failure { side: Side::Here, text: describe(path, error) };
        (self.observe)(Event::Failed(&failure));
        self.failures.keep(failure);
    }

    /// What is to be done between any two frames.
    fn look_up(&mut self) -> Result<(), Stop> {
        if self.options.cancel.is_cancelled() {
            return Err(Stop::Interrupted);
        }
        if self.shared.is_silent() {
            return Err(Stop::PeerSilent);
        }
        self.pass_failures_on();
        if !self.totals_said
            && let Some(totals) = self.totals.get()
        {
            self.totals_said = true;
            self.out.put(&Frame::Totals { files: totals.files, bytes: totals.bytes })?;
        }
        Ok(())
    }

    fn pass_failures_on(&mut self) {
        for failure in self.shared.take_failures() {
            (self.observe)(Event::Failed(&failure));
            self.failures.keep(failure);
        }
    }

    fn progress(&mut self, current: &Path) {
        let totals = self.totals.get();
        (self.observe)(Event::Progress(Progress {
            files_done: self.tally.files,
            files_total: totals.map(|totals| totals.files),
            bytes_done: self.bytes_done,
            bytes_total: totals.map(|totals| totals.bytes),
            data_bytes: self.data_bytes,
            current,
        }));
    }

    /// Tells the peer that nothing more comes. Whether it can hear that is its own affair.
    fn abort(&mut self, reason: AbortReason, text: &[u8]) {
        let _ = self.out.put(&Frame::Abort { reason, text }).and_then(|()| self.out.flush());
    }

    fn conclude(mut self, sent: Result<(), Stop>, last: LastWord) -> Result<Summary, SendError> {
        self.pass_failures_on();
        match &last {
            LastWord::Receipt { .. } => {}
            LastWord::Abort { .. } if matches!(sent, Err(Stop::Interrupted)) => {}
            LastWord::Abort { .. } => self.abort(AbortReason::Agreed, b""),
            LastWord::Violation(_) => self.abort(AbortReason::Protocol, b""),
            LastWord::Closed | LastWord::Stream(_) => {}
        }
        match (sent, last) {
            (Ok(()), LastWord::Receipt { tally, failed, transcript }) => {
                self.receipt(tally, failed, transcript)
            }
            _ if self.options.cancel.is_cancelled() => Err(SendError::Interrupted),
            (_, LastWord::Abort { reason, text }) => Err(refusal(reason, text)),
            (_, LastWord::Violation(rule)) => Err(SendError::ProtocolViolation(rule)),
            (_, LastWord::Stream(error)) | (Err(Stop::Stream(error)), _) => {
                Err(SendError::Stream(error))
            }
            (_, LastWord::Closed | LastWord::Receipt { .. }) => Err(SendError::PeerVanished),
        }
    }

    fn receipt(
        mut self,
        tally: Tally,
        failed: u64,
        transcript: Digest,
    ) -> Result<Summary, SendError> {
        let expected = (self.tally, self.out.transcript());
        if (tally, transcript) != expected || failed > self.shared.announced() {
            self.abort(AbortReason::Verification, b"");
            return Err(SendError::ReceiptMismatch);
        }
        // Only a courtesy: the receiver may close now instead of soon.
        let _ = self.out.put(&Frame::Done).and_then(|()| self.out.flush());
        self.failures.count += failed;
        let data_bytes = self.data_bytes;
        let summary = Summary { tally, data_bytes, skipped: self.skipped, transcript };
        match self.failures.count {
            0 => Ok(summary),
            _ => {
                let failures = std::mem::take(&mut self.failures);
                Err(SendError::Incomplete { summary, failures })
            }
        }
    }
}

impl<W: Write> Drop for Sending<'_, W> {
    /// The observer is the caller's and may panic. The listener would then wait for a peer that
    /// waits for us; the peer's answer to an abort lets it end.
    fn drop(&mut self) {
        if thread::panicking() {
            self.abort(AbortReason::Failed, b"the sender failed");
        }
    }
}

fn refusal(reason: AbortReason, text: Vec<u8>) -> SendError {
    let message = printable(&text);
    match reason {
        AbortReason::Refused => SendError::Refused { message },
        AbortReason::Verification if text.is_empty() => SendError::ReceiptMismatch,
        AbortReason::Verification => {
            SendError::VerificationFailed { path: std::ffi::OsString::from_vec(text).into() }
        }
        _ => SendError::Remote { message },
    }
}

/// Reads until `room` is full or the file ends.
fn read_full(file: &File, room: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < room.len() {
        match file.read_at(&mut room[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sending<'a>(
        shared: &'a Shared,
        options: &'a SendOptions,
        totals: &'a OnceLock<Totals>,
        observe: &'a mut dyn FnMut(Event<'_>),
    ) -> Sending<'a, Vec<u8>> {
        let out = FrameWriter::new(Vec::new(), 2 * (HEADER + CHUNK));
        Sending::new(out, shared, options, totals, observe)
    }

    /// Takes everything, and adds to a file and writes over some of it as it does.
    struct Meddling {
        file: File,
        over: Option<u64>,
        count: u8,
    }

    impl Write for Meddling {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.count = self.count.wrapping_add(1);
            if let Some(offset) = self.over {
                self.file.write_all_at(&[self.count], offset)?;
            }
            self.file.write_all_at(b"more", self.file.metadata()?.len())?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Sends a file that grows meanwhile and is written to at `over`; whether it is `sent` or fails.
    fn send_growing(path: PathBuf, file: File, over: Option<u64>, sent: bool) {
        let sources = resolve(&[path]).unwrap();
        let (options, totals) = (SendOptions::default(), OnceLock::new());
        let shared = Shared::default();
        let mut ignore = |_: Event<'_>| {};
        let to = Meddling { file, over, count: 0 };
        let out = FrameWriter::new(to, 2 * (HEADER + CHUNK));
        let mut sending = Sending::new(out, &shared, &options, &totals, &mut ignore);
        sending.everything(&sources).unwrap();
        assert_eq!(sending.failures.count, u64::from(!sent), "{over:?}");
        assert_eq!(sending.tally.files, u64::from(sent), "{over:?}");
    }

    #[test]
    fn a_file_that_only_grows_is_sent_as_it_was_announced() {
        // Longer than what a writer may hold back.
        let size = 20 * CHUNK;
        // At its beginning, and between pieces of which none is the first or the last.
        for (over, sent) in [(None, true), (Some(0), false), (Some(3 * CHUNK as u64 + 7), false)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            std::fs::write(&path, vec![200; size]).unwrap();
            let file = File::options().read(true).write(true).open(&path).unwrap();
            send_growing(path, file, over, sent);
        }
    }

    #[test]
    fn a_file_with_holes_that_grows_is_sent_unless_a_hole_is_written_to() {
        // A hole that is read before anything is written, data, and a hole at the end.
        let (begin, length) = (4 << 20, 20 * CHUNK);
        for (over, sent) in [(None, true), (Some((1 << 20) + 5), false)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("image");
            let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            file.write_all_at(&vec![200; length], begin).unwrap();
            file.set_len(begin + length as u64 + (4 << 20) + 5).unwrap();
            send_growing(path, file, over, sent);
        }
    }

    #[test]
    fn a_sender_stops_when_the_receiver_has_said_its_last_word() {
        let dir = tempfile::tempdir().unwrap();
        let sources = resolve(&[dir.path().to_owned()]).unwrap();
        let (options, totals) = (SendOptions::default(), OnceLock::new());
        let shared = Shared::default();
        let mut ignore = |_: Event<'_>| {};
        let all = sending(&shared, &options, &totals, &mut ignore).everything(&sources);
        assert!(all.is_ok());
        let last = listen(FrameReader::new(&[][..], MAX_REPLY), &shared);
        assert!(matches!(last, LastWord::Closed));
        let none = sending(&shared, &options, &totals, &mut ignore).everything(&sources);
        assert!(matches!(none, Err(Stop::PeerSilent)));
        options.cancel.cancel();
        let none = sending(&shared, &options, &totals, &mut ignore).everything(&sources);
        assert!(matches!(none, Err(Stop::Interrupted)));
    }
}
