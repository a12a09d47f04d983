//! Files of lines that people and commands change: read whole, changed whole, one at a time.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result};

use super::strict::{self, Guard};
use crate::exit::Usage;
use crate::files::directory_of;
use crate::tables;

/// The text of the file at `path`; empty if there is none.
///
/// # Errors
/// As of [`read_if_there`].
pub fn read(path: &Path) -> Result<String, Usage> {
    read_if_there(path).map(Option::unwrap_or_default)
}

/// The text of the file at `path`; none if there is none.
///
/// # Errors
/// It cannot be read, is no text, or others may write to it.
pub fn read_if_there(path: &Path) -> Result<Option<String>, Usage> {
    let file = strict::open(path, Guard::Written)?;
    file.map(|file| tables::text(path, file)).transpose()
}

/// What is in the file at `path`, whether it is a text or not and whatever others may do with it: not to be
/// believed, but what is missing in it is missing.
///
/// # Errors
/// It cannot be read, or is no regular file.
pub fn read_unguarded(path: &Path) -> Result<Vec<u8>, Usage> {
    let file = strict::open_at_once(path)
        .and_then(|file| file.metadata().map(|known| (known.is_file(), file)));
    match file {
        Ok((true, file)) => tables::bytes(path, file),
        Ok((false, _)) => {
            Err(Usage(format!("cannot read {}: it is no regular file", path.display())))
        }
        Err(error) => Err(Usage(format!("cannot read {}: {error}", path.display()))),
    }
}

/// Replaces the text of the file at `path` by what `change` makes of it; `None` leaves it.
/// Only one process does so at a time. Directories that are missing are made for the user alone.
///
/// # Errors
/// Those of [`read`] and `change`; or it cannot be written, and is as it was.
pub fn update<T>(
    path: &Path,
    change: impl FnOnce(&str) -> Result<(Option<String>, T)>,
) -> Result<T> {
    let directory = directory_of(path);
    make(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    // The file itself is replaced, so a lock on it would hold nobody. Some file systems, those over a
    // network among them, cannot lock directories: there people are to do one thing at a time.
    let lock = File::open(directory).and_then(|file| file.lock().map(|()| file));
    let (text, result) = change(&read(path)?)?;
    match text {
        // What there is keeps its mode.
        Some(text) if path.exists() => crate::files::write(path, text.as_bytes())?,
        Some(text) => write_new(path, text.as_bytes(), 0o644, false)
            .with_context(|| format!("cannot write {}", path.display()))?,
        None => {}
    }
    drop(lock);
    Ok(result)
}

/// Writes `bytes` to a new file with this mode: whole, on the medium, or not at all. Whether one that
/// is there already is replaced says `replace`.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if it is not to be replaced.
pub fn write_new(path: &Path, bytes: &[u8], mode: u32, replace: bool) -> io::Result<()> {
    // Of a link the file that it leads to.
    let path = if replace { path.canonicalize().unwrap_or(path.to_owned()) } else { path.into() };
    let directory = directory_of(&path);
    make(directory)?;
    let mut new = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(mode))
        .tempfile_in(directory)?;
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    let persisted = if replace { new.persist(&path) } else { new.persist_noclobber(&path) };
    persisted.map_err(|error| error.error)?;
    File::open(directory)?.sync_all()
}

/// Makes a directory for the user alone, and those above it that are missing.
///
/// # Errors
/// It cannot be made.
pub fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// `text` as a shell takes it for one word.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::thread;

    use super::*;

    #[test]
    fn changes_at_the_same_time_are_all_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("new/list");
        thread::scope(|scope| {
            for nth in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    update(path, |text| Ok((Some(format!("{text}{nth}\n")), ()))).expect("written");
                });
            }
        });
        assert_eq!(read(&path).expect("a text").lines().count(), 8);
        let mode = fs::metadata(dir.path().join("new")).expect("a directory").mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_change_that_fails_changes_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("list");
        fs::write(&path, "a\n").expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        let failed = update::<()>(&path, |_| Err(Usage("no".into()).into()));
        assert!(failed.is_err());
        update(&path, |_| Ok((None, ()))).expect("nothing to write");
        assert_eq!(read(&path).expect("a text"), "a\n");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/home/a/x.y"), "/home/a/x.y");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
