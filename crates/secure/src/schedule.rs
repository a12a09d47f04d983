//! The keys of one direction, one after the other.

use aws_lc_rs::aead::{
    AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use zeroize::Zeroizing;

/// Bytes of a secret from which keys are made.
pub(crate) const SECRET: usize = 32;
/// Bytes that a record is longer than what is in it.
pub(crate) const TAG: usize = 16;
/// What a record without any bytes costs a key: the blocks of its tag and of what is bound to it.
const LEAST: u64 = 32;
/// Bytes sealed with one key: far below the 2^38 bytes up to which an attacker gains nothing that
/// matters (RFC 8446 §5.5), and the same for either cipher.
const KEY_LIFE: u64 = 1 << 34;

/// A cipher of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// Where the processor has instructions for it.
    Aes256Gcm,
    /// Everywhere else.
    ChaCha20Poly1305,
}

impl Cipher {
    fn algorithm(self) -> &'static Algorithm {
        match self {
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

/// Seals or opens the records of one direction in their order.
pub(crate) struct Schedule {
    cipher: Cipher,
    secret: Zeroizing<[u8; SECRET]>,
    key: LessSafeKey,
    iv: Zeroizing<[u8; 12]>,
    /// Records under this key.
    sequence: u64,
    /// Bytes under this key, of which each record has [`LEAST`] more than it holds.
    bytes: u64,
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand (RFC 5869 §2.3). The label tells apart what is made of one secret.
fn expand<const N: usize>(secret: &[u8; SECRET], label: &[u8]) -> Zeroizing<[u8; N]> {
    let mut out = Zeroizing::new([0; N]);
    Prk::new_less_safe(HKDF_SHA256, secret)
        .expand(&[label], Length(N))
        .and_then(|material| material.fill(out.as_mut()))
        .expect("as many bytes as a hash allows");
    out
}

impl Schedule {
    pub(crate) fn new(cipher: Cipher, secret: Zeroizing<[u8; SECRET]>) -> Self {
        let key = expand::<32>(&secret, b"farhaul key");
        let key = UnboundKey::new(cipher.algorithm(), key.as_ref()).expect("a key of 256 bits");
        let iv = expand::<12>(&secret, b"farhaul iv");
        Schedule { cipher, secret, key: LessSafeKey::new(key), iv, sequence: 0, bytes: 0 }
    }

    /// Encrypts `body` where it is, bound to `header`; returns the tag that follows it.
    pub(crate) fn seal(&mut self, header: &[u8], body: &mut [u8]) -> [u8; TAG] {
        let length = body.len();
        let nonce = self.next_nonce();
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(header), body)
            .expect("a record is far shorter than the cipher's limit");
        self.count(length);
        tag.as_ref().try_into().expect("the tag of either cipher")
    }

    /// Encrypts `body` into `sealed`, which has room for it and the tag, and nothing else.
    pub(crate) fn seal_from(&mut self, header: &[u8], body: &[u8], sealed: &mut [u8]) {
        let nonce = self.next_nonce();
        let (out, tag) = sealed.split_at_mut(body.len());
        self.key
            .seal_out_of_place_scatter(nonce, Aad::from(header), body, out, &[], tag)
            .expect("a record is far shorter than the cipher's limit");
        self.count(body.len());
    }

    /// Decrypts `sealed`, body and tag, into `out`, which is as long as the body; `None` if it is not
    /// the next record. Then nothing of it is in `out`.
    pub(crate) fn open_into(&mut self, header: &[u8], sealed: &[u8], out: &mut [u8]) -> Option<()> {
        let nonce = self.next_nonce();
        let (body, tag) = sealed.split_at_checked(out.len())?;
        let opened = self.key.open_separate_gather(nonce, Aad::from(header), body, tag, out);
        if opened.is_err() {
            out.fill(0);
            return None;
        }
        self.count(body.len());
        Some(())
    }

    /// Decrypts `sealed`, body and tag, where it is; `None` if it is not the next record.
    pub(crate) fn open<'a>(&mut self, header: &[u8], sealed: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let nonce = self.next_nonce();
        let body = self.key.open_in_place(nonce, Aad::from(header), sealed).ok()?;
        self.count(body.len());
        Some(body)
    }

    /// As TLS 1.3 makes them (RFC 8446 §5.3): a number that never comes twice under a key.
    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = *self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Goes on to the next key when this one has done enough: what was sent stays secret even if a
    /// later key becomes known.
    fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64 + LEAST;
        if self.bytes >= KEY_LIFE {
            *self = Schedule::new(self.cipher, expand(&self.secret, b"farhaul next"));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn pair(cipher: Cipher) -> (Schedule, Schedule) {
        let secret = || Zeroizing::new([7; SECRET]);
        (Schedule::new(cipher, secret()), Schedule::new(cipher, secret()))
    }

    fn sealed(schedule: &mut Schedule, text: &[u8]) -> Vec<u8> {
        let mut body = text.to_vec();
        let tag = schedule.seal(b"head", &mut body);
        body.extend(tag);
        body
    }

    #[test]
    fn records_open_in_their_order_and_only_so() {
        for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
            let (mut seal, mut open) = pair(cipher);
            let mut records: Vec<_> =
                (0..3).map(|n| sealed(&mut seal, format!("record {n}").as_bytes())).collect();
            assert_ne!(records[0][..8], records[1][..8]);
            for (n, record) in records.iter_mut().enumerate() {
                let body = open.open(b"head", record).unwrap();
                assert_eq!(body, format!("record {n}").as_bytes());
            }
            let (mut seal, mut open) = pair(cipher);
            let _first = sealed(&mut seal, b"first");
            assert!(open.open(b"head", &mut sealed(&mut seal, b"second")).is_none());
            let (mut seal, mut open) = pair(cipher);
            assert!(open.open(b"tail", &mut sealed(&mut seal, b"first")).is_none());
        }
    }

    #[test]
    fn keys_change_on_both_sides_after_the_same_bytes() {
        let (mut seal, mut open) = pair(Cipher::Aes256Gcm);
        let before = seal.secret.clone();
        (seal.bytes, open.bytes) = (KEY_LIFE - 4, KEY_LIFE - 4);
        for text in [b"last", b"next"] {
            assert_eq!(open.open(b"head", &mut sealed(&mut seal, text)).unwrap(), text);
        }
        assert_ne!(seal.secret, before);
        assert_eq!((seal.secret, seal.sequence), (open.secret, 1));
    }

    /// Every way in which an attacker on the path can hand on four records, repeated, left out and in any
    /// order, within one key and over changes of it: what opens is a beginning of what was sealed.
    #[test]
    fn what_opens_is_a_beginning_of_what_was_sealed() {
        const RECORDS: usize = 4;
        const HANDED_ON: u32 = 5;
        const BODY: u64 = 3;
        // The key changes after so many of them; after five: not at all.
        for change in 1..=RECORDS as u64 + 1 {
            let aged = |mut schedule: Schedule| {
                schedule.bytes = KEY_LIFE - change * (BODY + LEAST);
                schedule
            };
            let (seal, _) = pair(Cipher::Aes256Gcm);
            let mut seal = aged(seal);
            let records: Vec<_> =
                (0..RECORDS).map(|n| sealed(&mut seal, &[n as u8; BODY as usize])).collect();
            for ways in 0..RECORDS.pow(HANDED_ON) {
                let picks = (0..HANDED_ON).map(|place| ways / RECORDS.pow(place) % RECORDS);
                let mut open = aged(pair(Cipher::Aes256Gcm).1);
                for (next, pick) in picks.enumerate() {
                    let mut record = records[pick].clone();
                    let opened = open.open(b"head", &mut record);
                    assert_eq!(opened.is_some(), pick == next, "{ways}: {pick} as {next}");
                    match opened {
                        Some(body) => assert_eq!(body, [pick as u8; BODY as usize]),
                        // Nothing is read after one that does not open.
                        None => break,
                    }
                }
            }
        }
    }

    /// However short records are, a key is replaced long before their numbers wrap.
    #[test]
    fn no_number_comes_twice_under_a_key() {
        const { assert!(KEY_LIFE / LEAST < 1 << 32) };
        let (mut schedule, _) = pair(Cipher::Aes256Gcm);
        let mut seen = std::collections::BTreeSet::new();
        let most = KEY_LIFE / LEAST;
        // At the beginning, where each byte of the number carries over, and at the end of the longest life.
        for edge in [0, 1 << 8, 1 << 16, 1 << 24, most - 300] {
            schedule.sequence = u64::max(edge, 300) - 300;
            for _ in 0..600 {
                let number = schedule.sequence;
                let nonce: [u8; 12] = *schedule.next_nonce().as_ref();
                assert_eq!(schedule.sequence, number + 1);
                seen.insert((number, nonce));
            }
        }
        let numbers: std::collections::BTreeSet<_> =
            seen.iter().map(|(number, _)| number).collect();
        let nonces: std::collections::BTreeSet<_> = seen.iter().map(|(_, nonce)| nonce).collect();
        assert_eq!((numbers.len(), nonces.len()), (seen.len(), seen.len()));
    }
}
