//! What a host is like: its kernel's settings, its interfaces, its processor, disk and clock.

mod clock;
mod cpu;
mod disk;
mod network;
mod speed;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use clock::Clock;
pub use cpu::Cpu;
pub use disk::{Disk, DiskError, measure as measure_disk};
pub use network::{Buffers, Interface, Offload, Sockets, Tcp, UdpCounters};
pub use speed::Speeds;

use crate::Root;

/// What to look at, and for how long.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// Where the host's files are.
    pub root: Root,
    /// The folder whose disk is measured; `None`: none is.
    pub folder: Option<PathBuf>,
    /// Most bytes written to and read from the disk.
    pub disk_bytes: u64,
    /// Most time for either.
    pub disk_time: Duration,
    /// How long to measure each speed of the processor; zero: none is measured.
    pub speed_time: Duration,
}

impl Default for AuditOptions {
    /// This machine, the current folder, 256 MiB or 2 s, 0.2 s.
    fn default() -> Self {
        AuditOptions {
            root: Root::system(),
            folder: Some(PathBuf::from(".")),
            disk_bytes: 256 << 20,
            disk_time: Duration::from_secs(2),
            speed_time: Duration::from_millis(200),
        }
    }
}

/// A host. What could not be found out is `None`, or empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// The kernel's release, such as `6.1.0-18-amd64`.
    pub kernel: String,
    /// The version of farhaul that looked.
    pub farhaul: String,
    /// Processor.
    pub cpu: Cpu,
    /// Buffers and offload of UDP sockets.
    pub sockets: Sockets,
    /// TCP's settings.
    pub tcp: Tcp,
    /// Network interfaces that are up, loopback left out.
    pub interfaces: Vec<Interface>,
    /// What the kernel has counted of UDP since it started.
    pub udp: UdpCounters,
    /// The disk of the folder that was asked for.
    pub disk: Option<Disk>,
    /// What one core does.
    pub speeds: Speeds,
    /// Clock.
    pub clock: Clock,
    /// What could not be measured, and why.
    pub failures: Vec<String>,
}

/// Looks at a host. Takes up to some 6 s, of which the disk takes most; `progress` is told what is
/// looked at.
///
/// Nothing fails for good: what cannot be found out is left out, and [`HostReport::failures`] says why
/// if it was asked for.
pub fn audit_host(options: &AuditOptions, progress: &mut dyn FnMut(&'static str)) -> HostReport {
    let root = &options.root;
    progress("settings");
    let mut report = HostReport {
        name: root.read("/proc/sys/kernel/hostname").unwrap_or_default(),
        kernel: root.read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        farhaul: env!("CARGO_PKG_VERSION").to_owned(),
        cpu: cpu::read(root),
        sockets: network::sockets(root),
        tcp: network::tcp(root),
        interfaces: network::interfaces(root),
        udp: network::udp_counters(root),
        clock: clock::read(root),
        ..HostReport::default()
    };
    if !options.speed_time.is_zero() {
        progress("processor");
        report.speeds = speed::measure(options.speed_time);
    }
    if let Some(folder) = &options.folder {
        progress("disk");
        match disk::measure(root, folder, options.disk_bytes, options.disk_time) {
            Ok(disk) => report.disk = Some(disk),
            Err(error) => report.failures.push(error.to_string()),
        }
    }
    report
}

/// The interface of the default route.
pub(crate) fn default_interface(root: &Root) -> Option<String> {
    let mut interfaces = network::interfaces(root).into_iter();
    interfaces.find(|interface| interface.default_route).map(|interface| interface.name)
}

#[cfg(test)]
mod tests;
