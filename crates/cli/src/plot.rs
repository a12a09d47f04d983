//! `farhaul plot`: what a law did, as `farhaul perf --trace` wrote it, in one picture.

mod figure;
mod numbers;
mod recording;
mod summary;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use self::recording::Recording;
use self::summary::Summary;
use crate::exit::Usage;
use crate::{output, picture};

/// Draw what a congestion control law did, from a trace of `farhaul perf --trace`.
///
/// One picture: rates, windows, the round-trip time and losses over time, and the law's states
/// above and behind them. Several connections are drawn together.
#[derive(Args, Debug)]
pub struct PlotArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to draw, as .svg or .png; FILE with .svg if not given
    #[arg(short = 'o', long, value_name = "OUT", value_parser = picture::path)]
    out: Option<PathBuf>,
    /// Only this connection of several, counted from 0
    #[arg(long, value_name = "N")]
    stream: Option<u32>,
    /// Print where the picture is and the numbers of the trace as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &PlotArgs) -> Result<()> {
    let out = args.out.clone().unwrap_or_else(|| args.file.with_extension("svg"));
    if is_same(&out, &args.file) {
        let message = format!("{} is the trace: draw somewhere else with -o", out.display());
        return Err(Usage(message).into());
    }
    let recording = read(&args.file, args.stream)?;
    let summary = Summary::of(&recording, &args.file, &out);
    picture::write(&out, &figure::of(&recording, &summary))?;
    output::emit(args.json, &summary, Summary::show)
}

/// Whether both are the same file, if both are there.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

fn read(path: &Path, stream: Option<u32>) -> Result<Recording> {
    let failed = |error: &dyn std::fmt::Display| Usage(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| failed(&error))?;
    let source = BufReader::with_capacity(1 << 16, file);
    let recording = Recording::read(source).map_err(|error| failed(&error))?;
    let Some(stream) = stream else { return Ok(recording) };
    let count = recording.streams.len();
    let only = recording.only(&stream.to_string());
    Ok(only.ok_or_else(|| failed(&format!("there is no stream {stream} among its {count}")))?)
}
