//! One direction of a path.

use farhaul_base::{Rng, Time};

use crate::fate::{Cause, Kept, Lost};
use crate::policer::Bucket;
use crate::queue::{Queue, Queued};
use crate::slots::SlotTimes;
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
    policer: Option<Bucket>,
    queue: Queue<P>,
    /// The packet in transmission and when that ends.
    current: Option<(Time, Queued<P>)>,
    transmitter: Transmitter,
    wire: Wire<P>,
    stats: LinkStats,
    kept: Option<Box<Kept<P>>>,
}

impl<P: Packet> Link<P> {
    /// An idle link. Everything random about it is a function of `seed`.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let mut seeds = Rng::new(seed);
        // The wire's streams are the first ones: stored results depend on them.
        let mut wire = Wire::new(&config, &mut seeds);
        let queue = Queue::new(&config, seeds.fork());
        if let Some(slots) = config.slots {
            wire.set_slots(SlotTimes::new(slots, &mut seeds));
        }
        Link {
            policer: config.policer.map(Bucket::new),
            queue,
            current: None,
            transmitter: Transmitter::new(&config),
            wire,
            stats: LinkStats::default(),
            kept: None,
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
    /// The packet itself if the policer or the queue drops it; the drop has been counted.
    /// CoDel and those made of it drop packets that they have let in.
    pub fn offer(&mut self, at: Time, packet: P) -> Result<(), P> {
        self.try_offer(at, packet).map_err(|lost| lost.packet)
    }

    /// As [`offer`](Link::offer), and tells why a packet was not let in.
    ///
    /// # Errors
    /// As `offer`. [`take_lost`](Link::take_lost) does not tell of such a packet again.
    pub fn try_offer(&mut self, at: Time, mut packet: P) -> Result<(), Lost<P>> {
        self.settle(at);
        let bytes = packet.wire_len();
        self.stats.offered += 1;
        self.stats.offered_bytes += bytes as u64;
        let in_contract = self.policer.as_mut().is_none_or(|bucket| bucket.passes(at, bytes));
        let (stats, kept) = (&mut self.stats, &mut self.kept);
        let evicted = |packet| {
            stats.count(Cause::Full);
            if let Some(kept) = kept {
                kept.lost.push_back(Lost { at, cause: Cause::Full, packet });
            }
        };
        let admitted = if in_contract {
            self.queue.admit(at, &mut packet, bytes, evicted)
        } else {
            Err(Cause::Policed)
        };
        if let Err(cause) = admitted {
            self.stats.count(cause);
            return Err(Lost { at, cause, packet });
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
        // Whoever looks ahead must not change what the others see.
        let foreseen = self.kept.as_ref().and_then(|kept| kept.foreseen.front().copied());
        let sent = foreseen.or(self.next_end()).map(|end| end.plus_nanos(self.wire.delay_ns()));
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
            marked: self.queue.marked(),
            ..self.stats
        }
    }

    /// What the link was made with.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// The packets that it holds, in no particular order: those that wait, that in transmission,
    /// those on the wire.
    pub fn packets(&self) -> impl Iterator<Item = &P> {
        let current = self.current.iter().map(|(_, queued)| &queued.packet);
        self.queue.packets().chain(current).chain(self.wire.packets())
    }

    /// Begins to keep each packet that is lost, or ends that. Off at first, and then without cost.
    pub fn keep_lost(&mut self, keep: bool) {
        self.kept = keep.then(|| Box::new(Kept::new()));
    }

    /// The next packet that was lost on the wire or dropped after the queue had let it in, in order of time;
    /// none if [`keep_lost`](Link::keep_lost) is off. They pile up until they are taken.
    ///
    /// A loss comes to light with the call that brings its time along. It may be as late as the
    /// call that would have handed out the packet; [`foresee`](Link::foresee) brings it forward.
    pub fn take_lost(&mut self) -> Option<Lost<P>> {
        self.kept.as_mut()?.lost.pop_front()
    }

    /// Brings the losses up to `now` to light, if [`keep_lost`](Link::keep_lost) is on. Offers that
    /// follow must not be dated before. Unlike after [`advance`](Link::advance) the link goes on as
    /// if nobody had looked, also in what [`next_event`](Link::next_event) answers.
    pub fn foresee(&mut self, now: Time) {
        if self.kept.is_none() {
            return;
        }
        while let Some(end) = self.next_end().filter(|end| *end <= now) {
            self.end_transmissions(end);
            if let Some(kept) = &mut self.kept {
                kept.foreseen.push_back(end);
            }
        }
    }

    /// When the current transmission ends: nothing is lost before, but packets that are offered.
    /// None if nothing is being transmitted.
    pub fn next_end(&self) -> Option<Time> {
        self.current.as_ref().map(|(end, _)| *end)
    }

    /// Brings the transmitter up to `now`.
    fn settle(&mut self, now: Time) {
        if let Some(kept) = &mut self.kept {
            while kept.foreseen.front().is_some_and(|end| *end <= now) {
                kept.foreseen.pop_front();
            }
        }
        self.end_transmissions(now);
    }

    /// Ends the transmissions that end by `now`, and starts the ones that follow them.
    fn end_transmissions(&mut self, now: Time) {
        while let Some((end, Queued { packet, bytes })) =
            self.current.take_if(|(end, _)| *end <= now)
        {
            self.queue.leave(end, bytes);
            let (stats, kept) = (&mut self.stats, &mut self.kept);
            let mut lose = |cause, packet| {
                if let Some(kept) = kept {
                    kept.lost.push_back(Lost { at: end, cause, packet });
                }
            };
            if let Err((cause, packet)) = self.wire.send(end, packet, bytes, stats) {
                stats.count(cause);
                lose(cause, packet);
            }
            let next = self.queue.pop(end, |packet| {
                stats.count(Cause::Early);
                lose(Cause::Early, packet);
            });
            self.current = next.map(|next| {
                // It has waited for the transmitter, so it starts when that is free.
                (self.transmitter.start(Time::ZERO, next.bytes), next)
            });
        }
    }
}
