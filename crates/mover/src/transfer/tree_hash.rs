//! The digest of a file from its chunks, in whatever order they come.
//!
//! BLAKE3 is a binary tree, so a file's digest follows from the chaining values of its aligned
//! chunks. Subtrees that are complete are merged at once: what is kept grows with the gaps between
//! them and not with the file.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// Bytes of a chunk, but for the last of a file, which may be shorter. A power of two.
pub const CHUNK: u64 = 1 << 20;

/// The chaining value of a subtree.
pub type Cv = [u8; 32];

/// What stands for zeros in the tree of a sparse file, on every level: a subtree's place and length
/// follow from the file's size, which the root covers.
pub const ZEROS: Cv = [0; 32];

/// Separates the inner nodes of a sparse file's tree from every other use of BLAKE3.
const PARENT_CONTEXT: &str = "farhaul mover 2 sparse file parent";
/// The same for its root.
const ROOT_CONTEXT: &str = "farhaul mover 2 sparse file root";

/// The chaining value of chunk `index` of a file of several chunks: 1 to [`CHUNK`] bytes.
///
/// # Panics
///
/// If `data` is longer than a chunk.
pub fn chunk_cv(index: u64, data: &[u8]) -> Cv {
    assert!(data.len() as u64 <= CHUNK, "a chunk of {} bytes", data.len());
    if data.is_empty() {
        return whole(data);
    }
    // Wrapping: no file has such a chunk, and its value then matches nothing.
    Hasher::new().set_input_offset(index.wrapping_mul(CHUNK)).update(data).finalize_non_root()
}

/// The digest of a dense file that is one chunk at most: plain BLAKE3.
pub fn whole(data: &[u8]) -> Digest {
    blake3::hash(data).into()
}

/// What a [`ChunkTree`] of this size and kind takes for chunk `index` with the bytes `data`.
///
/// It is [`ZEROS`] for zeros in a sparse file, [`whole`] for a dense file's only chunk, which is
/// the root of its tree, and else [`chunk_cv`].
///
/// # Panics
///
/// If `data` is longer than a chunk.
pub fn leaf(size: u64, sparse: bool, index: u64, data: &[u8]) -> Cv {
    if sparse && is_zero(data) {
        ZEROS
    } else if !sparse && size <= CHUNK {
        whole(data)
    } else {
        chunk_cv(index, data)
    }
}

/// Whether all bytes are zero.
pub fn is_zero(data: &[u8]) -> bool {
    // Equal to itself moved by one byte, which the C library compares fastest.
    data.split_first().is_none_or(|(first, rest)| *first == 0 && *rest == data[..rest.len()])
}

/// A complete aligned subtree: 2^`level` chunks from chunk `index` × 2^`level` on, the last of which
/// may be a file's short last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Height above the chunks: 0 for a chunk.
    pub level: u8,
    /// Counts subtrees of this level from the beginning of the file.
    pub index: u64,
    /// Its chaining value.
    pub cv: Cv,
}

impl Node {
    /// The node of one chunk.
    pub fn chunk(index: u64, cv: Cv) -> Self {
        Node { level: 0, index, cv }
    }

    /// The chunks below it; `None` where they cannot be counted in 64 bits.
    pub fn chunks(&self) -> Option<Range<u64>> {
        let count = 1u64.checked_shl(u32::from(self.level))?;
        let first = self.index.checked_mul(count)?;
        Some(first..first.checked_add(count)?)
    }
}

/// Why a node or a range has no place in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadNode {
    /// Zeros of a file that was announced as dense.
    #[error("zeros left out of a file that has no holes")]
    Dense,
    /// It is or goes beyond the end of the file.
    #[error("a chunk beyond the end of the file")]
    OutOfRange,
    /// Some of it is there already.
    #[error("a subtree over chunks that are there")]
    Overlap,
    /// It is the whole of a file of several chunks, whose root it cannot give.
    #[error("a subtree in place of the root")]
    Root,
}

/// What parents are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Dense,
    Sparse,
    /// Nothing is hashed; the tree only knows what is there.
    Unverified,
}

/// The tree of one file, as far as it is known.
///
/// Of a dense file [`root`](Self::root) is the plain BLAKE3 of its content, the one `b3sum` prints.
/// Of a sparse file it depends on size and content and not on where the holes were: a chunk of
/// zeros counts as [`ZEROS`] whether it was a hole or not, a parent of two [`ZEROS`] is [`ZEROS`],
/// another one is a derived-key BLAKE3 of both, and so is the root of the file's size and the top.
/// A sparse file and a dense one of the same content have different digests.
#[derive(Clone, Debug)]
pub struct ChunkTree {
    size: u64,
    kind: Kind,
    total: u64,
    /// Siblings are merged up to this level.
    merged_to: u8,
    /// Chunks there.
    present: u64,
    /// Complete subtrees by their first chunk. No two of them are siblings, but for the two below
    /// the root: that is made of another mode, in the end.
    subtrees: BTreeMap<u64, (u8, Cv)>,
}

