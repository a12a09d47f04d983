//! The configuration of `farhaul serve`: one TOML file.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use farhaul_base::names::suggestion;
pub use farhaul_mover::location::DEFAULT_PORT;
use farhaul_secure::PublicKey;

use super::Limits;
use super::clients::{Rules, Stated, read_limits};
use super::limits;
use super::log::Format;
use crate::exit::Usage;
use crate::keys::{allow_list, store};
use crate::tables::{self, Problems, Section};

/// How long running sessions may go on when the server is stopped, if its file does not say.
const GRACE: Duration = Duration::from_secs(30);
/// More sessions than this a server does not take, whatever its file says.
const MOST_SESSIONS: u32 = 65_536;

/// What all clients together may make the server keep where its file does not say, bytes.
const MEMORY: u64 = 384 << 20;
/// Less is too little for one copy of many files beside others.
const LEAST_MEMORY: u64 = 64 << 20;
/// What a connection may hold in either direction, bytes.
const CONNECTION_MEMORY: u64 = 4 << 20;
/// Less is too little for any path.
const LEAST_CONNECTION_MEMORY: u64 = 1 << 20;

/// What a server is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeConfig {
    /// Where it listens, UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// The file with its key.
    pub identity: PathBuf,
    /// Whom it knows, by name.
    pub clients: BTreeMap<String, Client>,
    /// What its file says about them, beside the list of allowed keys.
    pub rules: Rules,
    /// What it has for them, by name.
    pub exports: BTreeMap<String, Export>,
    /// Where it tells how it does, without asking who wants to know: a loopback address.
    pub metrics: Option<SocketAddr>,
    /// How it writes its log.
    pub log: Format,
    /// Where the server keeps what outlives it: what clients have used today.
    pub state: Option<PathBuf>,
    /// Sessions at a time, at least 1.
    pub max_sessions: u32,
    /// What clients may make the server keep in memory, bytes; a quarter of it each.
    pub memory: u64,
    /// What each connection may hold that is not read or not sent yet, bytes.
    pub connection_memory: u64,
    /// Whether data may travel unencrypted if the client asks for that.
    pub plain: bool,
    /// How long running sessions may go on when the server is stopped.
    pub grace: Duration,
    /// Whether the process confines itself before the first client comes.
    pub sandbox: bool,
    /// What of its file has no effect, `PATH:LINE: text` each.
    pub warnings: Vec<String>,
}

/// A client that may connect.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// How it is known.
    pub key: PublicKey,
    /// What is granted to it.
    pub limits: Limits,
}

/// A directory that clients may read or write.
#[derive(Clone, Debug, PartialEq)]
pub struct Export {
    /// An absolute path.
    pub path: PathBuf,
    /// What may be done there.
    pub access: Access,
    /// By whom.
    pub clients: Admitted,
    /// What beside contents, modes and times may be kept.
    pub keep: Keep,
    /// The permission bits that files and directories may come with; set-ID bits only if those are kept.
    pub mode_mask: u32,
}

/// What of files is kept only where it is allowed: it may open more than was meant to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Users and groups.
    pub owner: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Set-user-ID and set-group-ID bits.
    pub set_id: bool,
}

impl Keep {
    fn parse(text: &str) -> Result<Keep, String> {
        let mut keep = Keep::default();
        for name in text.split(',').map(str::trim) {
            match name {
                "owner" => keep.owner = true,
                "xattrs" => keep.xattrs = true,
                "set-id" => keep.set_id = true,
                _ => return Err(suggestion(name, ["owner", "xattrs", "set-id"].into_iter())),
            }
        }
        Ok(keep)
    }
}

/// What may be done in an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Fetch files.
    Read,
    /// Leave files.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    const NAMES: [(&'static str, Access); 3] =
        [("read", Access::Read), ("write", Access::Write), ("read-write", Access::ReadWrite)];

    /// Whether files may be fetched.
    pub fn reads(self) -> bool {
        self != Access::Write
    }

    /// Whether files may be left.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

/// Who may use an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// Every client that the server knows.
    All,
    /// Those with these names.
    Named(Vec<String>),
}

