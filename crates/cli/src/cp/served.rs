//! A copy from or to a server: `farhaul://host:port/export/path`.
//!
//! The server is known by its key: pinned on the command line, met before, or accepted now. It knows
//! this side by the user's key, grants an order or refuses it, and from then on the copy is as any.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use farhaul_mover::frame::AbortReason;
use farhaul_mover::location::address;
use farhaul_mover::transfer::link::{Link, Opened};
use farhaul_mover::transfer::session::{Dial, Links, NoLink, Way, open};
use farhaul_mover::transfer::{Event, Observer, Outcome, TransferError};
use farhaul_mover::{Cancel, printable_path};
use farhaul_remote::{
    Context, DialConfig, DialError, DialFailure, Dialer, Terms as LinkTerms, resolve,
};
use farhaul_secure::{Identity, PublicKey, Trust};

use super::cancel_on_interrupt;
use super::job::{Job, OnExisting, ServedOrder};
use super::links::{DIAL_TIME, Dialing, adapt};
use super::plan::{Export, Plan, bound};
use super::report::Summary;
use super::show::{Show, progress_line};
use super::side::{self, Finished, Surroundings, Wish};
use super::with::{Before, say_way};
use crate::config::Origin;
use crate::exit::{Failed, INTERRUPTED, Usage};
use crate::keys::identity;
use crate::keys::known_servers::{self, Consent, Expected};
use crate::{interrupt, places};

/// How long a server may take to answer: it looks for the sources, and whether an earlier copy goes on.
const ANSWER: Duration = Duration::from_secs(60);
/// For so long it is asked again where the connection ends before it has answered, after pauses of this, doubled
/// each time up to the second one.
const ASK_TIME: Duration = Duration::from_secs(10);
const ASK_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(800));
/// How often a server that has begun anew is asked for the rest of a copy.
const MOST_TIMES: u32 = 16;

/// Whom servers are taken for, and for whom they take the user.
#[derive(Args, Debug)]
#[command(next_help_heading = "Servers")]
pub struct ServerArgs {
    /// The server's public key, as farhaul serve --print-key prints it there
    #[arg(long, value_name = "KEY")]
    server_key: Option<PublicKey>,
    /// Take the key of a server that is not known yet as it is, without asking
    #[arg(long, conflicts_with = "server_key")]
    accept_new_server: bool,
    /// The file with your key [default: identity among farhaul's files]
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

impl ServerArgs {
    /// Tells who names a key and no server.
    pub fn refuse_without_server(&self) -> Result<(), Usage> {
        let flag = match self {
            ServerArgs { server_key: Some(_), .. } => "--server-key",
            ServerArgs { accept_new_server: true, .. } => "--accept-new-server",
            ServerArgs { identity: Some(_), .. } => "--identity",
            _ => return Ok(()),
        };
        Err(Usage(format!("{flag} is about servers: neither side is a farhaul://")))
    }
}

/// Copies from or to `export`.
pub fn run(
    plan: &Plan,
    export: &Export,
    sending: bool,
    args: &ServerArgs,
    show: &Show,
) -> Result<Finished> {
    let (source, sink) = (Job::Source(plan.source.clone()), Job::Sink(plan.sink.clone()));
    let (ours, theirs) = if sending { (source, sink) } else { (sink, source) };
    let order = ServedOrder { export: export.name.clone(), job: theirs, terms: plan.terms.clone() };
    let order = serde_json::to_vec(&order)?;
    let cancel = Cancel::default();
    let server = {
        let stop = Arc::new(AtomicBool::new(false));
        let _registered = cancel_on_interrupt(&cancel, Some(&stop));
        meet(plan, export, args, &stop)?
    };
    plan.warn(show);
    if !sending && plan.settings.cc.origin != Origin::Default {
        show.note("--cc is for what this side sends: the server sends by its own law");
    }
    let left =
        Left { wanted: sending && plan.sink.existing != OnExisting::Keep, ..Left::default() };
    // What was read from a pipe is gone, and so is what was written to one.
    let once = plan.source.stream || plan.sink.stream;
    let mut before = Before::default();
    for time in 0..MOST_TIMES {
        let observe = |event: Event<'_>| {
            // Later, what was left alone may be what was stored before.
            if time == 0 {
                left.see(&event, show);
            }
            show.event(&event);
        };
        let mut finished = session(plan, &server, &ours, &order, &cancel, (show, &observe))?;
        before.add_to(&mut finished);
        let forgotten = matches!(&finished.result, Err(TransferError::Unreachable(error))
            if error.kind() == io::ErrorKind::NotFound);
        if !forgotten || once || cancel.is_cancelled() {
            left.add_to(&mut finished.summary);
            return Ok(finished);
        }
        show.note(&format!(
            "{} has begun anew and knows nothing of this copy: asking for the rest of it",
            server.name
        ));
        show.begin_again();
        before = Before::of(finished);
    }
    let message = format!("{} forgets this copy again and again", server.name);
    Err(Failed { code: 1, message }.into())
}

