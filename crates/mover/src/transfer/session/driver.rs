//! The threads of a transfer: who keeps which connection, and what happens when one goes.

use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::introduce::join_saying;
use super::swallowed::Watch;
use super::{Dial, Handle, MAX_LANES, NoLink, Options, Session, State, Trial, Way, Working};
use crate::frame::AbortReason;
use crate::transfer::error::TransferError;
use crate::transfer::event::{Event, Observer};
use crate::transfer::link::{Joined, Link, LinkFacts, Purpose, put};
use crate::transfer::message::{Message, Pulse};
use crate::transfer::processors::{Processors, give_way};
use crate::transfer::role::{Flow, Lane, LaneEnd, Role};
use crate::transfer::stages::{STAGES, Stages};

/// Between two looks at whether there is anything to do.
const TICK: Duration = Duration::from_millis(50);
/// Between two pulses.
const PULSE: Duration = Duration::from_secs(1);
/// How long the peer may take to hear the last word.
const LAST_WORD: Duration = Duration::from_secs(3);
/// A control channel without any sign of life for so long is broken, whatever the transport thinks.
const SILENCE: Duration = Duration::from_secs(8);
/// How long a lane waits for the control channel.
const EARLY: Duration = Duration::from_secs(5);
/// After so long without a first connection there will be none.
const FIRST: Duration = Duration::from_secs(10);
/// Between two attempts to connect: doubled from the first to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

pub(super) struct Driver<'a> {
    pub(super) session: &'a Session,
    pub(super) role: &'a dyn Role,
    pub(super) options: &'a Options,
    pub(super) observe: Observer<'a>,
}

impl<'a> Driver<'a> {
    /// The main thread: looks after everything until the transfer is over, then ends all threads.
    pub(super) fn supervise(&self, keep: Option<&dyn Fn()>, wait: impl FnMut(Duration)) {
        let session = self.session;
        session.contain(|| self.look_after(keep, wait));
        session.contain(|| self.last_word());
        self.role.stop();
        session.reconnect(); // which nobody does any more
        session.changed.notify_all();
    }

    fn look_after(&self, keep: Option<&dyn Fn()>, mut wait: impl FnMut(Duration)) {
        let session = self.session;
        let mut pulse = Beat::new(&session.stages);
        // The first lanes are dialed at once.
        if let Some(keep) = keep {
            keep();
        }
        while !session.is_over() {
            wait(TICK);
            if self.options.cancel.is_cancelled() {
                session.end(Err(TransferError::Interrupted));
            }
            self.look_for_silence();
            if session.channel.is_overfull() {
                session.end(Err(TransferError::Violation("it does not read".into())));
            }
            if let Err(exceeded) = session.memory.check() {
                session.end(Err(exceeded.into()));
            }
            if let Some(pulse) = pulse.due(session) {
                session.channel.say(&Message::Pulse(pulse));
                let lanes = session.acknowledged();
                if !lanes.is_empty() {
                    session.channel.say(&Message::Acknowledged { lanes });
                }
            }
            if let Some(keep) = keep {
                keep();
            }
        }
    }

    /// Tells the peer why the transfer is over, unless it has said so itself.
    fn last_word(&self) {
        let session = self.session;
        let (abort, connected) = {
            let state = session.lock();
            let abort = match &state.over {
                Some(Err(TransferError::Remote { .. } | TransferError::Lost { .. })) => None,
                Some(Err(error)) => {
                    Some((error.reason(), crate::report::without_numbers(&error.to_string())))
                }
                _ => None,
            };
            (abort, state.control.is_some())
        };
        if let Some((reason, text)) = abort {
            session.channel.say(&Message::Abort { reason, text });
        }
        if connected {
            session.channel.confirm();
            session.channel.wait_confirmed(LAST_WORD);
        }
    }

    fn look_for_silence(&self) {
        let session = self.session;
        let state = session.lock();
        if let Some(since) = state.lost
            && since.elapsed() > self.options.outage
        {
            let why = match state.last_error.as_str() {
                "" => "nobody connected".to_owned(),
                error => error.to_owned(),
            };
            drop(state);
            session.end(Err(TransferError::Lost { after: self.options.outage, why }));
        } else if session.channel.heard().is_some_and(|at| at.elapsed() > SILENCE) {
            state.control.iter().for_each(Handle::abort);
        }
    }

