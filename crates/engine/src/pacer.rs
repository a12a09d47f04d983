//! When the next packets may leave.
//!
//! A packet-sending period of a microsecond cannot be kept one packet at a time: each send is a
//! system call, and each sleep too long. So packets leave in bursts, about a millisecond of data or
//! one segmentation-offload call, whichever is less, with a pause of as many periods after each
//! (the burst-sleep method of gu05 §2.3.2.5).

use core::time::Duration;

use farhaul_base::Time;

/// The longest burst in time.
const BURST_NS: f64 = 1e6;
/// A sender that comes late may catch up a round trip, within these bounds; what is beyond it is lost. The path has
/// idled meanwhile, and only its queue could take more than the rate.
const MAX_CREDIT_NS: f64 = 10e6;
const MIN_CREDIT_NS: f64 = 1e6;
/// Beyond the first burst a late sender catches up at this multiple of the rate, so that a stall of the
/// host is not answered with a flood that a short queue on the path could not take.
const CATCH_UP: f64 = 1.25;

#[derive(Debug)]
pub struct Pacer {
    /// Nanoseconds between packets; 0 does not pace.
    period_ns: f64,
    /// The period never falls below this (maximum bandwidth option).
    min_period_ns: f64,
    /// Nor below this ([`Backoff`](crate::send::Backoff)).
    backoff_period_ns: f64,
    /// When the last packet left, nanoseconds.
    last_ns: f64,
    /// When the next packet may leave, nanoseconds.
    next_ns: f64,
    /// Packets in the longest burst.
    max_burst: u32,
    /// What a late sender has still to catch up, and how much that may be, nanoseconds.
    behind_ns: f64,
    most_behind_ns: f64,
    /// Nothing to send: time that passes now earns no credit.
    idle: bool,
    /// A window holds packets back: time that passes now earns one burst at most, beside the packet
    /// that is due.
    held: bool,
    /// And that is no fault of the rate's: what passes is not missed.
    excused: bool,
    paused_until: Time,
    /// Since the last [`Pacer::reset_shortfall`]: when it was, and time in which packets were due
    /// and could not go.
    asked_at: Time,
    lost_ns: f64,
}

impl Pacer {
    /// `max_burst`: packets that one system call can send.
    pub fn new(now: Time, max_burst: u32) -> Self {
        Pacer {
            period_ns: 0.0,
            min_period_ns: 0.0,
            backoff_period_ns: 0.0,
            last_ns: now.as_nanos() as f64,
            next_ns: now.as_nanos() as f64,
            max_burst: max_burst.max(1),
            behind_ns: 0.0,
            most_behind_ns: MAX_CREDIT_NS,
            idle: true,
            held: false,
            excused: false,
            paused_until: Time::ZERO,
            asked_at: now,
            lost_ns: 0.0,
        }
    }

    /// The period in force, nanoseconds.
    pub fn period_ns(&self) -> f64 {
        self.wanted_period_ns().max(self.backoff_period_ns)
    }

    /// The period that would be in force without back-off, nanoseconds.
    pub fn wanted_period_ns(&self) -> f64 {
        self.period_ns.max(self.min_period_ns)
    }

    /// Nothing leaves sooner than this after the packet before; 0 if there is no back-off.
    pub fn set_backoff_period_ns(&mut self, period_ns: f64) {
        if period_ns < self.backoff_period_ns {
            // What was put off for longer than that may go sooner.
            self.backoff_period_ns = period_ns;
            let next = self.last_ns + self.period_ns();
            self.next_ns = self.next_ns.min(next).max(self.paused_until.as_nanos() as f64);
        }
        self.backoff_period_ns = period_ns;
    }

    pub fn set_period_ns(&mut self, period_ns: f64) {
        self.period_ns = if period_ns.is_finite() { period_ns.max(0.0) } else { 0.0 };
    }

    pub fn set_min_period_ns(&mut self, period_ns: f64) {
        self.min_period_ns = period_ns;
    }

    /// The smoothed round-trip time: how much a late sender may catch up.
    pub fn set_round_trip(&mut self, rtt: Duration) {
        self.most_behind_ns = (rtt.as_nanos() as f64).clamp(MIN_CREDIT_NS, MAX_CREDIT_NS);
    }

    /// Nothing leaves before `until`.
    pub fn pause(&mut self, until: Time) {
        if until > self.paused_until {
            self.paused_until = until;
            self.behind_ns = 0.0;
            self.next_ns = self.next_ns.max(until.as_nanos() as f64);
        }
    }

    /// There is nothing to send.
    pub fn set_idle(&mut self) {
        self.idle = true;
    }

    /// A window holds packets back. What opens it must not let a flood go that a short queue on
    /// the path could not take.
    pub fn set_held(&mut self) {
        self.held = true;
    }

    /// A window holds packets back while a hole is repaired: as [`Pacer::set_held`], but the time is
    /// not missed, for it is no sign that the rate is too high.
    pub fn set_repairing(&mut self) {
        self.held = true;
        self.excused = true;
    }

