//! Between probes: the rate comes down while a queue stands.
//!
//! *departs:* Each flow takes the maximum of its last two probes for its share. Noise makes that too much for one
//! flow, and together several take more than there is: in the draft the queue then stands, at the windows' bound,
//! until losses come. Here each flow aims at a queue of its own that is short, and in which a flow of a
//! lower rate takes longer: the flow with more gives more.
//!
//! A queue that stays although the flow has given way is taken for that of others, which do not: then the flow gives way
//! only to a queue as long as one that ends a probe, until it has seen its own length of queue again.

use core::time::Duration;

use super::standing::{Queue, Standing};

/// The queue aimed at, seconds, times the root of the rate in packets a second; n flows then leave a queue √n times as
/// long as one, and have the same rate (as in `haul`). 13 packets at 100 Mb/s, 43 at 1 Gb/s.
const AIM: f64 = 0.15;
/// The shortest aim, in round trips, and seconds.
const LEAST_AIM_SHARE: f64 = 0.015;
const LEAST_AIM: f64 = 3e-4;
/// Hosts send in bursts of up to a millisecond and take as long to look: what is shorter is no queue that stands, where a
/// probe's queue is no longer than that.
const HOST_NOISE: Duration = Duration::from_millis(1);
/// A law whose probes may make a queue of so many round trips takes no notice of shorter ones, as the draft.
const LONG_QUEUE: f64 = 1.0;
/// The share comes down by this a round trip while the queue is longer than aimed at, and comes back by this.
const EASE_DOWN: f64 = 0.98;
const EASE_UP: f64 = 1.02;
/// No lower while it may be the queue of flows that give way as well, nor for others that do not. Three quarters for
/// these left CUBIC twice as much in a queue of four bandwidth-delay products.
const LEAST_AMONG_EQUALS: f64 = 0.7;
const LEAST_SHARE: f64 = 0.85;
/// So much of the rate at most is left out on top, for what the queue is too long to drain in a round trip.
const MOST_DRAIN: f64 = 0.2;
/// How much of what the share has come down is left when a probe is over.
const KEPT: f64 = 0.7;
/// The queue is that of others when it has stayed for so many round trips at the least share.
const ROUNDS_STAYED: u32 = 6;

/// What is sent between probes, as a share of the bandwidth.
#[derive(Debug)]
pub(super) struct Ease {
    share: f64,
    /// What is left of it, so that the queue drains.
    drain: f64,
    /// The share before the probe that runs.
    before: f64,
    /// Round trips at the least share in which the queue has stayed.
    stayed: u32,
    /// The last round trip had no queue longer than aimed at.
    short: bool,
}

impl Default for Ease {
    fn default() -> Self {
        Ease { share: 1.0, drain: 1.0, before: 1.0, stayed: 0, short: false }
    }
}

impl Ease {
    /// In shares of the bandwidth.
    pub fn gain(&self) -> f64 {
        self.share * self.drain
    }

    /// A probe begins at the whole bandwidth.
    pub fn begin_probe(&mut self) {
        if self.share < 1.0 {
            self.before = self.share;
        }
        (self.share, self.drain) = (1.0, 1.0);
    }

    /// The share begins below the whole where it had to come down before: others are still there.
    pub fn end_probe(&mut self) {
        self.share = 1.0 - KEPT * (1.0 - self.before);
        self.before = 1.0;
    }

    /// The last round trip that was looked at had no queue longer than aimed at.
    pub fn sees_short_queue(&self) -> bool {
        self.short
    }

    /// A queue stays that is not of its own kind.
    fn has_rival(&self) -> bool {
        self.stayed >= ROUNDS_STAYED
    }

    /// At the end of a round trip in which nothing was probed. `least`: the shortest round trip; `rate`: the flow's,
    /// packets a second; `queue`: the share of a round trip that is the queue of a probe.
    pub fn update(&mut self, seen: &Standing, least: Duration, rate: f64, queue: f64) {
        let probes = least.mul_f64(queue);
        let known = seen.queue(least).filter(|_| probes > HOST_NOISE && queue < LONG_QUEUE);
        let excess = known.map(|known| known.standing - aim(&known, least, rate));
        self.drain = 1.0;
        self.short = excess.is_some_and(|excess| excess <= 0.0);
        match excess {
            Some(excess) if excess <= 0.0 => self.stayed = 0,
            Some(_) if self.share <= LEAST_AMONG_EQUALS => self.stayed += 1,
            _ => {}
        }
        let (stands, lowest) = match excess {
            Some(excess) if !self.has_rival() => {
                self.drain -= (excess / least.as_secs_f64()).clamp(0.0, MOST_DRAIN);
                (excess > 0.0, LEAST_AMONG_EQUALS)
            }
            _ => {
                let noise = seen.queue(least).map_or(0.0, |queue| queue.noise);
                let queue = probes.max(HOST_NOISE) + Duration::from_secs_f64(noise);
                (seen.exceeds(least, queue), LEAST_SHARE)
            }
        };
        let share = self.share * if stands { EASE_DOWN } else { EASE_UP };
        self.share = share.clamp(lowest, 1.0);
    }
}

