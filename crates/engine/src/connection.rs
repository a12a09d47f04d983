//! A connection that is set up: it routes packets to its halves, tells its law of events, keeps
//! the timers and ends.

mod disowned;
mod doubts;
mod governor;
mod incoming;
mod outgoing;
mod signs_of_life;
mod way_back;

use core::net::SocketAddr;
use core::time::Duration;

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_control::{Governor, Law, Sampler, SentPacket};
use farhaul_wire::{Control, HEADER_LEN, Seq};

use self::disowned::Disowned;
use self::doubts::Doubts;
use self::governor::DeliveryRate;
use self::outgoing::{Outbox, Wish};
use self::way_back::WayBack;
use crate::config::{Config, MIN_BANDWIDTH, Mode, payload_size};
use crate::frames::Frames;
use crate::handshake::Agreement;
use crate::receive::{Chunks, ReceiveHalf};
use crate::rtt::Rtt;
use crate::send::SendHalf;
use crate::stats::{Counters, Monitor, Snapshot, Stats};
use crate::tags::{TagKeys, Tags};

/// A shutdown may be lost, so it is repeated until the peer answers with its own, so many times.
const SHUTDOWNS: u32 = 5;
/// The waits between them double up to this.
const SHUTDOWN_WAIT: Duration = Duration::from_millis(300);
/// A stock peer never answers: it is sent so many, in short succession, and not waited for.
const STOCK_SHUTDOWNS: u32 = 3;
const STOCK_SHUTDOWN_WAIT: Duration = Duration::from_millis(16);
/// How long the last ACK of a stock peer may come behind its shutdown: the thread that sends it may have to wait
/// for a processor meanwhile.
const LAST_ACK_WAIT: Duration = Duration::from_millis(100);
/// The code of a shutdown after which data may be missing: see [`CloseReason::PeerAborted`].
const ABORTED: u32 = 1;
/// With this bit the rest of a shutdown's code is the first sequence number that the closing side
/// lacks: everything before it has come, and nothing more is taken. Peers that know nothing of it
/// see neither 0 nor [`ABORTED`], and take the shutdown as one with 0.
const ACCOUNTS: u32 = 1 << 31;
/// The send buffer holds this much more than the windows, for the application to work ahead.
const SEND_AHEAD: usize = 512 << 10;

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed it, and everything sent was acknowledged.
    Local,
    /// This side closed it, and the linger time ended before everything was acknowledged.
    LingerTimeout,
    /// The peer closed it, and everything that it had sent has arrived; of a stock peer only the
    /// first is known. Whether what this side has sent has reached it is known if the peer has said so
    /// ([`Connection::has_account`]): then it has.
    Peer,
    /// The peer closed it, and everything that it had sent has arrived, but by its own account not
    /// everything that this side had written has reached it.
    PeerStopped,
    /// The peer broke it off: its application had not finished, or not everything that it had sent
    /// was acknowledged. Also where this side closed it first, while the peer was sending. Stock
    /// peers do not tell this from [`CloseReason::Peer`].
    PeerAborted,
    /// Nothing has come from the peer for too long.
    TimedOut,
    /// For too long the peer has missed what was acknowledged in its name: that was forged, and what is
    /// missing is not kept any more.
    Reneged,
    /// The congestion control law panicked: [`Connection::failure`] tells what it said.
    LawFailed,
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
    /// Everything written has been delivered: see [`Connection::flushed`].
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
    /// The frames are for packets of another size than these payload bytes.
    PayloadSize(usize),
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
    /// A stock peer has closed and not acknowledged all. It hands data to its application before it sends the
    /// ACK for it, so that the last ACK may come right behind the shutdown.
    PeerLeaving {
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
    /// When a packet's time was last taken for a sample of it.
    rtt_sampled_at: Option<Time>,
    way_back: WayBack,
    governor: Governor,
    /// For laws that watch packets: those that leave now, and what is remembered of those in
    /// flight.
    watched: Vec<SentPacket>,
    sampler: Sampler,
    started: Time,
    /// Smoothed reports of the peer, packets/s; 0 before the first.
    arrival_rate: f64,
    capacity: f64,
    /// The peer is the stock library, which leaves the time stamp of control packets zero.
    stock: bool,
    /// The peer is known to be a farhaul one by what it sends: before its first control packet neither is.
    ours: bool,
    doubts: Doubts,
    delivery: DeliveryRate,
    /// The packet-sending period that was really kept, nanoseconds, where it was longer than the
    /// one in force, and when that was measured.
    real_period: (f64, Time),
    outbox: Outbox,
    tags: Tags,
    /// What the peer's law would have this side do.
    peer_wish: Wish,
    last_heard: Time,
    /// What was acknowledged in the peer's name and is missing there by the peer's reports.
    disowned: Disowned,
    /// This side has broken off: what the peer has of the stream may not be all.
    aborted: bool,
    /// The peer has closed and said how much has reached it.
    has_account: bool,
    last_sent: Time,
    /// Data packets sent when the peer was last prompted for its ACK.
    prompted: u64,
    /// When a silent peer was last asked for a sign of life.
    asked_at: Time,
    /// How often the peer's host has said that there is no such port since the peer was last heard,
    /// and when it last did.
    unreachable: Option<(Time, u32)>,
    /// Connections that share this host's room for bursts, and the packets received when they were
    /// counted.
    room_shares: u32,
    received_before: u64,
    events: Events,
    was_full: bool,
    peer_error: Option<u32>,
    counters: Counters,
    monitor: Monitor,
}

