//! What the caller learns while a transfer runs, and afterwards.

use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::digest::Digest;
use crate::frame::Tally;

/// Something that the caller may want to show. Handed to the observer of
/// [`send`](crate::send) and [`receive`](crate::receive).
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The peer has shown that it speaks this protocol: once, and before everything else.
    Greeted,
    /// How far it is: after every piece of data and every entry. Not limited in rate.
    Progress(Progress<'a>),
    /// One entry failed; the transfer goes on, and ends as incomplete.
    Failed(&'a Failure),
    /// The source has something that is neither file, directory nor symbolic link. It is left out,
    /// and the transfer counts as complete.
    Skipped {
        /// Where it is.
        path: &'a Path,
        /// What it is.
        what: Special,
    },
    /// An entry was stored, but its mode or times could not be set.
    AttributesNotKept {
        /// The entry, relative to the target.
        path: &'a Path,
        /// Why not.
        error: &'a io::Error,
    },
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Regular files finished.
    pub files_done: u64,
    /// Regular files in all, once the sender has counted them. A guess by the sender: entries may
    /// have come or gone since, and a receiver has only the peer's word for it.
    pub files_total: Option<u64>,
    /// Bytes of files done, holes counted.
    pub bytes_done: u64,
    /// Bytes in all, holes counted; as `files_total`.
    pub bytes_total: Option<u64>,
    /// Bytes of data that went over the stream: `bytes_done` without holes.
    pub data_bytes: u64,
    /// The present entry: the path as the sender was given it, or relative to the target.
    pub current: &'a Path,
}

/// What a finished transfer came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Sent completely or, at the receiver, stored.
    pub tally: Tally,
    /// Bytes of data that went over the stream, holes not counted.
    pub data_bytes: u64,
    /// Special files left out; known to the sender only.
    pub skipped: u64,
    /// The digest over all entries and their contents on which both sides agree.
    pub transcript: Digest,
}

/// One entry that could not be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Who could not.
    pub side: Side,
    /// The path and the reason, without control characters.
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.side {
            Side::Here => f.write_str(&self.text),
            Side::Peer => write!(f, "peer: {}", self.text),
        }
    }
}

/// Where something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// In this process.
    Here,
    /// At the other end of the stream.
    Peer,
}

/// A kind of file that is not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Special {
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// Something that this program does not know.
    Unknown,
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Special::BlockDevice => "block device",
            Special::CharacterDevice => "character device",
            Special::Fifo => "named pipe",
            Special::Socket => "socket",
            Special::Unknown => "special file",
        })
    }
}

/// The special files that one transfer has left out: all counted, the first ones kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// How many.
    pub count: u64,
    /// The first of them, each with its path and what it is: at most [`LeftOut::KEPT`].
    pub first: Vec<String>,
}

impl LeftOut {
    /// The most that are kept.
    pub const KEPT: usize = 100;

    pub(crate) fn keep(&mut self, text: &str) {
        if self.first.len() < Self::KEPT {
            self.first.push(text.to_owned());
        }
    }
}

/// The failures of one transfer: all counted, the first ones kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// How many entries failed, those below a failed directory included where they are known.
    pub count: u64,
    /// The first of them, at most [`Failures::KEPT`].
    pub first: Vec<Failure>,
}

impl Failures {
    /// The most failures that are kept.
    pub const KEPT: usize = 100;

    pub(crate) fn keep(&mut self, failure: Failure) {
        if self.first.len() < Self::KEPT {
            self.first.push(failure);
        }
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = if self.count == 1 { "entry" } else { "entries" };
        write!(f, "{} {entries} could not be moved", self.count)?;
        match self.first.first() {
            Some(first) => write!(f, ", the first: {first}"),
            None => Ok(()),
        }
    }
}

/// Stops a transfer from another thread or a signal handler. Clones stop the same transfer.
///
/// The transfer looks at it between frames. One that waits in a read or write of its stream does
/// not notice; whoever cancels should also shut the stream down when that must not take long, and
/// the transfer then still ends as interrupted.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the transfer to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether somebody asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Text from a peer or a path in a form that is safe to print: control characters and those that
/// reorder text are replaced.
pub(crate) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() || reorders(c) { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

/// A path in a form that is safe to print.
pub fn printable_path(path: &Path) -> String {
    printable(path.as_os_str().as_bytes())
}

/// The bidirectional marks, embeddings, overrides and isolates of Unicode.
fn reorders(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text about errors without what the standard library adds to the system's words: ` (os error 2)`.
pub fn without_numbers(text: &str) -> String {
    const BEGIN: &str = " (os error ";
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        plain.push_str(before);
        match after.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(')') {
            Some(further) => rest = further,
            None => {
                plain.push_str(BEGIN);
                rest = after;
            }
        }
    }
    plain + rest
}

/// One line about an entry that failed, safe to print. Of an overlong path the end is kept, so that
/// the reason stays within what a frame carries.
pub(crate) fn describe(path: &Path, error: &io::Error) -> String {
    const LIMIT: usize = 700;
    let path = printable(path.as_os_str().as_bytes());
    let error = without_numbers(&error.to_string());
    if path.len() <= LIMIT {
        return format!("{path}: {error}");
    }
    let start = (path.len() - LIMIT..).find(|at| path.is_char_boundary(*at)).unwrap_or(path.len());
    format!("\u{2026}{}: {error}", &path[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_text_cannot_drive_a_terminal() {
        assert_eq!(printable("naïve ☃".as_bytes()), "naïve ☃");
        assert_eq!(printable(b"a\x1b[2Jb\r\n"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}");
        assert_eq!(printable(b"\xff\xc2\x9b1m"), "\u{fffd}\u{fffd}1m");
        assert_eq!(printable("exe.\u{202e}txt".as_bytes()), "exe.\u{fffd}txt");
    }

    #[test]
    fn errors_have_no_numbers() {
        let text = io::Error::from_raw_os_error(2).to_string();
        assert_eq!(without_numbers(&format!("a: {text}; b")), "a: No such file or directory; b");
        assert_eq!(without_numbers("x (os error y) (os error 13)"), "x (os error y)");
    }

    #[test]
    fn long_paths_keep_their_end() {
        let error = io::Error::other("why");
        assert_eq!(describe(Path::new("a/b\n"), &error), "a/b\u{fffd}: why");
        let long = "\u{e9}/".repeat(2000) + "end";
        let text = describe(Path::new(&long), &error);
        assert!(text.starts_with('\u{2026}') && text.ends_with("/end: why"), "{text}");
        assert!(text.len() <= crate::frame::MAX_TEXT);
    }

    #[test]
    fn only_the_first_failures_are_kept() {
        let mut failures = Failures::default();
        for n in 0..1000 {
            failures.count += 1;
            failures.keep(Failure { side: Side::Peer, text: n.to_string() });
        }
        assert_eq!(failures.first.len(), Failures::KEPT);
        assert_eq!(failures.to_string(), "1000 entries could not be moved, the first: peer: 0");
    }

    #[test]
    fn clones_cancel_together() {
        let cancel = Cancel::default();
        let other = cancel.clone();
        assert!(!cancel.is_cancelled());
        other.cancel();
        assert!(cancel.is_cancelled());
    }
}
