//! What is known of a partial file: which of its chunks are stored and proved.
//!
//! A journal is a [`Header`] and then [`Record`]s of one size, only ever appended. Every record has
//! check bytes over itself, its number and the header, so a torn tail, or what a file system brings
//! back from an older journal, ends the reading and is never believed.
//!
//! What a journal says of a partial file is a claim: the medium may have lost it, by a write-back that
//! failed, by a power cut, by another program. A transfer that takes it up reads it again. Without
//! reading, only what a [`Record::Synced`] covers is taken for sure, under the same [`Epoch`], by those
//! that ask for it or have nothing to compare with.
//!
//! Everything here is pure; reading and writing the file is the business of [`part`](super::part).

use blake3::Hasher;

use serde::{Deserialize, Serialize};

use super::tree_hash::{CHUNK, ChunkTree, Cv, Node};
use crate::frame::Timestamp;

/// The first bytes of a journal; the last two are the version.
const MAGIC: [u8; 8] = *b"farhlJ\0\x02";
/// Bytes of an encoded [`Header`].
pub const HEADER: usize = 164;
/// Bytes of an encoded [`Record`].
pub const RECORD: usize = 48;
/// Bytes of a header before its check bytes.
const HEADER_BODY: usize = HEADER - 16;
/// Bytes of a record before its check bytes.
const RECORD_BODY: usize = RECORD - 7;

const SPARSE: u8 = 1;
const VERIFY: u8 = 2;

/// A boot of a machine; all zeros where it has no name.
pub type BootId = [u8; 16];

/// The time in which a file system stays what it was: one boot of the machine, one mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// The boot.
    pub boot: BootId,
    /// The mount's number, and its device's; zero where there is none.
    pub mount: (u64, u64),
}

impl Epoch {
    /// Whether it is known to be `other`.
    pub fn is(&self, other: &Epoch) -> bool {
        self == other && self.boot != BootId::default() && self.mount != (0, 0)
    }
}

/// The most subtrees that a part's claims are made of, where they have no gaps: so fine is what is lost
/// when one of them does not hold.
const CLAIMS: u64 = 4096;

/// What a file is known by while it is under way: with another identity it is another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Bytes, at most 2^63 - 1.
    pub size: u64,
    /// When the source was last changed, by what anyone may set.
    pub modified: Timestamp,
    /// What nobody sets.
    pub origin: Origin,
    /// Whether it has holes.
    pub sparse: bool,
    /// Whether chunks are hashed. Without, there are no chaining values and no digest.
    pub verify: bool,
}

/// What tells a source's file from what it was before, even if that had the same size and time of
/// content: both are the kernel's, as far as its file system keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Last change of content, attributes or names (ctime).
    pub changed: Timestamp,
    /// Its inode.
    pub inode: u64,
}

impl Identity {
    /// The tree of such a file, with nothing in it.
    pub fn tree(&self) -> ChunkTree {
        if self.verify {
            ChunkTree::new(self.size, self.sparse)
        } else {
            ChunkTree::unverified(self.size)
        }
    }

    /// A tree for what is claimed of such a file: of subtrees that can be taken out one by one.
    pub fn claims(&self) -> ChunkTree {
        let level = self.size.div_ceil(CHUNK).div_ceil(CLAIMS).next_power_of_two().ilog2();
        self.tree().merging_to(level as u8)
    }
}

/// What tells a file from one that has its name later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    /// Its inode, which may be used again once it is removed.
    pub inode: u64,
    /// When it was made: nanoseconds since 1970 UTC, 0 where the file system does not know.
    pub born: u64,
}

/// The beginning of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Of the file.
    pub identity: Identity,
    /// A digest of the file's name.
    pub name: [u8; 32],
    /// When it is written.
    pub epoch: Epoch,
    /// The partial file.
    pub part: FileId,
    /// Unlike that of any other journal.
    pub nonce: [u8; 8],
}

