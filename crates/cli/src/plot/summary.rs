//! What a trace comes to, in numbers.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::numbers::{Count, Numbers, Quantity};
use super::recording::{Recording, Stream};
use crate::qlog::Role;
use crate::units::show_rate;

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The file that was read, and the picture.
    pub trace: PathBuf,
    pub plot: PathBuf,
    pub title: String,
    pub side: String,
    pub role: Role,
    /// The law that was asked for, with its parameters.
    pub cc: String,
    /// From the first sample to the last one.
    pub seconds: f64,
    #[serde(flatten)]
    pub total: Numeric,
    /// Each connection.
    pub streams: Vec<StreamSummary>,
}

/// A connection.
#[derive(Debug, Serialize)]
pub struct StreamSummary {
    pub stream: String,
    #[serde(flatten)]
    pub numbers: Numeric,
}

/// The numbers of one connection or of several.
#[derive(Debug, Serialize)]
pub struct Numeric {
    /// Payload that arrived: acknowledged to the sender, or received.
    pub bits_per_second: f64,
    /// Payload that was sent, again too; of senders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bits_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<Rtt>,
    pub packets: Packets,
    pub timeouts: u64,
    /// Seconds in each state, of several connections together.
    pub states: BTreeMap<String, f64>,
}

#[derive(Debug, Serialize)]
pub struct Rtt {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
}

#[derive(Debug, Serialize)]
pub struct Packets {
    pub sent: u64,
    pub received: u64,
    /// Reported lost by the peer or taken for lost.
    pub lost: u64,
    pub retransmitted: u64,
    /// Found missing on this side.
    pub missing: u64,
}

impl Summary {
    /// Of `recording`, which was read from `trace` and is drawn in `plot`.
    pub fn of(recording: &Recording, trace: &Path, plot: &Path) -> Self {
        let (begin, end) = recording.span;
        let seconds = (end - begin).max(0.0);
        let all: Vec<&Stream> = recording.streams.iter().collect();
        let each = all.iter().map(|stream| StreamSummary {
            stream: stream.id.clone(),
            numbers: Numeric::of(recording, &[stream], seconds),
        });
        Summary {
            trace: trace.to_owned(),
            plot: plot.to_owned(),
            title: recording.title.clone(),
            side: recording.side.clone(),
            role: recording.role,
            cc: recording.cc.clone(),
            seconds,
            total: Numeric::of(recording, &all, seconds),
            streams: each.collect(),
        }
    }

    /// In a line, under a picture's title.
    pub fn line(&self) -> String {
        let Numeric { bits_per_second, rtt_ms, packets, .. } = &self.total;
        let (role, verb) = match self.role {
            Role::Sender => ("sender", "delivered"),
            Role::Receiver => ("receiver", "received"),
        };
        let mut line = match self.streams.as_slice() {
            [only] if only.stream == "0" => role.to_owned(),
            [only] => format!("{role}, stream {}", only.stream),
            several => format!("{role}, {} streams together", several.len()),
        };
        line += &format!(", {:.2} s: {} {verb}", self.seconds, show_rate(*bits_per_second));
        if let Some(rtt) = rtt_ms {
            line += &format!(", RTT {:.3} ms", rtt.mean);
        }
        line += &match self.role {
            Role::Sender => {
                format!(", {} packets lost, {} sent again", packets.lost, packets.retransmitted)
            }
            Role::Receiver => format!(", {} packets missing at first", packets.missing),
        };
        line
    }

    /// For a person.
    pub fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        let cc = if self.cc.is_empty() { "trace" } else { &self.cc };
        writeln!(out, "{cc}: {}", self.line())?;
        for (state, seconds) in &self.total.states {
            writeln!(out, "  {seconds:>9.3} s {state}")?;
        }
        writeln!(out, "plot: {}", self.plot.display())
    }
}

impl Numeric {
    fn of(recording: &Recording, streams: &[&Stream], seconds: f64) -> Self {
        let mut total = Numbers::default();
        streams.iter().for_each(|stream| total.add(&stream.total, 1.0));
        let rate = |quantity| if seconds > 0.0 { total.sum(quantity) / seconds } else { 0.0 };
        let ranges = || streams.iter().filter_map(|stream| stream.rtt_range);
        let rtt_ms = total.mean(Quantity::Rtt).map(|mean| Rtt {
            min: ranges().map(|range| range.0).fold(f64::INFINITY, f64::min) * 1e3,
            mean: mean * 1e3,
            max: ranges().map(|range| range.1).fold(0.0, f64::max) * 1e3,
        });
        let counted = |count| total.counted(count).round() as u64;
        let mut states = BTreeMap::new();
        for stream in streams {
            for (state, seconds) in stream.time_in.iter().enumerate() {
                *states.entry(recording.state_name(state)).or_default() += seconds;
            }
        }
        let sends = recording.role == Role::Sender;
        Numeric {
            bits_per_second: rate(if sends { Quantity::Delivered } else { Quantity::Received }),
            sent_bits_per_second: sends.then(|| rate(Quantity::Sent)),
            rtt_ms,
            packets: Packets {
                sent: counted(Count::Sent),
                received: counted(Count::Received),
                lost: counted(Count::Lost),
                retransmitted: counted(Count::Retransmitted),
                missing: counted(Count::Missing),
            },
            timeouts: counted(Count::Timeouts),
            states,
        }
    }
}
