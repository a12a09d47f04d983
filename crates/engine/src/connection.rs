//! A connection that is set up: it routes packets to its halves, tells its law of events, keeps
//! the timers and ends.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_control::{CustomMessage, Knobs, Law, SYN, SentPacket, Trace, View};
use farhaul_wire::{
    Ack, AckDetail, AckRates, AckSeq, Control, DataHeader, HEADER_LEN, Handshake, LossRange,
    LossReport, Packet, Request, Seq, write_nak,
};

use crate::config::{Config, Mode, payload_size};
use crate::handshake::{Agreement, own_fields};
use crate::receive::{AckForm, Chunks, Payload, ReceiveHalf};
use crate::rtt::Rtt;
use crate::send::{AckOutcome, REPAIR_WINDOWS, SendHalf, retransmission_timeout};
use crate::stats::{Counters, Instant, Monitor, Stats};
use crate::transmit::Transmit;

/// A shutdown may be lost, so it is repeated until the peer answers with its own, so many times.
const SHUTDOWNS: u32 = 5;
/// The waits between them double up to this.
const SHUTDOWN_WAIT: Duration = Duration::from_millis(300);
/// The send buffer holds this much more than the windows, for the application to work ahead.
const SEND_AHEAD: usize = 512 << 10;
/// Round trips over which the packet-sending period that is really kept is measured. A window that
/// is full for one, while a hole is repaired, is no reason to set the rate back; a host or a
/// reader that is too slow is, and that lasts.
const PERIOD_MEASURED_OVER: u32 = 8;
/// Packets held back for less than this share of the time leave the sending rate what it was.
const NEGLIGIBLE_SHORTFALL: f64 = 0.02;
/// How long the highest delivery rate is remembered, at least.
const PEAK_KEPT: Duration = Duration::from_secs(1);
/// Packets that a stock peer takes at once however short the path: what the kernel's default
/// receive buffer holds, and more than two of its light ACKs are apart.
const STOCK_BURST_ROOM: f64 = 160.0;
/// Peer laws' messages that wait to be sent.
const MAX_CUSTOM_MESSAGES: usize = 64;
/// Ranges of losses that wait to be reported.
const MAX_NAK_RANGES: usize = 1 << 16;
/// The longest control packet.
const CONTROL_SPACE: usize = 65_507;

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed it, and everything sent was acknowledged.
    Local,
    /// This side closed it, and the linger time ended before everything was acknowledged.
    LingerTimeout,
    /// The peer closed it.
    Peer,
    /// Nothing has come from the peer for too long.
    TimedOut,
}

/// What has happened to a connection since it was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// It has been set up, or failed to.
    pub connected: bool,
    /// There is something to read.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// Everything written has been acknowledged.
    pub flushed: bool,
    /// It is over; what was received can still be read.
    pub closed: bool,
}

impl Events {
    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        *self == Events::default()
    }
}

/// Why data was not taken for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The connection is over, or closing.
    Closed(CloseReason),
    /// The message is larger than the peer's receive buffer or this side's send buffer; so many
    /// bytes would do.
    TooLarge(usize),
    /// Streams take bytes, message connections messages.
    WrongMode,
    /// The peer signalled this error; sending may go on.
    Peer(u32),
    /// The buffer is full; wait for [`Events::writable`].
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    Open,
    /// The application has closed; data is still on its way, until the linger time ends.
    Lingering {
        until: Time,
    },
    /// Shutdowns are being sent.
    ShuttingDown {
        reason: CloseReason,
        left: u32,
        next: Time,
    },
    Over(CloseReason),
}

/// A connection that is set up.
#[derive(Debug)]
pub struct Connection {
    id: u32,
    peer: SocketAddr,
    agreement: Agreement,
    config: Config,
    /// Payload bytes of the largest packet that this side takes.
    most_payload: usize,
    life: Life,
    send: SendHalf,
    receive: ReceiveHalf,
    rtt: Rtt,
    law: Box<dyn Law>,
    knobs: Knobs,
    /// Smoothed reports of the peer, packets/s; 0 before the first.
    arrival_rate: f64,
    capacity: f64,
    /// The peer is the stock library, which leaves the time stamp of control packets zero.
    stock: bool,
    delivery: DeliveryRate,
    /// The packet-sending period that was really kept, nanoseconds, where it was longer than the
    /// one in force, and when that was measured.
    real_period: (f64, Time),
    outbox: Outbox,
    last_heard: Time,
    last_sent: Time,
    events: Events,
    was_full: bool,
    peer_error: Option<u32>,
    counters: Counters,
    monitor: Monitor,
}

