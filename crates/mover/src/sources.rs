//! From the paths that the user names to what is sent under which name.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, statat};

use crate::error::SendError;
use crate::inode::{self, Kind};
use crate::name::Name;

/// One path given by the user.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// A directory that `path` leads through and that is to stay open meanwhile.
    pub(crate) held: Option<std::sync::Arc<OwnedFd>>,
    /// As given.
    pub(crate) path: PathBuf,
    /// The name under which it arrives; `None` for the content of a directory.
    pub(crate) name: Option<Vec<u8>>,
}

/// Checks what [`send`](crate::send) checks before it begins, so that a caller can do so before it
/// connects: that each source exists, can be opened and has a name, and that no two would arrive
/// under the same one.
///
/// # Errors
/// [`SendError::NoSources`], [`SendError::Io`], [`SendError::BadSource`],
/// [`SendError::NameClash`].
pub fn check_sources(paths: &[PathBuf]) -> Result<(), SendError> {
    resolve(paths).map(drop)
}

/// The sources, checked; a slash at the end of a path means nothing, as with scp.
pub(crate) fn resolve(paths: &[PathBuf]) -> Result<Vec<Source>, SendError> {
    distinct(paths.iter().map(|path| resolve_one(path)).collect::<Result<_, _>>()?)
}

/// The sources, checked, and those that cannot be read; a slash at the end of a path means the content of
/// the directory, as with rsync.
pub(crate) fn resolve_with_slashes(paths: &[PathBuf]) -> Result<Resolved, SendError> {
    let with_dot = |path: &PathBuf| match path.as_os_str().as_bytes() {
        [.., b'/'] => resolve_one(&path.join(".")),
        _ => resolve_one(path),
    };
    readable(paths, with_dot)
}

/// Sources, of which some may be missing.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// What can be sent.
    pub(crate) sources: Vec<Source>,
    /// What is not there or cannot be opened, as given, and why.
    pub(crate) missing: Vec<(PathBuf, io::Error)>,
}

/// Sets those apart that cannot be read: they do not keep the others back. If there are no others, the
/// first of them is the error.
pub(crate) fn readable(
    paths: &[PathBuf],
    resolve: impl Fn(&PathBuf) -> Result<Source, SendError>,
) -> Result<Resolved, SendError> {
    let (mut sources, mut missing) = (Vec::new(), Vec::new());
    for path in paths {
        match resolve(path) {
            Ok(source) => sources.push(source),
            Err(SendError::Io { source, .. }) => {
                missing.push((path.clone(), about_patterns(path, source)));
            }
            Err(error) => return Err(error),
        }
    }
    if sources.is_empty() && !missing.is_empty() {
        let (path, source) = missing.swap_remove(0);
        return Err(SendError::Io { path, source });
    }
    Ok(Resolved { sources: distinct(sources)?, missing })
}

/// Here a shell has tried to expand a pattern before; on another host nobody has.
fn about_patterns(path: &Path, error: io::Error) -> io::Error {
    let pattern = path.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte));
    if !pattern || error.kind() != io::ErrorKind::NotFound {
        return error;
    }
    let text = "there is no such file, and patterns are not expanded: name the files, or copy the \
                directory with --include";
    io::Error::new(io::ErrorKind::NotFound, text)
}

/// The sources, if there are any and no two would arrive under one name.
pub(crate) fn distinct(sources: Vec<Source>) -> Result<Vec<Source>, SendError> {
    if sources.is_empty() {
        return Err(SendError::NoSources);
    }
    for (i, second) in sources.iter().enumerate() {
        for first in &sources[..i] {
            if let Some(name) = common_name(first, second)? {
                return Err(SendError::NameClash {
                    first: first.path.clone(),
                    second: second.path.clone(),
                    name: PathBuf::from(OsStr::from_bytes(&name)),
                });
            }
        }
    }
    Ok(sources)
}

/// Opens the directory whose content is a source.
pub(crate) fn open_content(path: &Path) -> io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd: OwnedFd = openat(CWD, path, flags, Mode::empty())?;
    Ok(Dir::new(fd)?)
}

/// One source, checked; a slash at its end means nothing.
pub(crate) fn resolve_one(path: &Path) -> Result<Source, SendError> {
    let bytes = path.as_os_str().as_bytes();
    let io = |source| SendError::Io { path: path.into(), source };
    if bytes == b"." || bytes.ends_with(b"/.") {
        open_content(path).map_err(io)?;
        return Ok(Source { held: None, path: path.into(), name: None });
    }
    // Not `Path::file_name`, which looks past a final dot.
    let trimmed = bytes.trim_ascii_end_slashes();
    let last = trimmed.rsplit(|b| *b == b'/').next().unwrap_or_default();
    openable(path).map_err(io)?;
    match Name::new(last) {
        Ok(name) => Ok(Source { held: None, path: path.into(), name: Some(name.bytes().to_vec()) }),
        Err(_) => Err(SendError::BadSource { path: path.into() }),
    }
}

/// Links and special files are not opened; what cannot be opened deeper in a tree is left to the
/// walk.
fn openable(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    match inode::kind(&statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?) {
        Kind::File | Kind::Directory => {
            openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())?;
        }
        Kind::Symlink | Kind::Special(_) => {}
    }
    Ok(())
}

