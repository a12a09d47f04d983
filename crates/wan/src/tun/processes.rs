//! Who lives in a namespace, and how they leave it.

use std::fs::{self, File, Metadata};
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
        inhabitants(self.number()?)
    }

    /// Asks all processes in this namespace to end (SIGTERM), and kills those that have not after
    /// `patience`.
    ///
    /// # Errors
    /// If `/proc` cannot be read, or a process is there even then.
    pub fn end_processes(&self, patience: Duration) -> io::Result<()> {
        end_inhabitants(self.number()?, patience)
    }

    /// By which the kernel knows it.
    pub(super) fn number(&self) -> io::Result<Number> {
        Ok(Number::of(&File::from(self.file.try_clone()?).metadata()?))
    }
}

/// A namespace's number, and the file system that has given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Number {
    /// That of the namespace of `kind` (`net`, `pid`) in which a process is. None of other users' processes, and of
    /// those that have ended.
    pub(super) fn of_process(id: i32, kind: &str) -> Option<Number> {
        fs::metadata(format!("/proc/{id}/ns/{kind}")).ok().map(|file| Number::of(&file))
    }

    fn of(file: &Metadata) -> Number {
        Number { device: file.dev(), inode: file.ino() }
    }
}

/// The processes of this machine.
pub(super) fn all() -> io::Result<impl Iterator<Item = i32>> {
    let entries = fs::read_dir("/proc").map_err(|e| context("/proc", &e))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// Those in a network namespace.
pub(super) fn inhabitants(namespace: Number) -> io::Result<Vec<i32>> {
    Ok(all()?.filter(|id| Number::of_process(*id, "net") == Some(namespace)).collect())
}

/// Ends those in a network namespace, as [`Namespace::end_processes`] does.
pub(super) fn end_inhabitants(namespace: Number, patience: Duration) -> io::Result<()> {
    for id in inhabitants(namespace)? {
        sys::signal(id, libc::SIGTERM);
    }
    let asked = Instant::now();
    loop {
        let left = inhabitants(namespace)?;
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
