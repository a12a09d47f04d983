//! The router between two namespaces.
//!
//! One thread, which wakes for every packet: unlike a UDP socket, a TUN device does not stamp
//! arrivals, so they count from when they are read. Departures follow the links' own schedule.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farhaul_base::{Rng, Time};
use farhaul_link::{Link, LinkConfig, Packet};

use crate::DirectionStats;
use crate::clock::Clock;
use crate::relay::pace::{Look, Pace};
use crate::socket::{self, Poller};

use super::{Namespace, TunDevice, sys};

/// Packets taken from one device before what is due is released.
const PACKETS_IN_A_ROW: usize = 256;
/// The near side's address, in a range that is for private use (RFC 1918).
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The far side's address.
const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// A path between two namespaces, and what it does to the packets.
#[derive(Clone, Debug)]
pub struct TunPathConfig {
    /// From the near namespace to the far one. Its time starts when the path is opened.
    pub forward: LinkConfig,
    /// The way back.
    pub backward: LinkConfig,
    /// Everything random follows from this and from the order of the packets.
    pub seed: u64,
    /// The largest packet in bytes, headers of IP included, 68 at least. Default 1500.
    pub mtu: u16,
    /// Packets due within one tick may leave together, so times are kept to about a tick. Default
    /// 50 us.
    pub tick: Duration,
    /// The most that both links together hold, in bytes; what comes beyond is dropped and counted.
    /// Default 512 MiB.
    pub max_held_bytes: u64,
}