    /// Ends lanes on which something was acknowledged to the peer that has not come: the transport here
    /// has not said so, and what it was said of will not be sent again. Over UDT no time is needed to be sure, and
    /// no disk, however slow, looks like it: an acknowledgement follows what it covers, and this message
    /// followed the acknowledgement. What TCP has taken may be on its way for a while ([`Watch::report`]).
    fn look_for_forgery(&self, acknowledged: &[(u32, u64)]) {
        let mut state = self.session.lock();
        let State { lanes, forgery_told, swallowing_told, .. } = &mut *state;
        let (mut forged, mut swallowed) = (false, false);
        for (number, acknowledged) in acknowledged {
            let Some(lane) = lanes.get_mut(number) else { continue };
            let facts = lane.facts();
            if lane.watch.report(Instant::now(), *acknowledged, &facts) {
                lane.handle.abort();
                *(if facts.lag.is_zero() { &mut forged } else { &mut swallowed }) = true;
            }
        }
        let tell_forged = forged && !std::mem::replace(forgery_told, true);
        let tell_swallowed = swallowed && !std::mem::replace(swallowing_told, true);
        drop(state);
        if tell_forged {
            let text = "something on the path acknowledges data that has not arrived: its connections \
                        are replaced";
            (self.observe)(Event::Note(text));
        }
        if tell_swallowed {
            let text = "a connection over TCP has taken data for seconds that does not arrive: such \
                        connections are replaced";
            (self.observe)(Event::Note(text));
        }
    }

    pub(super) fn pause(&self, time: Duration) {
        let state = self.session.lock();
        if state.over.is_none() {
            drop(self.session.changed.wait_timeout(state, time));
        }
    }

    /// Dials the control channel, again whenever it breaks.
    pub(super) fn keep_control<'s>(&'s self, threads: &'s Scope<'s, '_>, dial: &dyn Dial)
    where
        'a: 's,
    {
        let mut pause = RETRY.0;
        while !self.session.is_over() {
            let way = self.session.way();
            let dialed = self.dial(dial, way).and_then(|link| {
                let received = self.session.channel.received();
                let (words, said) = self.session.channel.first_words();
                let joined = self.join(link, Purpose::Control { received }, &words)?;
                Ok((joined, if words.is_empty() { 0 } else { said }))
            });
            match dialed {
                Ok(((link, received), said)) => {
                    pause = RETRY.0;
                    self.control(threads, link, (received, said));
                }
                Err(error) => {
                    // What was best may not be there any more.
                    self.session.lock().way = Way::Any;
                    if way == Way::Any {
                        self.failed(error);
                    }
                }
            }
            if !self.session.is_over() {
                self.pause(pause);
                pause = (pause * 2).min(RETRY.1);
            }
        }
    }

    /// Dials, and remembers that the peer was there.
    fn dial(&self, dial: &dyn Dial, way: Way) -> Result<Link, NoLink> {
        let link = dial.dial(way)?;
        self.session.lock().authenticated |= link.handle.is_confirmed();
        Ok(link)
    }

    /// An attempt to connect has failed.
    fn failed(&self, error: NoLink) {
        let mut state = self.session.lock();
        state.last_error = error.to_string();
        // The first connection may be lost while it is introduced, as any other.
        let never = !state.ever && state.lost.is_some_and(|since| since.elapsed() > FIRST);
        if never || error.is_final(state.authenticated) {
            drop(state);
            return self.session.end(Err(error.into_end()));
        }
        if matches!(error, NoLink::Unproven(_)) && !std::mem::replace(&mut state.warned, true) {
            drop(state);
            let outage = self.options.outage.as_secs_f64();
            let text = format!("{error}; trying again until there is no connection for {outage} s");
            (self.observe)(Event::Note(&text));
        }
    }

