//! `farhaul pipe`: standard input and output over one UDT v4 connection.

use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use farhaul::{CloseReason, Connection, Endpoint, MessageOptions, Mode};
use serde::Serialize;

use crate::transport::{TransportArgs, report_kernel_buffers, resolve};
use crate::{output, units};

/// Bytes of one read from standard input.
const BLOCK: usize = 256 << 10;

/// Connect standard input and output to a peer over UDT.
///
/// The bytes are all there is: any UDT v4 program can be the peer. UDT cannot close one direction
/// alone, so the connecting side closes when its standard input ends and everything is
/// acknowledged; the listening side goes on until the peer closes.
#[derive(Args, Debug)]
pub struct PipeArgs {
    /// The peer's address
    #[arg(value_name = "HOST:PORT", required_unless_present = "listen")]
    peer: Option<String>,
    /// Wait for one connection at this address
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["peer", "rendezvous"])]
    listen: Option<String>,
    /// Meet a peer that connects here too: neither listens
    #[arg(long, requires = "bind")]
    rendezvous: bool,
    /// Local address
    #[arg(long, value_name = "ADDR")]
    bind: Option<SocketAddr>,
    /// Carry messages, a line each, instead of a stream
    #[arg(long)]
    message: bool,
    /// Deliver messages in the order they were sent
    #[arg(long, requires = "message")]
    ordered: bool,
    /// Give a message up when it could not be delivered in this time
    #[arg(long, value_name = "TIME", value_parser = units::time, requires = "message")]
    ttl: Option<Duration>,
    /// Print one JSON document about the transfer to standard error at the end (standard output
    /// carries the data)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    transport: TransportArgs,
}

#[derive(Debug, Default, Serialize)]
struct PipeReport {
    peer: String,
    sent_bytes: u64,
    received_bytes: u64,
    seconds: f64,
    retransmitted: u64,
    lost: u64,
    rtt_ms: f64,
}

/// Runs the command.
pub fn run(args: &PipeArgs) -> Result<()> {
    let connection = open(args)?;
    let listening = args.listen.is_some();
    let started = std::time::Instant::now();
    let input = connection.clone();
    let how = args.message.then_some(MessageOptions { ttl: args.ttl, in_order: args.ordered });
    // Whether or not anybody closes standard input, the program ends when the peer has closed: so
    // this thread is not waited for then.
    let sender = thread::spawn(move || {
        let result = match how {
            Some(how) => send_messages(&input, how),
            None => send_stream(&input),
        };
        if listening {
            return result.map(|sent| (sent, None));
        }
        // The other half reads until this is done.
        let stats = result.and_then(|sent| {
            input.wait_acknowledged()?;
            Ok((sent, input.stats(false).ok()))
        });
        input.shutdown();
        stats
    });
    let received =
        if args.message { print_messages(&connection) } else { print_stream(&connection) };
    let stats = connection.stats(false).ok();
    let peer_closed = connection.close_reason() == Some(CloseReason::Peer);
    let mut report = PipeReport {
        peer: connection.peer_addr().to_string(),
        seconds: started.elapsed().as_secs_f64(),
        ..PipeReport::default()
    };
    if !listening && !(peer_closed && !sender.is_finished()) {
        let sent = sender.join().map_err(|_| anyhow::anyhow!("the sending thread panicked"))?;
        report.sent_bytes = sent.context("sending failed")?.0;
    } else if sender.is_finished()
        && let Ok(Ok((sent, _))) = sender.join()
    {
        report.sent_bytes = sent;
    }
    report.received_bytes = received.context("receiving failed")?;
    if let Some(stats) = stats {
        report.retransmitted = stats.total.counters.packets_retransmitted;
        report.lost = stats.total.counters.send_lost + stats.total.counters.receive_lost;
        report.rtt_ms = stats.instant.rtt.as_secs_f64() * 1e3;
    }
    connection.close().context("closing failed")?;
    if args.json {
        output::emit_to(&mut io::stderr().lock(), &report)?;
    }
    Ok(())
}

fn open(args: &PipeArgs) -> Result<Connection> {
    let mode = if args.message { Mode::Message } else { Mode::Stream };
    let mut options = args.transport.options().mode(mode);
    if let Some(listen) = &args.listen {
        let addr = resolve(listen, "[::]")?;
        let endpoint =
            Endpoint::bind(addr, &options).with_context(|| format!("cannot listen at {addr}"))?;
        report_kernel_buffers(&endpoint);
        let listener = endpoint.listen(&options)?;
        eprintln!("farhaul: listening at {}", listener.local_addr());
        return Ok(listener.accept()?);
    }
    let Some(peer) = &args.peer else { bail!("give HOST:PORT or --listen ADDR") };
    let peer = resolve(peer, "localhost")?;
    if let Some(bind) = args.bind {
        options = options.bind(bind);
    }
    let connected = match args.bind {
        Some(bind) if args.rendezvous => Connection::rendezvous(bind, peer, &options),
        _ => Connection::connect(peer, &options),
    };
    connected.with_context(|| format!("cannot connect to {peer}"))
}

fn send_stream(connection: &Connection) -> io::Result<u64> {
    let mut input = io::stdin().lock();
    let mut block = vec![0; BLOCK];
    let mut sent = 0;
    loop {
        let count = match input.read(&mut block) {
            Ok(0) => return Ok(sent),
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        (&mut &*connection).write_all(&block[..count])?;
        sent += count as u64;
    }
}

fn send_messages(connection: &Connection, how: MessageOptions) -> io::Result<u64> {
    let mut sent = 0;
    for line in io::stdin().lock().split(b'\n') {
        let line = line?;
        sent += line.len() as u64;
        connection.send_message(line, how)?;
    }
    Ok(sent)
}

fn print_stream(connection: &Connection) -> io::Result<u64> {
    let mut out = io::stdout().lock();
    let mut block = vec![0; BLOCK];
    let mut received = 0;
    loop {
        let count = match (&mut &*connection).read(&mut block) {
            Ok(count) => count,
            // This side has closed: there is nothing more to come.
            Err(e) if e.kind() == io::ErrorKind::NotConnected => 0,
            Err(e) => return Err(e),
        };
        if count == 0 {
            out.flush()?;
            return Ok(received);
        }
        out.write_all(&block[..count])?;
        out.flush()?;
        received += count as u64;
    }
}

fn print_messages(connection: &Connection) -> io::Result<u64> {
    let mut out = io::stdout().lock();
    let mut received = 0;
    loop {
        let message = match connection.recv_message() {
            Ok(message) => message,
            Err(e) if e.kind() == io::ErrorKind::NotConnected => None,
            Err(e) => return Err(e),
        };
        let Some(message) = message else {
            out.flush()?;
            return Ok(received);
        };
        received += message.len() as u64;
        out.write_all(&message)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
}
