//! Frames to bytes and back.

use super::{AbortReason, Attributes, Frame, MAX_DATA, MAX_TARGET, MAX_TEXT, Tally, Timestamp};
use crate::name::{BadName, MAX_NAME, Name};

/// Bytes of a frame before its body.
pub const HEADER: usize = 5;

/// A frame's type and the length of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    kind: Kind,
    length: usize,
}

impl Header {
    /// Reads a header and checks the length against the bound of the type.
    pub fn decode(bytes: [u8; HEADER]) -> Result<Self, DecodeError> {
        let [kind, length @ ..] = bytes;
        let kind = Kind::from_byte(kind).ok_or(DecodeError::UnknownType(kind))?;
        let length = u32::from_be_bytes(length) as usize;
        if length > kind.max_body() {
            return Err(DecodeError::TooLong { kind: kind as u8, length });
        }
        Ok(Header { kind, length })
    }

    /// Bytes of body that follow, at most [`MAX_DATA`].
    pub fn length(self) -> usize {
        self.length
    }
}

impl<'a> Frame<'a> {
    /// Reads the frame at the front of `bytes`. `None`: more bytes are needed. Otherwise the frame
    /// and the number of bytes that it took.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let header = Header::decode(*header)?;
        match rest.get(..header.length) {
            Some(body) => Ok(Some((Self::decode_body(header, body)?, HEADER + header.length))),
            None => Ok(None),
        }
    }

    /// Reads a frame from its body, which has `header.length()` bytes.
    pub fn decode_body(header: Header, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields(body);
        let frame = match header.kind {
            Kind::Directory => {
                Frame::Directory { name: fields.name()?, attributes: fields.attributes()? }
            }
            Kind::Leave => Frame::Leave,
            Kind::File => Frame::File {
                name: fields.name()?,
                attributes: fields.attributes()?,
                size: fields.file_offset("file size")?,
            },
            Kind::Data => Frame::Data(fields.nonempty("data")?),
            Kind::Hole => match fields.file_offset("hole length")? {
                0 => return Err(DecodeError::BadValue("hole length")),
                length => Frame::Hole { length },
            },
            Kind::FileEnd => Frame::FileEnd { digest: fields.array()? },
            Kind::FileDropped => Frame::FileDropped,
            Kind::Symlink => Frame::Symlink {
                name: fields.name()?,
                attributes: fields.attributes()?,
                target: fields.link_target()?,
            },
            Kind::Totals => Frame::Totals { files: fields.u64()?, bytes: fields.u64()? },
            Kind::End => Frame::End {
                tally: fields.tally()?,
                omitted: fields.u64()?,
                transcript: fields.array()?,
            },
            Kind::Done => Frame::Done,
            Kind::Abort => Frame::Abort { reason: fields.reason()?, text: fields.rest() },
            Kind::Failed => Frame::Failed { entry: fields.u64()?, text: fields.rest() },
            Kind::Receipt => Frame::Receipt {
                tally: fields.tally()?,
                failed: fields.u64()?,
                transcript: fields.array()?,
            },
        };
        if fields.0.is_empty() { Ok(frame) } else { Err(DecodeError::Trailing) }
    }

    /// Appends the frame's bytes to `out`. A text longer than [`MAX_TEXT`] is cut. The caller
    /// keeps data, sizes and link targets within the bounds given at the variants.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&data_header_of(self.kind(), 0));
        match self {
            Frame::Leave | Frame::FileDropped | Frame::Done => {}
            Frame::Directory { name, attributes } => put_entry(out, *name, attributes),
            Frame::File { name, attributes, size } => {
                put_entry(out, *name, attributes);
                out.extend_from_slice(&size.to_be_bytes());
            }
            Frame::Data(data) => out.extend_from_slice(data),
            Frame::Hole { length } => out.extend_from_slice(&length.to_be_bytes()),
            Frame::FileEnd { digest } => out.extend_from_slice(digest),
            Frame::Symlink { name, attributes, target } => {
                put_entry(out, *name, attributes);
                out.extend_from_slice(target);
            }
            Frame::Totals { files, bytes } => {
                out.extend_from_slice(&files.to_be_bytes());
                out.extend_from_slice(&bytes.to_be_bytes());
            }
            Frame::End { tally, omitted: count, transcript }
            | Frame::Receipt { tally, failed: count, transcript } => {
                for number in [tally.files, tally.directories, tally.symlinks, tally.bytes, *count]
                {
                    out.extend_from_slice(&number.to_be_bytes());
                }
                out.extend_from_slice(transcript);
            }
            Frame::Abort { reason, text } => {
                out.push(*reason as u8);
                out.extend_from_slice(&text[..text.len().min(MAX_TEXT)]);
            }
            Frame::Failed { entry, text } => {
                out.extend_from_slice(&entry.to_be_bytes());
                out.extend_from_slice(&text[..text.len().min(MAX_TEXT)]);
            }
        }
        let length = out.len() - start - HEADER;
        debug_assert!(length <= self.kind().max_body(), "frame body over its bound");
        out[start..start + HEADER].copy_from_slice(&data_header_of(self.kind(), length));
    }

    fn kind(&self) -> Kind {
        match self {
            Frame::Directory { .. } => Kind::Directory,
            Frame::Leave => Kind::Leave,
            Frame::File { .. } => Kind::File,
            Frame::Data(_) => Kind::Data,
            Frame::Hole { .. } => Kind::Hole,
            Frame::FileEnd { .. } => Kind::FileEnd,
            Frame::FileDropped => Kind::FileDropped,
            Frame::Symlink { .. } => Kind::Symlink,
            Frame::Totals { .. } => Kind::Totals,
            Frame::End { .. } => Kind::End,
            Frame::Done => Kind::Done,
            Frame::Abort { .. } => Kind::Abort,
            Frame::Failed { .. } => Kind::Failed,
            Frame::Receipt { .. } => Kind::Receipt,
        }
    }
}

