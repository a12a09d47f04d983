//! Pictures as files.

use std::path::{Path, PathBuf};

use anyhow::Result;
use farhaul_lab::chart::Figure;

use crate::files;

/// Where to draw: a name whose ending tells the form.
pub fn path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let known = path.extension().is_some_and(|ending| ending == "svg" || ending == "png");
    if known { Ok(path) } else { Err("a plot is a .svg or a .png".into()) }
}

/// Draws `figure` in the form that the name of the file tells.
pub fn write(path: &Path, figure: &Figure) -> Result<()> {
    let bytes = match path.extension().and_then(|ending| ending.to_str()) {
        Some("png") => figure.png(),
        _ => figure.svg().into_bytes(),
    };
    files::write(path, &bytes)
}