    /// Packets that may leave now; there is something to send.
    pub fn budget(&mut self, now: Time) -> u32 {
        let now_ns = now.as_nanos() as f64;
        let was_held = core::mem::take(&mut self.held);
        let excused = core::mem::take(&mut self.excused);
        if core::mem::take(&mut self.idle) {
            self.next_ns = self.next_ns.max(now_ns);
            self.behind_ns = 0.0;
        }
        if now < self.paused_until {
            return 0;
        }
        let period = self.period_ns();
        if period == 0.0 {
            self.next_ns = now_ns;
            return u32::MAX;
        }
        self.bound_credit(now_ns, was_held, excused);
        // A rounding error of a nanosecond must not cost a wake-up.
        let credit = now_ns - self.next_ns + 1.0;
        if credit < 0.0 { 0 } else { ((credit / period) as u32).saturating_add(1) }
    }

    /// A burst may go at once; of what a late host is owed beyond that, a round trip is caught up little by
    /// little, and the rest is lost.
    fn bound_credit(&mut self, now_ns: f64, held: bool, excused: bool) {
        let period = self.period_ns();
        let (at_once, later) = if held {
            ((f64::from(self.burst()) * period).min(MAX_CREDIT_NS), 0.0)
        } else {
            // At a slow pace it is a few packets.
            let slow = period > BURST_NS;
            let at_once = if slow { self.most_behind_ns } else { BURST_NS };
            (at_once, self.most_behind_ns - at_once)
        };
        let credit = now_ns - self.next_ns;
        if credit > at_once {
            self.behind_ns += credit - at_once;
            self.next_ns = now_ns - at_once;
        }
        if self.behind_ns > later {
            self.lost_ns += if excused { 0.0 } else { self.behind_ns - later };
            self.behind_ns = later;
        }
    }

    /// `packets` have left.
    pub fn sent(&mut self, now: Time, packets: u32) {
        self.last_ns = now.as_nanos() as f64;
        let takes = f64::from(packets) * self.period_ns();
        let caught_up = self.behind_ns.min(takes * (1.0 - 1.0 / CATCH_UP));
        self.behind_ns -= caught_up;
        self.next_ns += takes - caught_up;
    }

    /// When a burst's worth of packets may leave.
    pub fn next_burst(&self) -> Time {
        let wait = f64::from(self.burst() - 1) * self.period_ns();
        Time::from_nanos((self.next_ns + wait).max(0.0) as u64).max(self.paused_until)
    }

    /// Packets of one burst at the period in force.
    fn burst(&self) -> u32 {
        let period = self.period_ns();
        if period == 0.0 { 1 } else { ((BURST_NS / period) as u32).clamp(1, self.max_burst) }
    }

    /// Time since this was last reset, and the share of it in which packets were due and windows
    /// or the host held them back: what the real packet-sending period is longer by
    /// (gu05 §2.3.2.4).
    pub fn shortfall(&self, now: Time) -> (Duration, f64) {
        let elapsed = now - self.asked_at;
        let share = self.lost_ns / (elapsed.as_nanos() as f64).max(1.0);
        (elapsed, share.clamp(0.0, 0.9))
    }

