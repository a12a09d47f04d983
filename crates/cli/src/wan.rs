//! `farhaul wan`: a path of a given rate, delay, queue and loss, made of real packets. `relay` passes
//! datagrams on, `run` joins namespaces, `check` measures how well this machine does that, `clean` removes what
//! a killed `run` has left.

mod check;
mod clean;
mod counters;
mod ports;
mod run;
mod site;
mod topology;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use farhaul_link::{
    Blackout, DelayChanges, DeliveryTrace, Jitter, LinkConfig, LossModel, ParseError, Policer,
    Probability, Profile, QueueConfig, Rate, RateChanges, Reorder, Slots,
};
use farhaul_wan::{
    Forged, InjectConfig, MAX_FORGED_PER_SECOND, PeerPort, Relay, RelayConfig, RelayStats,
};
use serde::Serialize;

pub use self::counters::{Counters, Direction};
use crate::exit::Usage;
use crate::transport::{check_peer, resolve};
use crate::{interrupt, output, units};

/// Emulate a wide-area network path.
#[derive(Subcommand, Debug)]
pub enum WanCommand {
    Relay(Box<RelayArgs>),
    Run(Box<run::RunArgs>),
    Check(check::CheckArgs),
    Clean(clean::CleanArgs),
}

/// Pass UDP datagrams on as a long, narrow or lossy path would.
///
/// Needs no privileges. Clients talk to the relay's address; the target sees the relay.
///
/// Ends after the time of --for or when interrupted (Ctrl-C), prints what it has counted, and
/// returns 0 in both cases.
#[derive(Args, Debug)]
pub struct RelayArgs {
    /// Where clients send to
    #[arg(long, value_name = "ADDR", requires = "to", required_unless_present = "between")]
    listen: Option<String>,
    /// Where their datagrams go
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    /// Join two fixed addresses instead, as a rendezvous needs: each peer talks to the relay's
    /// port on its side
    #[arg(long, num_args = 2, value_names = ["LISTEN=PEER", "LISTEN=PEER"], conflicts_with = "listen")]
    between: Option<Vec<String>>,
    #[command(flatten)]
    path: WholePathArgs,
    /// Forge packets in the name of those who talk over the relay, as an attacker on the path could: all, or
    /// some of shutdown, ack, nak, data, handshake, alert, drop, window, replay, with commas between.
    /// For tests of what UDT peers make of that, on connections of your own
    #[arg(long, value_name = "KIND,..", value_delimiter = ',', help_heading = "For tests")]
    inject: Vec<String>,
    /// So many forged packets a second
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1.0,
        requires = "inject",
        help_heading = "For tests"
    )]
    inject_rate: f64,
    /// End after this time; else when interrupted
    #[arg(long = "for", value_name = "TIME", value_parser = units::time)]
    lifetime: Option<Duration>,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
}

/// What the path does, also in the course of time, and its chances.
#[derive(Args, Debug)]
pub struct WholePathArgs {
    #[command(flatten)]
    path: PathArgs,
    /// Changes of the rate, from the start on: 10s:50M,20s:100M, or 10s:50M,20s:100M/30s to repeat
    /// them; on the way back too unless that has its own rate
    #[arg(
        long,
        value_name = "TIME:RATE,..[/TIME]",
        requires = "rate",
        allow_hyphen_values = true,
        help_heading = "The path, in each direction"
    )]
    rate_changes: Option<RateChanges>,
    /// Changes of the delay, from the start on: 10s:50ms,20s:20ms, with /30s to repeat them, and
    /// 20s:20ms:reorder for another route, on which packets overtake those of the old one
    #[arg(
        long,
        value_name = "TIME:DELAY,..[/TIME]",
        help_heading = "The path, in each direction",
        allow_hyphen_values = true
    )]
    delay_changes: Option<DelayChanges>,
    /// What is random follows from this
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = units::seed, allow_hyphen_values = true)]
    seed: u64,
}

