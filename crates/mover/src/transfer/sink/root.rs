//! Which directory entries go into.
//!
//! As rsync has it: into the target if that is a directory. One that is not there is made, with the
//! directory above it there. A single file gets the target's name, if that is not a directory.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, Mode, OFlags, ResolveFlags, accessat, mkdirat, openat, openat2, statat,
};
use rustix::io::Errno;

use super::tree::open_directory;
use super::trouble::other;
use crate::inode::{self, Kind};
use crate::transfer::error::TransferError;

/// Where entries go, as far as it is known.
#[derive(Debug)]
pub(super) enum Target {
    /// It is a directory.
    Known(Root),
    /// It is not, and the first entry tells what becomes of it.
    Waiting(Waiting),
}

/// The directory into which entries go.
#[derive(Debug)]
pub(super) struct Root {
    /// None: it is not there, in a dry run.
    pub(super) directory: Option<OwnedFd>,
    /// It was made now.
    pub(super) fresh: bool,
    /// The name of the only entry.
    pub(super) rename: Option<Box<[u8]>>,
}

/// A target that is no directory.
#[derive(Debug)]
pub(super) struct Waiting {
    above: OwnedFd,
    name: Vec<u8>,
    exists: bool,
    shown: PathBuf,
    dry_run: bool,
    mode_mask: u32,
}

/// Finds the target `path`. Of the permission bits of a directory that is made, those in `mode_mask` are given,
/// and the owner's.
pub(super) fn find(
    path: &Path,
    directory: bool,
    dry_run: bool,
    mode_mask: u32,
) -> Result<Target, TransferError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let failed = |path: &Path, error: io::Error| failed(path, error);
    match openat(CWD, path, flags, Mode::empty()) {
        Ok(found) => return Ok(known(Some(found), false)),
        Err(Errno::NOENT | Errno::NOTDIR) => {}
        Err(error) => return Err(failed(path, error.into())),
    }
    let Some(name) = path.file_name() else {
        return Err(failed(path, Errno::NOENT.into()));
    };
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let opened = openat(CWD, above, flags, Mode::empty());
    let above = opened.map_err(|error| failed(above, missing_above(error)))?;
    let exists = statat(&above, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let name = name.as_bytes().to_vec();
    let waiting = Waiting { above, name, exists, shown: path.into(), dry_run, mode_mask };
    let directory = directory || path.as_os_str().as_bytes().ends_with(b"/");
    if directory { waiting.directory().map(Target::Known) } else { Ok(Target::Waiting(waiting)) }
}

/// Finds the target `path` in `root`, which is not left, and in which no link is followed;
/// `mode_mask` as in [`find`].
pub(super) fn find_below(
    root: &Path,
    path: &Path,
    directory: bool,
    dry_run: bool,
    mode_mask: u32,
) -> Result<Target, TransferError> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) if !name.as_bytes().contains(&0) => names.push(name),
            Component::CurDir | Component::RootDir => {}
            _ => {
                let text = "it leads out of what is served";
                return Err(failed(path, other(io::ErrorKind::PermissionDenied, text)));
            }
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top =
        openat(CWD, root, flags, Mode::empty()).map_err(|error| failed(root, error.into()))?;
    let Some((name, above)) = names.split_last() else {
        return Ok(known(Some(top), false));
    };
    let above = descend(top, above).map_err(|error| failed(path, missing_above(error)))?;
    let exists = match statat(&above, *name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if inode::kind(&stat) == Kind::Directory => {
            let opened = open_directory(&above, name.as_bytes());
            let opened = opened.map_err(|error| failed(path, error.into()))?;
            return Ok(known(Some(opened), false));
        }
        Ok(_) => true,
        Err(Errno::NOENT) => false,
        Err(error) => return Err(failed(path, error.into())),
    };
    let name = name.as_bytes().to_vec();
    let waiting = Waiting { above, name, exists, shown: path.into(), dry_run, mode_mask };
    let directory = directory || path.as_os_str().as_bytes().ends_with(b"/");
    if directory { waiting.directory().map(Target::Known) } else { Ok(Target::Waiting(waiting)) }
}

