//! One direction of a path.

use farhaul_base::{Rng, Time};

use crate::queue::{Queue, Queued, Refusal};
use crate::transmitter::Transmitter;
use crate::wire::Wire;
use crate::{LinkConfig, LinkStats, Packet};

/// One direction of a path: packets are offered at one end and polled at the other.
///
/// What comes out, and when, is a function of the configuration, the seed and the offers alone; how
/// often the link is polled makes no difference as long as the offers are in order of time and none
/// is dated before a call of [`advance`](Link::advance).
///
/// Memory: the link itself sets no bound when its queue has no limit
/// ([`Unlimited`](crate::QueueLimit::Unlimited)) or it has no rate.
#[derive(Clone, Debug)]
pub struct Link<P> {
    config: LinkConfig,
    queue: Queue<P>,
    /// The packet in transmission and when that ends.
    current: Option<(Time, Queued<P>)>,
    transmitter: Transmitter,
    wire: Wire<P>,
    stats: LinkStats,
}

impl<P: Packet> Link<P> {
    /// An idle link. Everything random about it is a function of `seed`.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let mut seeds = Rng::new(seed);
        // The wire's streams are the first ones: stored results depend on them.
        let wire = Wire::new(&config, &mut seeds);
        Link {
            queue: Queue::new(&config, seeds.fork()),
            current: None,
            transmitter: Transmitter::new(config.rate, &config.rate_changes),
            wire,
            stats: LinkStats::default(),
            config,
        }
    }

    /// A packet comes to the link at `at`. Calls are in order of time; of packets that come at the
    /// same time the one offered first goes first. One dated before the former is taken at its own
    /// date by the transmitter, which however serves in the order of the offers.
    ///
    /// A transmission that ends at `at` precisely has ended before the packet comes.
    ///
    /// # Errors
    /// The packet itself if the queue is full or drops it early (RED); the drop has been counted.
    /// CoDel drops packets that it has let in.
    pub fn offer(&mut self, at: Time, packet: P) -> Result<(), P> {
        self.settle(at);
        let bytes = packet.wire_len();
        self.stats.offered += 1;
        self.stats.offered_bytes += bytes as u64;
        if let Err(refusal) = self.queue.admit(at, bytes) {
            match refusal {
                Refusal::Full => self.stats.dropped_queue += 1,
                Refusal::Early => self.stats.dropped_early += 1,
            }
            return Err(packet);
        }
        self.queue.enter(at, bytes);
        let queued = Queued { packet, bytes };
        if self.current.is_some() {
            self.queue.push(at, queued);
        } else {
            self.current = Some((self.transmitter.start(at, bytes), queued));
        }
        Ok(())
    }

    /// The next packet that arrives at the far end by `now`, and the time of its arrival, which a
    /// caller that comes late passes on to the next link so that no error adds up.
    pub fn poll(&mut self, now: Time) -> Option<(Time, P)> {
        // Later transmissions cannot have arrived; leaving them alone lets an offer that is dated a
        // little before `now` still find the queue as it was.
        if let Some(sent_by) = now.as_nanos().checked_sub(self.wire.delay_ns()) {
            self.settle(Time::from_nanos(sent_by));
        }
        let (at, packet) = self.wire.poll(now, &mut self.stats)?;
        self.stats.passed += 1;
        self.stats.passed_bytes += packet.wire_len() as u64;
        Some((at, packet))
    }

    /// When to poll next: no packet arrives before. A packet may be lost or held up, so that there
    /// is none at this time. `None` if the link is empty.
    pub fn next_event(&self) -> Option<Time> {
        let sent = self.current.as_ref().map(|(end, _)| end.plus_nanos(self.wire.delay_ns()));
        self.wire.next_event().into_iter().chain(sent).min()
    }

    /// Brings the counters and the queue up to `now`: what [`stats`](Link::stats) shows is then
    /// exact. Offers that follow should not be dated before.
    pub fn advance(&mut self, now: Time) {
        self.settle(now);
        self.queue.pass_time(now);
    }

    /// The counters, as of the latest call that brought time along.
    pub fn stats(&self) -> LinkStats {
        LinkStats {
            in_flight: self.wire.in_flight() as u64,
            in_flight_bytes: self.wire.in_flight_bytes(),
            queue: self.queue.depth(),
            ..self.stats
        }
    }

    /// What the link was made with.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Ends the transmissions that end by `now`, and starts the ones that follow them.
    fn settle(&mut self, now: Time) {
        while let Some((end, Queued { packet, bytes })) =
            self.current.take_if(|(end, _)| *end <= now)
        {
            self.queue.leave(end, bytes);
            self.wire.send(end, packet, bytes, &mut self.stats);
            self.current = self.queue.pop(end, &mut self.stats.dropped_early).map(|next| {
                // It has waited for the transmitter, so it starts when that is free.
                (self.transmitter.start(Time::ZERO, next.bytes), next)
            });
        }
    }
}
