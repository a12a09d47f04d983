//! What a source of TCP connections is to send.

use core::time::Duration;

use farhaul_base::{Rng, Time};

/// The work of a source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// One connection.
    Bulk {
        /// When it begins.
        start: Time,
        /// From here on nothing new is sent.
        stop: Time,
        /// How many bytes; none: without end.
        bytes: Option<u64>,
    },
    /// Short transfers that arrive in a Poisson process, each a connection of its own from slow
    /// start.
    Arrivals {
        /// None arrives before.
        start: Time,
        /// None arrives from here on; those that have are finished.
        stop: Time,
        /// Transfers a second, on average.
        rate: f64,
        /// Bytes of each.
        bytes: u64,
        /// Transfers at the same time at most; those that arrive beyond are refused.
        most: usize,
    },
}

/// What has become of a source's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Begun.
    pub begun: u64,
    /// Not begun because there were too many.
    pub refused: u64,
    /// Finished: everything is acknowledged.
    pub completed: u64,
    /// Bytes of the finished ones.
    pub bytes: u64,
    /// Sum of the times from SYN to last ACK of the finished ones.
    pub time: Duration,
}

impl Transfers {
    /// Mean time from SYN to last ACK of the finished ones; zero without any.
    pub fn mean_time(&self) -> Duration {
        let nanos = self.time.as_nanos() / u128::from(self.completed.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// When connections begin.
#[derive(Clone, Debug)]
pub struct Arrivals {
    workload: Workload,
    rng: Rng,
    /// When the next one does, nanoseconds.
    next: Option<f64>,
}

impl Arrivals {
    /// Those of `workload`.
    pub fn new(workload: Workload, mut rng: Rng) -> Self {
        let next = match workload {
            Workload::Bulk { start, stop, .. } => (start < stop).then(|| start.as_nanos() as f64),
            Workload::Arrivals { start, rate, .. } => {
                (rate > 0.0).then(|| start.as_nanos() as f64 + rng.exponential(1e9 / rate))
            }
        };
        let mut arrivals = Arrivals { workload, rng, next };
        arrivals.end();
        arrivals
    }

    /// When the next connection begins.
    pub fn next(&self) -> Option<Time> {
        self.next.map(|at| Time::from_nanos(at as u64))
    }

    /// Takes the next connection if it is due: the bytes it is to carry, none for without end.
    pub fn due(&mut self, now: Time) -> Option<Option<u64>> {
        let at = self.next.filter(|at| *at as u64 <= now.as_nanos())?;
        match self.workload {
            Workload::Bulk { bytes, .. } => {
                self.next = None;
                Some(bytes)
            }
            Workload::Arrivals { rate, bytes, .. } => {
                self.next = Some(at + self.rng.exponential(1e9 / rate));
                self.end();
                Some(Some(bytes))
            }
        }
    }

    fn end(&mut self) {
        if let Workload::Arrivals { stop, .. } = self.workload {
            self.next = self.next.filter(|at| (*at as u64) < stop.as_nanos());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poisson_process() {
        let workload = Workload::Arrivals {
            start: Time::from_secs(1),
            stop: Time::from_secs(101),
            rate: 50.0,
            bytes: 1_000,
            most: 9,
        };
        let mut arrivals = Arrivals::new(workload, Rng::new(3));
        // How many arrive in each second: mean and variance are equal.
        let mut counts = [0.0f64; 102];
        while let Some(at) = arrivals.next() {
            assert_eq!(arrivals.due(Time::from_nanos(at.as_nanos() - 1)), None);
            assert_eq!(arrivals.due(at), Some(Some(1_000)));
            counts[at.as_secs_f64() as usize] += 1.0;
        }
        assert_eq!((counts[0], counts[101]), (0.0, 0.0));
        let mean = counts.iter().sum::<f64>() / 100.0;
        let variance = counts[1..101].iter().map(|n| (n - mean) * (n - mean)).sum::<f64>() / 100.0;
        assert!((47.0..53.0).contains(&mean), "{mean}");
        assert!((30.0..75.0).contains(&variance), "{variance}");
    }

    #[test]
    fn one_connection() {
        let (start, stop) = (Time::from_secs(2), Time::from_secs(9));
        let workload = Workload::Bulk { start, stop, bytes: None };
        let mut arrivals = Arrivals::new(workload, Rng::new(3));
        assert_eq!(arrivals.next(), Some(start));
        assert_eq!(arrivals.due(start), Some(None));
        assert_eq!((arrivals.due(stop), arrivals.next()), (None, None));
    }
}
