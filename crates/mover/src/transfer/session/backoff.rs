//! When lanes are dialed again that the peer did not take.
//!
//! A server gives a client so many connections and no more. A session that wants more lanes than it gets asks
//! for one now and then, not for all of them again and again.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Between two attempts, on the average, where the peer was not reached: doubled from the first to the second.
const UNREACHED: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Where it refuses lanes: it will take them when others have ended.
const REFUSED: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// What becomes of the lanes that are wanted and not there.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Zero as long as lanes are taken.
    pause: Duration,
    /// When it was doubled.
    doubled: Option<Instant>,
    /// When one may be dialed.
    next: Option<Instant>,
}

impl Backoff {
    /// How many of the `missing` lanes may be dialed now.
    pub(super) fn allows(&mut self, missing: u32, now: Instant) -> u32 {
        if self.pause.is_zero() || missing == 0 {
            return missing;
        }
        if self.next.is_some_and(|next| now < next) {
            return 0;
        }
        self.wait(now);
        1
    }

    /// A lane that was dialed at `dialed` was not taken. Those that were dialed together count once.
    pub(super) fn failed(&mut self, refused: bool, dialed: Instant, now: Instant) {
        if self.doubled.is_some_and(|doubled| dialed < doubled) {
            return;
        }
        let (least, most) = if refused { REFUSED } else { UNREACHED };
        self.pause = (self.pause * 2).clamp(least, most);
        self.doubled = Some(now);
        self.wait(now);
    }

    /// A lane was taken.
    pub(super) fn taken(&mut self) {
        self.pause /= 2;
        if self.pause < UNREACHED.0 {
            *self = Backoff::default();
        }
    }

    fn wait(&mut self, now: Instant) {
        // Several copies that were refused together must not come back together.
        let chance = RandomState::new().hash_one(0u8) as u32;
        let share = f64::from(chance) / f64::from(u32::MAX);
        self.next = Some(now + self.pause.mul_f64(0.5 + share));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_are_refused_are_asked_for_one_at_a_time_and_seldom() {
        let mut backoff = Backoff::default();
        let begun = Instant::now();
        assert_eq!(backoff.allows(31, begun), 31);
        (0..31).for_each(|_| backoff.failed(true, begun, begun + Duration::from_millis(5)));
        let mut dialed = 0;
        for tick in 1..=20 * 600 {
            let now = begun + Duration::from_millis(50) * tick;
            let allowed = backoff.allows(31, now);
            dialed += allowed;
            (0..allowed).for_each(|_| backoff.failed(true, now, now));
        }
        assert!((10..60).contains(&dialed), "{dialed} in ten minutes");
        // Once there is room, all are there soon.
        let (mut now, mut missing) = (begun + Duration::from_secs(600), 31);
        while missing > 0 {
            now += Duration::from_millis(50);
            let allowed = backoff.allows(missing, now);
            (0..allowed).for_each(|_| backoff.taken());
            missing -= allowed;
        }
        assert!(now - begun < Duration::from_secs(600 + 120), "{:?}", now - begun);
    }

    #[test]
    fn a_peer_that_is_not_reached_is_tried_more_often() {
        let mut backoff = Backoff::default();
        let begun = Instant::now();
        let mut dialed = 0;
        for tick in 0..20 * 60 {
            let now = begun + Duration::from_millis(50) * tick;
            let allowed = backoff.allows(4, now);
            dialed += allowed;
            (0..allowed).for_each(|_| backoff.failed(false, now, now));
        }
        assert!((20..80).contains(&dialed), "{dialed} in a minute");
    }
}
