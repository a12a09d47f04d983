//! Why a transfer ends before everything is moved.

use std::any::Any;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::block::BadBlock;
use super::message::BadMessage;
use crate::error::SendError;
use crate::frame::AbortReason;

/// What ended a transfer. What is proved stays: the same command goes on from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The sources are not there, or have no names to arrive under. Nothing was moved.
    #[error(transparent)]
    Sources(#[from] SendError),
    /// The target, or its file system, does not take more.
    #[error("{}: {source}", path.display())]
    Io {
        /// The target or the entry.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The target is not what these sources need: its directory is not there, or it is none. Nothing was
    /// moved.
    #[error("{}: {source}", path.display())]
    Target {
        /// The target.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
    /// There was no connection for too long.
    #[error("no connection for {} s: {why}", after.as_secs())]
    Lost {
        /// How long.
        after: Duration,
        /// What the last attempt met with.
        why: String,
    },
    /// There never was a connection.
    #[error("{0}")]
    Unreachable(io::Error),
    /// What a file was read as is not what was written, whatever was tried.
    #[error("{} did not arrive as it was read", path.display())]
    Verification {
        /// The file.
        path: PathBuf,
    },
    /// This side does not allow it, or not any more.
    #[error("{0}")]
    Refused(String),
    /// This side is made to stop, and why: the transfer may be taken up later.
    #[error("{0}")]
    Stopped(String),
    /// What the other side says takes more memory than this side gives it.
    #[error(
        "the other side made this side keep more than the {} MiB that it may take: copy less at a time, or \
         raise the limit of memory",
        limit >> 20
    )]
    Memory {
        /// The limit, bytes.
        limit: u64,
    },
    /// The peer said what nobody should say.
    #[error("the other side broke the protocol: {0}")]
    Violation(String),
    /// The peer gave up.
    #[error("the other side gave up: {text}")]
    Remote {
        /// Why, for the exit code.
        reason: AbortReason,
        /// Why, safe to print.
        text: String,
    },
    /// The other side could not go on and has said so by another way.
    #[error("{text}")]
    Told {
        /// The exit code that it has given.
        code: u8,
        /// Why, safe to print.
        text: String,
    },
    /// A thread of this side has panicked, with this message.
    #[error("internal error: {0}; this is a fault in farhaul, please report it")]
    Internal(String),
    /// The two sides do not agree on what was moved.
    #[error("the receipt differs from what was sent")]
    Receipt,
}

impl TransferError {
    /// The exit code of a command that ends so: 1 failed, 2 wrong use, 3 refused, 4 verification
    /// failed, 130 interrupted.
    pub fn exit_code(&self) -> u8 {
        match self {
            TransferError::Sources(error) => error.exit_code(),
            TransferError::Interrupted => 130,
            TransferError::Target { .. } => 2,
            TransferError::Told { code, .. } => *code,
            TransferError::Verification { .. } | TransferError::Receipt => 4,
            TransferError::Refused(_) => 3,
            TransferError::Unreachable(error) => match error.kind() {
                io::ErrorKind::PermissionDenied => 3,
                io::ErrorKind::InvalidInput => 2,
                io::ErrorKind::Interrupted => 130,
                _ => 1,
            },
            TransferError::Remote { reason, .. } => match reason {
                AbortReason::Interrupted => 130,
                AbortReason::Verification => 4,
                AbortReason::Refused => 3,
                AbortReason::Unfit => 2,
                _ => 1,
            },
            _ => 1,
        }
    }

    /// Of what was caught when a thread panicked.
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        TransferError::Internal(text.unwrap_or_else(|| "a thread has panicked".into()))
    }

    /// What the peer is told.
    pub(crate) fn reason(&self) -> AbortReason {
        match self {
            TransferError::Interrupted => AbortReason::Interrupted,
            TransferError::Verification { .. } | TransferError::Receipt => {
                AbortReason::Verification
            }
            TransferError::Violation(_) => AbortReason::Protocol,
            TransferError::Refused(_) => AbortReason::Refused,
            _ => AbortReason::Failed,
        }
    }
}

impl From<BadMessage> for TransferError {
    fn from(bad: BadMessage) -> Self {
        TransferError::Violation(bad.to_string())
    }
}

impl From<BadBlock> for TransferError {
    fn from(bad: BadBlock) -> Self {
        TransferError::Violation(bad.to_string())
    }
}
