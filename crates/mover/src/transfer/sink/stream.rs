//! Files that are written from their beginning to their end: streams, and what goes to standard output.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, unlinkat};

use super::lock;
use crate::digest::Digest;
use crate::name::Name;
use crate::temporary::TemporaryNames;
use crate::transfer::memory::{Account, Charge, allocated, mapped};
use crate::transfer::place;
use crate::transfer::tree_hash::{CHUNK, ChunkTree, leaf};

/// Pieces that are kept until those before them have come.
const AHEAD: usize = 64;
/// Ranges of zeros that are.
const ZEROS_AHEAD: usize = 1 << 17;
/// What an item takes of memory beside its data.
const ITEM: usize = mapped(size_of::<(u64, Item)>());

/// What everything goes to.
pub(super) type Standard = Mutex<Box<dyn Write + Send>>;

/// A file whose pieces are put in order.
#[derive(Debug)]
pub(super) struct Ordered {
    out: Output,
    next: u64,
    waiting: BTreeMap<u64, Item>,
    /// How many of them have data.
    data: usize,
    digest: Hashing,
}

#[derive(Debug)]
enum Item {
    Data(Vec<u8>, Charge),
    Zeros(u64, Charge),
}

/// Where it goes.
pub(super) enum Output {
    /// To a file that is new.
    File(NewFile),
    /// To whoever reads.
    Standard(Arc<Standard>),
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Output::File(file) => file.fmt(f),
            Output::Standard(_) => f.write_str("Standard"),
        }
    }
}

/// How its digest is made.
#[derive(Debug)]
enum Hashing {
    None,
    /// Of a stream.
    Plain(Box<blake3::Hasher>),
    /// Of a file of known size.
    Tree(ChunkTree, bool),
}

/// Why a piece is not taken.
#[derive(Debug)]
pub(super) enum Refused {
    /// Nobody should send it.
    Violation(&'static str),
    /// There is no room for it before others have come.
    Ahead,
    /// It could not be written.
    Io(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Refused::Io(error)
    }
}

impl Ordered {
    /// One of unknown size; `file`: its size and whether it has holes.
    pub(super) fn new(out: Output, file: Option<(u64, bool)>, verify: bool) -> Self {
        let digest = match file {
            _ if !verify => Hashing::None,
            None => Hashing::Plain(Box::default()),
            Some((size, sparse)) => Hashing::Tree(ChunkTree::new(size, sparse), sparse),
        };
        Ordered { out, next: 0, waiting: BTreeMap::new(), data: 0, digest }
    }

    /// How much has been written.
    pub(super) fn written(&self) -> u64 {
        self.next
    }

    /// Takes a piece, and writes what is in order by it. One that was there is ignored.
    pub(super) fn data(
        &mut self,
        offset: u64,
        data: &[u8],
        memory: &Arc<Account>,
    ) -> Result<(), Refused> {
        let length = data.len() as u64;
        if offset < self.next {
            return match offset + length <= self.next {
                true => Ok(()),
                false => Err(Refused::Violation("pieces of a stream that overlap")),
            };
        }
        if offset > self.next {
            if !self.waiting.contains_key(&offset) {
                if self.data == AHEAD {
                    return Err(Refused::Ahead);
                }
                let Some(charge) = memory.spare_charge(allocated(data.len()) + ITEM) else {
                    return Err(Refused::Ahead);
                };
                self.data += 1;
                self.waiting.insert(offset, Item::Data(data.to_vec(), charge));
            }
            return Ok(());
        }
        self.write(data)?;
        self.advance(&|| false)
    }

    /// Takes zeros, which [`Ordered::advance`] writes.
    pub(super) fn zeros(
        &mut self,
        offset: u64,
        length: u64,
        memory: &Arc<Account>,
    ) -> Result<(), Refused> {
        if offset < self.next || self.waiting.contains_key(&offset) {
            return Err(Refused::Violation("zeros of what has come"));
        }
        if self.waiting.len() - self.data >= ZEROS_AHEAD {
            return Err(Refused::Violation("too many ranges of zeros"));
        }
        let charge =
            memory.charge(ITEM).map_err(|_| Refused::Violation("too many ranges of zeros"))?;
        self.waiting.insert(offset, Item::Zeros(length, charge));
        Ok(())
    }

