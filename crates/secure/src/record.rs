//! Records on the stream: a length of four bytes, then what is sealed. An empty record is the end.

use core::fmt;
use core::ops::Range;
use std::io::{self, ErrorKind, Read, Write};

use crate::handshake::Session;
use crate::schedule::{Schedule, TAG};

/// The most that one record holds, bytes: the mover's largest frame and its header.
pub const MAX_RECORD: usize = (256 << 10) + 64;
const HEADER: usize = 4;

/// Data of which at least so much is written at once is sealed at once, without waiting for more.
const AT_ONCE: usize = 64 << 10;
/// What waits is sent together with such data if it is no more than this: a frame's header.
const AHEAD: usize = 4 << 10;

/// Seals what is written to it, and writes that to a stream.
///
/// What is written is kept until a record is full or [`Write::flush`] is called. [`Write::write_all`]
/// of 64 KiB and more seals and writes at once, straight from the caller's memory, in records that
/// hold nothing else, so that an [`Opener`] that is read in the same blocks need not copy either.
/// Without [`Sealer::finish`] the peer takes the end of the stream for an attack. After an error
/// of the stream nothing more is written.
pub struct Sealer<W> {
    stream: W,
    schedule: Schedule,
    /// Room for the header, what waits or a full record, and its tag; then for a small record ahead.
    room: Box<[u8]>,
    /// Bytes that wait, behind the room for a header.
    waiting: usize,
    broken: bool,
}

impl<W: Write> Sealer<W> {
    /// Seals with this side's keys of `session`.
    pub fn new(stream: W, session: &Session) -> Self {
        let room = vec![0; AHEAD + 2 * (HEADER + TAG) + MAX_RECORD].into();
        Sealer { stream, schedule: session.sending(), room, waiting: 0, broken: false }
    }

    /// Says that this was all, and returns the stream.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        let end = self.seal_waiting();
        self.send(end)?;
        self.stream.flush()?;
        Ok(self.stream)
    }

    /// Seals what waits where it is, even if that is nothing; returns where the record ends.
    fn seal_waiting(&mut self) -> usize {
        let length = std::mem::take(&mut self.waiting);
        let header = header(length);
        self.room[..HEADER].copy_from_slice(&header);
        let (body, rest) = self.room[HEADER..].split_at_mut(length);
        let tag = self.schedule.seal(&header, body);
        rest[..TAG].copy_from_slice(&tag);
        HEADER + length + TAG
    }

    /// Seals `data` into the room from `at` on; returns where the record ends.
    fn seal_from(&mut self, data: &[u8], at: usize) -> usize {
        let header = header(data.len());
        let record = &mut self.room[at..at + HEADER + data.len() + TAG];
        record[..HEADER].copy_from_slice(&header);
        self.schedule.seal_from(&header, data, &mut record[HEADER..]);
        at + HEADER + data.len() + TAG
    }

    fn send(&mut self, end: usize) -> io::Result<()> {
        self.sound()?;
        let written = self.stream.write_all(&self.room[..end]);
        // The peer may have a part of it: what came after would not open.
        self.broken = written.is_err();
        written
    }

    fn sound(&self) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::new(ErrorKind::BrokenPipe, "an earlier record was cut"));
        }
        Ok(())
    }
}

/// The length of a record of so many bytes.
fn header(length: usize) -> [u8; HEADER] {
    ((length + TAG) as u32).to_be_bytes()
}

