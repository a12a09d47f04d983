//! The interface between a connection and the law that governs it (gu05 §5.1.2).

use core::fmt::Debug;
use core::ops::Sub;
use core::time::Duration;

use farhaul_base::Time;
use farhaul_wire::{LossRange, Seq};

/// The SYN interval: the constant rate-control and acknowledgement interval of UDT (gu05 §2.2.3).
pub const SYN: Duration = Duration::from_millis(10);
pub(crate) const SYN_NS: f64 = SYN.as_nanos() as f64;

/// What a law can see of its connection at the moment of an event.
///
/// [`View::default`] is that of a connection that has done nothing yet, for tests of laws.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The time of the event.
    pub now: Time,
    /// When the connection was set up.
    pub started: Time,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_var: Duration,
    /// Smallest round-trip time seen; [`Duration::MAX`] before the first sample.
    pub rtt_min: Duration,
    /// Packet arrival speed at the receiver (AS), packets/s, smoothed; 0 while unknown.
    pub arrival_rate: f64,
    /// Rate at which the receiver acknowledges, packets/s, measured here; 0 while unknown.
    pub delivery_rate: f64,
    /// Estimated link capacity (L), packets/s; 0 while unknown.
    pub capacity: f64,
    /// The packet-sending period really achieved since the last ACK while there was data to send,
    /// nanoseconds: [`Knobs::period_ns`], or more where a window or the host held packets back
    /// (gu05 §2.3.2.4).
    pub real_period_ns: f64,
    /// Maximum segment size: bytes of a full packet with all headers.
    pub mss: u32,
    /// Packets in the network: sent, and not known to have arrived or to be lost. Without
    /// [`View::sees_beyond_holes`], packets sent and not yet acknowledged.
    pub in_flight: u32,
    /// The peer tells of what arrives behind a hole, as farhaul peers do; towards others the window in
    /// force while a hole is repaired is held against what left in the last round trip and SYN
    /// interval.
    pub sees_beyond_holes: bool,
    /// Packets the peer is ready to take now.
    pub flow_window: u32,
    /// Packets the peer announced at most, at connection set-up.
    pub max_window: u32,
    /// Largest sequence number sent so far.
    pub largest_sent: Seq,
    /// Largest sequence number acknowledged so far.
    pub largest_acked: Seq,
    /// How long the peer may keep the news of an arrival to itself: the SYN interval where its timer
    /// says when it acknowledges (the stock library, or no [`Knobs::ack_interval`]).
    pub ack_wait: Duration,
    /// The application, not the network, limited the sending since the last ACK.
    pub app_limited: bool,
    /// Packets known to have arrived since the connection began, those behind a hole too.
    pub delivered: u64,
    /// The newest packet known to have arrived, where that is news of this event: a packet sent
    /// once, beyond all that were known to have arrived before.
    pub newest: Option<Arrival>,
    /// Counters since the connection began.
    pub trace: Trace,
}

impl Default for View {
    fn default() -> Self {
        View {
            now: Time::ZERO,
            started: Time::ZERO,
            rtt: Duration::from_millis(100),
            rtt_var: Duration::from_millis(50),
            rtt_min: Duration::MAX,
            arrival_rate: 0.0,
            delivery_rate: 0.0,
            capacity: 0.0,
            real_period_ns: 0.0,
            mss: 1500,
            in_flight: 0,
            sees_beyond_holes: false,
            flow_window: 1 << 20,
            max_window: 1 << 20,
            largest_sent: Seq::new(Seq::MAX),
            largest_acked: Seq::new(Seq::MAX),
            ack_wait: Duration::ZERO,
            app_limited: false,
            delivered: 0,
            newest: None,
            trace: Trace::default(),
        }
    }
}

impl View {
    /// The window to begin with, packets: `initial` on a new connection, and on one that runs
    /// already, whose law is replaced, no less than what is delivered in a round trip.
    pub fn start_window(&self, initial: f64) -> f64 {
        initial.max(self.delivery_rate * self.rtt.as_secs_f64())
    }
}

/// What the arrival of a packet tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// The packet.
    pub seq: Seq,
    /// From its sending to the news of its arrival.
    pub rtt: Duration,
    /// The same without what the news waited on the way back, which is no queue of this flow's making:
    /// as if that took no longer than the least of the last seconds. From the time stamps of farhaul
    /// peers, to within the drift of the clocks, some tenths of a millisecond; none towards others.
    pub forward: Option<Duration>,
    /// What [`Law::on_packet_sent`] returned for it; 0 if the law does not watch packets.
    pub tag: u64,
    /// What arrived between its sending and its arrival, if the law watches packets.
    pub delivery: Option<Delivery>,
}

