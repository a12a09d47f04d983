//! The first words on a connection: what it is for, or what is asked for.

use std::io;

use super::dial::NoLink;
use crate::frame::AbortReason;
use crate::transfer::link::{
    First, Join, Joined, Link, MAX_ORDER, Open, Opened, Purpose, get, put, put_before,
};
use crate::transfer::message::PROTOCOL;

/// Reads what a connection that was accepted is for.
///
/// # Errors
///
/// The stream's; [`io::ErrorKind::InvalidData`] for a peer of another version or protocol.
pub fn meet(link: &mut Link) -> io::Result<First> {
    let first: First = get(&mut *link.reader)?;
    let (First::Join(Join { protocol, .. }) | First::Open(Open { protocol, .. })) = &first;
    if *protocol == PROTOCOL {
        return Ok(first);
    }
    let why = format!("it speaks version {protocol} of the protocol, not {PROTOCOL}");
    match first {
        First::Join(_) => refuse(link, &why)?,
        First::Open(_) => {
            let reason = AbortReason::Protocol;
            put(&mut *link.writer, &Opened::No { reason, why: why.clone() })?;
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// The same where nobody may ask for transfers.
///
/// # Errors
///
/// Those of [`meet`]; [`io::ErrorKind::InvalidData`] for a peer that takes this for a server.
pub fn greet(link: &mut Link) -> io::Result<Join> {
    match meet(link)? {
        First::Join(join) => Ok(join),
        First::Open(_) => {
            let why = "this is no server".to_owned();
            answer(link, &Opened::No { reason: AbortReason::Protocol, why: why.clone() })?;
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
    }
}

/// Answers one who asks for a transfer.
///
/// # Errors
///
/// The stream's.
pub fn answer(link: &mut Link, opened: &Opened) -> io::Result<()> {
    put(&mut *link.writer, opened)
}

/// Says what a connection that was made is for. Of a control channel, how many frames the peer has
/// received on it before.
///
/// # Errors
///
/// The stream's as [`NoLink::Unreached`]; [`NoLink::Refused`] if the peer refuses,
/// [`NoLink::Forgotten`] if it knows no such transfer.
pub fn join(link: Link, session: [u8; 16], purpose: Purpose) -> Result<(Link, u64), NoLink> {
    join_saying(link, session, purpose, &[])
}

/// The same; `more` follows without waiting for the answer.
pub(super) fn join_saying(
    mut link: Link,
    session: [u8; 16],
    purpose: Purpose,
    more: &[u8],
) -> Result<(Link, u64), NoLink> {
    let first = First::Join(Join { protocol: PROTOCOL, session, purpose });
    put_before(&mut *link.writer, &first, more)?;
    match get(&mut *link.reader)? {
        Joined::Yes { received } => Ok((link, received)),
        Joined::No(why) => {
            let why = crate::report::printable(why.as_bytes());
            Err(NoLink::Refused(io::Error::other(format!("refused: {why}"))))
        }
        Joined::Unknown => {
            let text = "the other side knows nothing of this transfer any more";
            Err(NoLink::Forgotten(io::Error::other(text)))
        }
    }
}

/// Asks a server for a transfer, with an order that it knows how to read. What it answers is safe to
/// print.
///
/// # Errors
///
/// The stream's; [`io::ErrorKind::InvalidInput`] if the order is longer than [`MAX_ORDER`].
pub fn open(link: &mut Link, order: Vec<u8>) -> io::Result<Opened> {
    if order.len() > MAX_ORDER {
        let text = "too much for one transfer: name fewer paths or patterns";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    put(&mut *link.writer, &First::Open(Open { protocol: PROTOCOL, order }))?;
    Ok(match get(&mut *link.reader)? {
        Opened::No { reason, why } => {
            Opened::No { reason, why: crate::report::printable(why.as_bytes()) }
        }
        yes => yes,
    })
}

/// Refuses a connection that was accepted.
///
/// # Errors
///
/// The stream's.
pub fn refuse(link: &mut Link, why: &str) -> io::Result<()> {
    put(&mut *link.writer, &Joined::No(why.to_owned()))
}

/// Says that there is no such transfer.
///
/// # Errors
///
/// The stream's.
pub fn disown(link: &mut Link) -> io::Result<()> {
    put(&mut *link.writer, &Joined::Unknown)
}
