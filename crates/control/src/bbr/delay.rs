//! The queue that a probe makes, seen in round trips. The least of several counts, which noise and single
//! late packets do not reach.

use core::time::Duration;

/// Samples whose least is compared.
const SAMPLES: u32 = 16;

#[derive(Debug)]
pub(super) struct Delay {
    /// The least of the round trip that runs, and of the one that has ended.
    running: Duration,
    ended: Duration,
    /// The least while the path was filled for a probe.
    before: Duration,
    refilling: bool,
    /// Of the samples that are being taken: how many, and the least; and the least of the last that
    /// were taken whole.
    taken: u32,
    least: Duration,
    recent: Option<Duration>,
}

impl Default for Delay {
    fn default() -> Self {
        Delay {
            running: Duration::MAX,
            ended: Duration::MAX,
            before: Duration::MAX,
            refilling: false,
            taken: 0,
            least: Duration::MAX,
            recent: None,
        }
    }
}

impl Delay {
    pub fn update(&mut self, rtt: Option<Duration>, round_ends: bool) {
        if let Some(rtt) = rtt {
            self.running = self.running.min(rtt);
            self.least = self.least.min(rtt);
            self.taken += 1;
            if self.taken == SAMPLES {
                self.recent = Some(self.least);
                (self.taken, self.least) = (0, Duration::MAX);
            }
            if self.refilling {
                self.before = self.before.min(rtt);
            }
        }
        if round_ends {
            self.ended = core::mem::replace(&mut self.running, Duration::MAX);
        }
    }

    /// The path is filled for a probe, which is to begin after this.
    pub fn begin_refill(&mut self) {
        (self.refilling, self.before) = (true, Duration::MAX);
    }

    pub fn begin_probe(&mut self) {
        self.refilling = false;
        (self.taken, self.least, self.recent) = (0, Duration::MAX, None);
    }

    /// The round trip that ended was longer than `least` by the share `queue` at any time.
    pub fn round_queued(&self, least: Duration, queue: f64) -> bool {
        self.ended != Duration::MAX && longer(self.ended, least, queue)
    }

    /// The probe has made the round trip longer by the share `queue`.
    pub fn probe_queues(&self, queue: f64) -> bool {
        let known = self.before != Duration::MAX;
        known && self.recent.is_some_and(|recent| longer(recent, self.before, queue))
    }
}

fn longer(rtt: Duration, than: Duration, queue: f64) -> bool {
    rtt.as_secs_f64() > (1.0 + queue) * than.as_secs_f64()
}
