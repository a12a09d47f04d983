//! When the relay wakes, and how much it then releases.

use std::time::Duration;

use farhaul_base::Time;

/// The longest sleep, so that a request to stop is seen.
const LONGEST_SLEEP_NS: u64 = 50_000_000;
/// Input is looked at this often at least while there is any, or the socket's buffer fills.
const INPUT_EVERY_MAX_NS: u64 = 500_000;
/// With input due more often than this it is better to wake when it comes.
const INPUT_EVERY_MIN_NS: u64 = 100_000;
/// Sleeps that are shorter than these end with different lateness: the longer a processor has slept, the longer it
/// takes to wake.
const LENGTHS_NS: [u64; 2] = [200_000, 2_000_000];
/// With fewer packets in a tick each leaves when it is due.
const BUSY_PACKETS: u64 = 3;
/// Wakes that are later than this say more of the machine's other work than of its timers.
const LATENESS_MAX_NS: u64 = 200_000;

/// Sleeping and waking.
///
/// Each wake costs some microseconds, so the relay does not wake for each datagram. On output,
/// what is due within half a tick leaves with what is due now, and the next wake is a tick later at
/// the earliest. On input, as the kernel stamps arrivals, a datagram that has to be delayed anyway
/// may lie in the socket for up to half of the delay.
#[derive(Debug)]
pub(crate) struct Pace {
    tick_ns: u64,
    /// While input flows it is looked at after so long; `None`: whenever it comes.
    input_every_ns: Option<u64>,
    /// How late the system ends sleeps, learnt, by their lengths; sleeps are made shorter by this.
    lateness_ns: [u64; LENGTHS_NS.len() + 1],
    /// What leaves in a tick; `None`: releases are always a tick apart.
    load: Option<Load>,
    last_release: Time,
    last_input: Time,
    last_look: Look,
}

/// Packets released in this tick and the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    began: Time,
    now: u64,
    before: u64,
}

/// What a look for input has shown, in ascending order of what is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Look {
    /// There was none.
    Nothing,
    /// There was some, and all of it was taken.
    Drained,
    /// There may be more.
    More,
}

/// A sleep to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sleep {
    pub length: Duration,
    /// Whether input ends it.
    pub for_input: bool,
}

impl Pace {
    /// For links whose shorter delay is `delay`.
    pub(crate) fn new(tick: Duration, delay: Duration) -> Self {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let input_every_ns = (nanos(delay) / 2).min(INPUT_EVERY_MAX_NS);
        Pace {
            tick_ns: nanos(tick),
            input_every_ns: (input_every_ns >= INPUT_EVERY_MIN_NS).then_some(input_every_ns),
            lateness_ns: [0; LENGTHS_NS.len() + 1],
            load: None,
            last_release: Time::ZERO,
            last_input: Time::ZERO,
            last_look: Look::Nothing,
        }
    }

    /// For devices that stamp no arrivals: what comes is to be read soon. While a lot comes it is looked at once
    /// a tick; while little is [`released`](Pace::released) it is not held up for others to leave with it.
    pub(crate) fn without_stamps(tick: Duration) -> Self {
        let mut pace = Pace::new(tick, Duration::ZERO);
        pace.input_every_ns = Some(pace.tick_ns);
        pace.load = Some(Load::default());
        pace
    }

    /// What is due up to this time is to be released `now`. It reaches beyond `now`: by half a tick,
    /// which balances what the tick delays, and by as much as another sleep would miss.
    pub(crate) fn release(&mut self, now: Time) -> Time {
        self.last_release = now;
        now.plus_nanos((self.tick_ns / 2).max(self.lateness_ns[0] / 2))
    }

    /// So many packets have been released at `now`.
    pub(crate) fn released(&mut self, now: Time, packets: u64) {
        let Some(load) = &mut self.load else { return };
        let passed = now.nanos_since(load.began);
        if passed >= self.tick_ns {
            let before = if passed < 2 * self.tick_ns { load.now } else { 0 };
            *load = Load { began: now, now: 0, before };
        }
        load.now += packets;
    }

    /// Whether packets leave together.
    fn is_busy(&self) -> bool {
        self.load.is_none_or(|load| load.now.max(load.before) >= BUSY_PACKETS)
    }

    /// How late a sleep that has lasted for so long has probably ended.
    pub(crate) fn lateness_ns(&self, length_ns: u64) -> u64 {
        self.lateness_ns[length_class(length_ns)]
    }

    /// Whether to look for input without having been woken by it.
    pub(crate) fn input_is_due(&self, now: Time) -> bool {
        self.next_look().is_some_and(|next| now >= next)
    }

    /// Input has been looked for.
    pub(crate) fn looked_for_input(&mut self, now: Time, look: Look) {
        self.last_input = now;
        self.last_look = look;
    }

    /// The sleep to take at `now` if the next datagram is due at `next`; `None` to go on at once.
    pub(crate) fn sleep(&self, now: Time, next: Option<Time>) -> Option<Sleep> {
        // After a stall each round takes in a limited batch. Sleeps in between would be added to
        // what else delays the thread, and the socket's buffer would never be emptied.
        if self.last_look == Look::More {
            return None;
        }
        let mut wake = now.plus_nanos(LONGEST_SLEEP_NS);
        if let Some(next) = next {
            let spaced =
                self.last_release.plus_nanos(if self.is_busy() { self.tick_ns } else { 0 });
            wake = wake.min(next.max(spaced));
        }
        let next_look = self.next_look();
        wake = next_look.map_or(wake, |next| wake.min(next));
        let length = wake.nanos_since(now);
        let length = length.saturating_sub(self.lateness_ns(length));
        // At least some, to block: a sleep of nothing would make the loop a busy one.
        let length = Duration::from_nanos(length.max(1));
        Some(Sleep { length, for_input: next_look.is_none() })
    }

