//! Child processes under a watchdog.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A process lives no longer than this.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A process that is killed when the handle goes or its time is over.
pub struct Process {
    name: String,
    child: Arc<Mutex<Child>>,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    lines: Lines,
    errors: Lines,
    overdue: Arc<AtomicBool>,
    _watchdog: mpsc::Sender<()>,
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    /// Standard output, if it was taken as lines.
    pub lines: Vec<String>,
    /// Standard error.
    pub errors: Vec<String>,
}

impl Process {
    /// Starts `farhaul` with pipes to its standard input and output.
    pub fn farhaul(args: &[&str]) -> Process {
        Self::farhaul_within(args, LIMIT)
    }

    pub fn farhaul_within(args: &[&str], limit: Duration) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        command.args(args).stdin(Stdio::piped());
        let name = format!("farhaul {}", args.join(" "));
        Self::start(command, name, limit, false)
    }

    /// Starts `command` without input; its output is taken as lines.
    pub fn with_lines(command: Command, name: String, limit: Duration) -> Process {
        Self::start(command, name, limit, true)
    }

    fn start(mut command: Command, name: String, limit: Duration, by_line: bool) -> Process {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take();
        let errors = Lines::collect(child.stderr.take().expect("a pipe was asked for"));
        let lines = match by_line {
            true => Lines::collect(stdout.take().expect("a pipe was asked for")),
            false => Lines::default(),
        };
        let child = Arc::new(Mutex::new(child));
        let overdue = Arc::new(AtomicBool::new(false));
        let (watchdog, ended) = mpsc::channel::<()>();
        thread::spawn({
            let (child, overdue) = (Arc::clone(&child), Arc::clone(&overdue));
            move || {
                if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                    overdue.store(true, Ordering::Relaxed);
                    kill(&child);
                }
            }
        });
        Process { name, child, stdin, stdout, lines, errors, overdue, _watchdog: watchdog }
    }

    /// The pipe to its standard input. Dropping it is the end of the input.
    pub fn stdin(&mut self) -> ChildStdin {
        self.stdin.take().expect("standard input is taken once")
    }

    /// The pipe from its standard output.
    pub fn stdout(&mut self) -> ChildStdout {
        self.stdout.take().expect("standard output is taken once")
    }

    /// Waits for a line on standard error that contains `text`.
    pub fn wait_error_line(&self, text: &str) -> String {
        self.errors.wait_for(text).unwrap_or_else(|| self.fail(&format!("did not say '{text}'")))
    }

    /// Waits for a line on standard output that contains `text`.
    pub fn wait_line(&self, text: &str) -> String {
        self.lines.wait_for(text).unwrap_or_else(|| self.fail(&format!("did not say '{text}'")))
    }

    /// Waits for a line on standard output of which `wanted` holds.
    pub fn wait_line_that(&self, wanted: impl Fn(&str) -> bool) -> String {
        self.lines.wait_that(wanted).unwrap_or_else(|| self.fail("did not say what is waited for"))
    }

    /// Waits until it listens and says where.
    pub fn listening_at(&self) -> SocketAddr {
        let line = self.wait_error_line("listening at ");
        let (_, addr) = line.split_once("listening at ").expect("it was just found");
        // `recv` also says where it writes to.
        let addr = addr.split(',').next().unwrap_or(addr);
        addr.parse().unwrap_or_else(|_| self.fail("did not print an address"))
    }

    /// Waits for its end. What is left of the pipes is closed or read to its end.
    pub fn finish(mut self) -> Ended {
        drop(self.stdin.take());
        let rest = self.stdout.take().map(|mut stdout| {
            let mut rest = Vec::new();
            stdout.read_to_end(&mut rest).expect("a pipe can be read");
            rest
        });
        self.end(rest)
    }

    /// Waits for its end with the input, if nobody took it, still open.
    pub fn finish_with_open_input(mut self) -> Ended {
        let input = self.stdin.take();
        let ended = self.end(None);
        drop(input);
        ended
    }

    fn end(&mut self, rest: Option<Vec<u8>>) -> Ended {
        let mut lines = self.lines.to_end();
        let errors = self.errors.to_end();
        let rest = rest.unwrap_or_default();
        lines.extend(String::from_utf8_lossy(&rest).lines().map(str::to_owned));
        // Its pipes are closed, so this is short.
        let code =
            self.child.lock().expect("nobody panics with it").wait().expect("its end").code();
        if self.overdue.load(Ordering::Relaxed) {
            self.fail("took too long");
        }
        Ended { code, lines, errors }
    }

    /// Waits for its end and fails unless the exit code is 0.
    pub fn finish_well(self) -> Ended {
        let name = self.name.clone();
        let ended = self.finish();
        assert_eq!(ended.code, Some(0), "{name}: {ended:#?}");
        ended
    }

    /// Waits for its end and returns what it wrote to standard output as it is. Fails unless the
    /// exit code is 0.
    pub fn finish_with_output(mut self) -> Vec<u8> {
        let mut output = Vec::new();
        self.stdout().read_to_end(&mut output).expect("a pipe can be read");
        self.finish_well();
        output
    }

    fn fail(&self, what: &str) -> ! {
        kill(&self.child);
        panic!(
            "{} {what}\nstandard output: {:#?}\nstandard error: {:#?}",
            self.name,
            self.lines.to_end(),
            self.errors.to_end()
        );
    }

    /// Does what Ctrl-C does.
    pub fn interrupt(&self) {
        let kill = Command::new("kill").args(["-INT", &self.id().to_string()]).status();
        assert!(kill.expect("kill can be started").success());
    }

    /// The system's number of it.
    pub fn id(&self) -> u32 {
        self.child.lock().expect("nobody panics with it").id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        kill(&self.child);
        // Or it stays in the system's table.
        self.child.lock().map(|mut child| child.wait().ok()).ok();
    }
}

