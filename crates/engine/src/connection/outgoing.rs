//! What a connection sends: control packets that wait, then data.

use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::Time;
use farhaul_control::{CustomMessage, ENGINE_SUBTYPES, Knobs, LEAST_GROWTH, MOST_GROWTH};
use farhaul_wire::{
    Ack, AckDetail, AckRates, AckSeq, Control, HEADER_LEN, Handshake, LossRange, Request, Seq,
    write_nak,
};

use super::{Connection, Life};
use crate::handshake::own_fields;
use crate::receive::AckForm;
use crate::tags::{FRONT, OVERHEAD, room_for};
use crate::transmit::Transmit;

/// The custom message that carries a [`Wish`] in the header's word. A stock peer ignores it.
pub const WISH: u16 = ENGINE_SUBTYPES;
/// The custom message that asks for tags on data packets, where control packets are authenticated. Its
/// subtype is beyond that of envelopes.
pub const DATA_TAGS: u16 = ENGINE_SUBTYPES + 2;
/// The custom message that tells what has arrived behind a hole, where the ACK number stands still:
/// [`Beyond`].
pub const BEYOND: u16 = ENGINE_SUBTYPES + 3;
/// A [`WISH`] is repeated so often while data is sent, for it may have been lost.
const WISH_REPEAT: Duration = Duration::from_millis(500);
/// Ranges of losses that wait to be reported.
pub const MAX_NAK_RANGES: usize = 1 << 16;
/// The longest control packet.
const CONTROL_SPACE: usize = 65_507;

/// What a law on one side would have the other side do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// [`Knobs::ack_interval`].
    pub ack_interval: u32,
    /// [`Knobs::window_growth`].
    pub window_growth: u32,
}

impl Default for Wish {
    fn default() -> Self {
        Wish::NONE
    }
}

impl Wish {
    /// What a peer does of its own accord.
    pub const NONE: Wish = Wish { ack_interval: 0, window_growth: LEAST_GROWTH };
    /// The growth is in the bits from here on; 0 stands for that of [`Wish::NONE`].
    const GROWTH_SHIFT: u32 = 24;

    fn of(knobs: &Knobs) -> Self {
        Wish { ack_interval: knobs.ack_interval, window_growth: knobs.window_growth }
    }

    fn to_word(self) -> u32 {
        let interval = self.ack_interval.min((1 << Self::GROWTH_SHIFT) - 1);
        let growth = self.window_growth - Self::NONE.window_growth;
        interval | growth << Self::GROWTH_SHIFT
    }

    /// From a word of the peer, which may hold anything.
    pub fn from_word(word: u32) -> Self {
        let growth = (word >> Self::GROWTH_SHIFT) + Self::NONE.window_growth;
        Wish {
            ack_interval: word & ((1 << Self::GROWTH_SHIFT) - 1),
            window_growth: growth.min(MOST_GROWTH),
        }
    }
}

/// What has arrived at a peer whose ACK number stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// Beyond the highest packet that has come: the header's word.
    pub end: Seq,
    /// The first packet that is missing.
    pub point: Seq,
    /// How many are missing before `end`.
    pub missing: u32,
    /// Packets that the peer takes from `point` on.
    pub available: u32,
}

impl Beyond {
    fn to_message(self) -> CustomMessage {
        let words = [self.point.value(), self.missing, self.available];
        let payload = words.into_iter().flat_map(u32::to_be_bytes).collect();
        CustomMessage { subtype: BEYOND, info: self.end.value(), payload }
    }

    /// From a message of the peer, which may hold anything; a later version may have more to say.
    pub fn from_message(info: u32, payload: &[u8]) -> Option<Self> {
        let word = |at: usize| payload.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let seq = |word: u32| (word <= Seq::MAX).then(|| Seq::new(word));
        Some(Beyond {
            end: seq(info)?,
            point: seq(word(0)?)?,
            missing: word(4)?,
            available: word(8)?,
        })
    }
}

/// Control packets that wait to be sent.
#[derive(Debug, Default)]
pub struct Outbox {
    pub handshake: bool,
    pub ack2: Option<AckSeq>,
    pub last_ack2: Option<Time>,
    pub naks: Vec<LossRange>,
    pub keep_alive: bool,
    /// A sign of life is wanted of the peer.
    pub ask: bool,
    pub shutdown: bool,
    pub error: Option<u32>,
    pub custom: VecDeque<CustomMessage>,
    /// What was last asked of the peer by [`WISH`], and when.
    pub wished: Wish,
    pub wished_at: Time,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        !self.handshake
            && self.ack2.is_none()
            && self.naks.is_empty()
            && !self.keep_alive
            && !self.ask
            && !self.shutdown
            && self.error.is_none()
            && self.custom.is_empty()
    }
}

