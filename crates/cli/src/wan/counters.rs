//! What an emulated network has counted, as JSON: at the end, and in the course of time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farhaul_link::LinkStats;
use farhaul_wan::tun::{HostStats, NetworkStats, TunPathStats};
use farhaul_wan::{DirectionStats, Timing};
use serde::{Deserialize, Serialize};

/// What a path has counted.
#[derive(Serialize, Deserialize)]
pub struct Counters {
    pub forward: Direction,
    pub backward: Direction,
}

/// One direction of a path.
#[derive(Debug, Serialize, Deserialize)]
pub struct Direction {
    pub received: u64,
    pub(super) sent: u64,
    sent_bytes: u64,
    pub(super) dropped_policer: u64,
    pub(super) dropped_queue: u64,
    pub(super) dropped_early: u64,
    /// By the queue, in the place of a drop.
    pub(super) marked: u64,
    pub(super) dropped_loss: u64,
    pub(super) dropped_blackout: u64,
    pub(super) duplicated: u64,
    pub(super) corrupted: u64,
    pub(super) reordered: u64,
    pub(super) overflowed: u64,
    pub(super) queue_packets_max: u64,
    /// Mean time of a packet in the queue, its own transmission included.
    pub queue_mean_ms: f64,
    mean_lateness_us: f64,
    max_lateness_us: f64,
    #[serde(flatten)]
    accuracy: Accuracy,
    /// Whether the path was as asked: see [`DirectionStats::time_kept`].
    pub time_kept: bool,
}

/// How far packets were from their times, early or late.
#[derive(Debug, Serialize, Deserialize)]
struct Accuracy {
    mean_error_us: f64,
    p99_error_us: f64,
}

/// What a network of several hosts has counted.
#[derive(Serialize)]
struct NetworkCounters {
    hosts: BTreeMap<String, HostCounters>,
    links: BTreeMap<String, LinkCounters>,
    time_kept: bool,
}

/// A host's device: `received` and `overflowed` of what the host has sent, the rest of what it was handed.
#[derive(Serialize)]
struct HostCounters {
    received: u64,
    received_bytes: u64,
    sent: u64,
    sent_bytes: u64,
    overflowed: u64,
    dropped_memory: u64,
    unroutable: u64,
    #[serde(flatten)]
    accuracy: Accuracy,
    max_lateness_us: f64,
    time_kept: bool,
}

/// A link.
#[derive(Serialize)]
struct LinkCounters {
    offered: u64,
    passed: u64,
    passed_bytes: u64,
    dropped_policer: u64,
    dropped_queue: u64,
    dropped_early: u64,
    marked: u64,
    dropped_loss: u64,
    dropped_blackout: u64,
    duplicated: u64,
    corrupted: u64,
    reordered: u64,
    queue_packets: u64,
    queue_packets_max: u64,
    queue_mean_ms: f64,
}

/// What the parts of a network are called.
#[derive(Clone, Debug)]
pub struct Names {
    pub hosts: Vec<String>,
    pub links: Vec<String>,
    /// It is the path of a near host and a far one.
    pub path: bool,
}

/// The form that what was counted has.
#[derive(Serialize)]
#[serde(untagged)]
enum Shape {
    Path(Box<Counters>),
    Network(NetworkCounters),
}

/// A line about an interval.
#[derive(Serialize)]
struct Line {
    /// When it ended, from the start on.
    at_s: f64,
    /// How long it was.
    seconds: f64,
    #[serde(flatten)]
    counters: Shape,
}

/// Watches what is counted in each interval.
pub struct Series {
    names: Names,
    every: Duration,
    began: Instant,
    last: Instant,
    before: NetworkStats,
    out: Option<BufWriter<File>>,
    intervals: u32,
    not_kept: u32,
}

impl From<&DirectionStats> for Direction {
    fn from(stats: &DirectionStats) -> Self {
        Direction {
            received: stats.received,
            sent: stats.sent,
            sent_bytes: stats.sent_bytes,
            dropped_policer: stats.link.dropped_policer,
            dropped_queue: stats.link.dropped_queue,
            dropped_early: stats.link.dropped_early,
            marked: stats.link.marked,
            dropped_loss: stats.link.dropped_loss,
            dropped_blackout: stats.link.dropped_blackout,
            duplicated: stats.link.duplicated,
            corrupted: stats.link.corrupted,
            reordered: stats.link.reordered,
            overflowed: stats.overflowed,
            queue_packets_max: stats.link.queue.packets_max,
            queue_mean_ms: milliseconds(stats.link.mean_wait()),
            mean_lateness_us: stats.timing.bias_us(),
            max_lateness_us: microseconds(stats.timing.max_late()),
            accuracy: (&stats.timing).into(),
            time_kept: stats.time_kept(),
        }
    }
}

impl From<&TunPathStats> for Counters {
    fn from(stats: &TunPathStats) -> Self {
        Counters { forward: (&stats.forward).into(), backward: (&stats.backward).into() }
    }
}

impl From<&Timing> for Accuracy {
    fn from(timing: &Timing) -> Self {
        Accuracy {
            mean_error_us: microseconds(timing.mean_error()),
            p99_error_us: microseconds(timing.quantile(0.99)),
        }
    }
}

