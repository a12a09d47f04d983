//! What the user wants: from where to where, what each side is to do, and on which terms.

use std::ffi::OsString;
use std::fs;
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use farhaul_mover::location::{Location, Served, There};
use farhaul_mover::transfer::sink::{CopyId, copy_id};
use farhaul_remote::Transport;

use super::args::CpArgs;
use super::itself::Peer;
use super::job::{Bytes, Job, Kept, OnExisting, Order, SinkJob, SourceJob, Terms};
use super::show::Show;
use crate::config::Settings;
use crate::config::value::{self, Local, Streams, Verify};
use crate::exit::Usage;

/// Lanes to begin with where the user names no number.
const FIRST_LANES: u32 = 2;

/// From where to where.
pub enum Way {
    /// In this process alone.
    Here,
    /// To or from this host, which runs the other side.
    With { host: String, sending: bool },
    /// To or from an export of a server.
    Served { export: Export, sending: bool },
    /// Between two others.
    Between { from: String, to: String },
}

impl Way {
    /// Whether this host has the sources.
    pub fn sends_from_here(&self) -> bool {
        matches!(
            self,
            Way::Here | Way::With { sending: true, .. } | Way::Served { sending: true, .. }
        )
    }
}

/// A directory that a server exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub host: String,
    pub port: u16,
    pub name: String,
}

/// Where a source or a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum At {
    Here,
    Ssh(String),
    Server(Export),
}

impl At {
    fn of(location: &Location) -> (At, PathBuf) {
        match location {
            Location::Here(path) => (At::Here, path.clone()),
            Location::There(There { host, path }) => (At::Ssh(host.clone()), path.clone()),
            Location::Served(Served { host, port, export, path }) => {
                let export = Export { host: host.clone(), port: *port, name: export.clone() };
                (At::Server(export), path.clone())
            }
            Location::Standard => (At::Here, PathBuf::from("-")),
        }
    }
}

/// A copy, understood.
pub struct Plan {
    pub way: Way,
    pub source: SourceJob,
    pub sink: SinkJob,
    pub terms: Terms,
    pub settings: Settings,
}

impl Plan {
    /// Tells what nobody should overlook.
    pub fn warn(&self, show: &Show) {
        if self.terms.plain {
            show.warn("NOT ENCRYPTED: anybody on the way can read what is copied");
        }
    }

    /// Whether standard input is copied, whatever is there.
    pub fn takes_stream(&self) -> bool {
        self.source.stream && self.sink.existing != OnExisting::Keep
    }

    pub fn transport(&self) -> Transport {
        match self.settings.transport.value {
            value::Transport::Auto => Transport::Auto,
            value::Transport::Udp => Transport::Udp,
            value::Transport::Tcp => Transport::Tcp,
        }
    }

    /// What an agent is told, which is to `tell` everything if this host has no part in it.
    pub fn order(&self, job: Job, tell: bool) -> Order {
        let ports = self.settings.listen_ports.value.map(|ports| (ports.first, ports.last));
        let peer = match &job {
            _ if tell => None,
            Job::Source(_) => Peer::target(&self.sink),
            Job::Sink(_) => Peer::sources(&self.source),
        };
        Order { job, terms: self.terms.clone(), ports, tell, peer }
    }
}

