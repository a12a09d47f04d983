//! Frames on a byte stream: buffered both ways, nothing copied twice.

use std::io::{self, ErrorKind, Read, Write};

use crate::digest::{Digest, Transcript};
use crate::error::Violation;
use crate::frame::{DecodeError, Frame, HEADER, Header, Preamble, Role, VERSION, data_header};

/// The data in one frame as we send it, in bytes. A quarter of what is allowed: large enough for
/// BLAKE3's wide paths, small enough to stay in the second-level cache.
pub(crate) const CHUNK: usize = 256 << 10;

/// Reads frames in place from one buffer.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    stream: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    max_body: usize,
}

/// A frame and its bytes on the wire.
pub(crate) struct Received<'a> {
    pub(crate) frame: Frame<'a>,
    pub(crate) bytes: &'a [u8],
}

/// Why there is no further frame.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The stream ended, between frames or within one.
    Closed,
    /// The stream failed.
    Stream(io::Error),
    /// The peer sent what is no frame.
    Violation(Violation),
}

impl<R: Read> FrameReader<R> {
    /// `max_body`: the longest body that this direction may carry, in bytes.
    pub(crate) fn new(stream: R, max_body: usize) -> Self {
        // Room for one largest frame and a good part of the next, so that few are moved.
        let buffer = vec![0; HEADER + max_body + max_body / 2];
        FrameReader { stream, buffer, start: 0, end: 0, max_body }
    }

    /// Reads and checks the peer's preamble. `ours` is this side's role.
    pub(crate) fn preamble(&mut self, ours: Role) -> Result<(), PreambleError> {
        self.fill(Preamble::SIZE).map_err(|error| match error {
            // Which of the two a stream says when its time-out is over depends on the system.
            ReadError::Stream(error)
                if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) =>
            {
                PreambleError::Silent
            }
            error => PreambleError::Read(error),
        })?;
        let bytes = self.buffer[self.start..].first_chunk().expect("filled");
        let theirs = Preamble::decode(*bytes).ok_or(Violation::NotThisProtocol)?;
        self.start += Preamble::SIZE;
        if theirs.version != VERSION {
            return Err(PreambleError::Version(theirs.version));
        }
        if theirs.role == ours {
            return Err(Violation::SameRole.into());
        }
        Ok(())
    }

    /// Waits for the next frame.
    pub(crate) fn next(&mut self) -> Result<Received<'_>, ReadError> {
        self.fill(HEADER)?;
        let header = *self.buffer[self.start..].first_chunk().expect("filled");
        let header = Header::decode(header)?;
        if header.length() > self.max_body {
            return Err(ReadError::Violation(Violation::Unexpected));
        }
        let length = HEADER + header.length();
        self.fill(length)?;
        let bytes = &self.buffer[self.start..self.start + length];
        self.start += length;
        Ok(Received { frame: Frame::decode_body(header, &bytes[HEADER..])?, bytes })
    }

    /// Waits until `needed` unread bytes are in the buffer.
    fn fill(&mut self, needed: usize) -> Result<(), ReadError> {
        while self.end - self.start < needed {
            if self.start == self.end {
                self.start = 0;
                self.end = 0;
            } else if self.start + needed > self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(ReadError::Closed),
                Ok(n) => self.end += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                    ) =>
                {
                    return Err(ReadError::Closed);
                }
                Err(error) => return Err(ReadError::Stream(error)),
            }
        }
        Ok(())
    }
}

impl From<DecodeError> for ReadError {
    fn from(error: DecodeError) -> Self {
        ReadError::Violation(Violation::Malformed(error))
    }
}

/// Why the two sides do not start.
#[derive(Debug)]
pub(crate) enum PreambleError {
    Read(ReadError),
    /// The stream's time-out is over.
    Silent,
    Version(u16),
}

impl From<ReadError> for PreambleError {
    fn from(error: ReadError) -> Self {
        PreambleError::Read(error)
    }
}

impl From<Violation> for PreambleError {
    fn from(violation: Violation) -> Self {
        PreambleError::Read(ReadError::Violation(violation))
    }
}

/// Gathers frames and writes them in large pieces.
#[derive(Debug)]
pub(crate) struct FrameWriter<W> {
    stream: W,
    buffer: Vec<u8>,
    used: usize,
    scratch: Vec<u8>,
    transcript: Transcript,
}

impl<W: Write> FrameWriter<W> {
    /// `capacity`: bytes gathered before a write; at least the longest frame that is not data.
    pub(crate) fn new(stream: W, capacity: usize) -> Self {
        let transcript = Transcript::default();
        FrameWriter { stream, buffer: vec![0; capacity], used: 0, scratch: Vec::new(), transcript }
    }

    /// Writes this side's preamble at once.
    pub(crate) fn preamble(&mut self, role: Role) -> io::Result<()> {
        self.stream.write_all(&Preamble { version: VERSION, role }.encode())?;
        self.stream.flush()
    }

