//! The server at work: who comes is asked what for, and what is granted runs on threads of its own.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use farhaul_base::newcomers::Tally;
use farhaul_mover::Cancel;
use farhaul_mover::frame::AbortReason;
use farhaul_mover::transfer::link::{First, Join, Link, Opened, Purpose};
use farhaul_mover::transfer::session::{Links, MAX_LANES, answer, disown, meet, refuse};
use farhaul_mover::transfer::{Event, Outcome, TransferError};
use farhaul_remote::LinkHandle;
use farhaul_secure::PublicKey;

use super::Limits;
use super::accounts::Accounts;
use super::admit::{Granted, Refusal, admit};
use super::config::{Live, ServeConfig};
use super::families::{
    ACTIVE, FAILED_FILES, FILES, FORGED, RECEIVED, REFUSED, RELOADS, SENT, SESSIONS, UNFINISHED,
    UNVERIFIED,
};
use super::log::{Bound, Field, Level, Log};
use super::meter::{Meter, Place};
use super::metrics::Value;
use super::sandbox::Sandbox;
use super::sessions::{EvictionTimes, Id, Running, Sessions};
use super::status::Status;
use crate::cp::job::Job;
use crate::cp::links::adapt;
use crate::cp::side::{self, Finished, Going, Service, Surroundings, Wish};
use crate::exit::Usage;
use crate::keys::store;

/// In the state directory.
const LOCK: &str = "lock";
/// How long a client may take to say what a connection is for.
const FIRST_WORD: Duration = Duration::from_secs(10);
/// Connections at once of which that is not known yet; one more ends the oldest.
const MOST_GUESTS: usize = 256;
/// Connections of a session with lanes: as many as it may want, one on trial, and old ones that are not gone yet.
const MOST_LANES: usize = MAX_LANES as usize + 8;
/// Sources of unfinished handshakes that a line names.
const TOLD_SOURCES: usize = 5;
/// How long a client of a session that does the same may take to show that it is there.
const PROBE: Duration = Duration::from_secs(3);
/// How long a client's sessions that are in the way of a new one may take.
const EVICTION: EvictionTimes = EvictionTimes {
    end: Duration::from_secs(1),
    leave: Duration::from_secs(8),
    silence: Duration::from_secs(3),
    probe: PROBE,
};

/// What clients hear whose key was taken out.
const NOT_ALLOWED: &str = "this key is not allowed any more";

/// A server.
pub struct Server {
    live: Live,
    status: Arc<Status>,
    log: Log,
    accounts: Accounts,
    /// Locked while the server lives: another one would write its accounts over these.
    state_lock: OnceLock<File>,
    sessions: Sessions,
    guests: Mutex<Guests>,
    /// How often refused connections are written down.
    strangers: Bound,
    /// How often what clients say is written down.
    notes: Bound,
    /// What the process can reach.
    sandbox: OnceLock<Sandbox>,
    /// Whether clients that want data to travel unencrypted have their way.
    plain: Arc<AtomicBool>,
    stopping: AtomicBool,
    /// A session has ended, and what it has used is not written down yet.
    unsaved: AtomicBool,
}

/// Connections that have not said yet what they are for, the oldest first.
#[derive(Default)]
struct Guests {
    next: u64,
    all: VecDeque<(u64, Instant, LinkHandle)>,
}

/// Who has connected.
struct Caller {
    key: PublicKey,
    client: String,
    limits: Limits,
    address: String,
    plain: bool,
}

impl Server {
    /// With this configuration. It writes to `log`.
    pub fn new(live: Live, log: Log) -> Arc<Server> {
        let plain = Arc::new(AtomicBool::new(live.current().plain));
        Arc::new(Server {
            live,
            status: Arc::new(Status::begin()),
            log,
            accounts: Accounts::default(),
            state_lock: OnceLock::new(),
            sessions: Sessions::default(),
            guests: Mutex::default(),
            strangers: Bound::new(Instant::now()),
            notes: Bound::new(Instant::now()),
            sandbox: OnceLock::new(),
            plain,
            stopping: AtomicBool::new(false),
            unsaved: AtomicBool::new(false),
        })
    }

    /// How it does.
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// Where it writes what happens.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What a connection may hold, bytes.
    pub fn connection_memory(&self) -> usize {
        self.live.current().connection_memory as usize
    }

    /// What runs.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// For listeners: it follows the configuration.
    pub fn plain(&self) -> &Arc<AtomicBool> {
        &self.plain
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, family: &super::metrics::Family, labels: &[&str]) {
        self.status.metrics().value(family, labels).add(1);
    }

