//! Network parameters of the kernel (sysctl), set in one namespace and nowhere else.

use std::error::Error;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::str::FromStr;

use super::Namespace;

/// Where the kernel shows its parameters.
const ROOT: &str = "/proc/sys";
/// The congestion control of TCP connections, and what there is to choose from.
const LAW: &str = "net.ipv4.tcp_congestion_control";
const LAWS_ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";
const LAWS_AVAILABLE: &str = "net.ipv4.tcp_available_congestion_control";
/// Kernels before 5.12 let a namespace write this list, which is the whole machine's.
const NEVER: &str = LAWS_ALLOWED;

/// A network parameter and its value, written as for `sysctl`: `net.ipv4.tcp_rmem=4096 65536 1048576`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    name: String,
    value: String,
}

/// Why a text is no [`Parameter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadParameter {
    /// There is no `=`.
    NoValue,
    /// The name does not begin with `net.`, so it is of the whole machine.
    NotOfTheNetwork,
    /// A part of the name is empty, or has a character that no name has.
    NoName,
}

/// Why a [`Parameter`] has not been set.
#[derive(Debug)]
pub enum ParameterError {
    /// The kernel has none of this name in a namespace.
    Missing,
    /// All namespaces share it: setting it would change the whole machine.
    Shared,
    /// A namespace can only read it.
    ReadOnly,
    /// A congestion control that namespaces may not have by default, with those that they may.
    LawNotAllowed(String),
    /// A congestion control that the kernel has not loaded, with those that it has.
    NoLaw(String),
    /// A value that the parameter cannot have.
    Value,
    /// Another reason of the kernel's.
    Io(io::Error),
}

impl Parameter {
    /// As for `sysctl`: `net.ipv4.tcp_rmem`.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> String {
        path(&self.name)
    }
}

impl FromStr for Parameter {
    type Err = BadParameter;

    fn from_str(text: &str) -> Result<Self, BadParameter> {
        let (name, value) = text.split_once('=').ok_or(BadParameter::NoValue)?;
        let (name, value) = (name.trim(), value.trim());
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-:@+".contains(c);
        // Dots separate, so no part can be `..`.
        if name.split('.').any(|part| part.is_empty() || !part.chars().all(plain)) {
            return Err(BadParameter::NoName);
        }
        if !name.starts_with("net.") {
            return Err(BadParameter::NotOfTheNetwork);
        }
        Ok(Parameter { name: name.to_owned(), value: value.to_owned() })
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl fmt::Display for BadParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadParameter::NoValue => "there is no value: give NAME=VALUE",
            BadParameter::NotOfTheNetwork => {
                "it would change the whole machine: give a parameter of the network, net.NAME=VALUE"
            }
            BadParameter::NoName => {
                "that is no name of a parameter: give words with dots between, as in net.ipv4.tcp_ecn=1"
            }
        })
    }
}

impl Error for BadParameter {}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterError::Missing => f.write_str(
                "a network namespace has no such parameter: see `sysctl -a --pattern ^net` for names; some are there \
                 only once a module is loaded, and some only for the whole machine",
            ),
            ParameterError::Shared => f.write_str(
                "all namespaces share it, and it would change the whole machine: set it with sysctl -w if you want that",
            ),
            ParameterError::ReadOnly => f.write_str(
                "a network namespace can only read it: what can be set of it, sysctl -w sets for the whole machine",
            ),
            ParameterError::LawNotAllowed(allowed) => write!(
                f,
                "the kernel allows namespaces only {allowed}: choose one of these, or add yours to {LAWS_ALLOWED} of the \
                 whole machine"
            ),
            ParameterError::NoLaw(available) => write!(
                f,
                "the kernel has no such congestion control: it has {available}; modprobe tcp_NAME loads others"
            ),
            ParameterError::Value => f.write_str("the kernel does not take this value"),
            ParameterError::Io(error) => error.fmt(f),
        }
    }
}

impl Error for ParameterError {}

impl Namespace {
    /// Sets a network parameter of this namespace. Never changes one of the whole machine.
    ///
    /// # Errors
    /// If there is no such parameter in a namespace, or the value is refused.
    pub fn set_parameter(&self, parameter: &Parameter) -> Result<(), ParameterError> {
        if parameter.name == NEVER {
            return Err(ParameterError::Shared);
        }
        let path = parameter.path();
        let outside = place(&path).ok();
        self.run(|| set(parameter, outside.as_ref())).map_err(ParameterError::Io)?
    }
}

fn path(name: &str) -> String {
    format!("{ROOT}/{}", name.replace('.', "/"))
}

/// The file, for its identity only: some can be written and not read.
fn place(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)
}

/// Whether two open files of `/proc/sys` are one. A parameter that each namespace has is another file in each
/// (proc_sys_compare() of the kernel's fs/proc/proc_sysctl.c), and both are open, so no number is used again.
fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Sets it in the calling thread's namespace. `outside`: the parameter of another namespace.
fn set(parameter: &Parameter, outside: Option<&File>) -> Result<(), ParameterError> {
    let inside = place(&parameter.path()).map_err(|error| reason(parameter, error))?;
    if let Some(outside) = outside
        && is_same(&inside, outside).map_err(ParameterError::Io)?
    {
        return Err(ParameterError::Shared);
    }
    let written = OpenOptions::new()
        .write(true)
        .open(parameter.path())
        .map_err(|error| reason(parameter, error))?
        // The line end makes an empty value something to write.
        .write_all(format!("{}\n", parameter.value).as_bytes());
    written.map_err(|error| match (parameter.name.as_str(), error.kind()) {
        (LAW, io::ErrorKind::PermissionDenied) => ParameterError::LawNotAllowed(laws(LAWS_ALLOWED)),
        (LAW, io::ErrorKind::NotFound) => ParameterError::NoLaw(laws(LAWS_AVAILABLE)),
        _ => reason(parameter, error),
    })
}