/// What the path does, in each direction.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "The path, in each direction")]
pub struct PathArgs {
    /// Rate; no limit if not given
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub rate: Option<Rate>,
    /// Rate of the way back, if it differs
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub back_rate: Option<Rate>,
    /// Propagation delay, one way, with its unit: 25ms
    #[arg(long, value_name = "TIME", value_parser = units::time_with_unit, default_value = "0ms", allow_hyphen_values = true)]
    pub delay: Duration,
    /// When the path can send, in the place of --rate: a file of milliseconds, one a line, as Mahimahi
    /// records them
    #[arg(long, value_name = "FILE", value_parser = delivery_trace, conflicts_with_all = ["rate", "back_rate"])]
    pub trace: Option<DeliveryTrace>,
    /// Queue: bdp, 100p (packets), 64kB, unlimited; red, codel, pie, fq_codel or dualpi2, also with
    /// parameters: red:limit=bdp,min=5,max=15, codel:limit=bdp,target=5ms [default: bdp, or the
    /// profile's]
    #[arg(long, value_name = "SIZE|KIND", allow_hyphen_values = true)]
    pub queue: Option<String>,
    /// Drop before the queue what comes faster than this contract: rate and burst, 50M:64kB
    #[arg(long, value_name = "RATE:BYTES", allow_hyphen_values = true)]
    pub policer: Option<Policer>,
    /// Loss: 0.1%, ge:loss=1%,burst=5 (bursts), ber:1e-7 (per bit), every:100, list:3,7-9,
    /// gauss:mean=1000,sd=100 (distances), poisson:mean=1000
    #[arg(long, value_name = "MODEL", default_value = "none", allow_hyphen_values = true)]
    pub loss: LossModel,
    /// Loss on the way back, if it differs
    #[arg(long, value_name = "MODEL", allow_hyphen_values = true)]
    pub back_loss: Option<LossModel>,
    /// Random delay on top: 5ms (uniform from 0), 5ms:around, 5ms:normal, 5ms:pareto; behind it
    /// correlation=25%, and reorder to let packets overtake: 5ms:normal:reorder
    #[arg(long, value_name = "TIME[:SHAPE]", allow_hyphen_values = true)]
    pub jitter: Option<Jitter>,
    /// Hand packets out only at the end of slots: 1ms (the ticks of a timer), 1ms-5ms (of random
    /// lengths)
    #[arg(long, value_name = "TIME[-TIME]", allow_hyphen_values = true)]
    pub slots: Option<Slots>,
    /// Have what another emulator has where nothing else is said: dummynet (slots of 1 ms, a queue
    /// of 50 packets) or netem (a queue of 1000 packets, jitter around the delay that lets packets
    /// overtake)
    #[arg(long, value_name = "NAME")]
    pub profile: Option<Profile>,
    /// Reordering: share and displacement, 5%, 5%:2ms, 5%:3 (packets), or 5%:gap=10 (of ten packets
    /// the last one comes early)
    #[arg(long, value_name = "SHARE[:BY]", allow_hyphen_values = true)]
    pub reorder: Option<Reorder>,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "SHARE", default_value = "0%", allow_hyphen_values = true)]
    pub duplicate: Probability,
    /// Share of packets that arrive with one bit inverted
    #[arg(long, value_name = "SHARE", default_value = "0%", allow_hyphen_values = true)]
    pub corrupt: Probability,
    /// Cut the path: START+LENGTH, or START+LENGTH/EVERY
    #[arg(long, value_name = "TIME+TIME[/TIME]", allow_hyphen_values = true)]
    pub blackout: Vec<Blackout>,
}

impl PathArgs {
    /// The links there and back.
    pub fn links(&self) -> Result<[LinkConfig; 2]> {
        let queue = match (&self.queue, self.profile) {
            (Some(queue), _) if queue != "bdp" => QueueConfig::parse(queue, self.delay * 2)
                .map_err(|e| Usage(format!("--queue: {e}")))?,
            (None, Some(profile)) => profile.queue(),
            // A path without a rate has no bandwidth-delay product to size a queue by.
            _ if self.rate.is_none() && self.trace.is_none() => QueueConfig::Unlimited,
            _ => QueueConfig::Bdp { rtt: self.delay * 2 },
        };
        let mut forward = LinkConfig {
            rate: self.rate,
            trace: self.trace.clone(),
            policer: self.policer,
            delay: self.delay,
            jitter: self.jitter.unwrap_or_default(),
            slots: self.slots,
            queue,
            loss: self.loss.clone(),
            reorder: self.reorder,
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            blackouts: self.blackout.clone(),
            ..LinkConfig::default()
        };
        if let Some(profile) = self.profile {
            profile.apply(&mut forward);
        }
        let backward = LinkConfig {
            rate: self.back_rate.or(self.rate),
            loss: self.back_loss.clone().unwrap_or_else(|| self.loss.clone()),
            ..forward.clone()
        };
        Ok([forward, backward])
    }
}

impl WholePathArgs {
    /// The links there and back.
    fn links(&self) -> Result<[LinkConfig; 2]> {
        let [mut forward, mut backward] = self.path.links()?;
        let rate_changes = self.rate_changes.clone().unwrap_or_default();
        if self.path.back_rate.is_none() {
            backward.rate_changes = rate_changes.clone();
        }
        forward.rate_changes = rate_changes;
        let delay_changes = self.delay_changes.clone().unwrap_or_default();
        backward.delay_changes = delay_changes.clone();
        forward.delay_changes = delay_changes;
        Ok([forward, backward])
    }
}

/// The trace in a file.
fn delivery_trace(file: &str) -> Result<DeliveryTrace, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read it: {error}"))?;
    text.parse().map_err(|error: ParseError| error.to_string())
}

/// Runs the command.
pub fn run(command: &WanCommand) -> Result<()> {
    match command {
        WanCommand::Relay(args) => relay(args),
        WanCommand::Run(args) => run::run(args),
        WanCommand::Check(args) => check::run(args),
        WanCommand::Clean(args) => clean::run(args),
    }
}

