//! How far runs have come, on standard error: a bar on a terminal, else a line now and then.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use farhaul_lab::sweep;
use indicatif::{ProgressBar, ProgressStyle};

/// Where nobody watches a bar move, a line each so often.
const LINE_EVERY: Duration = Duration::from_secs(5);
const STEPS: f64 = 1000.0;

/// Can be told from several threads.
pub struct Progress {
    bar: Option<ProgressBar>,
    shown: Mutex<Instant>,
    hidden: bool,
}

impl Progress {
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(STEPS as u64);
            if let Ok(style) = ProgressStyle::with_template("{wide_bar} {percent}% {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Progress { bar, shown: Mutex::new(Instant::now()), hidden: false }
    }

    /// Shows nothing: standard error has another use.
    pub fn hidden() -> Self {
        Progress { bar: None, shown: Mutex::new(Instant::now()), hidden: true }
    }

    /// How far a sweep has come, or a single run in which there are so many seconds to simulate.
    pub fn show_sweep(&self, progress: sweep::Progress, seconds: f64) {
        self.show(progress.share, || sweep_line(progress, seconds));
    }

    /// Has `print` done with nothing of the bar in the way.
    pub fn print_beside(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// `share` of all has been done, 0 to 1.
    pub fn show(&self, share: f64, message: impl Fn() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_position((share * STEPS) as u64);
            bar.set_message(message());
            return;
        }
        // One line is enough: whoever finds another writing goes on.
        let Ok(mut shown) = self.shown.try_lock() else { return };
        if !self.hidden && shown.elapsed() >= LINE_EVERY {
            *shown = Instant::now();
            tell!("{:.0}%, {}", share * 100.0, message());
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

/// A sweep's runs and speed.
pub fn line(progress: sweep::Progress) -> String {
    let (ended, all) = progress.runs;
    let runs = if all > 1 { format!("{ended} of {all} runs, ") } else { String::new() };
    format!("{runs}{:.1} times real time", progress.speed_up)
}

/// As [`line()`]; of a single run the simulated time.
fn sweep_line(progress: sweep::Progress, seconds: f64) -> String {
    match progress.runs {
        (_, 1) => format!("{:.1} of {seconds} s, {}", progress.share * seconds, line(progress)),
        _ => line(progress),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_it_has_come() {
        let progress = |runs| sweep::Progress { runs, share: 0.205, speed_up: 15.93 };
        assert_eq!(sweep_line(progress((0, 1)), 60.0), "12.3 of 60 s, 15.9 times real time");
        assert_eq!(sweep_line(progress((3, 8)), 0.0), "3 of 8 runs, 15.9 times real time");
    }
}
