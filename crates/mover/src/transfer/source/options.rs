//! What a source is told.

use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use super::filter::Filter;
use crate::transfer::pace::Pace;

/// How to send. [`Default`] is what most callers want.
#[derive(Debug)]
pub struct SourceOptions {
    /// What of it to leave out.
    pub filter: Filter,
    /// Take every file's digest, and let the sink check all. Default true.
    pub verify: bool,
    /// Move nothing: announce, and hear what would be moved.
    pub dry_run: bool,
    /// Send owners.
    pub owner: bool,
    /// Let holes travel as such, for the sink to make them again. Default true.
    pub sparse: bool,
    /// Send extended attributes.
    pub xattrs: bool,
    /// Announce further names of a file as such.
    pub hard_links: bool,
    /// Count files and bytes beside the transfer, so that progress has totals. Default true.
    pub count: bool,
    /// Directories on which something is to be mounted, such as [`mount_points`](super::mount_points) has. Where
    /// nothing is, the sink deletes nothing for want of entries, as where a whole source is empty. Default: none.
    pub mount_points: Vec<PathBuf>,
    /// Limits the rate of all lanes together.
    pub pace: Option<Arc<Pace>>,
}

impl Default for SourceOptions {
    fn default() -> Self {
        SourceOptions {
            filter: Filter::default(),
            verify: true,
            dry_run: false,
            owner: false,
            sparse: true,
            xattrs: false,
            hard_links: false,
            count: true,
            mount_points: Vec::new(),
            pace: None,
        }
    }
}

/// What a source sends.
pub enum Sources {
    /// Files and trees. A slash at the end of a path means the content of that directory.
    Paths(Vec<PathBuf>),
    /// Below a directory that is exported: paths relative to it, which lead nowhere else.
    Below {
        /// The directory.
        root: PathBuf,
        /// As of [`Sources::Paths`]; `.` or nothing is all of it.
        paths: Vec<PathBuf>,
    },
    /// What a stream gives until its end, as a file of this name.
    Stream {
        /// One component.
        name: Vec<u8>,
        /// The stream.
        stream: Box<dyn Read + Send>,
    },
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sources::Paths(paths) => f.debug_tuple("Paths").field(paths).finish(),
            Sources::Below { root, paths } => {
                f.debug_struct("Below").field("root", root).field("paths", paths).finish()
            }
            Sources::Stream { .. } => f.write_str("Stream"),
        }
    }
}
