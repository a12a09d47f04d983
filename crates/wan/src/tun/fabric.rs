//! What carries packets between the devices of the hosts.
//!
//! One thread: a discrete-event simulation that the clock drives. A packet is handed from link to link at the
//! time at which it arrives by the links' own reckoning, whenever the thread comes to it; so hops add no
//! error, and only arrivals at hosts wait for the thread.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farhaul_base::{Rng, Time};
use farhaul_link::{Ecn, Link, LinkConfig, LinkStats, Packet};

use super::arrivals::{Arrivals, RunDelay};
use super::frame::{Frame, Segment, VIRTIO_BYTES};
use super::memory::Memory;
use super::outbox::Outbox;
use super::{HostStats, NetworkStats, Topology, TunDevice};
use crate::clock::Clock;
use crate::relay::pace::{Look, Pace};
use crate::socket::{self, Poller};

/// The most that is taken from one device before what is due is released.
const FRAMES_IN_A_ROW: usize = 2048;
const BYTES_IN_A_ROW: usize = 8 << 20;
/// With so many reads at a time input is looked at each tick, no longer whenever it comes.
const BUSY_READS: usize = 4;
/// A wait for input that is shorter has not slept: the input was there before.
const SLEPT_NS: u64 = 5_000;
/// How often the counters are brought up to date for others to see.
const PUBLISH_EVERY_NS: u64 = 2_000_000;

/// Everything that the thread works with.
#[derive(Debug)]
pub(super) struct Fabric {
    ports: Vec<Port>,
    hops: Vec<Hop>,
    /// When each of `hops` has to be asked next; `Time::MAX` while it is empty.
    due: Vec<Time>,
    pace: Pace,
    clock: Clock,
    poller: Poller,
    run_delay: RunDelay,
    memory: Memory,
    max_held_bytes: u64,
    published: Arc<Mutex<NetworkStats>>,
    published_at: Time,
}

/// A host's end.
#[derive(Debug)]
struct Port {
    device: Arc<TunDevice>,
    /// Where packets go, by the host that they are for.
    next: Vec<Option<Next>>,
    arrivals: Arrivals,
    outbox: Outbox,
    stats: HostStats,
}

/// A link with what follows it.
#[derive(Debug)]
struct Hop {
    link: Link<Traveller>,
    next: Vec<Option<Next>>,
}

/// Where a packet goes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Hop(usize),
    Host(usize),
}

/// A packet and the number of the host that it is for.
#[derive(Clone, Debug)]
struct Traveller {
    segment: Segment,
    to: usize,
}

impl Fabric {
    /// For devices in the order of the topology's hosts.
    pub(super) fn new(
        topology: &Topology,
        devices: &[Arc<TunDevice>],
        (seed, tick, max_held_bytes): (u64, Duration, u64),
        published: Arc<Mutex<NetworkStats>>,
    ) -> Fabric {
        let routes = topology.routes();
        let mut seeds = Rng::new(seed);
        let towards = |node: usize| {
            let step = |(host, link): (usize, &Option<usize>)| match link {
                _ if topology.hosts[host] == node => Some(Next::Host(host)),
                link => link.map(Next::Hop),
            };
            routes[node].iter().enumerate().map(step).collect::<Vec<_>>()
        };
        let mut hops: Vec<Hop> = topology
            .links
            .iter()
            .map(|link| Hop {
                link: Link::new(link.config.clone(), seeds.next_u64()),
                next: towards(link.to),
            })
            .collect();
        let ports = topology.hosts.iter().zip(devices).map(|(&node, device)| {
            let mut next = towards(node);
            if let Some(rate) = topology.access_rate {
                let config = LinkConfig { rate: Some(rate), ..LinkConfig::default() };
                let link = Link::new(config, seeds.next_u64());
                let access = Next::Hop(hops.len());
                let onwards = next.clone();
                next.iter_mut().flatten().for_each(|next| *next = access);
                hops.push(Hop { link, next: onwards });
            }
            Port {
                device: Arc::clone(device),
                next,
                arrivals: Arrivals::default(),
                outbox: Outbox::new(Arc::clone(device)),
                stats: HostStats::default(),
            }
        });
        Fabric {
            ports: ports.collect(),
            due: vec![Time::MAX; hops.len()],
            hops,
            pace: Pace::without_stamps(tick),
            clock: Clock::start(),
            poller: Poller::default(),
            run_delay: RunDelay::open(),
            memory: Memory::default(),
            max_held_bytes,
            published,
            published_at: Time::ZERO,
        }
    }

