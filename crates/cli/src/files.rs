//! The files that a run is to write.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::exit::Usage;

/// Finds out whether all `outputs`, each with what it is called in messages, can be written, and
/// that none of them is another's file or the scenario's. What the files hold stays.
pub fn check<const N: usize>(scenario: &Path, outputs: [(&str, Option<&Path>); N]) -> Result<()> {
    let mut known = vec![("the scenario", identity(scenario))];
    for (name, path) in outputs {
        // A terminal, a pipe and /dev/null may be written to by several.
        let Some(path) = path.filter(|path| !is_special(path)) else { continue };
        let file = identity(path);
        if let Some((other, _)) = known.iter().find(|(_, known)| *known == file) {
            let message = format!("{other} and {name} cannot both be {}", path.display());
            return Err(Usage(message).into());
        }
        known.push((name, file));
    }
    outputs.iter().filter_map(|(_, path)| *path).try_for_each(check_one)
}

/// Finds out whether a file can be written. What it holds stays.
pub fn check_one(path: &Path) -> Result<()> {
    let found = if is_special(path) { Ok(()) } else { probe(path) };
    found.with_context(|| format!("cannot write {}", path.display()))
}

fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|known| !known.is_file() && !known.is_dir())
}

/// Writes a file whole, or not at all: a disk may be full.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = if is_special(path) { fs::write(path, bytes) } else { replace(path, bytes) };
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Writes another file beside it, which then takes its place.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Of a link the file that it leads to.
    let path = real(path);
    let mut new = match tempfile::Builder::new()
        .permissions(permissions(&path))
        .tempfile_in(directory_of(&path))
    {
        Ok(new) => new,
        // In a folder that takes no new files there may be one that can be written.
        Err(_) if path.exists() => return fs::write(path, bytes),
        Err(error) => return Err(error),
    };
    new.write_all(bytes)?;
    new.persist(&path)?;
    Ok(())
}

/// Those that it has; for a new file the usual ones, of which the system takes what its user wants.
fn permissions(path: &Path) -> Permissions {
    fs::metadata(path).map_or(Permissions::from_mode(0o666), |known| known.permissions())
}

/// What is the same for the same file.
#[derive(PartialEq)]
enum Identity {
    /// Device and inode: a file may have several names.
    Known(u64, u64),
    New(PathBuf),
}

fn identity(path: &Path) -> Identity {
    match fs::metadata(path) {
        Ok(known) => Identity::Known(known.dev(), known.ino()),
        Err(_) => Identity::New(real(path)),
    }
}

/// The directory that `path` is in.
pub fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// The same for the same name, however it is written, and if there is nothing yet. None if there can be
/// nothing of this name.
pub fn resolved(path: &Path) -> Option<PathBuf> {
    if let Ok(known) = path.canonicalize() {
        return Some(known);
    }
    Some(directory_of(path).canonicalize().ok()?.join(path.file_name()?))
}

/// [`resolved`], or as it is written.
fn real(path: &Path) -> PathBuf {
    resolved(path).unwrap_or_else(|| path.to_owned())
}

/// Opens it for writing, and leaves everything as it was.
fn probe(path: &Path) -> io::Result<()> {
    let new = OpenOptions::new().write(true).create_new(true).open(path);
    match new {
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().append(true).open(path).map(drop)
        }
        Err(error) => Err(error),
    }
}
