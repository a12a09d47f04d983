//! When the transmission of a packet ends, without drift.

use farhaul_base::Time;

use crate::delivery::Opportunities;
use crate::rate_changes::Upcoming;
use crate::{LinkConfig, Rate};

/// Work of one byte: nanoseconds times bits per second.
const BYTE: u128 = 8_000_000_000;

/// The sending end of a link: one packet at a time, each for as long as its bits take.
///
/// The end of a transmission is kept exactly, as whole nanoseconds and a fraction of one, so that
/// a million packets in a row take precisely a million times as long as one. A packet in
/// transmission when the rate changes has its remaining bits, fractions included, sent at the new
/// rate.
#[derive(Clone, Debug)]
pub(crate) struct Transmitter {
    /// The rate at `free_ns`. `None`: transmission takes no time.
    rate: Option<Rate>,
    free_ns: u64,
    /// Fraction of a nanosecond after `free_ns`, in units of 1/rate.
    free_part: u64,
    /// When the rate changes next; `u64::MAX` if never.
    change_ns: u64,
    changes: Upcoming,
    /// In the place of a rate.
    opportunities: Option<Opportunities>,
}

impl Transmitter {
    pub(crate) fn new(config: &LinkConfig) -> Self {
        let changes = Upcoming::new(&config.rate_changes);
        Transmitter {
            rate: config.rate,
            free_ns: 0,
            free_part: 0,
            change_ns: changes.next_at(),
            changes,
            opportunities: config.trace.clone().map(Opportunities::new),
        }
    }

    /// Transmits `bytes` as soon as the transmitter is free, but not before `at`. Returns when this
    /// ends, rounded up to a nanosecond.
    pub(crate) fn start(&mut self, at: Time, bytes: usize) -> Time {
        if let Some(opportunities) = &mut self.opportunities {
            return opportunities.start(at, bytes);
        }
        if at.as_nanos() > self.free_ns {
            self.free_ns = at.as_nanos();
            self.free_part = 0;
        }
        if self.free_ns >= self.change_ns {
            self.change_rate();
        }
        let mut work = bytes as u128 * BYTE + u128::from(self.free_part);
        while let Some(rate) = self.rate {
            let rate = u128::from(rate.bits_per_second());
            let whole = u64::try_from(work / rate).unwrap_or(u64::MAX);
            let end = self.free_ns.saturating_add(whole);
            if end < self.change_ns || self.change_ns == u64::MAX {
                self.free_ns = end;
                // Below the rate, so it fits.
                self.free_part = (work % rate) as u64;
                break;
            }
            work -= u128::from(self.change_ns - self.free_ns) * rate;
            self.free_ns = self.change_ns;
            self.change_rate();
        }
        Time::from_nanos(self.free_ns).plus_nanos(u64::from(self.free_part > 0))
    }

    /// Takes the rate that holds at `free_ns`.
    #[cold]
    fn change_rate(&mut self) {
        self.rate = self.changes.pass(self.free_ns).or(self.rate);
        self.change_ns = self.changes.next_at();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transmitter(bits_per_second: u64) -> Transmitter {
        changing(bits_per_second, "none")
    }

    fn changing(bits_per_second: u64, changes: &str) -> Transmitter {
        Transmitter::new(&LinkConfig {
            rate: Rate::from_bits_per_second(bits_per_second),
            rate_changes: changes.parse().unwrap(),
            ..LinkConfig::default()
        })
    }

    #[test]
    fn a_packet_takes_its_bits_over_the_rate() {
        let mut line = transmitter(200_000_000);
        assert_eq!(line.start(Time::from_millis(1), 1_500), Time::from_micros(1_060));
        // Busy: begins at the end of the former.
        assert_eq!(line.start(Time::from_millis(1), 1_500), Time::from_micros(1_120));
        // Idle: begins at once.
        assert_eq!(line.start(Time::from_millis(9), 1_500), Time::from_micros(9_060));
    }

    #[test]
    fn fractions_do_not_drift() {
        // 1500 B at 7 Mb/s take 1,714,285.714… ns; 7 million of them take 12,000 s exactly.
        let mut line = transmitter(7_000_000);
        let mut end = Time::ZERO;
        for _ in 0..7_000_000 {
            end = line.start(Time::ZERO, 1_500);
        }
        assert_eq!(end, Time::from_secs(12_000));
    }

    #[test]
    fn ends_are_rounded_up() {
        let mut line = transmitter(3_000_000_000);
        // 8/3 ns: 2.67, 5.33, 8.
        let ends: Vec<u64> = (0..3).map(|_| line.start(Time::ZERO, 1).as_nanos()).collect();
        assert_eq!(ends, [3, 6, 8]);
    }

    #[test]
    fn extremes_saturate() {
        let mut slow = transmitter(1);
        assert_eq!(slow.start(Time::ZERO, usize::MAX), Time::MAX);
        assert_eq!(slow.start(Time::ZERO, 1), Time::MAX);
        let mut instant = changing(0, "none");
        assert_eq!(instant.start(Time::from_secs(1), usize::MAX), Time::from_secs(1));
    }

    #[test]
    fn a_packet_is_finished_at_the_new_rate() {
        // 12,000 bits: 6000 of them in 1 ms at 6 Mb/s, the others in 3 ms at 2 Mb/s.
        let mut line = changing(6_000_000, "11ms:2M,20ms:12M");
        assert_eq!(line.start(Time::from_millis(10), 1_500), Time::from_millis(14));
        assert_eq!(line.start(Time::ZERO, 1_500), Time::from_millis(20));
        assert_eq!(line.start(Time::ZERO, 1_500), Time::from_millis(21));
        // Idle when it changes.
        let mut line = changing(6_000_000, "11ms:2M");
        assert_eq!(line.start(Time::from_millis(50), 1_500), Time::from_millis(56));
    }

    #[test]
    fn one_packet_over_many_changes() {
        // In each cycle of 2 ms 1000 bits and 3000: 3 cycles are 12,000 bits.
        let mut line = changing(1, "0s:1M,1ms:3M/2ms");
        assert_eq!(line.start(Time::ZERO, 1_500), Time::from_millis(6));
        assert_eq!(line.start(Time::ZERO, 125), Time::from_millis(7));
        assert_eq!(line.start(Time::from_millis(1_001), 125), Time::from_nanos(1_001_333_334));
    }

    #[test]
    fn fractions_survive_a_change() {
        // 1 byte takes 8/3 ns, then 8/7 ns. By 10 ns 30 bits are sent, at 3 Gb/s.
        let mut line = changing(3_000_000_000, "10ns:7G");
        let ends: Vec<u64> = (0..10).map(|_| line.start(Time::ZERO, 1).as_nanos()).collect();
        let exact = |byte: u64| {
            if byte <= 3 { (8 * byte).div_ceil(3) } else { 10 + (8 * byte - 30).div_ceil(7) }
        };
        assert_eq!(ends, (1..=10).map(exact).collect::<Vec<_>>());
    }

    #[test]
    fn a_rate_that_begins_later() {
        let mut line = changing(0, "1s:12M");
        assert_eq!(line.start(Time::from_millis(999), 1_500), Time::from_millis(999));
        assert_eq!(line.start(Time::from_secs(1), 1_500), Time::from_millis(1_001));
        assert_eq!(line.start(Time::MAX, 1_500), Time::MAX);
    }
}
