//! Files of lines that people and commands change: read whole, changed whole, one at a time.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::exit::Usage;
use crate::tables;

/// Who else may write to a file could let anybody in.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The text of the file at `path`; empty if there is none.
///
/// # Errors
/// It cannot be read, is no text, or others may write to it.
pub fn read(path: &Path) -> Result<String, Usage> {
    let Some(text) = tables::read(path)? else { return Ok(String::new()) };
    let mode = fs::metadata(path).map_or(0, |known| known.mode());
    if mode & WRITABLE_BY_OTHERS != 0 && path.is_file() {
        let path = path.display();
        return Err(Usage(format!(
            "{path} can be written by others (mode {:04o}), who could put keys in; \
             check it, then run: chmod go-w {}",
            mode & 0o7777,
            quoted(&path.to_string())
        )));
    }
    Ok(text)
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
    make(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    // The file itself is replaced, so a lock on it would hold nobody. Some file systems, those over a
    // network among them, cannot lock directories: there people are to do one thing at a time.
    let lock = File::open(&directory).and_then(|file| file.lock().map(|()| file));
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
    make(&directory)?;
    let mut new = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(mode))
        .tempfile_in(&directory)?;
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    let persisted = if replace { new.persist(&path) } else { new.persist_noclobber(&path) };
    persisted.map_err(|error| error.error)?;
    File::open(&directory)?.sync_all()
}

fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn directory_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
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
    fn files_that_others_may_write_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a list");
        fs::write(&path, "").expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).expect("a mode");
        let told = read(&path).expect_err("others may write").0;
        assert!(told.contains("mode 0664") && told.ends_with("a list'"), "{told}");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/home/a/x.y"), "/home/a/x.y");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
