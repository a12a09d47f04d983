//! What takes part in a race.

use core::fmt;
use core::str::FromStr;
use std::fs;
use std::sync::Arc;

use farhaul_control::{Spec, SpecError};

use super::program::{Program, ProgramError};

/// What runs over the paths of a race, as it is named: `bbr`, `udt:noisy=true`, `tcp:cubic`, `libudt`, `cp`,
/// `quic:bbr`, `file:my-system.toml`.
#[derive(Clone, Debug)]
pub struct System {
    text: String,
    kind: Kind,
    program: Arc<Program>,
    option: Option<String>,
}

/// What a system is for the simulator.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// farhaul's transport with one of its laws.
    Farhaul(Spec),
    /// The kernel's TCP with a congestion control of that name. In the simulator, its TCP.
    Tcp(String),
    /// A program, which the simulator does not have.
    Program,
}

/// Why a text is no system.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// No such law, or no such parameter.
    #[error("{0}; and other systems are tcp:NAME, file:FILE, {names}", names = names().collect::<Vec<_>>().join(", "))]
    Law(#[from] SpecError),
    /// Not the name of a congestion control.
    #[error("'tcp:{0}' names no congestion control of TCP: give its name, as in tcp:cubic")]
    Tcp(String),
    /// An option that is no word, or of a system that takes none.
    #[error("'{0}' takes no option '{1}'")]
    Option(String, String),
    /// None where one is asked for.
    #[error("'{0}' asks for an option: give {0}:OPTION")]
    NoOption(String),
    /// A file that cannot be read.
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    /// A file that describes no system.
    #[error("{0} describes no system: {1}")]
    Description(String, ProgramError),
}

/// farhaul's own copy, whose option is one of its laws.
const OWN_COPY: &str = "cp";
const FARHAUL: &str = include_str!("systems/farhaul.toml");
const TCP: &str = include_str!("systems/tcp.toml");
/// Those that are named by their names alone.
const PROGRAMS: [&str; 7] = [
    include_str!("systems/libudt.toml"),
    include_str!("systems/srt.toml"),
    include_str!("systems/quic.toml"),
    include_str!("systems/cp.toml"),
    include_str!("systems/scp.toml"),
    include_str!("systems/rsync.toml"),
    include_str!("systems/rclone.toml"),
];

fn own(text: &str) -> Program {
    Program::read(text).expect("a description of our own")
}

/// The names of the systems that are neither laws nor the kernel's TCP.
pub fn names() -> impl Iterator<Item = String> {
    PROGRAMS.iter().map(|text| own(text).name)
}

impl System {
    /// What the simulator has for it.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// How it is run.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What it is run with.
    pub fn option(&self) -> Option<&str> {
        self.option.as_deref()
    }

    /// Whether it is a command that copies a file, start and all.
    pub fn is_copy(&self) -> bool {
        self.program.is_copy()
    }

    /// Whether it is farhaul's.
    pub fn is_own(&self) -> bool {
        matches!(self.kind, Kind::Farhaul(_)) || self.program.name == OWN_COPY
    }

    fn program_named(
        text: &str,
        program: Program,
        option: Option<&str>,
    ) -> Result<Self, SystemError> {
        let name = || program.name.clone();
        match option {
            None if program.asks_for_option() => return Err(SystemError::NoOption(name())),
            Some(option) if !program.takes_option() || !is_word(option) => {
                return Err(SystemError::Option(name(), option.to_owned()));
            }
            _ => {}
        }
        let option = option.map(str::to_owned);
        Ok(System { text: text.into(), kind: Kind::Program, program: Arc::new(program), option })
    }
}

/// Nothing that a table or a shell takes for something else.
fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-:=,.".contains(c);
    !text.is_empty() && text.chars().all(plain)
}

/// Reads the file if it is `file:PATH`.
impl FromStr for System {
    type Err = SystemError;

    fn from_str(text: &str) -> Result<Self, SystemError> {
        if let Some(path) = text.strip_prefix("file:") {
            let content =
                fs::read_to_string(path).map_err(|error| SystemError::File(path.into(), error))?;
            let program = Program::read(&content)
                .map_err(|error| SystemError::Description(path.into(), error))?;
            return System::program_named(text, program, None);
        }
        let (name, option) = match text.split_once(':') {
            Some((name, option)) => (name, Some(option)),
            None => (text, None),
        };
        if let Some(program) = PROGRAMS.iter().map(|text| own(text)).find(|p| p.name == name) {
            if let (OWN_COPY, Some(law)) = (name, option) {
                law.parse::<Spec>()?;
            }
            return System::program_named(text, program, option);
        }
        if name == "tcp" {
            let option = option.unwrap_or("");
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if option.is_empty() || !option.chars().all(plain) {
                return Err(SystemError::Tcp(option.to_owned()));
            }
            let system = System::program_named(text, own(TCP), Some(option))?;
            return Ok(System { kind: Kind::Tcp(option.to_owned()), ..system });
        }
        let law: Spec = text.parse()?;
        let text = law.to_string();
        let system = System::program_named(&text, own(FARHAUL), Some(&text))?;
        Ok(System { kind: Kind::Farhaul(law), ..system })
    }
}

impl PartialEq for System {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_read_as_it_is_written() {
        for text in ["bbr", "udt:noisy=true", "tcp:bbr", "tcp:cubic", "quic", "quic:bbr", "cp:haul"]
        {
            let system: System = text.parse().expect(text);
            assert_eq!(system.to_string().parse::<System>().expect("the same"), system);
        }
        for text in ["", "tcp:", "tcp", "tcp:a b", "tcp:$(x)", "nosuch", "bbr:nosuch=1", "scp:x"] {
            assert!(text.parse::<System>().is_err(), "{text}");
        }
        for text in
            ["quic:", "quic:a b", "cp:$(x)", "cp:nosuch", "cp:bbr:nosuch=1", "file:/no/such.toml"]
        {
            assert!(text.parse::<System>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_system_of_our_own_is_described() {
        for name in names() {
            let system: System = name.parse().expect("a system");
            assert_eq!(system.program().name, name);
            assert_eq!(system.kind(), &Kind::Program);
        }
        let copies: Vec<String> =
            names().filter(|name| name.parse::<System>().is_ok_and(|s| s.is_copy())).collect();
        assert_eq!(copies, ["cp", "scp", "rsync", "rclone"]);
    }

    #[test]
    fn a_file_describes_a_system() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine.toml");
        fs::write(&path, include_str!("systems/libudt.toml")).expect("a file");
        let system: System = format!("file:{}", path.display()).parse().expect("a system");
        assert_eq!(system.program().needs, ["udt_perf"]);
        fs::write(&path, "name = 1").expect("a file");
        let wrong = format!("file:{}", path.display()).parse::<System>();
        assert!(matches!(wrong, Err(SystemError::Description(..))));
    }
}
