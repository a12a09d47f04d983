//! The side that answers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use farhaul_base::Time;

use super::message::{HEADER, Kind, Message, Secret, WORDS, Wish};
use super::tally::{Counts, Tally};

/// Probers at the same time.
const MOST_SESSIONS: usize = 16;
/// One that was silent for so long may be forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(15);

/// Answers the questions of probers who know the secret.
///
/// It is silent to all others, remembers at most 16 probers, and its answers are not larger than the
/// questions.
#[derive(Debug)]
pub struct Responder {
    secret: Secret,
    sessions: BTreeMap<(SocketAddr, u64), Session>,
    seen: u64,
    /// What the host has dropped: before the latest look, and at it.
    dropped: (u32, u32),
}

#[derive(Debug)]
struct Session {
    round: u16,
    tally: Tally,
    latest: Time,
    /// What the host had dropped when the round began.
    dropped: u32,
}

impl Responder {
    /// A responder to those who know `secret`.
    pub fn new(secret: Secret) -> Self {
        Responder { secret, sessions: BTreeMap::new(), seen: 0, dropped: (0, 0) }
    }

    /// How many datagrams of those who know the secret have come.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The host has dropped so many datagrams since the socket was opened, because its buffer was full;
    /// the count wraps. To be told before the datagrams that a look at the socket has brought.
    pub fn set_dropped(&mut self, total: u32) {
        self.dropped = (self.dropped.1, total);
    }

    /// A datagram came from `from` at `arrived`, and is looked at `now`; both count in the same
    /// clock, which probers compare with theirs. If `answer` is to go back, how many answers may leave
    /// in one call of the system.
    pub fn handle(
        &mut self,
        arrived: Time,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
        answer: &mut Vec<u8>,
    ) -> Option<u32> {
        let message = Message::read(&self.secret, datagram)?;
        if !matches!(message.kind, Kind::Question(_) | Kind::Ask) {
            return None;
        }
        let session = self.session(from, message.session, now)?;
        self.seen += 1;
        let session = self.sessions.get_mut(&session)?;
        session.latest = now;
        let (kind, words, len) = match message.kind {
            Kind::Question(wish) => {
                if message.round > session.round {
                    session.round = message.round;
                    session.tally = Tally::default();
                    // What was dropped since the look before this one may have been of this round.
                    session.dropped = self.dropped.0;
                }
                // Those of rounds that are over do not count.
                if message.round == session.round {
                    session.tally.count(message.sequence, arrived);
                }
                let len = match wish {
                    Wish::Count => return None,
                    Wish::Small => HEADER,
                    Wish::Full => datagram.len(),
                };
                let mut words = [0; WORDS];
                words[..3].copy_from_slice(&[message.words[0], arrived.as_nanos(), now.as_nanos()]);
                (Kind::Reply, words, len)
            }
            // Nothing of this round has come.
            _ if message.round > session.round => (Kind::Tally, Counts::default().words(), HEADER),
            _ if message.round < session.round => return None,
            _ => {
                let dropped = self.dropped.1.wrapping_sub(session.dropped);
                let counts = Counts { dropped, ..session.tally.counts() };
                (Kind::Tally, counts.words(), HEADER)
            }
        };
        Message { kind, words, ..message }.write(&self.secret, len, answer);
        Some(u32::try_from(message.words[1]).unwrap_or(1))
    }

    /// The key of a session that is remembered from now on; `None` if there are too many.
    fn session(&mut self, from: SocketAddr, id: u64, now: Time) -> Option<(SocketAddr, u64)> {
        let key = (from, id);
        if self.sessions.contains_key(&key) {
            return Some(key);
        }
        if self.sessions.len() >= MOST_SESSIONS {
            self.sessions.retain(|_, session| now - session.latest < FORGET_AFTER);
        }
        if self.sessions.len() >= MOST_SESSIONS {
            return None;
        }
        let dropped = self.dropped.0;
        let session = Session { round: 0, tally: Tally::default(), latest: now, dropped };
        self.sessions.insert(key, session);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::new(b"0123456789abcdef").unwrap()
    }

