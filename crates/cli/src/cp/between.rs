//! A copy between two other hosts: data goes directly from the one to the other.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farhaul_remote::bootstrap::{Hello, Start, fresh};
use farhaul_remote::{Received, Remote, SshCommand};

use super::agent::Command;
use super::job::{Job, ProgressLine, Told};
use super::report::{Measured, Summary};
use super::show::Show;
use super::{END, Ended, LastWord, Plan, refused};
use crate::agent::Task;
use crate::config::{FlagLayer, Origin, Settings};
use crate::exit::{Failed, INTERRUPTED, interrupted};
use crate::interrupt;

/// Between two looks at the one or the other.
const LOOK: Duration = Duration::from_millis(50);
/// After so long the source has heard from a sink that has failed, or never will.
const HEARD: Duration = Duration::from_millis(500);

/// Starts both sides, brings them together, and tells how it goes.
pub fn run(plan: &Plan, from: &str, to: &str, show: &Show) -> Result<Ended> {
    let stop = interrupt::stop_flag();
    let (_, secret, session) = fresh()?;
    let command = SshCommand::parse(&plan.settings.ssh.value).map_err(refused)?;
    let start = |host: &str, job: Job| -> Result<Remote> {
        // The other host may have settings of its own.
        let settings = Settings::load(&FlagLayer::default(), Some(host))?;
        let farhaul = match (&plan.settings.remote_farhaul.origin, &settings.remote_farhaul.origin)
        {
            (Origin::Flag, _) | (_, Origin::Default) => &plan.settings.remote_farhaul.value,
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
    plan.warn(show);
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
    // Until the source has told all of it.
    let mut on_the_way = Measured::default();
    let mut measured = None;
    let mut sink_ended = None;
    // What the source says counts; a sink that has ended is not waited for, nor who has gone wordless.
    while ends[0].is_none() && !gone[0] && !(gone[1] && ends[1].is_none()) {
        let sink_failed = ends[1].as_ref().is_some_and(|(_, error)| error.is_some());
        if sink_failed && sink_ended.get_or_insert_with(Instant::now).elapsed() > HEARD {
            // It may never have been there for the source.
            let _ = source.sender().send(&Command::Stop);
        }
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
                        Ok(Told::End { summary, measured: all, error }) => {
                            ends[at] = Some((*summary, error));
                            if at == 0 {
                                measured = Some(*all);
                            }
                        }
                        // The sink tells the source what its user is to know.
                        Ok(told) if at == 0 => {
                            if let Told::Progress(line) = &told {
                                note_progress(&mut on_the_way, line);
                            }
                            tell(show, told);
                        }
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
    let [source_end, sink_end] = ends;
    // What the sink says of itself is better than what the source makes of it.
    let sinks_word = sink_end.as_ref().and_then(|(_, error)| error.clone());
    let (summary, result) = match source_end.or(sink_end) {
        Some((summary, _)) if stopped => (summary, Err(interrupted())),
        None if stopped => (Summary::default(), Err(interrupted())),
        Some((summary, None)) => (summary, Ok(())),
        Some((summary, Some((code, message)))) => {
            let consequence = code == INTERRUPTED || message.starts_with("the other side");
            let (code, message) = match sinks_word {
                Some((code, text)) if consequence => (code, format!("{to}: {text}")),
                _ => (code, format!("{from}: {message}")),
            };
            (summary, Err(Failed { code, message }))
        }
        None => (Summary::default(), Err(lost(if gone[0] { from } else { to }))),
    };
    Ok(Ended { summary, measured: measured.unwrap_or(on_the_way), result })
}

/// What the report at the end tells of the way.
fn note_progress(measured: &mut Measured, line: &ProgressLine) {
    measured.rtt_ms = (line.rtt_ms > 0.0).then_some(line.rtt_ms);
    if !line.path.is_empty() {
        measured.transport = Some(line.path.clone());
    }
    if !line.limit.is_empty() {
        measured.limited_by = Some(line.limit.clone());
    }
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
