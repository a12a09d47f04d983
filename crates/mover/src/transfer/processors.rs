//! How short of processor time this process is.

use std::collections::HashMap;
use std::fs;
use std::time::Instant;

/// By so much threads that give way are nicer.
#[cfg(target_os = "linux")]
const LATER: i32 = 5;

/// Work of this thread gives way to threads that move packets: where processors are short, a datagram
/// that waits looks like a path that is full, and the control law slows down. For threads that read,
/// hash, write and wait in queues; there is no way back, so it is called within threads of their own.
pub(super) fn give_way() {
    // On Linux a priority is one of a thread. Elsewhere, or where it may not be: as it was.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(LATER);
}

/// How much of its time the busiest thread of this process wanted a processor, between two looks: a
/// transfer is a chain of threads, and the slowest holds up the others, however many processors there
/// are. Time in which it had to wait for one counts.
#[derive(Debug)]
pub struct Processors {
    at: Instant,
    /// Nanoseconds that each thread has run, and waited to.
    threads: HashMap<u64, (u64, u64)>,
    /// Where the system does not tell of threads: time in use of all processors, and all time.
    host: (u64, u64),
}

impl Processors {
    /// Begins now.
    pub fn new() -> Self {
        let mut processors =
            Processors { at: Instant::now(), threads: HashMap::new(), host: (0, 0) };
        processors.busy();
        processors
    }

    /// The share since the last look, 0 to 1; 0 where the system does not tell.
    pub fn busy(&mut self) -> f64 {
        let passed = std::mem::replace(&mut self.at, Instant::now()).elapsed();
        let now = threads();
        if now.is_empty() {
            return self.busy_host();
        }
        let spent = now.iter().map(|(thread, (run, wait))| {
            let before = self.threads.get(thread).copied().unwrap_or_default();
            wanted(run.saturating_sub(before.0), wait.saturating_sub(before.1))
        });
        let share = spent.max().unwrap_or(0) as f64 / passed.as_nanos().max(1) as f64;
        self.threads = now;
        share.clamp(0.0, 1.0)
    }

    fn busy_host(&mut self) -> f64 {
        let Some((busy, all)) = fs::read_to_string("/proc/stat").ok().and_then(|text| times(&text))
        else {
            return 0.0;
        };
        let share = match all.saturating_sub(self.host.1) {
            0 => 0.0,
            passed => busy.saturating_sub(self.host.0) as f64 / passed as f64,
        };
        self.host = (busy, all);
        share.clamp(0.0, 1.0)
    }
}

impl Default for Processors {
    fn default() -> Self {
        Self::new()
    }
}

/// Time for which a thread wanted a processor. One that is woken often and computes little waits, too,
/// when the machine is busy, and nothing would be faster without that: waiting counts up to a multiple
/// of computing.
fn wanted(run: u64, wait: u64) -> u64 {
    run.saturating_add(wait.min(run.saturating_mul(10)))
}

/// The time that each thread of this process has run, and waited to, ns; none where nobody tells.
fn threads() -> HashMap<u64, (u64, u64)> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return HashMap::new() };
    tasks
        .flatten()
        .filter_map(|task| {
            let thread = task.file_name().to_str()?.parse().ok()?;
            // One that has just ended does not matter any more.
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            Some((thread, run_and_wait(&text)?))
        })
        .collect()
}

/// Time running and time waiting for a processor (proc-pid schedstat).
fn run_and_wait(text: &str) -> Option<(u64, u64)> {
    let mut times = text.split_ascii_whitespace().map(str::parse::<u64>);
    Some((times.next()?.ok()?, times.next()?.ok()?))
}

/// Time in use and all time, from the first line of `/proc/stat` (proc(5)).
fn times(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let times: Vec<u64> = line.split_whitespace().map_while(|time| time.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guests are in user already.
    let all: u64 = times.iter().take(8).sum();
    let idle = times.get(3)? + times.get(4)?;
    Some((all.checked_sub(idle)?, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_only_computes_is_seen() {
        if threads().is_empty() {
            eprintln!("skipped: this system does not tell of threads");
            return;
        }
        let mut processors = Processors::new();
        let (begun, mut sum) = (Instant::now(), 0_u64);
        while begun.elapsed().as_millis() < 100 {
            sum = std::hint::black_box(sum + 1);
        }
        // Whatever else the machine does, the time went by running or waiting to.
        assert!(processors.busy() > 0.7);
    }

    #[test]
    fn waiting_for_a_processor_counts() {
        assert_eq!(run_and_wait("100 20 3\n"), Some((100, 20)));
        for bad in ["", "1", "x 2 3", "1 y"] {
            assert_eq!(run_and_wait(bad), None, "{bad}");
        }
        assert_eq!(wanted(10, 80), 90, "it was starved");
        assert_eq!(wanted(1, 80), 11, "it had next to nothing to do");
    }

    #[test]
    fn idle_time_is_told_from_the_rest() {
        let text = "cpu  100 10 50 800 40 5 15 0 7 0\ncpu0 1 2 3\n";
        assert_eq!(times(text), Some((180, 1020)));
        for bad in ["", "cpu", "cpu  1 2", "intr 5"] {
            assert_eq!(times(bad), None, "{bad}");
        }
    }
}