impl Connection {
    /// Fills `out` with what may leave now; returns whether there is something.
    pub(crate) fn poll_transmit(&mut self, now: Time, out: &mut Transmit) -> bool {
        out.clear(self.peer);
        if self.poll_control(now, out) {
            self.last_sent = now;
            return true;
        }
        if !matches!(self.life, Life::Open | Life::Lingering { .. }) {
            return false;
        }
        let segments = self.segments();
        let dest = self.agreement.peer_id;
        let count = if self.governor.watches_packets() {
            let watched = &mut self.watched;
            let mut note = |packet| watched.push(packet);
            let count = self.send.fill(now, dest, segments, out, Some(&mut note));
            if count > 0 {
                self.tell_law_sent(now);
            }
            count
        } else {
            self.send.fill(now, dest, segments, out, None)
        };
        if count > 0 {
            self.last_sent = now;
            self.tell_wish(now);
            return true;
        }
        // Choosing what to send may have given messages up.
        self.poll_control(now, out)
    }

    /// Tells the peer what the law would have it do, if that is news to it or may be.
    fn tell_wish(&mut self, now: Time) {
        let wish = Wish::of(self.governor.knobs());
        let Outbox { wished, wished_at, custom, .. } = &mut self.outbox;
        let repeat = wish != Wish::NONE && now - *wished_at >= WISH_REPEAT;
        if wish != *wished || repeat {
            (*wished, *wished_at) = (wish, now);
            let payload = Vec::new();
            custom.push_back(CustomMessage { subtype: WISH, info: wish.to_word(), payload });
        }
    }

    /// Asks the peer for tags on data packets.
    pub(super) fn ask_for_data_tags(&mut self) {
        let ask = CustomMessage { subtype: DATA_TAGS, info: 0, payload: Vec::new() };
        self.outbox.custom.push_back(ask);
    }

    /// Packets of one call.
    pub(super) fn segments(&self) -> usize {
        let segment = self.payload_size() + HEADER_LEN;
        (65_507 / segment).clamp(1, self.config.max_segments as usize)
    }

    pub(super) fn poll_control(&mut self, now: Time, out: &mut Transmit) -> bool {
        if let Some(form) = self.due_ack(now) {
            if form == AckForm::Beyond {
                return self.push_beyond(now, out);
            }
            let ack = self.ack(now, form);
            self.counters.acks_sent += 1;
            return self.push_control(now, &ack, out);
        }
        if self.outbox.is_empty() {
            return self.poll_drop(now, out);
        }
        if core::mem::take(&mut self.outbox.handshake) {
            let answer = self.handshake_answer();
            return self.push_control(now, &Control::Handshake(answer), out);
        }
        if !self.outbox.naks.is_empty() {
            self.push_nak(now, out);
            return true;
        }
        if let Some(ack_seq) = self.outbox.ack2.take() {
            return self.push_control(now, &Control::Ack2 { ack_seq }, out);
        }
        if let Some(code) = self.outbox.error.take() {
            return self.push_control(now, &Control::ErrorSignal { code }, out);
        }
        if let Some(message) = self.outbox.custom.pop_front() {
            let CustomMessage { subtype, info, payload } = message;
            let overhead = if self.tags.are_sent() { OVERHEAD } else { 0 };
            let payload = &payload[..payload.len().min(self.payload_size() - overhead)];
            return self.push_control(now, &Control::User { subtype, info, payload }, out);
        }
        if core::mem::take(&mut self.outbox.shutdown) {
            return self.push_control(now, &self.shutdown(), out);
        }
        if core::mem::take(&mut self.outbox.ask) {
            // Whoever is connected answers this, the stock library too.
            let hello = Handshake { request: Request::Hello, ..self.handshake_answer() };
            return self.push_control(now, &Control::Handshake(hello), out);
        }
        self.outbox.keep_alive = false;
        self.push_control(now, &Control::KeepAlive, out)
    }

    pub(super) fn poll_drop(&mut self, now: Time, out: &mut Transmit) -> bool {
        let Some(notice) = self.send.take_drop() else { return false };
        let (message, first, last) = (notice.message, notice.first, notice.last);
        self.push_control(now, &Control::DropRequest { message, first, last }, out)
    }

    /// The answer to a handshake that comes once more: a peer that has not heard the first one.
    pub(super) fn handshake_answer(&self) -> Handshake {
        let own = own_fields(self.id, self.peer, self.agreement.isn, &self.config);
        let request = if self.config.rendezvous { Request::Agreement } else { Request::Conclusion };
        Handshake { request, mss: self.agreement.wire_mss, ..own }
    }

