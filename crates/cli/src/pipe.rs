//! `farhaul pipe`: standard input and output over one UDT v4 connection.

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use farhaul::{CloseReason, Connection, Endpoint, MessageOptions, Mode};
use serde::Serialize;

use crate::interrupt::{self, on_interrupt};
use crate::transport::{TransportArgs, check_peer, report_kernel_buffers, resolve};
use crate::{output, units};

/// Bytes of one read from standard input.
const BLOCK: usize = 256 << 10;

/// Connect standard input and output to a peer over UDT.
///
/// The bytes are all there is: any UDT v4 program can be the peer. UDT cannot close one direction
/// alone, so the connecting side closes when its standard input ends and everything is
/// acknowledged; the listening side works until the peer closes. A side that is interrupted, or
/// whose input cannot be read to its end, says so: a farhaul peer then fails, other programs take it
/// for the end.
///
/// Between farhaul peers both sides know what was delivered. Where the connecting side closes before
/// everything from the listening side's standard input has reached it, both end with exit code 1. Delivered is
/// what the other farhaul has; whether it could write it out, its own exit code says. Of
/// other programs it is not known, and a listening side only says what was not acknowledged.
#[derive(Args, Clone, Debug)]
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
    #[arg(long, value_name = "ADDR", conflicts_with = "listen")]
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

/// What the sending half has done so far. It is locked while the connection takes something, so that what is
/// under way counts as taken or not, once the connection has ended.
#[derive(Debug, Default)]
struct Sent {
    /// Bytes read from standard input.
    read: u64,
    /// Of them, bytes that the connection has taken.
    taken: u64,
}

/// Runs the command.
pub fn run(args: &PipeArgs) -> Result<()> {
    let waiting = interrupt::while_waiting();
    let connection = open(args)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    // It ends the process also where standard output takes nothing and no input comes.
    on_interrupt({
        let (connection, interrupted) = (connection.clone(), Arc::clone(&interrupted));
        move || {
            interrupted.store(true, Ordering::Relaxed);
            connection.abort();
            // Returns when the peer knows, or has been told often enough.
            connection.clone().close().ok();
            interrupt::end();
        }
    });
    drop(waiting);
    let started = Instant::now();
    let sent = Arc::new(Mutex::new(Sent::default()));
    let (done, sender) = mpsc::channel();
    // Whether or not anybody closes standard input, the program ends when the peer has closed: so
    // this thread is not joined.
    thread::spawn({
        let (args, connection, sent) = (args.clone(), connection.clone(), Arc::clone(&sent));
        move || done.send(send(&args, &connection, &sent))
    });
    let received =
        if args.message { print_messages(&connection) } else { print_stream(&connection) };
    while interrupted.load(Ordering::Relaxed) {
        // The interruption ends the process.
        thread::park();
    }
    let reason = connection.close_reason();
    if received.is_err() {
        // What still waits to be taken is not. The peer need not wait for its time-out to learn of it.
        connection.abort();
    }
    let (read, taken) = {
        let sent = lock(&sent);
        (sent.read, sent.taken)
    };
    let stats = connection.stats(false).ok();
    let buffered = stats.as_ref().map_or(0, |stats| stats.instant.send_buffer.0 as u64);
    let known = connection.has_account();
    let waiting = if known { not_read() } else { 0 };
    let lost = read - taken + buffered + waiting;
    let unacknowledged =
        || format!("the peer closed before it had acknowledged the last {lost} bytes");
    let received = match received {
        Ok(received) => received,
        Err(error) => {
            connection.close().ok();
            let error = anyhow::Error::new(error).context("the connection ended early");
            let of_own = reason == Some(CloseReason::PeerAborted) && lost > 0;
            return Err(if of_own { error.context(unacknowledged()) } else { error });
        }
    };
    // This side has closed, so its sending half is through; if the peer has, it may still wait for
    // input.
    let result = match reason {
        Some(CloseReason::Peer | CloseReason::PeerStopped) => sender.try_recv().unwrap_or(Ok(())),
        _ => sender.recv().context("the sending thread panicked")?,
    };
    if reason == Some(CloseReason::PeerStopped)
        || reason == Some(CloseReason::Peer) && lost > 0 && known
    {
        // Until the peer knows as well.
        connection.close().ok();
        bail!(
            "the peer closed before the last {lost} bytes had reached it: a connecting side closes \
             when its standard input ends, so have the side connect that sends, or keep that input open"
        );
    } else if reason == Some(CloseReason::Peer) && lost > 0 {
        let message = unacknowledged();
        if args.listen.is_none() {
            bail!(message);
        }
        // What another program's last acknowledgement covered may be lost, not the data.
        tell!("farhaul: {message}");
    } else if let Err(error) = result {
        // Until the peer knows that this was not all.
        connection.close().ok();
        return Err(error).context("sending failed");
    }
    let mut report = PipeReport {
        peer: connection.peer_addr().to_string(),
        sent_bytes: read - lost.min(read),
        received_bytes: received,
        seconds: started.elapsed().as_secs_f64(),
        ..PipeReport::default()
    };
    if let Some(stats) = stats {
        report.retransmitted = stats.total.counters.packets_retransmitted;
        report.lost = stats.total.counters.send_lost + stats.total.counters.receive_lost;
        report.rtt_ms = stats.instant.rtt.as_secs_f64() * 1e3;
    }
    let closed = connection.clone().close();
    if reason != Some(CloseReason::Peer) {
        closed.context("closing failed")?;
        if connection.close_reason() == Some(CloseReason::PeerAborted) {
            bail!(
                "this side closed, as its standard input had ended, before everything from the \
                 peer had come: have the side connect that sends, or keep standard input open"
            );
        }
    }
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
        tell!("farhaul: listening at {}", listener.local_addr());
        return Ok(listener.accept()?);
    }
    let Some(peer) = &args.peer else { bail!("give HOST:PORT or --listen ADDR") };
    let peer = resolve(peer, "localhost")?;
    check_peer(peer, args.bind)?;
    if let Some(bind) = args.bind {
        options = options.bind(bind);
    }
    let connected = match args.bind {
        Some(bind) if args.rendezvous => Connection::rendezvous(bind, peer, &options),
        _ => Connection::connect(peer, &options),
    };
    connected.with_context(|| format!("cannot connect to {peer}"))
}

