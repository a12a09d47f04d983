//! The process in which TCP is measured.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use farhaul_link::LinkConfig;
use farhaul_wan::tun::{Namespace, TunPath, TunPathConfig, isolate};
use socket2::{Domain, Socket, Type};

use super::{Message, Outcome};
use crate::demo::series::{SAMPLE_EVERY_S, Sample};
use crate::units;

/// Limits for TCP's buffers, bytes: the smallest and first size are Linux's defaults, the largest is
/// raised to the bandwidth-delay product of 5 Gb/s and 100 ms.
const BUFFERS: [&str; 2] =
    ["net.ipv4.tcp_rmem=4096 131072 67108864", "net.ipv4.tcp_wmem=4096 16384 67108864"];
/// Written and read at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// How soon a thread that waits for the network sees that it is to end.
const ATTENTION: Duration = Duration::from_millis(50);

/// What the process that measures is told.
#[derive(Args, Clone, Debug)]
pub struct SideArgs {
    #[arg(long, hide = true)]
    tcp_side_bytes: Option<u64>,
    #[arg(long, hide = true, value_parser = units::time, default_value = "30s")]
    tcp_side_limit: Duration,
    #[arg(long, hide = true)]
    tcp_side_cc: Option<String>,
}

impl SideArgs {
    /// Whether this process is the one that measures.
    pub fn is_asked(&self) -> bool {
        self.tcp_side_bytes.is_some()
    }
}

/// Measures, and reports on standard output.
///
/// # Errors
/// If something is not permitted here; the text says what.
pub fn run(args: &SideArgs, links: [LinkConfig; 2], seed: u64) -> Result<()> {
    let bytes = args.tcp_side_bytes.context("nothing to send")?;
    isolate()?;
    let [forward, backward] = links;
    let path = TunPath::open(TunPathConfig { forward, backward, seed, ..Default::default() })?;
    let buffers_raised = [path.near(), path.far()].into_iter().all(raise_buffers);
    let (stream, listener) = connect(&path, args)?;
    let cc = used_congestion_control(&stream);
    let transfer = Transfer::new(bytes);
    let started = Instant::now();
    let (ended, received) = thread::scope(|scope| {
        let receiver = scope.spawn(|| transfer.receive(&listener));
        let sender = scope.spawn(|| transfer.send(&stream));
        // A receiver that fails closes the connection, and so ends the sender.
        let watched = transfer.watch(&path, started, args.tcp_side_limit, || sender.is_finished());
        transfer.stop.store(true, Ordering::Relaxed);
        let (limit, received) = (Instant::now(), transfer.received.load(Ordering::Relaxed));
        let failed = || io::Error::other("a thread panicked");
        receiver.join().unwrap_or_else(|_| Err(failed()))?;
        let confirmed = sender.join().unwrap_or_else(|_| Err(failed()))?;
        watched?;
        anyhow::Ok((confirmed.ok_or(limit), received))
    })?;
    let (packets_sent, retransmitted) = path.near().run(segments)?;
    say(&Message::Outcome(Outcome {
        cc,
        bytes: if ended.is_ok() { bytes } else { received },
        seconds: ended.unwrap_or_else(|limit| limit).duration_since(started).as_secs_f64(),
        complete: ended.is_ok(),
        packets_sent,
        retransmitted,
        overflowed: path.near().run(overflowed)?,
        buffers_raised,
    }))
}

/// Lets TCP grow its buffers to what a long, fat path needs. False if the kernel does not let us.
fn raise_buffers(namespace: &Namespace) -> bool {
    let set = |text: &str| {
        text.parse().is_ok_and(|parameter| namespace.set_parameter(&parameter).is_ok())
    };
    BUFFERS.into_iter().all(set)
}

/// A connection over the path, and the listener that still has to accept it.
fn connect(path: &TunPath, args: &SideArgs) -> Result<(TcpStream, TcpListener)> {
    let address: SocketAddr = (path.far_addr(), 5001).into();
    let listener = path.far().run(|| TcpListener::bind(address))??;
    listener.set_nonblocking(true)?;
    let socket = path.near().run(|| Socket::new(Domain::IPV4, Type::STREAM, None))??;
    if let Some(cc) = &args.tcp_side_cc {
        socket
            .set_tcp_congestion(cc.as_bytes())
            .with_context(|| format!("the kernel has no congestion control '{cc}'"))?;
    }
    socket
        .connect_timeout(&address.into(), args.tcp_side_limit)
        .context("no TCP connection over the path")?;
    let stream = TcpStream::from(socket);
    stream.set_write_timeout(Some(ATTENTION))?;
    stream.set_read_timeout(Some(ATTENTION))?;
    Ok((stream, listener))
}