    /// Carries packets until it is told to stop. In the thread that is to do it, from the beginning on.
    ///
    /// # Errors
    /// If a device or the system's waiting fails.
    pub(super) fn run(&mut self, links: usize, stop: &AtomicBool) -> io::Result<()> {
        socket::set_timer_slack();
        self.run_delay = RunDelay::open();
        let devices: Vec<_> = self.ports.iter().map(|port| Arc::clone(&port.device)).collect();
        self.poller.watch(devices.iter().map(|device| &**device));
        let mut buffer = self.memory.buffer(VIRTIO_BYTES + usize::from(u16::MAX));
        let mut frames = Vec::new();
        let mut ready = vec![true; self.ports.len()];
        while !stop.load(Ordering::Relaxed) {
            if ready.contains(&true) {
                self.take_in(&ready, &mut buffer, &mut frames)?;
            }
            if self.release() {
                // What was written is answered at once, by the kernel in the same call.
                ready.fill(true);
                self.take_in(&ready, &mut buffer, &mut frames)?;
            }
            self.sleep(links, &mut ready)?;
        }
        self.publish(links);
        Ok(())
    }

    fn take_in(
        &mut self,
        ready: &[bool],
        buffer: &mut Vec<u8>,
        frames: &mut Vec<(Arc<Frame>, usize)>,
    ) -> io::Result<()> {
        let mut look = Look::Nothing;
        for (index, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
            let (port_look, bytes) = self.read(index, buffer, frames)?;
            let now = self.clock.now();
            let port = &mut self.ports[index];
            let mut before = 0;
            for (frame, own) in frames.drain(..) {
                let at = port.arrivals.date(now, before, own, bytes);
                before += own;
                let address = frame.destination();
                let to = super::host_number(address).filter(|to| *to < port.next.len());
                let Some((to, next)) = to.and_then(|to| Some((to, port.next[to]?))) else {
                    port.stats.unroutable += frame.count() as u64;
                    continue;
                };
                let count = frame.count() as u64;
                port.stats.received += count;
                for segment in frame.segments() {
                    let length = segment.wire_len() as u64;
                    port.stats.received_bytes += length;
                    if self.memory.held() > self.max_held_bytes {
                        port.stats.dropped_memory += 1;
                    } else if let Next::Hop(hop) = next {
                        // The link counts what its queue drops.
                        let _ = self.hops[hop].link.offer(at, Traveller { segment, to });
                    }
                }
                if let Next::Hop(hop) = next {
                    self.due[hop] = self.hops[hop].link.next_event().unwrap_or(Time::MAX);
                }
            }
            port.arrivals.found_empty(now);
            look = look.max(port_look);
        }
        self.pace.looked_for_input(self.clock.now(), look);
        Ok(())
    }