fn lock(sent: &Mutex<Sent>) -> MutexGuard<'_, Sent> {
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that wait in standard input; none where it cannot tell.
fn not_read() -> u64 {
    rustix::io::ioctl_fionread(io::stdin()).unwrap_or(0)
}

/// The sending half: all of standard input, then, but for the listening side, the end.
fn send(args: &PipeArgs, connection: &Connection, sent: &Mutex<Sent>) -> io::Result<()> {
    let how = MessageOptions { ttl: args.ttl, in_order: args.ordered };
    let result = match args.message {
        true => send_messages(connection, how, sent),
        false => send_stream(connection, sent),
    };
    if result.is_ok() && args.listen.is_some() {
        return Ok(());
    }
    // The other half reads until this is done. However long it takes, nobody gives up while the
    // peer answers, unless the user has set a limit.
    let result = match args.transport.linger {
        Some(_) => result,
        None => result.and_then(|()| connection.wait_acknowledged()),
    };
    match &result {
        Ok(()) => connection.shutdown(),
        Err(_) => connection.abort(),
    }
    result
}

fn send_stream(connection: &Connection, sent: &Mutex<Sent>) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut block = vec![0; BLOCK];
    loop {
        let count = match input.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let mut sent = lock(sent);
        sent.read += count as u64;
        let mut rest = &block[..count];
        while !rest.is_empty() {
            let taken = (&mut &*connection).write(rest)?;
            sent.taken += taken as u64;
            rest = &rest[taken..];
        }
    }
}

fn send_messages(
    connection: &Connection,
    how: MessageOptions,
    sent: &Mutex<Sent>,
) -> io::Result<()> {
    for line in io::stdin().lock().split(b'\n') {
        let line = line?;
        let count = line.len() as u64;
        let mut sent = lock(sent);
        sent.read += count;
        connection.send_message(line, how)?;
        sent.taken += count;
    }
    Ok(())
}

fn print_stream(connection: &Connection) -> io::Result<u64> {
    let mut out = unbuffered_stdout()?;
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
            return Ok(received);
        }
        out.write_all(&block[..count]).map_err(output_error)?;
        received += count as u64;
    }
}

fn print_messages(connection: &Connection) -> io::Result<u64> {
    let mut out = unbuffered_stdout()?;
    let mut received = 0;
    loop {
        let message = match connection.recv_message() {
            Ok(message) => message,
            Err(e) if e.kind() == io::ErrorKind::NotConnected => None,
            Err(e) => return Err(e),
        };
        let Some(mut message) = message else { return Ok(received) };
        received += message.len() as u64;
        message.push(b'\n');
        out.write_all(&message).map_err(output_error)?;
    }
}

/// Standard output without a buffer: what has come is passed on at once, and never looked through
/// for the ends of lines.
fn unbuffered_stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

fn output_error(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}
