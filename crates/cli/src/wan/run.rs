//! `farhaul wan run`: a command at one host of an emulated network of real IP packets, services at others.
//!
//! Each host is a network namespace. What is in them when the command ends is ended too, and with it the
//! namespaces go.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use farhaul_link::{LinkConfig, ParseError, Rate};
use farhaul_wan::tun::{NetworkConfig, Parameter, Topology, TunNetwork, TunPathConfig, isolate};

use super::counters::{Names, Series, why_not_kept};
use super::site::{Site, no_path, wait};
use super::{WholePathArgs, topology};
use crate::exit::{Passed, Usage};
use crate::{files, interrupt, output, sim, units};

/// Run a command at one end of an emulated path that carries all IP packets, UDP and TCP alike, or at a host of
/// an emulated network.
///
/// The path lies between two network namespaces, a near and a far one, which reach each other over
/// it and nothing else. COMMAND runs in the near one. The far one is at 10.77.0.2 and fd77::2, the near one at
/// 10.77.0.1 and fd77::1; all commands find these addresses in FARHAUL_FAR and FARHAUL_FAR6, FARHAUL_NEAR and
/// FARHAUL_NEAR6. Below an MTU of 1280 bytes there is no IPv6.
///
/// With --topology the nodes and links are those of a scenario file, as `sim run` reads it, and hosts are the nodes
/// where its flows begin and end, and those that --at and --on name. Commands find the address of the host x in
/// FARHAUL_AT_X and FARHAUL_AT_X6, their own host's name in FARHAUL_NODE.
///
/// Needs /dev/net/tun, and root or a system that lets users make namespaces, where COMMAND then
/// appears to run as root.
///
/// When COMMAND ends, or at Ctrl-C, everything that still runs in the namespaces is ended, and they
/// go away. If the emulator is killed, `wan clean` ends what it leaves. The exit code is COMMAND's, 128+N if signal N
/// has ended it; 130 if interrupted; 2 for bad usage; 125 if the network or its services cannot be had; 126 if
/// COMMAND cannot be run; 127 if it is not found.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    path: WholePathArgs,
    /// Largest packet, bytes, headers of IP included
    #[arg(long, value_name = "BYTES", default_value_t = 1500,
          value_parser = clap::value_parser!(u16).range(68..))]
    mtu: u16,
    /// How fast each end's own device puts packets onto the path, which spaces the packets that a kernel sends at
    /// once: RATE, or none [default: 10G, or --rate where that is more; none without --rate]
    #[arg(long, value_name = "RATE", value_parser = access_rate, allow_hyphen_values = true)]
    access_rate: Option<AccessRate>,
    /// Set a network parameter of the kernel in all namespaces: net.ipv4.tcp_congestion_control=bbr; may be
    /// given several times. Those of the whole machine are refused
    #[arg(long, value_name = "NAME=VALUE")]
    sysctl: Vec<Parameter>,
    /// Start this in the far namespace before, by sh, and end it after; may be given several times
    #[arg(long, value_name = "COMMAND", help_heading = "The far side")]
    far: Vec<OsString>,
    /// Wait until something in the far namespace listens at this port, UDP or TCP
    #[arg(long, value_name = "PORT", help_heading = "The far side",
          value_parser = clap::value_parser!(u16).range(1..))]
    far_port: Vec<u16>,
    /// Make the nodes and links of this scenario file instead of a path
    #[arg(long, value_name = "FILE", help_heading = "A network", conflicts_with_all = [
        "rate", "back_rate", "rate_changes", "trace", "delay", "delay_changes", "queue", "policer", "loss", "back_loss",
        "jitter", "slots", "profile", "reorder", "duplicate", "corrupt", "blackout", "far", "far_port",
    ])]
    topology: Option<PathBuf>,
    /// The value of one of the scenario's variables
    #[arg(long, value_name = "NAME=VALUE", help_heading = "A network", requires = "topology",
          value_parser = sim::assignment)]
    set: Vec<(String, String)>,
    /// Start this at a node before COMMAND, by sh, and end it after; may be given several times
    #[arg(long, num_args = 2, value_names = ["NODE", "COMMAND"], help_heading = "A network")]
    at: Vec<OsString>,
    /// Wait until something at a node listens at this port, UDP or TCP
    #[arg(long, num_args = 2, value_names = ["NODE", "PORT"], help_heading = "A network")]
    at_port: Vec<String>,
    /// The node where COMMAND runs [default: the first one with a host]
    #[arg(long, value_name = "NODE", help_heading = "A network")]
    on: Option<String>,
    /// Write what the network has counted, as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    counters: Option<PathBuf>,
    /// Write what it has counted in each interval as one line of JSON, as it goes
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    counters_log: Option<PathBuf>,
    /// How long these intervals are
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "1s",
          help_heading = "Output")]
    counters_interval: Duration,
    /// What to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The rate of the devices at the ends; `None`: no limit.
type AccessRate = (Option<Rate>,);

