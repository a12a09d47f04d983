//! Progress of what has no display of its own.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::units::{show_rate, show_size};

/// Where nobody watches a bar move, a line each so often.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// A bar on a terminal, else a line now and then, on standard error.
pub struct Progress {
    name: String,
    bytes: u64,
    bar: Option<ProgressBar>,
    quiet: bool,
    shown: Instant,
}

impl Progress {
    /// For `bytes` in all.
    pub fn new(name: &str, bytes: u64, quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(bytes.max(1));
            if let Ok(style) = ProgressStyle::with_template("{msg}\n{wide_bar} {percent}%") {
                bar.set_style(style);
            }
            bar
        });
        Progress { name: name.to_owned(), bytes, bar, quiet, shown: Instant::now() }
    }

    /// `bytes` have arrived after so many seconds.
    pub fn show(&mut self, bytes: u64, seconds: f64) {
        let due = self.bar.is_some() || self.shown.elapsed() >= LINE_EVERY;
        if self.quiet || !due {
            return;
        }
        self.shown = Instant::now();
        let (done, all) = (show_size(bytes), show_size(self.bytes));
        let rate = show_rate(bytes as f64 * 8.0 / seconds.max(1e-9));
        let line = format!("{}: {done} of {all} in {seconds:.0} s, {rate}", self.name);
        match &self.bar {
            Some(bar) => {
                bar.set_position(bytes);
                bar.set_message(line);
            }
            None => tell!("{line}"),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
