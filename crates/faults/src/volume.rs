//! A file system on a disk of the test's own, through a loop device.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use rustix::fs::{Advice, fadvise};

use crate::disk::{Disk, Image};
use crate::run::{has, program, quietly};
use crate::serve::{MAX_REQUEST, SERVED, Served};

/// What is on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// With a journal of metadata, content before it.
    Ext4,
    /// Likewise; content may come after.
    Xfs,
    /// Never overwrites; content has checksums.
    Btrfs,
}

impl FileSystem {
    /// All of them.
    pub const ALL: [FileSystem; 3] = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];

    /// As mount(8) knows it.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
        }
    }

    /// Makes one on `device`, a block device or a file.
    ///
    /// All have blocks of [`BLOCK`](crate::disk::BLOCK), so that content lies as it was made.
    pub fn make(self, device: &Path) -> io::Result<()> {
        let device = device.to_string_lossy();
        let args: &[&str] = match self {
            FileSystem::Ext4 => &["-q", "-F", "-b", "4096", "-E", "nodiscard,lazy_itable_init=1"],
            FileSystem::Xfs => &["-q", "-f", "-K"],
            FileSystem::Btrfs => &["-q", "-f", "-K"],
        };
        let name = format!("mkfs.{}", self.name());
        let make = || program(&name, &[args, &[&device]].concat()).map(drop);
        // mkfs.btrfs asks every loop device what is mounted of it, and ends if one goes away meanwhile,
        // as those of other tests do.
        for _ in 0..20 {
            if let Ok(()) = make() {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        make()
    }
}

/// Bytes that suffice for each of the file systems.
pub const SIZE: u64 = 320 << 20;

/// A volume. Dropped, nothing of it is left.
#[derive(Debug)]
pub struct Volume {
    file_system: FileSystem,
    options: String,
    mounted: bool,
    repaired: u64,
    device: Option<LoopDevice>,
    mount: tempfile::TempDir,
    backing: PathBuf,
    // Last, as the others are unmounted from it first.
    served: Option<Served>,
    disk: Option<Arc<Disk>>,
}

/// A loop device, until it is dropped.
#[derive(Debug)]
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Puts one on a file.
    pub fn new(file: &Path) -> io::Result<LoopDevice> {
        let file = file.to_string_lossy();
        let device = program("losetup", &["--find", "--show", "--direct-io=off", &file])?;
        let device = LoopDevice(PathBuf::from(device));
        // A write that the file takes in part is one that succeeded, says the kernel's driver
        // (lo_complete_rq), and what is left of it is lost without an error. So no request is larger
        // than what the file takes at once.
        let name = device.0.file_name().unwrap_or_default();
        let most = Path::new("/sys/block").join(name).join("queue/max_sectors_kb");
        std::fs::write(most, (MAX_REQUEST / 1024).to_string())?;
        Ok(device)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = program("losetup", &["-d", &self.0.to_string_lossy()]);
    }
}

/// Why volumes cannot be made here, if they cannot: for tests that are skipped then.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can mount file systems".to_owned());
    }
    for name in ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "e2fsck", "losetup", "strace", "xfs_io"] {
        if !has(name) {
            return Some(format!("no {name}"));
        }
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("no /dev/fuse".to_owned());
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("no loop devices".to_owned());
    }
    None
}

/// Takes away what tests have left that were killed: volumes whose disk has no server any more. They
/// are in the way of others, as mkfs.btrfs looks at all loop devices.
fn sweep() {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let of = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let mounts: Vec<(String, String)> = mounts.lines().filter_map(of).collect();
    for (_, served) in mounts.iter().filter(|(what, _)| what == SERVED) {
        // Attributes may still be in the kernel's cache; to open it asks the server.
        match std::fs::read_dir(served).map_err(|error| error.kind()) {
            Err(io::ErrorKind::NotConnected) => {}
            _ => continue,
        }
        for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let backing = std::fs::read_to_string(entry.path().join("loop/backing_file"));
            if !backing.is_ok_and(|file| file.starts_with(served)) {
                continue;
            }
            let device = Path::new("/dev").join(entry.file_name());
            let device = device.to_string_lossy();
            for (_, at) in mounts.iter().filter(|(what, _)| *what == device) {
                quietly("umount", &["-l", at]);
            }
            quietly("losetup", &["-d", &device]);
        }
        quietly("umount", &["-l", served]);
    }
}

impl Volume {
    /// Makes a file system on a new [`Disk`] and mounts it, with `options` as for `mount -o`.
    pub fn new(file_system: FileSystem, options: &str) -> io::Result<Volume> {
        let disk = Disk::new(SIZE);
        let served = Served::new(Arc::clone(&disk))?;
        let backing = served.path();
        Self::on(file_system, options, backing, Some((served, disk)))
    }

