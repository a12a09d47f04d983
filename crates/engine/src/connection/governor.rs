//! What governs a connection's sending: its law, what the law is told, and the intervals that
//! follow from the round-trip time.

use core::time::Duration;

use farhaul_base::Time;
use farhaul_control::{
    Arrival, CustomMessage, ENGINE_SUBTYPES, Knobs, Law, MOST_MESSAGES, SYN, SentPacket, Trace,
    View,
};
use farhaul_wire::Seq;

use super::{CloseReason, Connection};
use crate::receive::Repeat;
use crate::send::retransmission_timeout;

/// Round trips over which the packet-sending period that is really kept is measured. A window that
/// is full for one, while a hole is repaired, is no reason to set the rate back; a host or a
/// reader that is too slow is, and that lasts.
pub const PERIOD_MEASURED_OVER: u32 = 8;
/// Packets held back for less than this share of the time leave the sending rate what it was.
const NEGLIGIBLE_SHORTFALL: f64 = 0.02;
/// How long the highest delivery rate is remembered, at least.
const PEAK_KEPT: Duration = Duration::from_secs(1);
/// Packets that a stock peer takes at once however short the path: what the kernel's default
/// receive buffer holds, and more than two of its light ACKs are apart.
const STOCK_BURST_ROOM: f64 = 160.0;

/// A peer's process may lose its processor for so long, which is no loss: a virtual machine's host
/// has others to serve.
const STALL: Duration = Duration::from_millis(50);

/// However many connections share a host's room, each may have so many packets in flight, or it
/// would wait for an ACK after each few.
const LEAST_ROOM: u32 = 32;
/// And however few, each at most so many: a mebibyte, which fits a processor's cache.
const MOST_ROOM: u32 = 720;

/// Packets acknowledged per second, as this side sees it.
#[derive(Debug)]
pub struct DeliveryRate {
    since: Time,
    packets: u64,
    pub rate: f64,
    /// The highest sample of the current span of time and of the one before.
    peaks: [f64; 2],
    peak_since: Time,
}

impl DeliveryRate {
    pub fn new(now: Time) -> Self {
        DeliveryRate { since: now, packets: 0, rate: 0.0, peaks: [0.0; 2], peak_since: now }
    }

    /// The highest sample of the last one to two [`PEAK_KEPT`].
    pub fn peak(&self) -> f64 {
        self.peaks[0].max(self.peaks[1])
    }

    pub fn on_ack(&mut self, now: Time, packets: u32, app_limited: bool, span: Duration) {
        self.packets += u64::from(packets);
        let elapsed = now - self.since;
        if elapsed >= span {
            let sample = self.packets as f64 / elapsed.as_secs_f64();
            if !app_limited || sample > self.rate {
                self.rate =
                    if self.rate == 0.0 { sample } else { (7.0 * self.rate + sample) / 8.0 };
            }
            if now - self.peak_since > PEAK_KEPT {
                self.peaks = [0.0, self.peaks[0]];
                self.peak_since = now;
            }
            self.peaks[0] = self.peaks[0].max(sample);
            self.since = now;
            self.packets = 0;
        }
    }
}

impl Connection {
    /// What packets due and held back, by a window or by the host, made of the period.
    pub(super) fn measure_period(&mut self, now: Time, span: Duration) {
        let (elapsed, share) = self.send.pacer.shortfall(now);
        if elapsed >= span {
            let held_back = share > NEGLIGIBLE_SHORTFALL;
            let period = self.send.pacer.wanted_period_ns();
            self.real_period = (if held_back { period / (1.0 - share) } else { 0.0 }, now);
            self.send.pacer.reset_shortfall(now);
        }
    }

    /// Tells the law of an event that is no news of packets sent.
    pub(super) fn tell_law(
        &mut self,
        now: Time,
        event: impl FnOnce(&mut dyn Law, &View, &mut Knobs),
    ) {
        self.tell_law_news(now, !self.send.buffer.has_unsent(), None, event);
    }

    /// Tells the law of an event that came with the news of `newest`, if there is any.
    pub(super) fn tell_law_news(
        &mut self,
        now: Time,
        app_limited: bool,
        newest: Option<Arrival>,
        event: impl FnOnce(&mut dyn Law, &View, &mut Knobs),
    ) {
        let view = View { newest, ..self.view(now, app_limited) };
        self.governor.tell(&view, event);
        self.apply_knobs(now);
    }

