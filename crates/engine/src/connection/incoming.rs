//! What a connection receives: packets to its halves, and what follows from them.

use core::time::Duration;

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_control::{ENGINE_SUBTYPES, SYN, SentPacket};
use farhaul_wire::{Ack, AckSeq, Control, DataHeader, LossRange, LossReport, Packet, Request, Seq};

use super::disowned::DISOWNED_AFTER;
use super::governor::PERIOD_MEASURED_OVER;
use super::outgoing::{BEYOND, Beyond, DATA_TAGS, MAX_NAK_RANGES, WISH, Wish};
use super::{ABORTED, ACCOUNTS, CloseReason, Connection, LAST_ACK_WAIT, Life, SEND_AHEAD};
use crate::config::Mode;
use crate::handshake::STAMP;
use crate::receive::Payload;
use crate::send::AckOutcome;

/// Packets, the first of a connection, that a stock peer may not have been ready for.
const STOCK_DEAF_FOR: i32 = 64;

impl Connection {
    /// Datagrams of one receive-offload buffer, `bytes[range]`, each of `segment` bytes but the
    /// last, all from the peer and for this connection. `retain`: `bytes` may be kept by reference.
    /// Returns whether any of it is the peer's, as far as that is known.
    pub(crate) fn handle(
        &mut self,
        now: Time,
        bytes: &Bytes,
        range: core::ops::Range<usize>,
        segment: usize,
        retain: bool,
    ) -> bool {
        if self.is_over() {
            self.answer_late(now, &bytes[range.start..range.end.min(range.start + segment)]);
            return true;
        }
        let mut heard = false;
        let mut batch = None;
        let mut data = 0;
        let mut burst_ends = false;
        let mut any = false;
        let mut start = range.start;
        while start < range.end {
            let end = (start + segment).min(range.end);
            let Some(packet) = self.tags.open(now, &bytes[start..end]) else {
                self.counters.forged += 1;
                start = end;
                continue;
            };
            any = true;
            // Any host can send data packets: where control packets are authenticated, those are the
            // signs of life.
            let counts = matches!(packet, Ok(Packet::Control(_))) || !self.tags.are_required(now);
            let refused = self.counters.invalid;
            match packet {
                // A peer may take this side's MSS for its own, and no more.
                Ok(Packet::Data(_, payload)) if payload.len() > self.most_payload => {
                    self.counters.invalid += 1;
                }
                Ok(Packet::Data(header, payload)) => {
                    let word = bytes[start + 4..start + 8].first_chunk();
                    let word = word.map_or(0, |word| u32::from_be_bytes(*word));
                    if !self.tags.admits(header.seq, word, payload, self.receive.point()) {
                        self.counters.forged += 1;
                        start = end;
                        continue;
                    }
                    data += 1;
                    burst_ends = payload.len() < self.payload_size();
                    let at = (end - payload.len()) as u32;
                    self.on_data(now, bytes, &header, at, payload.len(), retain, &mut batch);
                }
                Ok(Packet::Control(control)) => {
                    self.on_control(now, &control.body, control.timestamp);
                }
                Err(_) => self.counters.invalid += 1,
            }
            // What no peer would send is no sign of life.
            heard |= counts && self.counters.invalid == refused;
            start = end;
        }
        if heard {
            self.last_heard = now;
        }
        if data > 0 {
            if self.tags.asks_again(now) {
                self.ask_for_data_tags();
            }
            self.after_data(now, data, burst_ends, batch.filter(|_| retain));
        }
        if any {
            self.advance_life(now);
        }
        any
    }

    /// One data packet, from the peer and for this connection.
    pub(crate) fn handle_data(&mut self, now: Time, header: &DataHeader, payload: &Bytes) {
        if payload.len() > self.most_payload {
            self.counters.invalid += 1;
        } else {
            if !self.tags.are_required(now) {
                self.last_heard = now;
            }
            let mut batch = None;
            self.on_data(now, payload, header, 0, payload.len(), true, &mut batch);
            self.after_data(now, 1, payload.len() < self.payload_size(), batch);
        }
        self.advance_life(now);
    }

