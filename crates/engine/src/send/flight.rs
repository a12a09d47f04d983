//! Packets on the fly while acknowledgements stand still.
//!
//! A hole stops the ACK number for the round trip or more that its repair takes, and everything
//! sent meanwhile stays unacknowledged whether or not it has arrived. What a window limits are the
//! packets in the network (gu05 §2.2.4), and those are then the ones sent within the last round
//! trip.

use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;

/// Bursts closer than this count as one.
const GRAIN_NS: u64 = 1_000_000;

#[derive(Debug, Default)]
pub struct Flight {
    /// Instants at which packets left, and how many.
    bursts: VecDeque<(Time, u32)>,
    packets: u32,
    /// How long a packet and the answer to it take.
    span: Duration,
}

impl Flight {
    /// How long a packet and the answer to it take.
    pub fn set_span(&mut self, span: Duration) {
        self.span = span;
    }

    /// A packet leaves.
    #[inline]
    pub fn on_sent(&mut self, now: Time) {
        self.packets += 1;
        match self.bursts.back_mut() {
            Some((at, count)) if now.nanos_since(*at) < GRAIN_NS => *count += 1,
            _ => self.bursts.push_back((now, 1)),
        }
    }

    /// Forgets what has arrived or is lost by `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some(&(at, count)) = self.bursts.front() {
            if at + self.span > now {
                break;
            }
            self.bursts.pop_front();
            self.packets -= count;
        }
    }

    /// Packets on the fly when it was last advanced.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// When it will be less.
    pub fn next_change(&self) -> Option<Time> {
        self.bursts.front().map(|(at, _)| *at + self.span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_the_network_after_a_span() {
        let mut flight = Flight::default();
        flight.set_span(Duration::from_millis(50));
        let at = |us| Time::from_micros(us);
        for (us, packets) in [(0, 10), (900, 5), (2_000, 7)] {
            (0..packets).for_each(|_| flight.on_sent(at(us)));
        }
        assert_eq!((flight.packets(), flight.bursts.len()), (22, 2));
        flight.advance(at(49_999));
        assert_eq!((flight.packets(), flight.next_change()), (22, Some(at(50_000))));
        flight.advance(at(50_000));
        assert_eq!((flight.packets(), flight.next_change()), (7, Some(at(52_000))));
        flight.set_span(Duration::from_millis(10));
        flight.advance(at(50_000));
        assert_eq!((flight.packets(), flight.next_change()), (0, None));
    }
}
