//! Moving the data of a test, and measuring that.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::channel::Channel;
use super::protocol::{Request, Total, receive_line, send_line};
use super::report::{Meter, Report};
use super::running::Running;
use super::tracer::{About, TraceFile};
use super::{PerfArgs, Protocol};
use crate::output;
use crate::qlog::Role;

/// Bytes of one write and one read.
const BLOCK: usize = 1 << 20;
/// How long what was sent may take to come after the sender's word that it has sent it.
const LAST_BYTES: Duration = Duration::from_secs(60);

/// A thread that moves the data of one connection. How many bytes it has moved.
type Mover = JoinHandle<Result<u64>>;
/// Bytes that all connections of a test have moved.
type Moved = Arc<AtomicU64>;

/// How tests are measured.
pub struct Measurement<'a> {
    pub args: &'a PerfArgs,
    pub running: &'a Running,
    /// Where to write what the laws do.
    pub trace: Option<&'a TraceFile>,
}

impl Measurement<'_> {
    /// Moves the data of a test, and measures.
    pub fn test(
        &self,
        control: &mut Channel,
        data: &[Channel],
        request: &Request,
        sends: bool,
    ) -> Result<Report> {
        let deadline = Instant::now() + Duration::try_from_secs_f64(request.seconds)?;
        self.measured(data, sends, |moved| {
            let channels = data.iter().cloned().zip(0..);
            if sends {
                let start = |(channel, i)| send(channel, request.share(i), deadline, moved);
                let bytes = join(channels.map(start).collect())?;
                send_line(control, &Total { bytes })?;
                let _: Total = receive_line(control)?;
            } else {
                let movers: Vec<_> = channels.map(|(channel, _)| receive(channel, moved)).collect();
                let sent: Total = receive_line(control)?;
                wait_for_last_bytes(&sent, moved, movers, self.running)?;
                send_line(control, &sent)?;
            }
            Ok(())
        })
    }

    /// Without the handshake of a test: one connection, in one direction, to its end.
    pub fn raw(&self, channel: Channel) -> Result<Report> {
        let Measurement { args, running, .. } = self;
        running.add(&channel)?;
        self.measured(std::slice::from_ref(&channel), args.source, |moved| {
            let channel = channel.clone();
            if args.source {
                let deadline = Instant::now() + args.time;
                join(vec![send(channel.clone(), args.bytes, deadline, moved)])?;
                channel.close()?;
            } else {
                join(vec![receive(channel, moved)])?;
            }
            running.check()
        })
    }

    /// Measures what `course` moves over `data`. An interruption does not take away what was
    /// measured before it.
    fn measured(
        &self,
        data: &[Channel],
        sends: bool,
        course: impl FnOnce(&Moved) -> Result<()>,
    ) -> Result<Report> {
        let args = self.args;
        let moved = Moved::default();
        let about = About {
            role: if sends { Role::Sender } else { Role::Receiver },
            cc: args.transport.cc.to_string(),
            mss: args.transport.mss,
        };
        let tracing = self.trace.and_then(|trace| trace.start(about, data));
        // Asked for now: it is a property of the socket, and all have the same.
        let law = match args.protocol {
            Protocol::Udt => Some(args.transport.cc.to_string()),
            Protocol::Tcp => data.first().and_then(Channel::tcp_congestion_control),
        };
        let meter = Meter::start(data.to_vec(), Arc::clone(&moved), args.interval, !args.json);
        let done = course(&moved);
        let udt = args.protocol == Protocol::Udt;
        let report = Report {
            role: if sends { "sender" } else { "receiver" }.into(),
            protocol: if udt { "udt" } else { "tcp" }.into(),
            cc: law.filter(|_| sends),
            mss: args.transport.mss,
            streams: data.len() as u32,
            ..meter.finish()
        };
        if let Some(tracing) = tracing {
            tracing.finish();
        }
        // Threads that still read or write end by this.
        data.iter().for_each(Channel::abort);
        if done.is_err() && self.running.is_interrupted() {
            output::emit(args.json, &report, Report::show)?;
        }
        done.map(|()| report)
    }
}

/// The last bytes may still be on their way when the sender's word arrives.
fn wait_for_last_bytes(
    sent: &Total,
    moved: &Moved,
    movers: Vec<Mover>,
    running: &Running,
) -> Result<()> {
    let total = sent.bytes.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
    let patience = Instant::now() + LAST_BYTES;
    loop {
        // Looked at in this order: what has ended moves nothing more.
        let ended = movers.iter().all(Mover::is_finished);
        let received = moved.load(Ordering::Relaxed);
        if received == total {
            return Ok(());
        }
        running.check()?;
        if ended || received > total || Instant::now() >= patience {
            let missing = format!("the peer sent {total} bytes, {received} have come");
            // A connection that has failed tells why.
            return match ended.then(|| join(movers)) {
                Some(Err(error)) => Err(error.context(missing)),
                _ => Err(anyhow!(missing)),
            };
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn send(mut channel: Channel, limit: Option<u64>, deadline: Instant, moved: &Moved) -> Mover {
    let moved = Arc::clone(moved);
    std::thread::spawn(move || {
        let block: Vec<u8> = (0..BLOCK).map(|i| (i * 31) as u8).collect();
        let mut sent = 0;
        while limit.map_or_else(|| Instant::now() < deadline, |limit| sent < limit) {
            let want = limit.map_or(BLOCK as u64, |limit| (limit - sent).min(BLOCK as u64));
            let count = channel.write(&block[..want as usize])?;
            sent += count as u64;
            moved.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(sent)
    })
}

fn receive(mut channel: Channel, moved: &Moved) -> Mover {
    let moved = Arc::clone(moved);
    std::thread::spawn(move || {
        let mut block = vec![0; BLOCK];
        let mut received = 0;
        loop {
            let count = channel.read(&mut block)? as u64;
            if count == 0 {
                return Ok(received);
            }
            received += count;
            moved.fetch_add(count, Ordering::Relaxed);
        }
    })
}

fn join(movers: Vec<Mover>) -> Result<Vec<u64>> {
    movers
        .into_iter()
        .map(|mover| mover.join().map_err(|_| anyhow!("a thread of the test panicked"))?)
        .collect()
}
