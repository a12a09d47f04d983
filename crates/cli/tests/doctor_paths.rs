//! The doctor and `farhaul cp` over the same path, of which the answer is known: between two network
//! namespaces, with the kernel's token bucket, MTU and disk throttle.
//!
//! Rates are such that a busy machine keeps up with them. With FARHAUL_LONG=1, more of them.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::process::Process;
use common::skip;
use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(180);
const FAR: &str = "10.77.0.2";
/// Asks for no larger receive buffer than so many bytes.
const GRANT: &str = "
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <sys/socket.h>
    int setsockopt(int fd, int level, int name, const void *value, socklen_t length) {
        static int (*next)(int, int, int, const void *, socklen_t);
        if (!next) next = dlsym(RTLD_NEXT, \"setsockopt\");
        if (level == SOL_SOCKET && name == SO_RCVBUFFORCE) { errno = EPERM; return -1; }
        int most = MOST;
        if (level == SOL_SOCKET && name == SO_RCVBUF && *(const int *)value > most) value = &most;
        return next(fd, level, name, value, length);
    }
";

/// Runs a program; what it printed on standard error if it failed.
fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program} {args:?}: {errors}")) }
}

/// Two network namespaces with a cable between them. Dropped, nothing is left of them.
struct Net {
    near: String,
    far: String,
    folder: TempDir,
}

impl Net {
    /// With the MTUs of either end; the error says what this machine lacks.
    fn new(mtu: [u16; 2]) -> Result<Net, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fh{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().expect("a folder");
        let net = Net { near: format!("{name}a"), far: format!("{name}b"), folder };
        let (near, far) = (net.near.as_str(), net.far.as_str());
        let mtu = mtu.map(|mtu| mtu.to_string());
        run("ip", &["netns", "add", near])?;
        run("ip", &["netns", "add", far])?;
        let peer = ["type", "veth", "peer", "name", "there", "netns", far];
        run("ip", &[&["link", "add", "here", "netns", near][..], &peer].concat())?;
        let ends =
            [(near, "here", "10.77.0.1/24", &mtu[0]), (far, "there", "10.77.0.2/24", &mtu[1])];
        for (space, card, address, mtu) in ends {
            run("ip", &["-n", space, "addr", "add", address, "dev", card])?;
            run("ip", &["-n", space, "link", "set", "lo", "up"])?;
            run("ip", &["-n", space, "link", "set", card, "mtu", mtu, "up"])?;
        }
        let ssh = format!("#!/bin/sh\nexec nsenter --net=/run/netns/{far} sh -c \"$2\"\n");
        fs::write(net.ssh(), ssh).expect("a file");
        fs::set_permissions(net.ssh(), fs::Permissions::from_mode(0o755)).expect("mine");
        Ok(net)
    }

    /// Behind a token bucket each way.
    fn shaped(rate: &str, burst: &str, latency: &str) -> Result<Net, String> {
        let net = Net::new([1500, 1500])?;
        for (space, card) in [(&net.near, "here"), (&net.far, "there")] {
            let bucket = ["tbf", "rate", rate, "burst", burst, "latency", latency];
            run(
                "tc",
                &[&["-n", space, "qdisc", "add", "dev", card, "root"][..], &bucket].concat(),
            )?;
        }
        Ok(net)
    }

    /// The kernel grants UDP sockets of the far side this much to receive, as it counts, and no more by
    /// force. The limit in /proc is the whole machine's, so a library stands before the system call.
    fn grant(&self, receive: u64) -> Result<(), String> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let (source, library) = (path("grant.c"), path("grant.so"));
        // The kernel doubles what is asked for.
        let text = GRANT.replace("MOST", &(receive / 2).to_string());
        fs::write(&source, text).expect("a file");
        run("cc", &["-shared", "-fPIC", "-o", &library, &source, "-ldl"])?;
        let ssh = format!(
            "#!/bin/sh\nexec nsenter --net=/run/netns/{} env LD_PRELOAD={library} sh -c \"$2\"\n",
            self.far
        );
        fs::write(self.ssh(), ssh).expect("a file");
        Ok(())
    }

    /// What runs a command on the far side in place of ssh.
    fn ssh(&self) -> PathBuf {
        self.folder.path().join("as-if")
    }

    /// `farhaul` on the near side with a command that reaches the far one; what it says as JSON.
    fn farhaul(&self, args: &[&str]) -> Value {
        let farhaul = env!("CARGO_BIN_EXE_farhaul");
        // Unlike `ip netns exec` it leaves the mounts alone, and so the control groups.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.near)).args([farhaul, args[0]]);
        command.arg("--ssh").arg(self.ssh());
        command.args(["--remote-farhaul", farhaul, "--json"]).args(&args[1..]);
        // The home of the user that runs the tests is left alone.
        command.env("HOME", self.folder.path()).env_remove("XDG_CONFIG_HOME");
        let ended = Process::with_lines(command, format!("farhaul {args:?}"), LIMIT).finish();
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        serde_json::from_str(&ended.lines.join("\n")).expect("a document")
    }

    fn doctor(&self) -> Value {
        self.farhaul(&["doctor", FAR, "--no-disk"])
    }

    /// Holds what the doctor expects against copies of so many bytes: other programs may slow one, and none
    /// makes it faster than the path.
    fn assert_expected(&self, report: &Value, bytes: usize, to: &Path) {
        let expected = number(&report["diagnosis"]["expected"]);
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(self.copy(bytes, to));
            let ratio = expected / seen[seen.len() - 1];
            assert!(ratio > 0.7, "{expected:.0} expected, {seen:.0?} copied: {report:#}");
            if ratio < 1.3 {
                eprintln!("{expected:.0} expected, {seen:.0?} copied");
                return;
            }
        }
        panic!("{expected:.0} expected, {seen:.0?} copied: {report:#}");
    }

    /// The rate at which so many bytes are copied to a file of the far side once the sides are connected,
    /// bits/s.
    fn copy(&self, bytes: usize, to: &Path) -> f64 {
        let from = self.folder.path().join("source");
        fs::write(&from, common::pattern::bytes(7, bytes)).expect("a file");
        let to = to.join("copy");
        let report = self.farhaul(&[
            "cp",
            "--transport",
            "udp",
            from.to_str().expect("a name"),
            &format!("{FAR}:{}", to.display()),
        ]);
        assert_eq!(fs::metadata(&to).expect("it is there").len(), bytes as u64);
        fs::remove_file(to).expect("it is there");
        bytes as f64 * 8.0 / number(&report["transfer_seconds"])
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for space in [&self.near, &self.far] {
            let _ = run("ip", &["netns", "delete", space]);
        }
    }
}

