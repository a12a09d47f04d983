//! Files that come in one piece: written under a temporary name and then renamed, without a journal.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::LazyLock;

use rustix::fs::{AtFlags, Mode, fchmod, fsync, futimens, renameat, unlinkat};

use super::place;
use crate::frame::Attributes;
use crate::inode;
use crate::name::Name;
use crate::temporary::TemporaryNames;

/// Unlike those of any other process.
pub(super) static TEMPORARY: LazyLock<TemporaryNames> = LazyLock::new(TemporaryNames::new);

/// Writes a whole file. It has its name, its content and, if it succeeds, its attributes at once, or
/// nothing is left of it; a file or link of this name is replaced, a directory is not.
///
/// `attributes` sets what is kept, such as with [`set_attributes`]. If it fails, the file is stored
/// all the same and its error returned as `Ok(Some(_))`. If `durable`, the file is on the medium
/// afterwards; its name is once the caller has synced `directory`.
pub fn write_small(
    directory: &OwnedFd,
    name: Name<'_>,
    data: &[u8],
    attributes: impl FnOnce(&File) -> io::Result<()>,
    durable: bool,
) -> io::Result<Option<io::Error>> {
    let (temporary, mut file) = TEMPORARY.make(|temporary| place::create(directory, temporary))?;
    let written = file.write_all(data).and_then(|()| {
        let kept = attributes(&file);
        if durable {
            fsync(&file)?;
        }
        renameat(directory, temporary.as_str(), directory, name.bytes())?;
        Ok(kept.err())
    });
    if written.is_err() {
        // The first error is the one to tell.
        let _ = unlinkat(directory, temporary.as_str(), AtFlags::empty());
    }
    written
}

/// Gives a file its permission bits and times. The bits are taken as they are, those for set-user-ID
/// and set-group-ID included: what may be kept is the caller's to say.
pub fn set_attributes(file: &File, attributes: &Attributes) -> io::Result<()> {
    fchmod(file, Mode::from_raw_mode(u32::from(attributes.mode & 0o7777)))?;
    futimens(file, &inode::timestamps(attributes))?;
    Ok(())
}