    fn datagram(kind: Kind, session: u64, round: u16, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        Message { kind, round, session, sequence: 0, words: [0; WORDS] }.write(
            &secret(),
            len,
            &mut out,
        );
        out
    }

    fn handle(responder: &mut Responder, s: u64, from: &str, datagram: &[u8]) -> Option<Vec<u8>> {
        let mut answer = Vec::new();
        let at = Time::from_secs(s);
        responder.handle(at, at, from.parse().unwrap(), datagram, &mut answer).map(|_| answer)
    }

    #[test]
    fn answers_are_not_larger_than_questions() {
        let mut responder = Responder::new(secret());
        for len in [HEADER, 500, 8972] {
            for kind in [Kind::Question(Wish::Small), Kind::Question(Wish::Full), Kind::Ask] {
                let answer =
                    handle(&mut responder, 1, "10.0.0.1:5", &datagram(kind, 1, 1, len)).unwrap();
                assert!(answer.len() <= len);
                // What it says itself it does not answer.
                assert_eq!(handle(&mut responder, 1, "10.0.0.1:5", &answer), None);
            }
            let counted = datagram(Kind::Question(Wish::Count), 1, 1, len);
            assert_eq!(handle(&mut responder, 1, "10.0.0.1:5", &counted), None);
        }
    }

    #[test]
    fn strangers_get_nothing() {
        let mut responder = Responder::new(secret());
        let mut changed = datagram(Kind::Question(Wish::Small), 1, 1, 100);
        changed[9] ^= 1;
        for bytes in [&b""[..], b"hello", &[0; 1472], &changed] {
            assert_eq!(handle(&mut responder, 1, "10.0.0.1:5", bytes), None);
        }
        assert_eq!(responder.seen(), 0);
    }

    #[test]
    fn sessions_are_bounded_and_forgotten() {
        let mut responder = Responder::new(secret());
        let mut ask = |s, session| {
            let question = datagram(Kind::Question(Wish::Small), session, 1, 100);
            handle(&mut responder, s, "10.0.0.1:5", &question).is_some()
        };
        assert!((0..16).all(|session| ask(1, session)));
        assert!(!ask(2, 16), "one too many");
        assert!(ask(2, 3), "a known one");
        assert!(ask(16, 16), "the others were silent for long");
    }

    #[test]
    fn what_the_host_dropped_is_told_by_round() {
        let mut responder = Responder::new(secret());
        responder.set_dropped(u32::MAX);
        let mut told = |dropped, round, ask: bool| {
            responder.set_dropped(dropped);
            let kind = if ask { Kind::Ask } else { Kind::Question(Wish::Count) };
            let answer = handle(&mut responder, 1, "10.0.0.1:5", &datagram(kind, 1, round, 200))?;
            Some(Message::read(&secret(), &answer)?.words[7])
        };
        // The count may wrap, and what was dropped as the round began belongs to it.
        told(u32::MAX, 1, false);
        assert_eq!(told(4, 1, true), Some(5));
        told(9, 2, false);
        assert_eq!((told(9, 2, true), told(9, 2, true)), (Some(5), Some(5)));
        told(9, 3, false);
        assert_eq!(told(9, 3, true), Some(0));
    }

    #[test]
    fn a_round_begins_anew_and_old_ones_are_over() {
        let mut responder = Responder::new(secret());
        let mut tally = |round, ask: bool| {
            let kind = if ask { Kind::Ask } else { Kind::Question(Wish::Count) };
            let answer = handle(&mut responder, 1, "10.0.0.1:5", &datagram(kind, 1, round, 100))?;
            Some(Message::read(&secret(), &answer)?.words[0])
        };
        tally(1, false);
        assert_eq!(tally(1, true), Some(1));
        assert_eq!(tally(2, true), Some(0), "all of it was lost");
        tally(3, false);
        assert_eq!((tally(1, true), tally(3, true)), (None, Some(1)));
    }
}
