//! Records on the stream: a length of four bytes, then what is sealed. An empty record is the end.

use core::fmt;
use core::ops::Range;
use std::io::{self, ErrorKind, Read, Write};

use crate::handshake::Session;
use crate::schedule::{Schedule, TAG};

/// The most that one record holds, bytes: the mover's largest frame and its header.
pub const MAX_RECORD: usize = (256 << 10) + 64;
const HEADER: usize = 4;

/// Seals what is written to it, and writes that to a stream.
///
/// What is written is kept until a record is full or [`Write::flush`] is called. Without
/// [`Sealer::finish`] the peer takes the end of the stream for an attack.
pub struct Sealer<W> {
    stream: W,
    schedule: Schedule,
    /// Room for the header, and what waits.
    record: Vec<u8>,
}

impl<W: Write> Sealer<W> {
    /// Seals with this side's keys of `session`.
    pub fn new(stream: W, session: &Session) -> Self {
        let mut record = Vec::with_capacity(HEADER + MAX_RECORD + TAG);
        record.resize(HEADER, 0);
        Sealer { stream, schedule: session.sending(), record }
    }

    /// Says that this was all, and returns the stream.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        self.write_record()?;
        self.stream.flush()?;
        Ok(self.stream)
    }

    /// Seals and writes what waits, even if that is nothing.
    fn write_record(&mut self) -> io::Result<()> {
        let length = (self.record.len() - HEADER + TAG) as u32;
        self.record[..HEADER].copy_from_slice(&length.to_be_bytes());
        let (header, body) = self.record.split_at_mut(HEADER);
        let tag = self.schedule.seal(header, body);
        self.record.extend_from_slice(&tag);
        let written = self.stream.write_all(&self.record);
        self.record.truncate(HEADER);
        written
    }
}

impl<W: Write> Write for Sealer<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let room = MAX_RECORD - (self.record.len() - HEADER);
        let taken = &data[..data.len().min(room)];
        self.record.extend_from_slice(taken);
        if taken.len() == room {
            self.write_record()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.record.len() > HEADER {
            self.write_record()?;
        }
        self.stream.flush()
    }
}

impl<W> fmt::Debug for Sealer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

/// Reads records from a stream, and gives out what is in them.
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

    /// Reads the next record. What has come of it is kept if the stream's time-out is over.
    fn read_record(&mut self) -> io::Result<()> {
        self.fill(HEADER)?;
        let header: [u8; HEADER] = *self.record.first_chunk().expect("filled");
        let length = u32::from_be_bytes(header) as usize;
        if !(TAG..=MAX_RECORD + TAG).contains(&length) {
            return Err(forged());
        }
        self.fill(HEADER + length)?;
        self.filled = 0;
        let sealed = &mut self.record[HEADER..HEADER + length];
        let body = self.schedule.open(&header, sealed).ok_or_else(forged)?;
        self.unread = HEADER..HEADER + body.len();
        if self.unread.is_empty() {
            self.state = State::Ended;
        }
        Ok(())
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
            self.read_record().inspect_err(|error| {
                if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) {
                    self.state = State::Broken;
                }
            })?;
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