    /// Reads what a device has: the frames, and the bytes of all. Whether the thread should look again soon.
    fn read(
        &mut self,
        index: usize,
        buffer: &mut Vec<u8>,
        frames: &mut Vec<(Arc<Frame>, usize)>,
    ) -> io::Result<(Look, usize)> {
        let port = &mut self.ports[index];
        let mut bytes = 0;
        for reads in 0..FRAMES_IN_A_ROW {
            let length = match port.device.receive(buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let look = if reads < BUSY_READS { Look::Nothing } else { Look::Drained };
                    return Ok((look, bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            match Frame::new(self.memory.take(buffer, length)) {
                Ok(frame) => frames.push((Arc::new(frame), length)),
                Err(_) => port.stats.unroutable += 1,
            }
            bytes += length;
            if bytes >= BYTES_IN_A_ROW {
                break;
            }
        }
        Ok((Look::More, bytes))
    }

    /// Hands on what is due. Whether a host has received anything.
    fn release(&mut self) -> bool {
        let now = self.clock.now();
        let until = self.pace.release(now);
        let mut arrived_now = 0;
        while let Some((index, at)) = self.next_hop().filter(|(_, at)| *at <= until) {
            let hop = &mut self.hops[index];
            let arrived = hop.link.poll(at);
            self.due[index] = hop.link.next_event().unwrap_or(Time::MAX);
            let Some((at, traveller)) = arrived else { continue };
            match hop.next[traveller.to] {
                Some(Next::Hop(next)) => {
                    let link = &mut self.hops[next].link;
                    let _ = link.offer(at, traveller);
                    self.due[next] = link.next_event().unwrap_or(Time::MAX);
                }
                Some(Next::Host(host)) => {
                    let port = &mut self.ports[host];
                    port.outbox.push(at, traveller.segment, &self.clock, &mut port.stats);
                    arrived_now += 1;
                }
                // No way from here, though there was one from the host: cannot be.
                None => {}
            }
        }
        for port in &mut self.ports {
            port.outbox.flush(&self.clock, &mut port.stats);
        }
        self.pace.released(now, arrived_now);
        arrived_now > 0
    }

    /// The link that something leaves first, and when.
    fn next_hop(&self) -> Option<(usize, Time)> {
        let times = self.due.iter().copied().enumerate();
        times.min_by_key(|(_, at)| *at).filter(|(_, at)| *at < Time::MAX)
    }

    /// Sleeps until there is something to do. Notes which devices have something to read.
    fn sleep(&mut self, links: usize, ready: &mut [bool]) -> io::Result<()> {
        let began = self.clock.now();
        let sleep = self.pace.sleep(began, self.next_hop().map(|(_, at)| at));
        let long =
            sleep.is_some_and(|sleep| sleep.length.as_nanos() > u128::from(PUBLISH_EVERY_NS));
        if long || began.nanos_since(self.published_at) >= PUBLISH_EVERY_NS {
            self.publish(links);
            self.published_at = began;
            self.run_delay.since_last();
        }
        ready.fill(true);
        let Some(sleep) = sleep else { return Ok(()) };
        if !sleep.for_input {
            socket::sleep(sleep.length)?;
            let now = self.clock.now();
            self.pace.slept(sleep.length, began, now);
            // Looked at when they are due, which may be later than what else ended the sleep.
            ready.fill(self.pace.input_is_due(now));
            return Ok(());
        }
        let has_input = self.poller.wait(sleep.length)?;
        let now = self.clock.now();
        if !has_input {
            self.pace.slept(sleep.length, began, now);
        }
        let asleep = now.nanos_since(began);
        let slept = asleep >= SLEPT_NS;
        // A packet wakes the thread as late as a clock does, or later if the processor is in use.
        let late = self.pace.lateness_ns(asleep);
        let waited = if has_input && slept { self.run_delay.since_last().max(late) } else { 0 };
        let waited = waited.min(asleep);
        for (index, port) in self.ports.iter_mut().enumerate() {
            ready[index] = self.poller.is_ready(index);
            if !ready[index] {
                port.arrivals.found_empty(now);
            } else if slept {
                port.arrivals.woken(now, waited);
            }
        }
        Ok(())
    }

    /// Brings the counters up to date.
    fn publish(&mut self, links: usize) {
        // Until then everything that came is in.
        let settled = self.ports.iter().map(|port| port.arrivals.empty_at()).min();
        for port in &mut self.ports {
            port.stats.overflowed = port.device.overflowed();
        }
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let link = |hop: &mut Hop| -> LinkStats {
            if let Some(settled) = settled {
                hop.link.advance(settled);
            }
            hop.link.stats()
        };
        published.links.clear();
        published.links.extend(self.hops[..links].iter_mut().map(link));
        published.hosts.clear();
        published.hosts.extend(self.ports.iter().map(|port| port.stats));
    }
}

impl Packet for Traveller {
    fn wire_len(&self) -> usize {
        self.segment.wire_len()
    }

    fn corruptible_bits(&self) -> usize {
        self.segment.wire_len() * 8
    }

    fn flip_bit(&mut self, bit: usize) {
        self.segment.flip_bit(bit);
    }

    fn ecn(&self) -> Ecn {
        self.segment.ecn()
    }

    fn mark(&mut self) {
        self.segment.mark();
    }

    fn flow(&self) -> u64 {
        self.segment.flow_number()
    }
}
