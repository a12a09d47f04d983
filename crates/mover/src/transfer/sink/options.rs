//! What a sink is to do, and where.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use super::marker::CopyId;
use super::workers::Helpers;
use crate::transfer::memory::Account;
use crate::transfer::source::filter::Filter;

/// How a sink stores.
#[derive(Debug)]
pub struct SinkOptions {
    /// Where.
    pub target: SinkTarget,
    /// What becomes of what is there.
    pub existing: Existing,
    /// Remove what the source does not have from directories that it has read completely.
    pub delete: bool,
    /// The most entries that are removed; none: as many as the source does not have.
    pub max_delete: Option<u64>,
    /// Remove entries also where the source has nothing at all: it may not be mounted.
    pub allow_empty: bool,
    /// What the source leaves out: such entries are not deleted.
    pub filter: Filter,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Compare what arrives with the source's hashes.
    pub verify: bool,
    /// Wait until everything is on the medium before the receipt.
    pub durable: bool,
    /// What an earlier transfer of a large file has waited for to be on the medium is not read again, if
    /// that was in the same boot of the machine and the same mount of the file system.
    pub trust_partial: bool,
    /// What the copy is known by, so that what it left behind when it was ended is told from what others
    /// did. All zeros: not known.
    pub copy: CopyId,
    /// What is kept of entries beside their content.
    pub preserve: Preserve,
    /// Keep set-user-ID and set-group-ID bits, and file capabilities.
    pub keep_set_id: bool,
    /// The permission bits that the source may give, of `0o7777`; set-ID bits only with `keep_set_id`.
    pub mode_mask: u32,
    /// Receipts want the digests of files that are not moved, too.
    pub want_digests: bool,
    /// The most bytes that the source may announce.
    pub max_bytes: Option<u64>,
    /// The most entries that it may announce.
    pub max_entries: Option<u64>,
    /// A box for new files of several owners, and which of them the source is: files get further names
    /// only where this transfer has stored them, and partial files of other owners are not taken up.
    pub owner: Option<[u8; 32]>,
    /// What the source makes the sink keep.
    pub memory: Arc<Account>,
    /// Where it gets threads beyond those that it needs.
    pub helpers: Arc<Helpers>,
}

impl SinkOptions {
    /// What is usual.
    pub fn new(target: SinkTarget) -> Self {
        SinkOptions {
            target,
            existing: Existing::default(),
            delete: false,
            max_delete: None,
            allow_empty: false,
            filter: Filter::default(),
            dry_run: false,
            verify: true,
            durable: true,
            trust_partial: false,
            copy: CopyId::default(),
            preserve: Preserve::default(),
            keep_set_id: false,
            mode_mask: 0o7777,
            want_digests: false,
            max_bytes: None,
            max_entries: None,
            owner: None,
            memory: Arc::default(),
            helpers: Arc::default(),
        }
    }
}

/// Where entries go.
pub enum SinkTarget {
    /// To a path, which may lead through links.
    ///
    /// If it is a directory, entries go into it. If it is not there, it is made for a directory that
    /// comes, and a file that comes gets its name; the directory above must be there.
    Path {
        /// The path.
        path: PathBuf,
        /// It must be or become a directory: there are several sources, or it ends with a slash.
        directory: bool,
    },
    /// The content of files, one after the other, to a stream.
    Standard(Box<dyn Write + Send>),
    /// As [`SinkTarget::Path`], but nothing outside of `root` is reached, and no link followed.
    Below {
        /// The directory that is exported.
        root: PathBuf,
        /// A path in it. A leading slash means the root.
        path: PathBuf,
        /// It must be or become a directory.
        directory: bool,
    },
}

impl fmt::Debug for SinkTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SinkTarget::Path { path, .. } => write!(f, "Path({})", path.display()),
            SinkTarget::Standard(_) => f.write_str("Standard"),
            SinkTarget::Below { root, path, .. } => {
                write!(f, "Below({}, {})", root.display(), path.display())
            }
        }
    }
}

/// What becomes of a file that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It is the same if size and time of change are, and replaced if not.
    #[default]
    Update,
    /// It is replaced.
    Overwrite,
    /// It stays, whatever it is.
    Keep,
    /// It stays, and what has its name has failed: the source decides that of files, which are told as
    /// [`Skip::Exists`](crate::transfer::message::Skip::Exists).
    Refuse,
    /// It is the same if its digest is, and replaced if not.
    Checksum,
}

impl Existing {
    /// Whether what is there stays, whatever it is.
    pub(super) fn stays(self) -> bool {
        matches!(self, Existing::Keep | Existing::Refuse)
    }

    /// A link has come for a name that is taken, which nothing may replace.
    pub(super) fn keep_name(self) -> io::Result<()> {
        match self {
            Existing::Refuse => Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is something of that name, and only what is new is taken here",
            )),
            _ => Ok(()),
        }
    }
}

/// What is kept of entries beside their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits; without them new entries have what the umask leaves of them.
    pub mode: bool,
    /// Times.
    pub times: bool,
    /// User and group, by number.
    pub owner: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Which names are the same file.
    pub hard_links: bool,
    /// Holes.
    pub sparse: bool,
}

impl Default for Preserve {
    fn default() -> Self {
        Preserve {
            mode: true,
            times: true,
            owner: false,
            xattrs: false,
            hard_links: false,
            sparse: true,
        }
    }
}
