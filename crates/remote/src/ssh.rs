//! Starting farhaul on another host over ssh, and talking with it.

mod heard;

use std::io::{self, BufRead, BufReader, ErrorKind};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use self::heard::Heard;
use crate::bootstrap::{Answer, GREETING_PREFIX, Greeting, PROTOCOL, VERSION, other_version};
use crate::host::configured_hostname;
use crate::lines::{MAX_LINE, MAX_WAITING, Received, deliver, line, read_line, shown, write};
use crate::{lock, resolve};

/// How much a shell may say before farhaul does.
const MAX_NOISE: usize = 64 << 10;
const MAX_NOISE_LINES: usize = 1000;
/// How often it is looked whether to stop.
const LOOK: Duration = Duration::from_millis(50);
/// How long an ssh that has closed its output may take to end.
const END_TIME: Duration = Duration::from_secs(5);
/// With this ssh says that it failed by itself, and a shell that there is no such command, or that
/// it cannot be run.
const SSH_FAILED: i32 = 255;
const NO_COMMAND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// How other hosts are reached: a program and its first arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshCommand {
    words: Vec<String>,
}

impl Default for SshCommand {
    fn default() -> Self {
        SshCommand { words: vec!["ssh".into()] }
    }
}

impl SshCommand {
    /// Of a text that is split as a shell does, with quotes and backslashes: `ssh -p 2222`.
    ///
    /// # Errors
    ///
    /// [`SshError::Command`] if it is empty or a quote has no end.
    pub fn parse(text: &str) -> Result<SshCommand, SshError> {
        let words = shell_words::split(text).ok().filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| SshError::Command(text.to_owned()))?;
        Ok(SshCommand { words })
    }

    /// The program and its arguments.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Whether it is OpenSSH's, which knows `-T`, `-G` and `--`.
    pub fn is_ssh(&self) -> bool {
        Path::new(&self.words[0]).file_name().is_some_and(|name| name == "ssh")
    }

    /// The program that runs `remote agent` on `host`, with these arguments, if any. A host that ssh could take for an
    /// option must have been refused before.
    fn command(&self, host: &str, remote: &str, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        if self.is_ssh() {
            command.args(["-T", "--"]);
        }
        let mut there = format!("{} agent", quoted(remote));
        for argument in arguments {
            there.push(' ');
            there.push_str(&shell_words::quote(argument));
        }
        command.args([host, &there]);
        command
    }
}

/// `path` for the shell of the other host, which still finds its own home directory.
fn quoted(path: &str) -> String {
    match path.strip_prefix("~/") {
        Some(rest) => format!("~/{}", shell_words::quote(rest)),
        None => shell_words::quote(path).into_owned(),
    }
}

/// Why farhaul does not run on the other host.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// `--ssh` is no command.
    #[error("'{0}' is no command to reach other hosts with; write one as for a shell: ssh -p 2222")]
    Command(String),
    /// There is no such program here.
    #[error(
        "there is no program '{0}' on this host; install OpenSSH's client (openssh-client), or name \
         another program with --ssh"
    )]
    NotFound(String),
    /// The program cannot be started.
    #[error("cannot start '{program}': {source}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// ssh has said why on standard error.
    #[error("ssh could not run a command on {0}; its own message says why")]
    Failed(String),
    /// There is no farhaul there.
    #[error(
        "there is no '{remote}' on {host}: install farhaul there so that `ssh {host} farhaul \
         --version` works, or say where it is with --remote-farhaul PATH"
    )]
    NotInstalled {
        /// The other host.
        host: String,
        /// What was to be run there.
        remote: String,
    },
    /// What is there cannot be run.
    #[error(
        "'{remote}' on {host} cannot be executed: it needs the permission to, or is a program for \
         another kind of machine"
    )]
    NotExecutable {
        /// The other host.
        host: String,
        /// What was to be run there.
        remote: String,
    },
    /// Another version runs there.
    #[error("{0}")]
    Version(String),
    /// The agent cannot do what it is asked for.
    #[error("farhaul on {host}: {text}")]
    Agent {
        /// The other host.
        host: String,
        /// What it said.
        text: String,
        /// The exit code that this is worth.
        code: u8,
    },
    /// Something else has answered, or nothing.
    #[error("farhaul on {host} did not begin ({end}){}", noise_text(.noise))]
    NoGreeting {
        /// The other host.
        host: String,
        /// How the command ended.
        end: String,
        /// The first line that came instead, fit to be shown.
        noise: Option<String>,
    },
    /// The first message is too long.
    #[error("{0}")]
    Message(io::Error),
    /// The caller has stopped it.
    #[error("interrupted while ssh connected to {0}")]
    Interrupted(String),
}

