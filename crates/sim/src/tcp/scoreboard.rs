//! What a sender knows of its segments in flight (RFC 6675).
//!
//! All segments are of full size but the last, so that RFC 6675's `IsLost` comes to one boundary:
//! what is not acknowledged below the third highest segment acknowledged is lost. The boundary only
//! rises, so that each segment is looked at a few times in all however large the window is.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;

use super::ranges::Ranges;

/// Later segments that must have arrived for one to be lost (`DupThresh`).
const DUP_THRESH: u64 = 3;

/// Acknowledged by SACK.
const SACKED: u8 = 1;
/// Taken for lost, and not known to have arrived.
const LOST: u8 = 2;
/// Sent again, and that copy is taken to be in flight.
const RESENT: u8 = 4;
/// Sent more than once, so that its round trip says nothing (Karn's rule).
const AMBIGUOUS: u8 = 8;

/// The segments sent and not acknowledged cumulatively.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    /// The first one.
    una: u64,
    sent: VecDeque<Sent>,
    /// Those acknowledged by SACK.
    ranges: Ranges,
    /// How many carry each flag.
    sacked: u64,
    lost: u64,
    resent: u64,
    /// Everything below this that is not acknowledged is lost.
    boundary: u64,
    /// Lost and not sent again, in the order in which they are to be: first those whose
    /// retransmission was lost.
    again: VecDeque<u64>,
    to_resend: VecDeque<u64>,
    /// Retransmissions in flight: which, and the first new segment that was not sent before it.
    resends: VecDeque<(u64, u64)>,
    /// So many of them, the first ones, were sent before the last answer to congestion.
    answered: usize,
    /// Where to look for segments that may be lost.
    probe: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    /// When it was first sent.
    at: Time,
    flags: u8,
}

/// What an ACK said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Segments acknowledged cumulatively that were not before.
    pub acked: u64,
    /// Segments of which it is new that they have arrived.
    pub delivered: u64,
    /// The latest of them and its round trip, if it was sent once and did not have to wait for one
    /// that was sent again to be acknowledged.
    pub newest: Option<(u64, Duration)>,
}

impl Scoreboard {
    /// The first segment not acknowledged cumulatively.
    pub fn una(&self) -> u64 {
        self.una
    }

    /// The first segment not sent.
    pub fn end(&self) -> u64 {
        self.una + self.outstanding()
    }

