//! Where something is: here, or on a host that ssh reaches, as scp and rsync write it, or at a server.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A source or a target of `farhaul cp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this machine.
    Here(PathBuf),
    /// `[user@]host:path`.
    There(There),
    /// `farhaul://host[:port]/export/path`.
    Served(Served),
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

/// The port of a server that is named without one.
pub const DEFAULT_PORT: u16 = 7300;
/// What URLs of servers begin with.
const SCHEME: &[u8] = b"farhaul://";
/// No name of an export is longer, bytes.
const LONGEST_EXPORT: usize = 64;

/// A path in an export of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// A name or an address; IPv6 addresses have lost their brackets.
    pub host: String,
    /// Where it listens.
    pub port: u16,
    /// The export.
    pub export: String,
    /// Relative to the export; empty is all of it.
    pub path: PathBuf,
}

impl Served {
    /// `host:port`, as servers are known by.
    pub fn address(&self) -> String {
        address(&self.host, self.port)
    }
}

/// `host:port`, with brackets where the host has colons.
pub fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
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
    /// A URL of a server with something wrong in it.
    #[error("'{url}': {why}; write farhaul://HOST[:PORT]/EXPORT[/PATH]")]
    Served {
        /// As it was given.
        url: String,
        /// What is wrong.
        why: BadServed,
    },
}

/// What is wrong with the URL of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadServed {
    /// There is none, or it is not text.
    Host,
    /// It is no number from 1 to 65535.
    Port,
    /// There is none, or it cannot be one.
    Export,
    /// A percent sign without two hexadecimal digits.
    Percent,
    /// A byte that no path has, or a way up.
    Path,
    /// A user, a query or a fragment.
    Extra,
}

impl fmt::Display for BadServed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadServed::Host => "it names no host (an IPv6 address stands in brackets)",
            BadServed::Port => "its port is no number from 1 to 65535",
            BadServed::Export => "it names no export of the server",
            BadServed::Percent => "behind a % stand two hexadecimal digits; % itself is %25",
            BadServed::Path => "its path has '..' or a zero byte in it",
            BadServed::Extra => {
                "a server is known by its key: a URL has neither user nor ?query nor \
                                 #fragment (? and # in names are %3F and %23)"
            }
        })
    }
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
        if let Some(rest) = served(bytes) {
            let read = read_served(rest);
            return read
                .map(Location::Served)
                .map_err(|why| LocationError::Served { url: shown(), why });
        }
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

/// What stands behind the scheme, whatever its case.
fn served(url: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = url.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(rest)
}

fn read_served(rest: &[u8]) -> Result<Served, BadServed> {
    let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    if rest.iter().any(|byte| b"?#".contains(byte)) || authority.contains(&b'@') {
        return Err(BadServed::Extra);
    }
    let authority = std::str::from_utf8(authority).map_err(|_| BadServed::Host)?;
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']').ok_or(BadServed::Host)?;
            // A scope may follow the address.
            let address = host.split('%').next().unwrap_or(host);
            address.parse::<std::net::Ipv6Addr>().map_err(|_| BadServed::Host)?;
            let port = match rest {
                "" => None,
                rest => Some(rest.strip_prefix(':').ok_or(BadServed::Host)?),
            };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(BadServed::Host),
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let odd = |c: char| c.is_control() || c.is_whitespace();
    if host.is_empty() || host.contains(odd) {
        return Err(BadServed::Host);
    }
    let digits = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => {
            let port = Some(port).filter(digits).and_then(|port| port.parse().ok());
            port.filter(|port| *port != 0).ok_or(BadServed::Port)?
        }
    };
    let path = decoded(path.strip_prefix(b"/").unwrap_or(path))?;
    let (export, path) = match path.iter().position(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&path[..], &[][..]),
    };
    // What else it may be the server knows.
    let fits = |export: &&str| !export.is_empty() && export.len() <= LONGEST_EXPORT;
    let export = std::str::from_utf8(export).ok().filter(fits).ok_or(BadServed::Export)?;
    if matches!(export, "." | "..") || export.contains(char::is_control) {
        return Err(BadServed::Export);
    }
    if path.contains(&0) || path.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return Err(BadServed::Path);
    }
    // Many slashes are one.
    let extra = path.iter().take_while(|byte| **byte == b'/').count();
    let path = PathBuf::from(OsString::from_vec(path[extra..].to_vec()));
    Ok(Served { host: host.to_owned(), port, export: export.to_owned(), path })
}

