//! A host that takes its time: what stands between a link's end and an agent, and between an agent
//! and its first link.
//!
//! A packet that arrives waits in the interface until the interrupt. TCP is handed it then; a UDT
//! endpoint, which is a process, reads it when that wakes, and is told when the interrupt was, as
//! kernels tell by their time stamps. Timers come late. In a stall nothing happens at all.
//!
//! What a node passes on for others is not held up: a router is no host.

mod profile;
mod quantiles;

use core::time::Duration;
use std::collections::VecDeque;

use farhaul_base::{Rng, Time};
use farhaul_wire::is_control;

use crate::packet::{Content, Packet};
use crate::tcp::{Kind, Segment};

pub use profile::{Batch, HostProfile};
pub use quantiles::Quantiles;

/// Word 0 of a UDT ACK's header, without the bits that laws and versions do not use: a control packet
/// of type 2.
const UDT_ACK: [u8; 2] = [0x80, 0x02];
/// The payload of a light ACK is the number alone (`farhaul_wire::Ack`).
const LIGHT_ACK: usize = 4;

/// A host at work.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    profile: HostProfile,
    rngs: Rngs,
    /// The present stall, or the next one.
    stall: (Time, Time),
    /// What has arrived and waits for the interrupt.
    ring: VecDeque<Packet>,
    /// When that is; none while nothing waits.
    interrupt: Option<Time>,
    /// ACKs that wait for a later one, in the order in which they will leave.
    held: VecDeque<(Time, Packet)>,
    pub counts: HostCounts,
}

/// Each has a stream of its own, so that one draw more of one leaves the others as they were.
#[derive(Clone, Debug)]
struct Rngs {
    timer: Rng,
    wake: Rng,
    coalesce: Rng,
    stall: Rng,
}

/// What a host counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Packets lost because the interface held as many as it can.
    pub overruns: u64,
    /// ACKs whose place a later one took.
    pub thinned: u64,
    /// Stalls that are over.
    pub stalls: u64,
    /// Interrupts, and the packets that they brought.
    pub interrupts: u64,
    /// See [`HostCounts::interrupts`].
    pub packets: u64,
}

/// What an agent on such a host waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doze {
    /// Packets that its socket holds, with the times of their interrupts.
    pub inbox: VecDeque<(Time, Packet)>,
    /// When its process runs to read them.
    wake: Option<Time>,
    /// When it asked to be woken, and when it will be.
    timer: Option<(Time, Time)>,
}

impl Host {
    /// Everything random about it is a function of `seed`.
    pub(crate) fn new(profile: HostProfile, seed: u64) -> Self {
        let mut seeds = Rng::new(seed);
        let rngs = Rngs {
            timer: seeds.fork(),
            wake: seeds.fork(),
            coalesce: seeds.fork(),
            stall: seeds.fork(),
        };
        let mut host = Host {
            profile,
            rngs,
            stall: (Time::ZERO, Time::ZERO),
            ring: VecDeque::new(),
            interrupt: None,
            held: VecDeque::new(),
            counts: HostCounts::default(),
        };
        host.stall = host.next_stall(Time::ZERO);
        host
    }

    /// How many packets receive offload hands over as one.
    pub(crate) fn batch(&self) -> usize {
        self.profile.batch.0 as usize
    }

    /// The end of the stall that the host is in at `now`; calls are in order of time.
    pub(crate) fn stalled(&mut self, now: Time) -> Option<Time> {
        while self.stall.1 <= now {
            self.counts.stalls += 1;
            self.stall = self.next_stall(self.stall.1);
        }
        (self.stall.0 <= now && self.stall.1 != Time::MAX).then_some(self.stall.1)
    }

    fn next_stall(&mut self, after: Time) -> (Time, Time) {
        let every = self.profile.stall_every.as_nanos() as f64;
        if every == 0.0 {
            return (Time::MAX, Time::MAX);
        }
        let begin = after.plus_nanos(self.rngs.stall.exponential(every) as u64 + 1);
        let length = self.profile.stall.draw(&mut self.rngs.stall);
        (begin, begin + length.max(Duration::from_nanos(1)))
    }

    /// A packet has come over a link. Handed back: there is no room for it.
    pub(crate) fn arrive(&mut self, now: Time, packet: Packet) -> Result<(), Packet> {
        if self.profile.ring.is_some_and(|ring| self.ring.len() >= ring as usize) {
            self.counts.overruns += 1;
            return Err(packet);
        }
        self.ring.push_back(packet);
        if self.interrupt.is_none() {
            let wait = self.profile.coalesce.draw(&mut self.rngs.coalesce);
            self.interrupt = Some(now + wait);
        }
        Ok(())
    }