impl ChunkTree {
    /// Of a file of `size` bytes, nothing of it known.
    pub fn new(size: u64, sparse: bool) -> Self {
        Self::of_kind(size, if sparse { Kind::Sparse } else { Kind::Dense })
    }

    /// One that hashes nothing: it ignores chaining values, takes zeros, and has no root.
    pub fn unverified(size: u64) -> Self {
        Self::of_kind(size, Kind::Unverified)
    }

    fn of_kind(size: u64, kind: Kind) -> Self {
        let total = size.div_ceil(CHUNK);
        ChunkTree { size, kind, total, merged_to: u8::MAX, present: 0, subtrees: BTreeMap::new() }
    }

    /// The same, but made of subtrees of at most 2^`level` chunks, except for those that are inserted
    /// larger and for zeros: what [`remove`](Self::remove) can take out. It has no
    /// [root](Self::root).
    #[must_use]
    pub fn merging_to(self, level: u8) -> Self {
        ChunkTree { merged_to: level, ..self }
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Chunks of the file: none if it is empty.
    pub fn chunks(&self) -> u64 {
        self.total
    }

    /// Bytes of the chunks that are there.
    pub fn present_bytes(&self) -> u64 {
        let last_is_there = self.total > 0 && self.contains(self.total - 1);
        let short_by = if last_is_there { self.size.wrapping_neg() % CHUNK } else { 0 };
        // Only the sum is sure to fit.
        self.present.wrapping_mul(CHUNK).wrapping_sub(short_by)
    }

    /// Bytes of chunk `index`: 0 if the file has no such chunk.
    pub fn chunk_length(&self, index: u64) -> u64 {
        index.checked_mul(CHUNK).map_or(0, |offset| self.size.saturating_sub(offset).min(CHUNK))
    }

    /// Takes chunk `index` with its [`leaf`]. `false`: it was there, or the file has no such chunk.
    pub fn insert(&mut self, index: u64, cv: Cv) -> bool {
        self.insert_node(Node::chunk(index, cv)).is_ok()
    }

    /// Takes `count` chunks of zeros from chunk `first` on; what is there of them stays.
    pub fn insert_zeros(&mut self, first: u64, count: u64) -> Result<(), BadNode> {
        let Range { start: mut at, end } = self.place_of_zeros(first, count)?;
        while at < end {
            let covered = self.covering(at);
            if covered > at {
                at = covered;
                continue;
            }
            let next = self.subtrees.range(at..end).next().map_or(end, |(next, _)| *next);
            while at < next {
                let level = self.largest(at, next);
                self.add(at, level, ZEROS);
                at += 1 << level;
            }
        }
        Ok(())
    }

    /// The chunks of a range of zeros, if this tree takes it.
    pub fn place_of_zeros(&self, first: u64, count: u64) -> Result<Range<u64>, BadNode> {
        if self.kind == Kind::Dense {
            return Err(BadNode::Dense);
        }
        let end = first.checked_add(count).filter(|end| *end <= self.total);
        Ok(first..end.ok_or(BadNode::OutOfRange)?)
    }

    /// Takes a complete subtree of which nothing is there. The node may come from anyone: whether it
    /// has a place is checked, and its value shows in the root.
    pub fn insert_node(&mut self, node: Node) -> Result<(), BadNode> {
        let chunks = self.place(&node)?;
        if self.covering(chunks.start) > chunks.start
            || self.subtrees.range(chunks.clone()).next().is_some()
        {
            return Err(BadNode::Overlap);
        }
        self.add(chunks.start, node.level, node.cv);
        Ok(())
    }

    /// Takes out every subtree that has a chunk of `range`, also where it reaches beyond the range.
    pub fn remove(&mut self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let before = self.subtrees.range(..=at).next_back();
            let over = before.filter(|(first, (level, _))| *first + (1 << level) > at);
            let next = over.or_else(|| self.subtrees.range(at..range.end).next());
            let Some((first, level)) = next.map(|(first, (level, _))| (*first, *level)) else {
                return;
            };
            self.subtrees.remove(&first);
            self.present -= 1 << level;
            at = first + (1 << level);
        }
    }

