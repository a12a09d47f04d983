//! Processes at the hosts of an emulated network, which end with it.

use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use farhaul_base::names::suggestion;
use farhaul_wan::tun::{self, MARK, Namespace, NetworkStats, Parameter, TunNetwork, addresses};

use super::counters::Names;
use super::ports::listens;
use crate::exit::{Failed, Usage, interrupted};
use crate::interrupt::{Registered, Stop, before_exit};

/// As `env`, `nice` and `timeout` have it: what is wrong is not the command.
const NO_PATH: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
/// How often it is looked whether the user has interrupted, or a service has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Processes that are asked to end are killed after this time.
pub const END_WITHIN: Duration = Duration::from_secs(2);
/// How long services may take until they listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);

/// A network with processes at its hosts.
pub struct Site {
    network: TunNetwork,
    names: Names,
    /// What marks the processes of each host as this network's.
    marks: Vec<String>,
    /// Held while a process is started: none is once an interruption ends the process.
    starting: Arc<Mutex<()>>,
    /// Ends the processes where an interruption leaves no time to ask them.
    _cleanup: Registered,
}

/// What was started at a host beside the command.
pub struct Service {
    /// As it was given: `--far 'COMMAND'`.
    given: String,
    child: Child,
    /// Whether it was told that it has ended.
    told: bool,
}

impl Site {
    pub fn new(network: TunNetwork, names: Names) -> io::Result<Site> {
        let marks = network.hosts().iter().map(tun::mark).collect::<io::Result<_>>()?;
        let hosts = network.hosts().iter().map(Namespace::try_clone);
        let hosts = hosts.collect::<io::Result<Vec<_>>>()?;
        let starting: Arc<Mutex<()>> = Arc::default();
        let started = Arc::clone(&starting);
        let cleanup = before_exit(move || {
            std::mem::forget(started.lock().unwrap_or_else(PoisonError::into_inner));
            for host in &hosts {
                // There is nothing to be done about one that does not end, and no time.
                let _ = host.end_processes(Duration::ZERO);
            }
        });
        Ok(Site { network, names, marks, starting, _cleanup: cleanup })
    }

    /// The host's number.
    pub fn host(&self, name: &str) -> Result<usize> {
        let known = self.names.hosts.iter().map(String::as_str);
        let found = known.clone().position(|known| known == name);
        found.ok_or_else(|| {
            Usage(format!("there is no host '{name}'; {}", suggestion(name, known))).into()
        })
    }

    /// Sets a parameter of the kernel at all hosts.
    pub fn set_parameter(&self, parameter: &Parameter) -> Result<()> {
        for host in self.network.hosts() {
            host.set_parameter(parameter).map_err(|why| Failed {
                code: NO_PATH,
                message: format!("--sysctl {parameter}: {why}"),
            })?;
        }
        Ok(())
    }

    /// A command with the hosts' addresses in its environment.
    fn command(&self, host: usize, program: &OsStr) -> Command {
        let mut command = Command::new(program);
        command.env("FARHAUL_NODE", &self.names.hosts[host]).env(MARK, &self.marks[host]);
        let mut address = |name: &str, address: IpAddr| {
            command.env(name, address.to_string());
        };
        for (number, name) in self.names.hosts.iter().enumerate() {
            let (v4, v6) = addresses(number);
            // `FARHAUL_FAR` on the path of a near and a far host.
            let at = if self.names.path { "" } else { "AT_" };
            let variable = format!("FARHAUL_{at}{}", variable(name));
            address(&variable, v4.into());
            address(&format!("{variable}6"), v6.into());
        }
        command
    }

    fn spawn(&self, host: usize, command: &mut Command) -> io::Result<io::Result<Child>> {
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        self.network.hosts()[host].run(|| command.spawn())
    }

    /// Starts the command at a host.
    pub fn start<S: AsRef<OsStr>>(
        &self,
        host: usize,
        program: &OsStr,
        words: &[S],
    ) -> Result<Child> {
        let mut command = self.command(host, program);
        command.args(words);
        self.spawn(host, &mut command)?.map_err(|error| {
            let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
            let message = format!("cannot run {}: {error}", program.display());
            Failed { code, message }.into()
        })
    }

