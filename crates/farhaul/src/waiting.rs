//! Who waits for what: threads on a condition, tasks by their wakers.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker as TaskWaker;
use std::time::{Duration, Instant};

use crate::port::{State, lock};

/// A condition under the port's lock. Signalling it costs nothing while nobody waits.
#[derive(Debug, Default)]
pub struct Signal {
    condition: Condvar,
    waiting: AtomicUsize,
}

impl Signal {
    /// Waits for the signal, at most until `deadline`; the time-out of a call is an error.
    pub fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> io::Result<MutexGuard<'a, State>> {
        state.check()?;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let result = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
            None => Ok(self.condition.wait(state).unwrap_or_else(PoisonError::into_inner)),
            Some(Duration::ZERO) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the time-out of the call is over"))
            }
            Some(left) => Ok(self
                .condition
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0),
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }

    pub fn notify(&self) {
        // Both sides hold the lock, so that nobody begins to wait in between.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.condition.notify_all();
        }
    }
}

/// Who waits for what on a connection.
#[derive(Debug, Default)]
pub struct Hooks {
    pub readable: Signal,
    pub writable: Signal,
    readers: Mutex<Tasks>,
    writers: Mutex<Tasks>,
}

/// Tasks that wait, each under the key of what it waits with: a task that comes again, or another
/// in its place, takes no more room.
#[derive(Debug, Default)]
pub struct Tasks(Vec<(u64, TaskWaker)>);

impl Tasks {
    /// Wakes `task`, and no longer the one that waited with `key` before.
    #[cfg(feature = "tokio")]
    pub fn add(&mut self, key: u64, task: &TaskWaker) {
        match self.0.iter_mut().find(|(k, _)| *k == key) {
            Some((_, waker)) => waker.clone_from(task),
            None => self.0.push((key, task.clone())),
        }
    }

    /// Nobody waits with `key` any more.
    #[cfg(feature = "tokio")]
    pub fn remove(&mut self, key: u64) {
        self.0.retain(|(k, _)| *k != key);
    }

    pub fn take(&mut self, woken: &mut Vec<TaskWaker>) {
        woken.extend(self.0.drain(..).map(|(_, waker)| waker));
    }
}

#[cfg(feature = "tokio")]
impl Hooks {
    /// The tasks to wake when there may be something to read.
    pub fn readers(&self) -> MutexGuard<'_, Tasks> {
        lock(&self.readers)
    }

    /// The tasks to wake when there may be room to write, or the connection is set up or over.
    pub fn writers(&self) -> MutexGuard<'_, Tasks> {
        lock(&self.writers)
    }
}

impl Hooks {
    pub fn notify_readers(&self, woken: &mut Vec<TaskWaker>) {
        self.readable.notify();
        lock(&self.readers).take(woken);
    }

    pub fn notify_writers(&self, woken: &mut Vec<TaskWaker>) {
        self.writable.notify();
        lock(&self.writers).take(woken);
    }
}