    /// The complete subtrees, in order, one after the other.
    pub fn each_node(&self) -> impl Iterator<Item = Node> + '_ {
        self.subtrees.iter().map(|(first, (level, cv))| Node {
            level: *level,
            index: first >> level,
            cv: *cv,
        })
    }

    /// The chunks below `node`, if it can be part of this tree at all.
    pub fn place(&self, node: &Node) -> Result<Range<u64>, BadNode> {
        let chunks = node.chunks().filter(|chunks| chunks.end <= self.total);
        let chunks = chunks.ok_or(BadNode::OutOfRange)?;
        if node.level > 0 && chunks == (0..self.total) {
            return Err(BadNode::Root);
        }
        Ok(chunks)
    }

    /// Whether chunk `index` is there.
    pub fn contains(&self, index: u64) -> bool {
        self.covering(index) > index
    }

    /// The chunks that are not there, in order, as the longest possible ranges.
    pub fn missing(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.missing_in(0..self.total)
    }

    /// The chunks of `range` that are not there, in order, as the longest possible ranges.
    pub fn missing_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let end = range.end.min(self.total);
        let mut at = range.start;
        iter::from_fn(move || {
            while at < end {
                let covered = self.covering(at);
                if covered == at {
                    let next = self.subtrees.range(at..end).next().map_or(end, |(next, _)| *next);
                    let gap = at..next;
                    at = next;
                    return Some(gap);
                }
                at = covered;
            }
            None
        })
    }

    /// Where the last chunk that is there ends, in chunks.
    pub fn end(&self) -> u64 {
        self.subtrees.last_key_value().map_or(0, |(first, (level, _))| first + (1 << level))
    }

    /// All complete subtrees, in order. Inserted into an empty tree they make this one.
    pub fn nodes(&self) -> Vec<Node> {
        self.each_node().collect()
    }

    /// Whether no chunk is there.
    pub fn is_empty(&self) -> bool {
        self.subtrees.is_empty()
    }

    /// Whether every chunk is there.
    pub fn is_complete(&self) -> bool {
        self.present == self.total
    }

    /// The file's digest, once it is complete; never of an [unverified](Self::unverified) one.
    pub fn root(&self) -> Option<Digest> {
        if !self.is_complete() || self.kind == Kind::Unverified || self.merged_to < u8::MAX {
            return None;
        }
        // Complete subtrees of falling size: the right edge of the tree is folded upwards.
        let mut edge = self.subtrees.values().rev().map(|(_, cv)| *cv);
        let mut top = edge.next();
        while let Some(left) = edge.next() {
            let right = top.unwrap_or(ZEROS);
            let at_root = self.kind == Kind::Dense && edge.len() == 0;
            top = Some(if at_root {
                merge_subtrees_root(&left, &right, Mode::Hash).into()
            } else {
                self.parent(&left, &right)
            });
        }
        Some(match self.kind {
            Kind::Sparse => {
                let mut hasher = Hasher::new_derive_key(ROOT_CONTEXT);
                hasher.update(&self.size.to_be_bytes()).update(&top.unwrap_or(ZEROS));
                hasher.finalize().into()
            }
            _ => top.unwrap_or_else(|| whole(&[])),
        })
    }

    fn parent(&self, left: &Cv, right: &Cv) -> Cv {
        match self.kind {
            Kind::Dense => merge_subtrees_non_root(left, right, Mode::Hash),
            Kind::Sparse if (left, right) == (&ZEROS, &ZEROS) => ZEROS,
            Kind::Sparse => {
                let mut hasher = Hasher::new_derive_key(PARENT_CONTEXT);
                hasher.update(left).update(right).finalize().into()
            }
            Kind::Unverified => ZEROS,
        }
    }

    /// Where the subtree over chunk `at` ends; `at` if there is none.
    fn covering(&self, at: u64) -> u64 {
        let before = self.subtrees.range(..=at).next_back();
        before.map_or(at, |(first, (level, _))| at.max(first + (1 << level)))
    }

    /// The level of the largest subtree that begins with chunk `at`, ends at `end` or before, and
    /// is not the root.
    fn largest(&self, at: u64, end: u64) -> u8 {
        let mut level = (end - at).ilog2().min(at.trailing_zeros());
        if level > 0 && at == 0 && 1 << level == self.total {
            level -= 1;
        }
        level as u8
    }

    /// Adds a subtree of which nothing is there, and merges it with its siblings.
    fn add(&mut self, mut first: u64, mut level: u8, mut cv: Cv) {
        self.present += 1 << level;
        loop {
            let sibling = first ^ (1 << level);
            let parent = first.min(sibling);
            if level >= self.merged_to || parent == 0 && 2 << level == self.total {
                break; // or the parent is the root
            }
            match self.subtrees.get(&sibling) {
                Some((same, other)) if *same == level => {
                    cv = if first < sibling {
                        self.parent(&cv, other)
                    } else {
                        self.parent(other, &cv)
                    };
                    self.subtrees.remove(&sibling);
                    first = parent;
                    level += 1;
                }
                _ => break,
            }
        }
        let cv = if self.kind == Kind::Unverified { ZEROS } else { cv };
        self.subtrees.insert(first, (level, cv));
    }
}

#[cfg(test)]
mod tests;