/// What the user wants.
pub fn plan(args: &CpArgs) -> Result<Plan> {
    let parse = |path: &OsString| Location::parse(path).map_err(|error| Usage(error.to_string()));
    let locations: Vec<Location> = args.paths.iter().map(parse).collect::<Result<_, _>>()?;
    let (target, sources) = locations.split_last().context("clap asks for two paths")?;
    let (from, stream, paths) = sources_of(sources)?;
    let target_stream = matches!(target, Location::Standard);
    let (to, target_path) = At::of(target);
    if target_stream && (args.json || args.json_stream) {
        return Err(Usage("standard output cannot be both the copy and JSON".into()).into());
    }
    if stream && names_a_directory(&to, &target_path) {
        let why = "standard input has no name: name the file, as in DIR/FILE or HOST:FILE";
        return Err(Usage(why.into()).into());
    }
    let whole_export = matches!(to, At::Server(_)) && target_path.as_os_str().is_empty();
    let way = match (from, to) {
        (At::Here, At::Here) => Way::Here,
        (At::Here, At::Ssh(host)) => Way::With { host, sending: true },
        (At::Ssh(host), At::Here) => Way::With { host, sending: false },
        (At::Ssh(from), At::Ssh(to)) => Way::Between { from, to },
        (At::Here, At::Server(export)) => Way::Served { export, sending: true },
        (At::Server(export), At::Here) => Way::Served { export, sending: false },
        (At::Server(_), _) | (_, At::Server(_)) => {
            let text = "a server copies from and to the host that asks it: run farhaul cp on the host \
                        at the other end";
            return Err(Usage(text.into()).into());
        }
    };
    let host = match &way {
        Way::Here => None,
        Way::With { host, .. } | Way::Between { from: host, .. } => Some(host.as_str()),
        Way::Served { export, .. } => Some(export.host.as_str()),
    };
    if !matches!(way, Way::Served { .. }) {
        args.server.refuse_without_server()?;
    }
    let settings = Settings::load(&args.settings.layer(), host)?;
    let slash = |path: &Path| path.as_os_str().as_bytes().ends_with(b"/");
    let contents = |path: &PathBuf| {
        let bytes = path.as_os_str().as_bytes();
        slash(path) || matches!(bytes, b"" | b"." | b"~") || bytes.ends_with(b"/.")
    };
    let directory =
        paths.len() > 1 || paths.iter().any(contents) || slash(&target_path) || whole_export;
    if target_stream && (paths.len() > 1 || paths.iter().any(contents)) {
        let text = "standard output takes one file only: name it, or copy to a directory";
        return Err(Usage(text.into()).into());
    }
    let existing = match (args.checksum, args.skip_existing, args.overwrite) {
        (true, ..) => OnExisting::Checksum,
        (_, true, _) => OnExisting::Keep,
        (.., true) => OnExisting::Overwrite,
        _ => OnExisting::Update,
    };
    let rules = rules(args)?;
    let sink = SinkJob {
        path: Bytes::from(target_path.as_path()),
        stream: target_stream,
        directory,
        existing,
        delete: args.delete,
        max_delete: args.max_delete,
        allow_empty: args.allow_empty_source,
        spared: if args.delete_excluded { Vec::new() } else { rules.clone() },
        keep_set_id: args.keep_set_id,
        want_digests: args.receipt.is_some(),
        trust_partial: settings.trust_partial.value,
        copy: known_by(sources, target, &rules),
    };
    let source = SourceJob {
        paths: paths.iter().map(|path| Bytes::from(path.as_path())).collect(),
        stream,
        rules,
        count: !args.no_count,
        one_file: target_stream,
    };
    let terms = terms(args, &settings, stream || target_stream);
    Ok(Plan { way, source, sink, terms, settings })
}

