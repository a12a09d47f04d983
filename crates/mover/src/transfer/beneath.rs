//! Opening what lies below a directory, never through a symbolic link.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Opens `path` below `root`: no component of it is a link, an absolute path or a way up. An empty
/// path is the root itself.
///
/// # Errors
///
/// Those of the kernel; [`io::ErrorKind::InvalidInput`] for a path that leads up.
pub(crate) fn open(root: impl AsFd, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    /// Whether the kernel has no `openat2` (before Linux 5.6, or in some sandboxes).
    static LACKING: AtomicBool = AtomicBool::new(false);
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = flags | OFlags::CLOEXEC;
    if !LACKING.load(Ordering::Relaxed) {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match openat2(root.as_fd(), path, flags, mode, resolve) {
            Err(Errno::NOSYS | Errno::PERM) => LACKING.store(true, Ordering::Relaxed),
            // The tree was moved meanwhile, and the kernel could not tell whether that led out; or the
            // path is longer than one call takes.
            Err(Errno::AGAIN | Errno::NAMETOOLONG) => {}
            opened => return Ok(opened?),
        }
    }
    step_by_step(root.as_fd(), path, flags, mode)
}

/// The same with a call for each component.
fn step_by_step(
    root: std::os::fd::BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here: Option<OwnedFd> = None;
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => std::ffi::OsStr::new("."),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let at = here.as_ref().map_or(root, |fd| fd.as_fd());
        if components.peek().is_none() {
            return Ok(openat(at, name, flags | OFlags::NOFOLLOW, mode)?);
        }
        here = Some(openat(at, name, through, Mode::empty())?);
    }
    Err(io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    type Open = fn(&OwnedFd, &Path) -> io::Result<OwnedFd>;
    const WAYS: [Open; 2] = [
        |root, path| open(root, path, OFlags::RDONLY, Mode::empty()),
        |root, path| step_by_step(root.as_fd(), path, OFlags::RDONLY, Mode::empty()),
    ];

    #[test]
    fn what_lies_below_is_opened_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("root/a")).unwrap();
        fs::write(dir.path().join("root/a/f"), "content").unwrap();
        fs::write(dir.path().join("secret"), "no").unwrap();
        symlink("../../secret", dir.path().join("root/a/out")).unwrap();
        symlink("a", dir.path().join("root/link")).unwrap();
        let root: OwnedFd = fs::File::open(dir.path().join("root")).unwrap().into();
        for open in WAYS {
            let mut text = String::new();
            let found = open(&root, Path::new("a/f")).unwrap();
            fs::File::from(found).read_to_string(&mut text).unwrap();
            assert_eq!(text, "content");
            assert!(open(&root, Path::new("a/./f")).is_ok());
            let name = "n".repeat(200);
            let deep: std::path::PathBuf = std::iter::repeat_n(name.as_str(), 30).collect();
            let missing = open(&root, &deep).unwrap_err();
            assert_eq!(missing.kind(), io::ErrorKind::NotFound);
            for path in ["a/out", "link/f", "link", "../secret", "a/../../secret", "/etc/passwd"] {
                assert!(open(&root, Path::new(path)).is_err(), "{path}");
            }
        }
    }
}