    /// Whether the holder of `key` may come in.
    pub fn knows(&self, key: &PublicKey) -> bool {
        self.live.current().client_of(key).is_some()
    }

    /// Somebody at `address` was not let in with this key.
    pub fn refused_key(&self, key: PublicKey, address: Option<SocketAddr>) {
        let (key, address) = (key.to_string(), address.map(shown).unwrap_or_default());
        self.refused_connection("key", &[("address", address.as_str()), ("key", key.as_str())]);
    }

    /// Counts a connection that was refused, and writes it down unless there are too many.
    fn refused_connection(&self, reason: &str, who: &[(&str, &str)]) {
        self.count(&REFUSED, &[reason]);
        if let Some(hidden) = self.strangers.ask(Instant::now()) {
            let who = who.iter().map(|(name, value)| (*name, Field::from(*value)));
            let mut fields = vec![("reason", Field::from(reason))];
            fields.extend(who);
            if hidden > 0 {
                fields.push(("not-logged-before", hidden.into()));
            }
            self.log.write(Level::Warning, "connection-refused", &fields);
        }
    }

    /// Newcomers have come to nothing before they had shown who they are: one line for all of them.
    pub fn unfinished(&self, tally: &Tally) {
        if tally.total == 0 {
            return;
        }
        self.status.metrics().value(&UNFINISHED, &[]).add(tally.total);
        let most = tally.most(TOLD_SOURCES);
        let most: Vec<_> = most.iter().map(|(from, count)| format!("{from}={count}")).collect();
        let most = most.join(" ");
        // Only so many are told apart.
        let sources = if tally.is_cut() { "sources-at-least" } else { "sources" };
        let fields = [
            ("count", Field::from(tally.total)),
            (sources, (tally.sources.len() as u64).into()),
            ("most", most.as_str().into()),
        ];
        self.log.write(Level::Warning, "handshakes-unfinished", &fields);
    }

    /// Takes a connection of somebody who may come in, on a thread of its own.
    pub fn newcomer(self: &Arc<Self>, link: farhaul_remote::Link) {
        let handle = link.handle();
        let Some(key) = handle.peer_key() else { return };
        let config = self.live.current();
        // It may have been revoked meanwhile.
        let Some((client, known)) = config.client_of(&key) else { return };
        let mut caller = Caller {
            key,
            client: client.to_owned(),
            limits: known.limits,
            address: handle.peer().map(shown).unwrap_or_default(),
            plain: handle.cipher().is_none(),
        };
        // As long as this thread runs. A client that has more of them tries again.
        let Some(_place) = Place::greeted(&self.accounts.of(key)) else {
            let who = [("client", &*caller.client), ("address", &*caller.address)];
            return self.refused_connection("limit", &who);
        };
        // How much memory the client has is not known.
        let mut link = adapt(link, u32::MAX);
        let mut may_open = true;
        loop {
            let guest = self.enter(&handle);
            let first = meet(&mut link);
            let in_time = self.leave(guest);
            match first {
                Ok(First::Join(join)) if in_time => {
                    return self.join(&caller, &join, link, &handle);
                }
                Ok(First::Open(open)) if in_time && may_open => {
                    may_open = false;
                    let opened = match self.open(&mut caller, &open.order) {
                        Ok(session) => Opened::Yes { session },
                        Err(refusal) => self.refused(&caller, refusal),
                    };
                    let granted = matches!(opened, Opened::Yes { .. });
                    if answer(&mut link, &opened).is_err() || !granted {
                        // Who is granted nothing has nothing more to say.
                        return;
                    }
                }
                Ok(_) | Err(_) => {
                    // A client that has gone is no news.
                    let gone = matches!(&first, Err(error) if is_gone(error)) && in_time;
                    if !gone {
                        let reason = if in_time { "protocol" } else { "timeout" };
                        let who = [("client", &*caller.client), ("address", &*caller.address)];
                        self.refused_connection(reason, &who);
                    }
                    return;
                }
            }
        }
    }

    fn enter(&self, handle: &LinkHandle) -> u64 {
        let mut guests = self.guests();
        if guests.all.len() >= MOST_GUESTS
            && let Some((_, _, oldest)) = guests.all.pop_front()
        {
            oldest.abort();
        }
        let number = guests.next;
        guests.next += 1;
        guests.all.push_back((number, Instant::now(), handle.clone()));
        number
    }

