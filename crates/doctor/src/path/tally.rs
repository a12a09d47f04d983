//! What has come of a round.

use farhaul_base::Time;

use super::message::WORDS;

/// Most datagrams in a round.
pub const MOST: u32 = 1 << 16;
/// Points of an arrival curve: with more, every second is forgotten, and half as many are kept of what
/// comes.
const POINTS: usize = 512;
/// A rate needs as many arrivals at different times: one datagram that was held up must not decide it.
const TIMES: u32 = 4;

/// Counts the datagrams of a round as they come, each once.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    received: u32,
    late: u32,
    /// One more than the highest sequence number.
    next: u32,
    seen: Vec<u64>,
    /// The arrival curve without its last point: one of `stride` different times.
    curve: Vec<Point>,
    stride: u32,
    last: Option<Point>,
}

/// How many datagrams had come by a time.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Time,
    received: u32,
    /// Different times of arrival before this one.
    times: u32,
}

/// What a tally tells.
///
/// The *tail* is the second half of the time from the first arrival to the last. What a token bucket
/// lets through at once, and what a queue that was empty takes, comes in the first half; the tail comes
/// at the rate that lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams, duplicates not counted.
    pub received: u32,
    /// Those that came after one with a higher number.
    pub late: u32,
    /// When the first and the last came.
    pub first: Time,
    /// See `first`.
    pub last: Time,
    /// The first arrival of the tail.
    pub tail: Time,
    /// Datagrams that came after that. Receive offload gives the datagrams of a batch one time.
    pub tail_received: u32,
    /// The different times at which these came.
    pub tail_times: u32,
    /// What the receiving host dropped meanwhile because the socket's buffer was full: datagrams, or
    /// batches of them that came in one piece.
    pub dropped: u32,
}

impl Tally {
    /// A datagram came; `false` if it came before, or there cannot be such a number.
    pub fn count(&mut self, sequence: u32, at: Time) -> bool {
        if sequence >= MOST {
            return false;
        }
        let (word, bit) = (sequence as usize / 64, 1u64 << (sequence % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            return false;
        }
        self.seen[word] |= bit;
        self.received += 1;
        self.late += u32::from(sequence < self.next);
        self.next = self.next.max(sequence + 1);
        self.draw(at);
        true
    }

    fn draw(&mut self, at: Time) {
        let mut point = Point { at, received: self.received, times: 0 };
        if let Some(last) = self.last {
            // Stamps of different queues of a card may lie a little before the last one.
            point.at = at.max(last.at);
            point.times = last.times + u32::from(at > last.at);
            self.stride = self.stride.max(1);
            if at > last.at && last.times.is_multiple_of(self.stride) {
                self.curve.push(last);
            }
            if self.curve.len() > POINTS {
                self.stride *= 2;
                self.curve.retain(|point| point.times.is_multiple_of(self.stride));
            }
        }
        self.last = Some(point);
    }

    /// So far.
    pub fn counts(&self) -> Counts {
        let Some(last) = self.last else { return Counts::default() };
        let first = self.curve.first().unwrap_or(&last);
        let middle = first.at + (last.at - first.at) / 2;
        let tail = self.curve.iter().find(|point| point.at >= middle).unwrap_or(&last);
        Counts {
            received: self.received,
            late: self.late,
            first: first.at,
            last: last.at,
            tail: tail.at,
            tail_received: last.received - tail.received,
            tail_times: last.times - tail.times,
            dropped: 0,
        }
    }
}

impl Counts {
    /// As the words of a message.
    pub fn words(&self) -> [u64; WORDS] {
        [
            self.received.into(),
            self.late.into(),
            self.first.as_nanos(),
            self.last.as_nanos(),
            self.tail.as_nanos(),
            self.tail_received.into(),
            self.tail_times.into(),
            self.dropped.into(),
        ]
    }

