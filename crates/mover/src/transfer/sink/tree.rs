//! The directories of the target as far as they are under way.
//!
//! A directory is known by its parent and its name. Few are open at a time; the others are opened
//! again, one component at a time from the nearest that is open, never through a link. So nothing
//! that happens in the target meanwhile leads out of it (CWE-22, CWE-59).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::fs::{Mode, OFlags, openat};

use super::marker::Doubts;
use super::names::Names;
use super::{lock, os};
use crate::frame::Attributes;
use crate::transfer::memory::{Charge, allocated};
use crate::transfer::message::Extra;

/// Directories that are open at a time.
const OPEN: usize = 256;
/// What its descriptor and its place among those that are open take.
const OPENED: usize = 64;

/// A directory of the target.
#[derive(Debug)]
pub(super) struct Directory {
    /// None at the root.
    pub(super) parent: Option<Arc<Directory>>,
    /// Its name in there; at the root empty.
    pub(super) name: Box<[u8]>,
    /// What of it other copies may not have got to the medium.
    pub(super) doubts: Doubts,
    /// Nothing was in it when the transfer came.
    pub(super) fresh: bool,
    /// It is not there, as nothing is made in a dry run.
    pub(super) missing: bool,
    /// What it gets in the end; none: it keeps what it has.
    pub(super) finally: Option<Finally>,
    /// Its own end, and what is unfinished in it.
    pending: AtomicU64,
    /// What is in it at the source, once that is known.
    pub(super) left: Mutex<Option<Left>>,
    open: Mutex<Option<Arc<OwnedFd>>>,
    /// Since the last look.
    used: AtomicBool,
    /// Capitals make no difference in it, once that has been asked.
    pub(super) folds: OnceLock<bool>,
    _charge: Option<Charge>,
}

/// What a directory gets when all in it is finished.
#[derive(Debug)]
pub(super) struct Finally {
    pub(super) attributes: Attributes,
    pub(super) extra: Option<Arc<Extra>>,
    /// The mode it had; none if it is new.
    pub(super) before: Option<u32>,
    /// Of its mode here, often inherited: the target's rule for new files, not the source's to clear.
    pub(super) set_group_id: u32,
}

/// What is known of a directory when it is left.
#[derive(Debug)]
pub(super) struct Left {
    /// All that is not among the names may go.
    pub(super) complete: bool,
    /// The source of which it is the content has nothing in it.
    pub(super) empty: bool,
    pub(super) names: Names,
}

impl Directory {
    /// The target itself.
    pub(super) fn root(open: Option<Arc<OwnedFd>>, fresh: bool, doubts: Doubts) -> Arc<Self> {
        Arc::new(Directory {
            parent: None,
            name: Box::default(),
            doubts,
            fresh,
            missing: open.is_none(),
            finally: None,
            pending: AtomicU64::new(1),
            left: Mutex::default(),
            open: Mutex::new(open),
            used: AtomicBool::default(),
            folds: OnceLock::new(),
            _charge: None,
        })
    }

    /// One in `parent`, for which it now counts as unfinished.
    pub(super) fn below(
        parent: &Arc<Directory>,
        name: &[u8],
        open: Option<Arc<OwnedFd>>,
        fresh: bool,
        doubts: Doubts,
        finally: Finally,
        charge: Charge,
    ) -> Arc<Self> {
        parent.begin();
        Arc::new(Directory {
            parent: Some(Arc::clone(parent)),
            name: name.into(),
            doubts,
            fresh,
            missing: open.is_none(),
            finally: Some(finally),
            pending: AtomicU64::new(1),
            left: Mutex::default(),
            open: Mutex::new(open),
            used: AtomicBool::default(),
            folds: OnceLock::new(),
            _charge: Some(charge),
        })
    }

    /// What one of this name takes of memory.
    pub(super) fn bytes(name: &[u8]) -> usize {
        allocated(size_of::<Directory>()) + allocated(name.len()) + OPENED
    }

    /// One more entry is unfinished in it.
    pub(super) fn begin(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// One less; `true` for the last.
    pub(super) fn end(&self) -> bool {
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Its path below the target.
    pub(super) fn path(&self) -> PathBuf {
        let mut names = Vec::new();
        let mut at = self;
        while let Some(parent) = &at.parent {
            names.push(os(&at.name));
            at = parent;
        }
        names.iter().rev().collect()
    }

    fn is_open(&self) -> Option<Arc<OwnedFd>> {
        self.used.store(true, Ordering::Relaxed);
        lock(&self.open).clone()
    }

    /// Lets go of it; it can be opened again.
    pub(super) fn close(&self) {
        if self.parent.is_some() {
            *lock(&self.open) = None;
        }
    }
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) directory: Arc<Directory>,
    pub(super) name: Box<[u8]>,
}

impl Place {
    /// Its path below the target.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join(os(&self.name))
    }

    /// The first name of that path.
    pub(super) fn top(&self) -> &[u8] {
        let (mut name, mut at) = (&*self.name, &*self.directory);
        while let Some(parent) = &at.parent {
            (name, at) = (&at.name, parent);
        }
        name
    }

    /// Whether another copy may not have got it to the medium.
    pub(super) fn is_doubted(&self) -> bool {
        self.directory.doubts.has(&self.name)
    }
}

/// The directories that are open.
#[derive(Debug, Default)]
pub(super) struct OpenDirectories {
    queue: Mutex<VecDeque<Arc<Directory>>>,
}

impl OpenDirectories {
    /// The directory, opened again if need be.
    pub(super) fn get(&self, directory: &Arc<Directory>) -> io::Result<Arc<OwnedFd>> {
        if let Some(open) = directory.is_open() {
            return Ok(open);
        }
        let mut closed = vec![directory];
        let mut open = loop {
            let last = closed[closed.len() - 1];
            let Some(parent) = &last.parent else {
                return Err(io::Error::from(io::ErrorKind::NotFound)); // a dry run's root
            };
            if let Some(open) = parent.is_open() {
                break open;
            }
            closed.push(parent);
        };
        for directory in closed.into_iter().rev() {
            open = Arc::new(open_directory(&open, &directory.name)?);
            let mut slot = lock(&directory.open);
            if let Some(other) = &*slot {
                open = Arc::clone(other); // another thread was as fast
                continue;
            }
            *slot = Some(Arc::clone(&open));
            drop(slot);
            self.note(directory);
        }
        Ok(open)
    }

    /// A directory has been opened: others that were not used lately are closed if there are too many.
    pub(super) fn note(&self, directory: &Arc<Directory>) {
        let mut queue = lock(&self.queue);
        queue.push_back(Arc::clone(directory));
        let mut chances = queue.len();
        while queue.len() > OPEN {
            let Some(oldest) = queue.pop_front() else { return };
            if chances > 0 && oldest.used.swap(false, Ordering::Relaxed) {
                chances -= 1;
                queue.push_back(oldest);
            } else {
                oldest.close();
            }
        }
    }
}

/// Opens the directory `name` of `parent`; a link is none.
pub(super) fn open_directory(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}
