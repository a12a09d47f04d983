//! Results on standard output: for a person, or one JSON document.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

/// Prints `value` as JSON, or lets `print` show it.
pub fn emit<T: Serialize>(json: bool, value: &T, print: impl FnOnce(&T)) -> Result<()> {
    if json {
        emit_to(&mut std::io::stdout().lock(), value)?;
    } else {
        print(value);
    }
    Ok(())
}

/// Prints `value` as JSON on one line: one of many.
pub fn emit_line<T: Serialize>(value: &T) -> Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    std::io::stdout().lock().write_all(&line)?;
    Ok(())
}

/// Writes `value` as JSON, with a line's end.
pub fn emit_to<T: Serialize>(out: &mut dyn Write, value: &T) -> Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    Ok(())
}
