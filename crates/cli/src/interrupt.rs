//! Ctrl-C and SIGTERM.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use crate::exit::INTERRUPTED;

type Action = Box<dyn Fn() + Send>;

static ACTIONS: Mutex<Vec<Action>> = Mutex::new(Vec::new());
static INSTALL: Once = Once::new();

/// While it lives, an interruption ends the process: nothing has begun that would have to be ended.
pub struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// Begins to wait, for a peer.
    pub fn begin() -> Self {
        let waits = Arc::new(AtomicBool::new(true));
        let waiting = Waiting(Arc::clone(&waits));
        on_interrupt(move || {
            if waits.load(Ordering::SeqCst) {
                end();
            }
        });
        waiting
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Says that the user has interrupted, and ends the process.
pub fn end() -> ! {
    eprintln!("farhaul: interrupted");
    std::process::exit(INTERRUPTED.into());
}

/// Has `action` done when the user interrupts. With none, the signal ends the process as usual.
/// A second interruption ends the process whatever the actions do.
pub fn on_interrupt(action: impl Fn() + Send + 'static) {
    ACTIONS.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(action));
    INSTALL.call_once(|| {
        let mut interrupted = false;
        let installed = ctrlc::set_handler(move || {
            if interrupted {
                std::process::exit(INTERRUPTED.into());
            }
            interrupted = true;
            for action in ACTIONS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                action();
            }
        });
        // Without a handler the signal just ends the process, which is safe as well.
        drop(installed);
    });
}
