//! Ctrl-C and SIGTERM.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use crate::exit::INTERRUPTED;

type Action = Box<dyn Fn() + Send>;

/// Each with its number.
static ACTIONS: Mutex<Vec<(u64, Action)>> = Mutex::new(Vec::new());
static NUMBERS: AtomicU64 = AtomicU64::new(0);
static INSTALL: Once = Once::new();

/// While it lives, an action is done when the user interrupts.
pub struct Registered(u64);

impl Drop for Registered {
    fn drop(&mut self) {
        actions().retain(|(number, _)| *number != self.0);
    }
}

/// What is set when the user interrupts. Once it is dropped, nobody looks at it, and an interruption
/// ends the process as usual.
pub struct Stop {
    flag: Arc<AtomicBool>,
    _registered: Registered,
}

impl Deref for Stop {
    type Target = AtomicBool;

    fn deref(&self) -> &AtomicBool {
        &self.flag
    }
}

/// See [`Stop`].
pub fn stop_flag() -> Stop {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    let registered = while_registered(move || set.store(true, Ordering::Relaxed));
    Stop { flag, _registered: registered }
}

/// Says that the user has interrupted, and ends the process.
pub fn end() -> ! {
    eprintln!("farhaul: interrupted");
    std::process::exit(INTERRUPTED.into());
}

fn actions() -> MutexGuard<'static, Vec<(u64, Action)>> {
    ACTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until what is returned is dropped, an interruption ends the process: nothing has begun that would
/// have to be ended.
#[must_use]
pub fn while_waiting() -> Registered {
    while_registered(|| end())
}

/// Has `action` done when the user interrupts. With none, the signal ends the process as usual.
/// A second interruption ends the process whatever the actions do.
pub fn on_interrupt(action: impl Fn() + Send + 'static) {
    std::mem::forget(while_registered(action));
}

/// As [`on_interrupt`], until what is returned is dropped.
#[must_use]
pub fn while_registered(action: impl Fn() + Send + 'static) -> Registered {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    actions().push((number, Box::new(action)));
    INSTALL.call_once(|| {
        let mut interrupted = false;
        let installed = ctrlc::set_handler(move || {
            if interrupted {
                std::process::exit(INTERRUPTED.into());
            }
            interrupted = true;
            let actions = actions();
            if actions.is_empty() {
                end();
            }
            for (_, action) in actions.iter() {
                action();
            }
        });
        // Without a handler the signal just ends the process, which is safe as well.
        drop(installed);
    });
    Registered(number)
}
