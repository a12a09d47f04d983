//! Lines of JSON: how a controller and its agent talk.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::sync::mpsc::SyncSender;

use serde::Serialize;
use serde_json::Value;
use zeroize::Zeroizing;

/// The longest line, bytes.
pub(crate) const MAX_LINE: usize = 1 << 20;
/// Messages that wait to be taken. Then the other side has to wait: each may be as long as a line, and
/// takes some times as much once it is read.
pub(crate) const MAX_WAITING: usize = 16;
/// What is set aside for a line, so that few leave copies behind when they grow.
const USUAL_LINE: usize = 16 << 10;

/// What comes from the other side.
#[derive(Clone, Debug, PartialEq)]
pub enum Received {
    /// A message.
    Message(Value),
    /// The last: nothing more will come, and why if it is not just the end.
    Closed(Option<String>),
}

/// The next line without its end; none at the end of the stream.
///
/// # Errors
///
/// Those of the stream; [`ErrorKind::InvalidData`] if the line is longer than `most` bytes.
pub(crate) fn read_line(
    reader: &mut impl BufRead,
    most: usize,
) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let mut line = Zeroizing::new(Vec::with_capacity(USUAL_LINE.min(most + 1)));
    let count = reader.take(most as u64 + 1).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if count > most {
        let text = format!("a line of more than {most} bytes");
        return Err(io::Error::new(ErrorKind::InvalidData, text));
    }
    Ok((count > 0).then_some(line))
}

/// `prefix` and `message` in one line.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if it cannot be written as JSON, or is longer than a line may be.
pub(crate) fn line(prefix: &str, message: &impl Serialize) -> io::Result<Zeroizing<Vec<u8>>> {
    let invalid = |text: String| io::Error::new(ErrorKind::InvalidInput, text);
    let mut line = Zeroizing::new(Vec::with_capacity(USUAL_LINE));
    line.extend_from_slice(prefix.as_bytes());
    serde_json::to_writer(&mut *line, message).map_err(|error| invalid(error.to_string()))?;
    if line.len() > MAX_LINE {
        return Err(invalid(format!(
            "a message of {} bytes is too long for the other side, which takes {MAX_LINE}; \
             name fewer paths at once",
            line.len()
        )));
    }
    line.push(b'\n');
    Ok(line)
}

/// Writes a line whole, and sends it.
pub(crate) fn write(out: &mut (impl Write + ?Sized), line: &[u8]) -> io::Result<()> {
    out.write_all(line)?;
    out.flush()
}

/// Hands on messages until the end of the stream, or until nobody takes them. Lines that are no
/// JSON are the shell's.
pub(crate) fn deliver(mut reader: impl BufRead, to: &SyncSender<Received>) {
    let closed = loop {
        match read_line(&mut reader, MAX_LINE) {
            Ok(Some(line)) => {
                let Ok(message) = serde_json::from_slice(&line) else { continue };
                if to.send(Received::Message(message)).is_err() {
                    return;
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    let _ = to.send(Received::Closed(closed));
}

/// `text` as it may be shown: on one line, not endless, and without what would move a terminal. One that is
/// too long loses its middle, which is some path: what to do is said at its end.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 2000;
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let text = text.trim();
    let count = text.chars().count();
    if count <= MOST {
        return text.chars().map(clean).collect();
    }
    let begin = text.chars().take(MOST / 2);
    let end = text.chars().skip(count - MOST / 2);
    begin.chain(['…']).chain(end).map(clean).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::mpsc;

    use super::*;

    #[test]
    fn lines_are_bounded() {
        let mut reader: &[u8] = b"four\n\nfive5\n123456";
        let mut next = || read_line(&mut reader, 5).map(|line| line.map(|line| line.to_vec()));
        assert_eq!(next().unwrap().unwrap(), b"four");
        assert_eq!(next().unwrap().unwrap(), b"");
        assert_eq!(next().unwrap().unwrap(), b"five5");
        assert_eq!(next().unwrap_err().kind(), ErrorKind::InvalidData);
        let mut last: &[u8] = b"last";
        assert_eq!(read_line(&mut last, 5).unwrap().unwrap().to_vec(), b"last");
        assert!(read_line(&mut last, 5).unwrap().is_none());
        let long = "x".repeat(MAX_LINE);
        assert_eq!(line("", &long).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(line("A ", &[1]).unwrap().to_vec(), b"A [1]\n");
    }

    #[test]
    fn what_is_no_message_is_passed_over() {
        let (to, from) = mpsc::sync_channel(4);
        deliver(&b"logout\n{\"a\":1}\n"[..], &to);
        let message = serde_json::json!({ "a": 1 });
        let expected = [Received::Message(message), Received::Closed(None)];
        assert_eq!(from.try_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_shown_moves_no_terminal() {
        assert_eq!(shown(" a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb");
        let advice = "x".repeat(1999) + "y";
        assert_eq!(shown(&advice), advice);
        let long = shown(&format!("begin{}end", "x".repeat(1 << 20)));
        assert_eq!(long.chars().count(), 2001);
        assert!(long.starts_with("begin") && long.ends_with("end") && long.contains('…'));
    }
}
