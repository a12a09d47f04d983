//! Datagrams of the probing: 88 bytes, a tag of 16, and padding that means nothing.

use core::fmt;

/// Bytes of a datagram without padding, and of the smallest there is.
pub const HEADER: usize = BODY + TAG;
const BODY: usize = 24 + 8 * WORDS;
const TAG: usize = 16;
/// Numbers that a message carries.
pub const WORDS: usize = 8;
const MAGIC: [u8; 4] = *b"fhD2";
/// Shorter secrets can be guessed.
const SHORTEST: usize = 16;

/// What both sides of a path know: the keys of either direction.
#[derive(Clone)]
pub struct Secret {
    questions: [u8; 32],
    answers: [u8; 32],
}

/// A secret that can be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secret has {0} bytes; it must have {SHORTEST} or more (openssl rand -hex 32)")]
pub struct SecretError(usize);

impl Secret {
    /// Keys from the shared bytes, such as a file's; white space around them does not count.
    ///
    /// # Errors
    /// If they are fewer than 16.
    pub fn new(shared: &[u8]) -> Result<Self, SecretError> {
        let shared = shared.trim_ascii();
        if shared.len() < SHORTEST {
            return Err(SecretError(shared.len()));
        }
        Ok(Secret {
            questions: blake3::derive_key("farhaul doctor 2 questions", shared),
            answers: blake3::derive_key("farhaul doctor 2 answers", shared),
        })
    }

    fn key(&self, kind: Kind) -> &[u8; 32] {
        match kind {
            Kind::Question(_) | Kind::Ask => &self.questions,
            Kind::Reply | Kind::Tally => &self.answers,
        }
    }
}

/// Keys are nobody's business.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What a question wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To be counted.
    Count,
    /// An answer of the smallest size.
    Small,
    /// An answer of its own size.
    Full,
}

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Counted in its round, and answered as it wishes. Words: when it was sent, how many answers may
    /// leave together.
    Question(Wish),
    /// For the tally of a round.
    Ask,
    /// To a question. Words: when the question was sent, came, was answered.
    Reply,
    /// To an ask. Words: see [`Tally::words`](super::tally::Tally::words).
    Tally,
}

/// A datagram without its padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// Which of the prober's rounds it belongs to, from 1.
    pub round: u16,
    /// Drawn by the prober.
    pub session: u64,
    /// Within the round, from 0.
    pub sequence: u32,
    pub words: [u64; WORDS],
}

impl Message {
    /// Writes it as a datagram of `len` bytes, at least [`HEADER`].
    pub fn write(&self, secret: &Secret, len: usize, out: &mut Vec<u8>) {
        let (kind, wish) = match self.kind {
            Kind::Question(Wish::Count) => (1, 0),
            Kind::Question(Wish::Small) => (1, 1),
            Kind::Question(Wish::Full) => (1, 2),
            Kind::Ask => (2, 0),
            Kind::Reply => (3, 0),
            Kind::Tally => (4, 0),
        };
        let len = len.max(HEADER);
        out.clear();
        out.extend(MAGIC);
        out.extend([kind, wish]);
        out.extend(self.round.to_be_bytes());
        out.extend(self.session.to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        out.extend((len as u32).to_be_bytes());
        self.words.iter().for_each(|word| out.extend(word.to_be_bytes()));
        let tag = blake3::keyed_hash(secret.key(self.kind), out);
        out.extend(&tag.as_bytes()[..TAG]);
        out.resize(len, 0);
    }

    /// Reads a datagram; `None` if it is not one of those who know the secret, or is not whole.
    pub fn read(secret: &Secret, datagram: &[u8]) -> Option<Message> {
        let (body, rest) = datagram.split_at_checked(BODY)?;
        let tag: [u8; TAG] = rest.get(..TAG)?.try_into().ok()?;
        let kind = match (body[4], body[5]) {
            _ if body[..4] != MAGIC => return None,
            (1, 0) => Kind::Question(Wish::Count),
            (1, 1) => Kind::Question(Wish::Small),
            (1, 2) => Kind::Question(Wish::Full),
            (2, 0) => Kind::Ask,
            (3, 0) => Kind::Reply,
            (4, 0) => Kind::Tally,
            _ => return None,
        };
        let mut full = [0; 32];
        full[..TAG].copy_from_slice(&tag);
        let mut expected = *blake3::keyed_hash(secret.key(kind), body).as_bytes();
        expected[TAG..].fill(0);
        // Compared in constant time.
        if blake3::Hash::from(expected) != blake3::Hash::from(full) {
            return None;
        }
        let word = |at: usize| Some(u64::from_be_bytes(body.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_be_bytes(body.get(at..at + 4)?.try_into().ok()?));
        if half(20)? as usize != datagram.len() {
            return None;
        }
        let mut words = [0; WORDS];
        for (index, value) in words.iter_mut().enumerate() {
            *value = word(24 + 8 * index)?;
        }
        Some(Message {
            kind,
            round: u16::from_be_bytes([body[6], body[7]]),
            session: word(8)?,
            sequence: half(16)?,
            words,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes()).unwrap()
    }

    fn message(kind: Kind) -> Message {
        Message {
            kind,
            round: 7,
            session: 0x0123_4567_89ab_cdef,
            sequence: 99,
            words: [1, 2, 3, 4, 5, 6, 7, 8],
        }
    }

    #[test]
    fn datagrams_are_read_back() {
        let ours = secret("0123456789abcdef\n");
        let kinds = [
            Kind::Question(Wish::Count),
            Kind::Question(Wish::Small),
            Kind::Question(Wish::Full),
            Kind::Ask,
            Kind::Reply,
            Kind::Tally,
        ];
        for kind in kinds {
            for len in [HEADER, 1472] {
                let mut datagram = Vec::new();
                message(kind).write(&ours, len, &mut datagram);
                assert_eq!(datagram.len(), len);
                assert_eq!(Message::read(&ours, &datagram), Some(message(kind)));
                assert_eq!(Message::read(&secret("another secret!!"), &datagram), None);
            }
        }
    }

    #[test]
    fn what_was_changed_or_cut_is_refused() {
        let ours = secret("0123456789abcdef");
        let mut datagram = Vec::new();
        message(Kind::Reply).write(&ours, 200, &mut datagram);
        for at in 0..HEADER {
            let mut changed = datagram.clone();
            changed[at] ^= 1;
            assert_eq!(Message::read(&ours, &changed), None, "byte {at}");
        }
        for len in [0, 4, BODY, HEADER - 1, HEADER, 199] {
            assert_eq!(Message::read(&ours, &datagram[..len]), None, "{len} bytes");
        }
    }

    /// Or a responder would answer what another has answered.
    #[test]
    fn an_answer_is_no_question() {
        let ours = secret("0123456789abcdef");
        let mut datagram = Vec::new();
        message(Kind::Reply).write(&ours, HEADER, &mut datagram);
        datagram[4] = 2;
        assert_eq!(Message::read(&ours, &datagram), None);
    }

    #[test]
    fn secrets_have_sixteen_bytes() {
        assert_eq!(Secret::new(b"  short secret \n").unwrap_err(), SecretError(12));
        assert!(Secret::new(b" 0123456789abcdef \n").is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Message::read(&secret("0123456789abcdef"), &bytes), None);
        }
    }
}
