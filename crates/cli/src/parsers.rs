//! The readers of files that people write, for the fuzzer: a text is right, or it is told why not.

use std::path::Path;

use crate::exit::Usage;
use crate::keys::{allow_list, known_servers};
use crate::{config, serve};

/// Which file a text is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// That of `farhaul serve --config`; the list of keys that it names is empty.
    Serve,
    /// The user's settings.
    Settings,
    /// The keys that may connect.
    AllowedKeys,
    /// The keys of servers.
    KnownServers,
}

/// Reads `text` as this file.
///
/// # Errors
/// A line for each thing that is wrong.
pub fn read(file: File, text: &str) -> Result<(), String> {
    let path = Path::new("/etc/farhaul/file");
    let read = match file {
        File::Serve => serve::config::ServeConfig::parse(path, text, |_| Ok(Vec::new())).map(drop),
        File::Settings => config::check(path, text),
        File::AllowedKeys => allow_list::parse(path, text).map(drop),
        File::KnownServers => known_servers::parse(path, text).map(drop),
    };
    read.map_err(|Usage(why)| why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name with line ends in it does not make two lines of one problem.
    #[test]
    fn each_problem_is_one_line() {
        for text in ["[\"a\\nb\"]\n", "\"a\\r\\nb\" = 1\n", "[export.\"a\\nb\"]\nx = 1\n"] {
            for file in [File::Serve, File::Settings] {
                let told = read(file, text).expect_err(text);
                assert!(told.lines().all(|line| line.starts_with("/etc/farhaul/file:")), "{told}");
            }
        }
    }

    #[test]
    fn each_file_is_read_as_itself() {
        let key = farhaul_secure::Identity::generate().expect("a key").public_key();
        let export = "[export.x]\npath = \"/x\"\naccess = \"read\"\nclients = \"*\"\n";
        let texts = [
            (File::Serve, format!("identity = \"i\"\n{export}")),
            (File::Settings, "rate = \"1G\"\n".into()),
            (File::AllowedKeys, format!("{key} alice\n")),
            (File::KnownServers, format!("host:1 {key}\n")),
        ];
        for (file, _) in &texts {
            for (other, text) in &texts {
                assert_eq!(read(*file, text).is_ok(), file == other, "{file:?} {text}");
            }
        }
    }
}
