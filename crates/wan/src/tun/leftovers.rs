//! What is left of a network whose emulator was killed: namespaces without a network, kept by the processes in
//! them.
//!
//! Namespaces have no names. What is started in one carries a [`mark`] in its environment instead, which says
//! which emulator has made the namespace.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::process;
use std::time::Duration;

use super::Namespace;
use super::processes::{self, Number, end_inhabitants, inhabitants};

/// The variable that marks a process.
pub const MARK: &str = "FARHAUL_WAN";

/// A namespace that an emulator has made which is no more, and who lives there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    namespace: Number,
    /// The processes.
    pub processes: Vec<i32>,
}

/// What a mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// The emulator's process, and when it was started, in ticks since the system was: numbers of processes are used
    /// again.
    owner: i32,
    started: u64,
    /// The namespace of processes in which this number holds.
    processes: Number,
    /// The network namespace.
    network: Number,
}

/// The value of [`MARK`] for what this process starts in `namespace`.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn mark(namespace: &Namespace) -> io::Result<String> {
    let owner = process::id() as i32;
    let unknown = || io::Error::other("/proc does not tell of this process");
    let started = started(owner).ok_or_else(unknown)?;
    let processes = Number::of_process(owner, "pid").ok_or_else(unknown)?;
    Ok(Mark { owner, started, processes, network: namespace.number()? }.to_string())
}

/// Looks for what is left, among the processes whose environment this user may read.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn leftovers() -> io::Result<Vec<Leftover>> {
    let own = process::id() as i32;
    let (here, own_network) = (Number::of_process(own, "pid"), Number::of_process(own, "net"));
    let mut found = BTreeMap::new();
    for id in processes::all()? {
        let Some(mark) = mark_of(id) else { continue };
        // A process that has left the namespace says nothing of the one in which it is now, and of another
        // container's emulator it is not known here whether it is at work.
        let network = Number::of_process(id, "net");
        let there = network == Some(mark.network) && network != own_network;
        if there && here == Some(mark.processes) && started(mark.owner) != Some(mark.started) {
            found.insert(mark.network, ());
        }
    }
    let leftover = |namespace| Ok(Leftover { namespace, processes: inhabitants(namespace)? });
    found.into_keys().map(leftover).collect()
}

impl Leftover {
    /// Ends all processes in the namespace, which goes with the last of them: asks them first, and kills those
    /// that have not ended after `patience`.
    ///
    /// # Errors
    /// If `/proc` cannot be read, or a process is there even then.
    pub fn end(&self, patience: Duration) -> io::Result<()> {
        end_inhabitants(self.namespace, patience)
    }
}

fn mark_of(id: i32) -> Option<Mark> {
    let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
    environment.split(|&byte| byte == 0).find_map(|variable| {
        let (name, value) = str::from_utf8(variable).ok()?.split_once('=')?;
        (name == MARK).then(|| Mark::parse(value)).flatten()
    })
}

/// When a process was started; none if there is none.
fn started(id: i32) -> Option<u64> {
    start_of(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Field 22 of proc_pid_stat(5), behind a name in which anything may be. None of a process that has ended.
fn start_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let start = fields.nth(18)?.parse().ok()?;
    (!ended).then_some(start)
}

impl Mark {
    fn parse(text: &str) -> Option<Mark> {
        let numbers: Vec<u64> =
            text.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        let [owner, started, device, processes, network_device, network] = numbers[..] else {
            return None;
        };
        Some(Mark {
            owner: i32::try_from(owner).ok()?,
            started,
            processes: Number { device, inode: processes },
            network: Number { device: network_device, inode: network },
        })
    }
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Mark { owner, started, processes, network } = self;
        write!(f, "{owner}:{started}:{}:{}", processes.device, processes.inode)?;
        write!(f, ":{}:{}", network.device, network.inode)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn marks_are_read_back() {
        let mark = Mark {
            owner: 71,
            started: 4_711,
            processes: Number { device: 4, inode: 4_026_531_836 },
            network: Number { device: 4, inode: 4_026_532_000 },
        };
        assert_eq!(Mark::parse(&mark.to_string()), Some(mark));
        for bad in ["", "1:2:3", "1:2:3:4:5:6:7", "-1:2:3:4:5:6", "1:2:3:4:5:x"] {
            assert_eq!(Mark::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_start_is_found_behind_any_name() {
        let stat = |name: &str, state| {
            format!("7 ({name}) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 999 20 21\n")
        };
        assert_eq!(start_of(&stat("a) b (", "S")), Some(999));
        assert_eq!(start_of(&stat("gone", "Z")), None);
        assert_eq!(start_of(""), None);
        assert!(started(process::id() as i32).is_some());
    }

    #[test]
    fn what_an_emulator_at_work_has_started_is_not_left_over() {
        let namespace = match Namespace::create() {
            Ok(namespace) => namespace,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let mark = mark(&namespace).unwrap();
        // As if the emulator had ended, and its number belonged to another process.
        let mut orphaned = Mark::parse(&mark).unwrap();
        orphaned.started += 1;
        let start = |mark: &str| {
            let mut command = Command::new("sleep");
            command.arg("1000").env(MARK, mark);
            namespace.run(|| command.spawn()).unwrap().unwrap()
        };
        let is_left = || {
            leftovers()
                .unwrap()
                .into_iter()
                .find(|left| left.namespace == namespace.number().unwrap())
        };
        let mut at_work = start(&mark);
        assert_eq!(is_left(), None);
        let mut left = start(&orphaned.to_string());
        let found = is_left().expect("one is orphaned");
        assert!(found.processes.contains(&(left.id() as i32)), "{found:?}");
        found.end(Duration::from_secs(5)).unwrap();
        assert!(!left.wait().unwrap().success());
        at_work.wait().unwrap();
        assert_eq!(is_left(), None);
    }
}