impl From<&HostStats> for HostCounters {
    fn from(stats: &HostStats) -> Self {
        HostCounters {
            received: stats.received,
            received_bytes: stats.received_bytes,
            sent: stats.sent,
            sent_bytes: stats.sent_bytes,
            overflowed: stats.overflowed,
            dropped_memory: stats.dropped_memory,
            unroutable: stats.unroutable,
            accuracy: (&stats.timing).into(),
            max_lateness_us: microseconds(stats.timing.max_late()),
            time_kept: stats.time_kept(),
        }
    }
}

impl From<&LinkStats> for LinkCounters {
    fn from(stats: &LinkStats) -> Self {
        LinkCounters {
            offered: stats.offered,
            passed: stats.passed,
            passed_bytes: stats.passed_bytes,
            dropped_policer: stats.dropped_policer,
            dropped_queue: stats.dropped_queue,
            dropped_early: stats.dropped_early,
            marked: stats.marked,
            dropped_loss: stats.dropped_loss,
            dropped_blackout: stats.dropped_blackout,
            duplicated: stats.duplicated,
            corrupted: stats.corrupted,
            reordered: stats.reordered,
            queue_packets: stats.queue.packets,
            queue_packets_max: stats.queue.packets_max,
            queue_mean_ms: milliseconds(stats.mean_wait()),
        }
    }
}

impl Names {
    /// What was counted, as a JSON document.
    pub fn document(&self, stats: &NetworkStats) -> impl Serialize + use<> {
        self.shape(stats)
    }

    fn shape(&self, stats: &NetworkStats) -> Shape {
        if self.path {
            return Shape::Path(Box::new((&TunPathStats::from(stats)).into()));
        }
        let hosts = self.hosts.iter().cloned().zip(stats.hosts.iter().map(HostCounters::from));
        let links = self.links.iter().cloned().zip(stats.links.iter().map(LinkCounters::from));
        Shape::Network(NetworkCounters {
            hosts: hosts.collect(),
            links: links.collect(),
            time_kept: stats.time_kept(),
        })
    }
}

impl Series {
    /// Begins now. Each interval's counters become a line of `file`, if there is one.
    pub fn begin(
        names: Names,
        every: Duration,
        file: Option<&Path>,
        before: NetworkStats,
    ) -> Result<Series> {
        let open = |path: &Path| {
            let file = File::create(path);
            file.map(BufWriter::new).with_context(|| format!("cannot write {}", path.display()))
        };
        let (out, now) = (file.map(open).transpose()?, Instant::now());
        Ok(Series { names, every, began: now, last: now, before, out, intervals: 0, not_kept: 0 })
    }

    /// Looks whether an interval has ended.
    pub fn look(&mut self, stats: impl FnOnce() -> NetworkStats) -> Result<()> {
        if self.last.elapsed() >= self.every { self.note(stats()) } else { Ok(()) }
    }

    /// Ends the last interval, and all.
    pub fn end(&mut self, stats: NetworkStats) -> Result<()> {
        self.note(stats)
    }

    /// In how many of how many intervals time was not kept.
    pub fn not_kept(&self) -> (u32, u32) {
        (self.not_kept, self.intervals)
    }

    fn note(&mut self, stats: NetworkStats) -> Result<()> {
        let now = Instant::now();
        let between = stats.since(&self.before);
        self.intervals += 1;
        self.not_kept += u32::from(!between.time_kept());
        if let Some(out) = &mut self.out {
            let line = Line {
                at_s: (now - self.began).as_secs_f64(),
                seconds: (now - self.last).as_secs_f64(),
                counters: self.names.shape(&between),
            };
            let mut text = serde_json::to_vec(&line)?;
            text.push(b'\n');
            // A reader may follow the file.
            out.write_all(&text).and_then(|()| out.flush()).context("cannot write counters")?;
        }
        (self.last, self.before) = (now, stats);
        Ok(())
    }
}

/// In one sentence why a network was not as asked; none if it was, or nearly.
pub fn why_not_kept(stats: &NetworkStats, (not_kept, intervals): (u32, u32)) -> Option<String> {
    let sum = |count: fn(&HostStats) -> u64| stats.hosts.iter().map(count).sum::<u64>();
    let overflowed = sum(|host| host.overflowed);
    let memory = sum(|host| host.dropped_memory);
    let late = stats.hosts.iter().map(|host| host.timing.share_late()).fold(0.0, f64::max);
    let latest = stats.hosts.iter().map(|host| host.timing.max_late()).max().unwrap_or_default();
    let mut causes = Vec::new();
    if overflowed > 0 {
        causes.push(format!(
            "{overflowed} packets were lost because this machine was too slow to read them"
        ));
    }
    if memory > 0 {
        causes.push(format!("{memory} packets were dropped because too many were under way"));
    }
    if !stats.time_kept() && late > 0.0 {
        let share = late * 100.0;
        let ms = milliseconds(latest);
        causes.push(format!(
            "{share:.1}% of the packets left more than 0.5 ms late, up to {ms:.1} ms"
        ));
    }
    if !stats.time_kept() {
        let causes = causes.join(", ");
        return Some(format!(
            "time was not kept: {causes}; what was measured is not of this network"
        ));
    }
    (not_kept > 0).then(|| {
        let ms = milliseconds(latest);
        format!(
            "time was not kept in {not_kept} of {intervals} intervals, packets left up to {ms:.1} ms late: this machine \
             stalled"
        )
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