/// What tells a copy that is run again from others: hosts, sources, target, what is left out.
fn known_by(sources: &[Location], target: &Location, rules: &[(String, bool)]) -> CopyId {
    let read = |path: &str| fs::read(path).unwrap_or_default();
    let here = [read("/etc/machine-id"), read("/proc/sys/kernel/hostname")].concat();
    let mut parts = Vec::new();
    for location in sources.iter().chain([target]) {
        let (at, path) = At::of(location);
        let (host, path) = match at {
            At::Here => (here.clone(), std::path::absolute(&path).unwrap_or(path)),
            At::Ssh(host) => (format!("ssh {host}").into_bytes(), path),
            At::Server(Export { host, port, name }) => {
                (format!("server {host} {port:?} {name}").into_bytes(), path)
            }
        };
        parts.extend([host, path.into_os_string().into_vec()]);
    }
    parts.extend(rules.iter().map(|(rule, takes)| format!("{takes} {rule}").into_bytes()));
    copy_id(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Whether it can be seen from here that a target is no file. What another host has under the name is not known yet.
fn names_a_directory(at: &At, path: &Path) -> bool {
    let slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    slash || path.file_name().is_none() || matches!(at, At::Here) && path.is_dir()
}

/// Where the sources are, whether they are standard input, and their paths.
fn sources_of(sources: &[Location]) -> Result<(At, bool, Vec<PathBuf>)> {
    let mut all_at = None;
    let mut paths = Vec::new();
    for source in sources {
        match source {
            Location::Standard if sources.len() == 1 => return Ok((At::Here, true, Vec::new())),
            Location::Standard => {
                return Err(Usage("standard input can only be copied alone".into()).into());
            }
            _ => {}
        }
        let (at, path) = At::of(source);
        if all_at.as_ref().is_some_and(|before| *before != at) {
            let text = "all sources must be on one host, and of a server in one export: copy the others \
                        by commands of their own";
            return Err(Usage(text.into()).into());
        }
        all_at = Some(at);
        paths.push(path);
    }
    Ok((all_at.unwrap_or(At::Here), false, paths))
}

/// Patterns in the order in which they were given, which clap's fields do not keep.
fn rules(args: &CpArgs) -> Result<Vec<(String, bool)>> {
    let mut rules: Vec<(String, bool)> = Vec::new();
    let mut words = std::env::args_os().skip(1).peekable();
    let mut left = args.exclude.len() + args.include.len();
    while let Some(word) = words.next()
        && left > 0
    {
        let Some(word) = word.to_str() else { continue };
        for (flag, include) in [("--exclude", false), ("--include", true)] {
            let pattern = match word.strip_prefix(flag) {
                Some("") => words.peek().and_then(|next| next.to_str()).map(str::to_owned),
                Some(rest) => rest.strip_prefix('=').map(str::to_owned),
                None => None,
            };
            if let Some(pattern) = pattern {
                rules.push((pattern, include));
                left -= 1;
            }
        }
    }
    let mut filter = farhaul_mover::transfer::source::filter::Filter::default();
    for (pattern, include) in &rules {
        filter.add(pattern, *include).map_err(|error| Usage(error.to_string()))?;
    }
    Ok(rules)
}

fn terms(args: &CpArgs, settings: &Settings, stream: bool) -> Terms {
    let preserve = settings.preserve.value;
    let lanes = match settings.streams.value {
        // A stream is read and written in order.
        _ if stream => 1,
        Streams::Auto => FIRST_LANES,
        Streams::Count(count) => count.get().into(),
    };
    Terms {
        verify: settings.verify.value == Verify::Full,
        dry_run: args.dry_run,
        outage_ms: settings.outage.value.as_millis() as u64,
        lanes,
        fixed_lanes: stream || settings.streams.value != Streams::Auto,
        cc: settings.cc.value.to_string(),
        mss: settings.mss.value,
        receive_memory: settings.receive_memory.value,
        send_memory: settings.send_memory.value,
        rate: settings.rate.value,
        preserve: Kept {
            mode: preserve.mode,
            times: preserve.times,
            owner: preserve.owner,
            xattrs: preserve.xattrs,
            hard_links: preserve.hardlinks,
            sparse: preserve.sparse,
        },
        plain: settings.plain.value,
    }
}

/// The addresses that connections go out from.
pub fn bound(locals: &[Local]) -> Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for local in locals {
        match local {
            Local::Address(address) => addresses.push(*address),
            Local::Interface(name) => {
                let found = farhaul_remote::interface_addresses(name);
                if found.is_empty() {
                    let text = format!("there is no interface '{name}' with an address");
                    return Err(Usage(text).into());
                }
                addresses.extend(found);
            }
        }
    }
    Ok(addresses)
}
