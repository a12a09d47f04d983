//! A copy between this host and another, whose side an agent runs.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use farhaul_mover::Cancel;
use farhaul_mover::transfer::TransferError;
use farhaul_mover::transfer::session::Links;
use farhaul_remote::bootstrap::{Hello, fresh};
use farhaul_remote::{
    DialConfig, Dialer, Received, Remote, SshCommand, SshError, Terms as LinkTerms, Transport,
};
use farhaul_secure::Trust;

use super::agent::Command;
use super::job::{Job, Listen, Told};
use super::links::{Dialing, is_tcp};
use super::plan::{Plan, bound};
use super::report::Summary;
use super::show::{Show, progress_line};
use super::side::{self, Finished, Going, Surroundings, Wish};
use super::{END, LastWord, cancel_on_interrupt, refused};
use crate::agent::Task;
use crate::exit::INTERRUPTED;
use crate::interrupt::{self, Stop};

/// An agent whose ssh has ended and that has not been reached for so long has ended as well.
const REACH_TIMEOUT: Duration = Duration::from_secs(3);
/// So often an agent is started again without having brought anything.
const TRIES: u32 = 3;
/// Between two attempts to start one again: doubled from the first to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(8));
/// How often it is looked whether the user has interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// Copies. An agent that ends before its time is started again: the new one goes on where it was.
pub fn run(plan: &Plan, host: &str, sending: bool, show: &Show) -> Result<Finished> {
    plan.warn(show);
    let stop = interrupt::stop_flag();
    let bind = bound(&plan.settings.bind.value)?;
    let mut far = Far::start(plan, host, sending, &bind, &stop).map_err(refused)?;
    let mut before = Before::default();
    let mut in_vain = 0;
    // What has been read of a stream, or written to one, is not there any more.
    let streams = plan.source.stream || plan.sink.stream;
    loop {
        let (mut finished, gone) = far.copy(plan, host, sending, show)?;
        before.add_to(&mut finished);
        in_vain = if finished.going.progress.moved > 0 { 0 } else { in_vain + 1 };
        if !gone || streams || in_vain >= TRIES || stop.load(Ordering::Relaxed) {
            return Ok(finished);
        }
        show.note(&format!("farhaul on {host} has ended before its time: starting it again"));
        before = Before::of(finished);
        show.begin_again();
        far = start_again(plan, host, sending, &bind, &stop)?;
    }
}

/// What agents or servers have done that are gone, and what their connections went through.
#[derive(Default)]
pub struct Before {
    summary: Summary,
    forged: u64,
    reconnects: u64,
}

impl Before {
    /// The last one's, to which that of those before has been added.
    pub fn of(finished: Finished) -> Self {
        let Finished { summary, going, .. } = finished;
        Before { summary, forged: going.forged, reconnects: going.reconnects }
    }

    /// Adds it to what came of the next one.
    pub fn add_to(&self, finished: &mut Finished) {
        add(&mut finished.summary, &self.summary);
        finished.going.forged += self.forged;
        finished.going.reconnects += self.reconnects;
    }
}

fn add(summary: &mut Summary, before: &Summary) {
    summary.moved_files += before.moved_files;
    summary.moved_bytes += before.moved_bytes;
    summary.deleted += before.deleted;
    summary.data_bytes += before.data_bytes;
    summary.same_files = summary.same_files.saturating_sub(before.moved_files);
    summary.compared_files = summary.compared_files.min(summary.same_files);
    // What they had brought of a file in part was not there before this command.
    let own = summary.resumed_bytes.min(before.part_bytes);
    summary.moved_bytes += own;
    summary.resumed_bytes = summary.resumed_bytes - own + before.resumed_bytes;
    summary.part_bytes += before.part_bytes - own;
}

