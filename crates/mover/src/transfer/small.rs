//! Files that come in one piece: written under a temporary name and then renamed, without a journal.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, fchmod, fsync, futimens, unlinkat};

use super::place;
use crate::frame::Attributes;
use crate::inode;
use crate::name::Name;
pub use crate::temporary::TemporaryNames;

/// Writes a whole file. It has its name, its content and, if it succeeds, its attributes at once, or
/// nothing is left of it; a file or link of this name is replaced if that may be, a directory is not.
///
/// `attributes` sets what is kept, such as with [`set_attributes`]. If it fails, the file is stored
/// all the same and its error returned as `Ok(Some(_))`. If `durable`, the file is on the medium
/// afterwards; its name is once the caller has synced `directory`. Until then it has one of the `names`.
pub fn write_small(
    names: &TemporaryNames,
    directory: &OwnedFd,
    name: Name<'_>,
    data: &[u8],
    attributes: impl FnOnce(&File) -> io::Result<()>,
    durable: bool,
    replace: bool,
) -> io::Result<Option<io::Error>> {
    let (temporary, mut file) = names.make(|temporary| place::create(directory, temporary))?;
    let written = file.write_all(data).and_then(|()| {
        let kept = attributes(&file);
        if durable {
            fsync(&file)?;
        }
        place::rename(directory, &temporary, name.bytes(), replace)?;
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;
    use crate::frame::Timestamp;

    fn names(directory: &std::path::Path) -> Vec<std::ffi::OsString> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn files_get_content_and_attributes_and_replace_what_stood_there() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap().into();
        let outside = tempfile::NamedTempFile::new().unwrap();
        let path = dir.path().join("f");
        symlink(outside.path(), &path).unwrap();
        let time = Timestamp { seconds: -5, nanoseconds: 123_456_789 };
        let attributes = Attributes { mode: 0o4751, accessed: time, modified: time };
        let new = TemporaryNames::new();
        for (data, durable) in [(&b"one"[..], false), (b"", true)] {
            let keep = |file: &File| set_attributes(file, &attributes);
            let name = Name::new(b"f").unwrap();
            assert!(
                write_small(&new, &directory, name, data, keep, durable, true).unwrap().is_none()
            );
            let meta = fs::symlink_metadata(&path).unwrap();
            assert!(meta.is_file());
            assert_eq!(
                (meta.mode() & 0o7777, meta.mtime(), meta.atime_nsec()),
                (0o4751, -5, 123_456_789)
            );
            assert_eq!(fs::read(&path).unwrap(), data);
        }
        assert_eq!(names(dir.path()), ["f"]);
        assert_eq!(fs::read(outside.path()).unwrap(), b"");
    }

    #[test]
    fn failures_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap().into();
        fs::create_dir(dir.path().join("d")).unwrap();
        let name = Name::new(b"d").unwrap();
        let new = TemporaryNames::new();
        let error = write_small(&new, &directory, name, b"x", |_| Ok(()), false, true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        assert_eq!(names(dir.path()), ["d"]);
        fs::remove_dir(dir.path().join("d")).unwrap();
        let refuse = |_: &File| Err(io::Error::other("no"));
        let kept = write_small(&new, &directory, name, b"x", refuse, false, true).unwrap();
        assert_eq!(kept.unwrap().to_string(), "no");
        assert_eq!(fs::read(dir.path().join("d")).unwrap(), b"x");
    }
}
