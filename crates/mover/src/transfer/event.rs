//! What a side tells its user while a transfer runs.

use std::path::{Path, PathBuf};

use crate::digest::Digest;
use crate::report::{Failure, Special};

/// Something that the user may want to see or keep.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A regular file is over and done with.
    File {
        /// Relative to the target.
        path: &'a Path,
        /// Its size, bytes.
        size: u64,
        /// Its digest, where it is known.
        digest: Option<Digest>,
        /// The digest is the root of the [tree](super::tree_hash::ChunkTree) of a file with holes; if
        /// not, it is plain BLAKE3.
        sparse: bool,
        /// What became of it.
        outcome: Outcome,
    },
    /// An entry of any kind could not be moved; the transfer goes on.
    Failed {
        /// Relative to the target, as far as it is known.
        path: Option<&'a Path>,
        /// Where and why.
        failure: &'a Failure,
    },
    /// The source has something that is neither file, directory nor link. It is left out.
    Skipped {
        /// Where it is.
        path: &'a Path,
        /// What it is.
        what: Special,
    },
    /// An entry of the target was deleted, or would be.
    Deleted {
        /// Relative to the target.
        path: &'a Path,
    },
    /// Anything else worth a line: a connection lost and found, a fall-back, a file that is sent again.
    Note(&'a str),
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was moved, or the rest of it.
    Moved {
        /// Bytes of it that an earlier transfer had moved.
        resumed: u64,
    },
    /// It was there.
    Same {
        /// Its content was compared, by digest; else its size and time of change.
        compared: bool,
    },
    /// Something of its name was there and was to stay.
    Kept,
}

/// Whoever listens. Called from several threads, and to return soon.
pub type Observer<'a> = &'a (dyn Fn(Event<'_>) + Send + Sync);

/// How far a side is, counted since its beginning. Files that were there count as done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Entries that the source has announced; at the sink only.
    pub entries: u64,
    /// Regular files done.
    pub files: u64,
    /// Bytes of files done, holes and what was there included.
    pub bytes: u64,
    /// Bytes of data that went over the lanes and that the sink has checked and written.
    pub moved: u64,
    /// Files and bytes in all, once the source has counted them: a guess.
    pub totals: Option<(u64, u64)>,
    /// The file last worked on.
    pub current: PathBuf,
}
