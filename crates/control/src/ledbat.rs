//! `ledbat`: a background transfer that adds no more than a target to the delay of the path and
//! yields to everything else (RFC 6817).

use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;
use farhaul_wire::{LossRange, Seq};

use crate::rounds::Answered;
use crate::tcp_like::ACK_INTERVAL;
use crate::{Knobs, Law, LawInfo, Make, Param, View};

/// `CURRENT_FILTER` of the RFC, samples: the least of so many is what the delay is now.
const CURRENT_FILTER: usize = 4;
/// `ALLOWED_INCREASE`, packets: how far the window may be beyond what is in flight.
const ALLOWED_INCREASE: f64 = 1.0;
/// `MIN_CWND`, packets.
const MIN_WINDOW: f64 = 2.0;
/// The window after a time-out, packets.
const LOSS_WINDOW: f64 = 1.0;
/// How long each minimum of the base history is that of.
const BASE_SPAN: Duration = Duration::from_secs(60);
/// Slow start, if wanted, ends at this share of the target (draft-irtf-iccrg-ledbat-plus-plus).
const SLOW_START_SHARE: f64 = 0.75;

/// The LEDBAT law.
#[derive(Debug)]
pub struct Ledbat {
    target: f64,
    gain: f64,
    base_history: usize,
    initial_window: f64,
    slow_start: bool,
    /// It is in slow start.
    slow: bool,
    /// The last round-trip times, seconds.
    current: VecDeque<f64>,
    /// The shortest of each of the last minutes, the newest at the end, seconds; and when that
    /// minute began.
    base: VecDeque<f64>,
    minute: Time,
    /// What the last ACK was for: everything before it.
    acked: Seq,
    answered: Answered,
}

impl Ledbat {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: "ledbat",
        summary: "a background transfer: takes what others leave, and adds little delay",
        source: "RFC 6817: LEDBAT",
        params: &[
            Param::number("window", 2.0, (1.0, 65536.0), "packets", "sent before the first ACK"),
            Param::time(
                "target",
                0.1,
                (0.001, 0.1),
                "queueing delay that it may add (RFC 6817: at most 100ms)",
            ),
            Param::number(
                "gain",
                1.0,
                (0.001, 1.0),
                "packets/RTT",
                "added to the window when there is no queue",
            ),
            Param::number(
                "base_history",
                10.0,
                (1.0, 60.0),
                "minutes",
                "for which the shortest delay is remembered",
            ),
            Param::flag(
                "slow_start",
                false,
                "double the window until there is a queue (RFC 6817 begins linearly)",
            ),
        ],
        make: Make::Law(|values, _| {
            Box::new(Ledbat::new(
                values.get("window"),
                values.get("target"),
                values.get("gain"),
                values.get("base_history") as usize,
                values.is("slow_start"),
            ))
        }),
    };

    /// `window`: packets sent before the first ACK; `target`: queueing delay, seconds; `gain`:
    /// packets a round trip; `base_history`: minutes.
    pub fn new(window: f64, target: f64, gain: f64, base_history: usize, slow_start: bool) -> Self {
        Ledbat {
            target,
            gain,
            base_history: base_history.max(1),
            initial_window: window,
            slow_start,
            slow: slow_start,
            current: VecDeque::new(),
            base: VecDeque::new(),
            minute: Time::ZERO,
            acked: Seq::new(0),
            answered: Answered::new(),
        }
    }

    /// Takes in the delay of a packet (RFC 6817 §2.4.2).
    ///
    /// *departs:* the RFC measures the delay of one way by the sender's time stamps, which come
    /// back with each acknowledgement. UDT's ACKs bear none, so this is the round-trip time, and a
    /// queue on the way back counts as well.
    fn measure(&mut self, now: Time, delay: f64) {
        if self.base.is_empty() || now - self.minute >= BASE_SPAN {
            self.minute = now;
            self.base.push_back(delay);
        } else if let Some(newest) = self.base.back_mut() {
            *newest = newest.min(delay);
        }
        while self.base.len() > self.base_history {
            self.base.pop_front();
        }
        self.current.push_back(delay);
        while self.current.len() > CURRENT_FILTER {
            self.current.pop_front();
        }
    }

    /// The queueing delay, seconds; none before the first sample.
    fn queue(&self) -> Option<f64> {
        let least = |delays: &VecDeque<f64>| delays.iter().copied().reduce(f64::min);
        Some(least(&self.current)? - least(&self.base)?)
    }
}

impl Law for Ledbat {
    fn name(&self) -> &'static str {
        Ledbat::INFO.name
    }

    fn state(&self) -> &'static str {
        match (self.slow, self.queue()) {
            (true, _) => "slow start",
            (_, Some(queue)) if queue > self.target => "yielding",
            _ => "below target",
        }
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        knobs.window = view.start_window(self.initial_window);
        knobs.period_ns = 0.0;
        knobs.ack_interval = ACK_INTERVAL;
        self.acked = view.largest_acked.next();
        self.answered.until(view.largest_acked);
    }

    fn on_ack(&mut self, next: Seq, view: &View, knobs: &mut Knobs) {
        let acked = f64::from(next.since(self.acked).max(0));
        self.acked = next;
        self.answered.on_ack(next);
        if let Some(newest) = view.newest {
            self.measure(view.now, newest.rtt.as_secs_f64());
        }
        let Some(queue) = self.queue() else { return };
        self.slow &= queue <= SLOW_START_SHARE * self.target;
        let off_target = (self.target - queue) / self.target;
        let (grown, beyond) = if self.slow {
            (knobs.window + acked, acked)
        } else {
            (knobs.window + self.gain * off_target * acked / knobs.window, ALLOWED_INCREASE)
        };
        // Nothing tests a window of which more is not in use.
        let in_flight = f64::from(view.in_flight) + acked;
        knobs.window = grown.min(in_flight + beyond).max(MIN_WINDOW);
    }

    fn on_loss(&mut self, lost: &[LossRange], view: &View, knobs: &mut Knobs) {
        if self.answered.answer(lost, view) {
            self.slow = false;
            knobs.window = knobs.window.min((knobs.window / 2.0).max(MIN_WINDOW));
        }
    }

    fn on_timeout(&mut self, view: &View, knobs: &mut Knobs) {
        self.answered.until(view.largest_sent);
        self.slow = self.slow_start;
        knobs.window = LOSS_WINDOW;
    }
}

#[cfg(test)]
mod tests;
