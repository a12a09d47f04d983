//! How far simulations have come, on standard error.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farhaul_lab::sweep::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::interrupt;

/// A bar, if standard error is a terminal.
pub struct Bar {
    bar: ProgressBar,
    shown: bool,
}

impl Bar {
    /// An empty one.
    pub fn new() -> Self {
        let bar = ProgressBar::new(1000);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {percent}% {msg}") {
            bar.set_style(style);
        }
        Bar { bar, shown: std::io::stderr().is_terminal() }
    }

    /// None, whatever standard error is.
    pub fn hidden() -> Self {
        Bar { bar: ProgressBar::hidden(), shown: false }
    }

    /// Shows how far it is now.
    pub fn show(&self, progress: Progress) {
        if self.shown {
            self.bar.set_position((progress.share * 1000.0) as u64);
            let (ended, all) = progress.runs;
            let runs = if all > 1 { format!("{ended}/{all} runs, ") } else { String::new() };
            self.bar.set_message(format!("{runs}{:.1} times real time", progress.speed_up));
        }
    }

    /// Takes it away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// What is set when the user interrupts.
pub fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    interrupt::on_interrupt(move || flag.store(true, Ordering::Relaxed));
    stop
}