impl ServeConfig {
    /// Reads the file at `path`, and the list of keys that it names; looks whether the exports are
    /// directories.
    ///
    /// # Errors
    /// Others may write to one of these files; or everything that is wrong, with its line.
    pub fn load(path: &Path) -> Result<ServeConfig, Usage> {
        let text = store::read_if_there(path)?
            .ok_or_else(|| Usage(format!("there is no file {}", path.display())))?;
        let config = Self::parse(path, &text, |list| {
            if !list.exists() {
                return Err(Usage(format!("there is no file {}", list.display())));
            }
            allow_list::load(list)
        })?;
        for (name, export) in &config.exports {
            if !export.path.is_dir() {
                let (path, export) = (path.display(), export.path.display());
                let message = format!("{path}: [export.{name}]: {export} is not a directory");
                return Err(Usage(message));
            }
        }
        Ok(config)
    }

    /// Reads `text`, which stands in the file at `path`. Relative paths in it are meant from there.
    /// `allowed` reads the list of keys that it may name.
    ///
    /// # Errors
    /// Everything that is wrong, with its line.
    pub fn parse(
        path: &Path,
        text: &str,
        mut allowed: impl FnMut(&Path) -> Result<Vec<allow_list::Allowed>, Usage>,
    ) -> Result<ServeConfig, Usage> {
        let table = tables::parse(path, text)?;
        let problems = Problems::new(path, text);
        let top = Section::new(&problems, "", &table, 0..0);
        let base = path.parent().unwrap_or(Path::new(""));
        let listen = top.get("listen", addresses);
        let identity = top.required("identity", |text| file(base, text));
        let general = top.table("limits").map_or(Limits::default(), |section| {
            let limits = read_limits(&section);
            section.finish();
            limits
        });
        let list = top.get("allowed-keys", |text| file(base, text));
        // One that is wrong is told, and so is not taken for one that is not named.
        let listed = top.get("allowed-keys", |_| {
            list.as_deref().map_or(Ok(Vec::new()), &mut allowed).map_err(|error| error.0)
        });
        let listed = listed.unwrap_or_default();
        let sections = read_sections(&problems, &top, list.is_some(), &listed);
        let rules = Rules { list, general, sections };
        let clients = rules.clients(listed);
        let exports = read_exports(&problems, &top, &clients);
        let listen = listen.unwrap_or(vec![(Ipv6Addr::UNSPECIFIED, DEFAULT_PORT).into()]);
        let metrics = top.get("metrics", loopback);
        let log = top.get("log", |text| one_of(text, &Format::NAMES)).unwrap_or(Format::Text);
        let max_sessions = top.get("max-sessions", sessions).unwrap_or(64);
        let state = top.get("state-directory", |text| file(base, text)).or_else(|| {
            // Of systemd; of several the first.
            let all = std::env::var("STATE_DIRECTORY").ok()?;
            all.split(':').next().filter(|first| !first.is_empty()).map(PathBuf::from)
        });
        let memory = top.get("memory", |text| at_least(text, LEAST_MEMORY)).unwrap_or(MEMORY);
        let connection_memory = top
            .get("connection-memory", |text| at_least(text, LEAST_CONNECTION_MEMORY))
            .unwrap_or(CONNECTION_MEMORY);
        let plain = top.get("plain", crate::config::value::SWITCH.parse).unwrap_or(false);
        let grace = top.get("grace", crate::units::time).unwrap_or(GRACE);
        let sandbox = top.get("sandbox", crate::config::value::SWITCH.parse).unwrap_or(true);
        top.finish();
        Ok(ServeConfig {
            listen,
            identity: identity.unwrap_or_default(),
            clients,
            rules,
            exports,
            metrics,
            log,
            state,
            max_sessions,
            memory,
            connection_memory,
            plain,
            grace,
            sandbox,
            warnings: problems.finish()?,
        })
    }

    /// How many sessions at a time one client may have that has these limits: where they do not say, a
    /// quarter of all, so that no client keeps the others out.
    pub fn sessions_of(&self, limits: &Limits) -> u32 {
        limits.connections.unwrap_or(self.max_sessions.div_ceil(4))
    }

    /// What one client may make the server keep, bytes: so that none keeps the others out.
    pub fn memory_of_client(&self) -> u64 {
        self.memory / 4
    }

    /// The client with `key`.
    pub fn client_of(&self, key: &PublicKey) -> Option<(&str, &Client)> {
        let mut clients = self.clients.iter();
        clients.find(|(_, client)| client.key == *key).map(|(name, client)| (name.as_str(), client))
    }

    /// The export `name` if `client` may use it. Whether there is one that it may not use, it is not
    /// told.
    pub fn export_for(&self, client: &str, name: &str) -> Option<&Export> {
        self.exports.get(name).filter(|export| match &export.clients {
            Admitted::All => true,
            Admitted::Named(names) => names.iter().any(|name| name == client),
        })
    }
}

