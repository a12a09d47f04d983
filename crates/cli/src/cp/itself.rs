//! A directory is not copied into itself: what is copied would be copied again, without end.
//!
//! Over ssh one side tells the other marks of its directories, which say nothing but whether one of the other's
//! is the same: both may run on one system.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use farhaul_mover::printable_path;
use farhaul_mover::transfer::source::filter::Filter;
use serde::{Deserialize, Serialize};

use super::job::{Bytes, SinkJob, SourceJob};
use crate::files::resolved;

/// Sources that are directories.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sources {
    directories: Vec<Source>,
    /// What is left out.
    rules: Vec<(String, bool)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Source {
    mark: String,
    /// Under which it arrives.
    name: Option<Bytes>,
}

/// What a side is told of the directories of the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    Sources(Sources),
    /// The marks of the target, if it is there, and of the directories above it.
    Target(Vec<Option<String>>),
}

impl Peer {
    /// For the sink. None: nobody could say what they are.
    pub fn sources(job: &SourceJob) -> Option<Peer> {
        system().map(|system| Peer::Sources(sources(job, &system)))
    }

    /// For the source. None: nobody could say what it is.
    pub fn target(job: &SinkJob) -> Option<Peer> {
        let system = system()?;
        let target = resolved(&job.path.path_at_home()).filter(|_| !job.stream)?;
        Some(Peer::Target(target.ancestors().map(|path| mark(path, &system)).collect()))
    }
}

/// Refuses a copy within this host whose target lies in one of its sources.
///
/// # Errors
///
/// What is wrong with it.
pub fn check(source: &SourceJob, sink: &SinkJob) -> Result<(), String> {
    let system = system().unwrap_or_default();
    refuse_target(sink, &sources(source, &system), &system)
}

/// Refuses a target that lies in one of the other side's sources.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_target(job: &SinkJob, sources: &Sources) -> Result<(), String> {
    system().map_or(Ok(()), |system| refuse_target(job, sources, &system))
}

/// Refuses sources in which the other side's target lies. What is left out on the way there only the other
/// side could tell, so that whoever leaves out anything is trusted.
///
/// # Errors
///
/// What is wrong with one.
pub fn check_sources(job: &SourceJob, target: &[Option<String>]) -> Result<(), String> {
    let Some(system) = system().filter(|_| job.rules.is_empty()) else { return Ok(()) };
    for (path, name) in job.paths.iter().filter_map(|path| directory(&path.path_at_home())) {
        let is = |at: Option<&Option<String>>, path: &Path| {
            at.is_some_and(|at| at.is_some() && *at == mark(path, &system))
        };
        let onto = match (&name, path.parent()) {
            (Some(_), Some(above)) => is(target.first(), above),
            (Some(_), None) => false,
            (None, _) => is(target.first(), &path),
        };
        let into = target.iter().any(|at| is(Some(at), &path));
        let path = printable_path(&path);
        if onto {
            return Err(format!("{path} would be copied onto itself"));
        } else if into {
            return Err(format!("{path} would be copied into itself: choose a target outside"));
        }
    }
    Ok(())
}

fn sources(job: &SourceJob, system: &str) -> Sources {
    let directories = job.paths.iter().filter_map(|path| {
        let (path, name) = directory(&path.path_at_home())?;
        let name = name.map(|name| Bytes::from(Path::new(&name)));
        Some(Source { mark: mark(&path, system)?, name })
    });
    Sources { directories: directories.collect(), rules: job.rules.clone() }
}

fn refuse_target(job: &SinkJob, sources: &Sources, system: &str) -> Result<(), String> {
    let target = resolved(&job.path.path_at_home()).filter(|_| !job.stream);
    let Some(target) = target.filter(|_| !sources.directories.is_empty()) else { return Ok(()) };
    let mut filter = Filter::default();
    for (pattern, include) in &sources.rules {
        filter.add(pattern, *include).map_err(|error| error.to_string())?;
    }
    for source in &sources.directories {
        let name = source.name.as_ref().map(Bytes::path).unwrap_or_default();
        let mut place = target.clone();
        // With nothing a slash would come.
        place.extend(&name);
        let same = |path: &&Path| mark(path, system).as_ref() == Some(&source.mark);
        let Some(from) = place.ancestors().find(same) else { continue };
        let mut arrives = name;
        let left_out = place.strip_prefix(from).is_ok_and(|inside| {
            inside.iter().any(|name| {
                arrives.push(name);
                !filter.takes(&arrives, true)
            })
        });
        if left_out {
            continue;
        }
        let (shown, to) = (printable_path(from), printable_path(&place));
        return Err(match from == place {
            true => format!("{shown} would be copied onto itself"),
            false => format!(
                "{shown} would be copied into itself, to {to}: choose a target outside, or --exclude it"
            ),
        });
    }
    Ok(())
}

/// The directory that a source is, without links in its path, and the name under which it arrives. A link
/// without a slash after it is copied as a link.
fn directory(path: &Path) -> Option<(PathBuf, Option<std::ffi::OsString>)> {
    let bytes = path.as_os_str().as_bytes();
    let content = bytes.ends_with(b"/") || bytes == b"." || bytes.ends_with(b"/.");
    if !content && !fs::symlink_metadata(path).ok()?.is_dir() {
        return None;
    }
    let name = path.file_name().filter(|_| !content).map(OsStr::to_owned);
    Some((path.canonicalize().ok().filter(|path| path.is_dir())?, name))
}

/// What is the same for the same directory and for nothing else. Who does not run on this system learns
/// nothing from it.
fn mark(path: &Path, system: &str) -> Option<String> {
    let known = fs::symlink_metadata(path).ok().filter(|known| known.is_dir())?;
    let text = format!("farhaul cp, a directory: {system} {} {}", known.dev(), known.ino());
    Some(blake3::hash(text.as_bytes()).to_hex().to_string())
}

/// Which system this is, until it starts again: known to its own users only.
fn system() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_of_directories() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("a")).expect("a directory");
        std::os::unix::fs::symlink("a", path("link")).expect("a link");
        let of = |name: &str, system| mark(&path(name), system);
        assert!(of("a", "x").is_some() && of("a", "x") == of("a/../a", "x"));
        assert!(of("a", "x") != of("", "x") && of("a", "x") != of("a", "y"));
        assert!(of("link", "x").is_none() && of("nowhere", "x").is_none());
        let (found, name) = directory(&path("a")).expect("a directory");
        assert_eq!(name.as_deref(), Some(OsStr::new("a")));
        assert_eq!(directory(&path("link/")), Some((found, None)));
        assert!(directory(&path("link")).is_none());
    }
}
