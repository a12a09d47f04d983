//! HyStart++ (RFC 9406): slow start ends when the round trip grows, before the queue overflows.
//!
//! It needs eight samples of the round trip in each, thus as many ACKs: where a receiver sends
//! fewer, slow start is what it is without it.
//!
//! *departs:* RFC 9406 §4.3 has a host that does not pace grow by 8 packets an ACK at most. UDT's
//! ACKs may be for hundreds, and slow start would hardly grow; all count here, as in
//! [`crate::TcpLike`].

use core::time::Duration;

use farhaul_wire::Seq;

use crate::View;

/// By so much the round trip must grow, between these, and otherwise by a share of it
/// (`MIN_RTT_THRESH`, `MAX_RTT_THRESH`, `MIN_RTT_DIVISOR`).
const LEAST_GROWTH: Duration = Duration::from_millis(4);
const MOST_GROWTH: Duration = Duration::from_millis(16);
const GROWTH_DIVISOR: u32 = 8;
/// Samples of a round trip before its shortest counts (`N_RTT_SAMPLE`).
const SAMPLES: u32 = 8;
/// Conservative slow start grows by a share, and lasts so many round trips (`CSS_GROWTH_DIVISOR`,
/// `CSS_ROUNDS`).
const CONSERVATIVE_DIVISOR: f64 = 4.0;
const CONSERVATIVE_ROUNDS: u32 = 5;

/// Slow start until it is over.
#[derive(Debug, Default)]
pub(crate) struct HyStart {
    /// The first packet of the next round trip.
    round_end: Option<Seq>,
    /// The shortest of the round trip before and of this one, and how many samples it has.
    last: Option<Duration>,
    current: Option<Duration>,
    samples: u32,
    conservative: Option<Conservative>,
    over: bool,
}

#[derive(Debug)]
struct Conservative {
    /// The shortest round trip when it began.
    baseline: Duration,
    rounds: u32,
}

impl HyStart {
    /// An ACK, in slow start.
    pub fn on_ack(&mut self, view: &View) {
        if self.round_end.is_none_or(|end| view.largest_acked.since(end) >= 0) {
            self.begin_round(view);
        }
        let Some(newest) = view.newest else { return };
        self.samples += 1;
        let current = self.current.map_or(newest.rtt, |least| least.min(newest.rtt));
        self.current = Some(current);
        if self.samples < SAMPLES {
            return;
        }
        match (&self.conservative, self.last) {
            // The round trip grew for another reason, and does no more.
            (Some(conservative), _) if current < conservative.baseline => self.conservative = None,
            (None, Some(last)) => {
                let growth = (last / GROWTH_DIVISOR).clamp(LEAST_GROWTH, MOST_GROWTH);
                if current >= last + growth {
                    self.conservative = Some(Conservative { baseline: current, rounds: 0 });
                }
            }
            _ => {}
        }
    }

    fn begin_round(&mut self, view: &View) {
        if self.round_end.replace(view.largest_sent.next()).is_none() {
            return;
        }
        self.last = self.current.take();
        self.samples = 0;
        if let Some(conservative) = &mut self.conservative {
            // The one in which it began counts.
            conservative.rounds += 1;
            self.over |= conservative.rounds >= CONSERVATIVE_ROUNDS;
        }
    }

    /// What `acked` packets add to the window.
    pub fn growth(&self, acked: f64) -> f64 {
        if self.conservative.is_some() { acked / CONSERVATIVE_DIVISOR } else { acked }
    }

    /// Slow start is over: the queue has been growing for long enough.
    pub fn is_over(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests;
