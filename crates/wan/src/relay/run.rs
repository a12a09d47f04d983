//! The relay's loop: take in, release, sleep.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farhaul_base::{Rng, Time};
use farhaul_link::Link;

use crate::clock::Clock;
use crate::socket::{self, Inbox, Poller, Socket};

use super::flows::{FlowKey, Flows};
use super::inject::Injector;
use super::pace::{Look, Pace};
use super::packet::{Datagram, Pool};
use super::{DirectionStats, Ends, RelayConfig, RelayStats};

/// Batches taken from one socket before what is due is released.
const BATCHES_IN_A_ROW: usize = 8;
/// How often idle clients are looked for.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);

/// Everything that the relay's thread works with.
#[derive(Debug)]
pub(crate) struct Runner {
    /// Faces the clients, or `a`.
    near: Socket,
    /// How much the near socket has reported as lost for lack of room.
    near_overflowed: u32,
    flows: Flows,
    forward: Lane,
    backward: Lane,
    pool: Pool,
    pace: Pace,
    clock: Clock,
    inbox: Inbox,
    poller: Poller,
    /// The flows whose far sockets are watched, in the poller's order after the near socket.
    watched: Vec<FlowKey>,
    /// The state of the flows when that list was made.
    watched_changes: u64,
    max_held_bytes: u64,
    injector: Option<Injector>,
    refused: u64,
    next_expiry: Time,
    published: Arc<Mutex<RelayStats>>,
}

/// One direction.
#[derive(Debug)]
struct Lane {
    link: Link<Datagram>,
    counters: DirectionStats,
    /// Due for release.
    due: Vec<Datagram>,
}

impl Runner {
    pub(crate) fn bind(
        config: RelayConfig,
        published: Arc<Mutex<RelayStats>>,
    ) -> io::Result<Runner> {
        let (near, flows) = Flows::bind(&config.ends)?;
        let target = match config.ends {
            Ends::Clients { target, .. } => target,
            Ends::Between { b, .. } => b.peer,
        };
        let mut seeds = Rng::new(config.seed);
        let pace = Pace::new(config.tick, config.forward.delay.min(config.backward.delay));
        Ok(Runner {
            near,
            near_overflowed: 0,
            flows,
            forward: Lane::new(Link::new(config.forward, seeds.next_u64())),
            backward: Lane::new(Link::new(config.backward, seeds.next_u64())),
            injector: config.inject.map(|inject| Injector::new(&inject, seeds.next_u64())),
            pool: Pool::new(target),
            pace,
            clock: Clock::start(),
            inbox: Inbox::new(),
            poller: Poller::default(),
            watched: Vec::new(),
            watched_changes: 0,
            max_held_bytes: config.max_held_bytes,
            refused: 0,
            next_expiry: Time::ZERO,
            published,
        })
    }

    /// The near socket's address, and the far one's if there is just one.
    pub(crate) fn addresses(&self) -> io::Result<(SocketAddr, Option<SocketAddr>)> {
        let far = self.flows.iter().next().map(|(_, flow)| flow.far.local_addr()).transpose()?;
        Ok((self.near.local_addr()?, far))
    }

