//! What a run has measured.

use core::fmt;
use core::time::Duration;

use farhaul_base::Time;
use farhaul_link::{LinkConfig, LinkStats};
use serde::{Deserialize, Serialize};

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The scenario's title.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The seed of the run.
    pub seed: u64,
    /// Simulated time, seconds.
    pub duration_s: f64,
    /// From one sample of the series to the next, seconds.
    pub sample_s: f64,
    /// Where averages and indices were taken, seconds.
    pub measured_s: (f64, f64),
    /// The flows in the order of the scenario.
    pub flows: Vec<FlowReport>,
    /// The links in the order of the scenario, each direction on its own.
    pub links: Vec<LinkReport>,
    /// The hosts that take their time, in the order of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostReport>,
    /// The dissertation's indices.
    pub indices: Indices,
    /// Turns that links and agents had.
    pub events: u64,
    /// Packets that agents sent, of any kind.
    pub packets: u64,
    /// Wall time that it took, seconds; the only thing that differs from run to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_seconds: Option<f64>,
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Its name.
    pub name: String,
    /// `udt`, `tcp-reno`, `cbr`, …
    pub protocol: String,
    /// Its law with its parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cc: Option<String>,
    /// When it began, seconds.
    pub start_s: f64,
    /// When it was cut off or had delivered everything, seconds; else the end of the run.
    pub stop_s: f64,
    /// How its connection ended where it should not have; none of a flow that was cut off, has sent
    /// everything or goes on, and of what is no UDT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// Payload bytes that have reached the receiving application in the whole run.
    pub bytes: u64,
    /// Payload delivered while measuring, bits/s.
    pub throughput_bps: f64,
    /// The same counted in whole packets with all headers, as the dissertation counts.
    pub packet_throughput_bps: f64,
    /// Share of the data packets sent that were lost, in the whole run: as the sender knows it, or
    /// for a constant rate those that have neither arrived nor are on their way.
    pub loss_rate: f64,
    /// Data packets sent in the whole run, retransmissions included.
    pub packets_sent: u64,
    /// Of these, retransmissions.
    pub retransmitted: u64,
    /// The sender's smoothed round-trip time at the samples, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<Spread>,
    /// Messages, of a flow that sends them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessageReport>,
    /// Short transfers, of a flow that consists of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfers: Option<TransferReport>,
    /// Payload delivered in each sample interval, bits/s.
    pub series: Vec<f64>,
    /// Payload that arrived in each sample interval for the first time, in whatever order, bits/s:
    /// what waits for a gap to be closed is in here when it comes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<f64>,
}

/// A host that takes its time, in the whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    /// Its node.
    pub name: String,
    /// Its profile's name; of one that differs from it, the name of what it differs from.
    pub profile: String,
    /// Interrupts.
    pub interrupts: u64,
    /// Packets that they brought.
    pub packets: u64,
    /// Packets lost because its interface held as many as it can.
    pub overruns: u64,
    /// ACKs whose place a later one took.
    pub thinned: u64,
    /// Stalls.
    pub stalls: u64,
}

/// How a connection ended too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// It was never set up.
    #[serde(rename = "never connected")]
    NeverConnected,
    /// Nothing came from the peer for as long as `peer_timeout`, or the peer gave up for that reason.
    #[serde(rename = "broken")]
    Broken,
    /// Its congestion control law panicked.
    #[serde(rename = "law failed")]
    LawFailed,
    /// Everything had been sent, but was not acknowledged within the linger time.
    #[serde(rename = "not acknowledged")]
    NotAcknowledged,
}

/// The text in JSON.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ended::NeverConnected => "never connected",
            Ended::Broken => "broken",
            Ended::LawFailed => "law failed",
            Ended::NotAcknowledged => "not acknowledged",
        })
    }
}

/// Messages of a flow, in the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageReport {
    /// That the sending application has handed over.
    pub sent: u64,
    /// That the receiving one has read.
    pub delivered: u64,
    /// From when they came to be until they were read, milliseconds, of messages at fixed times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<Spread>,
}

/// Short transfers that arrived over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferReport {
    /// That began.
    pub started: u64,
    /// That have ended.
    pub completed: u64,
    /// That were refused, for too many were under way.
    pub refused: u64,
    /// Mean time that those took which have ended, seconds.
    pub mean_s: f64,
}

