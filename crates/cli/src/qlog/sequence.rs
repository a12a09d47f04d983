//! JSON text sequences (RFC 7464).

use std::io::{self, BufRead, Read, Write};

use serde::Serialize;
use thiserror::Error;

const SEPARATOR: u8 = 0x1e;
/// The longest record, bytes.
const LONGEST: u64 = 1 << 16;

/// Writes records.
pub struct Writer<W>(W);

/// Reads records, one at a time.
pub struct Reader<R> {
    source: R,
    buffer: Vec<u8>,
    /// Of the last record, both from 1 on.
    number: u64,
    line: u64,
    /// Lines before the place that has been read to.
    lines: u64,
    /// A separator has been read, so that a record must follow.
    begun: bool,
}

/// Why a record cannot be read.
#[derive(Debug, Error)]
pub enum SequenceError {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Which record, in which line it begins, and what is wrong with it.
    #[error("record {number} (line {line}): {what}")]
    Damaged { number: u64, line: u64, what: String },
}

impl<W: Write> Writer<W> {
    pub fn new(out: W) -> Self {
        Writer(out)
    }

    pub fn write<T: Serialize>(&mut self, record: &T) -> io::Result<()> {
        self.0.write_all(&[SEPARATOR])?;
        serde_json::to_writer(&mut self.0, record)?;
        self.0.write_all(b"\n")
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<R: BufRead> Reader<R> {
    pub fn new(source: R) -> Self {
        Reader { source, buffer: Vec::new(), number: 0, line: 1, lines: 0, begun: false }
    }

    /// The text of the next record; none after the last one.
    ///
    /// # Errors
    /// If it cannot be read, is too long, is no text or has no end.
    pub fn next(&mut self) -> Result<Option<&str>, SequenceError> {
        self.line = self.lines + 1;
        self.number += 1;
        if self.number == 1 {
            let first = self.source.fill_buf()?.first().copied();
            if first.is_none() {
                return Err(self.damaged("the file is empty"));
            }
            if first != Some(SEPARATOR) {
                let what = "no record separator (0x1E) begins it: this is no JSON text sequence";
                return Err(self.damaged(what));
            }
            self.source.consume(1);
            self.begun = true;
        }
        if !self.begun {
            return Ok(None);
        }
        self.buffer.clear();
        // One byte more than it may have, and the separator of the next one.
        let mut source = self.source.by_ref().take(LONGEST + 2);
        source.read_until(SEPARATOR, &mut self.buffer)?;
        self.begun = self.buffer.last() == Some(&SEPARATOR);
        if self.begun {
            self.buffer.pop();
        }
        if self.buffer.len() as u64 > LONGEST {
            return Err(self.damaged(format!("it has more than {LONGEST} bytes")));
        }
        self.lines += self.buffer.iter().filter(|byte| **byte == b'\n').count() as u64;
        if self.buffer.last() != Some(&b'\n') {
            return Err(self.damaged("it is cut off: no line feed ends it"));
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(Some(text)),
            Err(error) => {
                let (number, line) = (self.number, self.line);
                let what = format!("it is no text: {error}");
                Err(SequenceError::Damaged { number, line, what })
            }
        }
    }

    /// The error for something that is wrong with the last record.
    pub fn damaged(&self, what: impl ToString) -> SequenceError {
        SequenceError::Damaged { number: self.number, line: self.line, what: what.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut reader = Reader::new(bytes);
        let mut out = Vec::new();
        while let Some(text) = reader.next().map_err(|error| error.to_string())? {
            out.push(text.trim_end().to_owned());
        }
        Ok(out)
    }

    fn assert_refused(bytes: &[u8], text: &str) {
        let error = read(bytes).unwrap_err();
        assert!(error.contains(text), "{error}");
    }

    #[test]
    fn what_is_written_is_read() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.write(&"one\n\u{1e}").unwrap();
        writer.write(&[2]).unwrap();
        assert_eq!(out, b"\x1e\"one\\n\\u001e\"\n\x1e[2]\n");
        assert_eq!(read(&out).unwrap(), ["\"one\\n\\u001e\"", "[2]"]);
        // A text may have several lines, and something else may have written it.
        assert_eq!(read(b"\x1e{\n}\n\n\x1e3\n").unwrap(), ["{\n}", "3"]);
    }

    #[test]
    fn what_is_no_sequence_is_refused_with_its_place() {
        assert_refused(b"", "record 1 (line 1): the file is empty");
        assert_refused(b"{}\n", "record 1 (line 1): no record separator");
        assert_refused(b"\x1e{\n}\n\x1e{\"a\":", "record 2 (line 3): it is cut off");
        assert_refused(b"\x1e1\n\x1e\xff\n", "record 2 (line 2): it is no text");
        assert_refused(b"\x1e1\n\x1e\x1e2\n", "record 2 (line 2): it is cut off");
        assert_refused(b"\x1e1\n\x1e", "record 2 (line 2): it is cut off");
    }

    #[test]
    fn memory_is_bounded_whatever_the_file() {
        let mut long = vec![b' '; LONGEST as usize + 2];
        long[0] = SEPARATOR;
        long.push(b'\n');
        assert_refused(&long, "record 1 (line 1): it has more than 65536 bytes");
        long.remove(1);
        long.remove(1);
        assert!(read(&long).is_ok());
        let mut endless = Reader::new(io::BufReader::new(b"\x1e".chain(io::repeat(b'{'))));
        assert!(endless.next().unwrap_err().to_string().contains("more than"));
        assert!(endless.buffer.capacity() < 4 * LONGEST as usize);
    }
}