/// Packets that arrived over a round trip, and the interval in which they did: a sample of the
/// delivery rate (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Packets that arrived.
    pub packets: u64,
    /// The longer of the time in which they were sent and that in which they arrived.
    pub interval: Duration,
    /// The application limited the sending when the packet left.
    pub app_limited: bool,
    /// [`View::delivered`] when the packet left.
    pub delivered_before: u64,
    /// [`View::in_flight`] when the packet left, itself included.
    pub in_flight: u32,
    /// [`Trace::packets_lost`] when the packet left.
    pub lost_before: u64,
}

impl Delivery {
    /// Packets a second.
    pub fn rate(&self) -> f64 {
        self.packets as f64 / self.interval.as_secs_f64()
    }
}

/// Aggregate counters of a connection, as a law may read them (gu05 §5.1.2.4). What they were a
/// while ago taken from what they are is the account of the time between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Data packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Data packets sent again.
    pub packets_retransmitted: u64,
    /// Packets that the peer reported lost or that a time-out took for lost.
    pub packets_lost: u64,
    /// Data packets that arrived here, without duplicates.
    pub packets_received: u64,
    /// Packets that were found missing here.
    pub packets_missed: u64,
    /// ACKs received.
    pub acks: u64,
    /// NAKs received.
    pub naks: u64,
}

impl Sub for Trace {
    type Output = Trace;

    fn sub(self, before: Trace) -> Trace {
        Trace {
            packets_sent: self.packets_sent - before.packets_sent,
            packets_retransmitted: self.packets_retransmitted - before.packets_retransmitted,
            packets_lost: self.packets_lost - before.packets_lost,
            packets_received: self.packets_received - before.packets_received,
            packets_missed: self.packets_missed - before.packets_missed,
            acks: self.acks - before.acks,
            naks: self.naks - before.naks,
        }
    }
}

/// What a law can set. [`Knobs::contain`] keeps each within its limits.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// Congestion window, packets, at most [`MOST_WINDOW`]; in force is at least [`LEAST_WINDOW`].
    pub window: f64,
    /// Packet-sending period (P or STP), nanoseconds, at most [`LONGEST_WAIT`]; 0 sends as fast as
    /// the windows allow.
    pub period_ns: f64,
    /// Nothing is sent before this instant, at most [`LONGEST_WAIT`] from now.
    pub pause_until: Time,
    /// ACK timer for data received: [`SHORTEST_WAIT`] to [`SYN`].
    pub ack_period: Duration,
    /// ACKs after this many data packets as well; 0 leaves it to the timer. It is asked of the peer
    /// for the data sent, and kept for the data received; the stock library does not hear of it.
    pub ack_interval: u32,
    /// How many times what arrives in a round trip the peer is asked to hold its flow window open
    /// for, [`LEAST_GROWTH`] to [`MOST_GROWTH`]: with 2 a flow can double its rate each round trip. A peer grants
    /// no more than it has memory for; the stock library does not hear of it.
    pub window_growth: u32,
    /// The share of loss events among packets (RFC 5348 §5.4) up to which the law alone decides how fast it
    /// goes, [`TOLERATED_LOSS`] to 1. Beyond it the connection spaces the packets of a flow that has but a few
    /// under way, as TCP would; 1 switches that off, for paths of one's own.
    pub tolerated_loss: f64,
    /// Fixed retransmission time-out in place of the one computed from the RTT:
    /// [`SHORTEST_WAIT`] to 60 s.
    pub rto: Option<Duration>,
    /// Round-trip time to use in place of the measured one: at most 60 s.
    pub rtt: Option<Duration>,
    /// When [`Law::on_timer`] is to be called, once: [`SHORTEST_WAIT`] from now at the earliest.
    pub timer: Option<Time>,
    /// Control messages to send to the peer's law; the connection takes them out. At most
    /// [`MOST_MESSAGES`] wait, of at most a packet each.
    pub messages: Vec<CustomMessage>,
}

/// The smallest congestion window in force, packets: a packet pair must fit.
pub const LEAST_WINDOW: f64 = 2.0;
/// The largest congestion window, packets: no more fit half the sequence numbers.
pub const MOST_WINDOW: f64 = (1u32 << 29) as f64;
/// The longest packet-sending period and pause: a connection stays alive, however slow.
pub const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The shortest interval that a law can set a timer to.
pub const SHORTEST_WAIT: Duration = Duration::from_micros(100);
/// The least of [`Knobs::window_growth`]: what a peer does unasked.
pub const LEAST_GROWTH: u32 = 2;
/// The most that [`Knobs::window_growth`] can ask for.
pub const MOST_GROWTH: u32 = 16;
/// The least of [`Knobs::tolerated_loss`]. At this rate of loss events TCP has two to four packets under
/// way (RFC 5348 §3.1), the least window of laws.
pub const TOLERATED_LOSS: f64 = 0.05;
/// The longest round-trip time and time-out that a law can set.
const LONGEST_RTT: Duration = Duration::from_secs(60);
/// Custom messages that wait to be sent.
pub const MOST_MESSAGES: usize = 64;