    /// It has said what it is for; false if it was ended meanwhile.
    fn leave(&self, number: u64) -> bool {
        let mut guests = self.guests();
        let place = guests.all.iter().position(|(other, ..)| *other == number);
        place.is_some_and(|place| guests.all.remove(place).is_some())
    }

    /// Takes up what clients have used today before the server began.
    ///
    /// # Errors
    /// As [`Accounts::load`]; there is no such directory, and it cannot be made; or another server uses it.
    pub fn load_accounts(&self) -> anyhow::Result<()> {
        let config = self.live.current();
        let Some(directory) = &config.state else { return Ok(()) };
        let failed = || format!("cannot write to {}", directory.display());
        store::make(directory).with_context(failed)?;
        let lock = File::options().create(true).append(true).open(directory.join(LOCK));
        let lock = lock.with_context(failed)?;
        match lock.try_lock() {
            Ok(()) => _ = self.state_lock.set(lock),
            Err(TryLockError::WouldBlock) => {
                let directory = directory.display();
                return Err(Usage(format!(
                    "another server uses the state-directory {directory}: stop that one, or give each its own"
                ))
                .into());
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
        }
        self.accounts.load(directory)?;
        self.accounts.save(directory).with_context(failed)
    }

    /// Whether a session has ended since accounts were last written down.
    pub fn is_unsaved(&self) -> bool {
        self.unsaved.load(Ordering::Acquire)
    }

    /// Writes down what clients have used today.
    pub fn save_accounts(&self) {
        self.unsaved.store(false, Ordering::Release);
        let config = self.live.current();
        let Some(directory) = &config.state else { return };
        if let Err(error) = self.accounts.save(directory) {
            let why = error.to_string();
            self.log.write(Level::Error, "accounts-not-saved", &[("why", why.as_str().into())]);
        }
    }

    /// Ends connections that say nothing. To be called some times a second.
    pub fn tick(&self) {
        if let Some(hidden) = self.strangers.rest(Instant::now()) {
            let fields = [("not-logged-before", Field::from(hidden))];
            self.log.write(Level::Warning, "connections-refused", &fields);
        }
        if let Some(hidden) = self.notes.rest(Instant::now()) {
            let fields = [("not-logged-before", Field::from(hidden))];
            self.log.write(Level::Warning, "session-notes", &fields);
        }
        let mut guests = self.guests();
        while guests.all.front().is_some_and(|(_, since, _)| since.elapsed() > FIRST_WORD) {
            if let Some((.., handle)) = guests.all.pop_front() {
                handle.abort();
            }
        }
    }

    fn join(&self, caller: &Caller, join: &Join, mut link: Link, handle: &LinkHandle) {
        let Some(session) = self.sessions.get(&join.session, &caller.key) else {
            let fields = [
                ("client", Field::from(caller.client.as_str())),
                ("address", caller.address.as_str().into()),
            ];
            self.log.write(Level::Info, "unknown-session", &fields);
            // If it does not hear it, it asks again.
            let _ = disown(&mut link);
            return;
        };
        match session.meter.take(link, join.purpose, MOST_LANES) {
            Ok(link) => {
                handle.share(&session.injection);
                if let Purpose::Control { .. } = join.purpose {
                    session.controls.fetch_add(1, Ordering::AcqRel);
                }
                // If it is over, the client hears so from the connection's end.
                let _ = session.give.send((join.purpose, link));
            }
            Err(mut link) => {
                self.count(&REFUSED, &["limit"]);
                // A control channel may take the place of one that is about to end: its client tries again.
                if !matches!(join.purpose, Purpose::Control { .. }) {
                    let _ = refuse(&mut link, "this client has as many connections as it may have");
                }
            }
        }
    }

    /// Begins what a client asks for.
    fn open(self: &Arc<Self>, caller: &mut Caller, order: &[u8]) -> Result<Id, Refusal> {
        // It may have changed since the client has connected.
        let config = self.live.current();
        let not_known = || Refusal::new(NOT_ALLOWED);
        let (client, known) = config.client_of(&caller.key).ok_or_else(not_known)?;
        (caller.client, caller.limits) = (client.to_owned(), known.limits);
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Refusal::failed("the server is being stopped; try again later"));
        }
        let granted = admit(&config, &caller.client, caller.plain, order)?;
        if !self.reaches(&granted.root, matches!(granted.job, Job::Sink(_))) {
            let name = &granted.export;
            let why = format!(
                "the export '{name}' has changed to more than the server could reach when it started: \
                 restart the server"
            );
            return Err(Refusal::failed(why));
        }
        let account = self.accounts.of(caller.key);
        self.accounts.limit_memory(config.memory, config.memory_of_client());
        let meter = Meter::new(account, caller.limits);
        meter.check().map_err(|used| Refusal::limit("limit", used.to_string()))?;
        let what = serde_json::to_vec(&(&granted.export, &granted.job));
        let what = blake3::hash(&what.map_err(|error| Refusal::failed(error.to_string()))?);
        // Two that read are in nobody's way.
        if matches!(granted.job, Job::Sink(_)) {
            self.sessions.make_way(&caller.key, &what, PROBE);
        }
        let id = farhaul_remote::bootstrap::fresh_session();
        let id = id.map_err(|error| Refusal::failed(error.to_string()))?.0;
        let (give, links) = channel();
        let basis = granted.basis.clone();
        let running = Arc::new(Running::new(caller.key, what, basis, give, meter));
        let of_client = config.sessions_of(&caller.limits);
        self.sessions.add(id, Arc::clone(&running), of_client, config.max_sessions, EVICTION)?;
        // Whoever reads the configuration again meanwhile finds the session, or is found out here.
        review(&self.live.current(), &running);
        let (tell, told) = channel();
        let (server, client) = (Arc::clone(self), caller.client.clone());
        let opened = Opening {
            id,
            client,
            address: caller.address.clone(),
            plain: caller.plain,
            granted,
            running,
            links,
            tell,
        };
        let thread = std::thread::Builder::new().name("session".into());
        if let Err(error) = thread.spawn(move || server.session(opened)) {
            self.sessions.remove(&id);
            return Err(Refusal::failed(format!("the server has no thread for it: {error}")));
        }
        match told.recv() {
            Ok(Ok(())) => Ok(id),
            Ok(Err(refusal)) => Err(refusal),
            Err(_) => Err(Refusal::failed("the session has failed at its beginning")),
        }
    }

    /// What a client hears that gets nothing; it is counted and written down.
    fn refused(&self, caller: &Caller, refusal: Refusal) -> Opened {
        let Refusal { reason, why, limit } = refusal;
        if let Some(limit) = limit {
            self.count(&REFUSED, &[limit]);
        } else {
            let outcome = if reason == AbortReason::Refused { "refused" } else { "failed" };
            // What the client has called the export is not to make a series.
            self.count(&SESSIONS, &[&caller.client, "", outcome]);
        }
        let fields = [
            ("client", Field::from(caller.client.as_str())),
            ("address", caller.address.as_str().into()),
            ("why", why.as_str().into()),
        ];
        self.log.write(Level::Warning, "session-refused", &fields);
        Opened::No { reason, why }
    }
}

