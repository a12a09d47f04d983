//! Ctrl-C and SIGTERM.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use crate::exit::INTERRUPTED;

type Action = Box<dyn Fn() + Send>;

/// Actions with their numbers.
struct List(Mutex<Vec<(u64, Action)>>);

/// What is done when the user interrupts.
static ON_INTERRUPT: List = List(Mutex::new(Vec::new()));
/// What is done before an interruption ends the process at once, the latest first.
static BEFORE_EXIT: List = List(Mutex::new(Vec::new()));
static NUMBERS: AtomicU64 = AtomicU64::new(0);
static INSTALL: Once = Once::new();
/// What is said before an interruption ends the process.
static LAST_WORDS: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);
static HAS_COME: AtomicBool = AtomicBool::new(false);
/// Nobody may read last words.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);

impl List {
    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Action)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&'static self, action: impl Fn() + Send + 'static) -> Registered {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        self.lock().push((number, Box::new(action)));
        install();
        Registered { list: self, number }
    }
}

/// While it lives, its action is registered. What ends it waits while the actions of its list are done.
pub struct Registered {
    list: &'static List,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.list.lock().retain(|(number, _)| *number != self.number);
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
    tell!("farhaul: interrupted");
    exit()
}

/// Whether the user has interrupted.
pub fn has_come() -> bool {
    HAS_COME.load(Ordering::Relaxed)
}

/// Has `say` done before an interruption ends the process. From now on none goes without that.
pub fn set_last_words(say: impl FnOnce() + Send + 'static) {
    *last_words() = Some(Box::new(say));
    install();
}

/// Whoever says something himself takes the last words away; false if they are being said.
pub fn take_last_words() -> bool {
    last_words().take().is_some()
}

fn last_words() -> MutexGuard<'static, Option<Box<dyn FnOnce() + Send>>> {
    LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn exit() -> ! {
    // The lock is kept to the end, so that what is undone here is not undone elsewhere meanwhile.
    let actions = BEFORE_EXIT.lock();
    actions.iter().rev().for_each(|(_, action)| action());
    // Not within the match: the lock is not to be held meanwhile.
    let say = last_words().take();
    if let Some(say) = say {
        let (done, wait) = channel();
        thread::spawn(move || {
            say();
            let _ = done.send(());
        });
        let _ = wait.recv_timeout(LAST_WORDS_TIME);
    }
    std::process::exit(INTERRUPTED.into());
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
    ON_INTERRUPT.add(action)
}

/// Has `action` done before an interruption ends the process at once, as the second one does (`timeout` sends two: to
/// its command and to the whole group). It must not wait for long.
#[must_use]
pub fn before_exit(action: impl Fn() + Send + 'static) -> Registered {
    BEFORE_EXIT.add(action)
}

fn install() {
    INSTALL.call_once(|| {
        let mut interrupted = false;
        let installed = ctrlc::set_handler(move || {
            if interrupted {
                exit();
            }
            interrupted = true;
            HAS_COME.store(true, Ordering::Relaxed);
            let actions = ON_INTERRUPT.lock();
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
}