    /// The ACK to send now. It is chosen when it leaves, or what arrives in the meantime would need
    /// another, of a form that opens the window.
    fn due_ack(&mut self, now: Time) -> Option<AckForm> {
        if self.is_over() {
            return None;
        }
        let point = self.receive.point();
        self.receive.count_in_order();
        let target = self.window_target(now).min(self.receive.capacity());
        let repeat = self.ack_repeat();
        let interval = match (self.governor.knobs().ack_interval, self.peer_wish.ack_interval) {
            (0, other) | (other, 0) => other,
            (own, peer) => own.min(peer),
        };
        let beyond = self.tells_beyond();
        self.receive.acks.poll(now, point, repeat, interval, target, beyond)
    }

    /// There is a hole, and the peer understands what comes behind it.
    pub(super) fn tells_beyond(&self) -> bool {
        self.ours && self.receive.beyond().is_some()
    }

    fn push_beyond(&mut self, now: Time, out: &mut Transmit) -> bool {
        let Some((end, missing)) = self.receive.beyond() else { return false };
        let target = self.window_target(now);
        let available = self.receive.advertise(target);
        let beyond = Beyond { end, point: self.receive.point(), missing, available };
        let CustomMessage { subtype, info, payload } = beyond.to_message();
        self.push_control(now, &Control::User { subtype, info, payload: &payload }, out)
    }

    pub(super) fn ack(&mut self, now: Time, form: AckForm) -> Control<'static> {
        let next = self.receive.point();
        let (ack_seq, full) = match form {
            AckForm::Light | AckForm::Beyond => {
                return Control::Ack { ack_seq: AckSeq::LIGHT, ack: Ack { next, detail: None } };
            }
            AckForm::Small(ack_seq) => (ack_seq, false),
            AckForm::Full(ack_seq) => (ack_seq, true),
        };
        let target = self.window_target(now);
        let arrivals = &self.receive.arrivals;
        let rates = full.then(|| AckRates {
            receive_rate: arrivals.arrival_rate() as u32,
            link_capacity: arrivals.capacity() as u32,
        });
        let detail = AckDetail {
            rtt_us: self.rtt.micros(),
            rtt_var_us: self.rtt.var_micros(),
            available: self.receive.advertise(target),
            rates,
        };
        Control::Ack { ack_seq, ack: Ack { next, detail: Some(detail) } }
    }

    pub(super) fn push_nak(&mut self, now: Time, out: &mut Transmit) {
        let mut packet = [0; 1500 + OVERHEAD];
        let space = (self.payload_size() + HEADER_LEN).min(1500);
        let overhead = if self.tags.are_sent() { OVERHEAD } else { 0 };
        let room = FRONT..FRONT + space - overhead;
        let naks = &mut self.outbox.naks;
        // Zero is the mark of the stock library.
        let clock = self.send.clock_us(now).max(1);
        let (len, taken) = write_nak(naks, clock, self.agreement.peer_id, &mut packet[room]);
        naks.drain(..taken.max(1));
        self.counters.naks_sent += 1;
        out.push_control(self.tags.seal(&mut packet, len));
    }

    pub(super) fn push_control(
        &mut self,
        now: Time,
        control: &Control<'_>,
        out: &mut Transmit,
    ) -> bool {
        let mut packet = [0; 128];
        let clock = self.send.clock_us(now).max(1);
        let dest = self.agreement.peer_id;
        if room_for(control) <= packet.len()
            && let Some(len) = control.write(clock, dest, &mut packet[FRONT..])
        {
            out.push_control(self.tags.seal(&mut packet, len));
            return true;
        }
        let mut packet = vec![0; room_for(control).min(CONTROL_SPACE)];
        let end = packet.len() - (OVERHEAD - FRONT);
        match control.write(clock, dest, &mut packet[FRONT..end]) {
            Some(len) => {
                out.push_control(self.tags.seal(&mut packet, len));
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_a_word_that_older_peers_read_as_the_interval() {
        assert_eq!(Wish { ack_interval: 7, ..Wish::NONE }.to_word(), 7);
        let wish = Wish { ack_interval: 64, window_growth: 8 };
        assert_eq!(Wish::from_word(wish.to_word()), wish);
    }

    #[test]
    fn what_has_arrived_behind_a_hole_is_four_words() {
        let beyond =
            Beyond { end: Seq::new(3), point: Seq::new(Seq::MAX - 2), missing: 2, available: 8192 };
        let mut message = beyond.to_message();
        assert_eq!((message.subtype, message.payload.len()), (BEYOND, 12));
        assert_eq!(Beyond::from_message(message.info, &message.payload), Some(beyond));
        message.payload.push(7);
        assert_eq!(Beyond::from_message(message.info, &message.payload), Some(beyond), "longer");
        assert_eq!(Beyond::from_message(message.info, &message.payload[..11]), None, "shorter");
        assert_eq!(Beyond::from_message(1 << 31, &message.payload), None, "no sequence number");
    }

    #[test]
    fn what_a_peer_wishes_for_has_limits() {
        assert_eq!(Wish::from_word(u32::MAX).window_growth, MOST_GROWTH);
        assert_eq!(Wish::from_word(0), Wish::NONE);
    }
}
