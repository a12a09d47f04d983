//! What the two sides of a transfer say to each other beside the data.
//!
//! ```text
//! source                                     sink
//! Entry (a file) …                           Verdict: wanted whole, in part, or not at all
//!   its data over the lanes, in blocks       Stored, for every block; Damaged, Lost: once more
//!   Zeros, FileEnd | FileDropped             Finished | Failed
//! Entry (a directory) … Leave                (its mode, times and what is to be deleted: when all
//!                                            within is done)
//! End                                        Receipt
//! Done                                       (closes only now, so that the receipt arrives)
//! ```
//!
//! Entries are numbered from 0 in the order of their announcement. Either side may say `Abort` at
//! any time. Messages are [postcard](https://docs.rs/postcard)'s, each in a [`channel`] frame; what a
//! field may hold is checked by [`Message::decode`] as far as one message tells.
//!
//! [`channel`]: super::channel

use core::sync::atomic::{AtomicU64, Ordering};
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::journal::Origin;
use super::stages::STAGES;
use super::tree_hash::{CHUNK, Node};
use crate::digest::Digest;
use crate::frame::{AbortReason, Attributes, MAX_TARGET, MAX_TEXT, Tally};
use crate::name::{BadName, Name};

/// The version of this protocol.
pub const PROTOCOL: u32 = 4;
/// The longest message, bytes. Extended attributes and the nodes of a fragmented file fit.
pub const MAX_MESSAGE: usize = 1 << 20;
/// The most nodes in one verdict. What a file has beyond them is sent again.
pub const MAX_NODES: usize = 16_384;
/// The most bytes of extended attributes that are kept of an entry.
pub const MAX_XATTRS: usize = 256 << 10;

/// The most extended attributes of an entry: more names than Linux lists (64 KiB).
pub const MAX_XATTR_COUNT: usize = 10_000;

