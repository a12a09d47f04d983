//! How many lanes: found out while the transfer runs.

use std::time::Duration;

use super::limit::Limit;

/// The most lanes that are opened without being asked for.
pub const MOST: u32 = 8;
/// A trial that brings less than this much more was none.
const WORTH: f64 = 1.10;
/// After a trial that was of no use the next one waits.
const REST: Duration = Duration::from_secs(20);

/// Tries more lanes where that may help, and keeps them where it did.
#[derive(Debug)]
pub struct Lanes {
    wanted: u32,
    /// Threads that this host can run at once.
    processors: u32,
    /// What was moved in the interval before, bytes/s.
    last: f64,
    trial: Option<Trial>,
    rest: Duration,
}

#[derive(Debug)]
struct Trial {
    before: u32,
    rate: f64,
    /// The first interval after a change tells of both.
    settled: bool,
}

impl Lanes {
    /// Begins with so many.
    pub fn new(lanes: u32, processors: u32) -> Self {
        Lanes { wanted: lanes, processors, last: 0.0, trial: None, rest: Duration::ZERO }
    }

    /// What is to be done after an interval in which so much was moved, bytes/s; none: as before.
    pub fn next(&mut self, interval: Duration, rate: f64, limit: Limit) -> Option<u32> {
        let grows = rate > std::mem::replace(&mut self.last, rate) * WORTH;
        let by_path =
            matches!(limit, Limit::NetworkRate | Limit::NetworkLoss | Limit::ReceiverWindow);
        if let Some(trial) = &mut self.trial {
            if !std::mem::replace(&mut trial.settled, true) {
                return None;
            }
            let (before, helped) = (trial.before, rate > trial.rate * WORTH);
            self.trial = None;
            if helped {
                return self.more(rate, limit);
            }
            self.wanted = before;
            self.rest = REST;
            return Some(before);
        }
        self.rest = self.rest.saturating_sub(interval);
        // While connections still find out what the path carries, any number of them seems to help.
        if grows && by_path || !self.rest.is_zero() {
            return None;
        }
        self.more(rate, limit)
    }

    fn more(&mut self, rate: f64, limit: Limit) -> Option<u32> {
        let most = match limit {
            // The path may treat several connections better, and their windows add up.
            Limit::NetworkRate | Limit::NetworkLoss | Limit::ReceiverWindow => MOST,
            // Each lane hashes and seals on a thread of its own; disks like company, too.
            Limit::SenderProcessor | Limit::ReceiverProcessor => MOST.min(self.processors),
            Limit::SourceDisk | Limit::DestinationDisk => MOST,
            Limit::Unknown | Limit::RateLimit => return None,
        };
        if self.wanted >= most || rate <= 0.0 {
            return None;
        }
        self.trial = Some(Trial { before: self.wanted, rate, settled: false });
        self.wanted = (self.wanted * 2).min(most);
        Some(self.wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(2);

    #[test]
    fn lanes_that_help_are_kept_and_others_are_not() {
        let mut lanes = Lanes::new(2, 16);
        // The path gives each connection 10, up to 40 in all.
        let rate = |lanes: u32| f64::from(lanes.min(4)) * 10.0;
        let mut now = 2;
        let mut most = now;
        let mut seen = Vec::new();
        for _ in 0..30 {
            if let Some(wanted) = lanes.next(STEP, rate(now), Limit::NetworkRate) {
                now = wanted;
                most = most.max(now);
                seen.push(now);
            }
        }
        assert_eq!(now, 4, "{seen:?}");
        assert_eq!(most, MOST);
        assert!(seen.len() < 10, "it does not try all the time: {seen:?}");
    }

    #[test]
    fn nothing_is_tried_while_the_rate_still_grows() {
        let mut lanes = Lanes::new(2, 16);
        let rates = [10.0, 15.0, 18.0, 20.0, 20.0, 20.0];
        let wanted = rates.map(|rate| lanes.next(STEP, rate, Limit::NetworkRate));
        assert_eq!(
            wanted,
            [None, None, None, None, Some(4), None],
            "from 18 to 20 is more than a tenth"
        );
    }

    #[test]
    fn no_more_lanes_than_processors_where_those_are_short() {
        let mut lanes = Lanes::new(2, 2);
        assert_eq!(lanes.next(STEP, 10.0, Limit::SenderProcessor), None);
        assert_eq!(lanes.next(STEP, 10.0, Limit::RateLimit), None);
        assert_eq!(lanes.next(STEP, 10.0, Limit::NetworkLoss), Some(4));
    }
}
