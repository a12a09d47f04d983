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
use farhaul_base::newcomers::Tally;
use farhaul_remote::{Context, ListenConfig, Listening, Terms};
use farhaul_secure::{Identity, Trust};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::daemon::{self, Server};
use super::http::{Bounds, Http};
use super::log::{Field, Level, Log};
use super::notify::{self, notify};
use super::status::Status;
use crate::exit::INTERRUPTED;
use crate::keys::identity;
use crate::output;
use crate::transport::DEFAULT_LAW;

/// Between two looks after connections that say nothing.
const TICK: Duration = Duration::from_millis(200);
/// Between two writes of what clients have used, while no session ends.
const SAVE: Duration = Duration::from_secs(5);
/// Between two lines about handshakes that came to nothing.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Descriptors that are enough: a session takes some hundred, a flood of silent connections thousands.
const DESCRIPTORS: u64 = 65_536;
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
        config.warnings.iter().for_each(|warning| tell!("farhaul: warning: {warning}"));
        let text = format!("{path} is right: clients: {clients}, exports: {exports}\n");
        return output::print(text.as_bytes());
    }
    more_descriptors();
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
    // Threads that there are already would stay as they are.
    server.confine()?;
    let signals = signals()?;
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
    let mut watch = Watch::new(&server, &listening);
    tell(&server, "READY=1");
    let served = serve(&mut watch, &signals);
    tell(&server, "STOPPING=1");
    if served.is_err() {
        // The sessions that run have lost their port, or cannot come back.
        server.log().write(Level::Error, "listener-failed", &[]);
        server.end_all();
    }
    wind_down(&mut watch, &signals);
    server.save_accounts();
    listening.iter().for_each(Listening::close);
    drop(status);
    server.log().write(Level::Info, "stopped", &[]);
    served.map_err(anyhow::Error::from)
}

/// What is looked after while it serves.
struct Watch<'a> {
    server: &'a Server,
    listening: &'a [Listening],
    /// When unfinished handshakes were last written down.
    told: Instant,
    /// When what clients have used was.
    saved: Instant,
    /// How often the service manager is told that all is well, and when it last was.
    watchdog: Option<(Duration, Instant)>,
}

/// It does not listen any more where it should.
#[derive(Debug, thiserror::Error)]
#[error("a listener has ended, which is a bug in farhaul; the service must be started again")]
struct ListenerFailed;

impl<'a> Watch<'a> {
    fn new(server: &'a Server, listening: &'a [Listening]) -> Watch<'a> {
        let now = Instant::now();
        let watchdog = notify::watchdog().map(|time| (time, now));
        Watch { server, listening, told: now, saved: now, watchdog }
    }

    /// Ends what says nothing, writes down what there is to tell, and looks whether all listeners are
    /// there. To be called some times a second.
    fn tick(&mut self) -> Result<(), ListenerFailed> {
        self.server.tick();
        let now = Instant::now();
        if now.saturating_duration_since(self.told) >= TELL_EVERY {
            self.told = now;
            let mut tally = Tally::default();
            self.listening.iter().for_each(|here| tally.merge(&here.take_unfinished()));
            self.server.unfinished(&tally);
        }
        if now.saturating_duration_since(self.saved) >= SAVE || self.server.is_unsaved() {
            self.saved = now;
            self.server.save_accounts();
        }
        if !self.listening.iter().all(Listening::is_alive) {
            self.server.status().fail();
            return Err(ListenerFailed);
        }
        if let Some((every, last)) = &mut self.watchdog
            && now.saturating_duration_since(*last) >= *every
        {
            *last = now;
            tell(self.server, "WATCHDOG=1");
        }
        Ok(())
    }
}

/// The usual limit of 1024 descriptors is for programs that use `select`; what the system allows beyond it is
/// had by asking.
fn more_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < most) {
        // Without them less is taken at once.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
    }
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

/// Until a signal ends it, or a listener has failed.
fn serve(watch: &mut Watch<'_>, signals: &Receiver<i32>) -> Result<(), ListenerFailed> {
    loop {
        match signals.recv_timeout(TICK) {
            Ok(SIGHUP) => {
                tell(watch.server, "RELOADING=1");
                watch.server.reload();
                tell(watch.server, "READY=1");
            }
            Ok(_) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        watch.tick()?;
    }
}

/// Lets sessions end, or ends them.
fn wind_down(watch: &mut Watch<'_>, signals: &Receiver<i32>) {
    let server = watch.server;
    server.stop();
    wait(watch, signals, server.grace());
    if server.sessions().count() > 0 {
        server.end_all();
        wait(watch, signals, LAST_WORDS);
    }
}

/// Until no session runs; another signal to end ends all at once.
fn wait(watch: &mut Watch<'_>, signals: &Receiver<i32>, time: Duration) {
    let server = watch.server;
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
        // It ends anyway.
        let _ = watch.tick();
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::serve::http::Site;
    use crate::serve::log::Format;

    #[test]
    fn the_end_of_a_ports_thread_ends_the_service() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("serve.toml");
        let export = "[export.x]\npath = \"/\"\naccess = \"read\"\nclients = \"*\"\n";
        std::fs::write(&path, format!("identity = \"i\"\n{export}")).expect("a file");
        let live = daemon::load(&path).expect("a configuration");
        let server = Server::new(live, Log::new(Format::Text, Box::new(io::sink())));
        let terms = Terms {
            identity: Arc::new(Identity::generate().expect("a key")),
            trust: Trust::Known(Arc::new(|_| false)),
            context: Context::default(),
            plain: false,
        };
        let mut config = ListenConfig::new(terms);
        config.addresses = vec![Ipv4Addr::LOCALHOST.into()];
        let listening = [Listening::bind(&config, |_| {}).expect("ports")];
        let mut watch = Watch::new(&server, &listening);
        let health = || server.status().get("/health").expect("an answer");
        assert!(watch.tick().is_ok() && !health().failing);
        listening[0].endpoints().for_each(farhaul::Endpoint::fail_driver);
        // No signal comes.
        let (_give, signals) = channel();
        assert!(serve(&mut watch, &signals).is_err());
        assert!(health().failing);
    }

    #[test]
    fn a_listener_that_is_closed_has_not_failed() {
        let terms = Terms {
            identity: Arc::new(Identity::generate().expect("a key")),
            trust: Trust::Known(Arc::new(|_| false)),
            context: Context::default(),
            plain: false,
        };
        let config = ListenConfig::new(terms);
        let listening = Listening::bind(&config, |_| {}).expect("ports");
        listening.close();
        assert!(listening.is_alive());
    }
}