    /// Writes what is in order, until it is `stopped`.
    pub(super) fn advance(&mut self, stopped: &dyn Fn() -> bool) -> Result<(), Refused> {
        while let Some(entry) = self.waiting.first_entry() {
            if *entry.key() > self.next {
                return Ok(());
            }
            if *entry.key() < self.next {
                return Err(Refused::Violation("pieces of a stream that overlap"));
            }
            match entry.remove() {
                Item::Data(data, _charge) => {
                    self.data -= 1;
                    self.write(&data)?;
                }
                Item::Zeros(length, _charge) => self.write_zeros(length, stopped)?,
            }
        }
        Ok(())
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match &mut self.digest {
            Hashing::None => {}
            Hashing::Plain(hasher) => {
                hasher.update(data);
            }
            Hashing::Tree(tree, sparse) => {
                let index = self.next / CHUNK;
                tree.insert(index, leaf(tree.size(), *sparse, index, data));
            }
        }
        match &mut self.out {
            Output::File(file) => file.file.write_all(data)?,
            Output::Standard(out) => lock(out).write_all(data)?,
        }
        self.next += data.len() as u64;
        Ok(())
    }

    fn write_zeros(&mut self, length: u64, stopped: &dyn Fn() -> bool) -> io::Result<()> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        if let Hashing::Tree(tree, _) = &mut self.digest {
            let _ = tree.insert_zeros(self.next / CHUNK, length.div_ceil(CHUNK));
        }
        let mut left = length;
        while left > 0 && !stopped() {
            let some = left.min(ZEROS.len() as u64);
            match &mut self.out {
                Output::File(file) => file.file.write_all(&ZEROS[..some as usize])?,
                Output::Standard(out) => lock(out).write_all(&ZEROS[..some as usize])?,
            }
            left -= some;
            self.next += some;
        }
        Ok(())
    }

    /// Whether `size` bytes have come, and nothing beyond. An error: more has.
    pub(super) fn is_complete(&self, size: u64) -> Result<bool, &'static str> {
        if self.next > size || self.waiting.keys().any(|offset| *offset >= size) {
            return Err("a stream longer than its end");
        }
        Ok(self.next == size && self.waiting.is_empty())
    }

    /// The digest of what has come.
    pub(super) fn digest(&self) -> Option<Digest> {
        match &self.digest {
            Hashing::None => None,
            Hashing::Plain(hasher) => Some(hasher.finalize().into()),
            Hashing::Tree(tree, _) => tree.root(),
        }
    }

    /// Gives it attributes and name, or flushes. `durable`: its content is on the medium before that. `Ok(Some(_))`: its attributes were not kept.
    pub(super) fn finish(
        &mut self,
        name: Name<'_>,
        attributes: impl FnOnce(&File) -> io::Result<()>,
        durable: bool,
    ) -> io::Result<Option<io::Error>> {
        match &mut self.out {
            Output::File(file) => file.finish(name, attributes, durable),
            Output::Standard(out) => lock(out).flush().map(|()| None),
        }
    }
}

/// A file under a temporary name. Dropped, it disappears, unless it has got its own.
#[derive(Debug)]
pub(super) struct NewFile {
    directory: Arc<OwnedFd>,
    temporary: String,
    file: File,
    /// What has its name by then may go.
    replace: bool,
    kept: bool,
}

impl NewFile {
    pub(super) fn new(
        names: &TemporaryNames,
        directory: Arc<OwnedFd>,
        replace: bool,
    ) -> io::Result<Self> {
        let (temporary, file) = names.make(|temporary| place::create(&directory, temporary))?;
        // It may take long: nobody is to take it for what a dead transfer has left.
        let _ = place::lock(&file);
        Ok(NewFile { directory, temporary, file, replace, kept: false })
    }

