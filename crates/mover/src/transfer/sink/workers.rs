//! Threads for what takes long, so that messages never wait for it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Jobs in order, for a few threads.
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
    fn next(&self) -> Option<J> {
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

/// Starts `count` threads that do what comes through `queue`, until it is stopped.
pub(super) fn start<J: Send + 'static>(
    queue: &Arc<Queue<J>>,
    count: usize,
    run: impl Fn(J) + Clone + Send + 'static,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    (0..count)
        .map(|_| {
            let (queue, run) = (Arc::clone(queue), run.clone());
            thread::Builder::new().name("sink worker".into()).spawn(move || {
                while let Some(job) = queue.next() {
                    run(job);
                }
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn jobs_are_done_in_order_and_late_ones_when_due() {
        let queue = Arc::new(Queue::default());
        let (done, results) = mpsc::channel();
        let start_time = Instant::now();
        queue.push_later(start_time + Duration::from_millis(30), 3);
        queue.push(1);
        queue.push(2);
        let run = move |job| done.send((job, start_time.elapsed())).unwrap();
        let threads = start(&queue, 1, run).unwrap();
        assert_eq!(results.recv().unwrap().0, 1);
        assert_eq!(results.recv().unwrap().0, 2);
        let (job, at) = results.recv().unwrap();
        assert!(job == 3 && at >= Duration::from_millis(30));
        queue.push_later(Instant::now() + Duration::from_secs(3600), 4);
        queue.stop();
        queue.push(5);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(results.recv().is_err(), "nothing after the end");
    }
}
