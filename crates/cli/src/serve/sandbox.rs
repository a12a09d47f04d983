//! What the process gives up once it has read its configuration and keys, for the case that a client
//! finds a way to make it do what it likes.
//!
//! | what | by |
//! |---|---|
//! | files other than those of exports and of its own | `files.rs`: Landlock |
//! | connections over TCP to others, ports other than its own | Landlock |
//! | system calls that a file server has no use for | `calls.rs`: seccomp |
//! | being read by other processes of its user, core dumps | `PR_SET_DUMPABLE` |
//!
//! Both bind the calling thread and those that it makes from then on: [`Sandbox::enter`] comes before all others.

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod files;

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::config::ServeConfig;
use super::log::{Field, Level, Log};

/// What the process may reach.
#[derive(Debug, Default)]
pub struct Sandbox {
    /// Directories, and whether they may be written to; none: all.
    directories: Option<Vec<(PathBuf, bool)>>,
}

/// What holds, or why it does not.
type Holds = std::result::Result<String, String>;

impl Sandbox {
    /// Confines the process to what `config`, which stands in the file at `path`, needs. To be called
    /// while there is one thread. What the kernel does not have is left out; the log says what holds.
    ///
    /// # Errors
    /// The kernel has it and refuses it.
    pub fn enter(config: &ServeConfig, path: &Path, log: &Log) -> Result<Sandbox> {
        if !config.sandbox {
            log.write(Level::Warning, "sandbox", &[("off", "sandbox = false".into())]);
            return Ok(Sandbox::default());
        }
        let (sandbox, holds) = Self::enter_quietly(config, path)?;
        let all = holds.iter().all(|(_, holds)| holds.is_ok());
        let level = if all { Level::Info } else { Level::Warning };
        let told = |holds: &Holds| match holds {
            Ok(what) => what.clone(),
            Err(why) => format!("off: {why}"),
        };
        let texts: Vec<_> = holds.iter().map(|(name, holds)| (*name, told(holds))).collect();
        let fields: Vec<_> =
            texts.iter().map(|(name, text)| (*name, Field::from(text.as_str()))).collect();
        log.write(level, "sandbox", &fields);
        Ok(sandbox)
    }

    #[cfg(target_os = "linux")]
    fn enter_quietly(
        config: &ServeConfig,
        path: &Path,
    ) -> Result<(Sandbox, Vec<(&'static str, Holds)>)> {
        use anyhow::Context as _;
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};

        const REMEDY: &str = "cannot confine the server; sandbox = false does without";
        let dumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let dumpable = dumpable.map(|()| "off".to_owned()).map_err(|error| error.to_string());
        let allowed = files::Allowed::of(config, path);
        let landlock = files::restrict(&allowed).context(REMEDY)?;
        // Last: it takes from the calls.
        let seccomp = calls::restrict().context(REMEDY)?;
        let directories = landlock.is_ok().then_some(allowed.directories);
        let holds = vec![("landlock", landlock), ("seccomp", seccomp), ("core-dumps", dumpable)];
        Ok((Sandbox { directories }, holds))
    }

    #[cfg(not(target_os = "linux"))]
    fn enter_quietly(_: &ServeConfig, _: &Path) -> Result<(Sandbox, Vec<(&'static str, Holds)>)> {
        let no = || Err("not on this system".to_owned());
        Ok((Sandbox::default(), vec![("landlock", no()), ("seccomp", no())]))
    }

    /// Whether files below `path` can be reached, and changed if `writes`.
    pub fn covers(&self, path: &Path, writes: bool) -> bool {
        let Some(directories) = &self.directories else { return true };
        let Ok(path) = path.canonicalize() else { return false };
        directories.iter().any(|(directory, may)| path.starts_with(directory) && (*may || !writes))
    }

    /// The exports of `config` that the process has not been started for.
    pub fn outside<'a>(&self, config: &'a ServeConfig) -> Vec<&'a str> {
        let beyond = config
            .exports
            .iter()
            .filter(|(_, export)| !self.covers(&export.path, export.access.writes()));
        beyond.map(|(name, _)| name.as_str()).collect()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
