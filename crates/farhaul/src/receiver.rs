//! The driver's receiving: buffers, arrival times, and when to let arrivals gather.

use std::io::IoSliceMut;
use std::time::Duration;

use farhaul_base::Time;
use farhaul_engine::Endpoint;
use farhaul_udp::{ReceiveSlots, Received};

use crate::pool::{BLOCK, Block, Pool};
use crate::port::Port;

/// Buffers in one receive call: many while they hold single datagrams, few while receive offload
/// fills them, so that what was received is handled while it is in the cache.
const SMALL_SLOTS: usize = 16;
const LARGE_SLOTS: usize = 2;
/// While packets come one by one, arrivals are left to gather until so many may be there, but for no longer
/// and no shorter than this: a wake-up for each would cost more than all the rest.
const GATHERED: f64 = 8.0;
const LEAST_GATHER: Duration = Duration::from_micros(200);
const LONGEST_GATHER: Duration = Duration::from_millis(1);
/// Nor for longer than this part of the shortest round trip, to which it adds.
const GATHER_PART: u32 = 16;
/// A datagram from this size on is data. Acknowledgements are not let gather: the sender may wait
/// for each of them.
const DATA_FROM: usize = 512;
/// A sender to which more data comes than this in the longest time of gathering is a receiver as well.
const FEW_PACKETS: f64 = 4.0;
/// What arrives in that time must fit the kernel's buffer with ease.
const GATHER_BUFFER: usize = 1 << 20;
/// A receive buffer is kept by reference if it is at least half full.
const RETAIN_FROM: usize = BLOCK / 2;
/// A packet that waited longer than this in the kernel tells of a host that was busy or stopped, or
/// of a clock that was set, and not of the path. It is less than the shortest peer time-out.
const MAX_AGE: Duration = Duration::from_millis(50);

/// The driver's receive buffers.
pub struct Receiver {
    slots: ReceiveSlots,
    blocks: Vec<Block>,
    received: Vec<Received>,
    /// The last call brought receive-offload buffers.
    large: bool,
    /// The last call took everything.
    drained: bool,
    /// When the last call brought something, and how many data packets come one by one, per second,
    /// smoothed.
    last_at: Time,
    rate: f64,
    /// The last arrival stamp: what comes out of the kernel's queue has come in after it.
    last_arrival: Time,
    longest_gather: Duration,
}

impl Receiver {
    pub fn new(pool: &Pool) -> Self {
        Receiver {
            slots: ReceiveSlots::new(),
            blocks: (0..SMALL_SLOTS).map(|_| pool.take()).collect(),
            received: Vec::with_capacity(SMALL_SLOTS),
            large: false,
            drained: true,
            last_at: Time::ZERO,
            rate: 0.0,
            last_arrival: Time::ZERO,
            longest_gather: LEAST_GATHER,
        }
    }

    /// How long to leave arrivals to gather, if several data packets may be expected in that time and
    /// none is there yet.
    pub fn should_gather(&self, port: &Port) -> Option<Duration> {
        let wait = Duration::try_from_secs_f64(GATHERED / self.rate).unwrap_or(LONGEST_GATHER);
        let wait = wait.clamp(LEAST_GATHER, self.longest_gather);
        let gathers = self.drained
            && !self.large
            && self.rate * wait.as_secs_f64() >= 2.0
            && port.now() - self.last_at < 4 * wait
            && port.socket.buffers().receive >= GATHER_BUFFER;
        gathers.then_some(wait)
    }

    /// Whether what arrives is acknowledgements, as far as is known.
    pub fn sees_acks_only(&self) -> bool {
        self.drained && !self.large && self.rate * self.longest_gather.as_secs_f64() < FEW_PACKETS
    }

    /// Up to when timers may run out: what waits in the kernel came before them, and a thread that had
    /// no processor must not take for missing what it has not looked at yet.
    pub fn timers_until(&self, now: Time) -> Time {
        if self.drained { now } else { self.last_arrival.min(now) }
    }

    /// Whether the last call brought something.
    pub fn received_something(&self) -> bool {
        !self.received.is_empty()
    }

    /// Takes what has arrived; true if that was all.
    pub fn receive(&mut self, port: &Port) -> bool {
        let count = if self.large { LARGE_SLOTS } else { SMALL_SLOTS };
        self.received.clear();
        let mut buffers: Vec<IoSliceMut<'_>> =
            self.blocks[..count].iter_mut().map(|b| IoSliceMut::new(b.space())).collect();
        let result = port.socket.receive(&mut self.slots, &mut buffers, &mut self.received);
        while let Some(news) = port.socket.take_unreachable() {
            port.lock().endpoint.on_unreachable(port.now(), news.to, news.quoted());
        }
        if result.is_err() || self.received.is_empty() {
            self.large = false;
            self.drained = true;
            return true;
        }
        let now = port.now();
        let mut state = port.lock();
        for (index, received) in self.received.iter().enumerate() {
            if received.len == 0 {
                continue;
            }
            // The time of arrival, not of the call: what measures the path looks at it.
            let at = arrival(now, received.age, self.last_arrival);
            self.last_arrival = at;
            let retain = received.len >= RETAIN_FROM;
            let block = core::mem::replace(&mut self.blocks[index], port.pool.take());
            let bytes = block.share(received.len);
            state.endpoint.handle(at, received.from, &bytes, received.segment, retain);
        }
        self.longest_gather = gather_limit(&state.endpoint);
        drop(state);
        self.large = self.received.iter().any(|r| r.len >= RETAIN_FROM);
        let gap = (now - self.last_at).as_secs_f64().max(1e-6);
        if self.large {
            self.rate = 0.0;
        } else {
            let packets = self.received.iter().filter(|r| r.len >= DATA_FROM).count();
            self.rate += (packets as f64 / gap - self.rate) / 8.0;
        }
        self.last_at = now;
        self.drained = self.received.len() < count;
        self.drained
    }
}

/// How long to leave acknowledgements to gather while `endpoint` sends: until the pacing lets the next packets
/// go. Before, they wake a sender for nothing; their times are those of their arrival.
pub fn gather_acks(now: Time, endpoint: &Endpoint) -> Option<Duration> {
    let wait = endpoint.paced_until()? - now;
    let longest = gather_limit(endpoint);
    (longest > LEAST_GATHER).then(|| wait.min(longest))
}

/// How long anything may be left to gather for the sake of fewer wake-ups.
fn gather_limit(endpoint: &Endpoint) -> Duration {
    let part = endpoint.shortest_rtt().map_or(Duration::ZERO, |rtt| rtt / GATHER_PART);
    part.clamp(LEAST_GATHER, LONGEST_GATHER)
}

/// When something arrived that is `age` old by the system's clock, which may be set at any time.
fn arrival(now: Time, age: Duration, not_before: Time) -> Time {
    let age = age.min(MAX_AGE).as_nanos() as u64;
    Time::from_nanos(now.as_nanos().saturating_sub(age)).max(not_before).min(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_does_not_move_arrivals() {
        let (now, before) = (Time::from_secs(100), Time::from_millis(99_990));
        assert_eq!(arrival(now, Duration::from_millis(3), before), Time::from_millis(99_997));
        // An hour forward, or a process that was stopped.
        assert_eq!(arrival(now, Duration::from_secs(3600), before), before);
        assert_eq!(arrival(now, Duration::MAX, Time::ZERO), Time::from_millis(99_950));
        // Never in the future.
        assert_eq!(arrival(now, Duration::ZERO, Time::from_secs(101)), now);
    }
}
