//! Which files and ports the process can still reach: Landlock.

use std::path::{Path, PathBuf};

use anyhow::Result;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::{Holds, ServeConfig};
use crate::files::directory_of;

/// What is known of kernels here: rights of later ones are not handled, and so not taken away.
const KNOWN: ABI = ABI::V7;
/// What the process reads of the kernel beside: `/proc/self` is another directory entry each time, so it is all of
/// `/proc`, in which Landlock keeps other processes' memory, environment and descriptors from it.
const OF_KERNEL: [&str; 3] = ["/proc", "/sys/fs/cgroup", "/sys/devices/system/cpu"];
/// What nothing is made of that is copied.
const NOT_MADE: BitFlags<AccessFs> = landlock::make_bitflags!(AccessFs::{
    Execute | MakeChar | MakeBlock | MakeFifo | MakeSock | IoctlDev
});

/// What is allowed.
#[derive(Debug, Default)]
pub struct Allowed {
    /// Real paths of directories with whether they may be written to.
    pub directories: Vec<(PathBuf, bool)>,
    /// Where it may listen.
    ports: Vec<u16>,
}

impl Allowed {
    /// What the configuration at `path` needs.
    pub fn of(config: &ServeConfig, path: &Path) -> Allowed {
        let exports = config.exports.values().map(|export| (&*export.path, export.access.writes()));
        let state = config.state.iter().map(|state| (&**state, true));
        // Read again on SIGHUP; files that are replaced are others: their directory is what stays.
        let files = [Some(path), config.rules.list.as_deref()];
        let files = files.into_iter().flatten();
        let real: Vec<_> = files.clone().filter_map(|file| file.canonicalize().ok()).collect();
        let read = files.chain(real.iter().map(PathBuf::as_path)).map(directory_of);
        let all = exports.chain(state).chain(read.map(|directory| (directory, false)));
        // What is not there cannot be allowed.
        let there = |(path, writes): (&Path, bool)| Some((path.canonicalize().ok()?, writes));
        let ports = config.listen.iter().chain(&config.metrics).map(|address| address.port());
        Allowed { directories: all.filter_map(there).collect(), ports: ports.collect() }
    }
}

/// Takes everything else from this thread and those that it will make.
///
/// # Errors
/// The kernel has Landlock and refuses it.
pub fn restrict(allowed: &Allowed) -> Result<Holds> {
    let all = AccessFs::from_all(KNOWN);
    let read = AccessFs::from_read(KNOWN) & !NOT_MADE;
    let write = all & !NOT_MADE;
    let mut rules = Ruleset::default()
        .handle_access(all)?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::Signal)?
        .create()?;
    for (path, writes) in &allowed.directories {
        let access = if *writes { write } else { read };
        rules = rules.add_rule(PathBeneath::new(PathFd::new(path)?, access))?;
    }
    for path in OF_KERNEL {
        if let Ok(open) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(open, read))?;
        }
    }
    for port in &allowed.ports {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
    }
    let status = rules.restrict_self()?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => {
            Err("the kernel has it and does not use it: lsm=landlock".into())
        }
        (RulesetStatus::NotEnforced, _) => {
            Err("the kernel has none, or something around the process denies it".into())
        }
        (_, LandlockStatus::Available { effective_abi, kernel_abi }) => {
            let abi = kernel_abi.unwrap_or(effective_abi as i32);
            Ok(format!("ABI {abi}, {} directories", allowed.directories.len()))
        }
        (_, _) => Ok("on".into()),
    })
}
