//! A directory is not copied into itself: what is copied would be copied again, without end.
//!
//! Paths say whether a target lies in a source where both are on this host. Over ssh one side tells the other
//! what its directories are, and the other compares if it runs on the same system.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use farhaul_mover::printable_path;
use farhaul_mover::transfer::source::filter::Filter;
use serde::{Deserialize, Serialize};

use super::job::{Bytes, SinkJob, SourceJob};

/// Directories of a system.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Places {
    /// Which system, until it starts again; empty where it does not say.
    system: String,
    directories: Vec<Directory>,
    /// Of sources: what is left out.
    rules: Vec<(String, bool)>,
}

/// A directory of which the other side is to know whether it is one of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Directory {
    /// Without links.
    path: Bytes,
    device: u64,
    inode: u64,
    /// As a source: under which name it arrives.
    name: Option<Bytes>,
}

impl Directory {
    fn at(path: &Path, name: Option<&OsStr>) -> Option<Directory> {
        let known = fs::symlink_metadata(path).ok()?;
        let name = name.map(|name| Bytes::from(Path::new(name)));
        known.is_dir().then(|| Directory {
            path: path.into(),
            device: known.dev(),
            inode: known.ino(),
            name,
        })
    }

    fn is_same(&self, other: &Directory) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether it is the same here: other file systems may be mounted for the other side.
    fn is_ours(&self) -> bool {
        Directory::at(&self.path.path(), None).is_some_and(|ours| ours.is_same(self))
    }
}

impl Places {
    /// The directories among these sources.
    pub fn of_sources(job: &SourceJob) -> Places {
        let directories = job.paths.iter().filter_map(|path| source(&path.path_at_home()));
        let directories = directories.collect();
        Places { system: system(), directories, rules: job.rules.clone() }
    }

    /// The target and all directories above it.
    pub fn of_target(job: &SinkJob) -> Places {
        let target = resolved(&job.path.path_at_home());
        let above = target.iter().flat_map(|target| target.ancestors());
        let above: Vec<_> = above.filter_map(|path| Directory::at(path, None)).collect();
        let target = target.iter().map(|target| {
            let path = target.as_path().into();
            Directory { path, device: 0, inode: 0, name: None }
        });
        // The target itself first, whether it is there or not.
        let directories = target.chain(above).collect();
        Places { system: system(), directories, rules: Vec::new() }
    }

    /// Whether they are of this system.
    fn are_here(&self) -> bool {
        !self.system.is_empty() && self.system == system()
    }
}

/// Refuses a copy within this host whose target lies in one of its sources.
///
/// # Errors
///
/// What is wrong with it.
pub fn check(source: &SourceJob, sink: &SinkJob) -> Result<(), String> {
    check_here(sink, &Places::of_sources(source))
}

/// Refuses a target that lies in one of these sources, if they are of this system.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_target(job: &SinkJob, sources: &Places) -> Result<(), String> {
    if sources.are_here() { check_here(job, sources) } else { Ok(()) }
}

fn check_here(job: &SinkJob, sources: &Places) -> Result<(), String> {
    let target = resolved(&job.path.path_at_home()).filter(|_| !job.stream);
    let Some(target) = target else { return Ok(()) };
    let ours = sources.directories.iter().filter(|source| source.is_ours());
    ours.map(|source| refuse(source, &target, &sources.rules)).collect()
}

/// Refuses sources in which the target lies, if that is of this system.
///
/// # Errors
///
/// What is wrong with one.
pub fn check_sources(job: &SourceJob, target: &Places) -> Result<(), String> {
    let Some((target, above)) = target.directories.split_first().filter(|_| target.are_here())
    else {
        return Ok(());
    };
    let sources = job.paths.iter().filter_map(|path| source(&path.path_at_home()));
    // What is above both must be the same for both.
    let ours = above.first().is_some_and(Directory::is_ours);
    let common = |source: &Directory| ours || above.iter().any(|above| above.is_same(source));
    sources.filter(common).try_for_each(|source| refuse(&source, &target.path.path(), &job.rules))
}

/// Refuses it if what `source` has would arrive in it, and nothing is left out on the way there.
fn refuse(source: &Directory, target: &Path, rules: &[(String, bool)]) -> Result<(), String> {
    let mut arrives = source.name.as_ref().map(Bytes::path).unwrap_or_default();
    let mut place = target.to_owned();
    // With nothing a slash would come.
    place.extend(&arrives);
    let from = source.path.path();
    let Ok(inside) = place.strip_prefix(&from) else { return Ok(()) };
    let mut filter = Filter::default();
    for (pattern, include) in rules {
        // Patterns have been checked before.
        let _ = filter.add(pattern, *include);
    }
    for name in inside {
        arrives.push(name);
        if !filter.takes(&arrives, true) {
            return Ok(());
        }
    }
    let from = printable_path(&from);
    Err(match inside.as_os_str().is_empty() {
        true => format!("{from} would be copied onto itself"),
        false => format!(
            "{from} would be copied into itself, to {}: choose a target outside, or --exclude it",
            printable_path(&place)
        ),
    })
}

/// The directory that a source is. A link without a slash after it is copied as a link.
fn source(path: &Path) -> Option<Directory> {
    let bytes = path.as_os_str().as_bytes();
    let content = bytes.ends_with(b"/") || bytes == b"." || bytes.ends_with(b"/.");
    if !content && !fs::symlink_metadata(path).ok()?.is_dir() {
        return None;
    }
    let resolved = path.canonicalize().ok()?;
    // Not that of the path, which may end in links.
    Directory::at(&resolved, path.file_name().filter(|_| !content))
}

/// Where a target is, or would be.
fn resolved(path: &Path) -> Option<PathBuf> {
    if let Ok(known) = path.canonicalize() {
        return Some(known);
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    Some(above.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
}

fn system() -> String {
    // Where there is none, paths of different hosts are not taken for the same.
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}
