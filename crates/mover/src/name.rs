//! One path component, checked.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// The longest component in bytes: `NAME_MAX` of Linux.
pub const MAX_NAME: usize = 255;

/// One component of a path: the only form in which a peer can name anything.
///
/// It is never empty, `.` or `..`, holds no `/` and no NUL, and has at most [`MAX_NAME`] bytes. It
/// need not be UTF-8. Whoever has a `Name` and an open directory can therefore not leave that
/// directory through the name itself; symbolic links are a matter for the open call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks `bytes`.
    pub fn new(bytes: &'a [u8]) -> Result<Self, BadName> {
        match bytes {
            b"" => Err(BadName::Empty),
            b"." | b".." => Err(BadName::Dots),
            _ if bytes.len() > MAX_NAME => Err(BadName::TooLong),
            _ if bytes.contains(&b'/') => Err(BadName::Separator),
            _ if bytes.contains(&0) => Err(BadName::Nul),
            _ => Ok(Name(bytes)),
        }
    }

    /// The name's bytes, 1 to [`MAX_NAME`] of them.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The name as the operating system spells it.
    pub fn os(self) -> &'a OsStr {
        OsStr::from_bytes(self.0)
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.os().fmt(f)
    }
}

/// Why some bytes are not a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadName {
    /// It is `.` or `..`.
    #[error("a name that is . or ..")]
    Dots,
    /// It has no bytes.
    #[error("an empty name")]
    Empty,
    /// It holds a NUL byte.
    #[error("a name with a NUL byte")]
    Nul,
    /// It holds a `/`.
    #[error("a name with a slash")]
    Separator,
    /// It has more than [`MAX_NAME`] bytes.
    #[error("a name of more than {MAX_NAME} bytes")]
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_and_odd_names_pass() {
        for name in ["a", "...", "..a", ".hidden", "été", "a b\n", "\\", "C:"] {
            assert_eq!(Name::new(name.as_bytes()).map(Name::bytes), Ok(name.as_bytes()));
        }
        assert!(Name::new(&[0xff, 0xfe]).is_ok(), "names need not be UTF-8");
        assert!(Name::new(&[b'x'; MAX_NAME]).is_ok());
    }

    #[test]
    fn every_way_out_is_refused() {
        assert_eq!(Name::new(b""), Err(BadName::Empty));
        assert_eq!(Name::new(b"."), Err(BadName::Dots));
        assert_eq!(Name::new(b".."), Err(BadName::Dots));
        assert_eq!(Name::new(b"/"), Err(BadName::Separator));
        assert_eq!(Name::new(b"/etc"), Err(BadName::Separator));
        assert_eq!(Name::new(b"a/../b"), Err(BadName::Separator));
        assert_eq!(Name::new(b"a\0b"), Err(BadName::Nul));
        assert_eq!(Name::new(&[b'x'; MAX_NAME + 1]), Err(BadName::TooLong));
    }
}