impl Waiting {
    /// A directory comes, or several entries.
    pub(super) fn directory(self) -> Result<Root, TransferError> {
        let Waiting { above, name, exists, shown, dry_run, mode_mask } = self;
        if exists {
            let text = "it is no directory, and more than one file is to go there";
            return Err(failed(&shown, other(io::ErrorKind::NotADirectory, text)));
        }
        if dry_run {
            // What a copy would meet with is told now.
            let access = Access::WRITE_OK | Access::EXEC_OK;
            accessat(&above, ".", access, AtFlags::EACCESS)
                .map_err(|error| failed(&shown, error.into()))?;
            return Ok(Root { directory: None, fresh: true, rename: None });
        }
        // Without the owner's nothing could be put in it.
        let mode = Mode::RWXU | (Mode::RWXG | Mode::RWXO) & Mode::from_raw_mode(mode_mask);
        let made = mkdirat(&above, &name[..], mode).and_then(|()| open_directory(&above, &name));
        let directory = made.map_err(|error| failed(&shown, error.into()))?;
        Ok(Root { directory: Some(directory), fresh: true, rename: None })
    }

    /// A file or a link comes, and gets the name.
    pub(super) fn single(self) -> Root {
        let rename = Some(self.name.into_boxed_slice());
        Root { directory: Some(self.above), fresh: false, rename }
    }
}

fn known(directory: Option<OwnedFd>, fresh: bool) -> Target {
    Target::Known(Root { directory, fresh, rename: None })
}

fn failed(path: &Path, source: io::Error) -> TransferError {
    use io::ErrorKind::{NotADirectory, NotFound};

    let (path, wrong) = (path.into(), matches!(source.kind(), NotFound | NotADirectory));
    let source = super::trouble::plain(source);
    if wrong { TransferError::Target { path, source } } else { TransferError::Io { path, source } }
}

fn missing_above(error: Errno) -> io::Error {
    match error {
        Errno::NOENT => other(
            io::ErrorKind::NotFound,
            "the directory that it is to be in is not there; make it first",
        ),
        _ => error.into(),
    }
}

/// Opens the directory that `names` lead to from `top`.
fn descend(top: OwnedFd, names: &[&OsStr]) -> rustix::io::Result<OwnedFd> {
    if names.is_empty() {
        return Ok(top);
    }
    let path: PathBuf = names.iter().collect();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    match openat2(&top, &path, flags, Mode::empty(), resolve) {
        // A kernel without the call, a sandbox that forbids it, or too long a path.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::TOOBIG | Errno::NAMETOOLONG) => {
            step_down(top, names)
        }
        opened => opened,
    }
}

/// The same, one name after the other.
fn step_down(mut at: OwnedFd, names: &[&OsStr]) -> rustix::io::Result<OwnedFd> {
    for name in names {
        at = open_directory(&at, name.as_bytes())?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn text(result: Result<Target, TransferError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        symlink("../outside", root.join("link")).unwrap();
        symlink("a", root.join("inner")).unwrap();
        let below = |path: &str| find_below(&root, Path::new(path), true, false, 0o7777);
        for path in ["..", "../outside", "a/../../outside", "link/x/y", "link/", "link", "inner/c"]
        {
            assert!(below(path).is_err(), "{path}");
        }
        for path in ["", "/", ".", "a", "/a/b", "a/b/new"] {
            assert!(matches!(below(path), Ok(Target::Known(_))), "{path}");
        }
        assert!(root.join("a/b/new").is_dir());
        assert_eq!(fs::read_dir(dir.path().join("outside")).unwrap().count(), 0);
        assert!(step_down(fs::File::open(&root).unwrap().into(), &[OsStr::new("link")]).is_err());
    }

    #[test]
    fn the_directory_above_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let error = text(find(&dir.path().join("a/b"), true, false, 0o7777));
        assert!(error.contains("make it first"), "{error}");
        fs::write(dir.path().join("file"), "").unwrap();
        let error = text(find(&dir.path().join("file"), true, false, 0o7777));
        assert!(error.contains("no directory"), "{error}");
        assert!(matches!(
            find(&dir.path().join("file"), false, false, 0o7777),
            Ok(Target::Waiting(_))
        ));
    }

    #[test]
    fn a_dry_run_makes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let found = find(&dir.path().join("new"), true, true, 0o7777).unwrap();
        assert!(matches!(found, Target::Known(Root { directory: None, .. })));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
