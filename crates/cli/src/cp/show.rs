//! How a copy goes, for people and for programs.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farhaul_mover::transfer::{Event, Outcome};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::job::{Bytes, FileLine, ProgressLine};
use super::receipt::ReceiptWriter;
use super::side::Going;
use crate::units::{show_rate, show_size, show_time};
use crate::{interrupt, output};

/// Where nobody watches a bar move, a line each so often.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Intervals of `--json-stream`.
const INTERVAL: Duration = Duration::from_secs(1);

/// What is to be shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Nothing but failures.
    pub quiet: bool,
    /// Every file.
    pub verbose: bool,
    /// A bar, or lines.
    pub progress: bool,
    /// An event a line on standard output.
    pub json_stream: bool,
    /// Nothing is done: it is told what would be.
    pub dry_run: bool,
    /// Standard input is copied, whatever is there.
    pub takes_stream: bool,
}

/// Shows events as they come, from several threads, and progress.
pub struct Show {
    wanted: Wanted,
    bar: Option<ProgressBar>,
    receipt: Mutex<Option<ReceiptWriter>>,
    /// Why standard output takes no more lines.
    unwritten: Mutex<Option<anyhow::Error>>,
    began: Instant,
    last: Mutex<Last>,
}

struct Last {
    at: Instant,
    moved: u64,
    rate: f64,
    line: Instant,
    /// The most that was shown, as what an agent is started again for is counted anew.
    bytes: u64,
    files: u64,
    /// What was moved before the present agent was started, and in all.
    before: u64,
    latest: u64,
}

impl Last {
    fn new() -> Self {
        let now = Instant::now();
        Last { at: now, moved: 0, rate: 0.0, line: now, bytes: 0, files: 0, before: 0, latest: 0 }
    }

    /// Another agent counts from the beginning.
    fn begin_again(&mut self) {
        self.before = self.latest;
    }

    /// Progress that never goes back.
    fn onward(&mut self, line: &ProgressLine) -> ProgressLine {
        self.bytes = self.bytes.max(line.bytes);
        self.files = self.files.max(line.files);
        self.latest = self.before + line.moved;
        let (files, bytes, moved) = (self.files, self.bytes, self.latest);
        ProgressLine { files, bytes, moved, ..line.clone() }
    }
}

/// A line of `--json-stream`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line<'a> {
    Start {
        sources: &'a [String],
        target: &'a str,
    },
    Interval {
        seconds: f64,
        bits_per_second: f64,
        #[serde(flatten)]
        progress: &'a ProgressLine,
    },
    File {
        path: String,
        size: Option<u64>,
        digest: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        hash: Option<&'static str>,
        outcome: &'a str,
    },
    Failed {
        text: &'a str,
    },
    Deleted {
        path: String,
    },
    WouldDelete {
        path: String,
    },
    Note {
        text: &'a str,
    },
    End {
        #[serde(flatten)]
        report: &'a super::report::Report,
    },
}

impl Show {
    /// With a receipt, if one is wanted.
    pub fn new(wanted: Wanted, receipt: Option<ReceiptWriter>) -> Self {
        let bar =
            (wanted.progress && !wanted.quiet && std::io::stderr().is_terminal()).then(|| {
                let bar = ProgressBar::no_length();
                if let Ok(style) = ProgressStyle::with_template("{msg}\n{wide_bar} {percent}%") {
                    bar.set_style(style);
                }
                bar
            });
        let now = Instant::now();
        let last = Mutex::new(Last::new());
        let (receipt, unwritten) = (Mutex::new(receipt), Mutex::default());
        Show { wanted, bar, receipt, unwritten, began: now, last }
    }

    /// Says a line to a person.
    pub fn note(&self, text: &str) {
        // Connections of a copy that the user ends are lost because of that.
        if interrupt::has_come() {
            return;
        }
        self.line(&Line::Note { text });
        if !self.wanted.quiet {
            self.say(&format!("farhaul: {text}"));
        }
    }

    /// Says what even those are to see who want to see nothing.
    pub fn warn(&self, text: &str) {
        self.line(&Line::Note { text });
        self.say(&format!("farhaul: {text}"));
    }

    /// Prints a line of `--json-stream`.
    pub fn line(&self, line: &Line<'_>) {
        if self.wanted.json_stream
            && let Err(error) = output::emit_line(line)
        {
            let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
            unwritten.get_or_insert(error);
        }
    }

    /// Why lines of `--json-stream` are missing, if any are.
    pub fn unwritten(&self) -> Option<anyhow::Error> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn say(&self, line: &str) {
        // Names may hold anything, commands for the terminal included.
        let line = farhaul_mover::printable_path(Path::new(line));
        match &self.bar {
            Some(bar) => bar.println(line),
            None => told(&line),
        }
    }

    /// Something has failed, and the copy goes on.
    pub fn failed(&self, text: &str) {
        self.line(&Line::Failed { text });
        self.say(&format!("farhaul: {text}"));
    }

