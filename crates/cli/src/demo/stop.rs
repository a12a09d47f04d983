//! The user's wish to end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::interrupt;

/// Whether the user has interrupted. Clones are the same wish.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Set when the user interrupts.
    pub fn on_interrupt() -> Self {
        let stop = Stop::default();
        let told = stop.clone();
        interrupt::on_interrupt(move || told.stop());
        stop
    }

    /// Ends what looks at this.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error of kind [`Interrupted`](io::ErrorKind::Interrupted) if it is set.
    pub fn check(&self) -> io::Result<()> {
        if self.is_set() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        Ok(())
    }
}