    /// After `packets` that came together, the last perhaps at the end of a burst.
    fn after_data(&mut self, now: Time, packets: u32, burst_ends: bool, batch: Option<u32>) {
        self.receive.close_batch(now, batch);
        let period = self.governor.knobs().ack_period;
        self.receive.acks.on_data(now, packets, period, burst_ends);
        self.report_losses(now);
        self.events.readable |= self.receive.readable();
    }

    /// The peer goes on after the end: it has not heard of it.
    pub(super) fn answer_late(&mut self, now: Time, datagram: &[u8]) {
        self.outbox.shutdown |= match self.tags.open(now, datagram) {
            Some(Ok(Packet::Data(..))) => true,
            Some(Ok(Packet::Control(control))) => !matches!(control.body, Control::Shutdown { .. }),
            Some(Err(_)) => false,
            None => {
                self.counters.forged += 1;
                false
            }
        };
    }

    #[expect(clippy::too_many_arguments, reason = "one packet's fields, unpacked on the hot path")]
    pub(super) fn on_data(
        &mut self,
        now: Time,
        bytes: &Bytes,
        header: &DataHeader,
        at: u32,
        len: usize,
        retain: bool,
        batch: &mut Option<u32>,
    ) {
        if self.takes_nothing() {
            return;
        }
        let payload = if !self.receive.wants(header.seq) {
            // Counted, not stored.
            Payload { batch: 0, start: 0, len: len as u16 }
        } else if retain {
            let batch = *batch.get_or_insert_with(|| self.receive.open_batch(bytes.clone()));
            Payload { batch, start: at, len: len as u16 }
        } else {
            let copy = Bytes::copy_from_slice(&bytes[at as usize..at as usize + len]);
            Payload { batch: self.receive.open_batch(copy), start: 0, len: len as u16 }
        };
        self.receive.on_data(now, header, payload);
        if self.governor.watches_packets() {
            let packet = SentPacket {
                seq: header.seq,
                len: len as u32,
                timestamp: header.timestamp,
                retransmission: false,
            };
            self.tell_law(now, |law, view, knobs| law.on_packet_received(&packet, view, knobs));
        }
    }

    pub(super) fn on_control(&mut self, now: Time, control: &Control<'_>, timestamp: u32) {
        if matches!(
            control,
            Control::Ack { .. } | Control::Nak(_) | Control::Ack2 { .. } | Control::KeepAlive
        ) {
            self.stock = timestamp == 0;
            self.ours = !self.stock;
            self.send.sees_beyond_holes = self.ours;
        }
        // That of a handshake in a set-up is no time.
        if timestamp > STAMP {
            self.way_back.on_control(now, self.send.clock_us(now), timestamp);
        }
        match control {
            Control::Ack { ack_seq, ack } => self.on_ack(now, *ack_seq, ack),
            Control::Nak(report) => self.on_nak(now, report),
            Control::Ack2 { ack_seq } => {
                self.counters.invalid += u64::from(!self.receive.acks.has_sent(*ack_seq));
                if let Some(rtt) = self.receive.acks.on_ack2(now, *ack_seq) {
                    self.rtt.update(now, rtt.as_micros().min(u128::from(u32::MAX)) as u32);
                }
            }
            Control::DropRequest { .. } if self.takes_nothing() => {}
            Control::DropRequest { message, first, last } => {
                // The stock library leaves the time stamp of control packets zero; it is also the
                // one whose range is too long.
                let exact = timestamp != 0;
                if self.receive.on_drop_request(now, message.value(), *first, *last, exact) {
                    let period = self.governor.knobs().ack_period;
                    self.receive.acks.on_data(now, 0, period, true);
                } else {
                    self.counters.invalid += 1;
                }
                self.events.readable |= self.receive.readable();
            }
            Control::Handshake(handshake) => {
                // A peer that has not heard that the connection stands. A final answer is not
                // answered, or two of them would go to and fro for ever.
                self.outbox.handshake |= match handshake.request {
                    Request::Hello => true,
                    Request::Rendezvous | Request::Conclusion => self.config.rendezvous,
                    _ => false,
                };
            }
            Control::Shutdown { code } => self.on_shutdown(now, *code),
            Control::ErrorSignal { code } => {
                self.peer_error = Some(*code);
                self.events.writable = true;
            }
            Control::User { subtype: WISH, info, .. } => self.peer_wish = Wish::from_word(*info),
            Control::User { subtype: BEYOND, info, payload } => {
                match Beyond::from_message(*info, payload) {
                    Some(beyond) => self.on_beyond(now, &beyond),
                    None => self.counters.invalid += 1,
                }
            }
            Control::User { subtype: DATA_TAGS, .. } => {
                if self.tags.are_required(now) && self.config.mode == Mode::Stream {
                    self.send.tagger = self.tags.data_key();
                }
            }
            Control::User { subtype: ENGINE_SUBTYPES.., .. } => {}
            Control::User { subtype, info, payload } => {
                self.tell_law(now, |law, view, knobs| {
                    law.on_custom_message(*subtype, *info, payload, view, knobs);
                });
            }
            // A later version may have more to say.
            Control::KeepAlive | Control::CongestionWarning | Control::Unknown { .. } => {}
        }
    }