    /// A file is over.
    pub fn file(&self, file: &FileLine) {
        let path = file.path.path();
        if let Some(receipt) = &mut *self.receipt.lock().unwrap_or_else(PoisonError::into_inner) {
            receipt.file(file);
        }
        if self.wanted.json_stream {
            let path = path.to_string_lossy().into_owned();
            let digest = file.digest.as_deref();
            let (mut size, hash) = (Some(file.size), file.hash());
            let outcome = match &*file.outcome {
                "moved" if self.wanted.dry_run => "would_move",
                // Nothing was read of it.
                "kept" if self.wanted.dry_run && self.wanted.takes_stream => {
                    size = None;
                    "would_move"
                }
                outcome => outcome,
            };
            self.line(&Line::File { path, size, digest, hash, outcome });
        }
        if self.wanted.verbose && file.outcome == "moved" {
            self.say(&path.to_string_lossy());
        }
    }

    /// An entry of the target was deleted, or would be.
    pub fn deleted(&self, path: &Path) {
        let text = path.to_string_lossy().into_owned();
        let (line, done) = match self.wanted.dry_run {
            true => (Line::WouldDelete { path: text }, "would delete"),
            false => (Line::Deleted { path: text }, "deleted"),
        };
        self.line(&line);
        if self.wanted.verbose {
            self.say(&format!("{done} {}", path.display()));
        }
    }

    /// Takes an event of a side in this process.
    pub fn event(&self, event: &Event<'_>) {
        if let Some(line) = file_line(event) {
            return self.file(&line);
        }
        match event {
            Event::Failed { failure, .. } => self.failed(&failure.to_string()),
            Event::Skipped { path, what } => {
                self.note(&format!("left out {}: {what}", path.display()));
            }
            Event::Deleted { path } => self.deleted(path),
            Event::Note(text) => self.note(text),
            _ => {}
        }
    }

    /// Shows how it goes.
    pub fn progress(&self, line: &ProgressLine) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let line = &last.onward(line);
        let passed = last.at.elapsed();
        if passed >= INTERVAL {
            let bits = line.moved.saturating_sub(last.moved) as f64 * 8.0;
            last.rate = bits / passed.as_secs_f64();
            last.at = Instant::now();
            last.moved = line.moved;
            let seconds = self.began.elapsed().as_secs_f64();
            self.line(&Line::Interval { seconds, bits_per_second: last.rate, progress: line });
        }
        let width = match &self.bar {
            Some(_) => match rustix::termios::tcgetwinsize(std::io::stderr()) {
                Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
                _ => 80,
            },
            None => usize::MAX,
        };
        let text = || text(line, last.rate, width);
        match &self.bar {
            Some(bar) => {
                bar.set_length(line.total_bytes.unwrap_or(line.bytes).max(1));
                bar.set_position(line.bytes);
                bar.set_message(text());
            }
            None if self.wanted.progress
                && !self.wanted.quiet
                && last.line.elapsed() >= LINE_EVERY =>
            {
                told(&text());
                last.line = Instant::now();
            }
            None => {}
        }
    }

    /// All files come again: the receipt is to have each once.
    pub fn begin_again(&self) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).begin_again();
        if let Some(receipt) = &mut *self.receipt.lock().unwrap_or_else(PoisonError::into_inner) {
            receipt.begin_again();
        }
    }

    /// Takes the bar away; the receipt, to be ended.
    pub fn end_progress(&self) -> Option<ReceiptWriter> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.receipt.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Writes a line to standard error. Whoever reads it no more has seen enough: the copy goes on.
pub fn told(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Bytes, rate, time left, limit, RTT, retransmissions and the present file, as far as they fit into a line of
/// `width` columns.
fn text(line: &ProgressLine, rate: f64, width: usize) -> String {
    let mut parts = vec![show_size(line.bytes)];
    if let Some(total) = line.total_bytes {
        parts[0] += &format!(" of {}", show_size(total));
        let left = total.saturating_sub(line.bytes) as f64 * 8.0;
        if rate > 0.0
            && let Ok(eta) = Duration::try_from_secs_f64(left / rate)
        {
            parts.push(match eta.as_secs() {
                _ if left == 0.0 => "finishing".to_owned(),
                seconds @ ..60 => format!("{} s left", seconds + 1),
                _ => format!("{} left", show_time(eta)),
            });
        }
    }
    parts.push(show_rate(rate));
    if !line.limit.is_empty() {
        parts.push(format!("limited by {}", line.limit));
    }
    if line.rtt_ms > 0.0 {
        parts.push(format!("rtt {:.1} ms", line.rtt_ms));
        parts.push(format!("retransmitted {:.2}%", line.retransmitted * 100.0));
    }
    let mut text = String::new();
    for part in parts {
        let comma = if text.is_empty() { "" } else { ", " };
        if columns(&text) + comma.len() + columns(&part) > width {
            break;
        }
        text = text + comma + &part;
    }
    let room = width.saturating_sub(columns(&text) + 2);
    match room >= LEAST_PATH.min(columns(&line.current)) && !line.current.is_empty() {
        true => text + "  " + &shortened(&line.current, room),
        false => text,
    }
}

/// A path is not shown in fewer columns.
const LEAST_PATH: usize = 8;

/// At least as many columns as a text takes: those beyond ASCII may be wide.
fn columns(text: &str) -> usize {
    text.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum()
}

/// A text that takes at most `room` columns: the middle of a longer one is left out.
fn shortened(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_owned();
    }
    let fits = |room: usize, chars: &mut dyn Iterator<Item = char>| {
        let mut used = 0;
        let taken = chars.take_while(|c| {
            used += if c.is_ascii() { 1 } else { 2 };
            used <= room
        });
        taken.collect::<Vec<_>>()
    };
    // The dots count as two.
    let room = room.saturating_sub(2);
    let begin = fits(room / 2, &mut text.chars());
    let mut end = fits(room - room / 2, &mut text.chars().rev());
    end.reverse();
    begin.into_iter().chain(['…']).chain(end).collect()
}

