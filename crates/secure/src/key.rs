//! Who a side is: an Ed25519 key, and how people write its public half.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

/// What an Ed25519 key in DER begins with (RFC 8410 §4): the algorithm, and 32 bytes to come.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0];
/// What the text of a key begins with.
const TEXT_PREFIX: &str = "ed25519:";

/// A side's own key, private half included.
pub struct Identity {
    /// PKCS #8, as it is kept in files.
    secret: Zeroizing<Vec<u8>>,
    certified: Arc<CertifiedKey>,
    public: PublicKey,
}

/// The public half of an [`Identity`]. Its text is `ed25519:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The system gave no randomness.
    #[error("the system gives no random numbers for a new key")]
    Entropy,
    /// These bytes are no private key.
    #[error("this is no private key: it must be an Ed25519 key in PKCS #8")]
    Private,
    /// This text is no public key.
    #[error("a public key is written as ed25519: and 64 hexadecimal digits")]
    Public,
}

impl Identity {
    /// A new key.
    ///
    /// # Errors
    ///
    /// [`KeyError::Entropy`].
    pub fn generate() -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::generate().map_err(|_| KeyError::Entropy)?;
        let secret = pair.to_pkcs8().map_err(|_| KeyError::Entropy)?;
        Self::from_pkcs8(secret.as_ref())
    }

    /// The key in these bytes, as [`Identity::pkcs8`] gives them.
    ///
    /// # Errors
    ///
    /// [`KeyError::Private`].
    pub fn from_pkcs8(bytes: &[u8]) -> Result<Self, KeyError> {
        let secret = Zeroizing::new(bytes.to_vec());
        let pair = Ed25519KeyPair::from_pkcs8(bytes).map_err(|_| KeyError::Private)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| KeyError::Private)?;
        let public = PublicKey(public);
        let signing =
            any_eddsa_type(&PrivatePkcs8KeyDer::from(bytes)).map_err(|_| KeyError::Private)?;
        // For a raw public key the chain is the key (RFC 7250 §3).
        let chain = vec![CertificateDer::from(public.to_spki().to_vec())];
        let certified = Arc::new(CertifiedKey::new(chain, signing));
        Ok(Identity { secret, certified, public })
    }

    /// The key as it is to be kept, secret.
    pub fn pkcs8(&self) -> &[u8] {
        &self.secret
    }

    /// What others may know of it.
    pub fn public_key(&self) -> PublicKey {
        self.public
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("public", &self.public).finish_non_exhaustive()
    }
}

impl PublicKey {
    /// As DER, the form of TLS.
    fn to_spki(self) -> [u8; 44] {
        let mut der = [0; 44];
        der[..12].copy_from_slice(&SPKI_PREFIX);
        der[12..].copy_from_slice(&self.0);
        der
    }

    pub(crate) fn from_spki(der: &[u8]) -> Option<Self> {
        der.strip_prefix(&SPKI_PREFIX)?.try_into().ok().map(PublicKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TEXT_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let digits = text.trim().strip_prefix(TEXT_PREFIX).ok_or(KeyError::Public)?;
        let mut key = [0; 32];
        if digits.len() != 2 * key.len() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(KeyError::Public);
        }
        for (byte, pair) in key.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let pair = core::str::from_utf8(pair).map_err(|_| KeyError::Public)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| KeyError::Public)?;
        }
        Ok(PublicKey(key))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_key_is_kept_and_read_back() {
        let identity = Identity::generate().unwrap();
        let read = Identity::from_pkcs8(identity.pkcs8()).unwrap();
        assert_eq!(read.public_key(), identity.public_key());
        assert_ne!(Identity::generate().unwrap().public_key(), identity.public_key());
        assert_eq!(PublicKey::from_spki(&identity.public_key().to_spki()), Some(read.public_key()));
    }

    #[test]
    fn a_public_key_is_written_and_read_back() {
        let key = Identity::generate().unwrap().public_key();
        let text = key.to_string();
        assert_eq!((text.len(), text.parse()), (72, Ok(key)));
        for wrong in
            ["", "ed25519:", &text[..71], &text.replace(':', " "), &text.replace("ed", "rs")]
        {
            assert_eq!(wrong.parse::<PublicKey>(), Err(KeyError::Public), "{wrong}");
        }
        assert_eq!(
            text.replacen(&text[8..10], "+a", 1).parse::<PublicKey>(),
            Err(KeyError::Public)
        );
    }

    #[test]
    fn what_is_no_key_is_refused_and_no_secret_is_shown() {
        assert_eq!(Identity::from_pkcs8(b"no key").unwrap_err(), KeyError::Private);
        let identity = Identity::generate().unwrap();
        let shown = format!("{identity:?}");
        assert!(shown.contains(&identity.public_key().to_string()) && shown.len() < 120, "{shown}");
    }
}
