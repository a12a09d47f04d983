//! Acknowledgements that the peer cannot have sent.
//!
//! A peer that keeps missing what was acknowledged in its name did not send that acknowledgement, and
//! what it misses is not kept any more: such a connection cannot go on, and should not look as if it
//! could. A single report may just be late, and a path that reorders brings late ones all the time, each
//! of another packet: what counts is that one packet stays missing. That later packets are acknowledged
//! proves nothing of it: those acknowledgements may be forged as well.

use core::time::Duration;

use farhaul_base::Time;
use farhaul_wire::{LossRange, Seq};

/// What was acknowledged in the peer's name and is missing there by its reports.
#[derive(Debug, Default)]
pub struct Disowned(Option<Missing>);

#[derive(Clone, Copy, Debug)]
struct Missing {
    packet: Seq,
    /// When it was first reported, and last.
    since: Time,
    told: Time,
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
        let mut below = ranges.filter(|range| range.last.since(una) < 0);
        if let Some(missing) = &mut self.0 {
            let has = |range: &LossRange| {
                missing.packet.since(range.first) >= 0 && range.last.since(missing.packet) >= 0
            };
            if below.clone().any(|range| has(&range)) {
                missing.told = now;
                return now - missing.since >= timeout;
            }
            // A report need not name everything. One not named for that time has come.
            if now - missing.told < timeout / 2 {
                return false;
            }
        }
        if let Some(range) = below.next() {
            self.0 = Some(Missing { packet: range.first, since: now, told: now });
        }
        false
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
    fn what_is_in_flight_may_be_missing_for_long() {
        let mut disowned = Disowned::default();
        for second in 0..100 {
            let ranges = [range(10, 12)].into_iter();
            assert!(!disowned.report(at(second), Seq::new(9), ranges, TIMEOUT));
        }
    }
}