    /// As many threads as lanes are wanted, each of which keeps one.
    pub(super) fn keep_lanes<'s>(&'s self, threads: &'s Scope<'s, '_>, dial: &'s dyn Dial)
    where
        'a: 's,
    {
        let mut state = self.session.lock();
        if state.control.is_some() && state.trial == Trial::Wanted && state.over.is_none() {
            state.next_lane += 1;
            let number = state.next_lane;
            state.trial = Trial::Lane(number);
            threads.spawn(move || {
                give_way();
                self.session.contain(|| self.keep_trial(dial, number));
            });
        }
        // The first lanes are dialed beside the control channel: that saves their round trips.
        let may = state.control.is_some() || !state.ever;
        let missing = match may && state.over.is_none() {
            true => state.wanted.saturating_sub(state.keepers),
            false => 0,
        };
        for _ in 0..state.backoff.allows(missing, Instant::now()) {
            state.keepers += 1;
            threads.spawn(|| {
                give_way();
                self.session.contain(|| self.keep_lane(dial));
                self.session.lock().keepers -= 1;
            });
        }
    }

    fn keep_trial(&self, dial: &dyn Dial, number: u32) {
        let dialed = self.dial(dial, Way::Tcp);
        // That it cannot be had is seen by its absence.
        if let Ok((link, _)) =
            dialed.and_then(|link| self.join(link, Purpose::Trial { number }, &[]))
        {
            self.lane(number, true, link);
        }
    }

    fn keep_lane(&self, dial: &dyn Dial) {
        loop {
            let (number, way) = {
                let mut state = self.session.lock();
                let surplus = state.keepers > state.wanted;
                let lost = state.control.is_none() && state.ever;
                if state.over.is_some() || lost || surplus {
                    return;
                }
                state.next_lane += 1;
                let number = state.next_lane;
                (number, state.way)
            };
            let begun = Instant::now();
            let dialed = self
                .dial(dial, way)
                .and_then(|link| self.join(link, Purpose::Lane { number }, &[]));
            match dialed {
                Ok((link, _)) => {
                    self.session.lock().backoff.taken();
                    if self.lane(number, false, link) {
                        return;
                    }
                }
                Err(error) => {
                    // Another keeper follows when it is time.
                    let mut state = self.session.lock();
                    state.last_error = error.to_string();
                    let refused = matches!(error, NoLink::Refused(_));
                    return state.backoff.failed(refused, begun, Instant::now());
                }
            }
            self.pause(RETRY.0);
        }
    }

    /// Says what a connection is for, and `more` with it, and waits for the answer: no longer than the transfer goes on, as
    /// a peer that has done its part may not be there to answer.
    fn join(&self, link: Link, purpose: Purpose, more: &[u8]) -> Result<(Link, u64), NoLink> {
        let handle = Handle::new(Arc::clone(&link.handle));
        if !self.begins_joining(&handle) {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        let joined = join_saying(link, self.options.session, purpose, more);
        self.ends_joining(&handle);
        self.session.lock().authenticated |= joined.is_ok();
        joined
    }

    /// A connection is being introduced; false if the transfer is over.
    fn begins_joining(&self, handle: &Handle) -> bool {
        let mut state = self.session.lock();
        let goes_on = state.over.is_none();
        if goes_on {
            state.joining.push(handle.clone());
        }
        goes_on
    }

    fn ends_joining(&self, handle: &Handle) {
        self.session.lock().joining.retain(|other| !Arc::ptr_eq(&other.0, &handle.0));
    }

    /// Takes a connection that the peer has made.
    pub(super) fn accept<'s>(&'s self, threads: &'s Scope<'s, '_>, purpose: Purpose, mut link: Link)
    where
        'a: 's,
    {
        let received = self.session.channel.received();
        // In a thread of its own: a peer that does not read holds up nobody else.
        let work = move || {
            // The answer may have to wait for a rate, too: it is given up with the session.
            let handle = Handle::new(Arc::clone(&link.handle));
            if !self.begins_joining(&handle) {
                return;
            }
            let answered = put(&mut *link.writer, &Joined::Yes { received });
            self.ends_joining(&handle);
            if answered.is_err() {
                return;
            }
            match purpose {
                Purpose::Control { received } => self.control(threads, link, (received, 0)),
                Purpose::Lane { number } => {
                    give_way();
                    {
                        // Who dials knows how many there are to be. It may be here before its word is.
                        let mut state = self.session.lock();
                        let lanes =
                            state.lanes.values().filter(|lane| !lane.on_trial).count() as u32 + 1;
                        state.wanted = state.wanted.max(lanes.min(MAX_LANES));
                    }
                    self.lane(number, false, link);
                }
                Purpose::Trial { number } => {
                    give_way();
                    self.lane(number, true, link);
                }
            }
        };
        threads.spawn(|| self.session.contain(work));
    }

    /// Serves a connection of the control channel until it breaks: to a peer that has received so many frames, with frames up to the
    /// second number on their way.
    fn control<'s>(&'s self, threads: &'s Scope<'s, '_>, link: Link, (received, said): (u64, u64))
    where
        'a: 's,
    {
        let session = self.session;
        let generation = match session.channel.attach_after(received, said) {
            Ok(generation) => generation,
            Err(error) => return session.end(Err(error)),
        };
        let Link { mut reader, mut writer, handle } = link;
        let handle = Handle::new(handle);
        {
            let mut state = session.lock();
            if let Some(old) = state.control.replace(handle.clone()) {
                old.abort();
            }
            let quiet = std::mem::take(&mut state.quiet);
            if let Some(since) = state.lost.take()
                && state.ever
                && !quiet
            {
                let text = format!(
                    "connected again by {} after {:.1} s",
                    handle.0.describe(),
                    since.elapsed().as_secs_f64()
                );
                (self.observe)(Event::Note(&text));
            }
            state.ever = true;
            state.backoff = Backoff::default();
            state.connected.get_or_insert_with(Instant::now);
        }
        session.changed.notify_all();
        if let Err(error) = self.role.connected(true) {
            session.end(Err(error));
        }
        let both = handle.clone();
        threads.spawn(move || {
            session.contain(|| drop(session.channel.write(generation, &mut *writer)));
            // A connection that cannot be written to is not read for long either.
            both.abort();
        });
        let mut read = || session.channel.read(generation, &mut *reader, &mut |m| self.message(m));
        let mut ended = read();
        if let Ok(Err(error)) = ended {
            session.end(Err(error));
            // What the peer confirms of the last word is still to be heard.
            ended = read();
        }
        if let Err(error) = ended {
            self.lost(generation, &handle, &error);
        }
    }

    /// The control channel has broken: its lanes are given up with it.
    fn lost(&self, generation: u64, handle: &Handle, error: &io::Error) {
        let session = self.session;
        session.channel.detach(generation);
        handle.abort();
        let mut state = session.lock();
        let present = state.control.as_ref().is_some_and(|now| Arc::ptr_eq(&now.0, &handle.0));
        if !present || state.over.is_some() {
            return;
        }
        state.control = None;
        state.lost = Some(Instant::now());
        state.last_error = error.to_string();
        state.lanes.values().for_each(|lane| lane.handle.abort());
        let quiet = state.quiet;
        state.broken += u64::from(!quiet);
        drop(state);
        if !quiet {
            (self.observe)(Event::Note(&format!("connection lost ({error}); trying again")));
        }
        if let Err(error) = self.role.connected(false) {
            session.end(Err(error));
        }
        session.changed.notify_all();
    }

    /// A lane may be there before the control channel is: it waits a moment.
    fn wait_for_control(&self) -> MutexGuard<'a, State> {
        let deadline = Instant::now() + EARLY;
        let mut state = self.session.lock();
        while state.control.is_none() && state.over.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.session.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// Works a lane until it ends; whether that was meant to be.
    fn lane(&self, number: u32, on_trial: bool, link: Link) -> bool {
        let session = self.session;
        let Link { mut reader, mut writer, handle } = link;
        let handle = Handle::new(handle);
        {
            let mut state = self.wait_for_control();
            if state.over.is_some() || state.control.is_none() {
                return false;
            }
            let working = Working { handle: handle.clone(), on_trial, watch: Watch::default() };
            if state.lanes.insert(number, working).is_some() {
                drop(state);
                session.end(Err(TransferError::Violation("two lanes of one number".into())));
                return true;
            }
        }
        let keep = || {
            let state = session.lock();
            // The youngest go first.
            let older =
                state.lanes.range(..number).filter(|(_, lane)| !lane.on_trial).count() as u32;
            let wanted = match on_trial {
                true => number > state.trials_over,
                false => older < state.wanted,
            };
            state.over.is_none() && wanted
        };
        let (reader, writer) = (&mut *reader, &mut *writer);
        let Handle(link, interrupt) = &handle;
        let lane = Lane { number, reader, writer, handle: &**link, interrupt, keep: &keep };
        let worked = self.role.lane(lane);
        session.lock().lanes.remove(&number);
        match worked {
            Ok(()) => true,
            Err(LaneEnd::Broken(error)) => {
                handle.abort();
                {
                    let mut state = session.lock();
                    state.last_error = error.to_string();
                    state.broken += u64::from(state.over.is_none() && !state.quiet);
                }
                session.channel.say(&Message::LaneBroken { lane: number });
                session.is_over()
            }
            Err(LaneEnd::Fatal(error)) => {
                session.end(Err(error));
                true
            }
        }
    }

    /// Takes a message; whether to read on.
    fn message(&self, message: Message) -> Result<bool, TransferError> {
        let session = self.session;
        if session.is_over() {
            // Read on only for what the peer confirms.
            return Ok(true);
        }
        match message {
            Message::Pulse(pulse) => {
                session.lock().peer.add(&pulse);
                Ok(true)
            }
            Message::LaneBroken { lane } => {
                if let Some(lane) = session.lock().lanes.get(&lane) {
                    lane.handle.abort();
                }
                Ok(true)
            }
            Message::Acknowledged { lanes } => {
                self.look_for_forgery(&lanes);
                Ok(true)
            }
            Message::Lanes { wanted, trials_over } => {
                let mut state = session.lock();
                state.wanted = wanted.clamp(1, MAX_LANES);
                state.trials_over = state.trials_over.max(trials_over);
                Ok(true)
            }
            Message::Abort { reason, text } => {
                let reason = match reason {
                    AbortReason::Agreed => AbortReason::Failed,
                    reason => reason,
                };
                Err(TransferError::Remote { reason, text })
            }
            message => match self.role.message(message)? {
                Flow::Continue => Ok(true),
                Flow::Over => {
                    session.end(Ok(()));
                    Ok(true)
                }
            },
        }
    }
}

