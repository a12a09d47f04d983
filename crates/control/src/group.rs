//! Group control: several connections of a host under one hand (gu05 §5.3.5).

use core::fmt::Debug;
use core::net::IpAddr;

use crate::Law;

/// What several connections of one port have in common. Each that joins gets a law of its own,
/// which shares with the others whatever the group likes to share.
pub trait GroupControl: Debug + Send {
    /// A connection to `peer` begins: the law that is to govern it. The law's
    /// [`Law::close`] tells that it leaves. `seed` feeds whatever randomness it uses.
    fn join(&mut self, peer: IpAddr, seed: u64) -> Box<dyn Law>;
}
