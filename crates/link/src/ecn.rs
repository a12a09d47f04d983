//! Explicit congestion notification: what a packet says of it.

/// The ECN field of a packet's IP header (RFC 3168 §5, RFC 8311).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Its sender does not know ECN: a queue that wants to tell of congestion drops it.
    #[default]
    NotCapable,
    /// ECT(0): its sender answers a mark as it does a loss.
    Ect0,
    /// ECT(1): its sender answers to the share of marks, so that queues mark early and often (L4S,
    /// RFC 9331).
    Ect1,
    /// CE: a queue has marked it.
    Marked,
}

impl Ecn {
    /// Whether a queue may mark the packet instead of dropping it.
    pub fn is_capable(self) -> bool {
        self != Ecn::NotCapable
    }

    /// Whether it belongs into the queue of low latency (RFC 9331 §5.1): what is marked cannot be told
    /// apart any more.
    pub fn is_l4s(self) -> bool {
        matches!(self, Ecn::Ect1 | Ecn::Marked)
    }
}