    /// Segments sent and not acknowledged cumulatively (`FlightSize`).
    pub fn outstanding(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Segments taken to be in flight (`pipe`).
    pub fn pipe(&self) -> u64 {
        self.outstanding() - self.sacked - self.lost + self.resent
    }

    /// Whether the first segment not acknowledged is lost: what begins a recovery.
    pub fn is_missing_one(&self) -> bool {
        self.boundary > self.una
    }

    /// The next new segment is sent.
    pub fn send_new(&mut self, now: Time) -> u64 {
        self.sent.push_back(Sent { at: now, flags: 0 });
        self.end() - 1
    }

    /// An ACK for everything before `next` and for `blocks`.
    pub fn acknowledge(
        &mut self,
        now: Time,
        next: u64,
        blocks: impl Iterator<Item = Range<u64>>,
    ) -> Delivery {
        let mut delivery = Delivery::default();
        let (mut latest, mut repaired): (Option<(u64, Sent)>, _) = (None, false);
        while self.una < next {
            let Some(sent) = self.sent.pop_front() else { break };
            self.una += 1;
            delivery.acked += 1;
            if sent.flags & SACKED != 0 {
                self.sacked -= 1;
                continue;
            }
            self.lost -= u64::from(sent.flags & LOST != 0);
            self.resent -= u64::from(sent.flags & RESENT != 0);
            delivery.delivered += 1;
            repaired |= sent.flags & AMBIGUOUS != 0;
            latest = Some((self.una - 1, sent));
        }
        if repaired {
            // What is acknowledged behind the hole may have arrived long ago, and the ACKs that told
            // so are lost: its time is that of the repair.
            latest = None;
        }
        self.ranges.remove_before(self.una);
        let (una, end) = (self.una, self.end());
        for block in blocks {
            let Self { ranges, sent, sacked, lost, resent, .. } = self;
            // What was never sent is no business of an ACK.
            let block = block.start.max(una)..block.end.min(end);
            ranges.insert(block, |new| {
                *sacked += new.end - new.start;
                delivery.delivered += new.end - new.start;
                for number in new {
                    let sent = &mut sent[(number - una) as usize];
                    *lost -= u64::from(sent.flags & LOST != 0);
                    *resent -= u64::from(sent.flags & RESENT != 0);
                    sent.flags = sent.flags & AMBIGUOUS | SACKED;
                    if latest.is_none_or(|(_, known)| known.at <= sent.at) {
                        latest = Some((number, *sent));
                    }
                }
            });
        }
        let latest = latest.filter(|(_, sent)| sent.flags & AMBIGUOUS == 0);
        delivery.newest = latest.map(|(number, sent)| (number, now - sent.at));
        delivery
    }

    /// The sender has answered to congestion: what is lost of the retransmissions in flight was sent
    /// before, and is no further congestion.
    pub fn answer(&mut self) {
        self.answered = self.resends.len();
    }

    /// Takes for lost what must be by now, and tells `lost` of it in runs. Segments whose
    /// retransmission is lost are among them once more. If one of these was sent again after the
    /// last [`answer`](Self::answer), returns the new segment that was next then.
    pub fn detect(&mut self, mut lost: impl FnMut(Range<u64>)) -> Option<u64> {
        let boundary = self.third_highest().unwrap_or(0);
        let mut run = 0..0;
        for number in self.boundary.max(self.una)..boundary {
            if self.lose(number) {
                if run.end != number {
                    if !run.is_empty() {
                        lost(run.clone());
                    }
                    run.start = number;
                }
                run.end = number + 1;
            }
        }
        if !run.is_empty() {
            lost(run);
        }
        self.boundary = self.boundary.max(boundary);
        // RFC 6675 leaves lost retransmissions to the timer. As in Linux, one is lost when as many
        // new segments that were sent after it have arrived.
        let mut unanswered = None;
        while let Some(&(number, mark)) = self.resends.front()
            && mark <= boundary
        {
            self.resends.pop_front();
            let answered = self.answered > 0;
            self.answered = self.answered.saturating_sub(1);
            let Some(sent) = self.get(number).filter(|sent| sent.flags & RESENT != 0) else {
                continue;
            };
            let was_lost = sent.flags & LOST != 0;
            sent.flags = sent.flags & !RESENT | LOST;
            self.resent -= 1;
            self.lost += u64::from(!was_lost);
            self.again.push_back(number);
            if !answered {
                unanswered = Some(mark);
            }
            lost(number..number + 1);
        }
        unanswered
    }

    /// The timer has expired: everything not acknowledged is lost. Returns how many.
    pub fn lose_all(&mut self) -> u64 {
        self.again.clear();
        self.to_resend.clear();
        self.resends.clear();
        self.answered = 0;
        self.resent = 0;
        self.lost = 0;
        for (index, sent) in self.sent.iter_mut().enumerate() {
            sent.flags &= !RESENT;
            if sent.flags & SACKED == 0 {
                sent.flags |= LOST;
                self.lost += 1;
                self.to_resend.push_back(self.una + index as u64);
            }
        }
        self.lost
    }

    /// Sends again the first segment that is lost (`NextSeg` rule 1).
    pub fn resend_lost(&mut self) -> Option<u64> {
        loop {
            let number = self.again.pop_front().or_else(|| self.to_resend.pop_front())?;
            // It may have arrived since.
            let waits = self.get(number).is_some_and(|sent| sent.flags & (LOST | RESENT) == LOST);
            if waits {
                self.resend(number);
                return Some(number);
            }
        }
    }

    /// Sends again the first segment that may be lost: not acknowledged, and a later one is
    /// (`NextSeg` rule 3).
    pub fn resend_doubtful(&mut self) -> Option<u64> {
        let highest = self.ranges.iter().next_back()?.start;
        let from = self.probe.max(self.boundary).max(self.una);
        let number = (from..highest)
            .find(|number| self.sent[(number - self.una) as usize].flags & (SACKED | RESENT) == 0);
        self.probe = number.map_or(from.max(highest), |number| number + 1);
        self.resend(number?);
        number
    }

    /// Sends again the last segment that is not acknowledged (`NextSeg` rule 4).
    pub fn resend_last(&mut self) -> Option<u64> {
        let index = self.sent.iter().rposition(|sent| sent.flags & SACKED == 0)?;
        let number = self.una + index as u64;
        if self.sent[index].flags & RESENT != 0 {
            return None;
        }
        self.resend(number);
        Some(number)
    }

    fn get(&mut self, number: u64) -> Option<&mut Sent> {
        self.sent.get_mut(usize::try_from(number.checked_sub(self.una)?).ok()?)
    }

    fn lose(&mut self, number: u64) -> bool {
        let Some(sent) = self.get(number).filter(|sent| sent.flags & (SACKED | LOST) == 0) else {
            return false;
        };
        sent.flags |= LOST;
        let waits = sent.flags & RESENT == 0;
        self.lost += 1;
        if waits {
            self.to_resend.push_back(number);
        }
        waits
    }

    fn resend(&mut self, number: u64) {
        let mark = self.end();
        if let Some(sent) = self.get(number) {
            sent.flags |= RESENT | AMBIGUOUS;
            self.resent += 1;
            self.resends.push_back((number, mark));
        }
    }

    /// The third highest segment acknowledged by SACK, if there are so many.
    fn third_highest(&self) -> Option<u64> {
        let mut wanted = DUP_THRESH;
        for range in self.ranges.iter().rev() {
            let len = range.end - range.start;
            if len >= wanted {
                return Some(range.end - wanted);
            }
            wanted -= len;
        }
        None
    }
}

#[cfg(test)]
mod tests;
