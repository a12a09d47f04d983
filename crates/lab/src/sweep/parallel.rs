//! Work on all processors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Does `work` with each of `tasks`, on so many threads; what each has given, in their order. None if `stop`
/// was set meanwhile, or `work` gives none.
pub fn in_parallel<T: Sync, R: Send>(
    tasks: &[T],
    jobs: usize,
    stop: &AtomicBool,
    work: impl Fn(&T) -> Option<R> + Sync,
) -> Option<Vec<R>> {
    // The first that no thread has taken, and what was given, with the task's place.
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let run = || {
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(index) else { return };
            let Some(result) = work(task) else { return };
            results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.clamp(1, tasks.len().max(1)) {
            scope.spawn(run);
        }
        run();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    if stop.load(Ordering::Relaxed) || results.len() < tasks.len() {
        return None;
    }
    results.sort_by_key(|(index, _)| *index);
    Some(results.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_their_tasks() {
        let tasks: Vec<u64> = (0..100).collect();
        let go = AtomicBool::new(false);
        for jobs in [0, 1, 3, 200] {
            let squares = in_parallel(&tasks, jobs, &go, |task| Some(task * task));
            assert_eq!(squares.expect("all"), tasks.iter().map(|t| t * t).collect::<Vec<_>>());
        }
        assert_eq!(in_parallel(&[] as &[u64], 2, &go, |task| Some(*task)), Some(Vec::new()));
    }

    #[test]
    fn what_is_stopped_or_fails_gives_nothing() {
        let stop = AtomicBool::new(false);
        assert_eq!(in_parallel(&[1, 2, 3], 2, &stop, |task| (*task != 2).then_some(*task)), None);
        let stopping = |task: &i32| {
            stop.store(true, Ordering::Relaxed);
            Some(*task)
        };
        assert_eq!(in_parallel(&[1, 2, 3], 1, &stop, stopping), None);
    }
}