    pub(super) fn on_ack(&mut self, now: Time, ack_seq: AckSeq, ack: &Ack) {
        let available = ack.detail.map(|d| d.available);
        let newest = self.send.on_seen(now, ack.next);
        let was_flushed = self.flushed();
        let outcome = self.send.on_ack(now, ack.next, available);
        if outcome == AckOutcome::Impossible {
            self.counters.invalid += 1;
            return;
        }
        // A numbered ACK may confirm what a light one has acknowledged.
        self.events.flushed |= self.flushed() && !was_flushed;
        self.counters.acks_received += 1;
        if let Some(detail) = ack.detail {
            self.answer_ack(now, ack_seq, detail.rates.is_some());
            // The values before any measurement say nothing.
            if (detail.rtt_us, detail.rtt_var_us) != (100_000, 50_000) {
                self.rtt.update(now, detail.rtt_us);
            }
            if let Some(rates) = detail.rates {
                smooth(&mut self.arrival_rate, rates.receive_rate);
                smooth(&mut self.capacity, rates.link_capacity);
            }
        }
        let AckOutcome::Advanced(packets) = outcome else {
            self.look_for_forgery(now, core::iter::once(LossRange::single(ack.next)));
            return;
        };
        if self.stock {
            // Half the round trip, for a stock peer's first reports of it are too long.
            let least = self.rtt.min().unwrap_or_default() / 2;
            self.doubts.on_ack(now, ack.next, least);
        }
        self.tell_round_trip();
        let span = self.rtt.smoothed().max(SYN);
        self.measure_period(now, span * PERIOD_MEASURED_OVER);
        if self.ack_wait().is_zero() {
            self.sample_rtt(now, newest);
        }
        let app_limited = self.send.take_app_limited();
        self.delivery.on_ack(now, packets, app_limited, span);
        let next = ack.next;
        let newest = self.arrival(now, newest);
        if self.governor.watches_packets() {
            self.sampler.acknowledge(next);
        }
        self.tell_law_news(now, app_limited, newest, |law, view, knobs| {
            law.on_ack(next, view, knobs);
        });
        // A peer of ours repeats its reports, so what comes late was not lost.
        if self.stock {
            self.send.resend_silent_hole(now, self.rto());
        }
        if self.was_full && self.send_space() >= self.send_limit(SEND_AHEAD) / 4 {
            self.was_full = false;
            self.events.writable = true;
        }
    }