/// The configuration in force, which can be read again while sessions run.
#[derive(Debug)]
pub struct Live {
    path: PathBuf,
    current: RwLock<Arc<ServeConfig>>,
}

impl Live {
    /// That of the file at `path`.
    ///
    /// # Errors
    /// As [`ServeConfig::load`].
    pub fn load(path: &Path) -> Result<Live, Usage> {
        let current = RwLock::new(Arc::new(ServeConfig::load(path)?));
        Ok(Live { path: path.to_owned(), current })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in force now; who holds it keeps it as it is.
    pub fn current(&self) -> Arc<ServeConfig> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again and puts what it says in force, all at once. Returns the keys whose new
    /// values need a restart; what they say stays as it was.
    ///
    /// # Errors
    /// The file is wrong: then everything stays as it was.
    pub fn reload(&self) -> Result<Vec<&'static str>, Usage> {
        let mut new = ServeConfig::load(&self.path)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = Vec::new();
        let mut keep = |name, changed: bool| {
            if changed {
                waiting.push(name);
            }
        };
        keep("listen", new.listen != current.listen);
        keep("identity", new.identity != current.identity);
        keep("metrics", new.metrics != current.metrics);
        keep("log", new.log != current.log);
        keep("state-directory", new.state != current.state);
        new.state.clone_from(&current.state);
        keep("connection-memory", new.connection_memory != current.connection_memory);
        new.connection_memory = current.connection_memory;
        keep("sandbox", new.sandbox != current.sandbox);
        new.sandbox = current.sandbox;
        new.listen.clone_from(&current.listen);
        new.identity.clone_from(&current.identity);
        new.metrics = current.metrics;
        new.log = current.log;
        *current = Arc::new(new);
        Ok(waiting)
    }

    /// Reads only the list of allowed keys again and puts it in force, whatever has become of the file:
    /// a key that was taken out is to be out.
    ///
    /// # Errors
    /// The list cannot be read: then everything stays as it was.
    pub fn reload_keys(&self) -> Result<(), Usage> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let clients = current.rules.listed_again(&current.clients)?;
        *current = Arc::new(ServeConfig { clients, ..ServeConfig::clone(&current) });
        Ok(())
    }
}

/// The sections about clients. One without a key is about a client of the list, if there is a list.
fn read_sections(
    problems: &Problems<'_>,
    top: &Section<'_>,
    has_list: bool,
    listed: &[allow_list::Allowed],
) -> BTreeMap<String, Stated> {
    let mut sections = BTreeMap::<String, Stated>::new();
    for (name, span, table) in top.tables("client") {
        let section = Section::new(problems, format!("[client.{name}]"), table, span.clone());
        let wrong = |message: String| problems.add(&span, message);
        if let Err(why) = allow_list::check_name(&name) {
            wrong(why);
        }
        let given = section.raw("key").is_some();
        let key = section.get("key", str::parse::<PublicKey>);
        let limits = read_limits(&section);
        section.finish();
        let is_listed = listed.iter().any(|allowed| allowed.name == name);
        if let Some(key) = key {
            let of_list = listed.iter().filter(|allowed| allowed.key == key);
            let of_file = sections.iter().filter(|(_, other)| other.key == Some(key));
            let mut others = of_list.map(|allowed| &allowed.name).chain(of_file.map(|(n, _)| n));
            if is_listed {
                wrong(format!("'{name}' has its key in the list of allowed keys already"));
            } else if let Some(other) = others.next() {
                wrong(format!("'{name}' has the same key as '{other}'"));
            }
        } else if !given && !is_listed && has_list {
            problems.warn(&span, format!("the list of allowed keys has no '{name}': no effect"));
        } else if !given && !is_listed {
            wrong(format!("[client.{name}] needs 'key': there is no list of allowed keys"));
        }
        sections.insert(name, Stated { key, limits });
    }
    sections
}

