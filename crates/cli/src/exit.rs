//! Exit codes.
//!
//! 0 done; 1 the operation failed, now at least; 2 bad usage or bad input; 3 the peer refused or could
//! not be authenticated; 4 verification failed; 5 some files failed, while the rest is done and those
//! that failed are listed; 130 interrupted.

use std::fmt;
use std::io;
use std::path::Path;

use farhaul::ConnectError;
use farhaul_mover::transfer::TransferError;
use farhaul_mover::{ReceiveError, SendError};

/// Bad usage that the argument parser cannot see.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A failure whose exit code is known where it happens.
#[derive(Debug)]
pub struct Failed {
    pub code: u8,
    pub message: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failed {}

/// The exit code of a command that was run, which has said itself what there was to say.
#[derive(Debug)]
pub struct Passed(pub u8);

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the command has ended with exit code {}", self.0)
    }
}

impl std::error::Error for Passed {}

/// What the codes mean, for manual pages.
pub const CODES: &[(u8, &str)] = &[
    (0, "Done."),
    (1, "It failed; a server that is at a limit may do it later."),
    (2, "Bad usage or bad input: nothing was done."),
    (3, "The peer refused, or could not be authenticated."),
    (4, "Verification failed."),
    (5, "Some files failed and are listed; the rest is done."),
    (INTERRUPTED, "Interrupted."),
];

/// The exit code of what the user has interrupted.
pub const INTERRUPTED: u8 = 130;

/// What the user has interrupted has failed because of that.
pub fn interrupted() -> Failed {
    Failed { code: INTERRUPTED, message: "interrupted".into() }
}

/// The exit code for `error`.
pub fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(known).unwrap_or(1)
}

/// Why a process of ours has failed, from what it has written to its standard error: the last line, without the
/// name that farhaul puts before it.
pub fn last_line(errors: &str) -> &str {
    let last = errors.trim_end().lines().last().unwrap_or("it ended without a word");
    last.strip_prefix("farhaul: ").unwrap_or(last)
}

/// The error and its causes on one line, each said once: some name their cause themselves.
pub fn describe(error: &anyhow::Error) -> String {
    let line = error.chain().fold(String::new(), |mut line, cause| {
        let text = cause.to_string();
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        line
    });
    farhaul_mover::without_numbers(&line)
}

/// A text that names may be part of, so that they do not steer the terminal. Some texts have several
/// lines.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        // What is no control character may still turn the order of text.
        let printed = farhaul_mover::printable_path(Path::new(c.encode_utf8(&mut [0; 4])));
        match c {
            '\n' => escaped.push(c),
            _ if printed.starts_with(c) => escaped.push(c),
            _ => escaped.extend(c.escape_default()),
        }
    }
    escaped
}

fn known(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if error.is::<Usage>() {
        return Some(2);
    }
    if let Some(Passed(code)) = error.downcast_ref::<Passed>() {
        return Some(*code);
    }
    if let Some(failed) = error.downcast_ref::<Failed>() {
        return Some(failed.code);
    }
    if let Some(error) = error.downcast_ref::<SendError>() {
        return Some(error.exit_code());
    }
    if let Some(error) = error.downcast_ref::<TransferError>() {
        return Some(error.exit_code());
    }
    if let Some(error) = error.downcast_ref::<ReceiveError>() {
        return Some(error.exit_code());
    }
    let io = error.downcast_ref::<io::Error>()?;
    if io.kind() == io::ErrorKind::InvalidInput {
        return Some(2);
    }
    match io.get_ref()?.downcast_ref::<ConnectError>()? {
        ConnectError::TimedOut | ConnectError::Closed => Some(1),
        _ => Some(3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn codes_are_found_under_what_was_said_about_them() {
        let failed = || Failed { code: 4, message: "the trees differ".into() };
        assert_eq!(code(&failed().into()), 4);
        let wrapped = Err::<(), _>(failed()).context("while comparing").unwrap_err();
        assert_eq!(code(&wrapped), 4);
        assert_eq!(code(&Usage("no such option".into()).into()), 2);
        assert_eq!(code(&anyhow::anyhow!("something else")), 1);
    }

    #[test]
    fn names_do_not_steer_the_terminal() {
        assert_eq!(escaped("a\u{1b}[2Jb\n\u{e9}\u{fffd}"), "a\\u{1b}[2Jb\n\u{e9}\u{fffd}");
        assert_eq!(escaped("exe.\u{202e}txt\t"), "exe.\\u{202e}txt\\t");
    }
}
