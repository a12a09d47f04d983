//! Two coupled queues, for scalable and for classic congestion controls: RFC 9332, appendix A, with its
//! names.

use std::collections::VecDeque;

use farhaul_base::Time;

use super::Queued;
use crate::{DualPi2, Packet};

const MS: u64 = 1_000_000;
/// `Tupdate`.
const UPDATE_NS: u64 = 16 * MS;
/// Per second of delay beyond the target, and per second that it has grown by, at each update
/// (0.16 Hz and 3.2 Hz).
const ALPHA: f64 = 0.16;
const BETA: f64 = 3.2;
/// `p_Cmax`: that of drops and marks in the classic queue at most, 1/k² for k = 2; beyond, either queue
/// drops.
const MOST_CLASSIC: f64 = 0.25;
/// The ramp of the low-latency queue's own marking: `minTh`, and `range` from there to 1.
const RAMP_FROM_NS: u64 = 800_000;
const RAMP_NS: f64 = 400_000.0;
/// By how much a packet of the low-latency queue goes before one of the classic queue that came at the
/// same time (`tshift`, of a time-shifted scheduler): twice the target of the classic queue.
const SHIFT: u64 = 2;
/// After so many updates without a queue nothing is left of any probability.
const MOST_UPDATES: u64 = 2_000;

#[derive(Clone, Debug)]
pub(crate) struct DualPi2Queue<P> {
    low: Coupled<P>,
    classic: Coupled<P>,
    target_ns: u64,
    coupling: f64,
    /// `p'`, from which both probabilities follow.
    base: f64,
    delay_before_ns: f64,
    updated: u64,
}

/// One of the two.
#[derive(Clone, Debug)]
struct Coupled<P> {
    packets: VecDeque<(Time, Queued<P>)>,
    /// Of `recur`: a fraction of a signal of the coupled probability that is owed, and of a mark of the
    /// low-latency queue.
    owed: f64,
    owed_marks: f64,
}

impl<P: Packet> DualPi2Queue<P> {
    pub(crate) fn new(config: &DualPi2) -> Self {
        DualPi2Queue {
            low: Coupled::new(),
            classic: Coupled::new(),
            target_ns: u64::try_from(config.target.as_nanos()).unwrap_or(u64::MAX),
            coupling: f64::from(config.coupling.get()),
            base: 0.0,
            delay_before_ns: 0.0,
            updated: 0,
        }
    }

    /// Lets a packet wait.
    pub(crate) fn push(&mut self, at: Time, packet: Queued<P>) {
        self.pass_time(at);
        let queue = if packet.packet.ecn().is_l4s() { &mut self.low } else { &mut self.classic };
        queue.packets.push_back((at, packet));
    }

    /// The packet to transmit next. `congested` is given those that are to tell of congestion, and whether
    /// they may be marked, and gives back what it has marked and not dropped.
    pub(crate) fn pop(
        &mut self,
        now: Time,
        mut congested: impl FnMut(Queued<P>, bool) -> Option<Queued<P>>,
    ) -> Option<Queued<P>> {
        self.pass_time(now);
        loop {
            let coupled = self.base * self.coupling;
            // So many that even marks of all do not help: either queue drops as the classic one does.
            let overloaded = coupled > 1.0;
            let likely = (self.base * self.base).min(MOST_CLASSIC);
            let (packet, tells, may_mark) = if self.low_is_next(now) {
                let (came, packet) = self.low.packets.pop_front()?;
                if overloaded && self.low.recurs(likely) {
                    (packet, true, false)
                } else {
                    let ramp = now.nanos_since(came).saturating_sub(RAMP_FROM_NS) as f64 / RAMP_NS;
                    // A packet that is alone is no queue (Th_len).
                    let own = if self.low.packets.is_empty() { 0.0 } else { ramp.min(1.0) };
                    let likely = own.max(coupled).min(1.0);
                    (packet, self.low.marks(likely), true)
                }
            } else {
                let (_, packet) = self.classic.packets.pop_front()?;
                (packet, self.classic.recurs(likely), !overloaded)
            };
            let packet = if tells { congested(packet, may_mark) } else { Some(packet) };
            if packet.is_some() {
                return packet;
            }
        }
    }

    /// The scheduler: whose head has waited longer, the low-latency queue's being ahead by the shift.
    fn low_is_next(&self, now: Time) -> bool {
        let shift = self.target_ns.saturating_mul(SHIFT);
        match (self.low.waited(now), self.classic.waited(now)) {
            (Some(low), Some(classic)) => low.saturating_add(shift) >= classic,
            (low, _) => low.is_some(),
        }
    }

    fn pass_time(&mut self, now: Time) {
        let due = (now.as_nanos() / UPDATE_NS).saturating_sub(self.updated);
        self.updated += due;
        for _ in 0..due.min(MOST_UPDATES) {
            self.update(now);
        }
    }

    /// `dualpi2_update`.
    fn update(&mut self, now: Time) {
        let waited = |queue: &Coupled<P>| queue.waited(now).unwrap_or(0);
        let delay = waited(&self.low).max(waited(&self.classic)) as f64;
        let beyond = (delay - self.target_ns as f64) * 1e-9;
        let growth = (delay - self.delay_before_ns) * 1e-9;
        self.base = (self.base + ALPHA * beyond + BETA * growth).clamp(0.0, 1.0);
        self.delay_before_ns = delay;
    }

    /// Those that wait.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &P> {
        let both = self.low.packets.iter().chain(&self.classic.packets);
        both.map(|(_, queued)| &queued.packet)
    }
}

impl<P> Coupled<P> {
    fn new() -> Self {
        Coupled { packets: VecDeque::new(), owed: 0.0, owed_marks: 0.0 }
    }

    /// How long the head has waited, nanoseconds.
    fn waited(&self, now: Time) -> Option<u64> {
        self.packets.front().map(|(at, _)| now.nanos_since(*at))
    }

    fn recurs(&mut self, likely: f64) -> bool {
        recurs(&mut self.owed, likely)
    }

    fn marks(&mut self, likely: f64) -> bool {
        recurs(&mut self.owed_marks, likely)
    }
}

/// `recur`: each 1/`likely`th time, without chance.
fn recurs(owed: &mut f64, likely: f64) -> bool {
    *owed += likely;
    let due = *owed >= 1.0;
    *owed -= if due { 1.0 } else { 0.0 };
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_recur_as_often_as_is_likely() {
        let mut owed = 0.0;
        assert_eq!((0..1_000).filter(|_| recurs(&mut owed, 0.25)).count(), 250);
        assert_eq!((0..1_000).filter(|_| recurs(&mut owed, 1.0)).count(), 1_000);
        assert_eq!((0..1_000).filter(|_| recurs(&mut owed, 0.0)).count(), 0);
    }
}
