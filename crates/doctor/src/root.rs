//! What a host tells of itself: files under `/proc` and `/sys`, and what programs print.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// No file that is read is longer, nor what a program prints.
const MOST_BYTES: u64 = 1 << 20;
/// A program that takes longer is killed.
const PROGRAM_WITHIN: Duration = Duration::from_secs(2);
/// Names in a folder.
const MOST_NAMES: usize = 4096;

/// Where to read a host's files: those of the machine, or a copy of some other's.
#[derive(Clone, Debug)]
pub struct Root {
    prefix: PathBuf,
    /// What programs have printed, by command line; `None`: run them.
    recorded: Option<BTreeMap<String, String>>,
}

impl Root {
    /// This machine.
    pub fn system() -> Self {
        Root { prefix: PathBuf::from("/"), recorded: None }
    }

    /// A copy of a machine's files below `prefix`, with what programs had printed there, by command
    /// line such as `ethtool -k eth0`. No program is run.
    pub fn recorded(prefix: impl Into<PathBuf>, programs: BTreeMap<String, String>) -> Self {
        Root { prefix: prefix.into(), recorded: Some(programs) }
    }

    /// Whether this is the machine itself.
    pub fn is_system(&self) -> bool {
        self.recorded.is_none()
    }

    /// The text of a file, trimmed; `None` if there is none that can be read, or it is empty.
    pub fn read(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        // What was read before an error is of no use: some files of /sys fail when they have nothing
        // to say.
        File::open(self.path(path)).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// A file that holds one number.
    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.read(path)?.parse().ok()
    }

    /// The names in a folder, sorted; none if it cannot be read.
    pub fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .take(MOST_NAMES)
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Whether there is such a file.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// What a program prints; `None` if it is not there, fails or takes too long.
    pub fn run(&self, program: &str, args: &[&str]) -> Option<String> {
        match &self.recorded {
            Some(recorded) => recorded.get(&format!("{program} {}", args.join(" "))).cloned(),
            None => run(program, args),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.prefix.join(Path::new(path).strip_prefix("/").unwrap_or(Path::new(path)))
    }
}

fn run(program: &str, args: &[&str]) -> Option<String> {
    // Some are where only administrators look.
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new(program)
        .args(args)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let stdout = child.stdout.take()?;
    let (sender, printed) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stdout.take(MOST_BYTES).read_to_end(&mut bytes);
        // Nobody waits any more if it took too long.
        let _ = sender.send(read.map(|_| bytes));
    });
    let printed = printed.recv_timeout(PROGRAM_WITHIN);
    if printed.is_err() {
        let _ = child.kill();
    }
    // It has closed its output, or was killed.
    let success = child.wait().is_ok_and(|status| status.success());
    let bytes = printed.ok()?.ok()?;
    success.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_a_folder_stand_for_the_machines() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("proc/sys")).unwrap();
        fs::write(folder.path().join("proc/sys/some"), " 4096\n").unwrap();
        fs::write(folder.path().join("proc/sys/none"), "\n").unwrap();
        let programs = BTreeMap::from([("say it".to_owned(), "done".to_owned())]);
        let root = Root::recorded(folder.path(), programs);
        assert_eq!(root.number("/proc/sys/some"), Some(4096));
        assert_eq!(root.number::<u8>("/proc/sys/some"), None, "too large");
        assert_eq!((root.read("/proc/sys/none"), root.read("/proc/other")), (None, None));
        assert_eq!(root.list("/proc/sys"), ["none", "some"]);
        assert_eq!(root.list("/sys"), [""; 0]);
        assert_eq!(root.run("say", &["it"]).as_deref(), Some("done"));
        assert_eq!(root.run("say", &["nothing"]), None);
    }

    #[test]
    fn programs_print_fail_or_are_not_there() {
        let root = Root::system();
        assert_eq!(root.run("echo", &["a", "b"]).as_deref(), Some("a b\n"));
        assert_eq!(root.run("false", &[]), None);
        assert_eq!(root.run("no-such-program-anywhere", &[]), None);
    }
}
