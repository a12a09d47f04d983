//! `farhaul serve`: the process, from its beginning to its end.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use farhaul::{Law, Options};
use farhaul_remote::{Context, ListenConfig, Listening, Terms};
use farhaul_secure::{Identity, Trust};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::daemon::{self, Server};
use super::http::{Bounds, Http};
use super::log::{Field, Level, Log};
use super::notify::notify;
use super::status::Status;
use crate::exit::INTERRUPTED;
use crate::keys::identity;
use crate::output;
use crate::transport::DEFAULT_LAW;

/// Between two looks after connections that say nothing.
const TICK: Duration = Duration::from_millis(200);
/// Between two writes of what clients have used.
const SAVE: Duration = Duration::from_secs(5);
/// How long sessions may take to tell their clients that they end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Serve directories to clients that are known by their keys, without ssh.
///
/// Clients copy with farhaul cp and farhaul://HOST[:PORT]/EXPORT/PATH. SIGHUP reads the file again, SIGTERM
/// ends the server once running copies are done or their time of grace is over.
#[derive(Args, Debug)]
#[command(override_usage = "farhaul serve [OPTIONS] --config <FILE>")]
pub struct ServeArgs {
    /// What to serve to whom: a TOML file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only check the file
    #[arg(long, conflicts_with = "print_key")]
    check: bool,
    /// Only print the server's public key, for clients to pin
    #[arg(long)]
    print_key: bool,
}

/// Runs `farhaul serve`.
pub fn run(args: &ServeArgs) -> Result<()> {
    let live = daemon::load(&args.config)?;
    let config = live.current();
    let identity = Arc::new(identity::load(&config.identity)?);
    if args.print_key {
        return output::print(format!("{}\n", identity.public_key()).as_bytes());
    }
    if args.check {
        let (clients, exports) = (config.clients.len(), config.exports.len());
        let path = args.config.display();
        config.warnings.iter().for_each(|warning| eprintln!("farhaul: warning: {warning}"));
        let text = format!("{path} is right: clients: {clients}, exports: {exports}\n");
        return output::print(text.as_bytes());
    }
    let signals = signals()?;
    let server = Server::new(live, Log::new(config.log, Box::new(io::stderr())));
    server.load_accounts()?;
    let key = identity.public_key().to_string();
    server.log().write(
        Level::Info,
        "started",
        &[
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("key", key.as_str().into()),
            ("clients", (config.clients.len() as u64).into()),
            ("exports", (config.exports.len() as u64).into()),
        ],
    );
    server.warn();
    let status: Option<Http> = match config.metrics {
        Some(address) => {
            let site: Arc<Status> = Arc::clone(server.status());
            let http = Http::start(address, site, Bounds::default())
                .with_context(|| format!("cannot tell how it does at {address}"))?;
            let address = http.address().to_string();
            server.log().write(Level::Info, "status", &[("address", address.as_str().into())]);
            Some(http)
        }
        None => None,
    };
    let mut listening = Vec::new();
    for address in &config.listen {
        let here = listen(&server, &identity, *address)
            .with_context(|| format!("cannot listen at {address}"))?;
        let address = address.to_string();
        server.log().write(Level::Info, "listening", &[("address", address.as_str().into())]);
        listening.push(here);
    }
    tell(&server, "READY=1");
    serve(&server, &signals);
    tell(&server, "STOPPING=1");
    wind_down(&server, &signals);
    server.save_accounts();
    listening.iter().for_each(Listening::close);
    drop(status);
    server.log().write(Level::Info, "stopped", &[]);
    Ok(())
}

/// The signals as they come. A handler for all of them is there from now on.
fn signals() -> Result<Receiver<i32>> {
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot listen for signals")?;
    let (give, come) = channel();
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if give.send(signal).is_err() {
                return;
            }
        }
    })?;
    Ok(come)
}

fn listen(
    server: &Arc<Server>,
    identity: &Arc<Identity>,
    address: SocketAddr,
) -> Result<Listening> {
    let known = Arc::clone(server);
    let terms = Terms {
        identity: Arc::clone(identity),
        trust: Trust::Known(Arc::new(move |key| known.knows(key))),
        context: Context::default(),
        plain: false,
    };
    let law: Law = DEFAULT_LAW.parse().map_err(anyhow::Error::msg)?;
    let mut config = ListenConfig::new(terms);
    // Where there is no IPv6, all addresses are those of IPv4.
    let everywhere = matches!(address.ip(), IpAddr::V6(ip) if ip.is_unspecified());
    config.addresses = if everywhere { Vec::new() } else { vec![address.ip()] };
    config.ports = address.port()..=address.port();
    config.plain_if_asked = Arc::clone(server.plain());
    let memory = server.connection_memory();
    config.options = Options::new().law(law).receive_memory(memory).send_memory(memory);
    let server = Arc::clone(server);
    let told = Arc::clone(&server);
    Ok(Listening::bind_telling(
        &config,
        move |link| server.newcomer(link),
        move |key, address| told.refused_key(key, address),
    )?)
}

/// Until a signal ends it.
fn serve(server: &Server, signals: &Receiver<i32>) {
    let mut saved = Instant::now();
    loop {
        if saved.elapsed() >= SAVE {
            server.save_accounts();
            saved = Instant::now();
        }
        match signals.recv_timeout(TICK) {
            Ok(SIGHUP) => {
                tell(server, "RELOADING=1");
                server.reload();
                tell(server, "READY=1");
            }
            Ok(_) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        server.tick();
    }
}

/// Lets sessions end, or ends them.
fn wind_down(server: &Server, signals: &Receiver<i32>) {
    server.stop();
    wait(server, signals, server.grace());
    if server.sessions().count() > 0 {
        server.end_all();
        wait(server, signals, LAST_WORDS);
    }
}

/// Until no session runs; another signal to end ends all at once.
fn wait(server: &Server, signals: &Receiver<i32>, time: Duration) {
    let deadline = Instant::now() + time;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if server.sessions().wait_none(left.min(TICK)) || left.is_zero() {
            return;
        }
        if signals.try_iter().any(|signal| signal != SIGHUP) {
            server.log().write(Level::Warning, "stopped-at-once", &[]);
            std::process::exit(INTERRUPTED.into());
        }
        server.tick();
    }
}

/// Tells the service manager; if that fails, it finds out by itself what there is to tell.
fn tell(server: &Server, state: &str) {
    if let Err(error) = notify(state) {
        let text = error.to_string();
        let fields = [("state", Field::from(state)), ("why", text.as_str().into())];
        server.log().write(Level::Warning, "not-notified", &fields);
    }
}