fn kill(child: &Mutex<Child>) {
    // It may have ended by itself.
    child.lock().map(|mut child| child.kill().ok()).ok();
}

impl Ended {
    /// Fails unless the exit code is 0, or the peer's only word of its end was lost: a stock peer
    /// says once that it closes, so where a path loses packets farhaul may have to find out by the
    /// silence.
    pub fn expect_end_by_stock(&self, lossy: bool) {
        let silence = |line: &String| line.contains("nothing has come from the peer");
        let found_out = lossy && self.code == Some(1) && self.errors.iter().any(silence);
        assert!(self.code == Some(0) || found_out, "{self:#?}");
    }

    /// Standard output as one JSON document.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.lines.join("\n"))
            .unwrap_or_else(|error| panic!("no JSON document ({error}): {self:#?}"))
    }

    /// The line of standard output that starts with `word`, without it.
    pub fn line(&self, word: &str) -> &str {
        let found = self.lines.iter().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no line '{word} …' in {self:#?}"))
    }
}

/// Lines as they come from a pipe.
#[derive(Clone, Default)]
struct Lines {
    shared: Arc<(Mutex<Log>, Condvar)>,
}

#[derive(Default)]
struct Log {
    lines: Vec<String>,
    open: bool,
}

impl Lines {
    fn collect(from: impl Read + Send + 'static) -> Self {
        let lines = Lines::default();
        lines.shared.0.lock().expect("nobody panics with it").open = true;
        let shared = Arc::clone(&lines.shared);
        thread::spawn(move || {
            let mut reader = BufReader::new(from);
            loop {
                let mut line = Vec::new();
                let len = reader.read_until(b'\n', &mut line).unwrap_or(0);
                let (mutex, condvar) = &*shared;
                let mut log = mutex.lock().expect("nobody panics with it");
                if len == 0 {
                    log.open = false;
                } else {
                    log.lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
                }
                condvar.notify_all();
                if len == 0 {
                    return;
                }
            }
        });
        lines
    }

    fn wait_for(&self, text: &str) -> Option<String> {
        self.wait_that(|line| line.contains(text))
    }

    fn wait_that(&self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let (mutex, condvar) = &*self.shared;
        let found = |log: &Log| log.lines.iter().find(|line| wanted(line)).cloned();
        let log = mutex.lock().expect("nobody panics with it");
        let log = condvar.wait_while(log, |log| log.open && found(log).is_none());
        found(&log.expect("as before"))
    }

    fn to_end(&self) -> Vec<String> {
        let (mutex, condvar) = &*self.shared;
        let log = mutex.lock().expect("nobody panics with it");
        condvar.wait_while(log, |log| log.open).expect("as before").lines.clone()
    }
}

/// A number that the kernel tells of a process, as `Threads`.
pub fn status(process: &Process, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", process.id())).expect("it runs");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = value.and_then(|value| value.split_whitespace().next());
    number.expect("it is told").parse().expect("a number")
}

/// Waits until `is` holds.
pub fn wait(what: &str, most: Duration, is: impl Fn() -> bool) {
    let deadline = Instant::now() + most;
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}
