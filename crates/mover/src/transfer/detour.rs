//! Whether TCP would carry more than UDP does: tried beside it while a transfer runs.
//!
//! Some paths hold UDP back, or drop it beyond a rate, and let TCP pass. One lane over TCP beside the
//! others shows it: then all of them together carry more than UDP did alone. That this lane carries more than one over
//! UDP shows nothing. On a path that is full it takes from the others what it gets, and nothing is won.

use std::time::Duration;

use super::limit::Limit;

/// How much longer than anything else the path must have been the limit before TCP is tried.
const LIMITED_BEFORE_TRIAL: Duration = Duration::from_secs(6);
/// A connection over TCP must be there by then.
const CONNECT: Duration = Duration::from_secs(10);
/// Over so long the two are compared, once the first interval is over.
const SPAN: Duration = Duration::from_secs(4);
/// With the lane over TCP there must be so many times as much as before.
const WORTH: f64 = 1.5;
/// After a trial that was of no use the next one waits: doubled from the first to the second.
const REST: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(600));

/// What was seen in an interval.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// How long it was.
    pub interval: Duration,
    /// What limited the transfer.
    pub limit: Limit,
    /// What all lanes over UDP carried, bytes/s; none: there is none.
    pub udp: Option<f64>,
    /// What the lane on trial carried, bytes/s; none: there is none.
    pub tcp: Option<f64>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// One lane more, over TCP.
    Begin,
    /// It goes again.
    End,
    /// Everything over TCP; what was carried, bytes/s.
    Switch {
        /// By all lanes, over UDP, before the trial.
        before: f64,
        /// By all lanes during the trial.
        together: f64,
        /// By the lane over TCP.
        tcp: f64,
    },
}

/// Decides when to try, and what came of it.
#[derive(Debug)]
pub struct Detour {
    limited: Duration,
    rest: Duration,
    next_rest: Duration,
    /// What UDP carried in the last two intervals.
    before: [f64; 2],
    trial: Option<Trial>,
}

#[derive(Debug, Default)]
struct Trial {
    waited: Duration,
    /// The first interval tells of the beginning of a connection.
    settled: bool,
    span: Duration,
    udp: f64,
    tcp: f64,
}

impl Default for Detour {
    fn default() -> Self {
        let (limited, rest) = (Duration::ZERO, Duration::ZERO);
        Detour { limited, rest, next_rest: REST.0, before: [0.0; 2], trial: None }
    }
}

impl Detour {
    /// Whether a trial is going on.
    pub fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// What is to be done after an interval; none: nothing.
    pub fn next(&mut self, seen: Seen) -> Option<Step> {
        let Some(trial) = &mut self.trial else {
            if let Some(udp) = seen.udp {
                self.before = [self.before[1], udp];
            }
            self.rest = self.rest.saturating_sub(seen.interval);
            let by_path = matches!(seen.limit, Limit::NetworkRate | Limit::NetworkLoss);
            match seen.limit {
                _ if by_path && seen.udp.is_some() => self.limited += seen.interval,
                // Where blocks take longer than an interval, not every one tells something.
                Limit::Unknown => {}
                _ => self.limited = self.limited.saturating_sub(seen.interval),
            }
            if self.limited < LIMITED_BEFORE_TRIAL || !self.rest.is_zero() {
                return None;
            }
            self.trial = Some(Trial::default());
            return Some(Step::Begin);
        };
        let (Some(udp), Some(tcp)) = (seen.udp, seen.tcp) else {
            trial.waited += seen.interval;
            return if trial.waited >= CONNECT { self.in_vain() } else { None };
        };
        if !std::mem::replace(&mut trial.settled, true) {
            return None;
        }
        let seconds = seen.interval.as_secs_f64();
        trial.udp += udp * seconds;
        trial.tcp += tcp * seconds;
        trial.span += seen.interval;
        if trial.span < SPAN {
            return None;
        }
        let span = trial.span.as_secs_f64();
        let (udp, tcp) = (trial.udp / span, trial.tcp / span);
        let before = self.before.iter().sum::<f64>() / 2.0;
        let together = udp + tcp;
        if tcp <= udp || together < before * WORTH {
            return self.in_vain();
        }
        self.trial = None;
        self.limited = Duration::ZERO;
        Some(Step::Switch { before, together, tcp })
    }