/// How long a round trip may be above the shortest, seconds.
fn aim(known: &Queue, least: Duration, rate: f64) -> f64 {
    let own = AIM / rate.max(1.0).sqrt();
    known.noise + own.max(LEAST_AIM_SHARE * least.as_secs_f64()).max(LEAST_AIM)
}

#[cfg(test)]
mod tests {
    use farhaul_base::Time;

    use super::*;

    const LEAST: Duration = Duration::from_millis(100);

    /// A flow of 10,000 packets a second, whose aim is 1.5 ms, and so many round trips of this length.
    fn rounds(ease: &mut Ease, seen: &mut Standing, count: u32, rtt_ms: f64, queue: f64) {
        for _ in 0..count {
            let rtt = Some(Duration::from_secs_f64(rtt_ms / 1e3));
            (0..8).for_each(|_| seen.update(Time::ZERO, true, rtt, false));
            seen.update(Time::ZERO, true, None, true);
            ease.update(seen, LEAST, 10_000.0, queue);
        }
    }

    #[test]
    fn a_queue_longer_than_the_flows_own_drains() {
        let (mut ease, mut seen) = (Ease::default(), Standing::default());
        rounds(&mut ease, &mut seen, 1, 101.4, 0.25);
        assert_eq!(ease.gain(), 1.0);
        rounds(&mut ease, &mut seen, 1, 111.5, 0.25);
        assert!((ease.gain() - 0.98 * 0.9).abs() < 1e-6, "10 ms of 100 at once: {}", ease.gain());
        rounds(&mut ease, &mut seen, 1, 101.4, 0.25);
        assert!((ease.gain() - 0.98 * 1.02).abs() < 1e-6, "{}", ease.gain());
    }

    /// At a quarter of the rate the aim is twice as long.
    #[test]
    fn the_flow_with_more_gives_more() {
        let mut seen = Standing::default();
        let rtt = Some(Duration::from_secs_f64(0.102));
        (0..8).for_each(|_| seen.update(Time::ZERO, true, rtt, false));
        seen.update(Time::ZERO, true, None, true);
        let gain = |rate: f64| {
            let mut ease = Ease::default();
            ease.update(&seen, LEAST, rate, 0.25);
            ease.gain()
        };
        assert!(gain(10_000.0) < 1.0);
        assert_eq!(gain(2_500.0), 1.0);
    }

    /// It gives way to a queue as long as a probe's, until it sees its own length of queue.
    /// A host's noise is as long as a probe's queue there; that of the path is measured all the same.
    #[test]
    fn jitter_of_a_short_round_trip_is_no_queue() {
        let (mut ease, mut seen) = (Ease::default(), Standing::default());
        let least = Duration::from_millis(3);
        for _ in 0..20 {
            for rtt in [5, 6, 6, 7] {
                seen.update(Time::ZERO, true, Some(Duration::from_millis(rtt)), false);
            }
            seen.update(Time::ZERO, true, None, true);
            ease.update(&seen, least, 10_000.0, 0.25);
        }
        assert_eq!(ease.gain(), 1.0);
    }

    #[test]
    fn a_queue_that_stays_is_that_of_others() {
        let (mut ease, mut seen) = (Ease::default(), Standing::default());
        rounds(&mut ease, &mut seen, 18, 115.0, 0.25);
        assert!(ease.gain() < 0.7, "{}", ease.gain());
        rounds(&mut ease, &mut seen, 60, 115.0, 0.25);
        assert_eq!(ease.gain(), 1.0, "no more than a quarter");
        rounds(&mut ease, &mut seen, 60, 130.0, 0.25);
        assert_eq!(ease.gain(), LEAST_SHARE);
        rounds(&mut ease, &mut seen, 1, 101.0, 0.25);
        rounds(&mut ease, &mut seen, 1, 115.0, 0.25);
        assert!(ease.gain() < LEAST_SHARE, "{}", ease.gain());
    }

    #[test]
    fn the_draft_takes_no_notice() {
        let (mut ease, mut seen) = (Ease::default(), Standing::default());
        rounds(&mut ease, &mut seen, 60, 190.0, 10.0);
        assert_eq!(ease.gain(), 1.0);
    }
}
