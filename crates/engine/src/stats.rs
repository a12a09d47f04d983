//! The performance monitor (gu05 §5.1.2.4).

use core::time::Duration;
use std::ops::Sub;

use farhaul_base::Time;

/// What a connection has counted: since it began, or since the last query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Data packets sent again.
    pub packets_retransmitted: u64,
    /// Packets acknowledged by the peer.
    pub packets_acked: u64,
    /// Packets that the peer reported lost or that a time-out took for lost.
    pub send_lost: u64,
    /// Messages given up because their time to live was over.
    pub messages_dropped: u64,
    /// Data packets received, duplicates included.
    pub packets_received: u64,
    /// Payload bytes received, duplicates included.
    pub bytes_received: u64,
    /// Packets that have arrived without a gap before them, or were given up by the peer: at least as
    /// many as an acknowledgement of this side has ever covered.
    pub packets_in_order: u64,
    /// Packets found missing when a later one came.
    pub receive_lost: u64,
    /// Packets that were overtaken by others and not lost.
    pub reordered: u64,
    /// Data packets received again.
    pub duplicates: u64,
    /// Data packets for which there was no room.
    pub out_of_window: u64,
    /// ACKs sent, light ones included.
    pub acks_sent: u64,
    /// ACKs received.
    pub acks_received: u64,
    /// NAKs sent.
    pub naks_sent: u64,
    /// NAKs received.
    pub naks_received: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Packets from the peer's address that no peer would send: malformed, or acknowledging or
    /// reporting what was never sent. They changed nothing.
    pub invalid: u64,
    /// Control packets, and data packets where those bear tags, from the peer's address that the peer did not send, or that came again, where
    /// both sides authenticate them ([`Connection::authenticate`](crate::Connection::authenticate)):
    /// without the right tag. They changed nothing. A few of the peer's own may be among them, which
    /// its first tagged packet overtook.
    pub forged: u64,
}

impl Sub for Counters {
    type Output = Counters;

    fn sub(self, earlier: Counters) -> Counters {
        Counters {
            packets_sent: self.packets_sent - earlier.packets_sent,
            bytes_sent: self.bytes_sent - earlier.bytes_sent,
            packets_retransmitted: self.packets_retransmitted - earlier.packets_retransmitted,
            packets_acked: self.packets_acked - earlier.packets_acked,
            send_lost: self.send_lost - earlier.send_lost,
            messages_dropped: self.messages_dropped - earlier.messages_dropped,
            packets_received: self.packets_received - earlier.packets_received,
            bytes_received: self.bytes_received - earlier.bytes_received,
            packets_in_order: self.packets_in_order - earlier.packets_in_order,
            receive_lost: self.receive_lost - earlier.receive_lost,
            reordered: self.reordered - earlier.reordered,
            duplicates: self.duplicates - earlier.duplicates,
            out_of_window: self.out_of_window - earlier.out_of_window,
            acks_sent: self.acks_sent - earlier.acks_sent,
            acks_received: self.acks_received - earlier.acks_received,
            naks_sent: self.naks_sent - earlier.naks_sent,
            naks_received: self.naks_received - earlier.naks_received,
            timeouts: self.timeouts - earlier.timeouts,
            invalid: self.invalid - earlier.invalid,
            forged: self.forged - earlier.forged,
        }
    }
}

/// Counters over a span of time, with the rates they make.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span {
    /// How long.
    pub duration: Duration,
    /// What was counted.
    pub counters: Counters,
    /// Payload sent, bits/s, retransmissions included.
    pub send_rate: f64,
    /// Payload received, bits/s, duplicates included.
    pub receive_rate: f64,
    /// Share of packets sent that were lost, 0 to 1.
    pub send_loss_rate: f64,
    /// Share of packets that should have come which were lost, 0 to 1.
    pub receive_loss_rate: f64,
}

impl Span {
    fn new(duration: Duration, counters: Counters) -> Self {
        let seconds = duration.as_secs_f64();
        let rate = |bytes: u64| if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
        let share =
            |part: u64, whole: u64| if whole > 0 { part as f64 / whole as f64 } else { 0.0 };
        // What was lost comes again and is received then.
        let expected = counters.packets_received - counters.duplicates;
        Span {
            duration,
            counters,
            send_rate: rate(counters.bytes_sent),
            receive_rate: rate(counters.bytes_received),
            send_loss_rate: share(counters.send_lost, counters.packets_sent).min(1.0),
            receive_loss_rate: share(counters.receive_lost, expected).min(1.0),
        }
    }
}

/// Values of the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The law at work, by the name it is registered under; empty if it has failed.
    pub law: &'static str,
    /// What the law is doing, in a word or two: `slow start`; empty if it does not say.
    pub state: &'static str,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_var: Duration,
    /// Smallest round-trip time of the last 10 to 20 s; none before the first sample.
    pub rtt_min: Option<Duration>,
    /// Packet-sending period; zero while sending is not paced.
    pub period: Duration,
    /// Congestion window, packets.
    pub congestion_window: u32,
    /// Packets the peer is ready to take.
    pub flow_window: u32,
    /// Packets sent and not acknowledged.
    pub in_flight: u32,
    /// Estimated capacity of the path to the peer, bits/s; 0 while unknown.
    pub capacity: f64,
    /// Arrival speed at the peer, bits/s; 0 while unknown.
    pub arrival_rate: f64,
    /// Bytes in the send buffer, and how many may be.
    pub send_buffer: (usize, usize),
    /// Bytes in the receive buffer, and how many may be.
    pub receive_buffer: (usize, usize),
    /// Bytes of memory held for received data, whole receive-offload buffers counted.
    pub receive_memory: usize,
    /// Packets that may overtake one before it counts as lost.
    pub reorder_tolerance: u32,
}

/// What the performance monitor tells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Since the connection was set up.
    pub total: Span,
    /// Since the query before.
    pub recent: Span,
    /// Now.
    pub instant: Snapshot,
}

/// Remembers the query before.
#[derive(Debug)]
pub struct Monitor {
    started: Time,
    asked: Time,
    then: Counters,
}

impl Monitor {
    pub fn new(now: Time) -> Self {
        Monitor { started: now, asked: now, then: Counters::default() }
    }

    /// Total and recent spans; `clear`: the next recent span begins here.
    pub fn query(&mut self, now: Time, counters: Counters, clear: bool) -> (Span, Span) {
        let total = Span::new(now - self.started, counters);
        let recent = Span::new(now - self.asked, counters - self.then);
        if clear {
            self.asked = now;
            self.then = counters;
        }
        (total, recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_and_differences() {
        let mut monitor = Monitor::new(Time::from_secs(1));
        let at = |n: u64| Counters {
            packets_sent: 100 * n,
            bytes_sent: 125_000 * n,
            send_lost: 5 * n,
            packets_received: 22 * n,
            duplicates: 2 * n,
            receive_lost: 10 * n,
            ..Counters::default()
        };
        let (total, recent) = monitor.query(Time::from_secs(2), at(1), true);
        assert_eq!(total, recent);
        assert_eq!((total.send_rate, total.send_loss_rate), (1e6, 0.05));
        assert_eq!(total.receive_loss_rate, 0.5);
        let (total, recent) = monitor.query(Time::from_secs(4), at(4), false);
        assert_eq!((total.duration, total.send_rate), (Duration::from_secs(3), 4e6 / 3.0));
        assert_eq!((recent.duration, recent.counters), (Duration::from_secs(2), at(3)));
        let (_, again) = monitor.query(Time::from_secs(4), at(4), true);
        assert_eq!(again, recent);
    }
}
