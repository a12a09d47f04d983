//! `--trace`: the numbers of the laws of a test, written while it runs.
//!
//! A thread of its own asks each connection for its statistics, as the performance monitor does:
//! that takes the lock of the connection's port for as long as it takes to copy some numbers, a
//! hundred times a second.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use farhaul::{Counters, Stats};
use serde::Serialize;

use super::channel::Channel;
use crate::exit::Usage;
use crate::qlog::{
    Connection, Header, Lost, NAMES, Record, Role, Sample, StateChange, Trigger, Vantage, Writer,
};

/// Time from one sample to the next.
const EVERY: Duration = Duration::from_millis(10);

/// The file of a trace, opened before the test begins.
pub struct TraceFile {
    path: PathBuf,
    vantage: Vantage,
    /// Until a test takes it.
    file: Mutex<Option<File>>,
    written: Mutex<io::Result<()>>,
}

/// What is told of a test beside its numbers.
pub struct About {
    pub role: Role,
    pub cc: String,
    pub mss: u32,
}

/// A test that is traced.
pub struct Tracing<'a> {
    of: &'a TraceFile,
    stop: Sender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl TraceFile {
    /// Opens the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path, vantage: Vantage) -> Result<Self> {
        let file = File::create(path)
            .map_err(|error| Usage(format!("cannot write {}: {error}", path.display())))?;
        let (file, written) = (Mutex::new(Some(file)), Mutex::new(Ok(())));
        Ok(TraceFile { path: path.to_owned(), vantage, file, written })
    }

    /// Begins to write about `channels`, of which the ones that do not tell anything are left out.
    /// None if there has been a test already.
    pub fn start(&self, about: About, channels: &[Channel]) -> Option<Tracing<'_>> {
        let file = lock(&self.file).take()?;
        let out = Writer::new(BufWriter::with_capacity(1 << 16, file));
        let streams = channels.iter().cloned().enumerate().map(Stream::new).collect();
        let tracer = Tracer { out, started: Instant::now(), about, streams };
        let header = self.header(channels);
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || tracer.run(&header, &stopped));
        Some(Tracing { of: self, stop, thread })
    }

    fn header(&self, channels: &[Channel]) -> Header {
        let peer =
            channels.first().map_or(String::new(), |first| format!(" with {}", first.peer()));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = (now.as_secs_f64() * 1e3).round();
        Header::new(format!("farhaul perf{peer}"), self.vantage, now)
    }

    /// Says whether everything was written.
    ///
    /// # Errors
    /// If something was not.
    pub fn conclude(&self) -> Result<()> {
        let written = std::mem::replace(&mut *lock(&self.written), Ok(()));
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tracing<'_> {
    /// Ends with a last sample.
    pub fn finish(self) {
        drop(self.stop);
        let panicked = || Err(io::Error::other("the thread that writes panicked"));
        *lock(&self.of.written) = self.thread.join().unwrap_or_else(|_| panicked());
    }
}

struct Tracer {
    out: Writer<BufWriter<File>>,
    started: Instant,
    about: About,
    streams: Vec<Stream>,
}

/// A connection, and what was told of it last.
struct Stream {
    channel: Channel,
    group_id: String,
    before: Option<Stats>,
}

impl Stream {
    fn new((index, channel): (usize, Channel)) -> Self {
        Stream { channel, group_id: index.to_string(), before: None }
    }
}

impl Tracer {
    fn run(mut self, header: &Header, stopped: &Receiver<()>) -> io::Result<()> {
        self.out.write(header)?;
        let mut due = self.started;
        loop {
            self.sample()?;
            // What was missed is missed: samples that come at once tell nothing.
            due = (due + EVERY).max(Instant::now());
            let left = due - Instant::now();
            if stopped.recv_timeout(left) == Err(RecvTimeoutError::Disconnected) {
                self.sample()?;
                return self.out.flush();
            }
        }
    }

    fn sample(&mut self) -> io::Result<()> {
        let time = rounded(self.started.elapsed().as_secs_f64() * 1e3);
        for stream in &mut self.streams {
            // It may be over already.
            let Some(stats) = stream.channel.stats() else { continue };
            let mut log = Log { out: &mut self.out, time, group_id: &stream.group_id };
            let before = stream.before.replace(stats);
            match &before {
                None => log.write(NAMES.connection, connection(&self.about, &stream.channel))?,
                Some(before) => log.changes(before, &stats)?,
            }
            log.write(NAMES.sample, sample_of(&stats, &before.unwrap_or(stats)))?;
        }
        Ok(())
    }
}

/// Where the events of one connection at one time go to.
struct Log<'a> {
    out: &'a mut Writer<BufWriter<File>>,
    time: f64,
    group_id: &'a str,
}

