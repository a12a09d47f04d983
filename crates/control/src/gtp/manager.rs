//! The receiver's side of `gtp`: one manager, which measures what each flow brings, estimates what
//! the receiver can take, and divides it.

use core::time::Duration;

use farhaul_base::Time;

use crate::max_min;

/// A flow brings less than this share of its grant: it cannot use it.
const USED: f64 = 0.9;
/// Those who can use their grants bring less than this share of them: there is no more room.
const FILLED: f64 = 0.98;
/// From a grant of fewer packets an interval than this nobody can tell whether it is used.
const TELLING: f64 = 4.0;
/// What a flow that cannot use its share keeps beyond what it brings, to show that it has more.
const HEADROOM: f64 = 1.25;
/// A flow that brings more than this share of its grant does not keep to it…
const OBEYED: f64 = 1.25;
/// …if it does so in this many intervals in a row.
const PATIENCE: u32 = 3;
/// After an overrun, what arrived is what fits; a little less lets the queue drain.
const DRAIN: f64 = 0.97;
/// The capacity is probed upward by this share an interval (the author's example: 2%), twice as
/// much each further interval without an overrun.
const PROBE: f64 = 0.02;
/// The largest step of the probing, before the first overrun and after it.
const BOLDEST: [f64; 2] = [1.0, 0.08];
/// A round trip longer than the shortest by this much, and by an eighth of it, tells of a queue.
const QUEUE: Duration = Duration::from_millis(3);

/// What the manager is told of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    /// Bits received since the flow began, with all headers.
    pub bits: f64,
    /// Packets received, and packets found missing.
    pub packets: u64,
    pub missed: u64,
    pub rtt: Duration,
    pub rtt_min: Duration,
}

#[derive(Debug)]
struct Flow {
    id: u64,
    /// What it may send, bits/s.
    grant: f64,
    /// What it brought in the last interval, bits/s.
    rate: f64,
    /// What it wants, bits/s; without end while it uses what it is given.
    demand: f64,
    /// Intervals in a row in which it did not use what it is given.
    idle: u32,
    /// It is not given more than the first rate before this, while the others slow down.
    admitted_at: Time,
    /// What had arrived when the interval began, and what has now.
    before: Option<Arrivals>,
    latest: Option<Arrivals>,
    /// Intervals in a row in which it brought more than it may.
    overruns: u32,
}

impl Arrivals {
    fn packet_bits(&self) -> f64 {
        self.bits / self.packets.max(1) as f64
    }
}

impl Flow {
    /// Its sender does not keep to what it may send.
    fn is_unruly(&self) -> bool {
        self.overruns >= PATIENCE
    }

    /// It has no use for what it may send. Once is no sign: it may not have heard of it yet.
    fn is_idle(&self) -> bool {
        self.idle >= 2
    }

    /// What it takes of the capacity, bits/s; without end while it uses what it is given.
    fn appetite(&self) -> f64 {
        if self.is_idle() { self.rate } else { self.demand }
    }
}

/// All flows of one receiver.
#[derive(Debug)]
pub struct Manager {
    flows: Vec<Flow>,
    next_id: u64,
    settings: Settings,
    /// What the receiver can take, bits/s.
    capacity: f64,
    /// By how much the capacity is raised next, as a share of it.
    probe: f64,
    /// The capacity has been found once.
    was_overrun: bool,
    /// When the interval began.
    since: Time,
}

/// What does not change.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The capacity, bits/s; it is estimated where that is none.
    pub capacity: Option<f64>,
    /// What a flow sends before it has been admitted, bits/s.
    pub first_rate: f64,
    /// The control interval; it is never less than two round trips.
    pub interval: Duration,
    /// The share of packets that may be lost without being an overrun.
    pub tolerance: f64,
}

impl Manager {
    pub fn new(settings: Settings) -> Self {
        Manager {
            flows: Vec::new(),
            next_id: 0,
            settings,
            capacity: settings.capacity.unwrap_or(settings.first_rate),
            probe: BOLDEST[0],
            was_overrun: false,
            since: Time::ZERO,
        }
    }

    /// A flow joins. The others are given less at once, and it gets what they leave when they have
    /// had a round trip, and the time `notice` until they are told, to slow down.
    pub fn join(&mut self, now: Time, notice: Duration) -> u64 {
        if self.flows.is_empty() {
            self.since = now;
        }
        let id = self.next_id;
        self.next_id += 1;
        let wait = if self.flows.is_empty() { Duration::ZERO } else { self.longest_rtt() + notice };
        self.flows.push(Flow {
            id,
            grant: self.settings.first_rate,
            rate: 0.0,
            demand: f64::INFINITY,
            idle: 0,
            admitted_at: now + wait,
            before: None,
            latest: None,
            overruns: 0,
        });
        self.allocate(now);
        id
    }

    /// A flow leaves: what it had is given to the others at once.
    pub fn leave(&mut self, now: Time, id: u64) {
        self.flows.retain(|flow| flow.id != id);
        self.allocate(now);
    }

