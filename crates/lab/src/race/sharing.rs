//! What flows get of a path that they share.

use serde::{Deserialize, Serialize};

use super::Cell;
use super::cell::SETTLED_AFTER;
use super::judge::PAYLOAD;

/// What a flow has received: the ends of intervals, seconds, and the rates in them, bits a second.
pub type Flow = Vec<(f64, f64)>;

/// How a path was shared once the flows had 10 s to settle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    /// What each flow of the system had on average, over an equal part of the line's payload.
    pub share: f64,
    /// Jain's index of all flows: 1 if they are equal, 1/n if one of n has everything.
    pub jain: f64,
}

impl Sharing {
    /// Of the flows on a path, the system's own first. None if the path is not shared.
    pub fn of(cell: &Cell, flows: &[Flow]) -> Option<Sharing> {
        let own = cell.flows.min(flows.len());
        if !cell.is_shared() || own == 0 {
            return None;
        }
        let (from, to) = (SETTLED_AFTER.as_secs_f64(), cell.lasts().as_secs_f64());
        let rates: Vec<f64> = flows.iter().map(|flow| mean_rate(flow, from, to)).collect();
        let equal = cell.line_bps() * PAYLOAD / flows.len() as f64;
        let (sum, squares) = (rates.iter().sum::<f64>(), rates.iter().map(|r| r * r).sum::<f64>());
        let jain = if squares > 0.0 { sum * sum / (rates.len() as f64 * squares) } else { 0.0 };
        let share = rates[..own].iter().sum::<f64>() / own as f64 / equal;
        Some(Sharing { share, jain })
    }
}

/// Between these times; nothing arrives after the last interval.
fn mean_rate(flow: &Flow, from: f64, to: f64) -> f64 {
    let mut begin = 0.0;
    let mut bits = 0.0;
    for (end, rate) in flow {
        bits += rate * (end.min(to) - f64::max(begin, from)).max(0.0);
        begin = *end;
    }
    bits / (to - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(rate: f64) -> Flow {
        (1..=30).map(|end| (f64::from(end), if end <= 10 { 1e9 } else { rate })).collect()
    }

    #[test]
    fn flows_of_one_rate_share_evenly() {
        let cell: Cell = "rate=10M,rtt=10ms,flows=2".parse().expect("a path");
        let half = 5e6 * PAYLOAD;
        let even = Sharing::of(&cell, &[flow(half), flow(half)]).expect("shared");
        assert!((even.jain - 1.0).abs() < 1e-9 && (even.share - 1.0).abs() < 1e-9, "{even:?}");
        let one = Sharing::of(&cell, &[flow(half), flow(0.0)]).expect("shared");
        assert!((one.jain - 0.5).abs() < 1e-9 && (one.share - 0.5).abs() < 1e-9, "{one:?}");
        let nothing = Sharing::of(&cell, &[flow(0.0), Flow::new()]).expect("shared");
        assert_eq!(nothing, Sharing::default());
    }

    #[test]
    fn what_is_beside_the_system_is_none_of_its_flows() {
        let cell: Cell = "rate=10M,rtt=10ms,against=tcp:cubic".parse().expect("a path");
        let half = 5e6 * PAYLOAD;
        let sharing = Sharing::of(&cell, &[flow(half / 2.0), flow(half)]).expect("shared");
        assert!((sharing.share - 0.5).abs() < 1e-9, "{sharing:?}");
        let alone = Cell::new(10_000_000, 10, 0.0);
        assert_eq!(Sharing::of(&alone, &[flow(half)]), None);
    }

    #[test]
    fn a_flow_that_ends_early_has_nothing_after() {
        let rates: Flow = flow(8e6).into_iter().filter(|(end, _)| *end <= 20.0).collect();
        assert!((mean_rate(&rates, 10.0, 30.0) - 4e6).abs() < 1.0);
    }
}
