//! What callers are told when a call fails.

use std::io;

use farhaul_engine::{CloseReason, ConnectError, SendError};

/// The code of the error that tells a peer that what it sends cannot be written.
pub(crate) const WRITE_FAILED: u32 = 4000;

/// What a reader is told when nothing more will come.
pub(crate) fn end_of_input(reason: Option<CloseReason>) -> io::Result<()> {
    match reason {
        Some(CloseReason::Peer | CloseReason::PeerStopped) => Ok(()),
        reason => Err(closed_error(reason)),
    }
}

/// The error for using a connection that is over.
pub(crate) fn closed_error(reason: Option<CloseReason>) -> io::Error {
    match reason {
        Some(CloseReason::TimedOut) => io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the connection is broken: nothing has come from the peer for too long",
        ),
        Some(CloseReason::Reneged) => io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the connection is broken: the peer misses what was acknowledged in its name; something on \
             the path forges acknowledgements",
        ),
        Some(CloseReason::Peer) => {
            io::Error::new(io::ErrorKind::BrokenPipe, "the peer has closed the connection")
        }
        Some(CloseReason::PeerStopped) => io::Error::new(
            io::ErrorKind::BrokenPipe,
            "the peer has closed the connection before everything had reached it",
        ),
        Some(CloseReason::PeerAborted) => io::Error::new(
            io::ErrorKind::ConnectionReset,
            "the peer broke the connection off: what it sent is not complete",
        ),
        Some(CloseReason::LingerTimeout) => io::Error::new(
            io::ErrorKind::TimedOut,
            "the linger time ended before everything was acknowledged",
        ),
        Some(CloseReason::LawFailed) => io::Error::other(
            "the congestion control law failed (it panicked), and its connection was closed",
        ),
        _ => io::Error::new(io::ErrorKind::NotConnected, "the connection is closed"),
    }
}

pub(crate) fn send_error(error: SendError) -> io::Error {
    match error {
        SendError::Closed(reason) => closed_error(Some(reason)),
        SendError::TooLarge(most) => io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("the message is too large for the buffers of both sides: at most {most} bytes"),
        ),
        SendError::WrongMode => io::Error::new(
            io::ErrorKind::InvalidInput,
            "streams carry bytes and message connections messages: the call is for the other",
        ),
        SendError::Peer(WRITE_FAILED) => io::Error::other("the peer cannot write what it receives"),
        SendError::Peer(code) => io::Error::other(format!("the peer reports error {code}")),
        _ => io::ErrorKind::WouldBlock.into(),
    }
}

/// The error for a connection that could not be set up.
pub(crate) fn connect_error(error: ConnectError, network: Option<io::Error>) -> io::Error {
    let kind = match error {
        ConnectError::TimedOut => io::ErrorKind::TimedOut,
        _ => io::ErrorKind::ConnectionRefused,
    };
    match network {
        Some(network) if error == ConnectError::TimedOut => {
            io::Error::new(network.kind(), format!("{error}: {network}"))
        }
        _ => io::Error::new(kind, error),
    }
}
