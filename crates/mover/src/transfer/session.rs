//! One transfer at work: its control channel, its lanes, and what happens when connections go.
//!
//! One side dials, the other is given connections. When the control channel's connection breaks, all
//! lanes are given up with it; the dialer begins again until [`Options::outage`] is over. What was
//! said on the channel is said again, what was on lanes and not confirmed is sent again.

mod backoff;
mod dial;
mod driver;
mod introduce;
mod swallowed;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::scope;
use std::time::Duration;
use std::time::Instant;

use self::backoff::Backoff;
pub use self::dial::{Dial, NoLink, Way};
use self::driver::Driver;
pub use self::introduce::{answer, disown, greet, join, meet, open, refuse};
use self::swallowed::Watch;
use super::channel::Channel;
use super::error::TransferError;
use super::event::Observer;
use super::interrupt::Interrupt;
use super::link::{Link, LinkFacts, LinkHandle, Purpose};
use super::memory::Account;
use super::message::{MAX_LANES_TOLD, Message, Pulse};
use super::role::Role;
use super::stages::Stages;
use crate::report::Cancel;

/// The most lanes of a transfer.
pub const MAX_LANES: u32 = 32;

/// How a transfer is driven.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which transfer.
    pub session: [u8; 16],
    /// How long it may be without connection.
    pub outage: Duration,
    /// How many lanes to begin with, 1 to [`MAX_LANES`]; the dialer's affair.
    pub lanes: u32,
    /// Stops it.
    pub cancel: Cancel,
}

/// Where connections come from.
pub enum Links<'a> {
    /// This side connects.
    Dial(&'a dyn Dial),
    /// The other side does; whoever accepts has read what each is for: [`greet`].
    Accept(Receiver<(Purpose, Link)>),
}

/// What a running transfer tells of itself.
#[derive(Debug)]
pub struct Session {
    /// What the peer makes this side keep.
    pub memory: Arc<Account>,
    /// What is said to the peer.
    pub channel: Channel,
    /// Where this side's lanes spend their time.
    pub stages: Arc<Stages>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Default for Session {
    fn default() -> Self {
        Session::with_memory(Arc::default())
    }
}

#[derive(Debug, Default)]
struct State {
    over: Option<Result<(), TransferError>>,
    /// The connection of the control channel.
    control: Option<Handle>,
    lanes: BTreeMap<u32, Working>,
    /// How many lanes there are to be, apart from one on trial.
    wanted: u32,
    next_lane: u32,
    /// Trials up to this number are over.
    trials_over: u32,
    /// Threads that keep a lane each.
    keepers: u32,
    /// When those are dialed that the peer did not take.
    backoff: Backoff,
    /// Connections whose purpose has been said and not been answered.
    joining: Vec<Handle>,
    /// Since when there has been no connection.
    lost: Option<Instant>,
    /// Connections that broke before it was over.
    broken: u64,
    ever: bool,
    /// The peer has been dialed and was authenticated: it exists, and is who it should be.
    authenticated: bool,
    /// It was told that something else has answered.
    warned: bool,
    /// It was told that acknowledgements are forged, and that what was taken does not come.
    forgery_told: bool,
    swallowing_told: bool,
    /// Since when there was one for the first time.
    connected: Option<Instant>,
    ended: Option<Instant>,
    last_error: String,
    /// What this side and the peer have told of themselves, summed.
    own: Pulse,
    peer: Pulse,
    /// How connections are made from now on.
    way: Way,
    trial: Trial,
    /// Connections are given up for better ones, which needs not be told.
    quiet: bool,
}

/// A lane over TCP beside others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trial {
    #[default]
    None,
    /// The next lane is to be it.
    Wanted,
    Lane(u32),
}

/// A lane that is there.
#[derive(Debug)]
struct Working {
    handle: Handle,
    on_trial: bool,
    /// What is thought of its connection.
    watch: Watch,
}

impl Working {
    fn facts(&self) -> LinkFacts {
        self.handle.0.facts()
    }
}

/// A connection that can be given up, and with it what its lane waits for.
#[derive(Clone)]
struct Handle(Arc<dyn LinkHandle>, Arc<Interrupt>);

impl Handle {
    fn new(link: Arc<dyn LinkHandle>) -> Self {
        Handle(link, Arc::default())
    }

    fn abort(&self) {
        self.0.abort();
        self.1.raise();
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.describe())
    }
}

