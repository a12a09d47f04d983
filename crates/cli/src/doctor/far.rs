//! The other host: farhaul there is started over ssh, looks at it, and answers for the path.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farhaul_doctor::path::{ProbeConfig, Reach, Responder, Secret, bind, respond};
use farhaul_doctor::{AuditOptions, HostReport, PathReport, Report, audit_host};
use farhaul_remote::agent::Controller;
use farhaul_remote::bootstrap::{Greeting, Hello, fresh};
use farhaul_remote::{Received, Remote, SshCommand, own_addresses};
use serde::{Deserialize, Serialize};

use super::{DoctorArgs, audit, measure_path};
use crate::config::{FlagLayer, Settings};
use crate::exit::{Usage, interrupted};
use crate::interrupt;

/// How long the other host may take to look at itself, its disk included.
const AUDIT_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take to end.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Addresses of the other host that are tried, and for how long each.
const ADDRESSES: usize = 4;
const FIRST_ANSWER: Duration = Duration::from_secs(2);

/// What the agent is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct DoctorTask {
    /// For the path; fresh.
    secret: String,
    /// Whose disk to measure; none: none.
    folder: Option<PathBuf>,
}

/// What the agent says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "doctor", rename_all = "snake_case")]
enum Said {
    Host {
        report: Box<HostReport>,
    },
    /// How many questions came over the path: its last word.
    Seen {
        seen: u64,
    },
}

/// What the controller says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "doctor", rename_all = "snake_case")]
enum Asked {
    /// The path has been measured.
    Finish,
}

/// Looks at both hosts and the path between them.
pub fn examine(args: &DoctorArgs, host: &str) -> Result<Report> {
    if host.contains("://") {
        let error = format!(
            "'{host}' is the address of a server, of which the doctor knows nothing: write the HOST or \
             USER@HOST of an account there; without ssh, run `farhaul doctor --respond :9000 \
             --secret-file FILE` there and `farhaul doctor --path HOST:9000 --secret-file FILE` here"
        );
        return Err(Usage(error).into());
    }
    if host.is_empty() || host.starts_with('-') || host.contains(char::is_whitespace) {
        return Err(Usage(format!("'{host}' is no host; write HOST or USER@HOST")).into());
    }
    let flags = FlagLayer {
        ssh: args.ssh.clone(),
        remote_farhaul: args.remote_farhaul.clone(),
        ..FlagLayer::default()
    };
    let settings = Settings::load(&flags, Some(host))?;
    let command = SshCommand::parse(&settings.ssh.value);
    let command = command.map_err(|error| Usage(error.to_string()))?;
    let remote_farhaul = &settings.remote_farhaul.value;
    let (identity, transfer, session) = fresh()?;
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).context("the system gives no random numbers")?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let secret = Secret::new(text.as_bytes())?;
    let home = || PathBuf::from(".");
    let folder = (!args.no_disk).then(|| args.peer_dir.clone().unwrap_or_else(home));
    let task = crate::agent::Task::Doctor(DoctorTask { secret: text, folder });
    let hello =
        Hello::new(Some(identity.public_key()), transfer, session, serde_json::to_value(&task)?);

    tell!("farhaul: starting farhaul on {host}");
    let stop = interrupt::stop_flag();
    let remote = Remote::start(&command, host, remote_farhaul, &hello, &stop)?;
    // Both hosts look at themselves at the same time, and the path is measured when both are done.
    let local = audit(args);
    tell!("farhaul: waiting for what {host} says of itself");
    let peer = match next(&remote, host, &stop)? {
        Said::Host { report } => *report,
        Said::Seen { .. } => bail!("{host} said nothing of itself"),
    };
    let path = measure(&remote, &secret)?;
    // It tells what it has seen even if nothing came back.
    remote.sender().send(&Asked::Finish)?;
    let seen = match next(&remote, host, &stop)? {
        Said::Seen { seen } => seen,
        Said::Host { .. } => 0,
    };
    remote.close(END_WITHIN);
    Ok(Report::new(local, Some(peer), Some(path.with_seen(seen))).of_peer(host))
}

/// The path to the first address of the agent's that answers.
fn measure(remote: &Remote, secret: &Secret) -> Result<PathReport> {
    let (addresses, _) = remote.candidates();
    let mut report = PathReport::default();
    for address in addresses.into_iter().take(ADDRESSES) {
        let config = ProbeConfig { first_answer: FIRST_ANSWER, ..ProbeConfig::default() };
        report = measure_path(address, secret, config)?;
        if report.reach == Reach::Both {
            break;
        }
    }
    Ok(report)
}

fn next(remote: &Remote, host: &str, stop: &AtomicBool) -> Result<Said> {
    let begin = Instant::now();
    loop {
        match remote.received().recv_timeout(Duration::from_millis(50)) {
            Ok(Received::Message(message)) => {
                let said = serde_json::from_value(message);
                return said.with_context(|| format!("farhaul on {host} said something unknown"));
            }
            Ok(Received::Closed(why)) => {
                let why = why.map_or(String::new(), |why| format!(": {why}"));
                bail!("farhaul on {host} has ended before it was done{why}");
            }
            Err(RecvTimeoutError::Disconnected) => bail!("farhaul on {host} has ended"),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                return Err(interrupted().into());
            }
            Err(RecvTimeoutError::Timeout) if begin.elapsed() > AUDIT_WITHIN => {
                bail!("farhaul on {host} said nothing for {} s", AUDIT_WITHIN.as_secs());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// The agent's half, ready to answer.
pub struct Patient {
    socket: farhaul_doctor::path::UdpSocket,
    secret: Secret,
    folder: Option<PathBuf>,
}

/// Opens the port that the controller will send to.
///
/// # Errors
/// What to tell the controller.
pub fn prepare(task: DoctorTask) -> Result<(Greeting, Patient), String> {
    let secret = Secret::new(task.secret.as_bytes()).map_err(|error| error.to_string())?;
    let any: [SocketAddr; 2] =
        [(Ipv6Addr::UNSPECIFIED, 0).into(), (Ipv4Addr::UNSPECIFIED, 0).into()];
    // A host without IPv6 has the other.
    let socket = any.into_iter().map(bind).reduce(|first, second| first.or(second));
    let socket = socket.expect("there are two").map_err(|error| format!("no UDP port: {error}"))?;
    let (identity, ..) = fresh().map_err(|error| error.to_string())?;
    let greeting = Greeting {
        udp_port: Some(socket.local_addr().port()),
        addresses: own_addresses(),
        ..Greeting::new(identity.public_key())
    };
    Ok((greeting, Patient { socket, secret, folder: task.folder }))
}

/// Looks at this host, and answers until the controller has measured the path or is gone.
pub fn serve(patient: Patient, controller: &Controller) -> Result<()> {
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let mut responder = Responder::new(patient.secret.clone());
            let result = respond(&patient.socket, &mut responder, || !done.load(Ordering::Relaxed));
            result.map(|()| responder.seen())
        });
        let options = AuditOptions { folder: patient.folder.clone(), ..AuditOptions::default() };
        let report = Box::new(audit_host(&options, &mut |_| {}));
        let told = controller.sender().send(&Said::Host { report });
        // Whatever comes next means the end: the wish to finish, or that nobody is there.
        if told.is_ok() {
            let _ = controller.received().recv();
        }
        done.store(true, Ordering::Relaxed);
        answering.join().expect("it does not panic")
    })?;
    // A controller that is gone need not be told.
    let _ = controller.sender().send(&Said::Seen { seen });
    Ok(())
}