    fn in_vain(&mut self) -> Option<Step> {
        self.trial = None;
        self.limited = Duration::ZERO;
        self.rest = self.next_rest;
        self.next_rest = (self.next_rest * 2).min(REST.1);
        Some(Step::End)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(2);

    /// When what was done, in steps, on a path that carries so much over UDP without and with a lane over TCP, and so
    /// much over that.
    fn steps(udp: [f64; 2], tcp: Option<f64>, limit: Limit, count: usize) -> Vec<(usize, Step)> {
        let mut detour = Detour::default();
        let mut done = Vec::new();
        for at in 0..count {
            let tcp = tcp.filter(|_| detour.is_trying());
            let udp = udp[usize::from(tcp.is_some())];
            let seen = Seen { interval: STEP, limit, udp: Some(udp), tcp };
            done.extend(detour.next(seen).map(|step| (at, step)));
            if matches!(done.last(), Some((_, Step::Switch { .. }))) {
                break;
            }
        }
        done
    }

    #[test]
    fn where_tcp_carries_more_everything_goes_there() {
        let switch = Step::Switch { before: 10.0, together: 15.0, tcp: 8.0 };
        let expected = [(2, Step::Begin), (5, switch)];
        assert_eq!(steps([10.0, 7.0], Some(8.0), Limit::NetworkLoss, 20), expected);
        let nothing_passes = Step::Switch { before: 0.0, together: 1.0, tcp: 1.0 };
        let done = steps([0.0; 2], Some(1.0), Limit::NetworkRate, 20);
        assert_eq!(done.last(), Some(&(5, nothing_passes)));
    }

    #[test]
    fn on_a_full_path_tcp_only_takes_from_the_others() {
        let done = steps([10.0, 1.0], Some(9.0), Limit::NetworkRate, 20);
        assert_eq!(done, [(2, Step::Begin), (5, Step::End)]);
    }

    #[test]
    fn a_path_that_has_become_faster_for_both_is_no_reason() {
        let done = steps([10.0, 20.0], Some(15.0), Limit::NetworkRate, 20);
        assert_eq!(done, [(2, Step::Begin), (5, Step::End)]);
    }

    #[test]
    fn a_path_that_is_so_slow_that_blocks_take_longer_than_intervals_is_compared() {
        let mut detour = Detour::default();
        let limits = [Limit::Unknown, Limit::Unknown, Limit::NetworkLoss];
        let begun = limits.iter().cycle().take(9).find_map(|limit| {
            let seen = Seen { interval: STEP, limit: *limit, udp: Some(1.0), tcp: None };
            detour.next(seen)
        });
        assert_eq!(begun, Some(Step::Begin));
    }

    #[test]
    fn elsewhere_it_is_tried_rarely() {
        for tcp in [Some(4.0), Some(0.0), None] {
            let done = steps([10.0; 2], tcp, Limit::NetworkRate, 300);
            let begun: Vec<usize> =
                done.iter().filter(|(_, step)| *step == Step::Begin).map(|(at, _)| *at).collect();
            assert_eq!(done.len(), 2 * begun.len(), "each ends: {done:?}");
            assert!((3..=5).contains(&begun.len()), "{begun:?}");
            assert!(begun.windows(2).all(|two| two[1] - two[0] > 30), "{begun:?}");
        }
    }

    #[test]
    fn it_is_not_tried_where_the_path_is_not_the_limit() {
        for limit in [Limit::SourceDisk, Limit::RateLimit, Limit::SenderProcessor, Limit::Unknown] {
            assert_eq!(steps([10.0; 2], Some(100.0), limit, 100), []);
        }
        let mut detour = Detour::default();
        for at in 0..100 {
            let limit = if at % 2 == 0 { Limit::SourceDisk } else { Limit::NetworkRate };
            let seen = Seen { interval: STEP, limit, udp: Some(1.0), tcp: None };
            assert_eq!(detour.next(seen), None, "now and then is not all the time");
        }
    }
}
