//! How long what the peer sends is on the way, beyond the least: from the time stamps of a farhaul peer's
//! control packets.
//!
//! The clocks of both sides differ by an unknown constant, so only differences count. A round trip less
//! what waited on its way back tells of the way there, which is the one that the sender fills.

use core::time::Duration;

use farhaul_base::Time;

/// The least is that of the last one to two of these: long enough to find queues of the way back empty,
/// and short enough for the drift of clocks, some 50 millionths, to be less than a fifth of a
/// millisecond.
const LEAST_KEPT: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub struct WayBack(Option<Known>);

#[derive(Debug)]
struct Known {
    /// The first difference of the clocks, which the others are relative to.
    origin: u32,
    /// The least difference of the current span of time and of the one before, microseconds.
    least: [i32; 2],
    since: Time,
    /// By how much the newest packet came later than the least.
    excess: Duration,
}

impl WayBack {
    /// A control packet came at `clock` of this side that left at `stamp` of the peer's, both in
    /// microseconds that wrap.
    pub fn on_control(&mut self, now: Time, clock: u32, stamp: u32) {
        let difference = clock.wrapping_sub(stamp);
        let known = self.0.get_or_insert(Known {
            origin: difference,
            least: [0; 2],
            since: now,
            excess: Duration::ZERO,
        });
        let relative = difference.wrapping_sub(known.origin) as i32;
        if now - known.since > LEAST_KEPT {
            known.least = [relative, known.least[0]];
            known.since = now;
        }
        known.least[0] = known.least[0].min(relative);
        let least = known.least[0].min(known.least[1]);
        known.excess = Duration::from_micros(u64::from(relative.abs_diff(least)));
    }

    /// A round trip that ended with the last control packet, as if nothing had waited on the way back;
    /// none if that is not known.
    pub fn without(&self, rtt: Duration) -> Option<Duration> {
        let excess = self.0.as_ref()?.excess;
        // More than all of it is a clock that was set.
        rtt.checked_sub(excess)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// The clocks are 1,000 s apart and wrap; the way back takes 5 ms, and now and then 3 ms more.
    #[test]
    fn what_waits_on_the_way_back_is_taken_off() {
        let mut back = WayBack::default();
        assert_eq!(back.without(us(10_000)), None);
        for nth in 0..1_000u32 {
            let sent = 4_294_000_000u32.wrapping_add(nth * 10_000);
            let wait = if nth % 5 == 3 { 3_000 } else { 0 };
            let clock = sent.wrapping_add(1_000_000_000 + 5_000 + wait);
            back.on_control(Time::from_millis(u64::from(nth) * 10), clock, sent);
            let rtt = us(10_000 + u64::from(wait));
            assert_eq!(back.without(rtt), Some(us(10_000)), "{nth}");
        }
    }

    /// A route that becomes longer is the least after a while, and what no round trip can have is
    /// nothing.
    #[test]
    fn a_longer_way_is_learnt() {
        let mut back = WayBack::default();
        let mut at = |ms: u64, way: u32| {
            back.on_control(Time::from_millis(ms), way + 1_000 * ms as u32, 1_000 * ms as u32);
            back.without(us(10_000))
        };
        assert_eq!(at(0, 5_000), Some(us(10_000)));
        assert_eq!(at(10, 9_000), Some(us(6_000)));
        assert_eq!(at(20, 50_000), None);
        for ms in 1..50 {
            at(100 * ms, 9_000);
        }
        assert_eq!(at(5_000, 9_000), Some(us(10_000)));
    }
}
