//! Which of several values of a setting is in force.

use std::fmt;
use std::path::{Path, PathBuf};

use super::catalogue::Info;
use super::file::ConfigFile;
use super::value::Kind;
use crate::exit::Usage;
use crate::places::Surroundings;

/// A value in force, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Who set it.
    pub origin: Origin,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// This variable.
    Environment(String),
    /// A file.
    File {
        /// Which.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The host's name or pattern of the section; none: the top of the file.
        section: Option<String>,
    },
    /// Nobody set it.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag => f.write_str("command line"),
            Origin::Environment(variable) => write!(f, "environment, {variable}"),
            Origin::File { path, line, section: None } => write!(f, "{}:{line}", path.display()),
            Origin::File { path, line, section: Some(section) } => {
                write!(f, "{}:{line}, [host.{section:?}]", path.display())
            }
            Origin::Default => f.write_str("default"),
        }
    }
}

/// What lies below the flags.
#[derive(Debug, Default)]
pub(super) struct Layers<'a> {
    pub surroundings: Surroundings,
    /// The file and where it is; none: there is no file.
    pub file: Option<(&'a Path, ConfigFile)>,
    /// The host in question.
    pub host: Option<&'a str>,
}

impl Layers<'_> {
    /// The value of a setting: of the flag, or else of the first layer that has one.
    ///
    /// # Errors
    /// The text in the layer is no value.
    pub(super) fn find<T: Clone>(
        &self,
        flag: Option<&T>,
        info: Option<&'static Info>,
        kind: &Kind<T>,
    ) -> Result<Setting<T>, Usage> {
        if let Some(value) = flag {
            return Ok(Setting { value: value.clone(), origin: Origin::Flag });
        }
        let info = info.ok_or_else(|| Usage("a setting is missing in the catalogue".into()))?;
        let (text, origin) = self.text(info)?;
        match (kind.parse)(&text) {
            Ok(value) => Ok(Setting { value, origin }),
            Err(why) => {
                let place = match &origin {
                    Origin::Environment(variable) => variable.clone(),
                    other => format!("{other}: {}", info.name),
                };
                Err(Usage(format!("{place}={text}: {why}")))
            }
        }
    }

    fn text(&self, info: &'static Info) -> Result<(String, Origin), Usage> {
        let variable = info.variable();
        if let Some(value) = self.surroundings.get(&variable) {
            let text = value.to_str().map(str::to_owned);
            let text = text.ok_or_else(|| Usage(format!("{variable} is not a text in UTF-8")))?;
            return Ok((text, Origin::Environment(variable)));
        }
        if let Some((path, file)) = &self.file
            && let Some((entry, section)) = file.find(info.name, self.host)
        {
            let section = section.map(str::to_owned);
            let origin = Origin::File { path: path.to_path_buf(), line: entry.line, section };
            return Ok((entry.text.clone(), origin));
        }
        Ok((info.default.to_owned(), Origin::Default))
    }
}