    /// What the interrupt brings, if it is due.
    pub(crate) fn take_arrived(&mut self, now: Time) -> VecDeque<Packet> {
        if self.interrupt.is_none_or(|at| at > now) {
            return VecDeque::new();
        }
        self.interrupt = None;
        self.counts.interrupts += 1;
        self.counts.packets += self.ring.len() as u64;
        core::mem::take(&mut self.ring)
    }

    /// Takes an ACK that leaves at `now` if it is to wait for a later one, in the place of the one
    /// that waits already. Whatever else an agent sends comes behind what waits: take that with
    /// [`Host::release_of`] first.
    pub(crate) fn hold(&mut self, now: Time, packet: Packet) -> Option<Packet> {
        if self.profile.ack_hold.is_zero() {
            return Some(packet);
        }
        let Some(ack) = cumulative_ack(&packet) else { return Some(packet) };
        let same = |(_, held): &&mut (Time, Packet)| {
            held.from == packet.from && cumulative_ack(held) == Some(ack)
        };
        if let Some((_, held)) = self.held.iter_mut().find(same) {
            *held = packet;
            self.counts.thinned += 1;
        } else {
            self.held.push_back((now + self.profile.ack_hold, packet));
        }
        None
    }

    /// The ACK of `packet`'s sender that it must not overtake: a report of a loss says what has
    /// arrived before.
    pub(crate) fn release_of(&mut self, packet: &Packet) -> Option<Packet> {
        if self.held.is_empty() || cumulative_ack(packet).is_some() {
            return None;
        }
        let place = self.held.iter().position(|(_, held)| held.from == packet.from)?;
        self.held.remove(place).map(|(_, held)| held)
    }

    /// An ACK that has waited for long enough.
    pub(crate) fn release(&mut self, now: Time) -> Option<Packet> {
        let due = self.held.front().is_some_and(|(at, _)| *at <= now);
        if due { self.held.pop_front().map(|(_, packet)| packet) } else { None }
    }

    /// When it has something to do.
    pub(crate) fn next_event(&self) -> Option<Time> {
        self.interrupt.into_iter().chain(self.held.front().map(|(at, _)| *at)).min()
    }

    /// The packets that it holds.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.ring.iter().chain(self.held.iter().map(|(_, packet)| packet))
    }

    /// The interrupt at `now` has brought a process something.
    pub(crate) fn wake(&mut self, now: Time, doze: &mut Doze) {
        if doze.wake.is_none() {
            doze.wake = Some(now + self.profile.wake.draw(&mut self.rngs.wake));
        }
    }

    /// An agent, whose turn was at `now`, wants to be woken at `due`.
    pub(crate) fn sleep(&mut self, now: Time, due: Option<Time>, doze: &mut Doze) {
        let Some(due) = due else {
            doze.timer = None;
            return;
        };
        if doze.timer.is_some_and(|(asked, _)| asked == due) {
            return;
        }
        // What is due at once needs no timer.
        let fire = if due <= now {
            now.plus_nanos(1)
        } else {
            due + self.profile.timer.draw(&mut self.rngs.timer)
        };
        doze.timer = Some((due, fire));
    }
}

impl Doze {
    /// When the agent's turn is.
    pub(crate) fn next(&self) -> Option<Time> {
        self.wake.into_iter().chain(self.timer.map(|(_, fire)| fire)).min()
    }

    /// Its turn has come.
    pub(crate) fn awake(&mut self, now: Time) {
        self.wake = None;
        self.timer = self.timer.filter(|(_, fire)| *fire > now);
    }
}

/// Of a packet that acknowledges everything before a number and does nothing else, which connection
/// of its sender's it is of.
fn cumulative_ack(packet: &Packet) -> Option<u32> {
    match &packet.content {
        Content::Tcp(Segment { connection, damaged: false, kind: Kind::Ack { .. }, .. }) => {
            Some(*connection)
        }
        Content::Udt { header, payload } => {
            let light = is_control(header) && header[..2] == UDT_ACK && payload.len() == LIGHT_ACK;
            // The last word is the connection's number at its receiver.
            light.then(|| u32::from_be_bytes([header[12], header[13], header[14], header[15]]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