fn noise_text(noise: &Option<String>) -> String {
    noise.as_ref().map_or(String::new(), |line| {
        format!(": what came instead begins with '{line}'; a login script there may be in the way")
    })
}

/// farhaul on another host. Dropping it ends the ssh it runs over.
#[derive(Debug)]
pub struct Remote {
    host: String,
    /// Where ssh's configuration says that the host is: being found out.
    configured: Arc<OnceLock<Option<String>>>,
    greeting: Greeting,
    child: Ending,
    sender: RemoteSender,
    received: Receiver<Received>,
}

/// Writes to the agent, from any thread.
#[derive(Clone, Debug)]
pub struct RemoteSender(Arc<Mutex<Option<ChildStdin>>>);

/// A child that ends with its owner, when all has been shown that it had to say.
#[derive(Debug)]
struct Ending {
    child: Child,
    /// Its standard error.
    heard: Option<Heard>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Neither fails for a child that is there, and one that is not needs neither.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.hear_out();
    }
}

impl Ending {
    fn hear_out(&mut self) {
        if let Some(heard) = self.heard.take() {
            heard.wait();
        }
    }

    /// How it ended; none if it has not within `time`.
    fn wait(&mut self, time: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + time;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    self.hear_out();
                    return Some(status);
                }
                Ok(None) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(5));
                }
                _ => return None,
            }
        }
    }
}

/// What came before the agent's messages.
enum Beginning {
    Greeting(String),
    /// The first line of what is no greeting, if anything came; whether more did than a shell says.
    Noise {
        first: Option<String>,
        too_much: bool,
    },
}

impl Remote {
    /// Runs `remote agent` on `host`, sends it `hello` as its first line, and waits for its
    /// greeting: as long as it takes, for a user may have to type a password, or until `stop` is
    /// set.
    ///
    /// # Errors
    ///
    /// See [`SshError`]; what ssh itself has to say is on standard error before.
    pub fn start(
        command: &SshCommand,
        host: &str,
        remote: &str,
        hello: &impl Serialize,
        stop: &AtomicBool,
    ) -> Result<Remote, SshError> {
        Self::start_saying(command, host, (remote, &[]), hello, stop, io::stderr())
    }

    /// Runs `remote agent` with arguments that tell how to listen, which anybody there can read. It greets before it has read `hello`, which
    /// it answers later: [`Remote::answer`].
    ///
    /// # Errors
    ///
    /// As of [`Remote::start`].
    pub fn start_early(
        command: &SshCommand,
        host: &str,
        (remote, arguments): (&str, &[String]),
        hello: &impl Serialize,
        stop: &AtomicBool,
    ) -> Result<Remote, SshError> {
        Self::start_saying(command, host, (remote, arguments), hello, stop, io::stderr())
    }