    /// The peer tells what has arrived behind a hole.
    fn on_beyond(&mut self, now: Time, beyond: &Beyond) {
        let newest = self.send.on_seen(now, beyond.end);
        if !self.send.on_beyond(now, beyond.point, beyond.end, beyond.missing, beyond.available) {
            self.counters.invalid += 1;
            return;
        }
        if self.ack_wait().is_zero() {
            self.sample_rtt(now, newest);
            self.tell_round_trip();
        }
        let app_limited = !self.send.buffer.has_unsent();
        let newest = self.arrival(now, newest);
        self.tell_law_news(now, app_limited, newest, |law, view, knobs| {
            law.on_arrivals(view, knobs);
        });
    }

    /// Where the peer tells what arrives behind a hole it tells it when it is asked to; a little more than the
    /// round trip covers for that packets of one millisecond count together.
    fn tell_round_trip(&mut self) {
        let wait = if self.ours { self.ack_wait().max(SYN / 5) } else { SYN };
        self.send.set_round_trip(self.rtt.smoothed(), wait);
    }

    /// Every numbered ACK wants an ACK2; for the small ones between, one a SYN interval will do.
    pub(super) fn answer_ack(&mut self, now: Time, ack_seq: AckSeq, full: bool) {
        if full || self.outbox.last_ack2.is_none_or(|at| now - at >= SYN) {
            self.outbox.ack2 = Some(ack_seq);
            self.outbox.last_ack2 = Some(now);
        }
    }

    pub(super) fn on_nak(&mut self, now: Time, report: &LossReport<'_>) {
        // What a report may name is in flight: the sum bounds the work that it can cause.
        let named: u64 = report.ranges().map(|r| u64::from(r.len())).sum();
        let mut valid = named <= u64::from(self.send.buffer.in_flight()) + 65_536;
        if valid {
            let (stock, doubts) = (self.stock, &mut self.doubts);
            let ranges: Vec<LossRange> =
                report.ranges().filter(|range| !(stock && doubts.wait(now, *range))).collect();
            valid = self.lose(now, &ranges);
            self.look_for_forgery(now, report.ranges());
        }
        self.counters.naks_received += u64::from(valid);
        self.counters.invalid += u64::from(!valid);
    }

    /// Ends a connection that cannot go on: [`disowned`](super::disowned). The peer misses `ranges`.
    fn look_for_forgery(&mut self, now: Time, ranges: impl Iterator<Item = LossRange> + Clone) {
        let told_each = self.config.keep_alive * 2;
        let timeout = DISOWNED_AFTER.max(told_each).max(self.rto() * 4);
        let timeout = timeout.min(self.config.peer_timeout);
        let disowned = self.disowned.report(now, self.send.una(), ranges, timeout);
        if disowned && matches!(self.life, Life::Open | Life::Lingering { .. }) {
            self.end(now, CloseReason::Reneged);
        }
    }

    /// Reports that were doubted, and that nothing has refuted.
    pub(super) fn lose_doubted(&mut self, now: Time) {
        while let Some(range) = self.doubts.due(now) {
            let valid = self.lose(now, &[range]);
            self.counters.invalid += u64::from(!valid);
        }
    }

