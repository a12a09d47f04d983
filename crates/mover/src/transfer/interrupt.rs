//! Waits that end with what they are for.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Ends the waits of those that hold it, once and for all.
#[derive(Debug, Default)]
pub struct Interrupt {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Interrupt {
    /// Ends all waits, also those that begin later.
    pub fn raise(&self) {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for `time`; whether it was interrupted before that was over.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(raised, time, |raised| !*raised);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end_at_once_also_those_that_begin_later() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.wait(Duration::ZERO));
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| interrupt.wait(Duration::MAX));
            interrupt.raise();
            assert!(waits.join().unwrap());
        });
        assert!(interrupt.wait(Duration::MAX));
    }
}