fn relay(args: &RelayArgs) -> Result<()> {
    let mut config = match (&args.between, &args.listen, &args.to) {
        (Some(pairs), _, _) => RelayConfig::between(peer_port(&pairs[0])?, peer_port(&pairs[1])?),
        (None, Some(listen), Some(to)) => {
            let (listen, to) = (resolve(listen, "0.0.0.0")?, resolve(to, "localhost")?);
            check_peer(to, None)?;
            check_loop(listen, to)?;
            RelayConfig::new(listen, to)
        }
        _ => bail!("give --listen and --to, or --between"),
    };
    [config.forward, config.backward] = args.path.links()?;
    config.seed = args.path.seed;
    config.inject = injection(args)?;
    let relay = Relay::bind(config).context("cannot open the relay's ports")?.spawn()?;
    match relay.far_addr() {
        Some(far) => tell!("farhaul: relaying between {} and {far}", relay.local_addr()),
        None => tell!("farhaul: relaying at {}", relay.local_addr()),
    }
    let interrupted = interrupt::stop_flag();
    let end = args.lifetime.map(|t| Instant::now() + t);
    while !interrupted.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let stats = relay.stop()?;
    let mut report = RelayReport::from(&stats);
    if !args.inject.is_empty() {
        let count = |kind: Forged| (kind.name(), stats.forged.of(kind));
        report.forged = Some(Forged::ALL.into_iter().map(count).collect());
    }
    output::emit(args.json, &report, RelayReport::show)
}

/// What is to be forged, if anything is.
fn injection(args: &RelayArgs) -> Result<Option<InjectConfig>> {
    let mut kinds = Vec::new();
    for text in &args.inject {
        match text.as_str() {
            "all" => kinds.extend(Forged::ALL),
            text => kinds.push(text.parse().map_err(|e| Usage(format!("--inject: {e}")))?),
        }
    }
    if kinds.is_empty() {
        return Ok(None);
    }
    let per_second = args.inject_rate;
    if !(per_second > 0.0 && per_second <= MAX_FORGED_PER_SECOND) {
        let message = format!(
            "--inject-rate: {per_second} is not above 0 and at most {MAX_FORGED_PER_SECOND}"
        );
        return Err(Usage(message).into());
    }
    Ok(Some(InjectConfig { kinds, per_second }))
}

fn peer_port(text: &str) -> Result<PeerPort> {
    let Some((listen, peer)) = text.split_once('=') else {
        return Err(Usage(format!("'{text}' is not LISTEN=PEER, two addresses")).into());
    };
    let (listen, peer) = (address(listen)?, address(peer)?);
    check_peer(peer, Some(listen))?;
    check_loop(listen, peer)?;
    Ok(PeerPort { listen, peer })
}

/// What a relay sends to itself goes round for ever.
fn check_loop(listen: SocketAddr, to: SocketAddr) -> Result<()> {
    let (from, at) = (listen.ip().to_canonical(), to.ip().to_canonical());
    // The wildcard addresses stand for this host's: as a target for its loopback address.
    let same = from == at || at.is_unspecified() || (from.is_unspecified() && at.is_loopback());
    if same && listen.port() == to.port() {
        let message = format!("the relay at {listen} would send to itself at {to}");
        return Err(Usage(message).into());
    }
    Ok(())
}

fn address(text: &str) -> Result<SocketAddr> {
    resolve(text, "127.0.0.1")
}

#[derive(Debug, Serialize)]
struct RelayReport {
    forward: Direction,
    backward: Direction,
    clients: usize,
    refused: u64,
    /// Packets that were forged, by kind, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    forged: Option<BTreeMap<&'static str, u64>>,
}

impl From<&RelayStats> for RelayReport {
    fn from(stats: &RelayStats) -> Self {
        RelayReport {
            forward: (&stats.forward).into(),
            backward: (&stats.backward).into(),
            clients: stats.clients,
            refused: stats.refused,
            forged: None,
        }
    }
}

impl RelayReport {
    fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        for (name, way) in [("forward ", &self.forward), ("backward", &self.backward)] {
            writeln!(
                out,
                "{name}: {} of {} datagrams passed, dropped {} policer, {} queue, {} early, {} loss, {} blackout; \
                 {} reordered, {} duplicated, {} corrupted; queue up to {} packets",
                way.sent,
                way.received,
                way.dropped_policer,
                way.dropped_queue,
                way.dropped_early,
                way.dropped_loss,
                way.dropped_blackout,
                way.reordered,
                way.duplicated,
                way.corrupted,
                way.queue_packets_max
            )?;
            if way.overflowed > 0 {
                writeln!(
                    out,
                    "{name}: the machine is too slow: {} datagrams were lost before the relay could read them",
                    way.overflowed
                )?;
            } else if !way.time_kept {
                writeln!(
                    out,
                    "{name}: time was not kept: more than one datagram in a hundred left over 0.5 ms late, \
                     or some found no memory"
                )?;
            }
        }
        if let Some(forged) = &self.forged {
            let all: Vec<_> =
                forged.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            writeln!(out, "forged: {}", all.join(", "))?;
        }
        Ok(())
    }
}
