//! Programs that take part in a race, described by data: command lines of both ends, and where bytes and
//! time are found.

use serde::Deserialize;

/// A program with its command lines. Each is a text for `sh` with placeholders in braces ([`PLACEHOLDERS`]), which
/// are replaced by one word of the shell each.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// What it is called: small letters, digits, `-` and `_`.
    pub name: String,
    /// What it is, in a few words.
    #[serde(default)]
    pub about: String,
    /// Programs without which it cannot take part.
    #[serde(default)]
    pub needs: Vec<String>,
    /// How to get them.
    #[serde(default)]
    pub install: String,
    /// What runs at the near end, where the bytes come from.
    pub near: String,
    /// What runs at the far end; may be empty with `ssh`.
    #[serde(default)]
    pub far: String,
    /// What stands for `{with_option}` if the system is named with an option, `NAME:OPTION`.
    #[serde(default)]
    pub with_option: String,
    /// Whether a private sshd runs at the far end.
    #[serde(default)]
    pub ssh: bool,
    /// Parameters of the kernel in both namespaces, NAME=VALUE.
    #[serde(default)]
    pub sysctl: Vec<String>,
    /// Bytes of payload in a full packet of 1500 bytes.
    #[serde(default = "tcp_payload")]
    pub payload: f64,
    /// How bytes and seconds are found.
    pub measured: Measured,
}

/// How bytes and seconds of a program are found.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
pub enum Measured {
    /// By what it prints: a JSON object on the standard output of an end, all of it or its last line. Each text names
    /// a value: `far/bytes` is the member `bytes` of what the far end prints.
    Reports {
        /// Payload that has arrived.
        bytes: String,
        /// From the opened connection to the end of that.
        seconds: String,
        /// An array of objects with the members `end`, seconds from the opened connection, and `bits_per_second`.
        #[serde(default)]
        series: Option<String>,
        /// Packets sent again.
        #[serde(default)]
        retransmitted: Option<String>,
    },
    /// By what its far end writes to its standard output, which is counted from the first byte on. The near end has
    /// bytes without end at its standard input, for as long as a run lasts.
    Output,
    /// It copies the file `{source}` into the folder `{target}`: by what arrives there, from the start of the command
    /// to its end.
    Folder,
}

/// An end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where the bytes come from.
    Near,
    /// Where they go.
    Far,
}

/// What may stand in braces.
pub const PLACEHOLDERS: [&str; 13] = [
    "far",        // the far end's address
    "port",       // where it is to listen
    "seconds",    // how long to send
    "rate",       // of the line, bits a second
    "rtt_ms",     // without a queue
    "buffer",     // bytes that the path and its queue hold, with room
    "source",     // the file to copy
    "target",     // the folder to copy it into
    "user",       // for ssh
    "ssh",        // a command that reaches the far end
    "ssh_config", // its configuration
    "ssh_key",    // its key
    "farhaul",    // this program
];
const OPTION: &str = "option";
const WITH_OPTION: &str = "with_option";

/// Why a description is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// Not TOML, or not these members.
    #[error("{0}")]
    Form(String),
    /// A name that is no name.
    #[error("'{0}' is no name of a system: use small letters, digits, - and _")]
    Name(String),
    /// A word in braces that stands for nothing.
    #[error("{{{0}}} stands for nothing; there are {{{list}}}, {{option}} and {{with_option}}", list = PLACEHOLDERS.join("}, {"))]
    Placeholder(String),
    /// Nothing runs at the far end.
    #[error("nothing runs at the far end: give 'far', or 'ssh = true'")]
    NoFarEnd,
    /// Not `near/…` or `far/…`.
    #[error("'{0}' names no value that an end prints: give near/MEMBER or far/MEMBER")]
    Value(String),
}

/// TCP's with time stamps.
fn tcp_payload() -> f64 {
    1_448.0
}