    /// Tells a law that watches packets of those that leave now.
    pub(super) fn tell_law_sent(&mut self, now: Time) {
        let mut packets = core::mem::take(&mut self.watched);
        let mut view = self.view(now, false);
        // What is counted as in flight already when the first of them leaves.
        let counts = |packet: &SentPacket| u32::from(self.ours || !packet.retransmission);
        view.in_flight = view.in_flight.saturating_sub(packets.iter().map(counts).sum());
        for packet in &packets {
            view.in_flight += u32::from(self.ours || !packet.retransmission);
            let tag = self
                .governor
                .tell(&view, |law, view, knobs| law.on_packet_sent(packet, view, knobs));
            self.sampler.on_sent(packet.seq, tag, &view);
        }
        if !self.send.buffer.has_unsent() {
            self.sampler.on_app_limited(&view);
        }
        packets.clear();
        self.watched = packets;
        self.apply_knobs(now);
    }

    /// Takes the time of a packet that was sent once for a sample of the round trip: while a hole is
    /// repaired ACKs bring none. Many come in a round trip, of which the filter of the protocol is to
    /// see few.
    pub(super) fn sample_rtt(&mut self, now: Time, newest: Option<(Seq, Duration)>) {
        let Some((_, rtt)) = newest.filter(|_| self.ours) else { return };
        let (sampled_at, interval) = (self.rtt_sampled_at, self.rtt.smoothed().min(SYN));
        if sampled_at.is_none_or(|at| now - at >= interval) {
            self.rtt_sampled_at = Some(now);
            self.rtt.update(now, rtt.as_micros().min(u128::from(u32::MAX)) as u32);
        }
    }

    /// What [`SendHalf::on_seen`](crate::send::SendHalf::on_seen) returned, for the law: once
    /// everything is counted that came with the news.
    pub(super) fn arrival(
        &mut self,
        now: Time,
        newest: Option<(Seq, Duration)>,
    ) -> Option<Arrival> {
        let delivered = self.send.count_delivered();
        let (seq, rtt) = newest?;
        let sample = self.sampler.on_arrival(now, seq, delivered);
        let tag = sample.map_or(0, |(tag, _)| tag);
        let forward = self.way_back.without(rtt);
        Some(Arrival { seq, rtt, forward, tag, delivery: sample.map(|(_, delivery)| delivery) })
    }

    /// Lets what the law has set take effect.
    pub(super) fn apply_knobs(&mut self, now: Time) {
        let start_window = self.start_window();
        let knobs = self.governor.knobs_mut();
        self.send.set_window(knobs.window.min(start_window));
        self.send.pacer.set_period_ns(knobs.period_ns);
        self.send.pacer.pause(knobs.pause_until);
        self.send.set_tolerated_loss(if self.config.back_off { knobs.tolerated_loss } else { 1.0 });
        if !knobs.messages.is_empty() {
            let room = MOST_MESSAGES.saturating_sub(self.outbox.custom.len());
            let own = |message: &CustomMessage| message.subtype < ENGINE_SUBTYPES;
            self.outbox.custom.extend(knobs.messages.drain(..).filter(own).take(room));
        }
        if self.governor.failure().is_some() {
            self.fail(now);
        }
    }

    /// Ends the connection of a law that panicked.
    #[cold]
    fn fail(&mut self, now: Time) {
        if self.close_reason().is_none() {
            self.start_shutdown(now, CloseReason::LawFailed);
        }
    }

    /// Lets the law's timer expire if it is due.
    pub(super) fn run_law_timer(&mut self, now: Time) {
        if self.governor.knobs().timer.is_some_and(|at| at <= now) {
            self.governor.knobs_mut().timer = None;
            self.tell_law(now, |law, view, knobs| law.on_timer(view, knobs));
        }
    }

    /// The most to have in flight while nothing paces. A peer of ours opens its flow window no
    /// further than it serves (gu05 §3.4, and [`Connection::window_target`]); a stock peer opens it
    /// all, and slow start would fill it within a few round trips, most of it to be lost.
    pub(super) fn start_window(&self) -> f64 {
        if !self.stock || self.governor.knobs().period_ns > 0.0 {
            return f64::MAX;
        }
        let rtt = self.rtt.min().unwrap_or(self.rtt.smoothed());
        2.0 * self.delivery.peak() * rtt.as_secs_f64() + STOCK_BURST_ROOM
    }

