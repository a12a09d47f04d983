//! The protocol on the stream: what each side may say, and its bytes.
//!
//! Both sides first write a [preamble](Preamble) and check the other's. After it each direction is
//! a sequence of frames: one byte of type, four bytes of body length, the body. All integers are
//! big-endian. Every type has its own bound on the body, so no length from the peer is trusted.
//!
//! The sender walks its tree depth first, so an entry's place follows from the frames before it
//! and every entry has one [`Name`], never a path:
//!
//! ```text
//! sender                                       receiver
//! Directory … Leave                            (enter; leave, then set its mode and times)
//! File (Data | Hole)* (FileEnd | FileDropped)  Failed, when an entry could not be stored
//! Symlink
//! Totals                                       (at any time before End: for progress only)
//! End                                          Receipt
//! Done                                         (closes only now, so that the receipt arrives)
//! ```
//!
//! Either side may say `Abort` at any time; the other answers with an `Abort` of its own, and both
//! end. Whoever aborts reads on until that answer, so neither blocks in a write meanwhile.

mod codec;
mod preamble;

pub(crate) use codec::data_header;
pub use codec::{DecodeError, HEADER, Header};
pub use preamble::{Preamble, Role};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::Name;

/// The version of the protocol that this crate speaks.
pub const VERSION: u16 = 1;
/// The most data in one frame, in bytes.
pub const MAX_DATA: usize = 1 << 20;
/// The longest text in a frame, in bytes; longer ones are cut by the encoder.
pub const MAX_TEXT: usize = 1024;
/// The longest target of a symbolic link, in bytes: `PATH_MAX` of Linux less the NUL.
pub const MAX_TARGET: usize = 4095;
/// The deepest tree: directories inside each other. Each level costs either side one descriptor.
pub const MAX_DEPTH: usize = 256;
/// The most body bytes in a frame that a receiver sends.
pub const MAX_REPLY: usize = 8 + MAX_TEXT;

/// What a side says. Variants are in the order of their type bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// Enter a directory of this name, made if need be.
    Directory {
        /// Its name in the present directory.
        name: Name<'a>,
        /// Set when it is left.
        attributes: Attributes,
    },
    /// Leave the present directory.
    Leave,
    /// A regular file begins.
    File {
        /// Its name in the present directory.
        name: Name<'a>,
        /// Set before it gets its name.
        attributes: Attributes,
        /// Its length in bytes with holes, at most 2^63 - 1.
        size: u64,
    },
    /// The file's next bytes: 1 to [`MAX_DATA`].
    Data(&'a [u8]),
    /// The file's next bytes are a hole.
    Hole {
        /// Its length in bytes, from 1 to 2^63 - 1.
        length: u64,
    },
    /// The file is complete.
    FileEnd {
        /// What the sender read, by [`ContentHasher`](crate::digest::ContentHasher).
        digest: Digest,
    },
    /// The file could not be read to its end and must not be kept.
    FileDropped,
    /// A symbolic link.
    Symlink {
        /// Its name in the present directory.
        name: Name<'a>,
        /// Its times; links have no mode of their own.
        attributes: Attributes,
        /// Its text, verbatim: 1 to [`MAX_TARGET`] bytes without NUL.
        target: &'a [u8],
    },
    /// What the whole transfer comes to, once known. For progress only.
    Totals {
        /// Regular files.
        files: u64,
        /// Sum of their lengths in bytes.
        bytes: u64,
    },
    /// The sender has said everything.
    End {
        /// What was offered completely.
        tally: Tally,
        /// Entries that could not be read, dropped files among them.
        omitted: u64,
        /// The sender's [`Transcript`](crate::digest::Transcript).
        transcript: Digest,
    },
    /// The sender has the receipt.
    Done,
    /// This side gives up, or agrees to the other's giving up.
    Abort {
        /// Why, for the exit code.
        reason: AbortReason,
        /// Why, for people; for [`AbortReason::Verification`] the path of the file.
        text: &'a [u8],
    },
    /// The receiver could not store one entry; the transfer goes on.
    Failed {
        /// Counts `Directory`, `File` and `Symlink` frames from 0; only ever grows.
        entry: u64,
        /// Which and why, for people.
        text: &'a [u8],
    },
    /// The receiver has everything, stored and verified, but for the failed entries.
    Receipt {
        /// What was offered completely, as the receiver counts it.
        tally: Tally,
        /// Entries that were offered and not stored.
        failed: u64,
        /// The receiver's [`Transcript`](crate::digest::Transcript).
        transcript: Digest,
    },
}

/// What of an entry's inode is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits with set-user-ID, set-group-ID and sticky: at most `0o7777`.
    pub mode: u16,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
}

/// A time of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timestamp {
    /// Seconds since 1970 UTC.
    pub seconds: i64,
    /// Nanoseconds after that: below 1 000 000 000.
    pub nanoseconds: u32,
}

/// How much of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Sum of the files' lengths in bytes, holes counted.
    pub bytes: u64,
}

/// Why a side gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AbortReason {
    /// Something failed on this side.
    Failed = 0,
    /// The user stopped it.
    Interrupted = 1,
    /// The other side broke the protocol.
    Protocol = 2,
    /// This side does not want the transfer.
    Refused = 3,
    /// What arrived is not what was sent.
    Verification = 4,
    /// An answer to the other side's `Abort`.
    Agreed = 5,
    /// What was asked for is not there, or does not fit: nothing was done.
    Unfit = 6,
}