impl Program {
    /// Reads a description in TOML.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, ProgramError> {
        let program: Program =
            toml::from_str(text).map_err(|error| ProgramError::Form(error.message().to_owned()))?;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if program.name.is_empty() || !program.name.chars().all(plain) {
            return Err(ProgramError::Name(program.name));
        }
        if program.far.is_empty() && !program.ssh {
            return Err(ProgramError::NoFarEnd);
        }
        for text in [&program.near, &program.far, &program.with_option] {
            for name in placeholders(text) {
                let known = PLACEHOLDERS.iter().chain(&[OPTION, WITH_OPTION]).any(|n| *n == name);
                if !known {
                    return Err(ProgramError::Placeholder(name.to_owned()));
                }
            }
        }
        if let Measured::Reports { bytes, seconds, series, retransmitted } = &program.measured {
            let others = series.iter().chain(retransmitted);
            for value in [bytes, seconds].into_iter().chain(others) {
                pointer(value).ok_or_else(|| ProgramError::Value(value.clone()))?;
            }
        }
        Ok(program)
    }

    /// Whether it is a command that copies a file: its start counts, and ssh's.
    pub fn is_copy(&self) -> bool {
        self.measured == Measured::Folder
    }

    /// Whether it can only be run with an option: `NAME:OPTION`.
    pub fn asks_for_option(&self) -> bool {
        [&self.near, &self.far].iter().any(|text| placeholders(text).any(|name| name == OPTION))
    }

    /// Whether an option has a meaning.
    pub fn takes_option(&self) -> bool {
        self.asks_for_option() || !self.with_option.is_empty()
    }

    /// The command line of an end. `value` has one word of the shell for each of [`PLACEHOLDERS`]; `option` is
    /// such a word, too.
    pub fn command(
        &self,
        end: End,
        option: Option<&str>,
        value: impl Fn(&str) -> Option<String>,
    ) -> String {
        let with_option = option.map(|option| self.with_option.replace("{option}", option));
        let text = match end {
            End::Near => &self.near,
            End::Far => &self.far,
        };
        let mut command = text.replace("{with_option}", with_option.as_deref().unwrap_or(""));
        command = command.replace("{option}", option.unwrap_or(""));
        for name in PLACEHOLDERS {
            let place = format!("{{{name}}}");
            if command.contains(&place) {
                command = command.replace(&place, &value(name).unwrap_or_default());
            }
        }
        command
    }
}

/// The words in braces, of small letters and `_` only: other braces are the shell's.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let plain =
        |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)).filter(plain)
}

/// Which end prints that value, and where it is in it, a JSON pointer (RFC 6901).
pub fn pointer(value: &str) -> Option<(End, &str)> {
    let split = value.find('/')?;
    let end = match &value[..split] {
        "near" => End::Near,
        "far" => End::Far,
        _ => return None,
    };
    Some((end, &value[split..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        name = "other"
        near = "other {with_option} {far}:{port} | awk '{print $1}'"
        far = "other -l {port}"
        with_option = "-c {option}"
        measured = { by = "output" }
    "#;

    #[test]
    fn a_description_becomes_command_lines() {
        let program = Program::read(TEXT).unwrap();
        let value = |name: &str| match name {
            "far" => Some("10.0.0.2".to_owned()),
            "port" => Some("9".into()),
            _ => None,
        };
        let near = program.command(End::Near, Some("fast"), value);
        assert_eq!(near, "other -c fast 10.0.0.2:9 | awk '{print $1}'");
        assert_eq!(program.command(End::Far, None, value), "other -l 9");
        assert!(!program.is_copy() && program.takes_option() && !program.asks_for_option());
    }

    #[test]
    fn what_is_no_description_is_told() {
        let with = |from: &str, to: &str| Program::read(&TEXT.replace(from, to)).unwrap_err();
        assert!(matches!(with("name", "nome"), ProgramError::Form(_)));
        assert!(matches!(with("by = \"output\"", "by = \"luck\""), ProgramError::Form(_)));
        assert_eq!(with("\"other\"", "\"Other one\""), ProgramError::Name("Other one".into()));
        assert_eq!(with("{port} |", "{prot} |"), ProgramError::Placeholder("prot".into()));
        assert_eq!(with("far = \"other -l {port}\"", ""), ProgramError::NoFarEnd);
        let reports = "by = \"reports\", bytes = \"bytes\", seconds = \"far/s\"";
        assert_eq!(with("by = \"output\"", reports), ProgramError::Value("bytes".into()));
    }

    #[test]
    fn a_value_is_of_an_end() {
        assert_eq!(pointer("near/peer/bytes"), Some((End::Near, "/peer/bytes")));
        assert_eq!(pointer("middle/bytes"), None);
    }
}