fn used_congestion_control(stream: &TcpStream) -> String {
    let name = socket2::SockRef::from(stream).tcp_congestion().unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
}

/// What the threads of a transfer share.
struct Transfer {
    bytes: u64,
    received: AtomicU64,
    stop: AtomicBool,
}

impl Transfer {
    fn new(bytes: u64) -> Self {
        Transfer { bytes, received: AtomicU64::new(0), stop: AtomicBool::new(false) }
    }

    /// Takes the data, and says when all of it has come.
    fn receive(&self, listener: &TcpListener) -> io::Result<()> {
        let Some(mut stream) = self.until_stop(|| Ok(listener.accept()?.0))? else { return Ok(()) };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(ATTENTION))?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut left = self.bytes;
        while left > 0 {
            match self.until_stop(|| stream.read(&mut buffer))? {
                None => return Ok(()),
                Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Some(length) => {
                    left = left.saturating_sub(length as u64);
                    self.received.fetch_add(length as u64, Ordering::Relaxed);
                }
            }
        }
        stream.write_all(&[1])
    }

    /// Sends the data. When the receiver said that it has come; `None` if told to stop before.
    fn send(&self, mut stream: &TcpStream) -> io::Result<Option<Instant>> {
        let buffer = vec![0x5a; CHUNK_BYTES];
        let mut left = self.bytes;
        while left > 0 {
            let length = left.min(CHUNK_BYTES as u64) as usize;
            match self.until_stop(|| stream.write(&buffer[..length]))? {
                None => return Ok(None),
                Some(written) => left -= written as u64,
            }
        }
        let confirmed = self.until_stop(|| stream.read_exact(&mut [0]))?;
        Ok(confirmed.map(|()| Instant::now()))
    }

    /// Reports every now and then until the limit, or until `ended`.
    fn watch(
        &self,
        path: &TunPath,
        started: Instant,
        limit: Duration,
        ended: impl Fn() -> bool,
    ) -> Result<()> {
        let every = Duration::from_secs_f64(SAMPLE_EVERY_S);
        for number in 0.. {
            let due = every * number;
            while started.elapsed() < due && !ended() {
                thread::sleep(Duration::from_millis(5));
            }
            let elapsed = started.elapsed();
            let bytes = path.stats().forward.link.passed_bytes;
            let path = Sample { seconds: elapsed.as_secs_f64(), bytes };
            say(&Message::Sample { path, received: self.received.load(Ordering::Relaxed) })?;
            if ended() || elapsed >= limit {
                break;
            }
        }
        Ok(())
    }

    /// Tries an operation whose waiting ends now and then, until it is done or `stop` is set.
    fn until_stop<T>(&self, mut act: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
        let is_told = || self.stop.load(Ordering::Relaxed);
        while !is_told() {
            match act() {
                // Whatever it is: the other side, told the same, may have closed the connection.
                Err(_) if is_told() => break,
                // An operation that does not wait by itself would spin.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return done.map(Some),
            }
        }
        Ok(None)
    }
}

/// TCP segments sent by this namespace, and how many of them again.
fn segments() -> (u64, u64) {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
    (counter(&text, "OutSegs"), counter(&text, "RetransSegs"))
}

/// A counter of TCP in the format of /proc/net/snmp: a line of names, then a line of numbers.
fn counter(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let names = lines.next().unwrap_or_default().split_whitespace();
    let numbers = lines.next().unwrap_or_default().split_whitespace();
    let found = names.zip(numbers).find(|(known, _)| *known == name);
    found.and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

/// Packets that this namespace's devices have dropped before the path could take them.
fn overflowed() -> u64 {
    const DROPPED_WHEN_SENT: usize = 11;
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let rows = text.lines().filter_map(|line| line.split_once(':'));
    rows.filter_map(|(_, row)| row.split_whitespace().nth(DROPPED_WHEN_SENT)?.parse::<u64>().ok())
        .sum()
}

/// One line of JSON. An error if nobody listens any more, which ends this process.
fn say(message: &Message) -> Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, message)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text = "Ip: Forwarding OutSegs\nIp: 1 2\n\
                    Tcp: RtoAlgorithm MaxConn OutSegs RetransSegs\nTcp: 1 -1 120 7\n";
        assert_eq!((counter(text, "OutSegs"), counter(text, "RetransSegs")), (120, 7));
        assert_eq!((counter(text, "MaxConn"), counter(text, "None"), counter("", "x")), (0, 0, 0));
    }
}
