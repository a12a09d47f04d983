//! `cm`: the Congestion Manager (Balakrishnan, Rahul, Seshan, SIGCOMM 1999; RFC 3124): connections to
//! the same host share one window, that of a single NewReno, however many they are.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farhaul_base::Time;
use farhaul_wire::{LossRange, Seq};

use crate::tcp_like::{ACK_INTERVAL, INITIAL_WINDOW, is_tested};
use crate::{GroupControl, Knobs, LEAST_WINDOW, Law, LawInfo, Make, SYN, View, max_min};

/// Hosts without a connection whose state is kept for the next one.
const REMEMBERED: usize = 1_000;
/// The smallest window and threshold, packets (RFC 5681 eq. 4).
const LEAST: f64 = 2.0;

/// The windows of all hosts that there are connections to.
#[derive(Debug)]
pub struct CongestionManager {
    initial_window: f64,
    hosts: BTreeMap<IpAddr, Arc<Mutex<Macroflow>>>,
}

impl CongestionManager {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: "cm",
        summary: "many connections to one host that together take no more than one NewReno",
        source: "RFC 3124; Balakrishnan and others, SIGCOMM 1999: the Congestion Manager",
        params: &[INITIAL_WINDOW],
        make: Make::Group(|values| Box::new(CongestionManager::new(values.get("window")))),
    };

    /// `initial_window`: packets sent to a host before the first ACK.
    pub fn new(initial_window: f64) -> Self {
        CongestionManager { initial_window, hosts: BTreeMap::new() }
    }
}

impl GroupControl for CongestionManager {
    fn join(&mut self, peer: IpAddr, _seed: u64) -> Box<dyn Law> {
        if self.hosts.len() > REMEMBERED {
            self.hosts.retain(|_, host| Arc::strong_count(host) > 1);
        }
        let host = self.hosts.entry(peer).or_insert_with(|| {
            Arc::new(Mutex::new(Macroflow {
                window: self.initial_window,
                threshold: f64::MAX,
                reduced_at: None,
                members: BTreeMap::new(),
            }))
        });
        Box::new(Member { host: host.clone(), id: 0, acked: Seq::new(0) })
    }
}

/// The connections to one host.
#[derive(Debug)]
struct Macroflow {
    /// The window of all together, packets.
    window: f64,
    threshold: f64,
    /// When the window was last reduced: what is lost within a round trip of that is no news.
    reduced_at: Option<Time>,
    /// What each can use of the window, packets.
    members: BTreeMap<u64, f64>,
}

impl Macroflow {
    /// One more: its number.
    fn join(&mut self) -> u64 {
        let id = self.members.last_key_value().map_or(0, |(last, _)| last + 1);
        self.members.insert(id, f64::INFINITY);
        id
    }

    /// `acked` packets of one of them have arrived (RFC 5681 §3.1).
    fn on_ack(&mut self, acked: f64) {
        self.window += if self.is_slow() { acked } else { acked / self.window };
    }

    fn is_slow(&self) -> bool {
        self.window < self.threshold
    }

    fn on_loss(&mut self, now: Time, rtt: Duration) {
        if self.reduced_at.is_none_or(|at| now - at > rtt) {
            self.threshold = (self.window / 2.0).max(LEAST);
            self.window = self.threshold;
            self.reduced_at = Some(now);
        }
    }

    /// A member's part of the window, packets, when it can use so much.
    fn share(&mut self, id: u64, usable: f64) -> f64 {
        self.members.insert(id, usable);
        let demands: Vec<f64> = self.members.values().copied().collect();
        let shares = max_min(self.window, &demands);
        let place = self.members.keys().position(|member| *member == id);
        place.map_or(LEAST, |index| shares[index])
    }
}

/// One connection's part.
#[derive(Debug)]
struct Member {
    host: Arc<Mutex<Macroflow>>,
    id: u64,
    acked: Seq,
}

impl Member {
    fn host(&self) -> MutexGuard<'_, Macroflow> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes its part of the window. One that has nothing more to send can use what it has in
    /// flight, and leaves the rest to the others.
    fn take_share(&self, view: &View, knobs: &mut Knobs) {
        let usable = if view.app_limited { view.in_flight.into() } else { f64::INFINITY };
        knobs.window = self.host().share(self.id, usable);
        // No window in force is smaller than the least, and many members with that would be far more than one
        // flow: what is less is a matter of spacing.
        knobs.period_ns = if knobs.window < LEAST_WINDOW {
            view.rtt.as_nanos() as f64 / knobs.window
        } else {
            0.0
        };
    }
}

impl Law for Member {
    fn name(&self) -> &'static str {
        CongestionManager::INFO.name
    }

    fn state(&self) -> &'static str {
        if self.host().is_slow() { "slow start" } else { "avoidance" }
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        let id = self.host().join();
        self.id = id;
        self.acked = view.largest_acked.next();
        knobs.period_ns = 0.0;
        knobs.ack_interval = ACK_INTERVAL;
        self.on_timer(view, knobs);
    }

    fn on_ack(&mut self, next: Seq, view: &View, knobs: &mut Knobs) {
        let acked = next.since(self.acked).max(0) as u32;
        self.acked = next;
        if is_tested(knobs.window, acked, view) {
            self.host().on_ack(f64::from(acked).min(knobs.window));
        }
        self.take_share(view, knobs);
    }

    fn on_loss(&mut self, _lost: &[LossRange], view: &View, knobs: &mut Knobs) {
        self.host().on_loss(view.now, view.rtt);
        self.take_share(view, knobs);
    }

    fn on_timeout(&mut self, view: &View, knobs: &mut Knobs) {
        self.host().on_loss(view.now, view.rtt);
        self.take_share(view, knobs);
        knobs.window = LEAST;
    }

    /// The others come and go: its part is another.
    fn on_timer(&mut self, view: &View, knobs: &mut Knobs) {
        self.take_share(view, knobs);
        knobs.timer = Some(view.now + SYN);
    }

    fn close(&mut self, _view: &View, _knobs: &mut Knobs) {
        self.host().members.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