    pub fn reset_shortfall(&mut self, now: Time) {
        self.asked_at = now;
        self.lost_ns = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sends(pacer: &mut Pacer, until: Time) -> Vec<(u64, u32)> {
        let mut out = Vec::new();
        let mut now = Time::from_millis(1);
        while now < until {
            let n = pacer.budget(now);
            if n > 0 {
                out.push((now.as_micros(), n));
                pacer.sent(now, n);
            }
            now = pacer.next_burst().max(now.plus_nanos(1));
        }
        out
    }

    #[test]
    fn bursts_of_a_millisecond_keep_the_rate() {
        let mut pacer = Pacer::new(Time::from_millis(1), 44);
        pacer.set_period_ns(60_000.0);
        let out = sends(&mut pacer, Time::from_millis(601));
        let total: u32 = out.iter().map(|s| s.1).sum();
        assert!((9_980..=10_016).contains(&total), "{total}");
        assert!(out.iter().skip(1).all(|s| s.1 == 16), "one burst each: {:?}", &out[..4]);
    }

    #[test]
    fn fast_periods_fill_one_call_and_slow_ones_send_singly() {
        let mut pacer = Pacer::new(Time::from_millis(1), 44);
        pacer.set_period_ns(580.0);
        assert!(sends(&mut pacer, Time::from_millis(5))[1..].iter().all(|s| s.1 == 44));
        let mut pacer = Pacer::new(Time::from_millis(1), 44);
        pacer.set_period_ns(5e6);
        assert!(sends(&mut pacer, Time::from_millis(100)).iter().all(|s| s.1 == 1));
    }

    #[test]
    fn idle_time_earns_nothing_and_lost_time_shows() {
        let mut pacer = Pacer::new(Time::ZERO, 44);
        pacer.set_period_ns(1e6);
        assert_eq!(pacer.budget(Time::from_secs(1)), 1, "idle before");
        pacer.sent(Time::from_secs(1), 1);
        pacer.reset_shortfall(Time::from_secs(1));
        // The host is then late by a second: 10 ms of it are caught up, one at once.
        assert_eq!(pacer.budget(Time::from_secs(2)), 2);
        assert!(pacer.shortfall(Time::from_secs(2)).1 >= 0.9);
        pacer.reset_shortfall(Time::from_secs(2));
        assert_eq!(pacer.shortfall(Time::from_secs(3)), (Duration::from_secs(1), 0.0));
    }

    #[test]
    fn a_pause_holds_everything() {
        let mut pacer = Pacer::new(Time::ZERO, 44);
        pacer.pause(Time::from_millis(10));
        assert_eq!(pacer.budget(Time::from_millis(9)), 0);
        assert_eq!(pacer.next_burst(), Time::from_millis(10));
        assert_eq!(pacer.budget(Time::from_millis(10)), u32::MAX);
    }

    /// A host that was late for 8 ms sends a burst at once and a quarter more than the rate until it has made
    /// up for it; where the round trip is shorter, less.
    #[test]
    fn a_late_host_catches_up_little_by_little() {
        let sent = |rtt| {
            let mut pacer = Pacer::new(Time::ZERO, 44);
            pacer.set_period_ns(50_000.0);
            pacer.set_round_trip(Duration::from_millis(rtt));
            pacer.budget(Time::ZERO);
            pacer.sent(Time::ZERO, 1);
            let mut sent = Vec::new();
            let mut now = Time::from_millis(8);
            while now <= Time::from_millis(60) {
                let budget = pacer.budget(now);
                sent.push(budget);
                pacer.sent(now, budget);
                now = pacer.next_burst();
            }
            (sent[0], *sent.iter().max().unwrap(), sent.iter().sum::<u32>())
        };
        let (first, most, all) = sent(50);
        assert_eq!((first, most), (21, 21));
        assert!((1_180..=1_200).contains(&all), "60 ms at 50 us a packet: {all}");
        let (.., all) = sent(3);
        assert!((1_080..=1_105).contains(&all), "3 ms are caught up: {all}");
    }

    /// A burst at a slow pace is a packet, and catching up is for no more than ten milliseconds.
    #[test]
    fn a_slow_pace_catches_up_no_more_for_a_window_than_for_a_late_host() {
        let budget = |held: bool| {
            let mut pacer = Pacer::new(Time::ZERO, 16);
            pacer.set_period_ns(15e6);
            pacer.budget(Time::ZERO);
            pacer.sent(Time::ZERO, 1);
            if held {
                pacer.set_held();
            }
            pacer.budget(Time::from_secs(1))
        };
        assert_eq!((budget(false), budget(true)), (1, 1));
    }

    /// A window that opens lets the packet that is due go and one burst, and what it cost is told.
    #[test]
    fn a_window_that_opens_lets_no_flood_go() {
        let mut pacer = Pacer::new(Time::ZERO, 16);
        pacer.set_period_ns(20_000.0);
        assert!(pacer.budget(Time::from_millis(1)) > 0);
        pacer.sent(Time::from_millis(1), 50);
        pacer.set_held();
        let budget = pacer.budget(Time::from_millis(9));
        assert_eq!(budget, 17);
        // Seven milliseconds, of which sixteen packets' worth may be caught up.
        let (elapsed, share) = pacer.shortfall(Time::from_millis(9));
        assert_eq!(elapsed, Duration::from_millis(9));
        assert!((share - 6.68 / 9.0).abs() < 0.01, "{share}");
        // Of a host that is late for as long a millisecond may go at once.
        pacer.sent(Time::from_millis(9), budget);
        assert_eq!(pacer.budget(Time::from_millis(17)), 51);
    }

    /// Back-off spaces packets whatever the law wants, and what it put off goes sooner when it ends.
    #[test]
    fn back_off_spaces_packets_and_lets_go_when_it_ends() {
        let mut pacer = Pacer::new(Time::ZERO, 44);
        pacer.set_backoff_period_ns(4e9);
        assert_eq!((pacer.budget(Time::ZERO), pacer.wanted_period_ns()), (1, 0.0));
        pacer.sent(Time::ZERO, 1);
        assert_eq!(pacer.budget(Time::from_millis(3_999)), 0);
        pacer.set_backoff_period_ns(1e9);
        assert_eq!(pacer.budget(Time::from_millis(999)), 0);
        assert_eq!(pacer.budget(Time::from_millis(1_000)), 1);
        pacer.set_backoff_period_ns(0.0);
        assert_eq!(pacer.budget(Time::from_millis(1)), u32::MAX);
    }
}