    /// News of a flow. Returns what it may send, bits/s.
    pub fn report(&mut self, now: Time, id: u64, arrivals: Arrivals) -> f64 {
        let Some(flow) = self.flows.iter_mut().find(|flow| flow.id == id) else { return 0.0 };
        flow.before.get_or_insert(arrivals);
        flow.latest = Some(arrivals);
        let waits = flow.grant <= self.settings.first_rate && now >= flow.admitted_at;
        if now - self.since >= self.settings.interval.max(2 * self.longest_rtt()) {
            self.control(now);
        } else if waits {
            self.allocate(now);
        }
        self.flows.iter().find(|flow| flow.id == id).map_or(0.0, |flow| flow.grant)
    }

    /// Whether the sender of a flow does not keep to what it may send.
    pub fn ignores_grant(&self, id: u64) -> bool {
        self.flows.iter().any(|flow| flow.id == id && flow.is_unruly())
    }

    fn longest_rtt(&self) -> Duration {
        let rtts = self.flows.iter().filter_map(|flow| flow.latest.map(|a| a.rtt));
        rtts.max().unwrap_or_default()
    }

    /// Ends a control interval.
    fn control(&mut self, now: Time) {
        let span = (now - self.since).as_secs_f64();
        let (mut total, mut packets, mut missed, mut queues) = (0.0, 0, 0, 0);
        // Of those who can use what they are granted.
        let (mut able, mut brought, mut granted) = (0, 0.0, 0.0);
        let mut grain: f64 = 0.0;
        for flow in &mut self.flows {
            let (Some(before), Some(latest)) = (flow.before, flow.latest) else { continue };
            let rate = (latest.bits - before.bits) / span;
            let packet = latest.packet_bits() / span;
            flow.rate = rate;
            total += rate;
            packets += latest.packets - before.packets;
            missed += latest.missed - before.missed;
            flow.before = flow.latest;
            let telling = flow.grant >= TELLING * packet;
            let idle = telling && rate < USED * flow.grant;
            flow.idle = if idle { flow.idle + 1 } else { 0 };
            // It keeps enough to show that it has more.
            let headroom = (rate * HEADROOM).max(2.0 * TELLING * packet);
            flow.demand = if idle { headroom } else { f64::INFINITY };
            if rate > 0.0 && !flow.is_idle() {
                able += 1;
                queues += u32::from(latest.rtt > latest.rtt_min * 9 / 8 + QUEUE);
                brought += rate;
                // Where it cannot be told, what it brings must do.
                granted += if telling { flow.grant } else { flow.grant.min(rate) };
                grain = grain.max(packet);
            }
            let over = rate > OBEYED * flow.grant && now > flow.admitted_at;
            flow.overruns = if over { flow.overruns + 1 } else { 0 };
        }
        // A packet more or less of a flow is chance, and of many flows the root of their number.
        let chance = f64::from(able).sqrt() * grain;
        self.since = now;
        if self.settings.capacity.is_none() {
            let lossy = missed as f64 > self.settings.tolerance * (packets + missed) as f64;
            // One way that is congested is no matter of the receiver's; and what an idle flow knows
            // of its round trip is old.
            let crowded = 2 * queues > able;
            if lossy || crowded {
                self.was_overrun = true;
                self.capacity = (DRAIN * total).max(self.settings.first_rate);
                self.probe = PROBE;
            } else if able > 0 && brought + chance >= FILLED * granted {
                // What does not arrive is no reason to think that there is more room, unless it
                // is of those who have nothing to send.
                self.capacity *= 1.0 + self.probe;
                self.probe = (2.0 * self.probe).min(BOLDEST[usize::from(self.was_overrun)]);
            }
        }
        self.allocate(now);
    }

    /// Divides the capacity. Those who do not keep to what they are given have taken their part
    /// already: the others divide the rest.
    fn allocate(&mut self, now: Time) {
        let first = self.settings.first_rate;
        let demands: Vec<f64> = self.flows.iter().map(|flow| flow.demand.max(first)).collect();
        let fair = max_min(self.capacity, &demands);
        let mut left = self.capacity;
        for (flow, share) in self.flows.iter_mut().zip(&fair).filter(|(flow, _)| flow.is_unruly()) {
            flow.grant = *share;
            left -= flow.rate.max(*share);
        }
        let ruly = || demands.iter().zip(&self.flows).filter(|(_, flow)| !flow.is_unruly());
        let kept = max_min(left, &ruly().map(|(demand, _)| *demand).collect::<Vec<f64>>());
        // What a flow may send and does not is no other's loss.
        let used = max_min(left, &ruly().map(|(_, flow)| flow.appetite()).collect::<Vec<f64>>());
        let ruly = self.flows.iter_mut().filter(|flow| !flow.is_unruly());
        for (flow, (kept, used)) in ruly.zip(kept.into_iter().zip(used)) {
            let share = kept.max(used);
            flow.grant = if now < flow.admitted_at { first.min(share) } else { share };
        }
    }
}

#[cfg(test)]
mod tests;
