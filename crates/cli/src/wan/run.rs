//! `farhaul wan run`: a command at one end of a path of real IP packets, services at the other.
//!
//! The path lies between two network namespaces. What is in them when the command ends is ended too,
//! and with it the namespaces go.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use farhaul_link::{LinkConfig, ParseError, Rate};
use farhaul_wan::tun::{TunPath, TunPathConfig, TunPathStats, isolate};
use serde::{Deserialize, Serialize};

use super::ports::listens;
use super::{Direction, WholePathArgs};
use crate::exit::{Failed, Passed, Usage, interrupted};
use crate::interrupt::{self, Stop};
use crate::{files, output};

/// As `env`, `nice` and `timeout` have it: what is wrong is not the command.
const NO_PATH: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
/// How often it is looked whether the user has interrupted, or a service has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long who is asked to end may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long services may take until they listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);

/// Run a command at one end of an emulated path that carries all IP packets, UDP and TCP alike.
///
/// The path lies between two network namespaces, a near and a far one, which reach each other over
/// it and nothing else. COMMAND runs in the near one. The far one is at 10.77.0.2 and fd77::2, the near one at
/// 10.77.0.1 and fd77::1; all commands find these addresses in FARHAUL_FAR and FARHAUL_FAR6, FARHAUL_NEAR and
/// FARHAUL_NEAR6. Below an MTU of 1280 bytes there is no IPv6.
///
/// Needs /dev/net/tun, and root or a system that lets users make namespaces, where COMMAND then
/// appears to run as root.
///
/// When COMMAND ends, or at Ctrl-C, everything that still runs in the namespaces is ended, and they
/// go away. The exit code is COMMAND's, 128+N if signal N has ended it; 130 if interrupted; 2 for bad
/// usage; 125 if the path or the far side's services cannot be had; 126 if COMMAND cannot be run; 127
/// if it is not found.
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
    #[arg(long, value_name = "RATE", value_parser = access_rate)]
    access_rate: Option<AccessRate>,
    /// Set a parameter of the kernel in both namespaces: net.ipv4.tcp_congestion_control=bbr; may be
    /// given several times
    #[arg(long, value_name = "NAME=VALUE")]
    sysctl: Vec<String>,
    /// Start this in the far namespace before, by sh, and end it after; may be given several times
    #[arg(long, value_name = "COMMAND", help_heading = "The far side")]
    far: Vec<OsString>,
    /// Wait until somebody in the far namespace listens at this port, UDP or TCP
    #[arg(long, value_name = "PORT", help_heading = "The far side",
          value_parser = clap::value_parser!(u16).range(1..))]
    far_port: Vec<u16>,
    /// Write what the path has counted, as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    counters: Option<PathBuf>,
    /// What to run, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The rate of the devices at the ends; `None`: no limit.
type AccessRate = (Option<Rate>,);

/// What a device does where nothing is said of it: a common server's network card.
const ACCESS_RATE_BITS: u64 = 10_000_000_000;

/// A path with processes at its ends, which end with it.
struct Inhabited(TunPath);

/// What was started in the far namespace.
struct Service<'a> {
    text: &'a OsString,
    child: Child,
    /// Whether it was told that it has ended.
    told: bool,
}

/// What a path has counted.
#[derive(Serialize, Deserialize)]
pub struct Counters {
    pub forward: Direction,
    pub backward: Direction,
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<()> {
    let [forward, backward] = args.path.links()?;
    let access_rate = match args.access_rate {
        Some((rate,)) => rate,
        None => default_access_rate([&forward, &backward]),
    };
    let config = TunPathConfig {
        forward,
        backward,
        seed: args.path.seed,
        mtu: args.mtu,
        access_rate,
        ..Default::default()
    };
    if let Some(path) = &args.counters {
        files::check_one(path)?;
    }
    // Before there is a second thread.
    let path = isolate().and_then(|()| TunPath::open(config)).map_err(no_path)?;
    let stop = interrupt::stop_flag();
    let inhabited = Inhabited(path);
    let path = &inhabited.0;
    for parameter in &args.sysctl {
        set_parameter(path, parameter)?;
    }
    let mut services = Vec::new();
    for text in &args.far {
        services.push(Service::start(path, text)?);
    }
    for &port in &args.far_port {
        wait_for_port(path, port, &mut services, &stop)?;
    }
    let status = wait(start(path, &args.command)?, &mut services, &stop)?;
    let stats = inhabited.end()?;
    if !(stats.forward.time_kept() && stats.backward.time_kept()) {
        eprintln!(
            "farhaul: time was not kept: more than one packet in a hundred left over 0.5 ms late, or some were \
             lost because this machine was too slow; what was measured is not of this path"
        );
    }
    if let Some(file) = &args.counters {
        write_counters(file, &stats)?;
    }
    match status.code().map(u8::try_from).unwrap_or(Ok(128 | status.signal().unwrap_or(0) as u8)) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Passed(code).into()),
        Err(_) => Err(Passed(1).into()),
    }
}

fn access_rate(text: &str) -> Result<AccessRate, String> {
    if text == "none" {
        return Ok((None,));
    }
    text.parse().map(|rate| (Some(rate),)).map_err(|error: ParseError| error.to_string())
}