/// Looks at a session in the light of this configuration: it has its limits, or ends.
fn review(config: &ServeConfig, session: &Running) {
    let checked = match config.client_of(&session.key) {
        None => Err(NOT_ALLOWED.to_owned()),
        Some((client, known)) => {
            session.meter.set(known.limits);
            session.basis.check(config, client)
        }
    };
    if let Err(why) = checked {
        session.end(TransferError::Refused(why));
    }
}

/// A session that begins.
struct Opening {
    id: Id,
    client: String,
    address: String,
    plain: bool,
    granted: Granted,
    running: Arc<Running>,
    links: Receiver<(Purpose, Link)>,
    tell: Sender<Result<(), Refusal>>,
}

/// Takes a session out of the list, however it ends.
struct Leave<'a>(&'a Sessions, Id);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.remove(&self.1);
    }
}

/// Where a session's files and bytes are counted.
struct Counters {
    moved: Value,
    files: Value,
    failed: Value,
    forged: Value,
    told: AtomicU64,
    told_forged: AtomicU64,
}

impl Counters {
    /// `moved` bytes since the beginning.
    fn moved(&self, moved: u64) {
        let before = self.told.fetch_max(moved, Ordering::Relaxed);
        self.moved.add(moved.saturating_sub(before));
    }

    /// How a session is doing.
    fn going(&self, going: &Going) {
        self.moved(going.progress.moved);
        let before = self.told_forged.fetch_max(going.forged, Ordering::Relaxed);
        self.forged.add(going.forged.saturating_sub(before));
    }

    fn event(&self, event: &Event<'_>) {
        match event {
            Event::File { outcome: Outcome::Moved { .. }, .. } => self.files.add(1),
            Event::Failed { .. } => self.failed.add(1),
            _ => {}
        }
    }
}

