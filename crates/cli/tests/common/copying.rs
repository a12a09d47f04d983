//! `farhaul cp` between this process's host and itself over a real sshd, with data going through an
//! emulated path.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farhaul_base::Rng;
use farhaul_wan::{RelayConfig, RelayHandle};
use tempfile::TempDir;

use super::free_port;
use super::path::Path as Emulated;
use super::process::Process;
use super::sshd::Sshd;

/// Longer than any of these copies takes, on a machine that is busy with other things.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Two directories, an sshd between them, and what the other side is started with.
pub struct Scene {
    pub sshd: Sshd,
    folder: TempDir,
    /// Where the other side listens.
    pub port: u16,
}

impl Scene {
    /// The error says why a test that needs it is to be skipped.
    pub fn new() -> Result<Scene, String> {
        let scene = Scene {
            sshd: Sshd::start()?,
            folder: tempfile::tempdir().expect("a folder"),
            port: free_port(Ipv4Addr::UNSPECIFIED.into()),
        };
        scene.far(&[], "");
        Ok(scene)
    }

    /// A path below its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What the other side is started by, with these variables and below this command.
    pub fn far(&self, variables: &[(&str, &str)], below: &str) {
        let exports: String =
            variables.iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect();
        let text = format!(
            "#!/bin/sh\nexport XDG_CONFIG_HOME='{home}'\n{exports}echo $$ >> '{pids}'\n\
             exec {below} '{farhaul}' \"$@\"\n",
            home = self.path("config").display(),
            pids = self.path("agents").display(),
            farhaul = env!("CARGO_BIN_EXE_farhaul"),
        );
        let script = self.path("farhaul");
        fs::write(&script, text).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("permissions");
    }

    /// The other side is reached through `relay` over UDP, and over TCP where `tcp` says.
    pub fn far_behind(&self, relay: Option<SocketAddr>, tcp: Option<SocketAddr>, below: &str) {
        let udp = relay.map(|at| format!("udp/{at}"));
        let tcp = tcp.map(|at| format!("tcp/{at}"));
        let all: Vec<String> = udp.into_iter().chain(tcp).collect();
        self.far(&[("FARHAUL_ADVERTISE", &all.join(","))], below);
    }

    /// Where the other side listens.
    pub fn direct(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// An emulated path to there.
    pub fn relay(&self, path: Emulated) -> RelayHandle {
        path.to(self.direct())
    }

    /// `farhaul cp`, below another command.
    pub fn command_below(&self, below: &[&str], args: &[&str]) -> Command {
        let farhaul = env!("CARGO_BIN_EXE_farhaul");
        let mut command = Command::new(below.first().unwrap_or(&farhaul));
        if !below.is_empty() {
            command.args(&below[1..]).arg(farhaul);
        }
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FARHAUL_") {
                command.env_remove(name);
            }
        }
        command
            .arg("cp")
            .args(["--ssh", &self.sshd.ssh_command])
            .args(["--remote-farhaul", self.path("farhaul").to_str().expect("a name")])
            .args(["--listen-ports", &self.port.to_string(), "--no-progress"])
            .args(args)
            .env("XDG_CONFIG_HOME", self.path("config"))
            .stdin(Stdio::null());
        command
    }

    /// Starts `farhaul cp`.
    pub fn start(&self, args: &[&str]) -> Process {
        self.start_below(&[], args)
    }

    /// The same below another command.
    pub fn start_below(&self, below: &[&str], args: &[&str]) -> Process {
        let name = format!("farhaul cp {}", args.join(" "));
        Process::with_lines(self.command_below(below, args), name, LIMIT)
    }

    /// How many agents have been started.
    pub fn agents(&self) -> usize {
        fs::read_to_string(self.path("agents")).unwrap_or_default().lines().count()
    }

    /// The process of the agent that was started last.
    pub fn agent(&self) -> u32 {
        let pids = fs::read_to_string(self.path("agents")).expect("an agent has been started");
        pids.lines().last().and_then(|pid| pid.parse().ok()).expect("a number")
    }

    /// A path as the other side's, for `cp`.
    pub fn there(&self, name: &str) -> String {
        format!("127.0.0.1:{}", self.path(name).display())
    }

    /// A path as this side's, for `cp`.
    pub fn here(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Agents that were left alone would wait for their controller for a minute.
        for pid in fs::read_to_string(self.path("agents")).unwrap_or_default().lines() {
            let Ok(program) = fs::read_link(format!("/proc/{pid}/exe")) else { continue };
            if program == Path::new(env!("CARGO_BIN_EXE_farhaul")) {
                kill(pid.parse().expect("a number"));
            }
        }
    }
}