impl Connection {
    pub(crate) fn new(
        now: Time,
        id: u32,
        peer: SocketAddr,
        agreement: Agreement,
        config: Config,
        law: Box<dyn Law>,
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
            config.stranger_capacity(config.wire_mss(peer.ip())),
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
        let mut connection = Connection {
            id,
            peer,
            agreement,
            most_payload: payload_size(config.wire_mss(peer.ip())),
            life: Life::Open,
            send,
            receive,
            rtt,
            rtt_sampled_at: None,
            way_back: WayBack::default(),
            governor: Governor::new(law),
            watched: Vec::new(),
            sampler: Sampler::new(agreement.isn),
            started: now,
            arrival_rate: 0.0,
            capacity: 0.0,
            stock: !agreement.ours,
            ours: false,
            doubts: Doubts::default(),
            delivery: DeliveryRate::new(now),
            real_period: (0.0, now),
            outbox: Outbox::default(),
            tags: Tags::default(),
            peer_wish: Wish::NONE,
            last_heard: now,
            disowned: Disowned::default(),
            aborted: false,
            has_account: false,
            last_sent: now,
            prompted: 0,
            asked_at: now,
            unreachable: None,
            events: Events { connected: true, writable: true, ..Events::default() },
            room_shares: 1,
            received_before: 0,
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
            Life::Open | Life::Lingering { .. } | Life::PeerLeaving { .. } => None,
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
        self.send_space_ahead(SEND_AHEAD)
    }

    /// Bytes that may be written now by an application that works ahead of the windows by so many
    /// bytes only.
    pub fn send_space_ahead(&self, ahead: usize) -> usize {
        self.send_limit(ahead.min(SEND_AHEAD)).saturating_sub(self.send.buffer.bytes())
    }

    /// The send buffer's size: what the windows can have in flight, and as much again, for the
    /// window that the next ACKs open must not find it empty; more that is in flight while a hole is
    /// repaired; and some to work ahead.
    fn send_limit(&self, ahead: usize) -> usize {
        let window = 2 * self.send.window().min(self.send.flow_window());
        let packets = window.max(self.send.buffer.in_flight()) as usize;
        (packets * self.payload_size() + ahead).min(self.config.send_memory)
    }

    fn check_sendable(&mut self, mode: Mode) -> Result<(), SendError> {
        // What the peer has said of its error tells more than that it has closed since.
        if let Some(code) = self.peer_error.take() {
            return Err(SendError::Peer(code));
        }
        if let Some(reason) = self.close_reason() {
            return Err(SendError::Closed(reason));
        }
        if matches!(self.life, Life::Lingering { .. }) {
            return Err(SendError::Closed(CloseReason::Local));
        }
        if self.config.mode != mode {
            return Err(SendError::WrongMode);
        }
        Ok(())
    }

    /// Whether the stream has room for more.
    fn check_room(&mut self) -> Result<(), SendError> {
        if self.send_space() == 0 {
            self.was_full = true;
            return Err(SendError::Full);
        }
        Ok(())
    }

    /// Appends `data` to the stream, by reference. All of it is taken if there is any room, so
    /// that the buffer may exceed its size by one call's data.
    pub fn send_bytes(&mut self, data: Bytes) -> Result<(), SendError> {
        self.check_sendable(Mode::Stream)?;
        self.check_room()?;
        self.send.append(data);
        Ok(())
    }

    /// Appends full packets to the stream, by reference; takes them out of `frames` if there is
    /// room. They are of [`Connection::payload_size`] bytes.
    pub fn send_frames(&mut self, frames: &mut Option<Frames>) -> Result<(), SendError> {
        self.check_sendable(Mode::Stream)?;
        if frames.as_ref().is_some_and(|f| f.payload_size != self.payload_size()) {
            return Err(SendError::PayloadSize(self.payload_size()));
        }
        self.check_room()?;
        if let Some(frames) = frames.take() {
            self.send.buffer.append_frames(frames);
        }
        Ok(())
    }

    /// Bytes that complete the stream's last packet, which is not full and has not left yet; none
    /// if there is no such packet.
    pub fn tail_room(&self) -> usize {
        self.send.buffer.tail_room()
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

    /// Whether everything written has been acknowledged, so that closing loses none of it. A light
    /// ACK does not do from a stock peer: it hands data to its reader with numbered ACKs only, and
    /// drops the rest when it hears a shutdown. A farhaul peer keeps what has arrived.
    pub fn flushed(&self) -> bool {
        self.send.buffer.is_empty() && (!self.stock || self.send.all_numbered())
    }

    /// Whether the peer has closed and said how much had reached it, as farhaul peers do: what was
    /// written and not among that is lost, and nothing else.
    pub fn has_account(&self) -> bool {
        self.has_account
    }

    /// Closes: what was written is still delivered, for as long as the linger time. Of what comes
    /// after that, a farhaul peer learns that it was not taken.
    pub fn close(&mut self, now: Time) {
        if self.life == Life::Open {
            self.life = Life::Lingering { until: now + self.config.linger };
            self.advance_life(now);
        }
    }

    /// Closes at once; what was not acknowledged may be lost, and a farhaul peer hears that it may
    /// ([`CloseReason::PeerAborted`]).
    pub fn abort(&mut self, now: Time) {
        if matches!(self.life, Life::Open | Life::Lingering { .. }) {
            self.aborted = true;
            self.start_shutdown(now, CloseReason::Local);
        }
    }

    /// Tells the peer of an error of this side: 4000 when what came cannot be written.
    pub fn signal_error(&mut self, code: u32) {
        self.outbox.error = Some(code);
    }

    /// The peer has shown who it is: it may send as much as [`Config::receive_memory`] allows.
    pub fn welcome(&mut self) {
        self.receive.widen(self.config.receive_capacity(self.config.wire_mss(self.peer.ip())));
    }

    /// Both sides share keys that no third party knows: tagged control packets of the peer are understood
    /// from now on. [`Connection::authenticate`] follows, once it is certain that the peer has done
    /// this.
    pub fn set_tag_keys(&mut self, keys: TagKeys) {
        self.tags.set_keys(keys);
    }

    /// Control packets are authenticated from now on: those of this side bear tags, and those of the
    /// peer must. Until the peer's first tagged packet, for two seconds at most, others are taken as
    /// well, for it may not have heard yet; after that there is no way back to packets without tags,
    /// and a peer that sends none falls silent. What has no good tag changes nothing and is counted
    /// ([`Counters::forged`]). Data packets bear tags with
    /// [`Connection::authenticate_data`] only.
    ///
    /// Without [`Connection::set_tag_keys`] on this side before it does nothing; without that on the
    /// peer's the connection ends.
    pub fn authenticate(&mut self, now: Time) {
        if self.tags.start(now) {
            // So that the peer need not wait for something else that is tagged.
            self.outbox.keep_alive = true;
        }
    }

    /// The peer is asked to tag the data packets of this stream as well, after which forged ones change
    /// nothing and are counted ([`Counters::forged`]). Both sides then hash every byte: for connections into
    /// which an attacker injects data. Without [`Connection::authenticate`] before it, or for messages, it does
    /// nothing.
    pub fn authenticate_data(&mut self, now: Time) {
        if self.config.mode == Mode::Stream && self.tags.are_sent() && self.tags.want_data_tags(now)
        {
            self.ask_for_data_tags();
        }
    }

    /// Limits the sending rate, bits/s with all headers; less than 8000 counts as that.
    pub fn set_max_bandwidth(&mut self, bits_per_second: Option<u64>) {
        let bits = f64::from(self.agreement.wire_mss) * 8.0;
        let period =
            bits_per_second.map_or(0.0, |rate| bits * 1e9 / rate.max(MIN_BANDWIDTH) as f64);
        self.send.pacer.set_min_period_ns(period);
    }

    /// Replaces the law.
    pub(crate) fn set_law(&mut self, now: Time, law: Box<dyn Law>) {
        self.sampler = Sampler::new(self.send.next_seq());
        let view = self.view(now, !self.send.buffer.has_unsent());
        self.governor.replace(law, &view);
        self.apply_knobs(now);
    }

    /// The law at work.
    pub fn law(&self) -> &dyn Law {
        self.governor.law()
    }

    /// What the law said when it panicked, if it did.
    pub fn failure(&self) -> Option<&str> {
        self.governor.failure()
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
        let (law, state) = self.governor.describe();
        let instant = Snapshot {
            law,
            state,
            rtt: self.rtt.smoothed(),
            rtt_var: self.rtt.variation(),
            rtt_min: self.rtt.min(),
            period: Duration::from_nanos(self.send.pacer.period_ns() as u64),
            congestion_window: self.send.window(),
            flow_window: self.send.flow_window(),
            in_flight: self.send.buffer.in_flight(),
            capacity: self.capacity * bits,
            arrival_rate: self.arrival_rate * bits,
            send_buffer: (self.undelivered(), self.send_limit(SEND_AHEAD)),
            receive_buffer: (self.receive.stored(), capacity),
            receive_memory: self.receive.pinned(),
            reorder_tolerance: self.receive.gaps.tolerance(),
        };
        Stats { total, recent, instant }
    }

    /// Bytes written of which it is not known that the peer's reader gets them.
    fn undelivered(&self) -> usize {
        let kept_back = if self.stock { self.send.bytes_not_numbered() } else { 0 };
        self.send.buffer.bytes() + kept_back
    }

    fn all_counters(&mut self) -> Counters {
        Counters {
            packets_sent: self.send.packets_sent,
            bytes_sent: self.send.bytes_sent,
            packets_retransmitted: self.send.packets_retransmitted,
            packets_acked: self.send.packets_acked,
            send_lost: self.send.packets_lost,
            messages_dropped: self.send.messages_dropped,
            packets_received: self.receive.packets_received,
            bytes_received: self.receive.bytes_received,
            packets_in_order: self.receive.count_in_order(),
            receive_lost: self.receive.lost,
            reordered: self.receive.reordered,
            duplicates: self.receive.duplicates,
            out_of_window: self.receive.out_of_window,
            ..self.counters
        }
    }

    /// The shortest round trip of the last seconds.
    pub(crate) fn shortest_rtt(&self) -> Option<Duration> {
        self.rtt.min()
    }

    /// Lets everything that is due happen.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if self.is_over() {
            return;
        }
        if now - self.last_heard >= self.patience()
            && !matches!(self.life, Life::ShuttingDown { .. })
        {
            self.end(now, CloseReason::TimedOut);
            return;
        }
        if let Some(expired) = self.send.on_timeout(now, self.rto(), self.stock) {
            self.counters.timeouts += 1;
            // The first expiry only asks whether the end of a burst has arrived.
            if expired.count > 1 || self.governor.knobs().rto.is_some() {
                self.tell_law(now, |law, view, knobs| law.on_timeout(view, knobs));
            }
        }
        self.run_law_timer(now);
        self.lose_doubted(now);
        self.report_losses(now);
        self.give_and_ask_signs_of_life(now);
        self.advance_life(now);
    }