macro_rules! or_skip {
    ($net:expr) => {
        match $net {
            Ok(net) => net,
            Err(why) => skip!("{why}"),
        }
    };
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[track_caller]
fn within(value: f64, expected: f64, tolerance: f64, report: &Value) {
    let ratio = value / expected;
    assert!((ratio - 1.0).abs() <= tolerance, "{value:.0}, not {expected:.0}: {report:#}");
}

fn severities(report: &Value) -> Vec<&str> {
    let advice = report["diagnosis"]["advice"].as_array().expect("a list");
    advice.iter().filter_map(|advice| advice["severity"].as_str()).collect()
}

/// The bucket's rate is found, not its burst; what the doctor overloads is not taken for the path's
/// loss, and what it expects is what a copy then reaches.
#[test]
fn behind_a_token_bucket() {
    let _turn = common::turn();
    let mut cases = vec![(20e6, "20mbit", "64k", "50ms"), (8e6, "8mbit", "200k", "20ms")];
    if common::long() {
        cases.push((50e6, "50mbit", "64k", "50ms"));
        cases.push((5e6, "5mbit", "16k", "100ms"));
        cases.push((40e6, "40mbit", "3m", "30ms"));
    }
    for (rate, text, burst, latency) in cases {
        let net = or_skip!(Net::shaped(text, burst, latency));
        // A host that gets no turn for long says that it does not know.
        let knows = |report: &Value| {
            let path = &report["path"];
            let told = [&path["forward"]["capacity"], &path["back"]["capacity"], &path["load"]];
            told.iter().all(|told| !told.is_null())
        };
        let report = (0..3).map(|_| net.doctor()).find(knows).unwrap_or_else(|| net.doctor());
        let path = &report["path"];
        within(number(&path["forward"]["capacity"]), rate, 0.1, path);
        assert_eq!(path["forward"]["capacity_is_least"], false, "{path:#}");
        // Answers come no faster than questions, and late from a busy host: it is at least so fast.
        let back = number(&path["back"]["capacity"]) / rate;
        assert!((0.7..1.1).contains(&back), "{path:#}");
        assert!(back > 0.9 || path["back"]["capacity_is_least"] == true, "{path:#}");
        let load = &path["load"];
        assert!(number(&load["lost"]) <= 0.01 * number(&load["sent"]), "{load:#}");
        net.assert_expected(&report, (rate / 8.0 * 4.0) as usize, net.folder.path());
        // Nothing that is said would make it faster.
        assert!(!severities(&report).contains(&"limits"), "{report:#}");
    }
}

/// The kernel cuts what is too large: a hint, and no obstacle.
#[test]
fn a_path_of_mtu_1280() {
    let _turn = common::turn();
    let net = or_skip!(Net::new([1280, 1280]));
    let report = net.doctor();
    let forward = &report["path"]["forward"];
    assert_eq!((&forward["mtu"], &forward["fragments"]), (&1280.into(), &true.into()));
    assert!(number(&report["diagnosis"]["expected"]) > 1e6, "{report:#}");
    let severities = severities(&report);
    assert!(!severities.iter().any(|what| ["blocks", "limits"].contains(what)), "{report:#}");
    net.copy(2_000_000, net.folder.path());
}

/// A far end that takes less than the near one knows of, and says nothing: that is an obstacle. A cable of
/// this kind allows for a VLAN tag.
#[test]
fn a_path_that_loses_large_packets_without_a_word() {
    let _turn = common::turn();
    let net = or_skip!(Net::new([1500, 1280]));
    let report = net.doctor();
    let forward = &report["path"]["forward"];
    assert_eq!((&forward["mtu"], &forward["fragments"]), (&1284.into(), &false.into()));
    assert_eq!(number(&report["diagnosis"]["expected"]), 0.0, "{report:#}");
    assert_eq!(severities(&report)[0], "blocks", "{report:#}");
}

/// The host whose sockets hold little says so, with the remedy, and the other host does not.
#[test]
fn small_socket_buffers() {
    const RECEIVE: u64 = 212_992;
    let _turn = common::turn();
    let net = or_skip!(Net::new([1500, 1500]));
    or_skip!(net.grant(RECEIVE));
    let report = net.doctor();
    let granted = &report["peer"]["sockets"]["granted"];
    assert_eq!((&granted["receive"], &granted["limited"]), (&RECEIVE.into(), &true.into()));
    let advice = report["diagnosis"]["advice"].as_array().expect("a list");
    let mends = |advice: &&Value| {
        advice["command"].as_str().is_some_and(|command| command.contains("net.core.rmem_max"))
    };
    let hosts: Vec<_> = advice.iter().filter(mends).map(|advice| &advice["host"]).collect();
    assert!(hosts.contains(&&"peer".into()), "{report:#}");
    let stages = report["diagnosis"]["stages"].as_array().expect("a list");
    let buffer = |stage: &&Value| stage["kind"] == "buffer" && stage["host"] == "peer";
    let stage = stages.iter().find(buffer).unwrap_or_else(|| panic!("{report:#}"));
    // It allows for a receiver that often waits for its turn: an idle one does better, and none worse.
    let reached = |_| net.copy(20_000_000, net.folder.path()) > 0.7 * number(&stage["rate"]);
    assert!((0..5).any(reached), "{report:#}");
}

/// A volume that is written at a rate which the kernel holds. Dropped, nothing is left of it.
struct SlowDisk {
    folder: TempDir,
    device: Option<String>,
    /// Where the rate is set, and of which device.
    limit: PathBuf,
    throttled: Option<String>,
}

impl SlowDisk {
    fn new(bytes_per_second: u64) -> Result<SlowDisk, String> {
        let folder = tempfile::tempdir().expect("a folder");
        // Of the whole machine on this one device: the kernel writes back for everybody, and tells whom for
        // in the second version of control groups only.
        let limit = PathBuf::from("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device");
        if !limit.exists() {
            return Err("no control groups of version 1 for disks".to_owned());
        }
        let mut disk = SlowDisk { folder, device: None, limit, throttled: None };
        let text = |error: std::io::Error| format!("no throttled disk: {error}");
        for name in ["memory", "volume"] {
            fs::create_dir(disk.path(name)).map_err(text)?;
        }
        let [memory, volume] = ["memory", "volume"].map(|name| disk.text(name));
        run("mount", &["-t", "tmpfs", "-o", "size=200m", "farhaul-test", &memory])?;
        let image = format!("{memory}/image");
        fs::File::create(&image).and_then(|file| file.set_len(190 << 20)).map_err(text)?;
        run("mkfs.ext4", &["-q", "-F", &image])?;
        let output = Command::new("losetup").args(["-f", "--show", &image]).output();
        let output = output.map_err(text)?;
        let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || device.is_empty() {
            return Err("no loop device".to_owned());
        }
        disk.device = Some(device.clone());
        run("mount", &[&device, &volume])?;
        let numbers = fs::metadata(&device).map_err(text)?.rdev();
        let (major, minor) = (rustix::fs::major(numbers), rustix::fs::minor(numbers));
        let numbers = format!("{major}:{minor}");
        fs::write(&disk.limit, format!("{numbers} {bytes_per_second}")).map_err(text)?;
        disk.throttled = Some(numbers);
        Ok(disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("a name").to_owned()
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        if let Some(device) = &self.throttled {
            let _ = fs::write(&self.limit, format!("{device} 0"));
        }
        let _ = run("umount", &[&self.text("volume")]);
        if let Some(device) = &self.device {
            let _ = run("losetup", &["-d", device]);
        }
        let _ = run("umount", &[&self.text("memory")]);
    }
}

/// The destination's disk is what limits, at its rate.
#[test]
fn a_slow_disk() {
    const BYTES: u64 = 4_000_000;
    let _turn = common::turn();
    let net = or_skip!(Net::new([1500, 1500]));
    let disk = or_skip!(SlowDisk::new(BYTES));
    let folder = disk.path("volume");
    let report = net.farhaul(&["doctor", FAR, "--peer-dir", folder.to_str().expect("a name")]);
    let rate = BYTES as f64 * 8.0;
    // What the file system writes beside it counts, too.
    within(number(&report["peer"]["disk"]["write"]), rate, 0.2, &report["peer"]["disk"]);
    let slowest = &report["diagnosis"]["stages"][0];
    assert_eq!((&slowest["kind"], &slowest["host"]), (&"disk_write".into(), &"peer".into()));
    net.assert_expected(&report, 4 * BYTES as usize, &folder);
}