/// Files that the server has left alone though they were to be stored: some exports only take new ones.
#[derive(Default)]
struct Left {
    /// It was asked to replace files.
    wanted: bool,
    count: AtomicU64,
    first: Mutex<Vec<String>>,
}

/// So many of them are listed.
const MOST_LISTED: usize = 100;

impl Left {
    fn see(&self, event: &Event<'_>, show: &Show) {
        let Event::File { path, outcome: Outcome::Kept, .. } = event else { return };
        if !self.wanted {
            return;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let path = printable_path(path);
        let text = format!(
            "{path}: not stored: there is something of that name, and this export only takes what is new"
        );
        show.note(&text);
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.len() < MOST_LISTED {
            first.push(text);
        }
    }

    /// They count as what could not be copied.
    fn add_to(&self, summary: &mut Summary) {
        let count = self.count.load(Ordering::Relaxed);
        summary.failed += count;
        summary.same_files = summary.same_files.saturating_sub(count);
        summary.kept_files = summary.kept_files.saturating_sub(count);
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST_LISTED.saturating_sub(summary.failures.len());
        summary.failures.extend(first.drain(..).take(room));
    }
}

/// A server that is to be dialed.
struct Server {
    /// As users write it.
    name: String,
    dialer: DialConfig,
    /// Where it is known, and with which key; none if the key was named.
    known: Option<(PathBuf, usize, PublicKey)>,
}

impl Server {
    /// Why there is no connection, with what can be done about it and the exit code.
    fn not_reached(&self, error: &DialError) -> anyhow::Error {
        let Server { name, dialer, known } = self;
        let mut failed = not_reached(error, name, &dialer.terms.identity);
        if let (true, Some((path, line, key))) = (error.stranger, known) {
            failed.message += &format!("; {}", known_servers::remedy(path, *line, name, *key));
        }
        failed.into()
    }
}

/// Has the server begin its part, and does this one.
fn session(
    plan: &Plan,
    server: &Server,
    ours: &Job,
    order: &[u8],
    cancel: &Cancel,
    (show, observe): (&Show, Observer<'_>),
) -> Result<Finished> {
    let stop = Arc::new(AtomicBool::new(false));
    let _registered = cancel_on_interrupt(cancel, Some(&stop));
    let dialer = Dialer::new(server.dialer.clone());
    let window = plan.terms.most_window();
    let (first, session) = ask(&dialer, order, server, &stop, window)?;
    let dialing = Dialing::new(dialer, stop, window);
    let dialing = Granted { first: Mutex::new(Some(first)), dialing };
    let mut path = None;
    let cancel = cancel.clone();
    Ok(side::run(
        ours,
        &plan.terms,
        Links::Dial(&dialing),
        Surroundings {
            session,
            cancel,
            observe,
            show: &mut |going| {
                if going.path != path {
                    say_way(plan, show, path.as_deref(), going);
                    path.clone_from(&going.path);
                }
                show.progress(&progress_line(going));
                Wish::None
            },
            service: None,
        },
    ))
}

/// Finds out who the server is, and what is needed to connect to it and nobody else.
fn meet(plan: &Plan, export: &Export, args: &ServerArgs, stop: &AtomicBool) -> Result<Server> {
    let name = address(&export.host, export.port);
    let name = name.as_str();
    let places = places::Surroundings::of_process();
    let identity = match &args.identity {
        Some(path) => identity::load(path)?,
        None => identity::load(&places.file(identity::FILE)?)?,
    };
    let identity = Arc::new(identity);
    // One who pins keys needs no file of them.
    let known = match (places.file(known_servers::FILE), args.server_key) {
        (Err(_), Some(_)) => None,
        (file, _) => Some(file?),
    };
    let expected = match (&known, args.server_key) {
        (Some(file), pinned) => known_servers::expected(file, name, pinned)?,
        (None, Some(pinned)) => Expected::Only(pinned),
        (None, None) => Expected::Unknown,
    };
    let candidates =
        resolve(&export.host, export.port).map_err(|error| not_reached(&error, name, &identity))?;
    let dialer = |trust: Trust| -> Result<DialConfig> {
        let terms = LinkTerms {
            identity: Arc::clone(&identity),
            trust,
            context: Context::default(),
            plain: plan.terms.plain,
        };
        let mut config = DialConfig::new(candidates.clone(), candidates.clone(), terms);
        config.transport = plan.transport();
        config.bind = bound(&plan.settings.bind.value)?;
        config.options = plan.terms.transport().map_err(Usage)?;
        Ok(config)
    };
    let key = match (&expected, &known) {
        (Expected::Only(key) | Expected::Known(key, _), _) => *key,
        (Expected::Unknown, Some(file)) => {
            let stranger = Dialer::new(dialer(Trust::Known(Arc::new(|_| true)))?);
            let link = stranger.dial(DIAL_TIME, stop);
            let link = link.map_err(|error| not_reached(&error, name, &identity))?;
            let key = link.handle().peer_key().context("a server has a key")?;
            // It is not held up while the user thinks.
            drop(link);
            admit(file, name, key, args.accept_new_server)?;
            key
        }
        (Expected::Unknown, None) => {
            return Err(Usage("there is no place to look for the server's key".into()).into());
        }
    };
    let known = match (expected, known) {
        (Expected::Known(key, line), Some(file)) => Some((file, line, key)),
        _ => None,
    };
    Ok(Server { name: name.to_owned(), dialer: dialer(Trust::Only(key))?, known })
}

/// Takes a server that is met for the first time, if the user says so.
fn admit(known: &Path, name: &str, key: PublicKey, accepted: bool) -> Result<()> {
    let terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    let consent = match (accepted, terminal) {
        (true, _) => Consent::Given,
        (false, true) => Consent::Ask(&mut yes),
        (false, false) => Consent::Withheld,
    };
    known_servers::admit(known, name, key, consent)
}

/// Asks on the terminal. Only a whole yes is one.
fn yes(question: &str) -> bool {
    let _ends = interrupt::while_waiting();
    let mut stderr = io::stderr().lock();
    if write!(stderr, "{question} [yes/no] ").and_then(|()| stderr.flush()).is_err() {
        return false;
    }
    let mut answer = String::new();
    // What cannot be read is no yes.
    let read = io::stdin().lock().read_line(&mut answer);
    read.is_ok() && answer.trim().eq_ignore_ascii_case("yes")
}

/// Has the server begin its part: the connection it was asked on, and the session.
///
/// A connection that ends before the answer proves nothing: until packets bear tags, which takes a round trip
/// more than the handshake, and over TCP at any time, an attacker on the path can end it. So the server is asked
/// again for a while. A session that it has begun for an answer that was lost makes way for the next.
fn ask(
    dialer: &Dialer,
    order: &[u8],
    server: &Server,
    stop: &AtomicBool,
    window: u32,
) -> Result<(Link, [u8; 16])> {
    let name = &server.name;
    let (begun, mut pause) = (Instant::now(), ASK_PAUSE.0);
    loop {
        let link = dialer.dial(DIAL_TIME, stop).map_err(|error| server.not_reached(&error))?;
        let mut link = adapt(link, window);
        match ask_once(&mut link, order) {
            Ok(Opened::Yes { session }) => return Ok((link, session)),
            Ok(Opened::No { reason, why }) => {
                let code = match reason {
                    AbortReason::Refused | AbortReason::Protocol => 3,
                    AbortReason::Unfit => 2,
                    _ => 1,
                };
                let verb = if code == 3 { "refuses" } else { "cannot do it" };
                return Err(Failed { code, message: format!("{name} {verb}: {why}") }.into());
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(Usage(error.to_string()).into());
            }
            Err(error)
                if error.kind() == io::ErrorKind::TimedOut || begun.elapsed() >= ASK_TIME =>
            {
                let message = format!("{name} was asked and has not answered: {error}");
                return Err(Failed { code: 1, message }.into());
            }
            Err(_) => {
                thread::sleep(pause);
                pause = (pause * 2).min(ASK_PAUSE.1);
            }
        }
    }
}

/// Asks on one connection; [`io::ErrorKind::TimedOut`] if the server says nothing for [`ANSWER`].
fn ask_once(link: &mut Link, order: &[u8]) -> io::Result<Opened> {
    let handle = Arc::clone(&link.handle);
    let (answered, wait) = channel::<()>();
    // A server that says nothing is not waited for for ever.
    let waiter = thread::spawn(move || {
        let late = wait.recv_timeout(ANSWER) == Err(RecvTimeoutError::Timeout);
        if late {
            handle.abort();
        }
        late
    });
    let opened = open(link, order.to_vec());
    drop(answered);
    let late = waiter.join().unwrap_or_default();
    opened.map_err(|error| if late { io::ErrorKind::TimedOut.into() } else { error })
}

/// Why there is no connection, with what can be done about it and the exit code.
fn not_reached(error: &DialError, name: &str, identity: &Identity) -> Failed {
    let code = match error.failure {
        DialFailure::NotAuthenticated | DialFailure::Denied | DialFailure::Plain => 3,
        DialFailure::Interrupted => INTERRUPTED,
        _ => 1,
    };
    let mut message = format!("{name}: {error}");
    if error.failure == DialFailure::Denied {
        let key = identity.public_key();
        message += &format!("; there it is allowed with: farhaul key allow {key} --name NAME");
    }
    Failed { code, message }
}

/// Connections of a copy that was granted, of which one is there already.
struct Granted {
    first: Mutex<Option<Link>>,
    dialing: Dialing,
}

impl Dial for Granted {
    fn dial(&self, way: Way) -> Result<Link, NoLink> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        match first {
            Some(link) => Ok(link),
            None => self.dialing.dial(way),
        }
    }

    fn has_choice(&self) -> bool {
        self.dialing.has_choice()
    }

    fn stop(&self) {
        self.dialing.stop();
    }
}