impl Log<'_> {
    fn write<T: Serialize>(&mut self, name: &str, data: T) -> io::Result<()> {
        let (name, group_id) = (Cow::Borrowed(name), Cow::Borrowed(self.group_id));
        self.out.write(&Record { time: self.time, name, group_id, data })
    }

    /// The events between two samples.
    fn changes(&mut self, before: &Stats, now: &Stats) -> io::Result<()> {
        let Counters { send_lost, receive_lost, timeouts, .. } =
            now.total.counters - before.total.counters;
        if send_lost > 0 {
            let trigger = if timeouts > 0 { Trigger::Timeout } else { Trigger::Report };
            self.write(NAMES.lost, Lost { packets: send_lost, trigger })?;
        }
        if receive_lost > 0 {
            self.write(NAMES.lost, Lost { packets: receive_lost, trigger: Trigger::Gap })?;
        }
        let (law, old, new) = (now.instant.law, before.instant.state, now.instant.state);
        if (before.instant.law, old) != (law, new) {
            self.write(NAMES.state, StateChange { law, old, new })?;
        }
        Ok(())
    }
}

fn connection<'a>(about: &'a About, channel: &Channel) -> Connection<'a> {
    let About { role, cc, mss } = about;
    Connection { role: *role, cc: cc.into(), peer: channel.peer().into(), mss: *mss }
}

/// What the monitor told now and before as a sample.
fn sample_of(now: &Stats, before: &Stats) -> Sample<'static> {
    let counters = now.total.counters - before.total.counters;
    let seconds = (now.total.duration - before.total.duration).as_secs_f64();
    let rate = |bits: f64| if seconds > 0.0 { (bits / seconds).round() } else { 0.0 };
    // All packets but the last ones of writes are of one size.
    let all = now.total.counters;
    let packet_bits = all.bytes_sent as f64 * 8.0 / (all.packets_sent.max(1) as f64);
    let instant = &now.instant;
    let period = instant.period.as_secs_f64();
    let milliseconds = |time: Duration| rounded(time.as_secs_f64() * 1e3);
    let known = |rate: f64| (rate > 0.0).then_some(rate.round());
    Sample {
        law: instant.law.into(),
        state: instant.state.into(),
        interval_ms: rounded(seconds * 1e3),
        window: instant.congestion_window,
        flow_window: instant.flow_window,
        in_flight: instant.in_flight,
        period_us: (period > 0.0).then_some(rounded(period * 1e6)),
        paced_bps: if period > 0.0 { known(packet_bits / period) } else { None },
        // Before the first measurement it is what the protocol begins with.
        rtt_ms: instant.rtt_min.map(|_| milliseconds(instant.rtt)),
        min_rtt_ms: instant.rtt_min.map(milliseconds),
        sent_bps: rate(counters.bytes_sent as f64 * 8.0),
        delivered_bps: rate(counters.packets_acked as f64 * packet_bits),
        received_bps: rate(counters.bytes_received as f64 * 8.0),
        capacity_bps: known(instant.capacity),
        sent: counters.packets_sent,
        received: counters.packets_received,
        lost: counters.send_lost,
        retransmitted: counters.packets_retransmitted,
        missing: counters.receive_lost,
        timeouts: counters.timeouts,
    }
}

/// To the millionth: what follows are not digits that were measured.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use farhaul::{Snapshot, Span};

    fn stats(millis: u64, packets: u64, instant: Snapshot) -> Stats {
        let counters = Counters {
            packets_sent: packets,
            bytes_sent: packets * 1000,
            packets_acked: packets / 2,
            send_lost: packets / 10,
            ..Counters::default()
        };
        let duration = Duration::from_millis(millis);
        Stats { total: Span { duration, counters, ..Span::default() }, instant, ..Stats::default() }
    }

    #[test]
    fn a_sample_tells_the_interval_and_the_moment() {
        let instant = Snapshot {
            law: "udt",
            state: "avoidance",
            rtt: Duration::from_millis(20),
            rtt_min: Some(Duration::from_millis(18)),
            period: Duration::from_micros(80),
            congestion_window: 7,
            ..Snapshot::default()
        };
        let (before, now) = (stats(100, 100, instant), stats(110, 300, instant));
        let sample = sample_of(&now, &before);
        assert_eq!((sample.law.as_ref(), sample.state.as_ref()), ("udt", "avoidance"));
        assert_eq!((sample.interval_ms, sample.sent, sample.lost), (10.0, 200, 20));
        assert_eq!((sample.sent_bps, sample.delivered_bps), (160e6, 80e6));
        assert_eq!((sample.period_us, sample.paced_bps), (Some(80.0), Some(100e6)));
        assert_eq!((sample.rtt_ms, sample.min_rtt_ms), (Some(20.0), Some(18.0)));
        assert_eq!((sample.window, sample.capacity_bps), (7, None));
        assert!(sample.is_sane());
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let nothing = Stats::default();
        let sample = sample_of(&nothing, &nothing);
        assert_eq!(sample, Sample { ..Sample::default() });
        let text = serde_json::to_string(&sample).unwrap();
        assert!(!text.contains("rtt") && !text.contains("period"), "{text}");
    }
}
