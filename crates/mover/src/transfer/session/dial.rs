//! Where the connections of the dialing side come from.

use std::io;

use crate::transfer::error::TransferError;
use crate::transfer::link::Link;

/// Makes connections to the other side, as many as asked for.
pub trait Dial: Sync {
    /// Connects and secures, in a bounded time, by this way. Called by several threads. Whether the peer knows this side, too, may
    /// show only when the link is read: then the error of its reader has a [`NoLink`] in it.
    ///
    /// # Errors
    ///
    /// Why there is no connection, and so whether it is worth trying again.
    fn dial(&self, way: Way) -> Result<Link, NoLink>;

    /// Whether it can use TCP where it would prefer another transport.
    fn has_choice(&self) -> bool {
        false
    }

    /// No more connections are wanted: [`Dial::dial`] returns where it waits.
    fn stop(&self) {}
}

/// Which transports will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// The best that passes.
    #[default]
    Any,
    /// TCP alone.
    Tcp,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum NoLink {
    /// The peer was not reached, or the connection broke. Tried again.
    #[error("{0}")]
    Unreached(io::Error),
    /// What answered has not shown that it is the peer: a stranger at one of the addresses, or an attacker
    /// on the path. Ends a transfer that has never had a connection. Later, when the peer is known to
    /// exist, it is tried again as if nothing had answered.
    #[error("{0}")]
    Unproven(io::Error),
    /// The same, found out by the reader of a connection that was given out
    /// [before the peer knew this side](crate::transfer::link::LinkHandle::is_confirmed). Tried again: the next attempt
    /// finds out by itself, and may take another way.
    #[error("{0}")]
    Unconfirmed(io::Error),
    /// The peer itself, authenticated, says no. Final.
    #[error("{0}")]
    Refused(io::Error),
    /// The peer, authenticated, has no such transfer, or none any more. Final.
    #[error("{0}")]
    Forgotten(io::Error),
}

/// What is found out only when a link is read is in the error of its reader.
impl From<io::Error> for NoLink {
    fn from(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(NoLink::Unreached)
    }
}

impl NoLink {
    /// Whether trying again is of no use, for a transfer that has, or has never, had a connection.
    pub(super) fn is_final(&self, authenticated_before: bool) -> bool {
        match self {
            NoLink::Unreached(_) | NoLink::Unconfirmed(_) => false,
            NoLink::Unproven(_) => !authenticated_before,
            NoLink::Refused(_) | NoLink::Forgotten(_) => true,
        }
    }

    /// As the end of a transfer; its kind decides the exit code.
    pub(super) fn into_end(self) -> TransferError {
        let (kind, error) = match self {
            NoLink::Unreached(error) => return TransferError::Unreachable(error),
            NoLink::Unproven(error) | NoLink::Unconfirmed(error) | NoLink::Refused(error) => {
                (io::ErrorKind::PermissionDenied, error)
            }
            NoLink::Forgotten(error) => (io::ErrorKind::NotFound, error),
        };
        TransferError::Unreachable(io::Error::new(kind, error.to_string()))
    }
}