    /// From the words of a message about a round of `sent` datagrams; `None` if they cannot be.
    pub fn from_words(words: [u64; WORDS], sent: u32) -> Option<Counts> {
        let count = |word: u64| u32::try_from(word).ok().filter(|n| *n <= sent);
        let counts = Counts {
            received: count(words[0])?,
            late: count(words[1])?,
            first: Time::from_nanos(words[2]),
            last: Time::from_nanos(words[3]),
            tail: Time::from_nanos(words[4]),
            tail_received: count(words[5])?,
            tail_times: count(words[6])?,
            // Those of other rounds, or of others' datagrams, may be among them.
            dropped: u32::try_from(words[7]).unwrap_or(u32::MAX),
        };
        (counts.first <= counts.tail && counts.tail <= counts.last).then_some(counts)
    }

    /// Bits per second at which datagrams of `bytes` on the wire came in the tail; `None` if too few came
    /// to tell.
    pub fn rate(&self, bytes: u32) -> Option<f64> {
        let span = self.last.nanos_since(self.tail);
        (self.tail_times >= TIMES && span > 0)
            .then(|| f64::from(self.tail_received) * f64::from(bytes) * 8e9 / span as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn datagrams_count_once() {
        let mut tally = Tally::default();
        let came = [(0, 1), (2, 1), (1, 2), (1, 3), (4, 5), (MOST, 6), (u32::MAX, 7)];
        let counted = came.map(|(sequence, at)| tally.count(sequence, ms(at)));
        assert_eq!(counted, [true, true, true, false, true, false, false]);
        let expected = Counts {
            received: 4,
            late: 1,
            first: ms(1),
            last: ms(5),
            // The first arrival at or after the middle, 3 ms.
            tail: ms(5),
            tail_received: 0,
            tail_times: 0,
            dropped: 0,
        };
        assert_eq!(tally.counts(), expected);
        let told = Counts { dropped: 3, ..expected };
        assert_eq!(Counts::from_words(told.words(), 5), Some(told));
        assert_eq!(Tally::default().counts(), Counts::default());
    }

    #[test]
    fn a_rate_is_that_of_the_second_half() {
        let mut tally = Tally::default();
        // A hundred at once, as a token bucket lets them through, and then 1500 bytes a millisecond.
        (0..100).for_each(|n| _ = tally.count(n, ms(0)));
        (100..121).for_each(|n| _ = tally.count(n, ms(u64::from(n - 99))));
        let counts = tally.counts();
        assert_eq!((counts.tail, counts.tail_received, counts.tail_times), (ms(11), 10, 10));
        assert_eq!(counts.rate(1500), Some(12e6));
        assert_eq!(Counts { tail_times: 3, ..counts }.rate(1500), None);
        assert_eq!(Counts::default().rate(1500), None);
    }

    /// Two a millisecond, many more than there are points: memory is bounded, and the rate is as right.
    #[test]
    fn a_long_curve_is_thinned() {
        let mut tally = Tally::default();
        for n in 0..MOST {
            assert!(tally.count(n, ms(u64::from(n / 2))));
        }
        assert!(tally.curve.len() <= POINTS);
        let rate = tally.counts().rate(1500).unwrap();
        assert!((rate / 24e6 - 1.0).abs() < 1e-9, "{rate}");
        let counts = tally.counts();
        assert!((counts.tail_received as i32 - 32_768).abs() < 300, "{counts:?}");
    }

    #[test]
    fn impossible_words_are_refused() {
        let words = |changes: &[(usize, u64)]| {
            let mut words = Counts::default().words();
            changes.iter().for_each(|(index, value)| words[*index] = *value);
            Counts::from_words(words, 5)
        };
        assert!(words(&[(0, 5), (7, u64::MAX)]).is_some());
        let bad: [&[(usize, u64)]; 6] = [
            &[(0, 6)],
            &[(1, u64::MAX)],
            &[(2, 2), (3, 1), (4, 2)],
            &[(3, 2), (4, 3)],
            &[(5, 1 << 32)],
            &[(6, 6)],
        ];
        for bad in bad {
            assert_eq!(words(bad), None, "{bad:?}");
        }
    }
}