    /// Takes the packets of `ranges` for lost, but those that were never sent, for which it returns
    /// false: a damaged sequence number makes the peer miss such ones, and what else it misses is
    /// none the less to be sent again.
    fn lose(&mut self, now: Time, ranges: &[LossRange]) -> bool {
        // A report that comes sooner after a retransmission left before that could arrive. A peer of ours
        // repeats it late enough to allow for a queue that has grown meanwhile.
        let deviation = self.rtt.variation();
        let steady = match self.stock {
            true => self.rtt.smoothed().saturating_sub(deviation),
            false => self.rtt.smoothed() + deviation,
        };
        // On a path of constant delay the peer repeats its report (after RTT + SYN) just when what
        // was sent again after the law's pause of a SYN arrives: half a SYN tells the two apart.
        let fresh = self.rtt.min().map_or(steady, |least| least.max(steady)) + SYN / 2;
        let mut valid = true;
        let mut lost = Vec::new();
        let mut newest = None;
        for range in ranges {
            // A report leaves when the packet behind the hole arrives.
            newest = self.send.on_seen(now, range.last.plus(2)).or(newest);
            match self.send.on_loss_report(now, *range, fresh) {
                Ok(range) => lost.extend(range),
                Err(()) => valid = false,
            }
        }
        self.sample_rtt(now, newest);
        if self.stock {
            lost.iter().for_each(|range| self.doubts.believe(now, range.last));
            // What comes before it has noticed that it is connected, stock drops: no congestion.
            lost.retain(|range| range.last.since(self.agreement.isn) >= STOCK_DEAF_FOR);
        } else if valid {
            self.send.on_heard(now);
        }
        let newest = self.arrival(now, newest);
        if !lost.is_empty() {
            let app_limited = !self.send.buffer.has_unsent();
            self.tell_law_news(now, app_limited, newest, |law, view, knobs| {
                law.on_loss(&lost, view, knobs);
            });
        }
        valid
    }

    pub(super) fn on_shutdown(&mut self, now: Time, code: u32) {
        let aborted = code == ABORTED;
        match self.life {
            // A repetition: it has not heard yet that it lacks something.
            Life::ShuttingDown { reason: CloseReason::PeerStopped, .. } if !aborted => {
                self.outbox.shutdown = true;
            }
            // It had more to send, and repeats that until it knows that this side has heard.
            Life::ShuttingDown { reason: CloseReason::Local, .. } if aborted && !self.aborted => {
                self.aborted = true;
                self.outbox.shutdown = true;
                self.end(now, CloseReason::PeerAborted);
            }
            // Its own, or the answer to this side's.
            Life::ShuttingDown { reason, .. } => self.end(now, reason),
            Life::Open | Life::Lingering { .. } => {
                // The answer tells a peer of ours to stop repeating; a stock peer ignores it.
                self.outbox.shutdown = true;
                if !aborted && !self.stock && code & ACCOUNTS != 0 {
                    self.settle_account(now, Seq::new(code & !ACCOUNTS));
                }
                if aborted {
                    self.end(now, CloseReason::PeerAborted);
                } else if self.has_account && self.send.owes() {
                    self.start_shutdown(now, CloseReason::PeerStopped);
                    self.events.readable = true;
                    self.events.writable = true;
                } else if self.stock && self.send.owes() {
                    self.life = Life::PeerLeaving { until: now + LAST_ACK_WAIT };
                } else {
                    self.end(now, CloseReason::Peer);
                }
            }
            Life::PeerLeaving { .. } | Life::Over(_) => {}
        }
    }

    /// The peer has closed, and everything before `next` had reached it: as an ACK, which may have
    /// been lost.
    fn settle_account(&mut self, now: Time, next: Seq) {
        self.has_account = self.send.on_ack(now, next, None) != AckOutcome::Impossible;
        self.counters.invalid += u64::from(!self.has_account);
    }

    pub(super) fn report_losses(&mut self, now: Time) {
        // A socket that takes nothing for long: what waits is reported again anyway.
        if self.outbox.naks.len() > MAX_NAK_RANGES {
            self.outbox.naks.clear();
        }
        let repeat = self.nak_repeat();
        // What was sent again since the first report, a peer of ours does not send once more, while a
        // stock peer would.
        let remind =
            if self.ours { self.rtt.min().unwrap_or_default() / 2 } else { Duration::ZERO };
        self.receive.report_losses(now, repeat, remind, &mut self.outbox.naks);
    }
}

/// 7/8 old, 1/8 new; the first sample counts whole, and 0 says nothing.
fn smooth(value: &mut f64, sample: u32) {
    let sample = f64::from(sample);
    if sample > 0.0 {
        *value = if *value == 0.0 { sample } else { (7.0 * *value + sample) / 8.0 };
    }
}