/// When the next pulse is due, and what it says.
struct Beat {
    at: Instant,
    stages: [u64; STAGES],
    processors: Processors,
    /// When connections were last looked at.
    looked: Instant,
    blocked: Duration,
    /// Packets of the connections that there are, sent and sent again.
    packets: (u64, u64),
}

impl Beat {
    fn new(stages: &Stages) -> Self {
        let now = Instant::now();
        let (processors, blocked) = (Processors::new(), Duration::ZERO);
        Beat { at: now, stages: stages.read(), processors, looked: now, blocked, packets: (0, 0) }
    }

    fn due(&mut self, session: &Session) -> Option<Pulse> {
        let facts = session.facts();
        let looked = std::mem::replace(&mut self.looked, Instant::now());

        if facts.iter().any(|facts| facts.blocked_by_peer) {
            self.blocked += looked.elapsed();
        }
        let interval = self.at.elapsed();
        if interval < PULSE || session.lock().control.is_none() {
            return None;
        }
        let stages = session.stages.read();
        let sum = |what: fn(&LinkFacts) -> u64| facts.iter().map(what).sum::<u64>();
        let packets = (sum(|facts| facts.packets_sent), sum(|facts| facts.retransmitted));
        let pulse = Pulse {
            interval: interval.as_micros() as u64,
            lanes: facts.len() as u32,
            stages: std::array::from_fn(|stage| stages[stage] - self.stages[stage]),
            busy: interval.mul_f64(self.processors.busy()).as_micros() as u64,
            // Those of a connection that is over are not counted any more.
            packets: (
                packets.0.saturating_sub(self.packets.0),
                packets.1.saturating_sub(self.packets.1),
            ),
            blocked: std::mem::take(&mut self.blocked).as_micros() as u64,
            capacity: facts.iter().map(|facts| facts.capacity as u64).max().unwrap_or(0),
        };
        (self.at, self.stages, self.packets) = (Instant::now(), stages, packets);
        session.lock().own.add(&pulse);
        Some(pulse)
    }
}
