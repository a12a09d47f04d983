//! What the path loses by itself, however little is sent: a share of the packets that says nothing of a
//! queue.
//!
//! *departs:* The draft takes each loss for congestion, and allows for 2% of them only while it
//! probes. Between probes a flow fills its share of the path and no more, so what is lost then again and again is not
//! of its making; BBR's answer would cost the rate and empty no queue. Losses are answered beyond what chance makes
//! of this share.

use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;

use crate::View;

/// A window of calm is measured over so many packets and so long at least, and over a round trip.
const WINDOW_PACKETS: u64 = 400;
const WINDOW_LASTS: Duration = Duration::from_millis(100);
/// So many windows count, and of them the one at this place from the lowest: a competitor that fills a queue now
/// and then leaves that many without a loss.
const WINDOWS_KEPT: usize = 12;
const PLACE: usize = 2;
/// How far chance may go beyond the expectation, in standard deviations.
const DEVIATIONS: f64 = 4.0;

/// The share that is lost without a queue. Counters are those of [`View`].
#[derive(Debug)]
pub(super) struct OwnLoss {
    /// No higher share is believed.
    most: f64,
    /// Of the windows, the oldest first.
    shares: VecDeque<f64>,
    /// What they come to.
    share: f64,
    /// The window that is being measured: packets that arrived and were lost in calm, how long, and
    /// whether a round trip has ended in it.
    arrived: u64,
    lost: u64,
    lasted: Duration,
    round: bool,
    /// What the last event in a calm told, none if the last was in no calm.
    last: Option<Counters>,
}

#[derive(Clone, Copy, Debug)]
struct Counters {
    at: Time,
    arrived: u64,
    lost: u64,
}

impl OwnLoss {
    pub fn new(most: f64) -> Self {
        OwnLoss {
            most,
            shares: VecDeque::with_capacity(WINDOWS_KEPT),
            share: most,
            arrived: 0,
            lost: 0,
            lasted: Duration::ZERO,
            round: false,
            last: None,
        }
    }

    /// An event; `calm`: nothing is probed, and what is heard is of no probe. `round`: a round trip ends.
    pub fn update(&mut self, calm: bool, round: bool, view: &View) {
        let now = Counters { at: view.now, arrived: view.delivered, lost: view.trace.packets_lost };
        let last = self.last.take();
        if !calm || self.most == 0.0 {
            return;
        }
        self.last = Some(now);
        let Some(last) = last else { return };
        self.arrived += now.arrived - last.arrived;
        self.lost += now.lost - last.lost;
        self.lasted += now.at - last.at;
        self.round |= round;
        let packets = self.arrived + self.lost;
        if packets >= WINDOW_PACKETS && self.lasted >= WINDOW_LASTS && self.round {
            if self.shares.len() == WINDOWS_KEPT {
                self.shares.pop_front();
            }
            self.shares.push_back(self.lost as f64 / packets as f64);
            self.share = self.third_lowest().min(self.most);
            (self.arrived, self.lost, self.lasted, self.round) = (0, 0, Duration::ZERO, false);
        }
    }

    /// The share of the window at [`PLACE`], or of the last where there are fewer.
    fn third_lowest(&self) -> f64 {
        let mut sorted = [f64::INFINITY; WINDOWS_KEPT];
        sorted.iter_mut().zip(&self.shares).for_each(|(place, share)| *place = *share);
        sorted.sort_by(f64::total_cmp);
        sorted[PLACE.min(self.shares.len() - 1)]
    }

    /// The share; the highest that is believed while nothing has been measured.
    pub fn share(&self) -> f64 {
        self.share
    }

    pub fn most(&self) -> f64 {
        self.most
    }
}

/// How many of `packets` may be lost by chance where each is lost with probability `share`.
pub(super) fn by_chance(share: f64, packets: f64) -> f64 {
    share * packets + DEVIATIONS * (share * (1.0 - share) * packets).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trace;

    /// Windows of a thousand packets in a second, of which so many are lost; one more between two is in no
    /// calm, and half of it is lost.
    fn measured(most: f64, lost: &[u64]) -> OwnLoss {
        let mut own = OwnLoss::new(most);
        let mut view = View::default();
        for lost in lost {
            for ms in 0..=1_000 {
                if ms > 0 {
                    view.now += Duration::from_millis(1);
                    view.trace.packets_lost += u64::from(ms <= *lost);
                    view.delivered += u64::from(ms > *lost);
                }
                own.update(true, ms == 500, &view);
            }
            view.now += Duration::from_secs(1);
            view.trace = Trace { packets_lost: view.trace.packets_lost + 500, ..view.trace };
            view.delivered += 500;
            own.update(false, true, &view);
        }
        own
    }

    #[test]
    fn the_highest_is_believed_until_there_is_a_measurement() {
        assert_eq!(measured(0.05, &[]).share(), 0.05);
        assert!(measured(0.05, &[10]).share() < 0.05);
        assert_eq!(measured(0.0, &[10; 5]).share(), 0.0, "as in the draft");
    }

    #[test]
    fn a_steady_share_is_found_and_held_below_the_highest() {
        for (lost, share) in [(0, 0.0), (10, 0.01), (30, 0.03), (200, 0.05)] {
            let found = measured(0.05, &[lost; 20]).share();
            assert!((found - share).abs() < 0.003, "{lost} of 1,000: {found}");
        }
    }

    /// What others lose for a while, and a calm that is none, are not the path's own.
    #[test]
    fn single_windows_with_many_losses_do_not_count() {
        let mut lost = [300; 30];
        (0..30).step_by(3).for_each(|n| lost[n] = 0);
        assert!(measured(0.05, &lost).share() < 0.003);
    }

    #[test]
    fn chance_is_four_standard_deviations() {
        assert_eq!(by_chance(0.0, 1_000.0), 0.0);
        let expected = 100.0 + 4.0 * 99.0_f64.sqrt();
        assert!((by_chance(0.01, 10_000.0) - expected).abs() < 1e-9);
    }
}