impl Session {
    /// One that may keep what `memory` gives it.
    pub fn with_memory(memory: Arc<Account>) -> Self {
        let channel = Channel::with_memory(Arc::clone(&memory));
        let (stages, state, changed) = Default::default();
        Session { memory, channel, stages, state, changed }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the peer has told of itself since the beginning.
    pub fn peer(&self) -> Pulse {
        self.lock().peer
    }

    /// What this side has told of itself since the beginning.
    pub fn own(&self) -> Pulse {
        self.lock().own
    }

    /// The transport and peer of the control channel, for people.
    pub fn path(&self) -> Option<String> {
        self.lock().control.as_ref().map(|handle| handle.0.describe())
    }

    /// Since when there has been a connection for the first time.
    pub fn connected(&self) -> Option<Instant> {
        self.lock().connected
    }

    /// When the transfer was over: with the receipt, if it ended well.
    pub fn ended(&self) -> Option<Instant> {
        self.lock().ended
    }

    /// How many connections, of the control channel and of lanes, broke before it was over and had to be replaced.
    /// Those that were given up for better ones do not count.
    pub fn reconnects(&self) -> u64 {
        self.lock().broken
    }

    /// What the lanes' connections know.
    pub fn facts(&self) -> Vec<LinkFacts> {
        self.lock().lanes.values().map(Working::facts).collect()
    }

    /// What the transport of each lane takes for arrived at the peer, or has taken, where it tells.
    fn acknowledged(&self) -> Vec<(u32, u64)> {
        let state = self.lock();
        let told = |(number, lane): (&u32, &Working)| Some((*number, lane.facts().acknowledged?));
        state.lanes.iter().filter_map(told).take(MAX_LANES_TOLD).collect()
    }

    /// How many lanes there are, and how many there are to be.
    pub fn lanes(&self) -> (u32, u32) {
        let state = self.lock();
        (state.lanes.len() as u32, state.wanted)
    }

    /// So many lanes from now on, 1 to [`MAX_LANES`], apart from one on trial.
    pub fn want_lanes(&self, wanted: u32) {
        self.lock().wanted = wanted.clamp(1, MAX_LANES);
        self.say_lanes();
    }

    fn say_lanes(&self) {
        let said = {
            let state = self.lock();
            Message::Lanes { wanted: state.wanted, trials_over: state.trials_over }
        };
        self.channel.say(&said);
        self.changed.notify_all();
    }

    /// What lanes there are, and whether they are over UDP; that on trial apart.
    pub fn ways(&self) -> (Vec<(u32, bool)>, Option<u32>) {
        let state = self.lock();
        let lanes = state.lanes.iter().filter(|(_, lane)| !lane.on_trial);
        let lanes = lanes.map(|(number, lane)| (*number, lane.facts().udp));
        let trial = match state.trial {
            Trial::Lane(number) => Some(number),
            _ => None,
        };
        (lanes.collect(), trial)
    }

    /// One lane more, over TCP, to compare it with the others.
    pub fn begin_trial(&self) {
        self.lock().trial = Trial::Wanted;
        self.changed.notify_all();
    }

    /// It is over, and goes; or all connections are made anew by the same way.
    pub fn end_trial(&self, switch: bool) {
        {
            let mut state = self.lock();
            state.trial = Trial::None;
            state.trials_over = state.next_lane;
            if switch {
                (state.way, state.quiet) = (Way::Tcp, true);
            }
        }
        self.say_lanes();
        if switch {
            self.reconnect();
        }
    }

    /// How connections are made.
    pub fn way(&self) -> Way {
        self.lock().way
    }

    /// Gives all connections up: new ones are made. For a change of transport.
    pub fn reconnect(&self) {
        let state = self.lock();
        let lanes = state.lanes.values().map(|lane| &lane.handle);
        let all = state.control.iter().chain(lanes).chain(&state.joining);
        all.for_each(Handle::abort);
    }

    /// Ends the transfer; the first reason counts.
    pub fn end(&self, result: Result<(), TransferError>) {
        let mut state = self.lock();
        if state.over.is_none() {
            state.over = Some(result);
            state.ended = Some(Instant::now());
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Does something in a thread of the transfer's; a panic ends the transfer, not the thread alone.
    pub fn contain(&self, action: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(action)) {
            self.end(Err(TransferError::panicked(&*panic)));
        }
    }

    fn is_over(&self) -> bool {
        self.lock().over.is_some()
    }

    /// Drives `role` until the transfer is over.
    ///
    /// # Errors
    ///
    /// Whatever ended it before everything was moved.
    pub fn run(
        &self,
        role: &dyn Role,
        links: Links<'_>,
        options: &Options,
        observe: Observer<'_>,
    ) -> Result<(), TransferError> {
        {
            let mut state = self.lock();
            state.wanted = options.lanes.clamp(1, MAX_LANES);
            state.lost = Some(Instant::now());
        }
        let driver = Driver { session: self, role, options, observe };
        scope(|threads| match links {
            Links::Dial(dial) => {
                threads.spawn(|| self.contain(|| driver.keep_control(threads, dial)));
                driver.supervise(Some(&|| driver.keep_lanes(threads, dial)), |pause| {
                    driver.pause(pause);
                });
                dial.stop();
            }
            Links::Accept(links) => driver.supervise(None, |pause| {
                match links.recv_timeout(pause) {
                    Ok((purpose, link)) => driver.accept(threads, purpose, link),
                    Err(RecvTimeoutError::Timeout) => {}
                    // Nobody will bring another; what is there may go on.
                    Err(RecvTimeoutError::Disconnected) => driver.pause(pause),
                }
            }),
        });
        let over = self.lock().over.take();
        over.unwrap_or(Err(TransferError::Interrupted))
    }
}
