//! The sending side of a TCP connection.

use core::time::Duration;

use farhaul_base::Time;
use farhaul_control::{Arrival, Governor, Knobs, Law, Sampler, SentPacket, Trace, View};
use farhaul_wire::{LossRange, Seq};

use super::TcpConfig;
use super::ecn::{Answer, Marks};
use super::recovery::Recovery;
use super::rto::{RttEstimator, RttSamples};
use super::scoreboard::Scoreboard;
use super::segment::{BLOCKS, Block, Kind, Segment};

/// The largest window that a law can set, packets.
const MOST_WINDOW: f64 = (1u64 << 29) as f64;
/// Marks do not bring the window below this, packets (RFC 8257 §3.3).
const LEAST_MARKED_WINDOW: f64 = 2.0;
/// What Linux sends at once when it paces: a millisecond of data (`sk_pacing_shift`), and no more than
/// one call of segmentation offload takes.
const BURST_NS: f64 = 1e6;
const BURST_SEGMENTS: f64 = 44.0;

/// Counters of a connection, or of many together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpStats {
    /// Data segments sent, retransmissions included.
    pub segments_sent: u64,
    /// Data segments sent again.
    pub segments_retransmitted: u64,
    /// Segments taken for lost, by acknowledgements of later ones or by a time-out.
    pub segments_lost: u64,
    /// Segments acknowledged cumulatively.
    pub segments_acked: u64,
    /// ACKs received.
    pub acks: u64,
    /// Retransmission time-outs, those of SYNs included.
    pub timeouts: u64,
    /// Fast recoveries begun.
    pub recoveries: u64,
    /// Round-trip times measured.
    pub rtt: RttSamples,
}

impl TcpStats {
    /// Adds those of another.
    pub fn add(&mut self, other: &TcpStats) {
        self.segments_sent += other.segments_sent;
        self.segments_retransmitted += other.segments_retransmitted;
        self.segments_lost += other.segments_lost;
        self.segments_acked += other.segments_acked;
        self.acks += other.acks;
        self.timeouts += other.timeouts;
        self.recoveries += other.recoveries;
        self.rtt.add(&other.rtt);
    }
}

/// One connection, from its SYN until everything is acknowledged.
#[derive(Debug)]
pub struct Sender {
    state: State,
    governor: Governor,
    sampler: Sampler,
    started: Time,
    proportional: bool,
    late_timers: bool,
    packet_size: u32,
    payload: u32,
    /// Bytes to send; none: without end.
    bytes: Option<u64>,
    /// Segments that they are.
    segments: u64,
    board: Scoreboard,
    rtt: RttEstimator,
    recovery: Option<Recovery>,
    /// What was sent before the last time-out ends here: losses before it have had their answer
    /// (RFC 6582 §3.2 step 6).
    timeout_point: u64,
    /// The peer's window, segments.
    peer_window: u32,
    /// The window of the beginning, to which an idle connection returns (RFC 5681 §4.1).
    restart_window: f64,
    /// When the retransmission timer expires.
    timer: Option<Time>,
    /// With pacing: when the next segment may leave.
    paced: Time,
    last_sent: Time,
    /// There was room in the window and nothing to fill it with since the last ACK.
    limited: bool,
    rate: DeliveryRate,
    marks: Marks,
    /// Segments known to have arrived.
    delivered: u64,
    /// What the law is to hear of with the next event: the latest of them.
    newest: Option<Arrival>,
    stats: TcpStats,
    lost: Vec<LossRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The SYN was sent then.
    Connecting {
        at: Time,
        again: bool,
    },
    Open,
    Done,
}

/// Segments that arrive a second, measured over round trips.
#[derive(Clone, Copy, Debug)]
struct DeliveryRate {
    since: Time,
    segments: u64,
    rate: f64,
}

impl DeliveryRate {
    fn on_ack(&mut self, now: Time, segments: u64, span: Duration) {
        self.segments += segments;
        let elapsed = now - self.since;
        if elapsed >= span && !elapsed.is_zero() {
            let sample = self.segments as f64 / elapsed.as_secs_f64();
            self.rate = if self.rate == 0.0 { sample } else { (7.0 * self.rate + sample) / 8.0 };
            *self = DeliveryRate { since: now, segments: 0, rate: self.rate };
        }
    }
}

