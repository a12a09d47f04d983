//! `farhaul cp` as users run it: within this host, and over a real sshd with a home of its own behind it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::process::Process;
use super::sshd::Sshd;

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Local,
    Push,
    Pull,
    Between,
}

pub const WAYS: [Way; 4] = [Way::Local, Way::Push, Way::Pull, Way::Between];

/// A place for a test: directories, settings, and hosts to copy to and from.
pub struct Place {
    dir: tempfile::TempDir,
    sshd: Option<Sshd>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub out: Vec<u8>,
    pub errors: String,
}

impl Place {
    /// Without other hosts.
    pub fn here() -> Place {
        let place = Place { dir: tempfile::tempdir().expect("a directory"), sshd: None };
        for name in ["home", "far-home"] {
            fs::create_dir(place.path(name)).expect("a directory");
        }
        place
    }

    /// With another host, 127.0.0.1 by an sshd. The error says why there is none.
    pub fn with_host() -> Result<Place, String> {
        Self::with_host_at("127.0.0.1")
    }

    /// The same at another address.
    pub fn with_host_at(address: &str) -> Result<Place, String> {
        let sshd = Sshd::start_at(address)?;
        let place = Place { sshd: Some(sshd), ..Place::here() };
        let home = place.path("far-home");
        let farhaul = env!("CARGO_BIN_EXE_farhaul");
        let home = home.display();
        // As a login would have it.
        place.script("far", &format!("HOME={home}; export HOME; cd; exec '{farhaul}' \"$@\""));
        Ok(place)
    }

    /// A path of the test's own.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The same as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("text").to_owned()
    }

    /// The same on the other host.
    pub fn far(&self, name: &str) -> String {
        format!("127.0.0.1:{}", self.text(name))
    }

    /// Writes a file, with directories above it.
    pub fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory");
        fs::write(&path, content).expect("a file");
        path
    }

    /// A program.
    pub fn script(&self, name: &str, text: &str) -> String {
        let path = self.write(name, format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        path.to_str().expect("text").to_owned()
    }

    /// `farhaul` in this place, ready to be started.
    pub fn command(&self, args: &[&str]) -> Command {
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        self.command_os(&args)
    }

    pub fn command_os(&self, args: &[&OsStr]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farhaul"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FARHAUL_") {
                command.env_remove(name);
            }
        }
        let home = self.path("home");
        command.args(args).stdin(Stdio::null()).current_dir(self.dir.path());
        command.env("XDG_CONFIG_HOME", home.join(".config")).env("HOME", home);
        if let Some(sshd) = &self.sshd {
            command.env("FARHAUL_SSH", &sshd.ssh_command);
            command.env("FARHAUL_REMOTE_FARHAUL", self.path("far"));
        }
        command
    }

    /// Runs `farhaul`.
    pub fn run(&self, args: &[&str]) -> Done {
        Done::of(self.command(args))
    }

    /// Starts `farhaul`.
    pub fn start(&self, args: &[&str]) -> Process {
        let name = format!("farhaul {}", args.join(" "));
        Process::with_lines(self.command(args), name, Duration::from_secs(120))
    }

    /// Runs `farhaul cp`.
    pub fn cp(&self, args: &[&str]) -> Done {
        self.run(&[&["cp"], args].concat())
    }

    /// Copies this way; it must be possible.
    pub fn copy(&self, way: Way, flags: &[&str], from: &str, to: &str) -> Done {
        let (from, to) = self.named(way, from, to);
        self.cp(&[flags, &[&from, &to]].concat())
    }

    /// The names of two paths here, as this way wants them.
    pub fn named(&self, way: Way, from: &str, to: &str) -> (String, String) {
        let far = |far: bool, name: &str| if far { self.far(name) } else { self.text(name) };
        (
            far(matches!(way, Way::Pull | Way::Between), from),
            far(matches!(way, Way::Push | Way::Between), to),
        )
    }
}

impl Done {
    pub fn of(mut command: Command) -> Done {
        let output = command.output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Done { code: output.status.code(), out: output.stdout, errors }
    }

    /// It must have ended so.
    pub fn code(self, code: i32) -> Done {
        assert_eq!(self.code, Some(code), "{}{}", self.text(), self.errors);
        self
    }

    pub fn well(self) -> Done {
        self.code(0)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    pub fn json(&self) -> Value {
        let parsed = serde_json::from_slice(&self.out);
        parsed.unwrap_or_else(|error| panic!("{error}: {}{}", self.text(), self.errors))
    }

    /// The lines of `--json-stream`.
    pub fn events(&self) -> Vec<Value> {
        let lines = self.out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let parse = |line| serde_json::from_slice(line).expect("a document a line");
        lines.map(parse).collect()
    }
}

/// What is known of an entry: kind and permissions, time of change, links, content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub mode: u32,
    pub modified: (i64, i64),
    pub links: u64,
    /// Of a link its text, of a file the BLAKE3.
    pub content: String,
}

/// Everything below a directory, by relative path; the directory itself by the empty one.
pub fn tree(top: &Path) -> BTreeMap<OsString, Known> {
    let mut found = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(path) = todo.pop() {
        let whole = if path.as_os_str().is_empty() { top.to_owned() } else { top.join(&path) };
        let meta = fs::symlink_metadata(&whole).expect("it was listed");
        let content = if meta.is_dir() {
            let entries = fs::read_dir(&whole).expect("a directory");
            todo.extend(entries.map(|entry| path.join(entry.expect("an entry").file_name())));
            String::new()
        } else if meta.is_symlink() {
            fs::read_link(&whole).expect("a link").to_string_lossy().into_owned()
        } else {
            blake3::hash(&fs::read(&whole).expect("a file")).to_hex().to_string()
        };
        let links = if meta.is_dir() { 1 } else { meta.nlink() };
        let modified = (meta.mtime(), meta.mtime_nsec());
        found.insert(path.into(), Known { mode: meta.mode(), modified, links, content });
    }
    found
}

/// The paths below a directory, in order.
pub fn names(top: &Path) -> Vec<String> {
    let paths = tree(top).into_keys().skip(1);
    paths.map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Bytes that do not repeat, the same for the same `seed`.
pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(length);
    out
}

/// A place with a host, or the test is skipped.
macro_rules! place_or_skip {
    () => {
        match crate::common::copy::Place::with_host() {
            Ok(place) => place,
            Err(why) => crate::common::skip!("{why}"),
        }
    };
}
pub(crate) use place_or_skip;
