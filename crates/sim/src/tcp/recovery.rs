//! How much to send while losses are repaired.

use super::scoreboard::{Delivery, Scoreboard};

/// A fast recovery.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// It is over when everything before this is acknowledged (`RecoveryPoint`).
    pub point: u64,
    /// The rescue retransmission has been made (RFC 6675 `NextSeg` rule 4).
    pub rescued: bool,
    prr: Option<Prr>,
}

/// Proportional rate reduction (RFC 6937): what is in flight comes down to the window over one round
/// trip, and not by half a round trip of silence. Below the window it grows as in slow start while
/// ACKs tell of progress and of no further loss, and is what arrives otherwise: what a full queue
/// drops again and again would be sent at twice the rate of the link (RFC 9937 §6, SafeACK).
#[derive(Clone, Debug)]
struct Prr {
    /// `RecoverFS`: segments outstanding when it began.
    flight: u64,
    /// Segments that have arrived since.
    delivered: u64,
    /// Segments sent since.
    out: u64,
    /// Segments that this ACK allows.
    allowance: u64,
}

impl Recovery {
    /// Begins with what is outstanding.
    pub fn new(board: &Scoreboard, proportional: bool) -> Self {
        let prr = Prr { flight: board.outstanding(), delivered: 0, out: 0, allowance: 0 };
        Recovery { point: board.end(), rescued: false, prr: proportional.then_some(prr) }
    }

    /// An ACK; `lost`: it tells of further losses; `window`: the window that the law has set, packets.
    pub fn on_ack(&mut self, delivery: Delivery, lost: bool, pipe: u64, window: u64) {
        let Some(prr) = &mut self.prr else { return };
        prr.delivered += delivery.delivered;
        prr.allowance = if pipe > window {
            (prr.delivered * window).div_ceil(prr.flight.max(1)).saturating_sub(prr.out)
        } else {
            let safe = delivery.acked > 0 && !lost;
            let bound = prr.delivered.saturating_sub(prr.out).max(delivery.delivered);
            (window - pipe).min(bound + u64::from(safe))
        };
        // The first retransmission waits for nothing.
        if prr.out == 0 {
            prr.allowance = prr.allowance.max(1);
        }
    }

    /// Whether one more segment may be sent.
    pub fn has_room(&self, pipe: u64, window: u64) -> bool {
        self.prr.as_ref().map_or(pipe < window, |prr| prr.allowance > 0)
    }

    /// A segment has been sent.
    pub fn on_sent(&mut self) {
        if let Some(prr) = &mut self.prr {
            prr.out += 1;
            prr.allowance = prr.allowance.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use farhaul_base::Time;

    use super::*;

    /// RFC 6937 §3.1: one loss of a hundred, to a window of fifty: a segment for every other ACK.
    #[test]
    fn half_of_what_arrives_is_sent() {
        let mut board = Scoreboard::default();
        for _ in 0..100 {
            board.send_new(Time::ZERO);
        }
        let mut recovery = Recovery::new(&board, true);
        let (mut pipe, mut sent) = (96, 0);
        for ack in 0..96 {
            recovery.on_ack(Delivery { delivered: 1, ..Delivery::default() }, false, pipe, 50);
            while recovery.has_room(pipe, 50) {
                recovery.on_sent();
                pipe += 1;
                sent += 1;
            }
            pipe -= 1;
            assert!((ack / 2..=ack / 2 + 2).contains(&sent), "{ack}: {sent}");
        }
        assert!((48..=50).contains(&pipe), "{pipe}");
    }

    /// Most of the window is lost: what is in flight grows by one segment an ACK beyond what
    /// arrives, up to the window.
    #[test]
    fn grows_as_in_slow_start_below_the_window() {
        let mut board = Scoreboard::default();
        for _ in 0..100 {
            board.send_new(Time::ZERO);
        }
        let mut recovery = Recovery::new(&board, true);
        let mut pipe = 4;
        let mut ack = |acked, lost| {
            pipe -= 1;
            recovery.on_ack(Delivery { delivered: 1, acked, newest: None }, lost, pipe, 50);
            while recovery.has_room(pipe, 50) {
                recovery.on_sent();
                pipe += 1;
            }
            pipe
        };
        let growing = [1, 1, 1, 1].map(|acked| ack(acked, false));
        assert_eq!(growing, [5, 6, 7, 8]);
        // Neither an ACK without progress nor one with further losses lets it grow.
        assert_eq!((ack(0, false), ack(1, true)), (8, 8));
    }
}