    /// When to look for input next; `None`: when it comes.
    fn next_look(&self) -> Option<Time> {
        match self.last_look {
            Look::Nothing => None,
            Look::Drained => self.input_every_ns.map(|every| self.last_input.plus_nanos(every)),
            Look::More => Some(self.last_input),
        }
    }

    /// A sleep of `length` that nothing interrupted lasted from `began` to `now`.
    pub(crate) fn slept(&mut self, length: Duration, began: Time, now: Time) {
        let late = now.nanos_since(began + length).min(LATENESS_MAX_NS);
        // A mean over about eight sleeps.
        let mean = &mut self.lateness_ns[length_class(now.nanos_since(began))];
        *mean = (*mean * 7 + late) / 8;
    }
}

fn length_class(length_ns: u64) -> usize {
    LENGTHS_NS.iter().filter(|limit| length_ns >= **limit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_micros(50);

    fn pace() -> Pace {
        Pace::new(TICK, Duration::from_millis(40))
    }

    fn micros(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn idle_sleeps_are_long_and_end_with_input() {
        let sleep = pace().sleep(Time::from_secs(1), None);
        assert_eq!(sleep, Some(Sleep { length: Duration::from_millis(50), for_input: true }));
    }

    #[test]
    fn releases_are_a_tick_apart() {
        let mut pace = pace();
        let now = Time::from_secs(1);
        assert_eq!(pace.release(now), now + micros(25));
        assert_eq!(pace.sleep(now, Some(now + micros(30))).unwrap().length, TICK);
        assert_eq!(pace.sleep(now, Some(now + micros(300))).unwrap().length, micros(300));
    }

    #[test]
    fn flowing_input_is_looked_at_in_intervals() {
        let mut pace = pace();
        let now = Time::from_secs(1);
        assert!(!pace.input_is_due(now));
        pace.looked_for_input(now, Look::Drained);
        let sleep = pace.sleep(now, None);
        assert_eq!(sleep, Some(Sleep { length: micros(500), for_input: false }));
        assert!(!pace.input_is_due(now + micros(499)));
        assert!(pace.input_is_due(now + micros(500)));
        pace.looked_for_input(now + micros(500), Look::Nothing);
        assert!(pace.sleep(now + micros(500), None).unwrap().for_input);
    }

    /// What a stall has left in the sockets is taken in without sleeping in between.
    #[test]
    fn a_backlog_of_input_allows_no_sleep() {
        for delay in [Duration::ZERO, Duration::from_millis(40)] {
            let mut pace = Pace::new(TICK, delay);
            let now = Time::from_secs(1);
            pace.looked_for_input(now, Look::More);
            assert_eq!(pace.sleep(now, Some(now)), None);
            assert!(pace.input_is_due(now));
            pace.looked_for_input(now, Look::Drained);
            assert!(pace.sleep(now, None).is_some());
            assert!(!pace.input_is_due(now));
        }
    }

    #[test]
    fn short_delays_wake_for_each_input() {
        let mut pace = Pace::new(TICK, micros(150));
        pace.looked_for_input(Time::from_secs(1), Look::Drained);
        assert!(pace.sleep(Time::from_secs(1), None).unwrap().for_input);
        assert!(!pace.input_is_due(Time::from_secs(2)));
    }

    #[test]
    fn lateness_is_learnt_and_bounded() {
        let mut pace = pace();
        let now = Time::from_secs(1);
        for _ in 0..100 {
            pace.slept(micros(1_000), now, now + micros(1_060));
        }
        let length = pace.sleep(now, Some(now + micros(1_000))).unwrap().length;
        assert!((micros(940)..micros(941)).contains(&length), "{length:?}");
        for _ in 0..100 {
            pace.slept(micros(1_000), now, now + micros(1_999));
        }
        let length = pace.sleep(now, Some(now + micros(1_000))).unwrap().length;
        assert!((micros(800)..micros(801)).contains(&length), "{length:?}");
        // Of short sleeps nothing is known by that, and none is shorter than nothing.
        assert_eq!(pace.sleep(now, Some(now + micros(100))).unwrap().length, micros(100));
        (0..100).for_each(|_| pace.slept(micros(10), now, now + micros(160)));
        let length = pace.sleep(now, Some(now + micros(60))).unwrap().length;
        assert_eq!(length, Duration::from_nanos(1));
    }

    #[test]
    fn few_packets_are_not_held_up_for_others() {
        let mut pace = Pace::without_stamps(TICK);
        let now = Time::from_secs(1);
        let due = |pace: &Pace, now: Time| pace.sleep(now, Some(now + micros(5))).unwrap().length;
        pace.release(now);
        pace.released(now, 2);
        assert_eq!(due(&pace, now), micros(5));
        // With a third one in the same tick the next ones gather.
        pace.released(now + micros(20), 1);
        assert_eq!(due(&pace, now), TICK);
        // So they do in the tick that follows, until one was quiet.
        pace.release(now + micros(50));
        pace.released(now + micros(50), 1);
        assert_eq!(due(&pace, now + micros(50)), TICK);
        pace.release(now + micros(500));
        pace.released(now + micros(500), 1);
        assert_eq!(due(&pace, now + micros(500)), micros(5));
    }
}
