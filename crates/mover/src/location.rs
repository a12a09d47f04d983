//! Where something is: here, or on a host that ssh reaches, as scp and rsync write it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A source or a target of `farhaul cp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this machine.
    Here(PathBuf),
    /// `[user@]host:path`.
    There(There),
    /// `-`: standard input or output.
    Standard,
}

/// A path on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct There {
    /// What ssh is called with: `user@host`, `host`, an alias of its configuration. IPv6 addresses
    /// have lost their brackets.
    pub host: String,
    /// As it was given; empty is the home directory.
    pub path: PathBuf,
}

/// Why a text is no location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// Nothing.
    #[error("an empty path; the current directory is .")]
    Empty,
    /// A colon with nothing before it.
    #[error("'{0}' has no host before the colon; write ./{0} for a file of that name")]
    NoHost(String),
    /// The host is not text, or ssh would take it for an option.
    #[error("'{0}' is no name of a host; write ./{0} for a file of that name")]
    BadHost(String),
    /// A URL of another kind.
    #[error("'{0}': of URLs only farhaul:// is known; write ./{0} for a file of that name")]
    Url(String),
}

impl Location {
    /// A colon before any slash parts host and path; `./a:b` is a file.
    ///
    /// # Errors
    ///
    /// See [`LocationError`]; each says how to write what may have been meant.
    pub fn parse(text: &OsStr) -> Result<Self, LocationError> {
        let bytes = text.as_bytes();
        let shown = || text.to_string_lossy().into_owned();
        if bytes.is_empty() {
            return Err(LocationError::Empty);
        }
        if bytes == b"-" {
            return Ok(Location::Standard);
        }
        let Some(colon) = host_end(bytes) else {
            return Ok(Location::Here(PathBuf::from(text)));
        };
        let (host, path) = (&bytes[..colon], &bytes[colon + 1..]);
        if path.starts_with(b"//") {
            return Err(LocationError::Url(shown()));
        }
        if host.is_empty() {
            return Err(LocationError::NoHost(shown()));
        }
        let host = std::str::from_utf8(host).map_err(|_| LocationError::BadHost(shown()))?;
        // Brackets are ours to part address and path; ssh wants none.
        let host = match host.rsplit_once('[') {
            Some((user, address)) => format!("{user}{}", address.trim_end_matches(']')),
            None => host.to_owned(),
        };
        // ssh would take it for an option, or its user for one.
        let odd = |part: &str| part.is_empty() || part.starts_with('-');
        let odd = host.split('@').any(odd) || host.chars().any(|c| c.is_control() || c == ' ');
        if odd {
            return Err(LocationError::BadHost(shown()));
        }
        Ok(Location::There(There { host, path: PathBuf::from(OsString::from_vec(path.to_vec())) }))
    }
}

/// Where the host ends: at the first colon, if no slash comes before it. An address in brackets has
/// colons of its own.
fn host_end(text: &[u8]) -> Option<usize> {
    let start = match text.iter().position(|byte| *byte == b'[') {
        Some(open) if !text[..open].iter().any(|byte| b"/:".contains(byte)) => {
            open + text[open..].iter().position(|byte| *byte == b']')?
        }
        _ => 0,
    };
    let rest = &text[start..];
    let stop = rest.iter().position(|byte| b"/:".contains(byte))?;
    (rest[stop] == b':').then_some(start + stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, LocationError> {
        Location::parse(OsStr::new(text))
    }

    fn there(host: &str, path: &str) -> Result<Location, LocationError> {
        Ok(Location::There(There { host: host.into(), path: path.into() }))
    }

    #[test]
    fn a_colon_before_any_slash_parts_host_and_path() {
        for (text, host, path) in [
            ("host:", "host", ""),
            ("host:a/b", "host", "a/b"),
            ("user@host:/a:b", "user@host", "/a:b"),
            ("[::1]:/tmp", "::1", "/tmp"),
            ("user@[fe80::1%eth0]:x", "user@fe80::1%eth0", "x"),
            ("host:[a]", "host", "[a]"),
        ] {
            assert_eq!(parse(text), there(host, path), "{text}");
        }
    }

    #[test]
    fn everything_else_is_here() {
        for text in ["a", "./a:b", "/a:b", "a/b:c", "dir/", "..", "[a]", "x/[a]:b", "[a/b"] {
            assert_eq!(parse(text), Ok(Location::Here(text.into())), "{text}");
        }
        assert_eq!(parse("-"), Ok(Location::Standard));
    }

    #[test]
    fn names_that_ssh_would_take_for_options_are_refused() {
        for text in ["-oProxyCommand=x:a", "-l@host:a", "user@-host:a", "a b:c", "@h:c", "u@:c"] {
            assert_eq!(parse(text), Err(LocationError::BadHost(text.into())), "{text}");
        }
        assert_eq!(parse(":a"), Err(LocationError::NoHost(":a".into())));
        assert_eq!(parse(""), Err(LocationError::Empty));
        assert_eq!(parse("https://x/y"), Err(LocationError::Url("https://x/y".into())));
    }

    #[test]
    fn names_that_are_no_text_are_paths() {
        let name = OsStr::from_bytes(b"\xff:a");
        assert!(matches!(Location::parse(name), Err(LocationError::BadHost(_))));
        let path = OsStr::from_bytes(b"h:\xff");
        let Ok(Location::There(there)) = Location::parse(path) else { panic!("no host") };
        assert_eq!(there.path.as_os_str().as_bytes(), b"\xff");
    }
}
