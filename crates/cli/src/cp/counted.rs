//! A side of a copy that is held to a quota: what the peer says counts before it is acted upon.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use farhaul_mover::transfer::message::Message;
use farhaul_mover::transfer::{Flow, Lane, LaneEnd, Role, TransferError};

/// Whether the peer may do more, now that it has announced so many entries.
pub type Quota<'a> = &'a (dyn Fn(u64) -> Result<(), TransferError> + Sync);

/// A side that acts upon a message only if the quota admits what has come so far.
///
/// Looking now and then is not enough: a copy of links alone may be over before the first look.
pub struct Counted<'a> {
    role: &'a (dyn Role + Sync),
    quota: Quota<'a>,
    /// Entries that the peer has announced.
    announced: AtomicU64,
}

impl<'a> Counted<'a> {
    /// `role`, held to `quota`.
    pub fn new(role: &'a (dyn Role + Sync), quota: Quota<'a>) -> Self {
        Counted { role, quota, announced: AtomicU64::new(0) }
    }
}

impl Role for Counted<'_> {
    fn message(&self, message: Message) -> Result<Flow, TransferError> {
        let more = u64::from(matches!(message, Message::Entry(_)));
        let announced = self.announced.fetch_add(more, Ordering::Relaxed) + more;
        (self.quota)(announced)?;
        self.role.message(message)
    }

    fn lane(&self, lane: Lane<'_>) -> Result<(), LaneEnd> {
        self.role.lane(lane)
    }

    fn connected(&self, yes: bool) -> Result<(), TransferError> {
        self.role.connected(yes)
    }

    fn carried(&self) -> BTreeMap<u32, u64> {
        self.role.carried()
    }

    fn stop(&self) {
        self.role.stop();
    }
}