    /// When [`Connection::handle_timeout`] is next to be called, or the pacing lets data go.
    pub(crate) fn timeout(&self) -> Option<Time> {
        let life = match self.life {
            Life::Over(_) => return None,
            Life::ShuttingDown { next, .. } => return Some(next),
            Life::PeerLeaving { until } => return Some(until),
            Life::Lingering { until } => Some(until),
            Life::Open => None,
        };
        let timers = [
            life,
            Some(self.last_heard + self.patience()),
            Some(self.next_sign_of_life()),
            self.send.timeout(self.rto()),
            self.send.next_send(),
            self.receive.acks.timeout(self.receive.point(), self.ack_repeat(), self.tells_beyond()),
            self.receive.gaps.timeout(self.nak_repeat()),
            self.doubts.timeout(),
            self.governor.knobs().timer,
        ];
        timers.into_iter().flatten().min()
    }

    /// When the pacing lets packets go that may leave; none if anything else holds them.
    pub(crate) fn next_send(&self) -> Option<Time> {
        matches!(self.life, Life::Open | Life::Lingering { .. }).then(|| self.send.next_paced())?
    }

    fn advance_life(&mut self, now: Time) {
        match self.life {
            Life::Lingering { .. } if self.flushed() => {
                self.start_shutdown(now, CloseReason::Local);
            }
            Life::Lingering { until } if now >= until => {
                self.start_shutdown(now, CloseReason::LingerTimeout);
            }
            Life::PeerLeaving { until } if now >= until || self.flushed() => {
                self.end(now, CloseReason::Peer);
            }
            Life::ShuttingDown { reason, left, next } if now >= next => {
                if left == 0 {
                    self.end(now, reason);
                } else {
                    self.outbox.shutdown = true;
                    // The peer is to know how much of its data has arrived before it hears the end.
                    self.receive.acks.settle(self.receive.point());
                    let wait = match self.stock {
                        true => STOCK_SHUTDOWN_WAIT,
                        false => (self.rto() * (1 << (SHUTDOWNS - left).min(8))).min(SHUTDOWN_WAIT),
                    };
                    self.life = Life::ShuttingDown { reason, left: left - 1, next: now + wait };
                }
            }
            _ => {}
        }
    }

