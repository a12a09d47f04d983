//! The settings of `farhaul cp`: flags, then the environment, then the user's file, then defaults.
//!
//! | file | subject |
//! |---|---|
//! | `catalogue.rs` | the settings, each defined once |
//! | `value.rs` | what their values are, how they are written and read |
//! | `layers.rs` | which of several values is in force, and where it comes from |
//! | `file.rs` | the user's file with its sections for hosts |
//! | `command.rs` | `farhaul config` |

mod catalogue;
mod command;
mod file;
mod layers;
pub mod value;

use std::path::{Path, PathBuf};

pub use catalogue::{CATALOGUE, FlagLayer, Info, Settings, Shown};
pub use command::{ConfigCommand, hint_at_unknown, run};
pub use layers::Origin;

use crate::exit::Usage;
use crate::places::Surroundings;
use file::ConfigFile;
use layers::Layers;

/// The variable that names another file.
pub const FILE_VARIABLE: &str = "FARHAUL_CONFIG";

impl Settings {
    /// The settings in force for `host`, which may have a user before it and brackets around it;
    /// none: for any host that no section is for.
    ///
    /// # Errors
    /// A variable or the file is wrong: what is, where, and what to write instead.
    pub fn load(flags: &FlagLayer, host: Option<&str>) -> Result<Settings, Usage> {
        Self::load_in(flags, host, Surroundings::of_process())
    }

    fn load_in(
        flags: &FlagLayer,
        host: Option<&str>,
        surroundings: Surroundings,
    ) -> Result<Settings, Usage> {
        let path = file_path(&surroundings);
        let file = match &path {
            Some(path) => ConfigFile::read(path)?.map(|file| (path.as_path(), file)),
            None => None,
        };
        // A file that somebody names is to be there.
        if let (None, Some(path), Some(_)) = (&file, &path, surroundings.get(FILE_VARIABLE)) {
            let path = path.display();
            return Err(Usage(format!("{FILE_VARIABLE} names a file that is not there: {path}")));
        }
        Settings::of(flags, &Layers { surroundings, file, host })
    }
}

/// Finds out whether `text`, which stands in the file at `path`, is right for any host.
///
/// # Errors
/// Everything that is wrong, with its line.
pub(crate) fn check(path: &Path, text: &str) -> Result<(), Usage> {
    ConfigFile::parse(path, text).map(drop)
}

/// Where the user's file is, or would be; none without a home.
pub(crate) fn file_path(surroundings: &Surroundings) -> Option<PathBuf> {
    let named = surroundings.get(FILE_VARIABLE).map(PathBuf::from);
    named.or_else(|| Some(surroundings.directory()?.join("config.toml")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::layers::Setting;
    use super::value::{Streams, Transport, Verify};
    use super::*;

    /// A home with this settings file.
    fn home(text: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(home.path().join(".config/farhaul")).expect("a directory");
        fs::write(home.path().join(".config/farhaul/config.toml"), text).expect("a file");
        home
    }

    #[test]
    fn flags_go_before_variables_before_the_file_before_defaults() {
        let home = home("rate = \"1G\"\ntransport = \"tcp\"\nstreams = 2\n[host.h]\nmss = 9000\n");
        let surroundings = Surroundings::of(&[
            ("HOME", home.path().to_str().expect("a text")),
            ("FARHAUL_TRANSPORT", "udp"),
            ("FARHAUL_STREAMS", "3"),
            ("FARHAUL_SSH", ""),
        ]);
        let flags = FlagLayer {
            streams: Some(Streams::Auto),
            progress: Some(false),
            ..FlagLayer::default()
        };
        let settings = Settings::load_in(&flags, Some("h"), surroundings).expect("settings");
        let file = home.path().join(".config/farhaul/config.toml");
        assert_eq!(settings.streams, Setting { value: Streams::Auto, origin: Origin::Flag });
        assert_eq!(settings.progress.origin, Origin::Flag);
        let of_variable = Origin::Environment("FARHAUL_TRANSPORT".into());
        assert_eq!(settings.transport, Setting { value: Transport::Udp, origin: of_variable });
        let of_file = Origin::File { path: file.clone(), line: 1, section: None };
        assert_eq!(settings.rate, Setting { value: Some(1_000_000_000), origin: of_file });
        let of_section = Origin::File { path: file, line: 5, section: Some("h".into()) };
        assert_eq!(settings.mss, Setting { value: 9000, origin: of_section });
        assert_eq!(settings.verify, Setting { value: Verify::Full, origin: Origin::Default });
        assert_eq!(settings.ssh.origin, Origin::Default, "an empty variable is none");
    }

    #[test]
    fn what_is_wrong_outside_of_flags_is_told() {
        let home = home("rate = \"1M\"\n");
        let at_home = home.path().to_str().expect("a text");
        let told = |variables: &[(&str, &str)]| {
            let surroundings = Surroundings::of(variables);
            let error = Settings::load_in(&FlagLayer::default(), None, surroundings);
            error.expect_err("it is wrong").0
        };
        let variable = told(&[("HOME", at_home), ("FARHAUL_STREAMS", "40")]);
        assert_eq!(variable, "FARHAUL_STREAMS=40: write auto, or a number from 1 to 32");
        let missing = told(&[("HOME", at_home), ("FARHAUL_CONFIG", "/nowhere/c.toml")]);
        assert!(missing.ends_with("not there: /nowhere/c.toml"), "{missing}");
        fs::write(home.path().join("c.toml"), "a = 1").expect("a file");
        let other = home.path().join("c.toml");
        let other = told(&[("FARHAUL_CONFIG", other.to_str().expect("a text"))]);
        assert!(other.contains("c.toml:1: there is no setting 'a'"), "{other}");
    }

    #[test]
    fn without_a_home_there_is_no_file() {
        let settings = Settings::load_in(&FlagLayer::default(), None, Surroundings::of(&[]));
        assert!(settings.is_ok_and(|settings| settings.mss.origin == Origin::Default));
    }
}
