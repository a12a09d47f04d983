//! Files that are there whole, or not at all.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::FileError;

/// Writes a file under another name first, so that it is there whole or not at all.
///
/// # Errors
/// If the system refuses; what was there before is then there still.
pub fn write_whole(path: &Path, data: &[u8]) -> Result<(), FileError> {
    Unfinished::write(path, data)?.finish(path)
}

/// Removes a file, if there is one.
pub(super) fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::io(path, error)),
        _ => Ok(()),
    }
}

/// A file that has not got its name yet; it goes when it is dropped before.
pub(super) struct Unfinished(PathBuf);

impl Unfinished {
    pub(super) fn write(path: &Path, data: &[u8]) -> Result<Self, FileError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = Unfinished(path.with_file_name(format!(".{name}.part")));
        // What a disk has no room for, some file systems tell only when it is to be on it.
        let written = fs::File::create(&unfinished.0)
            .and_then(|mut file| file.write_all(data).and_then(|()| file.sync_all()));
        written.map_err(|source| FileError::io(path, source))?;
        Ok(unfinished)
    }

    pub(super) fn finish(self, path: &Path) -> Result<(), FileError> {
        fs::rename(&self.0, path).map_err(|source| FileError::io(path, source))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Once it has its name there is nothing to remove; what cannot be removed is no result.
        let _ = fs::remove_file(&self.0);
    }
}