/// No slower than any of the links, so that it is never the bottleneck; none if a link has no limit.
fn default_access_rate(links: [&LinkConfig; 2]) -> Option<Rate> {
    let mut fastest = Rate::from_bits_per_second(ACCESS_RATE_BITS)?;
    for link in links {
        fastest = fastest.max(link.rate?);
        let changes = link.rate_changes.changes().iter().map(|change| change.rate);
        fastest = changes.fold(fastest, Rate::max);
    }
    Some(fastest)
}

fn set_parameter(path: &TunPath, text: &str) -> Result<()> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(Usage(format!("--sysctl: '{text}' is not NAME=VALUE")).into());
    };
    for side in [path.near(), path.far()] {
        side.set_parameter(name.trim(), value.trim()).map_err(|error| Failed {
            code: NO_PATH,
            message: format!(
                "--sysctl {name}: {error} (only parameters of the network that each namespace has)"
            ),
        })?;
    }
    Ok(())
}

fn no_path(error: io::Error) -> Failed {
    let message = format!(
        "the path cannot be made: {error} (it takes /dev/net/tun, and root or a system that lets users \
         have namespaces)"
    );
    Failed { code: NO_PATH, message }
}

/// Starts the command in the near namespace.
fn start(path: &TunPath, words: &[OsString]) -> Result<Child> {
    let (program, arguments) = words.split_first().context("clap asks for a command")?;
    let mut command = Command::new(program);
    with_addresses(&mut command, path).args(arguments);
    path.near().run(|| command.spawn())?.map_err(|error| {
        let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
        let message = format!("cannot run {}: {error}", program.display());
        Failed { code, message }.into()
    })
}

fn with_addresses<'a>(command: &'a mut Command, path: &TunPath) -> &'a mut Command {
    command
        .env("FARHAUL_FAR", path.far_addr().to_string())
        .env("FARHAUL_FAR6", path.far_addr_v6().to_string())
        .env("FARHAUL_NEAR", path.near_addr().to_string())
        .env("FARHAUL_NEAR6", path.near_addr_v6().to_string())
}

impl<'a> Service<'a> {
    fn start(path: &TunPath, text: &'a OsString) -> Result<Self> {
        // Standard output is the command's.
        let out = io::stderr().as_fd().try_clone_to_owned()?;
        let mut command = Command::new("/bin/sh");
        with_addresses(&mut command, path).arg("-c").arg(text).stdin(Stdio::null()).stdout(out);
        let child = path.far().run(|| command.spawn())?.map_err(|error| Failed {
            code: NO_PATH,
            message: format!("cannot run /bin/sh: {error}"),
        })?;
        Ok(Service { text, child, told: false })
    }

    /// That it has failed, the first time that is asked.
    fn failure(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let first = !std::mem::replace(&mut self.told, true);
        (first && !status.success())
            .then(|| format!("--far '{}' has failed ({status})", self.text.display()))
    }
}

/// Waits until somebody listens at `port` of the far namespace.
fn wait_for_port(path: &TunPath, port: u16, services: &mut [Service], stop: &Stop) -> Result<()> {
    let began = Instant::now();
    while !path.far().run(|| listens(port))? {
        if stop.load(Ordering::Relaxed) {
            return Err(interrupted().into());
        }
        let failed = services.iter_mut().find_map(Service::failure);
        if failed.is_some() || began.elapsed() >= LISTENS_WITHIN {
            let why = failed.map(|text| format!(": {text}")).unwrap_or_default();
            let message = format!("nobody listens at port {port} of the far side{why}");
            return Err(Failed { code: NO_PATH, message }.into());
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Waits for the end of the command.
fn wait(mut child: Child, services: &mut [Service], stop: &Stop) -> Result<ExitStatus> {
    let (tell, told) = channel();
    thread::spawn(move || {
        // Nobody listens any more after an interruption.
        let _ = tell.send(child.wait());
    });
    loop {
        match told.recv_timeout(LOOK_EVERY) {
            Ok(status) => return Ok(status?),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the command is lost"),
        }
        if stop.load(Ordering::Relaxed) {
            return Err(interrupted().into());
        }
        for text in services.iter_mut().filter_map(Service::failure) {
            eprintln!("farhaul: {text}");
        }
    }
}

impl Inhabited {
    /// Ends what still runs, then the path.
    fn end(mut self) -> io::Result<TunPathStats> {
        self.end_processes()?;
        Ok(self.0.stats())
    }

    /// The near ones first: they may have to tell the far ones that they go.
    fn end_processes(&mut self) -> io::Result<()> {
        self.0.near().end_processes(PATIENCE).and(self.0.far().end_processes(PATIENCE))
    }
}

impl Drop for Inhabited {
    fn drop(&mut self) {
        if let Err(error) = self.end_processes() {
            eprintln!("farhaul: {error}");
        }
    }
}

fn write_counters(file: &Path, stats: &TunPathStats) -> Result<()> {
    let counters =
        Counters { forward: (&stats.forward).into(), backward: (&stats.backward).into() };
    let mut text = Vec::new();
    output::emit_to(&mut text, &counters)?;
    files::write(file, &text)
}