    fn start_shutdown(&mut self, now: Time, reason: CloseReason) {
        self.aborted |= reason != CloseReason::Local;
        let left = if self.stock { STOCK_SHUTDOWNS } else { SHUTDOWNS };
        self.life = Life::ShuttingDown { reason, left, next: now };
        // What was promised to the peer goes out before.
        self.advance_life(now);
    }

    fn end(&mut self, now: Time, reason: CloseReason) {
        self.life = Life::Over(reason);
        // A peer that still sends is told so.
        self.aborted |= matches!(reason, CloseReason::TimedOut | CloseReason::Reneged);
        self.events.closed = true;
        self.events.readable = true;
        self.events.writable = true;
        self.tell_law(now, |law, view, knobs| law.close(view, knobs));
    }

    /// What is needed to go on with the tags of a connection that is over.
    pub(crate) fn take_tags(&mut self) -> Tags {
        core::mem::take(&mut self.tags)
    }

    /// What this side tells its peer of the end.
    pub(crate) fn shutdown(&self) -> Control<'static> {
        let code = match (self.stock, self.aborted) {
            (true, _) => 0,
            (false, true) => ABORTED,
            (false, false) => ACCOUNTS | self.receive.point().value(),
        };
        Control::Shutdown { code }
    }

    /// Whether what comes is not taken any more: the shutdowns that are under way say how much has
    /// come.
    fn takes_nothing(&self) -> bool {
        matches!(self.life, Life::ShuttingDown { .. }) && !self.stock
    }

    /// The first sequence number that the peer has not acknowledged.
    pub fn acknowledged(&self) -> Seq {
        self.send.una()
    }
}