/// Starts another agent, as long as an outage may take.
fn start_again(
    plan: &Plan,
    host: &str,
    sending: bool,
    bind: &[IpAddr],
    stop: &Stop,
) -> Result<Far> {
    let until = Instant::now() + plan.settings.outage.value;
    let mut pause = PAUSE.0;
    loop {
        match Far::start(plan, host, sending, bind, stop) {
            Ok(far) => return Ok(far),
            Err(SshError::Failed(_) | SshError::NoGreeting { .. }) if Instant::now() < until => {}
            Err(error) => return Err(refused(error)),
        }
        let next = (Instant::now() + pause).min(until);
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// The far side, as far as this one knows it.
struct Far {
    remote: Remote,
    session: [u8; 16],
    dialing: Arc<Dialing>,
    /// Ends dialing.
    stop: Arc<AtomicBool>,
    ended: Option<LastWord>,
    /// There is no ssh any more.
    closed: bool,
    /// Since when there has been neither ssh nor a connection.
    alone: Option<Instant>,
    given_up: bool,
}

impl Far {
    fn start(
        plan: &Plan,
        host: &str,
        sending: bool,
        bind: &[IpAddr],
        stop: &AtomicBool,
    ) -> Result<Self, SshError> {
        let internal = |why: String| SshError::Agent { host: host.to_owned(), code: 1, text: why };
        // While ssh connects.
        let _ = thread::Builder::new().name("farhaul-random".into()).spawn(farhaul_secure::prepare);
        let (identity, secret, session) = fresh().map_err(|error| internal(error.to_string()))?;
        let job = match sending {
            true => Job::Sink(plan.sink.clone()),
            false => Job::Source(plan.source.clone()),
        };
        let task = serde_json::to_value(Task::Copy(Box::new(plan.order(job, false))));
        let task = task.map_err(|error| internal(error.to_string()))?;
        let mut hello = Hello::new(Some(identity.public_key()), secret, session, task);
        hello.plain = plan.terms.plain;
        hello.transport = plan.transport();
        let command = SshCommand::parse(&plan.settings.ssh.value)?;
        let listen = Listen {
            udp: hello.transport != Transport::Tcp,
            tcp: hello.transport != Transport::Udp,
            plain: hello.plain,
            ports: plan.settings.listen_ports.value.map(|ports| (ports.first, ports.last)),
            wire: plan.terms.wire(),
        };
        let listen = serde_json::to_string(&listen).map_err(|error| internal(error.to_string()))?;
        let arguments = ["--listen".to_owned(), listen];
        let how = (&*plan.settings.remote_farhaul.value, &arguments[..]);
        let mut remote = Remote::start_early(&command, host, how, &hello, stop)?;
        let key = remote.greeting().key.ok_or_else(|| internal("it has no key".into()))?;
        let terms = LinkTerms {
            identity,
            trust: Trust::Only(key),
            context: hello.context(),
            plain: plan.terms.plain,
        };
        let (udp, tcp) = remote.candidates();
        let mut config = DialConfig::new(udp, tcp, terms);
        config.transport = plan.transport();
        config.bind = bind.to_vec();
        let options = plan.terms.transport().map_err(internal)?;
        config.options = options.invitation(remote.greeting().invitation);
        // ssh has told both sides of each other.
        config.eager = true;
        let given_up = Arc::new(AtomicBool::new(false));
        let most_window = plan.terms.most_window();
        let dialing = Dialing::new(Dialer::new(config), Arc::clone(&given_up), most_window);
        let dialing = Arc::new(dialing);
        // The control channel and the first lanes, while the far side looks at what it is to do.
        dialing.make_ahead(1 + plan.terms.lanes);
        if let Err(error) = remote.answer(stop) {
            given_up.store(true, Ordering::Relaxed);
            return Err(error);
        }
        let session = hello.session.0;
        let (ended, closed, alone, stop) = (None, false, None, given_up);
        Ok(Far { remote, session, dialing, stop, ended, closed, alone, given_up: false })
    }

    /// Does this side's part; whether the far side has ended before its time.
    fn copy(
        mut self,
        plan: &Plan,
        host: &str,
        sending: bool,
        show: &Show,
    ) -> Result<(Finished, bool)> {
        let cancel = Cancel::default();
        let stop = Arc::clone(&self.stop);
        let _registered = cancel_on_interrupt(&cancel, Some(&stop));
        let dialing = Arc::clone(&self.dialing);
        let ours = match sending {
            true => Job::Source(plan.source.clone()),
            false => Job::Sink(plan.sink.clone()),
        };
        let mut path = None;
        let mut finished = side::run(
            &ours,
            &plan.terms,
            Links::Dial(&*dialing),
            Surroundings {
                session: self.session,
                cancel,
                observe: &|event| show.event(&event),
                show: &mut |going| {
                    if going.path != path {
                        say_way(plan, show, path.as_deref(), going);
                        path.clone_from(&going.path);
                    }
                    show.progress(&progress_line(going));
                    self.heed(going, host, &stop)
                },
                service: None,
            },
        );
        if finished.result.is_err() {
            // It may wait for connections. If it has gone, it needs no word.
            let _ = self.remote.sender().send(&Command::Stop);
        }
        // The far side's own word, if it has one: it knows why it could not go on.
        if finished.result.is_err() || !sending {
            self.wait_end();
        }
        let gone = self.closed
            && self.ended.is_none()
            && match &finished.result {
                Err(TransferError::Lost { .. }) => true,
                Err(TransferError::Unreachable(error)) => {
                    error.kind() != ErrorKind::PermissionDenied
                }
                _ => false,
            };
        if let Err(TransferError::Unreachable(error)) = &mut finished.result
            && error.kind() == ErrorKind::TimedOut
            && !gone
        {
            *error = io::Error::new(ErrorKind::TimedOut, self.with_ports(error, host));
        }
        if let Some((summary, error)) = self.ended.take() {
            // Whether there was nobody, or somebody else, to connect to, or the far side gave up.
            let unreached = match &finished.result {
                Err(error @ TransferError::Unreachable(_)) => error.exit_code() != 3,
                Err(TransferError::Lost { .. } | TransferError::Remote { .. }) => true,
                _ => false,
            };
            // One that was told to stop knows no more than that.
            if unreached
                && let Some((code, text)) = error
                && code != INTERRUPTED
            {
                let text = format!("{host}: {text}");
                finished.result = Err(TransferError::Told { code, text });
            }
            if !sending {
                // The source knows what was moved and what was there; failures it words from its side.
                let failures = std::mem::take(&mut finished.summary.failures);
                finished.summary = Summary { failures, ..summary };
            }
        }
        self.remote.close(END);
        Ok((finished, gone))
    }

    /// What to do about a peer that does not answer.
    fn with_ports(&self, error: &io::Error, host: &str) -> String {
        let greeting = self.remote.greeting();
        let ports = [("UDP", greeting.udp_port), ("TCP", greeting.tcp_port)];
        let ports =
            ports.into_iter().filter_map(|(kind, port)| Some(format!("{kind} port {}", port?)));
        let ports: Vec<String> = ports.collect();
        format!(
            "{error}. This time {host} listened at {}: let one of them pass there, or name ports that \
             pass with --listen-ports FIRST-LAST",
            ports.join(" and ")
        )
    }

    /// Hears what it has to say; what follows from that.
    fn heed(&mut self, going: &Going, host: &str, stop: &AtomicBool) -> Wish {
        let before = self.closed;
        self.look();
        let failed = match &self.ended {
            Some((_, error)) if going.cut_off => error.clone(),
            _ => None,
        };
        if self.given_up || failed.is_some() {
            // There is nobody to connect to. Whoever still dials need not.
            stop.store(true, Ordering::Relaxed);
        }
        if let Some((code, text)) = failed {
            return Wish::End(TransferError::Told { code, text: format!("{host}: {text}") });
        }
        if !self.closed || self.ended.is_some() || self.given_up {
            return Wish::None;
        }
        if !before {
            // If only ssh has gone, there are connections again at once.
            return Wish::Reconnect;
        }
        if !going.cut_off {
            self.alone = None;
            return Wish::None;
        }
        if self.alone.get_or_insert_with(Instant::now).elapsed() < REACH_TIMEOUT {
            return Wish::None;
        }
        self.given_up = true;
        let why = format!("farhaul on {host} has ended before its time");
        Wish::End(TransferError::Lost { after: REACH_TIMEOUT, why })
    }

    fn look(&mut self) {
        loop {
            match self.remote.received().try_recv() {
                Ok(received) => self.take(received),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.closed = true;
                    return;
                }
            }
        }
    }

    fn take(&mut self, received: Received) {
        match received {
            Received::Message(value) => {
                if let Ok(Told::End { summary, error, .. }) = serde_json::from_value(value) {
                    self.ended = Some((*summary, error));
                }
            }
            Received::Closed(_) => self.closed = true,
        }
    }

    /// Waits a moment for its last word.
    fn wait_end(&mut self) {
        let deadline = Instant::now() + END;
        while self.ended.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.remote.received().recv_timeout(left) {
                Ok(received) => self.take(received),
                Err(_) => return,
            }
        }
    }
}