    /// Waits for what an agent that has greeted early makes of the `hello`.
    ///
    /// # Errors
    ///
    /// It cannot serve, or has ended.
    pub fn answer(&mut self, stop: &AtomicBool) -> Result<(), SshError> {
        let host = self.host.clone();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(SshError::Interrupted(host));
            }
            let message = match self.received.recv_timeout(LOOK) {
                Ok(Received::Message(message)) => message,
                Err(RecvTimeoutError::Timeout) => continue,
                Ok(Received::Closed(_)) | Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait(END_TIME);
                    return Err(no_greeting(&host, "farhaul", status, None));
                }
            };
            return match serde_json::from_value(message) {
                Ok(Answer::Ready) => Ok(()),
                Ok(Answer::Refused { text, code }) => {
                    Err(SshError::Agent { host, text: shown(&text), code: code.max(1) })
                }
                Err(error) => {
                    let (end, noise) = ("its answer is garbled".into(), Some(error.to_string()));
                    Err(SshError::NoGreeting { host, end, noise })
                }
            };
        }
    }

    /// What ssh has to say goes `to` there.
    fn start_saying(
        command: &SshCommand,
        host: &str,
        (remote, arguments): (&str, &[String]),
        hello: &impl Serialize,
        stop: &AtomicBool,
        to: impl io::Write + Send + 'static,
    ) -> Result<Remote, SshError> {
        let program = &command.words[0];
        let first = line("", hello).map_err(SshError::Message)?;
        let spawn_error = |source: io::Error| match source.kind() {
            ErrorKind::NotFound => SshError::NotFound(program.clone()),
            _ => SshError::Spawn { program: program.clone(), source },
        };
        let spawned = command
            .command(host, remote, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = Ending { child: spawned.map_err(spawn_error)?, heard: None };
        let said = child.child.stderr.take().expect("asked for");
        child.heard = Some(Heard::new(said, to).map_err(spawn_error)?);
        let (stdin, stdout) = (child.child.stdin.take(), child.child.stdout.take());
        let stdout = BufReader::new(stdout.expect("asked for"));
        let sender = RemoteSender(Arc::new(Mutex::new(stdin)));
        let (begun, beginning) = mpsc::channel();
        let (told, received) = mpsc::sync_channel(MAX_WAITING);
        let sent = sender.clone();
        // A long line waits until ssh has connected, which `stop` must not.
        spawn("farhaul-hello", move || drop(sent.write(&first))).map_err(spawn_error)?;
        spawn("farhaul-agent", move || receive(stdout, &begun, &told)).map_err(spawn_error)?;
        // While ssh connects, which takes longer.
        let configured = Arc::new(OnceLock::new());
        let (found, ssh, alias) = (Arc::clone(&configured), command.clone(), host.to_owned());
        let ask = move || drop(found.set(configured_hostname(&ssh, &alias)));
        spawn("farhaul-ssh-G", ask).map_err(spawn_error)?;
        let beginning = wait(&beginning, stop).ok_or(SshError::Interrupted(host.to_owned()))?;
        let greeting = match beginning {
            Beginning::Greeting(text) => greeting(&text, host)?,
            Beginning::Noise { first, too_much } => {
                sender.close();
                let status = if too_much { None } else { child.wait(END_TIME) };
                return Err(no_greeting(host, remote, status, first));
            }
        };
        let host = host.to_owned();
        Ok(Remote { host, configured, greeting, child, sender, received })
    }

    /// What the agent said first.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Messages of the agent in their order; the last is [`Received::Closed`]. After it, receiving
    /// fails.
    pub fn received(&self) -> &Receiver<Received> {
        &self.received
    }

    /// A way to write to the agent.
    pub fn sender(&self) -> RemoteSender {
        self.sender.clone()
    }

    /// Where the agent may be dialed over UDT and over TCP: where it wants to be; or else first where
    /// ssh finds it, then where it says to be itself.
    pub fn candidates(&self) -> (Vec<std::net::SocketAddr>, Vec<std::net::SocketAddr>) {
        if self.greeting.advertised.is_some() {
            return self.greeting.candidates(&[]);
        }
        let after_user = self.host.rsplit_once('@').map_or(&*self.host, |(_, host)| host);
        let configured = self.configured.wait();
        let name = configured.as_deref().unwrap_or(after_user);
        // A name that only ssh knows: the agent's own addresses are left.
        let found = resolve(name, 0).unwrap_or_default();
        let known: Vec<IpAddr> = found.iter().map(|addr| addr.ip()).collect();
        self.greeting.candidates(&known)
    }

    /// How ssh ended, if it has.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.wait(Duration::ZERO)
    }

    /// Tells the agent by the end of its input that this was all, and waits at most `time` until it
    /// has ended; what is still there then is killed. None if it had to be.
    pub fn close(mut self, time: Duration) -> Option<ExitStatus> {
        self.sender.close();
        let deadline = Instant::now() + time;
        // An agent that has much to say ends only when somebody listens.
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.received.recv_timeout(left) {
                Ok(Received::Message(_)) => {}
                _ => return self.child.wait(deadline.saturating_duration_since(Instant::now())),
            }
        }
    }
}

