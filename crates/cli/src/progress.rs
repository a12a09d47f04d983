//! How far runs have come, on standard error: a bar on a terminal, else a line now and then.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_lab::sweep;
use indicatif::{ProgressBar, ProgressStyle};

use crate::interrupt;

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

    /// How far a sweep has come.
    pub fn show_sweep(&self, progress: sweep::Progress) {
        self.show(progress.share, || line(progress));
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
            eprintln!("{:.0}%, {}", share * 100.0, message());
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
    let runs = if all > 1 { format!("{ended}/{all} runs, ") } else { String::new() };
    format!("{runs}{:.1} times real time", progress.speed_up)
}

/// What is set when the user interrupts.
pub fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    interrupt::on_interrupt(move || flag.store(true, Ordering::Relaxed));
    stop
}