/// Tells which way data goes, where that is not the one hoped for.
pub fn say_way(plan: &Plan, show: &Show, before: Option<&str>, going: &Going) {
    let Some(now) = &going.path else { return };
    if going.tcp_is_better {
        return; // which has been told
    }
    let (tcp, was_tcp) = (is_tcp(now), before.is_some_and(is_tcp));
    if tcp && !was_tcp && plan.transport() == Transport::Auto {
        show.note(&format!("UDP does not pass: going on over {now}"));
    } else if !tcp && was_tcp {
        show.note(&format!("UDP passes again: going on over {now}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An earlier command has left 10 bytes of a file of 100; the first agent brings 30, the second 20, and both
    /// are killed; the third brings the rest.
    #[test]
    fn what_agents_of_this_command_have_brought_is_not_resumed() {
        let first = Summary { data_bytes: 30, part_bytes: 30, ..Summary::default() };
        let mut second = Summary { data_bytes: 20, part_bytes: 20, ..Summary::default() };
        add(&mut second, &first);
        let mut third = Summary {
            moved_files: 1,
            moved_bytes: 40,
            resumed_bytes: 60,
            data_bytes: 40,
            ..Summary::default()
        };
        add(&mut third, &second);
        let bytes = (third.moved_bytes, third.resumed_bytes, third.data_bytes, third.part_bytes);
        assert_eq!(bytes, (90, 10, 90, 0));
        // A file that an agent has ended counts once, whatever it had been taken up from.
        let ended = Summary { moved_files: 1, moved_bytes: 5, resumed_bytes: 7, ..first.clone() };
        let mut again = Summary { same_files: 1, ..Summary::default() };
        add(&mut again, &ended);
        assert_eq!((again.same_files, again.moved_files, again.resumed_bytes), (0, 1, 7));
    }
}
