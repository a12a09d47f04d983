//! What a test has measured.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul::{Counters, Stats};
use farhaul_doctor::advice::SOCKET_BUFFER;
use serde::{Deserialize, Serialize};

use super::channel::Channel;
use crate::units::{show_rate, show_size};
use crate::usage::{Cpu, peak_rss_bytes};

/// The document that `--json` prints.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub role: String,
    pub protocol: String,
    /// The law of what this side sends; null of a side that sends nothing.
    pub cc: Option<String>,
    pub mss: u32,
    pub streams: u32,
    pub bytes: u64,
    pub seconds: f64,
    pub bits_per_second: f64,
    pub intervals: Vec<Interval>,
    /// Of transports that tell, as `rtt_ms` and some members of `intervals`: not TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<Packets>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<Rtt>,
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
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathInterval>,
}

/// What a transport tells about the path.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PathInterval {
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
    /// Datagrams that this side's kernel dropped because a socket's receive buffer was full: among what is
    /// lost, and no fault of the path. Older peers do not tell.
    #[serde(default)]
    pub kernel_dropped: u64,
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

impl Rtt {
    fn of(rtts: &[f64]) -> Option<Rtt> {
        Some(Rtt {
            min: rtts.iter().copied().reduce(f64::min)?,
            mean: rtts.iter().sum::<f64>() / rtts.len() as f64,
            max: rtts.iter().copied().reduce(f64::max)?,
        })
    }
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
    cpu: Cpu,
}

/// What the kernel has dropped at each port, as it counts.
type KernelDropped = BTreeMap<SocketAddr, u32>;

#[derive(Default)]
struct Watched {
    dropped: KernelDropped,
    intervals: Vec<Interval>,
    /// All bytes of the intervals, and the end of the last one.
    bytes: u64,
    seconds: f64,
    rtts: Vec<f64>,
    last: Option<Packets>,
}

impl Meter {
    /// Starts. `moved`: bytes that the application has moved over all `channels`. `show`: print
    /// each interval.
    pub fn start(
        channels: Vec<Channel>,
        moved: Arc<AtomicU64>,
        interval: Duration,
        show: bool,
    ) -> Self {
        let (stop, stopped) = channel();
        let started = Instant::now();
        let watched = Watched { dropped: kernel_dropped(&channels), ..Watched::default() };
        let thread = std::thread::spawn(move || {
            watch(watched, &channels, &moved, started, interval, show, &stopped)
        });
        Meter { stop, thread, cpu: Cpu::now() }
    }

    /// Ends the test and tells what was measured; the caller adds what it knows.
    pub fn finish(self) -> Report {
        let cpu = Cpu::now().since(self.cpu);
        drop(self.stop);
        // Read once for all: after an interruption the connections may still move something.
        let watched = self.thread.join().unwrap_or_default();
        let (bytes, seconds) = (watched.bytes, watched.seconds);
        Report {
            bytes,
            seconds,
            bits_per_second: if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 },
            intervals: watched.intervals,
            packets: watched.last,
            rtt_ms: Rtt::of(&watched.rtts),
            cpu: CpuTime { user_s: cpu.user_s, system_s: cpu.system_s },
            peak_rss_bytes: peak_rss_bytes(),
            ..Report::default()
        }
    }
}

impl Watched {
    /// What has happened since the last call; none where nobody tells.
    fn add(&mut self, stats: &[Stats], dropped: KernelDropped) -> Option<PathInterval> {
        if stats.is_empty() {
            return None;
        }
        let mut now = Packets::default();
        stats.iter().for_each(|s| now.add(&s.total.counters));
        let before = self.last.unwrap_or_default();
        now.kernel_dropped = before.kernel_dropped + self.newly_dropped(dropped);
        self.last = Some(now);
        let rtts = stats.iter().map(|s| s.instant.rtt.as_secs_f64() * 1e3);
        let rtt_ms = rtts.sum::<f64>() / stats.len() as f64;
        self.rtts.push(rtt_ms);
        Some(PathInterval {
            rtt_ms,
            retransmitted: now.retransmitted.saturating_sub(before.retransmitted),
            lost: now.lost.saturating_sub(before.lost),
        })
    }

    /// What the kernel has dropped since the last call. Its counts wrap.
    fn newly_dropped(&mut self, dropped: KernelDropped) -> u64 {
        let before = std::mem::replace(&mut self.dropped, dropped);
        let more = |(port, now): (&SocketAddr, &u32)| {
            u64::from(now.wrapping_sub(before.get(port).copied().unwrap_or(0)))
        };
        self.dropped.iter().map(more).sum()
    }

    /// Takes what happened next: a row of its own if it is the first one or lasts for `shortest`
    /// seconds at least, or else a part of the row before it. Whether it is a row.
    fn append(&mut self, next: Interval, shortest: f64) -> bool {
        match self.intervals.last_mut() {
            Some(row) if next.end - next.start < shortest => {
                row.extend(&next);
                false
            }
            _ => {
                self.intervals.push(next);
                true
            }
        }
    }
}

impl Interval {
    fn new(start: f64, end: f64, bytes: u64, path: Option<PathInterval>) -> Self {
        let bits_per_second = bytes as f64 * 8.0 / (end - start).max(1e-9);
        Interval { start, end, bytes, bits_per_second, path }
    }

