//! The kernel's TCP over an equivalent path.
//!
//! A UDP relay cannot carry TCP, so this path lies between two network namespaces. Those need rights
//! that only a process with one thread can gain, so a process of its own does the work ([`side`]) and
//! reports by lines of JSON.

pub mod side;

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use super::process::{LOOK_EVERY, Process, this_program};
use super::progress::Progress;
use super::series::{Sample, Series};
use super::stop::Stop;
use crate::exit::last_line;

/// What the process that does the work says, one a line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// How far it is.
    Sample {
        /// IP bytes that have left the path towards the receiver.
        path: Sample,
        /// Bytes that the receiving application has read.
        received: u64,
    },
    /// The last message.
    Outcome(Outcome),
}

/// What a TCP transfer came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Congestion control that the kernel has used.
    pub cc: String,
    /// Bytes that arrived.
    pub bytes: u64,
    /// From the open connection to the receiver's word that it has everything, or to the limit.
    pub seconds: f64,
    /// Whether everything arrived within the limit.
    pub complete: bool,
    /// Segments sent, those sent again included.
    pub packets_sent: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Packets lost before the path, which would make the comparison unfair.
    pub overflowed: u64,
    /// Whether the kernel let its buffers' limits be raised.
    pub buffers_raised: bool,
}

/// The congestion controls to compare with: what this kernel uses by default, and CUBIC, which is what
/// most systems use (RFC 9438). `None` is the default where its name is not known.
pub fn congestion_controls() -> Vec<Option<String>> {
    let mut found: Vec<_> = vec![usual()];
    let cubic = Some("cubic".to_owned());
    if offered().contains(&"cubic".to_owned()) && !found.contains(&cubic) {
        found.push(cubic);
    }
    found
}

/// The congestion control that this kernel uses by default, if its name is known.
pub fn usual() -> Option<String> {
    names("tcp_congestion_control").into_iter().next()
}

/// The congestion controls that this kernel has loaded.
pub fn offered() -> Vec<String> {
    names("tcp_available_congestion_control")
}

/// Whether this kernel may have the congestion control `cc`: it has loaded it, or loads it when asked
/// to, or does not tell.
pub fn may_be_offered(cc: &str) -> bool {
    let offered = offered();
    if offered.is_empty() || offered.iter().any(|name| name == cc) {
        return true;
    }
    let asked = Socket::new(Domain::IPV4, Type::STREAM, None)
        .and_then(|socket| socket.set_tcp_congestion(cc.as_bytes()));
    match asked {
        Ok(()) => true,
        // There is one, and this user may not use it here.
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    }
}

fn names(parameter: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{parameter}")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Moves `bytes` from memory to memory by TCP with the congestion control `cc`, or the kernel's
/// default, in `limit` at most.
///
/// # Errors
/// If namespaces or devices are not permitted here, or there is no such congestion control; the text
/// says why. If `stop` is set.
pub fn transfer(
    cc: Option<&str>,
    bytes: u64,
    limit: Duration,
    progress: &mut Progress,
    stop: &Stop,
) -> Result<(Outcome, Series)> {
    // The same arguments describe the same path, whatever options there are.
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    arguments.push(format!("--tcp-side-bytes={bytes}").into());
    arguments.push(format!("--tcp-side-limit={}ms", limit.as_millis()).into());
    arguments.extend(cc.map(|cc| format!("--tcp-side-cc={cc}").into()));
    let mut command = this_program(arguments)?;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut side = Process::start("the process for TCP", &mut command)?;
    let messages = lines(&mut side)?;
    let mut series = Series::default();
    loop {
        let line = match messages.recv_timeout(LOOK_EVERY) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                stop.check()?;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => {
                // The same Ctrl-C may have ended that process before it is known here.
                thread::sleep(LOOK_EVERY * 5);
                stop.check()?;
                bail!(reason(&mut side));
            }
        };
        match serde_json::from_str(&line).context("the process for TCP is not understood")? {
            Message::Sample { path, received } => {
                series.push(path);
                progress.show(received, path.seconds);
            }
            Message::Outcome(outcome) => {
                side.wait(Duration::from_secs(20), stop)?;
                return Ok((outcome, series.begin_with_bytes()));
            }
        }
    }
}

/// What `side` prints, as it comes.
fn lines(side: &mut Process) -> Result<Receiver<String>> {
    let Some(out) = side.child.stdout.take() else { bail!("the process for TCP has no stdout") };
    let (tell, told) = channel();
    thread::spawn(move || {
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        // The other end goes when it has what it wants.
        lines.map(|line| tell.send(line)).take_while(Result::is_ok).for_each(drop);
    });
    Ok(told)
}

/// Why `side` has ended without an outcome, in its own words.
fn reason(side: &mut Process) -> String {
    let mut text = String::new();
    if let Some(mut messages) = side.child.stderr.take() {
        // An error leaves what was read so far.
        let _ = messages.read_to_string(&mut text);
    }
    last_line(&text).to_owned()
}
