//! What a test has measured.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul::{Counters, Stats};
use serde::{Deserialize, Serialize};

use super::channel::Channel;
use crate::units::{show_rate, show_size};
use crate::usage::{Cpu, peak_rss_bytes};

/// The document that `--json` prints.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub role: String,
    pub protocol: String,
    pub cc: String,
    pub mss: u32,
    pub streams: u32,
    pub bytes: u64,
    pub seconds: f64,
    pub bits_per_second: f64,
    pub intervals: Vec<Interval>,
    pub packets: Packets,
    pub rtt_ms: Rtt,
    pub cpu: CpuTime,
    pub peak_rss_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<Box<Report>>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Interval {
    pub start: f64,
    pub end: f64,
    pub bytes: u64,
    pub bits_per_second: f64,
    pub rtt_ms: f64,
    pub retransmitted: u64,
    pub lost: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Packets {
    pub sent: u64,
    pub retransmitted: u64,
    pub received: u64,
    pub lost: u64,
    pub reordered: u64,
    pub duplicate: u64,
    pub out_of_window: u64,
    pub ack_sent: u64,
    pub ack_received: u64,
    pub nak_sent: u64,
    pub nak_received: u64,
    pub timeouts: u64,
    pub invalid: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Rtt {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CpuTime {
    pub user_s: f64,
    pub system_s: f64,
}

impl Packets {
    fn add(&mut self, counters: &Counters) {
        self.sent += counters.packets_sent;
        self.retransmitted += counters.packets_retransmitted;
        self.received += counters.packets_received;
        self.lost += counters.send_lost + counters.receive_lost;
        self.reordered += counters.reordered;
        self.duplicate += counters.duplicates;
        self.out_of_window += counters.out_of_window;
        self.ack_sent += counters.acks_sent;
        self.ack_received += counters.acks_received;
        self.nak_sent += counters.naks_sent;
        self.nak_received += counters.naks_received;
        self.timeouts += counters.timeouts;
        self.invalid += counters.invalid;
    }
}

/// Watches the connections of a test from a thread of its own.
pub struct Meter {
    stop: Sender<()>,
    thread: JoinHandle<Watched>,
    started: Instant,
    cpu: Cpu,
}

#[derive(Default)]
struct Watched {
    intervals: Vec<Interval>,
    rtts: Vec<f64>,
    last: Packets,
}

/// Bytes that the application has moved, for all streams.
pub static MOVED: AtomicU64 = AtomicU64::new(0);
/// The other side is gone or done: threads that move data end.
pub static STOP: AtomicBool = AtomicBool::new(false);

impl Meter {
    /// Starts. `show`: print each interval.
    pub fn start(channels: Vec<Channel>, interval: Duration, show: bool) -> Self {
        MOVED.store(0, Ordering::Relaxed);
        STOP.store(false, Ordering::Relaxed);
        let (stop, stopped) = channel();
        let started = Instant::now();
        let thread =
            std::thread::spawn(move || watch(&channels, started, interval, show, &stopped));
        Meter { stop, thread, started, cpu: Cpu::now() }
    }

    /// Ends the test and tells what was measured; the caller adds what it knows.
    pub fn finish(self) -> Report {
        let seconds = self.started.elapsed().as_secs_f64();
        let cpu = Cpu::now().since(self.cpu);
        drop(self.stop);
        let watched = self.thread.join().unwrap_or_default();
        let bytes = MOVED.load(Ordering::Relaxed);
        let count = watched.rtts.len().max(1) as f64;
        Report {
            bytes,
            seconds,
            bits_per_second: if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 },
            intervals: watched.intervals,
            packets: watched.last,
            rtt_ms: Rtt {
                min: watched.rtts.iter().copied().reduce(f64::min).unwrap_or(0.0),
                mean: watched.rtts.iter().fold(0.0, |sum, rtt| sum + rtt) / count,
                max: watched.rtts.iter().copied().fold(0.0, f64::max),
            },
            cpu: CpuTime { user_s: cpu.user_s, system_s: cpu.system_s },
            peak_rss_bytes: peak_rss_bytes(),
            ..Report::default()
        }
    }
}

fn watch(
    channels: &[Channel],
    started: Instant,
    interval: Duration,
    show: bool,
    stopped: &Receiver<()>,
) -> Watched {
    let mut out = Watched::default();
    let (mut bytes_before, mut start) = (0, 0.0);
    loop {
        let ended = stopped.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected);
        let stats: Vec<Stats> = channels.iter().filter_map(Channel::stats).collect();
        let mut now = Packets::default();
        stats.iter().for_each(|s| now.add(&s.total.counters));
        let rtts = stats.iter().map(|s| s.instant.rtt.as_secs_f64() * 1e3);
        let rtt_ms = rtts.fold(0.0, |sum, rtt| sum + rtt) / stats.len().max(1) as f64;
        let bytes = MOVED.load(Ordering::Relaxed);
        let end = started.elapsed().as_secs_f64();
        let span = (end - start).max(1e-9);
        let row = Interval {
            start,
            end,
            bytes: bytes - bytes_before,
            bits_per_second: (bytes - bytes_before) as f64 * 8.0 / span,
            rtt_ms,
            retransmitted: now.retransmitted.saturating_sub(out.last.retransmitted),
            lost: now.lost.saturating_sub(out.last.lost),
        };
        if !stats.is_empty() {
            out.rtts.push(rtt_ms);
        }
        // What remains after the last whole interval is only shown if it is not a sliver.
        if !ended || span > interval.as_secs_f64() / 4.0 {
            if show {
                print_interval(&row);
            }
            out.intervals.push(row);
        }
        out.last = now;
        if ended {
            return out;
        }
        (bytes_before, start) = (bytes, end);
    }
}

fn print_interval(row: &Interval) {
    eprintln!(
        "{:6.2}-{:6.2} s  {:>10}  {:>12}  rtt {:.3} ms  retransmitted {}  lost {}",
        row.start,
        row.end,
        show_size(row.bytes),
        show_rate(row.bits_per_second),
        row.rtt_ms,
        row.retransmitted,
        row.lost
    );
}

impl Report {
    /// For a person.
    pub fn print(&self) {
        println!(
            "{} {}: {} in {:.2} s, {}",
            self.protocol,
            self.role,
            show_size(self.bytes),
            self.seconds,
            show_rate(self.bits_per_second)
        );
        let gigabytes = self.bytes as f64 / 1e9;
        let cpu = self.cpu.user_s + self.cpu.system_s;
        if gigabytes > 0.0 {
            println!(
                "  cpu {:.2} s ({:.2} s/GB), rtt {:.3} ms, retransmitted {} of {} packets",
                cpu,
                cpu / gigabytes,
                self.rtt_ms.mean,
                self.packets.retransmitted,
                self.packets.sent
            );
        }
        if let Some(peer) = &self.peer {
            peer.print();
        }
    }
}