impl Server {
    /// Runs a session to its end.
    fn session(&self, opening: Opening) {
        let Opening { id, client, address, plain, granted, running, links, tell } = opening;
        let Granted { export, root, job, terms, box_for_new, mode_mask, .. } = granted;
        let memory = running.meter.memory();
        let _leave = Leave(&self.sessions, id);
        let metrics = self.status.metrics();
        let labels = [client.as_str(), export.as_str()];
        let _active = metrics.value(&ACTIVE, &labels).hold();
        let reads = matches!(job, Job::Source(_));
        let direction = if reads { "out" } else { "in" };
        let counters = Counters {
            moved: metrics.value(if reads { &SENT } else { &RECEIVED }, &labels),
            files: metrics.value(&FILES, &[labels[0], labels[1], direction]),
            failed: metrics.value(&FAILED_FILES, &labels),
            forged: metrics.value(&FORGED, &labels),
            told: AtomicU64::new(0),
            told_forged: AtomicU64::new(0),
        };
        // Enough to tell sessions apart in the log.
        let number: String = id[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let who = [
            ("session", Field::from(number.as_str())),
            ("client", labels[0].into()),
            ("export", labels[1].into()),
            ("direction", direction.into()),
        ];
        let began = Instant::now();
        let begun = Cell::new(false);
        let ready = || {
            begun.set(true);
            let more = [("address", Field::from(address.as_str())), ("plain", Field::Flag(plain))];
            self.log.write(Level::Info, "session-opened", &[&who[..], &more[..]].concat());
            // Its client may have gone meanwhile: then nobody joins.
            let _ = tell.send(Ok(()));
        };
        let observe = |event: Event<'_>| {
            counters.event(&event);
            if let Event::Note(text) = &event
                && let Some(hidden) = self.notes.ask(Instant::now())
            {
                let mut fields = who.to_vec();
                fields.push(("text", Field::from(*text)));
                if hidden > 0 {
                    fields.push(("not-logged-before", hidden.into()));
                }
                self.log.write(Level::Info, "session-note", &fields);
            }
        };
        let quota = |entries| {
            running.meter.entries(entries);
            running.meter.check().map_err(|used| TransferError::Stopped(used.to_string()))
        };
        let finished = side::run(
            &job,
            &terms,
            Links::Accept(links),
            Surroundings {
                session: id,
                cancel: Cancel::default(),
                observe: &observe,
                show: &mut |going| {
                    counters.going(going);
                    if let Err(used) = quota(going.progress.entries) {
                        running.end(used);
                    }
                    match running.reconnect.swap(false, Ordering::AcqRel) {
                        true => Wish::Reconnect,
                        false => Wish::None,
                    }
                },
                service: Some(Service {
                    root: &root,
                    ready: &ready,
                    end: &running.end,
                    memory: &memory,
                    second_workers: running.meter.second_workers(),
                    max_entries: running.meter.max_entries(),
                    quota: &quota,
                    mode_mask,
                    owner: box_for_new
                        .then(|| blake3::hash(running.key.to_string().as_bytes()).into()),
                }),
            },
        );
        counters.going(&finished.going);
        running.meter.entries(finished.going.progress.entries);
        self.unsaved.store(true, Ordering::Release);
        match &finished.result {
            Err(error) if !begun.get() => {
                // Whoever has asked for it is told why, and that is written down.
                let _ = tell.send(Err(Refusal::of(error, &root)));
                return;
            }
            Err(TransferError::Verification { .. }) => self.count(&UNVERIFIED, &labels),
            _ => {}
        }
        self.ended(&who, &labels, &finished, began.elapsed());
    }