impl RemoteSender {
    /// Writes a message in one line.
    ///
    /// # Errors
    ///
    /// The agent, or the ssh in between, is gone; or the message is longer than 1 MiB.
    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        self.write(&line("", message)?)
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        match &mut *lock(&self.0) {
            Some(stdin) => write(stdin, line),
            None => Err(io::Error::new(ErrorKind::NotConnected, "the agent's input is closed")),
        }
    }

    /// Lets the agent read the end.
    fn close(&self) {
        // Who still writes does so to an agent that does not read, and ends with it.
        if let Ok(mut stdin) = self.0.try_lock() {
            stdin.take();
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// None if it was stopped.
fn wait(beginning: &Receiver<Beginning>, stop: &AtomicBool) -> Option<Beginning> {
    loop {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        match beginning.recv_timeout(LOOK) {
            Ok(beginning) => return Some(beginning),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Some(Beginning::Noise { first: None, too_much: false });
            }
        }
    }
}

fn receive(mut stdout: impl BufRead, begun: &Sender<Beginning>, told: &SyncSender<Received>) {
    let beginning = begin(&mut stdout);
    let greeted = matches!(beginning, Beginning::Greeting(_));
    if begun.send(beginning).is_ok() && greeted {
        deliver(stdout, told);
    }
}

/// What [`Remote::start`] makes of an agent's output, for fuzzing.
#[doc(hidden)]
pub fn look_for_greeting(stdout: &mut impl BufRead, host: &str) -> Result<Greeting, SshError> {
    match begin(stdout) {
        Beginning::Greeting(text) => greeting(&text, host),
        Beginning::Noise { first, .. } => Err(no_greeting(host, "farhaul", None, first)),
    }
}

/// Passes over what a shell says. The first line, if something echoes it, is not shown again.
fn begin(stdout: &mut impl BufRead) -> Beginning {
    let (mut first, mut count) = (None, 0);
    for _ in 0..MAX_NOISE_LINES {
        let Ok(Some(line)) = read_line(stdout, MAX_LINE) else {
            return Beginning::Noise { first, too_much: false };
        };
        let text = String::from_utf8_lossy(&line);
        if let Some(greeting) = text.strip_prefix(GREETING_PREFIX) {
            return Beginning::Greeting(greeting.to_owned());
        }
        count += line.len() + 1;
        if count > MAX_NOISE {
            break;
        }
        let text = shown(&text);
        if first.is_none() && !text.is_empty() && !may_be_secret(&text) {
            first = Some(text);
        }
    }
    Beginning::Noise { first, too_much: true }
}

/// Whether `text` may be a part of a secret that something there has echoed: a long hexadecimal number.
fn may_be_secret(text: &str) -> bool {
    const LONG: usize = 12;
    text.as_bytes().split(|byte| !byte.is_ascii_hexdigit()).any(|run| run.len() >= LONG)
}

fn greeting(text: &str, host: &str) -> Result<Greeting, SshError> {
    /// What every version has in its greeting.
    #[derive(serde::Deserialize)]
    struct Versions {
        version: String,
        protocol: u32,
    }
    let garbled = || SshError::NoGreeting {
        host: host.to_owned(),
        end: "its greeting is garbled".into(),
        noise: Some(shown(text)),
    };
    let Versions { version, protocol } = serde_json::from_str(text).map_err(|_| garbled())?;
    if protocol != PROTOCOL {
        return Err(SshError::Version(other_version(host, &version, protocol, VERSION, PROTOCOL)));
    }
    let greeting: Greeting = serde_json::from_str(text).map_err(|_| garbled())?;
    match &greeting.error {
        Some(text) => {
            let (host, code) = (host.to_owned(), greeting.code.unwrap_or(1).max(1));
            Err(SshError::Agent { host, text: shown(text), code })
        }
        None => Ok(greeting),
    }
}

/// What the end of a command without a greeting means.
fn no_greeting(
    host: &str,
    remote: &str,
    status: Option<ExitStatus>,
    noise: Option<String>,
) -> SshError {
    let (host, remote) = (host.to_owned(), remote.to_owned());
    match status.and_then(|status| status.code()) {
        Some(SSH_FAILED) => SshError::Failed(host),
        Some(NO_COMMAND) => SshError::NotInstalled { host, remote },
        Some(NOT_EXECUTABLE) => SshError::NotExecutable { host, remote },
        code => {
            let end = match (status, code) {
                (_, Some(2)) => {
                    "exit 2: an older version there does not know `agent`, or how it is called"
                        .into()
                }
                (_, Some(code)) => format!("exit {code}"),
                (Some(status), None) => status.to_string(),
                (None, None) => "it says other things and goes on".into(),
            };
            SshError::NoGreeting { host, end, noise }
        }
    }
}

#[cfg(test)]
mod tests;
