//! Sources below a directory that is exported: what a client names leads nowhere else.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::error::SendError;
use crate::sources::{Resolved, Source, readable, resolve_one};
use crate::transfer::beneath;

/// The sources that `paths` name below `root`.
pub(super) fn resolve(root: &Path, paths: &[PathBuf]) -> Result<Resolved, SendError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| SendError::Io { path, source }
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = openat(CWD, root, flags, Mode::empty()).map_err(io::Error::from);
    let open = open.map_err(failed(root))?;
    readable(paths, |path| {
        one(&open, path).map_err(|error| match error {
            // The path as it was given, and not as it was opened.
            Bad::Io(error) | Bad::Source(SendError::Io { source: error, .. }) => {
                failed(path)(plain(error))
            }
            Bad::Source(error) => error,
        })
    })
}

/// The error in words that fit, where the system's own mislead.
fn plain(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => {
            io::Error::new(error.kind(), "a symbolic link is in the way, which is not followed")
        }
        _ => error,
    }
}

enum Bad {
    Io(io::Error),
    Source(SendError),
}

/// A source in a directory that is open: `/proc` names that directory, whatever happens to its path.
fn one(root: &OwnedFd, path: &Path) -> Result<Source, Bad> {
    use std::os::unix::ffi::OsStrExt;
    let up =
        path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir));
    if up {
        let text = "paths are relative to the export and have no '..'";
        return Err(Bad::Io(io::Error::new(io::ErrorKind::InvalidInput, text)));
    }
    let bytes = path.as_os_str().as_bytes();
    let content =
        bytes.is_empty() || bytes == b"." || bytes.ends_with(b"/") || bytes.ends_with(b"/.");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let clean: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    let (directory, name) = match (content, clean.file_name()) {
        (false, Some(name)) => (clean.parent().unwrap_or(Path::new("")), Some(name)),
        _ => (clean.as_path(), None),
    };
    let held = beneath::open(root, directory, flags, Mode::empty()).map_err(Bad::Io)?;
    let mut open = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    open.push(name.map_or(Path::new("."), Path::new));
    let mut source = resolve_one(&open).map_err(Bad::Source)?;
    source.held = Some(Arc::new(held));
    Ok(source)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_but_what_is_exported_is_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("export/sub/deep")).unwrap();
        fs::write(dir.path().join("export/sub/f"), "x").unwrap();
        fs::write(dir.path().join("secret"), "no").unwrap();
        symlink("..", dir.path().join("export/up")).unwrap();
        let name = |path: &str| {
            resolve(&dir.path().join("export"), &[path.into()])
                .map(|mut found| found.sources.remove(0).name)
        };
        assert_eq!(name("sub").unwrap(), Some(b"sub".to_vec()));
        assert_eq!(name("sub/f").unwrap(), Some(b"f".to_vec()));
        for content in ["", ".", "./", "sub/", "sub/."] {
            assert_eq!(name(content).unwrap(), None, "{content}");
        }
        for bad in
            ["..", "../secret", "/etc/passwd", "sub/../../secret", "up/secret", "up/", "none"]
        {
            assert!(name(bad).is_err(), "{bad}");
        }
        // A link as such may be sent: it is not followed.
        assert_eq!(name("up").unwrap(), Some(b"up".to_vec()));
    }
}