impl<W: Write> Write for Sealer<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.sound()?;
        if self.waiting == 0 && data.len() >= MAX_RECORD {
            let end = self.seal_from(&data[..MAX_RECORD], 0);
            return self.send(end).map(|()| MAX_RECORD);
        }
        let taken = data.len().min(MAX_RECORD - self.waiting);
        let at = HEADER + self.waiting;
        self.room[at..at + taken].copy_from_slice(&data[..taken]);
        self.waiting += taken;
        if self.waiting == MAX_RECORD {
            let end = self.seal_waiting();
            self.send(end)?;
        }
        Ok(taken)
    }

    fn write_all(&mut self, mut data: &[u8]) -> io::Result<()> {
        if data.len() < AT_ONCE {
            while !data.is_empty() {
                let taken = self.write(data)?;
                data = &data[taken..];
            }
            return Ok(());
        }
        self.sound()?;
        let mut at = 0;
        if self.waiting > 0 {
            at = self.seal_waiting();
            if at > HEADER + AHEAD + TAG {
                self.send(at)?;
                at = 0;
            }
        }
        // Alike, so that the last is not a small one.
        let records = data.len().div_ceil(MAX_RECORD);
        for part in data.chunks(data.len().div_ceil(records)) {
            let end = self.seal_from(part, at);
            self.send(end)?;
            at = 0;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sound()?;
        if self.waiting > 0 {
            let end = self.seal_waiting();
            self.send(end)?;
        }
        self.stream.flush()
    }
}

impl<W> fmt::Debug for Sealer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

/// Reads records from a stream, and gives out what is in them. A record that the caller has room for
/// is opened straight into that, others are copied from this side's own.
///
/// An end without the peer's word for it is [`ErrorKind::UnexpectedEof`], a record that is not the
/// one the peer sealed [`ErrorKind::InvalidData`]; after either nothing more is read.
pub struct Opener<R> {
    stream: R,
    schedule: Schedule,
    /// The record with its header, and how much of it has come.
    record: Vec<u8>,
    filled: usize,
    /// What of it has been opened and not been read.
    unread: Range<usize>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Ended,
    Broken,
}

impl<R: Read> Opener<R> {
    /// Opens with the peer's keys of `session`.
    pub fn new(stream: R, session: &Session) -> Self {
        Opener {
            stream,
            schedule: session.receiving(),
            record: Vec::new(),
            filled: 0,
            unread: 0..0,
            state: State::Open,
        }
    }

    /// Reads the next record into `out` if it has room for all of it, else into this side's own
    /// memory; returns how much is in `out`. What has come of the record is kept if the stream's
    /// time-out is over.
    fn read_record(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.fill(HEADER)?;
        let header: [u8; HEADER] = *self.record.first_chunk().expect("filled");
        let length = u32::from_be_bytes(header) as usize;
        if !(TAG..=MAX_RECORD + TAG).contains(&length) {
            return Err(forged());
        }
        self.fill(HEADER + length)?;
        self.filled = 0;
        let sealed = &mut self.record[HEADER..HEADER + length];
        let body = length - TAG;
        if body == 0 {
            self.schedule.open(&header, sealed).ok_or_else(forged)?;
            self.state = State::Ended;
            return Ok(0);
        }
        if let Some(out) = out.get_mut(..body) {
            self.schedule.open_into(&header, sealed, out).ok_or_else(forged)?;
            return Ok(body);
        }
        self.schedule.open(&header, sealed).ok_or_else(forged)?;
        self.unread = HEADER..HEADER + body;
        Ok(0)
    }

    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.record.len() < wanted {
            self.record.resize(wanted, 0);
        }
        while self.filled < wanted {
            match self.stream.read(&mut self.record[self.filled..wanted]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn forged() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "what came was not sealed by the peer")
}

impl<R: Read> Read for Opener<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        while self.unread.is_empty() {
            match self.state {
                State::Ended => return Ok(0),
                State::Broken => return Err(forged()),
                State::Open => {}
            }
            let count = self.read_record(out).inspect_err(|error| {
                if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) {
                    self.state = State::Broken;
                }
            })?;
            if count > 0 {
                return Ok(count);
            }
        }
        let unread = &self.record[self.unread.clone()];
        let count = unread.len().min(out.len());
        out[..count].copy_from_slice(&unread[..count]);
        self.unread.start += count;
        Ok(count)
    }
}

impl<R> fmt::Debug for Opener<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