    fn finish(
        &mut self,
        name: Name<'_>,
        attributes: impl FnOnce(&File) -> io::Result<()>,
        durable: bool,
    ) -> io::Result<Option<io::Error>> {
        let kept = attributes(&self.file);
        if durable {
            self.file.sync_all()?;
        }
        place::rename(&self.directory, &self.temporary, name.bytes(), self.replace)?;
        self.kept = true;
        Ok(kept.err())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.kept {
            // Nobody is left to tell.
            let _ = unlinkat(&self.directory, self.temporary.as_str(), AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> Arc<Account> {
        Arc::default()
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            lock(&self.0).write(data)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn ordered(file: Option<(u64, bool)>) -> (Ordered, Shared) {
        let shared = Shared::default();
        let out: Box<dyn Write + Send> = Box::new(shared.clone());
        (Ordered::new(Output::Standard(Arc::new(Mutex::new(out))), file, true), shared)
    }

    #[test]
    fn pieces_are_put_in_order() {
        let (mut ordered, out) = ordered(None);
        ordered.data(3, b"def", &room()).unwrap();
        ordered.data(6, b"g", &room()).unwrap();
        ordered.data(3, b"def", &room()).unwrap();
        assert_eq!(ordered.is_complete(7), Ok(false));
        ordered.data(0, b"abc", &room()).unwrap();
        ordered.data(0, b"abc", &room()).unwrap();
        assert_eq!(ordered.is_complete(7), Ok(true));
        assert!(ordered.is_complete(6).is_err());
        assert_eq!(*lock(&out.0), b"abcdefg");
        assert_eq!(ordered.digest(), Some(blake3::hash(b"abcdefg").into()));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (mut ordered, _) = ordered(None);
        for piece in 1..=AHEAD as u64 {
            ordered.data(piece * 10, b"x", &room()).unwrap();
        }
        let refused = ordered.data(10_000, b"x", &room());
        assert!(matches!(refused, Err(Refused::Ahead)), "{refused:?}");
        // What is missing lets others go, and there is room again.
        ordered.data(0, &[0; 10], &room()).unwrap();
        ordered.data(10_000, b"x", &room()).unwrap();
    }

    #[test]
    fn what_waits_is_charged_until_it_is_written() {
        let (mut ordered, _) = ordered(None);
        let memory = Arc::new(Account::new(4000));
        ordered.data(1000, &[1; 1000], &memory).unwrap();
        assert!(memory.used() >= 1000);
        let refused = ordered.data(2000, &[2; 1000], &memory);
        assert!(matches!(refused, Err(Refused::Ahead)), "{refused:?}");
        assert!(memory.check().is_ok(), "it comes again");
        ordered.data(0, &[0; 1000], &memory).unwrap();
        assert_eq!((memory.used(), ordered.written()), (0, 2000));
    }

    #[test]
    fn overlaps_are_refused() {
        let (mut ordered, _) = ordered(None);
        ordered.data(2, b"xyz", &room()).unwrap();
        assert!(matches!(ordered.data(0, b"abc", &room()), Err(Refused::Violation(_))));
    }

    #[test]
    fn zeros_have_their_place() {
        let size = 3 * CHUNK;
        let (mut ordered, out) = ordered(Some((size, true)));
        ordered.zeros(CHUNK, CHUNK, &room()).unwrap();
        assert!(matches!(ordered.zeros(CHUNK, CHUNK, &room()), Err(Refused::Violation(_))));
        let data = vec![7; CHUNK as usize];
        ordered.data(2 * CHUNK, &data, &room()).unwrap();
        ordered.data(0, &data, &room()).unwrap();
        assert_eq!(ordered.is_complete(size), Ok(true));
        let content = lock(&out.0).clone();
        let mut expected = data.clone();
        expected.resize(2 * CHUNK as usize, 0);
        expected.extend_from_slice(&data);
        assert!(content == expected);
        assert!(ordered.digest().is_some());
    }
}
