//! The course of a test.
//!
//! The connecting side opens a control connection and says what to measure, then the data
//! connections, each of which begins with a fixed header. The sender tells over the control
//! connection how much it has sent; the receiver, when it has all of it; and the listening side
//! ends with its report.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::channel::{Acceptor, Channel, Connector, receive_line, send_line};
use super::report::{MOVED, Meter, Report, STOP};
use super::{PerfArgs, Protocol};
use crate::{exit, output};

/// Bytes of one write and one read.
const BLOCK: usize = 1 << 20;
const MAGIC: &str = "farhaul perf 1";
/// The longest test, a year: what a peer asks for must stay within a clock's range.
const MAX_SECONDS: f64 = 365.0 * 86_400.0;

/// What to measure: the first line of a control connection.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    magic: String,
    token: String,
    streams: u32,
    /// The listening side sends.
    reverse: bool,
    seconds: f64,
    bytes: Option<u64>,
}

/// The listening side is ready for the data connections.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    ready: bool,
}

/// The sender has sent so much, or the receiver has received it.
#[derive(Debug, Serialize, Deserialize)]
struct Total {
    bytes: Vec<u64>,
}

/// The first bytes of a data connection.
const HEADER: usize = 64;

fn header(token: &str, index: u32) -> [u8; HEADER] {
    let mut out = [b' '; HEADER];
    let text = format!("farhaul perf data {token} {index}");
    let len = text.len().min(HEADER);
    out[..len].copy_from_slice(&text.as_bytes()[..len]);
    out
}

/// The connecting side.
pub fn connect(args: &PerfArgs, peer: SocketAddr) -> Result<()> {
    let connector = Connector::new(args, peer);
    if args.sink || args.source {
        return raw(args, connector.connect()?);
    }
    let mut control = connector.connect()?;
    let request = Request {
        magic: MAGIC.into(),
        token: format!("{:016x}", token()),
        streams: args.parallel,
        reverse: args.reverse,
        seconds: args.time.as_secs_f64(),
        bytes: args.bytes,
    };
    send_line(&mut control, &request)?;
    let ready: Ready = receive_line(&mut control)?;
    if !ready.ready {
        bail!("the listening side is not ready");
    }
    let mut data = Vec::new();
    for index in 0..args.parallel {
        let mut channel = connector.connect()?;
        channel.write_all(&header(&request.token, index))?;
        data.push(channel);
    }
    let mut report = measure(args, &mut control, data, &request, !args.reverse)?;
    let result: Report = receive_line(&mut control)?;
    report.peer = Some(Box::new(result));
    control.close().ok();
    output::emit(args.json, &report, Report::print)
}

/// The listening side.
pub fn serve(args: &PerfArgs, addr: SocketAddr) -> Result<()> {
    let acceptor = Acceptor::bind(args, addr)?;
    eprintln!("farhaul: listening at {}", acceptor.local_addr()?);
    loop {
        let channel = acceptor.accept()?;
        let result = if args.sink || args.source {
            raw(args, channel)
        } else {
            serve_test(args, &acceptor, channel)
        };
        match result {
            Err(error) if !args.once => eprintln!("farhaul: {}", exit::describe(&error)),
            result if args.once => return result,
            _ => {}
        }
    }
}

fn serve_test(args: &PerfArgs, acceptor: &Acceptor, mut control: Channel) -> Result<()> {
    let request: Request = receive_line(&mut control)?;
    let sane =
        (1..=256).contains(&request.streams) && (0.0..=MAX_SECONDS).contains(&request.seconds);
    if request.magic != MAGIC || !sane {
        bail!("the peer does not speak the protocol of this version of farhaul perf");
    }
    send_line(&mut control, &Ready { ready: true })?;
    let mut data: Vec<Option<Channel>> = (0..request.streams).map(|_| None).collect();
    while data.iter().any(Option::is_none) {
        let mut channel = acceptor.accept()?;
        let mut got = [0; HEADER];
        channel.read_exact(&mut got).context("a data connection ended too early")?;
        let index = (0..request.streams).find(|&i| header(&request.token, i) == got);
        let index = index.ok_or_else(|| anyhow!("a connection came that belongs to no test"))?;
        data[index as usize] = Some(channel);
    }
    let data = data.into_iter().flatten().collect();
    let report = measure(args, &mut control, data, &request, request.reverse)?;
    send_line(&mut control, &report)?;
    control.close().ok();
    output::emit(args.json, &report, Report::print)
}