/// A name that both sources would create at the top of the target. Contents are not listed into
/// memory: one is read, the other asked.
fn common_name(a: &Source, b: &Source) -> Result<Option<Vec<u8>>, SendError> {
    let (content, other) = match (&a.name, &b.name) {
        (Some(one), Some(other)) => return Ok((one == other).then(|| one.clone())),
        (None, _) => (a, b),
        (_, None) => (b, a),
    };
    let io = |source| SendError::Io { path: content.path.clone(), source };
    let mut content_dir = open_content(&content.path).map_err(io)?;
    if let Some(name) = &other.name {
        let fd = content_dir.fd().map_err(|errno| io(errno.into()))?;
        let found = statat(fd, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW).is_ok();
        return Ok(found.then(|| name.clone()));
    }
    let asked = open_content(&other.path)
        .map_err(|source| SendError::Io { path: other.path.clone(), source })?;
    while let Some(entry) = content_dir.read() {
        let entry = entry.map_err(|errno| io(errno.into()))?;
        let Ok(name) = Name::new(entry.file_name().to_bytes()) else { continue };
        let fd = asked.fd().map_err(|errno| io(errno.into()))?;
        if statat(fd, name.bytes(), AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(Some(name.bytes().to_vec()));
        }
    }
    Ok(None)
}

trait TrimSlashes {
    fn trim_ascii_end_slashes(&self) -> &[u8];
}

impl TrimSlashes for [u8] {
    fn trim_ascii_end_slashes(&self) -> &[u8] {
        let end = self.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
        &self[..end]
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(dir: &Path, paths: &[&str]) -> Result<Vec<Option<String>>, SendError> {
        let paths: Vec<PathBuf> = paths.iter().map(|path| dir.join(path)).collect();
        let name = |source: Source| source.name.map(|name| String::from_utf8(name).unwrap());
        Ok(resolve(&paths)?.into_iter().map(name).collect())
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/sub")).unwrap();
        fs::create_dir_all(dir.path().join("b/other")).unwrap();
        fs::write(dir.path().join("a/x"), "1").unwrap();
        fs::write(dir.path().join("b/x"), "2").unwrap();
        fs::write(dir.path().join("b/a"), "3").unwrap();
        fs::write(dir.path().join("file"), "4").unwrap();
        dir
    }

    #[test]
    fn names_follow_scp() {
        let dir = tree();
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(names(dir.path(), &["a"]).unwrap(), [some("a")]);
        assert_eq!(names(dir.path(), &["a/"]).unwrap(), [some("a")]);
        assert_eq!(names(dir.path(), &["a/sub//", "file"]).unwrap(), [some("sub"), some("file")]);
        assert_eq!(names(dir.path(), &["a/."]).unwrap(), [None]);
        assert_eq!(names(dir.path(), &["a/x", "b/a"]).unwrap(), [some("x"), some("a")]);
    }

    #[test]
    fn a_slash_means_the_content_where_it_does() {
        let dir = tree();
        let name = |path: &str| {
            resolve_with_slashes(&[dir.path().join(path)])
                .map(|mut found| found.sources.remove(0).name)
        };
        assert_eq!(name("a").unwrap(), Some(b"a".to_vec()));
        assert_eq!(name("a/").unwrap(), None);
        assert_eq!(name("a/.").unwrap(), None);
        assert!(matches!(name("file/"), Err(SendError::Io { .. })));
    }

    #[test]
    fn what_is_missing_does_not_keep_others_back() {
        let dir = tree();
        let resolve = |paths: &[&str]| {
            let paths: Vec<PathBuf> = paths.iter().map(|path| dir.path().join(path)).collect();
            resolve_with_slashes(&paths)
        };
        let found = resolve(&["no", "a", "*.dat", "nothing/"]).unwrap();
        assert_eq!((found.sources.len(), found.missing.len()), (1, 3));
        assert!(found.missing[0].1.raw_os_error().is_some(), "{:?}", found.missing[0]);
        assert!(found.missing[1].1.to_string().contains("not expanded"), "{:?}", found.missing[1]);
        let none = resolve(&["no", "nothing"]).unwrap_err();
        assert!(matches!(&none, SendError::Io { path, .. } if path.ends_with("no")), "{none}");
        assert!(matches!(resolve(&["no", "a/.."]), Err(SendError::BadSource { .. })));
    }

    #[test]
    fn sources_without_a_name_are_refused() {
        let dir = tree();
        for path in ["a/..", "a/../", "/"] {
            let error = names(dir.path(), &[path]).unwrap_err();
            assert!(matches!(error, SendError::BadSource { .. }), "{path}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
        assert!(matches!(resolve(&[]), Err(SendError::NoSources)));
        for path in ["nowhere", "file/.", "file/", "a/nothing", ""] {
            let error = resolve(&[dir.path().join("a/x").join(path)]).unwrap_err();
            assert!(matches!(error, SendError::Io { .. }), "{path}: {error}");
        }
        assert!(matches!(resolve(&[PathBuf::new()]), Err(SendError::Io { .. })));
    }

    #[test]
    fn overlapping_names_are_refused() {
        let dir = tree();
        for paths in [
            &["a/x", "b/x"][..],
            &["a", "b/a"],
            &["a", "file", "a/"],
            &["b/.", "a"],
            &["a", "b/."],
            &["a/.", "b/."],
        ] {
            let error = names(dir.path(), paths).unwrap_err();
            assert!(matches!(error, SendError::NameClash { .. }), "{paths:?}: {error}");
        }
        fs::remove_file(dir.path().join("b/x")).unwrap();
        assert_eq!(names(dir.path(), &["a/.", "b/."]).unwrap(), [None, None]);
    }
}
