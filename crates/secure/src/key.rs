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

/// What points of small order have in common: their y (RFC 8032 §5.1), with the sign of x cleared.
/// With such a key signatures can be made up without any private half. They are the orders 4, 1, 2
/// and, twice, 8; found by adding each to itself.
const SMALL_ORDER: [[u8; 32]; 5] = [
    [0; 32],
    with_ends(0x01, 0x00, 0x00),
    with_ends(0xec, 0xff, 0x7f),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98,
        0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53,
        0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67,
        0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac,
        0x03, 0x7a,
    ],
];

const fn with_ends(first: u8, middle: u8, last: u8) -> [u8; 32] {
    let mut bytes = [middle; 32];
    bytes[0] = first;
    bytes[31] = last;
    bytes
}

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
    /// This is no key that anybody makes: without a private half, others can sign with it.
    #[error("this is no key to trust: anybody can sign with it; ask for the right one again")]
    Weak,
}

impl Identity {
    /// A new key.
    ///
    /// # Errors
    ///
    /// [`KeyError::Entropy`].
    pub fn generate() -> Result<Self, KeyError> {
        // The kernel's randomness, and not the library's, which takes 65 ms to begin with: see `prepare`.
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut seed[..]).map_err(|_| KeyError::Entropy)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed[..]).map_err(|_| KeyError::Entropy)?;
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
        let public = PublicKey::new(public)?;
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
    /// The first of RFC 8032 §7.1, whose private half is printed beside it.
    #[cfg(feature = "known-keys")]
    pub(crate) const EXAMPLE: PublicKey = PublicKey([
        0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07,
        0x3a, 0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07,
        0x51, 0x1a,
    ]);

    /// The key of these bytes.
    ///
    /// # Errors
    ///
    /// [`KeyError::Weak`]: a point of small order, or another spelling of one of few points.
    fn new(bytes: [u8; 32]) -> Result<Self, KeyError> {
        let mut y = bytes;
        y[31] &= 0x7f;
        // 2^255 - 19 and more: the same point has a smaller y as well.
        let spelled_otherwise =
            y[0] >= 0xed && y[1..31].iter().all(|byte| *byte == 0xff) && y[31] == 0x7f;
        if spelled_otherwise || SMALL_ORDER.contains(&y) {
            return Err(KeyError::Weak);
        }
        Ok(PublicKey(bytes))
    }

    /// As DER, the form of TLS.
    fn to_spki(self) -> [u8; 44] {
        let mut der = [0; 44];
        der[..12].copy_from_slice(&SPKI_PREFIX);
        der[12..].copy_from_slice(&self.0);
        der
    }

    pub(crate) fn from_spki(der: &[u8]) -> Option<Self> {
        PublicKey::new(der.strip_prefix(&SPKI_PREFIX)?.try_into().ok()?).ok()
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
        PublicKey::new(key)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

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
    fn a_key_with_which_anybody_can_sign_is_none() {
        // Why: this is a signature of any text by the neutral element.
        let neutral = with_ends(1, 0, 0);
        let signature = [neutral, [0; 32]].concat();
        let key = UnparsedPublicKey::new(&ED25519, neutral);
        assert!(key.verify(b"any text", &signature).is_ok());
        let last = [0xec, 0xed, 0xee, 0xff].map(|first| with_ends(first, 0xff, 0x7f));
        for mut bytes in SMALL_ORDER.into_iter().chain(last) {
            for _ in 0..2 {
                let key = PublicKey(bytes);
                assert_eq!(key.to_string().parse::<PublicKey>(), Err(KeyError::Weak));
                assert_eq!(PublicKey::from_spki(&key.to_spki()), None);
                bytes[31] ^= 0x80;
            }
        }
        let below = PublicKey(with_ends(0xeb, 0xff, 0x7f));
        assert_eq!(below.to_string().parse(), Ok(below));
    }

    #[test]
    fn what_is_no_key_is_refused_and_no_secret_is_shown() {
        assert_eq!(Identity::from_pkcs8(b"no key").unwrap_err(), KeyError::Private);
        let identity = Identity::generate().unwrap();
        let shown = format!("{identity:?}");
        assert!(shown.contains(&identity.public_key().to_string()) && shown.len() < 120, "{shown}");
    }
}
