//! The files that a run is to write.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::exit::Usage;

/// Finds out whether all `outputs`, each with what it is called in messages, can be written, and
/// that none of them is another's file or the scenario's. What the files hold stays.
pub fn check<const N: usize>(scenario: &Path, outputs: [(&str, Option<&Path>); N]) -> Result<()> {
    let mut known = vec![("the scenario", resolved(scenario))];
    for (name, path) in outputs {
        // A terminal, a pipe and /dev/null may be written to by several.
        let Some(path) = path.filter(|path| !is_special(path)) else { continue };
        let file = resolved(path);
        if let Some((other, _)) = known.iter().find(|(_, known)| *known == file) {
            let message = format!("{other} and {name} cannot both be {}", path.display());
            return Err(Usage(message).into());
        }
        known.push((name, file));
    }
    for path in outputs.iter().filter_map(|(_, path)| *path).filter(|path| !is_special(path)) {
        probe(path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|known| !known.is_file() && !known.is_dir())
}

/// The same for the same file, however it is written, and if there is none yet.
fn resolved(path: &Path) -> PathBuf {
    if let Ok(known) = path.canonicalize() {
        return known;
    }
    let Some(name) = path.file_name() else { return path.to_owned() };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    parent.map_or_else(|_| path.to_owned(), |parent| parent.join(name))
}

/// Opens it for writing, and leaves everything as it was.
fn probe(path: &Path) -> std::io::Result<()> {
    let new = OpenOptions::new().write(true).create_new(true).open(path);
    match new {
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            OpenOptions::new().append(true).open(path).map(drop)
        }
        Err(error) => Err(error),
    }
}
