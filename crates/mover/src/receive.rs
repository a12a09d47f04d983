//! The receiving side.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{ReceiveError, Violation};
use crate::frame::{AbortReason, Frame, MAX_DATA, MAX_REPLY, Role};
use crate::report::{Cancel, Event, Summary, printable};
use crate::store::{Flow, Store};
use crate::stream::{FrameReader, FrameWriter, PreambleError, ReadError};
use crate::target::{Policy, Target};

/// How to receive. [`Default`] is what most callers want.
#[derive(Clone, Debug, Default)]
pub struct ReceiveOptions {
    /// Keep set-user-ID and set-group-ID bits of modes. Default false: they give whoever runs a
    /// file the rights of whoever received it.
    pub keep_set_id: bool,
    /// Wait for the medium (fsync) before a file gets its name, and for each directory. Default
    /// false; costs a wait of the medium's latency per file.
    pub durable: bool,
    /// Refuse transfers whose files together have more bytes than this, holes counted. Default
    /// `None`: no limit.
    pub max_bytes: Option<u64>,
    /// Stops the transfer.
    pub cancel: Cancel,
}

/// Receives what a peer sends with [`send`](crate::send), into the directory `into`, which is made
/// if there is none.
///
/// A file is written under a temporary name in its own directory and renamed when all of it has
/// arrived and its digest is the sender's; until then, and after any error, what stood under its
/// name stands there unchanged. Files and links replace files and links of the same name; a
/// directory is never replaced, and existing directories are merged into. Nothing outside `into`
/// can be reached, whatever the peer sends and whatever links stand in `into`: links are made as
/// text and never followed.
///
/// An entry that cannot be stored, such as a file where a directory stands, does not stop the
/// others: it is shown as [`Event::Failed`] on both sides, and the transfer ends as
/// [`ReceiveError::Incomplete`]. A full or broken file system and a digest that differs stop it.
///
/// `stream` is the reading and the writing half of one connection. When it breaks, or the peer
/// goes, reads must end; there is no time-out of its own here. A time-out that reads have at first
/// ends the wait for a peer that does not begin ([`ReceiveError::PeerSilent`]); it is to be taken
/// away at [`Event::Greeted`]. What was written must still be delivered when it is closed.
///
/// If the process is killed, a file `.farhaul-….part` may be left where the last entry was to go.
pub fn receive<R: Read, W: Write>(
    into: &Path,
    stream: (R, W),
    options: &ReceiveOptions,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<Summary, ReceiveError> {
    let mut reader = FrameReader::new(stream.0, MAX_DATA);
    let mut out = FrameWriter::new(stream.1, 2 * MAX_REPLY);
    let interrupted = || options.cancel.is_cancelled();
    let started = out
        .preamble(Role::Receiver)
        .map_err(ReadError::Stream)
        .map_err(PreambleError::Read)
        .and_then(|()| reader.preamble(Role::Receiver));
    match started {
        Ok(()) => observe(Event::Greeted),
        Err(PreambleError::Version(theirs)) => {
            return Err(ReceiveError::IncompatibleVersion { theirs });
        }
        Err(_) if interrupted() => return Err(ReceiveError::Interrupted),
        Err(PreambleError::Silent) => return Err(ReceiveError::PeerSilent),
        Err(PreambleError::Read(error)) => return Err(error.into()),
    }
    let policy = Policy { keep_set_id: options.keep_set_id, durable: options.durable };
    let stored = Target::open(into, policy)
        .map_err(|source| ReceiveError::Io { path: into.into(), source })
        .and_then(|target| {
            // The store is gone, and with it every unfinished file, before the peer hears of it.
            let mut store = Store::new(target, &mut out, options, observe);
            run(&mut reader, &mut store, &options.cancel)?;
            store.finish()
        });
    let error = match stored {
        // All is stored and confirmed. Waiting for the last word makes sure that the receipt
        // arrives before the stream is closed.
        Ok((summary, failures)) => {
            return match read_off(&mut reader) {
                Some(AbortReason::Verification) => Err(ReceiveError::TotalsMismatch),
                _ if failures.count > 0 => Err(ReceiveError::Incomplete { summary, failures }),
                _ => Ok(summary),
            };
        }
        Err(error) if interrupted() && !matches!(error, ReceiveError::Remote { .. }) => {
            give_up(&mut reader, &mut out, &ReceiveError::Interrupted);
            return Err(ReceiveError::Interrupted);
        }
        Err(error) => error,
    };
    give_up(&mut reader, &mut out, &error);
    Err(error)
}

fn run<R: Read, W: Write>(
    reader: &mut FrameReader<R>,
    store: &mut Store<'_, W>,
    cancel: &Cancel,
) -> Result<(), ReceiveError> {
    loop {
        if cancel.is_cancelled() {
            return Err(ReceiveError::Interrupted);
        }
        if store.handle(&reader.next()?)? == Flow::End {
            return Ok(());
        }
    }
}

impl From<ReadError> for ReceiveError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Closed => ReceiveError::PeerVanished,
            ReadError::Stream(error) => ReceiveError::Stream(error),
            ReadError::Violation(violation) => ReceiveError::ProtocolViolation(violation),
        }
    }
}

impl From<Violation> for ReceiveError {
    fn from(violation: Violation) -> Self {
        ReceiveError::ProtocolViolation(violation)
    }
}

/// Tells the sender why this ends, and reads on until it has understood: it may be waiting in a
/// write, and a stream closed under it could take our reason with it.
fn give_up<R: Read, W: Write>(
    reader: &mut FrameReader<R>,
    out: &mut FrameWriter<W>,
    error: &ReceiveError,
) {
    let text = printable(error.to_string().as_bytes());
    let (reason, text) = match error {
        ReceiveError::PeerSilent | ReceiveError::PeerVanished | ReceiveError::Stream(_) => return,
        ReceiveError::Remote { .. } => (AbortReason::Agreed, &b""[..]),
        ReceiveError::Interrupted => (AbortReason::Interrupted, text.as_bytes()),
        ReceiveError::ProtocolViolation(_) => (AbortReason::Protocol, text.as_bytes()),
        ReceiveError::OverLimit { .. } => (AbortReason::Refused, text.as_bytes()),
        ReceiveError::TotalsMismatch => (AbortReason::Verification, &b""[..]),
        ReceiveError::VerificationFailed { path } => {
            (AbortReason::Verification, path.as_os_str().as_bytes())
        }
        _ => (AbortReason::Failed, text.as_bytes()),
    };
    let said = out.put(&Frame::Abort { reason, text }).and_then(|()| out.flush());
    // A sender that broke the protocol or has said its last word is not waited for.
    if said.is_ok() && !matches!(reason, AbortReason::Agreed | AbortReason::Protocol) {
        read_off(reader);
    }
}

/// Reads and forgets until the sender's last word or the end of the stream. An honest sender stops
/// within what the stream holds on its way. The reason, if the last word is an abort.
fn read_off<R: Read>(reader: &mut FrameReader<R>) -> Option<AbortReason> {
    const LIMIT: u64 = 4 << 30;
    let mut taken = 0;
    while taken < LIMIT {
        let received = reader.next().ok()?;
        match received.frame {
            Frame::Abort { reason, .. } => return Some(reason),
            Frame::Done => return None,
            _ => taken += received.bytes.len() as u64,
        }
    }
    None
}