/// A file that is over, for another host or a receipt.
pub fn file_line(event: &Event<'_>) -> Option<FileLine> {
    let Event::File { path, size, digest, sparse, outcome } = event else { return None };
    let outcome = match outcome {
        Outcome::Moved { .. } => "moved",
        Outcome::Same { .. } => "same",
        Outcome::Kept => "kept",
    };
    let digest = digest.map(|digest| blake3::Hash::from_bytes(digest).to_hex().to_string());
    let path = Bytes::from(*path);
    Some(FileLine { path, size: *size, digest, sparse: *sparse, outcome: outcome.into() })
}

/// How a side goes, for another host or a display.
pub fn progress_line(going: &Going) -> ProgressLine {
    let progress = &going.progress;
    let limit = going.lately.limit();
    let limit = match limit {
        farhaul_mover::transfer::limit::Limit::Unknown => String::new(),
        limit => limit.to_string(),
    };
    ProgressLine {
        files: progress.files,
        // How long a stream is shows at its end.
        bytes: if progress.bytes == 0 { progress.moved } else { progress.bytes },
        moved: progress.moved,
        total_files: progress.totals.map(|(files, _)| files),
        total_bytes: progress.totals.map(|(_, bytes)| bytes),
        rtt_ms: going.rtt.as_secs_f64() * 1e3,
        retransmitted: going.retransmitted as f64 / going.packets_sent.max(1) as f64,
        path: going.path.clone().unwrap_or_default(),
        limit,
        current: farhaul_mover::printable_path(&progress.current),
    }
}

/// Hands progress on, some times a second.
pub struct Told<F> {
    tell: F,
    wanted: bool,
    at: Instant,
}

impl<F: Fn(ProgressLine)> Told<F> {
    /// Only if it is `wanted`.
    pub fn new(tell: F, wanted: bool) -> Self {
        Told { tell, wanted, at: Instant::now() }
    }

    /// Takes a look.
    pub fn look(&mut self, going: &Going) {
        if self.wanted && self.at.elapsed() >= INTERVAL / 2 {
            (self.tell)(progress_line(going));
            self.at = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(current: &str) -> ProgressLine {
        ProgressLine {
            bytes: 158_000_000,
            moved: 100,
            total_bytes: Some(350_000_000),
            rtt_ms: 50.0,
            limit: "network rate".to_owned(),
            current: current.to_owned(),
            ..ProgressLine::default()
        }
    }

    #[test]
    fn a_line_of_progress_fits_into_the_terminal() {
        let path = format!("top/{}/the-end", "directory/é".repeat(20));
        for width in 0..200 {
            let shown = text(&line(&path), 1e8, width);
            assert!(columns(&shown) <= width, "{width}: {shown}");
        }
        let shown = text(&line(&path), 1e8, 120);
        assert!(shown.contains("top/") && shown.ends_with("-end"), "{shown}");
        let whole = text(&line(&path), 1e8, usize::MAX);
        assert!(whole.ends_with(&path) && whole.contains("retransmitted"), "{whole}");
    }

    #[test]
    fn progress_never_goes_back() {
        let mut last = Last::new();
        let of = |bytes, moved| ProgressLine { bytes, moved, files: 3, ..ProgressLine::default() };
        let seen = |line: ProgressLine, last: &mut Last| {
            let shown = last.onward(&line);
            (shown.bytes, shown.moved)
        };
        assert_eq!(seen(of(158, 150), &mut last), (158, 150));
        // Another agent is started: what there is is found out anew.
        last.begin_again();
        assert_eq!(seen(of(18, 10), &mut last), (158, 160));
        assert_eq!(seen(of(200, 60), &mut last), (200, 210));
    }
}