    /// Adds a frame.
    pub(crate) fn put(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        self.scratch.clear();
        frame.encode(&mut self.scratch);
        self.make_room(self.scratch.len())?;
        self.buffer[self.used..][..self.scratch.len()].copy_from_slice(&self.scratch);
        self.used += self.scratch.len();
        Ok(())
    }

    /// Adds a frame that is part of the transcript.
    pub(crate) fn put_recorded(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        self.put(frame)?;
        self.transcript.frame(&self.scratch);
        Ok(())
    }

    /// Room for a data frame of up to `length` bytes, to read into. [`commit_data`] makes what was
    /// read a frame.
    ///
    /// [`commit_data`]: FrameWriter::commit_data
    pub(crate) fn data_room(&mut self, length: usize) -> io::Result<&mut [u8]> {
        self.make_room(HEADER + length)?;
        Ok(&mut self.buffer[self.used + HEADER..][..length])
    }

    /// Makes the first `length` bytes of the room a data frame; nothing if there are none.
    pub(crate) fn commit_data(&mut self, length: usize) {
        if length > 0 {
            self.buffer[self.used..][..HEADER].copy_from_slice(&data_header(length));
            self.used += HEADER + length;
        }
    }

    /// Hands everything to the stream and flushes it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.write_out()?;
        self.stream.flush()
    }

    /// The digest of the frames recorded so far.
    pub(crate) fn transcript(&self) -> Digest {
        self.transcript.digest()
    }

    fn make_room(&mut self, length: usize) -> io::Result<()> {
        if self.used + length > self.buffer.len() {
            self.write_out()?;
        }
        Ok(())
    }

    fn write_out(&mut self) -> io::Result<()> {
        let used = std::mem::take(&mut self.used);
        self.stream.write_all(&self.buffer[..used])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::MAX_DATA;

    /// Gives at most `step` bytes a read.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(out.len()).min(self.0.len());
            let (now, rest) = self.0.split_at(n);
            out[..n].copy_from_slice(now);
            self.0 = rest;
            Ok(n)
        }
    }

    #[test]
    fn frames_arrive_whole_however_they_are_cut() {
        let mut wire = Vec::new();
        let mut writer = FrameWriter::new(&mut wire, 64);
        writer.preamble(Role::Sender).unwrap();
        let contents: Vec<Vec<u8>> = (1..40u8).map(|n| vec![n; usize::from(n)]).collect();
        for content in &contents {
            let room = writer.data_room(50).unwrap();
            room[..content.len()].copy_from_slice(content);
            writer.commit_data(content.len());
            writer.put(&Frame::Leave).unwrap();
        }
        writer.commit_data(0);
        writer.flush().unwrap();
        for step in [1, 2, 3, 7, 64, 1000] {
            let mut reader = FrameReader::new(Trickle(&wire, step), 60);
            reader.preamble(Role::Receiver).unwrap();
            for content in &contents {
                assert_eq!(reader.next().unwrap().frame, Frame::Data(content));
                let leave = reader.next().unwrap();
                assert_eq!((leave.frame, leave.bytes), (Frame::Leave, &[2u8, 0, 0, 0, 0][..]));
            }
            assert!(matches!(reader.next(), Err(ReadError::Closed)));
        }
    }

    #[test]
    fn the_largest_frame_passes() {
        let mut wire = data_header(MAX_DATA).to_vec();
        wire.resize(HEADER + MAX_DATA, 3);
        let twice = [&wire[..], &wire[..]].concat();
        let mut reader = FrameReader::new(Trickle(&twice, 100_000), MAX_DATA);
        for _ in 0..2 {
            assert_eq!(reader.next().unwrap().frame, Frame::Data(&wire[HEADER..]));
        }
    }

    #[test]
    fn an_end_inside_a_frame_is_an_end() {
        let mut reader = FrameReader::new(&[4u8, 0, 0, 0, 9, 1][..], 100);
        assert!(matches!(reader.next(), Err(ReadError::Closed)));
    }

    #[test]
    fn a_frame_over_this_direction_s_bound_is_refused_before_it_is_read() {
        let header = data_header(101);
        let mut reader = FrameReader::new(&header[..], 100);
        let error = reader.next().map(|_| ()).unwrap_err();
        assert!(matches!(error, ReadError::Violation(Violation::Unexpected)));
    }

    #[test]
    fn preambles_are_checked() {
        let check = |bytes: &[u8]| FrameReader::new(bytes, 100).preamble(Role::Receiver);
        let good = Preamble { version: VERSION, role: Role::Sender };
        assert!(check(&good.encode()).is_ok());
        assert!(matches!(
            check(&Preamble { role: Role::Receiver, ..good }.encode()),
            Err(PreambleError::Read(ReadError::Violation(Violation::SameRole)))
        ));
        assert!(matches!(
            check(&Preamble { version: 7, ..good }.encode()),
            Err(PreambleError::Version(7))
        ));
        assert!(matches!(
            check(b"SSH-2.0-OpenSSH_9.9\r\n"),
            Err(PreambleError::Read(ReadError::Violation(Violation::NotThisProtocol)))
        ));
        assert!(matches!(check(b"\xffA"), Err(PreambleError::Read(ReadError::Closed))));
    }
}