/// With what stands as `%` and two digits as the bytes that are meant.
fn decoded(path: &[u8]) -> Result<Vec<u8>, BadServed> {
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let mut digit = || {
            let digit = bytes.next().and_then(|byte| char::from(*byte).to_digit(16));
            digit.map(|digit| digit as u8).ok_or(BadServed::Percent)
        };
        out.push(digit()? << 4 | digit()?);
    }
    Ok(out)
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

    fn at(host: &str, port: u16, export: &str, path: &str) -> Result<Location, LocationError> {
        let (host, export, path) = (host.into(), export.into(), path.into());
        Ok(Location::Served(Served { host, port, export, path }))
    }

    #[test]
    fn servers_have_urls() {
        for (text, host, port, export, path) in [
            ("farhaul://h/e", "h", 7300, "e", ""),
            ("farhaul://h/e/", "h", 7300, "e", ""),
            ("farhaul://h:1/e/a/b", "h", 1, "e", "a/b"),
            ("FARHAUL://h:65535/e/a/", "h", 65535, "e", "a/"),
            ("farhaul://[::1]/e/a", "::1", 7300, "e", "a"),
            ("farhaul://[fe80::1%eth0]:7/e", "fe80::1%eth0", 7, "e", ""),
            ("farhaul://192.0.2.1:80/e/a:b@c", "192.0.2.1", 80, "e", "a:b@c"),
            ("farhaul://h/e/a%20b%2fc%3F", "h", 7300, "e", "a b/c?"),
            ("farhaul://h/e///etc/passwd", "h", 7300, "e", "etc/passwd"),
        ] {
            assert_eq!(parse(text), at(host, port, export, path), "{text}");
        }
        let Ok(Location::Served(served)) = parse("farhaul://[::1]:9/e/%ff") else { panic!("none") };
        assert_eq!(served.path.as_os_str().as_bytes(), b"\xff");
        assert_eq!(served.address(), "[::1]:9");
        assert_eq!(address("h", 1), "h:1");
    }

    #[test]
    fn what_is_wrong_with_a_url_is_told() {
        use BadServed::{Export, Extra, Host, Path, Percent, Port};
        for (text, why) in [
            ("farhaul://", Host),
            ("farhaul:///e", Host),
            ("farhaul://:1/e", Host),
            ("farhaul://::1/e", Host),
            ("farhaul://[::1/e", Host),
            ("farhaul://[::1]x/e", Host),
            ("farhaul://[h]/e", Host),
            ("farhaul://a b/e", Host),
            ("farhaul://h:/e", Port),
            ("farhaul://h:0/e", Port),
            ("farhaul://h:65536/e", Port),
            ("farhaul://h:+1/e", Port),
            ("farhaul://h", Export),
            ("farhaul://h/", Export),
            ("farhaul://h//a", Export),
            ("farhaul://h/../a", Export),
            ("farhaul://h/e/%", Percent),
            ("farhaul://h/e/%2", Percent),
            ("farhaul://h/e/%2x", Percent),
            ("farhaul://h/e/..", Path),
            ("farhaul://h/e/a/%2e%2e/b", Path),
            ("farhaul://h/e/%00", Path),
            ("farhaul://u@h/e", Extra),
            ("farhaul://h/e?x", Extra),
            ("farhaul://h/e#x", Extra),
        ] {
            assert_eq!(parse(text), Err(LocationError::Served { url: text.into(), why }), "{text}");
        }
        // It is a name of a file, or a host of ssh, without all of the scheme.
        assert!(matches!(parse("./farhaul://h"), Ok(Location::Here(_))));
        assert!(matches!(parse("farhaul:x"), Ok(Location::There(_))));
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