/// Smallest, mean and largest of some values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Largest.
    pub max: f64,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// Its mean rate while measuring, bits/s; none for a link without a rate.
    pub rate_bps: Option<f64>,
    /// Share of its capacity that was used while measuring; none for a link without a rate.
    pub utilisation: Option<f64>,
    /// Packets lost for any reason, in the whole run.
    pub drops: u64,
    /// Of these, dropped by the policer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub drops_policer: u64,
    /// Of these, dropped by a full queue.
    pub drops_queue: u64,
    /// Of these, dropped by RED or CoDel before the queue was full.
    pub drops_early: u64,
    /// Packets marked by the queue (ECN).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub marked: u64,
    /// Packets in the queue while measuring, the one in transmission included.
    pub queue: Queue,
    /// Packets in the queue at each sample.
    pub queue_series: Vec<u64>,
}

/// What there is none of need not be told.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Fill of a queue, packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Over time.
    pub mean: f64,
    /// In the whole run.
    pub max: u64,
}

/// The indices of gu05 chapter 4, from the throughputs of all flows that are not of constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Indices {
    /// What all flows have delivered while measuring, over the time from the first one's begin to the
    /// last one's end, bits/s: the sum of their throughputs where all are there all the time.
    pub efficiency_bps: f64,
    /// Jain's fairness index.
    pub jain: Option<f64>,
    /// Mean over the flows of their samples' deviation over the mean.
    pub stability: Option<f64>,
    /// TCP's share beside UDT over its share among TCP alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_friendliness: Option<f64>,
}

impl FlowReport {
    /// Those of one of its series' samples, which are `sample_s` apart, that lie within its own time
    /// and the time of measuring, both in seconds.
    pub fn measured<'a>(
        &self,
        series: &'a [f64],
        sample_s: f64,
        measured_s: (f64, f64),
    ) -> &'a [f64] {
        let from = self.start_s.max(measured_s.0);
        let to = self.stop_s.min(measured_s.1);
        // Sample n covers the time from n to n + 1; a hair's breadth is rounding.
        let first = (from / sample_s - 1e-9).ceil().max(0.0) as usize;
        let last = ((to / sample_s + 1e-9).floor().max(0.0) as usize).min(series.len());
        series.get(first..last).unwrap_or_default()
    }

    /// One of its series in whole packets with all headers, as [`FlowReport::packet_throughput_bps`]
    /// counts.
    pub fn in_packets<'a>(&self, series: &'a [f64]) -> impl Iterator<Item = f64> + use<'a> {
        let factor = if self.throughput_bps > 0.0 {
            self.packet_throughput_bps / self.throughput_bps
        } else {
            1.0
        };
        series.iter().map(move |sample| sample * factor)
    }
}

impl LinkReport {
    /// Of a link that was measured `from … to` of its time; `before` and `after` are its counters
    /// then, `end` those at the end of the run.
    pub fn new(
        name: String,
        config: &LinkConfig,
        (from, to): (Duration, Duration),
        [before, after, end]: [LinkStats; 3],
        queue_series: Vec<u64>,
    ) -> Self {
        let span_ns = to.saturating_sub(from).as_nanos() as f64;
        let capacity = config.bits_between(Time::ZERO + from, Time::ZERO + to);
        let bits = (after.transmitted_bytes - before.transmitted_bytes) as f64 * 8.0;
        let fill = (after.queue.packet_nanos - before.queue.packet_nanos) as f64;
        LinkReport {
            name,
            rate_bps: capacity.map(|capacity| capacity * 1e9 / span_ns),
            utilisation: capacity.map(|capacity| bits / capacity),
            drops: end.dropped(),
            drops_policer: end.dropped_policer,
            drops_queue: end.dropped_queue,
            drops_early: end.dropped_early,
            marked: end.marked,
            queue: Queue { mean: fill / span_ns, max: end.queue.packets_max },
            queue_series,
        }
    }
}

impl Spread {
    /// Of `values`; none without any.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let min = values.iter().copied().reduce(f64::min)?;
        let max = values.iter().copied().reduce(f64::max)?;
        Some(Spread { min, mean: values.iter().sum::<f64>() / values.len() as f64, max })
    }
}
