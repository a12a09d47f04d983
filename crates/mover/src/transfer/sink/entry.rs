//! Files and hard links between their announcement and their end.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use super::stream::Ordered;
use super::tree::Place;
use crate::digest::Digest;
use crate::frame::Attributes;
use crate::transfer::journal::{Identity, Origin};
use crate::transfer::memory::{Account, Charge, allocated, mapped};
use crate::transfer::message::Extra;
use crate::transfer::part::PartFile;

/// The most entries between announcement and end. A source keeps to a quarter of it.
pub(super) const MAX_UNFINISHED: usize = 1 << 16;
/// Large files and streams that are open at a time.
pub(super) const SLOTS: usize = 128;
/// How many small files are remembered after their end: see [`Recent`].
const RECENT: usize = 1 << 15;
/// How many failed files are remembered, so that what the source counts is understood.
const GONE: usize = 1 << 20;
/// What an entry takes in books and queues.
const QUEUED: usize = 3 * mapped(size_of::<(u64, Arc<Pending>)>());

/// An entry under way.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) entry: u64,
    pub(super) place: Place,
    pub(super) kind: Kind,
    pub(super) inner: Mutex<Inner>,
    _charge: Charge,
}

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Stream,
    Link,
}

/// What changes of it. Never locked while a file is read or written.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) work: Work,
    pub(super) size: u64,
    pub(super) sparse: bool,
    pub(super) origin: Origin,
    pub(super) attributes: Attributes,
    pub(super) extra: Option<Arc<Extra>>,
    /// How often it was announced anew.
    pub(super) version: u8,
    /// What is there may have been lost: only the medium tells.
    pub(super) doubted: bool,
    /// The mode of the file that it replaces.
    pub(super) before: Option<u32>,
    /// What [`Message::FileEnd`](crate::transfer::message::Message::FileEnd) has told.
    pub(super) end: Option<End>,
    /// How often chunks came damaged.
    pub(super) damaged: HashMap<u64, u8>,
    /// Bytes that an earlier transfer had moved.
    pub(super) resumed: u64,
    /// Bytes of it that were found to be lost.
    pub(super) lost: u64,
    /// Bytes of it that progress counts.
    pub(super) counted: u64,
    /// It has one of the [`SLOTS`].
    pub(super) slot: bool,
    /// What it is next, if it changed when it was about to be over.
    pub(super) next: Option<Again>,
    /// It is over.
    pub(super) closed: bool,
    /// Its directory has counted its end: it is announced anew after that.
    pub(super) again: bool,
    /// Other names of it that wait for its end.
    pub(super) links: Vec<Arc<Pending>>,
}

/// What is being done with it.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// There is no verdict yet.
    Deciding,
    /// One piece is to come.
    Small,
    /// The source compares with this digest: it may be over, or all pieces come.
    Comparing(Digest),
    /// Chunks come.
    Part(Arc<PartFile>),
    /// Pieces are wanted in order.
    Ordered(Arc<Mutex<Ordered>>),
    /// A hard link waits for its file.
    Waiting,
    /// It is being given its name, has it, or never will.
    Over,
}

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) digest: Option<Digest>,
    pub(super) size: u64,
}

impl Pending {
    /// What one at this place takes of memory, with its places in books and queues.
    pub(super) fn bytes(place: &Place) -> usize {
        allocated(size_of::<Pending>()) + allocated(place.name.len()) + QUEUED
    }

    #[allow(clippy::too_many_arguments, reason = "all that is announced of it")]
    pub(super) fn new(
        entry: u64,
        place: Place,
        kind: Kind,
        Content { size, sparse, origin }: Content,
        attributes: Attributes,
        extra: Option<Arc<Extra>>,
        charge: Charge,
    ) -> Arc<Self> {
        let inner = Inner {
            work: Work::Deciding,
            size,
            sparse,
            origin,
            attributes,
            extra,
            version: 0,
            doubted: false,
            before: None,
            end: None,
            damaged: HashMap::new(),
            resumed: 0,
            lost: 0,
            counted: 0,
            slot: false,
            next: None,
            closed: false,
            again: false,
            links: Vec::new(),
        };
        Arc::new(Pending { entry, place, kind, inner: Mutex::new(inner), _charge: charge })
    }
}

/// What is announced of a file's content; nothing of a stream or a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Content {
    pub(super) size: u64,
    pub(super) sparse: bool,
    pub(super) origin: Origin,
}

/// A file that begins anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    pub(super) attributes: Attributes,
    pub(super) content: Content,
}

impl Inner {
    /// Its size as last announced.
    pub(super) fn size(&self) -> u64 {
        self.next.map_or(self.size, |next| next.content.size)
    }

    /// Becomes another version; what was being done with the old one.
    pub(super) fn begin_again(&mut self, again: Again) -> Work {
        let Again { attributes, content: Content { size, sparse, origin } } = again;
        self.attributes = attributes;
        self.size = size;
        self.sparse = sparse;
        self.origin = origin;
        self.version = (self.version + 1) % 128;
        self.end = None;
        self.resumed = 0;
        self.lost = 0;
        self.counted = 0;
        self.next = None;
        self.damaged.clear();
        std::mem::replace(&mut self.work, Work::Deciding)
    }

    /// What its partial file is known by.
    pub(super) fn identity(&self, verify: bool) -> Identity {
        let Inner { size, sparse, origin, .. } = *self;
        Identity { size, modified: self.attributes.modified, origin, sparse, verify }
    }
}

/// Small files that are over. The source learns that with a delay: if a lane breaks meanwhile, it reads
/// such a file again, and may find that it has changed or gone.
#[derive(Debug, Default)]
pub(super) struct Recent {
    order: VecDeque<u64>,
    files: HashMap<u64, Arc<Pending>>,
}

impl Recent {
    pub(super) fn add(&mut self, pending: &Arc<Pending>) {
        if self.files.insert(pending.entry, Arc::clone(pending)).is_none() {
            self.order.push_back(pending.entry);
        }
        while self.order.len() > RECENT {
            let Some(oldest) = self.order.pop_front() else { return };
            self.files.remove(&oldest);
        }
    }

    pub(super) fn get(&self, entry: u64) -> Option<Arc<Pending>> {
        self.files.get(&entry).cloned()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }
}

/// Files that failed here before the source knew: what it still says of them is only counted.
#[derive(Debug, Default)]
pub(super) struct Gone(HashMap<u64, (Kind, u64)>);

impl Gone {
    pub(super) fn add(&mut self, entry: u64, kind: Kind, size: u64, memory: &Account) {
        let bytes = mapped(size_of::<(u64, (Kind, u64))>());
        if self.0.len() < GONE && memory.spare(bytes) {
            self.0.insert(entry, (kind, size));
        }
    }

    /// The file's kind and size, which can be changed.
    pub(super) fn get(&mut self, entry: u64) -> Option<&mut (Kind, u64)> {
        self.0.get_mut(&entry)
    }
}

/// Who may have a large file or a stream open, in the order of their coming.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) free: usize,
    pub(super) waiting: VecDeque<Waiting>,
}

/// One that waits for a slot.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) pending: Arc<Pending>,
    /// As it was then.
    pub(super) version: u8,
    /// The digest of what is there, if the source is to compare first.
    pub(super) compare: Option<Digest>,
}
