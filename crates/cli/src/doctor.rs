//! `farhaul doctor`: what slows transfers down, and what would help.

mod far;
mod record;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use farhaul_doctor::path::{ProbeConfig, ProbeError, Reach, Responder, Secret, bind, respond};
use farhaul_doctor::{AuditOptions, HostReport, PathReport, Report, audit_host, probe_path, show};

use crate::config::value;
use crate::exit::{Failed, Usage, interrupted};
use crate::keys::strict::{self, Guard};
use crate::transport::{check_peer, resolve};
use crate::{interrupt, output};
pub use far::{DoctorTask, Patient, prepare, serve};

/// No secret is longer, bytes.
const SECRET_MOST: u64 = 4096;

/// Find out what slows transfers down, and what would help.
///
/// Measures this host and, with HOST, the other one and the path between them: socket buffers,
/// offloads, MTU, processor, disk, ciphers, clocks; whether UDP passes, round-trip time, loss,
/// capacity. Says what a transfer to HOST would be limited by, and which commands would help, best
/// first. Changes nothing by itself: writes and removes one file in --dir, and sends some 50 MB at
/// most through the path. Takes up to 15 s.
///
/// Where there is no ssh, run `farhaul doctor --respond :9000 --secret-file FILE` on the other host
/// and `farhaul doctor --path HOST:9000 --secret-file FILE` on this one, with the same file.
///
/// With --record it measures instead what this host does to time: how late its timers are, how long
/// packets wait for a process, how often nothing runs at all. It prints that as a [[host]] table for
/// scenarios of `farhaul sim`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// The other host, as ssh knows it: HOST or USER@HOST
    #[arg(value_name = "HOST", conflicts_with_all = ["path", "respond"])]
    host: Option<String>,
    /// The folder whose disk is measured on this host
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The folder whose disk is measured on the other host; else its user's home
    #[arg(long, value_name = "DIR", requires = "host")]
    peer_dir: Option<PathBuf>,
    /// Leave the disks alone
    #[arg(long, conflicts_with_all = ["dir", "peer_dir"])]
    no_disk: bool,
    /// Measure the path to a responder, without ssh
    #[arg(long, value_name = "HOST:PORT", requires = "secret_file", conflicts_with = "respond")]
    path: Option<String>,
    /// Answer those who measure the path to this address, until interrupted
    #[arg(long, value_name = "ADDR", requires = "secret_file")]
    respond: Option<String>,
    /// File with the secret that both sides have: 16 bytes or more, such as `openssl rand -hex 32`
    /// prints; others must not be able to read it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// How to reach HOST; also FARHAUL_SSH, or in the settings of farhaul cp
    #[arg(long, value_name = "COMMAND", value_parser = value::WORDS.parse, requires = "host")]
    ssh: Option<String>,
    /// farhaul's path on HOST; also FARHAUL_REMOTE_FARHAUL, or in the settings
    #[arg(long, value_name = "PATH", value_parser = value::WORDS.parse, requires = "host")]
    remote_farhaul: Option<String>,
    /// Measure this host's noise, and print it as the host profile NAME of the simulator
    #[arg(long, value_name = "NAME", conflicts_with_all = ["host", "path", "respond", "no_disk"])]
    record: Option<String>,
    /// How long --record measures
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = value::TIME.parse,
          requires = "record")]
    record_time: Duration,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &DoctorArgs) -> Result<()> {
    if let Some(name) = &args.record {
        return record::record(name, args.record_time, args.json);
    }
    let secret = args.secret_file.as_deref().map(read_secret).transpose()?;
    if let (Some(addr), Some(secret)) = (&args.respond, &secret) {
        return answer(addr, secret);
    }
    let report = match (&args.host, &args.path, &secret) {
        (Some(host), ..) => far::examine(args, host)?,
        (None, Some(peer), Some(secret)) => {
            let peer = resolve(peer, "localhost")?;
            check_peer(peer, None)?;
            let path = measure_path(peer, secret, ProbeConfig::default())?;
            Report::new(audit(args), None, Some(path))
        }
        _ => Report::new(audit(args), None, None),
    };
    output::emit(args.json, &report, show)?;
    match (&args.path, report.path.as_ref().map(|path| path.reach)) {
        (Some(peer), Some(reach)) if reach != Reach::Both => {
            let message = format!("nothing has answered at {peer}: the path was not measured");
            Err(Failed { code: 1, message }.into())
        }
        _ => Ok(()),
    }
}

/// This host.
fn audit(args: &DoctorArgs) -> HostReport {
    let folder = (!args.no_disk).then(|| args.dir.clone());
    let options = AuditOptions { folder, ..AuditOptions::default() };
    audit_host(&options, &mut |what| tell!("farhaul: looking at this host: {what}"))
}

/// The path to a responder.
fn measure_path(
    peer: std::net::SocketAddr,
    secret: &Secret,
    config: ProbeConfig,
) -> Result<PathReport> {
    let stop = interrupt::stop_flag();
    let mut last = "";
    let mut progress = |what| {
        if what != last && what != "done" {
            tell!("farhaul: measuring the path to {peer}: {what}");
            last = what;
        }
        !stop.load(Ordering::Relaxed)
    };
    match probe_path(peer, secret, config, &mut progress) {
        Err(ProbeError::Stopped) => Err(interrupted().into()),
        result => Ok(result?),
    }
}

/// Answers until the user has enough of it.
fn answer(addr: &str, secret: &Secret) -> Result<()> {
    let addr = resolve(addr, "[::]")?;
    let socket = bind(addr).with_context(|| format!("cannot listen at {addr}"))?;
    tell!("farhaul: listening at {}", socket.local_addr());
    let stop = interrupt::stop_flag();
    let mut responder = Responder::new(secret.clone());
    respond(&socket, &mut responder, || !stop.load(Ordering::Relaxed))?;
    tell!("farhaul: {} questions were answered or counted", responder.seen());
    Ok(())
}

fn read_secret(path: &Path) -> Result<Secret> {
    let file = strict::open(path, Guard::Secret)?
        .ok_or_else(|| Usage(format!("there is no file {}", path.display())))?;
    let mut shared = Vec::new();
    file.take(SECRET_MOST)
        .read_to_end(&mut shared)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let secret = Secret::new(&shared);
    Ok(secret.map_err(|error| Usage(format!("{}: {error}", path.display())))?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::{Cli, Command};

    /// What the doctor tells people to run exists.
    #[test]
    fn suggested_commands_are_commands() {
        let commands = farhaul_doctor::own_commands();
        assert!(commands.iter().any(|command| command.contains("--mss")));
        for command in commands {
            let words = command.split_whitespace();
            // What is to be copied stands behind.
            let words: Vec<&str> = words
                .flat_map(|word| if word == "…" { vec!["a", "b"] } else { vec![word] })
                .collect();
            let parsed = Cli::try_parse_from(&words).map(|cli| cli.command);
            let right = matches!(parsed, Ok(Command::Cp(_) | Command::Doctor(_)));
            assert!(right, "{command}: {parsed:?}");
        }
    }
}
