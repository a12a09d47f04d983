//! When a peer is dialed again that closes connections before it has shown its key.
//!
//! Such a peer has too many newcomers. All dials of a process to it take turns then: however many links are
//! wanted, only so many attempts a second are made.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock;

/// Between two attempts, on the average: doubled from the first to the second as long as connections are closed.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(800));
/// No attempt waits longer for its turn.
const LONGEST_WAIT: Duration = Duration::from_secs(4);

/// The turns of all attempts to reach one peer.
#[derive(Debug, Default)]
pub(crate) struct Spacing(Mutex<Turns>);

#[derive(Debug, Default)]
struct Turns {
    /// Zero where none was closed lately.
    pause: Duration,
    /// When it was doubled.
    doubled: Option<Instant>,
    /// When the last of those that wait begins.
    last: Option<Instant>,
}

impl Spacing {
    /// When an attempt that is wanted at `now` begins.
    pub fn turn(&self, now: Instant) -> Instant {
        // Without chance those that were closed together come back together.
        self.turn_by(now, getrandom::u32().unwrap_or(u32::MAX / 2))
    }

    fn turn_by(&self, now: Instant, chance: u32) -> Instant {
        let mut turns = lock(&self.0);
        if turns.pause.is_zero() {
            return now;
        }
        let share = f64::from(chance) / f64::from(u32::MAX);
        let after = turns.last.map_or(now, |last| last.max(now));
        let turn = after + turns.pause.mul_f64(0.5 + share);
        let latest = now + LONGEST_WAIT;
        if turn > latest {
            return now + LONGEST_WAIT.mul_f64(0.5 + share / 2.0);
        }
        turns.last = Some(turn);
        turn
    }

    /// A connection was closed before the peer had shown its key. Several that are closed together count
    /// once.
    pub fn closed(&self, now: Instant) {
        let mut turns = lock(&self.0);
        let settled = |at: Instant| now.saturating_duration_since(at) >= turns.pause;
        if turns.doubled.is_none_or(settled) {
            turns.pause = (turns.pause * 2).clamp(PAUSE.0, PAUSE.1);
            turns.doubled = Some(now);
        }
    }

    /// A connection has become a link.
    pub fn taken(&self) {
        let mut turns = lock(&self.0);
        turns.pause /= 2;
        if turns.pause < PAUSE.0 {
            *turns = Turns::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: u32 = u32::MAX / 2;

    #[test]
    fn however_many_links_are_wanted_attempts_are_so_many_a_second() {
        let spacing = Spacing::default();
        let begun = Instant::now();
        assert_eq!(spacing.turn(begun), begun, "nothing was closed");
        let mut due: Vec<Instant> = vec![begun; 512];
        let (mut made, mut late) = (0u32, 0u32);
        let end = begun + Duration::from_secs(60);
        while let Some(at) = due.iter().min().copied()
            && at < end
        {
            let first = due.iter().position(|other| *other == at).unwrap_or(0);
            (made, late) = (made + 1, late + u32::from(at >= begun + Duration::from_secs(30)));
            spacing.closed(at);
            due[first] = spacing.turn_by(at, made.wrapping_mul(2_654_435_761));
        }
        // 512 / 3 s were the limit if each link waited for itself.
        assert!(late < 512 * 30 / 3 + 512, "{late} in half a minute, {made} in all");
    }

    #[test]
    fn one_link_is_dialed_again_soon_and_at_once_after_success() {
        let spacing = Spacing::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..5 {
            spacing.closed(now);
            let turn = spacing.turn_by(now, EVEN);
            waits.push((turn - now).as_millis().div_ceil(10) * 10);
            now = turn;
        }
        assert_eq!(waits, [100, 200, 400, 800, 800]);
        (0..4).for_each(|_| spacing.taken());
        assert_eq!(spacing.turn(now), now);
    }

    #[test]
    fn what_is_closed_together_counts_once() {
        let spacing = Spacing::default();
        let now = Instant::now();
        (0..32).for_each(|_| spacing.closed(now));
        let turns: Vec<_> = (0..32).map(|_| spacing.turn_by(now, EVEN)).collect();
        assert!(turns.iter().all(|turn| *turn <= now + LONGEST_WAIT));
        let most = turns.windows(2).all(|two| two[1] - two[0] > Duration::from_millis(90));
        assert!(most, "one after the other");
    }
}