/// One thing that a side says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Message {
    /// Source: an entry of the present directory. A directory is entered by it.
    Entry(Entry),
    /// Source: the present directory has no more entries.
    Leave {
        /// All of it could be read: what is not in it may be deleted at the sink.
        complete: bool,
    },
    /// Source: what all comes to, once known. For progress only.
    Totals {
        /// Regular files.
        files: u64,
        /// Sum of their lengths, bytes.
        bytes: u64,
    },
    /// Source: these chunks of a sparse file are zero.
    Zeros {
        /// The entry.
        file: u64,
        /// The first chunk.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Source: every chunk of the file has been sent or was there, and it is still what was announced.
    FileEnd {
        /// The entry.
        file: u64,
        /// Its digest; none if the transfer is not verified.
        digest: Option<Digest>,
        /// Its size, for those announced without one.
        size: u64,
    },
    /// Source: the file changed while it was read. It begins anew, as this; a [`Message::Verdict`]
    /// is due again.
    FileAgain {
        /// The entry.
        file: u64,
        /// What it is now.
        attributes: Attributes,
        /// Its size now, bytes.
        size: u64,
        /// Whether it has holes now.
        sparse: bool,
        /// What it is known by now, beside its size and time.
        origin: Origin,
    },
    /// Source: the file could not be read and is not to be kept.
    FileDropped {
        /// The entry.
        file: u64,
    },
    /// Source: the file has the digest that the sink has told: [`Verdict::Compare`].
    Same {
        /// The entry.
        file: u64,
    },
    /// Source: that was everything. Files may still be on their way, and be dropped or begin anew.
    End {
        /// What was announced, by now.
        tally: Tally,
        /// Entries that could not be read by now, dropped files among them.
        omitted: u64,
        /// The content of the target itself was announced, and all of it: what is not in it may be
        /// deleted there.
        complete: bool,
    },
    /// Source: the receipt has arrived.
    Done,
    /// Sink: what is wanted of a file.
    Verdict {
        /// The entry.
        file: u64,
        /// What.
        verdict: Verdict,
    },
    /// Sink: everything in this block has been written, or failed and was reported.
    Stored {
        /// The block.
        block: u64,
    },
    /// Sink: a chunk did not arrive as it was read. It is wanted again.
    Damaged {
        /// The entry.
        file: u64,
        /// The chunk.
        chunk: u64,
    },
    /// Sink: of these chunks it said that it has them, and has not. They are wanted.
    Lost {
        /// The entry.
        file: u64,
        /// The first chunk.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Sink: the file is complete, verified and has its name.
    Finished {
        /// The entry.
        file: u64,
    },
    /// Sink: an entry could not be stored. The transfer goes on without it.
    Failed {
        /// The entry.
        entry: u64,
        /// Which and why, for people.
        text: String,
    },
    /// Sink: everything is stored, but for what failed.
    Receipt {
        /// What was announced, as the sink counts it.
        tally: Tally,
        /// Entries that are not stored.
        failed: u64,
        /// Entries of the sink that were deleted.
        deleted: u64,
    },
    /// Of the dialer: how many lanes there are to be.
    Lanes {
        /// How many, apart from one on trial.
        wanted: u32,
        /// A [trial](super::link::Purpose::Trial) whose number is not greater is over.
        trials_over: u32,
    },
    /// Both: how this side is doing, now and then.
    Pulse(Pulse),
    /// Both: something that the user of the other side is to see, if there is one.
    Note {
        /// What of.
        about: About,
        /// For people.
        text: String,
    },
    /// Both: this side gives up.
    Abort {
        /// Why, for the exit code.
        reason: AbortReason,
        /// Why, for people.
        text: String,
    },
    /// Either: the connection of a lane has failed here. A side that only waits on it would not notice.
    LaneBroken {
        /// Its number.
        lane: u32,
    },
    /// Either: how much of what went over each lane its transport takes for arrived at the peer, or has taken, in the
    /// units of [`LinkFacts`](super::link::LinkFacts). At most [`MAX_LANES_TOLD`].
    Acknowledged {
        /// The number of a lane, and how much.
        lanes: Vec<(u32, u64)>,
    },
    /// Source: so many special files are left out. Said before the end, if there are any.
    LeftOut {
        /// How many.
        count: u64,
    },
    /// Source: the source that the present directory belongs to has nothing that is copied but directories, or
    /// the present directory has no entries as nothing is mounted there that should be. Said before its [`Message::Leave`], or the end.
    Empty,
    /// Sink: so many entries were not deleted because a limit was reached. Said before the receipt, if there
    /// are any.
    NotDeleted {
        /// How many.
        count: u64,
    },
}

/// What a [`Message::Note`] is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum About {
    /// An entry that the source cannot read, which its [`Message::End`] counts, or that the sink cannot
    /// delete, which nothing else tells of.
    Failure,
    /// An entry that the sink has deleted, or would: its path.
    Deleted,
    /// A special file that the source leaves out: its path and what it is.
    LeftOut,
    /// A file that has grown while it was copied, of which what was announced is copied.
    Grown,
    /// Anything else.
    Remark,
}

/// The most lanes in one [`Message::Acknowledged`].
pub const MAX_LANES_TOLD: usize = 64;
/// The most notes about what has not failed that a side tells the other.
pub const MAX_NOTES: u64 = 1000;

/// Which of a peer's notes are shown. A peer may send more than it should, or each failure of a million:
/// that must not flood a terminal or a log.
#[derive(Debug, Default)]
pub struct Heard {
    failures: AtomicU64,
    others: AtomicU64,
}

/// What becomes of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    /// It is shown.
    Show,
    /// It is the first that is not, which is told.
    TooMany,
    /// It is not shown.
    Hide,
}

impl Heard {
    /// One more of this kind. Some of what a peer says at its own limit come on top of that.
    pub fn note(&self, about: About) -> Hearing {
        let (count, most) = match about {
            About::Failure => (&self.failures, MAX_NOTES),
            _ => (&self.others, 2 * MAX_NOTES),
        };
        match count.fetch_add(1, Ordering::Relaxed) {
            before if before < most => Hearing::Show,
            before if before == most => Hearing::TooMany,
            _ => Hearing::Hide,
        }
    }
}