fn read_exports(
    problems: &Problems<'_>,
    top: &Section<'_>,
    clients: &BTreeMap<String, Client>,
) -> BTreeMap<String, Export> {
    let mut exports = BTreeMap::new();
    for (name, span, table) in top.tables("export") {
        let called = format!("[export.{name}]");
        let section = Section::new(problems, called, table, span.clone());
        if let Err(why) = check_export(&name) {
            problems.add(&span, why);
        }
        let path = section.required("path", absolute);
        let access = section.required("access", |text| one_of(text, &Access::NAMES));
        let admitted = section.required("clients", admitted);
        if let Some(Admitted::Named(names)) = &admitted {
            // A client may have been revoked: that must not keep the rest from taking effect.
            for name in names.iter().filter(|name| !clients.contains_key(*name)) {
                let hint = match clients.is_empty() {
                    true => "nor another".to_owned(),
                    false => suggestion(name, clients.keys().map(String::as_str)),
                };
                section.warn("clients", format!("there is no client '{name}'; {hint}"));
            }
        }
        let keep = section.get("keep", Keep::parse).unwrap_or_default();
        let mode_mask = section.get("mode-mask", mode_mask).unwrap_or(ALL_MODES);
        section.finish();
        if let (Some(path), Some(access), Some(clients)) = (path, access, admitted) {
            exports.insert(name, Export { path, access, clients, keep, mode_mask });
        }
    }
    let none: Range<usize> = 0..0;
    if top.tables("export").is_empty() {
        problems.add(&none, "there is nothing to serve: write a section [export.NAME]");
    }
    exports
}

/// Names of exports are the first part of the paths that clients write.
fn check_export(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let good = (1..=64).contains(&name.len()) && name.chars().all(fits) && !name.starts_with('.');
    if good {
        return Ok(());
    }
    Err(format!("'{name}' is no name of an export: it is of letters, digits and -_., at most 64"))
}

fn admitted(text: &str) -> Result<Admitted, String> {
    if text == "*" {
        return Ok(Admitted::All);
    }
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    match names.iter().any(String::is_empty) {
        true => Err("name clients, or write \"*\" for all".into()),
        false => Ok(Admitted::Named(names)),
    }
}

fn addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    text.split(',').map(|text| address(text.trim())).collect()
}

/// No names of hosts: what they mean changes.
fn address(text: &str) -> Result<SocketAddr, String> {
    let full = text.strip_prefix(':').map_or(text.to_owned(), |port| format!("[::]:{port}"));
    let parsed = full.parse().ok().filter(|address: &SocketAddr| address.port() != 0);
    parsed.ok_or_else(|| format!("'{text}' is not an address with a port, as [::]:{DEFAULT_PORT}"))
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address = address(text)?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err("it is told to whoever asks, so it must be a loopback address, as 127.0.0.1:9300; \
         let a proxy that knows its clients pass it on"
        .into())
}

fn at_least(text: &str, least: u64) -> Result<u64, String> {
    let size = crate::units::size(text)?;
    let show = |size: u64| format!("{} MiB", size >> 20);
    if size >= least { Ok(size) } else { Err(format!("at least {}", show(least))) }
}

fn sessions(text: &str) -> Result<u32, String> {
    let count = limits::count(text)?;
    if count <= MOST_SESSIONS { Ok(count) } else { Err(format!("at most {MOST_SESSIONS}")) }
}

fn file(base: &Path, text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("write a path".to_owned()) } else { Ok(base.join(text)) }
}

/// All that a mode may have.
const ALL_MODES: u32 = 0o7777;
/// Without these bits the server could not go on with what it has begun.
const OWNERS: u32 = 0o700;

fn mode_mask(text: &str) -> Result<u32, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let mask = u32::from_str_radix(text, 8).ok().filter(|mask| digits && *mask <= ALL_MODES);
    let mask = mask.ok_or("write permission bits as chmod takes them, as \"0750\"")?;
    match mask & OWNERS {
        OWNERS => Ok(mask),
        _ => Err("the owner's bits, 0700, must be among them".into()),
    }
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let plain = path.is_absolute() && !path.components().any(|part| part.as_os_str() == "..");
    if plain { Ok(path) } else { Err("write an absolute path without ..".into()) }
}

