//! How busy this host's processors are.

use std::fs;

/// The share of the processors in use, between two looks.
#[derive(Debug, Default)]
pub struct Processors {
    busy: u64,
    all: u64,
}

impl Processors {
    /// Begins now.
    pub fn new() -> Self {
        let mut processors = Processors::default();
        processors.busy();
        processors
    }

    /// The share in use since the last look, 0 to 1; 0 where the system does not tell.
    pub fn busy(&mut self) -> f64 {
        let Some((busy, all)) = fs::read_to_string("/proc/stat").ok().and_then(|text| times(&text))
        else {
            return 0.0;
        };
        let share = match all.saturating_sub(self.all) {
            0 => 0.0,
            passed => busy.saturating_sub(self.busy) as f64 / passed as f64,
        };
        (self.busy, self.all) = (busy, all);
        share.clamp(0.0, 1.0)
    }
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
    fn idle_time_is_told_from_the_rest() {
        let text = "cpu  100 10 50 800 40 5 15 0 7 0\ncpu0 1 2 3\n";
        assert_eq!(times(text), Some((180, 1020)));
        for bad in ["", "cpu", "cpu  1 2", "intr 5"] {
            assert_eq!(times(bad), None, "{bad}");
        }
    }
}