/// Two namespaces and the path between them, at work in a thread of its own. Dropping it ends the
/// path.
#[derive(Debug)]
pub struct TunPath {
    near: Namespace,
    far: Namespace,
    stats: Arc<Mutex<TunPathStats>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Counters of a path since it was opened: IP packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunPathStats {
    /// From the near namespace to the far one.
    pub forward: DirectionStats,
    /// Back.
    pub backward: DirectionStats,
}

/// Everything that the thread works with.
#[derive(Debug)]
struct Router {
    forward: Lane,
    backward: Lane,
    pace: Pace,
    clock: Clock,
    poller: Poller,
    max_held_bytes: u64,
    published: Arc<Mutex<TunPathStats>>,
}

/// One direction.
#[derive(Debug)]
struct Lane {
    from: Arc<TunDevice>,
    to: Arc<TunDevice>,
    link: Link<IpPacket>,
    counters: DirectionStats,
}

#[derive(Clone, Debug)]
struct IpPacket(Box<[u8]>);

impl Default for TunPathConfig {
    fn default() -> Self {
        TunPathConfig {
            forward: LinkConfig::default(),
            backward: LinkConfig::default(),
            seed: 0,
            mtu: 1500,
            tick: Duration::from_micros(50),
            max_held_bytes: 512 << 20,
        }
    }
}

impl TunPath {
    /// Makes both namespaces and starts to carry packets.
    ///
    /// # Errors
    /// If namespaces or TUN devices are not permitted here; the text says which.
    pub fn open(config: TunPathConfig) -> io::Result<TunPath> {
        let (near, far) = (Namespace::create()?, Namespace::create()?);
        let device = |namespace, local, peer| {
            TunDevice::open(namespace, "wan0", local, peer, config.mtu).map(Arc::new)
        };
        let ends = [device(&near, NEAR, FAR)?, device(&far, FAR, NEAR)?];
        let stats = Arc::new(Mutex::new(TunPathStats::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let mut router = Router::new(config, &ends, Arc::clone(&stats));
        let thread = thread::Builder::new().name("farhaul-router".to_owned()).spawn(move || {
            // A network takes no processor from those who use it, and waits for none.
            sys::hurry();
            router.run(&told)
        })?;
        Ok(TunPath { near, far, stats, stop, thread: Some(thread) })
    }

    /// Where forward packets come from.
    pub fn near(&self) -> &Namespace {
        &self.near
    }

    /// Where forward packets go to.
    pub fn far(&self) -> &Namespace {
        &self.far
    }

    /// The near namespace's address.
    pub fn near_addr(&self) -> Ipv4Addr {
        NEAR
    }

    /// The far namespace's address.
    pub fn far_addr(&self) -> Ipv4Addr {
        FAR
    }

    /// What the path has counted so far.
    pub fn stats(&self) -> TunPathStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the path and returns what it counted. What is under way is lost.
    ///
    /// # Errors
    /// If the path had ended with an error before.
    pub fn stop(mut self) -> io::Result<TunPathStats> {
        self.join()?;
        Ok(self.stats())
    }

    fn join(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the router's thread panicked")))
    }
}

impl Drop for TunPath {
    fn drop(&mut self) {
        // Who wants to know of an error calls `stop`.
        let _ = self.join();
    }
}

impl Router {
    fn new(
        config: TunPathConfig,
        [near, far]: &[Arc<TunDevice>; 2],
        published: Arc<Mutex<TunPathStats>>,
    ) -> Router {
        let mut seeds = Rng::new(config.seed);
        let mut lane = |link, from: &Arc<TunDevice>, to: &Arc<TunDevice>| Lane {
            from: Arc::clone(from),
            to: Arc::clone(to),
            link: Link::new(link, seeds.next_u64()),
            counters: DirectionStats::default(),
        };
        Router {
            forward: lane(config.forward, near, far),
            backward: lane(config.backward, far, near),
            // No arrival stamps: no packet may lie unread, however long the path's delay.
            pace: Pace::new(config.tick, Duration::ZERO),
            clock: Clock::start(),
            poller: Poller::default(),
            max_held_bytes: config.max_held_bytes,
            published,
        }
    }

    fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        socket::set_timer_slack();
        self.poller.watch([&*self.forward.from, &*self.backward.from].into_iter());
        let mut buffer = vec![0; usize::from(u16::MAX)];
        let mut has_input = true;
        while !stop.load(Ordering::Relaxed) {
            if has_input || self.pace.input_is_due(self.clock.now()) {
                self.take_in(&mut buffer)?;
            }
            self.release();
            self.publish();
            has_input = self.sleep()?;
        }
        Ok(())
    }

    fn take_in(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let began = self.clock.now();
        let held: u64 = [&self.forward, &self.backward].map(Lane::held_bytes).iter().sum();
        let room = held < self.max_held_bytes;
        let mut look = Look::Nothing;
        for lane in [&mut self.forward, &mut self.backward] {
            look = look.max(lane.take_in(buffer, &self.clock, room)?);
        }
        self.pace.looked_for_input(began, look);
        if look != Look::More {
            // Everything that came until then is in, so the queues' state can be settled.
            self.forward.link.advance(began);
            self.backward.link.advance(began);
        }
        Ok(())
    }

    fn release(&mut self) {
        let now = self.clock.now();
        let until = self.pace.release(now);
        self.forward.release(now, until);
        self.backward.release(now, until);
    }

    /// Sleeps until there is something to do. Returns whether a device has a packet.
    fn sleep(&mut self) -> io::Result<bool> {
        let events = [&self.forward, &self.backward].map(|lane| lane.link.next_event());
        let next = events.into_iter().flatten().min();
        let began = self.clock.now();
        let Some(sleep) = self.pace.sleep(began, next) else { return Ok(false) };
        let has_input = self.poller.wait(sleep.length)?;
        if !has_input {
            self.pace.slept(sleep.length, began, self.clock.now());
        }
        Ok(has_input)
    }

    fn publish(&self) {
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) =
            TunPathStats { forward: self.forward.stats(), backward: self.backward.stats() };
    }
}

impl Lane {
    /// Offers what the namespace has sent to the link, a number of packets at most.
    fn take_in(&mut self, buffer: &mut [u8], clock: &Clock, room: bool) -> io::Result<Look> {
        for taken in 0..PACKETS_IN_A_ROW {
            let length = match self.from.receive(buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(if taken == 0 { Look::Nothing } else { Look::Drained });
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.counters.received += 1;
            self.counters.received_bytes += length as u64;
            if !room {
                self.counters.dropped_memory += 1;
                continue;
            }
            // The link counts what its queue drops.
            let _ = self.link.offer(clock.now(), IpPacket(buffer[..length].into()));
        }
        Ok(Look::More)
    }

    /// Hands over what is due.
    fn release(&mut self, now: Time, until: Time) {
        while let Some((due, packet)) = self.link.poll(until) {
            self.counters.timing.note(due, now);
            match self.to.send(&packet.0) {
                Ok(()) => {
                    self.counters.sent += 1;
                    self.counters.sent_bytes += packet.0.len() as u64;
                }
                // Damaged so that it is no IP packet any more, or a passing shortage.
                Err(_) => self.counters.dropped_send += 1,
            }
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

impl Packet for IpPacket {
    fn wire_len(&self) -> usize {
        self.0.len()
    }

    fn corruptible_bits(&self) -> usize {
        self.0.len() * 8
    }

    fn flip_bit(&mut self, bit: usize) {
        self.0[bit / 8] ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests;