/// Kills a process at once.
pub fn kill(pid: u32) {
    let status =
        Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
    status.expect("kill can be started");
}

/// Waits until `done`; a test must end some time, but nothing depends on when.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < limit, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A file of bytes that follow from `seed`.
pub fn make_file(path: &Path, size: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut file = File::create(path).expect("a file");
    let mut left = size;
    while left > 0 {
        let piece: Vec<u8> = (0..left.min(1 << 16).div_ceil(8))
            .flat_map(|_| rng.next_u64().to_le_bytes())
            .take(left.min(1 << 16) as usize)
            .collect();
        file.write_all(&piece).expect("room for it");
        left -= piece.len() as u64;
    }
}

/// A tree of small files, large ones, one with holes, links and nested directories, of about `large`
/// bytes more than a few megabytes.
pub fn make_tree(root: &Path, large: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    for directory in 0..10 {
        let inner = root.join(format!("d{directory}/inner"));
        fs::create_dir_all(&inner).expect("directories");
        for file in 0..30 {
            make_file(&inner.join(format!("f{file}")), rng.next_u64() % 20_000, rng.next_u64());
        }
        symlink(format!("inner/f{directory}"), root.join(format!("d{directory}/link")))
            .expect("a link");
    }
    make_file(&root.join("large"), large * 3 / 5 + 17, seed + 1);
    make_file(&root.join("d3/medium"), large * 2 / 5, seed + 2);
    let mut sparse = File::create(root.join("d5/sparse")).expect("a file");
    sparse.set_len(40 << 20).expect("a length");
    for at in [0, 7 << 20, (33 << 20) + 5] {
        sparse.seek(SeekFrom::Start(at)).expect("a place");
        sparse.write_all(&[7; 100_000]).expect("room for it");
    }
}

/// Everything below a directory that a copy must have kept, by path.
pub fn listing(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let about = fs::symlink_metadata(&path).expect("it is there");
            let text = if about.is_dir() {
                directories.push(path.clone());
                "directory".to_owned()
            } else if about.is_symlink() {
                format!("to {}", fs::read_link(&path).expect("a link").display())
            } else {
                let hash = blake3::hash(&fs::read(&path).expect("a file"));
                format!("{hash} {} {}", about.mtime(), about.mtime_nsec())
            };
            let name = path.strip_prefix(root).expect("below it").to_owned();
            found.insert(name, format!("{text} {:o}", about.mode()));
        }
    }
    found
}

/// Fails unless both trees are the same, with nothing left over.
pub fn assert_same(source: &Path, target: &Path) {
    let (source, target) = (listing(source), listing(target));
    let more: Vec<_> = target.keys().filter(|name| !source.contains_key(*name)).collect();
    assert!(more.is_empty(), "left over: {more:?}");
    for (name, about) in &source {
        assert_eq!(target.get(name), Some(about), "{}", name.display());
    }
}

/// A relay at a fixed address: one that was there before has gone.
pub fn relay_at(at: SocketAddr, path: Emulated, to: SocketAddr) -> RelayHandle {
    path.open(RelayConfig::new(at, to))
}
