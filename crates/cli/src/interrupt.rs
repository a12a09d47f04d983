//! Ctrl-C and SIGTERM.

use std::sync::{Mutex, Once, PoisonError};

type Action = Box<dyn Fn() + Send>;

static ACTIONS: Mutex<Vec<Action>> = Mutex::new(Vec::new());
static INSTALL: Once = Once::new();

/// Has `action` done when the user interrupts. With none, the signal ends the process as usual.
/// A second interruption ends the process whatever the actions do.
pub fn on_interrupt(action: impl Fn() + Send + 'static) {
    ACTIONS.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(action));
    INSTALL.call_once(|| {
        let mut interrupted = false;
        let installed = ctrlc::set_handler(move || {
            if interrupted {
                std::process::exit(130);
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