impl Default for Knobs {
    fn default() -> Self {
        Knobs {
            window: 16.0,
            period_ns: 0.0,
            pause_until: Time::ZERO,
            ack_period: SYN,
            ack_interval: 0,
            window_growth: LEAST_GROWTH,
            tolerated_loss: TOLERATED_LOSS,
            rto: None,
            rtt: None,
            timer: None,
            messages: Vec::new(),
        }
    }
}

impl Knobs {
    /// Brings everything within its limits. A window that is no number is the least one, a period
    /// that is none the longest: what a law cannot compute must not flood the path.
    pub fn contain(&mut self, now: Time) {
        let longest = LONGEST_WAIT.as_nanos() as f64;
        self.window = if self.window.is_nan() { 0.0 } else { self.window.clamp(0.0, MOST_WINDOW) };
        let period = self.period_ns;
        self.period_ns = if period.is_nan() { longest } else { period.clamp(0.0, longest) };
        self.pause_until = self.pause_until.min(now + LONGEST_WAIT);
        self.ack_period = self.ack_period.clamp(SHORTEST_WAIT, SYN);
        self.window_growth = self.window_growth.clamp(LEAST_GROWTH, MOST_GROWTH);
        let tolerated = self.tolerated_loss;
        self.tolerated_loss =
            if tolerated >= TOLERATED_LOSS { tolerated.min(1.0) } else { TOLERATED_LOSS };
        self.rto = self.rto.map(|rto| rto.clamp(SHORTEST_WAIT, LONGEST_RTT));
        self.rtt = self.rtt.map(|rtt| rtt.min(LONGEST_RTT));
        self.messages.truncate(MOST_MESSAGES);
    }
}

/// Custom messages of this subtype and above are the engine's own: laws do not get them.
pub const ENGINE_SUBTYPES: u16 = 0xff00;

/// A control message from law to law: type 0x7FFF on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomMessage {
    /// The law's own type of message, below [`ENGINE_SUBTYPES`].
    pub subtype: u16,
    /// The header's free word.
    pub info: u32,
    /// The body, at most one packet.
    pub payload: Vec<u8>,
}

/// One data packet as [`Law::on_packet_sent`] and [`Law::on_packet_received`] see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// Its sequence number.
    pub seq: Seq,
    /// Payload bytes.
    pub len: u32,
    /// Microseconds on the sender's clock, wrapping at 2^32.
    pub timestamp: u32,
    /// Sent before (known at the sender only).
    pub retransmission: bool,
}

/// A congestion control law (the CCC class of gu05 §5.1.2.1). Every event has an empty default.
///
/// Knobs keep their values between events; the connection applies them after each.
pub trait Law: Debug + Send {
    /// The name it is registered under.
    fn name(&self) -> &'static str;

    /// What it is doing, in a word or two, for traces: `slow start`.
    fn state(&self) -> &'static str {
        ""
    }

    /// Whether [`Law::on_packet_sent`] and [`Law::on_packet_received`] are to be called: at
    /// millions of packets a second, a law that does not need them should not pay for them.
    fn watches_packets(&self) -> bool {
        false
    }

    /// The connection is set up, or the law takes over a connection from another; then `knobs` are
    /// as that one left them but for timers and overrides, see [`View::start_window`].
    fn init(&mut self, _view: &View, _knobs: &mut Knobs) {}

    /// An ACK covers everything before `next`.
    fn on_ack(&mut self, _next: Seq, _view: &View, _knobs: &mut Knobs) {}

    /// Packets have arrived behind a hole, of which [`View::newest`] and [`View::delivered`] tell,
    /// while the ACK number stands still: [`View::sees_beyond_holes`].
    fn on_arrivals(&mut self, _view: &View, _knobs: &mut Knobs) {}

    /// The peer reported these ranges lost, in one NAK.
    fn on_loss(&mut self, _lost: &[LossRange], _view: &View, _knobs: &mut Knobs) {}

    /// The retransmission timer expired with data unacknowledged.
    fn on_timeout(&mut self, _view: &View, _knobs: &mut Knobs) {}

    /// A data packet is about to be sent. What is returned, the packet's tag, comes back with
    /// [`View::newest`].
    fn on_packet_sent(&mut self, _packet: &SentPacket, _view: &View, _knobs: &mut Knobs) -> u64 {
        0
    }

    /// A data packet has arrived.
    fn on_packet_received(&mut self, _packet: &SentPacket, _view: &View, _knobs: &mut Knobs) {}

    /// The peer's law sent a control message.
    fn on_custom_message(
        &mut self,
        _subtype: u16,
        _info: u32,
        _payload: &[u8],
        _view: &View,
        _knobs: &mut Knobs,
    ) {
    }

    /// The instant of [`Knobs::timer`] has come.
    fn on_timer(&mut self, _view: &View, _knobs: &mut Knobs) {}

    /// The connection ends, or another law takes over.
    fn close(&mut self, _view: &View, _knobs: &mut Knobs) {}
}