/// The text in place of notes that are not shown.
pub const TOO_MANY_NOTES: &str = "the other side says too much: the rest of it is only counted";

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// One component; see [`Entry::name`].
    pub name: Vec<u8>,
    /// Mode and times.
    pub attributes: Attributes,
    /// Owner and extended attributes, if they are to be kept.
    pub extra: Option<Box<Extra>>,
    /// What it is.
    pub what: What,
}

impl Entry {
    /// Its name.
    pub fn name(&self) -> Name<'_> {
        Name::new(&self.name).expect("checked when it was made or decoded")
    }
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A directory; what follows is in it until its [`Message::Leave`].
    Directory,
    /// A regular file.
    File {
        /// Its size, bytes, at most 2^63 - 1.
        size: u64,
        /// Whether it has holes.
        sparse: bool,
        /// What it is known by, beside its size and time.
        origin: Origin,
    },
    /// What a stream gives until its end, to be stored as a file.
    Stream,
    /// A symbolic link, with its text: 1 to [`MAX_TARGET`] bytes without NUL.
    Symlink(Vec<u8>),
    /// Another name of a file announced before.
    HardLink {
        /// That file's entry.
        to: u64,
    },
}

/// What is kept of an entry on request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extra {
    /// User and group, by number.
    pub owner: Option<(u32, u32)>,
    /// Names and values, at most [`MAX_XATTRS`] bytes in all.
    #[serde(deserialize_with = "few")]
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Names and values.
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads no more than [`MAX_XATTR_COUNT`] of them: each takes thirty times of memory what it takes of a message.
fn few<'de, D: Deserializer<'de>>(from: D) -> Result<Xattrs, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = Xattrs;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MAX_XATTR_COUNT} extended attributes")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut few = Vec::new();
            while let Some(one) = all.next_element()? {
                if few.len() == MAX_XATTR_COUNT {
                    return Err(serde::de::Error::invalid_length(few.len() + 1, &self));
                }
                few.push(one);
            }
            Ok(few)
        }
    }
    from.deserialize_seq(Few)
}

/// What the sink wants of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// All but these complete subtrees, at most [`MAX_NODES`]. What does not hold of them when it is
    /// looked at is [`Message::Lost`].
    Take {
        /// What it has.
        have: Vec<Node>,
    },
    /// Nothing: what is there is the same by size and time, or is to stay.
    Skip {
        /// Why.
        reason: Skip,
        /// The digest of what is there, if receipts want it.
        digest: Option<Digest>,
    },
    /// Nothing if the source's file has this digest, else all.
    Compare {
        /// The digest of what is there.
        digest: Digest,
    },
}

/// Why a file is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Skip {
    /// It is there: same size, same time of change.
    Same,
    /// Something of this name is there and is to stay.
    Exists,
    /// It could not be made; [`Message::Failed`] says why.
    Failed,
}

/// How a side is doing since its last pulse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pulse {
    /// The time it covers, µs.
    pub interval: u64,
    /// Lanes that exist.
    pub lanes: u32,
    /// Time spent by all lanes together in each stage, µs, in the order of
    /// [`Stage`](super::stages::Stage).
    pub stages: [u64; STAGES],
    /// For so long this side's busiest thread wanted a processor, µs.
    pub busy: u64,
    /// Packets sent, and those among them that were sent again.
    pub packets: (u64, u64),
    /// For so long the peer's window held this side back, µs.
    pub blocked: u64,
    /// What the path seems to carry, bits/s; 0: not known.
    pub capacity: u64,
}

