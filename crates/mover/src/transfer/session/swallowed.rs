//! Whether what was acknowledged on a lane has arrived.

use std::time::{Duration, Instant};

use crate::transfer::link::LinkFacts;

/// Reports come once a second. After a longer pause the path may have been down for all connections, which
/// says nothing about one.
const GAP: Duration = Duration::from_secs(3);
/// A lane that is slow by itself is given so many times the longest pause it has come through.
const PAUSES: u32 = 3;

/// What the sender's reports on a lane and what has come over it say together.
#[derive(Debug, Default)]
pub(super) struct Watch {
    behind: Option<Behind>,
    /// The longest time for which nothing came of what was under way, and after which something came.
    longest: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Behind {
    arrived: u64,
    since: Instant,
    reported: Instant,
}

impl Watch {
    /// The peer's transport takes `acknowledged` for arrived. Returns whether it will never come: the
    /// connection is to be replaced.
    ///
    /// Where the transport acknowledges only what has arrived ([`LinkFacts::lag`] is zero), that is sure as soon as
    /// less has come. Where something between the two sides may take bytes first, as a buffer of the kernel or a
    /// proxy, nothing must have come for that time, with this side waiting for it and reports still coming.
    pub(super) fn report(&mut self, now: Instant, acknowledged: u64, facts: &LinkFacts) -> bool {
        let Some(arrived) = facts.arrived else { return false };
        if arrived >= acknowledged {
            self.behind = None;
            return false;
        }
        if facts.lag.is_zero() {
            return true;
        }
        let anew = Behind { arrived, since: now, reported: now };
        let behind = self.behind.get_or_insert(anew);
        if behind.arrived != arrived {
            self.longest = self.longest.max(now.saturating_duration_since(behind.since));
            *behind = anew;
        } else if now.saturating_duration_since(behind.reported) > GAP {
            *behind = anew;
        }
        behind.reported = now;
        let lag = facts.lag.max(self.longest * PAUSES);
        now.saturating_duration_since(behind.since) >= lag && facts.waited >= lag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG: Duration = Duration::from_secs(5);

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn facts(arrived: u64, waited: u64, lag: Duration) -> LinkFacts {
        LinkFacts { arrived: Some(arrived), waited: seconds(waited), lag, ..LinkFacts::default() }
    }

    /// The second, of those from 1 on, at which the connection is replaced, if it is. `each` tells of each
    /// what was acknowledged, what has come, and for how long this side has been waiting; none: no report.
    fn replaced(each: impl Fn(u64) -> Option<(u64, u64, u64)>) -> Option<u64> {
        let (begun, mut watch) = (Instant::now(), Watch::default());
        (1..200).find(|second| {
            each(*second).is_some_and(|(acknowledged, arrived, waited)| {
                watch.report(begun + seconds(*second), acknowledged, &facts(arrived, waited, LAG))
            })
        })
    }

    #[test]
    fn what_has_not_come_though_acknowledged_is_forged_at_once_where_nothing_is_taken_early() {
        let mut watch = Watch::default();
        let now = Instant::now();
        assert!(!watch.report(now, 7, &facts(7, 100, Duration::ZERO)));
        assert!(watch.report(now, 8, &facts(7, 0, Duration::ZERO)));
    }

    #[test]
    fn a_connection_that_brings_nothing_more_of_what_was_taken_is_replaced() {
        // However much more is acknowledged meanwhile.
        assert_eq!(replaced(|at| Some((1000 + at * 100, 900, at))), Some(6));
    }

    #[test]
    fn a_proxy_that_is_behind_and_delivers_is_left_alone() {
        // Megabytes behind, and a little each second; or every fourth.
        assert_eq!(replaced(|at| Some((10_000_000, at, 1))), None);
        assert_eq!(replaced(|at| Some((10_000_000, at / 4, at % 4))), None);
    }

    #[test]
    fn a_connection_that_has_had_long_pauses_may_have_another() {
        // Pauses of 4 s, then one of 11 s; and none that ends.
        let paused = |at: u64| if at <= 20 { at / 4 } else { at.saturating_sub(12).max(5) };
        assert_eq!(replaced(|at| Some((1000, paused(at), 11))), None);
        assert_eq!(replaced(|at| Some((1000, (at / 4).min(5), at.saturating_sub(20)))), Some(32));
    }

    #[test]
    fn a_side_that_does_not_read_is_not_waiting() {
        // Its disk hangs: the bytes are in its own buffers.
        assert_eq!(replaced(|_| Some((1000, 10, 0))), None);
        // It reads again, and nothing comes.
        assert_eq!(replaced(|at| Some((1000, 10, at.saturating_sub(60)))), Some(65));
    }

    #[test]
    fn what_was_written_just_now_is_under_way() {
        // For a minute there was nothing to do.
        let acknowledged = |at: u64| if at < 60 { 10 } else { 20 };
        let arrived = |at: u64| if at < 63 { 10 } else { 20 };
        assert_eq!(replaced(|at| Some((acknowledged(at), arrived(at), at))), None);
    }

    #[test]
    fn an_outage_of_the_whole_path_says_nothing_about_a_connection() {
        // Reports do not come either; afterwards it takes the connection three seconds to begin anew.
        let arrived = |at: u64| if at < 18 { 10 } else { 10 + at };
        let each = |at: u64| (!(2..15).contains(&at)).then(|| (1000, arrived(at), at));
        assert_eq!(replaced(each), None);
    }

    #[test]
    fn a_transport_that_does_not_tell_is_believed() {
        let facts = LinkFacts { arrived: None, ..facts(0, 100, Duration::ZERO) };
        assert!(!Watch::default().report(Instant::now(), 8, &facts));
    }
}
