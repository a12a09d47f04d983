//! Opening a partial file: what an earlier transfer left is taken up or discarded.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustix::fs::renameat;

use super::log::{self, Log};
use super::{Opened, invalid};
use crate::name::Name;
use crate::transfer::journal::{BootId, FileId, Header, Identity, Record, Replay, Replayed};
use crate::transfer::place::{self, ATTEMPTS};
use crate::transfer::small::TEMPORARY;
use crate::transfer::tree_hash::{CHUNK, ChunkTree, Node, ZEROS, leaf};

/// Separates digests of names from every other use of BLAKE3.
const NAME_CONTEXT: &str = "farhaul mover 2 name of a partial file";

/// Where a partial file and its journal are.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) directory: Arc<OwnedFd>,
    /// Of the complete file.
    pub(super) name: Vec<u8>,
    digest: [u8; 32],
    pub(super) part: String,
    pub(super) journal: String,
}

impl Names {
    pub(super) fn new(directory: Arc<OwnedFd>, name: Name<'_>) -> Self {
        let digest = blake3::derive_key(NAME_CONTEXT, name.bytes());
        let hex: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let (part, journal) = (format!(".farhaul-{hex}.part"), format!(".farhaul-{hex}.journal"));
        Names { directory, name: name.bytes().to_vec(), digest, part, journal }
    }
}

/// A partial file that is open.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) file: File,
    pub(super) log: Log,
    pub(super) tree: ChunkTree,
    /// The file may have other bytes than zeros before this offset.
    pub(super) touched: u64,
}

/// Opens, takes up or makes the partial file.
pub(super) fn open(
    names: &Names,
    identity: &Identity,
    boot: BootId,
) -> io::Result<(Parts, Opened)> {
    check(identity)?;
    let journal = open_journal(names)?;
    let header = log::read_header(&journal)?;
    let matching =
        header.filter(|header| header.identity == *identity && header.name == names.digest);
    let Some(header) = matching else {
        let opened = if journal.metadata()?.len() > 0 { Opened::Again } else { Opened::New };
        return Ok((begin(names, identity, journal, boot)?, opened));
    };
    let (file, made) = place::open_or_create(&names.directory, &names.part)?;
    let mut replayed = log::read(&journal, Replay::new(header), boot)?;
    if made || !is_whole(&file, &header, &replayed)? {
        // Another file, or what is left of ours: no record holds as it is.
        replayed = log::read(&journal, Replay::doubting(header), boot)?;
    } else if replayed.unproved.is_empty() && header.boot == boot {
        let log = Log::resume(journal, header, &replayed)?;
        let opened = opened(&replayed.tree, 0);
        let touched = file.metadata()?.len();
        return Ok((Parts { file, log, tree: replayed.tree, touched }, opened));
    }
    if identity.sparse && file.metadata()?.len() != identity.size {
        file.set_len(identity.size)?;
    }
    let before = replayed.tree.present_bytes();
    let Replayed { mut tree, unproved, .. } = replayed;
    let mut reread = 0;
    for record in unproved {
        reread += prove(&file, identity, &mut tree, &record)?;
    }
    if before + reread == 0 {
        return Ok((begin(names, identity, journal, boot)?, Opened::New));
    }
    let header = Header { boot, part: FileId::of(&file)?, nonce: nonce(), ..header };
    let log = rewrite(names, header, &tree, &file)?;
    let opened = opened(&tree, reread);
    let touched = file.metadata()?.len();
    Ok((Parts { file, log, tree, touched }, opened))
}

fn opened(tree: &ChunkTree, reread: u64) -> Opened {
    match tree.present_bytes() {
        0 => Opened::New,
        proved => Opened::Resumed { proved, reread },
    }
}

/// Begins anew with an open and locked journal.
pub(super) fn begin(
    names: &Names,
    identity: &Identity,
    journal: File,
    boot: BootId,
) -> io::Result<Parts> {
    check(identity)?;
    journal.set_len(0)?;
    // A new file, so that nothing of the old one can come back.
    place::remove(&names.directory, &names.part)?;
    let file = place::create(&names.directory, &names.part)?;
    if identity.sparse {
        // Holes need no write of their own then.
        file.set_len(identity.size)?;
    }
    let header = Header {
        identity: *identity,
        name: names.digest,
        boot,
        part: FileId::of(&file)?,
        nonce: nonce(),
    };
    let log = Log::begin(journal, header)?;
    Ok(Parts { file, log, tree: identity.tree(), touched: 0 })
}

fn check(identity: &Identity) -> io::Result<()> {
    if i64::try_from(identity.size).is_err() {
        return Err(invalid("a file of more than 2^63 - 1 bytes"));
    }
    Ok(())
}

