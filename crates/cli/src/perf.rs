//! `farhaul perf`: memory-to-memory measurement, in the habits of iperf3.

mod arrivals;
mod channel;
mod measure;
mod places;
mod protocol;
mod report;
mod running;
mod session;
mod tracer;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::exit::Usage;
use crate::greeting::GreetingArgs;
use crate::transport::{TransportArgs, check_peer, resolve};
use crate::units;

/// Measure throughput between two memories.
///
/// One side listens (`farhaul perf --listen :9000`), the other connects and says what to measure.
/// By default the connecting side sends.
#[derive(Args, Debug)]
pub struct PerfArgs {
    /// The listening side's address
    #[arg(value_name = "HOST:PORT", required_unless_present = "listen")]
    peer: Option<String>,
    /// Listen for tests at this address
    #[arg(long, value_name = "ADDR", conflicts_with = "peer")]
    listen: Option<String>,
    /// End the listener after one test, or one connection that begins none
    #[arg(long, requires = "listen", conflicts_with = "peer")]
    once: bool,
    /// How long to write; the test goes on until everything written has arrived, and counts that
    /// time too
    #[arg(short = 't', long, value_name = "SECS", value_parser = units::time, default_value = "10")]
    time: Duration,
    /// How much to send, instead of how long
    #[arg(short = 'n', long, value_name = "BYTES", value_parser = units::size)]
    bytes: Option<u64>,
    /// Parallel connections
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    parallel: u32,
    /// The listening side sends
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Seconds between reports
    #[arg(short = 'i', long, value_name = "SECS", value_parser = units::time, default_value = "1")]
    interval: Duration,
    /// What carries the data; both sides must agree
    #[arg(long, value_enum, default_value = "udt")]
    protocol: Protocol,
    /// Congestion control of the kernel's TCP for what this side sends [default: the kernel's]
    #[arg(long, value_name = "NAME")]
    tcp_cc: Option<String>,
    /// Only receive, without the handshake of the test: the peer may be any UDT v4 program
    #[arg(long, conflicts_with_all = ["source", "reverse"])]
    sink: bool,
    /// Only send, without the handshake of the test
    #[arg(long, conflicts_with = "reverse")]
    source: bool,
    /// Local address to connect from; its port is 0 unless there is --sink or --source
    #[arg(long, value_name = "ADDR", conflicts_with = "listen")]
    bind: Option<SocketAddr>,
    /// Write what the congestion control law does to FILE, 100 times a second: its window, period
    /// and state, the round-trip time, rates and losses, as qlog (.sqlog); `farhaul plot FILE` draws
    /// it. A receiver writes what it receives. Of a listener only with --once
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print one JSON document. `packets` counts what each side's transport has seen; its
    /// `kernel_dropped` what that side's kernel dropped for want of room in a receive buffer, which is
    /// no fault of the path
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    greeting: GreetingArgs,
    #[command(flatten)]
    transport: TransportArgs,
}

impl PerfArgs {
    /// Without the handshake of a test.
    fn is_raw(&self) -> bool {
        self.sink || self.source
    }
}

/// What carries the data of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// farhaul's own transport
    Udt,
    /// The kernel's TCP, for comparison
    Tcp,
}

/// Runs the command.
pub fn run(args: &PerfArgs) -> Result<()> {
    if args.interval < Duration::from_millis(10) {
        let interval = args.interval;
        return Err(Usage(format!("the interval is {interval:?}; it must be 10ms or more")).into());
    }
    if args.trace.is_some() && args.protocol == Protocol::Tcp {
        return Err(
            Usage("--trace needs --protocol udt: the kernel's TCP does not tell".into()).into()
        );
    }
    if args.tcp_cc.is_some() && args.protocol == Protocol::Udt {
        return Err(Usage("--tcp-cc needs --protocol tcp; --cc is farhaul's".into()).into());
    }
    if args.trace.is_some() && args.listen.is_some() && !args.once {
        return Err(Usage("--trace is for one test: a listener needs --once too".into()).into());
    }
    match (&args.listen, &args.peer) {
        (Some(addr), _) => session::serve(args, resolve(addr, "[::]")?),
        (None, Some(peer)) => {
            let peer = resolve(peer, "localhost")?;
            check_peer(peer, args.bind)?;
            check_port(args)?;
            session::connect(args, peer)
        }
        (None, None) => bail!("give HOST:PORT or --listen ADDR"),
    }
}

/// A test has several connections, each of which takes a port of its own.
fn check_port(args: &PerfArgs) -> Result<()> {
    match args.bind {
        Some(bind) if bind.port() != 0 && !args.is_raw() => Err(Usage(format!(
            "a test has several connections, which cannot share the port of {bind}; write port 0"
        ))
        .into()),
        _ => Ok(()),
    }
}
