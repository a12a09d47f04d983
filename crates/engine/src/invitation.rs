//! Invitations: what a client says in place of a listener's cookie where both were told of each other elsewhere.

use core::fmt;
use core::hash::Hasher;

use farhaul_wire::{Handshake, Seq};
use siphasher::sip::SipHasher24;

/// A key of 128 bits that a listener and its clients have from elsewhere, each connection of which has a cookie of its own.
///
/// The cookie is SipHash-2-4 over the client's sequence number and socket ID, cut to the 32 bits that the handshake has for it.
/// Without the key one that was seen is of use for the connection it was made for only, and a guess is right once in
/// 2^32. It does not cover the client's address, which a client behind a translator of addresses does not know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Invitation([u8; 16]);

impl Invitation {
    /// With this key, which is to be random and known to the two sides alone.
    pub fn new(key: [u8; 16]) -> Self {
        Invitation(key)
    }

    /// The key, for the other side.
    pub fn key(&self) -> &[u8; 16] {
        &self.0
    }

    /// What stands in place of the cookie in the request of a client with this sequence number and socket ID.
    pub(crate) fn cookie(&self, isn: Seq, socket_id: u32) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&isn.value().to_le_bytes());
        hasher.write(&socket_id.to_le_bytes());
        // Zero means "no cookie".
        (hasher.finish() as u32).max(1)
    }

    pub(crate) fn covers(&self, request: &Handshake) -> bool {
        self.cookie(request.isn, request.socket_id) == request.cookie
    }
}

/// Without the key.
impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Invitation(…)")
    }
}