impl Sender {
    /// Connects, to send so many bytes, or without end. `seed` is for the law. What is to leave
    /// goes to `send`.
    pub fn connect(
        now: Time,
        config: &TcpConfig,
        bytes: Option<u64>,
        seed: u64,
        send: &mut dyn FnMut(Kind),
    ) -> Self {
        let payload = config.payload();
        let rtt = RttEstimator::new(config.min_rto);
        send(Kind::Syn);
        Sender {
            state: State::Connecting { at: now, again: false },
            governor: Governor::new(config.law.build(seed)),
            sampler: Sampler::new(seq(0)),
            started: now,
            proportional: config.proportional,
            late_timers: config.late_timers,
            packet_size: config.packet_size,
            payload,
            bytes,
            // A connection without data carries its FIN.
            segments: bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(payload.into()).max(1)),
            board: Scoreboard::default(),
            timer: Some(now + rtt.timeout(None)),
            rtt,
            recovery: None,
            timeout_point: 0,
            peer_window: 0,
            restart_window: 0.0,
            paced: now,
            last_sent: now,
            limited: false,
            rate: DeliveryRate { since: now, segments: 0, rate: 0.0 },
            marks: Marks::new(config.ecn),
            delivered: 0,
            newest: None,
            stats: TcpStats::default(),
            lost: Vec::new(),
        }
    }

    /// Whether everything has been acknowledged.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether its law panicked.
    pub fn law_failed(&self) -> bool {
        self.governor.failure().is_some()
    }

    /// No more is to be sent than has been.
    pub fn stop(&mut self) {
        if self.board.end() < self.segments {
            self.segments = self.board.end();
            self.bytes = None;
        }
        if self.board.una() == self.segments {
            self.state = State::Done;
        }
    }

    /// Its counters.
    pub fn stats(&self) -> TcpStats {
        TcpStats { rtt: self.rtt.samples, ..self.stats }
    }

    /// The congestion window, packets.
    pub fn window(&self) -> f64 {
        self.governor.knobs().window
    }

    /// Smoothed round-trip time; none before the first measurement.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.measured()
    }

    /// A segment has come.
    pub fn receive(&mut self, now: Time, segment: &Segment) {
        match (self.state, &segment.kind) {
            (State::Connecting { at, again }, Kind::SynAck { window }) => {
                if !again {
                    self.rtt.update(now - at);
                }
                self.state = State::Open;
                self.timer = None;
                self.peer_window = *window;
                self.rate.since = now;
                self.tell_law(now, true, |law, view, knobs| law.init(view, knobs));
                self.restart_window = self.governor.knobs().window;
                self.last_sent = now;
            }
            (State::Open, Kind::Ack { next, window, blocks }) => {
                self.on_ack(now, *next, *window, blocks, segment.marks);
            }
            // The receiver has everything and has forgotten the connection.
            (State::Open, Kind::Reset) => {
                self.stats.segments_acked = self.board.end();
                self.state = State::Done;
                self.tell_law(now, true, |law, view, knobs| law.close(view, knobs));
            }
            _ => {}
        }
    }

    fn on_ack(&mut self, now: Time, next: u64, window: u32, blocks: &[Block; BLOCKS], marks: u32) {
        if next < self.board.una() || next > self.board.end() {
            return;
        }
        self.stats.acks += 1;
        self.peer_window = window;
        let blocks = blocks.iter().filter(|block| block.len > 0).map(|block| {
            let start = next + u64::from(block.gap);
            start..start + u64::from(block.len)
        });
        let delivery = self.board.acknowledge(now, next, blocks);
        self.delivered += delivery.delivered;
        if let Some((number, rtt)) = delivery.newest {
            self.rtt.update(rtt);
            let seq = seq(number);
            let sample = self.sampler.on_arrival(now, seq, self.delivered);
            let tag = sample.map_or(0, |(tag, _)| tag);
            let delivery = sample.map(|(_, delivery)| delivery);
            self.newest = Some(Arrival { seq, rtt, forward: None, tag, delivery });
        }
        self.sampler.acknowledge(seq(next));
        self.rate.on_ack(now, delivery.delivered, self.rtt.smoothed());
        if self.recovery.as_ref().is_some_and(|recovery| next >= recovery.point) {
            self.recovery = None;
        }
        let limited = core::mem::take(&mut self.limited);
        if delivery.acked > 0 {
            self.stats.segments_acked += delivery.acked;
            self.timer = None;
            self.tell_law(now, limited, |law, view, knobs| law.on_ack(seq(next), view, knobs));
        }
        self.answer_marks(now, marks, delivery.delivered);
        let lost = self.detect_losses(now);
        if let Some(recovery) = &mut self.recovery {
            recovery.on_ack(delivery, lost, self.board.pipe(), whole(self.governor.knobs().window));
        }
        if next == self.segments {
            self.state = State::Done;
            self.tell_law(now, true, |law, view, knobs| law.close(view, knobs));
        } else if self.board.outstanding() > 0 && self.timer.is_none() {
            self.start_timer(now);
        }
    }

    /// Of all the connection's segments `marks` have come marked, and `delivered` more have come.
    fn answer_marks(&mut self, now: Time, marks: u32, delivered: u64) {
        let (una, end) = (self.board.una(), self.board.end());
        match self.marks.on_ack(marks, delivered, una, end) {
            None => {}
            // A loss that is being repaired has been answered.
            Some(_) if self.recovery.is_some() => {}
            Some(Answer::Loss) => {
                let at = [LossRange::single(seq(una))];
                self.tell_law(now, false, |law, view, knobs| law.on_loss(&at, view, knobs));
            }
            Some(Answer::Scale(by)) => {
                let knobs = self.governor.knobs_mut();
                knobs.window = (knobs.window * by).max(LEAST_MARKED_WINDOW);
            }
        }
    }

    /// Returns whether there are some.
    fn detect_losses(&mut self, now: Time) -> bool {
        let mut ranges = core::mem::take(&mut self.lost);
        ranges.clear();
        let lost_again = self.board.detect(|run| {
            ranges.push(LossRange { first: seq(run.start), last: seq(run.end - 1) });
        });
        let found = !ranges.is_empty();
        self.stats.segments_lost += ranges.iter().map(|run| u64::from(run.len())).sum::<u64>();
        let answered = self.recovery.is_some() || self.board.una() < self.timeout_point;
        // A retransmission that is lost is a second indication of congestion, and the window comes
        // down a second time (RFC 5681 §4.3).
        if (self.board.is_missing_one() && !answered) || lost_again.is_some() {
            if ranges.is_empty() {
                // It was found in the recovery before this one.
                ranges.push(LossRange::single(seq(self.board.una())));
            }
            if let Some(next) = lost_again {
                // Laws tell by the numbers whether a loss is older than their last reduction. Of
                // what was sent again, it is the number that was next then that does.
                ranges.insert(0, LossRange::single(seq(next)));
            }
            self.stats.recoveries += 1;
            self.board.answer();
            self.recovery = Some(Recovery::new(&self.board, self.proportional));
            self.tell_law(now, false, |law, view, knobs| law.on_loss(&ranges, view, knobs));
        }
        self.lost = ranges;
        found
    }

    /// Lets happen what is due, and hands what is to leave to `send`. Returns when to come again.
    pub fn turn(&mut self, now: Time, send: &mut dyn FnMut(Kind)) -> Option<Time> {
        if self.timer.is_some_and(|at| at <= now) {
            self.on_timeout(now, send);
        }
        if self.governor.knobs().timer.is_some_and(|at| at <= now) {
            self.governor.knobs_mut().timer = None;
            self.tell_law(now, false, |law, view, knobs| law.on_timer(view, knobs));
        }
        let paced = match self.state {
            State::Open => self.fill(now, send),
            State::Connecting { .. } => None,
            State::Done => return None,
        };
        self.timer.into_iter().chain(self.governor.knobs().timer).chain(paced).min()
    }

    fn on_timeout(&mut self, now: Time, send: &mut dyn FnMut(Kind)) {
        self.stats.timeouts += 1;
        self.rtt.back_off();
        if let State::Connecting { again, .. } = &mut self.state {
            *again = true;
            send(Kind::Syn);
            self.start_timer(now);
            return;
        }
        self.stats.segments_lost += self.board.lose_all();
        self.recovery = None;
        self.timeout_point = self.board.end();
        self.timer = None;
        self.tell_law(now, false, |law, view, knobs| law.on_timeout(view, knobs));
    }

    /// Sends what may leave. Returns when to come again, if pacing is what holds it.
    fn fill(&mut self, now: Time, send: &mut dyn FnMut(Kind)) -> Option<Time> {
        let idle = self.board.outstanding() == 0
            && now - self.last_sent > self.rtt.timeout(self.governor.knobs().rto);
        if idle {
            let knobs = self.governor.knobs_mut();
            knobs.window = knobs.window.min(self.restart_window);
        }
        while self.has_room() {
            let ready = self.paced.max(self.governor.knobs().pause_until);
            if ready > now {
                return Some(ready);
            }
            let Some((number, again)) = self.pick(now) else {
                self.limited = true;
                if self.governor.watches_packets() {
                    let view = self.view(now, true);
                    self.sampler.on_app_limited(&view);
                }
                break;
            };
            self.transmit(now, number, again, send);
        }
        None
    }

    fn has_room(&self) -> bool {
        let (pipe, window) = (self.board.pipe(), whole(self.governor.knobs().window));
        match &self.recovery {
            // A law that paces has its rate, and needs no other bound.
            Some(recovery) if self.governor.knobs().period_ns == 0.0 => {
                recovery.has_room(pipe, window)
            }
            _ => pipe < window,
        }
    }

    /// The next segment to send (`NextSeg` of RFC 6675), and whether it is a retransmission.
    fn pick(&mut self, now: Time) -> Option<(u64, bool)> {
        if let Some(number) = self.board.resend_lost() {
            return Some((number, true));
        }
        let end = self.board.end();
        if end < self.segments && self.board.outstanding() < u64::from(self.peer_window) {
            return Some((self.board.send_new(now), false));
        }
        let recovery = self.recovery.as_mut()?;
        if let Some(number) = self.board.resend_doubtful() {
            return Some((number, true));
        }
        if core::mem::replace(&mut recovery.rescued, true) {
            return None;
        }
        self.board.resend_last().map(|number| (number, true))
    }

    fn transmit(&mut self, now: Time, number: u64, again: bool, send: &mut dyn FnMut(Kind)) {
        let last = number + 1 == self.segments && self.bytes.is_some();
        let len = match self.bytes {
            Some(bytes) if last => (bytes - number * u64::from(self.payload)) as u32,
            _ => self.payload,
        };
        self.stats.segments_sent += 1;
        self.stats.segments_retransmitted += u64::from(again);
        if let Some(recovery) = &mut self.recovery {
            recovery.on_sent();
        }
        if self.governor.watches_packets() {
            let timestamp = now.as_micros() as u32;
            let packet = SentPacket { seq: seq(number), len, timestamp, retransmission: again };
            let view = self.view(now, false);
            let tag = self
                .governor
                .tell(&view, |law, view, knobs| law.on_packet_sent(&packet, view, knobs));
            self.sampler.on_sent(packet.seq, tag, &view);
        }
        // The first segment sent again begins its time-out anew, as in Linux.
        if self.timer.is_none() || number == self.board.una() {
            self.start_timer(now);
        }
        self.last_sent = now;
        let period_ns = self.governor.knobs().period_ns;
        if period_ns > 0.0 {
            let period = Duration::from_nanos(period_ns as u64);
            // As tcp_update_skb_after_send of Linux: half of a burst at most is made up for.
            let burst_ns = (BURST_SEGMENTS * period_ns).min(BURST_NS).max(period_ns);
            let credit_ns = if self.late_timers { (burst_ns / 2.0) as u64 } else { 0 };
            let earliest = Time::from_nanos(now.as_nanos().saturating_sub(credit_ns));
            self.paced = self.paced.max(earliest) + period;
        }
        send(Kind::Data { number, len, last });
    }

    fn start_timer(&mut self, now: Time) {
        self.timer = Some(now + self.rtt.timeout(self.governor.knobs().rto));
    }

    fn tell_law(
        &mut self,
        now: Time,
        app_limited: bool,
        event: impl FnOnce(&mut dyn Law, &View, &mut Knobs),
    ) {
        let view = View { newest: self.newest.take(), ..self.view(now, app_limited) };
        self.governor.tell(&view, event);
        // There is no peer's law to hear them.
        self.governor.knobs_mut().messages.clear();
        if self.law_failed() {
            self.state = State::Done;
        }
    }

    fn view(&self, now: Time, app_limited: bool) -> View {
        View {
            now,
            started: self.started,
            rtt: self.governor.knobs().rtt.unwrap_or(self.rtt.smoothed()),
            rtt_var: self.rtt.deviation(),
            rtt_min: self.rtt.samples.min.unwrap_or(Duration::MAX),
            // SACK tells of every arrival, so that both rates are the same here.
            arrival_rate: self.rate.rate,
            delivery_rate: self.rate.rate,
            capacity: 0.0,
            real_period_ns: self.governor.knobs().period_ns,
            mss: self.packet_size,
            in_flight: self.board.pipe() as u32,
            sees_beyond_holes: true,
            flow_window: self.peer_window,
            max_window: self.peer_window,
            largest_sent: seq(self.board.end()).prev(),
            largest_acked: seq(self.board.una()).prev(),
            ack_wait: Duration::ZERO,
            app_limited,
            delivered: self.delivered,
            newest: None,
            trace: Trace {
                packets_sent: self.stats.segments_sent,
                packets_retransmitted: self.stats.segments_retransmitted,
                packets_lost: self.stats.segments_lost,
                packets_received: 0,
                packets_missed: 0,
                acks: self.stats.acks,
                naks: self.stats.recoveries,
            },
        }
    }
}

/// The number that a law knows a segment by.
fn seq(number: u64) -> Seq {
    Seq::new(number as u32)
}

/// Whole packets of a window, at least one.
fn whole(window: f64) -> u64 {
    window.clamp(1.0, MOST_WINDOW) as u64
}

#[cfg(test)]
mod tests;
