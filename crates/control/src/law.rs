//! The interface between a connection and the law that governs it (gu05 §5.1.2).

use core::fmt::Debug;
use core::time::Duration;

use farhaul_base::Time;
use farhaul_wire::{LossRange, Seq};

/// The SYN interval: the constant rate-control and acknowledgement interval of UDT (gu05 §2.2.3).
pub const SYN: Duration = Duration::from_millis(10);
pub(crate) const SYN_NS: f64 = SYN.as_nanos() as f64;

/// What a law can see of its connection at the moment of an event.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The time of the event.
    pub now: Time,
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
    /// Packets sent and not yet acknowledged.
    pub in_flight: u32,
    /// Packets the peer is ready to take now.
    pub flow_window: u32,
    /// Packets the peer announced at most, at connection set-up.
    pub max_window: u32,
    /// Largest sequence number sent so far.
    pub largest_sent: Seq,
    /// Largest sequence number acknowledged so far.
    pub largest_acked: Seq,
    /// The application, not the network, limited the sending since the last ACK.
    pub app_limited: bool,
    /// Counters since the connection began.
    pub trace: Trace,
}

/// Aggregate counters of a connection, as a law may read them (gu05 §5.1.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Data packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Data packets sent again.
    pub packets_retransmitted: u64,
    /// Packets that the peer reported lost or that a time-out took for lost.
    pub packets_lost: u64,
    /// ACKs received.
    pub acks: u64,
    /// NAKs received.
    pub naks: u64,
}

/// What a law can set.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// Congestion window, packets.
    pub window: f64,
    /// Packet-sending period (P or STP), nanoseconds; 0 sends as fast as the windows allow.
    pub period_ns: f64,
    /// Nothing is sent before this instant.
    pub pause_until: Time,
    /// ACK timer for data received: at most [`SYN`].
    pub ack_period: Duration,
    /// Acknowledge after this many data packets received as well; 0 leaves it to the timer.
    pub ack_interval: u32,
    /// Fixed retransmission time-out in place of the one computed from the RTT.
    pub rto: Option<Duration>,
    /// Round-trip time to use in place of the measured one.
    pub rtt: Option<Duration>,
    /// Control messages to send to the peer's law; the connection takes them out.
    pub messages: Vec<CustomMessage>,
}

impl Default for Knobs {
    fn default() -> Self {
        Knobs {
            window: 16.0,
            period_ns: 0.0,
            pause_until: Time::ZERO,
            ack_period: SYN,
            ack_interval: 0,
            rto: None,
            rtt: None,
            messages: Vec::new(),
        }
    }
}

/// A control message from law to law: type 0x7FFF on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomMessage {
    /// The law's own type of message.
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

    /// Whether [`Law::on_packet_sent`] and [`Law::on_packet_received`] are to be called: at
    /// millions of packets a second, a law that does not need them should not pay for them.
    fn watches_packets(&self) -> bool {
        false
    }

    /// The connection is set up.
    fn init(&mut self, _view: &View, _knobs: &mut Knobs) {}

    /// An ACK covers everything before `next`.
    fn on_ack(&mut self, _next: Seq, _view: &View, _knobs: &mut Knobs) {}

    /// The peer reported these ranges lost, in one NAK.
    fn on_loss(&mut self, _lost: &[LossRange], _view: &View, _knobs: &mut Knobs) {}

    /// The retransmission timer expired with data unacknowledged.
    fn on_timeout(&mut self, _view: &View, _knobs: &mut Knobs) {}

    /// A data packet is about to be sent.
    fn on_packet_sent(&mut self, _packet: &SentPacket, _view: &View, _knobs: &mut Knobs) {}

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

    /// The connection ends.
    fn close(&mut self, _view: &View, _knobs: &mut Knobs) {}
}
