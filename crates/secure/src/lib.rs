//! Keys, a TLS 1.3 handshake between them, and sealed records: what makes a byte stream of any kind
//! one that nobody else can read or change.
//!
//! Each side has an [`Identity`], an Ed25519 key, and knows which [`PublicKey`] it wants to talk to.
//! [`handshake`] is that of TLS 1.3 (RFC 8446) with raw public keys (RFC 7250), both sides
//! authenticated, by rustls. The keys of the records come from its exporter (RFC 8446 §7.5); the two
//! directions are then independent of each other, so that each has a thread of its own: a [`Sealer`]
//! writes, an [`Opener`] reads.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::io::{Read, Write};
//! use std::os::unix::net::UnixStream;
//! use std::thread;
//!
//! use farhaul_secure::{Identity, Opener, Role, Sealer, Trust, handshake};
//!
//! let (here, there) = UnixStream::pair()?;
//! let (alice, bob) = (Identity::generate()?, Identity::generate()?);
//! let (alices, bobs) = (alice.public_key(), bob.public_key());
//! let server = thread::spawn(move || {
//!     let session = handshake(&there, Role::Server, &bob, &Trust::Only(alices), b"").unwrap();
//!     let mut text = String::new();
//!     Opener::new(&there, &session).read_to_string(&mut text).unwrap();
//!     text
//! });
//! let session = handshake(&here, Role::Client, &alice, &Trust::Only(bobs), b"")?;
//! let mut sealer = Sealer::new(&here, &session);
//! sealer.write_all(b"for Bob alone")?;
//! sealer.finish()?;
//! assert_eq!(server.join().expect("no panic"), "for Bob alone");
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

/// Prepares the randomness of handshakes, which takes some 65 ms the first time: aws-lc measures the noise of the processor. For a
/// process that will soon need it and waits for something else meanwhile. What fails here fails again where it matters.
pub fn prepare() {
    let _ = aws_lc_rs::rand::fill(&mut [0]);
}

mod handshake;
mod key;
mod record;
mod schedule;

pub use handshake::{
    Consent, HandshakeError, Role, Session, TagSecrets, Trust, handshake, introduce,
};
pub use key::{Identity, KeyError, PublicKey};
pub use record::{MAX_RECORD, Opener, Sealer};
#[cfg(feature = "known-keys")]
pub use schedule::Cipher;
