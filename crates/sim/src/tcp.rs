//! TCP in the simulator: a model of its own, with the control laws that UDT's engine uses.
//!
//! What of TCP matters to how fast data moves is there: set-up, cumulative and selective
//! acknowledgements (RFC 2018), delayed ones (RFC 5681), recovery by what is in flight (RFC 6675)
//! with proportional rate reduction (RFC 6937), the retransmission timer (RFC 6298), the receive
//! window, explicit congestion notification (RFC 3168, and as RFC 8257 answers it). Payload is counted and not carried, in one direction.

mod connections;
mod ecn;
mod ranges;
mod receiver;
mod recovery;
mod rto;
mod scoreboard;
mod segment;
mod sender;
mod sink;
mod source;
mod workload;

use core::time::Duration;

use farhaul_control::Spec;

pub use ecn::TcpEcn;
pub use rto::RttSamples;
pub use segment::{BLOCKS, Block, Kind, Segment, TCP_HEADERS};
pub use sender::TcpStats;
pub use sink::{SinkStats, TcpSink};
pub use source::TcpSource;
pub use workload::{Transfers, Workload};

/// Options of TCP connections. Source and sink each heed what is theirs.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpConfig {
    /// Congestion control law; its parameter `window` is the initial window. `reno`.
    pub law: Spec,
    /// Bytes of a full packet with its 40 bytes of IPv4 and TCP headers; 1500.
    pub packet_size: u32,
    /// The receive window, bytes of payload; 1 GiB, the most that window scaling can announce
    /// (RFC 7323 §2.3).
    pub receive_window: u64,
    /// How long an ACK waits for a second segment; 40 ms. None: each segment is acknowledged.
    pub delayed_ack: Option<Duration>,
    /// What the retransmission time-out has at least beyond the smoothed round-trip time, as in
    /// Linux; 200 ms.
    pub min_rto: Duration,
    /// Proportional rate reduction; without it the sender is silent until what is in flight has
    /// come down to the window. On.
    pub proportional: bool,
    /// The host's timers come late: segments that pacing would have let go in the meantime leave
    /// together, up to half of what Linux sends at once. Off: each waits for its own time.
    pub late_timers: bool,
    /// Explicit congestion notification. Off.
    pub ecn: TcpEcn,
}

impl Default for TcpConfig {
    fn default() -> Self {
        TcpConfig {
            law: "reno".parse().expect("a law of that name"),
            packet_size: 1500,
            receive_window: 1 << 30,
            delayed_ack: Some(Duration::from_millis(40)),
            min_rto: Duration::from_millis(200),
            proportional: true,
            late_timers: false,
            ecn: TcpEcn::Off,
        }
    }
}

impl TcpConfig {
    /// Bytes of payload of a full segment, at least 1.
    pub fn payload(&self) -> u32 {
        self.packet_size.saturating_sub(TCP_HEADERS).max(1)
    }

    /// The receive window in full segments, at least 1.
    pub fn window_segments(&self) -> u32 {
        let segments = self.receive_window / u64::from(self.payload());
        u32::try_from(segments).unwrap_or(u32::MAX).max(1)
    }

    /// What a scenario with these options should be warned of. A window of one segment whose ACK
    /// waits for longer than the sender does times out each time, and flows starve.
    pub fn warning(&self) -> Option<&'static str> {
        let starves = self.delayed_ack.is_some_and(|delay| delay >= self.min_rto);
        starves.then_some("the delayed-ACK timer is not shorter than the shortest time-out")
    }
}
