//! A copy between two other hosts: data goes directly from the one to the other.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::{Context, Result};
use farhaul_remote::bootstrap::{Hello, Start, fresh};
use farhaul_remote::{Received, Remote, SshCommand};

use super::agent::Command;
use super::job::{Job, Told};
use super::report::Summary;
use super::show::Show;
use super::side::Going;
use super::{END, Ended, LastWord, Plan, refused};
use crate::agent::Task;
use crate::config::{FlagLayer, Settings};
use crate::exit::{Failed, interrupted};
use crate::interrupt;

/// Between two looks at the one or the other.
const LOOK: Duration = Duration::from_millis(50);

/// Starts both sides, brings them together, and tells how it goes.
pub fn run(plan: &Plan, from: &str, to: &str, show: &Show) -> Result<Ended> {
    let stop = interrupt::stop_flag();
    let (_, secret, session) = fresh()?;
    let command = SshCommand::parse(&plan.settings.ssh.value)?;
    let start = |host: &str, job: Job| -> Result<Remote> {
        // The other host may have settings of its own.
        let settings = Settings::load(&FlagLayer::default(), Some(host))?;
        let farhaul = match settings.remote_farhaul.origin {
            crate::config::Origin::Default => &plan.settings.remote_farhaul.value,
            _ => &settings.remote_farhaul.value,
        };
        let order = serde_json::to_value(Task::Copy(Box::new(plan.order(job, true))))?;
        let mut hello = Hello::new(None, secret.clone(), session, order);
        hello.plain = plan.terms.plain;
        hello.transport = plan.transport();
        Remote::start(&command, host, farhaul, &hello, &stop).map_err(refused)
    };
    let sink = start(to, Job::Sink(plan.sink.clone()))?;
    let source = start(from, Job::Source(plan.source.clone()))?;
    let key = |remote: &Remote| remote.greeting().key.context("an agent has a key");
    let (source_key, sink_key) = (key(&source)?, key(&sink)?);
    let (udp, tcp) = sink.candidates();
    sink.sender().send(&Start::Listen { peer_key: source_key })?;
    source.sender().send(&Start::Dial { peer_key: sink_key, udp, tcp })?;
    let finished = follow(&source, &sink, &stop, show, (from, to));
    source.close(END);
    sink.close(END);
    finished
}

/// Shows what the source tells until both are over.
fn follow(
    source: &Remote,
    sink: &Remote,
    stop: &std::sync::atomic::AtomicBool,
    show: &Show,
    (from, to): (&str, &str),
) -> Result<Ended> {
    let mut ends: [Option<LastWord>; 2] = [None, None];
    let mut gone = [false, false];
    let mut stopped = false;
    while ends[0].is_none() && !(gone[0] || gone[1]) {
        if stop.load(std::sync::atomic::Ordering::Relaxed) && !stopped {
            stopped = true;
            for remote in [source, sink] {
                // Who has gone needs not be stopped.
                let _ = remote.sender().send(&Command::Stop);
            }
        }
        for (at, remote) in [source, sink].into_iter().enumerate() {
            loop {
                match remote.received().recv_timeout(LOOK) {
                    Ok(Received::Message(value)) => match serde_json::from_value(value) {
                        Ok(Told::End { summary, error }) => ends[at] = Some((*summary, error)),
                        // The sink tells the source what its user is to know.
                        Ok(told) if at == 0 => tell(show, told),
                        _ => {}
                    },
                    Ok(Received::Closed(_)) | Err(RecvTimeoutError::Disconnected) => {
                        gone[at] = true;
                        break;
                    }
                    Err(RecvTimeoutError::Timeout) => break,
                }
            }
        }
    }
    let why = "farhaul there ended before its time; the same command goes on from here";
    let lost = |host: &str| Failed { code: 1, message: format!("{host}: {why}") };
    let (summary, result) = match ends[0].take().or(ends[1].take()) {
        _ if stopped => (Summary::default(), Err(interrupted())),
        Some((summary, None)) => (summary, Ok(())),
        Some((summary, Some((code, message)))) => (summary, Err(Failed { code, message })),
        None => (Summary::default(), Err(lost(if gone[0] { from } else { to }))),
    };
    Ok(Ended { summary, going: Going::default(), result })
}

fn tell(show: &Show, told: Told) {
    match told {
        Told::Note(text) => show.note(&text),
        Told::Failed(text) => show.failed(&text),
        Told::File(file) => show.file(&file),
        Told::Deleted(path) => show.deleted(&path.path()),
        Told::Progress(line) => show.progress(&line),
        Told::End { .. } => {}
    }
}