    /// Starts what `sh` understands at a host. `option` is how it was asked for.
    pub fn serve(&self, host: usize, option: &str, text: &OsStr) -> Result<Service> {
        // Standard output is the command's.
        let out = io::stderr().as_fd().try_clone_to_owned()?;
        let mut command = self.command(host, OsStr::new("/bin/sh"));
        command.arg("-c").arg(text).stdin(Stdio::null()).stdout(out);
        let child = self.spawn(host, &mut command)?.map_err(|error| Failed {
            code: NO_PATH,
            message: format!("cannot run /bin/sh: {error}"),
        })?;
        let given = format!("{option} '{}'", text.display());
        Ok(Service { given, child, told: false })
    }

    /// Waits until a service listens at `port` of a host.
    pub fn wait_for_port(
        &self,
        host: usize,
        port: u16,
        services: &mut [Service],
        stop: &Stop,
    ) -> Result<()> {
        let began = Instant::now();
        while !self.network.hosts()[host].run(|| listens(port))? {
            if stop.load(Ordering::Relaxed) {
                return Err(interrupted().into());
            }
            let failed = services.iter_mut().find_map(Service::failure);
            if failed.is_some() || began.elapsed() >= LISTENS_WITHIN {
                let why = failed.map(|text| format!(": {text}")).unwrap_or_default();
                let side = if self.names.path { "side" } else { "host" };
                let name = &self.names.hosts[host];
                let message = format!("nothing listens at port {port} of the {name} {side}{why}");
                return Err(Failed { code: NO_PATH, message }.into());
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// What the network has counted so far.
    pub fn stats(&self) -> NetworkStats {
        self.network.stats()
    }

    /// Ends what still runs, then the network.
    pub fn end(self) -> io::Result<NetworkStats> {
        self.end_processes()?;
        Ok(self.network.stats())
    }

    /// In the order of the hosts: the near ones may have to tell the far ones that they go.
    fn end_processes(&self) -> io::Result<()> {
        let ended = self.network.hosts().iter().map(|host| host.end_processes(END_WITHIN));
        ended.fold(Ok(()), io::Result::and)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(error) = self.end_processes() {
            tell!("farhaul: {error}");
        }
    }
}

impl Service {
    /// That it has failed, the first time that is asked.
    fn failure(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let first = !std::mem::replace(&mut self.told, true);
        (first && !status.success()).then(|| format!("{} has failed ({status})", self.given))
    }
}

/// Waits for the end of the command, and calls `look` again and again.
pub fn wait(
    mut child: Child,
    services: &mut [Service],
    stop: &Stop,
    mut look: impl FnMut() -> Result<()>,
) -> Result<ExitStatus> {
    let (tell, told) = channel();
    thread::spawn(move || {
        // After an interruption nothing waits for this any more.
        let _ = tell.send(child.wait());
    });
    loop {
        match told.recv_timeout(LOOK_EVERY) {
            Ok(status) => return Ok(status?),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the command is lost"),
        }
        if stop.load(Ordering::Relaxed) {
            return Err(interrupted().into());
        }
        for text in services.iter_mut().filter_map(Service::failure) {
            tell!("farhaul: {text}");
        }
        look()?;
    }
}

/// What failed is the network.
pub fn no_path(error: io::Error) -> Failed {
    let message = format!(
        "the path cannot be made: {error} (it takes /dev/net/tun, and root or a system that lets users \
         have namespaces)"
    );
    Failed { code: NO_PATH, message }
}

/// A host's name as part of the name of a variable: capitals and digits, all else underscores.
fn variable(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    name.chars().map(letter).collect::<String>().to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_variables() {
        assert_eq!(variable("n1"), "N1");
        assert_eq!(variable("left host-2"), "LEFT_HOST_2");
    }
}
