//! Results on standard output: for a person, or one JSON document.

use std::io::{self, Write};

use anyhow::{Context, Result};
use serde::Serialize;

/// Prints `value` as JSON, or what `show` writes about it.
pub fn emit<T: Serialize>(
    json: bool,
    value: &T,
    show: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let mut text = Vec::new();
    if json {
        emit_to(&mut text, value)?;
    } else {
        show(value, &mut text)?;
    }
    print(&text)
}

/// Prints `value` as JSON on one line: one of many.
pub fn emit_line<T: Serialize>(value: &T) -> Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    print(&line)
}

/// Writes `value` as JSON, with a line's end.
pub fn emit_to<T: Serialize>(out: &mut dyn Write, value: &T) -> Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    Ok(())
}

/// Prints `text`. That nobody reads it any more is no error: whoever did has seen enough.
pub fn print(text: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.context("cannot write to standard output"),
    }
}