/// The journal, locked and under its name.
fn open_journal(names: &Names) -> io::Result<File> {
    for _ in 0..ATTEMPTS {
        let (journal, _) = place::open_or_create(&names.directory, &names.journal)?;
        place::lock(&journal)?;
        if place::is_named(&names.directory, &names.journal, &journal)? {
            return Ok(journal);
        }
        // Its transfer ended between the two calls.
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "the journal is replaced again and again"))
}

/// Whether the partial file is the journal's and nothing proved is cut off.
fn is_whole(file: &File, header: &Header, replayed: &Replayed) -> io::Result<bool> {
    let Identity { size, sparse, .. } = header.identity;
    let needed = if sparse { size } else { replayed.tree.end().saturating_mul(CHUNK).min(size) };
    Ok(FileId::of(file)? == header.part && file.metadata()?.len() >= needed)
}

/// Reads again what a record speaks of, and takes into the tree what is so. Returns its bytes.
fn prove(
    file: &File,
    identity: &Identity,
    tree: &mut ChunkTree,
    record: &Record,
) -> io::Result<u64> {
    let before = tree.present_bytes();
    match record {
        Record::Proved(Node { cv: ZEROS, level, index }) if identity.sparse && identity.verify => {
            take_zeros(file, tree, index << level, 1 << level)?;
        }
        Record::Proved(node) => {
            if identity.verify && holds(file, identity, node) {
                let _ = tree.insert_node(*node); // it is there, then
            }
        }
        Record::Zeros { first, count } => take_zeros(file, tree, *first, *count)?,
        Record::Synced { .. } => {}
    }
    Ok(tree.present_bytes() - before)
}

/// Zeros need no proof: they are made.
fn take_zeros(file: &File, tree: &mut ChunkTree, first: u64, count: u64) -> io::Result<()> {
    for gap in tree.missing_in(first..first.saturating_add(count)) {
        place::punch(file, gap.start * CHUNK, (gap.end * CHUNK).min(tree.size()))?;
    }
    let _ = tree.insert_zeros(first, count); // a range that has no place is not there
    Ok(())
}

/// Whether the file has the content of `node`. What cannot be read does not hold.
fn holds(file: &File, identity: &Identity, node: &Node) -> bool {
    let mut read = identity.tree();
    let Ok(chunks) = read.place(node) else { return false };
    let mut buffer = vec![0; CHUNK as usize];
    let mut at = chunks.start;
    while at < chunks.end {
        let offset = at * CHUNK;
        if identity.sparse {
            let data = place::next_data(file, offset, identity.size);
            let zeros =
                if data >= identity.size { chunks.end } else { data / CHUNK }.min(chunks.end);
            if zeros > at {
                let _ = read.insert_zeros(at, zeros - at);
                at = zeros;
                continue;
            }
        }
        let data = &mut buffer[..read.chunk_length(at) as usize];
        if file.read_exact_at(data, offset).is_err() {
            return false;
        }
        read.insert(at, leaf(identity.size, identity.sparse, at, data));
        at += 1;
    }
    read.nodes() == [*node]
}

/// Replaces the journal by one that says what `tree` says, all of it on the medium.
fn rewrite(names: &Names, header: Header, tree: &ChunkTree, part: &File) -> io::Result<Log> {
    part.sync_data()?;
    let directory = &names.directory;
    let (temporary, file) = TEMPORARY.make(|temporary| place::create(directory, temporary))?;
    let written = place::lock(&file).and_then(|()| {
        let mut log = Log::begin(file, header)?;
        let records: Vec<Record> = tree.nodes().into_iter().map(Record::Proved).collect();
        log.append(&records)?;
        log.note_synced(records.len() as u64)?;
        log.file.sync_data()?;
        renameat(directory, temporary.as_str(), directory, names.journal.as_str())?;
        Ok(log)
    });
    if written.is_err() {
        let _ = place::remove(directory, &temporary);
    }
    written
}

/// The kernel's name for this boot; zeros where it tells none.
pub(super) fn boot_id() -> BootId {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = text.trim().chars().filter(|digit| *digit != '-').collect();
    u128::from_str_radix(&hex, 16).unwrap_or(0).to_be_bytes()
}

impl FileId {
    fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        let born = meta.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Ok(FileId { inode: meta.ino(), born: born.map_or(0, |born| born.as_nanos() as u64) })
    }
}

fn nonce() -> [u8; 8] {
    // The standard library's hash seed is the operating system's randomness.
    RandomState::new().hash_one(0).to_be_bytes()
}