/// Control packets that wait to be sent.
#[derive(Debug, Default)]
struct Outbox {
    handshake: bool,
    ack: Option<AckForm>,
    ack2: Option<AckSeq>,
    last_ack2: Option<Time>,
    naks: Vec<LossRange>,
    keep_alive: bool,
    shutdown: bool,
    error: Option<u32>,
    custom: VecDeque<CustomMessage>,
}

impl Outbox {
    fn is_empty(&self) -> bool {
        !self.handshake
            && self.ack.is_none()
            && self.ack2.is_none()
            && self.naks.is_empty()
            && !self.keep_alive
            && !self.shutdown
            && self.error.is_none()
            && self.custom.is_empty()
    }
}

/// Packets acknowledged per second, as this side sees it.
#[derive(Debug)]
struct DeliveryRate {
    since: Time,
    packets: u64,
    rate: f64,
    /// The highest sample of the current span of time and of the one before.
    peaks: [f64; 2],
    peak_since: Time,
}

impl DeliveryRate {
    fn new(now: Time) -> Self {
        DeliveryRate { since: now, packets: 0, rate: 0.0, peaks: [0.0; 2], peak_since: now }
    }

    /// The highest sample of the last one to two [`PEAK_KEPT`].
    fn peak(&self) -> f64 {
        self.peaks[0].max(self.peaks[1])
    }