/// The header of a data frame of `length` bytes, for data that is read straight into place.
pub(crate) fn data_header(length: usize) -> [u8; HEADER] {
    data_header_of(Kind::Data, length)
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A name that could lead out of its directory, or is none.
    #[error(transparent)]
    BadName(#[from] BadName),
    /// A field has a value that it must not have.
    #[error("a frame with a bad {0}")]
    BadValue(&'static str),
    /// The body ends inside a field.
    #[error("a frame that is too short")]
    Short,
    /// The body is longer than this type allows.
    #[error("a frame of type {kind} with {length} bytes of body")]
    TooLong {
        /// The type byte.
        kind: u8,
        /// The length that the header gives, in bytes.
        length: usize,
    },
    /// The body goes on after its last field.
    #[error("a frame with bytes after its end")]
    Trailing,
    /// No frame has this type byte.
    #[error("a frame of unknown type {0}")]
    UnknownType(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Directory = 1,
    Leave = 2,
    File = 3,
    Data = 4,
    Hole = 5,
    FileEnd = 6,
    FileDropped = 7,
    Symlink = 8,
    Totals = 9,
    End = 10,
    Done = 11,
    Abort = 12,
    Failed = 13,
    Receipt = 14,
}

impl Kind {
    const ALL: [Kind; 14] = [
        Kind::Directory,
        Kind::Leave,
        Kind::File,
        Kind::Data,
        Kind::Hole,
        Kind::FileEnd,
        Kind::FileDropped,
        Kind::Symlink,
        Kind::Totals,
        Kind::End,
        Kind::Done,
        Kind::Abort,
        Kind::Failed,
        Kind::Receipt,
    ];

    fn from_byte(byte: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }

    fn max_body(self) -> usize {
        const ENTRY: usize = 1 + MAX_NAME + ATTRIBUTES;
        match self {
            Kind::Leave | Kind::FileDropped | Kind::Done => 0,
            Kind::Directory => ENTRY,
            Kind::File => ENTRY + 8,
            Kind::Symlink => ENTRY + MAX_TARGET,
            Kind::Data => MAX_DATA,
            Kind::Hole => 8,
            Kind::FileEnd => 32,
            Kind::Totals => 16,
            Kind::End | Kind::Receipt => 40 + 32,
            Kind::Abort => 1 + MAX_TEXT,
            Kind::Failed => 8 + MAX_TEXT,
        }
    }
}

/// Bytes of [`Attributes`]: mode, two times.
const ATTRIBUTES: usize = 2 + 2 * 12;

fn data_header_of(kind: Kind, length: usize) -> [u8; HEADER] {
    let [a, b, c, d] = (length as u32).to_be_bytes();
    [kind as u8, a, b, c, d]
}

fn put_entry(out: &mut Vec<u8>, name: Name<'_>, attributes: &Attributes) {
    out.push(name.bytes().len() as u8);
    out.extend_from_slice(name.bytes());
    out.extend_from_slice(&attributes.mode.to_be_bytes());
    for time in [attributes.accessed, attributes.modified] {
        out.extend_from_slice(&time.seconds.to_be_bytes());
        out.extend_from_slice(&time.nanoseconds.to_be_bytes());
    }
}

/// What is left of a body.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*array)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A size or length that the file interface can express.
    fn file_offset(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let offset = self.u64()?;
        if offset > i64::MAX as u64 { Err(DecodeError::BadValue(what)) } else { Ok(offset) }
    }

    fn name(&mut self) -> Result<Name<'a>, DecodeError> {
        let [length] = self.array()?;
        let (name, rest) = self.0.split_at_checked(length.into()).ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(Name::new(name)?)
    }

    fn attributes(&mut self) -> Result<Attributes, DecodeError> {
        let mode = u16::from_be_bytes(self.array()?);
        if mode > 0o7777 {
            return Err(DecodeError::BadValue("mode"));
        }
        Ok(Attributes { mode, accessed: self.time()?, modified: self.time()? })
    }

    fn time(&mut self) -> Result<Timestamp, DecodeError> {
        let seconds = i64::from_be_bytes(self.array()?);
        let nanoseconds = u32::from_be_bytes(self.array()?);
        // Values above have special meanings for utimensat ("now", "leave alone").
        if nanoseconds >= 1_000_000_000 {
            return Err(DecodeError::BadValue("time"));
        }
        Ok(Timestamp { seconds, nanoseconds })
    }

    fn tally(&mut self) -> Result<Tally, DecodeError> {
        Ok(Tally {
            files: self.u64()?,
            directories: self.u64()?,
            symlinks: self.u64()?,
            bytes: self.u64()?,
        })
    }

    fn reason(&mut self) -> Result<AbortReason, DecodeError> {
        Ok(match self.array()? {
            [0] => AbortReason::Failed,
            [1] => AbortReason::Interrupted,
            [2] => AbortReason::Protocol,
            [3] => AbortReason::Refused,
            [4] => AbortReason::Verification,
            [5] => AbortReason::Agreed,
            [6] => AbortReason::Unfit,
            _ => return Err(DecodeError::BadValue("reason")),
        })
    }

    fn link_target(&mut self) -> Result<&'a [u8], DecodeError> {
        let target = self.nonempty("link target")?;
        if target.len() > MAX_TARGET || target.contains(&0) {
            return Err(DecodeError::BadValue("link target"));
        }
        Ok(target)
    }

    fn nonempty(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        match self.rest() {
            [] => Err(DecodeError::BadValue(what)),
            rest => Ok(rest),
        }
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests;