fn reason(parameter: &Parameter, error: io::Error) -> ParameterError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ParameterError::Missing,
        // A folder, as net.ipv4.
        io::ErrorKind::IsADirectory => ParameterError::Missing,
        io::ErrorKind::InvalidInput => ParameterError::Value,
        io::ErrorKind::PermissionDenied => match fs::metadata(parameter.path()) {
            Ok(file) if file.mode() & 0o222 == 0 => ParameterError::ReadOnly,
            _ => ParameterError::Io(error),
        },
        _ => ParameterError::Io(error),
    }
}

/// The congestion controls in that list.
fn laws(list: &str) -> String {
    match fs::read_to_string(path(list)) {
        Ok(text) => text.split_whitespace().collect::<Vec<_>>().join(", "),
        Err(_) => "others".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(text: &str) -> Parameter {
        text.parse().expect(text)
    }

    #[test]
    fn only_parameters_of_the_network_are_taken() {
        let taken = parameter(" net.ipv4.tcp_rmem = 4096 65536 1048576 ");
        assert_eq!(taken.to_string(), "net.ipv4.tcp_rmem=4096 65536 1048576");
        for (text, why) in [
            ("net.ipv4.tcp_rmem", BadParameter::NoValue),
            ("kernel.hostname=x", BadParameter::NotOfTheNetwork),
            ("vm.swappiness=1", BadParameter::NotOfTheNetwork),
            ("net=1", BadParameter::NotOfTheNetwork),
            ("netx.a=1", BadParameter::NotOfTheNetwork),
            ("net...kernel.hostname=x", BadParameter::NoName),
            ("net./../kernel/hostname=x", BadParameter::NoName),
            ("net/../kernel/hostname=x", BadParameter::NoName),
            ("net.ipv4.=x", BadParameter::NoName),
            (".net.ipv4=x", BadParameter::NoName),
            ("net.a\0b=x", BadParameter::NoName),
            ("=x", BadParameter::NoName),
        ] {
            assert_eq!(text.parse::<Parameter>(), Err(why), "{text}");
        }
    }

    /// What the whole machine has is the same file from each namespace, what a namespace has is not.
    #[test]
    fn parameters_of_the_whole_machine_are_known_from_inside() {
        let namespace = match Namespace::create() {
            Ok(namespace) => namespace,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        for (name, shared) in
            [("net.ipv4.tcp_rmem", false), ("kernel.hostname", true), ("vm.swappiness", true)]
        {
            let outside = place(&path(name)).expect(name);
            let inside = namespace.run(|| place(&path(name))).expect("a thread").expect(name);
            assert_eq!(is_same(&inside, &outside).expect(name), shared, "{name}");
        }
    }

    #[test]
    fn what_is_not_set_is_told_by_its_reason() {
        let namespace = match Namespace::create() {
            Ok(namespace) => namespace,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let why = |text: &str| namespace.set_parameter(&parameter(text)).expect_err(text);
        assert!(matches!(why("net.ipv4.no_such=1"), ParameterError::Missing));
        assert!(matches!(why("net.ipv4=1"), ParameterError::Missing));
        assert!(matches!(why("net.ipv4.tcp_rmem=many"), ParameterError::Value));
        assert!(matches!(why(&format!("{LAWS_AVAILABLE}=x")), ParameterError::ReadOnly));
        let before = laws(LAWS_ALLOWED);
        assert!(matches!(why(&format!("{LAWS_ALLOWED}=reno")), ParameterError::Shared));
        assert_eq!(laws(LAWS_ALLOWED), before);
        match why(&format!("{LAW}=nope")) {
            ParameterError::NoLaw(available) => assert_eq!(available, laws(LAWS_AVAILABLE)),
            other => panic!("{other:?}"),
        }
        let available = laws(LAWS_AVAILABLE);
        for law in available.split(", ") {
            let set = namespace.set_parameter(&parameter(&format!("{LAW}={law}")));
            match before.split(", ").any(|allowed| allowed == law) {
                true => set.expect(law),
                false => match set.expect_err(law) {
                    ParameterError::LawNotAllowed(allowed) => assert_eq!(allowed, before),
                    other => panic!("{law}: {other:?}"),
                },
            }
        }
    }

    #[test]
    fn a_parameter_is_set_in_one_namespace() {
        let namespace = match Namespace::create() {
            Ok(namespace) => namespace,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let set = parameter("net.ipv4.tcp_rmem=4096 65537 1048576");
        namespace.set_parameter(&set).expect("it is set");
        let inside = namespace.run(|| fs::read_to_string(set.path())).expect("a thread");
        let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(inside.expect("its value")), set.value);
        assert_ne!(words(fs::read_to_string(set.path()).expect("its value")), set.value);
    }
}
