//! Opening a partial file: what an earlier transfer left is taken up or discarded.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustix::fs::{AtFlags, StatxFlags, renameat, statat, statx};

use super::log::{self, Log};
use super::{Opened, invalid};
use crate::name::Name;
use crate::transfer::journal::{BootId, Epoch, FileId, Header, Identity, Record};
use crate::transfer::place::{self, ATTEMPTS};
use crate::transfer::tree_hash::{CHUNK, ChunkTree};

/// Separates digests of names from every other use of BLAKE3.
const NAME_CONTEXT: &str = "farhaul mover 2 name of a partial file";

const PART: &str = ".part";
const JOURNAL: &str = ".journal";
/// Before the end of a journal that is to replace another.
const NEW: &str = ".new";

/// Where a partial file and its journal are.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) directory: Arc<OwnedFd>,
    /// Of the complete file.
    pub(super) name: Vec<u8>,
    digest: [u8; 32],
    pub(super) part: String,
    pub(super) journal: String,
    /// A journal that is to replace it, made by the transfer that has it locked.
    rewritten: String,
}

impl Names {
    /// `owner`: whose partial file it is, where those of others are not taken up; empty: everybody's.
    pub(super) fn new(directory: Arc<OwnedFd>, name: Name<'_>, owner: &[u8]) -> Self {
        let mut named = blake3::Hasher::new_derive_key(NAME_CONTEXT);
        named.update(name.bytes());
        if !owner.is_empty() {
            // No name has the byte between them.
            named.update(&[0]).update(owner);
        }
        let digest: [u8; 32] = named.finalize().into();
        let hex: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let stem = format!(".farhaul-{hex}");
        let [part, journal] = [PART, JOURNAL].map(|end| format!("{stem}{end}"));
        let rewritten = format!("{stem}{NEW}{JOURNAL}");
        Names { directory, name: name.bytes().to_vec(), digest, part, journal, rewritten }
    }
}

/// The partial file that a journal of this name belongs to, complete or about to be; none if the name is
/// not that of a journal.
pub(in crate::transfer) fn part_of(journal: &[u8]) -> Option<Vec<u8>> {
    let stem = journal.strip_suffix(JOURNAL.as_bytes())?;
    let stem = stem.strip_suffix(NEW.as_bytes()).unwrap_or(stem);
    let hex = stem.strip_prefix(b".farhaul-")?;
    let named = hex.len() == 16 && hex.iter().all(u8::is_ascii_hexdigit);
    named.then(|| [stem, PART.as_bytes()].concat())
}

/// A partial file that is open.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) file: File,
    pub(super) log: Log,
    /// What is there for sure.
    pub(super) tree: ChunkTree,
    /// What the journal says is there, too.
    pub(super) claims: ChunkTree,
    /// The file may have other bytes than zeros before this offset.
    pub(super) touched: u64,
}

/// Opens, takes up or makes the partial file. `trusting`: what was on the medium is not read again.
pub(super) fn open(
    names: &Names,
    identity: &Identity,
    epoch: Epoch,
    trusting: bool,
) -> io::Result<(Parts, Opened)> {
    check(identity)?;
    let journal = open_journal(names)?;
    let header = log::read_header(&journal)?;
    let matching =
        header.filter(|header| header.identity == *identity && header.name == names.digest);
    let Some(header) = matching else {
        let opened = if journal.metadata()?.len() > 0 { Opened::Again } else { Opened::New };
        return Ok((begin(names, identity, journal, epoch)?, opened));
    };
    let (file, made) = place::open_or_create(&names.directory, &names.part)?;
    // The same part, in a time in which what was on the medium is still there.
    let same = header.epoch.is(&epoch) && !made && FileId::of(&file)? == header.part;
    // Without chaining values there is nothing else to go by.
    let believed = same && (trusting || !identity.verify);
    let mut replayed = log::read(&journal, header, believed)?;
    if !identity.verify {
        replayed.claims = identity.claims();
    }
    if made || replayed.sure.present_bytes() + replayed.claims.present_bytes() == 0 {
        return Ok((begin(names, identity, journal, epoch)?, Opened::New));
    }
    if !is_long_enough(&file, identity, &replayed.sure)? {
        // Cut off by another program: then nothing is sure.
        if !identity.verify {
            return Ok((begin(names, identity, journal, epoch)?, Opened::New));
        }
        replayed = log::read(&journal, header, false)?;
    }
    if identity.sparse && file.metadata()?.len() != identity.size {
        file.set_len(identity.size)?;
    }
    let log = if same {
        let mut log = Log::resume(journal, header, &replayed)?;
        if !identity.verify {
            log.roll_back()?;
        }
        log
    } else {
        let header = Header { epoch, part: FileId::of(&file)?, nonce: nonce(), ..header };
        rewrite(names, header, &replayed.claims)?
    };
    let mut tree = identity.tree();
    for node in replayed.sure.each_node() {
        let _ = tree.insert_node(node); // it has its place there, as it had here
    }
    let claims = replayed.claims;
    let opened = Opened::Resumed { trusted: tree.present_bytes(), claimed: claims.present_bytes() };
    let touched = file.metadata()?.len();
    Ok((Parts { file, log, tree, claims, touched }, opened))
}

