//! The receipt of a copy: every file with its digest, to be kept and checked later.

pub mod read;

use std::fs;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use tempfile::NamedTempFile;

use super::job::FileLine;
use super::report::Summary;
use crate::exit::Usage;
use crate::files;

/// The form of receipts that this version writes and reads.
const FORMAT: u32 = 1;

/// Writes a receipt as files come, so that it costs no memory; it has its name when it is whole.
pub struct ReceiptWriter {
    path: PathBuf,
    /// What stands before the files.
    head: String,
    out: BufWriter<NamedTempFile>,
    first: bool,
    /// What has gone wrong; files that come later are not written.
    failed: Option<io::Error>,
}

/// A file in a receipt.
#[derive(Serialize)]
struct Line<'a> {
    path: std::borrow::Cow<'a, str>,
    /// The path in hexadecimal digits, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    size: u64,
    digest: Option<&'a str>,
    /// See [`FileLine::hash`].
    hash: Option<&'static str>,
    outcome: &'a str,
}

/// What stands before the files.
#[derive(Serialize)]
struct Head<'a> {
    farhaul_receipt: u32,
    /// Seconds since 1970 UTC.
    created: u64,
    sources: &'a [String],
    target: &'a str,
}

/// Finds out whether there can be a receipt, which is better known before the copy. What is there stays.
fn writable(path: &Path, directory: &Path) -> Result<()> {
    let wrong = |why: &str| {
        let path = path.display();
        Err(Usage(format!("cannot write the receipt {path}: {why}")).into())
    };
    match fs::metadata(path) {
        Ok(known) if known.is_dir() => return wrong("it is a directory"),
        Ok(known) if !known.is_file() => return wrong("it is no regular file"),
        _ => {}
    }
    if !directory.is_dir() {
        return wrong(&format!("there is no directory {}", directory.display()));
    }
    files::check_one(path).with_context(|| format!("cannot write the receipt {}", path.display()))
}

impl ReceiptWriter {
    /// Begins a receipt beside its later name.
    ///
    /// # Errors
    ///
    /// It cannot be written there, or something else than a file has its name.
    pub fn create(path: &Path, sources: &[String], target: &str) -> Result<Self> {
        let directory = files::directory_of(path);
        writable(path, directory)?;
        let file = NamedTempFile::new_in(directory)
            .with_context(|| format!("cannot write the receipt {}", path.display()))?;
        let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let created = created.unwrap_or_default().as_secs();
        let head =
            serde_json::to_string(&Head { farhaul_receipt: FORMAT, created, sources, target })?;
        // The object goes on with its files.
        let head = format!("{},\n\"files\":[", head.trim_end_matches('}'));
        let mut out = BufWriter::new(file);
        out.write_all(head.as_bytes())?;
        Ok(ReceiptWriter { path: path.to_owned(), head, out, first: true, failed: None })
    }

    /// Forgets the files that it has.
    pub fn begin_again(&mut self) {
        let emptied = self.out.flush().and_then(|()| {
            let file = self.out.get_mut().as_file_mut();
            file.set_len(0)?;
            file.rewind()?;
            self.out.write_all(self.head.as_bytes())
        });
        self.first = true;
        if let Err(error) = emptied {
            self.failed.get_or_insert(error);
        }
    }

    /// Adds a file.
    pub fn file(&mut self, file: &FileLine) {
        if self.failed.is_some() {
            return;
        }
        let path = file.path.path();
        let path_hex = path.to_str().is_none().then(|| {
            use std::os::unix::ffi::OsStrExt;
            path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
        });
        let line = Line {
            path: path.to_string_lossy(),
            path_hex,
            size: file.size,
            digest: file.digest.as_deref(),
            hash: file.hash(),
            outcome: &file.outcome,
        };
        let separator = if std::mem::take(&mut self.first) { "\n" } else { ",\n" };
        let written = self
            .out
            .write_all(separator.as_bytes())
            .and_then(|()| serde_json::to_writer(&mut self.out, &line).map_err(io::Error::from));
        self.failed = written.err();
    }

    /// Ends the receipt and gives it its name.
    ///
    /// # Errors
    ///
    /// It could not be written.
    pub fn finish(mut self, complete: bool, summary: &Summary) -> Result<()> {
        let failed = || format!("cannot write the receipt {}", self.path.display());
        if let Some(error) = self.failed {
            return Err(error).with_context(failed);
        }
        let summary = serde_json::to_string(summary)?;
        write!(self.out, "\n],\n\"complete\":{complete},\n\"summary\":{summary}}}\n")
            .with_context(failed)?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error);
        let file = file.with_context(failed)?;
        file.as_file().sync_all().with_context(failed)?;
        file.persist(&self.path).map_err(|error| error.error).with_context(failed)?;
        Ok(())
    }
}