    fn on_ack(&mut self, now: Time, packets: u32, app_limited: bool, span: Duration) {
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
    pub(crate) fn new(
        now: Time,
        id: u32,
        peer: SocketAddr,
        agreement: Agreement,
        config: Config,
        seed: u64,
    ) -> Self {
        let payload = agreement.payload_size();
        let segment = payload + HEADER_LEN;
        let burst = config.max_segments.min((65_507 / segment) as u32).max(1);
        let origins = config.origins;
        let mut send = SendHalf::new(
            now,
            agreement.isn,
            payload,
            agreement.flight_flag,
            burst,
            origins.timestamp,
        );
        send.buffer.set_next_message(origins.message);
        let mut receive = ReceiveHalf::new(
            now,
            agreement.peer_isn,
            config.receive_capacity(config.wire_mss(peer.ip())),
            config.mode == Mode::Message,
            config.reorder_tolerance,
        );
        if let Some(ack) = origins.ack {
            receive.acks.set_next(ack);
        }
        let mut rtt = Rtt::new();
        if let Some(sample) = agreement.rtt {
            rtt.update(now, sample.as_micros().min(u128::from(u32::MAX)) as u32);
        }
        let law = config.law.build(seed);
        let mut connection = Connection {
            id,
            peer,
            agreement,
            most_payload: payload_size(config.wire_mss(peer.ip())),
            life: Life::Open,
            send,
            receive,
            rtt,
            law,
            knobs: Knobs::default(),
            arrival_rate: 0.0,
            capacity: 0.0,
            stock: false,
            delivery: DeliveryRate::new(now),
            real_period: (0.0, now),
            outbox: Outbox::default(),
            last_heard: now,
            last_sent: now,
            events: Events { connected: true, writable: true, ..Events::default() },
            was_full: false,
            peer_error: None,
            counters: Counters::default(),
            monitor: Monitor::new(now),
            config,
        };
        connection.set_max_bandwidth(connection.config.max_bandwidth);
        connection.tell_law(now, |law, view, knobs| law.init(view, knobs));
        connection
    }

    /// This side's socket ID.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What both sides agreed on.
    pub(crate) fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// Payload bytes of a full packet.
    pub fn payload_size(&self) -> usize {
        self.agreement.payload_size()
    }

    /// Stream or messages.
    pub fn mode(&self) -> Mode {
        self.config.mode
    }

    /// Why the connection is over; none while it is not.
    pub fn close_reason(&self) -> Option<CloseReason> {
        match self.life {
            Life::Over(reason) => Some(reason),
            Life::ShuttingDown { reason, .. } => Some(reason),
            Life::Open | Life::Lingering { .. } => None,
        }
    }

    /// Whether nothing more is to be sent or waited for.
    pub fn is_over(&self) -> bool {
        matches!(self.life, Life::Over(_))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(crate) fn take_events(&mut self) -> Events {
        core::mem::take(&mut self.events)
    }

    // ---- The application's side.

    /// Bytes that may be written now.
    pub fn send_space(&self) -> usize {
        self.send_limit().saturating_sub(self.send.buffer.bytes())
    }

    /// The send buffer's size: what the windows can have in flight, and some more to work ahead.
    fn send_limit(&self) -> usize {
        let window = (REPAIR_WINDOWS * self.send.window()).min(self.send.flow_window()) as usize;
        (window * self.payload_size() + SEND_AHEAD).min(self.config.send_memory)
    }

    fn check_sendable(&mut self, mode: Mode) -> Result<(), SendError> {
        if let Some(reason) = self.close_reason() {
            return Err(SendError::Closed(reason));
        }
        if matches!(self.life, Life::Lingering { .. }) {
            return Err(SendError::Closed(CloseReason::Local));
        }
        if self.config.mode != mode {
            return Err(SendError::WrongMode);
        }
        match self.peer_error.take() {
            Some(code) => Err(SendError::Peer(code)),
            None => Ok(()),
        }
    }

    /// Appends `data` to the stream, by reference. All of it is taken if there is any room, so
    /// that the buffer may exceed its size by one call's data.
    pub fn send_bytes(&mut self, data: Bytes) -> Result<(), SendError> {
        self.check_sendable(Mode::Stream)?;
        if self.send_space() == 0 {
            self.was_full = true;
            return Err(SendError::Full);
        }
        self.send.append(data);
        Ok(())
    }

    /// Sends a message, all or nothing. `ttl`: when it may be given up; `in_order`: it is not
    /// delivered before the messages sent earlier.
    pub fn send_message(
        &mut self,
        now: Time,
        data: Bytes,
        ttl: Option<Duration>,
        in_order: bool,
    ) -> Result<(), SendError> {
        self.check_sendable(Mode::Message)?;
        let most = (self.agreement.flight_flag as usize)
            .saturating_mul(self.payload_size())
            .min(self.config.send_memory);
        if data.len() > most {
            return Err(SendError::TooLarge(most));
        }
        if data.len() > self.send_space() && !self.send.buffer.is_empty() {
            self.was_full = true;
            return Err(SendError::Full);
        }
        self.send.buffer.push_message(data, in_order, ttl.map(|ttl| now + ttl));
        Ok(())
    }

    /// Takes received stream data in whole packets, at least `max_bytes` if there is so much.
    pub fn read(&mut self, max_bytes: usize, chunks: &mut Chunks) {
        if self.config.mode == Mode::Stream {
            self.receive.read(max_bytes, chunks);
        }
    }

    /// Takes the next complete message; returns whether there was one.
    pub fn read_message(&mut self, chunks: &mut Chunks) -> bool {
        self.receive.read_message(chunks)
    }

    /// Whether there is something to read.
    pub fn readable(&self) -> bool {
        self.receive.readable()
    }

    /// Whether everything written has been acknowledged.
    pub fn flushed(&self) -> bool {
        self.send.buffer.is_empty()
    }

    /// Closes: what was written is still delivered, for as long as the linger time.
    pub fn close(&mut self, now: Time) {
        if self.life == Life::Open {
            self.life = Life::Lingering { until: now + self.config.linger };
            self.advance_life(now);
        }
    }

    /// Closes at once; what was not acknowledged may be lost.
    pub fn abort(&mut self, now: Time) {
        if matches!(self.life, Life::Open | Life::Lingering { .. }) {
            self.start_shutdown(now, CloseReason::Local);
        }
    }

    /// Tells the peer of an error of this side: 4000 when what came cannot be written.
    pub fn signal_error(&mut self, code: u32) {
        self.outbox.error = Some(code);
    }

    /// Limits the sending rate, bits/s with all headers.
    pub fn set_max_bandwidth(&mut self, bits_per_second: Option<u64>) {
        let bits = f64::from(self.agreement.wire_mss) * 8.0;
        let period = bits_per_second.map_or(0.0, |rate| bits * 1e9 / rate.max(1) as f64);
        self.send.pacer.set_min_period_ns(period);
    }

    /// Replaces the law of a live connection.
    pub fn set_law(&mut self, now: Time, law: Box<dyn Law>) {
        self.tell_law(now, |law, view, knobs| law.close(view, knobs));
        self.law = law;
        self.knobs = Knobs::default();
        self.tell_law(now, |law, view, knobs| law.init(view, knobs));
    }

    /// How the linger time is set for a later [`Connection::close`].
    pub fn set_linger(&mut self, linger: Duration) {
        self.config.linger = linger;
    }

    /// What the performance monitor tells; `clear`: the next recent span begins now.
    pub fn stats(&mut self, now: Time, clear: bool) -> Stats {
        let counters = self.all_counters();
        let (total, recent) = self.monitor.query(now, counters, clear);
        let bits = self.payload_size() as f64 * 8.0;
        let wire_mss = self.config.wire_mss(self.peer.ip());
        let capacity = self.config.receive_capacity(wire_mss) as usize * self.payload_size();
        let instant = Instant {
            rtt: self.rtt.smoothed(),
            rtt_var: self.rtt.variation(),
            rtt_min: self.rtt.min(),
            period: Duration::from_nanos(self.send.pacer.period_ns() as u64),
            congestion_window: self.send.window(),
            flow_window: self.send.flow_window(),
            in_flight: self.send.buffer.in_flight(),
            capacity: self.capacity * bits,
            arrival_rate: self.arrival_rate * bits,
            send_buffer: (self.send.buffer.bytes(), self.send_limit()),
            receive_buffer: (self.receive.stored(), capacity),
            receive_memory: self.receive.pinned(),
            reorder_tolerance: self.receive.gaps.tolerance(),
        };
        Stats { total, recent, instant }
    }

    fn all_counters(&self) -> Counters {
        Counters {
            packets_sent: self.send.packets_sent,
            bytes_sent: self.send.bytes_sent,
            packets_retransmitted: self.send.packets_retransmitted,
            packets_acked: self.send.packets_acked,
            send_lost: self.send.packets_lost,
            messages_dropped: self.send.messages_dropped,
            packets_received: self.receive.packets_received,
            bytes_received: self.receive.bytes_received,
            receive_lost: self.receive.lost,
            reordered: self.receive.reordered,
            duplicates: self.receive.duplicates,
            out_of_window: self.receive.out_of_window,
            ..self.counters
        }
    }

    // ---- The network's side: in.

    /// Datagrams of one receive-offload buffer, `bytes[range]`, each of `segment` bytes but the
    /// last, all from the peer and for this connection. `retain`: `bytes` may be kept by reference.
    pub(crate) fn handle(
        &mut self,
        now: Time,
        bytes: &Bytes,
        range: core::ops::Range<usize>,
        segment: usize,
        retain: bool,
    ) {
        if self.is_over() {
            self.answer_late(&bytes[range.start..range.end.min(range.start + segment)]);
            return;
        }
        self.last_heard = now;
        let mut batch = None;
        let mut data = 0;
        let mut burst_ends = false;
        let mut start = range.start;
        while start < range.end {
            let end = (start + segment).min(range.end);
            match Packet::parse(&bytes[start..end]) {
                // A peer may take this side's MSS for its own, and no more.
                Ok(Packet::Data(_, payload)) if payload.len() > self.most_payload => {
                    self.counters.invalid += 1;
                }
                Ok(Packet::Data(header, payload)) => {
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
            start = end;
        }
        if data > 0 {
            self.receive.close_batch(now, batch.filter(|_| retain));
            self.receive.acks.on_data(now, data, self.knobs.ack_period, burst_ends);
            self.report_losses(now);
            self.events.readable |= self.receive.readable();
        }
        self.schedule_ack(now);
        self.advance_life(now);
    }

    /// The peer goes on after the end: it has not heard of it.
    fn answer_late(&mut self, datagram: &[u8]) {
        self.outbox.shutdown |= match Packet::parse(datagram) {
            Ok(Packet::Data(..)) => true,
            Ok(Packet::Control(control)) => !matches!(control.body, Control::Shutdown),
            Err(_) => false,
        };
    }

    #[expect(clippy::too_many_arguments, reason = "one packet's fields, unpacked on the hot path")]
    fn on_data(
        &mut self,
        now: Time,
        bytes: &Bytes,
        header: &DataHeader,
        at: u32,
        len: usize,
        retain: bool,
        batch: &mut Option<u32>,
    ) {
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
        if self.law.watches_packets() {
            let packet = SentPacket {
                seq: header.seq,
                len: len as u32,
                timestamp: header.timestamp,
                retransmission: false,
            };
            self.tell_law(now, |law, view, knobs| law.on_packet_received(&packet, view, knobs));
        }
    }

    fn on_control(&mut self, now: Time, control: &Control<'_>, timestamp: u32) {
        match control {
            Control::Ack { ack_seq, ack } => {
                self.stock = timestamp == 0;
                self.on_ack(now, *ack_seq, ack);
            }
            Control::Nak(report) => self.on_nak(now, report),
            Control::Ack2 { ack_seq } => {
                if let Some(rtt) = self.receive.acks.on_ack2(now, *ack_seq) {
                    self.rtt.update(now, rtt.as_micros().min(u128::from(u32::MAX)) as u32);
                }
            }
            Control::DropRequest { message, first, last } => {
                // The stock library leaves the time stamp of control packets zero; it is also the
                // one whose range is too long.
                let exact = timestamp != 0;
                if self.receive.on_drop_request(now, message.value(), *first, *last, exact) {
                    self.receive.acks.on_data(now, 0, self.knobs.ack_period, true);
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
            Control::Shutdown => self.on_shutdown(now),
            Control::ErrorSignal { code } => {
                self.peer_error = Some(*code);
                self.events.writable = true;
            }
            Control::User { subtype, info, payload } => {
                self.tell_law(now, |law, view, knobs| {
                    law.on_custom_message(*subtype, *info, payload, view, knobs);
                });
            }
            Control::KeepAlive | Control::CongestionWarning | Control::Unknown { .. } => {}
        }
    }

    fn on_ack(&mut self, now: Time, ack_seq: AckSeq, ack: &Ack) {
        let available = ack.detail.map(|d| d.available);
        let outcome = self.send.on_ack(now, ack.next, available);
        if outcome == AckOutcome::Impossible {
            self.counters.invalid += 1;
            return;
        }
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
        let AckOutcome::Advanced(packets) = outcome else { return };
        self.send.set_round_trip(self.rtt.smoothed() + SYN);
        let span = self.rtt.smoothed().max(SYN);
        self.measure_period(now, span * PERIOD_MEASURED_OVER);
        let app_limited = self.send.take_app_limited();
        self.delivery.on_ack(now, packets, app_limited, span);
        let next = ack.next;
        self.tell_law_limited(now, app_limited, |law, view, knobs| law.on_ack(next, view, knobs));
        self.send.resend_silent_hole(now, self.rto(), self.stock);
        if self.send.buffer.is_empty() {
            self.events.flushed = true;
        }
        if self.was_full && self.send_space() >= self.send_limit() / 4 {
            self.was_full = false;
            self.events.writable = true;
        }
    }

    /// What packets due and held back, by a window or by the host, made of the period.
    fn measure_period(&mut self, now: Time, span: Duration) {
        let (elapsed, share) = self.send.pacer.shortfall(now);
        if elapsed >= span {
            let held_back = share > NEGLIGIBLE_SHORTFALL;
            let period = self.send.pacer.period_ns();
            self.real_period = (if held_back { period / (1.0 - share) } else { 0.0 }, now);
            self.send.pacer.reset_shortfall(now);
        }
    }

    /// Every numbered ACK wants an ACK2; for the small ones between, one a SYN interval will do.
    fn answer_ack(&mut self, now: Time, ack_seq: AckSeq, full: bool) {
        if full || self.outbox.last_ack2.is_none_or(|at| now - at >= SYN) {
            self.outbox.ack2 = Some(ack_seq);
            self.outbox.last_ack2 = Some(now);
        }
    }

    fn on_nak(&mut self, now: Time, report: &LossReport<'_>) {
        // What a report may name is in flight: the sum bounds the work that it can cause.
        let named: u64 = report.ranges().map(|r| u64::from(r.len())).sum();
        // A report that comes sooner after a retransmission left before that could arrive.
        let steady = self.rtt.smoothed().saturating_sub(self.rtt.variation());
        let fresh = self.rtt.min().map_or(steady, |least| least.max(steady));
        let mut lost = Vec::new();
        let mut valid = named <= u64::from(self.send.buffer.in_flight()) + 65_536;
        if valid {
            // A damaged sequence number makes the peer miss what was never sent; what else it
            // misses is none the less to be sent again.
            for range in report.ranges() {
                match self.send.on_loss_report(now, range, fresh) {
                    Ok(range) => lost.extend(range),
                    Err(()) => valid = false,
                }
            }
        }
        self.counters.naks_received += 1;
        self.counters.invalid += u64::from(!valid);
        if !lost.is_empty() {
            self.tell_law(now, |law, view, knobs| law.on_loss(&lost, view, knobs));
        }
    }

    fn on_shutdown(&mut self, now: Time) {
        match self.life {
            // Its own, or the answer to this side's.
            Life::ShuttingDown { reason, .. } => self.end(now, reason),
            Life::Open | Life::Lingering { .. } => {
                // The answer tells a peer of ours to stop repeating; a stock peer ignores it.
                self.outbox.shutdown = true;
                self.end(now, CloseReason::Peer);
            }
            Life::Over(_) => {}
        }
    }

    fn report_losses(&mut self, now: Time) {
        // A socket that takes nothing for long: what waits is reported again anyway.
        if self.outbox.naks.len() > MAX_NAK_RANGES {
            self.outbox.naks.clear();
        }
        let repeat = self.nak_interval();
        self.receive.report_losses(now, repeat, &mut self.outbox.naks);
    }

    fn schedule_ack(&mut self, now: Time) {
        if self.outbox.ack.is_some() {
            return;
        }
        let point = self.receive.point();
        let target = self.window_target(now).min(self.receive.capacity());
        let repeat = self.ack_repeat();
        let interval = self.knobs.ack_interval;
        self.outbox.ack = self.receive.acks.poll(now, point, repeat, interval, target);
    }

    /// Packets worth having in flight towards this side: twice the bandwidth-delay product, so
    /// that the peer can double its rate each round trip, and what this host takes at once. What
    /// waits behind a hole is in flight no more.
    fn window_target(&mut self, now: Time) -> u32 {
        let Some(rtt) = self.rtt.min() else { return u32::MAX };
        let span = rtt.max(SYN).as_nanos() as u64;
        let peak = self.receive.arrivals.peak_rate(now, span);
        let product = 2.0 * peak * rtt.as_secs_f64();
        (product.min(1e9) as u32) + self.config.burst_room + self.receive.waiting()
    }

    // ---- Timers and life.

    fn rto(&self) -> Duration {
        self.knobs.rto.unwrap_or_else(|| retransmission_timeout(self.rtt.timeout()))
    }

    /// An ACK unanswered is sent again when its ACK2 should have come; a peer that claims a round
    /// trip of a microsecond does not get one each microsecond.
    fn ack_repeat(&self) -> Duration {
        self.rtt.timeout().max(SYN)
    }

    /// A loss reported is reported again when its retransmission should have come: it waits for
    /// the peer's turn as well as for the round trip.
    fn nak_interval(&self) -> Duration {
        self.rtt.timeout().max(SYN) + SYN
    }

    /// Lets everything that is due happen.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if self.is_over() {
            return;
        }
        if now - self.last_heard >= self.config.peer_timeout
            && !matches!(self.life, Life::ShuttingDown { .. })
        {
            self.end(now, CloseReason::TimedOut);
            return;
        }
        if let Some(expired) = self.send.on_timeout(now, self.rto(), self.stock) {
            self.counters.timeouts += 1;
            // The first expiry only asks whether the end of a burst has arrived.
            if expired.count > 1 || self.knobs.rto.is_some() {
                self.tell_law(now, |law, view, knobs| law.on_timeout(view, knobs));
            }
        }
        self.report_losses(now);
        self.schedule_ack(now);
        if now - self.last_sent >= self.config.keep_alive {
            self.outbox.keep_alive = true;
        }
        self.advance_life(now);
    }

    /// When [`Connection::handle_timeout`] is next to be called, or the pacing lets data go.
    pub(crate) fn timeout(&self) -> Option<Time> {
        let life = match self.life {
            Life::Over(_) => return None,
            Life::ShuttingDown { next, .. } => return Some(next),
            Life::Lingering { until } => Some(until),
            Life::Open => None,
        };
        let timers = [
            life,
            Some(self.last_heard + self.config.peer_timeout),
            Some(self.last_sent + self.config.keep_alive),
            self.send.timeout(self.rto()),
            self.send.next_send(),
            self.receive.acks.timeout(self.receive.point(), self.ack_repeat()),
            self.receive.gaps.timeout(self.nak_interval()),
        ];
        timers.into_iter().flatten().min()
    }

    fn advance_life(&mut self, now: Time) {
        match self.life {
            Life::Lingering { .. } if self.send.buffer.is_empty() => {
                self.start_shutdown(now, CloseReason::Local);
            }
            Life::Lingering { until } if now >= until => {
                self.start_shutdown(now, CloseReason::LingerTimeout);
            }
            Life::ShuttingDown { reason, left, next } if now >= next => {
                if left == 0 {
                    self.end(now, reason);
                } else {
                    self.outbox.shutdown = true;
                    let wait = (self.rto() * (1 << (SHUTDOWNS - left).min(8))).min(SHUTDOWN_WAIT);
                    self.life = Life::ShuttingDown { reason, left: left - 1, next: now + wait };
                }
            }
            _ => {}
        }
    }

    fn start_shutdown(&mut self, now: Time, reason: CloseReason) {
        self.life = Life::ShuttingDown { reason, left: SHUTDOWNS, next: now };
        // What was promised to the peer goes out before.
        self.advance_life(now);
    }

    fn end(&mut self, now: Time, reason: CloseReason) {
        self.life = Life::Over(reason);
        self.events.closed = true;
        self.events.readable = true;
        self.events.writable = true;
        self.tell_law(now, |law, view, knobs| law.close(view, knobs));
    }

    fn tell_law(&mut self, now: Time, event: impl FnOnce(&mut dyn Law, &View, &mut Knobs)) {
        self.tell_law_limited(now, !self.send.buffer.has_unsent(), event);
    }

    fn tell_law_limited(
        &mut self,
        now: Time,
        app_limited: bool,
        event: impl FnOnce(&mut dyn Law, &View, &mut Knobs),
    ) {
        let view = self.view(now, app_limited);
        event(self.law.as_mut(), &view, &mut self.knobs);
        self.send.set_window(self.knobs.window.min(self.start_window()));
        self.send.pacer.set_period_ns(self.knobs.period_ns);
        self.send.pacer.pause(self.knobs.pause_until);
        for message in self.knobs.messages.drain(..) {
            if self.outbox.custom.len() < MAX_CUSTOM_MESSAGES {
                self.outbox.custom.push_back(message);
            }
        }
    }

    /// The most to have in flight while nothing paces. A peer of ours opens its flow window no
    /// further than it serves (gu05 §3.4, and [`Connection::window_target`]); a stock peer opens it
    /// all, and slow start would fill it within a few round trips, most of it to be lost.
    fn start_window(&self) -> f64 {
        if !self.stock || self.knobs.period_ns > 0.0 {
            return f64::MAX;
        }
        let rtt = self.rtt.min().unwrap_or(self.rtt.smoothed());
        2.0 * self.delivery.peak() * rtt.as_secs_f64() + STOCK_BURST_ROOM
    }

    fn view(&self, now: Time, app_limited: bool) -> View {
        // It corrects the law once: the step that follows starts from the corrected period.
        let (real_period, measured_at) = self.real_period;
        let real_period = if now - measured_at < SYN { real_period } else { 0.0 };
        let ipv6_extra = self.config.mss - self.config.wire_mss(self.peer.ip());
        View {
            now,
            rtt: self.knobs.rtt.unwrap_or(self.rtt.smoothed()),
            rtt_var: self.rtt.variation(),
            rtt_min: self.rtt.min().unwrap_or(Duration::MAX),
            // Stock takes the time between packets for the speed of their arrival, which for those
            // of one send call is that of memory.
            arrival_rate: if self.stock { self.delivery.peak() } else { self.arrival_rate },
            delivery_rate: self.delivery.rate,
            capacity: self.capacity,
            real_period_ns: self.send.pacer.period_ns().max(real_period),
            mss: self.agreement.wire_mss + ipv6_extra,
            in_flight: self.send.buffer.in_flight(),
            flow_window: self.send.flow_window(),
            max_window: self.agreement.flight_flag,
            largest_sent: self.send.next_seq().prev(),
            largest_acked: self.send.una().prev(),
            app_limited,
            trace: Trace {
                packets_sent: self.send.packets_sent,
                packets_retransmitted: self.send.packets_retransmitted,
                packets_lost: self.send.packets_lost,
                acks: self.counters.acks_received,
                naks: self.counters.naks_received,
            },
        }
    }

    // ---- The network's side: out.

    /// Fills `out` with what may leave now; returns whether there is something.
    pub(crate) fn poll_transmit(&mut self, now: Time, out: &mut Transmit) -> bool {
        out.clear(self.peer);
        if self.poll_control(now, out) {
            self.last_sent = now;
            return true;
        }
        if matches!(self.life, Life::Over(_) | Life::ShuttingDown { .. }) {
            return false;
        }
        let segments = self.segments();
        let dest = self.agreement.peer_id;
        let count = if self.law.watches_packets() {
            let mut sent = Vec::new();
            let mut note = |packet| sent.push(packet);
            let count = self.send.fill(now, dest, segments, out, Some(&mut note));
            for packet in &sent {
                self.tell_law(now, |law, view, knobs| law.on_packet_sent(packet, view, knobs));
            }
            count
        } else {
            self.send.fill(now, dest, segments, out, None)
        };
        if count > 0 {
            self.last_sent = now;
            return true;
        }
        // Choosing what to send may have given messages up.
        self.poll_control(now, out)
    }

    /// Packets of one call.
    fn segments(&self) -> usize {
        let segment = self.payload_size() + HEADER_LEN;
        (65_507 / segment).clamp(1, self.config.max_segments as usize)
    }

    fn poll_control(&mut self, now: Time, out: &mut Transmit) -> bool {
        if self.outbox.is_empty() {
            return self.poll_drop(now, out);
        }
        if core::mem::take(&mut self.outbox.handshake) {
            let own = own_fields(self.id, self.peer, self.agreement.isn, &self.config);
            let answer = self.handshake_answer(own);
            return self.push_control(now, &Control::Handshake(answer), out);
        }
        if let Some(form) = self.outbox.ack.take() {
            let ack = self.ack(now, form);
            self.counters.acks_sent += 1;
            return self.push_control(now, &ack, out);
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
            let payload = &payload[..payload.len().min(self.payload_size())];
            return self.push_control(now, &Control::User { subtype, info, payload }, out);
        }
        if core::mem::take(&mut self.outbox.shutdown) {
            return self.push_control(now, &Control::Shutdown, out);
        }
        self.outbox.keep_alive = false;
        self.push_control(now, &Control::KeepAlive, out)
    }

    fn poll_drop(&mut self, now: Time, out: &mut Transmit) -> bool {
        let Some(notice) = self.send.take_drop() else { return false };
        let (message, first, last) = (notice.message, notice.first, notice.last);
        self.push_control(now, &Control::DropRequest { message, first, last }, out)
    }

    /// The answer to a handshake that comes once more: a peer that has not heard the first one.
    fn handshake_answer(&self, own: Handshake) -> Handshake {
        let request = if self.config.rendezvous { Request::Agreement } else { Request::Conclusion };
        Handshake { request, mss: self.agreement.wire_mss, ..own }
    }

    fn ack(&mut self, now: Time, form: AckForm) -> Control<'static> {
        let next = self.receive.point();
        let (ack_seq, full) = match form {
            AckForm::Light => {
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

    fn push_nak(&mut self, now: Time, out: &mut Transmit) {
        let mut packet = [0; 1500];
        let space = (self.payload_size() + HEADER_LEN).min(packet.len());
        let naks = &mut self.outbox.naks;
        let clock = self.send.clock_us(now);
        let (len, taken) = write_nak(naks, clock, self.agreement.peer_id, &mut packet[..space]);
        naks.drain(..taken.max(1));
        self.counters.naks_sent += 1;
        out.push_control(&packet[..len]);
    }

    fn push_control(&mut self, now: Time, control: &Control<'_>, out: &mut Transmit) -> bool {
        let mut packet = [0; 128];
        let clock = self.send.clock_us(now).max(1);
        let dest = self.agreement.peer_id;
        if let Some(len) = control.write(clock, dest, &mut packet) {
            out.push_control(&packet[..len]);
            return true;
        }
        let mut packet = vec![0; control.datagram_len().min(CONTROL_SPACE)];
        match control.write(clock, dest, &mut packet) {
            Some(len) => {
                out.push_control(&packet[..len]);
                true
            }
            None => false,
        }
    }

    /// The first sequence number that the peer has not acknowledged.
    pub fn acknowledged(&self) -> Seq {
        self.send.una()
    }
}

/// 7/8 old, 1/8 new; the first sample counts whole, and 0 says nothing.
fn smooth(value: &mut f64, sample: u32) {
    let sample = f64::from(sample);
    if sample > 0.0 {
        *value = if *value == 0.0 { sample } else { (7.0 * *value + sample) / 8.0 };
    }
}