impl Header {
    /// Its bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let identity = &self.identity;
        let flags =
            if identity.sparse { SPARSE } else { 0 } | if identity.verify { VERIFY } else { 0 };
        let mut bytes = [0; HEADER];
        let mut rest = &mut bytes[..];
        put(&mut rest, &MAGIC);
        put(&mut rest, &CHUNK.to_be_bytes());
        put(&mut rest, &identity.size.to_be_bytes());
        put(&mut rest, &identity.modified.seconds.to_be_bytes());
        put(&mut rest, &identity.modified.nanoseconds.to_be_bytes());
        put(&mut rest, &identity.origin.changed.seconds.to_be_bytes());
        put(&mut rest, &identity.origin.changed.nanoseconds.to_be_bytes());
        put(&mut rest, &identity.origin.inode.to_be_bytes());
        put(&mut rest, &[flags, 0, 0, 0]);
        put(&mut rest, &self.name);
        put(&mut rest, &self.epoch.boot);
        put(&mut rest, &self.epoch.mount.0.to_be_bytes());
        put(&mut rest, &self.epoch.mount.1.to_be_bytes());
        put(&mut rest, &self.part.inode.to_be_bytes());
        put(&mut rest, &self.part.born.to_be_bytes());
        put(&mut rest, &self.nonce);
        let (body, check) = bytes.split_at_mut(HEADER_BODY);
        check.copy_from_slice(&blake3::hash(body).as_bytes()[..16]);
        bytes
    }

    /// The header at the beginning of `bytes`; `None` if there is none of this version, or it is
    /// damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER] = bytes.first_chunk()?;
        let mut rest = &bytes[..];
        if take::<8>(&mut rest)? != MAGIC || u64::from_be_bytes(take(&mut rest)?) != CHUNK {
            return None;
        }
        let size = u64::from_be_bytes(take(&mut rest)?);
        let modified = take_time(&mut rest)?;
        let changed = take_time(&mut rest)?;
        let origin = Origin { changed, inode: u64::from_be_bytes(take(&mut rest)?) };
        let [flags, ..] = take::<4>(&mut rest)?;
        let (sparse, verify) = (flags & SPARSE > 0, flags & VERIFY > 0);
        let identity = Identity { size, modified, origin, sparse, verify };
        let header = Header {
            identity,
            name: take(&mut rest)?,
            epoch: Epoch {
                boot: take(&mut rest)?,
                mount: (u64::from_be_bytes(take(&mut rest)?), u64::from_be_bytes(take(&mut rest)?)),
            },
            part: FileId {
                inode: u64::from_be_bytes(take(&mut rest)?),
                born: u64::from_be_bytes(take(&mut rest)?),
            },
            nonce: take(&mut rest)?,
        };
        // Every bit has one meaning, so this checks the check bytes and what must be zero.
        (header.encode() == *bytes).then_some(header)
    }

    /// What ties records to this journal.
    pub fn seal(&self) -> Seal {
        let bytes = self.encode();
        let mut seal = [0; 8];
        seal.copy_from_slice(&bytes[HEADER_BODY..HEADER_BODY + 8]);
        Seal(seal)
    }
}

/// What ties records to their journal: the first of its header's check bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal([u8; 8]);

/// One thing that became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// These chunks are stored with this content. Without verification the value means nothing.
    Proved(Node),
    /// These chunks are zeros.
    Zeros {
        /// The first chunk.
        first: u64,
        /// How many chunks.
        count: u64,
    },
    /// What the first records said is on the medium.
    Synced {
        /// How many records: no more than are before this one.
        records: u64,
    },
    /// These chunks were not what the records before say: of them nothing holds, nor of subtrees that
    /// have some of them.
    Lost {
        /// The first chunk.
        first: u64,
        /// How many chunks.
        count: u64,
    },
}

impl Record {
    /// Its bytes as record `number`, counted from 0.
    pub fn encode(&self, seal: Seal, number: u64) -> [u8; RECORD] {
        let (kind, a, b) = match *self {
            Record::Proved(node) => (node.level, node.index, node.cv),
            Record::Zeros { first, count } => (64, first, pad(count)),
            Record::Synced { records } => (65, records, [0; 32]),
            Record::Lost { first, count } => (66, first, pad(count)),
        };
        let mut bytes = [0; RECORD];
        let mut rest = &mut bytes[..];
        put(&mut rest, &[kind]);
        put(&mut rest, &a.to_be_bytes());
        put(&mut rest, &b);
        let (body, check) = bytes.split_at_mut(RECORD_BODY);
        let mut hasher = Hasher::new();
        hasher.update(&seal.0).update(&number.to_be_bytes()).update(body);
        check.copy_from_slice(&hasher.finalize().as_bytes()[..RECORD - RECORD_BODY]);
        bytes
    }

    /// Record `number` from its bytes; `None` if it is damaged or not of this journal.
    pub fn decode(bytes: &[u8; RECORD], seal: Seal, number: u64) -> Option<Self> {
        let mut rest = &bytes[..];
        let [kind] = take(&mut rest)?;
        let a = u64::from_be_bytes(take(&mut rest)?);
        let b: Cv = take(&mut rest)?;
        let mut second = &b[..];
        let record = match kind {
            level @ 0..64 => Record::Proved(Node { level, index: a, cv: b }),
            64 => Record::Zeros { first: a, count: u64::from_be_bytes(take(&mut second)?) },
            65 => Record::Synced { records: a },
            66 => Record::Lost { first: a, count: u64::from_be_bytes(take(&mut second)?) },
            _ => return None,
        };
        (record.encode(seal, number) == *bytes).then_some(record)
    }
}

