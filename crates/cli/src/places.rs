//! Where farhaul's own files are, and what the environment says.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::exit::Usage;

/// What variables of the environment begin with that are for farhaul.
pub const PREFIX: &str = "FARHAUL_";

/// The environment as far as it concerns farhaul.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    variables: BTreeMap<String, OsString>,
}

impl Surroundings {
    /// Of this process.
    pub fn of_process() -> Self {
        let named = |(name, value): (OsString, OsString)| {
            let name = name.into_string().ok()?;
            let ours = name.starts_with(PREFIX) || name == "HOME" || name == "XDG_CONFIG_HOME";
            ours.then_some((name, value))
        };
        Surroundings { variables: env::vars_os().filter_map(named).collect() }
    }

    /// These variables.
    #[cfg(test)]
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let owned = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Surroundings { variables: owned.collect() }
    }

    /// The variable `name`; one that is set to nothing counts as not set.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(name).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// The variables for farhaul that are set.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str).filter(|name| name.starts_with(PREFIX))
    }

    /// The user's directory of farhaul's files: below XDG_CONFIG_HOME, or else below `~/.config`.
    /// None without a home. A relative XDG_CONFIG_HOME does not count, as its specification says.
    pub fn directory(&self) -> Option<PathBuf> {
        let absolute = |name| self.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let parent =
            absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
        Some(parent.join("farhaul"))
    }

    /// The file `name` in [`Surroundings::directory`].
    ///
    /// # Errors
    /// There is no such directory: neither variable is set.
    pub fn file(&self, name: &str) -> Result<PathBuf, Usage> {
        self.directory().map(|directory| directory.join(name)).ok_or_else(|| {
            Usage(format!(
                "there is no place for farhaul's file '{name}': \
                 neither HOME nor XDG_CONFIG_HOME is set to an absolute path"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_follows_the_environment() {
        let directory = |variables: &[_]| Surroundings::of(variables).directory();
        let home = ("HOME", "/home/a");
        assert_eq!(directory(&[home]), Some("/home/a/.config/farhaul".into()));
        assert_eq!(directory(&[home, ("XDG_CONFIG_HOME", "/x")]), Some("/x/farhaul".into()));
        for unset in ["", "relative"] {
            let found = directory(&[home, ("XDG_CONFIG_HOME", unset)]);
            assert_eq!(found, Some("/home/a/.config/farhaul".into()), "{unset:?}");
        }
        assert_eq!(directory(&[]), None);
        assert!(Surroundings::of(&[]).file("identity").is_err_and(|e| e.0.contains("HOME")));
    }
}