/// Begins anew with an open and locked journal.
pub(super) fn begin(
    names: &Names,
    identity: &Identity,
    journal: File,
    epoch: Epoch,
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
        epoch,
        part: FileId::of(&file)?,
        nonce: nonce(),
    };
    let log = Log::begin(journal, header)?;
    let (tree, claims) = (identity.tree(), identity.claims());
    Ok(Parts { file, log, tree, claims, touched: 0 })
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

/// Removes what an earlier transfer has left. An error of kind [`WouldBlock`](io::ErrorKind::WouldBlock) means that a
/// transfer has it now.
pub(super) fn abandon(names: &Names) -> io::Result<()> {
    let there = |name: &str| statat(&names.directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    if !there(&names.journal) && !there(&names.part) {
        return Ok(());
    }
    // As long as it is locked and has its name, no other transfer makes or takes up the partial file.
    let journal = open_journal(names)?;
    place::remove(&names.directory, &names.part)?;
    place::remove(&names.directory, &names.journal)?;
    place::unlock(&journal);
    Ok(())
}

/// Whether nothing of what is taken for sure is cut off.
fn is_long_enough(file: &File, identity: &Identity, sure: &ChunkTree) -> io::Result<bool> {
    let needed = match sure.is_empty() {
        true => 0,
        false if identity.sparse => identity.size,
        false => sure.end().saturating_mul(CHUNK).min(identity.size),
    };
    Ok(file.metadata()?.len() >= needed)
}

/// Replaces the journal by one that claims the same.
fn rewrite(names: &Names, header: Header, claims: &ChunkTree) -> io::Result<Log> {
    let Names { directory, journal, rewritten, .. } = names;
    // What a transfer has left that was ended here.
    place::remove(directory, rewritten)?;
    let file = place::create(directory, rewritten)?;
    let written = place::lock(&file).and_then(|()| {
        let mut log = Log::begin(file, header)?;
        let records: Vec<Record> = claims.each_node().map(Record::Proved).collect();
        log.append(&records)?;
        log.file.sync_data()?;
        renameat(directory, rewritten.as_str(), directory, journal.as_str())?;
        Ok(log)
    });
    if written.is_err() {
        let _ = place::remove(directory, rewritten);
    }
    written
}

/// The present boot, and the mount that a directory is in.
pub(super) fn epoch(directory: &OwnedFd) -> Epoch {
    /// `STATX_MNT_ID_UNIQUE`, since Linux 6.8: a number that no later mount gets.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let wanted = StatxFlags::MNT_ID | UNIQUE;
    let mount = match statx(directory, c"", AtFlags::EMPTY_PATH, wanted) {
        Ok(stat) if stat.stx_mask & wanted.bits() != 0 => {
            let device = u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor);
            (stat.stx_mnt_id, device)
        }
        _ => (0, 0),
    };
    Epoch { boot: boot_id(), mount }
}

/// The kernel's name for this boot; zeros where it tells none.
fn boot_id() -> BootId {
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
