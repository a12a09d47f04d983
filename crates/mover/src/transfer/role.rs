//! What a side of a transfer does with messages and lanes; [`session`](super::session) drives it.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use super::error::TransferError;
use super::interrupt::Interrupt;
use super::link::LinkHandle;
use super::message::Message;

/// What a side does: [`source`](super::source) or [`sink`](super::sink).
pub trait Role: Sync {
    /// A message has come, in order and each once. Called by one thread at a time, and not to wait
    /// for anything that other messages bring.
    ///
    /// # Errors
    ///
    /// Whatever ends the transfer.
    fn message(&self, message: Message) -> Result<Flow, TransferError>;

    /// Works a lane until it ends, on a thread of its own.
    ///
    /// # Errors
    ///
    /// [`LaneEnd::Broken`] if the connection failed: others go on, and there will be a new one.
    fn lane(&self, lane: Lane<'_>) -> Result<(), LaneEnd>;

    /// The peer cannot be reached any more, or again.
    ///
    /// # Errors
    ///
    /// Whatever makes it impossible to go on.
    fn connected(&self, yes: bool) -> Result<(), TransferError>;

    /// What each lane has carried that is known to have arrived, bytes; only lanes that are at work.
    fn carried(&self) -> BTreeMap<u32, u64>;

    /// The transfer is over, for whatever reason: whoever waits in [`Role::lane`] returns.
    fn stop(&self);
}

/// Whether there is more to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Yes.
    Continue,
    /// No: the transfer has ended well.
    Over,
}

/// A lane at work.
pub struct Lane<'a> {
    /// Which.
    pub number: u32,
    /// Where blocks come from.
    pub reader: &'a mut (dyn Read + Send),
    /// Where blocks go.
    pub writer: &'a mut (dyn Write + Send),
    /// The rest of the connection.
    pub handle: &'a dyn LinkHandle,
    /// Is raised when the connection is given up.
    pub interrupt: &'a Interrupt,
    /// Whether the lane is still wanted; the source looks between blocks.
    pub keep: &'a (dyn Fn() -> bool + Sync),
}

/// Why a lane ended early.
#[derive(Debug)]
pub enum LaneEnd {
    /// Its connection failed.
    Broken(io::Error),
    /// The transfer cannot go on.
    Fatal(TransferError),
}

impl From<io::Error> for LaneEnd {
    fn from(error: io::Error) -> Self {
        LaneEnd::Broken(error)
    }
}

impl From<TransferError> for LaneEnd {
    fn from(error: TransferError) -> Self {
        LaneEnd::Fatal(error)
    }
}