    /// Goes on to the end of `next`. The round-trip time remains what it was for most of the time.
    fn extend(&mut self, next: &Interval) {
        let path = match (self.path, next.path) {
            (Some(path), Some(more)) => Some(PathInterval {
                rtt_ms: path.rtt_ms,
                retransmitted: path.retransmitted + more.retransmitted,
                lost: path.lost + more.lost,
            }),
            (path, more) => path.or(more),
        };
        *self = Interval::new(self.start, next.end, self.bytes + next.bytes, path);
    }
}

fn kernel_dropped(channels: &[Channel]) -> KernelDropped {
    channels.iter().filter_map(Channel::kernel_dropped).collect()
}

fn watch(
    mut out: Watched,
    channels: &[Channel],
    moved: &AtomicU64,
    started: Instant,
    interval: Duration,
    show: bool,
    stopped: &Receiver<()>,
) -> Watched {
    loop {
        let ended = stopped.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected);
        let stats: Vec<Stats> = channels.iter().filter_map(Channel::stats).collect();
        let bytes = moved.load(Ordering::Relaxed);
        let end = started.elapsed().as_secs_f64();
        let path = out.add(&stats, kernel_dropped(channels));
        let row = Interval::new(out.seconds, end, bytes - out.bytes, path);
        (out.bytes, out.seconds) = (bytes, end);
        // What remains after the last whole interval may be a sliver.
        let shortest = if ended { interval.as_secs_f64() / 4.0 } else { 0.0 };
        if out.append(row, shortest) && show {
            print_interval(&row);
        }
        if ended {
            return out;
        }
    }
}

fn print_interval(row: &Interval) {
    let path = row.path.map_or(String::new(), |path| {
        let PathInterval { rtt_ms, retransmitted, lost } = path;
        format!("  rtt {rtt_ms:.3} ms  retransmitted {retransmitted}  lost {lost}")
    });
    let (size, rate) = (show_size(row.bytes), show_rate(row.bits_per_second));
    tell!("{:6.2}-{:6.2} s  {size:>10}  {rate:>12}{path}", row.start, row.end);
}

impl Report {
    /// For a person.
    pub fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{} {}: {} in {:.2} s, {}",
            self.protocol,
            self.role,
            show_size(self.bytes),
            self.seconds,
            show_rate(self.bits_per_second)
        )?;
        let cpu = self.cpu.user_s + self.cpu.system_s;
        if self.bytes > 0 {
            let mut line = format!("  cpu {cpu:.2} s ({:.2} s/GB)", cpu * 1e9 / self.bytes as f64);
            if let Some(rtt) = &self.rtt_ms {
                line += &format!(", rtt {:.3} ms", rtt.mean);
            }
            if let Some(Packets { retransmitted, sent, .. }) = &self.packets {
                line += &format!(", retransmitted {retransmitted} of {sent} packets");
            }
            writeln!(out, "{line}")?;
        }
        let dropped = self.packets.as_ref().map_or(0, |packets| packets.kernel_dropped);
        if dropped > 0 {
            writeln!(
                out,
                "  datagrams that the {}'s kernel dropped, its receive buffer being full: {dropped}; raise it \
                 there with: sysctl -w net.core.rmem_max={SOCKET_BUFFER} (if it is raised already, the \
                 processors there are too busy)",
                self.role
            )?;
        }
        match &self.peer {
            Some(peer) => peer.show(out),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(start: f64, end: f64, bytes: u64) -> Interval {
        let path = PathInterval { rtt_ms: start, retransmitted: 2, lost: 3 };
        Interval::new(start, end, bytes, Some(path))
    }

    #[test]
    fn a_sliver_belongs_to_the_row_before_it() {
        let mut watched = Watched::default();
        assert!(watched.append(row(0.0, 1.0, 100), 0.0));
        assert!(watched.append(row(1.0, 2.0, 100), 0.0));
        assert!(!watched.append(row(2.0, 2.5, 25), 0.75));
        let [_, last] = watched.intervals.as_slice() else { panic!("{:?}", watched.intervals) };
        assert_eq!((last.start, last.end, last.bytes), (1.0, 2.5, 125));
        assert_eq!(last.bits_per_second, 125.0 * 8.0 / 1.5);
        let path = last.path.expect("it was given");
        assert_eq!((path.rtt_ms, path.retransmitted, path.lost), (1.0, 4, 6));
    }

    #[test]
    fn what_lasts_or_is_alone_is_a_row() {
        let mut watched = Watched::default();
        assert!(watched.append(row(0.0, 0.5, 7), 0.75), "the only one");
        assert!(watched.append(row(0.5, 1.25, 8), 0.75), "long enough");
        let bytes: Vec<u64> = watched.intervals.iter().map(|row| row.bytes).collect();
        assert_eq!(bytes, [7, 8]);
    }

    #[test]
    fn what_a_kernel_drops_is_counted_once_a_port_and_beyond_the_wrap_of_its_count() {
        let at = |a, b| {
            [("127.0.0.1:1", a), ("127.0.0.1:2", b)]
                .map(|(port, count)| (port.parse().expect("an address"), count))
                .into()
        };
        let mut watched = Watched { dropped: at(u32::MAX, 5), ..Watched::default() };
        assert_eq!(watched.newly_dropped(at(1, 5)), 2);
        assert_eq!(watched.newly_dropped(at(1, 9)), 4);
    }
}
