//! Programs of the machine, and farhaul under observation.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Longer than any of these copies takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Runs a program to its end; an error tells what it printed.
pub fn program(name: &str, args: &[&str]) -> io::Result<String> {
    let mut command = Command::new(name);
    // sbin is not in the path of users.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).args(args).stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{name} {}: {}: {}",
        args.join(" "),
        output.status,
        errors.trim()
    )))
}

/// The same where it does not matter how it ends.
pub fn quietly(name: &str, args: &[&str]) -> bool {
    program(name, args).is_ok()
}

/// A system call that fails, or a signal with it: `strace`'s words for it.
#[derive(Clone, Debug)]
pub struct Injection {
    /// Names of system calls, separated by commas.
    pub calls: String,
    /// `error=EIO`, `signal=KILL`, …
    pub what: String,
    /// The first call that it happens to, counted from 1 in each thread.
    pub first: u64,
    /// Whether to the later ones as well.
    pub on: bool,
}

/// `farhaul cp`, to be started.
#[derive(Clone, Debug)]
pub struct Copy {
    /// The program.
    pub farhaul: PathBuf,
    /// Where it finds its settings and keys: an empty directory.
    pub home: PathBuf,
    /// Arguments after `cp -q`.
    pub args: Vec<String>,
    /// What strace does to it.
    pub injection: Option<Injection>,
}

/// How a copy ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit code, and these words on standard error.
    Exit(i32, String),
    /// By a signal: that of the test, unless the injection sent one.
    Killed,
    /// It did not end in time.
    Overdue,
}

impl End {
    /// Whether everything is said to be done.
    pub fn is_done(&self) -> bool {
        matches!(self, End::Exit(0, _))
    }
}

/// A copy under way. Dropped, it is killed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    errors: PathBuf,
    ended: bool,
}

impl Copy {
    /// Starts it.
    pub fn start(&self) -> io::Result<Running> {
        let mut command = match &self.injection {
            None => Command::new(&self.farhaul),
            Some(Injection { calls, what, first, on }) => {
                let mut command = Command::new("strace");
                let when = format!("{first}{}", if *on { "+" } else { "" });
                command
                    .args(["-f", "--seccomp-bpf", "-qqq", "-o"])
                    .arg(self.calls())
                    .args(["-e", &format!("trace={calls}"), "-e"])
                    .arg(format!("inject={calls}:{what}:when={when}"))
                    .arg(&self.farhaul);
                command
            }
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FARHAUL_") {
                command.env_remove(name);
            }
        }
        let errors = self.home.join("errors");
        command
            .args(["cp", "-q"])
            .args(&self.args)
            .env("XDG_CONFIG_HOME", &self.home)
            .env("HOME", &self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&errors)?)
            .process_group(0);
        Ok(Running { child: command.spawn()?, errors, ended: false })
    }

    /// Where strace writes which calls it has seen.
    fn calls(&self) -> PathBuf {
        self.home.join("calls")
    }

    /// Whether what was to happen to a call of the last run has happened to one.
    pub fn injected(&self) -> bool {
        std::fs::read_to_string(self.calls()).is_ok_and(|text| text.contains("(INJECTED)"))
    }

    /// Runs it to its end.
    pub fn run(&self) -> io::Result<End> {
        self.start()?.wait(LIMIT)
    }
}

impl Running {
    /// How it has ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<End>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        self.ended = true;
        let text = std::fs::read_to_string(&self.errors).unwrap_or_default();
        // A shell's way to tell of a signal, which strace has too.
        Ok(Some(match status.code() {
            Some(code) if code < 128 || code == 130 => End::Exit(code, text),
            _ => End::Killed,
        }))
    }

    /// Waits for the end, or kills it when `limit` is over.
    pub fn wait(self, limit: Duration) -> io::Result<End> {
        self.wait_or(limit, || false)
    }

    /// The same, or kills it as soon as `until` holds.
    pub fn wait_or(mut self, limit: Duration, mut until: impl FnMut() -> bool) -> io::Result<End> {
        let last = Instant::now() + limit;
        loop {
            if let Some(end) = self.ended()? {
                return Ok(end);
            }
            if until() {
                return Ok(End::Killed);
            }
            if Instant::now() >= last {
                return Ok(End::Overdue);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // The group: strace and what it traces.
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        wait_for_group(self.child.id());
    }
}

/// Processes of the group may outlive strace by a moment and keep the volume busy.
fn wait_for_group(group: u32) {
    let Some(group) = Pid::from_raw(group.cast_signed()) else { return };
    let until = Instant::now() + Duration::from_secs(10);
    while rustix::process::test_kill_process_group(group).is_ok() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a program can be run here.
pub fn has(name: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin").split(':').any(|folder| Path::new(folder).join(name).exists())
}