/// What a device does where nothing is said of it: a common server's network card.
const ACCESS_RATE_BITS: u64 = 10_000_000_000;

/// A shorter interval has too few packets to say anything.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<()> {
    if args.counters_interval < INTERVAL_MIN {
        let message = format!("--counters-interval: {:?} is below 10 ms", args.counters_interval);
        return Err(Usage(message).into());
    }
    let (topology, config, names) = network(args)?;
    for file in [&args.counters, &args.counters_log].into_iter().flatten() {
        files::check_one(file)?;
    }
    // Before there is a second thread.
    let network = isolate().and_then(|()| TunNetwork::open(&topology, &config)).map_err(no_path)?;
    let stop = interrupt::stop_flag();
    let site = Site::new(network, names.clone()).map_err(no_path)?;
    for parameter in &args.sysctl {
        site.set_parameter(parameter)?;
    }
    let mut services = Vec::new();
    for text in &args.far {
        services.push(site.serve(site.host("far")?, "--far", text)?);
    }
    for pair in args.at.chunks_exact(2) {
        let name = pair[0].to_string_lossy();
        services.push(site.serve(site.host(&name)?, &format!("--at {name}"), &pair[1])?);
    }
    for (name, port) in ports(args)? {
        site.wait_for_port(site.host(name)?, port, &mut services, &stop)?;
    }
    let host = args.on.as_ref().map_or(Ok(0), |name| site.host(name))?;
    let (program, words) = args.command.split_first().context("clap asks for a command")?;
    let log = args.counters_log.as_deref();
    let mut series = Series::begin(names.clone(), args.counters_interval, log, site.stats())?;
    let child = site.start(host, program, words)?;
    let status = wait(child, &mut services, &stop, || series.look(|| site.stats()))?;
    let stats = site.end()?;
    series.end(stats.clone())?;
    if let Some(why) = why_not_kept(&stats, series.not_kept()) {
        tell!("farhaul: {why}");
    }
    if let Some(file) = &args.counters {
        let mut text = Vec::new();
        output::emit_to(&mut text, &names.document(&stats))?;
        files::write(file, &text)?;
    }
    match status.code().map(u8::try_from).unwrap_or(Ok(128 | status.signal().unwrap_or(0) as u8)) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Passed(code).into()),
        Err(_) => Err(Passed(1).into()),
    }
}

/// The network that is asked for, how it carries packets, and what its parts are called.
fn network(args: &RunArgs) -> Result<(Topology, NetworkConfig, Names)> {
    let access_rate = |topology: &Topology| match args.access_rate {
        Some((rate,)) => rate,
        None => default_access_rate(topology.links.iter().map(|link| &link.config)),
    };
    let Some(file) = &args.topology else {
        let [forward, backward] = args.path.links()?;
        let seed = args.path.seed;
        let config = TunPathConfig { forward, backward, seed, mtu: args.mtu, ..Default::default() };
        let (mut topology, config) = config.into_network();
        topology.access_rate = access_rate(&topology);
        let names = |names: [&str; 2]| names.map(String::from).to_vec();
        let (hosts, links) = (names(["near", "far"]), names(["forward", "backward"]));
        return Ok((topology, config, Names { hosts, links, path: true }));
    };
    let at: Vec<_> = args.at.iter().step_by(2).map(|name| name.to_string_lossy()).collect();
    let ports = args.at_port.iter().step_by(2).map(String::as_str);
    let wanted = at.iter().map(|name| &**name).chain(ports).chain(args.on.as_deref());
    let (mut topology, names, seed) = topology::read(file, &args.set, wanted)?;
    topology.access_rate = access_rate(&topology);
    let seed = seed.wrapping_add(args.path.seed);
    Ok((topology, NetworkConfig { seed, mtu: args.mtu, ..Default::default() }, names))
}

/// The ports that are waited for, and where.
fn ports(args: &RunArgs) -> Result<Vec<(&str, u16)>> {
    let far = args.far_port.iter().map(|&port| Ok(("far", port)));
    let at = args.at_port.chunks_exact(2).map(|pair| match pair[1].parse() {
        Ok(port) if port > 0 => Ok((&*pair[0], port)),
        _ => Err(Usage(format!("--at-port: '{}' is no port, 1 to 65535", pair[1])).into()),
    });
    far.chain(at).collect()
}

fn access_rate(text: &str) -> Result<AccessRate, String> {
    if text == "none" {
        return Ok((None,));
    }
    text.parse().map(|rate| (Some(rate),)).map_err(|error: ParseError| error.to_string())
}

/// No slower than any of the links, so that it is never the bottleneck; none if a link has no limit.
fn default_access_rate<'a>(links: impl Iterator<Item = &'a LinkConfig>) -> Option<Rate> {
    let mut fastest = Rate::from_bits_per_second(ACCESS_RATE_BITS)?;
    for link in links {
        fastest = fastest.max(link.rate?);
        let changes = link.rate_changes.changes().iter().map(|change| change.rate);
        fastest = changes.fold(fastest, Rate::max);
    }
    Some(fastest)
}
