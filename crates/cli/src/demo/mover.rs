//! The transfer by farhaul: a sender and a receiver in processes of their own, and the path between
//! them in this one.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStderr, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farhaul::Law;
use farhaul_link::LinkConfig;
use farhaul_wan::{Relay, RelayConfig, RelayStats};
use serde::Deserialize;

use super::process::{LOOK_EVERY, Process, this_program};
use super::series::{Sample, Series};
use super::stop::Stop;

/// How long the receiver may take to listen, and to end after the sender has.
const PATIENCE: Duration = Duration::from_secs(20);

/// What to move, how, and over what.
#[derive(Debug)]
pub struct Plan<'a> {
    /// A directory.
    pub source: &'a Path,
    /// The directory in which it arrives, under its own name.
    pub target: &'a Path,
    pub cc: &'a Law,
    /// There and back.
    pub links: [LinkConfig; 2],
    pub seed: u64,
    /// No progress.
    pub quiet: bool,
}

/// How it went.
#[derive(Debug)]
pub struct Moved {
    /// What the sender reports.
    pub sender: SenderReport,
    /// IP bytes that have left the path towards the receiver.
    pub series: Series,
    /// What the path counted.
    pub relay: RelayStats,
}

/// The part of the report of `farhaul send --json` that matters here.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SenderReport {
    pub data_bytes: u64,
    pub seconds: f64,
    pub packets_sent: u64,
    pub retransmitted: u64,
}

/// Moves the tree.
///
/// # Errors
/// If one of the processes fails, with its exit code, or `stop` is set.
pub fn transfer(plan: &Plan<'_>, stop: &Stop) -> Result<Moved> {
    let (mut receiver, address) = start_receiver(plan, stop)?;
    let mut config = RelayConfig::new(([127, 0, 0, 1], 0).into(), address);
    [config.forward, config.backward] = plan.links.clone();
    config.seed = plan.seed;
    let relay = Relay::bind(config).context("cannot open the relay's ports")?.spawn()?;
    let mut sender = start_sender(plan, relay.local_addr())?;
    let mut series = Series::default();
    let started = Instant::now();
    loop {
        let ended = sender.has_ended()?;
        let seconds = started.elapsed().as_secs_f64();
        if ended || series.is_due(seconds) {
            series.push(Sample { seconds, bytes: relay.stats().forward.link.passed_bytes });
        }
        if ended {
            break;
        }
        stop.check()?;
        thread::sleep(LOOK_EVERY);
    }
    receiver.wait(PATIENCE, stop)?;
    let mut text = String::new();
    if let Some(mut out) = sender.child.stdout.take() {
        out.read_to_string(&mut text)?;
    }
    let sender = serde_json::from_str(&text).context("the sender's report is not understood")?;
    Ok(Moved { sender, series: series.begin_with_bytes(), relay: relay.stop()? })
}

/// Starts `farhaul recv` and waits until it listens.
fn start_receiver(plan: &Plan<'_>, stop: &Stop) -> Result<(Process, SocketAddr)> {
    let mut command = this_program(["recv", "--once", "--quiet", "--listen", "127.0.0.1:0"])?;
    command.arg("--into").arg(plan.target).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut receiver = Process::start("the receiver", &mut command)?;
    let Some(messages) = receiver.child.stderr.take() else { bail!("the receiver has no stderr") };
    let found = listen_address(messages);
    loop {
        match found.recv_timeout(LOOK_EVERY) {
            Ok(address) => return Ok((receiver, address)),
            Err(RecvTimeoutError::Timeout) => stop.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                receiver.wait(PATIENCE, stop)?;
                bail!("the receiver has not said where it listens");
            }
        }
    }
}

fn start_sender(plan: &Plan<'_>, peer: SocketAddr) -> Result<Process> {
    let mut command = this_program(["send", "--json", "--cc"])?;
    command.arg(plan.cc.to_string());
    if plan.quiet {
        command.arg("--quiet");
    }
    command.arg(plan.source).arg(peer.to_string()).stdout(Stdio::piped());
    Process::start("the sender", &mut command)
}

/// The address that the receiver says it listens at. What else it says is passed on.
fn listen_address(messages: ChildStderr) -> Receiver<SocketAddr> {
    let (tell, told) = channel();
    thread::spawn(move || {
        for line in BufReader::new(messages).lines().map_while(Result::ok) {
            match address_in(&line) {
                // The other end has gone if nobody waits any more.
                Some(address) => drop(tell.send(address)),
                None => tell!("{line}"),
            }
        }
    });
    told
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening at ")?;
    rest.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_address_is_found() {
        let line = "farhaul: listening at 127.0.0.1:40001, writing to /tmp/x";
        assert_eq!(address_in(line), Some(([127, 0, 0, 1], 40001).into()));
        assert_eq!(address_in("farhaul: the kernel grants little"), None);
        assert_eq!(address_in("listening at nothing, really"), None);
    }
}
