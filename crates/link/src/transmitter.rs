//! When the transmission of a packet ends, without drift.

use farhaul_base::Time;

use crate::Rate;

/// The sending end of a link: one packet at a time, each for as long as its bits take.
///
/// The end of a transmission is kept exactly, as whole nanoseconds and a fraction of one, so that
/// a million packets in a row take precisely a million times as long as one.
#[derive(Clone, Debug)]
pub(crate) struct Transmitter {
    /// `None`: transmission takes no time.
    rate: Option<Rate>,
    free_ns: u64,
    /// Fraction of a nanosecond after `free_ns`, in units of 1/rate.
    free_part: u64,
}

impl Transmitter {
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        Transmitter { rate, free_ns: 0, free_part: 0 }
    }

    /// Transmits `bytes` as soon as the transmitter is free, but not before `at`. Returns when this
    /// ends, rounded up to a nanosecond.
    pub(crate) fn start(&mut self, at: Time, bytes: usize) -> Time {
        if at.as_nanos() > self.free_ns {
            self.free_ns = at.as_nanos();
            self.free_part = 0;
        }
        if let Some(rate) = self.rate {
            let rate = u128::from(rate.bits_per_second());
            // Nanoseconds times the rate: 1 ns at 1 bit/s is 1.
            let work = bytes as u128 * 8_000_000_000 + u128::from(self.free_part);
            let whole = u64::try_from(work / rate).unwrap_or(u64::MAX);
            self.free_ns = self.free_ns.saturating_add(whole);
            // Below the rate, so it fits.
            self.free_part = (work % rate) as u64;
        }
        Time::from_nanos(self.free_ns).plus_nanos(u64::from(self.free_part > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transmitter(bits_per_second: u64) -> Transmitter {
        Transmitter::new(Rate::from_bits_per_second(bits_per_second))
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
        let mut instant = Transmitter::new(None);
        assert_eq!(instant.start(Time::from_secs(1), usize::MAX), Time::from_secs(1));
    }
}
