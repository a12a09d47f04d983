//! What a sender makes of marks: explicit congestion notification.

use core::str::FromStr;

use farhaul_link::Ecn;

/// Whether a connection's segments can be marked, and how it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcpEcn {
    /// They cannot.
    #[default]
    Off,
    /// As a loss, once a window (RFC 3168 §6.1.2), with ECT(0).
    Classic,
    /// In proportion to their share, once a window (RFC 8257 §3.3), with ECT(1): a scalable control as
    /// L4S wants it (RFC 9331). The window grows by the law.
    Scalable,
}

/// `g`: the weight of a window in the share of marks.
const WEIGHT: f64 = 1.0 / 16.0;

/// What a sender knows of marks.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    how: TcpEcn,
    /// The receiver's counter, as it was last told.
    seen: u32,
    /// Of the present window: segments delivered, those that were marked, and the first segment that is
    /// not of it.
    delivered: u64,
    marked: u64,
    end: u64,
    /// Everything before this was sent before the last answer.
    answered: u64,
    /// `DCTCP.Alpha`: the share of marks.
    share: f64,
    /// A mark has been answered as a loss, which ends slow start.
    started: bool,
}

/// How to answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Answer {
    /// As to a loss.
    Loss,
    /// The window is to be multiplied by this.
    Scale(f64),
}

impl TcpEcn {
    /// The field of data segments.
    pub(super) fn of_data(self) -> Ecn {
        match self {
            TcpEcn::Off => Ecn::NotCapable,
            TcpEcn::Classic => Ecn::Ect0,
            TcpEcn::Scalable => Ecn::Ect1,
        }
    }
}

impl Marks {
    pub(super) fn new(how: TcpEcn) -> Self {
        Marks {
            how,
            seen: 0,
            delivered: 0,
            marked: 0,
            end: 0,
            answered: 0,
            share: 1.0,
            started: false,
        }
    }

    /// An ACK of everything before `una` tells that `delivered` more segments have arrived, and that
    /// `marks` of all were marked; `end` is the first segment that has not been sent.
    pub(super) fn on_ack(
        &mut self,
        marks: u32,
        delivered: u64,
        una: u64,
        end: u64,
    ) -> Option<Answer> {
        if self.how == TcpEcn::Off {
            return None;
        }
        // An ACK that is overtaken tells of fewer.
        let new = marks.wrapping_sub(self.seen);
        let new = if new > u32::MAX / 2 { 0 } else { new };
        self.seen = self.seen.wrapping_add(new);
        self.delivered += delivered;
        self.marked += u64::from(new);
        if una >= self.end {
            let share = self.marked as f64 / self.delivered.max(1) as f64;
            self.share += WEIGHT * (share.min(1.0) - self.share);
            (self.delivered, self.marked, self.end) = (0, 0, end);
        }
        if new == 0 || una < self.answered {
            return None;
        }
        self.answered = end;
        if self.how == TcpEcn::Classic || !core::mem::replace(&mut self.started, true) {
            return Some(Answer::Loss);
        }
        Some(Answer::Scale(1.0 - self.share / 2.0))
    }
}

impl FromStr for TcpEcn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(TcpEcn::Off),
            "classic" => Ok(TcpEcn::Classic),
            "l4s" => Ok(TcpEcn::Scalable),
            _ => Err("write off, classic or l4s".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_answered_once() {
        let mut marks = Marks::new(TcpEcn::Classic);
        assert_eq!(marks.on_ack(0, 2, 2, 10), None);
        assert_eq!(marks.on_ack(1, 2, 4, 12), Some(Answer::Loss));
        assert_eq!(marks.on_ack(3, 2, 6, 14), None);
        assert_eq!(marks.on_ack(3, 6, 12, 20), None, "no further marks");
        assert_eq!(marks.on_ack(4, 2, 14, 20), Some(Answer::Loss));
        // Overtaken by the one before.
        assert_eq!(marks.on_ack(3, 0, 20, 30), None);
        assert_eq!(Marks::new(TcpEcn::Off).on_ack(9, 1, 1, 2), None);
    }

    #[test]
    fn the_answer_follows_the_share() {
        let mut marks = Marks::new(TcpEcn::Scalable);
        assert_eq!(marks.on_ack(1, 10, 10, 20), Some(Answer::Loss), "slow start ends");
        // A tenth of each window is marked.
        let mut last = None;
        for window in 2..300u64 {
            last = marks.on_ack(window as u32, 10, 10 * window, 10 * (window + 1));
        }
        let Some(Answer::Scale(by)) = last else { panic!("{last:?}") };
        assert!((by - 0.95).abs() < 0.005, "{by}");
    }
}
