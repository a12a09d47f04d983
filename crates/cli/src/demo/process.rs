//! Processes of this same program.

use std::ffi::OsStr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::stop::Stop;
use crate::exit::Failed;

/// How often a process that is waited for is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A running process, killed when this value goes.
#[derive(Debug)]
pub struct Process {
    /// What it is called in messages.
    name: &'static str,
    pub child: Child,
}

/// A command that runs this program, with nothing to read.
pub fn this_program<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Result<Command> {
    let program = std::env::current_exe().context("this program's own file is not known")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    Ok(command)
}

impl Process {
    /// Starts `command`.
    pub fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        Ok(Process { name, child })
    }

    /// Whether it has ended well.
    ///
    /// # Errors
    /// If it has failed, with its own exit code.
    pub fn has_ended(&mut self) -> Result<bool> {
        match self.child.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(self.failure(status)),
        }
    }

    /// Waits for a good end.
    ///
    /// # Errors
    /// If it has failed, or has not ended after `patience`, or `stop` is set.
    pub fn wait(&mut self, patience: Duration, stop: &Stop) -> Result<()> {
        let deadline = Instant::now() + patience;
        while !self.has_ended()? {
            stop.check()?;
            if Instant::now() >= deadline {
                anyhow::bail!("{} does not end", self.name);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn failure(&self, status: ExitStatus) -> anyhow::Error {
        let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        Failed { code, message: format!("{} has failed ({status})", self.name) }.into()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
