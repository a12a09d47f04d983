//! Results on standard output: for a person, or one JSON document.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

/// Prints `value` as JSON, or lets `print` show it.
pub fn emit<T: Serialize>(json: bool, value: &T, print: impl FnOnce(&T)) -> Result<()> {
    if json {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, value)?;
        writeln!(out)?;
    } else {
        print(value);
    }
    Ok(())
}
