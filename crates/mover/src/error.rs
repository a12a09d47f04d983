//! What can go wrong, per operation.

use std::io;
use std::path::PathBuf;

use crate::frame::{DecodeError, VERSION};
use crate::report::{Failures, Summary};

/// Why [`send`](crate::send) did not move everything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// A source has no name under which it could arrive, such as `/` or `..`. Nothing was sent.
    #[error("{path:?} has no name to arrive under; give its name, or add /. to send its content")]
    BadSource {
        /// The source as given.
        path: PathBuf,
    },
    /// Everything else was moved and verified, but these entries were not.
    #[error("{failures}")]
    Incomplete {
        /// What was moved, and what was offered and not stored.
        summary: Summary,
        /// Which entries failed, at either side.
        failures: Failures,
    },
    /// The peer speaks another version of the protocol.
    #[error("the receiver speaks version {theirs} of the mover's protocol, not {VERSION}")]
    IncompatibleVersion {
        /// The peer's version.
        theirs: u16,
    },
    /// [`Cancel`](crate::Cancel) was used.
    #[error("interrupted")]
    Interrupted,
    /// A source is not there or cannot be opened. Nothing was sent.
    #[error("{path:?}: {source}")]
    Io {
        /// The source as given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Two sources would arrive under the same name. Nothing was sent.
    #[error("{first:?} and {second:?} would both arrive as {name:?}")]
    NameClash {
        /// One source as given.
        first: PathBuf,
        /// The other.
        second: PathBuf,
        /// Their common name.
        name: PathBuf,
    },
    /// There is nothing to send: no source was given.
    #[error("nothing to send")]
    NoSources,
    /// The peer did not begin before the stream's time-out. Nothing was sent.
    #[error("the receiver did not answer in time")]
    PeerSilent,
    /// The peer closed the stream before it confirmed everything.
    #[error("the receiver went away before it confirmed everything")]
    PeerVanished,
    /// The peer broke the protocol.
    #[error("the receiver broke the protocol: {0}")]
    ProtocolViolation(Violation),
    /// The receiver's account of the transfer is not the sender's.
    #[error("the receiver's receipt differs from what was sent")]
    ReceiptMismatch,
    /// The receiver does not want this transfer.
    #[error("the receiver refused: {message}")]
    Refused {
        /// Its reason, safe to print.
        message: String,
    },
    /// The receiver gave up.
    #[error("the receiver gave up: {message}")]
    Remote {
        /// Its reason, safe to print.
        message: String,
    },
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Stream(#[source] io::Error),
    /// The receiver wrote something else than what was read.
    #[error("{path:?} did not arrive as it was read")]
    VerificationFailed {
        /// The file, relative to the target, as far as the receiver could say.
        path: PathBuf,
    },
}

impl SendError {
    /// The exit code of a command that ends with this error: 1 failed, 2 wrong use, 3 refused,
    /// 4 verification failed, 130 interrupted.
    pub fn exit_code(&self) -> u8 {
        match self {
            SendError::BadSource { .. }
            | SendError::Io { .. }
            | SendError::NameClash { .. }
            | SendError::NoSources => 2,
            SendError::IncompatibleVersion { .. } | SendError::Refused { .. } => 3,
            SendError::ReceiptMismatch | SendError::VerificationFailed { .. } => 4,
            SendError::Interrupted => 130,
            SendError::Incomplete { .. }
            | SendError::PeerSilent
            | SendError::PeerVanished
            | SendError::ProtocolViolation(_)
            | SendError::Remote { .. }
            | SendError::Stream(_) => 1,
        }
    }
}

/// Why [`receive`](crate::receive) did not store everything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Everything else was stored and verified, but these entries were not.
    #[error("{failures}")]
    Incomplete {
        /// What was stored.
        summary: Summary,
        /// Which entries failed, at either side.
        failures: Failures,
    },
    /// The peer speaks another version of the protocol.
    #[error("the sender speaks version {theirs} of the mover's protocol, not {VERSION}")]
    IncompatibleVersion {
        /// The peer's version.
        theirs: u16,
    },
    /// [`Cancel`](crate::Cancel) was used.
    #[error("interrupted")]
    Interrupted,
    /// The target cannot be written, or its file system failed or is full.
    #[error("{path:?}: {source}")]
    Io {
        /// The target directory, or the entry relative to it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The sender has more than [`ReceiveOptions::max_bytes`](crate::ReceiveOptions::max_bytes).
    #[error("the sender has more than the {limit} bytes allowed")]
    OverLimit {
        /// The limit in bytes.
        limit: u64,
    },
    /// The peer did not begin before the stream's time-out. Nothing was stored.
    #[error("the sender said nothing in time")]
    PeerSilent,
    /// The sender closed the stream before the end.
    #[error("the sender went away in the middle")]
    PeerVanished,
    /// The peer broke the protocol.
    #[error("the sender broke the protocol: {0}")]
    ProtocolViolation(Violation),
    /// The sender gave up.
    #[error("the sender gave up: {message}")]
    Remote {
        /// Its reason, safe to print.
        message: String,
    },
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Stream(#[source] io::Error),
    /// All files were verified one by one, but the sender's account of the whole is another.
    #[error("what arrived differs from what the sender says it sent")]
    TotalsMismatch,
    /// What arrived for this file is not what the sender read. It was not kept.
    #[error("{path:?} did not arrive as it was read")]
    VerificationFailed {
        /// The file, relative to the target.
        path: PathBuf,
    },
}

impl ReceiveError {
    /// The exit code of a command that ends with this error: 1 failed, 3 refused,
    /// 4 verification failed, 130 interrupted.
    pub fn exit_code(&self) -> u8 {
        match self {
            ReceiveError::IncompatibleVersion { .. } => 3,
            ReceiveError::TotalsMismatch | ReceiveError::VerificationFailed { .. } => 4,
            ReceiveError::Interrupted => 130,
            ReceiveError::Incomplete { .. }
            | ReceiveError::Io { .. }
            | ReceiveError::OverLimit { .. }
            | ReceiveError::PeerSilent
            | ReceiveError::PeerVanished
            | ReceiveError::ProtocolViolation(_)
            | ReceiveError::Remote { .. }
            | ReceiveError::Stream(_) => 1,
        }
    }
}

/// The rule that a peer broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A receipt came before the end was announced.
    #[error("a receipt before the end")]
    EarlyReceipt,
    /// A failure was reported for an entry that was not announced, or out of order.
    #[error("a failure of an entry that was not announced")]
    EntryOrder,
    /// A directory was left that was never entered.
    #[error("a directory left twice")]
    LeaveAtTop,
    /// A file has more bytes than announced.
    #[error("a file longer than announced")]
    LongFile,
    /// Bytes that are not a frame.
    #[error(transparent)]
    Malformed(DecodeError),
    /// The first bytes are not those of this protocol.
    #[error("it does not speak the mover's protocol")]
    NotThisProtocol,
    /// Two senders or two receivers met.
    #[error("it has the same role as this side")]
    SameRole,
    /// A file has fewer bytes than announced.
    #[error("a file shorter than announced")]
    ShortFile,
    /// Directories nested more than [`MAX_DEPTH`](crate::frame::MAX_DEPTH) deep.
    #[error("directories nested too deeply")]
    TooDeep,
    /// The end came inside a directory.
    #[error("an end inside a directory")]
    UnfinishedDirectory,
    /// A frame that has no place here.
    #[error("a frame out of place")]
    Unexpected,
}
