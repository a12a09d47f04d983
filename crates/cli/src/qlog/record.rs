//! The records of a trace.
//!
//! Times are milliseconds, as everywhere in qlog; rates are payload bits a second. What is not known
//! is left out.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The version of the main schema.
const VERSION: &str = "0.3";
const FORMAT: &str = "JSON-SEQ";
const RELATIVE: &str = "relative";

/// Names of events.
pub const NAMES: Names = Names {
    connection: "farhaul:connection_started",
    sample: "farhaul:metrics_sampled",
    state: "farhaul:state_changed",
    lost: "farhaul:packets_lost",
};

/// See [`NAMES`].
pub struct Names {
    /// A [`Connection`].
    pub connection: &'static str,
    /// A [`Sample`].
    pub sample: &'static str,
    /// A [`StateChange`].
    pub state: &'static str,
    /// A [`Lost`].
    pub lost: &'static str,
}

/// The first record.
// Viewers look for the version and the format among the first bytes: they stay first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Header {
    qlog_version: String,
    qlog_format: String,
    /// What was traced.
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    description: String,
    trace: TraceHeader,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct TraceHeader {
    #[serde(default)]
    title: String,
    vantage_point: VantagePoint,
    common_fields: CommonFields,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct VantagePoint {
    #[serde(default)]
    name: String,
    #[serde(rename = "type")]
    side: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct CommonFields {
    time_format: String,
    /// Milliseconds since 1970.
    #[serde(default)]
    reference_time: f64,
    #[serde(default)]
    protocol_type: Vec<String>,
}

/// Which side of a connection wrote a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vantage {
    /// That which connected.
    Client,
    /// That which listened.
    Server,
}

/// An event: when, what, of which connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record<'a, T> {
    /// Milliseconds since the reference time of the header.
    pub time: f64,
    /// One of [`NAMES`], or that of an event of others.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// The number of the connection.
    #[serde(borrow, default)]
    pub group_id: Cow<'a, str>,
    /// What is told.
    pub data: T,
}

/// What a connection does for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Its law decides how fast the data goes.
    Sender,
    /// It counts what comes; its law only governs what it says itself.
    Receiver,
}

/// A connection begins to be traced.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Connection<'a> {
    pub role: Role,
    /// The law that was asked for, with its parameters.
    #[serde(borrow)]
    pub cc: Cow<'a, str>,
    #[serde(borrow)]
    pub peer: Cow<'a, str>,
    pub mss: u32,
}

/// The numbers of a connection. Rates and counts are those of the interval that ends with the
/// sample, everything else is of that moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample<'a> {
    /// The law at work.
    #[serde(borrow)]
    pub law: Cow<'a, str>,
    /// What it is doing; empty if it does not say.
    #[serde(borrow)]
    pub state: Cow<'a, str>,
    /// Since the sample before; zero in the first one.
    pub interval_ms: f64,
    /// Congestion window, packets.
    pub window: u32,
    /// Packets that the peer is ready to take.
    pub flow_window: u32,
    /// Packets sent and not acknowledged.
    pub in_flight: u32,
    /// Packet-sending period, and the rate that it makes; none while sending is not paced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paced_bps: Option<f64>,
    /// Round-trip time, smoothed, and the smallest of the last seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt_ms: Option<f64>,
    /// Sent, retransmissions included.
    pub sent_bps: f64,
    /// Acknowledged by the peer.
    pub delivered_bps: f64,
    /// Received, duplicates included.
    pub received_bps: f64,
    /// Estimated capacity of the path to the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bps: Option<f64>,
    /// Packets: sent, received, reported lost or taken for lost, sent again, found missing here.
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    pub retransmitted: u64,
    pub missing: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
}

/// A law does something else, as seen by two samples. What lasts for less than the time between
/// them may not be seen.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StateChange<'a> {
    pub law: &'a str,
    pub old: &'a str,
    pub new: &'a str,
}

/// Packets were lost since the sample before.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Lost {
    pub packets: u64,
    pub trigger: Trigger,
}

/// How a loss was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The peer reported it.
    Report,
    /// The retransmission timer expired; some may have been reported.
    Timeout,
    /// A later packet came first: on the receiving side.
    Gap,
}

impl Header {
    /// For a trace of `title` whose times are since `reference_time`, milliseconds since 1970.
    pub fn new(title: String, vantage: Vantage, reference_time: f64) -> Self {
        let (name, side) = match vantage {
            Vantage::Client => ("the connecting side", "client"),
            Vantage::Server => ("the listening side", "server"),
        };
        Header {
            qlog_version: VERSION.into(),
            qlog_format: FORMAT.into(),
            title: title.clone(),
            description: format!("farhaul {}", env!("CARGO_PKG_VERSION")),
            trace: TraceHeader {
                title,
                vantage_point: VantagePoint { name: name.into(), side: side.into() },
                common_fields: CommonFields {
                    time_format: RELATIVE.into(),
                    reference_time,
                    protocol_type: vec!["UDT".into()],
                },
            },
        }
    }

    /// Why events after such a header cannot be understood, if they cannot.
    pub fn problem(&self) -> Option<String> {
        let fields = &self.trace.common_fields;
        if self.qlog_version != VERSION {
            Some(format!("it is qlog {}, and this reads {VERSION}", self.qlog_version))
        } else if self.qlog_format != FORMAT {
            Some(format!("its format is {}, and this reads {FORMAT}", self.qlog_format))
        } else if fields.time_format != RELATIVE {
            Some(format!("its times are {}, and this reads {RELATIVE} ones", fields.time_format))
        } else {
            None
        }
    }

    /// Which side wrote it: `client` or `server`.
    pub fn side(&self) -> &str {
        &self.trace.vantage_point.side
    }
}

impl Sample<'_> {
    /// Independent of what it was read from.
    pub fn is_sane(&self) -> bool {
        let known = [self.interval_ms, self.sent_bps, self.delivered_bps, self.received_bps];
        let perhaps =
            [self.period_us, self.paced_bps, self.rtt_ms, self.min_rtt_ms, self.capacity_bps];
        let mut all = known.into_iter().chain(perhaps.into_iter().flatten());
        all.all(|value| (0.0..=MOST).contains(&value))
    }
}

/// No number of a connection is greater, so that sums of them stay finite.
const MOST: f64 = 1e18;