    pub(super) fn view(&self, now: Time, app_limited: bool) -> View {
        // It corrects the law once: the step that follows starts from the corrected period.
        let (real_period, measured_at) = self.real_period;
        let real_period = if now - measured_at < SYN { real_period } else { 0.0 };
        let ipv6_extra = self.config.mss - self.config.wire_mss(self.peer.ip());
        View {
            now,
            started: self.started,
            rtt: self.governor.knobs().rtt.unwrap_or(self.rtt.smoothed()),
            rtt_var: self.rtt.variation(),
            rtt_min: self.rtt.min().unwrap_or(Duration::MAX),
            // Stock takes the time between packets for the speed of their arrival, which for those
            // of one send call is that of memory.
            arrival_rate: if self.stock { self.delivery.peak() } else { self.arrival_rate },
            delivery_rate: self.delivery.rate,
            capacity: self.capacity,
            real_period_ns: self.send.pacer.wanted_period_ns().max(real_period),
            mss: self.agreement.wire_mss + ipv6_extra,
            in_flight: self.send.in_network(),
            sees_beyond_holes: self.ours,
            flow_window: self.send.flow_window(),
            max_window: self.agreement.flight_flag,
            largest_sent: self.send.next_seq().prev(),
            largest_acked: self.send.una().prev(),
            ack_wait: self.ack_wait(),
            app_limited,
            delivered: self.send.delivered(),
            newest: None,
            trace: Trace {
                packets_sent: self.send.packets_sent,
                packets_retransmitted: self.send.packets_retransmitted,
                packets_lost: self.send.packets_lost,
                packets_received: self.receive.packets_received,
                packets_missed: self.receive.lost,
                acks: self.counters.acks_received,
                naks: self.counters.naks_received,
            },
        }
    }

    /// Packets worth having in flight towards this side: twice the bandwidth-delay product, so
    /// that the peer can double its rate each round trip (or more, if its law asks for that), and
    /// what this host takes at once. What waits behind a hole is in flight no more.
    pub(super) fn window_target(&mut self, now: Time) -> u32 {
        let Some(rtt) = self.rtt.min() else { return u32::MAX };
        let span = rtt.max(SYN).as_nanos() as u64;
        let peak = self.receive.arrivals.peak_rate(now, span);
        let growth = f64::from(self.peer_wish.window_growth);
        let product = growth * peak * rtt.as_secs_f64();
        let room = (self.config.burst_room / self.room_shares).clamp(LEAST_ROOM, MOST_ROOM);
        (product.min(1e9) as u32) + room + self.receive.waiting()
    }

    /// How many connections share the room that this host has for packets that come at once.
    pub(crate) fn set_room_shares(&mut self, shares: u32) {
        self.room_shares = shares.max(1);
    }

    /// Whether data has come since this was last asked.
    pub(crate) fn has_received(&mut self) -> bool {
        let before = core::mem::replace(&mut self.received_before, self.receive.packets_received);
        before != self.receive.packets_received
    }

    /// How long the peer may keep the news of an arrival to itself.
    pub(super) fn ack_wait(&self) -> Duration {
        let asked = !self.stock && self.governor.knobs().ack_interval > 0;
        if asked { Duration::ZERO } else { SYN }
    }

    pub(super) fn rto(&self) -> Duration {
        self.governor.knobs().rto.unwrap_or_else(|| {
            let answer = self.rtt.timeout();
            // A stock peer's losses may come to light by time only, so that there is none to spare.
            let patience = if self.stock { Duration::ZERO } else { self.rtt.smoothed() + STALL };
            retransmission_timeout(answer.max(patience))
        })
    }

    /// An ACK unanswered is sent again when its ACK2 should have come; a peer that claims a round
    /// trip of a microsecond does not get one each microsecond.
    pub(super) fn ack_repeat(&self) -> Duration {
        self.rtt.timeout().max(SYN)
    }

    /// A loss reported is reported again when its retransmission should have come: it waits for
    /// the peer's turn as well as for the round trip.
    pub(super) fn nak_repeat(&self) -> Repeat {
        let interval = self.rtt.timeout().max(SYN) + SYN;
        if self.ours { Repeat::steady(interval) } else { Repeat::growing(interval) }
    }
}