fn pad(count: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&count.to_be_bytes());
    bytes
}

fn put(rest: &mut &mut [u8], bytes: &[u8]) {
    let (head, tail) = std::mem::take(rest).split_at_mut(bytes.len());
    head.copy_from_slice(bytes);
    *rest = tail;
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

fn take_time(rest: &mut &[u8]) -> Option<Timestamp> {
    let seconds = i64::from_be_bytes(take(rest)?);
    Some(Timestamp { seconds, nanoseconds: u32::from_be_bytes(take(rest)?) })
}

/// A journal that is being read.
#[derive(Clone, Debug)]
pub struct Replay {
    seal: Seal,
    /// What was on the medium.
    covered: ChunkTree,
    /// The rest, each with its number; never a `Synced`.
    later: Vec<(u64, Record)>,
    records: u64,
    /// The first of them, which were on the medium.
    synced: u64,
}

/// What a journal says.
#[derive(Debug)]
pub struct Replayed {
    /// What was on the medium, if that is believed.
    pub sure: ChunkTree,
    /// The rest: [claims](Identity::claims). Nothing of it is in the other tree.
    pub claims: ChunkTree,
    /// Sound records in all: the journal ends after them.
    pub records: u64,
    /// The first of them, which are on the medium.
    pub synced: u64,
}

impl Replay {
    /// Begins after the header.
    pub fn new(header: Header) -> Self {
        let (seal, covered) = (header.seal(), header.identity.claims());
        Replay { seal, covered, later: Vec::new(), records: 0, synced: 0 }
    }

    /// Takes the next record. `false`: it is not sound, and the journal ends before it.
    pub fn take(&mut self, bytes: &[u8; RECORD]) -> bool {
        let Some(record) = Record::decode(bytes, self.seal, self.records) else { return false };
        let sound = match &record {
            Record::Proved(node) => self.covered.place(node).is_ok(),
            Record::Zeros { first, count } => self.covered.place_of_zeros(*first, *count).is_ok(),
            Record::Synced { records } => *records <= self.records,
            Record::Lost { first, count } => {
                first.checked_add(*count).is_some_and(|end| end <= self.covered.chunks())
            }
        };
        if !sound {
            return false;
        }
        match record {
            Record::Synced { records } => {
                self.synced = self.synced.max(records);
                let covered = self.later.partition_point(|(number, _)| *number < records);
                for (_, record) in self.later.drain(..covered) {
                    apply(&mut self.covered, &record);
                }
                for (_, record) in &self.later {
                    if let Record::Lost { .. } = record {
                        apply(&mut self.covered, record);
                    }
                }
            }
            _ => {
                if let Record::Lost { .. } = record {
                    // What is synced later does not bring it back.
                    apply(&mut self.covered, &record);
                }
                self.later.push((self.records, record));
            }
        }
        self.records += 1;
        true
    }

    /// What the records come to. `believed`: what was on the medium is not read again.
    pub fn finish(self, identity: &Identity, believed: bool) -> Replayed {
        let Replay { covered, later, records, synced, .. } = self;
        let (sure, mut claims) = match believed {
            true => (covered, identity.claims()),
            false => (identity.claims(), covered),
        };
        let mut said = identity.claims();
        for (_, record) in &later {
            apply(if believed { &mut said } else { &mut claims }, record);
        }
        for node in said.nodes() {
            let chunks = said.place(&node).unwrap_or_default();
            if sure.missing_in(chunks.clone()).eq([chunks]) {
                let _ = claims.insert_node(node); // nothing of it is there
            }
        }
        Replayed { sure, claims, records, synced }
    }
}

/// What was said twice holds once.
fn apply(tree: &mut ChunkTree, record: &Record) {
    match record {
        Record::Proved(node) => drop(tree.insert_node(*node)),
        Record::Zeros { first, count } => drop(tree.insert_zeros(*first, *count)),
        Record::Lost { first, count } => tree.remove(*first..first.saturating_add(*count)),
        Record::Synced { .. } => {}
    }
}

/// What a whole journal says; `None` if it has no sound header.
pub fn replay(bytes: &[u8], believed: bool) -> Option<(Header, Replayed)> {
    let header = Header::decode(bytes)?;
    let mut replay = Replay::new(header);
    let (records, _) = bytes[HEADER..].as_chunks();
    let _ = records.iter().all(|record| replay.take(record));
    Some((header, replay.finish(&header.identity, believed)))
}

#[cfg(test)]
mod tests;