/// Moves the data and measures.
fn measure(
    args: &PerfArgs,
    control: &mut Channel,
    data: Vec<Channel>,
    request: &Request,
    sends: bool,
) -> Result<Report> {
    let meter = Meter::start(data.clone(), args.interval, !args.json);
    let deadline = Instant::now() + Duration::try_from_secs_f64(request.seconds)?;
    let each = request.bytes.map(|n| n.div_ceil(u64::from(request.streams)));
    if sends {
        let threads: Vec<_> = data.iter().cloned().map(|c| send(c, each, deadline)).collect();
        let bytes = join(threads)?;
        send_line(control, &Total { bytes })?;
        let _: Total = receive_line(control)?;
    } else {
        let threads: Vec<_> = data.iter().cloned().map(receive).collect();
        let sent: Total = receive_line(control)?;
        let total = sent.bytes.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
        // The last bytes may still be on their way when the sender's word arrives.
        let patience = Instant::now() + Duration::from_secs(60);
        while MOVED.load(Ordering::Relaxed) < total && Instant::now() < patience {
            std::thread::sleep(Duration::from_micros(200));
        }
        let received = MOVED.load(Ordering::Relaxed);
        if received != total {
            bail!("the peer sent {total} bytes, {received} have come");
        }
        send_line(control, &sent)?;
        let mut report = finish(args, meter, sends, data.len());
        STOP.store(true, Ordering::Relaxed);
        data.iter().for_each(Channel::abort);
        join(threads)?;
        report.streams = request.streams;
        return Ok(report);
    }
    let report = finish(args, meter, sends, data.len());
    for channel in data {
        channel.abort();
    }
    Ok(report)
}

fn finish(args: &PerfArgs, meter: Meter, sends: bool, streams: usize) -> Report {
    let udt = args.protocol == Protocol::Udt;
    Report {
        role: if sends { "sender" } else { "receiver" }.into(),
        protocol: if udt { "udt" } else { "tcp" }.into(),
        cc: if udt { args.transport.cc.to_string() } else { "kernel".into() },
        mss: args.transport.mss,
        streams: streams as u32,
        ..meter.finish()
    }
}

/// Without the handshake of a test: one connection, in one direction, to its end.
fn raw(args: &PerfArgs, channel: Channel) -> Result<()> {
    let meter = Meter::start(vec![channel.clone()], args.interval, !args.json);
    if args.source {
        let deadline = Instant::now() + args.time;
        join(vec![send(channel.clone(), args.bytes, deadline)])?;
        channel.close()?;
    } else {
        join(vec![receive(channel)])?;
    }
    let report = finish(args, meter, args.source, 1);
    output::emit(args.json, &report, Report::print)
}

fn send(mut channel: Channel, limit: Option<u64>, deadline: Instant) -> JoinHandle<Result<u64>> {
    std::thread::spawn(move || {
        let block: Vec<u8> = (0..BLOCK).map(|i| (i * 31) as u8).collect();
        let mut sent = 0;
        while limit.map_or_else(|| Instant::now() < deadline, |limit| sent < limit) {
            let want = limit.map_or(BLOCK as u64, |limit| (limit - sent).min(BLOCK as u64));
            let count = channel.write(&block[..want as usize])?;
            sent += count as u64;
            MOVED.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(sent)
    })
}

fn receive(mut channel: Channel) -> JoinHandle<Result<u64>> {
    std::thread::spawn(move || {
        let mut block = vec![0; BLOCK];
        let mut received = 0;
        loop {
            match channel.read(&mut block) {
                Ok(0) => return Ok(received),
                Ok(count) => {
                    received += count as u64;
                    MOVED.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(_) if STOP.load(Ordering::Relaxed) => return Ok(received),
                Err(error) => return Err(error.into()),
            }
        }
    })
}

fn join(threads: Vec<JoinHandle<Result<u64>>>) -> Result<Vec<u64>> {
    threads
        .into_iter()
        .map(|thread| thread.join().map_err(|_| anyhow!("a thread of the test panicked"))?)
        .collect()
}

/// Tells the data connections of one test from those of another.
fn token() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