impl Pulse {
    /// Adds a later one: sums of what can be summed, the latest of the rest.
    pub fn add(&mut self, later: &Pulse) {
        for (sum, part) in self.stages.iter_mut().zip(later.stages) {
            *sum = sum.saturating_add(part);
        }
        self.interval = self.interval.saturating_add(later.interval);
        self.busy = self.busy.saturating_add(later.busy);
        self.packets.0 = self.packets.0.saturating_add(later.packets.0);
        self.packets.1 = self.packets.1.saturating_add(later.packets.1);
        self.blocked = self.blocked.saturating_add(later.blocked);
        (self.lanes, self.capacity) = (later.lanes, later.capacity);
    }

    /// What has come since `earlier`, another of the same sums.
    pub fn since(&self, earlier: &Pulse) -> Pulse {
        let less = |now: u64, then: u64| now.saturating_sub(then);
        Pulse {
            interval: less(self.interval, earlier.interval),
            busy: less(self.busy, earlier.busy),
            stages: std::array::from_fn(|at| less(self.stages[at], earlier.stages[at])),
            packets: (
                less(self.packets.0, earlier.packets.0),
                less(self.packets.1, earlier.packets.1),
            ),
            blocked: less(self.blocked, earlier.blocked),
            ..*self
        }
    }
}

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadMessage {
    /// A name that could lead out of its directory, or is none.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A field has a value that it must not have.
    #[error("a message with a bad {0}")]
    Value(&'static str),
    /// It is no message at all, or is cut.
    #[error("bytes that are no message")]
    Malformed,
}

impl Message {
    /// Appends its bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let bytes = postcard::to_allocvec(self).expect("plain data is always encodable");
        out.extend_from_slice(&bytes);
    }

    /// The message that `bytes` are.
    ///
    /// # Errors
    ///
    /// [`BadMessage`]: they are none, or one that nobody should say.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let (mut message, rest) =
            postcard::take_from_bytes::<Message>(bytes).map_err(|_| BadMessage::Malformed)?;
        if !rest.is_empty() {
            return Err(BadMessage::Malformed);
        }
        message.check()?;
        Ok(message)
    }

    fn check(&mut self) -> Result<(), BadMessage> {
        match self {
            Message::Entry(entry) => entry.check(),
            Message::FileAgain { attributes, size, origin, .. } => {
                check_attributes(attributes)?;
                check_origin(origin)?;
                check_size(*size)
            }
            Message::FileEnd { size, .. } => check_size(*size),
            Message::Zeros { first, count, .. } | Message::Lost { first, count, .. } => {
                let end = first.checked_add(*count).ok_or(BadMessage::Value("range"))?;
                if *count == 0 || end > MAX_SIZE.div_ceil(CHUNK) {
                    return Err(BadMessage::Value("range"));
                }
                Ok(())
            }
            Message::Verdict { verdict: Verdict::Take { have }, .. } if have.len() > MAX_NODES => {
                Err(BadMessage::Value("number of nodes"))
            }
            Message::Acknowledged { lanes } if lanes.len() > MAX_LANES_TOLD => {
                Err(BadMessage::Value("number of lanes"))
            }
            Message::Failed { text, .. }
            | Message::Note { text, .. }
            | Message::Abort { text, .. } => {
                cut(text);
                *text = crate::report::printable(text.as_bytes());
                // What stands for a character may be longer than it.
                cut(text);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Leaves at most [`MAX_TEXT`] bytes of a text.
fn cut(text: &mut String) {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// What the interfaces of files can express.
const MAX_SIZE: u64 = i64::MAX as u64;

impl Entry {
    fn check(&self) -> Result<(), BadMessage> {
        Name::new(&self.name)?;
        check_attributes(&self.attributes)?;
        if let Some(extra) = &self.extra {
            let bytes: usize = extra.xattrs.iter().map(|(n, v)| n.len() + v.len()).sum();
            let named = extra
                .xattrs
                .iter()
                .all(|(n, _)| !n.is_empty() && n.len() <= crate::name::MAX_NAME && !n.contains(&0));
            if bytes > MAX_XATTRS || !named {
                return Err(BadMessage::Value("extended attribute"));
            }
        }
        match &self.what {
            What::File { size, origin, .. } => {
                check_origin(origin)?;
                check_size(*size)
            }
            What::Symlink(target)
                if target.is_empty() || target.len() > MAX_TARGET || target.contains(&0) =>
            {
                Err(BadMessage::Value("link target"))
            }
            _ => Ok(()),
        }
    }
}

fn check_size(size: u64) -> Result<(), BadMessage> {
    if size > MAX_SIZE { Err(BadMessage::Value("file size")) } else { Ok(()) }
}

fn check_attributes(attributes: &Attributes) -> Result<(), BadMessage> {
    // Nanoseconds above have special meanings for utimensat ("now", "leave alone").
    let times = [attributes.accessed, attributes.modified];
    if attributes.mode > 0o7777 || times.iter().any(|time| time.nanoseconds >= 1_000_000_000) {
        return Err(BadMessage::Value("mode or time"));
    }
    Ok(())
}

fn check_origin(origin: &Origin) -> Result<(), BadMessage> {
    if origin.changed.nanoseconds >= 1_000_000_000 {
        return Err(BadMessage::Value("time of change"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Timestamp;

    fn file(name: &[u8], size: u64) -> Message {
        Message::Entry(Entry {
            name: name.to_vec(),
            attributes: Attributes::default(),
            extra: None,
            what: What::File { size, sparse: false, origin: Origin::default() },
        })
    }

    fn decoded(message: &Message) -> Result<Message, BadMessage> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        Message::decode(&bytes)
    }

    #[test]
    fn messages_come_back() {
        for message in [
            file(b"a", 1 << 40),
            Message::Leave { complete: true },
            Message::Zeros { file: 1, first: 0, count: 1 << 40 },
            Message::Lost { file: 1, first: 7, count: 46 },
            Message::Verdict { file: 7, verdict: Verdict::Take { have: Vec::new() } },
            Message::Pulse(Pulse { busy: 1000, ..Pulse::default() }),
            Message::Abort { reason: AbortReason::Failed, text: "why".into() },
        ] {
            assert_eq!(decoded(&message), Ok(message));
        }
    }

    #[test]
    fn what_nobody_should_say_is_refused() {
        for name in [&b""[..], b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(matches!(decoded(&file(name, 0)), Err(BadMessage::Name(_))), "{name:?}");
        }
        assert_eq!(decoded(&file(b"a", 1 << 63)), Err(BadMessage::Value("file size")));
        for (first, count) in [(0, 0), (u64::MAX, 2), (1 << 60, 1)] {
            for message in
                [Message::Zeros { file: 0, first, count }, Message::Lost { file: 0, first, count }]
            {
                assert_eq!(decoded(&message), Err(BadMessage::Value("range")), "{message:?}");
            }
        }
        let changed = Timestamp { seconds: 0, nanoseconds: 1_000_000_000 };
        let again = Message::FileAgain {
            file: 0,
            attributes: Attributes::default(),
            size: 1,
            sparse: false,
            origin: Origin { changed, inode: 1 },
        };
        assert_eq!(decoded(&again), Err(BadMessage::Value("time of change")));
        let mut bytes = Vec::new();
        file(b"a", 0).encode(&mut bytes);
        bytes.push(0);
        assert_eq!(Message::decode(&bytes), Err(BadMessage::Malformed));
        assert_eq!(Message::decode(&bytes[..4]), Err(BadMessage::Malformed));
    }

    #[test]
    fn texts_cannot_drive_a_terminal_and_are_cut() {
        let text = "é\x1b[2J".repeat(1000);
        let Ok(Message::Failed { text, .. }) = decoded(&Message::Failed { entry: 0, text }) else {
            panic!("no message")
        };
        assert!(text.len() <= MAX_TEXT && !text.contains('\x1b'));
        // One that is handed on comes through as it is.
        let again = Message::Failed { entry: 0, text };
        assert_eq!(decoded(&again), Ok(again));
    }
}
