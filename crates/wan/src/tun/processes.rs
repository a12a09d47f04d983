//! Who lives in a namespace, and how they leave it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use super::{Namespace, context, sys};

/// How often it is looked whether processes have ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long the kernel may take to end what it was told to kill.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

impl Namespace {
    /// The processes whose first thread is in this namespace, without those that only wait for
    /// their parent to take notice of their end.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn processes(&self) -> io::Result<Vec<i32>> {
        let own = File::from(self.file.try_clone()?).metadata()?;
        let entries = fs::read_dir("/proc").map_err(|e| context("/proc", &e))?;
        let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(ids
            .filter(|id: &i32| {
                // Of other users' processes, and of those that have ended, it is not told.
                fs::metadata(format!("/proc/{id}/ns/net"))
                    .is_ok_and(|network| (network.dev(), network.ino()) == (own.dev(), own.ino()))
            })
            .collect())
    }

    /// Asks all processes in this namespace to end (SIGTERM), and kills those that have not after
    /// `patience`.
    ///
    /// # Errors
    /// If `/proc` cannot be read, or a process is there even then.
    pub fn end_processes(&self, patience: Duration) -> io::Result<()> {
        for id in self.processes()? {
            sys::signal(id, libc::SIGTERM);
        }
        let asked = Instant::now();
        loop {
            let left = self.processes()?;
            let Some(first) = left.first() else { return Ok(()) };
            if asked.elapsed() >= patience {
                // Again and again: they may have started others meanwhile.
                for &id in &left {
                    sys::signal(id, libc::SIGKILL);
                }
            }
            if asked.elapsed() >= patience + KILLED_WITHIN {
                return Err(io::Error::other(format!("process {first} does not end")));
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process in the namespace that is ready to be told: it has printed a byte.
    fn start(namespace: &Namespace, script: &str) -> Child {
        let script = format!("{script}; printf x; while :; do sleep 1; done");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdout(Stdio::piped());
        let mut child = namespace.run(|| command.spawn()).unwrap().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    }

    #[test]
    fn all_processes_end_the_stubborn_ones_too() {
        let namespace = match Namespace::create() {
            Ok(namespace) => namespace,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        assert_eq!(namespace.processes().unwrap(), []);
        let mut willing = start(&namespace, "true");
        let mut stubborn = start(&namespace, "trap '' TERM");
        let ids = namespace.processes().unwrap();
        for child in [&willing, &stubborn] {
            assert!(ids.contains(&(child.id() as i32)), "{ids:?}");
        }
        assert!(!ids.contains(&(std::process::id() as i32)));
        namespace.end_processes(Duration::from_millis(200)).unwrap();
        assert_eq!(namespace.processes().unwrap(), []);
        assert_eq!(willing.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert_eq!(stubborn.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