    /// The same on a file that is there, which stays.
    pub fn on_file(file_system: FileSystem, options: &str, file: &Path) -> io::Result<Volume> {
        Self::on(file_system, options, file.to_owned(), None)
    }

    fn on(
        file_system: FileSystem,
        options: &str,
        backing: PathBuf,
        own: Option<(Served, Arc<Disk>)>,
    ) -> io::Result<Volume> {
        let (served, disk) = own.unzip();
        let mount = tempfile::Builder::new().prefix("farhaul-volume-").tempdir()?;
        let options = options.to_owned();
        let mut volume = Volume {
            file_system,
            options,
            mounted: false,
            repaired: 0,
            device: None,
            mount,
            backing,
            served,
            disk,
        };
        static SWEPT: Once = Once::new();
        SWEPT.call_once(sweep);
        let device = LoopDevice::new(&volume.backing)?;
        file_system.make(device.path())?;
        drop(device);
        volume.mount()?;
        Ok(volume)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// What it is on; a volume on a file of others has no such disk.
    pub fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("a volume on a disk of its own")
    }

    /// Its file system.
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// How often it had to be repaired to be mounted.
    pub fn repaired(&self) -> u64 {
        self.repaired
    }

    /// Mounts it, with nothing in any cache.
    ///
    /// The superblock of ext4 is written where it lies, in two sectors, when an error is noted in it. If power
    /// fails between them its checksum is wrong, and it is for e2fsck(8) to put it right.
    pub fn mount(&mut self) -> io::Result<()> {
        if self.mounted {
            return Ok(());
        }
        let device = LoopDevice::new(&self.backing)?;
        let (at, mount) = (device.path().to_string_lossy(), self.mount.path().to_string_lossy());
        let own = match self.file_system {
            FileSystem::Ext4 | FileSystem::Btrfs => "noatime",
            FileSystem::Xfs => "noatime,nouuid",
        };
        let separator = if self.options.is_empty() { "" } else { "," };
        let options = format!("{own}{separator}{}", self.options);
        let mount =
            || program("mount", &["-t", self.file_system.name(), "-o", &options, &at, &mount]);
        if let Err(error) = mount() {
            // It ends with 1 where it has changed something.
            if self.file_system != FileSystem::Ext4 || quietly("e2fsck", &["-fy", &at]) {
                return Err(io::Error::other(format!("{error}\n{}", kernel_log())));
            }
            mount()?;
            self.repaired += 1;
        }
        self.mounted = true;
        self.device = Some(device);
        Ok(())
    }

    /// Unmounts it: what can be written back is, and the device is let go.
    pub fn unmount(&mut self) -> io::Result<()> {
        if self.mounted {
            let mount = self.mount.path().to_string_lossy().into_owned();
            let mut tries = 0;
            // What has just been killed may still be going.
            while let Err(error) = program("umount", &[&mount]) {
                tries += 1;
                if tries == 200 {
                    return Err(error);
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            self.mounted = false;
        }
        self.device = None;
        Ok(())
    }

    /// Unmounts it and mounts it again.
    pub fn remount(&mut self) -> io::Result<()> {
        self.unmount()?;
        self.mount()
    }

    /// Replaces what is on the disk and mounts that, in the same boot.
    pub fn replace(&mut self, image: Image) -> io::Result<()> {
        self.unmount()?;
        self.disk().load(image);
        self.mount()
    }

    /// Has the file system write back all it can; whether that went well is known to this call
    /// alone.
    pub fn write_back(&self) -> bool {
        quietly("sync", &["-f", &self.path().to_string_lossy()])
    }

    /// Shuts the file system down where it is, with its journal written or not: what a device does
    /// that goes away. btrfs has no such thing, and is left as it is.
    pub fn shut_down(&self, flush_journal: bool) {
        if self.file_system == FileSystem::Btrfs {
            return;
        }
        let how = if flush_journal { "shutdown -f" } else { "shutdown" };
        let _ = program("xfs_io", &["-x", "-c", how, &self.path().to_string_lossy()]);
    }

    /// Lets the kernel forget what it has in memory of the content below a directory.
    pub fn forget(&self, directory: &Path) {
        let Ok(entries) = std::fs::read_dir(directory) else { return };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.forget(&entry.path()),
                Ok(kind) if kind.is_file() => {
                    if let Ok(file) = File::open(entry.path()) {
                        let _ = fadvise(&file, 0, None, Advice::DontNeed);
                    }
                }
                _ => {}
            }
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.mend();
        }
        if self.mounted && !quietly("umount", &[&self.mount.path().to_string_lossy()]) {
            quietly("umount", &["-l", &self.mount.path().to_string_lossy()]);
        }
        self.device = None;
        self.served = None;
    }
}

/// The last that the kernel has said, such as why it does not mount something.
fn kernel_log() -> String {
    let log = program("dmesg", &[]).unwrap_or_else(|error| error.to_string());
    let lines: Vec<_> = log.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
