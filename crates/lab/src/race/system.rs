//! What takes part in a race.

use core::fmt;
use core::str::FromStr;

use farhaul_control::{Spec, SpecError};

/// A transport with a congestion control.
#[derive(Clone, Debug, PartialEq)]
pub enum System {
    /// farhaul's transport with one of its laws: `bbr`, `haul`, `udt:noisy`.
    Farhaul(Spec),
    /// The kernel's TCP with a congestion control of that name: `tcp:bbr`. In the simulator, its TCP.
    Tcp(String),
}

/// Why a text is no system.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// No such law, or no such parameter.
    #[error(transparent)]
    Law(#[from] SpecError),
    /// Not the name of a congestion control.
    #[error("'tcp:{0}' names no congestion control of TCP: give its name, as in tcp:cubic")]
    Tcp(String),
}

impl FromStr for System {
    type Err = SystemError;

    fn from_str(text: &str) -> Result<Self, SystemError> {
        let Some(name) = text.strip_prefix("tcp:") else {
            return Ok(System::Farhaul(text.parse()?));
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(SystemError::Tcp(name.to_owned()));
        }
        Ok(System::Tcp(name.to_owned()))
    }
}

/// The form that [`FromStr`] reads.
impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            System::Farhaul(law) => write!(f, "{law}"),
            System::Tcp(name) => write!(f, "tcp:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_read_as_it_is_written() {
        for text in ["bbr", "udt:noisy=true", "tcp:bbr", "tcp:cubic"] {
            let system: System = text.parse().expect(text);
            assert_eq!(system.to_string().parse::<System>().expect("the same"), system);
        }
        for text in ["", "tcp:", "tcp:a b", "tcp:$(x)", "nosuch", "bbr:nosuch=1"] {
            assert!(text.parse::<System>().is_err(), "{text}");
        }
    }
}
