//! Why nobody was reached.

use core::fmt;
use std::io;

use super::race::Attempt;
use crate::secured::LinkError;

/// Why there is no link, in one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialFailure {
    /// Nobody has answered anywhere.
    NoAnswer,
    /// Somebody answered, and nobody listens there or wants this side's connection.
    Refused,
    /// Connections were closed, again and again, before the peer showed who it is: it has too many
    /// newcomers, or ends.
    Unfinished,
    /// What answered has not shown that it is the peer. It may be a stranger at one of the addresses,
    /// or an attacker on the path: the peer itself may still be there.
    NotAuthenticated,
    /// The peer has shown its key and does not accept this side's. No other host can say so.
    Denied,
    /// One side wants encryption, the other does not.
    Plain,
    /// The name of a host has no address.
    Name(String),
    /// There was nothing to try: no address fits the transport and the local addresses.
    NoCandidate,
    /// This side could not even try.
    Local,
    /// The caller has stopped it.
    Interrupted,
}

/// Nobody was reached. Its text tells what happened with each candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialError {
    /// What it comes down to.
    pub failure: DialFailure,
    /// Each candidate, as it is written, and what happened there.
    pub reasons: Vec<(String, String)>,
    /// A host with another key has answered.
    pub stranger: bool,
}

impl DialError {
    pub(crate) fn new(failure: DialFailure, reasons: Vec<(String, String)>) -> Self {
        DialError { failure, reasons, stranger: false }
    }

    /// Whether the wrong peer answered, or the peer refused this side's key: exit code 3.
    pub fn is_authentication(&self) -> bool {
        matches!(self.failure, DialFailure::NotAuthenticated | DialFailure::Denied)
    }

    /// Of what each attempt came to.
    pub(super) fn of(failed: &[(Attempt, LinkError)]) -> Self {
        // A stranger speaks for its own address only: where another one has not answered, the peer
        // may be there.
        let strangers: Vec<_> = failed
            .iter()
            .filter(|(_, error)| error.is_stranger())
            .map(|(attempt, _)| attempt.peer.ip())
            .collect();
        let silent = failed.iter().any(|(attempt, error)| {
            let (LinkError::Connect(why) | LinkError::Broken(why)) = error else { return false };
            why.kind() == io::ErrorKind::TimedOut && !strangers.contains(&attempt.peer.ip())
        });
        let failures: Vec<_> = failed
            .iter()
            .filter(|(_, error)| !(silent && error.is_stranger()))
            .map(|(_, error)| error.failure())
            .collect();
        // The one that tells most: the peer's own word before a stranger's, any answer before none.
        let order = [
            DialFailure::Plain,
            DialFailure::Denied,
            DialFailure::NotAuthenticated,
            DialFailure::Unfinished,
            DialFailure::Refused,
            DialFailure::NoAnswer,
        ];
        let found = order.into_iter().find(|failure| failures.contains(failure));
        let reasons = failed.iter().map(|(attempt, error)| (attempt.to_string(), text(error)));
        let stranger = failed.iter().any(|(_, error)| matches!(error, LinkError::Stranger(_)));
        let failure = found.unwrap_or(DialFailure::Local);
        DialError { stranger, ..DialError::new(failure, reasons.collect()) }
    }
}

impl LinkError {
    /// What it comes to where it is the only one.
    pub fn failure(&self) -> DialFailure {
        match self {
            LinkError::Plain { .. } => DialFailure::Plain,
            error if error.is_unfinished() => DialFailure::Unfinished,
            LinkError::Connect(error) | LinkError::Broken(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof => DialFailure::Refused,
                io::ErrorKind::TimedOut
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable => DialFailure::NoAnswer,
                _ => DialFailure::Local,
            },
            // An attacker on the path can write either.
            LinkError::Protocol(_) | LinkError::Alert(_) => DialFailure::Refused,
            LinkError::Refused => DialFailure::Denied,
            LinkError::Stranger(_) | LinkError::Secret => DialFailure::NotAuthenticated,
        }
    }
}

fn text(error: &LinkError) -> String {
    match error {
        LinkError::Broken(inner)
            if matches!(
                inner.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
            ) =>
        {
            "the connection was closed before the peer showed who it is".into()
        }
        error => error.to_string(),
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            DialFailure::NoAnswer => f.write_str(
                "nobody answers: a firewall may be in the way, or the other side has ended",
            )?,
            DialFailure::Refused => f.write_str("the other side was not reached")?,
            DialFailure::Unfinished => f.write_str(
                "the other side closes connections before it shows who it is: \
                 it may be flooded, or end; try again later",
            )?,
            DialFailure::NotAuthenticated => {
                f.write_str("what answers has not shown that it is the other side")?
            }
            DialFailure::Denied => f.write_str("the other side does not accept this side's key")?,
            DialFailure::Plain => f.write_str("the two sides do not want the same")?,
            DialFailure::Name(host) => write!(f, "cannot find the address of '{host}'")?,
            DialFailure::NoCandidate => f.write_str(
                "there is no address to try: none fits the transport and the local addresses",
            )?,
            DialFailure::Local => f.write_str("cannot connect from this host")?,
            DialFailure::Interrupted => f.write_str("connecting was interrupted")?,
        }
        for (n, (candidate, reason)) in self.reasons.iter().enumerate() {
            let separator = if n == 0 { ": " } else { "; " };
            match self.failure {
                DialFailure::Name(_) => write!(f, "{separator}{reason}")?,
                _ => write!(f, "{separator}{candidate}: {reason}")?,
            }
        }
        Ok(())
    }
}

impl core::error::Error for DialError {}