    fn ended(
        &self,
        who: &[(&str, Field<'_>)],
        labels: &[&str; 2],
        finished: &Finished,
        took: Duration,
    ) {
        let Finished { summary, going, result } = finished;
        let (outcome, level) = match result {
            Ok(()) if summary.failed == 0 => ("done", Level::Info),
            Ok(()) => ("partly", Level::Warning),
            Err(TransferError::Refused(_)) => ("refused", Level::Warning),
            Err(
                TransferError::Interrupted
                | TransferError::Stopped(_)
                | TransferError::Lost { .. }
                | TransferError::Remote { reason: AbortReason::Interrupted, .. },
            ) => ("interrupted", Level::Warning),
            Err(_) => ("failed", Level::Error),
        };
        self.count(&SESSIONS, &[labels[0], labels[1], outcome]);
        let why = result.as_ref().err().map(ToString::to_string);
        let mut fields = who.to_vec();
        fields.extend([
            ("outcome", Field::from(outcome)),
            ("files", summary.moved_files.into()),
            ("bytes", going.progress.moved.into()),
            ("failed", summary.failed.into()),
            ("seconds", Field::Number((took.as_secs_f64() * 1e3).round() / 1e3)),
        ]);
        fields.extend(why.as_deref().map(|why| ("why", Field::from(why))));
        self.log.write(level, "session-ended", &fields);
    }
}

/// Reading the configuration again, and the end.
impl Server {
    /// Reads the configuration again. If it is wrong, everything but the list of allowed keys stays as
    /// it was. Sessions that make use of what is not allowed any more end; the others have the new limits.
    pub fn reload(&self) {
        match self.live.reload() {
            Ok(waiting) => {
                let config = self.live.current();
                self.plain.store(config.plain, Ordering::Relaxed);
                self.count(&RELOADS, &["done"]);
                let waiting = waiting.join(",");
                let mut fields = vec![
                    ("clients", Field::from(config.clients.len() as u64)),
                    ("exports", (config.exports.len() as u64).into()),
                ];
                if !waiting.is_empty() {
                    fields.push(("need-a-restart", waiting.as_str().into()));
                }
                self.log.write(Level::Info, "config-reloaded", &fields);
                self.warn();
                self.sessions.each(|session| review(&config, session));
            }
            Err(error) => {
                let fields = [("why", Field::from(error.0.as_str()))];
                self.log.write(Level::Error, "config-not-reloaded", &fields);
                self.reload_keys();
                self.count(&RELOADS, &["failed"]);
            }
        }
    }

    fn reload_keys(&self) {
        if let Err(error) = self.live.reload_keys() {
            let fields = [("why", Field::from(error.0.as_str()))];
            return self.log.write(Level::Error, "keys-not-reloaded", &fields);
        }
        let config = self.live.current();
        let fields = [("clients", Field::from(config.clients.len() as u64))];
        self.log.write(Level::Info, "keys-reloaded", &fields);
        self.sessions.each(|session| review(&config, session));
    }

    /// Confines the process to what the configuration needs; before there are other threads.
    ///
    /// # Errors
    /// As [`Sandbox::enter`].
    pub fn confine(&self) -> anyhow::Result<()> {
        let sandbox = Sandbox::enter(&self.live.current(), self.live.path(), &self.log)?;
        self.sandbox.get_or_init(|| sandbox);
        Ok(())
    }

    /// Whether the process can reach an export that the configuration has now.
    fn reaches(&self, root: &Path, writes: bool) -> bool {
        self.sandbox.get().is_none_or(|sandbox| sandbox.covers(root, writes))
    }

    /// Writes down what of the configuration has no effect.
    pub fn warn(&self) {
        for why in &self.live.current().warnings {
            self.log.write(Level::Warning, "config-warning", &[("why", why.as_str().into())]);
        }
        let config = self.live.current();
        for name in self.sandbox.get().map_or(Vec::new(), |sandbox| sandbox.outside(&config)) {
            let why = "the process has confined itself to what was exported at its start";
            let fields = [("export", Field::from(name)), ("why", why.into())];
            self.log.write(Level::Warning, "export-needs-a-restart", &fields);
        }
    }

    /// Begins nothing any more. Sessions go on, and may connect again.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let grace = self.live.current().grace.as_secs_f64();
        let sessions = self.sessions.count() as u64;
        let fields = [("sessions", Field::from(sessions)), ("grace-seconds", Field::Number(grace))];
        self.log.write(Level::Info, "stopping", &fields);
    }

    /// How long sessions may go on after [`Server::stop`].
    pub fn grace(&self) -> Duration {
        self.live.current().grace
    }

    /// Ends all sessions.
    pub fn end_all(&self) {
        let why = || TransferError::Stopped("the server is being stopped".into());
        self.sessions.each(|session| session.end(why()));
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    error.kind() != std::io::ErrorKind::InvalidData
}

/// Without the form that IPv4 addresses have in sockets of IPv6.
fn shown(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

/// Loads a configuration to serve by.
///
/// # Errors
/// As [`Live::load`].
pub fn load(path: &std::path::Path) -> anyhow::Result<Live> {
    // A relative path would lead elsewhere if the process moved.
    let path = std::path::absolute(path).context("the current directory is gone")?;
    Ok(Live::load(&path)?)
}
