//! Acknowledgements that the peer cannot have sent.
//!
//! A peer that keeps missing what was acknowledged in its name did not send that acknowledgement, and
//! what it misses is not kept any more: such a connection cannot go on, and should not look as if it
//! could. A single report may just be late, and a path that reorders brings late ones all the time, each
//! of another packet: what counts is that one packet stays missing. That later packets are acknowledged
//! proves nothing of it: those acknowledgements may be forged as well.
//!
//! What is missing behind all that has come, the peer does not know of and reports no loss of. It tells where
//! what has come ends: the number of its own acknowledgements, which stands still and which a farhaul peer
//! repeats on an idle connection. An acknowledgement before what is acknowledged already is therefore a report
//! that its packet is missing.

use core::time::Duration;

use farhaul_base::Time;
use farhaul_wire::{LossRange, Seq};

/// After this time in which the peer reports one packet as missing, the packet is taken for missing: late reports
/// would have to be late by as much. It is the least; longer round trips need more.
pub const DISOWNED_AFTER: Duration = Duration::from_secs(5);

/// So many packets are watched. Those that were sent again before the ACK was forged may come, and others then
/// stay missing.
const WATCHED: usize = 16;

/// What was acknowledged in the peer's name and is missing there by its reports.
#[derive(Debug, Default)]
pub struct Disowned(Vec<Missing>);

#[derive(Clone, Copy, Debug)]
struct Missing {
    packet: Seq,
    /// When it was first reported, and last.
    since: Time,
    told: Time,
}

impl Missing {
    fn is_in(&self, range: LossRange) -> bool {
        self.packet.since(range.first) >= 0 && range.last.since(self.packet) >= 0
    }
}

impl Disowned {
    /// The peer has reported these losses, where everything before `una` was acknowledged. Whether
    /// one such packet has been missing for `timeout`.
    pub fn report(
        &mut self,
        now: Time,
        una: Seq,
        ranges: impl Iterator<Item = LossRange> + Clone,
        timeout: Duration,
    ) -> bool {
        // A report need not name everything. One not named for that time has come.
        self.0.retain(|missing| now - missing.told < timeout);
        let below = ranges.filter(|range| range.last.since(una) < 0);
        // Before others may take their places.
        for range in below.clone() {
            for missing in self.0.iter_mut().filter(|missing| missing.is_in(range)) {
                missing.told = now;
                if now - missing.since >= timeout {
                    return true;
                }
            }
        }
        for range in below {
            if !self.0.iter().any(|missing| missing.is_in(range)) {
                self.watch(Missing { packet: range.first, since: now, told: now });
            }
        }
        false
    }

    /// In place of the one that has not been named for longest, if there is no room.
    fn watch(&mut self, missing: Missing) {
        if self.0.len() < WATCHED {
            self.0.push(missing);
        } else if let Some(oldest) = self.0.iter_mut().min_by_key(|missing| missing.told)
            && oldest.told < missing.told
        {
            *oldest = missing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Time {
        Time::from_secs(seconds)
    }

    fn range(first: u32, last: u32) -> LossRange {
        LossRange { first: Seq::new(first), last: Seq::new(last) }
    }

    #[test]
    fn a_packet_that_stays_missing_shows_a_forged_ack_whatever_is_acknowledged_meanwhile() {
        let mut disowned = Disowned::default();
        for second in 0..10 {
            // The ACK number advances all the time.
            let una = Seq::new(1000 + 100 * second as u32);
            let ranges = [range(5, 7), range(5000, 5001)].into_iter();
            assert!(!disowned.report(at(second), una, ranges, TIMEOUT));
        }
        assert!(disowned.report(
            at(10),
            Seq::new(3000),
            [range(6, 6), range(5, 5)].into_iter(),
            TIMEOUT
        ));
    }

    #[test]
    fn late_reports_of_ever_other_packets_show_nothing() {
        let mut disowned = Disowned::default();
        for second in 0..100 {
            let packet = 10 * second as u32;
            let ranges = [range(packet, packet)].into_iter();
            assert!(
                !disowned.report(at(second), Seq::new(packet + 5), ranges, TIMEOUT),
                "{second}"
            );
        }
    }

    #[test]
    fn one_that_stays_missing_is_found_among_many_that_come() {
        let mut disowned = Disowned::default();
        let found = (0..20).find(|second| {
            // Twenty are late in each second, and one of the first second is named again each time.
            let late = (0..20).map(|n| range(1_000 * second + 2 * n, 1_000 * second + 2 * n));
            let ranges = late.chain([range(4, 4)]);
            disowned.report(at(u64::from(*second)), Seq::new(1_000_000), ranges, TIMEOUT)
        });
        assert_eq!(found, Some(10));
    }

    #[test]
    fn what_is_in_flight_may_be_missing_for_long() {
        let mut disowned = Disowned::default();
        for second in 0..100 {
            let ranges = [range(10, 12)].into_iter();
            assert!(!disowned.report(at(second), Seq::new(9), ranges, TIMEOUT));
        }
    }
}
