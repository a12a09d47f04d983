//! What takes long, for other threads than those of messages and lanes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Jobs in order.
#[derive(Debug)]
pub(super) struct Queue<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<J> {
    ready: VecDeque<J>,
    /// Those that are due later; few.
    later: Vec<(Instant, J)>,
    stopped: bool,
}

impl<J> Default for Queue<J> {
    fn default() -> Self {
        let state = State { ready: VecDeque::new(), later: Vec::new(), stopped: false };
        Queue { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<J> Queue<J> {
    /// Adds a job; after the end it is dropped.
    pub(super) fn push(&self, job: J) {
        let mut state = self.lock();
        if !state.stopped {
            state.ready.push_back(job);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Adds a job that is due at a time.
    pub(super) fn push_later(&self, at: Instant, job: J) {
        let mut state = self.lock();
        if !state.stopped {
            state.later.push((at, job));
            drop(state);
            self.changed.notify_one();
        }
    }

    /// No job is begun from now on.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        let jobs = (std::mem::take(&mut state.ready), std::mem::take(&mut state.later));
        drop(state);
        drop(jobs);
        self.changed.notify_all();
    }

    /// Waits for the next job; `None` at the end.
    pub(super) fn next(&self) -> Option<J> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(job) = state.ready.pop_front() {
                return Some(job);
            }
            let now = Instant::now();
            if let Some(due) = state.later.iter().position(|(at, _)| *at <= now) {
                return Some(state.later.swap_remove(due).1);
            }
            state = match state.later.iter().map(|(at, _)| *at).min() {
                Some(at) => {
                    let waited = self.changed.wait_timeout(state, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads that sinks may have beyond those that they need. A server has all its sinks share some, so that clients
/// do not get as many as they begin copies.
#[derive(Debug)]
pub struct Helpers(AtomicUsize);

impl Default for Helpers {
    /// Without a limit.
    fn default() -> Self {
        Helpers::new(usize::MAX)
    }
}

impl Helpers {
    /// At most so many at a time.
    pub fn new(most: usize) -> Self {
        Helpers(AtomicUsize::new(most))
    }

    /// One more, if there may be one, as long as what this returns is there.
    pub(super) fn take(&self) -> Option<Helper<'_>> {
        let one = |left: usize| left.checked_sub(1);
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, one);
        taken.ok().map(|_| Helper(&self.0))
    }
}

/// A thread's share of [`Helpers`].
#[derive(Debug)]
pub(super) struct Helper<'a>(&'a AtomicUsize);

impl Drop for Helper<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn helpers_are_bounded_and_come_back() {
        let helpers = Helpers::new(2);
        let (one, two) = (helpers.take(), helpers.take());
        assert!(one.is_some() && two.is_some() && helpers.take().is_none());
        drop(one);
        assert!(helpers.take().is_some());
    }

    #[test]
    fn jobs_come_in_order_and_late_ones_when_due() {
        let queue = Queue::default();
        let start = Instant::now();
        queue.push_later(start + Duration::from_millis(30), 3);
        queue.push(1);
        queue.push(2);
        assert_eq!((queue.next(), queue.next()), (Some(1), Some(2)));
        assert_eq!(queue.next(), Some(3));
        assert!(start.elapsed() >= Duration::from_millis(30));
        queue.push_later(Instant::now() + Duration::from_secs(3600), 4);
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| queue.next());
            queue.stop();
            assert_eq!(waiting.join().unwrap(), None);
        });
        queue.push(5);
        assert_eq!(queue.next(), None, "nothing after the end");
    }
}
