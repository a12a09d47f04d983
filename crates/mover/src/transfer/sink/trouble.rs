//! Which errors end a transfer, and what people are told.

use std::io;

use rustix::io::Errno;

/// Whether what failed for one entry will fail for the others too, so that going on would only waste
/// the network's time.
pub(super) fn concerns_all(error: &io::Error) -> bool {
    let fatal = [
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::IO,
        Errno::ROFS,
        Errno::STALE,
        Errno::NODEV,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
    ];
    Errno::from_io_error(error).is_some_and(|errno| fatal.contains(&errno))
}

/// Such an error with what to do.
pub(super) fn with_advice(error: io::Error) -> io::Error {
    let advice = match Errno::from_io_error(&error) {
        Some(Errno::NOSPC) => "make room",
        Some(Errno::DQUOT) => "make room or raise the quota",
        Some(Errno::IO) => "look after the medium",
        Some(Errno::ROFS) => {
            "if an error made it so (the kernel's log tells), check it; mount it for writing"
        }
        Some(Errno::STALE | Errno::NODEV) => "mount it again",
        Some(Errno::MFILE | Errno::NFILE) => "allow more open files",
        Some(Errno::NOMEM) => "free memory",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {advice}, then the same command goes on"))
}

/// What an error means for people, where the system's own text misleads.
pub(super) fn plain(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::ISDIR) => other(error.kind(), "a directory of this name is in the way"),
        Some(Errno::NOTDIR) => other(error.kind(), "what is there is no directory"),
        Some(Errno::LOOP) => {
            other(error.kind(), "a symbolic link is in the way, which is not followed")
        }
        _ => error,
    }
}

/// The same error once more.
pub(super) fn same(error: &io::Error) -> io::Error {
    match Errno::from_io_error(error) {
        Some(errno) => errno.into(),
        None => other(error.kind(), &error.to_string()),
    }
}

pub(super) fn other(kind: io::ErrorKind, text: &str) -> io::Error {
    io::Error::new(kind, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_ends_it_and_says_what_to_do() {
        let error = io::Error::from(Errno::NOSPC);
        assert!(concerns_all(&error));
        let text = with_advice(error).to_string();
        assert!(text.contains("No space") && text.contains("make room"), "{text}");
        assert!(!concerns_all(&Errno::ACCESS.into()) && !concerns_all(&io::Error::other("x")));
    }
}
