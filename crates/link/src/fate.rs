//! What has become of the packets that a link does not deliver, for who wants to know of each.

use std::collections::VecDeque;

use farhaul_base::Time;

/// Why a packet does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The policer: it came faster than is allowed.
    Policed,
    /// The queue was full.
    Full,
    /// The queue dropped it though there was room: RED and PIE as it came, CoDel and those made of it as
    /// it left.
    Early,
    /// The loss model.
    Loss,
    /// A blackout.
    Blackout,
}

/// A packet that does not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost<P> {
    /// When it was lost: as it came to the queue or left it, or at the end of its transmission.
    pub at: Time,
    /// Why.
    pub cause: Cause,
    /// The packet.
    pub packet: P,
}

/// What a link keeps for who looks at it; most links keep none.
#[derive(Clone, Debug)]
pub(crate) struct Kept<P> {
    /// In order of time.
    pub lost: VecDeque<Lost<P>>,
    /// Ends of transmissions that only looking has brought about.
    pub foreseen: VecDeque<Time>,
}

impl<P> Kept<P> {
    pub(crate) fn new() -> Self {
        Kept { lost: VecDeque::new(), foreseen: VecDeque::new() }
    }
}