fn one_of<T: Copy>(text: &str, known: &[(&'static str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text);
    let names = known.iter().map(|(name, _)| *name);
    found.map(|(_, value)| *value).ok_or_else(|| suggestion(text, names))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use farhaul_secure::Identity;

    use super::*;

    fn key() -> PublicKey {
        Identity::generate().expect("a key").public_key()
    }

    fn none(_: &Path) -> Result<Vec<allow_list::Allowed>, Usage> {
        Ok(Vec::new())
    }

    fn parse(text: &str) -> Result<ServeConfig, String> {
        ServeConfig::parse(Path::new("/etc/farhaul/serve.toml"), text, none).map_err(|e| e.0)
    }

    #[test]
    fn the_sample_is_right() {
        let text = include_str!("../../../../dist/serve.toml");
        let listed = |list: &Path| {
            assert_eq!(list, Path::new("/etc/farhaul/allowed_keys"));
            let limits = Limits::default();
            Ok(vec![allow_list::Allowed { name: "archive".into(), key: key(), limits, line: 1 }])
        };
        let config = ServeConfig::parse(Path::new("serve.toml"), text, listed).expect("the sample");
        assert_eq!(config.listen, ["[::]:7300".parse().expect("an address")]);
        assert!(config.metrics.is_some_and(|address| address.ip().is_loopback()));
        assert!(!config.clients.is_empty() && !config.exports.is_empty() && !config.plain);
        let kinds: Vec<_> = config.exports.values().map(|export| export.access).collect();
        assert!(kinds.contains(&Access::Read) && kinds.contains(&Access::ReadWrite), "{kinds:?}");
    }

    #[test]
    fn little_is_needed() {
        let config = parse(
            "identity = \"identity\"\n\
             [export.data]\npath = \"/srv/data\"\naccess = \"read\"\nclients = \"*\"\n",
        )
        .expect("a configuration");
        assert_eq!(config.identity, Path::new("/etc/farhaul/identity"));
        assert_eq!(config.listen, ["[::]:7300".parse().expect("an address")]);
        assert_eq!((config.metrics, config.log, config.plain), (None, Format::Text, false));
        assert_eq!((config.max_sessions, config.grace), (64, GRACE));
        assert_eq!(config.sessions_of(&Limits::default()), 16);
        let limits = Limits { connections: Some(99), ..Limits::default() };
        assert_eq!(config.sessions_of(&limits), 99);
        assert!(config.export_for("anybody", "data").is_some());
    }

    #[test]
    fn clients_come_from_the_list_and_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let list = dir.path().join("allowed_keys");
        let (a, b) = (key(), key());
        let limits = Limits { connections: Some(9), ..Limits::default() };
        allow_list::allow(&list, a, "alice", &limits).expect("written");
        fs::create_dir(dir.path().join("data")).expect("a directory");
        let path = dir.path().join("serve.toml");
        let text = format!(
            "identity = \"identity\"\nallowed-keys = \"allowed_keys\"\nmax-sessions = 3\n\
             listen = [\"127.0.0.1:1\", \":2\"]\nmetrics = \"[::1]:9300\"\nlog = \"json\"\n\
             [limits]\nrate = \"1G\"\nbytes = \"1TB\"\n\
             [client.alice]\nrate = \"2G\"\n\
             [client.bob]\nkey = \"{b}\"\n\
             [export.in]\npath = {:?}\naccess = \"write\"\nclients = [\"alice\"]\n\
             keep = [\"owner\", \"set-id\"]\nmode-mask = \"2775\"\n",
            dir.path().join("data")
        );
        fs::write(&path, &text).expect("a file");
        let live = Live::load(&path).expect("a configuration");
        let config = live.current();
        let (name, alice) = config.client_of(&a).expect("alice");
        let of_alice = Limits {
            rate: Some(2_000_000_000),
            connections: Some(9),
            bytes_per_day: None,
            bytes: Some(1_000_000_000_000),
            entries: None,
        };
        assert_eq!((name, alice.limits), ("alice", of_alice));
        assert_eq!(config.client_of(&b).expect("bob").1.limits.rate, Some(1_000_000_000));
        assert_eq!(config.client_of(&key()), None);
        assert_eq!(config.listen[1], "[::]:2".parse().expect("an address"));
        let export = config.export_for("alice", "in").expect("it is hers");
        assert_eq!(export.keep, Keep { owner: true, set_id: true, xattrs: false });
        assert_eq!(export.mode_mask, 0o2775);
        assert!(export.access.writes() && !export.access.reads());
        assert_eq!(config.export_for("bob", "in"), None);
        assert_eq!(config.export_for("alice", "out"), None);

        // Only what can change does.
        let changed = text.replace("max-sessions = 3", "max-sessions = 4").replace("json", "text");
        fs::write(&path, changed.replace("127.0.0.1:1", "127.0.0.1:9")).expect("a file");
        assert_eq!(live.reload().expect("it is right"), ["listen", "log"]);
        let new = live.current();
        assert_eq!((new.max_sessions, &new.listen, new.log), (4, &config.listen, Format::Json));
        assert_eq!(config.max_sessions, 3, "who holds the old one keeps it");
        fs::write(&path, "identity = 1\n").expect("a file");
        assert!(live.reload().is_err());
        assert_eq!(live.current(), new);
        fs::write(&path, text.replace("[export.in]", "[export.in]\npat = 1")).expect("a file");
        assert!(live.reload().is_err_and(|told| told.0.contains("did you mean 'path'?")));
        fs::remove_dir(dir.path().join("data")).expect("a directory");
        fs::write(&path, &text).expect("a file");
        assert!(live.reload().is_err_and(|told| told.0.contains("is not a directory")));
    }

    #[test]
    fn clients_that_are_not_there_are_warnings() {
        let a = key();
        let text = "identity = \"i\"\nallowed-keys = \"l\"\n[client.bob]\nrate = \"1M\"\n\
                    [export.x]\npath = \"/x\"\naccess = \"read\"\nclients = [\"alic\", \"alice\"]\n";
        let listed = |_: &Path| {
            let limits = Limits::default();
            Ok(vec![allow_list::Allowed { name: "alice".into(), key: a, limits, line: 1 }])
        };
        let config = ServeConfig::parse(Path::new("s"), text, listed).expect("it is right");
        assert_eq!(
            config.warnings,
            [
                "s:3: the list of allowed keys has no 'bob': no effect",
                "s:8: there is no client 'alic'; did you mean 'alice'?",
            ]
        );
        // Once they are there, what stands about them holds.
        let (bob, limits) = (key(), Limits { rate: Some(5), ..Limits::default() });
        let again = vec![allow_list::Allowed { name: "bob".into(), key: bob, limits, line: 1 }];
        let clients = config.rules.clients(again);
        assert_eq!(clients["bob"].limits.rate, Some(1_000_000));
        assert_eq!(clients.len(), 1);
        let empty = text.replace("[\"alic\", \"alice\"]", "\"alice,\"");
        assert!(ServeConfig::parse(Path::new("s"), &empty, listed).is_err());
    }

    #[test]
    fn all_that_is_wrong_is_told() {
        let a = key();
        let told = parse(&format!(
            "listen = \"host:1\"\n\
             metrics = \"0.0.0.0:9300\"\n\
             log = \"jsn\"\n\
             max-sessions = 0\n\
             plan = true\n\
             [client.alice]\nkey = \"{a}\"\nrte = 1\n\
             [client.bob]\n\
             [client.carol]\nkey = \"{a}\"\n\
             [client.\"d/e\"]\nkey = \"ed25519:\"\n\
             [export.\"a/b\"]\npath = \"relative\"\naccess = \"raed\"\nclients = [\"alic\"]\n\
             [export.x]\nkeep = \"owners\"\nmode-mask = \"077\"\n"
        ))
        .expect_err("much is wrong");
        for part in [
            "serve.toml:1: the file needs 'identity'",
            ":1: listen = \"host:1\": ",
            ":2: metrics = \"0.0.0.0:9300\": it is told to whoever asks",
            ":3: log = \"jsn\": did you mean 'json'?",
            ":4: max-sessions = \"0\": write a number from 1 on",
            ":5: the file has no key 'plan'; did you mean 'plain'?",
            ":8: [client.alice] has no key 'rte'; did you mean 'rate'?",
            ":9: [client.bob] needs 'key'",
            ":10: 'carol' has the same key as 'alice'",
            ":12: 'd/e' is no name",
            ":13: key = \"ed25519:\": a public key is written as",
            ":14: 'a/b' is no name of an export",
            ":15: path = \"relative\": write an absolute path",
            ":16: access = \"raed\": did you mean 'read'?",
            ":18: [export.x] needs 'path'",
            ":18: [export.x] needs 'access'",
            ":18: [export.x] needs 'clients'",
            ":19: keep = \"owners\": did you mean 'owner'?",
            ":20: mode-mask = \"077\": the owner's bits",
        ] {
            assert!(told.contains(part), "{part} is not in\n{told}");
        }
        assert_eq!(told.lines().count(), 19, "{told}");
        for wrong in ["", "rwx", "+750", "888", "10755"] {
            assert!(mode_mask(wrong).is_err(), "{wrong}");
        }
        let told = parse("identity = \"i\"\n").expect_err("nothing to serve");
        assert!(told.contains("[export.NAME]"), "{told}");
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("serve.toml");
        fs::write(&path, "identity = \"i\"\nallowed-keys = \"none\"\n").expect("a file");
        let told = ServeConfig::load(&path).expect_err("no list").0;
        assert!(told.contains(":2: allowed-keys = \"none\": there is no file "), "{told}");
    }
}
