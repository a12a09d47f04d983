//! What was found out about a path.

use serde::{Deserialize, Serialize};

/// What a path does, from the side that asked (*forward*: what it sends) and back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// Whether UDP passes.
    pub reach: Reach,
    /// Round-trip time without load; `None` without an answer.
    pub rtt: Option<Rtt>,
    /// From the asking side.
    pub forward: Way,
    /// To the asking side.
    pub back: Way,
    /// What became of a steady stream forward at 90% of the capacity. Streams that were faster than
    /// the path turned out to be are not told of: what they lost is not the path's loss.
    pub load: Option<Load>,
    /// How far the peer's clock is ahead of ours, ms.
    pub clock_offset_ms: Option<f64>,
    /// Half of the smallest round trip: how wrong the offset may be if the ways differ, ms.
    pub clock_error_ms: Option<f64>,
    /// What the measurement has sent, headers included.
    pub bytes_sent: u64,
}

/// Whether UDP passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Both ways.
    Both,
    /// Questions reach the peer, its answers do not come back.
    ForwardOnly,
    /// No answer came, and nobody knows whether a question arrived.
    #[default]
    NoAnswer,
    /// Nothing that was sent has reached the peer.
    Nothing,
}

/// Round-trip times, ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rtt {
    /// The smallest.
    pub min_ms: f64,
    /// As many are smaller as are larger.
    pub median_ms: f64,
    /// One in twenty is larger.
    pub p95_ms: f64,
    /// How many were measured.
    pub samples: u32,
}

/// One direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Way {
    /// Small datagrams sent with time between them.
    pub sent: u32,
    /// Those that did not arrive.
    pub lost: u32,
    /// The share of datagrams of trains that came after a later one, 0 to 1.
    pub reordered: f64,
    /// The largest packet that passes whole, bytes with headers, 1200 to 9000. `None`: unknown, or
    /// not even 1200.
    pub mtu: Option<u16>,
    /// Whether packets of 1500 bytes arrive all the same when the kernel may cut them, as it may those
    /// of transfers. `None`: not tried, for they pass whole, or this is the way back.
    #[serde(default)]
    pub fragments: Option<bool>,
    /// Bits per second with headers that last: what a token bucket lets through at once is not in it.
    pub capacity: Option<f64>,
    /// It may be more: the sender, the receiving host or the way there was no faster.
    pub capacity_is_least: bool,
}

/// A steady stream.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Bits per second with headers.
    pub offered: f64,
    /// Bits per second that arrived in the second half of the time; `None`: too few to tell.
    #[serde(default)]
    pub delivered: Option<f64>,
    /// Datagrams.
    pub sent: u32,
    /// Those that were not received, for whatever reason.
    pub lost: u32,
    /// Of those, about how many the receiving host dropped because its socket's buffer was full: these the
    /// path has delivered.
    #[serde(default)]
    pub dropped: u32,
}

impl Way {
    /// Share of datagrams lost, 0 to 1.
    pub fn loss(&self) -> f64 {
        share(self.lost, self.sent)
    }
}

impl Load {
    /// Share of datagrams that the path lost, 0 to 1; what the receiving host dropped is not in it.
    pub fn loss(&self) -> f64 {
        share(self.lost.saturating_sub(self.dropped), self.sent)
    }

    /// Share of datagrams that the receiving host dropped, 0 to 1.
    pub fn dropped(&self) -> f64 {
        share(self.dropped.min(self.lost), self.sent)
    }
}

impl PathReport {
    /// The same path as the other side sees it. What only one side measures is left out.
    pub fn reversed(&self) -> PathReport {
        PathReport {
            forward: self.back,
            back: self.forward,
            load: None,
            clock_offset_ms: self.clock_offset_ms.map(|offset| -offset),
            ..self.clone()
        }
    }

    /// Adds what the responder's side has told over another channel: how many questions it saw.
    #[must_use]
    pub fn with_seen(mut self, seen: u64) -> PathReport {
        if self.reach == Reach::NoAnswer {
            self.reach = if seen > 0 { Reach::ForwardOnly } else { Reach::Nothing };
        }
        self
    }
}

fn share(part: u32, whole: u32) -> f64 {
    if whole == 0 { 0.0 } else { f64::from(part.min(whole)) / f64::from(whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_is_told_apart_by_the_other_side() {
        let silent = PathReport::default();
        assert_eq!(silent.clone().with_seen(0).reach, Reach::Nothing);
        assert_eq!(silent.with_seen(3).reach, Reach::ForwardOnly);
        let both = PathReport { reach: Reach::Both, ..PathReport::default() };
        assert_eq!(both.with_seen(0).reach, Reach::Both);
    }

    #[test]
    fn the_other_side_sees_the_ways_swapped() {
        let way = Way { sent: 100, lost: 1, ..Way::default() };
        let report =
            PathReport { forward: way, clock_offset_ms: Some(2.0), ..PathReport::default() };
        let other = report.reversed();
        assert_eq!((other.back.loss(), other.forward.loss()), (0.01, 0.0));
        assert_eq!(other.clock_offset_ms, Some(-2.0));
    }
}