    pub(crate) fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        socket::set_timer_slack();
        self.clock = Clock::start();
        self.watch();
        let mut has_input = true;
        while !stop.load(Ordering::Relaxed) {
            if has_input || self.pace.input_is_due(self.clock.now()) {
                self.take_in(has_input)?;
            }
            self.inject();
            self.release();
            self.expire();
            self.publish();
            has_input = self.sleep()?;
        }
        Ok(())
    }

    /// Reads what the sockets have. `polled` says that the poller knows which do.
    fn take_in(&mut self, polled: bool) -> io::Result<()> {
        let began = self.clock.now();
        let any = polled || self.poller.wait(Duration::ZERO)?;
        let mut look = Look::Nothing;
        for index in 0..=self.watched.len() {
            if any && self.poller.is_ready(index) {
                let flow = index.checked_sub(1).map(|index| self.watched[index]);
                look = look.max(self.take_from(flow));
            }
        }
        self.pace.looked_for_input(began, look);
        if look != Look::More {
            // Everything that came until then is in, so the queues' state can be settled.
            self.forward.link.advance(began);
            self.backward.link.advance(began);
        }
        self.watch_changed();
        Ok(())
    }

    /// Reads the near socket (`None`) or that of a flow, a number of batches at most.
    fn take_from(&mut self, flow: Option<FlowKey>) -> Look {
        let mut look = Look::Nothing;
        for _ in 0..BATCHES_IN_A_ROW {
            let now = self.clock.now();
            let received = match flow {
                None => self.near.receive(&mut self.inbox),
                Some(key) => match self.flows.touch(key, now) {
                    Some(flow) => flow.far.receive(&mut self.inbox),
                    None => return look,
                },
            };
            match received {
                Ok(count) => {
                    look = Look::Drained;
                    self.offer_inbox(flow);
                    if count < Inbox::MESSAGES {
                        return look;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return look,
                // An ICMP error that came back for something sent, or a passing shortage. The call
                // has cleared it.
                Err(_) => {}
            }
        }
        Look::More
    }

    /// Offers the batch in the inbox to the link that it came for.
    fn offer_inbox(&mut self, from_flow: Option<FlowKey>) {
        let reading = self.clock.read();
        let held: u64 = [&self.forward, &self.backward].map(Lane::held_bytes).iter().sum();
        let full = held >= self.max_held_bytes;
        for message in self.inbox.messages() {
            let count = message.count() as u64;
            let Some(key) = from_flow.or_else(|| self.flows.of_client(message.from, reading.now))
            else {
                self.refused += count;
                continue;
            };
            let lane = if from_flow.is_some() { &mut self.backward } else { &mut self.forward };
            lane.counters.received += count;
            lane.counters.received_bytes += message.payload.len() as u64;
            if let Some(flow) = self.flows.touch(key, reading.now)
                && let Some(overflowed) = message.overflowed
            {
                let seen = if from_flow.is_some() {
                    &mut flow.overflowed
                } else {
                    &mut self.near_overflowed
                };
                lane.counters.overflowed += u64::from(overflowed.wrapping_sub(*seen));
                *seen = overflowed;
            }
            if full {
                lane.counters.dropped_memory += count;
                continue;
            }
            let at = reading.arrival(message.stamp);
            for payload in message.datagrams() {
                if let Some(injector) = &mut self.injector {
                    injector.observe(reading.now, key, from_flow.is_none(), payload);
                }
                if let Err(dropped) = lane.link.offer(at, self.pool.datagram(payload, key)) {
                    self.pool.recycle(dropped);
                }
            }
        }
    }

    /// Lets what is forged enter the path.
    fn inject(&mut self) {
        let Some(injector) = &mut self.injector else { return };
        let now = self.clock.now();
        for forged in injector.poll(now) {
            let lane = if forged.forward { &mut self.forward } else { &mut self.backward };
            if let Err(dropped) =
                lane.link.offer(now, self.pool.datagram(&forged.payload, forged.flow))
            {
                self.pool.recycle(dropped);
            }
        }
    }

    /// Sends what is due.
    fn release(&mut self) {
        let now = self.clock.now();
        let until = self.pace.release(now);
        for (lane, is_forward) in [(&mut self.forward, true), (&mut self.backward, false)] {
            lane.collect_due(now, until);
            for run in lane.due.chunk_by(|one, next| one.flow == next.flow) {
                let count = run.len() as u64;
                let Some(flow) = self.flows.touch(run[0].flow, now) else {
                    lane.counters.dropped_stale += count;
                    continue;
                };
                let sent = if is_forward {
                    flow.far.send(None, run)
                } else {
                    self.near.send(flow.client, run)
                };
                lane.counters.sent += sent.packets;
                lane.counters.sent_bytes += sent.bytes;
                lane.counters.dropped_send += count - sent.packets;
            }
            lane.due.drain(..).for_each(|datagram| self.pool.recycle(datagram));
        }
    }

    /// Sleeps until there is something to do. Returns whether the poller has found input.
    fn sleep(&mut self) -> io::Result<bool> {
        let events = [&self.forward, &self.backward].map(|lane| lane.link.next_event());
        let forged = self.injector.as_ref().map(Injector::next);
        let next = events.into_iter().flatten().chain(forged).min();
        let began = self.clock.now();
        let Some(sleep) = self.pace.sleep(began, next) else { return Ok(false) };
        let has_input = if sleep.for_input {
            self.poller.wait(sleep.length)?
        } else {
            socket::sleep(sleep.length)?;
            false
        };
        if !has_input {
            self.pace.slept(sleep.length, began, self.clock.now());
        }
        Ok(has_input)
    }

    fn expire(&mut self) {
        let now = self.clock.now();
        if now >= self.next_expiry {
            self.next_expiry = now + EXPIRE_EVERY;
            self.flows.expire(now);
            self.watch_changed();
        }
    }

    fn watch_changed(&mut self) {
        if self.watched_changes != self.flows.changes() {
            self.watch();
        }
    }

    /// Watches the near socket and those of all flows.
    fn watch(&mut self) {
        self.watched_changes = self.flows.changes();
        self.watched = self.flows.iter().map(|(key, _)| key).collect();
        let far = self.flows.iter().map(|(_, flow)| &flow.far);
        self.poller.watch(std::iter::once(&self.near).chain(far));
    }

    fn publish(&self) {
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = RelayStats {
            forward: self.forward.stats(),
            backward: self.backward.stats(),
            clients: self.flows.len(),
            refused: self.refused,
            forged: self.injector.as_ref().map(Injector::stats).unwrap_or_default(),
        };
    }
}

impl Lane {
    fn new(link: Link<Datagram>) -> Self {
        Lane { link, counters: DirectionStats::default(), due: Vec::new() }
    }

    fn collect_due(&mut self, now: Time, until: Time) {
        while let Some((due, datagram)) = self.link.poll(until) {
            self.counters.timing.note(due, now);
            self.due.push(datagram);
        }
    }

    fn held_bytes(&self) -> u64 {
        let stats = self.link.stats();
        stats.queue.bytes + stats.in_flight_bytes
    }

    fn stats(&self) -> DirectionStats {
        DirectionStats { link: self.link.stats(), ..self.counters }
    }
}
